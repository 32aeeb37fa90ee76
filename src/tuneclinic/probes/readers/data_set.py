"""Data sets: JSON lines, JSON, CSV; chat, instruction, preference, plain and tokenised rows."""

from __future__ import annotations

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.data.layouts import recognise
from tuneclinic.probes.data.rows import head
from tuneclinic.probes.data.tables import data_of, table_of
from tuneclinic.probes.reading import HEAD_BYTES, Reader, Reading, SourceFile
from tuneclinic.words import Text

ENDINGS = (".jsonl", ".json", ".ndjson", ".jsonlines", ".csv", ".tsv")
HEAD_ROWS = 20
OTHERS = frozenset({"dataset_info.json", "trainer_state.json", "trainer_log.jsonl", "config.json", "tokenizer.json"})
"""Files of other readers that hold lists of objects too."""
OUTPUT_NAMES = pattern(r"predict|generat|outputs?\b|completions|answers?\b|transcript|eval_results|samples_|infer")
"""File names that people give to what a model wrote."""
LONG_ROW = pattern(r'\s*\[?\s*\{\s*"(?:messages|conversations|instruction|prompt|text|input_ids)"\s*:')
"""The start of a file whose first row does not end within the head."""
NOTHING = Text("no training rows of a known layout", "没有读到已知格式的训练样本")


class DataSet(Reader):
    """Rows of a training or evaluation set."""

    kind = "data-set"

    def claims(self, file: SourceFile) -> float:
        """Sure where the first rows are training rows; less sure where the name or the columns may be a model's outputs."""
        if not file.base.endswith(ENDINGS) or file.base in OTHERS or file.binary:
            return 0.0
        raw = head(file, HEAD_ROWS)
        layout = recognise(row for _, row in raw.rows)
        if not raw.rows and len(file.head) >= HEAD_BYTES and LONG_ROW.match(file.head_text):
            return 0.6
        if not layout:
            return 0.0
        return 0.45 if OUTPUT_NAMES.search(file.base) else 0.9

    def read(self, file: SourceFile) -> list[Reading]:
        """All rows of the file, at most those of its first 64 MiB."""
        table = table_of(file)
        if not table.rows:
            skipped = {"rows": len(table.malformed)} if table.malformed else {}
            return [Reading(skipped=skipped, note=NOTHING)]
        skipped = {"malformed rows": len(table.malformed)} if table.malformed else {}
        return [Reading(Evidence(data=data_of(table)), {f"{table.layout} rows": len(table.rows)}, skipped)]
