"""An exception ended the run."""

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, CrashError, OutOfMemory
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._crash import ended_by, went_well


class Crashes(Symptom):
    id = "crashes"
    speaks_for_itself = True
    letter = "-"
    needs = ("crash", "log")
    search = (
        "training crashes with an exception",
        "RuntimeError: CUDA error: device-side assert triggered",
        "Traceback (most recent call last)",
        "ValueError: Some specified arguments are not used by the HfArgumentParser",
        "KeyError when loading state_dict",
        "程序报错退出",
        "训练直接崩了，报 Traceback",
        "ChildFailedError exitcode 1",
        "training script fails with an error",
        "RuntimeError: expected scalar type",
        "ValueError: too many values to unpack",
        "ImportError: cannot import name",
        "程序崩溃退出",
        "进程被 killed",
    )

    en = SymptomCard(
        title="The run stops with an error",
        seen="The run ended with an exception, a device-side assert, or because the system killed the process.",
        check="Find the first error of the rank that failed first. The ChildFailedError that torchrun prints last is never the cause. A device-side assert is reported later than the line that caused it: rerun with CUDA_LAUNCH_BLOCKING=1.",
        treatment="Fix that first error. If it is not clear, reproduce it with one process and one batch; most crashes can be reduced to that.",
        prevention="Before every long run, do a dry run of two steps that also evaluates and saves.",
    )
    zh = SymptomCard(
        title="报错退出",
        seen="抛异常、device-side assert，或者进程被系统杀掉。",
        check="找最先失败的那个 rank 自己的第一条报错。torchrun 最后打印的 ChildFailedError 从来不是原因；device-side assert 报出来的行号比真正出错的地方靠后，用 CUDA_LAUNCH_BLOCKING=1 重跑。",
        treatment="修那第一条报错。看不明白就单进程、单 batch 复现，大多数崩溃都能缩到这么小。",
        prevention="长训之前先试跑两步，把评估和保存也走一遍。",
    )
    sick = Lazy(
        lambda: [
            Evidence(crash=Crash((CrashError("IndexError", "index out of range in self", "train.log:77", "train.log"),))),
            Evidence(
                crash=Crash(
                    (
                        CrashError(
                            "SIGKILL", "process killed by the host", "train.log:90", "train.log", memory=OutOfMemory("host")
                        ),
                    )
                )
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(crash=Crash((CrashError("KeyboardInterrupt", "", "train.log:77", "train.log"),), interrupted=True)),
            Evidence(crash=Crash((CrashError("OutOfMemoryError", "CUDA out of memory.", "train.log:900"),))),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        interrupted = seen.crash is not None and seen.crash.interrupted
        found = ended_by(seen, "error") if interrupted else ended_by(seen, "error", "launcher")
        if found is not None:
            error, exhibit = found
            frames = error.frames if error is not None else ()
            stack = [Exhibit(frames[-1], error.where, error.source, section="crash")] if error is not None and frames else []
            return self.shown(exhibit, *stack, first_step=error.step if error is not None else None)
        clean = went_well(seen)
        return self.not_checked("crash", "log") if clean is None else self.absent(*clean)
