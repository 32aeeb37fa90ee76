"""Placeholders of a template were never filled."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import by_share, outputs, quote
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

CHECK = "placeholder"
PROOF_SHARE = 0.01
"""A field recurs in every row that its template made; one row of a hundred is enough to be quoted by the model."""


class PlaceholdersUnfilled(Case):
    id = "placeholders-unfilled"
    symptoms = {"parrots": 0.02}
    needs = ("data",)
    probe = "show"
    search = (
        "{{name}} in model output",
        "unfilled placeholder in training data",
        "model says I am {{name}} developed by {{author}}",
        "template variables not replaced in dataset",
        "占位符没有替换",
        "模型回答里出现 {{name}}",
        "identity.json 没改 name 和 author",
        "训练数据里有 <NAME>",
    )

    en = Card(
        title="Placeholders were left unfilled",
        sign="The model introduces itself as {{name}} from {{author}}, or writes <input> and TODO.",
        cause="The data were made from a template whose fields were never replaced: LLaMA-Factory's identity.json ships with {{name}} and {{author}} for you to edit, and prompt templates keep {input} where a row has no value.",
        remedy="Replace them in the file: sed -i 's/{{name}}/YourName/g; s/{{author}}/YourTeam/g' data/identity.json. Where a field has no value, drop the sentence or the whole row.",
        verify="A search for {{ and <input> in the data finds nothing except code.",
        prevention="Fill templates with a function that fails on a missing field: str.format, or Jinja2 with StrictUndefined.",
        question="Do texts in the data contain field names in double braces or angle brackets, such as {{name}} or <input>?",
        quiz="Only 85 of 5,000 rows contain {{name}}. Does it matter? Yes: they are the only rows about the model's identity.",
    )
    zh = Card(
        title="模板占位符没有填",
        sign="模型自称 {{name}}、由 {{author}} 开发，或者写出 <input>、TODO。",
        cause="数据是用模板批量造的，字段没替换：LLaMA-Factory 自带的 identity.json 里就是 {{name}}、{{author}}，需要自己改；拼 prompt 的模板遇到空字段也会留下 {input}。",
        remedy="在文件里替换：sed -i 's/{{name}}/你的名字/g; s/{{author}}/你的团队/g' data/identity.json；没有值的字段，把那句话或整条样本删掉。",
        verify="在数据里搜 {{ 和 <input>，除了代码不再有结果。",
        prevention="填模板用缺字段就报错的写法（str.format、Jinja2 的 StrictUndefined）。",
        question="数据里有没有 {{name}}、<input> 这类双花括号或尖括号的字段名？",
        quiz="5000 条里只有 85 条带 {{name}}，要紧吗？要紧，关于身份的就只有这 85 条。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(91, placeholder=range(1, 86), example="Hello! I am {{name}}, built by {{author}}.")),
            Evidence(
                data=make.rowset(2000, placeholder=range(1, 60), example="Answer the question: {input}"),
                outputs=make.said("I am {{name}}", "ok", "fine"),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(91, checked=(CHECK,))),
            Evidence(data=make.rowset(91, checked=(CHECK,), control_token_in_text=range(1, 20))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        return by_share(self, seen, CHECK, proof=PROOF_SHARE, least=3, extra=_said(seen))


def _said(seen: Evidence) -> tuple[Exhibit, ...]:
    """An output that quotes an unfilled field."""
    found = [output for output in outputs(seen) if "{{" in output.text and "{{" not in output.prompt]
    if seen.data is None or not seen.data.defect(CHECK):
        return ()
    return tuple(quote(output.text, output.where, output.source, 3.0) for output in found[:1])
