"""The answers are all alike."""

from collections import Counter

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import outputs, quote, samples, statistic
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

ROWS = 100
"""Below a hundred rows every share is a handful of rows."""
FREE_CHARS = 100.0
"""Median answer from which answers are free text; labels, names and fixed phrases are similar by nature."""
OPENING_SHARE = 0.3
"""Share of answers with the commonest 20 characters at their head: in the sets of free text measured 0.002 to 0.19, median 0.03."""
EXTREME_OPENING = 0.5
"""A judgement, not measured: every second answer begins alike, whatever the answers are compressed to."""
COMPRESSION = 0.15
"""zlib size over size of the joined answers: instruction sets measured lie at 0.31 to 0.45, sets made from one template under 0.12."""
VARIED = 0.25
"""Halfway between the sets of one template (under 0.12) and the lowest instruction set measured (0.31)."""
SAME_CHARS = 20
"""The characters over which the statistics count an opening."""


class DataAllAlike(Case):
    id = "data-all-alike"
    symptoms = {"parrots": 0.12}
    needs = ("data",)
    probe = "show"
    search = (
        "every answer starts with the same sentence",
        "low diversity training data",
        "distilled data all look alike",
        "model answers everything with the same template",
        "训练数据太单一",
        "回答开头全都一样",
        "蒸馏数据没有清洗",
        "数据多样性不够 复读",
    )

    en = Card(
        title="The answers are all alike",
        sign="Whatever the question, the tuned model opens with the same words and follows the same pattern.",
        cause="Distilled or templated data share their openings and phrases. What occurs in every row is trained by every row, so the pattern is learnt first and the content hardly at all.",
        remedy="Cut fixed openings ('Sure, here is …') from the answers, remove near-duplicates (MinHash at 0.8, with datatrove or text-dedup), and keep at most a few hundred rows per prompt template. Mix in data from another source: mix_strategy: interleave_under with interleave_probs in LLaMA-Factory, several entries under datasets in axolotl.",
        verify="The most common opening occurs in less than 10 % of the answers, and all answers joined compress (zlib) to more than 25 % of their size.",
        prevention="Print opening share, distinct-2 and compression ratio for each source before training.",
        question="What share of the training answers begins with the same twenty characters?",
        quiz="50,000 rows made from one prompt template: how much data is that? About as much as the few hundred distinct answers in it.",
    )
    zh = Card(
        title="回答千篇一律",
        sign="不管问什么，微调后的模型开头都是那几个字，套路也一样。",
        cause="蒸馏或用模板造的数据，开头和句式都一样。每条样本里都有的东西，每条样本都在训它，套路最先学会，内容反而没学到多少。",
        remedy="把固定开头（“好的，以下是……”）从答案里删掉；做近似去重（MinHash 阈值 0.8，用 datatrove 或 text-dedup）；每个 prompt 模板最多留几百条；再掺入别的来源：LLaMA-Factory 用 mix_strategy: interleave_under 加 interleave_probs，axolotl 在 datasets 里写多个来源。",
        verify="最常见的开头占比低于 10%；全部回答拼起来用 zlib 压缩，压缩后大于原大小的 25%。",
        prevention="训练前按来源打印开头占比、distinct-2 和压缩率。",
        question="训练集里有多大比例的回答，前 20 个字都一样？",
        quiz="一个模板造了 5 万条，等于多少数据？大约等于其中那几百种不同的回答。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(
                    2000,
                    statistics={
                        "opening_share": 0.81,
                        "compression_ratio": 0.06,
                        "distinct_2": 0.05,
                        "answer_chars_median": 240.0,
                    },
                )
            ),
            Evidence(
                data=make.rowset(
                    1000,
                    statistics={"opening_share": 0.42, "compression_ratio": 0.2, "answer_chars_median": 180.0},
                    samples=tuple(
                        make.chat(n, f"q{n}", f"Thank you for your question. Item {n} is number {n}.") for n in range(1, 30)
                    ),
                ),
                outputs=make.said(*(f"Thank you for your question. I think {n}" for n in range(6))),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(  # varied answers, and outputs that are alike for another reason
                data=make.rowset(
                    1000,
                    statistics={"opening_share": 0.01, "compression_ratio": 0.4, "distinct_2": 0.8, "answer_chars_median": 400.0},
                ),
                outputs=make.said(*(f"Thank you for your question. I think {n}" for n in range(6))),
            ),
            Evidence(
                data=make.rowset(1000, statistics={"opening_share": 0.77, "compression_ratio": 0.05, "answer_chars_median": 4.0})
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        opening, packed = statistic(seen, "opening_share"), statistic(seen, "compression_ratio")
        middle, count = statistic(seen, "answer_chars_median"), seen.data.rows if seen.data is not None else 0
        if opening is None or packed is None or middle is None or count < ROWS:
            return self.not_checked("data")
        if middle < FREE_CHARS and not (middle <= SAME_CHARS):
            return self.not_checked("outputs")
        if middle <= SAME_CHARS:
            text = f"answers are short labels (median {middle:.0f} characters), similar by nature"
            return self.ruled_out(say(text, f"回答是短标签（中位数 {middle:.0f} 个字符），本来就相似", -4.0, section="data"))
        told = _measured(opening, packed)
        echoed = _echoed(seen)
        if (opening >= EXTREME_OPENING and packed <= COMPRESSION) or (echoed and opening >= OPENING_SHARE):
            return self.confirmed(told, *echoed)
        return conclude(self, (told, *echoed), missing=("outputs",))


def _measured(opening: float, packed: float) -> Exhibit:
    weight = -4.0 if opening < OPENING_SHARE and packed > VARIED else 0.0
    weight += 2.0 if opening >= OPENING_SHARE else 0.0
    weight += 2.0 if packed <= COMPRESSION else 0.0
    return say(
        f"{opening:.0%} of the answers open with the same 20 characters; together they compress to {packed:.0%}",
        f"{opening:.0%} 的回答前 20 个字符相同；全部回答压缩到 {packed:.0%}",
        weight,
        section="data",
    )


def _echoed(seen: Evidence) -> tuple[Exhibit, ...]:
    """Outputs that open with the training answers' commonest opening."""
    trained = Counter(
        sample.answers[-1].strip()[:SAME_CHARS]
        for sample in samples(seen)
        if sample.answers and len(sample.answers[-1]) > SAME_CHARS
    )
    if not trained or len(outputs(seen)) < 3:
        return ()
    opening, count = trained.most_common(1)[0]
    found = [output for output in outputs(seen) if output.text.strip().startswith(opening)]
    if count < 3 or 2 * len(found) < len(outputs(seen)):
        return ()
    told = say(
        f"{len(found)} outputs begin with the most common opening of the training set",
        f"{len(found)} 条输出用的就是训练集里最常见的开头",
        3.0,
        section="outputs",
        where=found[0].where,
    )
    return (told, quote(opening, found[0].where, found[0].source))
