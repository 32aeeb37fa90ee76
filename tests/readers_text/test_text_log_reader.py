"""Whole logs through the reader: runs, ranks, progress bars, facts, errors, damage."""

import gzip
import io
import math
import tracemalloc

import numpy as np
import pytest

from tuneclinic.probes.lines._scan import Scan
from tuneclinic.probes.readers.text_log import TextLogReader
from tuneclinic.probes.reading import SourceFile

READER = TextLogReader()


@pytest.fixture
def read(tmp_path):
    def read(text, name="train.log"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return READER.read(SourceFile(path, name))

    return read


def dicts(epochs, start=2.0):
    return [
        f"{{'loss': {start - 0.01 * at:.4f}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': {epoch:.2f}}}"
        for at, epoch in enumerate(epochs)
    ]


def steps_of(reading, name="loss"):
    return reading.evidence.metrics.series[name].steps.tolist()


HEADER = """\
***** Running training *****
  Num examples = 1,000
  Num Epochs = 2
  Instantaneous batch size per device = 4
  Total train batch size (w. parallel, distributed & accumulation) = 10
  Gradient Accumulation steps = 2
  Total optimization steps = 200
  Number of trainable parameters = 20,971,520
"""


def test_trainer_block_and_steps_by_epoch(read):
    lines = dicts([0.1 * at for at in range(1, 21)])
    lines.insert(10, "{'eval_loss': 1.9, 'eval_runtime': 2.0, 'epoch': 1.0}")
    lines.append("{'train_runtime': 60.0, 'train_loss': 1.9, 'epoch': 2.0}")
    (reading,) = read(HEADER + "\n".join(lines) + "\n")
    metrics = reading.evidence.metrics
    assert steps_of(reading) == [10.0 * at for at in range(1, 21)]
    assert steps_of(reading, "eval_loss") == [100.0]
    assert metrics.total_steps == 200
    assert metrics.finished is True
    assert metrics.rows_are_steps is False
    assert metrics.summary["train_loss"] == 1.9
    assert reading.understood == {"train rows": 20, "eval rows": 1, "summary rows": 1, "log lines": 8}
    settings = reading.evidence.settings
    assert (settings.number("batch_per_device"), settings.number("accumulation"), settings.number("epochs")) == (4, 2, 2)
    assert settings.values["accumulation"].where == "train.log:6"
    assert reading.evidence.model.trainable == 20_971_520
    assert metrics.series["loss"].lines[0] == 9


def test_without_any_step_rows_are_counted(read):
    (reading,) = read("\n".join(dicts([0.1, 0.2, 0.3])))
    assert reading.evidence.metrics.rows_are_steps is True
    assert steps_of(reading) == [1, 2, 3]


def test_carriage_returns_only_and_bars_give_steps(read):
    bars = []
    for step in range(1, 31):
        bars.append(f"\r  {step * 100 // 60}%|{'#' * (step // 6)}         | {step}/60 [00:{step:02d}<00:30,  1.00s/it]")
        if step % 5 == 0:
            bars.append(
                f"\r                        \r{{'loss': {2 - step * 0.01}, 'learning_rate': 1e-05, 'epoch': {step / 60:.2f}}}"
            )
            bars.append(f"\r  {step * 100 // 60}%|{'#' * (step // 6)}         | {step}/60 [00:{step:02d}<00:30,  1.00s/it]")
    (reading,) = read("".join(bars))
    assert steps_of(reading) == [5, 10, 15, 20, 25, 30]
    assert reading.evidence.metrics.total_steps == 60
    assert reading.evidence.metrics.finished is False
    assert set(reading.evidence.metrics.series["loss"].lines.tolist()) == {1}


def test_bars_on_lines_of_their_own_give_steps(read):
    (reading,) = read(
        "\n".join(
            f"{{'loss': {2.0 - step / 10}, 'epoch': 0.0}}\n  0%|          | {step}/1000 [00:{step:02d}<2:46:30, 10.00s/it]"
            for step in (2, 4, 6)
        )
    )
    assert steps_of(reading) == [2, 4, 6]
    assert reading.evidence.metrics.total_steps == 1000


def test_steps_that_start_anew_each_epoch_count_on(read):
    rows = [f"epoch: {epoch}, step: {step}, loss: {3 - epoch - step / 1000}" for epoch in (0, 1) for step in (0, 100, 200)]
    (reading,) = read("\n".join(rows))
    assert steps_of(reading) == [0, 100, 200, 300, 400, 500]


def test_repeated_bar_counts_once_and_last_value_stands(read):
    text = "".join(
        f"\rEpoch 0:  1%|#  | {step}/100 [00:01<00:10, 5.0it/s, v_num=0, train_loss={value}, val_loss=2.5]"
        for step, value in [(1, 3.0), (1, 2.9), (2, 2.8), (2, 2.7), (3, 2.6)]
    )
    (reading,) = read(text)
    assert steps_of(reading) == [1, 2, 3]
    assert reading.evidence.metrics.series["loss"].values.tolist() == [2.9, 2.7, 2.6]
    assert len(reading.evidence.metrics.series["eval_loss"]) == 1
    assert reading.understood["train rows"] == 3


def test_two_runs_in_one_file(read):
    first, second = (
        [f"iter {step}: loss {3 - step / 100:.3f}, time 10.0ms, mfu 1.0%" for step in range(0, 50, 10)],
        [f"iter {step}: loss {4 - step / 100:.3f}, time 10.0ms, mfu 1.0%" for step in range(0, 30, 10)],
    )
    readings = read(
        "\n".join(
            [*first, "Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "ValueError: bad", *second]
        )
    )
    assert [reading.run for reading in readings] == ["run 1", "run 2"]
    assert [steps_of(reading) for reading in readings] == [[0, 10, 20, 30, 40], [0, 10, 20]]
    assert readings[0].evidence.crash.cause.kind == "ValueError"
    assert readings[1].evidence.crash is None


def test_a_resume_is_no_new_run(read):
    rows = [f"step {step:05d} | loss: {3 - step / 100:.3f} | dt: 5.0ms" for step in [*range(10, 110, 10), *range(60, 160, 10)]]
    (reading,) = read("\n".join(rows))
    assert len(steps_of(reading)) == 20


def test_announced_resume_at_the_first_step(read):
    rows = [f"step: {step}  loss: {3 - step / 100:.3f}  grad_norm: 1.0" for step in (10, 20, 30)]
    (reading,) = read("\n".join([*rows, "Resuming training from checkpoint step 10", *rows]))
    assert len(steps_of(reading)) == 6


def test_interleaved_runs_are_told_apart(read):
    rows = [("a", 0), ("a", 1), ("b", 0), ("a", 2), ("b", 1), ("a", 3), ("b", 2)]
    readings = read("\n".join(f"Finish training epoch {epoch}. loss: {1.0 if run == 'a' else 2.0}" for run, epoch in rows))
    assert [set(reading.evidence.metrics.series["loss"].values.tolist()) for reading in readings] == [{1.0}, {2.0}]


def test_ranks_side_by_side(read):
    rows = [
        f"[rank{rank}]:[titan] 2026-05-20 02:55:16 - root - INFO - step: {step:2d}  loss: {3 - step / 10 + rank:.5f}  grad_norm: 1.0  memory: 1.00GiB(2.0%)  tps: 100"
        for step in (1, 2, 3)
        for rank in (1, 0)
    ]
    (reading,) = read("\n".join(rows))
    metrics = reading.evidence.metrics
    assert metrics.series["loss"].values.tolist() == pytest.approx([2.9, 2.8, 2.7])
    assert metrics.by_rank[1]["loss"].values.tolist() == pytest.approx([3.9, 3.8, 3.7])
    assert metrics.kind == "causal-lm"


def test_srun_labels(read):
    rows = [f"{rank}: {{'loss': {2.0 - step / 10 + rank}, 'epoch': {step / 10}}}" for step in range(1, 9) for rank in (0, 1)]
    (reading,) = read("\n".join(rows))
    assert len(steps_of(reading)) == 8
    assert list(reading.evidence.metrics.by_rank) == [1]


def test_ray_process_ids_become_ranks(read):
    rows = [
        f"(Worker pid={pid}) step:{step} - actor/pg_loss:{0.1 * step + pid / 1e6} - actor/pg_clipfrac:0.0"
        for step in (1, 2, 3)
        for pid in (400123, 400777)
    ]
    (reading,) = read("\n".join(rows))
    assert steps_of(reading) == [1, 2, 3]
    assert list(reading.evidence.metrics.by_rank) == [1]
    assert reading.evidence.metrics.kind == "grpo"


def test_same_row_from_four_processes_counts_once(read):
    (reading,) = read("\n".join(line for line in dicts([0.1, 0.2, 0.3, 0.4]) for _ in range(4)))
    assert len(steps_of(reading)) == 4


def test_constant_rows_are_not_taken_for_echoes(read):
    (reading,) = read("\n".join(["{'loss': 0.0, 'grad_norm': 0.0, 'learning_rate': 1e-05, 'epoch': 0.0}"] * 6))
    assert len(steps_of(reading)) == 6


def test_second_logger_does_not_double_rows(read):
    lines = []
    for at in range(1, 6):
        lines += [f"{{'loss': {2 - at / 7:.6f}, 'grad_norm': 0.5, 'learning_rate': 1.23456789e-05, 'epoch': {at / 10:.2f}}}"]
        lines += [
            f"[INFO|2024-01-01 00:00:00] llamafactory.train.callbacks - {{'loss': {2 - at / 7:.4f}, 'learning_rate': 1.2346e-05, 'epoch': {at / 10:.2f}}}"
        ]
    (reading,) = read("\n".join(lines))
    assert len(steps_of(reading)) == 5
    assert len(reading.evidence.metrics.series["grad_norm"]) == 5
    assert reading.evidence.settings.framework == "llama-factory"


def test_loss_scale_falls_at_the_last_step(read):
    lines = [
        "steps: 10 loss: 2.5 iter time (s): 1.0 samples/sec: 3.0",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 32768, reducing to 16384",
    ]
    (reading,) = read("\n".join(lines))
    series = reading.evidence.metrics.series["loss_scale"]
    assert (series.values.tolist(), series.steps.tolist()) == ([32768, 16384], [10, 10])


def test_nan_strings_and_thousands(read):
    text = """\
step 00001/00010 (0.00%) | loss: 5.4 | tok/sec: 25,328
step 00002/00010 (0.00%) | loss: nan | tok/sec: 999
step 00003/00010 (0.00%) | loss: inf | tok/sec: 1,025,328
"""
    (reading,) = read(text)
    series = reading.evidence.metrics.series
    assert series["tokens_per_second"].values.tolist() == [25328, 999, 1025328]
    assert math.isnan(series["loss"].values[1])
    assert math.isinf(series["loss"].values[2])
    assert reading.evidence.metrics.total_steps == 10


def test_every_value_of_many_shapes_is_read(read):
    rng = np.random.default_rng(0)
    values = [*(rng.standard_normal(400) * 10.0 ** rng.integers(-9, 9, 400)).tolist(), 0.0, -0.0, 1e-300, 1e300]
    rows = [
        f"{{'loss': {value!r}, 'grad_norm': '{abs(value):.3f}', 'learning_rate': {abs(value):.3e}, 'epoch': {at / 100:.2f}}}"
        for at, value in enumerate(values)
    ]
    (reading,) = read("\n".join(rows))
    assert reading.evidence.metrics.series["loss"].values.tolist() == values
    assert reading.evidence.metrics.series["loss"].lines.tolist() == list(range(1, len(values) + 1))


def test_facts_of_the_environment(read):
    text = """\
- `transformers` version: 4.44.0
- Python version: 3.10.12
- PyTorch version (GPU?): 2.3.0+cu121 (True)
==((====))==  Unsloth 2025.3.1: Fast Llama patching. Transformers: 4.49.0.
   NVIDIA A100-SXM4-80GB. Num GPUs = 2. Max memory: 79.15 GB. Platform: Linux.
Using cuda_amp half precision backend
trainable params: 3,407,872 || all params: 7,245,139,968 || trainable%: 0.0470
{'loss': 1.0, 'epoch': 0.1}
"""
    (reading,) = read(text)
    environment = reading.evidence.environment
    assert environment.packages["transformers"] == "4.49.0"
    assert environment.packages["torch"] == "2.3.0+cu121"
    assert (environment.python, environment.cuda, environment.processes, environment.device) == ("3.10.12", "12.1", 2, "cuda")
    assert environment.gpus == ("NVIDIA A100-SXM4-80GB",)
    assert environment.gpu_memory == 79.15
    assert (reading.evidence.model.trainable, reading.evidence.model.parameters) == (3407872, 7245139968)


def test_crash_carries_the_step_and_survived_errors_are_none(read):
    rows = dicts([0.1, 0.2])
    error = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "RuntimeError: CUDA error: device-side assert triggered",
    ]
    (reading,) = read("\n".join([*rows, *error]))
    assert reading.evidence.crash.cause.step == 2
    (survived,) = read("\n".join([rows[0], *error, rows[1], "{'train_runtime': 1.0, 'train_loss': 1.0, 'epoch': 0.2}"]))
    assert survived.evidence.crash is None


def test_repeated_warning_is_kept_once_with_its_count(read):
    lines = [f"2024-01-01 - WARNING - sequence of {at} tokens is longer than 2048" for at in range(50)]
    (reading,) = read("\n".join([*lines, *dicts([0.1, 0.2])] + ["x"] * 400))
    line = next(line for line in reading.evidence.log.lines if line.count > 1)
    assert (line.count, line.where) == (50, "train.log:1")


def test_nothing_understood_says_so(read):
    (reading,) = read("This is pdfTeX\nOverfull box 3.2pt\n" * 20)
    assert reading.understood == {}
    assert "no metric line" in reading.note.en
    assert "没有读懂" in reading.note.zh
    assert reading.evidence.metrics is None


def test_guessed_columns_are_named(read):
    (reading,) = read("\n".join(f"epoch 1 step {step} train loss: {2.0 - step / 10} lr={1e-5}" for step in range(5)))
    assert "lr → learning_rate" in reading.note.en


def test_gzip_utf16_nul_and_colours(read):
    text = "\n".join(f"\x1b[31mstep: {step}  \x1b[32mloss: {3 - step / 10}\x1b[39m" for step in (1, 2, 3))
    for content in (
        gzip.compress(text.encode()),
        text.encode("utf-16"),
        b"\0" * 5000 + text.encode(),
        b"\xef\xbb\xbf" + text.encode(),
    ):
        (reading,) = read(content)
        assert steps_of(reading) == [1, 2, 3]


def test_cut_gzip_gives_what_could_be_read(read):
    content = gzip.compress("\n".join(f"step: {step}  loss: {np.sin(step)}" for step in range(20000)).encode())
    (reading,) = read(content[: len(content) // 2])
    assert reading.understood["train rows"] > 1000


def test_blocks_join_lines_at_every_cut(read):
    rows = [f"step: {step}  loss: {step / 7:.5f}" for step in range(1, 8001)]
    (reading,) = read("\r\n".join(rows))
    assert reading.evidence.metrics.series["loss"].lines.tolist() == list(range(1, 8001))
    assert reading.evidence.metrics.series["loss"].values.tolist() == [float(f"{step / 7:.5f}") for step in range(1, 8001)]


class Sparse(io.RawIOBase):
    """A stream of one endless line, made while it is read."""

    def __init__(self, size, byte):
        self.left, self.byte = size, byte

    def read(self, size=-1):
        given = min(size, self.left)
        self.left -= given
        return self.byte * given


@pytest.mark.parametrize(("byte", "size"), [(b"x", 64), (b"\0", 64), (b"{", 16), (b"\r", 0.25), (b"1|", 16)])
def test_one_line_without_end_in_bounded_memory(byte, size):
    tracemalloc.start()
    scan = Scan().run(Sparse(int(size * 2**20), byte))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not scan.tables
    assert peak < (400 << 20 if byte == b"\r" else 16 << 20)


def test_stdin_text_without_a_name_is_claimed(tmp_path):
    path = tmp_path / "stdin"
    path.write_text("{'loss': 1.0, 'epoch': 0.1}\n")
    assert READER.claims(SourceFile(path, "stdin")) > 0.3
    path.write_bytes(bytes(range(256)) * 20)
    assert READER.claims(SourceFile(path, "stdin")) == 0


@pytest.mark.parametrize("gap", ["\t", "   ", " ", " | "])
def test_pasted_notebook_table(read, gap):
    rows = [
        ["Step", "Training Loss", "Validation Loss", "Accuracy"],
        ["100", "1.234500", "1.4", "0.5"],
        ["200", "1.1", "1.3", "0.6"],
        ["1,300", "0.9", "1.35", "0.61"],
    ]
    (reading,) = read("How is this?\n" + "\n".join(gap.join(row) for row in rows) + "\nThanks, 42\n")
    metrics = reading.evidence.metrics
    assert steps_of(reading) == [100, 200, 1300]
    assert metrics.series["loss"].values.tolist() == [1.2345, 1.1, 0.9]
    assert metrics.series["eval_loss"].values.tolist() == [1.4, 1.3, 1.35]
    assert metrics.series["eval_accuracy"].steps.tolist() == [100, 200, 1300]


def test_rows_flushed_at_exit_are_the_same_run(read):
    logger = [f"INFO - llamafactory.train.callbacks - {line}" for line in dicts([0.1, 0.2, 0.3, 0.4])]
    (reading,) = read(
        "\n".join([*logger, "done", *[line.replace("'grad_norm': 0.5, ", "") for line in dicts([0.1, 0.2, 0.3, 0.4])]])
    )
    assert len(steps_of(reading)) == 4


def test_overflow_lines_are_no_logging_steps(read):
    lines = dicts([0.1 * at for at in range(1, 21)])
    lines[3:3] = ["[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"] * 3
    (reading,) = read(HEADER + "\n".join(lines))
    assert steps_of(reading) == [10.0 * at for at in range(1, 21)]
    assert steps_of(reading, "loss_scale") == [30, 30, 30]


def test_accuracy_in_a_language_model_trainer_is_no_classification(read):
    lines = [*dicts([0.1, 0.2]), "{'eval_loss': 1.0, 'eval_accuracy': 0.5, 'epoch': 0.2}"]
    (plain,) = read("\n".join(lines))
    (text,) = read("\n".join(["INFO llamafactory.hparams.parser", *lines]))
    assert (plain.evidence.metrics.kind, text.evidence.metrics.kind) == ("classification", "")


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ("'rewards/chosen': 0.1, 'rewards/accuracies': 0.5", "dpo"), ("'rewards/chosen': 0.1, 'kl': 0.5", "kto"), ("'reward': 0.1, 'reward_std': 0.5", "grpo"), ("'objective/kl': 0.1, 'policy/approxkl_avg': 0.1", "ppo"),
        ("'mean_reward': 0.1, 'accuracy': 0.5", "reward"), ("'mean_token_accuracy': 0.1, 'num_tokens': 5", "causal-lm"), ("'learning_rate': 0.1", ""),
    ],
)  # fmt: skip
def test_kinds_of_loss(read, names, kind):
    (reading,) = read(f"{{'loss': 0.5, {names}, 'epoch': 0.1}}")
    assert reading.evidence.metrics.kind == kind


def test_names_and_heads_that_are_claimed(tmp_path):
    def claim(name, text="nothing\n"):
        path = tmp_path / name
        path.write_text(text)
        return READER.claims(SourceFile(path, name))

    assert all(
        claim(name) > 0.3
        for name in (
            "train.log",
            "nohup.out",
            "slurm-123.out",
            "running_log.txt",
            "output.log",
            "run.err",
            "train.log.1",
            "log_rank0.txt",
            "notes.txt",
        )
    )
    row = "{'loss': 1.0, 'epoch': 0.1}\n"
    assert claim("console", row) > 0.3
    assert all(
        claim(name, row) == 0 for name in ("README.md", "train.py", "data.jsonl", "vocab.txt", "requirements.txt", "LICENSE")
    )
    assert claim("LICENSE_OTHER") == 0
