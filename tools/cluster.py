"""The same command here and on a Ray cluster in which processes are killed: are the bytes the same?

    python tools/cluster.py FOLDER [--kills 20] [--every 5] -- mine 'corpus/*.parquet'
    python tools/cluster.py FOLDER -- study papers/dawkins2024/study.toml
    python tools/cluster.py FOLDER -- leaderboard --file models.txt -m seat

The cluster is a head and two nodes of one CPU each, on loopback. Every few seconds (by chance) an
actor, or the driver itself, is killed by SIGKILL; a driver that was killed, or that gave up because
actors had died, is started again. Then all files of both runs are compared, the stores of units
included; costs and locks are not. The last line is one JSON object: kills of drivers and of actors,
how the last driver ended, files, and those that differ, are missing or are too many.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
from ray.cluster_utils import Cluster

SMALL = {"object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.2"}
ACTOR = "ray::_Actor"
OTHERWISE = {"cost.json", "costs.csv", "lock"}
"""Files that say how it went."""


def main() -> None:
    """Run it here, run it there, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between kills, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("command", nargs="+", help="of levelhead, after --")
    asked = parser.parse_args()
    here, there = (asked.folder / name for name in ("here", "there"))
    command = [sys.executable, "-m", "levelhead", *asked.command]
    began = time.perf_counter()
    done = subprocess.run([*command, "-o", str(here)], check=False)
    alone = time.perf_counter() - began
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL}
    )
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, **SMALL)
        there_too = [*command, "-o", str(there), "--runner", "ray", "--address", cluster.address]
        began = time.perf_counter()
        kills, ended = disturbed(
            there_too, asked.kills, asked.every, np.random.default_rng(asked.seed)
        )
        took = time.perf_counter() - began
    finally:
        cluster.shutdown()
    print(
        json.dumps(
            {
                "kills": kills,
                "exit": [done.returncode, ended],
                "seconds": [round(alone, 1), round(took, 1)],
                **compared(here, there),
            }
        )
    )


def disturbed(
    command: list[str], kills: int, every: float, rng: np.random.Generator
) -> tuple[dict[str, int], int]:
    """Run a command to its end, however often it is killed; which kills there were, and its end."""
    killed = {"drivers": 0, "actors": 0, "began again": 0}
    while True:
        process = subprocess.Popen(command, start_new_session=True)
        while process.poll() is None:
            wait(process, rng.exponential(every))
            if process.poll() is not None or killed["drivers"] + killed["actors"] >= kills:
                process.wait()
                break
            at_work = actors()
            if at_work and rng.random() < 0.6:
                at_work[rng.integers(len(at_work))].kill()
                killed["actors"] += 1
            else:
                os.killpg(process.pid, signal.SIGKILL)
                killed["drivers"] += 1
        ended = process.wait()
        print(f"{killed}, ended with {ended}", file=sys.stderr, flush=True)
        if ended in (0, 2) or killed["began again"] > 3 * kills:
            return killed, ended
        killed["began again"] += 1


def wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Until the process has ended, or a time has passed."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return


def actors() -> list[psutil.Process]:
    """The actors of this cluster that are alive."""
    found = []
    for one in psutil.Process().children(recursive=True):
        try:
            if one.name().startswith(ACTOR) or " ".join(one.cmdline()).startswith(ACTOR):
                found.append(one)
        except psutil.Error:
            continue  # it has ended
    return found


def compared(here: Path, there: Path) -> dict[str, object]:
    """The files of two runs."""
    first, second = (contents(folder) for folder in (here, there))
    both = first.keys() & second.keys()
    differ = sorted(name for name in both if first[name] != second[name])
    return {
        "files": len(first),
        "differ": differ,
        "lost": sorted(first.keys() - second.keys()),
        "more": sorted(second.keys() - first.keys()),
    }


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a run."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in OTHERWISE
    }


if __name__ == "__main__":
    main()
