"""Finding files and telling runs apart."""

import json
import os

import pytest

from tuneclinic.clinic import diagnose, runs
from tuneclinic.probes.files import files_of, run_of, split_runs


def state(folder, losses, rate=1e-4, first=1):
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"step": step, "loss": loss, "learning_rate": rate, "epoch": step / 10} for step, loss in enumerate(losses, first)]
    (folder / "trainer_state.json").write_text(
        json.dumps({"global_step": len(losses), "max_steps": len(losses), "log_history": rows})
    )


FALLING = [2 - step / 40 + 0.01 * (step % 3) for step in range(30)]


def test_sibling_folders_are_runs_and_know_of_each_other(tmp_path):
    for number, rate in enumerate((1e-5, 1e-4, 1e-3), 1):
        state(tmp_path / f"run-{number}", [value + number / 10 for value in FALLING], rate)
    (tmp_path / "requirements.txt").write_text("torch==2.5.0\n")
    found = diagnose(tmp_path)
    assert [run.run.rsplit("/", 1)[-1] for run in found] == ["run-1", "run-2", "run-3"]
    assert all(len(run.evidence.attempts.items) == 2 for run in found)
    assert all(run.evidence.environment.packages["torch"] for run in found)


def test_checkpoints_are_one_run(tmp_path):
    state(tmp_path / "checkpoint-10", FALLING[:10])
    state(tmp_path / "checkpoint-30", FALLING)
    (run,) = diagnose(tmp_path)
    assert len(run.evidence.metrics.get("loss")) == 30


def test_a_resumed_run_keeps_the_rows_of_its_older_checkpoint(tmp_path):
    state(tmp_path / "checkpoint-10", FALLING[:10])
    state(tmp_path / "checkpoint-30", FALLING[10:], first=11)
    (run,) = diagnose(tmp_path)
    assert len(run.evidence.metrics.get("loss")) == 30


def test_two_logs_of_one_run_are_joined_and_two_of_two_are_not(tmp_path):
    printed = "".join(
        f"{{'loss': {value:.4f}, 'learning_rate': 0.0001, 'epoch': {step / 10}}}\n" for step, value in enumerate(FALLING, 1)
    )
    state(tmp_path / "one", FALLING)
    (tmp_path / "one" / "train.log").write_text(printed)
    assert len(runs([tmp_path / "one"])) == 1
    for number in (1, 2):
        rows = "".join(
            json.dumps({"step": step, "loss": value + number / 5, "learning_rate": 1e-4}) + "\n"
            for step, value in enumerate(FALLING, 1)
        )
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "two" / f"metrics_{number}.jsonl").write_text(rows)
    assert len(runs([tmp_path / "two"])) == 2


def test_loose_files_belong_together(tmp_path):
    state(tmp_path, FALLING)
    (tmp_path / "train.yaml").write_text("model_name_or_path: x\nfinetuning_type: lora\nlearning_rate: 1.0e-4\n")
    (run,) = diagnose(tmp_path / "trainer_state.json", tmp_path / "train.yaml")
    assert run.evidence.settings.get("method") == "lora"
    assert len(run.evidence.metrics.get("loss")) == 30


def test_pointers_and_empty_files_are_named(tmp_path):
    (tmp_path / "trainer_state.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n")
    (tmp_path / "train.log").write_text("")
    (run,) = diagnose(tmp_path)
    assert {read.kind for read in run.read} == {"git-lfs-pointer", "empty"}
    assert run.exit_code == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_links_and_odd_names_do_no_harm(tmp_path):
    state(tmp_path, FALLING)
    os.mkfifo(tmp_path / "train.log")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "\x1b[2Jname\nwith <b>.log").write_text("nothing here")
    os.close(os.open(os.fsencode(tmp_path) + b"/bad\xff.log", os.O_CREAT | os.O_WRONLY))
    (run,) = diagnose(tmp_path)
    assert len(run.evidence.metrics.get("loss")) == 30
    assert len(files_of(tmp_path)) == 3


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("trainer_state.json", ""),
        ("checkpoint-10/trainer_state.json", ""),
        ("a/checkpoint-10/trainer_state.json", "a"),
        ("a/runs/Dec01/events.out.tfevents.1", "a/runs/Dec01"),
        ("lightning_logs/version_0/metrics.csv", ""),
        ("wandb/offline-run-20261201_100000-abc/files/output.log", ""),
        ("run-2/trainer_state.json", "run-2"),
    ],
)
def test_the_folder_of_a_run(name, folder):
    assert run_of(name) == folder


def test_nested_logs_fall_to_the_outer_run():
    assert split_runs(["trainer_state.json", "runs/Dec01/events"]) == [""]
    assert split_runs(["a/x.json", "b/x.json", "a/sub/y.json"]) == ["a", "b"]


def test_ranks_of_two_runs_are_not_mixed(tmp_path):
    for number in (1, 2):
        for rank in (0, 1):
            rows = "".join(
                f"{{'loss': {value + number + rank / 10:.4f}, 'learning_rate': 0.0001, 'epoch': {step / 10}}}\n"
                for step, value in enumerate(FALLING, 1)
            )
            (tmp_path / f"run-{number}").mkdir(exist_ok=True)
            (tmp_path / f"run-{number}" / f"log_rank{rank}.txt").write_text(rows)
    found = diagnose(tmp_path)
    assert [run.evidence.metrics.get("loss").values[0] for run in found] == pytest.approx(
        [FALLING[0] + 1, FALLING[0] + 2], abs=1e-3
    )
    assert all(set(run.evidence.metrics.by_rank) == {0, 1} for run in found)


def test_logs_of_ranks_stand_side_by_side(tmp_path):
    for rank in (0, 1):
        rows = "".join(
            f"{{'loss': {value + rank / 10:.4f}, 'learning_rate': 0.0001, 'epoch': {step / 10}}}\n"
            for step, value in enumerate(FALLING, 1)
        )
        (tmp_path / f"log_rank{rank}.txt").write_text(rows)
    (run,) = diagnose(tmp_path)
    by_rank = run.evidence.metrics.by_rank
    assert set(by_rank) == {0, 1}
    assert by_rank[1]["loss"].values[0] - by_rank[0]["loss"].values[0] == pytest.approx(0.1, abs=1e-3)
    assert len(run.evidence.metrics.get("loss")) == 30
