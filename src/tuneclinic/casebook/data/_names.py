"""What each row check found, in words."""

from __future__ import annotations

from tuneclinic.words import Text

NAMES = {
    "empty-answer": Text("the answer is empty", "回答为空"),
    "placeholder": Text("an unfilled placeholder is left in the text", "文本里留着没填的占位符"),
    "mojibake": Text("text decoded with the wrong encoding", "编码读错产生的乱码"),
    "duplicate": Text("a copy of an earlier row", "与前面某条完全重复"),
    "conflicting-answers": Text("one prompt, contradictory short answers", "同一个 prompt，短答案互相矛盾"),
    "answer-in-prompt": Text("the prompt already ends with the answer", "prompt 末尾已经带着答案"),
    "control-token-in-text": Text("a template or control token inside a message", "消息正文里混进了模板或控制 token"),
    "refusal": Text("the answer is a refusal", "回答是拒答"),
    "malformed-row": Text("the row cannot be read in the set's layout", "该行按数据集格式读不出来"),
    "system-repeated": Text("the rendered text holds the system part more than once", "渲染后的文本里 system 部分出现了不止一次"),
    "answer-split": Text("the rendered answer is cut or not in one piece", "渲染后回答被截断或拆开"),
    "turn-lost": Text("a message is missing from the rendered text", "渲染后的文本丢了一轮消息"),
    "roles-disordered": Text("the turns are in the wrong order", "角色顺序不对"),
    "end-token-missing": Text("no end token after the last answer", "最后一个回答之后没有结束符"),
    "double-bos": Text("two start tokens in a row", "开头有两个 BOS"),
    "double-eos": Text("two end tokens in a row", "结尾有两个结束符"),
    "identical-pair": Text("chosen and rejected are the same text", "chosen 与 rejected 完全相同"),
    "image-count": Text("different numbers of image placeholders and images", "图片占位符与图片数量不一致"),
    "all-masked": Text("every label is -100", "labels 全是 -100"),
    "no-target": Text("there is no answer to train on", "没有可训练的回答"),
    "prompt-trained": Text("the prompt is trained too", "prompt 部分也参与了训练"),
    "end-token-masked": Text("the end token after the answer is masked", "回答之后的结束符被掩掉了"),
    "id-out-of-range": Text("a token id beyond the embedding", "token id 超出了 embedding"),
    "nonfinite": Text("NaN or infinity among the values", "数值里有 NaN 或 inf"),
    "labels-unshifted-copy": Text("labels are the inputs at the same position", "labels 与输入逐位相同"),
    "answer-trivial": Text("the same answer as in nearly all rows", "几乎所有样本都是这同一个答案"),
    "long": Text("far longer than the rest of the set", "远比其余样本长"),
    "train-eval-leak": Text("a row of the evaluation set that is also in the training set", "验证集里的这条也在训练集里"),
    "absurd-repeat": Text("one piece repeated over and over", "同一段内容反复重复"),
    "truncated-answer": Text("the answer stops in mid-sentence at the same length as others", "回答在同一长度处被拦腰截断"),
}
"""By name of the check."""
RENDERED = frozenset({"system-repeated", "answer-split", "turn-lost", "end-token-missing", "double-bos", "double-eos"})
"""Checks that are made on the rendered samples only."""
TOKENISED = frozenset({"end-token-masked", "id-out-of-range", "labels-unshifted-copy"})
"""Checks that are made on samples that carry token ids."""
