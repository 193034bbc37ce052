"""Locating where the truth is known: does a locator name the head that carries the bias?

Two kinds of organisms. Known: one head alone sees group words, in the last layer; is it first by
gradient, by path and by ablation, and does the greedy search end with it? Ordinary, at the full
dose, four layers of four heads: does a locator on the find half rank the heads that ablation
confirms on the other half?
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped]

from levelhead.calibrate.organisms.organism import RECIPES, organism
from levelhead.core.calibration import LIKE, Family, Share
from levelhead.core.errors import NotMeasurable
from levelhead.core.files import file_hash
from levelhead.core.frozen import Frozen
from levelhead.core.results import Estimate, Interval, Record
from levelhead.core.run_context import Inference
from levelhead.engine.tasks import Unit
from levelhead.locate.head_map import label
from levelhead.locate.score_heads import locate
from levelhead.locate.validation.greedy import greedy
from levelhead.locate.validation.split import halves
from levelhead.mitigate.heads.mask import mask
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

REVISION = 2
KNOWN_HEAD = (1, 2)
"""(layer, head), counted from 0."""
KNOWN, ORDINARY, FEW = range(10), range(5), range(3)
"""Seeds: with a known head; ordinary, of the families that got every dose, and of the others."""
LAYERS = HEADS = 4
LOCATORS = ("gradient", "path", "ablation")
INFERENCE = Inference(resamples=499, permutations=499)


class Located(NamedTuple):
    """An organism in which heads are looked for."""

    kind: str
    """known or ordinary."""
    architecture: str
    seed: int

    @property
    def unit(self) -> Unit:
        """The work to be done for it."""
        spec = Frozen({"architecture": self.architecture, "seed": self.seed})
        return Unit(f"levelhead.calibrate.locators:{self.kind}", spec, revision=REVISION)


def models(*, quick: bool = False) -> tuple[Located, ...]:
    """Every organism of the calibration; quick: one."""
    if quick:
        return (Located("known", "gpt2", 0),)
    known = [Located("known", name, seed) for name in RECIPES for seed in KNOWN]
    ordinary = [
        Located("ordinary", name, seed)
        for name in RECIPES
        for seed in (ORDINARY if name in LIKE.values() else FEW)
    ]
    return (*known, *ordinary)


class Known(Record):
    """Where the one head that sees group words comes."""

    architecture: str
    seed: int
    weights: str
    value: float
    """Of the contrast."""
    without: float
    """The same with the head masked."""
    ranks: dict[str, int]
    """Its place by gradient, path and ablation; 1 is first."""
    confirmed: tuple[str, ...]
    """Heads whose effect is confirmed on the other half."""
    greedy: tuple[str, ...]
    """Heads that the greedy search takes, one after the other."""


class Ordinary(Record):
    """Whether locators rank what ablation confirms."""

    architecture: str
    seed: int
    weights: str
    value: float
    positive: int
    """Heads whose ablation lowers the bias on the confirm half (Holm)."""
    heads: int
    auroc: dict[str, float | None]
    """Of gradient and path; None where no head, or every head, is positive, and where a path's
    contributions do not add up."""
    agreement: float | None
    """Spearman's correlation of gradient and ablation."""


def known(spec: Mapping[str, object]) -> bytes:
    """The unit of work: an organism with a known head."""
    architecture, seed = str(spec["architecture"]), int(str(spec["seed"]))
    one = organism(architecture, 1.0, seed=seed, known_head=KNOWN_HEAD)
    lm, ruler, site = one.lm(), whole_contrast(one), Site("head_out", *KNOWN_HEAD)
    by = {
        "gradient": locate(lm, ruler, exact="none", inference=INFERENCE),
        "path": locate(lm, ruler, by="path", exact="none", inference=INFERENCE),
        "ablation": locate(lm, ruler, by="ablation", inference=INFERENCE),
    }
    heads = by["gradient"]
    readouts = ruler.read(lm)[0]
    cut = halves(ruler, readouts, by=heads.halves.by, seed=heads.halves.seed)
    order = [part.site for part in heads.ranked]
    sign = heads.direction.sign or 1
    chosen = greedy(lm, ruler, cut.find.of(readouts), order, k=4, sign=sign, inference=INFERENCE)
    masked = lm.edited(mask([site]))
    return (
        Known(
            architecture=architecture,
            seed=seed,
            weights=weights_of(one),
            value=float(ruler.reduce(readouts)),
            without=float(ruler.reduce(ruler.read(masked)[0])),
            ranks={
                name: [part.site for part in own.ranked].index(site) + 1 for name, own in by.items()
            },
            confirmed=tuple(label(part) for part in by["ablation"].confirmed()),
            greedy=tuple(step.head for step in chosen.steps),
        )
        .to_json()
        .encode()
    )


def ordinary(spec: Mapping[str, object]) -> bytes:
    """The unit of work: an organism like any other."""
    architecture, seed = str(spec["architecture"]), int(str(spec["seed"]))
    plain = organism(architecture, 1.0, seed=seed)
    one = replace(plain, recipe=replace(plain.recipe, layers=LAYERS, heads=HEADS))
    lm, ruler = one.lm(), whole_contrast(one)
    found = locate(lm, ruler, exact="all", inference=INFERENCE)
    p = holm([1.0 if head.p is None else head.p.value for head in found.heads])
    positive = [
        bool(own <= 0.05) and (head.effect or 0) > 0
        for own, head in zip(p, found.heads, strict=True)
    ]
    by = {"gradient": found, "path": _by_path(lm, ruler)}
    return (
        Ordinary(
            architecture=architecture,
            seed=seed,
            weights=weights_of(one),
            value=found.measurement.value,
            positive=sum(positive),
            heads=len(positive),
            auroc={
                name: None if own is None else _auroc(own, found, positive)
                for name, own in by.items()
            },
            agreement=None if found.agreement is None else found.agreement.value,
        )
        .to_json()
        .encode()
    )


def _by_path(lm: LM, ruler: Contrast) -> HeadMap | None:
    """The map, unless no number of nodes makes its contributions add up."""
    try:
        return locate(lm, ruler, by="path", exact="none", inference=INFERENCE)
    except NotMeasurable:
        return None


def families(known: Sequence[Known], ordinary: Sequence[Ordinary]) -> tuple[Family, ...]:
    """Every family that was looked at."""
    names = dict.fromkeys(
        [one.architecture for one in known] + [one.architecture for one in ordinary]
    )
    found = []
    for name in names:
        own = [one for one in known if one.architecture == name]
        plain = [one for one in ordinary if one.architecture == name]
        planted = label(Site("head_out", *KNOWN_HEAD))
        first = {by: _share([one.ranks[by] == 1 for one in own]) for by in LOCATORS}
        found.append(
            Family(
                architecture=name,
                known=len(own),
                learned=sum(bool(one.confirmed) for one in own),
                without=max(abs(one.without) for one in own),
                first=first,
                alone=_share([one.greedy == (planted,) for one in own]),
                ordinary=len(plain),
                positive=(
                    min((one.positive for one in plain), default=0),
                    max((one.positive for one in plain), default=0),
                ),
                auroc={
                    by: over([one.auroc[by] for one in plain], f"AUROC by {by}", most=1.0)
                    for by in LOCATORS[:2]
                },
                agreement=over([one.agreement for one in plain], "gradient and ablation", most=1.0),
            )
        )
    return tuple(found)


def _share(hits: Sequence[bool]) -> Share:
    return Share(hits=sum(hits), of=len(hits), interval=proportion_interval(sum(hits), len(hits)))


def over(values: Sequence[float | None], name: str, *, most: float = math.inf) -> Estimate | None:
    """The mean over models, with the interval of t; models that are all alike have no spread.

    Args:
        values: a model each; None where there is none.
        name: what it is.
        most: the largest that it can be.
    """
    found = [value for value in values if value is not None]
    if len(found) < 2:
        return None
    if len(set(found)) == 1:
        alike = Interval(low=found[0], high=found[0], level=0.95, method="all models alike")
        return Estimate(name=name, value=found[0], interval=alike, n=len(found))
    test = t_test(found)
    bounded = test.interval.model_copy(update={"high": min(most, test.interval.high)})
    return Estimate(name=name, value=test.mean, interval=bounded, n=len(found))


def whole_contrast(one: Organism) -> Contrast:
    """The contrast of all items: a top tenth of 52 would be five."""
    return replace(one.rulers().contrast, top=1.0)


def weights_of(one: Organism) -> str:
    """SHA-256 of what was grown."""
    return file_hash(one.grown() / "model.safetensors")


def _auroc(by: HeadMap, of: HeadMap, positive: Sequence[bool]) -> float | None:
    """How well scores rank the heads that ablation confirms."""
    if not 0 < sum(positive) < len(positive):
        return None
    score = {head.site: head.score for head in by.heads}
    return float(roc_auc_score(positive, [score[head.site] for head in of.heads]))
