"""Memory is reserved and too cut up to be used."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy


class MemoryFragmented(Case):
    id = "memory-fragmented"
    symptoms = {"oom-late": 0.1}
    stage = "environment"
    needs = ("crash",)
    probe = "memory"
    search = (
        "reserved but unallocated memory is large",
        "expandable_segments",
        "max_split_size_mb to avoid fragmentation",
        "显存碎片",
        "reserved 远大于 allocated",
        "PYTORCH_CUDA_ALLOC_CONF 碎片化",
    )

    en = Card(
        title="GPU memory is fragmented",
        sign="Out of memory after many steps, and the message says that more memory is reserved but unallocated than was asked for. Lengths differ from batch to batch.",
        cause="PyTorch's caching allocator holds blocks that were cut for other sizes, and no single block is large enough. Changing lengths create new sizes at every step.",
        remedy="Before the start: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. From torch 2.9 on it prints a deprecation warning but works; the new name PYTORCH_ALLOC_CONF is ignored in some 2.9 builds. Then make sizes repeat: group by length, pad to multiples of 64 (pad_to_multiple_of=64 in the collator), or use packing. Calling empty_cache() every step is slow and does not solve it.",
        verify="Reserved minus allocated stays small for hours, and the batch that failed passes.",
        prevention="Set expandable_segments in the launch script of every run with changing lengths, and log reserved memory next to allocated memory.",
        question="How many GiB are 'reserved by PyTorch but unallocated' in the message?",
        quiz="Asked for 2 GiB, free 0.5, reserved but unallocated 11. Is the GPU full? No: the space is there, but in pieces.",
    )
    zh = Card(
        title="显存碎片化",
        sign="跑了很多步之后爆显存，报错里“reserved but unallocated”比申请的还大；每个 batch 长短不一。",
        cause="PyTorch 的缓存分配器手里都是按别的尺寸切好的块，没有一块够大；长度一变就切出新尺寸。",
        remedy="启动前 export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True。torch 2.9 起会提示这个名字已弃用，但仍然有效；新名字 PYTORCH_ALLOC_CONF 在部分 2.9 版本里不起作用。再让尺寸重复出现：按长度分桶、padding 到 64 的倍数（collator 里 pad_to_multiple_of=64），或用 packing。每步 empty_cache() 又慢又解决不了问题。",
        verify="跑几个小时 reserved 减 allocated 仍然很小，原来失败的 batch 能过。",
        prevention="长度不固定的训练，在启动脚本里默认打开 expandable_segments，日志同时打印 reserved 和 allocated。",
        question="报错里写的“reserved by PyTorch but unallocated”是多少 GiB？",
        quiz="申请 2 GiB，空闲 0.5，reserved but unallocated 有 11，显存真满了吗？没有，空间在，只是碎了。",
    )
    sick = Lazy(
        lambda: [
            facts.failing(
                phase="forward", asked=2.0, capacity=79.2, free=0.5, allocated=62.0, reserved_unallocated=15.1, step=900
            ),
            facts.failing(
                phase="backward", asked=1.1, capacity=23.6, free=0.2, allocated=16.8, reserved_unallocated=5.9, step=4000
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            facts.failing(
                phase="forward", asked=2.0, capacity=79.2, free=0.5, allocated=76.4, reserved_unallocated=1.1, step=900
            ),
            facts.failing(
                phase="forward", asked=12.0, capacity=79.2, free=0.5, allocated=73.0, reserved_unallocated=5.0, step=900
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        branch = facts.card_error(seen)
        if branch is None:
            return self.not_checked("crash")
        memory = branch.memory
        spare, asked, capacity = memory.reserved_unallocated, memory.asked, memory.capacity
        if spare is None or asked is None or not capacity:
            return self.not_checked("crash")
        enough = spare > asked and spare > facts.FRAGMENT_SHARE * capacity
        text = facts.said(
            f"{spare:.1f} GiB are reserved and unallocated, {asked:.2f} GiB were asked for",
            f"已保留未分配 {spare:.1f} GiB，而只申请 {asked:.2f} GiB",
            6.0 if enough else 1.0 if spare > asked else -5.0,
            where=branch.error.where,
        )
        if enough:
            return self.confirmed(text, facts.told(branch))
        return self.suspected(text, facts.told(branch)) if spare > asked else self.ruled_out(text)
