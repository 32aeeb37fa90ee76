"""Rules that the rebuilt reports asked for, each beside its near-miss: one fact changed, and nothing is said."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneclinic.clinic import diagnose, runs
from tuneclinic.probes.readers.preprocessor_config import PreprocessorConfig
from tuneclinic.probes.reading import SourceFile
from tuneclinic.probes.scripts import script_of

sys.path.insert(0, str(Path(__file__).parent))
from cases_b_use import CHATML_IDS, image_rows
from parts_b import CHATML, chats, dump, falling, hf, lines, rows, tokenizer
from scripts_b import (
    DECODER_SHIFT,
    MASK_BY_MARKER,
    NO_SHIFT_NEEDED,
    PAD_ADDED,
    PLAIN_INFER,
    PRE_SHIFT,
    UNSHIFTED_METRIC,
)


def written(folder, files):
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def facts(text):
    script = script_of(text, "a.py")
    return {fact.name for fact in script.facts} if script is not None else set()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (PRE_SHIFT, "labels-shifted-twice"),
        (DECODER_SHIFT, "labels-shifted-twice"),
        (UNSHIFTED_METRIC, "metric-not-shifted"),
        (MASK_BY_MARKER, "marker-tokenised-alone"),
        (PLAIN_INFER, "processor-default-pixels"),
        ("import torch\ntokenizer.add_bos_token = False\n", "start-token-switched-off"),
        ("import openai\nparts = [{'type': 'text', 'text': q}, {'type': 'image', 'image': p}]\n", "text-before-picture"),
    ],
)
def test_fact_of_a_script(text, name):
    assert name in facts(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (PRE_SHIFT.replace("chunk[1:]", "chunk[:-1]"), "labels-shifted-twice"),
        (DECODER_SHIFT.replace("[:, :-1]", "").replace("[:, 1:]", ""), "labels-shifted-twice"),
        (UNSHIFTED_METRIC.replace("logits = eval_forward(batch)", "logits = eval_forward(batch)[:, :-1]"), "metric-not-shifted"),
        (UNSHIFTED_METRIC.replace("logits.argmax", "logits[:, -1].argmax"), "metric-not-shifted"),
        (MASK_BY_MARKER.replace('"ASSISTANT:"', '"A"'), "marker-tokenised-alone"),
        (PLAIN_INFER.replace('("out/merged")', '("out/merged", max_pixels=451584)', 1), "processor-default-pixels"),
        (NO_SHIFT_NEEDED + PLAIN_INFER, "processor-default-pixels"),
        (PAD_ADDED, "start-token-switched-off"),
        ("import openai\nparts = [{'type': 'image', 'image': p}, {'type': 'text', 'text': q}]\n", "text-before-picture"),
    ],
)
def test_no_fact_where_one_thing_differs(text, name):
    assert name not in facts(text)


def test_policy_loss_of_zero_is_no_fault(tmp_path):
    rows_ = [{"loss": 0.0, "learning_rate": 1e-6, "objective/kl": 0.01 * n, "epoch": n / 10} for n in range(1, 40)]
    (found,) = diagnose(written(tmp_path, {"train.log": lines(*map(str, rows_))}))
    assert not found.seen
    assert found.exit_code == 0


def test_resume_is_seen_between_rows_only(tmp_path):
    loss = list(map(str, hf(falling(2.0, 1.0, 40))))
    said = "Resuming training from checkpoint out/checkpoint-200"
    for name, order, wanted in (("head", [said, *loss], ()), ("between", [*loss[:20], said, *loss[20:]], (21.0,))):
        folder = tmp_path / name
        folder.mkdir()
        (run,) = runs([written(folder, {"train.log": lines(*order)})])
        assert run.evidence.metrics.resumed_at == wanted


def test_server_with_the_training_system_text(tmp_path):
    told = "You are the harbour office of Visby. Answer in one line."
    data = [{"messages": [{"role": "system", "content": told}, *row["messages"]]} for row in chats(30)]
    modelfile = lines("FROM ./m.gguf", f"SYSTEM {told.upper()}", 'TEMPLATE """<|im_start|>user', "{{ .Prompt }}<|im_end|>", '"""')
    files = {"train.jsonl": rows(*data), "tokenizer_config.json": tokenizer(CHATML, ids=CHATML_IDS), "Modelfile": modelfile}
    (found,) = diagnose(written(tmp_path, files))
    assert "serving-template-differs" not in {finding.case for finding in found.having("confirmed")}
    assert found.evidence.serving.system == told.upper()


def test_system_text_that_no_row_has_is_a_suspect_only_where_serving_is_worse(tmp_path):
    template = ('TEMPLATE """<|im_start|>system', "{{ .System }}<|im_end|>", "<|im_start|>user", "{{ .Prompt }}<|im_end|>", '"""')
    modelfile = lines("FROM ./m.gguf", *template, 'SYSTEM "You are a pirate."', 'PARAMETER stop "<|im_end|>"')
    files = {"train.jsonl": rows(*chats(30)), "tokenizer_config.json": tokenizer(CHATML, ids=CHATML_IDS), "Modelfile": modelfile}
    written(tmp_path, files)
    (quiet,) = diagnose(tmp_path)
    assert not quiet.having("suspected")
    (told,) = diagnose(tmp_path, symptoms=("worse-in-inference",))
    assert told.having("suspected")[0].case == "serving-template-differs"
    assert any("pirate" in exhibit.text.en for exhibit in told.having("suspected")[0].exhibits)


@pytest.mark.parametrize(
    ("script", "wanted"), [("train.py", 2), ("evaluate.py", None), ("merge_lora.py", None), ("finetune_vl.py", 2)]
)
def test_launcher_tells_the_processes_of_a_training_script(tmp_path, script, wanted):
    written(tmp_path, {"go.sh": f"accelerate launch --num_processes 2 {script}\n", "train.log": lines(*hf(falling(2, 1, 30)))})
    (run,) = runs([tmp_path])
    held = run.evidence.settings
    assert (held.number("processes") if held is not None else None) == wanted


def test_word_assistant_in_an_answer_is_no_header(tmp_path):
    answers = [{"prompt": f"q{n}", "generated": f"An assistant\ncan help you {n}.", "finish_reason": "stop"} for n in range(8)]
    (found,) = diagnose(written(tmp_path, {"outputs.jsonl": rows(*answers)}))
    assert "stop-ids-not-passed" not in {finding.case for finding in found.having("suspected")}


def test_picture_limits_that_agree(tmp_path):
    files = {
        "train.sh": "python train.py --model_name_or_path Qwen/Qwen2.5-VL-7B --max_pixels 451584 --learning_rate 1e-5\n",
        "preprocessor_config.json": dump({"max_pixels": 451584}),
        "infer.py": PLAIN_INFER,
        "train.jsonl": image_rows(),
    }
    (found,) = diagnose(written(tmp_path, files))
    assert {finding.case: finding.verdict for finding in found.findings}["images-resized-differently"] == "ruled_out"


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_adapters_are_not_counted_as_full_tuning(tmp_path, kind):
    trained = "5,700,000,000" if kind == "full" else "20,000,000"
    error = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 250 MiB (GPU 0; 23.65 GiB total capacity; 22.91 GiB already allocated; 120 MiB free; 23.10 GiB reserved in total by PyTorch)"
    stack = ("Traceback (most recent call last):", '  File "t.py", line 8, in train', "    loss.backward()", error)
    text = lines(f"trainable params: {trained} || all params: 5,700,000,000 || trainable%: 1", *stack)
    (found,) = diagnose(written(tmp_path, {"train.log": text}))
    confirmed = {finding.case for finding in found.having("confirmed")}
    assert ("optimizer-states-do-not-fit" in confirmed) == (kind == "full")


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"max_pixels": 12845056}, 12845056.0),
        ({"size": {"height": 336, "width": 336}}, 112896.0),
        ({"size": {"longest_edge": 16777216}, "image_processor_type": "Qwen2VLImageProcessorFast"}, 16777216.0),
        ({"size": {"longest_edge": 980}, "image_processor_type": "Idefics2ImageProcessor"}, None),
        ({"feature_size": 80, "sampling_rate": 16000}, None),
        ({"max_pixels": True, "size": [1]}, None),
    ],
)
def test_size_of_pictures(tmp_path, config, wanted):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    (reading,) = PreprocessorConfig().read(SourceFile(path, path.name))
    model = reading.evidence.model
    assert (model.image_max_pixels if model is not None else None) == wanted
    assert bool(reading.understood) == (wanted is not None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.recursive(
            st.none() | st.floats() | st.integers() | st.text(max_size=8),
            lambda x: (
                st.lists(x, max_size=3)
                | st.dictionaries(st.sampled_from(["size", "max_pixels", "height", "width", "longest_edge"]), x, max_size=4)
            ),
            max_leaves=8,
        ),
    )
)
def test_processor_file_is_always_answered(tmp_path, content):
    path = tmp_path / "preprocessor_config.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    (reading,) = PreprocessorConfig().read(SourceFile(path, path.name))
    assert reading.understood or reading.note


def test_zero_from_the_first_row_without_a_gradient_norm(tmp_path):
    zero = [{"loss": 0.0, "learning_rate": 1e-3 * n / 30, "epoch": round(n / 500, 2)} for n in range(1, 31)]
    (found,) = diagnose(written(tmp_path, {"train.log": lines(*map(str, zero))}))
    assert [sighting.symptom for sighting in found.seen] == ["loss-not-falling"]
    assert not [finding for finding in found.findings if finding.verdict == "errored"]
    assert found.having("suspected")[0].case == "all-labels-masked"


def test_constant_losses_end_in_no_error(tmp_path):
    for value in (0.0, 1.0, np.log(32000)):
        (found,) = diagnose(written(tmp_path, {"train.log": lines(*hf([value] * 40))}))
        assert not [finding for finding in found.findings if finding.verdict == "errored"]
