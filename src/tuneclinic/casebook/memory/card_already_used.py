"""Someone else holds memory of the card."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy

UNEXPLAINED = 0.3
"""Share of the card that is neither free nor this process's own from which others must hold it: contexts of all ranks on one card
explain some percent."""


class CardAlreadyUsed(Case):
    id = "card-already-used"
    symptoms = {"oom-at-start": 0.12, "oom-late": 0.04}
    stage = "environment"
    needs = ("crash",)
    probe = "environment"
    signatures = (r"process \d+ has [\d.]+ [gm]ib memory in use", r"cuda error: all cuda-capable devices are busy")
    search = (
        "GPU memory used by another process",
        "OOM although the model is tiny",
        "zombie process holds GPU memory",
        "显卡被别的进程占用",
        "显存被占 nvidia-smi",
        "僵尸进程占显存",
    )

    en = Card(
        title="Another process uses the GPU's memory",
        sign="Out of memory although this process allocated far less than the GPU has. The message names other processes, or total minus free minus your own use is many GiB.",
        cause="A notebook kernel, a process left over from a crashed run, an inference server, a colleague's job, or several of your own ranks on GPU 0 because CUDA_VISIBLE_DEVICES or set_device is missing.",
        remedy="Run nvidia-smi (or fuser -v /dev/nvidia*) to see who it is. End your own processes (kill PID), or choose an empty GPU with CUDA_VISIBLE_DEVICES. In a distributed script call torch.cuda.set_device(local_rank) before the first tensor is created.",
        verify="nvidia-smi shows the GPU empty before the start, and only your own PIDs after it.",
        prevention="At the start of every run print torch.cuda.mem_get_info(), and stop if less is free than the estimate needs.",
        question="What does nvidia-smi list on that GPU before you start?",
        quiz="A GPU of 79 GiB, PyTorch allocated 30, free 0.1. Where are the other 49? In other processes: the message or nvidia-smi names them.",
    )
    zh = Card(
        title="显存被别的进程占着",
        sign="本进程分配得并不多就爆显存：报错里点名了其他进程，或者总显存减去空闲、再减去自己用的，还差好多 GiB。",
        cause="可能是 notebook 内核、崩掉的训练残留的进程、推理服务、同事的任务，也可能是自己的多个 rank 都挤在 0 号卡上（没设 CUDA_VISIBLE_DEVICES 或 set_device）。",
        remedy="nvidia-smi（或 fuser -v /dev/nvidia*）看是谁；自己的就 kill 掉，用 CUDA_VISIBLE_DEVICES 选空卡；分布式脚本在建第一个张量之前调用 torch.cuda.set_device(local_rank)。",
        verify="启动前 nvidia-smi 显示该卡为空，启动后只有自己的 PID。",
        prevention="每次训练一开始就打印 torch.cuda.mem_get_info()，空闲显存低于估算值就拒绝启动。",
        question="启动之前，nvidia-smi 里那张卡上有什么？",
        quiz="79 GiB 的卡，PyTorch 只分配了 30，空闲 0.1，剩下的 49 在哪？在别的进程里，看报错或 nvidia-smi。",
    )
    sick = Lazy(
        lambda: [
            facts.failing(phase="load", asked=0.5, capacity=79.2, free=0.1, allocated=30.0, other_processes=48.6),
            facts.failing(asked=0.5, capacity=23.7, free=0.02, in_use=9.1, allocated=8.6),
        ]
    )
    healthy = Lazy(
        lambda: [
            facts.failing(phase="forward", asked=2.0, capacity=79.2, free=0.4, in_use=78.7, allocated=77.0),
            facts.failing(phase="load", asked=0.2, capacity=23.6, free=0.1, in_use=23.4, allocated=23.2),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        branch = facts.card_error(seen)
        if branch is None:
            return self.not_checked("crash")
        memory, capacity = branch.memory, branch.memory.capacity
        if memory.other_processes and capacity and memory.other_processes > facts.OTHER_SHARE * capacity:
            return self.confirmed(_held(memory.other_processes, capacity, branch), facts.told(branch))
        if not capacity or memory.free is None:
            return self.not_checked("environment")
        own = memory.in_use or ((memory.allocated or 0.0) + (memory.reserved_unallocated or 0.0))
        if not own:
            return self.not_checked("environment")
        unexplained = capacity - memory.free - own
        if memory.in_use and unexplained > UNEXPLAINED * capacity:
            return self.confirmed(_held(unexplained, capacity, branch), facts.told(branch))
        if unexplained > UNEXPLAINED * capacity:
            return self.suspected(_held(unexplained, capacity, branch, 3.0), facts.told(branch), missing=("environment",))
        return self.ruled_out(
            facts.said(
                f"this process itself holds {own:.1f} of {capacity:.1f} GiB",
                f"本进程自己占了 {capacity:.1f} GiB 中的 {own:.1f} GiB",
                -5.0,
                where=branch.error.where,
            )
        )


def _held(size: float, capacity: float, branch: facts.Branch, weight: float = 7.0) -> Exhibit:
    return facts.said(
        f"others hold {size:.1f} of the card's {capacity:.1f} GiB",
        f"其他进程占了 {capacity:.1f} GiB 中的 {size:.1f} GiB",
        weight,
        where=branch.error.where,
    )
