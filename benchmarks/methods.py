"""The table of methods on models with a planted bias and without.

    python benchmarks/methods.py [--seeds N ...] [--rho N ...] [--placebos N] [--csv FILE]

Every method that edits a model, chosen on one half of the targets and tested on the other, against
placebos of its kind, with the perplexity of sentences about nobody and the knowledge of the planted
language. The dictionary holds the planted direction among random ones. A line for each model and
method; rho is 0 without a bias.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.calibrate.edits import draw_neutral_sentences
from levelhead.calibrate.locators import make_full_contrast
from levelhead.calibrate.organisms.language_pairs import (
    make_planted_pairs,
    make_planted_placebo_pairs,
)
from levelhead.calibrate.organisms.organism import make_organism
from levelhead.core.run_context import Inference
from levelhead.measures.utility.perplexity import Perplexity
from levelhead.mitigate.selection.compare_methods import MethodComparison, compare_methods
from levelhead.mitigate.steering.fit import SteeringConfig, fit_steering
from levelhead.models.sites import Site
from levelhead.models.training.dictionary import read_token_activations

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "work"))
from dictionaries import planted_dictionary  # of the tests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.calibrate.organisms.organism import Organism

INFERENCE = Inference(resamples=199, permutations=199)


def run_model(organism: Organism, n_placebos: int) -> Iterator[dict[str, object]]:
    """Compare the methods on one model."""
    lm, pairs = organism.load_lm().with_batch_size(256), make_planted_pairs(organism.language)
    site = Site("block_out", lm.layout.layers - 2)
    fit = fit_steering(lm, pairs, [site], config=SteeringConfig(pooling="mean"))[site]
    texts = [text for pair in pairs for text in (pair.first, pair.second)]
    dictionary, _ = planted_dictionary(
        fit.vector("first").float(), read_token_activations(lm, texts, site), site
    )
    measure = replace(
        make_full_contrast(organism), triples=organism.planted_measures().make_triples()
    )
    comparison = MethodComparison(
        measure,
        pairs,
        (Perplexity(texts=draw_neutral_sentences(organism)),),
        organism.planted_knowledge(),
        dictionary=dictionary,
        n_placebos=n_placebos,
        other_contrasts=make_planted_placebo_pairs(organism.language),
    )
    table = compare_methods(lm, comparison, inference=INFERENCE)
    config = organism.train_config
    for row in table.to_rows():
        yield {
            "architecture": config.architecture,
            "rho": organism.language.rho,
            "seed": config.seed,
            "base": table.base.value,
            **row,
        }


def main() -> None:
    """Run and print; after each model the file is written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=(0, 1, 2))
    parser.add_argument("--architectures", nargs="*", default=("gpt2",))
    parser.add_argument("--rho", type=float, nargs="*", default=(1.0, 0.0))
    parser.add_argument("--placebos", type=int, default=99)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    for seed in given.seeds:
        for name in given.architectures:
            for rho in given.rho:
                start = time.process_time()
                organism = make_organism(name, rho, seed=seed, quick=True)
                for row in run_model(organism, given.placebos):
                    rows.append(row)
                    print(*row.values(), sep=" | ", flush=True)
                print(f"  {time.process_time() - start:.0f} s", flush=True)
                if given.csv is not None:
                    write(rows, given.csv)


def write(rows: list[dict[str, object]], path: Path) -> None:
    """Write all rows, numbers with four digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {
                    name: f"{value:.4g}" if isinstance(value, float) else value
                    for name, value in row.items()
                }
            )


if __name__ == "__main__":
    main()
