"""What 75 settings cost beside one forward, as ratios of CPU time in one run.

    python benchmarks/sweep.py [--quick] [--model DIR]

nsp       the 74 projections of Dawkins et al. 2024 and the model as it is, next-sentence answers to
          StereoSet's pairs / the bare forwards of the model as it is
token     the same for the vector of a word of every pair
naive     75 edited models, one after the other, on a slice / the bare forwards of that slice
max_diff  the largest difference of any answer from that of the edited model by itself, on the slice
base      the same for a random model of bert-base's size (not with --quick)

The enhanced StereoSet of Dawkins et al. (LEVELHEAD_ASSETS), 32 pairs in a batch, one thread. The
sides of a ratio take turns piece by piece, so that what else the machine does hits both alike. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import polars
import torch
from forward import ASSETS, BATCH, bert_base

from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs
from levelhead.mitigate.projection.config_grid import projection_grid
from levelhead.mitigate.projection.edit_points import build_edits, fit_subspaces
from levelhead.models.forward.edit_sweep import can_have_effect, run_edit_sets
from levelhead.models.inputs.batching import make_batch
from levelhead.models.loading.load import load
from levelhead.models.queries import build as queries
from levelhead.models.queries.query import Query

PIECE = 8 * BATCH
"""What is prepared once for all pairs of a measure is prepared once a piece here."""
SLICE = 64
"""Pairs that are asked of every model by itself; an eighth with --quick."""
PAIRS = ASSETS / "data/gender-swapped-stereoset/dev.csv"


def texts(count: int | None) -> list[tuple[str, str]]:
    """Contexts and the sentences that follow them, as published."""
    rows = polars.read_csv(PAIRS)
    pairs = list(zip(rows["context"], rows["next_sentence"], strict=True))
    return pairs[:: 1 if count is None else len(pairs) // count][:count]


def some(reading: Query, indices) -> Query:
    """A reading of some rows only."""
    readout = reading.readout
    if hasattr(readout, "tokens"):
        subset = tuple(readout.tokens[i] for i in indices)
        readout = type(readout)(subset)
    return Query(tuple(reading.rows[i] for i in indices), readout)


def bare(lm, reading: Query):
    """The forward of transformers itself, to the end that the reading needs."""
    model = lm.layout.model if reading.readout.output_stage != "hidden" else lm.layout.backbone
    if reading.readout.output_stage == "next_sentence":
        pooled = lm.layout.backbone
        head = model.get_submodule(lm.layout.model_class.next_sentence)
        return lambda inputs: head(pooled(**inputs).pooler_output)
    return lambda inputs: model(**inputs).last_hidden_state


def timed(work) -> tuple[float, object]:
    """CPU seconds, and what came of it."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def measured(lm, reading: Query, edit_sets, single: int) -> dict[str, float]:
    """The ratio of a sweep, that of the naive way, and how far their answers differ."""
    acting = [item for item in edit_sets if not item or can_have_effect(reading, lm, item)]
    order = [
        i
        for subset, _ in lm.batching.run_batches(reading.rows, lambda subset: subset)
        for i in subset
    ]
    pieces = [some(reading, order[i : i + PIECE]) for i in range(0, len(order), PIECE)]
    forward = bare(lm, reading)

    def plainly(piece: Query) -> None:
        for indices, _ in lm.batching.run_batches(piece.rows, lambda subset: subset):
            batch = make_batch(piece.rows, indices, pad=lm.tokens.pad, device=lm.device)
            forward(batch.inputs)

    part = some(reading, order[:: max(1, len(order) // single)][:single])
    result = run_edit_sets(lm, part, acting)  # warms up, too
    sliced, _ = timed(lambda: plainly(part))
    naive, alone = timed(lambda: [lm.edited(*edits).run(part) for edits in acting])
    base = swept = 0.0
    for piece in pieces:
        base += timed(lambda piece=piece: plainly(piece))[0]
        swept += timed(lambda piece=piece: run_edit_sets(lm, piece, acting))[0]
    return {
        "ratio": round(swept / base, 3),
        "naive": round(naive / sliced, 1),
        "max_diff": float((torch.stack(alone) - result).abs().max()),
        "settings": len(acting),
    }


def of_model(lm, pairs, single: int = SLICE) -> dict[str, object]:
    """Both kinds of measures."""
    result = fit_subspaces(lm, contrast_pairs("gender-en", n=60))
    edit_sets = [(), *(build_edits(lm, setting, result) for setting in projection_grid())]
    assert len(edit_sets) == 75
    follows = measured(lm, queries.build_lm_next_sentence_query(lm, pairs), edit_sets, single)
    joined = [f"{first} {second}" for first, second in pairs]
    spans = [item.offsets[item.word_positions()[-2]] for item in lm.tokens.encode(joined)]
    token = measured(
        lm, queries.build_lm_hidden_states_query(lm, joined, [], spans, None), edit_sets, single
    )
    return {
        "nsp": follows["ratio"],
        "token": token["ratio"],
        "naive": follows["naive"],
        "max_diff": max(follows["max_diff"], token["max_diff"]),
        "settings": [follows["settings"], token["settings"]],
    }


@torch.no_grad()
def main() -> None:
    """Print the ratios as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice, in a minute or so")
    parser.add_argument("--model", type=Path, default=ASSETS / "models/minibert-en")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lm = load(given.model, batch_size=BATCH)
    result = of_model(lm, texts(128), SLICE // 8) if given.quick else of_model(lm, texts(None))
    if not given.quick:
        with tempfile.TemporaryDirectory() as folder:
            base = load(bert_base(Path(folder), lm.tokens.tokenizer), batch_size=BATCH)
            result["base"] = of_model(base, texts(256))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
