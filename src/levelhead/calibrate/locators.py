"""Calibrate locators on models of known bias: does a locator find the head that carries it?

Two kinds of organisms. Known: one head alone sees group words, in the last layer; is it first by
gradient, by path and by ablation, and does the greedy search select it alone? Ordinary, at the full
dose, four layers of four heads: does a locator on the discovery half rank the heads that ablation
confirms on the other half?
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sklearn.metrics import roc_auc_score

from levelhead.calibrate.organisms.organism import TRAIN_CONFIGS, make_organism
from levelhead.core.calibration import REFERENCE_ARCHITECTURE, LocatorCalibration, Proportion
from levelhead.core.errors import NotMeasurableError
from levelhead.core.files import file_hash
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Estimate, Interval, Record
from levelhead.core.run_context import Inference
from levelhead.engine.tasks import Task
from levelhead.locate.head_map import head_label
from levelhead.locate.score_heads import locate
from levelhead.locate.validation.greedy import select_heads_greedily
from levelhead.locate.validation.split import split_items
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.models.sites import Site
from levelhead.stats.intervals import proportion_interval
from levelhead.stats.means import t_test
from levelhead.stats.multiple_testing import holm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.calibrate.organisms.organism import Organism
    from levelhead.locate.head_map import HeadMap
    from levelhead.measures.next_sentence.strength import Contrast
    from levelhead.models.lm import LM

# Part of the keys of stored results: a new number computes all models again.
REVISION = 2
# In the last layer: no later head can pass on what this one read.
VISIBLE_HEAD = (1, 2)
"""(layer, head) of the head that sees group words, counted from 0."""
KNOWN_HEAD_SEEDS, ORDINARY_SEEDS, FEW_SEEDS = range(10), range(5), range(3)
"""Seeds of models with a known head; of ordinary ones of the families with every dose; of others.
"""
# 16 heads: enough for an AUROC of ranks, few enough to ablate every one.
LAYERS = HEADS = 4
LOCATORS = ("gradient", "path", "ablation")
INFERENCE = Inference(resamples=499, permutations=499)


class LocatorModel(NamedTuple):
    """An organism whose heads are located."""

    kind: str
    """"known" or "ordinary"."""
    architecture: str
    seed: int

    @property
    def task(self) -> Task:
        """The work to be done for it."""
        spec = FrozenDict({"architecture": self.architecture, "seed": self.seed})
        return Task(f"levelhead.calibrate.locators:run_{self.kind}", spec, revision=REVISION)


def list_locator_models(*, quick: bool = False) -> tuple[LocatorModel, ...]:
    """List the organisms whose heads are located.

    Args:
        quick: only one.
    """
    if quick:
        return (LocatorModel("known", "gpt2", 0),)
    known_head_models = [
        LocatorModel("known", name, seed) for name in TRAIN_CONFIGS for seed in KNOWN_HEAD_SEEDS
    ]
    ordinary_models = [
        LocatorModel("ordinary", name, seed)
        for name in TRAIN_CONFIGS
        for seed in (ORDINARY_SEEDS if name in REFERENCE_ARCHITECTURE.values() else FEW_SEEDS)
    ]
    return (*known_head_models, *ordinary_models)


class KnownHeadResult(Record):
    """Ranks of the one head that sees group words."""

    architecture: str
    seed: int
    weights: str
    value: float
    """Contrast of the model."""
    value_without_head: float
    """Contrast with the head masked."""
    ranks: dict[str, int]
    """Rank by gradient, path and ablation; 1 is first."""
    confirmed: tuple[str, ...]
    """Heads whose effect is confirmed on the other half."""
    greedy_heads: tuple[str, ...]
    """Heads that the greedy search selects, in order."""


class OrdinaryResult(Record):
    """How well locators rank the heads that ablation confirms."""

    architecture: str
    seed: int
    weights: str
    value: float
    n_positive: int
    """Number of heads whose ablation lowers the bias on the confirmation half (Holm)."""
    n_heads: int
    auroc: dict[str, float | None]
    """AUROC of gradient and path; None where no head, or every head, is positive, and where the
    contributions along a path do not add up."""
    agreement: float | None
    """Spearman's correlation of gradient and ablation."""


def run_known(spec: Mapping[str, object]) -> bytes:
    """Locate the heads of an organism with a known head (a unit of work).

    Args:
        spec: architecture and seed.

    Returns:
        JSON of the `KnownHeadResult`.
    """
    architecture, seed = str(spec["architecture"]), int(str(spec["seed"]))
    organism_model = make_organism(architecture, 1.0, seed=seed, visible_head=VISIBLE_HEAD)
    lm, measure, site = (
        organism_model.load_lm(),
        make_full_contrast(organism_model),
        Site("head_out", *VISIBLE_HEAD),
    )
    maps = {
        "gradient": locate(lm, measure, ablate_top="none", inference=INFERENCE),
        "path": locate(lm, measure, method="path", ablate_top="none", inference=INFERENCE),
        "ablation": locate(lm, measure, method="ablation", inference=INFERENCE),
    }
    gradient_map = maps["gradient"]
    responses = measure.read(lm)[0]
    split = split_items(
        measure, responses, split_by=gradient_map.split.split_by, seed=gradient_map.split.seed
    )
    # The greedy search runs on the items that ranked the heads, as a user would run it.
    order = [component.site for component in gradient_map.ranked_heads]
    sign = gradient_map.bias_sign.sign or 1
    greedy_search = select_heads_greedily(
        lm,
        measure,
        split.discovery.select(responses),
        order,
        max_heads=4,
        sign=sign,
        inference=INFERENCE,
    )
    masked_lm = lm.edited(mask_heads([site]))
    return (
        KnownHeadResult(
            architecture=architecture,
            seed=seed,
            weights=compute_organism_weights_hash(organism_model),
            value=float(measure.reduce(responses)),
            value_without_head=float(measure.reduce(measure.read(masked_lm)[0])),
            ranks={
                name: [component.site for component in head_map.ranked_heads].index(site) + 1
                for name, head_map in maps.items()
            },
            confirmed=tuple(
                head_label(component) for component in maps["ablation"].confirmed_heads()
            ),
            greedy_heads=tuple(step.head for step in greedy_search.steps),
        )
        .to_json()
        .encode()
    )


def run_ordinary(spec: Mapping[str, object]) -> bytes:
    """Locate the heads of an ordinary organism (a unit of work).

    Args:
        spec: architecture and seed.

    Returns:
        JSON of the `OrdinaryResult`.
    """
    architecture, seed = str(spec["architecture"]), int(str(spec["seed"]))
    standard = make_organism(architecture, 1.0, seed=seed)
    organism_model = replace(
        standard, train_config=replace(standard.train_config, layers=LAYERS, heads=HEADS)
    )
    lm, measure = organism_model.load_lm(), make_full_contrast(organism_model)
    head_map = locate(lm, measure, ablate_top="all", inference=INFERENCE)
    # The ground truth of the AUROC: heads whose ablation is significant among all 16 (Holm, .05).
    # A head without a test cannot count as confirmed.
    p = holm([1.0 if head.p is None else head.p.value for head in head_map.heads])
    positive = [
        bool(p_value <= 0.05) and (head.effect or 0) > 0
        for p_value, head in zip(p, head_map.heads, strict=True)
    ]
    maps = {"gradient": head_map, "path": _locate_by_path(lm, measure)}
    return (
        OrdinaryResult(
            architecture=architecture,
            seed=seed,
            weights=compute_organism_weights_hash(organism_model),
            value=head_map.measurement.value,
            n_positive=sum(positive),
            n_heads=len(positive),
            auroc={
                name: None if method_map is None else _auroc(method_map, head_map, positive)
                for name, method_map in maps.items()
            },
            agreement=None if head_map.agreement is None else head_map.agreement.value,
        )
        .to_json()
        .encode()
    )


def _locate_by_path(lm: LM, measure: Contrast) -> HeadMap | None:
    """Locate by path; None if the contributions add up with no number of nodes."""
    try:
        return locate(lm, measure, method="path", ablate_top="none", inference=INFERENCE)
    except NotMeasurableError:
        return None


def compute_locator_calibrations(
    known_head_results: Sequence[KnownHeadResult], ordinary_results: Sequence[OrdinaryResult]
) -> tuple[LocatorCalibration, ...]:
    """Summarise the locators on every family.

    Args:
        known_head_results: results of models with a known head.
        ordinary_results: results of ordinary models.
    """
    names = dict.fromkeys(
        [result.architecture for result in known_head_results]
        + [result.architecture for result in ordinary_results]
    )
    calibrations = []
    for name in names:
        known_of_family = [result for result in known_head_results if result.architecture == name]
        ordinary_of_family = [result for result in ordinary_results if result.architecture == name]
        planted_head = head_label(Site("head_out", *VISIBLE_HEAD))
        first = {
            method: _share([result.ranks[method] == 1 for result in known_of_family])
            for method in LOCATORS
        }
        calibrations.append(
            LocatorCalibration(
                architecture=name,
                known=len(known_of_family),
                learned=sum(bool(result.confirmed) for result in known_of_family),
                without=max(abs(result.value_without_head) for result in known_of_family),
                first=first,
                alone=_share(
                    [result.greedy_heads == (planted_head,) for result in known_of_family]
                ),
                ordinary=len(ordinary_of_family),
                positive=(
                    min((result.n_positive for result in ordinary_of_family), default=0),
                    max((result.n_positive for result in ordinary_of_family), default=0),
                ),
                auroc={
                    method: mean_over_models(
                        [result.auroc[method] for result in ordinary_of_family],
                        f"AUROC by {method}",
                        maximum=1.0,
                    )
                    for method in LOCATORS[:2]
                },
                agreement=mean_over_models(
                    [result.agreement for result in ordinary_of_family],
                    "gradient and ablation",
                    maximum=1.0,
                ),
            )
        )
    return tuple(calibrations)


def _share(hits: Sequence[bool]) -> Proportion:
    return Proportion(
        hits=sum(hits), of=len(hits), interval=proportion_interval(sum(hits), len(hits))
    )


def mean_over_models(
    values: Sequence[float | None], name: str, *, maximum: float = math.inf
) -> Estimate | None:
    """Compute the mean over models with its t interval.

    Args:
        values: one value per model; None where there is none.
        name: name of the estimate.
        maximum: largest possible value; the interval ends there.

    Returns:
        The estimate, or None with fewer than two values.
    """
    present = [value for value in values if value is not None]
    if len(present) < 2:
        return None
    # Equal values have no variance and no t statistic: the method's name says why the interval
    # is a point.
    if len(set(present)) == 1:
        interval = Interval(low=present[0], high=present[0], level=0.95, method="all models alike")
        return Estimate(name=name, value=present[0], interval=interval, n=len(present))
    test = t_test(present)
    bounded = test.interval.model_copy(update={"high": min(maximum, test.interval.high)})
    return Estimate(name=name, value=test.mean, interval=bounded, n=len(present))


def make_full_contrast(organism_model: Organism) -> Contrast:
    """Create the contrast of all items: a top tenth of 52 would be five.

    Args:
        organism_model: the organism.
    """
    return replace(organism_model.planted_measures().contrast, top=1.0)


def compute_organism_weights_hash(organism_model: Organism) -> str:
    """Compute the SHA-256 of an organism's weights.

    Args:
        organism_model: the organism; it is trained if it is not in the cache.
    """
    return file_hash(organism_model.grow() / "model.safetensors")


def _auroc(scored_map: HeadMap, ablation_map: HeadMap, positive: Sequence[bool]) -> float | None:
    """Compute how well scores rank the heads that ablation confirms; None with one class only."""
    if not 0 < sum(positive) < len(positive):
        return None
    score_by_site = {head.site: head.score for head in scored_map.heads}
    return float(roc_auc_score(positive, [score_by_site[head.site] for head in ablation_map.heads]))
