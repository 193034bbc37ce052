"""What the battery of Counteracts costs beside the bare forward, as ratios of CPU time in one run.

    python benchmarks/battery.py [--quick] [--model DIR]

prompts   words of one token: items to margins and likeliest tokens / the bare forwards of the
          distinct prompts: transformers' own layers, and its head at the blank
all       all words of the lexicon / the bare forwards of the distinct prompts
rows      all words of the lexicon / the bare forwards of all rows they need: of a masked model,
          words of several tokens have rows of their own; of a causal model, branches
each      rows a prompt with all words

One thread, 32 rows in a batch. The sides take turns over pieces of the same prompts, so that what
else the machine does hits all alike. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from pathlib import Path

import torch
from forward import ASSETS

from levelhead.core.run_context import RunContext
from levelhead.data.prompts.counteracts import make_counteracts_prompts
from levelhead.measures.cloze.battery import Battery
from levelhead.measures.cloze.cloze import Cloze
from levelhead.models.inputs.batching import make_batch
from levelhead.models.loading.load import load
from levelhead.models.queries import cloze

SINGLE = (("woman", "girl", "lady", "she", "her"), ("man", "boy", "gentleman", "he", "him"))
PIECE = 256


def bare(lm, rows, places) -> None:
    """The layers, and the head at one place of each row, in plain transformers."""
    model = lm.layout.model
    head = model.cls.predictions if hasattr(model, "cls") else model.lm_head
    for indices, _ in lm.batching.run_batches(rows, lambda subset: subset):
        batch = make_batch(rows, indices, pad=lm.tokens.pad, device=lm.device)
        hidden = model.base_model(**batch.inputs).last_hidden_state
        at = torch.tensor([places[i] for i in indices])
        head(hidden[torch.arange(len(at)), at]).log_softmax(-1)


def seconds(work) -> float:
    """CPU time."""
    began = time.process_time()
    work()
    return time.process_time() - began


def read_output(lm, battery) -> None:
    """Everything that is told of a battery's prompts."""
    result = battery.read(lm, context=RunContext(store=f"memory://{secrets.token_hex(8)}"))
    _ = result.change, result.top_masses(10)


def ratios(lm, words, prompts, pieces: int) -> tuple[float, float, float]:
    """CPU time of the battery over that of its prompts, and of its rows; rows a prompt."""
    ours = by_prompt = by_row = 0.0
    rows = asked_prompts = 0
    bases = {prompt.occupation: prompt for prompt in prompts if prompt.kind == "base"}
    for turn in range(pieces + 1):
        subset = prompts[turn % max(1, len(prompts) // PIECE) * PIECE :][:PIECE]
        # Every occupation's base prompt is asked with it.
        needed = {item.id: item for item in [*subset, *(bases[item.occupation] for item in subset)]}
        battery = Battery(Cloze(prompts=tuple(needed.values()), words=words))
        query_set = battery.build_queries(lm)
        texts = [item.queries[0][0] for item in query_set.items]
        full = cloze.build_lm_fill_words_query(lm, texts, list(query_set.settings["words"]))
        base = cloze.build_lm_top_k_query(lm, texts, 1)
        positions = [row[0] for row in base.readout.read_positions]
        distinct = dict(zip(base.rows, positions, strict=True))
        spent = [
            seconds(lambda battery=battery: read_output(lm, battery)),
            seconds(lambda subset=distinct: bare(lm, [*subset], [*subset.values()])),
            seconds(
                lambda subset=full: bare(
                    lm, subset.rows, [r[0] for r in subset.readout.read_positions]
                )
            ),
        ]
        if turn:  # the first is for warming up
            ours, by_prompt, by_row = (
                total + single
                for total, single in zip((ours, by_prompt, by_row), spent, strict=True)
            )
            rows += len(full.rows)
            asked_prompts += len(texts)
    return ours / by_prompt, ours / by_row, rows / asked_prompts


@torch.no_grad()
def main() -> None:
    """Print the ratios as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice, in a minute or so")
    parser.add_argument("--model", type=Path, default=ASSETS / "models/minibert-en")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lm = load(given.model, batch_size=32)
    prompts = list(make_counteracts_prompts())
    single, _, _ = ratios(lm, SINGLE, prompts, 1 if given.quick else 10)
    full, rows, each = ratios(lm, None, prompts, 1 if given.quick else 4)
    output = {"prompts": single, "all": full, "rows": rows, "each": each}
    print(json.dumps({name: round(value, 3) for name, value in output.items()}))


if __name__ == "__main__":
    main()
