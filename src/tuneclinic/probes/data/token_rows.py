"""Checks of tokenised rows that need the tokenizer's ids."""

from __future__ import annotations

from collections.abc import Sequence

from tuneclinic.probes.data.rendered import Faults
from tuneclinic.sections import Model, Sample, Tokenizer

IGNORED = -100
IMAGE_IDS = frozenset({-200, -300})
"""LLaVA's marks for a picture and a video among the input ids; they never reach the embedding."""
TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|endofturn|>",
    "[|endofturn|]",
    "<|eot|>",
    "<|END_OF_TURN_TOKEN|>",
)
"""Tokens that end a turn in templates whose eos is another (ChatML, Llama 3 and 4, Gemma, Phi, EXAONE, Cohere)."""
AFTER_END = 2
"""ChatML trains one newline after its end token; two tokens are looked back at most."""


def ends_of(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids that end an answer, as far as the tokenizer's files tell."""
    texts = {tokenizer.eos, *TURN_ENDS}
    ids = {number for text, number in tokenizer.ids.items() if text in texts}
    return frozenset(ids | set(tokenizer.generation_eos or ()) | set(tokenizer.config_eos or ()))


def examine_tokens(
    samples: Sequence[Sample], tokenizer: Tokenizer | None, model: Model | None, longest: int
) -> tuple[Faults, set[str]]:
    """Checks the tokenised rows among `samples`; `longest` is the set's greatest length, at which rows may have been cut."""
    faults, names = Faults(), set[str]()
    rows = [sample for sample in samples if sample.input_ids]
    size = _vocabulary(tokenizer, model)
    if rows and size:
        names.add("id-out-of-range")
        for sample in rows:
            worst = _outside(sample, size)
            if worst is not None:
                faults.add("id-out-of-range", sample, f"{worst} ≥ {size}" if worst >= 0 else f"{worst} < 0")
    if rows and tokenizer is not None:
        names |= _marks(rows, tokenizer, longest, faults)
    return faults, names


def _vocabulary(tokenizer: Tokenizer | None, model: Model | None) -> int | None:
    """Rows of the embedding: the model's own number, else what the tokenizer's ids reach to."""
    if model is not None and model.vocabulary:
        return model.vocabulary
    if tokenizer is None or not tokenizer.vocabulary:
        return None
    return max(tokenizer.vocabulary, max(tokenizer.ids.values(), default=0) + 1)


def _outside(sample: Sample, size: int) -> int | None:
    """An id or label that the embedding or the loss has no row for."""
    ids = sample.input_ids or ()
    labels = [label for label in sample.labels or () if label != IGNORED]
    worst = max(*ids, *labels, 0)
    if worst >= size:
        return worst
    low = min((number for number in ids if number not in IMAGE_IDS), default=0)
    low = min(low, min(labels, default=0))
    return low if low < 0 else None


def _marks(rows: Sequence[Sample], tokenizer: Tokenizer, longest: int, faults: Faults) -> set[str]:
    names = set[str]()
    bos = tokenizer.ids.get(tokenizer.bos or "")
    ends = ends_of(tokenizer)
    if bos is not None and bos not in ends:
        names.add("double-bos")
        for sample in rows:
            if (sample.input_ids or ())[:2] == (bos, bos):
                faults.add("double-bos", sample, f"{(sample.input_ids or ())[:8]}")
    masked = [sample for sample in rows if sample.labels and IGNORED in sample.labels and any(x >= 0 for x in sample.labels)]
    if ends and masked:
        names |= {"end-token-masked", "end-token-missing"}
        for sample in masked:
            _end(sample, ends, longest, faults)
    return names


def _end(sample: Sample, ends: frozenset[int], longest: int, faults: Faults) -> None:
    """Whether the last trained token is the end, or the end follows it untrained, or there is none."""
    labels, ids = sample.labels or (), sample.input_ids or ()
    last = max(index for index, label in enumerate(labels) if label >= 0)
    if any(labels[index] in ends for index in range(max(0, last - AFTER_END), last + 1)):
        return
    tail = f"ids {ids[max(0, last - 3) : last + 3]}, labels {labels[max(0, last - 3) : last + 3]}"
    if ids[last + 1 : last + 2] and ids[last + 1] in ends:
        faults.add("end-token-masked", sample, tail)
    elif len(ids) < longest and not ends & set(ids[last + 1 :]):
        faults.add("end-token-missing", sample, tail)
