"""The script itself raises a plain Python error."""

from tuneclinic.case import Card, Case
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit, from_error
from tuneclinic.examples import Lazy
from tuneclinic.patterns import pattern
from tuneclinic.sections import Crash, CrashError
from tuneclinic.words import Text

PLAIN = frozenset({
    "KeyError", "NameError", "AttributeError", "IndexError", "FileNotFoundError", "NotADirectoryError", "IsADirectoryError", "PermissionError",
    "ZeroDivisionError", "UnboundLocalError", "AssertionError", "TypeError", "ValueError", "SyntaxError", "IndentationError", "StopIteration",
})  # fmt: skip
"""Errors that Python itself raises for a slip in the code or a wrong path."""
LIBRARY = pattern(
    r"site-packages|dist-packages|/lib/python\d|<frozen|<string>|torch[/\\]|transformers[/\\]|trl[/\\]|peft[/\\]|accelerate[/\\]|datasets[/\\]|deepspeed[/\\]"
)
"""Paths of installed libraries: an error raised there has its cause in what was handed in, which other cases know."""
OTHERS_KNOW = pattern(
    r"target -?\d+ is out of bounds|index out of range in self|unexpected keyword|required keyword|tokens?\b.*\bfeatures|all labels|state_dict|size mismatch|response (?:key|template)|padding token|pad_token|target modules|resize_token|is not serializable"
)
"""Messages that have a case of their own even where a script raises them."""
FRAME = pattern(r"^(?P<path>.+?):(?P<line>\d+) in (?P<function>.+)$")


class ErrorInScript(Case):
    id = "error-in-script"
    residual = True
    symptoms = {"crashes": 0.01}
    stage = "environment"
    needs = ("crash",)
    probe = "environment"
    search = (
        "KeyError in my training script",
        "NameError train.py",
        "FileNotFoundError dataset path",
        "自己的脚本报 KeyError",
        "脚本里变量名写错",
        "找不到数据文件 FileNotFoundError",
    )

    en = Card(
        title="The script itself has an error",
        sign="An ordinary Python error (KeyError, NameError, AttributeError, FileNotFoundError …) whose last frame is in your own file.",
        cause="This is not a training fault: that line uses a key, name, path or index that does not exist. In data code it often appears only at the first unusual row.",
        remedy="Open the line at which the traceback ends and print what is really there just before it: batch.keys(), dir(object), os.path.abspath(path), len(items). For a KeyError on a column that the Trainer dropped, set remove_unused_columns=False or rename the column to an argument of the model's forward.",
        verify="The script gets past that line in a trial run with max_steps=2.",
        prevention="Run every changed script for two steps on ten rows before the real start, with evaluation and saving switched on.",
        question="What is the last line of the traceback, and which file and line number are printed just above it?",
        quiz="KeyError: 'labels' after 3,000 good steps. Is the script wrong? More likely the data: print the keys of that batch, some row lacks the field.",
    )
    zh = Card(
        title="脚本自身报错",
        sign="普通的 Python 报错（KeyError、NameError、AttributeError、FileNotFoundError 等），堆栈最后一帧在你自己的文件里。",
        cause="不是训练本身的问题：那一行用到的键、变量、路径或下标不存在。如果在数据处理代码里，往往要碰到第一条异常样本才会暴露。",
        remedy="打开堆栈指向的那一行，在它前面把真实内容打印出来：batch.keys()、dir(object)、os.path.abspath(path)、len(items)。如果是 Trainer 删掉了那一列造成的 KeyError，设 remove_unused_columns=False，或把列名改成模型 forward 的参数名。",
        verify="用 max_steps=2 试跑，脚本能过这一行。",
        prevention="脚本改完，先用 10 条数据跑两步，评测和保存都打开，再正式开训。",
        question="堆栈最后一行是什么？它上面一行写的是哪个文件、第几行？",
        quiz="正常跑了 3000 步后报 KeyError: 'labels'，是脚本写错了吗？更可能是数据：打印这个 batch 的键，有一条样本缺字段。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                crash=Crash(
                    (
                        CrashError(
                            "KeyError",
                            "'labells'",
                            "train.log:9",
                            "train.log",
                            frames=("train.py:88 in main", "train.py:60 in step"),
                        ),
                    )
                )
            ),
            Evidence(
                crash=Crash(
                    (
                        CrashError(
                            "FileNotFoundError",
                            "[Errno 2] No such file or directory: 'data.jsonl'",
                            "a.log:4",
                            "a.log",
                            frames=("/home/u/run/sft.py:12 in <module>",),
                        ),
                    )
                )
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                crash=Crash(
                    (
                        CrashError(
                            "KeyError",
                            "'labels'",
                            "a.log:9",
                            "a.log",
                            frames=("train.py:88 in main", "/venv/lib/python3.11/site-packages/trl/trainer.py:60 in step"),
                        ),
                    )
                )
            ),
            Evidence(
                crash=Crash(
                    (
                        CrashError(
                            "torch.OutOfMemoryError", "CUDA out of memory", "a.log:9", "a.log", frames=("train.py:88 in main",)
                        ),
                    )
                )
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        cause = seen.crash.cause if seen.crash else None
        if cause is None:
            return self.not_checked("crash")
        place = _own_line(cause)
        if cause.kind.rsplit(".", 1)[-1] not in PLAIN or OTHERS_KNOW.search(cause.message.lower()) or cause.memory is not None:
            return self.ruled_out(from_error(cause, -5.0))
        if not cause.frames:
            return self.not_checked("crash")
        if not place:
            return self.ruled_out(
                Exhibit(
                    Text("the error is raised inside a library", "报错发生在库内部"),
                    cause.where,
                    cause.source,
                    weight=-5.0,
                    section="crash",
                )
            )
        text = Text(f"the last frame is in your own code: {place}", f"最后一帧在你自己的代码里：{place}")
        return self.confirmed(from_error(cause, 5.0), Exhibit(text, cause.where, cause.source, weight=3.0, section="crash"))


def _own_line(error: CrashError) -> str:
    """The innermost frame as `train.py:60 in step`, where it is in no library; "" else."""
    match = FRAME.match(error.frames[-1]) if error.frames else None
    if match is None or LIBRARY.search(match["path"]):
        return ""
    name = match["path"].replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{match['line']} in {match['function']}"
