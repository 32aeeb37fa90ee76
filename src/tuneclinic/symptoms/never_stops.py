"""Generation runs to the limit."""

import re

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Output, Outputs
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms import _outputs as read

ENOUGH_SHARE = 0.5
"""Share of answers that did not end by themselves. A limit set too low cuts some of them; a model without an end cuts most."""


class NeverStops(Symptom):
    id = "never-stops"
    letter = "B"
    needs = ("outputs",)
    search = (
        "model never stops generating",
        "generation runs until max_new_tokens",
        "fine-tuned model doesn't emit eos token",
        "keeps talking to itself, writes the next user question",
        "finish_reason length on every request",
        "模型停不下来",
        "生成不结束，一直写到 max_tokens",
        "微调之后不输出 eos",
        "generation does not stop at the end of the answer",
        "endless generation until the max length",
        "model continues with another user turn",
        "eos token is never generated",
        "回答结束了还继续往下写",
        "模型自问自答停不住",
        "keeps writing after the answer is complete",
        "答完了还在往后写",
    )

    en = SymptomCard(
        title="The model does not stop",
        seen="Answers run up to the token limit, or the model writes the user's next question and answers that too.",
        check="Look at the labels of one sample: is the end token there, and is it not -100? With pad = eos, a collator that masks by id also masks the end token. Then compare three things: the token that ends a turn in the template, the tokenizer's eos, and the stop ids at inference.",
        treatment="Train the end token (append it; use a pad token that is not eos), or pass the template's end-of-turn token as a stop id (eos_token_id in generate(), stop_token_ids in vLLM). If truncation removed the ends, raise max_length (LLaMA-Factory: cutoff_len, axolotl: sequence_len).",
        prevention="Before every training, check automatically that the last trained token of each sample is the end-of-turn token, and that inference stops on the same id.",
    )
    zh = SymptomCard(
        title="模型停不下来",
        seen="回答一直写到长度上限，或者自己接着写下一个用户提问，再自问自答。",
        check="看一条样本的 labels：结束符在不在，是不是被掩成了 -100？pad = eos 时，按 id 掩码的 collator 会把结束符一起掩掉。再对三样东西：模板里一轮的收尾 token、tokenizer 的 eos、推理时的 stop id。",
        treatment="让结束符参与训练（补上 eos，pad 另用一个 token），或者推理时把模板的轮次结束符加进 stop id（generate() 用 eos_token_id，vLLM 用 stop_token_ids）。结尾被截断的，把 max_length 调大（LLaMA-Factory 是 cutoff_len，axolotl 是 sequence_len）。",
        prevention="训练前自动检查：每条样本最后一个参与训练的 token 是轮次结束符，推理也停在同一个 id。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                outputs=Outputs(
                    tuple(
                        Output(f"q{n}", f"answer {n} and more and more", f"o.jsonl row {n}", finish="length") for n in range(1, 5)
                    )
                )
            ),
            Evidence(outputs=Outputs((Output("hi", "Hello.\nUser: how are you\nAssistant: fine\nUser: and now", "chat.txt:1"),))),
            Evidence(outputs=Outputs((Output("hi", "Hello there", "o.jsonl row 1", tokens=512),), max_new_tokens=512)),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                outputs=Outputs(
                    (
                        Output("q1", "a long story", "o.jsonl row 1", finish="length"),
                        Output("q2", "yes", "o.jsonl row 2", finish="stop"),
                        Output("q3", "no", "o.jsonl row 3", finish="stop"),
                    )
                )
            )
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        outputs = read.items(seen)
        limit = seen.outputs.max_new_tokens if seen.outputs is not None else None
        known = [(output, end) for output in outputs if (end := read.ended(output, limit)) is not None]
        running = [output for output, end in known if not end]
        if running and len(running) >= ENOUGH_SHARE * len(known) and len(running) >= ENOUGH_SHARE * len(outputs) / 2:
            text = read.counted(len(running), len(known), "did not end by themselves", "没有自己结束")
            return self.shown(read.quoted(running[0], text), read.quoted(running[0], show=_end(running[0].text)))
        if known:
            text = read.counted(len(known) - len(running), len(known), "ended by themselves", "是自己结束的")
            return self.absent(read.quoted(known[0][0], text))
        looping = [output for output in outputs if read.loop(output.text) is not None]
        if looping and len(looping) >= ENOUGH_SHARE * len(outputs):
            text = read.counted(len(looping), len(outputs), "loop until they were cut", "循环到被截断为止")
            return self.hinted(read.quoted(looping[0], text))
        return self.not_checked("outputs")


def _end(text: str) -> str:
    """The end of an answer, or where the next turn begins in it."""
    following = re.search(read.NEXT_TURN, text[: read.LONGEST])
    return text[following.start() :] if following is not None and following.start() > 0 else text[-80:]
