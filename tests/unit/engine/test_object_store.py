"""Corpora and stores on S3 (moto's server on loopback): the same bytes, and no half file."""

import os
import signal
import subprocess
import sys
import time

import metric_cases
import pytest
import studies
import zoo
from command import levelhead
from object_store import age_objects, bucket

from levelhead.core.errors import LevelheadError
from levelhead.core.files import join_url, open_filesystem, read_bytes, write_atomic
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.corpus.mine import mine_corpus
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.engine.scheduler import Job
from levelhead.engine.scheduler import run_job as run_job
from levelhead.engine.tasks import Task
from levelhead.study.config import read_study_config
from levelhead.study.leaderboard import run_leaderboard
from levelhead.study.run import run_study

OUTPUT = ("pairs.jsonl", "contexts.jsonl", "manifest.json")
TEXTS = [f"The nurse {i} saw her in the hall. He is a pilot." for i in range(300)]


@pytest.fixture(scope="module")
def s3():
    with bucket() as url:
        yield url


@pytest.fixture(scope="module")
def corpus(s3, tmp_path_factory):
    """The same files here and there."""
    here = tmp_path_factory.mktemp("corpus")
    for n in range(20):
        text = "\n".join(f"{text} Room {n}." for text in TEXTS)
        (here / f"c{n:02}.txt").write_text(text)
        write_atomic(f"{s3}/corpus/c{n:02}.txt", text.encode())
    return here, f"{s3}/corpus"


def test_mining_there_is_mining_here(s3, corpus, tmp_path):
    """Takes 5 s: a server is started, and a worker imports polars and s3fs."""
    here, there = corpus
    mine_corpus([f"{here}/*.txt"], tmp_path / "mined")
    # One process: what is tried is that a worker finds the bucket, not that two share the work.
    mine_corpus([f"{there}/*.txt"], f"{s3}/mined", executor=LocalProcesses(1))
    for name in OUTPUT:
        assert read_bytes(f"{s3}/mined/{name}") == (tmp_path / "mined" / name).read_bytes()


def test_a_study_keeps_its_readings_there(s3, tmp_path):
    plan = read_study_config(studies.study(tmp_path, studies.FEW))
    run_study(plan, tmp_path / "here")
    run_study(plan, tmp_path / "there", context=RunContext(store=f"{s3}/readings"))
    assert studies.contents(tmp_path / "there") == studies.contents(tmp_path / "here")
    assert not (tmp_path / "there" / "store").exists()
    with pytest.raises(LevelheadError, match="is on no disk of this machine"):
        run_study(plan, f"{s3}/study")


def test_a_leaderboard_keeps_its_readings_there(s3, tmp_path):
    models = [str(zoo.folder("bert", "BertForPreTraining", seed=seed)) for seed in range(2)]
    measure = (
        f"seat:lexicon={studies.lexicon(tmp_path)},targets=things,corpus={metric_cases.corpus()}"
    )
    few = {"inference": Inference(resamples=99, permutations=99)}
    here, _ = run_leaderboard(models, [measure], tmp_path / "here", **few)
    there, costs = run_leaderboard(
        models, [measure], tmp_path / "there", context=RunContext(store=f"{s3}/board"), **few
    )
    assert there == here
    fs, place = open_filesystem(f"{s3}/board")
    fs.invalidate_cache()
    subset = [fs.du(path) for path in fs.ls(place, detail=False)]
    assert len(subset) == len(models)
    assert min(cost.stored_bytes for cost in costs.values()) > min(subset) > 0
    assert not list((tmp_path / "there").rglob("store"))
    with pytest.raises(LevelheadError, match="is on no disk of this machine"):
        run_leaderboard(models, [measure], f"{s3}/study", **few)
    completed = levelhead("audit", models[0], "-o", f"{s3}/audit")
    assert (completed.returncode, "is on no disk of this machine" in completed.stderr) == (3, True)


def test_killed_it_goes_on_when_its_claim_is_void(s3, corpus):
    """Takes 7 s: three commands in interpreters of their own, one of which is killed."""
    _, there = corpus
    command = [
        sys.executable,
        "-m",
        "levelhead",
        "data",
        "mine",
        f"{there}/*.txt",
        "-o",
        f"{s3}/killed",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    fs, place = open_filesystem(f"{s3}/killed/store")
    while process.poll() is None and not fs.exists(join_url(place, "locks")):
        fs.invalidate_cache()
        time.sleep(0.05)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 3
    assert "is claimed by" in again.stderr
    # As it would be after a minute: the store's own time of the claim is put back.
    age_objects(f"{s3}/killed/store/locks", seconds=61)
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    for name in OUTPUT:
        assert read_bytes(f"{s3}/killed/{name}") == read_bytes(f"{s3}/mined/{name}")


@pytest.mark.parametrize("call", ["put_object", "upload_part", "complete_multipart_upload"])
def test_what_fails_before_the_commit_leaves_nothing(s3, monkeypatch, call):
    """Of a small object the upload, of a large one a part or the last word, is cut off.

    Takes 5 s for a large one: s3fs sends what has 100 MB and more in parts.
    """
    size = 100 if call == "put_object" else 105 * 2**20
    unit = Task("synthetic:digest", FrozenDict({"i": 1, "bytes": size, "call": call}))
    job = Job("one", (unit,))
    folder = f"{s3}/{call}"
    fs, _ = open_filesystem(folder)
    usual, cut = type(fs)._call_s3, []

    async def failing(self, method, *args, **kwargs):
        if method == call and "/units/" in str(kwargs.get("Key")) and not cut:
            cut.append(method)
            raise ConnectionError("cut off")
        return await usual(self, method, *args, **kwargs)

    monkeypatch.setattr(type(fs), "_call_s3", failing)
    with pytest.raises(ConnectionError, match="cut off"):
        run_job(job, folder)
    fs.invalidate_cache()
    assert cut == [call]
    assert not fs.exists(f"{folder}/units") or list(fs.find(f"{folder}/units")) == []
    store = run_job(job, folder)
    assert list(job.results(store)) == [unit.compute()]


def test_on_a_disk_what_fails_before_the_rename_leaves_nothing(tmp_path, monkeypatch):
    job = Job("one", (Task("synthetic:digest", FrozenDict({"i": 1})),))
    usual, cut = os.replace, []

    def failing(source, target):
        if "units" in str(target) and not cut:
            cut.append(target)
            raise OSError("cut off")
        usual(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="cut off"):
        run_job(job, tmp_path / "run")
    assert [path for path in (tmp_path / "run").rglob("units/*/*") if path.is_file()] == []
    assert list(job.results(run_job(job, tmp_path / "run"))) == [job.tasks[0].compute()]
