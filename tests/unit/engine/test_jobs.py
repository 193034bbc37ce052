import subprocess
import sys
import threading
import time

import pytest

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.run_context import RunContext
from levelhead.engine.events import Failed, Finished, Planned, Stored
from levelhead.engine.executors.base import Cancelled, Computed, InProcess
from levelhead.engine.locks import FolderInUse, claimed
from levelhead.engine.scheduler import Job, OtherJob, UnitsFailed, complete, run
from levelhead.engine.store import ForeignFolder, open_store
from levelhead.engine.tasks import Unit


def units(n, work="synthetic:digest", **spec):
    return tuple(Unit(work, Frozen({"i": i, **spec})) for i in range(n))


def test_a_job_computes_what_is_missing_and_nothing_else(tmp_path):
    log = tmp_path / "log"
    job = Job("digests", units(10, log=str(log)))
    store, events = open_store(tmp_path / "run"), []
    complete(job.units[:4], store)
    assert run(job, tmp_path / "run", context=RunContext(progress=events.append)) == store
    assert len(log.read_text().splitlines()) == 10
    assert events[0] == Planned(units=10, stored=4, damaged=())
    assert [event.done for event in events if isinstance(event, Stored)] == [5, 6, 7, 8, 9, 10]
    assert isinstance(events[-1], Finished)
    assert (events[-1].computed, events[-1].failed) == (6, 0)
    assert list(job.results(store)) == [unit.compute() for unit in units(10)]


def test_a_unit_listed_twice_is_computed_once(tmp_path):
    log = tmp_path / "log"
    once = units(3, log=str(log))
    store = run(Job("twice", once + once), tmp_path / "run")
    assert len(log.read_text().splitlines()) == 3
    assert len(list(store)) == 3


def test_the_time_left_follows_the_pace(tmp_path):
    events = []
    run(
        Job("slow", units(6, seconds=0.05)),
        tmp_path / "run",
        context=RunContext(progress=events.append),
    )
    left = [event.seconds_left for event in events if isinstance(event, Stored)]
    assert left[0] is None
    assert 4 * 0.05 <= left[1] < 4  # at least the sleeping, and no start-up in it
    assert left[-1] == 0


@pytest.mark.parametrize("harm", ["truncated", "flipped", "emptied"])
def test_a_damaged_file_is_named_and_computed_anew(tmp_path, harm):
    job, events = Job("digests", units(5)), []
    store = run(job, tmp_path / "run")
    good = list(job.results(store))
    place = tmp_path / "run" / "units" / job.units[2].key[:2] / job.units[2].key
    bytes_ = place.read_bytes()
    place.write_bytes(
        {
            "truncated": bytes_[:-7],
            "flipped": bytes_[:-1] + bytes([bytes_[-1] ^ 4]),
            "emptied": b"",
        }[harm]
    )
    run(job, tmp_path / "run", context=RunContext(progress=events.append))
    assert events[0] == Planned(units=5, stored=4, damaged=(str(place),))
    assert list(job.results(store)) == good
    assert place.read_bytes() == bytes_


def test_units_that_fail_end_in_an_error_and_the_others_are_kept(tmp_path):
    bad = units(1, "synthetic:refuse") + units(1, "synthetic:stumble")
    job, events = Job("mixed", units(3) + bad), []
    with pytest.raises(UnitsFailed) as error:
        run(job, tmp_path / "run", context=RunContext(progress=events.append))
    assert "2 of 5 units failed" in error.value.what
    assert "- 1 units: no answer to 0\n  mend: ask another question" in error.value.what
    assert "ZeroDivisionError: a plain mistake" in error.value.what
    assert {failed.key for failed in error.value.failures} == {unit.key for unit in bad}
    assert sum(isinstance(event, Failed) for event in events) == 2
    assert len(list(open_store(tmp_path / "run"))) == 3


def test_two_jobs_in_one_folder_are_refused(tmp_path):
    first, second = Job("first", units(3)), Job("second", units(4))
    run(first, tmp_path / "run")
    with pytest.raises(OtherJob, match=r'holds another job: .*"name":"first"'):
        run(second, tmp_path / "run")
    assert len(list(open_store(tmp_path / "run"))) == 3
    events = []
    store = run(second, tmp_path / "run", context=RunContext(progress=events.append), extend=True)
    assert events[0].stored == 3
    assert len(list(store)) == 4
    run(first, tmp_path / "run")  # the first one is still at home there
    run(Job("first, renamed", first.units), tmp_path / "run")
    with pytest.raises(OtherJob):
        run(Job("third", units(5)), tmp_path / "run")


def test_a_damaged_card_is_mended(tmp_path):
    job = Job("digests", units(2))
    run(job, tmp_path / "run")
    card = next((tmp_path / "run" / "jobs").rglob(job.key))
    good = card.read_bytes()
    card.write_bytes(good[:-3])
    with pytest.raises(OtherJob, match="holds another job: a damaged card"):
        run(Job("other", units(3)), tmp_path / "run")
    run(job, tmp_path / "run")
    assert card.read_bytes() == good


def test_a_unit_that_moves_the_process_does_not_move_the_results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    wander = Unit("synthetic:wander", Frozen({"to": str(tmp_path / "elsewhere")}))
    run(Job("wander", (wander, *units(2))), "run")
    assert len(list(open_store(tmp_path / "run"))) == 3
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_two_processes_in_one_folder_are_refused(tmp_path):
    job = Job("digests", units(2))
    run(job, tmp_path / "run")
    with claimed(str(tmp_path / "run")):
        other = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from levelhead.engine.scheduler import Job, run\n"
                "from levelhead.engine.tasks import Unit\n"
                "from levelhead.core.frozen import Frozen\n"
                "run(Job('x', (Unit('synthetic:digest', Frozen({'i': 0})),)), sys.argv[1])",
                str(tmp_path / "run"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        with pytest.raises(FolderInUse):
            run(job, tmp_path / "run")
    assert other.returncode != 0
    assert "another job is running in" in other.stderr


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ForeignFolder):
        run(Job("digests", units(2)), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_cancelling_keeps_what_is_stored(tmp_path):
    job, cancel, seen = Job("digests", units(20)), threading.Event(), []

    def listen(event):
        seen.append(event)
        if isinstance(event, Stored) and event.done == 7:
            cancel.set()

    with pytest.raises(Cancelled, match="run the same command again"):
        run(job, tmp_path / "run", context=RunContext(progress=listen, cancel=cancel))
    assert len(list(open_store(tmp_path / "run"))) == 7
    run(job, tmp_path / "run", context=RunContext(progress=seen.append))
    assert seen[-1].computed == 13


@pytest.mark.parametrize(
    ("yields", "what"),
    [
        (lambda units: units[1:], "no result for 1 of 3 units"),
        (lambda units: [units[0], units[0], units[1]], "a second result"),
        (lambda units: [*units, Unit("synthetic:digest", Frozen({"i": 99}))], "nobody asked for"),
    ],
)
def test_a_runner_that_miscounts_is_found_out(tmp_path, yields, what):
    class Careless:
        def run(self, units, *, cancel):
            yield from (Computed(unit.key, unit.compute()) for unit in yields(units))

    with pytest.raises(LevelheadError, match=f"the runner gave .*{what}"):
        run(Job("digests", units(3)), tmp_path / "run", runner=Careless())
    assert len(list(open_store(tmp_path / "run"))) <= 3


def test_a_job_of_nothing_does_not_exist():
    with pytest.raises(NotMeasurable, match="the job 'empty' has no units"):
        Job("empty", ())


def test_a_job_on_an_object_store(tmp_path):
    job = Job("digests", units(5))
    store = run(job, f"memory://{time.monotonic_ns()}", runner=InProcess())
    assert list(job.results(store)) == [unit.compute() for unit in job.units]
