"""What reading a measure costs beside the bare forward, as ratios of CPU time in one run.

    python benchmarks/measure.py [--quick] [--model DIR]

read          the worst measure: items to stored readouts / the bare forwards they need, over the
              same batches: transformers' encoder, and its head at the tokens that are read
measures      the same ratio for each
encoder       the same with the encoder alone, without any head, for information
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
from operator import sub
from pathlib import Path

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.run_context import Inference, RunContext
from levelhead.engine.sharding import shard_items
from levelhead.measures.query_kinds import shard_size
from levelhead.measures.registry import parse_measure
from levelhead.measures.responses import build_query, read_responses
from levelhead.measures.run import run_measures
from levelhead.models.inputs.batching import make_batch
from levelhead.models.loading.load import load
from levelhead.models.queries.query import LogProbs, TopKTokens

ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", Path(__file__).parents[2] / "shared"))
os.environ.setdefault("LEVELHEAD_DATA", str(ASSETS / "data"))

PIECES = {  # how many items a piece has, and how many pieces are taken, in full and with --quick
    "seat": (12, 8, 1),
    "strength": (48, 8, 1),
    "distance": (96, 6, 1),
    "contrast": (8, 8, 1),
    "crows": (16, 8, 1),
    "cloze": (32, 8, 1),
    "cloze_top": (128, 6, 1),
    "pppl": (8, 8, 1),
}


def fresh() -> str:
    """An empty store in memory."""
    return f"memory://{secrets.token_hex(8)}"


def pieces(query_set, size: int, count: int) -> list:
    """Parts of what a measure asks, as it would be asked alone."""
    items = [item for item in query_set.items if item.queries]
    step = max(size, len(items) // count)
    starts = range(0, len(items), step)
    return [query_set._replace(items=tuple(items[i : i + size])) for i in starts][:count]


def batches(lm, query_set) -> list:
    """The batches that reading a piece runs: rows and which of them."""
    content = {content_hash(ask): ask for item in query_set.items for ask in item.queries}
    result = []
    for shard in shard_items(content, size=shard_size(lm, query_set.query_kind)):
        rows = [content[key] for key in shard.items]
        question, _ = build_query(
            lm, query_set.query_kind, rows, query_set.settings
        )  # as reading drops rows
        reading = question.query
        for indices, _ in lm.batching.run_batches(reading.rows, lambda indices: indices):
            result.append((reading.rows, indices, places(reading.readout, indices)))
    return result


def places(readout, indices) -> list[int] | None:
    """The token of each row at which the vocabulary head is read; None if it is not."""
    if isinstance(readout, LogProbs):
        return [readout.targets[i][0].position for i in indices]
    if isinstance(readout, TopKTokens):
        return [readout.positions[i] for i in indices]
    return None


def bare(model, batch, where, verb: str) -> None:
    """The forward a batch needs, in plain transformers."""
    output = model.bert(**batch.inputs)
    if verb == "follows":
        model.cls.seq_relationship(output.pooler_output).log_softmax(-1)
    elif where is not None:
        hidden = output.last_hidden_state[torch.arange(len(where)), torch.tensor(where)]
        model.cls.predictions(hidden).log_softmax(-1)


def ratio(lm, asked_pieces, repeats: int) -> tuple[float, float]:
    """CPU time of reading over that of the bare forwards, and over that of the encoder alone."""
    work = [(piece, batches(lm, piece)) for piece in asked_pieces]
    model, times = lm.layout.model, [0.0, 0.0, 0.0]
    for turn in range(repeats + 1):
        for piece, rows in work:
            marks = [time.process_time()]
            read_responses(lm, [piece], context=RunContext(store=fresh()))
            marks.append(time.process_time())
            with torch.no_grad():
                for verb in (piece.query_kind, "encoder"):
                    for subset, indices, where in rows:
                        batch = make_batch(subset, indices, pad=lm.tokens.pad, device=lm.device)
                        bare(model, batch, where if verb == piece.query_kind else None, verb)
                    marks.append(time.process_time())
            if turn:  # the first is for warming up
                times = [sum(pair) for pair in zip(times, map(sub, marks[1:], marks), strict=True)]
    return times[0] / times[1], times[0] / times[2]


def shared_three(lm, prompts, repeats: int) -> float:
    """Three measures that read the same prompts over one of them."""
    metrics = ("cloze", "cloze_probability", "cloze_relative")
    inference = Inference(resamples=999, permutations=999)
    single = three = 0.0
    for turn in range(repeats + 1):
        began = time.process_time()
        run_measures(
            lm,
            [parse_measure(f"cloze:{prompts}")],
            inference=inference,
            context=RunContext(store=fresh()),
        )
        middle = time.process_time()
        run_measures(
            lm,
            [parse_measure(f"cloze:metric={metric},{prompts}") for metric in metrics],
            inference=inference,
            context=RunContext(store=fresh()),
        )
        end = time.process_time()
        if turn or not repeats:
            single += middle - began
            three += end - middle
    return three / single


def judged(lm, name: str) -> float:
    """Seconds to judge stored readouts."""
    measure = parse_measure(name)
    result = measure.read(lm)
    began = time.process_time()
    measure.compute_measurement(lm, result, inference=Inference())
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
    result, encoder = {}, {}
    for name, (size, many, few) in PIECES.items():
        measure = parse_measure(f"{name}:limit=200" if name == "pppl" else name)
        parts = pieces(measure.queries(lm)[0], size, few if given.quick else many)
        result[name], encoder[name] = (round(item, 3) for item in ratio(lm, parts, repeats))
        print(name, result[name], encoder[name], flush=True)
    output = {
        "read": max(result.values()),
        "pppl": result["pppl"],
        "shared_three": round(
            shared_three(
                lm, "backgrounds=1,kinds=pronoun" if given.quick else "backgrounds=4", repeats - 1
            ),
            3,
        ),
        "measures": result,
        "encoder": encoder,
        "judge": {"strength:part=dev": round(judged(lm, "strength:part=dev"), 2)},
    }
    print(json.dumps(output))


if __name__ == "__main__":
    main()
