"""Losses, gradients, schedules and accumulation."""

from shapes_a import Rebuilt, config, cosine, curve, lines, trainer

NAN = float("nan")

LORA_BF16 = lines(
    "model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct",
    "stage: sft",
    "do_train: true",
    "finetuning_type: lora",
    "lora_target: all",
    "lora_rank: 8",
    "dataset: identity,alpaca_en_demo",
    "template: qwen",
    "cutoff_len: 2048",
    "per_device_train_batch_size: 1",
    "gradient_accumulation_steps: 8",
    "learning_rate: 1.0e-4",
    "num_train_epochs: 3.0",
    "lr_scheduler_type: cosine",
    "warmup_ratio: 0.1",
    "bf16: true",
)

ALL_NAN = [
    str({"loss": 0.0, "grad_norm": NAN, "learning_rate": rate, "epoch": round((i + 1) / 20, 2)})
    for i, rate in enumerate(cosine(1e-4, 60, warm=6))
]

OVER_IN_FOUR = [
    2e-5 * (step + 1) / 4 if step < 4 else max(0.0, 2e-5 * (1 - (step - 4) / 26)) for step in range(120)
]  # planned for 120 logged steps, gone after 30

ACCELERATE_LOOP = """
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup
import torch

accelerator = Accelerator(gradient_accumulation_steps=1)
model = AutoModelForCausalLM.from_pretrained("EleutherAI/pythia-410m")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
loader = DataLoader(train_set, batch_size=8, shuffle=True, collate_fn=collate)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
total = len(loader) * num_epochs
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=100, num_training_steps=total)
scheduler = accelerator.prepare(scheduler)
for epoch in range(num_epochs):
    for batch in loader:
        outputs = model(**batch)
        accelerator.backward(outputs.loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
"""

ACCELERATE_4 = lines(
    "compute_environment: LOCAL_MACHINE",
    "distributed_type: MULTI_GPU",
    "mixed_precision: bf16",
    "num_machines: 1",
    "num_processes: 4",
)


def repeated(per_epoch, epochs):
    """A loop's own print of the same losses in every epoch."""
    return [f"Epoch {epoch + 1}, Step {step + 1}, Loss: {loss}" for epoch in range(epochs) for step, loss in enumerate(per_epoch)]


def loop_rows(losses, rates):
    """A loop's own print with the learning rate."""
    return [
        f"step {10 * (i + 1)}: loss {loss:.4f}, lr {rate:.3e}" for i, (loss, rate) in enumerate(zip(losses, rates, strict=True))
    ]


CASES = [
    Rebuilt(
        "bf16 checkpoint loaded as fp16, evaluation loss NaN",
        {
            "config.json": config("qwen3"),
            "evaluate.py": (
                "import torch\nfrom transformers import AutoModelForCausalLM\n"
                'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B-Base", torch_dtype=torch.float16)\n'
                "model.eval()\n"
                "with torch.no_grad():\n    for batch in loader:\n        total += model(**batch).loss.item()\n"
            ),
            "eval.log": lines(*(f"batch {50 * (i + 1)}/2000 eval_loss: nan" for i in range(40)), "{'eval_loss': nan}"),
        },
        ("fp16-overflow",),
        "top3",
    ),
    Rebuilt(
        "fp16 MoE: finite loss, NaN gradient norm at the first step",
        {
            "train.py": (
                "from trl import SFTConfig, SFTTrainer\n"
                'args = SFTConfig(output_dir="out", per_device_train_batch_size=2, gradient_accumulation_steps=4,\n'
                "    learning_rate=2e-4, max_steps=30, fp16=True, bf16=False, logging_steps=1)\n"
                "trainer = SFTTrainer(model=model, args=args, train_dataset=data)\ntrainer.train()\n"
            ),
            "train.log": lines(
                "Unsloth: Will train the MoE layers in float16",
                [
                    str({"loss": loss, "grad_norm": NAN, "learning_rate": 2e-4 * min(1, i / 5), "epoch": 0.01 * (i + 1)})
                    for i, loss in enumerate([0.899, 0.912, 0.887, 0.905, 0.893, 0.921, 0.881, 0.899, 0.910, 0.902, 0.896, 0.889])
                ],
            ),
        },
        ("fp16-overflow",),
    ),
    Rebuilt(
        "attention kernel of one build: loss 0 and gradient NaN from the start, in bf16",
        {
            "sft.yaml": LORA_BF16,
            "running.log": lines(ALL_NAN),
            "requirements.txt": "torch==2.5.0+cu118\ntransformers==4.51.3\npeft==0.15.1\n",
        },
        ("attention-kernel-fault",),
        "top3",
        beside=("nan-hidden-by-logging",),
    ),
    Rebuilt(
        "gradient NaN while the rate is 0, then loss 0, on one cluster only",
        {
            "sft.yaml": LORA_BF16 + "deepspeed: ds_z2.json\n",
            "train.log": lines(
                "[2025-03-02 10:11:12,120] [INFO] [loss_scaler.py:190:backward] grad overflow on step 0",
                str({"loss": 0.8728, "grad_norm": NAN, "learning_rate": 0.0, "epoch": 0.01}),
                [str({"loss": 0.0, "grad_norm": NAN, "learning_rate": 0.0, "epoch": round(0.01 * i, 2)}) for i in range(2, 25)],
            ),
        },
        ("attention-kernel-fault",),
        "top3",
        beside=("nan-hidden-by-logging",),
    ),
    Rebuilt(
        "LoRA at 2e-4 on a vision model falls to 0.8, then climbs to 6 and swings",
        {
            "finetune_lora.sh": (
                "deepspeed llava/train/train_mem.py \\\n    --lora_enable True --lora_r 128 --lora_alpha 256 \\\n"
                "    --model_name_or_path lmsys/vicuna-7b-v1.5 \\\n    --bf16 True \\\n    --num_train_epochs 1 \\\n"
                "    --per_device_train_batch_size 16 \\\n    --learning_rate 2e-4 \\\n    --weight_decay 0. \\\n"
                '    --warmup_ratio 0.03 \\\n    --lr_scheduler_type "cosine" \\\n    --model_max_length 2048\n'
            ),
            "train.log": lines(
                trainer(
                    curve(1.5, 0.8, 80, 11) + curve(1.4, 6.2, 20, 12, noise=0.1) + curve(6.2, 6.2, 60, 13, noise=0.18),
                    cosine(2e-4, 160),
                    1.0,
                )
            ),
        },
        ("lr-too-high",),
    ),
    Rebuilt(
        "the loss steps down at every epoch over a small instruction set",
        {
            "train.log": lines(
                trainer(
                    curve(1.35, 1.05, 50, 21, 0.04) + curve(0.86, 0.84, 50, 22, 0.04) + curve(0.6, 0.58, 50, 23, 0.05),
                    cosine(2e-5, 150),
                    3.0,
                )
            ),
            "args.json": '{"num_train_epochs": 3, "learning_rate": 2e-05, "per_device_train_batch_size": 4}',
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "every epoch repeats the same losses",
        {"train.log": lines(repeated([0.9741, 1.3742, 1.2390, 1.1023, 0.8817, 1.4410, 1.0312, 0.9560], 5))},
        ("nothing-trainable", "optimizer-misses-parameters", "gradient-chain-broken"),
    ),
    Rebuilt(
        "loss doubled by accumulation in one release",
        {
            "accumulate_1/train.log": lines(trainer(curve(10.59, 5.8, 40, 31, 0.01), cosine(5e-5, 40), norms=[2.0] * 40)),
            "accumulate_1/args.json": '{"gradient_accumulation_steps": 1, "per_device_train_batch_size": 6, "learning_rate": 5e-05}',
            "accumulate_2/train.log": lines(trainer(curve(21.16, 11.7, 40, 32, 0.01), cosine(5e-5, 40), norms=[4.0] * 40)),
            "accumulate_2/args.json": '{"gradient_accumulation_steps": 2, "per_device_train_batch_size": 3, "learning_rate": 5e-05}',
            "requirements.txt": "transformers==4.47.0\ntorch==2.5.1\n",
        },
        ("accumulation-misnormalised",),
    ),
    Rebuilt(
        "loss eight times too large because a model takes no loss arguments",
        {
            "train.log": lines(
                [
                    row
                    for pair in zip(
                        trainer(curve(14.6, 9.4, 40, 33, 0.03), cosine(1e-4, 40), 2.0),
                        [
                            str({"eval_loss": value, "eval_runtime": 4.1, "epoch": round(2 * (i + 1) / 40, 2)})
                            for i, value in enumerate(curve(1.82, 1.17, 40, 34, 0.003))
                        ],
                        strict=True,
                    )
                    for row in pair
                ]
            ),
            "args.json": '{"gradient_accumulation_steps": 8, "per_device_train_batch_size": 2, "learning_rate": 1e-4}',
            "pip_freeze.txt": "transformers==4.47.1\ntorch==2.5.1\naccelerate==1.2.1\n",
        },
        ("accumulation-misnormalised",),
    ),
    Rebuilt(
        "the last, partial accumulation window halves the loss",
        {
            "train.py": (
                "from transformers import Trainer, TrainingArguments\n"
                'args = TrainingArguments("out", per_device_train_batch_size=2, gradient_accumulation_steps=4, learning_rate=0.0,\n'
                "    num_train_epochs=8, logging_steps=1)\nTrainer(model, args, train_dataset=data).train()\n"
            ),
            "train.log": lines(
                [
                    str({"loss": loss, "grad_norm": norm, "learning_rate": 0.0, "epoch": round(epoch + part, 2)})
                    for epoch in range(8)
                    for loss, norm, part in ((0.9984, 36.2, 0.4), (0.9984, 36.2, 0.8), (0.4992, 18.1, 1.0))
                ]
            ),
        },
        ("accumulation-misnormalised",),
        "top3",
    ),
    Rebuilt(
        "schedule gone after a quarter of the run on four cards",
        {
            "train.py": ACCELERATE_LOOP,
            "default_config.yaml": ACCELERATE_4,
            "train.log": lines("num_processes: 4", loop_rows(curve(2.8, 2.2, 30, 41) + curve(2.2, 2.2, 90, 42), OVER_IN_FOUR)),
        },
        ("scheduler-stepped-per-process",),
    ),
    Rebuilt(
        "model stops changing after a few hundred steps: the rate has come to 0",
        {
            "finetune.py": ACCELERATE_LOOP,
            "train.log": lines(loop_rows(curve(2.9, 2.3, 30, 43) + curve(2.3, 2.3, 90, 44), OVER_IN_FOUR)),
        },
        ("scheduler-stepped-per-process",),
    ),
    Rebuilt(
        "warm-up over eight times too early on eight cards",
        {"train.py": ACCELERATE_LOOP, "accelerate.yaml": ACCELERATE_4.replace("num_processes: 4", "num_processes: 8")},
        ("scheduler-stepped-per-process",),
    ),
    Rebuilt(
        "adapter on the head alone: loss frozen, no gradient",
        {
            "train.log": lines(
                [str({"loss": 1.2862, "grad_norm": 0.0, "learning_rate": 2e-4, "epoch": round(0.1 * i, 2)}) for i in range(1, 11)]
            ),
            "adapter_config.json": (
                '{"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 16, "lora_alpha": 16, "target_modules": ["lm_head"], '
                '"modules_to_save": null, "base_model_name_or_path": "unsloth/Qwen2.5-0.5B"}'
            ),
        },
        ("gradient-chain-broken", "nothing-trainable", "target-modules-missing"),
    ),
    Rebuilt(
        "resumed with no parameter left to train",
        {
            "train.log": lines(
                "loading checkpoint output/checkpoint-1000 adapter",
                "trainable params: 0.0 || all params: 3660320768 || trainable: 0.0",
                "torch.float32 422326272 0.1153796",
            )
        },
        ("nothing-trainable",),
    ),
    Rebuilt(
        "future tokens seen through a broken sliding-window mask",
        {
            "train.log": lines(trainer(curve(1.9, 0.003, 80, 51, 0.08, pace=16), cosine(2e-4, 80), 0.8)),
            "config.json": config("gemma2", sliding_window=4096),
            "requirements.txt": "transformers==4.42.1\ntorch==2.3.1\ntrl==0.9.4\n",
            "args.json": '{"learning_rate": 0.0002, "num_train_epochs": 1, "per_device_train_batch_size": 4}',
        },
        ("future-tokens-visible",),
    ),
    Rebuilt(
        "own GPT with a finite mask value: losses near 0, text is noise",
        {
            "model.py": (
                "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
                "class CausalSelfAttention(nn.Module):\n    def forward(self, x):\n"
                "        q, k, v = self.split(x)\n"
                "        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))\n"
                "        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, -1e4)\n"
                "        att = F.softmax(att, dim=-1)\n        return att @ v\n"
            ),
            "train.log": lines(
                [
                    f"iter {20 * i}: train loss {loss:.4f}, val loss {loss * 1.02:.4f}"
                    for i, loss in enumerate(curve(8.2, 0.008, 80, 52, 0.05, pace=12))
                ]
            ),
        },
        ("future-tokens-visible",),
        "top3",
    ),
]
