"""Files that real trainers wrote are read for what they hold, and healthy runs are met with silence.

The truth is written out here: from the trainer's own JSON where it wrote one, else counted by eye in the log.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneclinic.clinic import diagnose

HERE = Path(__file__).parent
HEALTHY = {
    "trl/sft": ("causal-lm", "trl", 20),
    "trl/lora": ("causal-lm", "trl", 20),
    "trl/resumed": ("causal-lm", "trl", 23),
    "trl/long": ("causal-lm", "trl", 30),
    "trl/two-ranks-well": ("causal-lm", "trl", 20),
    "trl/dpo": ("dpo", "trl", 20),
    "trl/kto": ("kto", "trl", 40),
    "trl/reward": ("reward", "trl", 20),
    "trl/grpo": ("grpo", "trl", 15),
    "lightning/classifier": ("classification", "lightning", 40),
    "llama-factory/lora-sft": ("causal-lm", "llama-factory", 18),
    "ms-swift/lora-sft": ("causal-lm", "ms-swift", 20),
    "axolotl/lora-sft": ("causal-lm", "axolotl", 18),
    "transformers-4/trainer": ("", "transformers", 12),
}
"""Kind, framework and rows of training loss of each healthy run."""
SETTINGS = {
    "trl/sft": {
        "learning_rate": (0.005, "training_args.json:6"),
        "batch_per_device": (8, "training_args.json:3"),
        "epochs": (2, "output/checkpoint-20/trainer_state.json"),
        "scheduler": ("cosine", "training_args.json:7"),
        "warmup_steps": (2, "training_args.json:9"),
        "assistant_only_loss": (True, "training_args.json:140"),
        "gradient_checkpointing": (True, "training_args.json:28"),
    },
    "trl/lora": {
        "learning_rate": (0.01, "training_args.json:6"),
        "accumulation": (2, "training_args.json:17"),
        "max_steps": (20, "training_args.json:5"),
        "method": ("lora", "train.py:21"),
        "lora_rank": (8, "train.py:21"),
        "lora_alpha": (16, "train.py:21"),
        "lora_dropout": (0.05, "train.py:21"),
        "target_modules": ("all-linear", "train.py:21"),
    },
    "trl/resumed": {
        "learning_rate": (0.005, "train.py:11"),
        "batch_per_device": (8, "train.py:12"),
        "max_length": (128, "train.py:20"),
    },
    "trl/dpo": {
        "learning_rate": (0.001, "training_args.json:6"),
        "beta": (0.1, "training_args.json:142"),
        "stage": ("dpo", "train.py:6"),
    },
    "trl/kto": {"learning_rate": (0.001, "training_args.json:6"), "stage": ("kto", "train.py:7")},
    "trl/reward": {"learning_rate": (0.001, "training_args.json:6"), "stage": ("reward", "train.py:6")},
    "trl/grpo": {
        "learning_rate": (0.001, "training_args.json:6"),
        "generations": (4, "training_args.json:128"),
        "max_completion_length": (16, "training_args.json:130"),
        "beta": (0.04, "training_args.json:157"),
    },
    "lightning/classifier": {
        "learning_rate": (0.01, "csv/version_0/hparams.yaml:2"),
        "epochs": (5, "train.py:36"),
        "use_cpu": (True, "train.py:37"),
        "max_grad_norm": (1.0, "train.py:40"),
        "batch_per_device": (64, "train.py:43"),
    },
    "llama-factory/lora-sft": {
        "learning_rate": (0.01, "sft.yaml:31"),
        "batch_per_device": (2, "sft.yaml:29"),
        "accumulation": (4, "sft.yaml:30"),
        "lora_rank": (8, "sft.yaml:9"),
        "template": ("chatml", "sft.yaml:15"),
        "max_length": (256, "sft.yaml:16"),
        "warmup_ratio": (0.1, "sft.yaml:34"),
    },
    "ms-swift/lora-sft": {
        "learning_rate": (0.01, "train.sh:16"),
        "batch_per_device": (2, "train.sh:14"),
        "accumulation": (4, "train.sh:17"),
        "lora_rank": (8, "train.sh:6"),
        "lora_alpha": (32, "train.sh:7"),
        "template": ("chatml", "train.sh:4"),
        "use_cpu": (True, "train.sh:12"),
        "max_length": (256, "train.sh:21"),
    },
    "axolotl/lora-sft": {
        "learning_rate": (0.01, "config.yaml:35"),
        "batch_per_device": (4, "config.yaml:31"),
        "accumulation": (2, "config.yaml:30"),
        "lora_rank": (8, "config.yaml:18"),
        "max_length": (256, "config.yaml:26"),
        "packing": (False, "config.yaml:27"),
        "warmup_steps": (2, "config.yaml:43"),
    },
    "transformers-4/trainer": {
        "learning_rate": (0.003, "train.py:9"),
        "batch_per_device": (16, "train.py:10"),
        "logging_steps": (2, "train.py:13"),
        "eval_strategy": ("epoch", "train.py:14"),
        "warmup_ratio": (0.1, "train.py:16"),
    },
}
STATES = sorted(path.relative_to(HERE).as_posix() for path in HERE.rglob("trainer_state.json"))
LOGS = {
    "trl/sft": "trl/sft/output/checkpoint-20/trainer_state.json",
    "trl/lora": "trl/lora/output/checkpoint-20/trainer_state.json",
    "trl/long": "trl/long/output/checkpoint-600/trainer_state.json",
    "trl/two-ranks-well": "trl/two-ranks-well/output/checkpoint-20/trainer_state.json",
    "trl/dpo": "trl/dpo/output/checkpoint-20/trainer_state.json",
    "trl/kto": "trl/kto/output/checkpoint-40/trainer_state.json",
    "trl/reward": "trl/reward/output/checkpoint-20/trainer_state.json",
    "trl/grpo": "trl/grpo/output/checkpoint-15/trainer_state.json",
    "llama-factory/lora-sft": "llama-factory/lora-sft/saves/tiny/lora/sft/trainer_state.json",
    "ms-swift/lora-sft": "ms-swift/lora-sft/output/v0-20261201-170802/checkpoint-20/trainer_state.json",
    "axolotl/lora-sft": "axolotl/lora-sft/outputs/lora-out/checkpoint-18/trainer_state.json",
    "transformers-4/trainer": "transformers-4/trainer/output/trainer_state.json",
}
"""Printed logs, and what the trainer wrote of the same run in full."""


def one(*paths: Path):
    """The diagnosis of what must be one run."""
    (run,) = diagnose(*paths)
    return run


def silent(run):
    """Whether nothing is seen, confirmed or suspected."""
    return (
        not run.seen
        and not run.having("confirmed")
        and not run.having("suspected")
        and not run.having("errored")
        and run.exit_code == 0
    )


def history(path, key):
    """Steps and values of `key` in a trainer_state.json, read plainly."""
    rows = [row for row in json.loads(path.read_text())["log_history"] if key in row]
    return [row["step"] for row in rows], [row[key] for row in rows]


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_are_met_with_silence(name):
    run = one(HERE / name)
    assert silent(run)
    assert run.conclusion == "no_fault"


@pytest.mark.parametrize("name", HEALTHY)
def test_kind_framework_and_length(name):
    seen = one(HERE / name).evidence
    assert (seen.metrics.kind, seen.settings.framework, len(seen.metrics.get("loss"))) == HEALTHY[name]
    assert seen.metrics.finished is True


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_with_their_places(name):
    values = one(HERE / name).evidence.settings.values
    for key, (value, where) in SETTINGS[name].items():
        assert (values[key].value, values[key].where) == (value, where), key


@pytest.mark.parametrize("name", STATES)
def test_every_trainer_state_is_read_whole(name):
    run = one(HERE / name)
    assert silent(run)
    for key in ("loss", "learning_rate", "grad_norm", "eval_loss"):
        steps, values = history(HERE / name, key)
        series = run.evidence.metrics.get(key)
        assert (series is None) == (not steps), key
        if series is not None:
            assert series.steps.tolist() == steps
            assert series.values.tolist() == values


@pytest.mark.parametrize("name", LOGS)
def test_the_printed_log_tells_what_the_state_tells(name):
    run = one(HERE / name / "train.log")
    assert silent(run)
    metrics = run.evidence.metrics
    assert metrics.kind == HEALTHY[name][0]
    assert metrics.finished is True
    for key in ("loss", "learning_rate", "grad_norm", "eval_loss"):
        steps, values = history(HERE / LOGS[name], key)
        series = metrics.get(key)
        if steps:
            assert series.steps.tolist() == steps, key
            np.testing.assert_allclose(series.values, values, rtol=6e-4, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in LOGS if name.startswith("trl/")])
def test_standard_output_without_the_bar_tells_the_steps_too(name, tmp_path):
    text = (HERE / name / "train.log").read_text(encoding="utf-8")
    printed = "\n".join(
        re.findall(r"\{'[^{}\n\r]*\}", text)
    )  # the bar goes to standard error, the dictionaries to standard output
    (tmp_path / "train.log").write_text(printed)
    run = one(tmp_path / "train.log")
    assert silent(run)
    for key in ("loss", "eval_loss"):
        steps, _ = history(HERE / LOGS[name], key)
        if steps:
            assert run.evidence.metrics.get(key).steps.tolist() == steps


@pytest.mark.parametrize("share", [0.4, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_log_that_still_grows_raises_no_alarm(name, share, tmp_path):
    body = (HERE / name / "train.log").read_bytes()
    (tmp_path / "train.log").write_bytes(body[: int(len(body) * share)])
    assert silent(one(tmp_path / "train.log")) or not one(tmp_path / "train.log").understood


def test_llama_factory_writes_the_same_run_three_times():
    folder = HERE / "llama-factory/lora-sft/saves/tiny/lora/sft"
    steps, values = history(folder / "trainer_state.json", "loss")
    seen = one(folder / "trainer_log.jsonl").evidence
    assert seen.metrics.get("loss").steps.tolist() == steps
    np.testing.assert_allclose(seen.metrics.get("loss").values, values, rtol=1e-3)
    assert len(seen.metrics.get("eval_loss")) == 4
    assert seen.metrics.total_steps == 18
    seen = one(folder / "all_results.json", folder / "trainer_state.json").evidence
    assert seen.metrics.summary["train_loss"] == pytest.approx(5.385520113839044)


def test_ms_swift_writes_the_same_run_three_times():
    folder = HERE / "ms-swift/lora-sft/output/v0-20261201-170802"
    steps, values = history(folder / "checkpoint-20/trainer_state.json", "loss")
    run = one(folder / "logging.jsonl")
    metrics = run.evidence.metrics
    assert (metrics.kind, metrics.total_steps, metrics.finished) == ("causal-lm", 20, True)
    assert metrics.get("loss").steps.tolist() == steps
    np.testing.assert_allclose(metrics.get("loss").values, values, rtol=1e-6)
    assert metrics.get("eval_loss").steps.tolist() == [10, 20]
    (read,) = one(HERE / "ms-swift/lora-sft/train.log").read
    assert [read.understood[shape] for shape in ("train rows", "eval rows", "summary rows")] == [20, 2, 1]
    values = one(folder / "args.json").evidence.settings.values
    assert (values["learning_rate"].value, values["lora_rank"].value, values["accumulation"].value) == (0.01, 8, 4)


def test_a_killed_and_resumed_run_is_one_run_that_goes_back():
    metrics = one(HERE / "trl/resumed/train.log").evidence.metrics
    assert metrics.get("loss").steps.tolist() == [*range(1, 14), *range(11, 21)]
    assert metrics.get("eval_loss").steps.tolist() == [10, 20]
    assert metrics.get("loss").values[[0, 12, 13, 22]].tolist() == [5.734, 3.133, 3.288, 2.975]


def test_lightning_logs_by_bar_table_and_events_are_one_run():
    folder = HERE / "lightning/classifier"
    bar = one(folder / "train.log").evidence.metrics
    assert bar.get("loss").steps.tolist() == list(range(1, 41))
    assert bar.get("eval_loss").steps.tolist() == [8, 16, 24, 32, 40]
    assert bar.get("eval_loss").values.tolist() == [0.86, 0.62, 0.392, 0.247, 0.175]
    assert bar.finished is True
    table = one(folder / "csv/version_0/metrics.csv").evidence.metrics
    np.testing.assert_allclose(bar.get("loss").values, table.get("loss").values, rtol=6e-3)
    events = one(*folder.glob("tb/version_0/events*")).evidence.metrics
    np.testing.assert_allclose(events.get("loss").values, table.get("loss").values, rtol=1e-6)


@pytest.mark.parametrize(("name", "rank", "line"), [("collator-raises", None, 33), ("two-ranks", 1, 34)])
def test_the_crash_is_named_with_its_rank_and_line(name, rank, line):
    run = one(HERE / "trl" / name)
    cause = run.evidence.crash.cause
    assert (cause.kind, cause.message, cause.rank, cause.phase, cause.step) == ("KeyError", "'completion'", rank, "data", 5)
    assert cause.frames[-1].endswith(f"train.py:{line} in __call__")
    assert not run.evidence.crash.interrupted
    assert [sighting.symptom for sighting in run.seen] == ["crashes"]
    assert (run.findings[0].case, run.findings[0].verdict, run.exit_code) == ("error-in-script", "confirmed", 1)
    assert run.evidence.metrics.get("loss").values[[0, -1]].tolist() == [5.734, 4.705]


def test_the_echoes_of_a_crash_stand_behind_it():
    first, *echoes = one(HERE / "trl/two-ranks").evidence.crash.errors
    assert [error.rank for error in echoes] == [0, None]
    assert echoes[-1].kind.endswith("ChildFailedError")
    assert first.rank == 1


def test_an_interrupt_is_no_fault():
    run = one(HERE / "trl/interrupted")
    assert run.evidence.crash.interrupted
    assert run.evidence.metrics.finished is False
    assert run.evidence.metrics.total_steps == 2000
    assert silent(run)


@pytest.mark.parametrize("name", ["axolotl/lora-sft", "ms-swift/lora-sft"])
def test_the_log_alone_tells_the_configuration_it_prints(name):
    seen = one(HERE / name / "train.log").evidence
    lines = (HERE / name / "train.log").read_text(encoding="utf-8").split("\n")
    for key in ("learning_rate", "lora_rank", "batch_per_device", "accumulation", "max_length"):
        setting = seen.settings.values[key]
        assert setting.value == SETTINGS[name][key][0]
        line = lines[int(setting.where.rpartition(":")[2]) - 1]
        assert setting.key in line
        assert str(setting.value) in line


@given(st.sampled_from([b"[axolotl.cli.config] config:\n{", b"[INFO:swift] args: SftArguments(\n"]), st.binary(max_size=300))
def test_a_damaged_printed_configuration_never_raises(tmp_path_factory, head, rest):
    path = tmp_path_factory.mktemp("log") / "train.log"
    path.write_bytes(head + rest.replace(b"\0", b"=") + b"\n'x': ((((,\nlearning_rate=1e-4,\n")
    assert isinstance(diagnose(path), list)
