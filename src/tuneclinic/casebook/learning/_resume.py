"""What the cases of a resumed run ask of the evidence."""

from __future__ import annotations

from tuneclinic.casebook.learning._facts import say, setting, shape_of
from tuneclinic.evidence import Evidence, Exhibit


def resumes(seen: Evidence) -> tuple[Exhibit, ...]:
    """Exhibits that the run was resumed: by its settings or by its series. Empty where nothing says so."""
    asked = (
        setting(seen, "resume")
        if seen.settings is not None and seen.settings.get("resume") not in (None, False, "", "false")
        else ()
    )
    form = shape_of(seen)
    shown: tuple[Exhibit, ...] = ()
    if form.resumed_at is not None:
        shown = (
            say(
                f"the curve shows a resume at step {form.resumed_at:g}",
                f"曲线显示第 {form.resumed_at:g} 步处有一次恢复训练",
                0.0,
                where=f"step {form.resumed_at:g}",
            ),
        )
    return (*asked, *shown)


def jump(seen: Evidence, up: float, down: float) -> tuple[Exhibit, ...]:
    """The change of the loss at the resume, weighed by its sign; empty where it did not change or was not resumed."""
    form = shape_of(seen)
    if form.resume_jump is None:
        return ()
    return (
        say(
            f"the loss changes by {form.resume_jump:+.0%} where the run was resumed",
            f"恢复训练处 loss 变化 {form.resume_jump:+.0%}",
            up if form.resume_jump > 0 else down,
        ),
    )


def smooth(seen: Evidence) -> bool:
    """Whether the series show a resume and no change of the loss there."""
    form = shape_of(seen)
    return form.resumed_at is not None and form.resume_jump is None


def no_jump() -> Exhibit:
    """The exhibit against every fault of a resume."""
    return say("the loss continues where it stopped", "恢复之后 loss 接得上", -5.0)
