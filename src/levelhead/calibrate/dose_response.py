"""Dose and response: what every ruler says of models whose bias was planted, model by model.

A unit of work is one organism: it is grown, asked whether it learned its language, and measured by
every ruler that fits. Where nothing was planted, labels are dealt anew, each deal as true as the
first, and every ruler is tested again: what it calls bias then is a false alarm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.calibrate.organisms.organism import HELD_OUT, organism
from levelhead.calibrate.skills import learned
from levelhead.calibrate.suite import expected, fitting
from levelhead.core.calibration import ALARM, LIKE, Expected
from levelhead.core.errors import NotMeasurable
from levelhead.core.files import file_hash
from levelhead.core.frozen import Frozen
from levelhead.core.results import Interval, Record, Skill
from levelhead.core.run_context import Inference
from levelhead.core.verdicts import Status, measure_verdict
from levelhead.engine.tasks import Unit
from levelhead.measures.inference import null_distribution

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.calibrate.organisms.language import Variant
    from levelhead.calibrate.organisms.organism import Organism
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

WORK = "levelhead.calibrate.dose_response:answered"
REVISION = 3
RHOS = (0.0, 0.25, 0.5, 0.75, 1.0)
DOSED = tuple(LIKE.values())
"""Families that get every dose."""
OTHERS = ("roberta", "albert", "gpt2")
"""Families that get none or all."""
SEEDS, FEW, NULLS = range(5), range(3), range(5, 20)
"""Of every dose; of the other families and of confounders; more models of no dose, twenty in all:
with fewer nothing is said of false alarms (`core.calibration.ENOUGH_NULLS`)."""
CONFOUNDERS: tuple[Variant, ...] = ("skew", "frequency", "one group")
DEALS = 40
"""Of each of twenty models, 800 in all: a test of the right size has alarms of 5% [3.7%, 6.7%]
then (Wilson), and is hardly ever taken for one with more than 10%."""
INFERENCE, DEALT = Inference(resamples=199, permutations=499), Inference(permutations=199)
"""Of models as they are, and of labels that were dealt anew."""


class Model(NamedTuple):
    """An organism by what was planted, and how often its labels are dealt anew."""

    architecture: str
    rho: float
    variant: Variant
    seed: int
    deals: int = 0

    @property
    def unit(self) -> Unit:
        """The work to be done for it."""
        return Unit(WORK, Frozen(self._asdict()), revision=REVISION)


def models(*, quick: bool = False) -> tuple[Model, ...]:
    """Every organism of the calibration; quick: one each of three doses."""
    if quick:
        few = ((0.0, 5), (0.5, 0), (1.0, 0))
        return tuple(Model("bert", rho, "stereotype", 0, deals) for rho, deals in few)
    dosed = [
        Model(name, rho, "stereotype", seed, DEALS * (rho == 0))
        for name in DOSED
        for rho in RHOS
        for seed in SEEDS
    ]
    nulls = [Model(name, 0.0, "stereotype", seed, DEALS) for name in DOSED for seed in NULLS]
    others = [
        Model(name, rho, "stereotype", seed)
        for name in OTHERS
        for rho in (0.0, 1.0)
        for seed in FEW
    ]
    confounded = [Model(DOSED[0], 1.0, variant, seed) for variant in CONFOUNDERS for seed in FEW]
    return (*dosed, *nulls, *others, *confounded)


class Said(Record):
    """What one ruler said of one model."""

    measure: str
    expected: Expected
    value: float | None
    """None: it could not be read."""
    interval: Interval | None
    parity: float | None
    p: float | None
    n: int
    dropped: int
    deals: tuple[float, ...] = ()
    """p under one deal of the labels after another."""
    why: str = ""
    """It could not be read."""
    status: Status = "not measured"
    """The verdict (`core.verdicts`), whatever an earlier calibration said of the measure."""
    effect: float | None = None
    """Value less parity."""
    reason: str = ""
    """Of the verdict."""
    skill: Skill | None = None

    @property
    def alarm(self) -> bool:
        """Whether it calls the model biased, to either side."""
        return self.p is not None and self.p <= ALARM

    @property
    def found(self) -> bool:
        """Whether it calls the model biased to the side that was planted."""
        if not self.alarm or self.value is None or self.parity is None:
            return False
        return (self.value > self.parity) == (self.expected != "falls")


class Answered(Record):
    """What all rulers said of one model, and whether it had learned its language."""

    architecture: str
    rho: float
    variant: str
    seed: int
    texts: str
    """SHA-256 of what it was trained on."""
    weights: str
    """SHA-256 of what came of it."""
    skills: tuple[tuple[str, float, float], ...]
    """(skill, what it reached, the best that is possible)."""
    said: tuple[Said, ...]


def answered(spec: Mapping[str, object]) -> bytes:
    """The unit of work: one organism, grown and measured."""
    model = Model(**spec)  # type: ignore[arg-type]
    one = organism(model.architecture, model.rho, variant=model.variant, seed=model.seed)
    folder = one.grown()
    lm = one.lm()
    rulers = fitting(one.rulers(), lm)
    deals = _deals(one, lm, model)
    return (
        Answered(
            architecture=model.architecture,
            rho=model.rho,
            variant=model.variant,
            seed=model.seed,
            texts=one.facts["texts_sha256"],
            weights=file_hash(folder / "model.safetensors"),
            skills=tuple(
                (skill.estimate.name, skill.estimate.value, skill.best)
                for skill in learned(lm, one.language, seed=model.seed + HELD_OUT)
            ),
            said=tuple(
                said_of(name, ruler, lm, deals.get(name, ())) for name, ruler in rulers.items()
            ),
        )
        .to_json()
        .encode()
    )


def said_of(name: str, ruler: Measure, lm: LM, deals: tuple[float, ...] = ()) -> Said:
    """What one measure says of one model; a measure that cannot be read says nothing."""
    try:
        found = ruler(lm, inference=INFERENCE)
    except NotMeasurable as error:
        return Said(
            measure=name,
            expected=expected(ruler),
            value=None,
            interval=None,
            parity=None,
            p=None,
            n=0,
            dropped=0,
            deals=deals,
            why=error.what,
        )
    # A measure must not be judged by what its own calibration said before.
    verdict = measure_verdict(found, allow_uncalibrated=True)
    return Said(
        measure=name,
        expected=expected(ruler),
        value=found.value,
        interval=found.interval,
        parity=found.parity,
        p=None if found.p is None else found.p.value,
        n=found.n,
        dropped=len(found.dropped),
        deals=deals,
        status=verdict.status,
        effect=None if found.effect is None else found.effect[0],
        reason=verdict.reason,
        skill=found.skill,
    )


def _deals(one: Organism, lm: LM, model: Model) -> dict[str, tuple[float, ...]]:
    """The p of every ruler whose null is about labels, under one deal after another."""
    found: dict[str, list[float]] = {}
    for deal in range(model.deals):
        labels = 1000 * model.seed + deal
        for name, ruler in fitting(one.rulers(labels=labels), lm).items():
            if ruler.headline.null is None or ruler.controlled:
                continue
            aspect, values, design = ruler.tested(ruler.read(lm))
            null = null_distribution(DEALT, aspect, values, design, name=f"{name} {labels}")
            if null is not None:
                found.setdefault(name, []).append(null.p.value)
    return {name: tuple(own) for name, own in found.items()}
