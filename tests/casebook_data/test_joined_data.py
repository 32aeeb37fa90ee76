"""Small run folders rebuilt from the facts of public reports, read by the real readers: the case of the report is confirmed."""

import json
import math

import pytest

from tuneclinic.clinic import diagnose
from tuneclinic.triage import cases

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content }}<|eot_id|>{% endfor %}"
)
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


def chat(number, answer=None, system=None):
    asked = f"What does {WORDS[number % 19]} mean in chapter {number}, and where is it used on board a ship?"
    told = (
        answer
        or f"In chapter {number} {WORDS[number % 19]} is {WORDS[number * 7 % 19]} number {number * 13}, beside the {WORDS[number * 5 % 19]}."
    )
    turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": told}]
    return {"messages": [{"role": "system", "content": system}, *turns] if system else turns}


def rows(count=60, **how):
    return [chat(number, **how) for number in range(count)]


def answers(finish, text="It is a part of a ship. "):
    return [{"prompt": f"What is {word}?", "output": text * 3, "finish_reason": finish} for word in WORDS[:6]]


def varied():
    told = [f"{word.title()} is kept near the {WORDS[n + 3]}, since {WORDS[n + 5]} needs it." for n, word in enumerate(WORDS[:8])]
    return [{"prompt": f"What is {WORDS[n]}?", "output": text, "finish_reason": "stop"} for n, text in enumerate(told)]


def logged(*values):
    return "\n".join(
        str({"loss": loss, "grad_norm": norm, "learning_rate": 2e-5, "epoch": n / 50}) for n, (loss, norm) in enumerate(values, 1)
    )


def learns(count=60):
    return [(round(0.9 + 1.1 * 0.93**n + 0.02 * (n % 3), 4), 0.8) for n in range(count)]


def special(*tokens):
    return {str(number): {"content": token, "special": True} for token, number in tokens}


def qwen(eos="<|im_end|>", pad="<|endoftext|>"):
    held = special(("<|endoftext|>", 151643), ("<|im_start|>", 151644), ("<|im_end|>", 151645))
    return {
        "eos_token": eos,
        "pad_token": pad,
        "bos_token": None,
        "added_tokens_decoder": held,
        "chat_template": CHATML,
        "add_bos_token": False,
    }


def llama3(eos="<|eot_id|>", pad="<|finetune_right_pad_id|>"):
    held = special(
        ("<|begin_of_text|>", 128000), ("<|end_of_text|>", 128001), ("<|finetune_right_pad_id|>", 128004), ("<|eot_id|>", 128009)
    )
    return {
        "bos_token": "<|begin_of_text|>",
        "eos_token": eos,
        "pad_token": pad,
        "added_tokens_decoder": held,
        "chat_template": LLAMA3,
        "add_bos_token": True,
    }


@pytest.fixture
def found(tmp_path):
    """Writes files and returns the verdicts of this folder's cases by id, the first finding's id, and the diagnosis."""

    def run(**files):
        for name, content in files.items():
            path = tmp_path / name.replace("__", ".")
            if isinstance(content, str):
                path.write_text(content, encoding="utf-8")
            elif name.endswith("__jsonl"):
                path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in content), encoding="utf-8")
            else:
                path.write_text(json.dumps(content), encoding="utf-8")
        return diagnose(tmp_path)[0]

    return run


def confirmed(diagnosis):
    """The confirmed faults; all of them must be of this folder, and the first finding one of them."""
    found = {finding.case for finding in diagnosis.having("confirmed") if finding.kind == "fault"}
    assert found <= OWN
    assert not found or diagnosis.findings[0].case in found
    return found


PAD_IS_EOS = """
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B")
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
trainer = Trainer(model=model, args=TrainingArguments("out"), train_dataset=data,
                  data_collator={collator})
trainer.train()
"""


def test_pad_is_eos_masks_the_end(found):
    script = PAD_IS_EOS.format(collator="DataCollatorForLanguageModeling(tokenizer, mlm=False)")
    diagnosis = found(train__py=script, outputs__jsonl=answers("length"), data__jsonl=rows())
    assert confirmed(diagnosis) == {"end-token-masked"}
    assert diagnosis.findings[0].case == "end-token-masked"


def test_pad_is_eos_with_labels_padded_by_place_is_no_fault(found):
    script = PAD_IS_EOS.format(collator="DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100)")
    assert confirmed(found(train__py=script, outputs__jsonl=answers("stop"), data__jsonl=rows())) == set()


def test_a_framework_that_writes_labels_itself_masks_no_end(found):
    config = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\ncutoff_len: 4096\n"
    diagnosis = found(
        sft__yaml=config, tokenizer_config__json=qwen(pad="<|im_end|>"), outputs__jsonl=answers("length"), data__jsonl=rows()
    )
    assert {one.case: one.verdict for one in diagnosis.findings}["end-token-masked"] == "ruled_out"


def test_base_model_with_chatml_turns(found):
    files = {
        "tokenizer_config__json": qwen(eos="<|endoftext|>"),
        "generation_config__json": {"eos_token_id": 151643, "max_new_tokens": 2048},
    }
    diagnosis = found(**files, outputs__jsonl=answers("length"), data__jsonl=rows())
    assert confirmed(diagnosis) == {"turn-end-differs-from-eos"}


def test_both_stop_ids_are_no_fault(found):
    files = {"tokenizer_config__json": qwen(), "generation_config__json": {"eos_token_id": [151645, 151643]}}
    assert confirmed(found(**files, outputs__jsonl=answers("length"), data__jsonl=rows())) == set()


def test_llama_3_with_an_old_eos_in_its_configuration(found):
    files = {"tokenizer_config__json": llama3(eos="<|end_of_text|>"), "generation_config__json": {"eos_token_id": 128001}}
    assert "turn-end-differs-from-eos" in confirmed(
        found(**files, train__log=logged(*learns()), outputs__jsonl=answers("length"))
    )


def test_response_key_with_a_trailing_space(found):
    warning = "UserWarning: Could not find response key `[22559, 25, 220]` in the following instance: {} This instance will be ignored in loss calculation."
    log = "\n".join([*(warning.format(f"### Question: {word}") for word in WORDS[:8]), logged(*[(0.0, 0.0)] * 20)])
    diagnosis = found(train__log=log)
    assert "response-marker-not-found" in confirmed(diagnosis)
    assert diagnosis.findings[0].case == "response-marker-not-found"


def test_one_ignored_instance_is_no_fault(found):
    log = "UserWarning: Could not find response key [22559] in the following instance: x This instance will be ignored in loss calculation.\n"
    assert confirmed(found(train__log=log + logged(*learns()))) == set()


def test_all_labels_masked_stops_unsloth(found):
    text = 'Traceback (most recent call last):\n  File "train.py", line 40, in <module>\n    trainer.train()\nZeroDivisionError: Unsloth: All labels in your dataset are -100. Training losses will be all 0.\n'
    assert confirmed(found(train__log=text)) == {"all-labels-masked"}


def test_loss_and_gradient_zero_from_the_start(found):
    assert confirmed(found(train__log=logged(*[(0.0, 0.0)] * 30))) == {"all-labels-masked"}


def test_llava_version_of_another_base(found):
    log = "\n".join(f"WARNING: tokenization mismatch: {380 + n} vs. {394 + n}. (ignored)" for n in range(20))
    diagnosis = found(train__log=f"{log}\n{logged(*[(0.0, 0.0)] * 30)}")
    assert {"chat-template-broken"} <= confirmed(diagnosis)
    assert diagnosis.findings[0].case == "chat-template-broken"


def test_a_rare_mismatch_is_by_design(found):
    log = "WARNING: tokenization mismatch: 2 vs. 89. (ignored)\n"
    assert confirmed(found(train__log=log + logged(*learns()))) == set()


def test_pad_token_added_without_resizing(found):
    log = (
        "../aten/src/ATen/native/cuda/Indexing.cu:1093: indexSelectLargeIndex: block: [12,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
        'Traceback (most recent call last):\n  File "finetune.py", line 80, in <module>\n    loss = model(**batch).loss\nRuntimeError: CUDA error: device-side assert triggered\n'
    )
    script = "from transformers import AutoTokenizer, AutoModelForCausalLM\ntokenizer = AutoTokenizer.from_pretrained('x')\ntokenizer.add_special_tokens({'pad_token': '[PAD]'})\nmodel = AutoModelForCausalLM.from_pretrained('x')\n"
    diagnosis = found(train__log=log, finetune__py=script)
    assert confirmed(diagnosis) == {"token-id-out-of-range"}


def test_label_out_of_bounds_is_another_fault(found):
    text = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    loss = F.cross_entropy(a, b)\nIndexError: Target -1 is out of bounds.\n'
    assert confirmed(found(train__log=text)) == {"ignore-index-unset"}


def test_template_text_tokenised_with_special_tokens_again(found):
    script = (
        "text = tokenizer.apply_chat_template(messages, tokenize=False)\nids = tokenizer(text, return_tensors='pt').input_ids\n"
    )
    script = f"from transformers import AutoTokenizer\ntokenizer = AutoTokenizer.from_pretrained('m')\ndef go(messages):\n    {script.replace(chr(10), chr(10) + '    ')}\n"
    assert "double-bos" in confirmed(found(train__py=script, tokenizer_config__json=llama3()))


def test_the_same_script_with_a_template_without_start_token(found):
    script = "from transformers import AutoTokenizer\ntokenizer = AutoTokenizer.from_pretrained('m')\ndef go(messages):\n    text = tokenizer.apply_chat_template(messages, tokenize=False)\n    return tokenizer(text).input_ids\n"
    assert confirmed(found(train__py=script, tokenizer_config__json=qwen())) == set()


def test_labels_moved_for_a_model_that_moves_them(found):
    script = "from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('gpt2')\nids = batch['input_ids']\ninputs, labels = ids[:, :-1], ids[:, 1:]\nlabels = ids[:, 1:]\nloss = model(input_ids=inputs, labels=labels).loss\nloss.backward()\n"
    assert confirmed(found(train__py=script)) == {"labels-shifted-twice"}


def test_silent_default_length(found):
    long = [chat(n, answer=" ".join(f"{word} {n} {k}" for k in range(60) for word in WORDS)) for n in range(30)]
    script = "from trl import SFTConfig, SFTTrainer\nargs = SFTConfig(output_dir='o', max_length=512, learning_rate=2e-5)\ntrainer = SFTTrainer('Qwen/Qwen2.5-0.5B', args=args, train_dataset=data)\ntrainer.train()\n"
    assert confirmed(found(train__py=script, data__jsonl=long)) == {"truncation-eats-answer"}


def test_unfilled_identity(found):
    diagnosis = found(
        identity__jsonl=[chat(n, answer="Hello! I am {{name}}, built by {{author}}.") for n in range(10)] + rows(40)
    )
    assert confirmed(diagnosis) == {"placeholders-unfilled"}
    first = next(finding for finding in diagnosis.findings if finding.case == "placeholders-unfilled")
    assert first.exhibits[0].rows == tuple(range(1, 11))
    assert any(exhibit.private for exhibit in first.exhibits)


def test_utf_8_read_as_latin_1(found):
    bad = [chat(n, answer="C'est un caf\u00e9 \u2019 tr\u00e8s bon".encode().decode("cp1252") + f" {n}") for n in range(20)]
    assert confirmed(found(data__jsonl=bad + rows(40))) == {"mojibake"}


def test_empty_answers(found):
    empty = [chat(n) for n in range(30)]
    for row in empty[:8]:
        row["messages"][-1]["content"] = ""
    assert confirmed(found(data__jsonl=empty)) == {"empty-answers"}


def test_a_cut_last_line(found):
    text = "\n".join(json.dumps(row) for row in rows(30)) + '\n{"messages": [{"role": "user", "cont'
    diagnosis = found(data__jsonl=text)
    assert confirmed(diagnosis) == {"malformed-rows"}


def test_identical_pairs(found):
    pairs = [
        {"prompt": f"q {n}?", "chosen": f"The answer {n} is yes.", "rejected": f"The answer {n} is {'yes' if n < 20 else 'no'}."}
        for n in range(60)
    ]
    assert confirmed(found(data__jsonl=pairs)) == {"pairs-identical"}


def test_system_part_in_every_turn(found):
    broken = "{% for m in messages %}{% if m.role != 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    held = rows(40, system="You are the concierge of the Harbour Hotel and answer briefly.")
    diagnosis = found(
        data__jsonl=held,
        tokenizer_config__json={**qwen(), "chat_template": broken},
        train__log=logged(*[(round(2.3 + 0.02 * math.sin(37.7 * n * n), 4), 1.0) for n in range(60)]),
    )
    assert confirmed(diagnosis) == {"chat-template-broken"}
    assert diagnosis.findings[0].case == "chat-template-broken"


def test_template_without_an_end(found):
    open_ended = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if not loop.last %}\n{% endif %}{% endfor %}"
    files = {
        "data__jsonl": rows(40),
        "tokenizer_config__json": {**qwen(), "chat_template": open_ended},
        "outputs__jsonl": answers("length"),
    }
    assert confirmed(found(**files)) == {"end-token-missing"}


def test_evaluation_slice_of_the_training_file(found):
    assert "train-eval-leak" in confirmed(found(train__jsonl=rows(50), eval__jsonl=rows(20)))


def test_a_healthy_run_is_met_with_silence(found):
    files = {
        "data__jsonl": rows(60),
        "tokenizer_config__json": qwen(),
        "generation_config__json": {"eos_token_id": [151645, 151643]},
    }
    diagnosis = found(**files, train__log=logged(*learns()), outputs__jsonl=varied())
    assert diagnosis.seen == ()
    assert {one.case for one in diagnosis.findings if one.verdict in {"confirmed", "suspected"}} & OWN == set()
