"""Control tokens of a chat template in the output."""

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Output, Outputs
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms import _outputs as read


class TemplateResidue(Symptom):
    id = "template-residue"
    letter = "B"
    needs = ("outputs",)
    search = (
        "<|im_start|> appears in the output",
        "output contains <|im_end|> or [INST] tokens",
        "special tokens in generated text",
        "answer starts with assistant<|end_header_id|>",
        "### Response: shows up in the reply",
        "输出里带 <|im_start|>",
        "回答里出现模板标记",
        "生成结果里有 <|endoftext|> 这种特殊符号",
        "chat template markers leak into the response",
        "<|eot_id|> printed in the answer",
        "<|assistant|> in generated text",
        "回复里混进 <|im_end|> 标签",
        "输出有特殊标记",
        "生成文本带 [INST] </s>",
    )

    en = SymptomCard(
        title="Template markers in the output",
        seen="Answers contain <|im_start|>, [INST], </s>, '### Response:' or other markers that belong to the chat template, not to the text.",
        check="Render one conversation through the training template and through the server's template, and compare token by token. Is each marker a single special token of this tokenizer? Do the training texts contain the markers?",
        treatment="Use the same template on both sides, register the markers as special tokens, and stop on the template's own end-of-turn token. Remove markers from the training texts.",
        prevention="Ship template, stop ids and generation settings together with the weights, and compare them with the training side before release.",
    )
    zh = SymptomCard(
        title="输出带模板标记",
        seen="回答里出现 <|im_start|>、[INST]、</s>、“### Response:” 这类属于对话模板、不属于正文的标记。",
        check="同一段对话分别用训练模板和推理端模板渲染，逐 token 对比。这些标记在当前 tokenizer 里是不是单个特殊 token？训练文本里是不是本来就混着它们？",
        treatment="两边用同一个模板，标记注册成特殊 token，stop 用模板自己的轮次结束符；数据里混进的标记清掉。",
        prevention="模板、stop id、生成参数跟权重一起发布，上线前和训练侧核对一遍。",
    )
    sick = Lazy(
        lambda: [
            Evidence(outputs=Outputs((Output("hi", "<|im_start|>assistant\nHello", "o.jsonl row 1"),))),
            Evidence(outputs=Outputs((Output("你好", "你好！<|im_end|>\n<|im_start|>user\n再见", "o.jsonl row 1"),))),
            Evidence(outputs=Outputs((Output("q", "[/INST] The answer is 4. [INST] And 5?", "o.jsonl row 1"),))),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                outputs=Outputs(
                    (Output("What does <|im_start|> mean?", "<|im_start|> opens a turn in ChatML.", "o.jsonl row 1"),)
                )
            ),
            Evidence(outputs=Outputs((Output("hi", "Hello there.<|im_end|>", "o.jsonl row 1"),))),
            Evidence(
                outputs=Outputs(
                    (Output("html", "Use <s>struck</s> text or <b>bold</b>.", "o.jsonl row 1", reference="<s>x</s>"),)
                )
            ),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        outputs = read.items(seen)
        if not outputs:
            return self.not_checked("outputs")
        marked = [(output, token) for output in outputs if (token := read.residue(output)) is not None]
        if not marked:
            text = read.counted(0, len(outputs), "hold a template mark", "带模板标记")
            return self.absent(read.quoted(outputs[0], text))
        first, token = marked[0]
        text = read.counted(len(marked), len(outputs), f"hold a template mark such as {token}", f"带模板标记，例如 {token}")
        start = max(0, first.text.find(token) - 30)
        return self.shown(read.quoted(first, text), read.quoted(first, show=first.text[start:]))
