"""What `levelhead plan` foresees beside what then happens, on five runs of different kinds.

    python benchmarks/plan.py [--quick]

For each: `seconds` and `memory`, foreseen / found, and whether tokens were foreseen exactly. Runs:
a masked model measured, a causal one, both on a leaderboard, a classifier trained on RTE, a million
sentences mined (with --quick a quarter of a million, and a twentieth of the training). Real weights
and data: LEVELHEAD_ASSETS. `worst_seconds` and `worst_memory` are the ratios farthest from 1. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", Path(__file__).parents[2] / "shared"))
BERT, STORIES = (str(ASSETS / "models" / name) for name in ("minibert-en", "stories15m"))
BEGAN = time.monotonic()


def main() -> None:
    """Foresee, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--run", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        counted(asked.run)
        return
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, plan, run in runs(Path(scratch), quick=asked.quick):
            before, after = ran(["plan", *plan, "--json"]), ran(run, count=True)
            if name == "leaderboard":  # models are measured in processes that nobody counts in
                after["tokens"] = sum(after_alone(model, plan[3:], scratch) for model in plan[1:3])
            found[name] = {
                "seconds": round(before["seconds"] / after["seconds"], 3),
                "memory": round(before["peak_mb"] / after["peak_mb"], 3),
                "tokens": [before["tokens"], after["tokens"]],
                "took": round(after["seconds"], 1),
                "peak_mb": round(after["peak_mb"]),
            }
            print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    worst = {
        f"worst_{what}": max((one[what] for one in found.values()), key=lambda x: max(x, 1 / x))
        for what in ("seconds", "memory")
    }
    exact = all(one["tokens"][0] == one["tokens"][1] for one in found.values())
    print(json.dumps(found | worst | {"tokens_exact": exact}, sort_keys=True))


def runs(scratch: Path, *, quick: bool) -> list[tuple[str, list[str], list[str]]]:
    """Name, what is planned, what is run."""
    from mine import HELD, MILLION, corpus

    files = corpus(scratch / "corpus", HELD["rare"], MILLION // (4 if quick else 1))
    names = [str(path) for path in files]
    masked = [BERT, "-m", "strength"]
    causal = [STORIES, "-m", "crows"]
    both = [BERT, STORIES, "-m", "crows:subsample_fraction=0.1"]
    rte = [BERT, "--task", "rte", "--epochs", "0.05" if quick else "1", "--threads", "1"]
    return [
        ("masked", ["measure", *masked], ["measure", *masked, "--store", str(scratch / "a")]),
        ("causal", ["measure", *causal], ["measure", *causal, "--store", str(scratch / "b")]),
        (
            "leaderboard",
            ["leaderboard", *both],
            ["leaderboard", *both, "-o", str(scratch / "board")],
        ),
        ("finetune", ["finetune", *rte], ["finetune", *rte, "-o", str(scratch / "rte")]),
        ("mine", ["mine", *names], ["data", "mine", *names, "-o", str(scratch / "mined")]),
    ]


def ran(args: list[str], *, count: bool = False) -> dict[str, float]:
    """What a call says, or, counted, what it took."""
    command = [sys.executable, "-m", "levelhead", *args]
    if count:
        command = [sys.executable, __file__, "--run", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2):
        raise SystemExit(done.stderr[-2000:])
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def after_alone(model: str, options: list[str], scratch: str) -> float:
    """Tokens that a model is shown, measured by itself."""
    place = str(Path(scratch) / Path(model).name)
    return ran(["measure", model, *options, "--store", place], count=True)["tokens"]


def counted(args: list[str]) -> None:
    """Run a command in this process, count the tokens that the model is shown, and tell."""
    from levelhead.cli import app

    # Mining shows nothing to a model: what counts there would only take time to import.
    seen = [] if "mine" in args[:2] else watched()
    try:
        app(args, standalone_mode=False)
    finally:
        who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        peak = max(resource.getrusage(one).ru_maxrss for one in who) / 1024
        told = {"seconds": time.monotonic() - BEGAN, "peak_mb": peak, "tokens": sum(seen)}
        print("\n" + json.dumps(told))


def watched() -> list[int]:
    """The tokens of every batch that is read or trained on from now on."""
    from levelhead.models import lm as models
    from levelhead.models.training.classifier_trainer import BatchDataset

    tokens: list[int] = []
    answer, collated = models.LM.run_rows, BatchDataset.collate

    def reading(self, reading, indices, **options):  # type: ignore[no-untyped-def]
        tokens.append(sum(len(reading.rows[i].ids) for i in indices))
        return answer(self, reading, indices, **options)

    def training(self, numbers):  # type: ignore[no-untyped-def]
        found = collated(self, numbers)
        tokens.append(int(found["attention_mask"].sum()))
        return found

    models.LM.run_rows, BatchDataset.collate = reading, training  # type: ignore[method-assign]
    return tokens


if __name__ == "__main__":
    main()
