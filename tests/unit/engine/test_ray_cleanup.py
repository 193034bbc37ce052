"""Processes that a killed driver leaves are ended, those of a driver that ends are not."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(1, flush=True)
time.sleep(60)
"""
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {STUBBORN!r}])
"""
DRIVER = f"""
import subprocess, sys
from levelhead.engine.executors.ray_cleanup import cleanup_after_kill
with cleanup_after_kill():
    # A child in a session of its own, with a child that ignores signals: like Ray's agents.
    command = [sys.executable, "-c", {PARENT!r}]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    print(child.pid, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_a_killed_driver_started_ends_within_five_seconds(is_killed):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    child = psutil.Process(int(driver.stdout.readline()))
    family = [child, *child.children()]
    watchers = [process for process in psutil.Process(driver.pid).children() if process != child]
    assert len(family) == 2
    assert len(watchers) == 1
    try:
        time.sleep(1.5)  # longer than the time between two looks
        if is_killed:
            driver.kill()
        else:
            driver.communicate(b"\n")
        driver.wait()
        _, alive = psutil.wait_procs([*family, *watchers], timeout=5)
        assert set(alive) == (set() if is_killed else set(family))
        assert driver.returncode == (-signal.SIGKILL if is_killed else 0)
    finally:
        for process in family:
            if process.is_running():
                process.kill()
        driver.wait()
