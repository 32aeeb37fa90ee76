"""The maximum length cuts the answers off."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, ends, from_rows, rows, samples
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, number, say, setting, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Sample

CHECK = "truncated-answer"
DEFAULTS = {"trl": 1024.0, "llama-factory": 2048.0}
"""What a framework cuts at where nothing is set: SFTConfig.max_length of TRL, cutoff_len of LLaMA-Factory."""
DROPS = frozenset({"axolotl", "ms-swift"})
"""Frameworks that leave a row out that is too long, unless told to cut it."""
MOST_CHARS, MOST_WIDE = 6.0, 2.5
LEAST_CHARS, LEAST_WIDE = 2.5, 1.0
"""Characters of a token, Latin and Chinese: ordinary text has 3.5 to 4.5 and 1.3 to 1.8; these bound it on both sides."""
SHARE = 0.1
"""A judgement, not measured: a row in ten cut is no longer the tail of the lengths."""
ROWS = 5
"""A judgement, not measured: below it the share says nothing."""


class TruncationEatsAnswer(Case):
    id = "truncation-eats-answer"
    symptoms = {"never-stops": 0.06}
    explains = ("end-token-missing", "all-labels-masked", "batch-without-targets")
    needs = ("data", "settings")
    probe = "show"
    change = {"max_length": 4096}
    search = (
        "max_length truncates the answer",
        "cutoff_len too small",
        "SFTConfig max_length default 1024 truncates silently",
        "eos cut off by truncation",
        "cutoff_len 太小 回答被截断",
        "max_length 默认 1024 静默截断",
        "截断之后没有结束符",
        "长样本训练不到回答",
    )

    en = Card(
        title="Truncation cuts the answers off",
        sign="Long answers never end, or are never learnt: the end token is missing from every row that reaches the limit. The log does not mention it.",
        cause="Rows longer than max_length are cut at the right end, which is where the answer and its end token are. The limit is often a default: 1024 in TRL's SFTConfig, 2048 for cutoff_len in LLaMA-Factory. axolotl drops such rows unless excess_length_strategy is truncate.",
        remedy="Raise it above the 99th percentile of your rows: SFTConfig(max_length=4096), cutoff_len: 4096 in LLaMA-Factory, sequence_len: 4096 in axolotl. If memory does not allow it, drop long rows instead of cutting them (excess_length_strategy: drop in axolotl, truncation_strategy delete in ms-swift), or shorten the prompt.",
        verify="Less than 1 % of the rows have exactly max_length tokens, and every other row ends in the end token.",
        prevention="Print before training how many rows reach the limit, and stop if it is more than 1 %.",
        question="What share of your rows is longer than max_length, counted in tokens?",
        quiz="A prompt of 1,500 tokens with max_length 1024: what is trained? Nothing of the answer: with a masked prompt all labels are -100.",
    )
    zh = Card(
        title="截断把回答切掉了",
        sign="长回答停不下来，或者怎么也学不会：凡是顶到上限的样本，结束符都没了。日志里没有任何提示。",
        cause="超过 max_length 的样本从右边截，回答和结束符正好在右边。这个上限往往是默认值：TRL 的 SFTConfig 是 1024，LLaMA-Factory 的 cutoff_len 是 2048。axolotl 默认直接丢掉超长样本，excess_length_strategy 设成 truncate 才会截。",
        remedy="调到样本 99 分位以上：SFTConfig(max_length=4096)，LLaMA-Factory 写 cutoff_len: 4096，axolotl 写 sequence_len: 4096。显存不够就丢掉长样本而不是截断（axolotl 的 excess_length_strategy: drop，ms-swift 的 truncation_strategy delete），或者精简 prompt。",
        verify="正好等于 max_length 的样本不到 1%，其余每条都以结束符收尾。",
        prevention="训练前打印顶到上限的样本数，超过 1% 就停。",
        question="按 token 算，有多少样本比 max_length 长？",
        quiz="prompt 有 1500 token，max_length 是 1024，训的是什么？回答一个字都没训到：prompt 掩掉之后 labels 全是 -100。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(settings=run.configured("trl", max_length=256), data=make.rowset(60, samples=_lengthy(60, 4000))),
            Evidence(
                settings=run.configured("llama-factory", learning_rate=1e-4), data=make.rowset(40, samples=_lengthy(40, 30_000))
            ),
            Evidence(data=make.rowset(900, truncated_answer=range(1, 30), example="and therefore the")),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                settings=run.configured("trl", max_length=4096),
                data=make.rowset(60, samples=_lengthy(60, 4000), checked=(CHECK,)),
                outputs=make.endless(),
            ),
            Evidence(
                settings=run.configured("llama-factory", max_length=2048),
                data=make.rowset(60, samples=_lengthy(60, 300), checked=(CHECK,)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        if counted(seen, CHECK) >= ROWS:
            return self.confirmed(*rows(seen, CHECK), *ends(seen, 1.0))
        limit, told = _limit(seen)
        cut = _cut(seen, limit)
        if cut and cut[0].weight > 6:
            return self.confirmed(
                *cut, *told, *(one for one in ends(seen, 1.0) if one.weight > 0), change={"max_length": _room(seen)}
            )
        held = (*cut, *rows(seen, CHECK, weight=1.0), *clean(seen, CHECK, weight=-1.5))
        return conclude(self, (*held, *(told if held else ())), missing=("settings", "data"))


def _lengthy(count: int, size: int) -> tuple[Sample, ...]:
    """Rows of about `size` characters, for an example."""
    return tuple(
        make.chat(n, f"Tell me about item {n}.", ("the long story of it goes on and on " * (size // 36)))
        for n in range(1, count + 1)
    )


def _limit(seen: Evidence) -> tuple[float | None, tuple[Exhibit, ...]]:
    """Tokens at which rows are cut, and where that is said; None where rows are dropped, packed or nothing is known."""
    settings = seen.settings
    if settings is None or settings.flag("packing") or text_of(seen, "truncation_side") == "left":
        return None, ()
    strategy = text_of(seen, "truncation_side")
    if settings.framework in DROPS and not strategy.startswith(("trunc", "right")):
        return None, ()
    given = number(seen, "max_length")
    if given is not None and given > 0:
        return given, setting(seen, "max_length", 1.0)
    usual = DEFAULTS.get(settings.framework)
    if usual is None or "max_length" in settings:
        return None, ()
    return usual, (
        say(
            f"no maximum length is set; {settings.framework} cuts at {usual:g}",
            f"没有设最大长度，{settings.framework} 默认在 {usual:g} 处截断",
            1.0,
            section="settings",
        ),
    )


def _cut(seen: Evidence, limit: float | None) -> tuple[Exhibit, ...]:
    """Rows that are longer than the limit however they are tokenised, or a set whose rows all fit in."""
    held = [sample for sample in samples(seen) if sample.answers and sample.input_ids is None]
    if limit is None or not held:
        return ()
    over = [sample for sample in held if _tokens(sample, MOST_CHARS, MOST_WIDE) > limit]
    if len(over) >= max(ROWS, SHARE * len(held)):
        text = f"{len(over)} of {len(held)} rows are longer than {limit:g} tokens, so their ends are cut"
        return (from_rows(text, f"{len(held)} 条里有 {len(over)} 条超过 {limit:g} 个 token，末尾被截掉", over, 8.0),)
    if max(_tokens(sample, LEAST_CHARS, LEAST_WIDE) for sample in held) <= limit:
        text = f"all {len(held)} rows looked at fit into {limit:g} tokens"
        return (say(text, f"看过的 {len(held)} 条都放得进 {limit:g} 个 token", -6.0, section="data"),)
    return (
        (
            from_rows(
                f"{len(over)} of {len(held)} rows are longer than {limit:g} tokens",
                f"{len(held)} 条里有 {len(over)} 条超过 {limit:g} 个 token",
                over,
                1.0,
            ),
        )
        if over
        else ()
    )


def _tokens(sample: Sample, chars: float, wide: float) -> float:
    """About how many tokens a row has, at these characters a token."""
    text = "".join(words for _, words in sample.messages)
    chinese = 0 if text.isascii() else (len(text.encode("utf-8", "surrogatepass")) - len(text)) // 2
    return (len(text) - chinese) / chars + chinese / wide


def _room(seen: Evidence) -> int:
    """The next power of two over the longest row looked at."""
    need = max((_tokens(sample, 4.0, 1.5) for sample in samples(seen)), default=1024.0)
    return min(32768, 1 << max(9, int(need).bit_length()))
