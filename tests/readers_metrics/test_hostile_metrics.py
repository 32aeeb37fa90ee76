"""No content crashes a reader, none of them claims what it cannot say anything of, and nothing is read without end."""

import gzip
import json
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneclinic.probes.readers.lightning_csv import LightningCsv
from tuneclinic.probes.readers.mlflow_store import MlflowDatabase, MlflowMetric
from tuneclinic.probes.readers.outputs import GeneratedOutputs
from tuneclinic.probes.readers.results import Results
from tuneclinic.probes.readers.swift_logging import SwiftLogging
from tuneclinic.probes.readers.table import Table
from tuneclinic.probes.readers.tensorboard_events import TensorboardEvents
from tuneclinic.probes.readers.trainer_log import TrainerLog
from tuneclinic.probes.readers.trainer_state import TrainerState, merge_states
from tuneclinic.probes.readers.wandb_offline import WandbFiles, WandbOffline
from tuneclinic.probes.reading import SourceFile

READERS = {
    TrainerState: "trainer_state.json",
    TrainerLog: "trainer_log.jsonl",
    SwiftLogging: "logging.jsonl",
    LightningCsv: "metrics.csv",
    Table: "log.csv",
    TensorboardEvents: "events.out.tfevents.1.host",
    WandbOffline: "run-a.wandb",
    WandbFiles: "wandb-summary.json",
    MlflowMetric: "mlruns/1/a/metrics/loss",
    MlflowDatabase: "mlflow.db",
    Results: "all_results.json",
    GeneratedOutputs: "outputs.jsonl",
}
MANY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

VALID = {
    "trainer_state.json": json.dumps(
        {"global_step": 2, "max_steps": 9, "log_history": [{"loss": 2.5, "step": 1}, {"eval_loss": 2.0, "step": 2}]}
    ).encode(),
    "trainer_log.jsonl": b'{"current_steps": 1, "total_steps": 9, "loss": 2.5, "lr": 0.1, "elapsed_time": "0:01:00"}\n' * 5,
    "logging.jsonl": b'{"loss": 2.5, "global_step/max_steps": "1/9", "train_speed(iter/s)": 0.5}\n' * 5,
    "metrics.csv": b"epoch,step,train_loss,val_loss\n0,1,2.5,\n0,2,,2.0\n",
    "log.csv": b"step,loss\n1,2.5\n2,1.5\n",
    "mlruns/1/a/metrics/loss": b"1796138916500 2.5 10\n1796138916501 1.5 20\n",
    "all_results.json": b'{"eval_accuracy": 0.5, "train_loss": 2.5}',
    "outputs.jsonl": b'{"prompt": "Q", "predict": "A"}\n' * 3,
    "wandb-summary.json": b'{"train/loss": 0.5}',
}


def survives(reader, file):
    """Reads with every warning an error; what comes back keeps the promises of `Reading`."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 0 <= reader.claims(file) <= 1
        readings = reader.read(file)
    assert readings
    for reading in readings:
        seen = reading.evidence
        understood = sum(reading.understood.values())
        told = any(
            section is not None
            for section in (seen.metrics, seen.outputs, seen.scores, seen.settings, seen.model, seen.log, seen.environment)
        )
        assert understood or not told
        assert understood or reading.note
        for series in seen.metrics.series.values() if seen.metrics else ():
            assert len(series.steps) == len(series.values) > 0
    return readings


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@MANY
@given(content=st.binary(max_size=400))
def test_any_bytes(reader, written, content):
    survives(reader(), written(READERS[reader], content))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["nan", "1/9", "-inf", "1,024"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "loss",
                    "step",
                    "log_history",
                    "global_step",
                    "max_steps",
                    "results",
                    "series",
                    "base",
                    "tuned",
                    "task",
                    "predict",
                    "prompt",
                    "messages",
                    "choices",
                    "current_steps",
                    "total_steps",
                    "elapsed_time",
                    "global_step/max_steps",
                    "train_runtime",
                    "model_info",
                    "usage",
                    "response",
                    "throughput",
                    "a",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "reader",
    [TrainerState, TrainerLog, SwiftLogging, Table, Results, GeneratedOutputs, WandbFiles],
    ids=lambda reader: reader.__name__,
)
@MANY
@given(values=st.lists(JSON, min_size=1, max_size=6), array=st.booleans())
def test_wrong_types_anywhere(reader, written, values, array):
    content = (
        json.dumps(values if array else values[0])
        if reader in {TrainerState, WandbFiles} or array
        else "\n".join(map(json.dumps, values))
    )
    survives(reader(), written(READERS[reader].replace(".csv", ".json"), content))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@MANY
@given(data=st.data())
def test_damaged_files_that_were_valid(reader, written, real, data):
    name = READERS[reader]
    content = (
        VALID.get(name)
        or real(
            {"run-a.wandb": "run-offline.wandb", "mlflow.db": "mlflow.db"}.get(name, "events.out.tfevents.1700000000.host.0")
        ).read_bytes()
    )
    content = bytearray(content[: data.draw(st.integers(1, len(content)))])
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from([0, 10, 34, 44, 91, 123, 255]))
    file = written(name, bytes(content))
    survives(reader(), file)
    if reader is TrainerState:
        merge_states([file, file])


DEEP = {
    "brackets": "[" * 100_000,
    "objects": '{"log_history":' * 20_000,
    "history": '{"log_history": [{"loss": 1, "step": 1}, ' + '{"a":' * 20_000,
    "row": '{"loss": 1.5, "step": 1}\n' + '{"a":' * 20_000 + "1" + "}" * 20_000 + "\n",
    "huge": '{"loss": ' + "9" * 5000 + ', "step": ' + "9" * 400 + ', "x": 1e999}\n',
    "nul": "\0" * 5000,
    "blank": "\n" * 5000,
    "unicode": '{"loss": "\\ud800", "step": "\u0661", "predict": "\\udfff"}\n',
    "wide": json.dumps({f"loss{at}": at for at in range(5000)}) + "\n",
    "comma": "," * 100_000 + "\n" + "1," * 50_000 + "\n",
    "pipes": "|" * 100_000 + "\n" + "|-" * 50_000 + "\n",
    "dashes": "| a |\n" + "-" * 100_000 + "\n",
    "turns": "User: " * 20_000 + "\nAssistant: x\n",
}


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("content", DEEP.values(), ids=DEEP)
def test_deep_wide_and_empty(reader, written, content):
    survives(reader(), written(READERS[reader], content))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_cut_gzip(reader, written):
    content = VALID.get(READERS[reader], b"\0" * 100) * 50
    survives(reader(), written(READERS[reader] + ".gz", gzip.compress(content)[:-12]))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_an_lfs_pointer(reader, written):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
    (reading,) = survives(reader(), written(READERS[reader], pointer))
    assert not reading.understood


def test_a_vanished_file(tmp_path):
    for reader in (TrainerState, TrainerLog, Table, Results, TensorboardEvents, WandbOffline, MlflowDatabase):
        readings = reader().read(SourceFile(tmp_path / "gone", "gone"))
        assert not readings[0].understood
