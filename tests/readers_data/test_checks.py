import pytest


def test_a_healthy_set_has_no_defect(read, healthy):
    data = read(healthy(300))
    assert data.defects == ()
    assert {"empty-answer", "placeholder", "mojibake", "duplicate", "refusal", "malformed-row", "no-target"} <= data.checked


def test_empty_answers(read, rows, pair, healthy):
    table = [*healthy(3), pair("q", ""), pair("q2", " \n"), pair("q3", "ok then")]
    assert rows(read(table), "empty-answer") == (4, 5)
    call = {
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
        ]
    }
    assert rows(read([*healthy(2), call]), "empty-answer") == ()


@pytest.mark.parametrize("field", ["{{name}}", "<NAME>", "{{ author }}"])
def test_unfilled_fields(read, rows, pair, healthy, field):
    table = [*healthy(20), *(pair(f"who are you {i}?", f"I am {field}, an assistant, number {i}.") for i in range(4))]
    assert rows(read(table), "placeholder") == (21, 22, 23, 24)


@pytest.mark.parametrize(
    "answer",
    [
        "Use `{{{{ user.name }}}}` in Jinja {0}.",
        "```html\n<p>{{{{name}}}}</p>\n``` {0}",
        "The set {{{{a}}}} holds {0}",
        "In LaTeX write \\frac{{a}}{{b}} {0}",
        "def f(x): return f'{{x}}' # {0}",
    ],
)
def test_code_and_prose_about_templates_are_no_unfilled_fields(read, rows, pair, healthy, answer):
    table = [*healthy(40), *(pair(f"how do I do this {i}?", answer.format(i)) for i in range(2))]
    assert rows(read(table), "placeholder") == ()


@pytest.mark.parametrize("whole", ["{input}", "<noinput>", "TODO", "{{output}}"])
def test_a_message_that_is_only_a_field(read, rows, pair, healthy, whole):
    assert rows(read([*healthy(5), pair("q", whole)]), "placeholder") == (6,)


@pytest.mark.parametrize("text", ["It isnâ€™t so.", "A clichÃ© here.", "lost � bytes", "锟斤拷锟斤拷"])
def test_mojibake(read, rows, pair, healthy, text):
    assert rows(read([*healthy(5), pair("q", text)]), "mojibake") == (6,)


def test_chinese_read_as_gbk(read, rows, pair):
    text = "你好，我是人工智能助手。请问有什么可以帮您？今天的天气很好。"
    broken = text.encode().decode("gb18030", "ignore")
    assert rows(read([pair("q", text), pair("q2", broken)]), "mojibake") == (2,)


@pytest.mark.parametrize(
    "text", ["Ein schöner Tag: naïve café, Ångström, São Paulo.", "鈥是一个少见的汉字，锛也是。", "Â is a letter; so is Ã."]
)
def test_accents_and_rare_characters_are_no_mojibake(read, rows, pair, text):
    assert rows(read([pair("q", text)]), "mojibake") == ()


@pytest.mark.parametrize(
    "text", ["<|im_end|>", "hello <|eot_id|>", "[INST] hi [/INST]", "answer</s>", "<｜Assistant｜>x", "<start_of_turn>user"]
)
def test_control_tokens(read, rows, pair, healthy, text):
    assert rows(read([*healthy(5), pair("q", text)]), "control-token-in-text") == (6,)


@pytest.mark.parametrize("text", ["<b>bold</b>", "xs <| f |> g", "<s>struck</s> out", "a[0] <= b", "<|image_pad|>what?"])
def test_markup_is_no_control_token(read, rows, pair, healthy, text):
    assert rows(read([*healthy(5), pair(text, text)]), "control-token-in-text") == ()


def test_a_column_that_is_rendered_on_purpose_is_not_asked_for_control_tokens(read):
    table = [{"prompt": f"<|im_start|>user\nq{i}<|im_end|>\n", "completion": f"a{i}<|im_end|>"} for i in range(20)]
    assert "control-token-in-text" not in read(table).checked


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't assist with that.",
        "I cannot provide that information.",
        "As an AI language model, I cannot answer this.",
        "抱歉，我无法回答这个问题。",
        "作为一个AI语言模型，我不能提供医疗建议。",
    ],
)
def test_refusals(read, rows, pair, healthy, text):
    assert rows(read([*healthy(5), pair("q", text)]), "refusal") == (6,)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I'm unable to come to work today.",
        "Sorry to hear that. Have you tried restarting it?",
        "As an AI model, I can't taste food, however a good ramen has a rich broth.",
        "I cannot recommend this film enough.",
        "作为一个人工智能助手，我无法拥有经历，但我可以讲一个故事。",
    ],
)
def test_other_answers_are_no_refusals(read, rows, pair, healthy, text):
    assert rows(read([*healthy(5), pair("q", text)]), "refusal") == ()


def test_duplicates_name_every_later_copy(read, rows, healthy):
    data = read([*healthy(4), healthy(4)[0], healthy(4)[2], healthy(4)[0]])
    assert rows(data, "duplicate") == (5, 6, 7)
    assert data.statistics["duplicate_share"] == pytest.approx(3 / 7)
    assert data.defect("duplicate")[0].example.startswith("1 = 5:")


def test_one_text_with_two_pictures_is_no_duplicate(read, rows, pair):
    table = [pair("<image>what?", "a cat") | {"images": [name]} for name in ("a.jpg", "b.jpg", "a.jpg")]
    assert rows(read(table), "duplicate") == (3,)


def test_contradictory_labels(read, rows):
    table = [{"prompt": f"review {i}", "completion": ["good", "bad"][i % 2]} for i in range(20)]
    table += [{"prompt": "review 0", "completion": "bad"}, {"prompt": "review 3", "completion": "Bad."}]
    assert rows(read(table), "conflicting-answers") == (1, 21)


def test_two_ways_to_greet_are_no_contradiction(read, rows, pair):
    data = read([pair("hi", "Hello, how can I help you today, my friend?"), pair("hi", "Hi!"), pair("hi", "Hey there!")])
    assert rows(data, "conflicting-answers") == ()


def test_answers_in_the_prompt(read, rows):
    table = [
        {
            "prompt": f"Question {i}?\nIt is because of reason number {i}, of course.",
            "completion": f"It is because of reason number {i}, of course.",
        }
        for i in range(10)
    ]
    assert rows(read(table), "answer-in-prompt") == tuple(range(1, 11))


def test_an_editing_task_with_some_unchanged_texts_is_no_leak(read, rows, pair, healthy):
    same = pair("Correct this sentence: He went to the market early.", "He went to the market early.")
    assert rows(read([*healthy(100), same]), "answer-in-prompt") == ()


def test_one_answer_to_everything(read, rows, pair):
    assert rows(read([pair(f"q{i}", "OK") for i in range(25)]), "answer-trivial") == tuple(range(1, 26))
    assert rows(read([pair(f"q{i}", "yes" if i % 4 else "no") for i in range(25)]), "answer-trivial") == ()


def test_repetition(read, rows, pair, healthy):
    assert rows(read([*healthy(3), pair("q", "I see. " + "ha ha ha, " * 200)]), "absurd-repeat") == (4,)
    table = "| a | b |\n" + "|---|---|\n" + "".join(f"| {i} | {i * i} |\n" for i in range(200))
    lines = "-" * 600
    assert rows(read([*healthy(3), pair("q", table), pair("r", lines)]), "absurd-repeat") == ()


def test_long_rows(read, rows, pair, healthy):
    assert rows(read([*healthy(200), pair("q", "many words and more of them, " * 2000)]), "long") == (201,)
    assert rows(read(healthy(200)), "long") == ()


def test_answers_cut_at_one_length(read, rows, pair, healthy):
    cut = [pair(f"tell me {i}", f"story {i} goes on and on with the word w{i} and ".ljust(60, "o") * 9) for i in range(30)]
    for row in cut:
        row["messages"][1]["content"] = row["messages"][1]["content"][:511] + "x"
    assert rows(read([*healthy(20), *cut]), "truncated-answer") == tuple(range(21, 21 + len(cut)))
    assert rows(read(healthy(100)), "truncated-answer") == ()


def test_pairs(read, rows):
    table = [
        {"prompt": "p1", "chosen": "good", "rejected": "bad", "score_chosen": 9, "score_rejected": 2},
        {"prompt": "p2", "chosen": "same ", "rejected": "same", "score_chosen": 5, "score_rejected": 5},
        {"prompt": "p3", "chosen": "worse", "rejected": "better", "score_chosen": 1, "score_rejected": 8},
    ]
    data = read(table)
    assert rows(data, "identical-pair") == (2,)
    assert rows(data, "swapped-pair-suspect") == (3,)
    for row in table:
        del row["score_chosen"], row["score_rejected"]
    assert "swapped-pair-suspect" not in read(table).checked


def test_order_of_turns_and_missing_answers(read, rows, healthy):
    twice = {
        "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]
    }
    only = {"messages": [{"role": "user", "content": "nobody answers"}]}
    data = read([*healthy(5), twice, only])
    assert rows(data, "roles-disordered") == (6,)
    assert rows(data, "no-target") == (7,)


def test_a_set_of_prompts_is_not_asked_for_answers(read):
    data = read([{"prompt": f"solve {i}", "data_source": "math"} for i in range(10)])
    assert not {"no-target", "empty-answer", "refusal", "answer-trivial"} & data.checked
    assert data.defects == ()


def test_pictures_and_placeholders(read, rows, pair):
    table = [pair("<image>what?", "a cat") | {"images": [f"{i}.jpg"]} for i in range(5)]
    table += [pair("<image><image>what?", "x") | {"images": ["6.jpg"]}, pair("what?", "y") | {"images": ["7.jpg"]}]
    assert rows(read(table), "image-count") == (6, 7)
    plain = [pair("what?", "a cat") | {"images": [f"{i}.jpg"]} for i in range(5)]
    assert "image-count" not in read(plain).checked, "trainers that add the placeholder themselves need none in the text"


def test_tokenised_labels(read, rows):
    good = {"input_ids": [1, 5, 6, 7, 2], "labels": [-100, -100, 6, 7, 2]}
    table = [good, good | {"labels": [-100] * 5}, good | {"labels": [1, 5, 6, 7, 2]}, good]
    data = read(table)
    assert rows(data, "all-masked") == (2,)
    assert rows(data, "prompt-trained") == (3,)
    assert data.statistics["labels_equal_share"] == 1.0


def test_labels_equal_to_the_inputs_are_no_defect(read):
    table = [{"input_ids": [1, 5, 6, 7, 2], "labels": [1, 5, 6, 7, 2]}, {"input_ids": [1, 8, 2], "labels": [1, 8, 2]}]
    data = read(table)
    assert data.defects == ()
    assert "prompt-trained" not in data.checked
    assert data.statistics["labels_equal_share"] == 1.0


def test_labels_shifted_in_the_data_are_measured(read):
    table = [{"input_ids": [1, 5, 6, 7, 2], "labels": [5, 6, 7, 2, -100]}]
    assert read(table).statistics["labels_shifted_share"] == 1.0


def test_nonfinite(read, rows):
    data = read(
        '{"input_ids": [1, 2], "labels": [1, 2], "pixel_values": [[0.1, NaN]]}\n{"input_ids": [1, 2], "labels": [1, 2]}\n'
    )
    assert rows(data, "nonfinite") == (1,)
    data = read(
        '{"instruction": "a", "input": NaN, "output": "b"}\n{"instruction": "c", "input": "", "output": "d", "score": NaN}\n'
    )
    assert rows(data, "nonfinite") == (1,), "a NaN in a column that is not trained on is harmless"


def test_a_null_in_the_first_row_hides_no_column_of_the_others(read):
    data = read([{"instruction": "a", "input": None, "output": "b"}, {"instruction": "a", "input": "c", "output": "b"}])
    assert data.samples[1].prompt == "a\nc"


def test_statistics(read, healthy, pair):
    figures = read(healthy(200)).statistics
    assert figures["rows"] == 200
    assert 0 < figures["compression_ratio"] < 1
    assert figures["answer_unique_share"] == 1.0
    assert figures["opening_share"] < 0.1
    alike = read([pair(f"q{i}", f"Sure, I would be happy to help you. {i}") for i in range(200)]).statistics
    assert alike["opening_share"] == 1.0
    assert alike["distinct_2"] < figures["distinct_2"]
    chinese = read([pair("问题", "这是一个中文的回答" * 3)]).statistics
    assert chinese["tokens_estimated"] == pytest.approx(29 / 1.5, abs=1)


def test_sources_in_blocks(read, pair):
    blocks = [pair(f"q{i}", f"answer {i}") | {"source": "ab"[i // 50]} for i in range(100)]
    mixed = [pair(f"q{i}", f"answer {i}") | {"source": "ab"[(i * 7 // 3) % 2]} for i in range(100)]
    assert read(blocks).statistics["source_blocks"] == 1.0
    assert read(mixed).statistics["source_blocks"] == 0.0
    assert "source_blocks" not in read(blocks[:30]).statistics
