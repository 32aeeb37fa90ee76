import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneclinic.evidence import Evidence
from tuneclinic.probes.data.layouts import Converter, recognise
from tuneclinic.probes.data.row import Table
from tuneclinic.probes.data.rows import parse
from tuneclinic.probes.data.tables import data_of
from tuneclinic.probes.readers.data_set import DataSet
from tuneclinic.probes.rendering import render
from tuneclinic.sections import Model, Tokenizer

KEYS = st.sampled_from(
    [
        "messages",
        "conversations",
        "role",
        "content",
        "from",
        "value",
        "instruction",
        "input",
        "output",
        "prompt",
        "completion",
        "chosen",
        "rejected",
        "text",
        "label",
        "images",
        "history",
        "system",
        "input_ids",
        "labels",
        "source",
        "type",
        "tool_calls",
        "x_input",
    ]
)
WORDS = st.one_of(
    st.text(max_size=12), st.sampled_from(["user", "assistant", "gpt", "{{name}}", "<|im_end|>", "\ud800", "TODO", "a" * 600])
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS)
VALUES = st.recursive(
    LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)), max_leaves=12
)
ROWS = st.lists(st.one_of(VALUES, st.dictionaries(KEYS, VALUES, max_size=5)), max_size=6)
TOKENIZER = Tokenizer(
    bos="<s>",
    eos="</s>",
    ids={"</s>": 2},
    vocabulary=9,
    template="{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}",
)
SETTINGS = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


def whole(rows):
    """What the reader does with rows, without a file."""
    layout = recognise(rows)
    table = Table(layout, "t.jsonl", [])
    convert = Converter(layout)
    for number, value in enumerate(rows, 1):
        row = convert.row(number, value)
        if row is not None and layout:
            table.rows.append(row)
    return table


@SETTINGS
@given(ROWS)
def test_any_json_is_read(rows):
    table = whole(rows)
    if table.rows:
        data = render(Evidence(data=data_of(table), tokenizer=TOKENIZER, model=Model(vocabulary=5))).data
        numbers = {row.number for row in table.rows}
        assert all(set(found.rows) <= numbers for found in data.defects)
        assert {found.name for found in data.defects} <= data.checked
        assert len(data.samples) <= 256


@SETTINGS
@given(content=st.binary(max_size=400), name=st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.tsv", "a.jsonl.gz"]))
def test_any_bytes_are_read(content, name, source):
    file = source(content, name)
    assert 0.0 <= DataSet().claims(file) <= 1.0
    readings = DataSet().read(file)
    assert readings[0].understood or readings[0].note


@SETTINGS
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=4), st.data())
def test_any_cut_or_damaged_json_is_parsed(rows, data):
    text = data.draw(st.sampled_from([json.dumps(rows), json.dumps(rows, indent=1), "\n".join(map(json.dumps, rows))]))
    at, to = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))
    for broken in (text[:at], text[:at] + text[to:], text[:at] + "\x00" + text[at:]):
        for name in ("a.json", "a.jsonl", "a.csv"):
            raw = parse(broken, name)
            numbers = [number for number, _ in raw.rows] + raw.bad
            assert len(numbers) == len(set(numbers))


HOSTILE = {
    "deep lists": '{"messages": ' + "[" * 100_000,
    "deep closed lists": '{"prompt": "a", "completion": ' + "[" * 50_000 + "]" * 50_000 + "}\n",
    "huge number": '{"prompt": "a", "completion": ' + "9" * 10_000 + "}\n",
    "infinity": '{"prompt": "a", "completion": 1e999}\n',
    "one long line": '{"prompt": "a", "completion": "' + "b" * 3_000_000 + '"}',
    "long line without end": '{"messages": [{"role": "user", "content": "' + "b" * 3_000_000,
    "nul bytes": "\x00" * 5000,
    "lone surrogate": '{"prompt": "\\ud800", "completion": "\\udfff b"}\n' * 3,
    "terminal escapes": '{"prompt": "\\u001b[31m", "completion": "\\u001b]0;x\\u0007"}\n',
    "many keys": json.dumps({f"k{i}": i for i in range(5000)} | {"text": "a"}) + "\n",
    "empty rows": "{}\n" * 1000,
    "other keys in every row": "\n".join(json.dumps({"prompt": "a", "completion": "b", f"k{i}": 1}) for i in range(6000)),
    "wrong types": '{"messages": {"role": 5}}\n{"messages": [null]}\n{"messages": [[]]}\n{"messages": "text"}\n',
    "repeated field": '{"prompt": "q", "completion": "' + "{{a" * 100_000 + '"}\n',
    "many fields": '{"prompt": "q", "completion": "' + "{{a}} <ABC> {abc} " * 20_000 + '"}\n',
    "regex bait": '{"prompt": "q", "completion": "' + "I'm sorry " * 20_000 + "<｜" * 20_000 + '"}\n',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name, source):
    file = source(HOSTILE[name])
    DataSet().claims(file)
    reading = DataSet().read(file)[0]
    assert reading.understood or reading.note
    if reading.evidence.data:
        render(Evidence(data=reading.evidence.data, tokenizer=TOKENIZER))


def test_only_the_head_of_a_huge_file_is_read(source, monkeypatch):
    from tuneclinic.probes.data import rows

    monkeypatch.setattr(rows, "TEXT_BYTES", 10_000)
    data = DataSet().read(source('{"prompt": "a question", "completion": "an answer"}\n' * 1000))[0].evidence.data
    assert 150 < data.rows < 250
    assert data.total is None
    assert "malformed-row" not in {found.name for found in data.defects}
