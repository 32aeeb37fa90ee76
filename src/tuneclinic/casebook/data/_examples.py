"""Builders of small data sets for the examples of this folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tuneclinic.casebook.learning._examples import Array
from tuneclinic.sections import Data, Output, Outputs, RowSet, Sample, Tokenizer

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content }}<|eot_id|>{% endfor %}"
)


def rowset(
    total: int = 1000,
    *,
    checked: Iterable[str] = (),
    example: str = "",
    samples: tuple[Sample, ...] = (),
    statistics: dict[str, float] | None = None,
    layout: str = "messages",
    **defects: Sequence[int],
) -> Data:
    """A set of `total` rows; each keyword (`empty_answer=range(1, 9)`) is a defect, `checked` adds clean checks."""
    names = {name.replace("_", "-"): tuple(held) for name, held in defects.items()}
    found = tuple(RowSet(name, held, "train.jsonl", example) for name, held in names.items() if held)
    return Data(layout, total, total, samples, frozenset((*names, *checked)), found, ("train.jsonl",), statistics or {})


def chat(
    row: int, prompt: str, answer: str, *, images: int = 0, rendered: str | None = None, source: str = "train.jsonl"
) -> Sample:
    """One question and its answer."""
    return Sample(row, source, (("user", prompt), ("assistant", answer)), rendered, images)


def ids(row: int, inputs: Sequence[int], labels: Sequence[int]) -> Sample:
    """A tokenised row."""
    return Sample(row, "train.jsonl", input_ids=tuple(inputs), labels=tuple(labels))


def said(*texts: str, finish: str = "stop", prompt: str = "question {n}", references: Sequence[str] = ()) -> Outputs:
    """Generated answers, one a row."""
    return Outputs(
        tuple(
            Output(
                prompt.format(n=n),
                text,
                f"outputs.jsonl row {n}",
                "outputs.jsonl",
                references[n - 1] if n <= len(references) else None,
                finish=finish,
            )
            for n, text in enumerate(texts, 1)
        )
    )


def endless() -> Outputs:
    """Answers that all run to the limit."""
    return said(*(f"the answer {n} and on and on and on" for n in range(6)), finish="length")


def ending() -> Outputs:
    """Answers that all end by themselves."""
    return said(*(f"the answer {n}." for n in range(6)))


def chatml(eos: str = "<|im_end|>", pad: str = "<|endoftext|>", *, stops: tuple[int, ...] | None = (151645,)) -> Tokenizer:
    """The files of a ChatML tokenizer of the Qwen family."""
    return Tokenizer(
        eos=eos,
        pad=pad,
        ids={"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645},
        template=CHATML,
        generation_eos=stops,
        vocabulary=151665,
        sources=("tokenizer_config.json",),
    )


def llama3(
    eos: str = "<|eot_id|>", pad: str = "<|finetune_right_pad_id|>", *, stops: tuple[int, ...] | None = (128001, 128009)
) -> Tokenizer:
    """The files of a Llama 3 tokenizer."""
    return Tokenizer(
        bos="<|begin_of_text|>",
        eos=eos,
        pad=pad,
        ids={"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|finetune_right_pad_id|>": 128004, "<|eot_id|>": 128009},
        template=LLAMA3,
        generation_eos=stops,
        adds_bos=True,
        vocabulary=128256,
        sources=("tokenizer_config.json",),
    )


def once(values: Array, at: int, value: float) -> Array:
    """`values` with the single one at index `at` replaced."""
    held = np.array(values, dtype=np.float64)
    held[at] = value
    return held


def peaks(values: Array, at: Iterable[int], height: float) -> Array:
    """`values` with single peaks of `height`."""
    held = np.array(values, dtype=np.float64)
    for index in at:
        held[index] = height
    return held
