"""Runs rebuilt from the facts of public reports: precision, memory and length (continues `cases_b.py`)."""

from parts_b import chats, dump, falling, hf, lines, noise, rows, traceback
from scripts_b import (
    MASK_BY_MARKER,
    UNWIRED_LIMIT,
)

OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {ask} MiB (GPU 0; {total} GiB total capacity; {used} GiB already allocated; {free} MiB free; {reserved} GiB reserved in total by PyTorch)"


def vicuna_train(*more):
    return lines(
        "torchrun --nproc_per_node=1 --master_port=20001 fastchat/train/train_mem.py \\",
        "    --model_name_or_path lmsys/vicuna-7b-v1.5 \\",
        "    --data_path data/own.json \\",
        "    --bf16 True \\",
        "    --num_train_epochs 3 \\",
        "    --per_device_train_batch_size 1 \\",
        "    --gradient_accumulation_steps 16 \\",
        "    --learning_rate 2e-5 \\",
        *(f"    {flag} \\" for flag in more),
        "    --gradient_checkpointing True",
    )


def ragged(count, at, long):
    """Chats of ordinary length with one long row."""
    made = chats(count)
    made[at]["messages"][1]["content"] = " ".join(f"Clause {n} binds both parties to part {n * 7}." for n in range(long))
    return made


def litgpt(steps):
    return [
        f"Epoch 1 | iter {n} step {n // 2} | loss train: {1.9 - n / 100:.3f}, val: n/a | iter time: {310 + n % 7:.2f} ms{' (step)' if n % 2 == 0 else ''}"
        for n in range(1, steps + 1)
    ]


CASES = {
    "static scale of one that cannot shrink further": (
        {
            "train.log": lines(
                *(
                    f"[2024-03-01 10:00:{n:02d},001] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1"
                    for n in range(30)
                ),
                *(f"[INFO] step={n} loss=nan lr=[1e-05]" for n in range(1, 6)),
            ),
            "ds.json": dump({"fp16": {"enabled": True, "loss_scale": 0, "min_loss_scale": 1}, "zero_optimization": {"stage": 2}}),
        },
        {"loss-scale-exhausted", "fp16-overflow"},
        "prime",
    ),
    "loss scale settling at the start": (
        {
            "train.log": lines(
                *(
                    f"[INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2 ** (16 - n)}, reducing to {2 ** (15 - n)}"
                    for n in range(6)
                ),
                *hf(falling(2.2, 1.4, 51)),
                "[INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2048, reducing to 1024",
                *hf(1.4 + noise(20, 0.03), rates=[1e-5] * 20),
            )
        },
        set(),
        "no_fault",
    ),
    "full tuning of 7B on one 40 GB card": (
        {
            "train.sh": vicuna_train(),
            "train.log": lines(
                "  0%|          | 0/1875 [00:00<?, ?it/s]",
                *traceback(
                    ('"fastchat/train/train.py", line 290, in train', "trainer.train()"),
                    (
                        '"/opt/env/lib/python3.10/site-packages/torch/optim/adamw.py", line 132, in _init_group',
                        "state['exp_avg'] = torch.zeros_like(p, memory_format=torch.preserve_format)",
                    ),
                    error=OOM.format(ask=172, total="39.59", used="37.70", free=41, reserved="38.10"),
                ),
            ),
        },
        {"optimizer-states-do-not-fit"},
        "prime",
    ),
    "full tuning of 5.7B on 24 GB, optimizer made smaller": (
        {
            "train.log": lines(
                "trainable params: 5,700,000,000 || all params: 5,700,000,000 || trainable%: 100.0000",
                *traceback(
                    ('"train.py", line 88, in <module>', "loss.backward()"),
                    (
                        '"/opt/env/lib/python3.10/site-packages/torch/autograd/__init__.py", line 251, in backward',
                        "Variable._execution_engine.run_backward(",
                    ),
                    error=OOM.format(ask=250, total="23.65", used="22.91", free=120, reserved="23.10"),
                ),
            ),
            "train.sh": "python train.py --model_name_or_path own/5b7 --optim adam_mini --bf16 True --per_device_train_batch_size 1 --max_seq_length 512 --learning_rate 1e-5\n",
        },
        {"weights-do-not-fit", "optimizer-states-do-not-fit"},
        "prime",
    ),
    "the longest row comes at step fifty": (
        {
            "train.log": lines(
                *litgpt(50),
                *traceback(
                    ('"litgpt/finetune/lora.py", line 212, in fit', "logits = model(input_ids, lm_head_chunk_size=128)"),
                    error=OOM.format(ask=512, total="23.69", used="21.90", free=310, reserved="22.90"),
                ),
            ),
            "data.json": dump(
                [
                    {
                        "instruction": f"Sum up clause {n}.",
                        "input": "",
                        "output": f"The clause {n} binds both. " * (180 if n == 50 else 60 + n % 48),
                    }
                    for n in range(90)
                ]
            ),
        },
        {"long-samples"},
        "prime",
    ),
    "length limit that no line of the script reads": (
        {
            "train.py": UNWIRED_LIMIT,
            "train.log": lines(
                *(f"step {n} loss {1.4 - n / 2000:.4f}" for n in range(10, 400, 10)),
                *traceback(
                    ('"train.py", line 60, in <module>', "loss = model(**batch).loss"),
                    error=OOM.format(ask=3600, total="79.15", used="71.0", free=2100, reserved="76.2"),
                ),
            ),
            "train.jsonl": rows(*ragged(80, 71, 560)),
        },
        {"long-samples"},
        "prime",
    ),
    "silent cut at 1024": (
        {
            "train.py": lines(
                "from trl import SFTConfig, SFTTrainer",
                "args = SFTConfig(output_dir='out', max_length=1024, learning_rate=2e-5)",
                "SFTTrainer(model='Qwen/Qwen2.5-1.5B-Instruct', args=args, train_dataset=data).train()",
            ),
            "train.jsonl": rows(
                *(
                    {
                        "messages": [
                            {"role": "user", "content": f"Read part {n}: " + f"item {n} of the register, entry. " * 130},
                            {
                                "role": "assistant",
                                "content": f"Part {n} holds {n * 3} entries. " + f"Entry {n} is kept. " * (90 + n),
                            },
                        ]
                    }
                    for n in range(40)
                )
            ),
        },
        {"truncation-eats-answer"},
        "prime",
    ),
    "length limit left to its default": (
        {
            "sft.yaml": lines(
                "model_name_or_path: Qwen/Qwen2.5-7B-Instruct",
                "stage: sft",
                "finetuning_type: lora",
                "lora_rank: 8",
                "dataset: own",
                "template: qwen",
                "learning_rate: 1.0e-4",
                "num_train_epochs: 3.0",
                "bf16: true",
            ),
            "train.log": lines(*hf(falling(1.5, 0.9, 60), rates=[1e-4] * 60)),
        },
        set(),
        "no_fault",
    ),
    "completion cut away, zero in the log": (
        {
            "train.py": lines(
                "from trl import SFTConfig, SFTTrainer",
                "args = SFTConfig(output_dir='out', max_length=16, completion_only_loss=True, learning_rate=2e-5)",
                "SFTTrainer(model='EleutherAI/pythia-160m', args=args, train_dataset=data).train()",
            ),
            "train.log": lines(*hf([0.0] * 30, grads=[0.0] * 30)),
            "train.jsonl": rows(
                *(
                    {
                        "prompt": f"The {n}th letter of the long archive speaks of {n} ships and their cargo in the harbour town. "
                        * 4,
                        "completion": f" It names {n} ships.",
                    }
                    for n in range(40)
                )
            ),
        },
        {"truncation-eats-answer", "all-labels-masked", "batch-without-targets"},
        "prime",
    ),
    "instructions longer than the cut": (
        {
            "eval.log": lines(
                "--> Training Set Length = 800",
                "Training Epoch: 1/3, step 99/100 completed (loss: 0.8123): 100%|██████████| 100/100",
                " eval_ppl=tensor(nan, device='cuda:0') eval_epoch_loss=tensor(nan, device='cuda:0')",
                "Epoch 1: train_perplexity=2.4011, train_epoch_loss=0.8759, epoch time 310.1s",
            ),
            "train.yaml": lines("max_length: 224", "model_name_or_path: meta-llama/Llama-2-7b-hf", "learning_rate: 1.0e-4"),
            "train.jsonl": rows(
                *(
                    {
                        "instruction": f"Case {n}: " + f"the tenant of flat {n} wrote on the stairs. " * (40 + n % 7),
                        "input": "",
                        "output": f"Refuse case {n}.",
                    }
                    for n in range(60)
                )
            ),
        },
        {"truncation-eats-answer", "all-labels-masked", "batch-without-targets"},
        "prime",
    ),
    "marker tokenised otherwise inside the text": (
        {"train.py": MASK_BY_MARKER, "train.log": lines(*(f"step {n} loss nan" for n in range(1, 60)))},
        {"all-labels-masked"},
        "prime",
    ),
}
