import math

import pytest

from tuneclinic.probes.readers.lightning_csv import LightningCsv
from tuneclinic.probes.readers.table import Table, read_table
from tuneclinic.words import Text


def one(file, roles=None):
    (reading,) = read_table(file, roles)
    return reading


def test_lightning_is_sparse(written):
    text = "epoch,lr-AdamW,step,train_loss_epoch,train_loss_step,val_loss\n0,0.001,49,,7.5,\n0,,99,,7.25,\n0,,99,,,4.5\n0,,99,7.4,,\n1,,149,,7.0,\n"
    file = written("lightning_logs/version_0/metrics.csv", text)
    assert LightningCsv().claims(file) > 0.9
    (reading,) = LightningCsv().read(file)
    metrics = reading.evidence.metrics
    assert metrics.get("loss").values.tolist() == [7.5, 7.25, 7.0]
    assert metrics.get("loss").steps.tolist() == [49, 99, 149]
    assert metrics.get("loss").lines.tolist() == [2, 3, 6]
    assert metrics.get("eval_loss").values.tolist() == [4.5]
    assert metrics.get("train_loss_epoch").values.tolist() == [7.4]
    assert metrics.get("learning_rate").values.tolist() == [0.001]
    assert reading.understood == {"train rows": 3, "eval rows": 1, "other rows": 1}


def test_lightning_with_epoch_losses_alone(written):
    (reading,) = LightningCsv().read(written("metrics.csv", "epoch,step,train_loss,val_loss\n0,9,2.5,2.0\n1,19,1.5,1.75\n"))
    assert reading.evidence.metrics.get("loss").values.tolist() == [2.5, 1.5]


def test_any_csv_by_the_names_of_its_columns(written):
    file = written("log.csv", "iteration,Training Loss,Validation Loss,note\n1,2.5,,start\n2,2.0,2.25,\n3,nan,,\n")
    assert Table().claims(file) == 0.5
    reading = one(file)
    metrics = reading.evidence.metrics
    assert metrics.get("loss").steps.tolist() == [1, 2, 3]
    assert math.isnan(metrics.get("loss").values[2])
    assert metrics.get("eval_loss").values.tolist() == [2.25]
    assert isinstance(reading.note, Text)
    assert "step = iteration" in reading.note.en
    assert "loss = Training Loss" in reading.note.zh


@pytest.mark.parametrize("delimiter", ["\t", ";"])
def test_other_delimiters_and_quotes(written, delimiter):
    text = delimiter.join(['"step"', '"loss"']) + "\n" + "".join(delimiter.join([str(at), f'"{at}.5"']) + "\n" for at in (1, 2))
    file = written("log.tsv", text)
    assert Table().claims(file) == 0.5
    assert one(file).evidence.metrics.get("loss").values.tolist() == [1.5, 2.5]


def test_roles_override_the_names(written):
    file = written("log.csv", "n,mle,loss\n10,2.5,9\n20,1.5,9\n")
    metrics = one(file, {"n": "step", "mle": "loss", "loss": ""}).evidence.metrics
    assert metrics.get("loss").values.tolist() == [2.5, 1.5]
    assert metrics.get("loss").steps.tolist() == [10, 20]
    assert set(metrics.series) == {"loss"}


def test_rows_are_counted_where_no_step_is_printed(written):
    reading = one(written("log.jsonl", [{"loss": 2.5, "lr": 0.1}, {"val_loss": 2.0}, {"loss": 1.5, "lr": 0.1}], lines=True))
    metrics = reading.evidence.metrics
    assert metrics.rows_are_steps
    assert metrics.get("loss").steps.tolist() == [1, 2]
    assert metrics.get("eval_loss").steps.tolist() == [1]
    assert "rows were counted" in reading.note.en


def test_tensorboard_and_wandb_exports(written):
    tensorboard = written("run-1-tag-train_loss.csv", "Wall time,Step,Value\n1.5,10,2.5\n2.5,20,1.5\n")
    assert Table().claims(tensorboard) == 0.5
    assert one(tensorboard).evidence.metrics.get("loss").values.tolist() == [2.5, 1.5]
    text = '"train/global_step","a-run - train/loss","a-run - train/loss__MIN","a-run - train/loss__MAX"\n"10","2.5","2.5","2.5"\n"20","1.5","1.5","1.5"\n'
    wandb = written("wandb_export.csv", text)
    assert Table().claims(wandb) == 0.5
    metrics = one(wandb).evidence.metrics
    assert metrics.get("loss").steps.tolist() == [10, 20]
    assert set(metrics.series) == {"loss"}


@pytest.mark.parametrize(
    "content",
    [
        [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 1.5}],
        {"history": [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 1.5}]},
        {"step": [1, 2], "loss": [2.5, 1.5]},
    ],
)
def test_json_documents(written, content):
    file = written("history.json", content)
    assert Table().claims(file) == 0.5
    metrics = one(file).evidence.metrics
    assert metrics.get("loss").steps.tolist() == [1, 2]
    assert metrics.get("loss").values.tolist() == [2.5, 1.5]


def test_series_documents(written):
    content = {
        "step_kind": "row",
        "series": {"loss": [[1, 2.5], [2, "nan"], [3, "-inf"]], "summary/train_loss": [[3, 1.5]], "x": []},
    }
    file = written("series.json", content)
    assert Table().claims(file) == 0.9
    reading = one(file)
    metrics = reading.evidence.metrics
    assert math.isnan(metrics.get("loss").values[1])
    assert metrics.get("loss").values[2] == -math.inf
    assert metrics.rows_are_steps
    assert metrics.summary == {"train_loss": 1.5}
    assert reading.skipped == {"series without points": 1}


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("train.jsonl", [{"messages": [{"role": "user", "content": "hi"}], "loss": 1.0}], True),
        ("train.jsonl", [{"instruction": "a", "output": "b", "step": 1}], True),
        ("data.json", [{"prompt": "a", "completion": "b", "loss": 2.0}], False),
        ("args.json", {"learning_rate": 2e-5, "num_train_epochs": 3, "loss": "dpo"}, False),
        ("all_results.json", {"epoch": 3.0, "train_loss": 0.5, "eval_loss": 0.4}, False),
        ("people.csv", "id,name,age\n1,Ann,30\n2,Bob,40\n", False),
        ("scores.csv", "task,base,tuned\nmmlu,50,51\n", False),
        ("notes.txt", "the loss, as we saw, is flat\nand so on, and on\n", False),
    ],
)
def test_what_is_no_table_of_metrics(written, name, content, lines):
    assert Table().claims(written(name, content, lines=lines)) == 0


def test_a_header_repeated_by_a_resume(written):
    metrics = one(written("log.csv", "step,loss\n1,2.5\n2,2.0\nstep,loss\n3,1.5\n")).evidence.metrics
    assert metrics.get("loss").values.tolist() == [2.5, 2.0, 1.5]
