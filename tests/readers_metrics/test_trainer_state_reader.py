import json
import math

import pytest

from tuneclinic.probes.readers.trainer_state import TrainerState, merge_states
from tuneclinic.words import Text

ROWS = [
    {"epoch": 0.5, "grad_norm": 1.5, "learning_rate": 2e-5, "loss": 2.5, "step": 10},
    {"epoch": 1.0, "grad_norm": 1.1, "learning_rate": 1e-5, "loss": 1.5, "step": 20},
    {"epoch": 1.0, "eval_loss": 1.7, "eval_runtime": 3.1, "step": 20},
    {"epoch": 1.0, "step": 20, "total_flos": 1.2e15, "train_loss": 2.0, "train_runtime": 12.5, "train_steps_per_second": 1.6},
]


def state(rows, **more):
    return {"global_step": 20, "max_steps": 20, "num_train_epochs": 1, "is_world_process_zero": True, "log_history": rows, **more}


def read(file):
    (reading,) = TrainerState().read(file)
    return reading


def test_rows_of_three_shapes(written):
    file = written("trainer_state.json", state(ROWS))
    assert TrainerState().claims(file) > 0.9
    reading = read(file)
    metrics = reading.evidence.metrics
    assert reading.understood == {"train rows": 2, "eval rows": 1, "summary rows": 1}
    assert metrics.get("loss").values.tolist() == [2.5, 1.5]
    assert metrics.get("loss").steps.tolist() == [10, 20]
    assert metrics.get("loss").lines.tolist() == [1, 2]
    assert metrics.get("loss").where(1) == "step 20 (trainer_state.json:2)"
    assert metrics.get("eval_loss").lines.tolist() == [3]
    assert metrics.get("train_loss") is None
    assert metrics.summary["train_loss"] == 2.0
    assert metrics.total_steps == 20
    assert metrics.finished is True
    assert reading.evidence.settings.number("epochs") == 1


def test_a_checkpoint_before_the_end_is_not_finished(written):
    metrics = read(written("trainer_state.json", state(ROWS[:2], max_steps=200))).evidence.metrics
    assert metrics.finished is False
    assert metrics.total_steps == 200


def test_no_planned_steps_tell_nothing_of_the_end(written):
    metrics = read(written("trainer_state.json", state(ROWS[:2], max_steps=0))).evidence.metrics
    assert metrics.finished is None
    assert metrics.total_steps is None


def test_bare_nan_and_infinity(written):
    text = json.dumps(state([{"step": 1, "loss": 0.0, "grad_norm": math.nan}, {"step": 2, "loss": math.inf}]))
    assert "NaN" in text
    metrics = read(written("trainer_state.json", text)).evidence.metrics
    assert math.isnan(metrics.get("grad_norm").values[0])
    assert math.isinf(metrics.get("loss").values[1])


def test_values_as_strings(written):
    rows = [{"loss": "2.1", "grad_norm": "nan", "learning_rate": "2e-05", "step": 1}, {"loss": "1,024.5", "step": "2"}]
    metrics = read(written("trainer_state.json", state(rows))).evidence.metrics
    assert metrics.get("loss").values.tolist() == [2.1, 1024.5]
    assert metrics.get("loss").steps.tolist() == [1, 2]
    assert math.isnan(metrics.get("grad_norm").values[0])


@pytest.mark.parametrize(
    ("extra", "kind"),
    [
        ({"rewards/chosen": 0.1, "rewards/rejected": -0.1, "rewards/accuracies": 0.6}, "dpo"),
        ({"rewards/chosen": 0.1, "rewards/rejected": -0.1, "kl": 0.2}, "kto"),
        ({"reward": 0.4, "reward_std": 0.2, "completions/mean_length": 200.0}, "grpo"),
        ({"objective/kl": 0.4, "policy/approxkl_avg": 0.2}, "ppo"),
        ({"min_reward": -1.0, "mean_reward": 0.0, "max_reward": 1.0}, "reward"),
        ({"mean_token_accuracy": 0.6}, "causal-lm"),
        ({"eval_f1": 0.6}, "classification"),
        ({"grad_norm": 1.0}, ""),
    ],
)
def test_kind_by_names(written, extra, kind):
    metrics = read(written("trainer_state.json", state([{"loss": 0.7, "step": 1, **extra}]))).evidence.metrics
    assert metrics.kind == kind


def test_grpo_and_token_accuracy_names(written):
    rows = [
        {"loss": 0.0, "reward": 0.1, "reward_std": 0.1, "completions/mean_length": 80.0, "step": 1, "mean_token_accuracy": 0.5}
    ]
    series = read(written("trainer_state.json", state(rows))).evidence.metrics.series
    assert {"completion_length", "accuracy", "reward", "reward_std"} <= set(series)


@pytest.mark.parametrize("cut", [200, 300, 350])
def test_a_cut_file_gives_its_complete_rows(written, cut):
    rows = [{"epoch": at / 10, "loss": 3.0 - at / 10, "step": at} for at in range(1, 20)]
    text = json.dumps({"global_step": 19, "max_steps": 40, "log_history": rows})
    reading = read(written("trainer_state.json", text[:cut]))
    complete = text[:cut].count("}")
    assert reading.understood == {"train rows": complete}
    assert reading.skipped["rows after the damage"] == 1
    assert isinstance(reading.note, Text)
    assert reading.evidence.metrics.total_steps == 40


def test_a_file_without_history_says_so(written):
    reading = read(written("trainer_state.json", {"global_step": 3}))
    assert not reading.understood
    assert reading.note
    assert reading.evidence.metrics is None


def test_an_lfs_pointer_is_no_history(written):
    reading = read(written("trainer_state.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"))
    assert not reading.understood
    assert reading.note


def test_gzip(written):
    assert read(written("trainer_state.json.gz", json.dumps(state(ROWS)), zipped=True)).understood["train rows"] == 2


def test_merging_takes_the_newest_and_puts_lacking_rows_in_front(written):
    old = written("checkpoint-20/trainer_state.json", state([{"loss": 3.0, "step": 10}, {"loss": 2.0, "step": 20}]))
    new = written(
        "checkpoint-40/trainer_state.json",
        state([{"loss": 2.6, "step": 20}, {"loss": 2.2, "step": 40}], global_step=40, max_steps=80),
    )
    merged = merge_states([new, old])
    metrics = merged.evidence.metrics
    assert metrics.get("loss").steps.tolist() == [10, 20, 40]
    assert metrics.get("loss").values.tolist() == [3.0, 2.6, 2.2]
    assert metrics.resumed_at == (20.0,)
    assert metrics.total_steps == 80
    assert metrics.finished is False
    assert isinstance(merged.note, Text)


def test_merging_a_history_that_is_whole_changes_nothing(written):
    first = [{"loss": 3.0, "step": 10}, {"loss": 2.0, "step": 20}]
    old = written("checkpoint-20/trainer_state.json", state(first))
    new = written("checkpoint-40/trainer_state.json", state([*first, {"loss": 1.0, "step": 40}], global_step=40))
    metrics = merge_states([old, new]).evidence.metrics
    assert metrics.get("loss").values.tolist() == [3.0, 2.0, 1.0]
    assert metrics.resumed_at == ()


def test_merging_nothing():
    assert not merge_states([]).understood
