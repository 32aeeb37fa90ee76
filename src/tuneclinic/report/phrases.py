"""The fixed phrases of the reports, in both languages."""

from __future__ import annotations

from tuneclinic.words import Text

HEADINGS: dict[str, Text] = {
    "read": Text("Read", "已读取"),
    "unread": Text("Not read", "未读取"),
    "symptoms": Text("Symptoms", "现象"),
    "confirmed": Text("Confirmed", "确认"),
    "benign": Text("Looks like a fault and is none", "看着像故障，其实正常"),
    "suspects": Text("Suspects", "嫌疑"),
    "seen": Text("seen", "所见"),
    "against": Text("against", "反证"),
    "why": Text("why", "原因"),
    "do": Text("do", "处理"),
    "paste": Text("paste", "写法"),
    "verify": Text("verify", "验证"),
    "prevent": Text("prevent", "预防"),
    "next": Text("Next", "下一步"),
    "usual": Text("Is this normal?", "这样正常吗？"),
    "this_run": Text("this run", "本次"),
    "band": Text("usual", "通常"),
    "source": Text("source", "来源"),
    "loss": Text("Training loss", "训练 loss"),
    "at_step": Text("step {step}", "第 {step} 步"),
    "first_bad": Text("first bad step", "首个异常步"),
    "evaluation": Text("evaluation", "验证集"),
    "check": Text("check first", "先查"),
    "by_prior": Text("(without a remark: by its prior alone)", "（没有说明的：仅按先验列出）"),
    "bits": Text("bits", "比特"),
}

CONFIRMED = Text("Fault confirmed: {title}", "已确认故障：{title}")
ALSO_SUSPECTED = Text("; prime suspect behind it: {title} ({odds})", "；背后的首要嫌疑：{title}（{odds}）")
SUSPECT = Text("Prime suspect, not yet proven: {title}", "首要嫌疑，尚未证实：{title}")
SYMPTOM_ONLY = Text("Something is wrong, and what was read does not show the cause", "确有异常，但仅凭已读内容看不出原因")
NO_FAULT = Text("No fault: what you see has a harmless explanation", "不是故障：你看到的现象有正常解释")
NOTHING_SEEN = Text("Nothing wrong seen in what was read", "已读内容中未见异常")
TOO_LITTLE = Text("Not enough evidence for a verdict", "证据不足，无法下结论")
NOTHING_READ = Text("Nothing here could be read, so nothing is said about this run", "没有读懂任何内容，因此对这次训练不作判断")

PRIOR_ONLY = Text("by its prior alone: nothing that was read speaks for or against it", "仅按先验列出：已读内容既不支持也不反对")
CAPPED = Text(
    "a hyperparameter judged from settings alone stays a suspicion until the data were seen and ten samples memorised",
    "只看配置判断的超参数问题，在看过数据、过拟合 10 条样本之前只能算嫌疑",
)
CONSEQUENCE = Text("a consequence of {case}", "由 {case} 引起")

SUMMARY = Text("{files}: {counts}", "{files}：{counts}")
SKIPPED = Text(" ({count} skipped)", "（跳过 {count}）")
UNKNOWN_FILES = Text("{count} files that no reader knows, e.g. {names}", "{count} 个文件没有读取器认识，例如 {names}")
REST = Text("{ruled_out} cases ruled out, {not_checked} not checked", "排除 {ruled_out} 个病因，{not_checked} 个未检查")
MORE_SUSPECTS = Text(", {count} more suspects below these", "，另有 {count} 个嫌疑较小")
ERRORED = Text(", {count} failed in themselves (a bug of ours)", "，{count} 个检查自身出错（我们的 bug）")
NOT_LOOKED = Text("Not looked at: {names}.", "没有看过：{names}。")
ALL_LOOKED = Text("Every section of the evidence was looked at.", "所有证据都看过了。")

SHAPES: dict[str, Text] = {
    "train rows": Text("train rows", "行训练日志"),
    "eval rows": Text("eval rows", "行验证日志"),
    "summary rows": Text("summary rows", "行汇总"),
    "summary values": Text("summary values", "项汇总数值"),
    "rows of other ranks": Text("rows of other ranks", "行其他 rank 的日志"),
    "other rows": Text("other rows", "行其他记录"),
    "series points": Text("series points", "个曲线点"),
    "points": Text("points", "个数据点"),
    "scalars": Text("scalars", "个标量"),
    "log lines": Text("log lines", "行有用日志"),
    "output lines": Text("output lines", "行输出"),
    "run lines": Text("run lines", "行运行信息"),
    "errors": Text("errors", "个报错"),
    "settings": Text("settings", "项训练配置"),
    "model settings": Text("model settings", "项模型配置"),
    "adapter settings": Text("adapter settings", "项 adapter 配置"),
    "tokenizer settings": Text("tokenizer settings", "项 tokenizer 配置"),
    "sampling settings": Text("sampling settings", "项采样配置"),
    "serving settings": Text("serving settings", "项推理服务配置"),
    "chat templates": Text("chat templates", "份对话模板"),
    "special tokens": Text("special tokens", "个特殊 token"),
    "added tokens": Text("added tokens", "个新增 token"),
    "vocabulary": Text("entries of the vocabulary", "个词表条目"),
    "token ids": Text("token ids", "个 token id"),
    "stop ids": Text("stop ids", "个停止 id"),
    "model facts": Text("model facts", "项模型信息"),
    "versions": Text("versions", "个版本号"),
    "packages": Text("packages", "个依赖包"),
    "messages rows": Text("messages rows", "条 messages 数据"),
    "alpaca rows": Text("alpaca rows", "条 alpaca 数据"),
    "sharegpt rows": Text("sharegpt rows", "条 sharegpt 数据"),
    "prompt-completion rows": Text("prompt-completion rows", "条 prompt/completion 数据"),
    "preference rows": Text("preference rows", "条偏好数据"),
    "text rows": Text("text rows", "条纯文本数据"),
    "tokenised rows": Text("tokenised rows", "条已分词数据"),
    "rows": Text("rows", "条数据"),
    "facts": Text("script facts", "条脚本事实"),
    "checks": Text("script checks", "项脚本检查"),
    "tensors": Text("tensors", "个张量"),
    "files": Text("files", "个文件"),
    "outputs": Text("outputs", "条生成结果"),
    "scores": Text("scores", "项分数"),
    "other parameters": Text("other parameters", "项其他参数"),
}
"""What rows of each shape are called on screen; a shape without an entry is shown as its reader names it."""

HARMLESS = Text("harmless", "正常")
NEAREST = Text("Nothing is called {text!r}. Nearest:", "没有叫 {text!r} 的条目，最接近的是：")
ALSO = Text("See also:", "另见：")
NO_HIT = Text("Nothing in the handbook fits these words.", "手册里没有与之相符的内容。")
BOOK_TOTAL = Text("{count} cases", "共 {count} 个病因")
SAME_AS = Text("The same as in {run}: {titles}.", "与 {run} 相同：{titles}。")
