"""What was trained, and on what: data, tokenizer, model, weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tuneclinic.sections._fill import filled
from tuneclinic.values import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One training row as far as it was read.

    `row` counts from 1 in `source`. `messages` are (role, text) pairs in order, whatever the file's layout was;
    prompt/answer layouts become user and assistant. `rendered` is the text that the run's own chat template makes
    of it, None where no template was read. `input_ids` and `labels` are set where the file itself is tokenised.
    """

    row: int
    source: str
    messages: tuple[tuple[str, str], ...] = ()
    rendered: str | None = None
    images: int = 0
    rejected: str | None = None
    input_ids: tuple[int, ...] | None = None
    labels: tuple[int, ...] | None = None

    @property
    def where(self) -> str:
        """`train.jsonl row 212`."""
        return f"{self.source} row {self.row}"

    @property
    def answers(self) -> tuple[str, ...]:
        """The texts of the assistant's turns in order."""
        return tuple(text for role, text in self.messages if role == "assistant")

    @property
    def prompt(self) -> str:
        """The text of the last user turn, or the first text of any other role."""
        users = [text for role, text in self.messages if role == "user"]
        return users[-1] if users else next((text for role, text in self.messages if role != "assistant"), "")


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows that share one defect: `name` is a closed list kept by the reader of data sets, rows count from 1."""

    name: str
    rows: tuple[int, ...]
    source: str
    example: str = ""


@dataclass(frozen=True, slots=True)
class Data:
    """Training data as far as they were read.

    `layout` is "messages", "sharegpt", "alpaca", "prompt-completion", "preference", "text" or "tokenised".
    `rows` is how many rows were read; `total` how many the set has, None where only a head was read.
    `checked` names the row checks that were made over those rows, `defects` what they found: a check that is in
    `checked` and has no entry in `defects` was clean.
    """

    layout: str = ""
    rows: int = 0
    total: int | None = None
    samples: tuple[Sample, ...] = ()
    checked: frozenset[str] = frozenset()
    defects: tuple[RowSet, ...] = ()
    sources: tuple[str, ...] = ()
    statistics: Mapping[str, float] = field(default_factory=dict)

    def defect(self, name: str) -> tuple[RowSet, ...]:
        """All row sets of one defect; empty where there is none."""
        return tuple(rows for rows in self.defects if rows.name == name)

    def merge(self, later: Data) -> Data:
        """The union of two files of one set."""
        whole = self.total is not None and later.total is not None
        return Data(
            layout=self.layout or later.layout,
            rows=self.rows + later.rows,
            total=(self.total or 0) + (later.total or 0) if whole else None,
            samples=self.samples + later.samples,
            checked=self.checked & later.checked if self.samples and later.samples else self.checked | later.checked,
            defects=self.defects + later.defects,
            sources=self.sources + later.sources,
            statistics={**later.statistics, **self.statistics},
        )


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """What the tokenizer's own files say: special tokens as text, `ids` of special tokens, the chat template.

    `templates` names every template of a list of named ones. `generation_eos` are the ids that `generation_config.json`
    stops on, `config_eos` those of `config.json`.
    """

    bos: str | None = None
    eos: str | None = None
    pad: str | None = None
    unk: str | None = None
    ids: Mapping[str, int] = field(default_factory=dict)
    template: str | None = None
    templates: tuple[str, ...] = ()
    generation_eos: tuple[int, ...] | None = None
    config_eos: tuple[int, ...] | None = None
    config_pad: int | None = None
    model_max_length: float | None = None
    vocabulary: int | None = None
    padding_side: str | None = None
    adds_bos: bool | None = None
    not_special: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()

    def merge(self, later: Tokenizer) -> Tokenizer:
        """This one, with gaps filled from `later`."""
        return filled(self, later)


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's configuration (`adapter_config.json`) or the settings that make one."""

    kind: str = "LORA"
    rank: float | None = None
    alpha: float | None = None
    dropout: float | None = None
    target_modules: tuple[str, ...] | str | None = None
    modules_to_save: tuple[str, ...] = ()
    base: str | None = None
    inference_mode: bool | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """The model's shape and precision: `config.json`, what the log printed of it, and its adapter.

    Counts are numbers of parameters, not of millions. `parameters` and `trainable` are what the log printed or, for
    `parameters`, what the shapes in `config.json` add up to. `image_max_pixels` is the limit that the processor's own file
    (`preprocessor_config.json`) sets on a picture's area, in pixels.
    """

    name: str | None = None
    architecture: str | None = None
    family: str | None = None
    vocabulary: int | None = None
    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None
    key_value_heads: int | None = None
    intermediate: int | None = None
    head_dim: int | None = None
    experts: int | None = None
    max_positions: int | None = None
    tied: bool | None = None
    dtype: str | None = None
    quantization: str | None = None
    parameters: float | None = None
    trainable: float | None = None
    vision: bool | None = None
    image_token_id: int | None = None
    image_max_pixels: float | None = None
    adapter: Adapter | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()

    def merge(self, later: Model) -> Model:
        """This one, with gaps filled from `later`."""
        return filled(self, later)


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One checkpoint file. `values_read` is False where only the header was; `unread` says why a file was not opened.

    `nonfinite` names tensors that hold NaN or infinity, `empty` tensors of size 0; `zero_lora_b` of `lora_b` counts the
    adapter matrices whose every value is 0. `step` is the checkpoint's step where its folder tells.
    """

    source: str
    size: int
    form: str = "safetensors"
    tensors: int = 0
    names: tuple[str, ...] = ()
    dtypes: Mapping[str, int] = field(default_factory=dict)
    nonfinite: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    lora_b: int = 0
    zero_lora_b: int = 0
    values_read: bool = False
    unread: str = ""
    step: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def adapter(self) -> bool:
        """Whether this file holds an adapter rather than a whole model."""
        return self.lora_b > 0 or "adapter" in self.source.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Weights:
    """All checkpoint files that were found, by step where their folders tell."""

    files: tuple[WeightFile, ...] = ()

    def merge(self, later: Weights) -> Weights:
        """Both sets of files."""
        return Weights(self.files + later.files)
