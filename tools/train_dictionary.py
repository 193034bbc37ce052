"""Train a sparse dictionary of a model's activations, and print how well it describes others.

    python tools/train_dictionary.py MODEL FOLDER TEXTS... [--layer 3] [--features 1024] [--k 32]
        [--tokens 300000] [--steps 2500] [--batch-size 1024]

TEXTS hold a text per line, or in the last column of a .tsv. Every 20th line is not trained on.
A dictionary that is in FOLDER is only assessed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from levelhead.locate.patching.dictionary_loss import compute_recovered_loss
from levelhead.models.edits.dictionary_files import CONTENTS_FILE, load_dictionary, save_dictionary
from levelhead.models.edits.files import EditOrigin
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.dictionary import (
    DictionaryConfig,
    assess_dictionary,
    read_token_activations,
    train_dictionary,
)

HELD_OUT_ONE_IN = 20
N_LOSS_TEXTS = 20


def main() -> None:
    """Train, save and assess."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--k", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=300_000)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    given = parser.parse_args()
    start = time.process_time()
    lm = load(given.model).with_batch_size(64)
    lines = [
        line.rsplit("\t", 1)[-1].strip()
        for path in given.texts
        for line in path.read_text(encoding="utf-8").splitlines()
        if len(line) > 40
    ]
    held_out = lines[::HELD_OUT_ONE_IN]
    training = [line for number, line in enumerate(lines) if number % HELD_OUT_ONE_IN]
    # Texts of every file, whatever the limit.
    training = training[:: max(1, len(" ".join(training).split()) // given.tokens)]
    site = Site("block_out", given.layer)
    if Path(given.folder, CONTENTS_FILE).exists():
        dictionary = load_dictionary(given.folder)
    else:
        config = DictionaryConfig(
            given.features, given.k, given.steps, given.batch_size, given.learning_rate
        )
        dictionary = train_dictionary(
            read_token_activations(lm, training, site, limit=given.tokens), site, config=config
        )
        origin = EditOrigin.from_model(
            lm, tokens=given.tokens, steps=given.steps, texts=[path.name for path in given.texts]
        )
        save_dictionary(dictionary, given.folder, origin=origin)
    quality = assess_dictionary(
        dictionary, read_token_activations(lm, held_out, site, limit=given.tokens // 10)
    )
    short = [text for text in held_out if len(text.split()) < 30]
    loss = compute_recovered_loss(
        lm, dictionary, short[:: max(1, len(short) // N_LOSS_TEXTS)][:N_LOSS_TEXTS]
    )
    print(
        json.dumps(
            quality._asdict()
            | {"loss": loss._asdict(), "loss_recovered": loss.share}
            | {"cpu_seconds": round(time.process_time() - start)}
        )
    )


if __name__ == "__main__":
    main()
