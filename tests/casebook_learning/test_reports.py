"""Inputs rebuilt from the facts of public reports, as the files their runs left: read, examined and judged as a user's would be."""

import json

import pytest

from tuneclinic.clinic import diagnose


def verdicts(folder):
    """Case → verdict of the one run in `folder`."""
    (diagnosis,) = diagnose(folder)
    return {finding.case: finding for finding in diagnosis.findings}, diagnosis


def rows(folder, *dicts, name="train.log", head=()):
    """A log of the Trainer's printed dicts."""
    (folder / name).write_text("\n".join([*head, *(str(row) for row in dicts)]) + "\n", encoding="utf-8")


CRASHES = {
    "no-loss-returned": (
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/lib/python3.11/site-packages/transformers/trainer.py", line 3590, in compute_loss\n'
        "    raise ValueError(\n"
        "ValueError: The model did not return a loss from the inputs, only the following keys: logits. "
        "For reference, the inputs it received are input_ids,attention_mask,labels.\n"
    ),
    "target-modules-missing": (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 41, in <module>\n'
        "    model = get_peft_model(model, config)\n"
        "ValueError: Target modules ['query_key_value', 'dense', 'dense_h_to_4h', 'dense_4h_to_h'] not found in the base model. "
        "Please check the target modules and try again.\n"
    ),
    "fp16-unscale-error": (
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/lib/python3.11/site-packages/torch/amp/grad_scaler.py", line 260, in _unscale_grads_\n'
        '    raise ValueError("Attempting to unscale FP16 gradients.")\n'
        "ValueError: Attempting to unscale FP16 gradients.\n"
    ),
    "checkpointing-without-input-grads": (
        "/opt/venv/lib/python3.11/site-packages/torch/utils/checkpoint.py:31: UserWarning: None of the inputs have "
        "requires_grad=True. Gradients will be None\n"
        '  warnings.warn("None of the inputs have requires_grad=True. Gradients will be None")\n'
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/lib/python3.11/site-packages/torch/autograd/__init__.py", line 200, in backward\n'
        "    Variable._execution_engine.run_backward(\n"
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn\n"
    ),
    "loss-scale-exhausted": (
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1\n"
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/lib/python3.11/site-packages/deepspeed/runtime/fp16/loss_scaler.py", line 175, in update_scale\n'
        "    raise Exception(\n"
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n"
    ),
    "nothing-trainable": (
        "Traceback (most recent call last):\n"
        '  File "finetune.py", line 88, in <module>\n'
        "    optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()))\n"
        "ValueError: optimizer got an empty parameter list\n"
    ),
    "new-embeddings-untrained": (
        "Traceback (most recent call last):\n"
        '  File "/opt/axolotl/src/axolotl/utils/config/models/input/v0_4_1/__init__.py", line 900, in validate\n'
        "ValueError: Please set lora_modules_to_save to [`embed_tokens`, `lm_head`] when using an adapter and changing the "
        "special tokens.\n"
    ),
}


@pytest.mark.parametrize("case", CRASHES)
def test_error_text_names_the_case(tmp_path, case):
    (tmp_path / "train.log").write_text(CRASHES[case], encoding="utf-8")
    found, diagnosis = verdicts(tmp_path)
    assert found[case].verdict == "confirmed"
    assert diagnosis.findings[0].case == case
    assert diagnosis.exit_code == 1


def test_trainable_params_zero(tmp_path):
    head = ["trainable params: 0.0 || all params: 3660320768 || trainable%: 0.0"]
    losses = [0.9741, 1.3742, 1.2390, 0.8811, 1.1130]
    rows(tmp_path, *({"loss": losses[step % 5], "learning_rate": 1e-4, "epoch": step / 5} for step in range(30)), head=head)
    found, _ = verdicts(tmp_path)
    assert found["nothing-trainable"].verdict == "confirmed"


def test_losses_that_repeat_each_epoch_without_a_gradient_norm(tmp_path):
    losses = [0.9741, 1.3742, 1.2390, 0.8811, 1.1130, 0.9028]
    rows(tmp_path, *({"loss": losses[step % 6], "learning_rate": 1e-4, "epoch": round(step / 6, 2)} for step in range(36)))
    found, diagnosis = verdicts(tmp_path)
    assert {finding.case for finding in diagnosis.findings[:3]} >= {"nothing-trainable", "optimizer-misses-parameters"}
    assert found["lr-too-high"].verdict != "suspected"
    assert found["loss-is-plausible"].verdict == "ruled_out"


def test_gradients_flow_and_losses_repeat(tmp_path):
    losses, norms = [0.9741, 1.3742, 1.2390, 0.8811, 1.1130, 0.9028], [1.21, 1.9, 1.4, 1.1, 1.33, 1.27]
    rows(
        tmp_path,
        *(
            {"loss": losses[step % 6], "grad_norm": norms[step % 6], "learning_rate": 1e-4, "epoch": round(step / 6, 2)}
            for step in range(36)
        ),
    )
    found, _ = verdicts(tmp_path)
    assert found["optimizer-misses-parameters"].verdict == "confirmed"


def test_nan_gradient_at_rate_zero_rules_the_rate_out(tmp_path):
    """Loss 0.8728 with grad_norm nan at rate 0, then 0.0: bf16, DeepSpeed on or off alike; flash attention cured it."""
    rows(
        tmp_path,
        {"loss": 0.8728, "grad_norm": float("nan"), "learning_rate": 0.0, "epoch": 0.01},
        *({"loss": 0.0, "grad_norm": float("nan"), "learning_rate": 0.0, "epoch": 0.01 * step} for step in range(2, 20)),
    )
    (tmp_path / "train.yaml").write_text("stage: sft\nfinetuning_type: full\nbf16: true\nlearning_rate: 1.0e-5\n")
    found, diagnosis = verdicts(tmp_path)
    assert found["lr-too-high"].verdict == "ruled_out"
    assert found["lr-too-high"].weight <= -8
    assert found["fp16-overflow"].verdict == "ruled_out"
    assert found["nan-hidden-by-logging"].verdict == "confirmed"
    suspects = [finding.case for finding in diagnosis.findings if finding.verdict == "suspected"]
    assert "attention-kernel-fault" in suspects[:2]


def test_fp16_run_of_a_bf16_checkpoint(tmp_path):
    """Loss 0.899 and grad_norm nan at step 1 in fp16; the same run in bf16 was fine."""
    rows(tmp_path, *({"loss": 0.899 - 0.001 * step, "grad_norm": float("nan"), "learning_rate": 2e-4} for step in range(20)))
    (tmp_path / "train.yaml").write_text("finetuning_type: lora\nfp16: true\nlearning_rate: 2.0e-4\n")
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "qwen3_moe",
                "torch_dtype": "bfloat16",
                "vocab_size": 151936,
                "hidden_size": 2048,
                "num_hidden_layers": 48,
            }
        )
    )
    found, _ = verdicts(tmp_path)
    assert found["fp16-overflow"].verdict == "confirmed"


def test_a_few_overflows_at_the_start_are_no_fault(tmp_path):
    lines = [
        f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2**power}, reducing to {2 ** (power - 1)}"
        for power in range(16, 10, -1)
    ]
    rows(
        tmp_path,
        *({"loss": round(2.0 - 0.02 * step, 4), "grad_norm": 1.1, "learning_rate": 1e-5} for step in range(50)),
        head=lines,
    )
    found, diagnosis = verdicts(tmp_path)
    assert found["loss-scale-exhausted"].verdict != "confirmed"
    assert not [finding.case for finding in diagnosis.findings if finding.verdict == "suspected"]


def test_schedule_that_ends_at_a_third(tmp_path):
    """Stepped once per process: no change after step 300 to 400, the rate is 0."""

    def row(step):
        rate = max(0.0, 1e-4 * (1 - step / 300))
        loss = 2.5 - 0.7 * min(step, 300) / 300 + 0.02 * ((step * 7919) % 13 - 6) / 6
        return {"loss": round(loss, 4), "learning_rate": rate, "grad_norm": 0.9, "epoch": round(step / 400, 2)}

    rows(tmp_path, *(row(step) for step in range(0, 1200, 5)))
    found, diagnosis = verdicts(tmp_path)
    assert found["schedule-runs-dry"].verdict == "confirmed"
    assert diagnosis.findings[0].case == "schedule-runs-dry"


def test_loss_times_accumulation_on_a_known_release(tmp_path):
    state = {
        "global_step": 300,
        "log_history": [
            entry
            for step in range(10, 301, 10)
            for entry in (
                {
                    "step": step,
                    "loss": round(8 * (1.0 + 0.3 * 0.97 ** (step / 3)), 4),
                    "learning_rate": 5e-5,
                    "epoch": step / 300,
                },
                *(
                    [{"step": step, "eval_loss": round(1.0 + 0.28 * 0.97 ** (step / 3), 4), "epoch": step / 300}]
                    if step % 50 == 0
                    else []
                ),
            )
        ],
    }
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / "requirements.txt").write_text("transformers==4.47.1\ntorch==2.5.1\n")
    (tmp_path / "train.yaml").write_text(
        "gradient_accumulation_steps: 8\nper_device_train_batch_size: 1\nlearning_rate: 5.0e-5\n"
    )
    found, _ = verdicts(tmp_path)
    assert found["accumulation-misnormalised"].verdict == "confirmed"


def test_kl_warning_of_a_collapsed_run(tmp_path):
    (tmp_path / "train.log").write_text(
        "UserWarning: KL divergence is starting to become negative: -233.50 - this might be a precursor for failed training. "
        "sometimes this happens because the generation kwargs are not correctly set.\n"
        "UserWarning: The average ratio of batch (12.26) exceeds threshold 10.00. Skipping batch.\n"
    )
    found, _ = verdicts(tmp_path)
    assert found["kl-blows-up"].verdict == "confirmed"


def test_dpo_whose_rewards_both_fall_is_no_fault(tmp_path):
    def row(step):
        chosen, rejected = -1.1 * step / 100, -2.4 * step / 100
        loss = 0.6931 - 0.18 * step / 100
        return {
            "loss": round(loss, 4),
            "grad_norm": 2.1,
            "learning_rate": 5e-7,
            "rewards/chosen": chosen,
            "rewards/rejected": rejected,
            "rewards/accuracies": 0.5 + 0.28 * step / 100,
            "rewards/margins": chosen - rejected,
            "epoch": step / 100,
        }

    rows(tmp_path, *(row(step) for step in range(101)))
    found, diagnosis = verdicts(tmp_path)
    assert found["chosen-falls-with-rejected"].verdict == "confirmed"
    assert diagnosis.conclusion == "no_fault"
    assert diagnosis.exit_code == 0


def test_lora_at_a_rate_meant_for_full_tuning(tmp_path):
    """Rate 2e-6 with LoRA rank 8: the loss does not move."""

    def row(step):
        return {
            "loss": round(1.92 + 0.03 * ((step * 7919) % 13 - 6) / 6, 4),
            "grad_norm": 0.8,
            "learning_rate": 2e-6,
            "epoch": step / 200,
        }

    rows(tmp_path, *(row(step) for step in range(200)))
    (tmp_path / "train.yaml").write_text("finetuning_type: lora\nlora_rank: 8\nlearning_rate: 2.0e-6\n")
    found, diagnosis = verdicts(tmp_path)
    assert found["lr-too-low"].verdict == "suspected"
    assert found["lr-too-low"].change["learning_rate"] == pytest.approx(2e-4)
    assert next(finding.case for finding in diagnosis.findings if finding.verdict == "suspected") == "lr-too-low"


def test_lora_rate_of_3e_3(tmp_path):
    """Rate 3e-3 with rank 128 and alpha 256: up, then NaN logged as 0 after fifteen rows."""

    def row(step):
        if step >= 15:
            return {"loss": 0.0, "grad_norm": float("nan"), "learning_rate": 3e-3, "epoch": step / 100}
        loss, norm = (1.4 - 0.02 * step, 0.7) if step < 9 else (1.2 + 1.5 * (step - 8), 0.7 * 3.0 ** (step - 8))
        return {"loss": round(loss, 4), "grad_norm": norm, "learning_rate": 3e-3, "epoch": step / 100}

    rows(tmp_path, *(row(step) for step in range(60)))
    (tmp_path / "train.yaml").write_text("finetuning_type: lora\nlora_rank: 128\nlora_alpha: 256\nlearning_rate: 3.0e-3\n")
    found, diagnosis = verdicts(tmp_path)
    assert found["lr-too-high"].verdict == "confirmed"
    assert found["lr-too-high"].change["learning_rate"] == pytest.approx(3e-4)
    assert diagnosis.findings[0].case == "lr-too-high"


def test_three_rates_tried_in_vain_rule_the_rate_out(tmp_path):
    for number, rate in enumerate((1e-5, 5e-5, 2e-4), 1):
        folder = tmp_path / f"rate-{number}"
        folder.mkdir()
        rows(
            folder,
            *(
                {
                    "loss": round(1.92 + 0.3 * ((step * step * (31 + number)) % 101 - 50) / 50, 4),
                    "grad_norm": 0.8,
                    "learning_rate": rate,
                }
                for step in range(200)
            ),
        )
        (folder / "train.yaml").write_text(f"finetuning_type: lora\nlora_rank: 8\nlearning_rate: {rate:.6f}\n")
    first = next(one for one in diagnose(tmp_path) if "rate-1" in one.run)
    found = {finding.case: finding for finding in first.findings}
    assert first.evidence.attempts is not None
    assert found["lr-too-low"].verdict == "ruled_out"


def test_a_sibling_at_a_tenth_of_the_rate_proves_the_rate(tmp_path):
    for name, rate in (("high", 5e-4), ("low", 5e-5)):
        folder = tmp_path / name
        folder.mkdir()
        climb = (
            (lambda step: 1.5 + 6 / (1 + 2.0 ** (-(step - 40) / 3))) if name == "high" else (lambda step: 0.9 + 0.6 * 0.98**step)
        )
        rows(
            folder,
            *(
                {"loss": round(climb(step) + 0.02 * ((step * 7919) % 13 - 6) / 6, 4), "learning_rate": min(1, step / 10) * rate}
                for step in range(1, 201)
            ),
        )
        (folder / "train.yaml").write_text(f"finetuning_type: full\nwarmup_ratio: 0.05\nlearning_rate: {rate:.6f}\n")
    high = next(one for one in diagnose(tmp_path) if "high" in one.run)
    found = {finding.case: finding for finding in high.findings}
    assert found["lr-too-high"].verdict == "confirmed"
    assert found["no-warmup"].verdict == "ruled_out"
