"""Model, adapter, generation and tokenizer files."""

import json

import pytest

from tuneclinic.probes.readers._parameters import parameters_of

LLAMA3 = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "eos_token_id": [128001, 128009],
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 8192,
}


def shapes(kind, hidden, layers, vocabulary, wide, heads, groups=None, **more):  # noqa: PLR0917 - rows of a table
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "vocab_size": vocabulary,
        "intermediate_size": wide,
        "num_attention_heads": heads,
        **({"num_key_value_heads": groups} if groups else {}),
        **more,
    }


UNTIED = {"tie_word_embeddings": False}
TIED = {"tie_word_embeddings": True}
PUBLISHED = {
    "Llama-3-8B": (LLAMA3, 8_030_261_248),
    "Qwen2.5-0.5B": (shapes("qwen2", 896, 24, 151936, 4864, 14, 2, **TIED), 494_032_768),
    "Qwen2.5-7B": (shapes("qwen2", 3584, 28, 152064, 18944, 28, 4, **UNTIED), 7_615_616_512),
    "Qwen3-0.6B": (shapes("qwen3", 1024, 28, 151936, 3072, 16, 8, head_dim=128, **TIED), 596_049_920),
    "Mixtral-8x7B": (shapes("mixtral", 4096, 32, 32000, 14336, 32, 8, num_local_experts=8, **UNTIED), 46_702_792_704),
    "Qwen3-30B-A3B": (
        shapes(
            "qwen3_moe",
            2048,
            48,
            151936,
            6144,
            32,
            4,
            head_dim=128,
            num_experts=128,
            moe_intermediate_size=768,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            **UNTIED,
        ),
        30_532_122_624,
    ),
    "gemma-2-2b": (shapes("gemma2", 2304, 26, 256000, 9216, 8, 4, head_dim=256), 2_614_341_888),
    "gemma-3-1b": (shapes("gemma3_text", 1152, 26, 262144, 6912, 4, 1, head_dim=256), 999_885_952),
    "phi-2": (shapes("phi", 2560, 32, 51200, 10240, 32, 32, **UNTIED), 2_779_683_840),
    "Phi-3-mini": (shapes("phi3", 3072, 32, 32064, 8192, 32, 32, **UNTIED), 3_821_079_552),
    "pythia-1.4b": (shapes("gpt_neox", 2048, 24, 50304, 8192, 16, **UNTIED), 1_414_647_808),
    "starcoder2-3b": (shapes("starcoder2", 3072, 30, 49152, 12288, 24, 2), 3_030_371_328),
    "bert-base": (shapes("bert", 768, 12, 30522, 3072, 12, max_position_embeddings=512, type_vocab_size=2), 109_482_240),
    "gpt2": (
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
        124_439_808,
    ),
    "bloom-560m": ({"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880}, 559_214_592),
    "falcon-7b": (
        {
            "model_type": "falcon",
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "vocab_size": 65024,
            "multi_query": True,
        },
        6_921_720_704,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_shapes_add_up_to_the_published_number_of_parameters(name):
    config, published = PUBLISHED[name]
    assert parameters_of(config) == published


def test_deepseek_and_a_vision_model_are_within_a_thousandth():
    deepseek = shapes(
        "deepseek_v3",
        7168,
        61,
        129280,
        18432,
        128,
        128,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        n_shared_experts=1,
        first_k_dense_replace=3,
        moe_layer_freq=1,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        **UNTIED,
    )
    assert parameters_of(deepseek) == pytest.approx(671_026_419_200, rel=1e-3)
    tower = {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 1536, "patch_size": 14, "spatial_merge_size": 2}
    vision = shapes("qwen2_vl", 1536, 28, 151936, 8960, 12, 2, vision_config={**tower, "temporal_patch_size": 2}, **TIED)
    assert parameters_of(vision) == pytest.approx(2_208_985_600, rel=1e-3)


def test_shapes_that_are_not_counted_give_no_number():
    assert parameters_of({}) is None
    assert parameters_of({**LLAMA3, "is_encoder_decoder": True}) is None
    assert parameters_of({**LLAMA3, "mamba_d_state": 16}) is None
    assert parameters_of({**LLAMA3, "hidden_size": "big"}) is None


def test_model_configuration(read):
    seen = read(json.dumps(LLAMA3, indent=1), "config.json").evidence
    assert seen.model.parameters == 8_030_261_248
    assert (seen.model.architecture, seen.model.dtype, seen.model.tied, seen.model.vision) == (
        "LlamaForCausalLM",
        "bfloat16",
        False,
        False,
    )
    assert seen.model.places["dtype"] == "config.json:17"
    assert seen.tokenizer.config_eos == (128001, 128009)
    assert seen.settings is None


def test_a_nested_language_model_is_looked_into(read):
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "image_token_index": 32000,
        "text_config": {k: v for k, v in LLAMA3.items() if k != "architectures"},
        "vision_config": {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "intermediate_size": 4096,
            "patch_size": 14,
            "image_size": 336,
        },
        "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    }
    model = read(json.dumps(config), "config.json").evidence.model
    assert (model.hidden, model.layers, model.vision, model.image_token_id) == (4096, 32, True, 32000)
    assert model.quantization == "bitsandbytes-4bit"
    assert 8.2e9 < model.parameters < 8.5e9


def test_a_stretched_context_is_a_setting(read):
    config = {**LLAMA3, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    settings = read(json.dumps(config), "config.json").evidence.settings
    assert settings.get("rope_scaling") == "yarn"
    assert settings.unknown["rope_scaling.factor"].value == 4.0


def test_adapter_configuration(read):
    config = {
        "peft_type": "LORA",
        "r": 8,
        "lora_alpha": 16,
        "lora_dropout": 0.05,
        "target_modules": ["v_proj", "q_proj"],
        "modules_to_save": None,
        "base_model_name_or_path": "a/b",
        "inference_mode": True,
    }
    seen = read(json.dumps(config, indent=2), "adapter_config.json").evidence
    adapter = seen.model.adapter
    assert (adapter.rank, adapter.alpha, adapter.target_modules, adapter.base) == (8.0, 16.0, ("q_proj", "v_proj"), "a/b")
    assert seen.settings.get("method") == "lora"
    assert seen.settings.values["lora_rank"].where == "adapter_config.json:3"


def test_generation_configuration(read):
    seen = read(
        '{"eos_token_id": [1, 2], "temperature": 0.6, "do_sample": true, "max_length": 4096}', "generation_config.json"
    ).evidence
    assert seen.tokenizer.generation_eos == (1, 2)
    assert seen.settings.get("temperature") == 0.6
    assert "max_length" not in seen.settings
    empty = read('{"_from_model_config": true}', "generation_config.json")
    assert not empty.understood
    assert empty.note


def test_tokenizer_configuration_with_objects_and_named_templates(read):
    config = {
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "pad_token": None,
        "model_max_length": 10**30,
        "add_bos_token": True,
        "padding_side": "left",
        "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D{{ messages }}"}],
        "added_tokens_decoder": {
            "2": {"content": "</s>", "special": True},
            "7": {"content": "<|im_end|>", "special": False},
            "x": {"content": "<bad>"},
            "8": 3,
        },
    }
    tokenizer = read(json.dumps(config), "tokenizer_config.json").evidence.tokenizer
    assert (tokenizer.bos, tokenizer.eos, tokenizer.pad) == ("<s>", "</s>", None)
    assert tokenizer.template == "D{{ messages }}"
    assert tokenizer.templates == ("tool_use", "default")
    assert tokenizer.ids == {"</s>": 2, "<|im_end|>": 7}
    assert tokenizer.not_special == ("<|im_end|>",)
    assert tokenizer.model_max_length == 1e30
    assert (tokenizer.adds_bos, tokenizer.padding_side) == (True, "left")


def test_templates_in_files_of_their_own(read):
    text = "{% for message in messages %}<|im_start|>{{ message.role }}{% endfor %}"
    assert read(text, "chat_template.jinja").evidence.tokenizer.template == text
    assert read(json.dumps({"chat_template": text}), "chat_template.json").evidence.tokenizer.template == text
    assert read("", "chat_template.jinja").note


def test_tokenizer_json_is_read_without_its_vocabulary(read):
    processor = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
    }
    content = {
        "added_tokens": [{"id": 0, "content": "<s>", "special": True}, {"id": 500, "content": "<|x|>", "special": False}],
        "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}, processor]},
        "model": {"type": "BPE", "vocab": {f"t{i}": i for i in range(400)}, "merges": ["a b"]},
    }
    tokenizer = read(json.dumps(content), "tokenizer.json").evidence.tokenizer
    assert tokenizer.vocabulary == 501
    assert tokenizer.adds_bos is True
    assert tokenizer.ids["<|x|>"] == 500
    assert tokenizer.not_special == ("<|x|>",)


def test_files_that_only_stand_for_others_are_named_as_such(read):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "adapter_config.json"):
        assert "git lfs pull" in read(pointer, name).note.en
    assert "another file" in read("../tokenizer/tokenizer.json", "tokenizer.json").note.en
