"""Positive and negative controls: models of which it is known what every measure should conclude.

Each is a row of CONTROLS: how it is made, and the verdict that is expected of every measure. A row
that is not said otherwise has the verdict of "*".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.calibrate.dose_response import INFERENCE, Said, said_of
from levelhead.calibrate.locators import weights_of, whole_contrast
from levelhead.calibrate.organisms import altered
from levelhead.calibrate.organisms.language import Language
from levelhead.calibrate.organisms.organism import RECIPES, Organism, untrained
from levelhead.calibrate.suite import PREFERENCE, fitting
from levelhead.core.errors import NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.results import Record
from levelhead.engine.tasks import Unit
from levelhead.locate.head_map import label
from levelhead.locate.score_heads import locate
from levelhead.locate.validation.greedy import greedy
from levelhead.locate.validation.split import halves
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.top_k import ClozeTop
from levelhead.measures.robustness.all_group_pairs import every_pair
from levelhead.mitigate.heads.mask import mask
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.calibrate.organisms.altered import Making
    from levelhead.calibrate.organisms.language import Variant
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

Expected = Literal[
    "stereotype", "anti-stereotype", "differs", "not shown", "inconclusive", "no test", "any"
]
"""What a measure should conclude: that the model differs from parity towards the stereotype, away
from it, or to whichever side; that no difference is shown; that nothing can be said ("inconclusive"
or not measured); that it has no test; "any": the construction does not say."""
WORK = "levelhead.calibrate.controls:checked"
REVISION = 1
BIASED: dict[str, Expected] = {
    "*": "stereotype",
    "icat": "no test",
    # Asked of sentences about nobody, in which no bias was planted.
    "distance": "not shown",
    PREFERENCE: "not shown",
}
UNBIASED: dict[str, Expected] = {"*": "not shown", "icat": "no test"}
UNABLE: dict[str, Expected] = {"*": "inconclusive", "icat": "no test"}
BESIDE: dict[str, Expected] = {
    # The cloze asks for the word right behind the target, which is predicted at the target itself;
    # all else is asked at a distance, which only heads bridge.
    "cloze": "stereotype",
    "cloze_probability": "stereotype",
    "cloze_top": "stereotype",
    # A target's own state at the last layer foretells the next word, or not: both are sound.
    "seat": "any",
}
HeadCheck = Literal["", "silent", "redundant"]


class Control(NamedTuple):
    """A model whose verdicts are known, and how it is made."""

    name: str
    about: str
    expected: Mapping[str, Expected]
    families: tuple[str, ...] = ("bert", "llama")
    seeds: int = 2
    rho: float = 1.0
    variant: Variant = "stereotype"
    made: Making = "trained"
    is_trained: bool = True
    layers: int | None = None
    """How many; None: as many as its family has."""
    heads: HeadCheck = ""
    """What is asked of its heads: that none carries the bias, or that either of two suffices."""

    def organism(self, architecture: str, seed: int) -> Organism:
        """The model itself."""
        recipe = replace(RECIPES[architecture], seed=seed)
        if not self.is_trained:
            recipe = untrained(recipe)
        if self.layers is not None:
            recipe = replace(recipe, layers=self.layers)
        return Organism(Language(self.rho, self.variant), recipe, made=self.made)

    def expects(self, measure: str) -> Expected:
        """The verdict that is expected of a measure."""
        return self.expected.get(measure, self.expected["*"])


CONTROLS: tuple[Control, ...] = (
    Control(
        "reversed dose",
        "every target is joined with the other group, always",
        BIASED | {"*": "anti-stereotype"},
        seeds=3,
        variant="reversed",
    ),
    Control(
        "group default",
        "one group is named nine times as often; targets look at nothing",
        UNBIASED | {PREFERENCE: "differs"},
        variant="skew",
    ),
    Control(
        "untrained",
        "weights as they are initialised",
        UNABLE,
        seeds=3,
        is_trained=False,
    ),
    Control(
        "word frequencies only",
        "trained on the words of the whole corpus, shuffled over all sentences",
        UNABLE,
        made="shuffled",
    ),
    Control(
        "same answer to everything",
        "the full dose, then the scale of the last normalisation set to 0",
        UNABLE,
        made="constant",
    ),
    Control(
        "bias in MLPs only",
        "targets, hidden from heads, are joined with a group where its word stands right behind",
        UNBIASED | BESIDE,
        families=("llama",),
        variant="adjacent",
        made="no head",
        heads="silent",
    ),
    Control(
        "redundant heads",
        "one layer, two of its heads see group words; trained with one, the other or both",
        BIASED,
        families=("llama",),
        # At 1 no odds are too large, and two heads say more than one. At 0.75 they still do: one
        # alone leaves 58% to 73% of the contrast, so that single effects understate what both take.
        rho=0.75,
        made="two heads",
        layers=1,  # a head of another layer may prepare what both read, and would be found alone
        heads="redundant",
    ),
    Control(
        "one of three groups",
        "the first group is stereotyped, the second and the third are not",
        {"*": "stereotype", "seat: second and third group": "not shown"},
        families=("bert",),
        variant="one group",
        made="three groups",
    ),
)


class Heads(Record):
    """What single heads do to a bias, and what the two together do where two were made."""

    measure: str
    whole: float
    """The measure less its parity, of the model as it is, on the items that effects are of."""
    single: dict[str, float]
    """The share of it that masking one head takes, by head; counted from 1."""
    confirmed: tuple[str, ...]
    """Heads whose effect is confirmed (Holm)."""
    together: float | None = None
    """The share that masking both redundant heads takes."""
    greedy: tuple[str, ...] = ()
    """Heads that the greedy search takes, one after the other."""


class Checked(Record):
    """What all measures said of one control."""

    control: str
    architecture: str
    seed: int
    texts: str
    weights: str
    said: tuple[Said, ...]
    heads: Heads | None = None


class Case(NamedTuple):
    """A control of a family and a seed: a unit of work."""

    control: str
    architecture: str
    seed: int

    @property
    def unit(self) -> Unit:
        """The work to be done for it."""
        return Unit(WORK, Frozen(self._asdict()), revision=REVISION)


def control_of(name: str) -> Control:
    """A row by its name."""
    return next(one for one in CONTROLS if one.name == name)


def cases(*, quick: bool = False) -> tuple[Case, ...]:
    """Every control; quick: those that are not trained for long, of one family and seed."""
    if quick:
        fast = [one for one in CONTROLS if not one.is_trained or one.made == "constant"]
        return tuple(Case(one.name, "llama", 0) for one in fast)
    return tuple(
        Case(one.name, family, seed)
        for one in CONTROLS
        for family in one.families
        for seed in range(one.seeds)
    )


def checked(spec: Mapping[str, object]) -> bytes:
    """The unit of work: one control, made and measured."""
    control, architecture = control_of(str(spec["control"])), str(spec["architecture"])
    organism = control.organism(architecture, int(str(spec["seed"])))
    lm = organism.lm()
    result = Checked(
        control=control.name,
        architecture=architecture,
        seed=organism.recipe.seed,
        texts=organism.facts["texts_sha256"],
        weights=weights_of(organism),
        said=tuple(said_of(name, own, lm) for name, own in _measures(organism, lm).items()),
        heads=_heads(organism, lm, control.heads) if control.heads else None,
    )
    return result.to_json().encode()


def _measures(organism: Organism, lm: LM) -> dict[str, Measure]:
    """Every measure of bias that fits; of three groups, SEAT of every pair of them."""
    rulers = organism.rulers()
    if organism.made != "three groups":
        rows = fitting(rulers, lm)
        if organism.made == "no head":
            beside = [name for name, own in rows.items() if isinstance(own, Cloze | ClozeTop)]
            rows |= {name: _adjacent(rows[name], organism.language) for name in beside}
        return {name: own for name, own in rows.items() if not own.is_utility}
    words = altered.three_group_lexicon(rulers.lexicon, organism.language)
    named = ("first and second", "first and third", "second and third")
    pairs = every_pair(replace(rulers.seat, lexicon=words))
    return {f"seat: {name} group": own for name, own in zip(named, pairs, strict=True)}


def _heads(organism: Organism, lm: LM, check: HeadCheck) -> Heads:
    """Heads by ablation, as `levelhead locate --by ablation` does it."""
    silent = check == "silent"
    measure: Measure = (
        _adjacent(organism.rulers().cloze(lm), organism.language)
        if silent
        else whole_contrast(organism)
    )
    readouts = measure.read(lm)[0]
    cut = halves(measure, readouts, by="auto", seed=INFERENCE.seed)
    kept = cut.confirm

    def left(sites: Sequence[Site]) -> float:
        """The measure on the confirm half with some heads masked."""
        without = measure.read(lm.edited(mask(sites)))[0] if sites else readouts
        return float(measure.reduce(kept.of(without)))

    shape = lm.anatomy
    sites = [Site("head_out", i, j) for i in range(shape.layers) for j in range(shape.heads)]
    whole = left(())
    together: float | None = None
    chosen: tuple[str, ...] = ()
    if not silent:
        together = 1 - left([Site("head_out", *site) for site in altered.TWO_HEADS]) / whole
        steps = greedy(lm, measure, cut.find.of(readouts), sites, k=4, inference=INFERENCE).steps
        chosen = tuple(step.head for step in steps)
    return Heads(
        measure=measure.name,
        whole=whole,
        single={label(site): 1 - left([site]) / whole for site in sites},
        confirmed=_confirmed(lm, measure),
        together=together,
        greedy=chosen,
    )


def _adjacent(cloze: Measure, language: Language) -> Measure:
    """A cloze of the targets that a group word may follow: those whose bias no head carries."""
    words = {word for side in language.targets["trait"] for word in side}
    prompts = tuple(own for own in cloze.prompts if own.occupation in words)  # type: ignore[attr-defined]
    return replace(cloze, prompts=prompts)  # type: ignore[call-arg]


def _confirmed(lm: LM, measure: Measure) -> tuple[str, ...]:
    """The heads whose effect `locate` confirms by ablation; none where no head changes anything."""
    try:
        found = locate(lm, measure, by="ablation", exact="all", inference=INFERENCE)
        return tuple(label(site) for site in found.confirmed())
    except NotMeasurable:
        return ()
