import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.engine.events import TaskFailed, TaskRetried
from levelhead.engine.executors.base import TaskResult
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.engine.tasks import Task


def digests(n, **spec):
    return [Task("synthetic:digest", FrozenDict({"i": i, **spec})) for i in range(n)]


def test_a_death_belongs_to_one_unit_which_is_tried_again(tmp_path):
    weak = Task("synthetic:die", FrozenDict({"record": str(tmp_path / "deaths"), "times": 2}))
    outcomes = list(LocalProcesses(2).run([weak, *digests(10)], cancel=threading.Event()))
    retried = [o for o in outcomes if isinstance(o, TaskRetried)]
    assert retried == [TaskRetried(weak.key, "the process died (SIGKILL)")] * 2
    assert TaskResult(weak.key, b"alive") in outcomes
    assert sum(isinstance(o, TaskResult) for o in outcomes) == 11


def test_a_unit_that_always_kills_its_process_is_given_up(tmp_path):
    fatal = Task("synthetic:die", FrozenDict({"record": str(tmp_path / "deaths"), "times": 99}))
    outcomes = list(LocalProcesses(2).run([fatal, *digests(10)], cancel=threading.Event()))
    assert TaskFailed(fatal.key, "the process died (SIGKILL), 3 times") in outcomes
    assert sum(isinstance(o, TaskResult) for o in outcomes) == 10
    assert (tmp_path / "deaths").stat().st_size == 3


def test_a_death_is_noticed_whatever_it_leaves_behind():
    """An odd signal has no name; a child keeps the pipe of its dead parent open."""
    odd = Task("synthetic:die_of", FrozenDict({"signal": 40, "child": False}))
    parent = Task("synthetic:die_of", FrozenDict({"signal": 9, "child": True}))
    began = time.monotonic()
    outcomes = list(LocalProcesses(2, attempts=2).run([odd, parent], cancel=threading.Event()))
    assert TaskFailed(odd.key, "the process died (signal 40), 2 times") in outcomes
    assert TaskFailed(parent.key, "the process died (SIGKILL), 2 times") in outcomes
    assert time.monotonic() - began < 15  # the child sleeps for 20 seconds


def test_no_process_is_left_behind():
    runner = LocalProcesses(2)
    list(runner.run(digests(5), cancel=threading.Event()))
    half = runner.run(digests(50, seconds=0.2), cancel=threading.Event())
    next(half)
    assert multiprocessing.active_children()
    half.close()
    assert multiprocessing.active_children() == []


def test_no_more_processes_than_units():
    outcomes = LocalProcesses(64).run(digests(2, seconds=0.5), cancel=threading.Event())
    next(outcomes)
    assert len(multiprocessing.active_children()) <= 2
    outcomes.close()


DRIVER = """
import sys, threading
from levelhead.core.frozen import FrozenDict
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.engine.executors import processes
from levelhead.engine.tasks import Task
if "--no-signal" in sys.argv:
    # Workers import this script as well: they are as on a system without the signal.
    processes._request_death_signal = lambda driver: None
if __name__ == "__main__":
    units = [Task(sys.argv[1], FrozenDict({"i": i, "seconds": 30})) for i in range(2)]
    threading.Timer(0.3, lambda: print("started", flush=True)).start()
    list(LocalProcesses(2).run(units, cancel=threading.Event()))
"""


def descendants(pid):
    result = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            result.append(int(stat.parent.name))
    return result


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("task", "seconds", "options"),
    [
        ("synthetic:digest", 1, ()),
        # While they start, and before they have asked for anything.
        ("synthetic:digest", 0, ()),
        # In C code that lets no other thread of the worker run.
        ("synthetic:hold_the_interpreter", 1, ()),
        # Where no signal comes, by a pipe that the driver held open.
        ("synthetic:spin", 1, ("--no-signal",)),
        ("synthetic:digest", 0, ("--no-signal",)),
    ],
)
def test_workers_die_with_a_killed_driver(tmp_path, task, seconds, options):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    path = os.pathsep.join(sys.path)
    driver = subprocess.Popen(
        [sys.executable, str(script), task, *options],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    driver.stdout.readline()
    deadline = time.monotonic() + 20
    while len(workers := descendants(driver.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(seconds)  # let them begin their 30 seconds of work
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    assert len(workers) >= 2
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_that_cannot_start_end_the_run_soon(tmp_path):
    """A script without the main guard starts workers that start workers; Python refuses them."""
    script = tmp_path / "unguarded.py"
    script.write_text(DRIVER.replace('if __name__ == "__main__":', "if True:"))
    result = subprocess.run(
        [sys.executable, str(script), "synthetic:digest"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode != 0
    assert "the process died (exit code 1) before it could start, 3 times in a row" in result.stderr
    assert 'main part is under if __name__ == "__main__"' in result.stderr


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"workers": 1, "attempts": 0}])
def test_a_runner_that_cannot_run_is_refused(wrong):
    with pytest.raises(LevelheadError, match="cannot compute anything"):
        LocalProcesses(**wrong)
