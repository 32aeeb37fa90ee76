"""Gradients that never reach the adapter, and preference runs."""

from shapes_a import Rebuilt, crash, healthy, lines

CASES = [
    Rebuilt(
        "checkpointing switched on after the adapter was put in",
        {
            "train.py": (
                "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
                'model = AutoModelForCausalLM.from_pretrained("facebook/opt-1.3b")\n'
                "model = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj', 'v_proj']))\n"
                "model.gradient_checkpointing_enable()\n"
                "for batch in loader:\n    loss = model(**batch).loss\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
            ),
            "requirements.txt": "peft==0.5.0\ntransformers==4.33.2\n",
            "stderr.txt": crash(
                [("train.py", 7, "<module>", "loss.backward()")],
                "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
            ),
        },
        ("checkpointing-without-input-grads",),
    ),
    Rebuilt(
        "DPO with an adapter and checkpointing: inputs without gradient",
        {
            "dpo.log": crash(
                [
                    ("dpo_llama2.py", 190, "<module>", "dpo_trainer.train()"),
                    (
                        "/opt/conda/lib/python3.10/site-packages/torch/autograd/__init__.py",
                        200,
                        "backward",
                        "Variable._execution_engine.run_backward(",
                    ),
                ],
                "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
                "/opt/conda/lib/python3.10/site-packages/torch/utils/checkpoint.py:31: UserWarning: None of the inputs have requires_grad=True. Gradients will be None",
            )
        },
        ("checkpointing-without-input-grads",),
    ),
    Rebuilt(
        "LoRA on a coder model, checkpointing in the arguments, no grad_fn",
        {
            "train.py": (
                "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
                'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-Coder-1.5B")\n'
                'model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, task_type="CAUSAL_LM"))\n'
                'args = TrainingArguments("out", gradient_checkpointing=True, learning_rate=2e-4)\n'
                "Trainer(model=model, args=args, train_dataset=data).train()\n"
            ),
            "err.txt": crash(
                [
                    ("train.py", 6, "<module>", "Trainer(model=model, args=args, train_dataset=data).train()"),
                    ("/opt/lib/python3.11/site-packages/accelerate/accelerator.py", 2248, "backward", "loss.backward(**kwargs)"),
                ],
                "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
            ),
        },
        ("checkpointing-without-input-grads",),
    ),
    Rebuilt(
        "worry that input gradients would train the embedding",
        {
            "train.py": (
                "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
                'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")\n'
                "model.gradient_checkpointing_enable()\nmodel.enable_input_require_grads()\n"
                'model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, task_type="CAUSAL_LM"))\n'
                'args = TrainingArguments("out", learning_rate=2e-4, num_train_epochs=2, bf16=True)\n'
                "Trainer(model=model, args=args, train_dataset=data).train()\n"
            ),
            "train.log": healthy(61),
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "PPO ratio far over its limit and a negative KL",
        {
            "ppo.log": lines(
                "0it [00:00, ?it/s]",
                "UserWarning: KL divergence is starting to become negative: -2.44 - this might be a precursor for failed training.",
                "UserWarning: The average ratio of batch (12.26) exceeds threshold 10.00. Skipping batch.",
                "UserWarning: The average ratio of batch (27.91) exceeds threshold 10.00. Skipping batch.",
            )
        },
        ("kl-blows-up",),
    ),
    Rebuilt(
        "chosen reward falls late in DPO while the margin grows",
        {
            "train.log": lines(
                [
                    str(
                        {
                            "loss": round(0.69 - 0.5 * (1 - 0.97**i), 4),
                            "grad_norm": 3.1,
                            "learning_rate": 5e-7,
                            "rewards/chosen": round(0.02 * i if i < 20 else 0.4 - 0.03 * (i - 20), 4),
                            "rewards/rejected": round(-0.05 * i, 4),
                            "rewards/accuracies": round(min(0.95, 0.5 + 0.02 * i), 3),
                            "rewards/margins": round((0.02 * i if i < 20 else 0.4 - 0.03 * (i - 20)) + 0.05 * i, 4),
                            "logps/chosen": round(-180 - 0.3 * i, 2),
                            "logps/rejected": round(-190 - 1.1 * i, 2),
                            "epoch": round(i / 60, 2),
                        }
                    )
                    for i in range(60)
                ]
            )
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "log-probabilities of both DPO answers fall, the margin grows",
        {
            "train.log": lines(
                [
                    str(
                        {
                            "loss": round(0.693 * 0.985**i, 4),
                            "learning_rate": 5e-7,
                            "rewards/chosen": round(-0.012 * i, 4),
                            "rewards/rejected": round(-0.05 * i, 4),
                            "rewards/accuracies": round(min(0.92, 0.5 + 0.015 * i), 3),
                            "rewards/margins": round(0.038 * i, 4),
                            "logps/chosen": round(-210 - 0.12 * i, 2),
                            "logps/rejected": round(-195 - 0.5 * i, 2),
                            "epoch": round(i / 50, 2),
                        }
                    )
                    for i in range(50)
                ]
            )
        },
        (),
        "no_fault",
    ),
]
