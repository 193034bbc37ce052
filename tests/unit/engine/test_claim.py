import os
import signal
import subprocess
import sys
import uuid

import pytest

from levelhead.core.files import join, read_bytes
from levelhead.engine.claim import FolderInUse, claimed

HOLD = """
import sys, time
from levelhead.engine.claim import claimed
with claimed(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_belongs_to_one_process_and_is_free_after_its_death(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(FolderInUse, match="another job is running in"), claimed(tmp_path):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    with claimed(tmp_path):
        pass


def test_an_object_store_keeps_the_claim_of_who_was_killed():
    folder = f"memory://{uuid.uuid4()}"
    with claimed(folder), pytest.raises(FolderInUse) as error, claimed(folder):
        pass
    assert f'"pid":{os.getpid()}' in error.value.what
    assert "if that process is gone, remove" in error.value.mend
    with pytest.raises(FileNotFoundError):
        read_bytes(join(folder, "lock"))
    with claimed(folder):
        pass
