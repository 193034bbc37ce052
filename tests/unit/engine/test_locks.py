import os
import signal
import subprocess
import sys
import uuid

import pytest

from levelhead.core.files import join_url, open_filesystem, read_bytes, write_atomic
from levelhead.engine.locks import FolderInUseError, exclusive_lock

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


def test_an_object_store_keeps_the_claim_of_who_was_killed():
    folder = f"memory://{uuid.uuid4()}"
    with exclusive_lock(folder), pytest.raises(FolderInUseError) as error, exclusive_lock(folder):
        pass
    assert f'"pid":{os.getpid()}' in error.value.problem
    assert error.value.hint.endswith(f"if that process is gone, remove {folder}/lock")
    with pytest.raises(FileNotFoundError):
        read_bytes(join_url(folder, "lock"))
    with exclusive_lock(folder):
        pass


def test_a_broken_claim_is_left_to_who_took_it_over():
    folder = f"memory://{uuid.uuid4()}"
    with exclusive_lock(folder):
        write_atomic(join_url(folder, "lock"), b"another's")
    assert read_bytes(join_url(folder, "lock")) == b"another's"


def test_a_claim_that_is_gone_does_not_hide_the_real_error():
    folder = f"memory://{uuid.uuid4()}"
    fs, path = open_filesystem(join_url(folder, "lock"))

    def lose_it():
        fs.rm_file(path)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), exclusive_lock(folder):
        lose_it()


def test_a_backend_that_lets_two_through_is_noticed(monkeypatch):
    folder = f"memory://{uuid.uuid4()}"
    fs, _ = open_filesystem(folder)
    write = fs.pipe_file

    def careless(path, value, mode="overwrite"):
        write(path, value)
        write(path, b"the other one, a moment later")

    monkeypatch.setattr(type(fs), "pipe_file", lambda self, *a, **k: careless(*a, **k))
    with pytest.raises(FolderInUseError, match="claimed by the other one"), exclusive_lock(folder):
        pass
