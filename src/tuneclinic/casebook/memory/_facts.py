"""What the memory cases ask of the evidence: the out-of-memory error, its branch of the memory tree, and the arithmetic."""

from __future__ import annotations

from dataclasses import replace

from tuneclinic.arithmetic import GIB, MemoryNeed, need
from tuneclinic.evidence import Evidence, Exhibit, from_error
from tuneclinic.sections import Crash, CrashError, Metrics, OutOfMemory, Series, Setting, Settings
from tuneclinic.values import dataclass
from tuneclinic.words import Text

OTHER_SHARE = 0.08
"""Share of a card that other processes must hold to count: a CUDA context alone takes 0.3 to 0.6 GiB, under 8 % of an 8 GiB card."""
FRAGMENT_SHARE = 0.15
"""Share of the card that is reserved and unallocated from which fragmentation is worth a suspicion: PyTorch's own message speaks of
"large"; healthy runs reported in threads hold 2 to 8 % there."""
FULL_SHARE = 0.5
"""Share of trained parameters above which a run counts as full tuning; adapters with trained embeddings stay below."""
LEAN_BYTES = 6.0
"""Bytes a parameter at the least: 16-bit weights, gradients and one 16-bit state. AdamW holds two of them."""
HOST_DEVICES = frozenset({"host"})


@dataclass(frozen=True, slots=True)
class Branch:
    """Where in the memory tree an out-of-memory error stands."""

    error: CrashError
    memory: OutOfMemory
    phase: str
    early: bool


def card_error(seen: Evidence) -> Branch | None:
    """The first out-of-memory error of an accelerator; None where there is none."""
    for error in seen.crash.errors if seen.crash else ():
        if error.memory is not None and error.memory.device not in HOST_DEVICES:
            return Branch(error, error.memory, error.phase or error.memory.phase, _early(seen, error))
    return None


def _early(seen: Evidence, error: CrashError) -> bool:
    """Whether it happened before a second row was logged."""
    loss = seen.metrics.get("loss") if seen.metrics else None
    if loss is not None and len(loss) > 2:
        return False
    return error.step is None or error.step <= 2


def told(branch: Branch, weight: float = 0.0) -> Exhibit:
    """The error's own words."""
    return from_error(branch.error, weight)


def said(en: str, zh: str, weight: float = 0.0, section: str = "crash", where: str = "") -> Exhibit:
    """An exhibit in both languages."""
    return Exhibit(Text(en, zh), where, weight=weight, section=section)


def phase_is(branch: Branch, *phases: str, weight: float) -> Exhibit | None:
    """The phase of the error as an exhibit, where it is one of `phases`."""
    if branch.phase not in phases:
        return None
    return said(
        f"it failed during: {branch.phase}",
        f"出错阶段：{PHASES_ZH.get(branch.phase, branch.phase)}",
        weight,
        where=branch.error.where,
    )


PHASES_ZH = {
    "load": "加载权重", "data": "数据", "forward": "前向", "backward": "反向", "optimizer": "优化器更新", "evaluation": "评测", "save": "保存", "": "未知",
}  # fmt: skip


def frames_with(branch: Branch, *names: str) -> str:
    """The innermost stack frame that mentions one of `names`; "" where none does."""
    for frame in reversed(branch.error.frames):
        if any(name in frame for name in names):
            return frame
    return ""


def estimate(seen: Evidence) -> MemoryNeed | None:
    """The arithmetic for this run; None where `config.json` gave no shape or no settings were read."""
    if seen.model is None or seen.settings is None:
        return None
    return need(seen.model, seen.settings)


def part(seen: Evidence, name: str, capacity: float | None) -> Exhibit | None:
    """One part of the arithmetic beside the card's capacity, weighed by how much of the card it would take."""
    got = estimate(seen)
    size = getattr(got, name) if got is not None else 0.0
    if not size:
        return None
    names = {"weights": ("weights", "权重"), "optimizer": ("optimizer states", "优化器状态"), "gradients": ("gradients", "梯度"),
             "activations": ("activations", "激活"), "logits": ("logits", "logits")}[name]  # fmt: skip
    room = f" of {capacity:.0f} GiB" if capacity else ""
    room_zh = f"，显存共 {capacity:.0f} GiB" if capacity else ""
    share = size / capacity if capacity else 0.0
    weight = 3.0 if share > 0.9 else 1.5 if share > 0.4 else 0.0 if share > 0.1 or not capacity else -2.0
    return said(
        f"computed size: the {names[0]} take {size:.1f} GiB{room}",
        f"按公式估算，{names[1]}约占 {size:.1f} GiB{room_zh}",
        weight,
        "model",
    )


def overfull(seen: Evidence, capacity: float | None) -> Exhibit | None:
    """An exhibit that full tuning cannot fit whatever the batch; None where the arithmetic leaves room or is not sure.

    Counted as lean as it gets: two bytes each of weight, gradient and optimizer state, on one card, nothing offloaded.
    """
    parameters = seen.model.parameters if seen.model is not None else None
    trained = (seen.model.trainable if seen.model is not None else None) or 0.0
    settings = seen.settings or Settings()
    full = bool(parameters and trained >= FULL_SHARE * parameters) or settings.get("method") == "full"
    spread = bool(
        settings.get("fsdp") or settings.get("deepspeed") or settings.get("offload_optimizer") or settings.number("zero_stage")
    )
    if not parameters or not capacity or not full or spread or LEAN_BYTES * parameters / GIB <= capacity:
        return None
    least = LEAN_BYTES * parameters / GIB
    return said(
        f"full tuning of {parameters / 1e9:.3g}B parameters takes {least:.0f} GiB for weights, gradients and optimizer states alone; the GPU has {capacity:.0f}",
        f"全参训练 {parameters / 1e9:.3g}B 参数，光权重、梯度和优化器状态就要 {least:.0f} GiB，这张卡只有 {capacity:.0f}",
        6.0,
        "model",
    )


def crash_example(
    kind: str = "torch.OutOfMemoryError",
    phase: str = "",
    frames: tuple[str, ...] = (),
    step: float | None = None,
    **memory: float,
) -> CrashError:
    """An out-of-memory error for examples."""
    held = OutOfMemory("cuda", phase=phase, **memory)
    text = f"CUDA out of memory. Tried to allocate {memory.get('asked', 1.0):.2f} GiB."
    return CrashError(kind, text, "train.log:80", "train.log", frames=frames, phase=phase, step=step, memory=held)


def set_to(**values: object) -> Settings:
    """Settings for examples."""
    return Settings(
        {name: Setting(value, "config.yaml:1", "config.yaml", name) for name, value in values.items()}, framework="transformers"
    )


def failing(phase: str = "", frames: tuple[str, ...] = (), step: float | None = None, **memory: float) -> Evidence:
    """A run of which nothing was read but its out-of-memory error, for examples."""
    return Evidence(crash=Crash((crash_example("torch.OutOfMemoryError", phase, frames, step, **memory),)))


def at_optimizer() -> Evidence:
    """It failed when the optimizer made its states: a near miss of every other branch."""
    return failing("optimizer", asked=0.5, capacity=79.2, free=0.3, allocated=78.0)


def at_load() -> Evidence:
    """It failed while the weights were loaded: a near miss of every later branch."""
    return failing("load", asked=0.2, capacity=23.6, free=0.1, allocated=23.2)


def after_steps() -> Evidence:
    """It failed on a forward pass after forty good steps: a near miss of every branch at the start."""
    late = failing("forward", step=40, asked=2.0, capacity=79.2, free=0.3, allocated=76.0)
    return replace(late, metrics=Metrics({"loss": Series.of([2.0, 1.9, 1.8, 1.7])}))
