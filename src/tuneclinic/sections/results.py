"""What came of it: outputs, scores, serving, earlier attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from tuneclinic.sections._fill import filled
from tuneclinic.values import dataclass


@dataclass(frozen=True, slots=True)
class Output:
    """One generation. `reference` is the expected answer, `base` what the untuned model said, where the file has them."""

    prompt: str
    text: str
    where: str
    source: str = ""
    reference: str | None = None
    base: str | None = None
    finish: str | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Outputs:
    """Generated outputs of the tuned model."""

    items: tuple[Output, ...] = ()
    max_new_tokens: float | None = None

    def merge(self, later: Outputs) -> Outputs:
        """Both sets of outputs."""
        return Outputs(self.items + later.items, self.max_new_tokens or later.max_new_tokens)


@dataclass(frozen=True, slots=True)
class Score:
    """One evaluation score; `base` is the untuned model's, where a table compares them. Higher is better unless `lower`."""

    task: str
    metric: str
    tuned: float | None
    base: float | None = None
    lower: bool = False
    domain: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True)
class Scores:
    """Evaluation scores."""

    items: tuple[Score, ...] = ()

    def merge(self, later: Scores) -> Scores:
        """Both sets of scores; the base model's own file is paired with the tuned model's by task and metric."""
        open_ = {(one.task, one.metric): one for one in (*self.items, *later.items) if one.tuned is None and one.base is not None}
        paired = [
            replace(one, base=open_.pop((one.task, one.metric)).base)
            if one.base is None and (one.task, one.metric) in open_
            else one
            for one in (*self.items, *later.items)
            if one.tuned is not None
        ]
        return Scores((*paired, *open_.values()))


@dataclass(frozen=True, slots=True)
class Serving:
    """What serves the model: a Modelfile, a GGUF header, a server's command line or compose file.

    `engine` is "ollama", "vllm", "sglang", "llama.cpp", "lmdeploy", "tgi", "gguf" … `stops` are stop strings, `stop_ids`
    stop token ids. `sampling` holds temperature, top_p, top_k, repetition_penalty, max_tokens where set. `system` is the
    system text that the server sends unasked (a Modelfile's SYSTEM).
    """

    engine: str = ""
    model: str | None = None
    adapter: str | None = None
    template: str | None = None
    system: str | None = None
    stops: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    eos_id: int | None = None
    bos_id: int | None = None
    adds_bos: bool | None = None
    context: float | None = None
    dtype: str | None = None
    quantization: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    image: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()

    def merge(self, later: Serving) -> Serving:
        """This one, with gaps filled from `later`."""
        return filled(self, later)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Another attempt at the same run: what it set and how its loss went."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    first_loss: float | None = None
    last_loss: float | None = None


@dataclass(frozen=True, slots=True)
class Attempts:
    """Sibling runs found beside this one, in order of their names."""

    items: tuple[Attempt, ...] = ()

    def merge(self, later: Attempts) -> Attempts:
        """Both."""
        return Attempts(self.items + later.items)
