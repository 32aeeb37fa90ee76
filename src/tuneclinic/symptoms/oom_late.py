"""No memory after minutes or hours, at evaluation or on a long batch."""

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, CrashError, OutOfMemory
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._crash import ended_by, went_well
from tuneclinic.symptoms._examples import falling, run
from tuneclinic.symptoms._memory import happened_late, parts
from tuneclinic.symptoms._series import curve, point

_LATE = CrashError(
    "torch.OutOfMemoryError",
    "CUDA out of memory. Tried to allocate 4.44 GiB.",
    "train.log:2210",
    "train.log",
    memory=OutOfMemory("cuda", asked=4.44, capacity=10.6, free=1.9),
)
_EVALUATION = CrashError("torch.OutOfMemoryError", "CUDA out of memory.", "train.log:310", "train.log", phase="evaluation")


class OomLate(Symptom):
    id = "oom-late"
    letter = "R"
    needs = ("crash", "log", "metrics")
    search = (
        "CUDA out of memory after several hours of training",
        "OOM during evaluation",
        "out of memory at step 5000, was fine before",
        "GPU memory keeps growing until OOM",
        "memory leak during training, crashes after some epochs",
        "训练中后期 OOM",
        "评估的时候爆显存",
        "跑着跑着显存越来越大最后 OOM",
        "runs out of memory when evaluation begins",
        "OOM at eval step",
        "random OOM on long sequences",
        "eval 阶段显存溢出",
    )

    en = SymptomCard(
        title="Out of memory after a while",
        seen="Training ran, then memory ran out: at an evaluation, on one long batch, or after a slow climb.",
        check="Which phase? Evaluation: is inference mode on, and are all logits gathered? Training: how long was that batch compared with the usual ones? Otherwise log max_memory_allocated every step. Growth at equal lengths: a tensor is kept. A growing gap between reserved and allocated: fragmentation.",
        treatment="Evaluation: torch.inference_mode(), eval_accumulation_steps, argmax before gathering. Long batch: limit the length, group by length. Slow climb: keep loss.item(), not the tensor. Fragmentation: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        prevention="Count lengths and image sizes before the start, run the longest batch first, and run one evaluation in the first minutes.",
    )
    zh = SymptomCard(
        title="中后期 OOM",
        seen="本来跑得好好的，跑到评估、碰到某个长 batch，或者慢慢涨上去之后爆显存。",
        check="爆在哪个阶段？评估：开没开推理模式，是不是把整份 logits 都收集起来了？训练：那个 batch 比平时长多少？都不是就每步记 max_memory_allocated：长度一样还在涨，是有张量没释放；reserved 和 allocated 差距越来越大，是碎片。",
        treatment="评估：no_grad / inference_mode，eval_accumulation_steps，先 argmax 再收集。长 batch：限制长度、按长度分桶。缓涨：记 loss.item()，别存张量。碎片：PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True。",
        prevention="开训前统计长度和图片分辨率，先跑最长的 batch，开头几分钟就做一次评估。",
    )
    sick = Lazy(
        lambda: [
            run(loss=falling(80)).merge(Evidence(crash=Crash((_LATE,)))),
            Evidence(crash=Crash((_EVALUATION,))),
        ]
    )
    healthy = Lazy(
        lambda: [
            run(loss=[2.1], every=1).merge(Evidence(crash=Crash((_LATE,)))),
            run(loss=falling(80)).merge(Evidence(crash=Crash((CrashError("ValueError", "batch is empty", "train.log:9"),)))),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        found = ended_by(seen, "memory")
        if found is None:
            clean = went_well(seen)
            return self.not_checked("crash", "log") if clean is None else self.absent(*clean)
        error, exhibit = found
        if not happened_late(seen, error):
            return self.absent(exhibit)
        loss = curve(seen)
        last = [] if loss is None else [point("loss", loss, float(loss.steps[-1]))]
        step = error.step if error is not None and error.step is not None else (None if loss is None else float(loss.steps[-1]))
        return self.shown(exhibit, *parts(error), *last, first_step=step)
