"""What the cases of this folder ask of a run that turned non-finite."""

from __future__ import annotations

import numpy as np

from tuneclinic.casebook.learning._facts import finite, say, series, shape_of, text_of
from tuneclinic.evidence import Evidence, Exhibit

HALF = ("fp16", "float16", "half", "16-true", "16-mixed")
BRAIN = ("bf16", "bfloat16")


def precision(seen: Evidence) -> str:
    """The precision of the run's arithmetic: "fp16", "bf16", "fp32", or "" where nothing says."""
    if seen.settings is None:
        return ""
    if seen.settings.flag("bf16") or seen.settings.flag("pure_bf16"):
        return "bf16"
    if seen.settings.flag("fp16"):
        return "fp16"
    given = text_of(seen, "dtype").replace("torch.", "")
    if any(name in given for name in BRAIN):
        return "bf16"
    if any(given == name or given.startswith("16-") for name in HALF):
        return "fp16"
    if given in {"float32", "fp32", "no", "32", "32-true"}:
        return "fp32"
    return ""


def broken(seen: Evidence) -> tuple[Exhibit, ...]:
    """An exhibit of the first non-finite step, without weight; empty where everything logged is finite."""
    form = shape_of(seen)
    if form.nan_from is None:
        return ()
    where = f"step {form.nan_from:g}"
    if form.nan_hidden and series(seen, "grad_norm") is None:
        text = f"the loss drops to exactly 0.0 at step {form.nan_from:g} and stays there"
        return (say(text, f"第 {form.nan_from:g} 步 loss 直接掉到 0.0，之后一直是 0.0", 0.0, where=where),)
    if form.nan_hidden:
        text = f"the gradient norm is NaN from step {form.nan_from:g} while the loss prints a number"
        return (say(text, f"第 {form.nan_from:g} 步起梯度范数是 NaN，而 loss 还打印着数字", 0.0, where=where),)
    return (say(f"NaN or infinity from step {form.nan_from:g}", f"第 {form.nan_from:g} 步起出现 NaN 或 inf", 0.0, where=where),)


def all_finite(seen: Evidence) -> Exhibit | None:
    """The exhibit against, where a loss was logged and none of it is broken."""
    form = shape_of(seen)
    if form.points < 3 or form.nan_from is not None:
        return None
    return say("every logged loss and gradient norm is finite", "日志里的 loss 和梯度范数都是有限值", -8.0)


def finite_loss_with_broken_gradient(seen: Evidence) -> Exhibit | None:
    """The first row whose loss is a number above 0 while its gradient norm is NaN or infinite; None where there is none."""
    loss, norms = series(seen, "loss"), series(seen, "grad_norm")
    if loss is None or norms is None:
        return None
    steps, mine, theirs = np.intersect1d(loss.steps, norms.steps, return_indices=True)
    held = np.isfinite(loss.values[mine]) & (loss.values[mine] > 0) & ~np.isfinite(norms.values[theirs])
    if not held.any():
        return None
    at = int(np.argmax(held))
    return say(
        f"step {steps[at]:g}: loss {loss.values[mine][at]:.4g}, gradient norm {norms.values[theirs][at]:g}",
        f"第 {steps[at]:g} 步：loss {loss.values[mine][at]:.4g}，梯度范数 {norms.values[theirs][at]:g}",
        0.0,
        where=norms.where(int(theirs[at])),
        source=norms.source,
    )


def never_stepped(seen: Evidence) -> bool:
    """Whether the rate was 0 at every step up to the first NaN."""
    form = shape_of(seen)
    return form.nan_from is not None and form.learning_rate_always_zero


def infinite_loss(seen: Evidence) -> Exhibit | None:
    """The first loss that is infinite rather than NaN."""
    loss = series(seen, "loss")
    if loss is None or not np.isinf(loss.values).any():
        return None
    at = int(np.argmax(np.isinf(loss.values)))
    return say("the loss is infinite, not NaN", "loss 是 inf 而不是 NaN", 2.0, where=loss.where(at), source=loss.source)


def rises_before(seen: Evidence) -> float:
    """How many times its median the gradient norm is just before the first NaN; 1 where unknown."""
    return shape_of(seen).grad_norm_rises or 1.0


__all__ = [
    "all_finite",
    "broken",
    "finite",
    "finite_loss_with_broken_gradient",
    "infinite_loss",
    "never_stepped",
    "precision",
    "rises_before",
]
