"""What the cases of a wrong evaluation ask of the evidence: who evaluates, how erratic it is, on how many rows."""

from __future__ import annotations

from tuneclinic.casebook.learning._facts import as_number, number, say, series, shape_of
from tuneclinic.evidence import Evidence, Exhibit

TRAINERS = frozenset({"transformers", "trl", "llama-factory", "axolotl", "ms-swift", "unsloth", "lightning"})
"""Frameworks whose trainer switches the mode and pads the loss by itself."""


def by_trainer(seen: Evidence) -> tuple[Exhibit, ...]:
    """An exhibit that the framework's own trainer evaluates, which switches the model to eval mode."""
    framework = seen.settings.framework if seen.settings is not None else ""
    if framework not in TRAINERS or series(seen, "eval_loss") is None or (seen.script is not None and seen.script.facts):
        return ()
    return (
        say(
            f"the evaluation is that of {framework}'s trainer, which calls model.eval()",
            f"评估由 {framework} 的 Trainer 执行，它会调用 model.eval()",
            -4.0,
            section="settings",
        ),
    )


def erratic(seen: Evidence, weight: float = 2.0) -> tuple[Exhibit, ...]:
    """An exhibit that the evaluation jumps while training is smooth."""
    held = series(seen, "eval_loss")
    if held is None or not shape_of(seen).eval_erratic:
        return ()
    shown = ", ".join(f"{value:.3g}" for value in held.values[:5].tolist())
    return (
        say(
            f"the evaluation loss jumps: {shown} …", f"验证 loss 乱跳：{shown} …", weight, where=held.where(0), source=held.source
        ),
    )


def steady(seen: Evidence, weight: float = -4.0) -> tuple[Exhibit, ...]:
    """An exhibit that the evaluation goes its way without jumps, with enough points to tell."""
    held = series(seen, "eval_loss")
    if held is None or len(held) < 5 or shape_of(seen).eval_erratic:
        return ()
    return (
        say(
            f"the evaluation loss is steady over {len(held)} evaluations",
            f"验证 loss 在 {len(held)} 次评估中走势平稳",
            weight,
            source=held.source,
        ),
    )


def held_out_rows(seen: Evidence) -> float | None:
    """How many rows are evaluated: a count, or a share of the rows read; None where it is not known."""
    split = number(seen, "eval_split")
    if split is None or split <= 0:
        return None
    if split >= 1:
        return split
    rows = seen.data.total if seen.data is not None else None
    if rows is None and seen.settings is not None and "num_examples" in seen.settings.unknown:
        trained = as_number(seen.settings.unknown["num_examples"].value)
        return None if trained is None else split / (1 - split) * trained
    return None if rows is None else split * rows
