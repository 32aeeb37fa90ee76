"""Samples end with two end tokens."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import by_share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

CHECK = "double-eos"
PROOF_SHARE = 0.1
"""A second end comes from the template or the formatting function and stands in every row."""


class DoubleEos(Case):
    id = "double-eos"
    symptoms = {"never-stops": 0.02, "parrots": 0.01}
    needs = ("data", "tokenizer")
    probe = "show"
    search = (
        "two eos tokens at the end",
        "double eos in training samples",
        "template adds eos and the script adds it again",
        "</s></s> at the end of samples",
        "样本末尾两个 eos",
        "结束符重复",
        "模板和脚本都加了 eos",
        "双 eos",
    )

    en = Card(
        title="Two end tokens in a row",
        sign="Decoded rows end in <|im_end|><|im_end|> or </s></s>. Most answers are fine; some end with a second end token or an empty turn.",
        cause="The template closes the turn, and the formatting function or add_eos_token=True appends one more end token. The model is then also trained to write a second end token after the first.",
        remedy="Let one place write the end token: remove '+ tokenizer.eos_token' from the formatting function, or set tokenizer.add_eos_token = False, or remove the second one from the template.",
        verify="Three rows decoded with special tokens shown have one end token per turn.",
        prevention="Assert on the tokenised set that no two end ids follow each other.",
        question="When you decode a training row, does it end with one end token or with two?",
        quiz="Is a double end token fatal? Rarely: generation stops at the first. It wastes a token and trains an empty turn.",
    )
    zh = Card(
        title="结尾有两个结束符",
        sign="解码样本以 <|im_end|><|im_end|> 或 </s></s> 结尾。多数时候表现正常，偶尔多吐一个结束符或一个空轮次。",
        cause="模板已经给这一轮收了尾，格式化函数或 add_eos_token=True 又补了一个结束符。于是模型还学会了在结束符后面再写一个结束符。",
        remedy="结束符只在一处写：格式化函数里去掉 + tokenizer.eos_token，或设 tokenizer.add_eos_token = False，或把模板里多的那个删掉。",
        verify="解码三条样本（显示特殊 token），每轮只有一个结束符。",
        prevention="对分词后的数据断言：没有两个结束符挨在一起。",
        question="训练样本解码出来，结尾是一个结束符还是两个？",
        quiz="双结束符致命吗？很少。生成会停在第一个，只是浪费一个 token，还训了一个空轮次。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(300, double_eos=range(1, 65), statistics={"rendered_rows": 64.0}, example="…fine.</s></s>")
            ),
            Evidence(data=make.rowset(40, double_eos=range(1, 41)), tokenizer=make.chatml()),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(300, checked=(CHECK,), statistics={"rendered_rows": 64.0})),
            Evidence(data=make.rowset(300, checked=(CHECK,), end_token_missing=range(1, 65), statistics={"rendered_rows": 64.0})),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        return by_share(self, seen, CHECK, proof=PROOF_SHARE, minor=0.5)
