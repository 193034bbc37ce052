import os
import signal
import subprocess
import sys
import threading
import time
import uuid

import pytest

from levelhead.core.files import join_url, open_filesystem, read_bytes, write_atomic
from levelhead.engine.leases import FolderInUseError, _Claims, hold_lease
from levelhead.engine.locks import exclusive_lock

HOLD = """
import sys, time
from levelhead.engine.locks import exclusive_lock
with exclusive_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_belongs_to_one_process_and_is_free_after_its_death(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(FolderInUseError, match="another job is running in"),
        exclusive_lock(str(tmp_path)),
    ):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    with exclusive_lock(str(tmp_path)):
        pass


def claims(folder):
    fs, path = open_filesystem(join_url(folder, "locks"))
    return sorted(fs.find(path))


def test_a_folder_of_an_object_store_belongs_to_one_job():
    folder = f"memory://{uuid.uuid4()}"
    with exclusive_lock(folder), pytest.raises(FolderInUseError) as error, exclusive_lock(folder):
        pass
    assert f'"pid":{os.getpid()}' in error.value.problem
    assert "ends 60 seconds after its death" in error.value.hint
    assert claims(folder) == []
    with exclusive_lock(folder):
        assert len(claims(folder)) == 1


def test_a_claim_is_void_after_a_lease_and_is_renewed_by_its_holder():
    folder = f"memory://{uuid.uuid4()}"
    fs, path = open_filesystem(join_url(folder, "locks/000000"))
    fs.pipe_file(path, b"of a process that was killed")
    with pytest.raises(FolderInUseError, match="was killed"), hold_lease(folder, 0.5):
        pass
    time.sleep(0.6)
    with hold_lease(folder, 0.5):
        assert [name.rpartition("/")[2] for name in claims(folder)] == ["000001"]
        time.sleep(0.8)  # longer than a lease, shorter than the last renewal and a lease
        with pytest.raises(FolderInUseError, match="claimed by"), hold_lease(folder, 0.5):
            pass
    assert claims(folder) == []


def test_a_job_that_was_suspended_leaves_the_claim_to_its_successor():
    folder = f"memory://{uuid.uuid4()}"
    with hold_lease(folder, 0.3):
        write_atomic(claim := f"memory://{claims(folder)[0]}", b"another's")
        time.sleep(0.2)  # three renewals
    assert read_bytes(claim) == b"another's"


def test_of_two_jobs_that_replace_a_void_claim_at_most_one_goes_on(monkeypatch):
    """Both have seen the void claim before either writes its own, in each order of events."""
    folder = f"memory://{uuid.uuid4()}"
    fs, path = open_filesystem(join_url(folder, "locks/000000"))
    fs.pipe_file(path, b"of a process that was killed")
    time.sleep(0.1)
    have_seen, held, refused = threading.Barrier(2), [], []
    usual = _Claims._require_void

    def seen_by_both(self, claim):
        usual(self, claim)
        have_seen.wait(timeout=5)

    monkeypatch.setattr(_Claims, "_require_void", seen_by_both)

    def job():
        try:
            with hold_lease(folder, 0.05):
                held.append(1)
                have_ended.wait(timeout=5)
        except FolderInUseError:
            refused.append(1)
            have_ended.set()

    have_ended = threading.Event()
    jobs = [threading.Thread(target=job) for _ in range(2)]
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join()
    assert (len(held), len(refused)) == (1, 1)


def test_a_job_that_listed_too_early_withdraws(monkeypatch):
    """It planned to replace claim 7, which ended; meanwhile another job began anew with 0."""
    folder = f"memory://{uuid.uuid4()}"
    with exclusive_lock(folder):
        fs, path = open_filesystem(join_url(folder, "locks"))
        late = _Claims(fs, path, folder, b"late", 60.0)
        lists = iter([[f"{path}/000007"], [*late.paths(), f"{path}/000008"]])
        with monkeypatch.context() as patch:
            patch.setattr(_Claims, "paths", lambda self: next(lists))
            patch.setattr(_Claims, "_require_void", lambda self, claim: None)
            with pytest.raises(FolderInUseError, match="claimed by"):
                late.acquire()
        assert [name.rpartition("/")[2] for name in claims(folder)] == ["000000"]


def test_a_claim_that_is_gone_does_not_hide_the_real_error():
    folder = f"memory://{uuid.uuid4()}"
    fs, path = open_filesystem(join_url(folder, "locks"))

    def lose_it():
        fs.rm(path, recursive=True)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), exclusive_lock(folder):
        lose_it()


def test_a_backend_that_lets_two_through_is_noticed(monkeypatch):
    folder = f"memory://{uuid.uuid4()}"
    fs, _ = open_filesystem(folder)
    write = fs.pipe_file

    def careless(path, value, mode="overwrite"):
        write(path, value, mode)
        write(path, b"the other one, a moment later")

    monkeypatch.setattr(type(fs), "pipe_file", lambda self, *a, **k: careless(*a, **k))
    with pytest.raises(FolderInUseError, match="claimed by the other one"), exclusive_lock(folder):
        pass
