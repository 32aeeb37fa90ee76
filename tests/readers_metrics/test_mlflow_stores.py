import sqlite3

from tuneclinic.probes.readers.mlflow_store import MlflowDatabase, MlflowMetric

RUN = "mlruns/1/abc"


def test_a_metric_file(written):
    file = written(f"{RUN}/metrics/train/loss", "1796138916500 2.5 10\n1796138916501 nan 20\n1796138916502 1.5 30\n")
    assert MlflowMetric().claims(file) > 0.9
    (reading,) = MlflowMetric().read(file)
    loss = reading.evidence.metrics.get("loss")
    assert loss.steps.tolist() == [10, 20, 30]
    assert loss.values[[0, 2]].tolist() == [2.5, 1.5]
    assert loss.lines.tolist() == [1, 2, 3]
    assert reading.understood == {"points": 3}


def test_a_parameter_file_needs_the_run_beside_it(written):
    file = written(f"{RUN}/params/learning_rate", "2e-05")
    assert MlflowMetric().claims(file) == 0
    written(f"{RUN}/meta.yaml", "run_id: abc\n")
    assert MlflowMetric().claims(file) > 0.9
    (reading,) = MlflowMetric().read(file)
    assert reading.evidence.settings.number("learning_rate") == 2e-5


def test_other_files_in_a_folder_called_metrics(written):
    assert MlflowMetric().claims(written("metrics/readme.txt", "what we measured\n")) == 0
    assert MlflowMetric().claims(written("metrics.csv", "step,loss\n1,2\n")) == 0


def test_a_database_that_mlflow_wrote(real):
    file = real("mlflow.db")
    assert MlflowDatabase().claims(file) > 0.3
    (reading,) = MlflowDatabase().read(file)
    metrics = reading.evidence.metrics
    assert metrics.get("loss").steps.tolist() == [10, 20, 30, 40, 50]
    assert metrics.get("loss").values[0] == 2.5
    assert metrics.get("loss").values[3] != metrics.get("loss").values[3]
    assert metrics.get("eval_loss").values.tolist() == [1.0]
    assert reading.evidence.settings.number("epochs") == 3


def test_two_runs_in_one_database(tmp_path, written):
    path = tmp_path / "source.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
    rows = [("loss", 2.0, 0, run, step, 0) for run in "ab" for step in (1, 2)]
    connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    readings = MlflowDatabase().read(written("mlflow.db", path.read_bytes()))
    assert {reading.run for reading in readings} == {"a", "b"}


def test_a_view_that_never_ends_is_no_table_and_damage_is_said(tmp_path, written):
    path = tmp_path / "source.db"
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE VIEW metrics AS WITH RECURSIVE forever(key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM forever) "
        "SELECT key, 1 AS value, 1 AS timestamp, key AS run_uuid, 1 AS step, 0 AS is_nan FROM forever"
    )
    connection.commit()
    connection.close()
    (reading,) = MlflowDatabase().read(written("mlflow.db", path.read_bytes()))
    assert not reading.understood
    (reading,) = MlflowDatabase().read(written("broken/mlflow.db", path.read_bytes()[:3000]))
    assert not reading.understood
    assert reading.note
