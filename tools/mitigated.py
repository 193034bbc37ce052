"""Projections where the truth is known: verdicts with and without a planted bias.

    python tools/mitigated.py FOLDER [--quick]

At rho 1 (groups and targets always agree) the projection must lower Strength and SEAT's difference
of means by more than placebos of it do. At rho 0 there is nothing to lower: labels are permuted,
each permutation as valid as the original, and those in which the same projection is called
mitigation are counted. FOLDER keeps the results, so that a run continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from levelhead.calibrate.organisms.language_pairs import (
    make_planted_pairs,
    make_planted_placebo_pairs,
)
from levelhead.calibrate.organisms.organism import make_organism
from levelhead.core.files import write_atomic
from levelhead.core.run_context import Inference, RunContext
from levelhead.mitigate.controls.placebo_edits import make_placebos, measure_variance_match
from levelhead.mitigate.controls.placebo_report import (
    contrast_differences,
    read_measure_activations,
)
from levelhead.mitigate.controls.placebo_test import PlaceboResponses, run_placebo_test
from levelhead.mitigate.evaluation.sweep import read_variant_responses
from levelhead.mitigate.projection.edit_points import project
from levelhead.stats.intervals import proportion_interval

SETTING = "penultimate 0,0,0,0,0"
"""Hard and of one dimension, at every level from the penultimate layer on."""
PLANTED = range(5)
NULL = range(4)
LABEL_PERMUTATIONS = 50
INFERENCE = Inference(resamples=199, permutations=199)


def prepared(rho: float, seed: int, store: str):
    """A model, its projection and 200 placebos of it."""
    organism = make_organism("bert", rho, seed=seed)
    lm, pairs = organism.load_lm(), make_planted_pairs(organism.language)
    edits = project(lm, SETTING, pairs)
    sites = [edit.site for edit in edits]
    measures = organism.planted_measures()
    held = read_measure_activations(lm, measures.strength, sites, 0)
    pools = contrast_differences(
        lm, pairs, sites, other_contrasts=make_planted_placebo_pairs(organism.language)
    )
    others = make_placebos(edits, pools, held, n_placebos=200)
    sets = {"edit": edits} | {str(i): other for i, other in enumerate(others)}
    return organism, lm, sets, measure_variance_match(edits, others, held)


def of(lm, measure, sets, store: str, aspect: str | None = None) -> dict:
    """What one measure says of the edit and its placebos."""
    result = read_variant_responses(lm, measure, sets, context=RunContext(store=store))
    edited, *rest = result.variants.values()
    placebo_test = run_placebo_test(
        measure, PlaceboResponses(result.base, edited, rest), inference=INFERENCE, metric=aspect
    )
    return {
        "gain": placebo_test.gain.value,
        "interval": [placebo_test.gain.interval.low, placebo_test.gain.interval.high],
        "quantile": placebo_test.quantile,
        "p": placebo_test.p.value,
        "mitigates": placebo_test.mitigates,
        "significant placebos": placebo_test.significant_share.value,
    }


def planted(seed: int, store: str) -> dict:
    """What is found where there is something."""
    single, lm, sets, match = prepared(1.0, seed, store)
    measures = single.planted_measures()
    seat = replace(measures, contexts_per_word=5).seat
    return {
        "strength": of(lm, replace(measures.strength, top=1.0), sets, store),
        "seat": of(lm, seat, sets, store, "difference of means"),
        "effective placebos": match.effective_placebos,
    }


def null(seed: int, store: str, permutations: int) -> dict:
    """How often something is found where there is nothing."""
    single, lm, sets, match = prepared(0.0, seed, store)
    calls = []
    for labels in range(permutations):
        measure = replace(single.planted_measures(label_seed=labels).strength, top=1.0)
        calls.append(of(lm, measure, sets, store)["mitigates"])
    return {
        "permutations": permutations,
        "called": sum(calls),
        "effective placebos": match.effective_placebos,
    }


def main() -> None:
    """Compute what is missing, and print it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true", help="One model of each, ten permutations.")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    store = str(given.folder / "store")
    permutations = 10 if given.quick else LABEL_PERMUTATIONS
    result: dict[str, list[dict]] = {"planted": [], "null": []}
    for kind, seeds in (("planted", PLANTED), ("null", NULL)):
        for seed in list(seeds)[:1] if given.quick else seeds:
            path = given.folder / f"{kind}-{seed}.json"
            if not path.exists():
                output = (
                    planted(seed, store) if kind == "planted" else null(seed, store, permutations)
                )
                write_atomic(str(path), json.dumps(output).encode())
            result[kind].append(json.loads(path.read_bytes()))
            print(path.name, json.dumps(result[kind][-1]), flush=True)
    called = sum(item["called"] for item in result["null"])
    total = sum(item["permutations"] for item in result["null"])
    interval = proportion_interval(called, total)
    for measure in ("strength", "seat"):
        hits = sum(item[measure]["mitigates"] for item in result["planted"])
        print(f"rho 1, {measure}: called mitigation in {hits} of {len(result['planted'])} models")
    ends = f"[{interval.low:.1%}, {interval.high:.1%}]"
    print(f"rho 0: called in {called} of {total} permutations {ends}")


if __name__ == "__main__":
    main()
