"""Ray on loopback: the same bytes, whoever dies.

The fast tier starts Ray once, for one run that a unit, an actor and the driver each disturb. A
cluster of a head and two nodes, on which machines and drivers are lost and whole studies run, takes
minutes of imports in its workers: it is in the full tier.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import metric_cases
import pytest
import studies
import synthetic
import zoo

ray = pytest.importorskip("ray")
from ray_cluster import SMALL, ray_cluster  # noqa: E402

from levelhead.core.errors import LevelheadError, MissingExtraError, NotMeasurableError  # noqa: E402
from levelhead.core.frozen import FrozenDict  # noqa: E402
from levelhead.core.run_context import Inference  # noqa: E402
from levelhead.data.corpus.mine import mine_corpus  # noqa: E402
from levelhead.engine.events import TaskFailed, TaskRetried  # noqa: E402
from levelhead.engine.executors.base import InProcess, RunCancelledError, TaskResult  # noqa: E402
from levelhead.engine.executors.ray import RayActors, _Actor, _count_actor_slots  # noqa: E402
from levelhead.engine.tasks import Task  # noqa: E402
from levelhead.locate.distributed import locate_distributed  # noqa: E402
from levelhead.locate.score_heads import locate  # noqa: E402
from levelhead.measures.registry import parse_measure  # noqa: E402
from levelhead.models.loading.load import load  # noqa: E402
from levelhead.study.config import read_study_config  # noqa: E402
from levelhead.study.run import run_study  # noqa: E402

OUTPUT = ("pairs.jsonl", "contexts.jsonl", "manifest.json")


def units(n, **spec):
    return [Task("synthetic:digest", FrozenDict({"i": i, **spec})) for i in range(n)]


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster() as result:
        yield result


def ran(cluster, units, **output):
    runner = RayActors(address=cluster.address, **output)
    return list(runner.run(units, cancel=threading.Event()))


def of_other_versions(unit):
    """The unit as a driver with another torch would have it."""
    other = replace(unit)
    other.__dict__["key"] = "0" * 64
    return other


def test_a_run_on_real_ray(tmp_path, monkeypatch):
    """Takes 10 s: Ray's own processes and two actors are started. The only fast test that does."""
    here = [str(Path(synthetic.__file__).parent), *os.environ.get("PYTHONPATH", "").split(":")]
    monkeypatch.setenv("PYTHONPATH", ":".join(here))  # of the actors
    monkeypatch.setenv("LEVELHEAD_DATA", "/somewhere")
    first, second, never = units(3, bytes=100_000)
    task = Task("synthetic:variables", FrozenDict({}))
    weak = Task("synthetic:die", FrozenDict({"record": str(tmp_path / "weak"), "times": 1}))
    other = of_other_versions(Task("synthetic:digest", FrozenDict({"i": 9})))
    queries = [second, first, task, weak, other]
    cancel, result = threading.Event(), []
    runner = RayActors(workers=1)
    # The last one waits for all others, and for the run to be cancelled in its place.
    needs = {
        second.key: [first.key],
        never.key: [unit.key for unit in queries if unit is not other],
    }

    def listen():
        for outcome in runner.run([never, *queries], cancel=cancel, dependencies=needs):
            result.append(outcome)
            if len(result) == len(queries) + 1:  # and that an actor was lost
                cancel.set()

    with pytest.raises(RunCancelledError):
        listen()
    computed = {item.key: item.payload for item in result if isinstance(item, TaskResult)}
    expected = InProcess().run([first, second], cancel=threading.Event())
    assert {item.key: item.payload for item in expected}.items() <= computed.items()
    order = [item.key for item in result if isinstance(item, TaskResult)]
    assert order.index(first.key) < order.index(second.key)
    # An actor that dies costs its unit one try, and the unit is computed by another one.
    (retried,) = (item for item in result if isinstance(item, TaskRetried))
    assert (retried.key, computed[weak.key]) == (weak.key, b"alive")
    # Other versions are refused, our folders are known, and what was cancelled is not computed.
    (failed,) = (item for item in result if isinstance(item, TaskFailed))
    assert (failed.key, "other versions" in failed.reason) == (other.key, True)
    assert json.loads(computed[task.key]) == {"LEVELHEAD_DATA": "/somewhere"}
    assert never.key not in computed
    assert not ray.is_initialized()


def test_an_actor_refuses_other_versions_and_stays_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (unit,) = units(1)
    actor = _Actor(str(tmp_path / "nowhere"))
    assert Path.cwd() == tmp_path
    assert actor.ready()
    assert actor.compute(unit) == TaskResult(unit.key, unit.compute())
    refused = actor.compute(of_other_versions(unit))
    assert isinstance(refused, TaskFailed)
    assert "other versions" in refused.reason


def test_room_is_that_of_machines_that_live():
    nodes = [
        {"Alive": True, "Resources": {"CPU": 5.0, "GPU": 1.0}},
        {"Alive": True, "Resources": {"CPU": 2.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    cluster = SimpleNamespace(nodes=lambda: nodes)
    assert _count_actor_slots(cluster, 2, 0) == 3
    assert _count_actor_slots(cluster, 1, 0.5) == 2
    with pytest.raises(LevelheadError, match="no machine of the cluster has 1 CPUs and 2 GPUs"):
        _count_actor_slots(cluster, 1, 2)


def test_what_cannot_be_is_said(monkeypatch):
    def ran_at(address):
        return list(RayActors(address).run(units(1), cancel=threading.Event()))

    with pytest.raises(LevelheadError, match="cannot compute anything"):
        RayActors(workers=0)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(LevelheadError, match=f"no Ray cluster at {address}"):
            ran_at(address)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"levelhead\[ray\]"):
        ran_at("127.0.0.1:1")
    assert list(RayActors().run([], cancel=threading.Event())) == []


def test_a_lost_cluster_and_another_one_are_said(monkeypatch):
    """Ray's own words are one line of ours; a process that joined elsewhere is told so."""
    queries = []

    def refused(**given):
        queries.append(given)
        raise ConnectionError("nobody there\nand much more")

    monkeypatch.setenv("LEVELHEAD_KEY", "secret")
    monkeypatch.setenv("LEVELHEAD_DATA", "/somewhere")
    monkeypatch.setattr(ray, "init", refused)
    with pytest.raises(LevelheadError) as error:
        list(RayActors("auto").run(units(1), cancel=threading.Event()))
    assert error.value.problem == "no Ray cluster at auto: nobody there"
    output = queries[0]["runtime_env"]["env_vars"]  # whoever sees the cluster sees them
    assert output["LEVELHEAD_DATA"] == "/somewhere"
    assert "LEVELHEAD_KEY" not in output
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="a:1"))
    with pytest.raises(LevelheadError, match="is connected to another Ray cluster than b:2"):
        list(RayActors("b:2").run(units(1), cancel=threading.Event()))


def test_a_map_made_elsewhere_is_the_same(tmp_path):
    located_away(InProcess(), tmp_path)


def located_away(runner, folder):
    """A map by a runner, beside the one that this process makes."""
    measure = (
        f"seat:lexicon={studies.lexicon(folder)},targets=things,corpus={metric_cases.corpus()}"
    )
    model = str(zoo.folder("bert", "BertForPreTraining"))
    how = {"ablate_top": 3, "split": "contexts", "bias_direction": "+", "components": ["heads"]}
    inference = Inference(resamples=99, permutations=99)
    there = locate_distributed(
        runner,
        model,
        measure,
        load_options={"batch_size": 8},
        locate_options=how,
        inference=inference,
    )
    assert there == locate(
        load(model, batch_size=8), parse_measure(measure), inference=inference, **how
    )


# -- a cluster, in the full tier


@pytest.mark.full
def test_the_same_bytes_as_in_this_process(cluster):
    queries = units(20, bytes=100_000)
    result = {item.key: item for item in ran(cluster, queries)}
    assert result == {item.key: item for item in InProcess().run(queries, cancel=threading.Event())}
    assert not ray.is_initialized()  # it left the cluster


@pytest.mark.full
def test_two_nodes_share_the_work(cluster):
    queries = [Task("synthetic:where", FrozenDict({"i": i})) for i in range(8)]
    assert len({item.payload for item in ran(cluster, queries)}) == 2


@pytest.mark.full
def test_an_actor_that_dies_costs_one_unit(cluster, tmp_path):
    weak = Task("synthetic:die", FrozenDict({"record": str(tmp_path / "weak"), "times": 2}))
    fatal = Task("synthetic:die", FrozenDict({"record": str(tmp_path / "fatal"), "times": 99}))
    result = ran(cluster, [weak, fatal, *units(5)])
    assert TaskResult(weak.key, b"alive") in result
    assert sum(isinstance(item, TaskRetried) for item in result) == 4
    (failed,) = (item for item in result if isinstance(item, TaskFailed))
    assert failed.key == fatal.key
    assert "3 times" in failed.reason
    assert sum(isinstance(item, TaskResult) for item in result) == 6


@pytest.mark.full
def test_what_a_unit_needs_comes_first(cluster):
    first, last = units(2, seconds=0.3)
    runner = RayActors(address=cluster.address)
    result = runner.run(
        [last, first], cancel=threading.Event(), dependencies={last.key: [first.key]}
    )
    assert [item.key for item in result] == [first.key, last.key]


@pytest.mark.full
def test_other_versions_are_refused(cluster):
    (result,) = ran(cluster, [of_other_versions(*units(1))])
    assert isinstance(result, TaskFailed)
    assert "other versions" in result.reason


@pytest.mark.full
def test_a_run_is_cancelled(cluster):
    cancel = threading.Event()
    runner = RayActors(address=cluster.address).run(units(50, seconds=0.5), cancel=cancel)
    next(runner)
    cancel.set()
    began = time.monotonic()
    with pytest.raises(RunCancelledError):
        list(runner)
    assert time.monotonic() - began < 10


@pytest.mark.full
def test_more_than_any_machine_has_is_refused(cluster):
    with pytest.raises(LevelheadError, match="no machine of the cluster has 1 CPUs and 1 GPUs"):
        ran(cluster, units(1), gpus=1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for n in range(40):  # five units
        texts = [f"The nurse {i} saw her in room {n}. He is a pilot." for i in range(100)]
        (folder / f"c{n}.txt").write_text("\n".join(texts))
    return folder


def written(folder):
    return {name: (folder / name).read_bytes() for name in OUTPUT}


@pytest.mark.full
def test_a_driver_that_is_killed_goes_on(cluster, corpus, tmp_path):
    mine_corpus([f"{corpus}/*.txt"], tmp_path / "calm")
    command = [
        *(sys.executable, "-m", "levelhead", "data", "mine", f"{corpus}/*.txt"),
        *("-o", str(tmp_path / "ray"), "--executor", "ray", "--address", cluster.address),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    store = tmp_path / "ray" / "store" / "units"
    while process.poll() is None and not store.exists():
        time.sleep(0.05)
    killed = process.poll() is None
    if killed:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert killed
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert written(tmp_path / "ray") == written(tmp_path / "calm")


@pytest.mark.full
def test_a_node_that_is_lost_costs_what_it_was_at_and_less_room_is_enough(cluster):
    """Three actors, of which one is lost for good while all are at work; then four, for two."""
    lost = cluster.add_node(num_cpus=1, **SMALL)
    queries = units(9, seconds=1.0)
    result = []
    for outcome in RayActors(address=cluster.address).run(queries, cancel=threading.Event()):
        if not result:
            cluster.remove_node(lost, allow_graceful=False)
        result.append(outcome)
    assert any(isinstance(item, TaskRetried) for item in result)
    assert {item.key for item in result if isinstance(item, TaskResult)} == {
        item.key for item in queries
    }
    result = ran(cluster, units(6, seconds=0.2, more=True), workers=4)
    assert sum(isinstance(item, TaskResult) for item in result) == 6


@pytest.mark.full
def test_a_secret_stays_here(cluster, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_KEY", "secret")
    monkeypatch.setenv("LEVELHEAD_DATA", "/somewhere")
    queries = [Task("synthetic:variables", FrozenDict({}))]
    (result,) = ran(cluster, queries)
    assert json.loads(result.payload) == {"LEVELHEAD_DATA": "/somewhere"}


@pytest.mark.full
def test_a_study_is_the_same(cluster, tmp_path):
    plan = read_study_config(studies.study(tmp_path))
    run_study(plan, tmp_path / "here")
    run_study(plan, tmp_path / "there", executor=RayActors(address=cluster.address))
    assert studies.contents(tmp_path / "there") == studies.contents(tmp_path / "here")


@pytest.mark.full
def test_a_map_is_the_same(cluster, tmp_path):
    located_away(RayActors(address=cluster.address, workers=1), tmp_path)


def test_a_map_that_cannot_be_had_is_told_as_such(tmp_path):
    measure = (
        f"seat:lexicon={studies.lexicon(tmp_path)},targets=things,corpus={metric_cases.corpus()}"
    )
    model = str(zoo.folder("bert", "BertForPreTraining"))
    with pytest.raises(LevelheadError, match="way to locate"):
        locate_distributed(
            InProcess(), model, measure, load_options={}, locate_options={"method": "luck"}
        )
    empty = tmp_path / "empty.txt"
    empty.write_text("Nothing is said here.\n")
    measure = measure.replace(str(metric_cases.corpus()), str(empty))
    with pytest.raises(NotMeasurableError):
        locate_distributed(InProcess(), model, measure, load_options={}, locate_options={})
