import math

import pytest

from tuneclinic.probes.readers.swift_logging import SwiftLogging
from tuneclinic.probes.readers.trainer_log import TrainerLog

OLD = {"eval_loss": None, "predict_loss": None, "reward": None}


def old(step, loss, **more):
    return {
        "current_steps": step,
        "total_steps": 30,
        "loss": loss,
        **OLD,
        "learning_rate": 2e-5,
        "epoch": step / 10,
        "elapsed_time": "0:00:10",
        **more,
    }


def test_the_layout_with_nulls(written):
    rows = [old(10, 2.5), old(20, 1.5), old(20, None, eval_loss=1.75, learning_rate=None), old(30, None, learning_rate=None)]
    file = written("trainer_log.jsonl", rows, lines=True)
    assert TrainerLog().claims(file) > 0.9
    (reading,) = TrainerLog().read(file)
    metrics = reading.evidence.metrics
    assert metrics.get("loss").values.tolist() == [2.5, 1.5]
    assert metrics.get("loss").lines.tolist() == [1, 2]
    assert metrics.get("eval_loss").steps.tolist() == [20]
    assert metrics.get("learning_rate").values.tolist() == [2e-5, 2e-5]
    assert (metrics.total_steps, metrics.finished) == (30, True)
    assert reading.understood == {"train rows": 2, "eval rows": 1, "other rows": 1}


@pytest.mark.parametrize("rate", ["learning_rate", "lr"])
def test_the_layouts_without_nulls(written, rate):
    rows = [
        {
            "current_steps": at,
            "total_steps": 30,
            "loss": 3.0 - at / 10,
            rate: 1e-5,
            "epoch": 0.1,
            "throughput": "0.00",
            "total_tokens": 0,
        }
        for at in (10, 20)
    ]
    (reading,) = TrainerLog().read(written("trainer_log.jsonl", rows, lines=True))
    metrics = reading.evidence.metrics
    assert metrics.get("learning_rate").values.tolist() == [1e-5, 1e-5]
    assert metrics.get("tokens_per_second") is None
    assert metrics.finished is False


def test_preference_training_logs_its_accuracy_as_accuracy(written):
    rows = [{"current_steps": 1, "total_steps": 2, "loss": 0.69, "reward": 0.1, "accuracy": 0.5, "lr": 1e-6}]
    (reading,) = TrainerLog().read(written("trainer_log.jsonl", rows, lines=True))
    assert reading.evidence.metrics.get("rewards/accuracies").values.tolist() == [0.5]


def test_an_evaluation_after_training_is_no_point_of_the_run(written):
    rows = [old(10, 2.5), old(30, 1.5), {"current_steps": 2, "total_steps": 2, "loss": None, "eval_loss": 1.25}]
    (reading,) = TrainerLog().read(written("trainer_log.jsonl", rows, lines=True))
    metrics = reading.evidence.metrics
    assert metrics.get("eval_loss") is None
    assert metrics.summary["eval_loss"] == 1.25
    assert (metrics.total_steps, metrics.finished) == (30, True)


def test_pace_from_the_clock_without_evaluations(written):
    rows = [old(at, 1.0, elapsed_time=f"0:{at:02d}:00") for at in (10, 20)]
    rows += [old(20, None, eval_loss=1.0, elapsed_time="0:50:00"), old(30, 1.0, elapsed_time="1:00:00")]
    (reading,) = TrainerLog().read(written("trainer_log.jsonl", rows, lines=True))
    assert reading.evidence.metrics.get("step_seconds").values.tolist() == [60.0]
    days = written(
        "trainer_log.jsonl",
        [old(10, 1.0, elapsed_time="9 days, 21:39:23"), old(20, 1.0, elapsed_time="9 days, 21:39:25")],
        lines=True,
    )
    assert TrainerLog().read(days)[0].evidence.metrics.get("step_seconds") is None


def test_swift_with_the_step_as_a_fraction(written):
    rows = [
        {
            "loss": 2.0,
            "token_acc": 0.5,
            "grad_norm": 1.0,
            "memory(GiB)": 33.5,
            "train_speed(iter/s)": 0.5,
            "global_step/max_steps": f"{at}/438",
            "percentage": "0.2%",
        }
        for at in (1, 5)
    ]
    rows.append({"eval_loss": 1.5, "eval_token_acc": 0.6, "global_step/max_steps": "5/438"})
    rows.append({"train_runtime": 10.0, "train_loss": 1.9, "global_step/max_steps": "438/438"})
    rows.append(
        {"last_model_checkpoint": "x", "model_info": "Qwen2ForCausalLM: 1500.0M Params (10.5M Trainable [0.7%]), 0.0M Buffers."}
    )
    file = written("v0/logging.jsonl", rows, lines=True)
    assert SwiftLogging().claims(file) > 0.9
    (reading,) = SwiftLogging().read(file)
    metrics = reading.evidence.metrics
    assert metrics.get("loss").steps.tolist() == [1, 5]
    assert metrics.get("accuracy").values.tolist() == [0.5, 0.5]
    assert metrics.get("step_seconds").values.tolist() == [2.0, 2.0]
    assert metrics.get("memory_gib").values.tolist() == [33.5, 33.5]
    assert metrics.get("eval_accuracy").values.tolist() == [0.6]
    assert (metrics.total_steps, metrics.finished, metrics.kind) == (438, True, "causal-lm")
    assert reading.evidence.model.parameters == 1.5e9
    assert reading.evidence.model.trainable == 10.5e6
    assert reading.understood == {"train rows": 2, "eval rows": 1, "summary rows": 1, "run lines": 1}


@pytest.mark.parametrize("accuracy", [{}, {"acc": 0.25}])
def test_swift_with_a_plain_step(written, accuracy):
    rows = [{"loss": 2.0, **accuracy, "learning_rate": 1e-6, "epoch": 0.0, "global_step": at} for at in (1, 1, 5)]
    file = written("logging.jsonl", rows, lines=True)
    assert SwiftLogging().claims(file) >= 0.9
    metrics = SwiftLogging().read(file)[0].evidence.metrics
    assert metrics.get("loss").steps.tolist() == [1, 1, 5]
    assert (metrics.get("accuracy") is not None) == bool(accuracy)


def steps_file(written, steps):
    return written("logging.jsonl", [{"loss": 1.0, "grad_norm": at, "global_step": at} for at in steps], lines=True)


def test_a_resume_is_kept_in_order_and_marked(written):
    (reading,) = SwiftLogging().read(steps_file(written, [10, 20, 30, 40, 30, 40, 50, 60]))
    metrics = reading.evidence.metrics
    assert metrics.resumed_at == (30.0,)
    assert metrics.get("loss").steps.tolist() == [10, 20, 30, 40, 30, 40, 50, 60]


def test_a_new_start_is_a_run_of_its_own(written):
    one, two = SwiftLogging().read(steps_file(written, [10, 20, 30, 40, 10, 20, 30]))
    assert (one.run, two.run) == ("run 1", "run 2")
    assert one.evidence.metrics.get("loss").steps.tolist() == [10, 20, 30, 40]
    assert two.evidence.metrics.get("loss").steps.tolist() == [10, 20, 30]
    assert two.evidence.metrics.get("loss").lines.tolist() == [5, 6, 7]


def test_two_processes_in_one_file_are_no_resume(written):
    steps = [10, 10, 20, 30, 20, 40, 30, 50, 40, 50, 60, 60]
    (reading,) = SwiftLogging().read(steps_file(written, steps))
    metrics = reading.evidence.metrics
    assert metrics.resumed_at == ()
    assert metrics.get("loss").steps.tolist() == sorted(steps)
    assert metrics.get("grad_norm").values.tolist() == sorted(steps)


def test_junk_between_rows_is_counted(written):
    text = '{"loss": 1.0, "global_step": 1}\n\nnot json\n[1, 2]\n{"loss": NaN, "global_step": 2}\n{"loss": 1.0, "glob'
    (reading,) = SwiftLogging().read(written("logging.jsonl", text))
    assert reading.skipped["lines that are no JSON object"] == 3
    assert math.isnan(reading.evidence.metrics.get("loss").values[1])
    assert reading.evidence.metrics.get("loss").lines.tolist() == [1, 5]


def test_nothing_understood_is_said(written):
    (reading,) = SwiftLogging().read(written("logging.jsonl", "hello\nworld\n"))
    assert not reading.understood
    assert reading.note
