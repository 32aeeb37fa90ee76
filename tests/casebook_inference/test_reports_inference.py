"""Inputs rebuilt from the facts of public reports, as files, read by the real readers and judged as a user's would be."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneclinic.case import Case
from tuneclinic.casebook.inference._facts import loops
from tuneclinic.casebook.inference._templates import families, named, systems
from tuneclinic.casebook.inference.images_resized_differently import area
from tuneclinic.clinic import diagnose, runs
from tuneclinic.evidence import Evidence
from tuneclinic.registry import found
from tuneclinic.sections import Serving

CHATML_IDS = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
LLAMA3 = "{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>' + m['content'] + '<|eot_id|>' }}{% endfor %}"
MODELFILE_CHATML = (
    "FROM ./model.gguf",
    'TEMPLATE """<|im_start|>user',
    "{{ .Prompt }}<|im_end|>",
    "<|im_start|>assistant",
    '"""',
    'PARAMETER stop "<|im_end|>"',
)
MINE = [case.id for case in found("tuneclinic.casebook", Case) if ".inference." in type(case).__module__]


def mismatch(tokens, features):
    return f"ValueError: Image features and image tokens do not match: tokens: {tokens}, features {features}"


def traceback(error):
    return (
        "Traceback (most recent call last):",
        '  File "train.py", line 41, in <module>',
        "    trainer.train()",
        error,
    )


@pytest.mark.parametrize(
    ("tokens", "features", "reason"),
    [
        (14650, 17152, "truncation"),
        (0, 169, "no placeholder"),
        (300, 298, "too many"),
        (575, 576, "off by one"),
        (256, 1024, "factor of 4"),
    ],
)
def test_counts_of_an_image_error_are_taken_apart(folder, tokens, features, reason):
    folder.text("train.log", *traceback(mismatch(tokens, features)))
    finding = folder.findings()["image-placeholder-mismatch"]
    assert finding.verdict == "confirmed"
    assert any(reason in getattr(exhibit.text, "en", "") for exhibit in finding.exhibits)


CRASHES = {
    "merged-into-quantised-base": "ValueError: Cannot merge LORA layers when the model is loaded in 8-bit mode",
    "state-dict-mismatch": (
        "RuntimeError: Error(s) in loading state_dict for PeftModelForCausalLM:\n"
        "\tsize mismatch for base_model.model.model.embed_tokens.weight: copying a param with shape torch.Size([262208, 640]) from "
        "checkpoint, the shape in current model is torch.Size([262144, 640])."
    ),
    "projector-not-loaded": "openai.InternalServerError: Error code: 500 - image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
    "tokenizer-not-shipped": "OSError: Can't load tokenizer for './out/merged'. If you were trying to load it from the hub, check the name.",
    "tied-weights-lost": "ValueError: There is no module or parameter named 'lm_head' in Qwen2ForCausalLM",
    "context-too-long": "openai.BadRequestError: Error code: 400 - This model's maximum context length is 4096 tokens. However, you requested 9000 tokens",
}


@pytest.mark.parametrize("case", CRASHES)
def test_error_text_names_the_case(folder, case):
    folder.text("serve.log", *traceback(CRASHES[case]))
    assert folder.verdict(case) == "confirmed"


LINES = {
    "adapter-partly-loaded": "UserWarning: Found missing adapter keys while loading the checkpoint: ['base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight'].",
    "merged-into-quantised-base": "UserWarning: Merge lora module to 4-bit linear may get different generations due to rounding errors.",
    "context-too-long": 'time=2026-01-02T10:00:00 level=WARN source=runner.go:131 msg="truncating input prompt" limit=4096 prompt=10552 keep=4 new=4096',
    "tokenizer-not-shipped": "WARNING:hf-to-gguf:** WARNING: The BPE pre-tokenizer was not recognized!",
}


@pytest.mark.parametrize("case", LINES)
def test_log_line_names_the_case(folder, case):
    folder.text("serve.log", "INFO starting up", LINES[case], "INFO ready")
    assert folder.verdict(case) == "confirmed"


def test_alpaca_text_behind_a_chat_endpoint(folder):
    rows = [{"text": f"### Instruction:\nquestion {n}\n\n### Response:\nanswer {n}</s>"} for n in range(8)]
    folder.rows("train.jsonl", *rows).tokenizer(LLAMA3, "<|eot_id|>").text("serve.sh", "vllm serve out/merged --port 8000")
    assert folder.verdict("serving-template-differs") == "confirmed"


def test_templates_agree_in_different_languages(folder):
    folder.tokenizer(ids=CHATML_IDS).text("Modelfile", *MODELFILE_CHATML)
    found_ = folder.findings()
    assert found_["serving-template-differs"].verdict == "ruled_out"
    assert found_["stop-ids-not-passed"].verdict == "ruled_out"


def test_modelfile_of_another_family(folder):
    folder.tokenizer(ids=CHATML_IDS).text(
        "Modelfile", "FROM ./m.gguf", 'TEMPLATE """[INST] {{ .Prompt }} [/INST]"""', 'PARAMETER stop "[INST]"'
    )
    assert folder.verdict("serving-template-differs") == "confirmed"


def test_gguf_that_ends_on_the_base_models_token(folder):
    tokens = ["a", "b", "<|endoftext|>x", "<|im_start|>", "<|turn_end|>"]
    folder.tokenizer(ids={"<|im_end|>": 4}).gguf(
        "m.gguf", general__architecture="qwen2", tokenizer__ggml__eos_token_id=2, tokenizer__ggml__tokens=tokens
    )
    assert folder.verdict("stop-ids-not-passed") == "confirmed"


def test_gguf_whose_end_token_llama_cpp_knows_by_its_text(folder):
    tokens = ["a", "b", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    folder.tokenizer(ids={"<|im_end|>": 4}).gguf(
        "m.gguf", general__architecture="qwen2", tokenizer__ggml__eos_token_id=2, tokenizer__ggml__tokens=tokens
    )
    assert folder.verdict("stop-ids-not-passed") == "ruled_out"


def test_gguf_whose_vocabulary_was_not_read_proves_nothing(folder):
    folder.tokenizer(ids={"<|im_end|>": 4}).gguf("m.gguf", general__architecture="qwen2", tokenizer__ggml__eos_token_id=2)
    assert folder.verdict("stop-ids-not-passed") not in {"confirmed", "suspected"}


def test_chatml_that_closes_with_another_token(folder):
    template = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + ': ' + m['content'] + '<end_of_utterance>' }}{% endfor %}"
    folder.tokenizer(template, "<end_of_utterance>", {"<|im_end|>": 2, "<end_of_utterance>": 49279})
    folder.text("Modelfile", "FROM ./m.gguf", 'PARAMETER stop "<end_of_utterance>"')
    assert folder.verdict("stop-ids-not-passed") not in {"confirmed", "suspected"}


def test_stop_list_of_the_client_in_place_of_the_turn_end(folder):
    folder.tokenizer(LLAMA3, "<|eot_id|>", {"<|eot_id|>": 128009})
    folder.text("Modelfile", "FROM ./m.gguf", 'PARAMETER stop "Question:"')
    rows = [{"prompt": f"q{n}", "generated": f"foo {n}<|eot_id|>assistant\n\nfoo", "finish_reason": "length"} for n in range(4)]
    folder.rows("outputs.jsonl", *rows)
    assert folder.verdict("stop-ids-not-passed") == "confirmed"


def lora(zero=False, drop=()):
    names = [
        f"base_model.model.model.layers.{n}.self_attn.{m}.lora_{p}.weight"
        for n in (0, 1)
        for m in ("q_proj", "v_proj")
        for p in "AB"
    ]
    return {
        name: [0.0 if zero and "lora_B" in name else 0.25 + index / 100] * 512
        for index, name in enumerate(names)
        if name not in drop
    }


ADAPTER = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "v_proj"],
    "base_model_name_or_path": "Qwen/Qwen2.5-7B",
}


def test_adapter_of_zeros(folder):
    folder.weights("adapter_model.safetensors", lora(zero=True)).json("adapter_config.json", ADAPTER)
    assert folder.verdict("adapter-not-loaded") == "confirmed"


def test_whole_adapter_is_none_of_the_three(folder):
    folder.weights("adapter_model.safetensors", lora()).json("adapter_config.json", ADAPTER)
    folder.text("serve.sh", "vllm serve Qwen/Qwen2.5-7B --enable-lora --lora-modules mine=out/adapter --dtype bfloat16")
    found_ = folder.findings()
    assert {found_[case].verdict for case in ("saved-adapter-empty", "adapter-not-loaded", "adapter-partly-loaded")} == {
        "ruled_out"
    }


def test_adapter_with_half_a_module(folder):
    folder.weights("adapter_model.safetensors", lora(drop=("base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight",)))
    assert folder.verdict("adapter-partly-loaded") == "confirmed"


def test_outputs_equal_to_the_base_models(folder):
    folder.weights("adapter_model.safetensors", lora()).json("adapter_config.json", ADAPTER)
    rows = [
        {"prompt": f"q{n}", "tuned": f"It depends on many things, and on {n}.", "base": f"It depends on many things, and on {n}."}
        for n in range(6)
    ]
    folder.rows("outputs.jsonl", *rows)
    assert folder.verdict("adapter-not-loaded") == "confirmed"


@pytest.mark.parametrize(("tied", "verdict"), [(True, "ruled_out"), (False, "confirmed")])
def test_head_that_is_stored_once(folder, tied, verdict):
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "vocab_size": 100,
    }
    folder.json("config.json", {**config, "tie_word_embeddings": tied})
    folder.weights(
        "model.safetensors",
        {"model.embed_tokens.weight": [0.1], "model.layers.0.self_attn.q_proj.weight": [0.2], "model.norm.weight": [1.0]},
    )
    assert folder.verdict("tied-weights-lost") == verdict


def test_pixels_at_the_server(folder):
    folder.text("train.sh", "MAX_PIXELS=12845056 swift sft --model Qwen/Qwen2-VL-7B --dataset d.jsonl --learning_rate 1e-4")
    folder.text("serve.sh", "vllm serve out/merged --mm-processor-kwargs '{\"max_pixels\": 1003520}'")
    assert folder.verdict("images-resized-differently") == "confirmed"


def test_half_precision_with_a_clean_answer_is_no_alarm(folder):
    folder.json(
        "config.json",
        {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "torch_dtype": "bfloat16"},
    )
    folder.text("serve.sh", "vllm serve out/merged --dtype half")
    assert folder.verdict("dtype-differs") not in {"confirmed", "suspected"}


def test_merging_in_half_without_a_loss_is_no_alarm(folder):
    folder.text(
        "merge.py",
        "import torch",
        "from transformers import AutoModelForCausalLM",
        "from peft import PeftModel",
        "base = AutoModelForCausalLM.from_pretrained('b', torch_dtype=torch.bfloat16)",
        "model = PeftModel.from_pretrained(base, 'out').merge_and_unload()",
        "model.save_pretrained('merged')",
    )
    assert folder.verdict("merged-in-low-precision") not in {"confirmed", "suspected"}
    assert folder.verdict("merged-into-quantised-base") == "ruled_out"


def test_merging_into_a_quantised_base(folder):
    folder.text(
        "merge.py",
        "from transformers import AutoModelForCausalLM",
        "from peft import PeftModel",
        "base = AutoModelForCausalLM.from_pretrained('b', load_in_4bit=True)",
        "model = PeftModel.from_pretrained(base, 'out').merge_and_unload()",
    )
    assert folder.verdict("merged-into-quantised-base") == "confirmed"


@pytest.mark.parametrize("name", ["chatml", "qwen2_5", "template_chatml.jinja", "qwen3-instruct"])
def test_names_of_chatml(name):
    assert named(name) == {"ChatML"}


@pytest.mark.parametrize("name", ["", "default", "my_template.jinja", "mllama", "qwenish"])
def test_unknown_names_stay_unknown(name):
    assert named(name) == frozenset()


@pytest.mark.parametrize(
    ("value", "expected"), [("1280*28*28", 1003520.0), (512, 262144.0), (1003520, 1003520.0), ("auto", None), ("9" * 400, None)]
)
def test_limits_of_pictures(value, expected):
    assert area(value) == expected


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=2000))
def test_readings_of_hostile_text_return(text):
    families(text)
    systems(text)
    named(text)
    area(text)
    loops(text)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=400), st.text(max_size=400), st.integers(0, 10**12))
def test_no_case_errs_on_hostile_files(tmp_path, log, template, number):
    (tmp_path / "serve.log").write_text(
        f"{log}\nImage features and image tokens do not match: tokens: {number}, features {number}\n",
        encoding="utf-8",
        errors="replace",
    )
    (tmp_path / "Modelfile").write_text(
        f'FROM x\nTEMPLATE """{template}"""\nPARAMETER num_ctx {number}\nPARAMETER temperature {number}\n',
        encoding="utf-8",
        errors="replace",
    )
    for diagnosis in diagnose(tmp_path):
        assert not [finding for finding in diagnosis.findings if finding.verdict == "errored" and finding.case in MINE]


@pytest.mark.corpus
def test_stock_templates_agree_with_themselves_and_with_no_other_family(corpus):
    """Every public tokenizer's template: served as it is, ruled out; served by one of another family, confirmed."""
    case = next(case for case in found("tuneclinic.casebook", Case) if case.id == "serving-template-differs")
    seen = [run.evidence for path in sorted((corpus / "tokenizers").iterdir()) for run in runs([path])]
    stock = [one for one in seen if one.tokenizer is not None and one.tokenizer.template and families(one.tokenizer.template)]
    assert len(stock) >= 15
    for one in stock:
        for other in stock:
            served = Evidence(
                tokenizer=one.tokenizer, serving=Serving("gguf", template=other.tokenizer.template, sources=("m.gguf",))
            )
            mine, theirs = families(one.tokenizer.template), families(other.tokenizer.template)
            verdict = case.detect(served).verdict
            if mine & theirs:
                assert verdict == ("ruled_out" if one is other else verdict)
                assert verdict in {"ruled_out", "suspected"}
            else:
                assert verdict == ("suspected" if "plain roles" in mine | theirs else "confirmed")


@pytest.mark.corpus
def test_no_alarm_over_the_corpus(corpus):
    """None of these cases is confirmed or suspected on its own evidence over the public runs, settings and tokenizers."""
    raised = [
        (path.name, finding.case)
        for part in ("tokenizers", "configs", "runs")
        for path in sorted((corpus / part).iterdir())
        for diagnosis in diagnose(path)
        for finding in diagnosis.findings
        if finding.case in MINE and finding.verdict in {"confirmed", "suspected", "errored"} and not finding.prior_only
    ]
    assert raised == []
