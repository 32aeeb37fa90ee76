"""Samples carry no end token at all."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, ends, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

CHECK = "end-token-missing"
MISSING_SHARE = 0.5
"""A template or tokenizer without an end leaves it out of every row; a tenth of the rows without one were cut."""


class EndTokenMissing(Case):
    id = "end-token-missing"
    symptoms = {"never-stops": 0.18}
    needs = ("data", "tokenizer")
    probe = "show"
    search = (
        "no eos token at the end of training samples",
        "tokenizer does not append eos",
        "add_eos_token for fine-tuning",
        "model always generates max_new_tokens",
        "训练样本末尾没有 eos",
        "tokenizer 没有加结束符",
        "忘了拼 eos_token",
        "每次都生成到最大长度",
    )

    en = Card(
        title="Samples end without an end token",
        sign="Short answers are right but followed by more text up to the limit. Decoded training rows stop after the last word of the answer.",
        cause="Most tokenizers add a start token before a text and nothing after it. If neither the template nor the formatting function writes the end token, the data never show the model where to stop.",
        remedy="Append it: text + tokenizer.eos_token in the formatting function, or close the assistant turn in the template ({{ message.content }}<|im_end|>). Llama-2-type tokenizers: add_eos_token=True. LLaMA-Factory: use the model's own template (qwen, llama3), which writes it, instead of text you joined yourself. axolotl: type: chat_template with train_on_eos: turn.",
        verify="Three rows decoded with special tokens shown end in the end token, and its label is that id, not -100.",
        prevention="Assert on the tokenised set that every row shorter than the maximum length ends in an end-of-turn id.",
        question="When you decode a tokenised training row with its special tokens, what is the last token?",
        quiz="add_special_tokens=True is set. Is the eos there? Usually not: most causal tokenizers add only the start token.",
    )
    zh = Card(
        title="样本末尾没有结束符",
        sign="短答案是对的，后面却接着写到长度上限。把训练样本解码出来，回答最后一个字之后什么都没有。",
        cause="大多数 tokenizer 只在开头加 BOS，结尾什么都不加。模板和格式化函数都没写结束符，模型就没有任何数据可以学会停。",
        remedy="补上：格式化函数里写 text + tokenizer.eos_token，或者在模板里给 assistant 轮收尾（{{ message.content }}<|im_end|>）。Llama-2 系 tokenizer 可以开 add_eos_token=True。LLaMA-Factory 用模型自己的 template（qwen、llama3 等），它会写结束符，不要自己拼文本；axolotl 用 type: chat_template 加 train_on_eos: turn。",
        verify="解码三条样本（显示特殊 token）：每条都以结束符收尾，且对应的 label 就是这个 id，不是 -100。",
        prevention="对分词后的整个数据集断言：没到最大长度的样本，最后一个 token 一定是轮次结束符。",
        question="把一条分词后的训练样本连特殊 token 一起解码，最后一个 token 是什么？",
        quiz="add_special_tokens=True 开着，eos 就有了吗？多数因果模型的 tokenizer 只会加开头的 BOS。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(300, end_token_missing=range(1, 65), statistics={"rendered_rows": 64.0}), outputs=make.endless()
            ),
            Evidence(
                data=make.rowset(80, end_token_missing=range(1, 81), statistics={"rendered_rows": 80.0}, example="…is 8497.")
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(300, checked=(CHECK,), statistics={"rendered_rows": 64.0}), outputs=make.endless()),
            Evidence(data=make.rowset(80, checked=(CHECK,), end_token_masked=range(1, 65)), tokenizer=make.chatml()),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        if counted(seen, CHECK) and share(seen, CHECK) >= MISSING_SHARE:
            return self.confirmed(*rows(seen, CHECK), *ends(seen))
        held = rows(seen, CHECK, weight=2.0) or clean(seen, CHECK)
        if not held:
            return self.not_checked("data", "tokenizer", exhibits=ends(seen, weight=0.0))
        return conclude(self, (*held, *(ends(seen, weight=1.0) if held[0].weight > 0 else ())), missing=("outputs",))
