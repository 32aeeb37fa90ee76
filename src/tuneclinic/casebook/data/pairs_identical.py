"""Chosen and rejected answers are the same."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

CHECK = "identical-pair"
PAIRLESS = frozenset({"grpo", "ppo", "kto", "causal-lm", "diffusion", "classification"})
PROOF_SHARE = 0.05
"""Below a twentieth such pairs only waste a little compute: their gradient is exactly zero."""


class PairsIdentical(Case):
    id = "pairs-identical"
    symptoms = {"preference-odd": 0.07}
    needs = ("data",)
    probe = "show"
    search = (
        "chosen and rejected are identical",
        "DPO loss stuck at 0.693",
        "rewards/margins stay at zero",
        "preference pairs are the same text",
        "chosen 和 rejected 一样",
        "DPO loss 卡在 0.693",
        "rewards/margins 一直是 0",
        "偏好数据两边相同",
    )

    en = Card(
        title="Chosen and rejected are the same text",
        sign="The DPO loss stays at ln 2 = 0.693, rewards/margins at 0 and rewards/accuracies at 0 or 0.5, however long the training runs.",
        cause="Both columns were read from one field, pairs were cut to the same first tokens, or sampling gave the same answer twice. Equal sides cancel each other: the margin and its gradient are zero.",
        remedy="Drop them: dataset.filter(lambda row: row['chosen'] != row['rejected']). Check the column mapping (chosen, rejected, and ranking: true in LLaMA-Factory's dataset_info.json; field_chosen and field_rejected in axolotl), and that max_length does not cut both sides before they differ.",
        verify="rewards/margins moves away from 0 within the first twenty steps.",
        prevention="Compare both sides in preprocessing, before and after the cut to the maximum length.",
        question="In how many pairs are chosen and rejected the same, before and after truncation?",
        quiz="The DPO loss is 0.693 at step 1. Is that a fault? No, every run starts there. At step 500 it is one.",
    )
    zh = Card(
        title="chosen 与 rejected 相同",
        sign="DPO loss 一直停在 ln 2 = 0.693，rewards/margins 始终为 0，rewards/accuracies 停在 0 或 0.5，训多久都一样。",
        cause="两列读的是同一个字段；或者截断后两边只剩相同的开头；或者采样时同一个答案出了两遍。两边相等就互相抵消，margin 和梯度都是 0。",
        remedy="过滤掉：dataset.filter(lambda row: row['chosen'] != row['rejected'])。检查列映射（LLaMA-Factory 的 dataset_info.json 里 chosen、rejected 和 ranking: true，axolotl 的 field_chosen、field_rejected），再看 max_length 是不是在两边出现差别之前就截断了。",
        verify="20 步之内 rewards/margins 离开 0。",
        prevention="预处理时比较两边，截断到最大长度之前和之后各比一次。",
        question="截断前后，各有多少对的 chosen 和 rejected 完全相同？",
        quiz="第 1 步 DPO loss 是 0.693，是故障吗？不是，起点就是它；第 500 步还是它才是故障。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(200, identical_pair=range(1, 201), layout="preference"),
                metrics=run.ran(kind="dpo", loss=run.level(100, 0.693, 0.0001)),
            ),
            Evidence(data=make.rowset(300, identical_pair=range(1, 60), layout="preference", example="Yes, of course.")),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(200, checked=(CHECK,), layout="preference"),
                metrics=run.ran(kind="dpo", loss=run.level(100, 0.693, 0.0001)),
            ),
            Evidence(data=make.rowset(200, checked=(CHECK,), duplicate=range(1, 30), layout="preference")),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        kind = shape_of(seen).kind
        if kind in PAIRLESS:
            return self.ruled_out(say(f"{kind} trains on no pairs", f"{kind} 训练不用成对数据", -6.0))
        found = counted(seen, CHECK)
        still = (
            (say("the reward margin never leaves 0", "reward margin 始终没有离开 0", 1.0),) if shape_of(seen).margin_flat else ()
        )
        if found and share(seen, CHECK) >= PROOF_SHARE:
            return self.confirmed(*rows(seen, CHECK), *still)
        return conclude(self, rows(seen, CHECK, weight=0.5) or clean(seen, CHECK), missing=("data",))
