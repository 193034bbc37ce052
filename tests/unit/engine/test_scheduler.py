import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.engine.events import RunFinished, TaskFailed, TasksPlanned, TaskStored
from levelhead.engine.executors.base import InProcess, RunCancelledError, TaskResult
from levelhead.engine.leases import FolderInUseError
from levelhead.engine.locks import exclusive_lock
from levelhead.engine.scheduler import Job, OtherJobError, TasksFailedError, run_job, run_missing
from levelhead.engine.store import ForeignFolderError, open_store
from levelhead.engine.tasks import Task


def units(n, work="synthetic:digest", **spec):
    return tuple(Task(work, FrozenDict({"i": i, **spec})) for i in range(n))


def test_a_job_computes_what_is_missing_and_nothing_else(tmp_path):
    log = tmp_path / "log"
    job = Job("digests", units(10, log=str(log)))
    store, events = open_store(tmp_path / "run"), []
    run_missing(job.tasks[:4], store)
    assert run_job(job, tmp_path / "run", context=RunContext(progress=events.append)) == store
    assert len(log.read_text().splitlines()) == 10
    assert events[0] == TasksPlanned(n_tasks=10, n_stored=4, damaged=())
    assert [event.n_done for event in events if isinstance(event, TaskStored)] == [
        5,
        6,
        7,
        8,
        9,
        10,
    ]
    assert isinstance(events[-1], RunFinished)
    assert (events[-1].n_computed, events[-1].n_failed) == (6, 0)
    assert list(job.results(store)) == [unit.compute() for unit in units(10)]


def test_a_run_removes_what_a_killed_run_left(tmp_path, monkeypatch):
    """Every reading, not only a job with a lock: `measure --store` kept such files for ever."""
    (first, second), left = units(2), []
    store = open_store(tmp_path)
    monkeypatch.setattr(os, "replace", lambda source, target: left.append(source))
    store.put(first.key, b"half")
    monkeypatch.undo()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    Path(left[0]).rename(left[0].replace(f"-{os.getpid()}-", f"-{child.pid}-"))
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    run_missing([first, second], store)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert store.has(first.key)


def test_a_unit_listed_twice_is_computed_once(tmp_path):
    log = tmp_path / "log"
    once = units(3, log=str(log))
    store = run_job(Job("twice", once + once), tmp_path / "run")
    assert len(log.read_text().splitlines()) == 3
    assert len(list(store)) == 3


def test_the_time_left_follows_the_pace(tmp_path):
    events = []
    run_job(
        Job("slow", units(6, seconds=0.05)),
        tmp_path / "run",
        context=RunContext(progress=events.append),
    )
    left = [event.seconds_left for event in events if isinstance(event, TaskStored)]
    assert left[0] is None
    assert 4 * 0.05 <= left[1] < 4  # at least the sleeping, and no start-up in it
    assert left[-1] == 0


@pytest.mark.parametrize("harm", ["truncated", "flipped", "emptied"])
def test_a_damaged_file_is_named_and_computed_anew(tmp_path, harm):
    job, events = Job("digests", units(5)), []
    store = run_job(job, tmp_path / "run")
    good = list(job.results(store))
    place = tmp_path / "run" / "units" / job.tasks[2].key[:2] / job.tasks[2].key
    bytes_ = place.read_bytes()
    place.write_bytes(
        {
            "truncated": bytes_[:-7],
            "flipped": bytes_[:-1] + bytes([bytes_[-1] ^ 4]),
            "emptied": b"",
        }[harm]
    )
    run_job(job, tmp_path / "run", context=RunContext(progress=events.append))
    assert events[0] == TasksPlanned(n_tasks=5, n_stored=4, damaged=(str(place),))
    assert list(job.results(store)) == good
    assert place.read_bytes() == bytes_


def test_units_that_fail_end_in_an_error_and_the_others_are_kept(tmp_path):
    bad = units(1, "synthetic:refuse") + units(1, "synthetic:stumble")
    job, events = Job("mixed", units(3) + bad), []
    with pytest.raises(TasksFailedError) as error:
        run_job(job, tmp_path / "run", context=RunContext(progress=events.append))
    assert "2 of 5 tasks failed" in error.value.problem
    assert "- 1 tasks: no answer to 0\n  hint: ask another question" in error.value.problem
    assert "ZeroDivisionError: a plain mistake" in error.value.problem
    assert {failed.key for failed in error.value.failures} == {unit.key for unit in bad}
    assert sum(isinstance(event, TaskFailed) for event in events) == 2
    assert len(list(open_store(tmp_path / "run"))) == 3


def test_two_jobs_in_one_folder_are_refused(tmp_path):
    first, second = Job("first", units(3)), Job("second", units(4))
    run_job(first, tmp_path / "run")
    with pytest.raises(OtherJobError, match=r'contains another job: .*"name":"first"'):
        run_job(second, tmp_path / "run")
    assert len(list(open_store(tmp_path / "run"))) == 3
    events = []
    store = run_job(
        second, tmp_path / "run", context=RunContext(progress=events.append), extend=True
    )
    assert events[0].n_stored == 3
    assert len(list(store)) == 4
    run_job(first, tmp_path / "run")  # the first one is still at home there
    run_job(Job("first, renamed", first.tasks), tmp_path / "run")
    with pytest.raises(OtherJobError):
        run_job(Job("third", units(5)), tmp_path / "run")


def test_a_damaged_card_is_mended(tmp_path):
    job = Job("digests", units(2))
    run_job(job, tmp_path / "run")
    card = next((tmp_path / "run" / "jobs").rglob(job.key))
    good = card.read_bytes()
    card.write_bytes(good[:-3])
    with pytest.raises(OtherJobError, match="contains another job: a damaged record"):
        run_job(Job("other", units(3)), tmp_path / "run")
    run_job(job, tmp_path / "run")
    assert card.read_bytes() == good


def test_a_unit_that_moves_the_process_does_not_move_the_results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    wander = Task("synthetic:wander", FrozenDict({"to": str(tmp_path / "elsewhere")}))
    run_job(Job("wander", (wander, *units(2))), "run")
    assert len(list(open_store(tmp_path / "run"))) == 3
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_two_processes_in_one_folder_are_refused(tmp_path):
    job = Job("digests", units(2))
    run_job(job, tmp_path / "run")
    with exclusive_lock(str(tmp_path / "run")):
        other = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from levelhead.engine.scheduler import Job, run_job\n"
                "from levelhead.engine.tasks import Task\n"
                "from levelhead.core.frozen import FrozenDict\n"
                "run_job(Job('x', (Task('synthetic:digest', FrozenDict({'i': 0})),)), sys.argv[1])",
                str(tmp_path / "run"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        with pytest.raises(FolderInUseError):
            run_job(job, tmp_path / "run")
    assert other.returncode != 0
    assert "another job is running in" in other.stderr


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ForeignFolderError):
        run_job(Job("digests", units(2)), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_cancelling_keeps_what_is_stored(tmp_path):
    job, cancel, seen = Job("digests", units(20)), threading.Event(), []

    def listen(event):
        seen.append(event)
        if isinstance(event, TaskStored) and event.n_done == 7:
            cancel.set()

    with pytest.raises(RunCancelledError, match="run the same command again"):
        run_job(job, tmp_path / "run", context=RunContext(progress=listen, cancel=cancel))
    assert len(list(open_store(tmp_path / "run"))) == 7
    run_job(job, tmp_path / "run", context=RunContext(progress=seen.append))
    assert seen[-1].n_computed == 13


@pytest.mark.parametrize(
    ("yields", "what"),
    [
        (lambda units: units[1:], "no result for 1 of 3 tasks"),
        (lambda units: [units[0], units[0], units[1]], "a second result"),
        (
            lambda units: [*units, Task("synthetic:digest", FrozenDict({"i": 99}))],
            "that was not requested",
        ),
    ],
)
def test_an_executor_that_miscounts_is_found_out(tmp_path, yields, what):
    class Careless:
        def run(self, units, *, cancel):
            yield from (TaskResult(unit.key, unit.compute()) for unit in yields(units))

    with pytest.raises(LevelheadError, match=f"the executor gave .*{what}"):
        run_job(Job("digests", units(3)), tmp_path / "run", executor=Careless())
    assert len(list(open_store(tmp_path / "run"))) <= 3


def test_a_job_of_nothing_does_not_exist():
    with pytest.raises(NotMeasurableError, match="the job 'empty' has no tasks"):
        Job("empty", ())


def test_a_job_on_an_object_store(tmp_path):
    job = Job("digests", units(5))
    store = run_job(job, f"memory://{time.monotonic_ns()}", executor=InProcess())
    assert list(job.results(store)) == [unit.compute() for unit in job.tasks]
