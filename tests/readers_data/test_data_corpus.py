import json

import pytest

from tuneclinic.evidence import Evidence
from tuneclinic.probes.data.tables import data_of, table_of
from tuneclinic.probes.readers.data_set import DataSet
from tuneclinic.probes.reading import SourceFile
from tuneclinic.probes.rendering import render
from tuneclinic.sections import Data, Sample, Tokenizer

pytestmark = pytest.mark.corpus
LAYOUTS = {
    "messages": {"messages"},
    "sharegpt/conversations": {"sharegpt", "preference"},
    "alpaca": {"alpaca"},
    "prompt/response": {"prompt-completion"},
    "pair-per-turn": {"messages"},
    "other": {"text", "prompt-completion"},
}
QUIET = {"duplicate", "refusal"}
"""Facts of nearly every real set; the others are looked at by name below."""
EXPECTED = {
    "placeholder": {"3966fc", "bda473", "8d60c2"},
    "mojibake": {"276b57", "21c018", "1e0e38", "548758", "6b9c28", "f9cfa1"},
    "empty-answer": {"882250"},
    "control-token-in-text": {"6b9c28"},
    "absurd-repeat": {"6b9c28", "e8228a"},
    "conflicting-answers": {"276b57", "21c018"},
    "no-target": {"886531", "8ea769", "c77f02"},
    "roles-disordered": {"886531"},
}


def datasets(corpus):
    for line in (corpus / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["class"] == "dataset" and entry["file"]:
            yield entry, SourceFile(corpus / entry["file"], entry["file"].split("/")[-1])


def templates(corpus):
    return {path.name.split("__")[-1]: path.read_text() for path in sorted((corpus / "templates").iterdir())}


def test_every_set_is_claimed_and_its_layout_known(corpus):
    seen = 0
    for entry, file in datasets(corpus):
        assert DataSet().claims(file) >= 0.8, file.name
        data = data_of(table_of(file))
        assert data.layout in LAYOUTS[entry["kind"]], file.name
        assert data.defect("malformed-row") == (), file.name
        assert data.rows == entry["rows"] or not entry["rows"], file.name
        seen += 1
    assert seen == 48


def test_every_defect_found_was_looked_at(corpus):
    found: dict[str, set[str]] = {}
    for _, file in datasets(corpus):
        for defect in data_of(table_of(file)).defects:
            found.setdefault(defect.name, set()).add(file.name[:6])
    assert {name: files for name, files in found.items() if name not in QUIET} == EXPECTED


def test_nothing_else_of_the_corpus_is_claimed(corpus):
    for folder in ("runs", "configs", "tokenizers", "templates"):
        for path in (corpus / folder).iterdir():
            assert DataSet().claims(SourceFile(path, path.name)) == 0.0, path.name


def test_no_template_is_blamed_for_well_formed_chats(corpus, chats):
    rendered = 0
    for name, template in templates(corpus).items():
        data = Data("messages", len(chats), len(chats), chats, sources=("t",))
        seen = render(Evidence(data=data, tokenizer=Tokenizer(bos="<s>", eos="</s>", template=template))).data
        assert {defect.name for defect in seen.defects} <= ({"end-token-missing"} if name == "llava.jinja" else set()), name
        rendered += seen.statistics["rendered_rows"] > 0
    assert rendered == 35


def test_real_rows_through_real_templates(corpus):
    """Whatever is found lies in the row, not in the template: row 41 of one set has user turns only."""
    blamed = set()
    sets = [data_of(table_of(file)) for _, file in datasets(corpus)]
    for name, template in templates(corpus).items():
        for data in sets:
            plain = Data(data.layout, data.rows, data.total, data.samples[:3], sources=data.sources)
            tokenizer = Tokenizer(bos="<s>", eos="</s>", template=template)
            seen = render(Evidence(data=plain, tokenizer=tokenizer)).data
            blamed |= {(name, defect.name) for defect in seen.defects}
    assert blamed <= {("llava.jinja", "end-token-missing")}


@pytest.fixture
def chats():
    def sample(row, *texts, system=None):
        messages = [("system", system)] if system else []
        return Sample(row, "t", (*messages, *((("user", "assistant")[i % 2], text) for i, text in enumerate(texts))))

    system = "You are a terse helper for all things about gardens."
    return (
        sample(
            1,
            "First question?",
            "First answer.\n\nWith a blank line.",
            "Second question?",
            "Second, **bold**.\nNew line.",
            system=system,
        ),
        sample(2, "Hello", "Hi, how can I help you today?"),
        sample(3, " padded question \n", "  padded answer with   spaces \n\n", "ok", "ok"),
        sample(4, "2+2?", "<think>\nTwo plus two.\n</think>\n\nIt is four.", "3+3?", "<think>\nThree.\n</think>\n\nIt is six."),
        sample(5, "Code", '```python\nprint("<b>hi</b> & \\"bye\\"")\n```\n\n### Notes\n- one\n\n\n- two', system=system),
        sample(6, "你好，请介绍一下自己。", "你好！我是助手。\n\n我可以帮你。", "谢谢", "不客气。", system=system),
        sample(7, "yes", "yes", "yes", "yes"),
    )
