"""What a run shows of its gradients and of what they reach."""

from __future__ import annotations

from tuneclinic.arrays import median
from tuneclinic.casebook.learning._facts import finite, say, shape_of
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.words import Text

NO_GRAD_FN = r"element 0 of tensors does not require grad"
"""PyTorch's words for a loss without a graph behind it."""
INPUTS_WITHOUT_GRAD = r"none of the inputs have requires_grad=true"
"""PyTorch's checkpoint warning: the segment's inputs carry no gradient, so neither does what comes out."""
ENOUGH_NORMS = 10
"""Gradient norms of 0 in a row from which no reader takes them for rounding or for a norm that was not computed yet."""


def gradients(seen: Evidence) -> str:
    """What the logged gradient norms say: "zero" (every one exactly 0), "alive" (finite and above 0), "" where unknown."""
    norms = finite(seen, "grad_norm")
    if not norms.size:
        return ""
    if not norms.any():
        # A trainer that logs no norm prints 0 too, and then the loss moves.
        form = shape_of(seen)
        still = form.no_learning or form.repeats_exactly is not None or form.masked_from is not None
        return "zero" if still and len(norms) >= ENOUGH_NORMS else ""
    return "alive" if float(median(norms)) > 0 else ""


def untouched_adapter(seen: Evidence, weight: float) -> tuple[Exhibit, ...]:
    """An exhibit that a saved adapter still holds its initial zeros, where its values were read."""
    for file in seen.weights.files if seen.weights is not None else ():
        if file.values_read and file.lora_b and file.zero_lora_b == file.lora_b:
            text = Text(
                f"all {file.lora_b} lora_B matrices in {file.source} are still zero",
                f"{file.source} 里 {file.lora_b} 个 lora_B 还全是 0",
            )
            return (Exhibit(text, file.source, file.source, weight=weight, section="weights"),)
    return ()


def trainable_exhibit(seen: Evidence, weight_zero: float, weight_some: float) -> tuple[Exhibit, ...]:
    """The number of trainable parameters that the log or configuration gives."""
    count = seen.model.trainable if seen.model is not None else None
    if count is None or seen.model is None:
        return ()
    where = str(seen.model.places.get("trainable", ""))
    return (
        say(
            f"{count:,.0f} trainable parameters",
            f"可训练参数 {count:,.0f} 个",
            weight_some if count > 0 else weight_zero,
            section="model",
            where=where,
            source=where.split(":", maxsplit=1)[0],
        ),
    )
