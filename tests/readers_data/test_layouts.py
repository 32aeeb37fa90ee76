import gzip
import json

import pytest

from tuneclinic.probes.readers.data_set import DataSet

CHAT = [("user", "What is 2+2?"), ("assistant", "Four.")]
LAYOUTS = {
    "alpaca": ({"instruction": "What is 2+2?", "input": "", "output": "Four."}, "alpaca", CHAT),
    "alpaca with context": (
        {"instruction": "Add.", "input": "2 and 2", "output": "Four.", "system": "Be brief.", "history": [["hi", "hello"]]},
        "alpaca",
        [("system", "Be brief."), ("user", "hi"), ("assistant", "hello"), ("user", "Add.\n2 and 2"), ("assistant", "Four.")],
    ),
    "sharegpt": (
        {"conversations": [{"from": "human", "value": "What is 2+2?"}, {"from": "gpt", "value": "Four."}]},
        "sharegpt",
        CHAT,
    ),
    "sharegpt tools": (
        {
            "conversations": [
                {"from": "human", "value": "weather?"},
                {"from": "function_call", "value": "{}"},
                {"from": "observation", "value": "sun"},
                {"from": "gpt", "value": "Sunny."},
            ],
            "system": "Use tools.",
        },
        "sharegpt",
        [("system", "Use tools."), ("user", "weather?"), ("assistant", "{}"), ("tool", "sun"), ("assistant", "Sunny.")],
    ),
    "messages": (
        {"messages": [{"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "Four."}]},
        "messages",
        CHAT,
    ),
    "messages in parts": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "What is 2+2?"}]},
                {"role": "assistant", "content": [{"type": "text", "value": "Four."}]},
            ]
        },
        "messages",
        CHAT,
    ),
    "a pair a turn": (
        {"conversation": [{"system": "S", "input": "a", "output": "b"}]},
        "messages",
        [("system", "S"), ("user", "a"), ("assistant", "b")],
    ),
    "prompt and completion": ({"prompt": "What is 2+2?", "completion": "Four."}, "prompt-completion", CHAT),
    "query and response": ({"query": "What is 2+2?", "response": "Four."}, "prompt-completion", CHAT),
    "prefixed": ({"my_input": "What is 2+2?", "my_output": "Four."}, "prompt-completion", CHAT),
    "prompt messages": (
        {"prompt": [{"role": "user", "content": "What is 2+2?"}], "completion": [{"role": "assistant", "content": "Four."}]},
        "prompt-completion",
        CHAT,
    ),
    "prompt only": ({"prompt": "What is 2+2?", "data_source": "gsm"}, "prompt-completion", CHAT[:1]),
    "preference": ({"prompt": "What is 2+2?", "chosen": "Four.", "rejected": "Five."}, "preference", CHAT),
    "preference of messages": (
        {
            "chosen": [{"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "Four."}],
            "rejected": [{"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "Five."}],
        },
        "preference",
        CHAT,
    ),
    "preference beside a conversation": (
        {
            "conversations": [{"from": "human", "value": "What is 2+2?"}],
            "chosen": {"from": "gpt", "value": "Four."},
            "rejected": {"from": "gpt", "value": "Five."},
        },
        "preference",
        CHAT,
    ),
    "rejected beside messages": (
        {
            "messages": [{"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "Four."}],
            "rejected_response": "Five.",
        },
        "preference",
        CHAT,
    ),
    "kto": ({"prompt": "What is 2+2?", "completion": "Four.", "label": True}, "prompt-completion", CHAT),
    "plain text": ({"text": "Once upon a time."}, "text", [("text", "Once upon a time.")]),
    "labelled text": ({"text": "good film", "label": 1}, "prompt-completion", [("user", "good film"), ("assistant", "1")]),
}
NOT_DATA = [
    {"prompt": "a", "predict": "b", "label": "c"},
    {"prompt": "a", "completion": "b", "reward": 0.5, "advantage": 0.1},
    {"loss": 2.1, "epoch": 0.1, "learning_rate": 1e-5},
    {"step": 1, "loss": 3.0},
    {"role": "user", "content": "a lone message"},
    {"file_name": "data.json", "columns": {"prompt": "instruction"}},
    {"text": "INFO loading", "level": "INFO", "timestamp": 1},
]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_recognised_and_read(name, source, read):
    row, layout, messages = LAYOUTS[name]
    assert DataSet().claims(source([row, row])) > 0.8
    data = read([row, row])
    assert data.layout == layout
    assert list(data.samples[0].messages) == messages
    if layout == "preference":
        assert data.samples[0].rejected == "Five."


@pytest.mark.parametrize("row", NOT_DATA)
def test_other_files_are_left_alone(row, source):
    assert DataSet().claims(source([row] * 3)) == 0.0


@pytest.mark.parametrize("name", ["dataset_info.json", "trainer_state.json", "config.json"])
def test_known_files_of_others_are_left_alone(name, source, pair):
    assert DataSet().claims(source([pair("a", "b")], name)) == 0.0


def test_a_json_array_numbers_elements_and_a_jsonl_file_lines(read, pair):
    assert [s.row for s in read([pair("a", "b"), pair("c", "d")], "train.json").samples] == [1, 2]
    lines = "\n" + json.dumps(pair("a", "b")) + "\n\n" + json.dumps(pair("c", "d")) + "\n"
    assert [s.row for s in read(lines).samples] == [2, 4]


@pytest.mark.parametrize(
    "content",
    [
        '{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": "d"}\n',
        '{"data": [{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d"}]}',
        '{"prompt": ["a", "c"], "completion": ["b", "d"]}',
        '{\n "prompt": "a",\n "completion": "b"\n}\n{\n "prompt": "c",\n "completion": "d"\n}',
        '[{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d"}]',
        '﻿[{"prompt": "a", "completion": "b"},\n{"prompt": "c", "completion": "d"}]',
    ],
)
def test_json_in_all_its_shapes_under_a_json_name(content, read):
    data = read(content, "train.json")
    assert [sample.messages for sample in data.samples] == [
        (("user", "a"), ("assistant", "b")),
        (("user", "c"), ("assistant", "d")),
    ]
    assert data.total == 2


def test_csv_and_tsv(read, rows):
    data = read('instruction,output\n"Say ""hi"",\nplease",hi there\nnext,\nbroken\n', "train.csv")
    assert data.layout == "alpaca"
    assert data.samples[0].messages == (("user", 'Say "hi",\nplease'), ("assistant", "hi there"))
    assert rows(data, "empty-answer") == (2,)
    assert rows(data, "malformed-row") == (3,)
    assert read("question\tanswer\n1+1?\t2\n", "train.tsv").rows == 1


def test_gzip_and_utf16(read, pair):
    line = (json.dumps(pair("你好", "您好")) + "\n").encode()
    assert read(gzip.compress(line), "train.jsonl.gz").rows == 1
    text = json.dumps(pair("你好", "您好"), ensure_ascii=False) + "\n"
    assert read(text.encode("utf-16"), "train.jsonl").samples[0].prompt == "你好"
    assert read(text.encode("gb18030"), "train.jsonl").samples[0].prompt == "你好"
    assert read(gzip.compress(line * 500)[:-20], "train.jsonl.gz").total is None


def test_tokenised_rows(read):
    data = read([{"input_ids": [1, 5, 6, 2], "attention_mask": [1, 1, 1, 1], "labels": [-100, 5, 6, 2]}])
    assert data.layout == "tokenised"
    assert data.samples[0].input_ids == (1, 5, 6, 2)
    assert data.samples[0].labels == (-100, 5, 6, 2)
    assert data.statistics["tokens_estimated"] == 4


def test_pictures_are_counted(read):
    part = {"type": "image_url", "image_url": {"url": "a.jpg"}}
    row = {
        "messages": [
            {"role": "user", "content": [part, {"type": "text", "text": "what?"}]},
            {"role": "assistant", "content": "a cat"},
        ]
    }
    assert read([row]).samples[0].images == 1
    row = {
        "messages": [{"role": "user", "content": "<image>what?"}, {"role": "assistant", "content": "a cat"}],
        "images": ["a.jpg"],
    }
    assert read([row]).samples[0].images == 1


def test_malformed_rows_are_all_numbered_and_reading_goes_on(read, rows, pair):
    good = json.dumps(pair("a", "b"))
    lines = [good, "{broken", good, '{"messages": 5}', "17", good, '{"messages": [{"role": "user", "content": 3}]}', good[:-3]]
    data = read("\n".join(lines))
    assert data.rows == 3
    assert data.total == 8
    assert rows(data, "malformed-row") == (2, 4, 5, 7, 8)


def test_a_damaged_element_of_a_written_out_array_is_one_malformed_row(read, rows, pair):
    text = json.dumps([pair("a", "b"), pair("c", "d"), pair("e", "f")], indent=2).replace('"content": "c"', '"content": "c')
    data = read(text, "train.json")
    assert data.rows == 2
    assert rows(data, "malformed-row") == (2,)


def test_a_truncated_array_gives_the_rows_before_its_end(read, pair):
    data = read(json.dumps([pair("a", "b")] * 5)[:-60], "train.json")
    assert data.rows == 4
    assert data.total is None


def test_what_is_understood_is_counted_and_nothing_understood_is_said(source, pair):
    reading = DataSet().read(source(json.dumps(pair("a", "b")) + "\n{broken\n"))[0]
    assert reading.understood == {"messages rows": 1}
    assert reading.skipped == {"malformed rows": 1}
    reading = DataSet().read(source('{"loss": 1}\n{"loss": 2}\n'))[0]
    assert not reading.understood
    assert reading.note
    assert reading.evidence.data is None


def test_samples_are_the_first_rows_and_the_first_of_each_defect(read, healthy, pair):
    table = healthy(100)
    table[90] = pair("a question", "")
    data = read(table)
    assert [s.row for s in data.samples] == [*range(1, 65), 91]
