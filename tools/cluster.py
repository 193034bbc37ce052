"""The same command here and on a Ray cluster in which processes are killed: are the bytes the same?

    python tools/cluster.py FOLDER [--kills 20] [--every 5] -- mine 'corpus/*.parquet'
    python tools/cluster.py FOLDER -- study papers/dawkins2024/study.toml
    python tools/cluster.py FOLDER -- leaderboard --file models.txt -m seat
    python tools/cluster.py FOLDER --s3 -- ...the same, what is stored on S3 (moto's server here)
    python tools/cluster.py FOLDER --alone --kills 10 --every 300 -- study STUDY.toml

The cluster is a head and two nodes of one CPU each, on loopback. Every few seconds (by chance) an
actor, or the driver itself, is killed by SIGKILL; a driver that was killed, or that gave up because
actors had died, is started again. Then all files of both runs are compared, the stores of units
included; costs and locks are not. The last line is one JSON object: kills of drivers and of actors,
how the last driver ended, files, and those that differ, are missing or are too many; of the
units in a folder, how many were stored at the last kill, and how many of these were written again.

With --alone there is no cluster: both runs are one process each.

With --s3 a corpus is read from there and what is mined is written there; studies and leaderboards
keep their readings there (the run beside it has them in a folder). Of the requests that write, a
share is answered by 503, half of them before anything was written and half of them after it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
from ray.cluster_utils import Cluster

from levelhead.core.files import join_url, open_filesystem, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "work"))
from object_store import bucket

SMALL = {"object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.2"}
ACTOR = "ray::_Actor"
OTHERWISE = {"cost.json", "costs.csv", "lock"}
"""Files that say how it went."""
ENDED = (0, 2)
"""How a run ends that was not disturbed: done, or done and inconclusive."""


def main() -> None:
    """Run it here, run it there, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between kills, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="no cluster, one process")
    parser.add_argument("--s3", action="store_true", help="keep what is stored on S3, on loopback")
    parser.add_argument("--cuts", type=float, default=0.05, help="share of writes that fail there")
    parser.add_argument("command", nargs="+", help="of levelhead, after --")
    args = parser.parse_args()
    unreliable = Unreliable(args.cuts, args.seed)
    with bucket(app=unreliable.around) if args.s3 else nullcontext() as s3:
        result = both(args, s3)
    print(json.dumps(result | ({"failed writes": dict(unreliable.failed)} if args.s3 else {})))


def both(queries: argparse.Namespace, s3: str | None) -> dict[str, object]:
    """The command here and there, and how their files compare."""
    mining = "mine" in queries.command[:2]
    here, there = (str(queries.folder / name) for name in ("here", "there"))
    command = [sys.executable, "-m", "levelhead", *queries.command]
    elsewhere, stores = command, []
    if s3 and mining:
        there = join_url(s3, "there")
        elsewhere = [*command[:5], *(moved(part, s3) for part in command[5:])]
    elif s3:
        stores = [str(queries.folder / "store"), join_url(s3, "store")]
    stored = [["--store", store] for store in stores] or [[], []]
    began = time.perf_counter()
    done = subprocess.run([*command, "-o", here, *stored[0]], check=False)
    alone = time.perf_counter() - began
    if done.returncode not in ENDED:
        raise SystemExit(f"undisturbed it ended with {done.returncode}")
    there_too = [*elsewhere, "-o", there, *stored[1]]
    with nullcontext([]) if queries.alone else clustered() as runner:
        began = time.perf_counter()
        kills, ended = disturbed(
            [*there_too, *runner],
            queries.kills,
            queries.every,
            np.random.default_rng(queries.seed),
            units=Path((stored[1] or ["", join_url(there, "store")])[1], "units"),
            claim=join_url(there, "store", "lock") if s3 and mining else None,
        )
        took = time.perf_counter() - began
    return {
        "kills": kills,
        "exit": [done.returncode, ended],
        "seconds": [round(alone, 1), round(took, 1)],
        # Units are named by where their texts lie.
        **compared(here, there, "store" if s3 and mining else None),
        **({"stored": compared(*stores)} if stores else {}),
    }


@contextmanager
def clustered() -> Iterator[list[str]]:
    """A cluster on loopback, as the options that have a command run there."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL}
    )
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, **SMALL)
        yield ["--executor", "ray", "--address", cluster.address]
    finally:
        cluster.shutdown()


class Unreliable:
    """A server that fails at times, before it wrote or after."""

    def __init__(self, share: float, seed: int) -> None:
        self.share, self.rng = share, np.random.default_rng(seed)
        self.failed: Counter[str] = Counter()

    def around(self, app):  # type: ignore[no-untyped-def]
        """The server's application, failing."""

        def served(environ, start_response):  # type: ignore[no-untyped-def]
            writes = environ["REQUEST_METHOD"] in ("PUT", "POST", "DELETE")
            # Only what levelhead writes: boto3 makes the bucket before.
            sample = self.rng.random() if writes and environ["PATH_INFO"].count("/") > 1 else 1.0
            if sample >= self.share:
                return app(environ, start_response)
            when = "before" if sample < self.share / 2 else "after"
            self.failed[f"{environ['REQUEST_METHOD']} {when}"] += 1
            if when == "after":
                list(app(environ, lambda *output: None))
            else:
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Length", "0")])
            return [b""]

        return served


def moved(part: str, s3: str) -> str:
    """The files that a pattern names, copied to S3; any other part of a command as it is."""
    result = [Path(item) for item in sorted(glob(part))]
    for path in result:
        write_atomic(join_url(s3, "corpus", path.name), path.read_bytes())
    return join_url(s3, "corpus", Path(part).name) if result else part


def disturbed(
    command: list[str],
    kills: int,
    every: float,
    rng: np.random.Generator,
    *,
    units: Path,
    claim: str | None,
) -> tuple[dict[str, int], int]:
    """Run a command to its end, however often it is killed; which kills there were, and its end."""
    killed = {"drivers": 0, "actors": 0, "began again": 0}
    first: dict[Path, int] = {}
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
        now = written(units)
        again = sum(now.get(path) != when for path, when in first.items())
        killed |= {"units at the last kill": len(first), "written again": again}
        first = now | first
        if claim and ended < 0:
            fs, path = open_filesystem(claim)
            fs.invalidate_cache()
            if fs.exists(path):  # an object store's claim outlives its owner, who is dead
                fs.rm_file(path)
        if ended in ENDED or killed["began again"] > 3 * kills:
            return killed, ended
        killed["began again"] += 1


def written(units: Path) -> dict[Path, int]:
    """When every unit in a folder was written."""
    return {path: path.stat().st_mtime_ns for path in units.rglob("*") if path.is_file()}


def wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Until the process has ended, or a time has passed."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return


def actors() -> list[psutil.Process]:
    """The actors of this cluster that are alive."""
    result = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.name().startswith(ACTOR) or " ".join(child.cmdline()).startswith(ACTOR):
                result.append(child)
        except psutil.Error:
            continue  # it has ended
    return result


def compared(here: str, there: str, but: str | None = None) -> dict[str, object]:
    """The files of two runs, but those below a folder."""
    first, second = (contents(folder, but) for folder in (here, there))
    both = first.keys() & second.keys()
    differ = sorted(name for name in both if first[name] != second[name])
    return {
        "files": len(first),
        "differ": differ,
        "lost": sorted(first.keys() - second.keys()),
        "more": sorted(second.keys() - first.keys()),
    }


def contents(folder: str, but: str | None) -> dict[str, str]:
    """The hashes of all files of a run."""
    fs, place = open_filesystem(folder)
    fs.invalidate_cache()
    return {
        path.removeprefix(place): hashlib.sha256(fs.cat_file(path)).hexdigest()
        for path in fs.find(place)
        if Path(path).name not in OTHERWISE
        and not (but and path.startswith(join_url(place, but, "")))
    }


if __name__ == "__main__":
    main()
