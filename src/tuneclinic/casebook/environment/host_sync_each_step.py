"""Every step waits for the card to finish."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.environment._facts import slows
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts, lines, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Environment

CHECKS = ("item-each-step", "empty-cache-each-step")


BLOCKING = (
    r"^(\$ |\+ |export |set |env )*cuda_launch_blocking=1(\s|$)",
    r"['\"]cuda_launch_blocking['\"]\s?[:=\]]+\s?['\"]1['\"]",
)
"""The switch as a shell or a script sets it; every CUDA error merely advises it, and a log may quote a command that was not run."""


class HostSyncEachStep(Case):
    id = "host-sync-each-step"
    symptoms = {"slow": 0.09}
    stage = "environment"
    needs = ("script", "log")
    probe = "environment"
    signatures = (r"anomaly detection has been enabled",)
    search = (
        "loss.item() every step slows training",
        "torch.cuda.empty_cache() in training loop slow",
        "Anomaly Detection has been enabled. This mode will increase the runtime",
        "CUDA_LAUNCH_BLOCKING=1 slow",
        "每步 loss.item() 拖慢训练",
        "empty_cache 每步调用 训练变慢",
        "忘了关 set_detect_anomaly",
    )

    en = Card(
        title="Every step waits for the GPU",
        sign="GPU use stays at 60 to 90 % with small gaps, one CPU thread runs at 100 %, and the smaller the model, the larger the loss of speed.",
        cause="Normally the CPU runs ahead of the GPU and queues work. .item(), .cpu(), print(loss) or torch.cuda.synchronize() in each step make it wait until the GPU is done; empty_cache() also returns memory that must then be requested again. Left-over debugging has the same effect: CUDA_LAUNCH_BLOCKING=1, set_detect_anomaly(True).",
        remedy="Keep the loss on the GPU (total += loss.detach()) and call .item() once every ten to fifty steps. Delete empty_cache() from the loop, unset CUDA_LAUNCH_BLOCKING, remove set_detect_anomaly(True). Trainer, TRL, LLaMA-Factory, axolotl: logging_steps: 10.",
        verify="Twenty steps with logging are as fast as twenty without, and the profiler shows no cudaStreamSynchronize between the kernels of a step.",
        prevention='Run ten steps with torch.cuda.set_sync_debug_mode("warn"): it names every line that waits.',
        question="What does the loop do with the loss in each step, and is CUDA_LAUNCH_BLOCKING or anomaly detection set?",
        quiz="A profiler shows a long time for loss.item(). Is that its cost? Mostly not: it is the time of the kernels it waits for. The cost is the empty queue after it.",
    )
    zh = Card(
        title="每一步都在和 GPU 同步",
        sign="GPU 利用率停在 60%～90%，有很多小空隙，CPU 有一个线程跑满，模型越小越明显。",
        cause="正常情况下 CPU 先行，把活排进 GPU 队列。每步 .item()、.cpu()、print(loss) 或 torch.cuda.synchronize() 都要等 GPU 做完；empty_cache() 还会把显存还回去再重新申请。调试完没关的 CUDA_LAUNCH_BLOCKING=1、set_detect_anomaly(True) 也一样。",
        remedy="loss 留在卡上累加（total += loss.detach()），每 10～50 步 .item() 一次。循环里的 empty_cache() 删掉，unset CUDA_LAUNCH_BLOCKING，去掉 set_detect_anomaly(True)。Trainer、TRL、LLaMA-Factory、axolotl 都写 logging_steps: 10。",
        verify="打日志的 20 步和完全不打日志的 20 步一样快；profiler 里一步的 kernel 之间没有 cudaStreamSynchronize。",
        prevention='开着 torch.cuda.set_sync_debug_mode("warn") 跑十步，它会指出哪一行在等。',
        question="每一步里对 loss 做了什么？CUDA_LAUNCH_BLOCKING 或 anomaly detection 开着吗？",
        quiz="profiler 里 loss.item() 占了很长时间，这就是它的代价吗？大多不是，那是它在等的 kernel 的时间；真正的代价是等完之后队列空了。",
    )
    change = {"logging_steps": 10}
    sick = make.Lazy(
        lambda: [
            Evidence(script=make.scripted("item-each-step", "empty-cache-each-step", quote="torch.cuda.empty_cache()")),
            Evidence(log=make.logged("UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime")),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(checked=CHECKS)),  # .item() under `if step % 10 == 0`
            Evidence(  # what every CUDA error advises is not what was done
                script=make.scripted(checked=CHECKS), log=make.logged("For debugging consider passing CUDA_LAUNCH_BLOCKING=1")
            ),
            Evidence(  # nothing to wait for on a processor
                script=make.scripted("item-each-step", quote="total += loss.item()"), environment=Environment(device="cpu")
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        told = lines(seen, *self.signatures, weight=7.0)
        blocking = lines(seen, *BLOCKING, weight=3.0)
        item, emptied = facts(seen, "item-each-step", weight=1.0), facts(seen, "empty-cache-each-step", weight=3.0)
        device = (seen.environment.device or "").lower() if seen.environment is not None else ""
        if device == "cpu" and not told and not blocking:
            return self.ruled_out(
                say("device: cpu, so there is no GPU to wait for", "device: cpu，没有什么可等的", -6.0, section="environment")
            )
        slow = slows(seen)
        if told or (emptied and (item or slow)) or (blocking and slow):
            return self.confirmed(*told, *blocking, *emptied, *item, *slow)
        against = clean(seen, *CHECKS)
        if against and not blocking:
            return self.ruled_out(*against)
        if emptied or blocking or (item and slow):
            return self.suspected(*blocking, *emptied, *item, *slow)
        return self.not_checked("script", exhibits=item)
