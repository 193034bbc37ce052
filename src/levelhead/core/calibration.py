"""How rulers, locators and edits did where the truth is known, as values (`levelhead calibrate`).

What came of the full run is kept with the package, so that every table can mark the number of a
ruler that failed.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal, cast

from levelhead.core.results import Estimate, FrozenMapping, Interval, Measurement, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

Expected = Literal["rises", "falls", "none"]
"""What a ruler should do where groups and targets are joined more strongly."""
Verdict = Literal["passes", "conservative", "misses", "not judged"]
KEPT = "calibration.json"
LIKE = {False: "bert", True: "llama"}
"""The family that got every dose, by whether a model is causal."""
MISSES = "†"
"""Marks a ruler that missed a planted bias, or saw one that was not there."""
MISSED = f"{MISSES} failed where the truth is known: see docs/calibration.md"
NOT_TRIED = "not tried"


class Ruler(Record):
    """A measure and the kind of model that it was asked of: by these it is known how it did."""

    measure: str
    family: str
    causal: bool

    @classmethod
    def of(cls, measure: str, model: Mapping[str, object]) -> Ruler | None:
        """Of a model's settings; None where they do not say what kind it is."""
        if "causal" not in model:
            return None
        return cls(measure=measure, family=str(model.get("type", "")), causal=bool(model["causal"]))


class Power(Record):
    """In how many models of a dose the bias was found."""

    rho: float
    hits: int
    models: int


class Confounded(Record):
    """How a ruler answers to something else than a stereotype."""

    variant: str
    share: float | None
    """Of its answer to the full dose, the mean of models; None where that is not told from none."""
    range: tuple[float, float] | None
    """The least and the largest of the models' shares."""
    alarms: int
    models: int


class Calibrated(Record):
    """How one ruler did on one family of models."""

    measure: str
    architecture: str
    expected: Expected
    models: int
    unread: int
    """Models of which it could say nothing."""
    rank: float | None
    """Spearman's correlation of its value with the dose."""
    rank_interval: Interval | None
    alarms: float | None
    """The rate at which it calls bias what is none, over deals of labels."""
    alarms_interval: Interval | None
    deals: int
    nulls: int
    null_alarms: int
    """Of the models without a bias, labels as they are, those in which it finds one."""
    power: tuple[Power, ...]
    smallest: float | None
    """The least dose that it finds, and every larger one."""
    confounded: tuple[Confounded, ...]
    points: tuple[tuple[float, int, float], ...]
    """(dose, seed, value) of every model that a stereotype was planted in, or none."""
    verdict: Verdict
    why: tuple[str, ...]


class Share(Record):
    """So many of so many."""

    hits: int
    of: int
    interval: Interval


class Skilled(Record):
    """Whether the models of a family learned their language."""

    architecture: str
    skill: str
    models: int
    worst: float
    """Of all models, the one farthest from what is possible."""
    best: float
    """The best that was possible in that model's text."""


class Family(Record):
    """How locating did on one family of models."""

    architecture: str
    known: int
    """Models with a known head."""
    learned: int
    """Of them, those that have learned anything through it: some head is confirmed."""
    without: float
    """The largest contrast that is left with the known head masked."""
    first: dict[str, Share]
    """In how many the known head is first, by locator."""
    alone: Share
    """In how many the greedy search takes it alone."""
    ordinary: int
    positive: tuple[int, int]
    """Heads that ablation confirms, in the model with the fewest and in that with the most."""
    auroc: dict[str, Estimate | None]
    """Over models; None where fewer than two can be judged."""
    agreement: Estimate | None
    verdict: str


class Mitigated(Record):
    """What one edit did to one family: to a bias, to none, and to fluency."""

    edit: str
    architecture: str
    models: int
    """With a bias."""
    gone: Estimate | None
    """The share of the bias that is gone at the full dose, over models."""
    nulls: int
    """Models without a bias."""
    at_none: Estimate | None
    """How much the contrast changes without a dose, up or down, in shares of the full dose's."""
    price: Estimate | None
    """Change of fluency at the full dose, in shares of what it was."""
    significant: int
    """Models without a bias in which it is said to be changed."""
    verdict: str


class Told(Record):
    """Whether the attribute is called removed where it is, and where it is not."""

    architecture: str
    seed: int
    weights: str
    gone: str
    """What is said where the only head that sees group words is masked."""
    less: str
    """What is said where that head is scaled down."""
    there: str
    """What is said where another head of its layer is."""


class Grown(Record):
    """A model of the calibration, by its hashes."""

    what: str
    weights: str
    texts: str = ""
    """SHA-256 of what it was trained on."""


class Calibration(Record):
    """How every ruler, locator and edit did."""

    command: str
    versions: FrozenMapping
    machine: str
    models: tuple[Grown, ...]
    skills: tuple[Skilled, ...]
    rulers: tuple[Calibrated, ...]
    locators: tuple[Family, ...]
    edits: tuple[Mitigated, ...]
    removed: tuple[Told, ...]
    """What is said of an attribute that is known to be removed, or to be there."""

    def of(self, measure: str, family: str, *, causal: bool) -> Calibrated | None:
        """How a ruler did on a model's own family, or else on the one that it is like."""
        found = {one.architecture: one for one in self.rulers if one.measure == measure}
        return found.get(family, found.get(LIKE[causal]))


@cache
def kept() -> Calibration | None:
    """What came of the full run, as the package has it; None in a package without it."""
    path = files("levelhead.core") / KEPT
    return Calibration.from_json(path.read_bytes()) if path.is_file() else None


def ruler_of(one: Measurement) -> Ruler | None:
    """The ruler of a measurement; None where it does not say what kind of model it is of."""
    return Ruler.of(
        one.measure, cast("Mapping[str, object]", one.provenance.settings.get("model", {}))
    )


def calibrated(one: Measurement | Ruler, beside: str | None = None) -> Calibrated | None:
    """How a ruler did on models of this kind; None: it was not tried.

    Args:
        one: the ruler, or what it says of a model.
        beside: the name of a number that stands beside it, which may be a ruler of its own.
    """
    found, ruler = kept(), ruler_of(one) if isinstance(one, Measurement) else one
    if found is None or ruler is None:
        return None
    name = ruler.measure if beside is None else beside
    return found.of(name, ruler.family, causal=ruler.causal)


def verdict_of(one: Measurement) -> str:
    """In a word or two, with the family that it is about."""
    found = calibrated(one)
    return NOT_TRIED if found is None else f"{found.verdict} ({found.architecture})"


def mark_of(one: Record | None, beside: str | None = None) -> str:
    """The mark of a ruler that failed, or of its measurement; of anything else nothing.

    A number beside it that was not tried by itself has its mark.
    """
    if not isinstance(one, Measurement | Ruler):
        return ""
    found = calibrated(one, beside) or calibrated(one)
    return MISSES if found is not None and found.verdict == "misses" else ""


def marked(name: str, one: Record | None, beside: str | None = None) -> str:
    """The name of a ruler, with its mark."""
    return f"{name} {mark_of(one, beside)}".rstrip()
