"""What a cluster costs beside one process, and what a second actor is worth.

    python benchmarks/scale.py [--quick] [--keep FOLDER]

linearity      CPU time a further sentence on Ray, from the second size to the third / from the
               first to the second; 1 is linear
memory_growth  peak memory of the largest process on Ray, over the third size / over the second
ray_overhead   CPU time a further sentence on Ray, everything that Ray runs counted / in one
               process, less 1
two_actors     a study of several models on two actors / on one: steps a second, without start-up
cores          two processes that compute / one, by the same clock: what two actors could be worth

Mining sizes are 1, 5 and 20 million sentences (with --quick 1 thousand, 1 and 2 million), of which
one in twenty holds a word; the texts are those of benchmarks/mine.py. The cluster is a head and two
nodes of one CPU each on loopback. The study measures edited copies of a real model and needs
LEVELHEAD_ASSETS; without it two_actors is null. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from mine import BLOCK, HELD, MILLION, corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (MILLION, 5 * MILLION, 20 * MILLION)
QUICK = (1_000, MILLION, 2 * MILLION)
STEPS = (4, 12)
"""Of the smaller study and of the larger one: what is between them is counted."""
LOOPBACK = "127.0.0.2"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keep", type=Path, help="keep the texts here, and use those that are")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--arguments", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        print(json.dumps(WAYS[args.way](args.arguments)))
        return
    sizes = QUICK if args.quick else SIZES
    with tempfile.TemporaryDirectory() as scratch:
        files = corpus((args.keep or Path(scratch)) / "rare", HELD["rare"], max(sizes))
        runs = {way: [mined(way, files, size) for size in sizes] for way in ("ray", "one")}
        pace = {way: marginal(run, sizes) for way, run in runs.items()}
        result = {
            "linearity": round(pace["ray"][1] / pace["ray"][0], 3),
            "memory_growth": round(runs["ray"][2]["peak_mb"] / runs["ray"][1]["peak_mb"], 3),
            "ray_overhead": round(pace["ray"][1] / pace["one"][1] - 1, 3),
            "two_actors": two_actors(Path(scratch)),
            "cores": cores(),
            "per_second": {way: round(1 / cost[1]) for way, cost in pace.items()},
            "sizes": list(sizes),
        }
    print(json.dumps(result, sort_keys=True))


def marginal(runs: list[dict[str, float]], sizes: tuple[int, ...]) -> list[float]:
    """CPU seconds a further sentence, between sizes that follow each other."""
    return [
        (more["seconds"] - less["seconds"]) / (to - since)
        for less, more, since, to in zip(runs, runs[1:], sizes, sizes[1:], strict=False)
    ]


def mined(way: str, files: list[Path], size: int) -> dict[str, float]:
    """Mining so many sentences, in a process of its own."""
    some = files[: -(-size // BLOCK)]
    if size < BLOCK:
        import polars

        some = [files[0].parent / f"first-{size}.parquet"]
        polars.scan_parquet(files[0]).head(size).sink_parquet(some[0])
    return read_output(way, *map(str, some))


def two_actors(scratch: Path) -> float | None:
    """How much faster two actors are than one."""
    if not os.environ.get("LEVELHEAD_ASSETS"):
        return None
    took = {}
    for actors in (1, 2):
        less, more = (
            read_output("study", str(scratch), str(actors), str(steps)) for steps in STEPS
        )
        took[actors] = more["seconds"] - less["seconds"]
    return round(took[1] / took[2], 3)


def cores() -> float:
    """How much faster two processes that only compute are than one."""
    took = []
    for processes in (1, 2):
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            pool.map(hashed, [1] * processes)
            began = time.perf_counter()
            pool.map(hashed, [40] * 8, chunksize=1)
            took.append(time.perf_counter() - began)
    return round(took[0] / took[1], 3)


def hashed(times: int) -> None:
    """Work that needs nothing but a core."""
    data = bytes(2**20)
    for _ in range(times):
        hashlib.sha256(data).digest()


def read_output(way: str, *args: str) -> dict[str, float]:
    """What one way takes, in a process of its own."""
    command = [sys.executable, __file__, "--way", way, "--arguments", *args]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{way} {len(args)} {args[-1]}: {result}", file=sys.stderr, flush=True)
    return result


# -- the ways


def by_one(files: list[str]) -> dict[str, float]:
    """Mining in one process, in it alone."""
    return _mined(files, None)


def by_ray(files: list[str]) -> dict[str, float]:
    """Mining by one actor of a cluster."""
    from levelhead.engine.executors.ray import RayActors

    with cluster() as address:
        return _mined(files, RayActors(address=address, workers=1))


def _mined(files: list[str], runner: Any) -> dict[str, float]:
    from levelhead.data.corpus.mine import mine_corpus

    with tempfile.TemporaryDirectory() as folder, Spent() as spent:
        mine_corpus(files, Path(folder) / "mined", executor=runner)
    return {"seconds": spent.seconds, "peak_mb": spent.peak_mb}


def by_study(args: list[str]) -> dict[str, float]:
    """A study of so many models on so many actors; by the clock."""
    from levelhead.engine.executors.ray import RayActors
    from levelhead.mitigate.heads.mask import mask_heads
    from levelhead.models.edits.files import save_edits
    from levelhead.models.sites import Site
    from levelhead.study.config import read_study_config
    from levelhead.study.run import run_study

    scratch, actors, steps = Path(args[0]), int(args[1]), int(args[2])
    models = []
    for number in range(steps):
        folder = scratch / "edits" / f"{number}"
        if not folder.exists():
            save_edits([mask_heads([Site("head_out", number % 6, number // 6)])], folder)
        models.append(f'[models.m{number}]\npath = "{MODEL}"\nedit = "{folder}"')
    names = json.dumps([f"m{number}" for number in range(steps)])
    plan = scratch / f"{steps}.toml"
    plan.write_text(STUDY.format(models="\n".join(models), names=names))
    with tempfile.TemporaryDirectory() as place, cluster() as address:
        began = time.perf_counter()
        run_study(
            read_study_config(plan), place, executor=RayActors(address=address, workers=actors)
        )
        return {"seconds": time.perf_counter() - began}


MODEL = "${LEVELHEAD_ASSETS}/models/minibert-en"
STUDY = """
format = "levelhead-study-2"
name = "scale"
threads = 1
resamples = 99
permutations = 99
{models}
[measures]
score = "stereoset:kind=intersentence,bias=gender"
[measurements.all]
models = {names}
measures = ["score"]
"""


@contextmanager
def cluster() -> Iterator[str]:
    """A head and two nodes of one CPU each, on loopback."""
    utils: Any = import_module("ray.cluster_utils")
    small: dict[str, Any] = {"object_store_memory": 80 * 2**20, "node_ip_address": LOOPBACK}
    # Nodes find this package as this process does.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    result = utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small}
    )
    try:
        for _ in range(2):
            result.add_node(num_cpus=1, **small)
        yield result.address
    finally:
        result.shutdown()


class Spent:
    """CPU seconds of this process and all that it started; the peak memory of the largest one.

    An actor ends before the run does: processes are looked at while they live.
    """

    def __enter__(self) -> Spent:
        self.by_process: dict[tuple[int, float], float] = {}
        self.peak_mb = 0.0
        self._before = self._look()
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._watch, daemon=True)
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._looking.join()
        self.seconds = self._look() - self._before

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self._look()

    def _look(self) -> float:
        here = psutil.Process()
        for item in [here, *here.children(recursive=True)]:
            try:
                used = item.cpu_times()
                self.by_process[item.pid, item.create_time()] = used.user + used.system
                status = Path(f"/proc/{item.pid}/status").read_text()
            except (psutil.Error, OSError):
                continue  # it has ended
            for line in status.splitlines():
                if line.startswith("VmHWM"):
                    self.peak_mb = max(self.peak_mb, int(line.split()[1]) / 1024)
        return sum(self.by_process.values())


WAYS = {"one": by_one, "ray": by_ray, "study": by_study}


if __name__ == "__main__":
    main()
