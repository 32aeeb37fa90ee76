"""Single samples are too long for the card."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import counted, rows, statistic
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, number, say, setting
from tuneclinic.casebook.memory import _facts as memory
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Crash

CHECK = "long"
FAR = 4.0
"""Longest row over the 95th percentile; the longest is at most 3.1 times the 99th percentile in the sets measured."""
EVEN = 1.5
"""A judgement, not measured: lengths so even that no batch is a long one."""
CHARS_PER_TOKEN = 2.5
"""Characters of a token at the least, for a bound from above on a row's tokens."""


class LongSamples(Case):
    id = "long-samples"
    symptoms = {"oom-late": 0.16}
    needs = ("crash", "data")
    probe = "show"
    change = {"max_length": 2048, "group_by_length": True}
    search = (
        "CUDA out of memory in the middle of training on a long batch",
        "OOM at a random step",
        "one very long sample causes OOM",
        "max_length not set OOM",
        "训练中途突然爆显存",
        "某个长样本 OOM",
        "没设 cutoff_len 显存不够",
        "图片分辨率太大 OOM",
    )

    en = Card(
        title="A few samples are far too long",
        sign="Training runs for minutes or hours, then one forward or backward pass runs out of memory. With another seed it fails at another step.",
        cause="Activations and logits grow with the longest row of the batch. A few rows many times longer than the rest set the peak, and the shuffle decides when they come. Large pictures do the same.",
        remedy='Set a cut-off, and drop or split longer rows: max_length=2048 in TRL\'s SFTConfig, cutoff_len: 2048 in LLaMA-Factory, sequence_len: 2048 in axolotl; max_pixels for pictures. group_by_length=True (transformers 5: train_sampling_strategy="group_by_length") puts the longest rows first, so that the peak shows at the start.',
        verify="A few steps on the longest rows alone finish without running out of memory.",
        prevention="Before training print the 50th and 95th percentile and the maximum of lengths and resolutions.",
        question="How long is the longest row compared with the 95th percentile, and which max_length is set?",
        quiz="Out of memory at step 812 with one seed, at step 97 with another. Leak or data? Data: a leak would fail at about the same step.",
    )
    zh = Card(
        title="少数样本太长",
        sign="跑了几分钟甚至几小时，某一次前向或反向突然爆显存；换个种子就死在另一步。",
        cause="激活和 logits 随 batch 里最长的样本增长。几条比其他长好几倍的样本决定了峰值，什么时候碰上看打乱的结果。分辨率很大的图片同理。",
        remedy='设截断长度，超出的丢掉或切开：TRL 的 SFTConfig 用 max_length=2048，LLaMA-Factory 用 cutoff_len: 2048，axolotl 用 sequence_len: 2048；图片设 max_pixels。group_by_length=True（transformers 5 写 train_sampling_strategy="group_by_length"）会把最长的排在最前面，峰值一开始就能看到。',
        verify="只拿最长的那批样本跑几步，不再爆显存。",
        prevention="开训前统计长度和分辨率：50、95 分位和最大值。",
        question="最长的样本是 95 分位的几倍？max_length 设了多少？",
        quiz="一个种子第 812 步 OOM，另一个第 97 步，是泄漏还是数据？是数据：泄漏会死在差不多同一步。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                crash=Crash(
                    (memory.crash_example(phase="backward", asked=9.2, capacity=79.2, free=3.0, allocated=70.0, step=812),)
                ),
                data=make.rowset(5000, long=(17, 1204, 4400), statistics={"row_chars_p95": 4000.0, "row_chars_max": 90000.0}),
            ),
            Evidence(
                crash=Crash(
                    (memory.crash_example(phase="forward", asked=5.0, capacity=23.6, free=1.0, allocated=20.0, step=97),)
                ),
                data=make.rowset(800, long=(44,), statistics={"row_chars_p95": 1500.0, "row_chars_max": 61000.0}),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                crash=Crash(
                    (memory.crash_example(phase="backward", asked=2.0, capacity=23.6, free=1.0, allocated=20.0, step=400),)
                ),
                data=make.rowset(800, checked=(CHECK,), statistics={"row_chars_p95": 1500.0, "row_chars_max": 1900.0}),
            ),
            Evidence(crash=Crash((memory.crash_example(phase="optimizer", asked=2.0, capacity=79.0, free=1.0, allocated=76.0),))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        branch = memory.card_error(seen)
        if branch is None:
            return self.not_checked("crash", exhibits=rows(seen, CHECK, weight=0.0))
        if branch.early or branch.phase in {"load", "optimizer", "evaluation", "save"}:
            return self.ruled_out(
                say(
                    "memory did not run out on a later batch",
                    "显存不是在后面某个 batch 的前向或反向爆的",
                    -6.0,
                    section="crash",
                    where=branch.error.where,
                )
            )
        spread = _spread(seen)
        cut = _cut(seen)
        if counted(seen, CHECK) and not cut and spread and spread[0].weight > 0:
            return self.confirmed(memory.told(branch), *rows(seen, CHECK, weight=4.0), *spread, change={"group_by_length": True})
        held = (memory.told(branch, 0.5), *spread, *cut)
        return conclude(self, held, missing=("data", "settings"))


def _spread(seen: Evidence) -> tuple[Exhibit, ...]:
    """How much longer the longest row is than the 95th percentile."""
    usual, longest = statistic(seen, "row_chars_p95"), statistic(seen, "row_chars_max")
    if not usual or not longest:
        return ()
    ratio = longest / usual
    weight = 3.0 if ratio >= FAR else (-4.0 if ratio <= EVEN else 1.0)
    text = f"the longest row has {longest:,.0f} characters, the 95th percentile {usual:,.0f}"
    return (say(text, f"最长一条 {longest:,.0f} 字符，95 分位 {usual:,.0f}", weight, section="data"),)


def _cut(seen: Evidence) -> tuple[Exhibit, ...]:
    """A maximum length that cuts the long rows down to the usual ones, or packing that fills every row alike."""
    usual, limit = statistic(seen, "row_chars_p95"), number(seen, "max_length")
    if seen.settings is not None and seen.settings.flag("packing"):
        return setting(seen, "packing", -4.0)
    if limit is None or not usual or limit > usual / CHARS_PER_TOKEN:
        return ()
    return setting(seen, "max_length", -4.0)
