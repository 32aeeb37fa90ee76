"""Rows of the data file cannot be read."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, rows
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, lines, quoted, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

CHECK = "malformed-row"


PARSED = r"the json object must be str, bytes or bytearray, not (?:dict|list)"
"""A loader that takes a column for JSON text, and gets what is parsed already."""


class MalformedRows(Case):
    id = "malformed-rows"
    symptoms = {"crashes": 0.03}
    needs = ("data", "crash", "log")
    probe = "show"
    signatures = (
        r"(?:arrowinvalid|pyarrow).{0,40}json parse error",
        r"json parse error: (?:column|missing|invalid|the document)",
        r"arrowinvalid: (?:could not convert|cannot mix|failed to parse)",
        r"column ?\(.{0,80}\) changed from .{1,60} to ",
        r"couldn'?t cast array of type",
        r"all the data files must have the same columns",
        r"error tokenizing data\. c error",
    )
    search = (
        "pyarrow.lib.ArrowInvalid: JSON parse error",
        "Column(/messages/[]/content) changed from string to array",
        "All the data files must have the same columns",
        "DatasetGenerationError while loading jsonl",
        "JSON 解析失败 数据集加载报错",
        "jsonl 某一行格式不对",
        "pyarrow 报错 column changed from string",
        "数据集格式错误",
    )

    en = Card(
        title="Rows of the data file are malformed",
        sign="Loading stops with ArrowInvalid, 'JSON parse error', 'column changed from string to array' or 'must have the same columns', often far into the file.",
        cause="A line is cut off, contains a raw newline, or has another type or key than the lines before it. Arrow infers one type per column from the first block and refuses a row that breaks it.",
        remedy="Find the line: for n, line in enumerate(open(path, encoding='utf-8'), 1): print(n); json.loads(line). The last number printed is the bad line; fix or drop it. If every line parses, the types differ: make content a string in every message and give every row the same keys, with '' or null where a value is missing.",
        verify="The loop passes over the whole file, and load_dataset('json', data_files=path) gives the expected number of rows.",
        prevention="Write JSON lines only with json.dumps, never by joining strings, and load the file once with load_dataset before it goes to training.",
        question="Which line number does the parse error name, and does that line parse on its own?",
        quiz="In row 40,000 content is a list, before that a string. The JSON is valid, so why does it fail? A column can have only one type.",
    )
    zh = Card(
        title="数据文件里有坏行",
        sign="加载时报 ArrowInvalid、JSON parse error、column changed from string to array 或 must have the same columns，常常读到很后面才报。",
        cause="某一行被截断、夹了裸换行，或者字段类型、键名和前面的行不一致。Arrow 按第一块数据给每列定一个类型，后面遇到不一样的就报错。",
        remedy="先定位：for n, line in enumerate(open(path, encoding='utf-8'), 1): print(n); json.loads(line)，最后打印的行号就是坏行，修好或删掉。如果每行都能解析，那就是类型不一致：每条消息的 content 都写成字符串，所有行的键保持一致，缺值用 '' 或 null。",
        verify="上面的循环能跑完整个文件，load_dataset('json', data_files=path) 的条数与预期一致。",
        prevention="JSONL 一律用 json.dumps 写，不要手拼字符串；送去训练前先用 load_dataset 加载一遍。",
        question="报错指的是第几行？那一行单独解析能过吗？",
        quiz="第 4 万行的 content 是列表，前面都是字符串，JSON 合法为什么还报错？一列只能有一个类型。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(5000, malformed_row=(4021,), example='{"messages": [{"role": "user", "con')),
            Evidence(
                crash=run.crashed(
                    "pyarrow.lib.ArrowInvalid",
                    "JSON parse error: Column(/messages/[]/content) changed from string to array in row 38",
                    phase="data",
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(5000, checked=(CHECK,)), crash=run.crashed("KeyError", "'messages'", phase="data")),
            Evidence(data=make.rowset(300, checked=(CHECK,), empty_answer=(4,))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        named = quoted(self, seen)
        if counted(seen, CHECK) or named:
            return self.confirmed(*named, *rows(seen, CHECK))
        parsed = lines(seen, PARSED, weight=6.0)
        if parsed:
            return self.suspected(*parsed, missing=("script",))
        held = clean(seen, CHECK)
        if not held and seen.crash is not None and seen.crash.cause is not None:
            return self.ruled_out(
                say(
                    "the error is not about reading rows",
                    "报错和读取样本无关",
                    -5.0,
                    section="crash",
                    where=seen.crash.cause.where,
                )
            )
        return conclude(self, held, missing=("data",))
