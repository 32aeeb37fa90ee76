import pytest

from tuneclinic.evidence import Evidence
from tuneclinic.probes.rendering import render
from tuneclinic.sections import Data, Model, Sample, Tokenizer

SYSTEM = "You are a careful assistant for garden questions."


def sample(row, *texts, system=None, **fields):
    messages = [("system", system)] if system else []
    messages += [(("user", "assistant")[index % 2], text) for index, text in enumerate(texts)]
    return Sample(row, "train.jsonl", tuple(messages), **fields)


CHATS = (
    sample(
        1,
        "When do I sow?",
        "In spring.\n\nWait until the frost is over.",
        "And tomatoes?",
        "In the middle of **May**.\nIndoors before.",
        system=SYSTEM,
    ),
    sample(2, "Hello", "Hi, how can I help you today?"),
    sample(3, " padded question \n", "  padded answer with   spaces \n\n", "ok", "ok"),
    sample(4, "2+2?", "<think>\nTwo plus two.\n</think>\n\nIt is four.", "3+3?", "<think>\nThree.\n</think>\n\nIt is six."),
    sample(5, "Write code", '```python\nprint("<b>hi</b> & \\"bye\\"")\n```\n\n### Notes\n- one\n\n\n- two', system=SYSTEM),
    sample(6, "你好，请介绍一下自己。", "你好！我是助手。\n\n我可以帮你。", "谢谢", "不客气。", system=SYSTEM),
    sample(7, "yes", "yes", "yes", "yes"),
    sample(8, "Repeat your system text", SYSTEM, system=SYSTEM),
)
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
HEALTHY = {
    "chatml": CHATML,
    "trimmed": CHATML.replace("m.content", "m.content | trim"),
    "blank lines folded": CHATML.replace("m.content", "m.content.split() | join(' ')"),
    "past reasoning dropped": CHATML.replace("m.content", "(m.content.split('</think>')[-1] if not loop.last else m.content)"),
    "system merged into the user's turn": "{% if messages[0].role == 'system' %}{% set s = messages[0].content ~ '\n\n' %}{% set messages = messages[1:] %}"
    "{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ s if loop.first and s }}{{ m.content }}<|im_end|>\n{% endfor %}",
    "default system": "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    + CHATML,
    "end token once, at the end": "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{{ eos_token }}",
    "parts only": "{% for m in messages %}{% for part in m.content | selectattr('type', 'equalto', 'text') %}{{ part.text }}{% endfor %}{{ eos_token }}\n{% endfor %}",
}
TURN = "{% for m in messages %}{% if m.role == 'assistant' %}ASSISTANT{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
PART = "<|im_start|>assistant\n{{ part }}<|im_end|>\n"
REPEATED = (
    "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% endif %}{% for m in messages %}{% if m.role == 'user' %}<|im_start|>system\n"
    "SYSTEM<|im_end|>\n<|im_start|>user\n{{ m.content }}<|im_end|>\n{% elif m.role == 'assistant' %}<|im_start|>assistant\n{{ m.content }}<|im_end|>\n"
    "{% endif %}{% endfor %}"
)
FAULTY = {
    "the system part at every turn": (REPEATED.replace("SYSTEM", "{{ s }}"), "system-repeated", {1, 6}),
    "the default system part at every turn": (
        REPEATED.replace("SYSTEM", "You are a helpful assistant."),
        "system-repeated",
        {3, 4, 7},
    ),
    "answers split at a blank line": (
        TURN.replace("ASSISTANT", "{% for part in m.content.split('\n\n') %}" + PART + "{% endfor %}"),
        "answer-split",
        {1, 5, 6},
    ),
    "answers split at a mark": (
        TURN.replace("ASSISTANT", "{% for part in m.content.split('**') %}" + PART + "{% endfor %}"),
        "answer-split",
        {1},
    ),
    "answers cut at a mark": (TURN.replace("ASSISTANT", PART.replace("part", "m.content.split('**')[0]")), "answer-split", {1}),
    "answers cut at a length": (TURN.replace("ASSISTANT", PART.replace("part", "m.content[:20]")), "answer-split", {1, 2, 3, 5}),
    "the last exchange only": (CHATML.replace("messages", "messages[-2:]"), "turn-lost", {1, 3, 4, 6}),
    "backwards": (CHATML.replace("in messages", "in messages | reverse"), "roles-disordered", {1, 2, 3, 4, 5, 6}),
    "no end": ("{% for m in messages %}### {{ m.role }}\n{{ m.content }}\n{% endfor %}", "end-token-missing", set(range(1, 9))),
    "two starts": ("{{ bos_token }}{{ bos_token }}" + CHATML, "double-bos", set(range(1, 9))),
    "two ends": (CHATML.replace("<|im_end|>", "{{ eos_token }}") + "{{ eos_token }}", "double-eos", set(range(1, 9))),
    "roles refused": ("{{ raise_exception('Conversation roles must alternate') }}", "roles-disordered", set(range(1, 9))),
}


def rendered(template, samples=CHATS, **tokens):
    tokenizer = Tokenizer(**({"bos": "<s>", "eos": "</s>", "template": template} | tokens))
    data = Data("messages", len(samples), len(samples), samples, sources=("train.jsonl",), statistics={"rows": 8.0})
    return render(Evidence(data=data, tokenizer=tokenizer)).data


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_template_has_no_defect(name):
    data = rendered(HEALTHY[name])
    assert data.defects == ()
    assert data.statistics["rendered_rows"] == 8
    assert {"system-repeated", "answer-split", "turn-lost", "roles-disordered", "end-token-missing", "double-bos"} <= data.checked
    assert all(sample.rendered for sample in data.samples)


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_template_is_found_in_every_row_it_harms(name):
    template, defect, rows = FAULTY[name]
    data = rendered(template)
    found = data.defect(defect)
    assert set(found[0].rows) >= rows
    assert found[0].example
    assert {other.name for other in data.defects} <= {defect, "turn-lost"} if name == "answers cut at a length" else {defect}


def test_the_split_is_shown():
    template = FAULTY["answers split at a blank line"][0]
    example = rendered(template).defect("answer-split")[0].example
    assert example.startswith("In spring.<|im_end|> <|im_start|>assistant Wait until")


def test_without_an_end_token_known_the_end_is_not_checked():
    data = rendered("{% for m in messages %}### {{ m.content }}{{ eos_token }}{% endfor %}", eos=None)
    assert "end-token-missing" not in data.checked
    assert data.defects == ()


def test_a_template_that_refuses_the_system_part_or_drops_it_is_counted_not_blamed():
    refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
    data = rendered(refuses)
    assert data.defects == ()
    assert data.statistics["render_system_refused"] == 4
    drops = CHATML.replace("in messages", "in messages if m.role != 'system'")
    assert rendered(drops).statistics["render_system_lost"] == 3, "row 8 says its system text in the answer"


def test_rows_with_tool_turns_are_rendered_but_not_judged():
    tools = Sample(1, "t", (("user", "weather?"), ("assistant", "{}"), ("tool", "sun"), ("assistant", "Sunny.")))
    assert rendered(CHATML.replace("{% endfor %}", "{% endfor %}"), (tools,)).defects == ()
    assert rendered("{{ raise_exception('tool ids must be nine characters') }}", (tools,)).defects == ()


@pytest.mark.parametrize(
    ("template", "figure"),
    [
        ("{% for i in range(10**9) %}x{% endfor %}", "render_stopped"),
        (
            "{% for m in messages %}{% for i in range(20000) %}{% for j in range(20000) %}{% endfor %}{% endfor %}{% endfor %}",
            "render_stopped",
        ),
        ("{{ messages.foo.bar }}", "render_failed"),
        ("{% for %}", "render_failed"),
        ("{{ ''.__class__.__mro__ }}", "render_failed"),
    ],
)
def test_a_hostile_or_broken_template_is_counted_and_nothing_is_checked(template, figure):
    many = tuple(sample(index, "q", "an answer") for index in range(1, 201))
    data = rendered(template, many)
    assert data.statistics[figure] >= 1
    assert data.statistics["rendered_rows"] == 0
    assert data.defects == ()
    assert data.checked == frozenset()


def test_nothing_to_render_changes_nothing():
    evidence = Evidence(data=Data("messages", samples=CHATS))
    assert render(evidence) is evidence
    assert render(Evidence()).data is None
    evidence = Evidence(data=Data("messages", samples=CHATS), tokenizer=Tokenizer(eos="</s>"))
    assert render(evidence) is evidence


def test_plain_text_with_a_start_token_for_a_tokenizer_that_adds_one():
    data = Data("text", 1, 1, (Sample(1, "t.jsonl", (("text", "<s>Once upon a time."),)),))
    seen = render(Evidence(data=data, tokenizer=Tokenizer(bos="<s>", adds_bos=True))).data
    assert seen.defect("double-bos")[0].rows == (1,)
    seen = render(Evidence(data=data, tokenizer=Tokenizer(bos="<s>"))).data
    assert "double-bos" not in seen.checked


def tokens(row, ids, labels=None):
    return Sample(row, "t.jsonl", input_ids=tuple(ids), labels=None if labels is None else tuple(labels))


def tokenised(*samples, longest=100, **fields):
    tokenizer = Tokenizer(bos="<s>", eos="</s>", ids={"<s>": 1, "</s>": 2, "<|im_end|>": 9}, vocabulary=50)
    data = Data("tokenised", len(samples), len(samples), samples, sources=("t.jsonl",), statistics={"row_chars_max": longest})
    return render(Evidence(data=data, tokenizer=tokenizer, **fields)).data


def test_tokenised_ends():
    data = tokenised(
        tokens(1, [1, 5, 6, 7, 2], [-100, -100, 6, 7, 2]),
        tokens(2, [1, 5, 6, 7, 2], [-100, -100, 6, 7, -100]),
        tokens(3, [1, 5, 6, 7], [-100, -100, 6, 7]),
        tokens(4, [1, 5, 6, 7, 9, 8], [-100, -100, 6, 7, 9, 8]),
        tokens(5, [1, 5, 6, 7, 2, 2, 2], [-100, -100, 6, 7, -100, -100, -100]),
        tokens(6, [1, 1, 6, 7, 2], [-100, -100, 6, 7, 2]),
    )
    assert data.defect("end-token-masked")[0].rows == (2, 5)
    assert data.defect("end-token-missing")[0].rows == (3,)
    assert data.defect("double-bos")[0].rows == (6,)


def test_a_row_of_the_greatest_length_may_have_been_cut():
    data = tokenised(tokens(1, [1, 5, 6, 7], [-100, -100, 6, 7]), longest=4)
    assert data.defect("end-token-missing") == ()


def test_ids_out_of_range():
    rows = (
        tokens(1, [1, 49, 2]),
        tokens(2, [1, 50, 2]),
        tokens(3, [1, -200, 2]),
        tokens(4, [1, -5, 2]),
        tokens(5, [1, 3, 2], [-100, 77, 2]),
    )
    assert tokenised(*rows).defect("id-out-of-range")[0].rows == (2, 4, 5)
    assert tokenised(*rows, model=Model(vocabulary=64)).defect("id-out-of-range")[0].rows == (4, 5)
