"""Memory, pictures, saving, loading, merging, target modules."""

from shapes_a import Rebuilt, config, crash, healthy, jsonl, lines, safetensors

EVAL_OOM = [
    ("train.py", 88, "<module>", "trainer.train()"),
    ("/opt/lib/python3.10/site-packages/transformers/trainer.py", 3019, "evaluate", "output = eval_loop("),
    (
        "/opt/lib/python3.10/site-packages/transformers/trainer.py",
        3240,
        "evaluation_loop",
        "preds_host = logits if preds_host is None else nested_concat(preds_host, logits, padding_index=-100)",
    ),
    (
        "/opt/lib/python3.10/site-packages/transformers/trainer_pt_utils.py",
        123,
        "nested_concat",
        "return torch_pad_and_concatenate(",
    ),
    (
        "/opt/lib/python3.10/site-packages/transformers/trainer_pt_utils.py",
        85,
        "torch_pad_and_concatenate",
        "result = tensor1.new_full(",
    ),
]


def wanted(names):
    """PEFT's error about module names."""
    return crash(
        [
            ("finetune.py", 31, "<module>", "model = get_peft_model(model, config)"),
            ("/opt/lib/python3.10/site-packages/peft/tuners/lora.py", 270, "_find_and_replace", "raise ValueError("),
        ],
        f"ValueError: Target modules {names} not found in the base model. Please check the target modules and try again.",
    )


PAIRS = {
    f"base_model.model.transformer_blocks.{layer}.attn.{name}.lora_{side}.weight": shape
    for layer in range(2)
    for name in ("to_q", "to_k", "to_v")
    for side, shape in (("A", (16, 256)), ("B", (256, 16)))
}

CASES = [
    Rebuilt(
        "evaluation collects all logits until the card is full",
        {
            "train.py": (
                "from transformers import Trainer, TrainingArguments\n"
                "args = TrainingArguments('out', evaluation_strategy='steps', eval_steps=500, per_device_eval_batch_size=8)\n"
                "Trainer(model, args, train_dataset=train, eval_dataset=held, compute_metrics=scores).train()\n"
            ),
            "train.log": healthy(81, count=20)
            + crash(
                EVAL_OOM,
                "RuntimeError: CUDA out of memory. Tried to allocate 7.56 GiB (GPU 0; 23.70 GiB total capacity; 13.20 GiB already "
                "allocated; 6.10 GiB free; 15.90 GiB reserved in total by PyTorch)",
            ),
        },
        ("eval-gathers-logits",),
    ),
    Rebuilt(
        "training fits in 10.6 GB, evaluation climbs until 4.44 GiB are refused",
        {
            "run.log": healthy(82, count=20)
            + lines("***** Running Evaluation *****", "  Num examples = 5000", "  Batch size = 8")
            + crash(
                EVAL_OOM[1:],
                "RuntimeError: CUDA out of memory. Tried to allocate 4.44 GiB (GPU 0; 10.76 GiB total capacity; 5.11 GiB already "
                "allocated; 3.22 GiB free; 6.49 GiB reserved in total by PyTorch)",
            )
        },
        ("eval-gathers-logits",),
    ),
    Rebuilt(
        "memory rises in jumps where longer rows arrive, out of memory at batch 1",
        {
            "args.json": '{"per_device_train_batch_size": 1, "learning_rate": 1e-4, "group_by_length": false}',
            "train.jsonl": jsonl(
                *(
                    {
                        "instruction": f"Sum up note {row}.",
                        "output": f"Note {row} says that {'very ' * (row % 9)}many parts are due. "
                        * (260 if row in (170, 220) else 2),
                    }
                    for row in range(240)
                )
            ),
            "train.log": lines(
                healthy(83, count=40).strip(),
                crash(
                    [
                        (
                            "/opt/lib/python3.10/site-packages/transformers/trainer.py",
                            1901,
                            "training_step",
                            "loss = self.compute_loss(model, inputs)",
                        ),
                        (
                            "/opt/lib/python3.10/site-packages/transformers/models/llama/modeling_llama.py",
                            350,
                            "forward",
                            "attn_weights = nn.functional.softmax(attn_weights)",
                        ),
                    ],
                    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.13 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.02 GiB "
                    "is free. Including non-PyTorch memory, this process has 78.12 GiB memory in use. Of the allocated memory 75.90 GiB is allocated by "
                    "PyTorch, and 1.40 GiB is reserved by PyTorch but unallocated.",
                ),
            ),
        },
        ("long-samples",),
    ),
    Rebuilt(
        "trained on a 4-bit base, merged into a 16-bit one",
        {
            "train.py": (
                "from transformers import AutoModelForCausalLM, BitsAndBytesConfig\n"
                "bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4')\n"
                "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-2-7b-hf', quantization_config=bnb)\n"
            ),
            "merge.py": (
                "import torch\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n"
                "base = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-2-7b-hf', torch_dtype=torch.float16)\n"
                "model = PeftModel.from_pretrained(base, 'out').merge_and_unload()\n"
                "model.save_pretrained('merged')\n"
            ),
            "scores.csv": "task,base,tuned,tuned and merged\ngsm8k,0.21,0.48,0.33\nmmlu,0.45,0.46,0.44\n",
        },
        ("quantised-base-differs", "merged-in-low-precision"),
    ),
    Rebuilt(
        "merge refused on an 8-bit base",
        {
            "merge.log": crash(
                [("merge.py", 12, "<module>", "model = model.merge_and_unload()")],
                "ValueError: Cannot merge LORA layers when the model is loaded in 8-bit mode",
            )
        },
        ("merged-into-quantised-base",),
    ),
    Rebuilt(
        "adapter file of 400 bytes behind an overridden state_dict",
        {
            "adapter_model.bin": b"\x80\x02}q\x00." + b"\x00" * 394,
            "adapter_config.json": '{"peft_type": "LORA", "r": 64, "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "huggyllama/llama-7b"}',
            "qlora.py": (
                "from peft import get_peft_model, get_peft_model_state_dict\n"
                "model = get_peft_model(model, config)\nold_state_dict = model.state_dict\n"
                "model.state_dict = (lambda self, *_, **__: get_peft_model_state_dict(self, old_state_dict())).__get__(model, type(model))\n"
                "trainer.train()\nmodel.save_pretrained('out')\n"
            ),
        },
        ("saved-adapter-empty",),
    ),
    Rebuilt(
        "adapter with new tokens loaded on a base that was not resized",
        {
            "load.log": crash(
                [("load.py", 9, "<module>", "model = PeftModel.from_pretrained(base, 'out')")],
                "RuntimeError: Error(s) in loading state_dict for PeftModelForCausalLM:\n"
                "\tsize mismatch for base_model.model.model.embed_tokens.weight: copying a param with shape torch.Size([32004, 4096]) from checkpoint, "
                "the shape in current model is torch.Size([32000, 4096]).\n"
                "\tsize mismatch for base_model.model.lm_head.weight: copying a param with shape torch.Size([32004, 4096]) from checkpoint, "
                "the shape in current model is torch.Size([32000, 4096]).",
            )
        },
        ("state-dict-mismatch", "new-embeddings-untrained", "tokenizer-not-shipped"),
    ),
    Rebuilt(
        "does modules_to_save train fully? nothing is wrong",
        {
            "adapter_config.json": (
                '{"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"], '
                '"modules_to_save": ["embed_tokens", "lm_head"], "base_model_name_or_path": "meta-llama/Llama-2-7b-hf"}'
            ),
            "train.log": healthy(84),
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "special tokens changed under an adapter without embed_tokens and lm_head",
        {
            "config.yaml": lines(
                "base_model: meta-llama/Meta-Llama-3-8B",
                "adapter: qlora",
                "load_in_4bit: true",
                "lora_r: 32",
                "lora_alpha: 16",
                "lora_target_linear: true",
                "sequence_len: 4096",
                "micro_batch_size: 2",
                "num_epochs: 2",
                "learning_rate: 0.0002",
                "datasets:",
                "  - path: tatsu-lab/alpaca",
                "    type: alpaca",
                "special_tokens:",
                '  pad_token: "<|pad|>"',
            ),
            "axolotl.log": crash(
                [("/workspace/axolotl/src/axolotl/utils/models.py", 260, "load_tokenizer", "raise ValueError(")],
                "ValueError: Please set lora_modules_to_save to [`embed_tokens`, `lm_head`] when using an adapter and changing the special tokens.",
            ),
        },
        ("new-embeddings-untrained",),
    ),
    Rebuilt(
        "some target names match nothing, without a word",
        {
            "adapter_config.json": (
                '{"peft_type": "LORA", "r": 16, "lora_alpha": 16, "target_modules": ["to_q", "to_k", "to_v", "to_add_out.0", "ff.0"]}'
            ),
            "adapter_model.safetensors": safetensors(PAIRS),
        },
        ("target-modules-missing",),
    ),
    Rebuilt("GPT-2's fused name asked of BioGPT", {"err.log": wanted("['c_attn']")}, ("target-modules-missing",)),
    Rebuilt(
        "a regular expression in a list no longer matches",
        {
            "train.py": (
                "from peft import LoraConfig, get_peft_model\n"
                "config = LoraConfig(r=8, target_modules=['.*decoder.*(q_proj|v_proj)$'])\nmodel = get_peft_model(model, config)\n"
            ),
            "err.log": wanted("{'.*decoder.*(q_proj|v_proj)$'}"),
            "requirements.txt": "peft==0.6.2\n",
        },
        ("target-modules-missing",),
    ),
    Rebuilt(
        "NeoX names on a LLaMA",
        {"err.log": wanted("['query_key_value', 'dense', 'dense_h_to_4h', 'dense_4h_to_h']"), "config.json": config("llama")},
        ("target-modules-missing",),
    ),
    Rebuilt(
        "query and value asked of a fused attention", {"stderr.txt": wanted("{'value', 'query'}")}, ("target-modules-missing",)
    ),
    Rebuilt(
        "tied model: the file rightly has no head",
        {
            "config.json": config("qwen2", tie_word_embeddings=True),
            "model.safetensors": safetensors(
                {
                    "model.embed_tokens.weight": (64, 16),
                    "model.layers.0.self_attn.q_proj.weight": (16, 16),
                    "model.norm.weight": (16,),
                }
            ),
            "train.log": healthy(85),
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "a loader refuses the head of a tuned tied model",
        {
            "serve.log": crash(
                [
                    (
                        "/opt/lib/python3.10/site-packages/vllm/model_executor/models/qwen2.py",
                        349,
                        "load_weights",
                        "param = params_dict[name]",
                    )
                ],
                "KeyError: 'lm_head.weight'",
            ),
            "config.json": config("qwen2", tie_word_embeddings=True),
            "model.safetensors": safetensors(
                {"model.embed_tokens.weight": (64, 16), "lm_head.weight": (64, 16), "model.norm.weight": (16,)}
            ),
        },
        ("tied-weights-lost",),
    ),
    Rebuilt(
        "saving stops at tensors that are shared and not declared so",
        {
            "save.log": crash(
                [
                    (
                        "/opt/lib/python3.11/site-packages/transformers/modeling_utils.py",
                        2800,
                        "save_pretrained",
                        "raise RuntimeError(",
                    )
                ],
                "RuntimeError: The weights trying to be saved contained shared tensors [{'language_model.model.embed_tokens.weight', "
                "'vision_model.wte.weight'}] that are mismatching the transformers base configuration. Try saving using `safe_serialization=False` "
                "or remove this tensor sharing.",
            )
        },
        ("tied-weights-lost",),
    ),
]
