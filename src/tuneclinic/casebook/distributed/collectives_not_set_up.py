"""The processes cannot form a group: NCCL or the rendezvous fails."""

from tuneclinic.case import Card, Case
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, from_error
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, CrashError
from tuneclinic.signature import matches


class CollectivesNotSetUp(Case):
    id = "collectives-not-set-up"
    symptoms = {"multi-gpu-odd": 0.02, "hangs": 0.02, "crashes": 0.01}
    stage = "environment"
    needs = ("crash", "log")
    probe = "environment"
    signatures = (
        r"nccl error in:",
        r"ncclinvalidusage|ncclunhandledcudaerror|ncclsystemerror|ncclremoteerror|ncclinternalerror",
        r"duplicate gpu detected ?: ?rank",
        r"address already in use.*(?:master|rendezvous|29500|tcpstore)|(?:tcpstore|rendezvous|server socket).*(?:address already in use|eaddrinuse)",
        r"(?:tcpstore|client socket|rendezvous).*(?:timed out|connection refused|failed to connect)",
        r"default process group has not been initialized",
        r"expected to find.*rank.*environment variable|environment variable (?:rank|world_size|master_addr) expected",
        r"no nccl (?:backend|support)|distributed package doesn't have nccl",
    )
    search = (
        "NCCL error invalid usage",
        "unhandled system error NCCL",
        "Address already in use 29500",
        "NCCL 初始化失败",
        "多卡启动报 NCCL error",
        "端口被占用 29500",
    )

    en = Card(
        title="The processes cannot form a group",
        sign="On several GPUs the run stops before the first step with an NCCL error (invalid usage, unhandled system or CUDA error), 'Address already in use' or 'connection refused'.",
        cause="Setting up the process group fails, not the training: two ranks on one GPU, a port that an old run still holds, the wrong network interface, NCCL variables that do not fit this machine, or processes started without torchrun's environment variables.",
        remedy='Run again with NCCL_DEBUG=WARN (or INFO) and read the first line it prints. Two ranks on one GPU: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])). Port in use: --master_port 29501, or end the old run. Wrong interface: export NCCL_SOCKET_IFNAME=eth0 (use your interface\'s name). Unset leftovers such as NCCL_ALGO and NCCL_P2P_DISABLE, then start with torchrun or accelerate launch.',
        verify="torchrun --nproc_per_node N with a script that does one dist.all_reduce prints the sum on every rank.",
        prevention="Run one all_reduce before every distributed training. Set NCCL variables only in the launch script, each with a comment that gives the reason.",
        question="With NCCL_DEBUG=WARN, what does the first NCCL line say, and is an old run still active on this machine?",
        quiz="'Duplicate GPU detected: rank 1 and rank 0 both on CUDA device 0'. Which line is missing? set_device(local_rank) before the process group is used.",
    )
    zh = Card(
        title="多卡通信没建起来",
        sign="多卡启动时一步都没跑就报 NCCL error（invalid usage、unhandled system error 或 CUDA error）、Address already in use 或 connection refused。",
        cause="出问题的是通信初始化，不是训练：两个 rank 抢同一张卡、端口被旧任务占着、网卡选错、NCCL 环境变量不适合这台机器，或者没用 torchrun 启动，缺少环境变量。",
        remedy='加 NCCL_DEBUG=WARN（或 INFO）重跑，看它打印的第一行。两个 rank 同一张卡：torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))。端口被占：--master_port 29501，或结束旧任务。网卡不对：export NCCL_SOCKET_IFNAME=eth0（换成你的网卡名）。把 NCCL_ALGO、NCCL_P2P_DISABLE 等遗留变量清掉，用 torchrun 或 accelerate launch 启动。',
        verify="用 torchrun --nproc_per_node N 跑一个只做一次 dist.all_reduce 的脚本，每个 rank 都打印出正确的和。",
        prevention="每次多卡训练前先跑一次 all_reduce；NCCL 变量只写在启动脚本里，并注明原因。",
        question="加上 NCCL_DEBUG=WARN 后第一行 NCCL 日志写了什么？机器上还有没有旧任务？",
        quiz="报 Duplicate GPU detected: rank 1 and rank 0 both on CUDA device 0，少了哪一行？进程组使用之前的 set_device(local_rank)。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                crash=Crash(
                    (
                        CrashError(
                            "torch.distributed.DistBackendError",
                            "NCCL error in: ProcessGroupNCCL.cpp:3907, invalid usage (run with NCCL_DEBUG=WARN for details)",
                            "run.log:50",
                            "run.log",
                            rank=0,
                        ),
                    )
                )
            ),
            Evidence(
                crash=Crash(
                    (
                        CrashError(
                            "RuntimeError",
                            "The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
                            "run.log:12",
                            "run.log",
                        ),
                    )
                )
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                crash=Crash(
                    (
                        CrashError(
                            "Watchdog caught collective operation timeout",
                            "WorkNCCL(SeqNum=3645, OpType=ALLREDUCE) ran for 600000 milliseconds before timing out",
                            "run.log:900",
                            "run.log",
                            rank=1,
                        ),
                    )
                )
            ),
            Evidence(crash=Crash((CrashError("KeyError", "'labels'", "run.log:9", "run.log"),))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        found = list(matches(seen, self.signatures, 6.0))
        if found:
            return self.confirmed(*found[:3])
        cause = seen.crash.cause if seen.crash else None
        return self.ruled_out(from_error(cause, -4.0)) if cause is not None else self.not_checked("crash")
