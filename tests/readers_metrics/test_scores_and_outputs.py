import pytest

from tuneclinic.probes.readers.outputs import GeneratedOutputs
from tuneclinic.probes.readers.results import Results
from tuneclinic.words import Text


def scores(file):
    (reading,) = Results().read(file)
    return {f"{score.task}/{score.metric}": score for score in reading.evidence.scores.items}


def test_all_results(written):
    content = {
        "epoch": 3.0,
        "eval_accuracy": 0.86,
        "eval_loss": 0.5,
        "eval_runtime": 1.5,
        "train_loss": 0.75,
        "train_runtime": 21.5,
    }
    file = written("all_results.json", content)
    assert Results().claims(file) > 0.9
    (reading,) = Results().read(file)
    assert reading.evidence.metrics.summary == content
    assert reading.evidence.metrics.finished is True
    assert reading.understood == {"summary values": 6, "scores": 1}
    assert scores(file)["eval/accuracy"].tuned == 0.86


def test_llama_factory_predictions_in_scores(written):
    found = scores(written("predict_results.json", {"predict_bleu-4": 45.2, "predict_rouge-l": 30.5, "predict_runtime": 10.0}))
    assert set(found) == {"predict/bleu-4", "predict/rouge-l"}


LM_EVAL = {
    "results": {
        "mmlu": {"alias": "mmlu", "acc,none": 0.5, "acc_stderr,none": 0.01},
        "wikitext": {"word_perplexity,none": 12.5, "word_perplexity_stderr,none": "N/A"},
    },
    "versions": {"mmlu": 1},
    "higher_is_better": {"mmlu": {"acc": True}, "wikitext": {"word_perplexity": False}},
}


def test_lm_eval(written):
    file = written("results_2024-01-01.json", LM_EVAL)
    assert Results().claims(file) > 0.9
    found = scores(file)
    assert set(found) == {"mmlu/acc", "wikitext/word_perplexity"}
    assert found["mmlu/acc"].tuned == 0.5
    assert found["mmlu/acc"].base is None
    assert found["wikitext/word_perplexity"].lower


def test_lm_eval_of_the_base_model(written):
    found = scores(written("base/results_2024-01-01.json", LM_EVAL))
    assert (found["mmlu/acc"].base, found["mmlu/acc"].tuned) == (0.5, None)


def test_lm_eval_with_nested_groups(written):
    content = {"results": {"mmlu": {"stem": {"acc": 0.5}, "law": {"acc": 0.25}}}, "config": {}}
    assert set(scores(written("results.json", content))) == {"mmlu/stem/acc", "mmlu/law/acc"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("compare.csv", "task,base,tuned\nMMLU,50.5,40.25\nin-domain QA,20,80\n"),
        (
            "compare.md",
            "# Results\n\nWe ran it.\n\n| Benchmark | Base | **Fine-tuned** |\n|---|---:|---:|\n| MMLU | 50.5% | **40.25** |\n| in-domain QA | 20 | 80 ± 1 |\n",
        ),
        ("compare.tsv", "任务\t微调前\t微调后\nMMLU\t50.5\t40.25\nin-domain QA\t20\t80\n"),
        ("compare.json", [{"task": "MMLU", "base": 50.5, "tuned": 40.25}, {"task": "in-domain QA", "base": 20, "tuned": 80}]),
        ("compare.json", {"MMLU": {"before": 50.5, "after": 40.25}, "in-domain QA": {"before": 20, "after": 80}}),
        ("compare.json", {"base": {"MMLU": 50.5, "in-domain QA": 20}, "lora": {"MMLU": 40.25, "in-domain QA": 80}}),
    ],
)
def test_base_against_tuned_in_any_form(written, name, content):
    file = written(name, content)
    assert Results().claims(file) >= 0.6
    (reading,) = Results().read(file)
    mmlu, domain = reading.evidence.scores.items
    assert (mmlu.task, mmlu.base, mmlu.tuned, mmlu.domain) == ("MMLU", 50.5, 40.25, False)
    assert (domain.base, domain.tuned, domain.domain) == (20, 80, True)
    assert mmlu.where.startswith(name)
    assert isinstance(reading.note, Text)


def test_lower_is_better_for_errors(written):
    found = scores(
        written("compare.csv", "metric,base,tuned\nperplexity,8.5,7.5\nWER,0.1,0.2\naccuracy,0.5,0.6\nout-of-domain,1,2\n")
    )
    assert [score.lower for score in found.values()] == [True, True, False, False]
    assert not any(score.domain for score in found.values())


def test_a_readme_without_such_a_table_is_not_claimed(written):
    assert Results().claims(written("README.md", "# A model\n\n| Name | Size |\n|---|---|\n| a | 7B |\n")) == 0
    assert Results().claims(written("config.json", {"vocab_size": 5, "hidden_size": 6})) == 0


def outputs(file):
    (reading,) = GeneratedOutputs().read(file)
    return reading.evidence.outputs.items


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("generated_predictions.jsonl", {"prompt": "Q", "predict": "A", "label": "L"}),
        (
            "infer_result.jsonl",
            {"response": "A", "labels": "L", "logprobs": None, "messages": [{"role": "user", "content": "Q"}]},
        ),
        ("generations.jsonl", {"instruction": "Q", "input": "", "output": "A", "reference": "L"}),
        ("x.jsonl", {"question": "Q", "model_output": "A", "ground_truth": "L"}),
        ("x.jsonl", {"prompt": "Q", "completion": "A", "target": "L", "finish_reason": "length", "completion_tokens": 5}),
        ("x.jsonl", {"prompt": "Q", "generated_text": ["A", "B"], "expected": "L"}),
        ("outputs.jsonl", {"prompt": "Q", "outputs": [{"text": "A", "finish_reason": "stop"}], "label": "L"}),
        ("x.jsonl", {"prompt": "Q", "base": "B", "tuned": "A", "label": "L"}),
        (
            "x.jsonl",
            {
                "messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}],
                "usage": {"completion_tokens": 5},
                "label": "L",
            },
        ),
        (
            "x.jsonl",
            {
                "prompt": "Q",
                "response": {"choices": [{"message": {"role": "assistant", "content": "A"}, "finish_reason": "stop"}]},
                "label": "L",
            },
        ),
        ("samples_mmlu.jsonl", {"prompt": "Q", "resps": [["A"]], "target": "L"}),
    ],
)
def test_rows_of_outputs(written, name, row):
    file = written(name, [row, row], lines=True)
    assert GeneratedOutputs().claims(file) >= 0.5
    first, second = outputs(file)
    assert (first.prompt, first.text, first.reference) == ("Q", "A", "L")
    assert (first.where, second.where) == (f"{name}:1", f"{name}:2")
    as_array = written("array/" + name.replace(".jsonl", ".json"), [row, row])
    assert GeneratedOutputs().claims(as_array) >= 0.5
    assert outputs(as_array)[1].text == "A"


def test_what_stands_beside_an_output(written):
    rows = [
        {
            "prompt": "Q",
            "base_output": "B",
            "tuned_output": "A",
            "finish_reason": "length",
            "usage": {"completion_tokens": 512},
            "max_new_tokens": 512,
        }
    ]
    (reading,) = GeneratedOutputs().read(written("x.jsonl", rows, lines=True))
    (item,) = reading.evidence.outputs.items
    assert (item.base, item.text, item.finish, item.tokens) == ("B", "A", "length", 512)
    assert reading.evidence.outputs.max_new_tokens == 512


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("train.jsonl", {"prompt": "Q", "completion": "A"}),
        ("alpaca.jsonl", {"instruction": "Q", "input": "", "output": "A"}),
        ("sft_output.jsonl", {"instruction": "Q", "input": "", "output": "A"}),
        ("data.jsonl", {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}),
        ("dpo.jsonl", {"prompt": "Q", "chosen": "A", "rejected": "B"}),
        ("log.jsonl", {"step": 1, "loss": 2.0}),
        ("scores.jsonl", {"text": "Q", "prediction": "1", "label": "0"}),
        ("tokens.jsonl", {"input_ids": [1, 2], "labels": [1, 2]}),
    ],
)
def test_data_sets_and_logs_are_no_outputs(written, name, row):
    assert GeneratedOutputs().claims(written(name, [row], lines=True)) == 0


TRANSCRIPT = (
    "User: What is LoRA?\nAssistant: A low-rank adapter.\nIt trains few weights.\n\nUser: Thanks\nAssistant: User: User: User:\n"
)


def test_a_transcript(written):
    file = written("chat.txt", TRANSCRIPT)
    assert GeneratedOutputs().claims(file) >= 0.5
    first, second = outputs(file)
    assert (first.prompt, first.text, first.where) == (
        "What is LoRA?",
        "A low-rank adapter.\nIt trains few weights.",
        "chat.txt:2",
    )
    assert second.prompt == "Thanks"
    assert second.text == "User: User: User:"


@pytest.mark.parametrize(
    "text",
    [
        "用户：你好\n助手：你好，有什么可以帮你？\n",
        "**User:** hi\n\n**Assistant:** hello\n",
        "### Instruction:\nhi\n\n### Response:\nhello\n",
    ],
)
def test_other_marks_of_turns(written, text):
    file = written("chat.md", text)
    assert GeneratedOutputs().claims(file) >= 0.5
    (item,) = outputs(file)
    assert item.prompt
    assert item.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.log", "{'loss': 1.5, 'epoch': 0.1}\nUser: a\nAssistant: b\n"),
        ("README.md", "# My model\n\nA text about it.\n\nIt was trained well.\n\nAnd served.\n\nUser: hi\nAssistant: ho\n"),
        ("chat.py", TRANSCRIPT),
        ("notes.txt", "User: only one side\n"),
    ],
)
def test_texts_that_are_no_transcript(written, name, text):
    assert GeneratedOutputs().claims(written(name, text)) == 0


def test_nothing_is_said_to_be_nothing(written):
    (reading,) = GeneratedOutputs().read(written("outputs.jsonl", '{"a": 1}\n{"b": 2}\n'))
    assert not reading.understood
    assert reading.note
    assert reading.skipped == {"rows without an output": 2}
