"""Runs rebuilt from the facts of public reports: what the user had in the folder, and what was at fault (training side).

Each case: the fault in words → (files, wanted cases, rank). Rank is "prime" (confirmed, or the first suspect), "top3", or "no_fault".
"""

import numpy as np
from parts_b import chats, dump, falling, hf, lines, noise, rows, tokenizer, traceback
from scripts_b import (
    DECODER_SHIFT,
    NO_SHIFT_NEEDED,
    OWN_TOKENIZER,
    PAD_ADDED,
    PRE_SHIFT,
    UNSHIFTED_METRIC,
)

LLAVA_LOSS = [
    str({"loss": 0.0, "learning_rate": round(2e-4 * min(1, n / 3), 10), "epoch": round(n / 500, 2)}) for n in range(1, 31)
]


def llava(pairs, losses=LLAVA_LOSS):
    warnings = [f"WARNING: tokenization mismatch: {got} vs. {wanted}. (ignored)" for got, wanted in pairs]
    out = []
    for at in range(max(len(warnings), len(losses))):
        out += warnings[at : at + 1] + losses[at : at + 1]
    return lines("You are using a model of type llava to instantiate a model of type llava_llama.", *out)


ASSERT = (
    "../aten/src/ATen/native/cuda/Indexing.cu:1292: indexSelectLargeIndex: block: [412,0,0], thread: [64,0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed."
)
ASSERTED = traceback(
    ('"/opt/env/lib/python3.10/site-packages/transformers/trainer.py", line 1539, in train', "return inner_training_loop("),
    (
        '"/opt/env/lib/python3.10/site-packages/transformers/models/llama/modeling_llama.py", line 810, in forward',
        "if attention_mask is not None and 0.0 in attention_mask:",
    ),
    error="RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
)
GRPO = [
    str(
        {
            "loss": round(float(0.0004 * n), 6),
            "grad_norm": 0.41 + n / 400,
            "learning_rate": 1e-6,
            "completion_length": 180 + n % 9,
            "rewards/accuracy_reward": round(min(0.97, 0.35 + n / 40), 3),
            "reward": round(min(1.95, 1.0 + n / 30), 3),
            "reward_std": round(max(0.03, 0.4 - n / 60), 3),
            "kl": round(0.0005 * n * n, 4),
            "epoch": round(n * 0.5, 2),
        }
    )
    for n in range(1, 41)
]

CASES = {
    "own answers weaker than the instruct model's": (
        {
            "sft.yaml": lines(
                "model_name_or_path: Qwen/Qwen2.5-Coder-7B-Instruct",
                "stage: sft",
                "do_train: true",
                "finetuning_type: full",
                "dataset: own_code",
                "template: qwen",
                "learning_rate: 1.0e-5",
                "num_train_epochs: 3.0",
                "bf16: true",
            ),
            "scores.md": lines(
                "| task | base | tuned |",
                "|---|---|---|",
                "| humaneval | 88.4 | 71.3 |",
                "| mbpp | 83.5 | 70.1 |",
                "| own_code (domain) | 41.0 | 58.0 |",
            ),
            "own_code.jsonl": rows(*chats(60)),
        },
        {"no-general-data", "too-many-epochs", "lr-too-high"},
        "prime",
    ),
    "reward training on a small set loses other skills": (
        {
            "grpo.log": lines("***** Running training *****", "  Num examples = 120", "  Num Epochs = 20", *GRPO),
            "scores.csv": lines("task,base,tuned", "grounding (domain),52.1,83.0", "ifeval,61.4,38.2", "edit_prompts,70.5,31.0"),
        },
        {"no-general-data", "too-many-epochs", "too-little-data", "kl-blows-up"},
        "prime",
    ),
    "two cards double the global batch and step the scheduler twice": (
        {
            "train.py": lines(
                "import torch",
                "from accelerate import Accelerator",
                "from transformers import get_linear_schedule_with_warmup",
                "accelerator = Accelerator()",
                "optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4 / 3)",
                "scheduler = get_linear_schedule_with_warmup(optimizer, 750, 20000)",
                "model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
                "for step, batch in enumerate(loader):",
                "    loss = model(**batch).loss / accelerator.num_processes",
                "    accelerator.backward(loss)",
                "    optimizer.step()",
                "    scheduler.step()",
                "    optimizer.zero_grad()",
            ),
            **{
                f"cards_{cards}/{name}": text
                for cards, last in ((1, 4.6), (2, 5.4))
                for name, text in (
                    ("launch.sh", f"accelerate launch --num_processes {cards} train.py --per_device_train_batch_size 16\n"),
                    (
                        "train.log",
                        lines(
                            *(
                                f"step {n} loss {loss:.4f} lr {2e-4 * min(1.0, n * cards / 750):.3e}"
                                for n, loss in zip(range(25, 1001, 25), falling(9.8, last, 40, seed=cards), strict=True)
                            )
                        ),
                    ),
                )
            },
        },
        {"global-batch-grew"},
        "prime",
    ),
    "eight cards take an eighth of the updates": (
        {
            f"{name}/train.log": lines(
                "***** Running training *****",
                "  Num examples = 52,000",
                "  Num Epochs = 3",
                "  Instantaneous batch size per device = 4",
                f"  Total train batch size (w. parallel, distributed & accumulation) = {4 * cards}",
                "  Gradient Accumulation steps = 1",
                f"  Total optimization steps = {39000 // cards:,}",
                *hf(falling(1.9, last, 40, seed=cards), every=100 // cards, per_epoch=13000 // cards),
            )
            for name, cards, last in (("one_card", 1, 0.95), ("eight_cards", 8, 1.22))
        },
        {"global-batch-grew"},
        "prime",
    ),
    "training runs on the processor": (
        {
            "train.log": lines(
                "/opt/env/lib/python3.10/site-packages/bitsandbytes/cextension.py:34: UserWarning: The installed version of bitsandbytes was compiled without GPU support. 8-bit optimizers, 8-bit multiplication, and GPU quantization are unavailable.",
                "trainable params: 9232384 || all params: 6182916096 || trainable%: 0.1493",
                "[INFO|trainer.py:577] >> Using cpu_amp half precision backend",
                "[INFO|trainer.py:1786] >> ***** Running training *****",
                "[INFO|trainer.py:1787] >>   Num examples = 91",
                "[INFO|trainer.py:1788] >>   Num Epochs = 3",
                "  2%|▏         | 1/66 [04:31<4:53:36, 271.02s/it]",
            )
        },
        {"running-on-cpu"},
        "prime",
    ),
    "conversation version of another base, two tokens apart": (
        {
            "finetune.sh": lines(
                "deepspeed llava/train/train_mem.py --deepspeed scripts/zero3.json --lora_enable True \\",
                "  --model_name_or_path liuhaotian/llava-v1.6-34b --version v1 --learning_rate 2e-4 --bf16 True --num_train_epochs 1",
            ),
            "train.log": llava([(102 + n % 40, 104 + n % 40) for n in range(90)]),
        },
        {"chat-template-broken", "all-labels-masked"},
        "prime",
    ),
    "conversation version of another base, fourteen tokens apart": (
        {"train.log": llava([(385 - 4 * n, 399 - 4 * n) for n in range(60)])},
        {"chat-template-broken", "all-labels-masked"},
        "prime",
    ),
    "a rare mismatch by design": (
        {
            "train.log": llava(
                [(512, 517), (1031, 1034)],
                [
                    str({"loss": round(float(v), 4), "learning_rate": 2e-5, "epoch": round(n / 400, 2)})
                    for n, v in enumerate(falling(1.6, 0.9, 60), 1)
                ],
            )
        },
        set(),
        "no_fault",
    ),
    "several pictures in a row, nearly all of it dropped": (
        {"train.log": llava([(2, 89 + n) for n in range(40)])},
        {"chat-template-broken", "all-labels-masked", "image-placeholder-mismatch"},
        "prime",
    ),
    "one row with an empty answer": (
        {
            "train.log": llava(
                [(0, 61)],
                [
                    str({"loss": round(float(v), 4), "learning_rate": 2e-5, "epoch": round(n / 400, 2)})
                    for n, v in enumerate(falling(1.4, 0.8, 60), 1)
                ],
            ),
            "mix.json": dump(
                [
                    {
                        "id": f"{n:06d}",
                        "conversations": [
                            {"from": "human", "value": f"What does sign {n} say about {('ferries', 'parking')[n % 2]}?"},
                            {"from": "gpt", "value": "" if n == 23 else f"It says that line {n} closes at {n % 12} o'clock."},
                        ],
                    }
                    for n in range(60)
                ]
            ),
        },
        {"empty-answers"},
        "prime",
    ),
    "labels moved by the data set and again by the model": (
        {
            "train.py": PRE_SHIFT,
            "train.log": lines(*(f"step {10 * n} loss {v:.4f}" for n, v in enumerate(falling(9.1, 6.3, 40)))),
        },
        {"labels-shifted-twice"},
        "prime",
    ),
    "decoder inputs moved and the loss moves again": (
        {"modeling_captioner.py": DECODER_SHIFT},
        {"labels-shifted-twice"},
        "prime",
    ),
    "labels copied as they are for a model that moves them": (
        {
            "train.py": NO_SHIFT_NEEDED,
            "requirements.txt": lines("transformers==4.46.1", "torch==2.5.1"),
            "train.log": lines(*hf(falling(2.3, 1.7, 40))),
        },
        set(),
        "no_fault",
    ),
    "metric compares a position with itself": ({"evaluate_lm.py": UNSHIFTED_METRIC}, {"metric-not-shifted"}, "prime"),
    "pad token added without a row for it": (
        {"train.py": PAD_ADDED, "train.log": lines(*[ASSERT] * 6, *ASSERTED)},
        {"token-id-out-of-range"},
        "prime",
    ),
    "tokenizer of one's own on a smaller embedding": (
        {
            "train.py": OWN_TOKENIZER,
            "config.json": dump({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 50257, "n_embd": 768}),
            "train.log": lines(ASSERT.replace("1292", "1141"), *ASSERTED),
        },
        {"token-id-out-of-range"},
        "prime",
    ),
    "three point markers above the embedding": (
        {
            "config.json": dump(
                {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096}
            ),
            "added_tokens.json": dump({"<point_patch>": 32000, "<point_start>": 32001, "<point_end>": 32002}),
            "train.log": lines(ASSERT, *ASSERTED),
        },
        {"token-id-out-of-range"},
        "prime",
    ),
    "second stage forgot the first stage's tokens": (
        {
            "run_sft.log": lines(
                "Num examples = 7944",
                "Total optimization steps = 993",
                "  0%|          | 0/993 [00:00<?, ?it/s]" + ASSERT,
                *ASSERTED,
            )
        },
        {"token-id-out-of-range"},
        "prime",
    ),
    "losses far too low after a change of normalisation": (
        {
            "requirements.txt": lines("transformers==4.46.0", "unsloth==2024.10.7", "trl==0.11.4", "torch==2.4.1"),
            "sft.yaml": lines(
                "model_name_or_path: Qwen/Qwen2.5-7B-Instruct",
                "stage: sft",
                "finetuning_type: lora",
                "use_unsloth: true",
                "gradient_accumulation_steps: 8",
                "per_device_train_batch_size: 2",
                "learning_rate: 1.0e-4",
            ),
            "train.log": lines(*hf(falling(1.6, 1.1, 40) / 8, rates=[1e-4] * 40)),
        },
        {"accumulation-misnormalised", "version-mismatch"},
        "prime",
    ),
    "projector pre-training prints nothing but zero": (
        {
            "pretrain.sh": "deepspeed llava/train/train_mem.py --deepspeed zero2.json --model_name_or_path lmsys/vicuna-13b-v1.5 --version plain --tune_mm_mlp_adapter True --bf16 True --learning_rate 1e-3\n",
            "train.log": lines(*LLAVA_LOSS),
            "requirements.txt": lines("deepspeed==0.12.6", "torch==2.1.2", "transformers==4.37.2"),
        },
        {"all-labels-masked", "nan-hidden-by-logging", "version-mismatch"},
        "prime",
    ),
    "messages already parsed are parsed again": (
        {
            "train.log": lines(
                *traceback(
                    ('"mlx_vlm/lora.py", line 98, in main', "dataset = dataset.map(process_data)"),
                    ('"mlx_vlm/trainer/trainer.py", line 70, in __getitem__', "conversation = json.loads(item['messages'])"),
                    error="TypeError: the JSON object must be str, bytes or bytearray, not dict",
                )
            ),
            "train.jsonl": rows(*chats(20)),
        },
        {"malformed-rows", "version-mismatch", "error-in-script"},
        "prime",
    ),
    "no start token for a model that needs it": (
        {
            "train.py": lines(
                "from trl import SFTConfig, SFTTrainer",
                "from transformers import AutoModelForCausalLM, AutoTokenizer",
                "tokenizer = AutoTokenizer.from_pretrained('google/gemma-7b', add_bos_token=False)",
                "model = AutoModelForCausalLM.from_pretrained('google/gemma-7b')",
                "args = SFTConfig('out', packing=True, max_seq_length=2048, learning_rate=2e-5)",
                "SFTTrainer(model, args=args, train_dataset=data, tokenizer=tokenizer).train()",
            ),
            "tokenizer_config.json": tokenizer("", "<eos>", {"<bos>": 2, "<eos>": 1}, bos="<bos>", add_bos_token=False),
            "train.log": lines(*hf(falling(22.0, 8.5, 40))),
        },
        {"start-token-missing"},
        "prime",
    ),
    "gradients never finite and steps skipped in silence": (
        {
            "ds.json": dump({"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}),
            "train.log": lines(
                *hf(2.41 + noise(40, 0.06, 5), rates=[min(n, 5) * 2e-6 for n in range(1, 41)], grads=[np.inf] * 40)
            ),
        },
        {"weights-already-nonfinite", "nan-hidden-by-logging", "attention-kernel-fault"},
        "top3",
    ),
}
