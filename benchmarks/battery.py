"""What the battery of Counteracts costs beside the bare forward, as ratios of CPU time in one run.

    python benchmarks/battery.py [--quick] [--model DIR]

prompts   words of one token: items to margins and likeliest tokens / the bare forwards of the
          distinct prompts: transformers' encoder, and its head at the blank
rows      all words of the lexicon / the bare forwards of all rows that they need (a word of several
          tokens has rows of its own)
each      rows a prompt with all words

One thread, 32 rows in a batch. The two sides take turns over pieces of the same prompts, so that
what else the machine does hits both alike. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from pathlib import Path

import torch
from forward import ASSETS

from levelhead.data.prompts import counteracts
from levelhead.measure.battery import Battery
from levelhead.measure.cloze import Cloze
from levelhead.models import blanks
from levelhead.models.batches import padded
from levelhead.models.load import load

SINGLE = (("woman", "girl", "lady", "she", "her"), ("man", "boy", "gentleman", "he", "him"))
PIECE = 256


def bare(lm, reading) -> None:
    """Encoder and head at the blank, in plain transformers."""
    model = lm.anatomy.model
    for indices, _ in lm.batching.over(reading.rows, lambda own: own):
        batch = padded(reading.rows, indices, pad=lm.tokens.pad, device=lm.device)
        hidden = model.bert(**batch.inputs).last_hidden_state
        at = torch.tensor([reading.readout.reads[i][0] for i in indices])
        model.cls.predictions(hidden[torch.arange(len(at)), at]).log_softmax(-1)


def ratio(lm, words, prompts, pieces: int) -> tuple[float, float]:
    """CPU time of the battery over that of the bare forwards; and rows a prompt."""
    ours = plain = 0.0
    rows = asked_prompts = 0
    for turn in range(pieces + 1):
        own = prompts[turn % max(1, len(prompts) // PIECE) * PIECE :][:PIECE]
        # Every occupation's base prompt is asked with it.
        bases = {one.occupation: one for one in prompts if one.kind == "base"}
        needed = {one.id: one for one in [*own, *(bases[one.occupation] for one in own)]}
        battery = Battery(Cloze(prompts=tuple(needed.values()), words=words))
        asked = battery.asked(lm)
        texts = [item.asks[0][0] for item in asked.items]
        reading = blanks.filling(lm, texts, list(asked.settings["words"]))
        marks = [time.process_time()]
        found = battery.read(lm, store=f"memory://{secrets.token_hex(8)}")
        _ = found.change, found.top(10)
        marks.append(time.process_time())
        bare(lm, reading)
        marks.append(time.process_time())
        if turn:  # the first is for warming up
            ours += marks[1] - marks[0]
            plain += marks[2] - marks[1]
            rows += len(reading.rows)
            asked_prompts += len(texts)
    return ours / plain, rows / asked_prompts


@torch.no_grad()
def main() -> None:
    """Print the ratios as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice, in a minute or so")
    parser.add_argument("--model", type=Path, default=ASSETS / "models/minibert-en")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lm = load(given.model, batch_size=32)
    prompts = list(counteracts())
    single, _ = ratio(lm, SINGLE, prompts, 1 if given.quick else 10)
    whole, each = ratio(lm, None, prompts, 1 if given.quick else 4)
    print(
        json.dumps({"prompts": round(single, 3), "rows": round(whole, 3), "each": round(each, 2)})
    )


if __name__ == "__main__":
    main()
