"""One battery every runner must pass. A new runner adds a row to RUNNERS."""

import os
import subprocess
import sys
import threading
import time
from functools import cache

import pytest

from levelhead.core.frozen import FrozenDict
from levelhead.engine.events import TaskFailed
from levelhead.engine.executors.base import InProcess, RunCancelledError, TaskResult
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.engine.scheduler import Job, run_job
from levelhead.engine.tasks import Task


@cache
def one_thread():  # what a process born with one thread gives
    code = "import sys, numeric; sys.stdout.buffer.write(numeric.floats({}))"
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | single | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    ).stdout


RUNNERS = {
    "in process": InProcess(),
    "one process": LocalProcesses(workers=1),
    "three processes": LocalProcesses(workers=3),
}


@pytest.fixture(params=list(RUNNERS))
def runner(request):
    return RUNNERS[request.param]


def units(n, work="synthetic:digest", **spec):
    return [Task(work, FrozenDict({"i": i, **spec})) for i in range(n)]


def test_every_unit_is_computed_once(runner):
    queries = units(30, bytes=100_000)
    outcomes = list(runner.run(queries, cancel=threading.Event()))
    assert all(isinstance(outcome, TaskResult) for outcome in outcomes)
    assert len(outcomes) == 30
    assert {o.key: o.payload for o in outcomes} == {u.key: u.compute() for u in queries}


def test_the_number_of_threads_is_the_units_own(runner):
    """Whatever this process or the machine is set to, the bits are those of the unit's threads."""
    single, two = (Task("numeric:floats", FrozenDict({}), threads=n) for n in (1, 2))
    outcomes = {o.key: o.payload for o in runner.run([two, single], cancel=threading.Event())}
    assert outcomes[single.key] == one_thread()
    if outcomes[single.key] != outcomes[two.key]:  # two cores at least, so the test had a choice
        assert single.key != two.key


def test_no_units_are_no_work(runner):
    assert list(runner.run([], cancel=threading.Event())) == []


def test_failures_are_told_and_the_others_go_on(runner):
    queries = units(4) + units(2, "synthetic:refuse")
    queries += [
        unit for work in ("stumble", "gone", "leave") for unit in units(1, f"synthetic:{work}")
    ]
    outcomes = {o.key: o for o in runner.run(queries, cancel=threading.Event())}
    assert len(outcomes) == 9
    assert [type(outcomes[u.key]) for u in queries] == [TaskResult] * 4 + [TaskFailed] * 5
    assert outcomes[queries[8].key].reason.endswith("SystemExit: 0")
    assert outcomes[queries[4].key].reason == "no answer to 0\n  hint: ask another question"
    assert outcomes[queries[6].key].reason.endswith("ZeroDivisionError: a plain mistake")
    assert "no function 'synthetic:gone' can be imported" in outcomes[queries[7].key].reason


def test_cancelling_ends_it_soon(runner):
    cancel, began = threading.Event(), time.monotonic()
    outcomes = runner.run(units(500, seconds=0.05), cancel=cancel)
    next(outcomes)
    cancel.set()
    with pytest.raises(RunCancelledError):
        list(outcomes)
    assert time.monotonic() - began < 10


def test_results_do_not_depend_on_the_runner(runner, tmp_path):
    job = Job("digests", tuple(units(25, bytes=1000)))
    here = run_job(job, tmp_path / "a", executor=runner)
    there = run_job(job, tmp_path / "b", executor=InProcess())
    assert list(here) == list(there)
    for key in here:
        a = (tmp_path / "a" / "units" / key[:2] / key).read_bytes()
        assert a == (tmp_path / "b" / "units" / key[:2] / key).read_bytes()
