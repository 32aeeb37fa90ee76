"""Templated answers, repeated sentences."""

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import Output, Outputs
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms import _outputs as read

ENOUGH_SHARE = 0.25
"""Share of answers that repeat themselves from which it is a habit and not an accident of one prompt. A choice on the silent side:
greedy decoding of plain models repeats in nearly half of the text (Welleck et al. 2019), so a parrot is far above it."""

OPENING = 24
"""Characters of an opening: four to five English words, or two short Chinese clauses."""

ALIKE_SHARE = 0.6
"""Share of answers with one opening that makes them templated, where the expected answers do not share it."""

ENOUGH_ANSWERS = 5
"""Different prompts needed before a common opening means anything."""


class Parrots(Symptom):
    id = "parrots"
    letter = "B"
    needs = ("outputs",)
    search = (
        "model repeats the same sentence over and over",
        "output keeps repeating itself",
        "every answer looks the same after fine-tuning",
        "repetitive, templated answers",
        "fine-tuned model generates loops",
        "复读机",
        "微调后一直重复同一句话",
        "回答都是一个模子",
        "boilerplate answers to every question",
        "generation gets stuck in a loop",
        "输出不停重复",
        "生成内容循环重复",
        "回答千篇一律，全是套话",
    )

    en = SymptomCard(
        title="Answers repeat themselves",
        seen="Answers get stuck repeating one phrase, or they all start and continue the same way, no matter what was asked.",
        check="Compare epochs with rows, and measure how similar the training answers are: openings, distinct n-grams, near-duplicates. Check the sampling: with temperature near 0 and no repetition penalty, any small model loops. Is the end token trained?",
        treatment="Train fewer epochs, or on more varied data. Sample with temperature 0.7 and top_p 0.9 before you judge. If answers also run to the token limit, put the end token into the labels.",
        prevention="Once, on a small model, over-train, mask wrongly and use a wrong template on purpose. The three kinds of repetition look different, and you will recognise them later.",
    )
    zh = SymptomCard(
        title="复读机",
        seen="回答陷进一句话里循环，或者不管问什么，开头和套路都一样。",
        check="epoch 和样本数放一起看；训练集的回答有多像：开头、distinct-n、近重复。再看采样参数：temperature 接近 0 又没有 repetition_penalty，小模型怎么都会循环。结束符有没有参与训练？",
        treatment="减 epoch，或者加量、加多样性；先用 temperature 0.7、top_p 0.9 再下结论。如果每次都写到长度上限，就把结束符放进 labels。",
        prevention="拿小模型故意训过头、掩错、用错模板各做一次，三种复读长得不一样，见过就认得。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                outputs=Outputs(
                    tuple(
                        Output(
                            f"question {n}", "Sure. " + "I would be happy to help you with that. " * 9, f"outputs.jsonl row {n}"
                        )
                        for n in range(1, 5)
                    )
                )
            ),
            Evidence(outputs=Outputs((Output("介绍一下杭州", "杭州是一座美丽的城市。" * 12, "outputs.jsonl row 1"),))),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                outputs=Outputs(
                    (
                        Output(
                            "Write the refrain",
                            "Row, row, row your boat, gently down the stream. Merrily, merrily.",
                            "o.jsonl row 1",
                        ),
                        Output("Make a table", "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |", "o.jsonl row 2"),
                    )
                )
            ),
            Evidence(outputs=Outputs(tuple(Output(f"review {n}", "positive", f"o.jsonl row {n}") for n in range(1, 9)))),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        outputs = read.items(seen)
        if not outputs:
            return self.not_checked("outputs")
        looping = [output for output in outputs if read.repeats(output.text) and not read.repeats(output.reference or "")]
        if len(looping) >= ENOUGH_SHARE * len(outputs):
            text = read.counted(len(looping), len(outputs), "repeat themselves", "在重复自己")
            return self.shown(read.quoted(looping[0], text), *(_loop(output) for output in looping[:2]))
        return self._templated(outputs)

    def _templated(self, outputs: tuple[Output, ...]) -> Sighting:
        """Whether the answers to different prompts all open alike, and should not."""
        prompts = {output.prompt for output in outputs}
        opening, count, total = read.alike(outputs, OPENING)
        expected = [output for output in outputs if (output.reference or "").strip().startswith(opening)]
        if len(prompts) >= ENOUGH_ANSWERS <= total and count >= ALIKE_SHARE * len(outputs) and len(expected) < count / 2:
            first = next(output for output in outputs if output.text.strip().startswith(opening))
            text = read.counted(count, len(outputs), "begin with the same words", "开头一模一样")
            return self.shown(read.quoted(first, text), read.quoted(first, show=opening))
        return self.absent(read.quoted(outputs[0], read.counted(0, len(outputs), "fall into a loop", "陷入循环")))


def _loop(output: Output) -> Exhibit:
    """The repeated unit of an answer, quoted."""
    unit = read.loop(output.text)
    return read.quoted(output, show=f"{read.short(unit[0], 60)} ×{unit[1]}" if unit is not None else output.text)
