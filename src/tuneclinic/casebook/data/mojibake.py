"""Texts were decoded with the wrong code page."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import by_share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

CHECK = "mojibake"
PROOF_SHARE = 0.05
"""Public sets carry 1 to 2 % of rows with a damaged quotation mark or name; from a twentieth on a whole source was misread."""


class Mojibake(Case):
    id = "mojibake"
    symptoms = {"loss-not-falling": 0.02, "parrots": 0.01}
    needs = ("data",)
    probe = "show"
    search = (
        "â€™ in the training data",
        "UTF-8 read as latin-1",
        "replacement characters in dataset",
        "model outputs garbled characters after fine-tuning",
        "训练数据乱码",
        "锟斤拷",
        "UTF-8 当成 GBK 读",
        "微调后输出乱码",
    )

    en = Card(
        title="Text was decoded with the wrong encoding",
        sign="Rows show â€™ for an apostrophe, Ã© for é, or � where characters are lost, and the model writes the same garbage. The loss stays high, because broken bytes are hard to predict.",
        cause="UTF-8 bytes were read as Latin-1 or GBK (open() without encoding on Windows, a CSV exported by a spreadsheet) and saved again. Once the file contains �, the original bytes are gone.",
        remedy="Read again from the source with open(path, encoding='utf-8') (or 'gb18030' for Chinese exports, 'utf-8-sig' with a BOM). If only the damaged file is left, ftfy.fix_text(text) repairs â€™ and Ã©; rows with � have to be dropped.",
        verify="A search for Ã, â€ and � in the file finds nothing.",
        prevention="Open every file with an explicit encoding, and reject rows with � in preprocessing.",
        question="Do texts in the data file show characters like â€™, Ã© or �?",
        quiz="Which damage can be repaired, Ã© or �? Ã©, because its bytes are still there. � has lost them.",
    )
    zh = Card(
        title="文本编码读错，成了乱码",
        sign="样本里撇号成了 â€™、é 成了 Ã©、中文成了锟斤拷或 �，模型也跟着写这些。loss 下不去，因为乱码本来就没规律可学。",
        cause="UTF-8 字节被当成 Latin-1 或 GBK 读了（Windows 上 open() 没写 encoding、电子表格导出的 CSV），又原样存了回去。文件里一旦出现 �，原来的字节就没了。",
        remedy="从源头重新读：open(path, encoding='utf-8')，中文导出用 'gb18030'，带 BOM 用 'utf-8-sig'。只剩坏文件时，ftfy.fix_text(text) 能修 â€™、Ã© 这类，带 � 的样本只能删。",
        verify="全文搜 Ã、â€、锟、�，都搜不到。",
        prevention="打开文件一律写明 encoding，预处理遇到 � 就拒收。",
        question="数据里有没有 â€™、Ã©、锟斤拷、� 这样的字符？",
        quiz="Ã© 和 �，哪个救得回来？Ã© 可以，字节还在；� 的字节已经丢了。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(200, mojibake=range(1, 180), example="浣犲ソ锛屼笘鐣")),
            Evidence(data=make.rowset(1000, mojibake=range(1, 90), example="it donâ€™t work")),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(200, checked=(CHECK,)), metrics=run.ran(loss=run.level(100, 3.0))),
            Evidence(data=make.rowset(200, checked=(CHECK,), refusal=range(1, 30))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        return by_share(self, seen, CHECK, proof=PROOF_SHARE, least=3, minor=0.5)
