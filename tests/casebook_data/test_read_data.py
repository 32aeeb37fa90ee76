"""Each remaining case of the folder on a small input of its own kind, read by the real readers, beside a near miss."""

import json
import random

import pytest

from tuneclinic.clinic import diagnose
from tuneclinic.triage import cases

OWN = {case.id for case in cases() if type(case).__module__.startswith("tuneclinic.casebook.data.")}
WORDS = [
    "anchor",
    "buoy",
    "compass",
    "deck",
    "ferry",
    "gale",
    "harbour",
    "inlet",
    "jib",
    "keel",
    "lantern",
    "mast",
    "nautical",
    "oar",
    "pier",
    "quay",
    "rudder",
    "sail",
    "tide",
]
HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch.utils.data import DataLoader\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\nmodel = AutoModelForCausalLM.from_pretrained('gpt2')\ntokenizer = AutoTokenizer.from_pretrained('gpt2')\n"


def pair(number, answer=None, prompt=None):
    draw = random.Random(number)
    said = " ".join(draw.choice(WORDS) for _ in range(14)).capitalize()
    asked = f"Question {number}: how do {draw.choice(WORDS)} and {draw.choice(WORDS)} go together, and why?"
    return {"prompt": prompt or asked, "completion": f"{said} {number}." if answer is None else answer}


def pairs(count=60):
    return [pair(number) for number in range(count)]


def lines(rows):
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def logged(losses, norms=None):
    values = zip(losses, norms or [1.0] * len(losses), strict=True)
    return "\n".join(
        str({"loss": loss, "grad_norm": norm, "learning_rate": 2e-5, "epoch": n / 50}) for n, (loss, norm) in enumerate(values, 1)
    )


def learns(count=100):
    return [round(0.9 + 1.1 * 0.95**n + 0.03 * ((n * 7) % 5), 4) for n in range(count)]


@pytest.fixture
def found(tmp_path):
    def run(**files):
        for name, content in files.items():
            (tmp_path / name.replace("__", ".")).write_text(
                content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
            )
        diagnosis = diagnose(tmp_path)[0]
        confirmed = {finding.case for finding in diagnosis.having("confirmed") if finding.kind == "fault"}
        assert confirmed <= OWN
        assert not confirmed or diagnosis.findings[0].case in confirmed
        return confirmed

    return run


def tokenised(labels_of, count=30, tail=()):
    made = []
    for number in range(count):
        ids = [1, 10 + number, 40 + number, 70, 200 + number, 300 + 3 * number, 2, *tail]
        made.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels_of(ids)})
    return lines(made)


LOOP = "for batch in loader:\n    logits = model(batch['input_ids']).logits\n    labels = batch['input_ids']\n    loss = F.cross_entropy({logits}.reshape(-1, 50257), {labels}.reshape(-1))\n    loss.backward()\n"


def test_labels_not_shifted(found):
    assert found(train__py=HEAD + LOOP.format(logits="logits", labels="labels")) == {"labels-not-shifted"}


def test_labels_shifted_once(found):
    assert found(train__py=HEAD + LOOP.format(logits="logits[:, :-1]", labels="labels[:, 1:]")) == set()


def test_filler_that_the_loss_does_not_ignore(found):
    body = "labels = batch['input_ids'][:, 1:].clone()\nlabels[mask] = -1\nlogits = model(x).logits[:, :-1]\nloss = F.cross_entropy(logits.reshape(-1, 9), labels.reshape(-1))\n"
    assert found(train__py=HEAD + body) == {"ignore-index-unset"}


def test_padded_ids_as_labels(found):
    body = "def tokenise(row):\n    out = tokenizer(row['text'], padding='max_length', max_length=512, truncation=True)\n    out['labels'] = out['input_ids'].copy()\n    return out\n"
    assert found(train__py=HEAD + body) == {"padding-in-loss"}


def test_padding_masked_in_labels(found):
    body = "def tokenise(row):\n    out = tokenizer(row['text'], padding='max_length', max_length=512, truncation=True)\n    out['labels'] = [x if m else -100 for x, m in zip(out['input_ids'], out['attention_mask'])]\n    return out\n"
    assert found(train__py=HEAD + body) == set()


READS = "loader = DataLoader(train_data, batch_size=4, shuffle={shuffle})\nfor batch in loader:\n    loss = model(**batch).loss\n    loss.backward()\n    optimizer.step()\n"


def test_sorted_sources_read_in_order(found):
    rows = [{**pair(number), "source": "abc"[number // 40]} for number in range(120)]
    assert found(data__jsonl=lines(rows), train__py=HEAD + READS.format(shuffle=False)) == {"data-not-shuffled"}


def test_sorted_sources_shuffled_by_the_loader(found):
    rows = [{**pair(number), "source": "abc"[number // 40]} for number in range(120)]
    assert found(data__jsonl=lines(rows), train__py=HEAD + READS.format(shuffle=True)) == set()


def test_packing_warned_of(found):
    text = "You are using packing, but the attention implementation is not set to 'flash_attention_2'. Other implementations may lead to cross-contamination between batches.\n"
    assert found(train__log=text + logged(learns())) == {"packing-contaminates"}


def test_packing_with_neat_packing(found):
    assert (
        found(
            config__yaml="stage: sft\nfinetuning_type: lora\ntemplate: qwen\ncutoff_len: 2048\npacking: true\nneat_packing: true\nlearning_rate: 1.0e-4\n"
        )
        == set()
    )


def test_no_pad_token(found):
    text = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    batch = tokenizer(texts, padding=True)\nValueError: Asking to pad but the tokenizer does not have a padding token. Please select a token to use as `pad_token`\n'
    assert found(train__log=text) == {"no-pad-token"}


def test_rescaled_twice(found):
    text = "It looks like you are trying to rescale already rescaled images. If the input images have pixel values between 0 and 1, set `do_rescale=False` to avoid rescaling them again.\n"
    assert found(train__log=text + logged(learns())) == {"preprocessing-destroys-input"}


def test_arrow_refuses_a_row(found):
    text = 'Traceback (most recent call last):\n  File "/site-packages/datasets/packaged_modules/json/json.py", line 153, in _generate_tables\n    pa_table = paj.read_json(io.BytesIO(batch))\npyarrow.lib.ArrowInvalid: JSON parse error: Column(/messages/[]/content) changed from string to array in row 38\n'
    assert found(train__log=text) == {"malformed-rows"}


def test_control_tokens(found):
    bad = [
        {
            "messages": [
                {"role": "user", "content": f"hi {n}"},
                {"role": "assistant", "content": f"Hello {n}<|im_end|>\n<|im_start|>user\nmore {n}"},
            ]
        }
        for n in range(12)
    ]
    good = [
        {"messages": [{"role": "user", "content": f"what is {w}?"}, {"role": "assistant", "content": f"{w} is part {n}."}]}
        for n, w in enumerate(WORDS)
    ]
    assert found(data__jsonl=lines(bad + good)) == {"control-tokens-in-data"}


def test_contradictory_labels(found):
    rows = [pair(n % 20, answer=("yes", "no")[n // 20 % 2]) for n in range(60)]
    assert "conflicting-answers" in found(data__jsonl=lines(rows))


def test_two_ways_to_say_it_are_no_conflict(found):
    rows = [pair(n % 20, answer=f"{('It is', 'That is')[n // 20 % 2]} a {WORDS[n % 19]} on a ship.") for n in range(40)]
    assert found(data__jsonl=lines(rows)) == set()


def test_copies(found):
    assert found(data__jsonl=lines(pairs(40) * 3)) == {"duplicated-data"}


def test_a_few_copies_are_no_fault(found):
    assert found(data__jsonl=lines([*pairs(60), pair(4), pair(9)])) == set()


def test_refusals(found):
    rows = [pair(n, answer=f"I'm sorry, but I can't help with request {n}.") for n in range(30)] + [
        pair(n) for n in range(100, 160)
    ]
    assert found(data__jsonl=lines(rows)) == {"refusals"}


def test_one_answer_to_everything(found):
    assert "targets-trivial" in found(data__jsonl=lines([pair(n, answer="No.") for n in range(60)]))


def test_answer_behind_the_question(found):
    rows = [pair(n) for n in range(40)]
    rows = [{"prompt": f"{row['prompt']} {row['completion']}", "completion": row["completion"]} for row in rows]
    assert found(data__jsonl=lines(rows)) == {"answer-in-prompt"}


def test_a_value_that_is_no_number(found):
    text = lines(pairs(40)) + '\n{"prompt": "what is it worth?", "completion": NaN}\n'
    assert "poison-sample" in found(
        data__jsonl=text, train__log=logged([*learns(40), *["nan"] * 10], [*[1.0] * 40, *["nan"] * 10])
    )


def test_answers_of_one_mould(found):
    rows = [
        pair(
            n,
            answer=f"Thank you for your question. The answer you are looking for is that {WORDS[n % 19]} belongs to {WORDS[n * 3 % 19]}. I hope this helps.",
        )
        for n in range(200)
    ]
    assert "data-all-alike" in found(data__jsonl=lines(rows))


def test_out_of_memory_on_a_long_row(found):
    rows = [*pairs(300), pair(999, answer="the long tale of it " * 3000)]
    log = logged(learns(40)) + (
        '\nTraceback (most recent call last):\n  File "train.py", line 30, in <module>\n    trainer.train()\n'
        '  File "/site-packages/transformers/trainer.py", line 3700, in training_step\n    self.accelerator.backward(loss)\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.20 GiB. GPU 0 has a total capacity of 79.15 GiB of which 3.10 GiB is free. Including non-PyTorch memory, this process has 76.00 GiB memory in use. Of the allocated memory 74.10 GiB is allocated by PyTorch, and 0.80 GiB is reserved by PyTorch but unallocated.\n"
    )
    assert found(data__jsonl=lines(rows), train__log=log) == {"long-samples"}


def test_single_rows_without_targets(found):
    losses, norms = learns(60), [1.0] * 60
    losses[30], norms[30] = 0.0, 0.0
    rows = tokenised(lambda ids: [-100, -100, -100, *ids[3:]]).splitlines()
    spare = json.loads(rows[4])
    rows[4] = json.dumps({**spare, "labels": [-100] * len(spare["labels"])})
    assert found(data__jsonl="\n".join(rows), train__log=logged(losses, norms)) == {"batch-without-targets"}


def test_every_row_masked(found):
    assert found(data__jsonl=tokenised(lambda ids: [-100] * len(ids))) == {"all-labels-masked"}


def test_prompt_trained_and_answer_masked(found):
    assert found(data__jsonl=tokenised(lambda ids: [*ids[:3], *[-100] * (len(ids) - 3)])) == {"label-mask-misplaced"}


def test_labels_moved_in_the_file(found):
    rows = tokenised(lambda ids: [*ids[1:], 2])
    config = "base_model: x\ndatasets:\n  - path: data.jsonl\nmicro_batch_size: 2\nlearning_rate: 2e-5\nsequence_len: 2048\nnum_epochs: 1\n"
    assert "labels-shifted-twice" in found(data__jsonl=rows, axolotl__yaml=config)


def test_padding_trained_in_the_file(found):
    assert "padding-in-loss" in found(data__jsonl=tokenised(lambda ids: [-100, -100, -100, *ids[3:]], tail=[0] * 8))


def test_sound_tokenised_rows(found):
    assert found(data__jsonl=tokenised(lambda ids: [-100, -100, -100, *ids[3:]])) == set()


TOKENIZER = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<unk>",
    "unk_token": "<unk>",
    "added_tokens_decoder": {
        "0": {"content": "<unk>", "special": True},
        "1": {"content": "<s>", "special": True},
        "2": {"content": "</s>", "special": True},
    },
}


def test_end_masked_in_the_file(found):
    rows = tokenised(lambda ids: [-100, -100, -100, *ids[3:-1], -100])
    assert found(data__jsonl=rows, tokenizer_config__json=TOKENIZER) == {"end-token-masked"}


def test_id_beyond_the_embedding(found):
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 320,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    assert found(
        data__jsonl=tokenised(lambda ids: [-100, -100, -100, *ids[3:]]), config__json=config, tokenizer_config__json=TOKENIZER
    ) == {"token-id-out-of-range"}


def test_two_ends(found):
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}<|im_end|>"
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": template}
    rows = [
        {"messages": [{"role": "user", "content": f"what is {w}?"}, {"role": "assistant", "content": f"{w} is part {n}."}]}
        for n, w in enumerate(WORDS)
    ]
    assert found(data__jsonl=lines(rows), tokenizer_config__json=config) == {"double-eos"}


def test_answers_that_need_no_picture(found):
    rows = [
        {
            "messages": [
                {"role": "user", "content": "<image>Is the scan normal?"},
                {"role": "assistant", "content": "Yes, it is normal." if n else "No, it is not."},
            ],
            "images": [f"scan_{n}.png"],
        }
        for n in range(40)
    ]
    assert "image-ignored-by-data" in found(data__jsonl=lines(rows))


def test_answers_that_need_the_picture(found):
    rows = [
        {
            "messages": [
                {"role": "user", "content": "<image>What does the sign say?"},
                {"role": "assistant", "content": f"{WORDS[n % 19]} {n}"},
            ],
            "images": [f"sign_{n}.png"],
        }
        for n in range(40)
    ]
    assert found(data__jsonl=lines(rows)) == set()


def test_fixed_length_padding(found):
    config = "base_model: x\ndatasets:\n  - path: data.jsonl\nmicro_batch_size: 2\nlearning_rate: 2e-5\nsequence_len: 4096\npad_to_sequence_len: true\nsample_packing: false\n"
    assert found(data__jsonl=lines(pairs(60)), axolotl__yaml=config) == {"padding-waste"}


def test_peaks_beside_odd_rows(found):
    losses = learns(160)
    for at in (60, 101, 142):
        losses[at] = 9.0
    rows = [*pairs(100), pair(500, answer="0" * 3000)]
    assert "outlier-batches" in found(data__jsonl=lines(rows), train__log=logged(losses))
