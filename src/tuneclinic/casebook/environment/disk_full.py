"""The disk, a quota or the shared memory is full."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.environment._facts import ended_with, other_end, trained
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, lines
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

WARNED = (r"not enough free disk space to download",)
"""What the hub's client warns of before it downloads all the same."""


class DiskFull(Case):
    id = "disk-full"
    symptoms = {"crashes": 0.04}
    stage = "environment"
    needs = ("crash", "log")
    probe = "environment"
    signatures = (
        r"no space left on device",
        r"\[errno 28\]|\benospc\b|os error 28\b",
        r"disk quota exceeded|\[errno 122\]|\bedquot\b",
        r"not enough (free )?(disk )?space (to|on|for|left)",
        r"pytorchstreamwriter failed writing file",
        r"unexpected pos \d+ vs \d+",
        r"unable to write to file </torch_",
    )
    search = (
        "OSError: [Errno 28] No space left on device",
        "PytorchStreamWriter failed writing file data/0: file write failed",
        "disk quota exceeded when saving checkpoint",
        "unexpected pos 64 vs 0 inline_container",
        "磁盘满了 保存 checkpoint 失败",
        "No space left on device 硬盘空间不足",
        "磁盘配额超限",
        "共享内存 shm 满了",
    )

    en = Card(
        title="The disk is full",
        sign="The run crashes while it saves a checkpoint, writes the data cache or downloads a model: No space left on device, Disk quota exceeded, or PytorchStreamWriter failed with an unexpected pos.",
        cause="A checkpoint with optimizer states is three to eight times the size of the weights, and save_total_limit was not set. The full place is often not the disk you look at: ~/.cache/huggingface, /tmp, a user quota, inodes, or /dev/shm (64 MB by default in Docker), through which DataLoader workers pass batches.",
        remedy="df -h . /tmp /dev/shm and df -i show which place is full; du -sh ~/.cache/huggingface/* output/checkpoint-* shows what fills it. Set save_total_limit: 2 and, if you will not resume, save_only_model: true. Move the cache with export HF_HOME=/data/hf. For /dev/shm: docker run --shm-size=16g. The half-written checkpoint is unusable: delete it and resume from the one before.",
        verify="df shows room for two whole checkpoints, and the next save ends without an error and can be loaded.",
        prevention="Before the start check that free space is larger than (save_total_limit + 1) × the size of a checkpoint; the new one is written before the old one is deleted.",
        question="What do df -h and df -i show for the output folder, /tmp, the cache folder and /dev/shm?",
        quiz="A full fine-tune of a 7B model saves every 500 steps; the weights are 15 GB in bf16. Why is a 500 GB disk full within a day? Each checkpoint also holds fp32 master weights and two Adam states, about 100 GB in all: five of them fill the disk.",
    )
    zh = Card(
        title="磁盘写满了",
        sign="在保存 checkpoint、写数据缓存或下载模型时崩溃：No space left on device、Disk quota exceeded，或 PytorchStreamWriter failed、unexpected pos。",
        cause="带优化器状态的 checkpoint 是权重的 3～8 倍，save_total_limit 又没设。满的往往不是你盯着的那个盘：可能是 ~/.cache/huggingface、/tmp、用户配额、inode，或 /dev/shm（Docker 默认只有 64 MB，DataLoader worker 靠它传 batch）。",
        remedy="df -h . /tmp /dev/shm 和 df -i 看哪里满了，du -sh ~/.cache/huggingface/* output/checkpoint-* 看被什么占了。设 save_total_limit: 2，不需要续训就再加 save_only_model: true。挪缓存用 export HF_HOME=/data/hf。/dev/shm 太小就 docker run --shm-size=16g。写了一半的 checkpoint 不能用，删掉，从上一个恢复。",
        verify="df 剩余空间放得下两个完整 checkpoint，下一次保存不报错且能加载回来。",
        prevention="开训前核对：剩余空间要大于 (save_total_limit + 1) × 单个 checkpoint 的大小，因为新的写完才会删旧的。",
        question="输出目录、/tmp、缓存目录、/dev/shm 的 df -h 和 df -i 是什么结果？",
        quiz="7B 全参微调每 500 步存一次，bf16 权重 15 GB，500 GB 的盘为什么一天就满？每个 checkpoint 还有 fp32 主权重和两份 Adam 状态，合计约 100 GB，存五个就满了。",
    )
    change = {"save_limit": 2}
    sick = make.Lazy(
        lambda: [
            Evidence(crash=make.crashed("OSError", "[Errno 28] No space left on device: 'out/checkpoint-1500'", phase="save")),
            Evidence(
                crash=make.crashed(
                    "RuntimeError", "[enforce fail at inline_container.cc:603] . unexpected pos 9287808 vs 9287700", phase="save"
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(crash=make.crashed("PermissionError", "[Errno 13] Permission denied: 'out/checkpoint-1500'", phase="save")),
            Evidence(  # warned of too little space, and the download fitted
                log=make.logged(
                    "UserWarning: Not enough free disk space to download the file. The expected file size is: 4976 MB"
                ),
                metrics=make.ran(loss=make.falling()),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proof = ended_with(seen, self.signatures, PROOF)
        if proof:
            return self.confirmed(*proof)
        against = other_end(seen)
        if against:
            return self.ruled_out(*against)
        told, ran = lines(seen, *self.signatures, weight=2.0), trained(seen, -3.0)
        warned = lines(seen, *WARNED)
        if ran:
            return self.ruled_out(*ran, *told, *warned)
        if told:
            return self.suspected(*told, missing=("crash",))
        if seen.crash is not None or seen.log is not None:
            return self.not_checked("crash", exhibits=warned)
        return self.not_checked(*self.needs)
