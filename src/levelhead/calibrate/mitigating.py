"""Mitigating where the truth is known: what each edit does to a planted bias, and to none.

At the full dose an edit should lower the bias and leave fluency; where nothing was planted there is
nothing to lower, and whoever sees it lowered is deceived.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from levelhead.calibrate.contrasts import paired, placebo_pairs
from levelhead.calibrate.fitting import PRICED
from levelhead.calibrate.locating import KNOWN_HEAD, over, weights_of, whole_contrast
from levelhead.calibrate.organisms import HELD_OUT, SIDE_BY_SIDE, organism
from levelhead.core.calibration import Mitigated, Told
from levelhead.core.files import write_atomic
from levelhead.core.frozen import Frozen
from levelhead.core.results import Estimate, Record
from levelhead.engine.units import Unit
from levelhead.locate.find import locate
from levelhead.measure.aspects import Judge
from levelhead.measure.fluency import Perplexity, PseudoPerplexity
from levelhead.measure.run import run
from levelhead.mitigate.baselines import inlp, leace, sentence_debias
from levelhead.mitigate.children import cda, dropout
from levelhead.mitigate.heads import mask, scale
from levelhead.mitigate.levels import project
from levelhead.mitigate.removed import removed
from levelhead.models.continue_training import Schooling
from levelhead.models.load import load
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.calibrate.organisms import Organism
    from levelhead.data.paired import TextPair
    from levelhead.locate.headmap import HeadMap
    from levelhead.mitigate.children import Child
    from levelhead.models.edits import Edit
    from levelhead.models.lm import LM

    Way = Callable[[LM, Sequence[TextPair]], tuple[Edit, ...]]

WORK, TOLD = "levelhead.calibrate.mitigating:edited", "levelhead.calibrate.mitigating:told"
REVISION = 2
FAMILIES = ("bert", "llama")
TOLD_OF = ("bert", "gpt2")
SEEDS = range(3)
LEVEL = "penultimate"
ELSEWHERE = "elsewhere"
"""Sentences about nobody."""
SENTENCES = 4
"""Every so manyth sentence of a word is probed: words are what a bound depends on."""
HEADS = 3
"""Heads that are masked or scaled: those that add most."""
SCHOOLING = Schooling(steps=200, rate=5e-4)
JUDGE = Judge(draws=499, permutations=499)
LEAST, OTHER = "placebo: mask heads that add least", "placebo: project other words"
PLACEBOS = {"mask": LEAST, "project": OTHER}
CHILDREN: dict[str, Callable[..., Child]] = {"counterfactual training": cda, "dropout": dropout}


class Dosed(NamedTuple):
    """An organism that is edited in every way."""

    architecture: str
    rho: float
    seed: int

    @property
    def unit(self) -> Unit:
        """The work to be done for it."""
        spec = Frozen({"architecture": self.architecture, "rho": self.rho, "seed": self.seed})
        return Unit(WORK, spec, revision=REVISION)


def models(*, quick: bool = False) -> tuple[Dosed, ...]:
    """Every organism of the calibration; quick: one, with a bias."""
    if quick:
        return (Dosed(FAMILIES[0], 1.0, 0),)
    return tuple(
        Dosed(name, rho, seed) for name in FAMILIES for rho in (0.0, 1.0) for seed in SEEDS
    )


class Edited(Record):
    """What one edit did to one model."""

    architecture: str
    rho: float
    seed: int
    weights: str
    edit: str
    before: float
    """The contrast of the model as it was."""
    change: Estimate
    """Of the contrast: below 0, the bias is lowered."""
    price: Estimate
    """Change of (pseudo-)perplexity of text about nobody: above 0, it is predicted worse."""
    fluency: float
    """The (pseudo-)perplexity of the model as it was."""


class Effects(Record):
    """What every edit did to one model."""

    edited: tuple[Edited, ...]


def edited(spec: Mapping[str, object]) -> bytes:
    """The unit of work: one organism, every edit."""
    architecture, rho = str(spec["architecture"]), float(str(spec["rho"]))
    one = organism(architecture, rho, seed=int(str(spec["seed"])), threads=SIDE_BY_SIDE)
    lm, pairs = one.lm(), paired(one.language)
    heads = locate(lm, whole_contrast(one), exact="none", judge=JUDGE)
    ways = _ways(heads, placebo_pairs(one.language)[0])
    found = []
    for name, way in ways.items():
        found.append(_measured(one, name, lm, lm.edited(*way(lm, pairs))))
    for name, child in CHILDREN.items():
        with TemporaryDirectory() as folder:
            child(lm, _texts(one, folder), f"{folder}/child", schooling=SCHOOLING)
            found.append(_measured(one, name, lm, load(f"{folder}/child")))
    return Effects(edited=tuple(found)).to_json().encode()


def _ways(heads: HeadMap, others: Sequence[TextPair]) -> dict[str, Way]:
    """Every way to edit, and placebos of two of them."""
    first = [part.site for part in heads.ranked[:HEADS]]
    last = [part.site for part in heads.ranked[-HEADS:]]
    return {
        "mask": lambda lm, pairs: (mask(first),),
        "scale 0.5": lambda lm, pairs: (scale(first, 0.5),),
        LEAST: lambda lm, pairs: (mask(last),),
        "project": lambda lm, pairs: project(lm, LEVEL, pairs, weighted=False),
        "project, weighted": lambda lm, pairs: project(lm, LEVEL, pairs),
        OTHER: lambda lm, pairs: project(lm, LEVEL, others, weighted=False),
        "sentence debias": lambda lm, pairs: sentence_debias(lm, pairs, _end(lm), at="mean"),
        "leace": lambda lm, pairs: leace(lm, pairs, _end(lm), at="mean"),
        "inlp": lambda lm, pairs: inlp(lm, pairs, _end(lm), at="mean"),
    }


def _end(lm: LM) -> Site:
    return Site("block_out", lm.anatomy.layers - 1)


class Constructed(NamedTuple):
    """An organism in which it is known whether an attribute is removed."""

    architecture: str
    seed: int

    @property
    def unit(self) -> Unit:
        """The work to be done for it."""
        return Unit(TOLD, Frozen(self._asdict()), revision=REVISION)


def constructed(*, quick: bool = False) -> tuple[Constructed, ...]:
    """Every such organism of the calibration; quick: none."""
    return () if quick else tuple(Constructed(name, seed) for name in TOLD_OF for seed in SEEDS)


def told(spec: Mapping[str, object]) -> bytes:
    """The unit of work: an organism in which one head alone sees group words.

    With this head masked, nothing of a group word is left at the last token of a text: the
    attribute is removed there, and it is known to be. With another one masked, it is not.
    """
    architecture, seed = str(spec["architecture"]), int(str(spec["seed"]))
    one = organism(
        architecture, 1.0, seed=seed, known_head=KNOWN_HEAD, words="many", threads=SIDE_BY_SIDE
    )
    lm, pairs = one.lm(), paired(one.language)[::SENTENCES]
    layer, head = KNOWN_HEAD
    gone, there = (
        removed(
            lm,
            [mask([Site("head_out", layer, which)])],
            pairs,
            seen=(),
            sites=[_end(lm)],
            at="last",
        ).verdict
        for which in (head, head - 1)
    )
    found = Told(
        architecture=architecture, seed=seed, weights=weights_of(one), gone=gone, there=there
    )
    return found.to_json().encode()


def _measured(one: Organism, name: str, lm: LM, other: LM) -> Edited:
    price = (Perplexity if lm.is_causal else PseudoPerplexity)(texts=_about_nobody(one))
    bias, cost = run(other, [whole_contrast(one), price], against=lm, judge=JUDGE).comparisons
    return Edited(
        architecture=one.recipe.architecture,
        rho=one.language.rho,
        seed=one.recipe.seed,
        weights=weights_of(one),
        edit=name,
        before=bias.first.value,
        change=bias.difference,
        price=cost.difference,
        fluency=cost.first.value,
    )


def _about_nobody(one: Organism) -> tuple[str, ...]:
    """New sentences in which no bias can be of use."""
    found = one.language.documents(20 * PRICED, seed=one.recipe.seed + HELD_OUT)
    sentences = (own for document in found for own in document.sentences)
    return tuple(dict.fromkeys(own.text for own in sentences if own.kind == ELSEWHERE))[:PRICED]


def _texts(one: Organism, folder: str) -> str:
    """What the organism was trained on, as a file."""
    path = f"{folder}/texts.txt"
    lines = dict.fromkeys(text for document in one.texts for text in document)
    write_atomic(path, "\n".join(lines).encode())
    return path


def mitigations(found: Sequence[Edited]) -> tuple[Mitigated, ...]:
    """Every edit on every family."""
    names = dict.fromkeys((one.architecture, one.edit) for one in found)
    rows = []
    for architecture, edit in names:
        own = [one for one in found if (one.architecture, one.edit) == (architecture, edit)]
        full, none = ([one for one in own if one.rho == rho] for rho in (1.0, 0.0))
        bias = float(np.mean([one.before for one in full]))
        lowered = over([-one.change.value / one.before for one in full], "share of the bias gone")
        rows.append(
            Mitigated(
                edit=edit,
                architecture=architecture,
                models=len(full),
                lowered=lowered,
                at_none=over([one.change.value / bias for one in none], "change without a bias"),
                price=over([one.price.value / one.fluency for one in full], "change of fluency"),
                significant=sum(0 not in one.change.interval for one in none),
                verdict=_verdict(lowered, edit, architecture, found),
            )
        )
    return tuple(rows)


def _verdict(
    lowered: Estimate | None, edit: str, architecture: str, found: Sequence[Edited]
) -> str:
    """Whether an edit lowers a bias, and by more than its placebo does in every model."""
    if lowered is None:
        return "not judged: fewer than two models"
    if lowered.interval.low <= 0:
        return "not shown to lower it"
    placebo = PLACEBOS.get(edit)
    if placebo is None:
        return "lowers it"
    full = [one for one in found if one.architecture == architecture and one.rho == 1]
    own, other = (
        {one.seed: one.change.value for one in full if one.edit == name} for name in (edit, placebo)
    )
    more = all(own[seed] < other[seed] for seed in own)
    return "lowers it, more than its placebo" if more else "lowers it, no more than its placebo"
