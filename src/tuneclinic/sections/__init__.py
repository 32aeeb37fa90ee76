"""The sections of the evidence: plain, frozen values, one class a subject.

Every section is filled by probes and read by cases. A field that was not seen is `None` or empty; a section that no
probe filled is absent from the evidence altogether. Places (`where`) are written as a person would cite them:
`config.yaml:14`, `train.jsonl row 212`, `step 40`.
"""

from tuneclinic.sections.events import Crash, CrashError, Environment, Log, LogLine, OutOfMemory, Script, ScriptFact
from tuneclinic.sections.results import Attempt, Attempts, Output, Outputs, Score, Scores, Serving
from tuneclinic.sections.subject import Adapter, Data, Model, RowSet, Sample, Tokenizer, WeightFile, Weights
from tuneclinic.sections.training import Metrics, Series, Setting, Settings

__all__ = [
    "Adapter",
    "Attempt",
    "Attempts",
    "Crash",
    "CrashError",
    "Data",
    "Environment",
    "Log",
    "LogLine",
    "Metrics",
    "Model",
    "OutOfMemory",
    "Output",
    "Outputs",
    "RowSet",
    "Sample",
    "Score",
    "Scores",
    "Script",
    "ScriptFact",
    "Series",
    "Serving",
    "Setting",
    "Settings",
    "Tokenizer",
    "WeightFile",
    "Weights",
]
