"""Kills at random moments of a job: six of 500 units; in the full tier fifty of 2,000."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from levelhead.core.frozen import FrozenDict
from levelhead.engine.scheduler import Job, run_job
from levelhead.engine.store import DamagedFileError, NotStoredError, open_existing_store
from levelhead.engine.tasks import Task

DRIVER = """
import sys
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.engine.scheduler import Job, run_job
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.engine.tasks import Task

if __name__ == "__main__":
    folder, log, n = sys.argv[1:]
    job = Job("killed", tuple(
        Task("synthetic:digest", FrozenDict({"i": i, "log": log, "seconds": 0.004, "bytes": 3000}))
        for i in range(int(n))
    ))
    run_job(job, folder, executor=LocalProcesses(workers=2),
        context=RunContext(progress=lambda event: print(event, flush=True)))
"""


def start(script, folder, log, number, count):
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), str(log), str(count)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "RUN": str(number)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def stored_whole(folder):
    """Keys stored right now. A kill may leave none of them half written."""
    try:
        store = open_existing_store(folder)
    except NotStoredError:  # killed before there was a store
        return set()
    return {key for key in store if store.has(key)}  # raises on a damaged file


def units(log, count):
    return [
        Task("synthetic:digest", FrozenDict({"i": i, "log": log, "seconds": 0.004, "bytes": 3000}))
        for i in range(count)
    ]


def tree(folder):
    """Every file a run leaves, with the hash of its bytes; the lock is no result."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def kill_at_random(begin, folder, rng, kills):
    """Start and kill so many times; what was stored before each start."""
    before = []
    for number in range(kills):
        before.append(stored_whole(folder))
        driver = begin(number)
        # A fifth of the kills fall into start-up, the others after so many events and a moment,
        # so that they hit work on fast machines and on slow ones.
        if rng.random() < 0.2:
            time.sleep(rng.uniform(0, 0.4))
        else:
            for _ in range(rng.randint(1, 50)):
                driver.stdout.readline()
            time.sleep(rng.uniform(0, 0.006))
        assert driver.poll() is None
        # The driver alone, or everything at once as a machine that goes down.
        (os.kill if rng.random() < 0.5 else os.killpg)(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
    return before


# Takes 10 s: three processes a kill. With this seed, of six kills one falls into start-up and five
# into work; three hit the driver alone and three all of its processes: every kind of kill.
@pytest.mark.parametrize(
    ("kills", "count"), [(6, 500), pytest.param(50, 2000, marks=pytest.mark.full)]
)
def test_kills_change_nothing(tmp_path, kills, count):
    script, folder, log = tmp_path / "driver.py", tmp_path / "run", tmp_path / "log"
    script.write_text(DRIVER)

    def begin(number):
        return start(script, folder, log, number, count)

    before = kill_at_random(begin, folder, random.Random(20261118), kills)
    before.append(stored_whole(folder))
    assert 10 * kills < len(before[-1]) < count  # they fell into work, and not after it

    last = begin(kills)
    last.communicate()
    assert last.returncode == 0

    # Nothing stored was computed again: no line of a run names a unit stored before that run.
    keys = {unit.spec["i"]: unit.key for unit in units(str(log), count)}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {i for _, i in lines} == set(range(count))
    again = [(run_, i) for run_, i in lines if keys[i] in before[int(run_)]]
    assert again == []
    # And no run computed a unit twice.
    assert len({tuple(line) for line in lines}) == len(lines)
    # What was stored once stayed stored.
    assert all(first <= second for first, second in pairwise(before))

    # The bytes are those of a run nobody disturbed, file by file: none missing, none doubled.
    quiet = run_job(Job("killed", tuple(units(str(log), count))), tmp_path / "quiet")
    assert len(list(quiet)) == count
    assert tree(folder) == tree(Path(tmp_path / "quiet"))
    assert list((folder / "tmp").iterdir()) == []


def test_the_checks_above_can_fail(tmp_path):
    """A half-written file is seen, by its bytes and by the store."""
    job = Job("digests", tuple(units(str(tmp_path / "log"), 3)))
    run_job(job, tmp_path / "a")
    run_job(job, tmp_path / "b")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    key = job.tasks[0].key
    place = tmp_path / "a" / "units" / key[:2] / key
    place.write_bytes(place.read_bytes()[:100])
    assert tree(tmp_path / "a") != tree(tmp_path / "b")
    with pytest.raises(DamagedFileError):
        stored_whole(tmp_path / "a")
