"""Results in experiment trackers: parameters, every number with its interval, and files."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tracker_runs
from command import levelhead

import levelhead as lh
from levelhead.core.errors import MissingExtraError, UnknownNameError
from levelhead.report.tracking.entries import make_entries
from levelhead.report.tracking.trackers import Target

NUMBERS = {
    "measurement.crows/crows": 54.0,
    "measurement.crows/crows.low": 50.5,
    "measurement.crows/crows.high": 58.0,
    "measurement.crows/crows.level": 0.95,
    "measurement.crows/crows.parity": 50.0,
    "measurement.crows/crows.p": 0.03,
    "measurement.crows/crows.n": 50.0,
}
RESULTS = {
    "measurement.crows": tracker_runs.measurement(),
    "measurement.nsp": tracker_runs.failure(),
}


def test_every_number_has_its_interval_and_nothing_replaces_a_missing_one():
    entries = make_entries(RESULTS)
    assert entries.numbers == NUMBERS
    assert entries.parameters["measurement.nsp.not_measured"].startswith("no next-sentence head")
    assert entries.parameters["model"] == "bert-base-uncased"
    assert entries.parameters["settings.batch.size"] == "32"
    assert json.loads(entries.documents["measurement.crows.json"])["value"] == 54.0


def test_steps_that_differ_keep_their_names():
    first = tracker_runs.measurement()
    other = first.model_copy(update={"provenance": first.provenance.model_copy(update={"seed": 7})})
    parameters = make_entries({"a": first, "b": other}).parameters
    assert (parameters["a.seed"], parameters["b.seed"]) == ("0", "7")
    assert "seed" not in parameters
    assert parameters["equation"] == "Nangia et al. 2020"


def test_two_numbers_of_one_name_are_two():
    estimate = lh.Estimate(
        name="crows", value=1.0, interval=RESULTS["measurement.crows"].interval, n=3
    )
    twice = tracker_runs.measurement().model_copy(update={"extras": (estimate,)})
    numbers = make_entries(twice).numbers
    assert (numbers["crows"], numbers["crows 2"]) == (54.0, 1.0)


@pytest.mark.parametrize("tracker", ["mlflow", "wandb", "trackio"])
def test_a_missing_package_is_named_with_its_install_line(tracker, monkeypatch):
    monkeypatch.setitem(sys.modules, tracker, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'levelhead\[{tracker}\]'"):
        lh.log(RESULTS, tracker)


def test_unknown_trackers_fail_before_anything_is_measured():
    with pytest.raises(UnknownNameError, match="no experiment tracker named 'neptune'"):
        Target.parse("neptune:x")
    result = levelhead("measure", "no-such-model", "-m", "crows", "--log", "neptune")
    assert result.returncode == 3
    assert "known: mlflow, trackio, wandb" in result.stderr


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A Python with the clients and a server of MLflow, apart from the environment of the tests."""
    folder = tmp_path_factory.mktemp("clients")
    made = subprocess.run(
        [
            *("uv", "pip", "install", "--quiet", "--target", str(folder)),
            *("mlflow>=3", "wandb>=0.19", "trackio>=0.30"),
        ],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"the clients cannot be installed: {made.stderr.strip():.200}")
    return folder


def log(client, target, *files, **environment):
    path = f"{os.environ.get('PYTHONPATH', '')}:{client}"
    result = subprocess.run(
        [sys.executable, tracker_runs.__file__, target, *map(str, files)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


# A server of MLflow needs a minute to start, and more on a busy machine.
@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_server_of_mlflow_takes_the_run(client, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    edit = tmp_path / "edit"
    edit.mkdir()
    (edit / "edits.json").write_text("{}")
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
            *("--port", str(port), "--backend-store-uri", f"sqlite:///{tmp_path}/runs.db"),
            *("--workers", "1", "--artifacts-destination", str(tmp_path / "artifacts")),
        ],
        env={**os.environ, "PYTHONPATH": str(client)},
        cwd=tmp_path,
    )
    try:
        for _ in range(900):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(1)
        run = log(client, f"mlflow:{address}", edit)
    finally:
        server.terminate()
        server.wait(600)
    assert run["url"].startswith(f"{address}/#/experiments/")
    with sqlite3.connect(tmp_path / "runs.db") as database:
        metrics = dict(database.execute("select key, value from metrics"))
        parameters = dict(database.execute("select key, value from params"))
        (status,) = database.execute("select status from runs").fetchone()
    assert metrics == NUMBERS
    assert parameters["model_hash"] == "a" * 64
    assert status == "FINISHED"
    names = {path.name for path in (tmp_path / "artifacts").rglob("*") if path.is_file()}
    assert names == {"measurement.crows.json", "measurement.nsp.json", "edits.json"}


@pytest.mark.full
def test_wandb_writes_the_run_offline(client, tmp_path):
    run = log(client, "wandb:levelhead", WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    (record,) = tmp_path.rglob("*.wandb")
    raw = record.read_bytes()
    assert run["run_id"] in record.name
    for text in (*NUMBERS, "54", "bert-base-uncased"):
        assert text.encode() in raw


@pytest.mark.full
def test_trackio_writes_the_run_on_this_disk(client, tmp_path):
    log(client, "trackio:levelhead", TRACKIO_DIR=str(tmp_path))
    (path,) = Path(tmp_path).rglob("levelhead.db")
    with sqlite3.connect(path) as database:
        (text,) = database.execute("select metrics from metrics").fetchone()
    metrics = json.loads(text)
    assert {name: metrics[name] for name in NUMBERS} == NUMBERS
