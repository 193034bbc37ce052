"""One battery every runner must pass. A new runner adds a row to RUNNERS."""

import threading
import time

import pytest

from levelhead.core.frozen import Frozen
from levelhead.engine.events import Failed
from levelhead.engine.jobs import Job, run
from levelhead.engine.processes import LocalProcesses
from levelhead.engine.runners import Cancelled, Computed, InProcess
from levelhead.engine.units import Unit

RUNNERS = {
    "in process": InProcess(),
    "one process": LocalProcesses(workers=1),
    "three processes": LocalProcesses(workers=3),
}


@pytest.fixture(params=list(RUNNERS))
def runner(request):
    return RUNNERS[request.param]


def units(n, work="synthetic:digest", **spec):
    return [Unit(work, Frozen({"i": i, **spec})) for i in range(n)]


def test_every_unit_is_computed_once(runner):
    asked = units(30, bytes=100_000)
    outcomes = list(runner.run(asked, cancel=threading.Event()))
    assert all(isinstance(outcome, Computed) for outcome in outcomes)
    assert len(outcomes) == 30
    assert {o.key: o.payload for o in outcomes} == {u.key: u.compute() for u in asked}


def test_no_units_are_no_work(runner):
    assert list(runner.run([], cancel=threading.Event())) == []


def test_failures_are_told_and_the_others_go_on(runner):
    asked = (
        units(4) + units(2, "synthetic:refuse") + units(1, "synthetic:stumble") + units(1, "no:f")
    )
    outcomes = {o.key: o for o in runner.run(asked, cancel=threading.Event())}
    assert len(outcomes) == 8
    assert [type(outcomes[u.key]) for u in asked] == [Computed] * 4 + [Failed] * 4
    assert outcomes[asked[4].key].why == "no answer to 0\n  mend: ask another question"
    assert outcomes[asked[6].key].why.endswith("ZeroDivisionError: a plain mistake")
    assert "no function 'no:f' can be imported" in outcomes[asked[7].key].why


def test_cancelling_ends_it_soon(runner):
    cancel, began = threading.Event(), time.monotonic()
    outcomes = runner.run(units(500, seconds=0.05), cancel=cancel)
    next(outcomes)
    cancel.set()
    with pytest.raises(Cancelled):
        list(outcomes)
    assert time.monotonic() - began < 10


def test_results_do_not_depend_on_the_runner(runner, tmp_path):
    job = Job("digests", tuple(units(25, bytes=1000)))
    here = run(job, tmp_path / "a", runner=runner)
    there = run(job, tmp_path / "b", runner=InProcess())
    assert list(here) == list(there)
    for key in here:
        a = (tmp_path / "a" / "units" / key[:2] / key).read_bytes()
        assert a == (tmp_path / "b" / "units" / key[:2] / key).read_bytes()
