"""The same faults told in other files, and runs that look like one of them and are sound."""

import json

from shapes_a import Rebuilt, cosine, crash, curve, healthy, jsonl, lines, trainer

NAN = float("nan")

DIFFUSION_LOOP = """
import math
from accelerate import Accelerator
from diffusers.optimization import get_scheduler

def main(args):
    accelerator = Accelerator(mixed_precision="bf16")
    unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
    per_epoch = math.ceil(len(loader) / args.gradient_accumulation_steps)
    steps = args.num_train_epochs * per_epoch
    schedule = get_scheduler("cosine", optimizer=optimizer, num_warmup_steps=500, num_training_steps=steps)
    schedule = accelerator.prepare(schedule)
"""

SOUND_LOOP = """
from accelerate import Accelerator
from transformers import get_scheduler
accelerator = Accelerator()
steps = 3 * len(loader)
schedule = get_scheduler("linear", optimizer=optimizer, num_warmup_steps=10, num_training_steps=steps)
loader, model, optimizer, schedule = accelerator.prepare(loader, model, optimizer, schedule)
for epoch in range(3):
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
"""

PLAIN_TOKENS = json.dumps(
    {"bos_token": "<s>", "eos_token": "</s>", "added_tokens_decoder": {"1": {"content": "<s>"}, "2": {"content": "</s>"}}}
)

CASES = [
    Rebuilt(
        "schedule built on a prepared loader's length, eight processes",
        {
            "train_text_to_image.py": DIFFUSION_LOOP,
            "launch.sh": "accelerate launch --multi_gpu --num_processes 8 train_text_to_image.py --learning_rate 1e-5\n",
        },
        ("scheduler-stepped-per-process",),
    ),
    Rebuilt("schedule built before the loader is prepared", {"train.py": SOUND_LOOP, "train.log": healthy(91)}, (), "no_fault"),
    Rebuilt(
        "evaluation gathers logits in a container, where the run's own process goes by another number",
        {
            "train.log": healthy(92, count=15)
            + crash(
                [
                    ("/x/site-packages/transformers/trainer.py", 4100, "evaluation_loop", "all_preds.add(logits)"),
                    (
                        "/x/site-packages/transformers/trainer_pt_utils.py",
                        123,
                        "nested_concat",
                        "return torch_pad_and_concatenate(",
                    ),
                ],
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30.40 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
                "20.81 GiB is free. Process 99 has 58.20 GiB memory in use. Of the allocated memory 50.00 GiB is allocated by PyTorch, and "
                "7.30 GiB is reserved by PyTorch but unallocated.",
            )
        },
        ("eval-gathers-logits",),
    ),
    Rebuilt(
        "no gradient function, behind a launcher's rank prefix, with checkpointing and an adapter in the configuration",
        {
            "run.log": "".join(
                f"[rank0]: {line}\n"
                for line in crash(
                    [
                        ("/w/train.py", 10, "<module>", "trainer.train()"),
                        ("/x/site-packages/torch/autograd/graph.py", 768, "_engine_run_backward", "return engine.run_backward("),
                    ],
                    "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
                ).splitlines()
            ),
            "config.yml": "gradient_checkpointing: true\nadapter: lora\nbase_model: tiiuae/falcon-7b\n",
        },
        ("checkpointing-without-input-grads",),
    ),
    Rebuilt(
        "answers of a batch padded with end tokens",
        {
            "outputs.jsonl": jsonl(
                *(
                    {"prompt": f"Row {row}?", "generated_text": f"Row {row} holds {row * 7}." + "</s>" * (1 + row % 4)}
                    for row in range(8)
                )
            ),
            "tokenizer_config.json": PLAIN_TOKENS,
            "train.log": healthy(93),
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "padded prompts handed over with their mask",
        {
            "infer.py": (
                "tokenizer.padding_side = 'left'\ntokenizer.pad_token = tokenizer.eos_token\n"
                "batch = tokenizer(prompts, padding=True, return_tensors='pt')\n"
                "out = model.generate(batch['input_ids'], attention_mask=batch['attention_mask'], max_new_tokens=10)\n"
            ),
            "train.log": healthy(94),
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "the last step of an epoch has a lower loss and a usual gradient",
        {
            "train.log": lines(
                [
                    str(
                        {
                            "loss": loss if at % 20 else loss * 0.96,
                            "grad_norm": 1.0 + 0.05 * (at % 7),
                            "learning_rate": rate,
                            "epoch": at / 20,
                        }
                    )
                    for at, (loss, rate) in enumerate(zip(curve(1.5, 0.9, 80, 95, 0.03), cosine(1e-4, 80), strict=True), 1)
                ]
            ),
            "args.json": '{"gradient_accumulation_steps": 4, "learning_rate": 1e-4}',
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "conversations whose every answer is trained",
        {
            "rows.jsonl": jsonl(
                *(
                    {
                        "input_ids": [1, *(turn := [5 + row, 6, 7, 2]), *turn, *turn, *turn],
                        "labels": [-100] * 5 + turn + [-100] * 4 + turn,
                    }
                    for row in range(30)
                )
            ),
            "tokenizer_config.json": PLAIN_TOKENS,
            "train.log": healthy(96),
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "single NaN norms of fp16's scale search",
        {
            "train.log": lines(
                trainer(curve(1.1, 0.9, 60, 97), cosine(2e-4, 60), norms=[NAN if at % 9 == 4 else 0.16 for at in range(60)])
            ),
            "sft.yaml": "stage: sft\nfinetuning_type: lora\nfp16: true\nlearning_rate: 2.0e-4\ngradient_accumulation_steps: 4\n",
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "rate of 3e-3: the loss climbs, then reads exactly 0, in a log without gradient norms",
        {
            "train.log": lines(
                [
                    str({"loss": loss, "learning_rate": 3e-3 * min(1, at / 10), "epoch": round(0.01 * at, 2)})
                    for at, loss in enumerate([2.1, 1.9, 2.4, 5.8, 7.9] + [0.0] * 25, 1)
                ]
            ),
            "run.sh": "python finetune.py --base_model huggyllama/llama-7b --learning_rate 3e-3 --lora_r 128 --lora_alpha 256\n",
        },
        ("lr-too-high",),
        "top3",
        beside=("nan-hidden-by-logging",),
    ),
    Rebuilt(
        "trained on plain instruction text, asked in a chat template",
        {
            "train.jsonl": jsonl(
                *(
                    {
                        "text": f"### Instruction:\nName item {row}.\n\n### Response:\nItem {row} is a {['cup', 'hat', 'pen'][row % 3]}, number {row * 3}.</s>"
                    }
                    for row in range(60)
                )
            ),
            "outputs.jsonl": jsonl(
                *(
                    {
                        "prompt": f"<|im_start|>user\nName item {row}.<|im_end|>\n<|im_start|>assistant\n",
                        "generated_text": "Here is a list of names.",
                    }
                    for row in range(6)
                )
            ),
        },
        ("serving-template-differs",),
    ),
    Rebuilt(
        "thirty epochs with a chat template on a base model: repeats to the limit",
        {
            "sft.yaml": (
                "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: lora\ntemplate: llama3\n"
                "num_train_epochs: 30\nlearning_rate: 1.0e-4\n"
            ),
            "generated_predictions.jsonl": jsonl(
                *({"prompt": f"Row {row}?", "predict": f"answer {row} " * 120, "label": "x"} for row in range(6))
            ),
        },
        ("base-model-with-chat-template", "too-many-epochs"),
    ),
]
