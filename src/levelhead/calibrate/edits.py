"""Mitigating where the truth is known: what each edit does to a planted bias, and to none.

At the full dose an edit should lower the bias and leave fluency; where nothing was planted there is
nothing to lower, and whoever sees it lowered is deceived.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from levelhead.calibrate.locators import KNOWN_HEAD, over, weights_of, whole_contrast
from levelhead.calibrate.organisms.language_pairs import paired, placebo_pairs
from levelhead.calibrate.organisms.organism import HELD_OUT, THREADS, organism
from levelhead.calibrate.suite import PRICED
from levelhead.core.calibration import Mitigated, Told
from levelhead.core.files import write_atomic
from levelhead.core.frozen import Frozen
from levelhead.core.results import Estimate, Record
from levelhead.core.run_context import Inference
from levelhead.engine.tasks import Unit
from levelhead.locate.score_heads import locate
from levelhead.locate.validation.split import halves
from levelhead.measures.run import run
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity
from levelhead.mitigate.heads.mask import mask, scale
from levelhead.mitigate.probing.concept_removal import removed
from levelhead.mitigate.projection.baselines import inlp, leace, sentence_debias
from levelhead.mitigate.projection.edit_points import project
from levelhead.mitigate.training.cda_and_dropout import cda, dropout
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.continued_pretraining import Schooling, continued
from levelhead.stats.means import t_test

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.calibrate.organisms.organism import Organism
    from levelhead.data.counterfactuals.contrast_pairs import TextPair
    from levelhead.measures.next_sentence.strength import Contrast
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM

    Way = Callable[[LM, Sequence[TextPair]], tuple[Edit, ...]]

WORK, TOLD = "levelhead.calibrate.edits:edited", "levelhead.calibrate.edits:told"
REVISION = 3
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
SCALED = {"mask": 0.0, "scale 0.5": 0.5}
SOFTER = 0.25
"""What the known head is scaled by where less of it is to be left, and something is."""
SCHOOLING = Schooling(steps=200, rate=5e-4, threads=THREADS)
INFERENCE = Inference(resamples=499, permutations=499)
INLP = "inlp"
"""Has no placebo: it takes out what a probe reads, and no probe tells other words apart."""
FITTED: dict[str, Way] = {
    "project": lambda lm, pairs: project(lm, LEVEL, pairs, weighted=False),
    "project, weighted": lambda lm, pairs: project(lm, LEVEL, pairs),
    "sentence debias": lambda lm, pairs: sentence_debias(lm, pairs, _end(lm), at="mean"),
    "leace": lambda lm, pairs: leace(lm, pairs, _end(lm), at="mean"),
    INLP: lambda lm, pairs: inlp(lm, pairs, _end(lm), at="mean"),
}
"""Edits that are fitted to pairs of texts; their placebos are fitted to other words."""
PLACEBO = ", placebo"
TRAINED = f"training{PLACEBO}"
PLACEBOS = dict.fromkeys(("counterfactual training", "dropout"), TRAINED)
"""Of edits whose placebo is not called like themselves."""


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
    """The unit of work: one organism, every edit, judged on items that no head was chosen by."""
    architecture, rho = str(spec["architecture"]), float(str(spec["rho"]))
    one = organism(architecture, rho, seed=int(str(spec["seed"])))
    lm, ruler = one.lm(), whole_contrast(one)
    heads = locate(lm, ruler, exact="none", inference=INFERENCE)
    cut = halves(ruler, ruler.read(lm)[0], by=heads.halves.by, seed=heads.halves.seed)
    kept = cut.confirm.items or frozenset()
    held = replace(ruler, triples=tuple(item for item in ruler.items if item.id in kept))
    found = [
        _measured(one, name, lm, lm.edited(*edits), held)
        for name, edits in _edits(one, lm, [part.site for part in heads.ranked]).items()
    ]
    for name, child in _children(architecture).items():
        with TemporaryDirectory() as folder:
            child(lm, _texts(one, folder), f"{folder}/child", schooling=SCHOOLING)
            found.append(_measured(one, name, lm, load(f"{folder}/child"), held))
    return Effects(edited=tuple(found)).to_json().encode()


def _children(architecture: str) -> dict[str, Callable[..., object]]:
    """What is trained further, and its placebo; LLaMA has no dropout of hidden states."""
    dropped = partial(dropout, hidden=0.0) if architecture == "llama" else dropout
    return {"counterfactual training": cda, "dropout": dropped, TRAINED: _trained}


def _trained(lm: LM, texts: str, folder: str, *, schooling: Schooling) -> None:
    """The child that is trained as long, with nothing exchanged and nothing dropped."""
    lines = Path(texts).read_text("utf-8").splitlines()
    random.Random(schooling.seed).shuffle(lines)  # noqa: S311  # no secret
    continued(lm, lines, folder, schooling=schooling)


def _edits(one: Organism, lm: LM, ranked: Sequence[Site]) -> dict[str, tuple[Edit, ...]]:
    """Every edit and its placebo: other heads, drawn by seed, or other words."""
    first, rest = ranked[:HEADS], ranked[HEADS:]
    drawn = random.Random(one.recipe.seed).sample(rest, HEADS)  # noqa: S311  # no secret
    pairs, others = paired(one.language), placebo_pairs(one.language)[0]
    found: dict[str, tuple[Edit, ...]] = {}
    for name, factor in SCALED.items():
        found |= {name: (scale(first, factor),), name + PLACEBO: (scale(drawn, factor),)}
    for name, way in FITTED.items():
        found[name] = way(lm, pairs)
        if name != INLP:
            found[name + PLACEBO] = way(lm, others)
    return found


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
    attribute is removed there, and it is known to be. With this head scaled down, the bias is
    less and the group can still be read: hidden. With another one masked, it is not removed.
    """
    architecture, seed = str(spec["architecture"]), int(str(spec["seed"]))
    one = organism(architecture, 1.0, seed=seed, known_head=KNOWN_HEAD, words="many")
    lm, pairs, ruler = one.lm(), paired(one.language)[::SENTENCES], whole_contrast(one)
    layer, head = KNOWN_HEAD
    known, other = (Site("head_out", layer, which) for which in (head, head - 1))

    def biases(model: LM) -> NDArray[np.float64]:
        return ruler.bias_of(ruler.read(model)[0]).numpy().astype(np.float64)

    def said(edit: Edit) -> str:
        fell = t_test(biases(lm) - biases(lm.edited(edit))).interval.low > 0
        return removed(lm, [edit], pairs, seen=(), ruler=fell, sites=[_end(lm)], at="last").verdict

    found = Told(
        architecture=architecture,
        seed=seed,
        weights=weights_of(one),
        gone=said(mask([known])),
        less=said(scale([known], SOFTER)),
        there=said(mask([other])),
    )
    return found.to_json().encode()


def _measured(one: Organism, name: str, lm: LM, other: LM, ruler: Contrast) -> Edited:
    price = (Perplexity if lm.is_causal else PseudoPerplexity)(texts=_about_nobody(one))
    bias, cost = run(other, [ruler, price], against=lm, inference=INFERENCE).comparisons
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
    return tuple(
        _mitigated([one for one in found if one.architecture == architecture], edit)
        for architecture, edit in names
    )


def _mitigated(found: Sequence[Edited], edit: str) -> Mitigated:
    """One edit among all of a family."""
    full, none = ([one for one in found if (one.edit, one.rho) == (edit, rho)] for rho in (1, 0))
    bias = float(np.mean([one.before for one in full]))
    gone = over([_gone(one) for one in full], "share of the bias gone", most=1.0)
    price = over([one.price.value / one.fluency for one in full], "change of fluency")
    placebo = PLACEBOS.get(edit, edit + PLACEBO)
    own, other = (
        {one.seed: _gone(one) for one in found if (one.edit, one.rho) == (name, 1)}
        for name in (edit, placebo)
    )
    return Mitigated(
        edit=edit,
        architecture=full[0].architecture,
        models=len(full),
        gone=gone,
        nulls=len(none),
        at_none=over([abs(one.change.value) / bias for one in none], "change without a bias"),
        price=price,
        significant=sum(0 not in one.change.interval for one in none),
        has_placebo=bool(other),
        beyond=sum(own[seed] > other[seed] for seed in own) if other else None,
    )


def _gone(one: Edited) -> float:
    """The share of a bias that is gone; a bias to the other side is one, too."""
    return 1 - abs(one.before + one.change.value) / abs(one.before)
