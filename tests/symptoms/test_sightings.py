"""Sightings on small inputs rebuilt from public reports, and near misses of them."""

import numpy as np
import pytest

from tuneclinic.evidence import Evidence
from tuneclinic.registry import found
from tuneclinic.sections import (
    Crash,
    CrashError,
    Data,
    Environment,
    Log,
    LogLine,
    Metrics,
    Model,
    OutOfMemory,
    Output,
    Outputs,
    Score,
    Scores,
    Series,
    Setting,
    Settings,
)
from tuneclinic.symptom import Symptom

SYMPTOMS = {symptom.id: symptom for symptom in found("tuneclinic.symptoms", Symptom)}


def seen(evidence):
    return {name for name, symptom in SYMPTOMS.items() if symptom.see(evidence).verdict == "confirmed"}


def log(kind="causal-lm", **series):
    held = {name.replace("__", "/"): Series.of(values, 10 * np.arange(1, len(values) + 1)) for name, values in series.items()}
    return Evidence(metrics=Metrics(held, kind=kind, source="trainer_state.json"))


def crash(*errors, **kwargs):
    return Evidence(crash=Crash(errors, **kwargs))


def decay(count=100, first=2.3, last=1.0):
    return last + (first - last) * np.exp(-np.arange(count) / (count / 5)) + 0.02 * np.sin(np.arange(count) * 7.3)


def test_hidden_nan_from_row_two_is_the_start():
    assert seen(log(loss=[13.3, *[0.0] * 19], grad_norm=[np.nan] * 20)) == {"nan-at-start"}


def test_nan_after_a_good_stretch_is_mid_run():
    values = np.concatenate([decay(60), np.full(40, np.nan)])
    assert seen(log(loss=values)) == {"nan-mid-run"}


def test_zero_loss_with_zero_gradient_is_not_nan_and_not_near_zero():
    assert seen(log(loss=np.zeros(40), grad_norm=np.zeros(40), learning_rate=np.full(40, 2e-5))) == {"loss-not-falling"}


def test_policy_loss_of_zero_is_no_symptom():
    assert seen(log("grpo", loss=np.zeros(60), reward=np.linspace(0.1, 0.6, 60), kl=np.linspace(0, 0.02, 60))) == set()


def test_flat_diffusion_loss_is_no_symptom():
    assert seen(log("diffusion", loss=0.33 + 0.2 * np.sin(np.arange(400) * 12.9))) == set()


def test_uniform_needs_the_runs_own_vocabulary():
    values = np.log(128_256) + 0.02 * np.sin(np.arange(60) * 5.1)
    run = log(loss=values, learning_rate=np.full(60, 1e-4))
    assert "loss-at-uniform" in seen(run.merge(Evidence(model=Model(vocabulary=128_256))))
    assert "loss-at-uniform" not in seen(run)


def test_identical_losses_every_epoch_are_no_learning():
    epoch = [0.9741, 1.3742, 1.2390, 1.0555, 0.8431, 1.1902, 1.0017, 0.9313, 1.2777, 1.1166]
    assert "loss-not-falling" in seen(log(loss=epoch * 4))


def test_ten_rows_after_many_epochs_cannot_be_overfitted():
    stuck = 1.8 + 0.03 * np.sin(np.arange(60) * 4.4)
    run = log(loss=stuck, epoch=np.linspace(1, 60, 60), learning_rate=np.full(60, 1e-4))
    assert "cannot-overfit" in seen(run.merge(Evidence(data=Data("messages", rows=10, total=10, sources=("ten.jsonl",)))))
    assert "cannot-overfit" not in seen(run.merge(Evidence(data=Data("messages", rows=4000, total=4000))))
    limited = Settings({"max_samples": Setting(10, "config.yaml:7", "config.yaml", "max_samples")})
    assert "cannot-overfit" in seen(run.merge(Evidence(settings=limited)))


def test_memory_error_before_the_first_row_and_after_many():
    error = CrashError("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 1.45 GiB.", "run.log:90", "run.log")
    assert seen(crash(error)) == {"oom-at-start"}
    assert seen(log(loss=decay()).merge(crash(error))) == {"oom-late"}


def test_memory_error_at_evaluation_is_late_even_at_step_one():
    memory = OutOfMemory("cuda", asked=4.44, capacity=10.6)
    error = CrashError("RuntimeError", "CUDA out of memory.", "run.log:90", "run.log", phase="evaluation", step=1, memory=memory)
    assert seen(crash(error)) == {"oom-late"}


def test_host_kill_is_a_crash_and_no_card_out_of_memory():
    error = CrashError("SIGKILL", "exitcode: -9", "run.log:90", "run.log", memory=OutOfMemory("host"))
    assert seen(crash(error)) == {"crashes"}


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        (
            "RuntimeError",
            "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE) ran for 600011 ms",
            "hangs",
        ),
        ("torch.distributed.DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp:3907, invalid usage", "multi-gpu-odd"),
        (
            "torch.distributed.DistStoreError",
            "Timed out after 901 seconds waiting for clients. 1/2 clients joined.",
            "multi-gpu-odd",
        ),
        (
            "RuntimeError",
            "Expected to have finished reduction in the prior iteration before starting a new one.",
            "multi-gpu-odd",
        ),
        ("ValueError", "Some keys are not used by the HfArgumentParser: ['booster']", "crashes"),
        ("RuntimeError", "CUDA error: device-side assert triggered", "crashes"),
        ("Exception", "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.", "crashes"),
    ],
)
def test_each_end_is_one_symptom(kind, message, expected):
    assert seen(crash(CrashError(kind, message, "run.log:9", "run.log"))) == {expected}


def test_the_ranks_own_error_goes_before_the_time_outs_of_others():
    wait = CrashError("RuntimeError", "Watchdog caught collective operation timeout: WorkNCCL(ALLREDUCE)", rank=1)
    own = CrashError("FileNotFoundError", "[Errno 2] No such file or directory: 'a.png'", rank=0)
    end = CrashError("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "")
    assert seen(crash(wait, own, end)) == {"crashes"}


def test_an_interrupted_run_did_not_crash():
    assert seen(crash(CrashError("KeyboardInterrupt", ""), interrupted=True)) == set()


def test_a_hang_is_read_from_the_log_alone():
    line = LogLine("[E ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout: WorkNCCL", "run.log:7", "run.log")
    assert seen(Evidence(log=Log((line,), 100))) == {"hangs"}


def test_chosen_rewards_that_fall_are_seen():
    run = log(
        "dpo",
        loss=np.linspace(0.69, 0.45, 60),
        rewards__chosen=np.linspace(0, -3, 60),
        rewards__rejected=np.linspace(0, -5, 60),
        rewards__margins=np.linspace(0, 2, 60),
    )
    assert seen(run) == {"preference-odd"}


def outputs(*texts, **kwargs):
    items = tuple(Output(f"question {n}", text, f"outputs.jsonl row {n}", "outputs.jsonl") for n, text in enumerate(texts, 1))
    return Evidence(outputs=Outputs(items, **kwargs))


def test_loops_in_both_languages():
    assert "parrots" in seen(outputs("The answer is yes. " * 30))
    assert "parrots" in seen(outputs("我们应该努力学习，" * 20))


def test_lists_tables_and_code_do_not_loop():
    table = "| name | value |\n| --- | --- |\n" + "".join(f"| item {n} | {n * n} |\n" for n in range(20))
    code = "".join(f"    values[{n}] = compute(values[{n - 1}])\n" for n in range(1, 15))
    assert seen(outputs(table, code, "1, 2, 3, 4, 5, 6, 7, 8, 9, 10", "-" * 200, "ha ha ha")) == set()


def test_templated_answers_and_labels():
    opening = "Thank you for your question. As a helpful assistant, "
    assert "parrots" in seen(outputs(*(f"{opening}{word}." for word in ("yes", "no", "42", "tomorrow", "perhaps", "Paris"))))
    assert "parrots" not in seen(outputs(*["positive"] * 10))


def test_next_turn_written_by_the_model():
    assert "never-stops" in seen(outputs("Paris.\n用户：还有呢？\n助手：没有了。"))
    assert "never-stops" not in seen(outputs("A user: someone who uses."))


def test_control_tokens_and_a_question_about_them():
    assert "template-residue" in seen(outputs("<|start_header_id|>assistant<|end_header_id|>\n\nHello"))
    item = Output("What does <|im_end|> do?", "<|im_end|> closes a turn.", "o.jsonl row 1")
    assert "template-residue" not in seen(Evidence(outputs=Outputs((item,))))


def test_forgetting_is_graded():
    def table(general):
        return Evidence(scores=Scores((Score("law", "acc", 0.8, 0.5, domain=True), Score("mmlu", "acc", general, 0.60))))

    assert "forgets" in seen(table(0.45))
    assert "forgets" not in seen(table(0.59))


def test_quantised_beside_unquantised():
    def table(after):
        return Evidence(scores=Scores((Score("law", "acc", 0.80), Score("law-awq-int4", "acc", after))))

    assert seen(table(0.62)) == {"worse-after-merge"}
    assert seen(table(0.79)) == set()


def test_several_ranks_of_one_averaged_loss_are_not_called_odd():
    loss = Series.of(decay())
    run = Evidence(metrics=Metrics({"loss": loss}, kind="causal-lm", by_rank={0: {"loss": loss}, 1: {"loss": loss}}))
    assert seen(run) == set()
    assert SYMPTOMS["multi-gpu-odd"].see(run).verdict == "not_checked"


def test_the_processor_is_slow_only_where_a_card_was_meant():
    def verdict(**sections):
        return SYMPTOMS["slow"].see(Evidence(**sections)).verdict

    device = LogLine("Process rank: 0, device: cpu, n_gpu: 0, distributed training: False", "train.log:2", "train.log")
    assert verdict(log=Log((device,), 40)) == "not_checked"
    assert verdict(log=Log((device,), 40), model=Model(parameters=1.3e8)) == "not_checked"
    assert verdict(log=Log((device,), 40), model=Model(parameters=7e9)) == "confirmed"
    assert verdict(environment=Environment(device="cpu", gpus=("NVIDIA H100",))) == "confirmed"
    meant = Settings({"use_cpu": Setting(True, "config.yaml:3", "config.yaml", "use_cpu")})
    assert verdict(environment=Environment(device="cpu", gpus=("NVIDIA H100",)), settings=meant) == "not_checked"


def test_few_rows_rule_nothing_out():
    assert SYMPTOMS["loss-not-falling"].see(log(loss=[1.2, 1.3, 1.1, 1.2, 1.25, 1.2, 1.1, 1.2, 1.15])).verdict == "not_checked"
    assert SYMPTOMS["loss-not-falling"].see(log(loss=[2.4, 2.0, 1.7, 1.5, 1.4, 1.2, 1.1, 1.05, 1.0])).verdict == "ruled_out"
    assert SYMPTOMS["loss-diverges"].see(log(loss=[1.2, 1.3])).verdict == "not_checked"


def test_a_loop_that_was_asked_for_is_none():
    song = "Row, row, row your boat. " * 8
    assert "parrots" not in seen(Evidence(outputs=Outputs((Output("sing", song, "o.jsonl row 1", reference=song),))))
