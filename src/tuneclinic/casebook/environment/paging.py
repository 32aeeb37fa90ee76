"""Memory is paged: the step waits for the host's memory or the disk."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.environment._facts import slows
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import finite, lines, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Environment

OVER = 1.02
"""Peak memory over the card's capacity from which the rest lies elsewhere: two per cent more than the
rounding of printed capacities (23.6 as 24)."""
FULL = 0.9
"""Share of a card below which a peak speaks against paging."""


FLUSHES = (r"[1-9]\d* pytorch allocator cache flushes since last step",)
"""DeepSpeed's line: usual now and then near the card's limit, telling only where the pace falls too."""


class Paging(Case):
    id = "paging"
    symptoms = {"slow": 0.07}
    stage = "environment"
    needs = ("metrics", "environment", "log")
    probe = "memory"
    signatures = (
        r"some parameters are on the meta (device|devices) because they were offloaded to the (cpu|disk)",
        r"\bkswapd\d|swap(ping)? (usage|is) .{0,20}(9\d|100) ?%",
        r"shared gpu memory (in use|usage)",
    )
    search = (
        "Some parameters are on the meta device because they were offloaded to the cpu",
        "pytorch allocator cache flushes since last step high memory pressure",
        "Windows shared GPU memory training very slow",
        "swap usage 100% training slow",
        "显存不够用到共享显存 训练特别慢",
        "内存换页 swap 满了 训练变慢",
        "权重被 offload 到 CPU 很慢",
    )

    en = Card(
        title="GPU or host memory is being paged",
        sign="From one moment on the speed drops by a large factor, or it is tens of times too low from the start, and nothing fails. The card's memory is completely full, and the PCIe bus or the disk is busy.",
        cause='What does not fit is moved elsewhere without an error: device_map="auto" puts layers into CPU memory or on disk, the Windows driver uses shared GPU memory, the host swaps, or the allocator frees and requests memory in every step (cache flushes).',
        remedy='Make it fit: batch 1 with accumulation, gradient_checkpointing: true, 4-bit weights, a shorter maximum length. For training load with device_map={"": local_rank}; do not use "auto" on a card that is too small. Windows: set CUDA - Sysmem Fallback Policy to Prefer No Sysmem Fallback, so that it runs out of memory with an error. Host: fewer workers, or swapoff -a.',
        verify="Peak memory stays at least 1 GB below the card's, no line about the meta device is printed, vmstat 1 shows si and so at 0, and the speed is steady.",
        prevention="Log peak memory, and stop if model.hf_device_map contains cpu or disk.",
        question="What is the peak (torch.cuda.max_memory_allocated) compared with the card's memory, and what is in model.hf_device_map?",
        quiz="Under Windows a 24 GB card reports a peak of 29 GB and a tenth of its speed. Why no out-of-memory error? The driver put 5 GB into host memory, and every step fetches them over PCIe.",
    )
    zh = Card(
        title="显存或内存在换页",
        sign="从某一刻起速度掉几倍，或者一开始就慢几十倍，却什么错都不报。显存顶满，PCIe 或磁盘很忙。",
        cause='放不下的部分被悄悄放到别处：device_map="auto" 把层放进内存甚至磁盘；Windows 驱动溢出到共享显存；主机在 swap；或者 allocator 每步都在清缓存重新申请（cache flushes）。',
        remedy='让它放得下：batch 1 加梯度累积、gradient_checkpointing: true、4-bit 权重、缩短最大长度。训练时用 device_map={"": local_rank}，卡不够大就别用 "auto"。Windows：NVIDIA 控制面板里把“CUDA - Sysmem Fallback Policy”设为“Prefer No Sysmem Fallback”，放不下就直接报 OOM。主机侧减少 worker，或 swapoff -a。',
        verify="显存峰值比卡小 1 GB 以上，不再打印 meta device 那一行，vmstat 1 的 si/so 为 0，速度平稳。",
        prevention="日志里打显存峰值；model.hf_device_map 出现 cpu 或 disk 就直接停。",
        question="显存峰值（torch.cuda.max_memory_allocated）占整张卡多少？model.hf_device_map 里有什么？",
        quiz="Windows 上 24 GB 的卡报峰值 29 GB，速度只有十分之一，为什么没 OOM？驱动把 5 GB 放进了主机内存，每步都要走 PCIe 搬运。",
    )
    change = {"gradient_checkpointing": True}
    sick = make.Lazy(
        lambda: [
            Evidence(
                log=make.logged(
                    "WARNING: Some parameters are on the meta device because they were offloaded to the cpu and disk."
                )
            ),
            Evidence(
                environment=Environment(gpus=("NVIDIA GeForce RTX 4090",), gpu_memory=24.0),
                metrics=make.ran(
                    loss=make.falling(80),
                    memory_gib=[22.0] * 40 + [29.0] * 40,
                    step_seconds=make.then(make.level(80, 1.0), 6.0, 40),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # as slow, and the card has room
                environment=Environment(gpus=("NVIDIA A100",), gpu_memory=79.2),
                metrics=make.ran(
                    loss=make.falling(80), memory_gib=[22.0] * 80, step_seconds=make.then(make.level(80, 1.0), 6.0, 40)
                ),
            ),
            Evidence(  # nearly full, at an even pace
                environment=Environment(gpus=("NVIDIA B200",), gpu_memory=178.0),
                metrics=make.ran(loss=make.falling(80), memory_gib=[169.0] * 80, step_seconds=make.level(80, 1.0)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        told = lines(seen, *self.signatures, weight=7.0)
        slow, peak = slows(seen), _peak(seen)
        flushes = lines(seen, *FLUSHES, weight=3.0) if slow else ()
        if told or flushes or (peak is not None and peak.weight > 0 and slow):
            return self.confirmed(*told, *flushes, *([peak] if peak is not None else []), *slow)
        if peak is None:
            return self.not_checked("metrics", "environment", exhibits=slow)
        if peak.weight > 0:
            return self.suspected(peak)
        if peak.weight < 0 or not slow:
            even = () if slow else (say("the speed is steady", "速度平稳", -3.0),)
            return self.ruled_out(peak, *even)
        return self.not_checked("log", exhibits=(peak, *slow))


def _peak(seen: Evidence) -> Exhibit | None:
    """The largest logged memory beside the card's capacity; None where one of the two was not read."""
    held = finite(seen, "memory_gib")
    room = seen.environment.gpu_memory if seen.environment is not None else None
    if not held.size or not room or room <= 0:
        return None
    share = float(held.max()) / room
    weight = 5.0 if share >= OVER else 0.0 if share >= FULL else -5.0
    return say(
        f"peak memory {float(held.max()):.1f} GiB of {room:.1f} GiB on the card",
        f"显存峰值 {float(held.max()):.1f} GiB，卡共 {room:.1f} GiB",
        weight,
    )
