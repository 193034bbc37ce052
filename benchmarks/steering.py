"""Share of a planted bias that steering and affine edits remove, against placebos of the same size.

    python benchmarks/steering.py [--quick] [--seeds N ...] [--null-seeds N ...] [--csv FILE]

Model organisms with a planted bias and without: causal ones by the likelihood of sentences, masked
ones by the words in a blank. Each method has a few settings; one is chosen on
sentences and reported on others, about the same targets, against placebos (mitigate/controls).
--quick: one model of each and 60 placebos. A line for each model and method, then JSON: for each
method the mean share of the bias that is gone over models with its interval, the number of models
in which it mitigates, and the same without a planted bias.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from levelhead.calibrate.edits import draw_neutral_sentences
from levelhead.calibrate.locators import make_full_contrast, mean_over_models
from levelhead.calibrate.organisms.language_pairs import make_planted_pairs
from levelhead.calibrate.organisms.organism import make_organism
from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.measures.run import run_measures
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity
from levelhead.mitigate.controls.placebo_report import (
    ChosenSetting,
    PlaceboConfig,
    evaluate_with_placebos,
)
from levelhead.mitigate.evaluation.sweep import read_variant_responses
from levelhead.mitigate.evaluation.variant_responses import best_variant
from levelhead.mitigate.projection.baselines import leace
from levelhead.mitigate.steering.fit import SteeringConfig, SteeringMethod, fit_steering
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.calibrate.organisms.organism import Organism
    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.measures.base import Measure
    from levelhead.mitigate.projection.subspace import ActivationPooling
    from levelhead.models.forward.edit_sweep import EditSet
    from levelhead.models.lm import LM

ARCHITECTURES = ("gpt2", "llama")
SEEDS, NULL_SEEDS = (0, 1, 2, 3, 4), (0,)
N_PLACEBOS, N_QUICK = 200, 60
# The p-values are those of placebos; resamples give intervals alone, and cost more than reading.
INFERENCE = Inference(resamples=99, permutations=99)
POOLINGS: tuple[ActivationPooling, ...] = ("mean", "word")
STRENGTHS: dict[SteeringMethod, tuple[float, ...]] = {
    "shift": (1.0, 2.0),
    "conditional": (1.0, 2.0),
    "mean_matching": (0.5, 1.0, 2.0),
}
METHODS = ("leace", "mean_matching", "conditional", "shift")


class Result(NamedTuple):
    """One method on one model."""

    architecture: str
    rho: float
    seed: int
    method: str
    chosen: str
    n_settings: int
    bias: float
    """Signed contrast of the model on the test items, in nats; of masked ones the cloze margin."""
    share: float
    """Share of its size that is gone."""
    low: float
    high: float
    placebo_share: float
    """The same of the placebos' 95% quantile."""
    p: float
    """Adjusted for the number of settings."""
    fluency_cost: float
    """Relative change of the (pseudo-)perplexity of text about nobody."""
    accuracy: float
    """Held-out accuracy of the first detector; NaN for LEACE."""
    outcome: str


def make_dev_and_test(
    organism: Organism, lm: LM, label_seed: int | None = None
) -> tuple[Measure, Measure]:
    """The same targets in two draws of the words around them."""
    measures = organism.planted_measures(label_seed=label_seed)
    if lm.is_causal:
        full = make_full_contrast(organism)
        return (
            replace(full, triples=measures.make_triples("dev ")),
            replace(full, triples=measures.make_triples()),
        )
    # Quick masked organisms show no planted bias by likelihoods, but in a blank.
    dev, test = measures.cloze(lm, "dev "), measures.cloze(lm)
    # Prompts without drawn words are in both.
    kept = [
        (first, second)
        for first, second in zip(dev.prompts, test.prompts, strict=True)
        if first != second
    ]
    return tuple(replace(test, prompts=prompts) for prompts in zip(*kept, strict=True))


def settings_of(
    lm: LM, pairs: Sequence[ContrastPair], site: Site, *, quick: bool = False
) -> dict[str, dict[str, tuple[EditSet, float, ActivationPooling]]]:
    """For each method the edits of its settings, the detector's accuracy and the tokens read."""
    result: dict[str, dict[str, tuple[EditSet, float, ActivationPooling]]] = {
        name: {} for name in METHODS
    }
    # Quick: so few settings that 60 placebos can give a p of 0.05, corrected for the choice.
    for pooling in POOLINGS[:1] if quick else POOLINGS:
        result["leace"][pooling] = (leace(lm, pairs, site, pooling=pooling), float("nan"), pooling)
        fit = fit_steering(lm, pairs, [site], config=SteeringConfig(pooling=pooling))[site]
        accuracy = fit.accuracies[0].accuracy.value
        for method, strengths in STRENGTHS.items():
            for group in (None,) if method == "mean_matching" else fit.groups:
                for strength in strengths[-1:] if quick else strengths:
                    edit = fit.to_edit(method, group=group, strength=strength)
                    name = f"{pooling}, {group or 'both'}, {strength:g}"
                    result[method][name] = ((edit,), accuracy, pooling)
    return result


def run_model(
    organism: Organism,
    n_placebos: int = N_PLACEBOS,
    *,
    methods: Sequence[str] = METHODS,
    label_seed: int | None = None,
) -> Iterator[Result]:
    """Choose a setting of each method on dev, and test it once.

    Args:
        organism: The model.
        n_placebos: Number of placebos.
        methods: Some of the methods.
        label_seed: Seed of a permutation of the labels, a null for a model with a bias.
    """
    lm = organism.load_lm().with_batch_size(256)
    # The same targets in sentences whose other words are sampled again: as many items as on test.
    dev, test = make_dev_and_test(organism, lm, label_seed)
    fluency = (Perplexity if lm.is_causal else PseudoPerplexity)(
        texts=draw_neutral_sentences(organism)
    )
    pairs, config = make_planted_pairs(organism.language), organism.train_config
    # The layer before the last: heads of the last layer read what the edit leaves.
    site = Site("block_out", lm.layout.layers - 2)
    for method, settings in settings_of(lm, pairs, site, quick=n_placebos < 160).items():
        if method not in methods:
            continue
        edits = {name: setting[0] for name, setting in settings.items()}
        name = best_variant(read_variant_responses(lm, dev, edits))
        first = (config.architecture, organism.language.rho, config.seed, method)
        if name is None:
            yield Result(
                *first, "none gains", len(edits), *(float("nan"),) * 8, "none gains on dev"
            )
            continue
        chosen, accuracy, pooling = settings[name]
        try:
            report = evaluate_with_placebos(
                lm,
                test,
                ChosenSetting(name, chosen, len(edits)),
                pairs,
                placebos=PlaceboConfig(n_placebos, n_placebos, pooling=pooling),
                inference=INFERENCE,
            )
        except NotMeasurableError as error:
            nothing = (float("nan"),) * 7
            yield Result(*first, name, len(edits), *nothing, accuracy, error.problem)
            continue
        result = report.placebo_test
        assert result.base is not None
        size = abs(result.base.value)
        (cost,) = run_measures(
            lm.edited(*chosen), [fluency], against=lm, inference=INFERENCE
        ).comparisons
        p = result.p
        yield Result(
            *first,
            name,
            len(edits),
            result.base.value,
            result.gain.value / size,
            result.gain.interval.low / size,
            result.gain.interval.high / size,
            result.quantile / size,
            p.value if p.adjusted is None else p.adjusted,
            cost.difference.value / cost.first.value,
            accuracy,
            report.outcome,
        )


def summarise(results: Sequence[Result]) -> dict[str, dict[str, object]]:
    """For each method: share gone over models with a bias, and what happens without one."""
    summary: dict[str, dict[str, object]] = {}
    for method in dict.fromkeys(result.method for result in results):
        biased, null = (
            [result for result in results if result.method == method and bool(result.rho) == is_on]
            for is_on in (True, False)
        )
        # A model in which no setting gains on dev keeps its bias: it counts, as a share of 0.
        shares = [result.share if result.share == result.share else 0.0 for result in biased]
        costs = [r.fluency_cost for r in biased if r.fluency_cost == r.fluency_cost]
        share, cost = (
            mean_over_models(values, name)
            for values, name in ((shares, "share gone"), (costs, "fluency"))
        )
        summary[method] = {
            "models": len(biased),
            "share": None
            if share is None
            else [share.value, share.interval.low, share.interval.high],
            "mitigates": sum(result.outcome == "mitigates" for result in biased),
            "fluency_cost": None
            if cost is None
            else [cost.value, cost.interval.low, cost.interval.high],
            "null_models": len(null),
            "null_mitigates": sum(result.outcome == "mitigates" for result in null),
            "null_untestable": sum(result.outcome.startswith("untestable") for result in null),
        }
    return summary


def main() -> None:
    """Run, print a line for each model and method, and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--null-seeds", type=int, nargs="*", default=NULL_SEEDS)
    parser.add_argument("--placebos", type=int, default=N_PLACEBOS)
    parser.add_argument("--architectures", nargs="*", default=ARCHITECTURES)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    seeds, null_seeds, n_placebos, names = (
        ((0,), (0,), N_QUICK, ARCHITECTURES[:1])
        if given.quick
        else (given.seeds, given.null_seeds, given.placebos, given.architectures)
    )
    results: list[Result] = []
    for seed in sorted({*seeds, *null_seeds}):
        for name in names:
            for rho in (1.0,) * (seed in seeds) + (0.0,) * (seed in null_seeds):
                start = time.process_time()
                organism = make_organism(name, rho, seed=seed, quick=True)
                for result in run_model(organism, n_placebos, methods=given.methods):
                    results.append(result)
                    print(*result, sep=" | ", flush=True)
                print(f"  {time.process_time() - start:.0f} s", flush=True)
                # After each model: an interrupted run keeps its rows.
                if given.csv is not None:
                    write(results, given.csv)
    print(json.dumps(summarise(results)))


def write(results: Sequence[Result], path: Path) -> None:
    """Write all rows, numbers with four digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Result._fields)
        for result in results:
            writer.writerow(
                f"{value:.4g}" if isinstance(value, float) else value for value in result
            )


if __name__ == "__main__":
    main()
