"""Most of the compute goes into padding."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import from_rows, statistic, tokenised
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, number, say, setting
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

WASTE = 0.5
"""Share of padding from which half the time goes into nothing."""
LENGTH_CHARS = 2.5
"""Characters of a token at the least, for an upper bound on a row's tokens."""
FAR = 4.0
"""A judgement, not measured: longest over median row from which three quarters of a mixed batch are padding."""
BATCH = 4
"""Rows in a batch below which there is little to pad."""
EVEN = 1.5
"""A judgement, not measured: a third of padding at the most."""


class PaddingWaste(Case):
    id = "padding-waste"
    symptoms = {"slow": 0.12}
    stage = "environment"
    needs = ("settings", "data")
    probe = "timing"
    change = {"group_by_length": True, "pad_to_length": False}
    search = (
        "padding to max_length is slow",
        "group_by_length speedup",
        "most tokens in the batch are padding",
        "low tokens per second with short samples",
        "padding 太多训练慢",
        "全部补到 max_length 浪费算力",
        "短样本补齐太长",
        "group_by_length 加速",
    )

    en = Card(
        title="Most of the compute goes into padding",
        sign="Steps take as long for short samples as for long ones. Tokens per second, counted without padding, are a fraction of what the card usually reaches.",
        cause="Rows are padded to max_length, or to the longest row of a batch in which lengths differ widely. A padding token costs as much compute as a real one.",
        remedy="Pad to the longest row of the batch, not to max_length: padding=True in the collator, pad_to_sequence_len: false in axolotl. Add group_by_length: true (transformers 5: train_sampling_strategy: group_by_length), or packing with a block mask: neat_packing in LLaMA-Factory, sample_packing in axolotl, packing=True with flash attention in TRL.",
        verify="Padding is under 20 % of the tokens in ten batches, and steps are shorter in proportion.",
        prevention="Log the share of real tokens in each batch.",
        question="What share of the tokens in a batch is padding?",
        quiz="The median row has 200 tokens, and rows are padded to 4,096. How much of the work is useful? About one twentieth.",
    )
    zh = Card(
        title="算力大半花在 padding 上",
        sign="短样本的一步和长样本一样慢；不算 padding 的 tokens/s 只有这张卡正常水平的几分之一。",
        cause="所有样本都补到 max_length，或者补到 batch 里最长的那条，而长短又差很多。一个 padding token 的计算量和真实 token 一样。",
        remedy="补到 batch 内最长就够，不要补到 max_length：collator 用 padding=True，axolotl 用 pad_to_sequence_len: false。再加 group_by_length: true（transformers 5 写 train_sampling_strategy: group_by_length），或者用带分块掩码的 packing：LLaMA-Factory 的 neat_packing、axolotl 的 sample_packing、TRL 的 packing=True 配 flash attention。",
        verify="抽 10 个 batch，padding 占比低于 20%，每步耗时按比例下降。",
        prevention="日志里记每个 batch 的有效 token 占比。",
        question="一个 batch 里 padding 占多少？",
        quiz="样本中位数 200 token，补到 4096，有用的计算占多少？大约二十分之一。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                settings=run.configured("axolotl", pad_to_length=True, max_length=4096, packing=False),
                data=make.rowset(500, statistics={"row_chars_p50": 500.0, "row_chars_p95": 1200.0}),
            ),
            Evidence(
                tokenizer=make.chatml(),
                data=make.rowset(
                    64,
                    layout="tokenised",
                    samples=tuple(make.ids(n, [5, n, 7, *[151643] * 40], [-100, n, 7, *[-100] * 40]) for n in range(1, 65)),
                ),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                settings=run.configured("axolotl", pad_to_length=True, max_length=4096, packing=True),
                data=make.rowset(500, statistics={"row_chars_p50": 500.0, "row_chars_p95": 1200.0}),
            ),
            Evidence(
                settings=run.configured("trl", batch_per_device=8),
                data=make.rowset(500, statistics={"row_chars_p50": 1000.0, "row_chars_p95": 1200.0}),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        filled = _filled(seen)
        if filled and filled[0].weight > 0:
            return self.confirmed(*filled)
        settings = seen.settings
        for name in ("packing", "padding_free", "group_by_length"):
            if settings is not None and settings.flag(name):
                return self.ruled_out(*setting(seen, name, -6.0))
        wasted = _to_length(seen)
        if wasted and wasted[-1].weight > 0:
            return self.confirmed(*wasted)
        return conclude(self, (*filled, *wasted, *_uneven(seen)), missing=("data", "settings"))


def _filled(seen: Evidence) -> tuple[Exhibit, ...]:
    """The share of pad ids in tokenised rows."""
    pad = seen.tokenizer.ids.get(seen.tokenizer.pad or "") if seen.tokenizer is not None else None
    held = tokenised(seen)
    if pad is None or not held:
        return ()
    total = sum(len(ids) for _, ids, _ in held)
    part = sum(ids.count(pad) for _, ids, _ in held) / max(1, total)
    weight = 8.0 if part >= WASTE else 0.0
    told = from_rows(
        f"{part:.0%} of the tokens in {len(held)} rows are padding",
        f"{len(held)} 条样本里 {part:.0%} 的 token 是 padding",
        (one[0] for one in held),
        weight,
    )
    return (told,) if weight else ()


def _to_length(seen: Evidence) -> tuple[Exhibit, ...]:
    """Rows padded to a fixed length that even the longer ones do not half fill."""
    usual, limit = statistic(seen, "row_chars_p95"), number(seen, "max_length")
    if seen.settings is None or not seen.settings.flag("pad_to_length") or not usual or not limit:
        return ()
    if usual / LENGTH_CHARS > (1 - WASTE) * limit:
        return ()
    told = say(
        f"19 rows of 20 have at most {usual / LENGTH_CHARS:,.0f} tokens and are padded to {limit:,.0f}",
        f"95% 的样本不超过 {usual / LENGTH_CHARS:,.0f} 个 token，却都补到 {limit:,.0f}",
        7.0,
        section="data",
    )
    return (*setting(seen, "pad_to_length"), told)


def _uneven(seen: Evidence) -> tuple[Exhibit, ...]:
    """Lengths within a batch: far apart for the case, alike against."""
    middle, usual, batch = statistic(seen, "row_chars_p50"), statistic(seen, "row_chars_p95"), number(seen, "batch_per_device")
    if not middle or not usual:
        return ()
    ratio = usual / middle
    weight = -4.0 if ratio <= EVEN else (1.0 if ratio >= FAR and (batch or 0) >= BATCH else 0.0)
    text = f"the 95th percentile of row lengths is {ratio:.1f} times the median"
    return (say(text, f"样本长度的 95 分位是中位数的 {ratio:.1f} 倍", weight, section="data"),)
