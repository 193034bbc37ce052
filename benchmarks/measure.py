"""What reading a measure costs beside the bare forward, as ratios of CPU time in one run.

    python benchmarks/measure.py [--quick] [--model DIR]

read          the worst measure: items to stored readouts / transformers' encoder alone, run bare
              over the same batches, without any head
measures      the same ratio for each
pppl          the ratio of PPPL, whose forwards have one masked token a row
shared_three  cloze, cloze_probability and cloze_relative in one run / cloze alone, read and judged
judge         seconds to judge a measure's stored readouts (intervals, nulls), for information

Reading is everything between items and numbers: hashing, sharding, tokenizing, batches, forwards,
readouts, the store (in memory), gathering. One thread. The two sides of a ratio take turns over
pieces of the same items, so that what else the machine does hits both alike. The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import time
from pathlib import Path

import torch

from levelhead.core.canonical import content_hash
from levelhead.engine.shards import shards
from levelhead.measure.aspects import Judge
from levelhead.measure.readouts import read
from levelhead.measure.run import run
from levelhead.measure.table import parsed
from levelhead.measure.verbs import SHARD, VERBS
from levelhead.models.batches import padded
from levelhead.models.load import load

ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", Path(__file__).parents[2] / "shared"))
os.environ.setdefault("LEVELHEAD_DATA", str(ASSETS / "data"))

PIECES = {  # how many items a piece has, and how many pieces are taken, in full and with --quick
    "seat": (12, 8, 3),
    "strength": (64, 8, 2),
    "distance": (128, 6, 2),
    "contrast": (16, 6, 2),
    "crows": (32, 6, 2),
    "cloze": (64, 6, 2),
    "cloze_top": (256, 6, 2),
    "pppl": (16, 6, 2),
}


def fresh() -> str:
    """An empty store in memory."""
    return f"memory://{secrets.token_hex(8)}"


def pieces(asked, size: int, count: int) -> list:
    """Parts of what a measure asks, as it would be asked alone."""
    items = [item for item in asked.items if item.asks]
    step = max(size, len(items) // count)
    starts = range(0, len(items), step)
    return [asked._replace(items=tuple(items[i : i + size])) for i in starts][:count]


def batches(lm, asked) -> list:
    """The batches that reading a piece runs: rows and which of them."""
    content = {content_hash(ask): ask for item in asked.items for ask in item.asks}
    found = []
    for shard in shards(content, size=SHARD[asked.verb]):
        rows = [content[key] for key in shard.items]
        reading = VERBS[asked.verb](lm, rows, asked.settings).reading
        for indices, _ in lm.batching.over(reading.rows, lambda indices: indices):
            found.append((reading.rows, indices))
    return found


def ratio(lm, asked_pieces, repeats: int) -> float:
    """CPU time of reading over that of the bare encoder."""
    work = [(piece, batches(lm, piece)) for piece in asked_pieces]
    ours = bare = 0.0
    for turn in range(repeats + 1):
        for piece, rows in work:
            began = time.process_time()
            read(lm, [piece], store=fresh())
            middle = time.process_time()
            with torch.no_grad():
                for own, indices in rows:
                    batch = padded(own, indices, pad=lm.tokens.pad, device=lm.device)
                    lm.anatomy.backbone(**batch.inputs)
            end = time.process_time()
            if turn:  # the first is for warming up
                ours += middle - began
                bare += end - middle
    return ours / bare


def shared_three(lm, prompts, repeats: int) -> float:
    """Three measures that read the same prompts over one of them."""
    names = ("cloze", "cloze_probability", "cloze_relative")
    judge = Judge(draws=999, permutations=999)
    one = three = 0.0
    for turn in range(repeats + 1):
        began = time.process_time()
        run(lm, [parsed(f"{names[0]}:{prompts}")], judge=judge, store=fresh())
        middle = time.process_time()
        run(lm, [parsed(f"{name}:{prompts}") for name in names], judge=judge, store=fresh())
        end = time.process_time()
        if turn or not repeats:
            one += middle - began
            three += end - middle
    return three / one


def judged(lm, name: str) -> float:
    """Seconds to judge stored readouts."""
    measure = parsed(name)
    found = measure.read(lm)
    began = time.process_time()
    measure.measured(lm, found, judge=Judge())
    return time.process_time() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--model", default=str(ASSETS / "models" / "minibert-en"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    lm = load(given.model)
    repeats = 1 if given.quick else 3
    found = {}
    for name, (size, many, few) in PIECES.items():
        measure = parsed(f"{name}:limit=200" if name == "pppl" else name)
        parts = pieces(measure.asked(lm)[0], size, few if given.quick else many)
        found[name] = round(ratio(lm, parts, repeats), 3)
        print(name, found[name], flush=True)
    told = {
        "read": max(found.values()),
        "pppl": found["pppl"],
        "shared_three": round(
            shared_three(lm, "backgrounds=1" if given.quick else "backgrounds=4", repeats - 1), 3
        ),
        "measures": found,
        "judge": {"strength:part=dev": round(judged(lm, "strength:part=dev"), 2)},
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
