from tuneclinic.probes.data.leak import leak


def test_exact_rows_and_same_prompts(source, healthy, pair):
    rows = healthy(30)
    long = "Explain in your own words why the sky is blue at noon and red at sunset."
    train = source([*rows, pair(long, "Scattering.")], "train.jsonl")
    held = source([pair("another question", "x"), rows[4], pair("one more", "y"), pair(long, "Light scatters.")], "eval.jsonl")
    found = leak([train], [held])
    assert found.name == "train-eval-leak"
    assert found.rows == (2, 4)
    assert found.source == "eval.jsonl"
    assert found.example.startswith("train.jsonl row 5 = ")


def test_an_honest_split_and_short_prompts_are_no_leak(source, healthy, pair):
    train = source([*healthy(30), pair("hi", "hello")], "train.jsonl")
    held = source([pair("hi", "hi there"), pair("a new question", "its answer")], "valid.json")
    assert leak([train], [held]).rows == ()


def test_a_shared_system_text_is_no_leak(source):
    def row(question, answer):
        system = {"role": "system", "content": "You are a careful assistant that answers in one short sentence only."}
        return {"messages": [system, {"role": "user", "content": question}, {"role": "assistant", "content": answer}]}

    train, held = source([row("hi", "hello")], "a.jsonl"), source([row("yo", "hello")], "b.jsonl")
    assert leak([train], [held]).rows == ()


def test_nothing_to_compare(source):
    empty = source("", "train.jsonl")
    assert leak([empty], [empty]) is None
    assert leak([], []) is None
