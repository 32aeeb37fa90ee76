"""The host's own memory ran out and the kernel killed the process."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, from_error
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, CrashError, OutOfMemory
from tuneclinic.signature import matches


class OomKilledByHost(Case):
    id = "oom-killed-by-host"
    symptoms = {"crashes": 0.09}
    stage = "environment"
    needs = ("crash", "log")
    probe = "environment"
    signatures = (
        r"signals\.sigkill",
        r"exitcode\s*:\s*-9\b",
        r"exit code[: ]+(137|-9)\b",
        r"oom-kill|out of memory: killed process",
        r"dataloader worker \(pid\(?s?\)? [\d, ]+\) (is|are) killed by signal: killed",
        r"defaultcpuallocator: can't allocate memory|defaultcpuallocator: not enough memory",
    )
    search = (
        "exitcode -9 killed",
        "process killed without traceback",
        "DataLoader worker killed by signal",
        "进程被 Killed 没有报错",
        "内存爆了 被系统杀掉",
        "exit code 137",
    )

    en = Card(
        title="Host memory ran out, process killed",
        sign="The run ends with Killed, exit code -9 or 137, SIGKILL, or a DataLoader worker killed by a signal, without a Python error of its own.",
        cause="Main memory ran out, not GPU memory: every rank loads the full checkpoint, the optimizer is offloaded, a data set is read into lists and copied by each worker, or the container's limit is below what the machine shows. A /dev/shm that is too small gives bus errors in a similar way.",
        remedy="Load with low_cpu_mem_usage=True or under ZeRO-3's init, use fewer dataloader_num_workers, memory-mapped data (datasets, not lists), no offload, or a larger machine. In Docker raise --memory and --shm-size. dmesg -T | grep -i kill shows who was killed and at what size.",
        verify="While loading, free -h shows a tenth of the memory free, and dmesg shows no new kill.",
        prevention="Log the resident memory of each rank at the start and after loading. Keep ranks × checkpoint size below the host's memory.",
        question="Does dmesg mention an out-of-memory kill, and what is the memory limit of the container?",
        quiz="Four ranks each load a 30 GB checkpoint on a 96 GB host, and one is killed. Which memory ran out? Main memory: 4 × 30 is more than 96.",
    )
    zh = Card(
        title="主机内存耗尽，进程被杀",
        sign="进程以 Killed、退出码 -9 或 137、SIGKILL 结束，或 DataLoader worker 被信号杀死，没有自己的 Python 报错。",
        cause="爆的是内存不是显存：每个 rank 都完整加载一遍 checkpoint、优化器卸载到内存、数据读进列表再被每个 worker 复制，或者容器的内存上限比机器显示的小。/dev/shm 太小会报 bus error，现象类似。",
        remedy="用 low_cpu_mem_usage=True 或 ZeRO-3 的初始化方式加载，减少 dataloader_num_workers，数据用内存映射（datasets 而不是 list），取消卸载或换大内存机器；Docker 里调大 --memory 和 --shm-size。dmesg -T | grep -i kill 能看到谁在占多少内存时被杀。",
        verify="加载期间 free -h 至少留一成空闲，dmesg 没有新的 kill 记录。",
        prevention="启动时和加载后打印每个 rank 的常驻内存；rank 数 × checkpoint 大小要小于主机内存。",
        question="dmesg 里有没有 out-of-memory kill？容器内存上限是多少？",
        quiz="4 个 rank 在 96 GB 主机上各加载 30 GB 的 checkpoint，其中一个被杀，缺的是哪种内存？主机内存：4×30 超过 96。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                crash=Crash(
                    (CrashError("SIGKILL", "killed (exit code -9)", "train.log:900", "train.log", memory=OutOfMemory("host")),)
                )
            ),
            Evidence(
                crash=Crash(
                    (
                        CrashError(
                            "RuntimeError",
                            "DataLoader worker (pid 4711) is killed by signal: Killed.",
                            "train.log:400",
                            "train.log",
                        ),
                    )
                )
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            facts.failing(phase="forward", asked=2.0, capacity=79.2, free=0.4, allocated=77.0),
            Evidence(
                crash=Crash((CrashError("SIGTERM", "terminated from outside", "train.log:900", "train.log"),), interrupted=True)
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        errors = seen.crash.errors if seen.crash else ()
        host = [error for error in errors if error.memory is not None and error.memory.device == "host"]
        if host:
            return self.confirmed(from_error(host[0], 7.0))
        cause = seen.crash.cause if seen.crash else None
        if cause is not None and cause.memory is not None:
            return self.ruled_out(from_error(cause, -6.0))
        named = list(matches(seen, self.signatures, 6.0))
        if named:
            return self.confirmed(*named[:2])
        return self.ruled_out(from_error(cause, -4.0)) if cause is not None else self.not_checked("crash")
