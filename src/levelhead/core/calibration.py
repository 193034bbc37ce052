"""How rulers, locators and edits did where the truth is known, as values (`levelhead calibrate`).

What came of the full run is kept with the package, so that every table can mark the number of a
ruler that failed.
"""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal, Self, cast

from levelhead.core.results import Estimate, FrozenMapping, Interval, Measurement, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

Expected = Literal["rises", "falls", "none", "any"]
"""What a measure should do where groups and targets are joined more strongly. "none": nothing, and
it should find nothing without a dose either. "any": what it asks for was neither planted nor ruled
out, so what it finds in a model without a dose may be there."""
Verdict = Literal["not refuted", "misses", "not judged"]
"""A few models with a planted bias can refute a measure; they cannot show that it is right."""
LEAST = 0.9
"""Spearman's correlation with the dose that is asked of a measure."""
MOST = 0.10
"""Upper bound of the rate of false alarms that is allowed: twice what the tests promise."""
POWER = 0.8
"""The share of models in which a dose must be found to count as detected."""
ALARM = 0.05
"""The p at which a measure calls a model biased."""
FEWEST = 3
"""Models without a bias, of which with fewer a measure is not judged at all."""
ENOUGH_NULLS = 20
"""Models without a bias, of which with fewer nothing is said of false alarms: no alarm in 20 still
leaves 0% to 16% (Wilson); no alarm in 3 leaves 0% to 56%."""
OFTEN, MANY = 0.8, 10
"""The share of models in which a known head must be first, and how many they must be."""
WIDE = 0.25
"""Half the width of a price's interval from which on the price is called unknown: an interval that
holds both 0 and a quarter more perplexity does not tell a free edit from a costly one."""
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

    @property
    def has_dose(self) -> bool:
        """Whether what it asks for was planted, in doses."""
        return self.expected in ("rises", "falls")

    @property
    def verdict(self) -> Verdict:
        """Whether its models refute the measure."""
        if self._faults:
            return "misses"
        return "not judged" if self._open else "not refuted"

    @property
    def why(self) -> tuple[str, ...]:
        """What refutes it, or why it is not judged."""
        return self._faults or ((self._open,) if self._open else ())

    @property
    def least_dose(self) -> str:
        """The least dose that it finds, in words; empty where it has no test."""
        if not self.power:
            return ""
        return "no dose found" if self.smallest is None else f"least dose found {self.smallest:g}"

    @property
    def false_alarms(self) -> str:
        """What is known of its false alarms, in words."""
        if self.nulls < ENOUGH_NULLS:
            return f"false alarms not known (n = {self.nulls} null models)"
        if self.alarms is None or self.alarms_interval is None:
            return f"alarms in {self.null_alarms} of {self.nulls} null models"
        low, high = self.alarms_interval.low, self.alarms_interval.high
        return (
            f"false alarms {self.alarms:.1%} [{low:.1%}, {high:.1%}] (n = {self.nulls} null models)"
        )

    @property
    def stated(self) -> str:
        """The verdict with all that it rests on."""
        return "; ".join(
            filter(
                None,
                (
                    f"{self.verdict} (n = {len(self.points)})",
                    self.least_dose,
                    self.false_alarms if self.nulls else "",
                    *self.why,
                ),
            )
        )

    @property
    def _faults(self) -> tuple[str, ...]:
        """What refutes it."""
        values = [value for _, _, value in self.points]
        if not values:
            return ("no model could be read",)
        faults = [f"{self.unread} models could not be read"] if self.unread else []
        if self.has_dose:
            if len(values) > 1 and min(values) == max(values):
                faults.append("it says the same of every model")
            rank = self.rank
            if rank is not None and (-rank if self.expected == "falls" else rank) < LEAST:
                faults.append(f"Spearman's correlation with the dose is {rank:.2f}")
            if self.power and self.power[-1].hits < POWER * self.power[-1].models:
                full = self.power[-1]
                faults.append(f"the full dose is found in {full.hits} of {full.models} models")
        return (*faults, *self._loud)

    @property
    def _loud(self) -> tuple[str, ...]:
        """Why it is not silent where no bias is: under dealt labels, and as they are."""
        if self.nulls < FEWEST or self.expected == "any":
            return ()
        why = []
        # The bound of a rate is a claim about false alarms, and needs enough models.
        bound = self.alarms_interval if self.alarms and self.nulls >= ENOUGH_NULLS else None
        if bound is not None and bound.high > MOST:
            why.append(f"false alarms may be as many as {bound.high:.0%}")
        # More alarms than chance gives refute it with any number of models: a test, not a rate.
        if self.null_alarms and _at_least(self.null_alarms, self.nulls, ALARM) <= ALARM:
            why.append(f"alarms in {self.null_alarms} of {self.nulls} models without a bias")
        return tuple(why)

    @property
    def _open(self) -> str:
        """Why nothing is said of a measure that shows no fault; empty where it is judged."""
        if not self.has_dose:
            return "no dose of what it asks for was planted"
        if not self.nulls:
            return "it has no test of its own: false alarms are not known"
        return "too few models without a bias" if self.nulls < FEWEST else ""


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

    @property
    def verdict(self) -> str:
        """Which locators put the known head first often enough."""
        if any(own.of < MANY for own in self.first.values()):
            return "not judged: too few models"
        missed = [by for by, own in self.first.items() if own.hits < OFTEN * own.of]
        of = min(own.of for own in self.first.values())
        return f"misses by {', '.join(missed)}" if missed else f"not refuted (n = {of})"


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
    has_placebo: bool = False
    beyond: int | None = None
    """Models with a bias in which it takes more than its placebo; None: not all, and how many was
    not kept."""

    @property
    def placebo_p(self) -> float | None:
        """Of a sign test over models, one-sided: 3 of 3 models are .125 by chance alone."""
        if not self.has_placebo or self.beyond is None:
            return None
        return _at_least(self.beyond, self.models, 0.5)

    @property
    def is_price_known(self) -> bool:
        """Whether the interval of the price is narrow enough to say anything."""
        if self.price is None:
            return False
        return (self.price.interval.high - self.price.interval.low) / 2 <= WIDE

    @property
    def verdict(self) -> str:
        """What may be said of the edit."""
        if self.gone is None:
            return "not judged: fewer than two models"
        parts = [self._lowered(self.gone)]
        if self.price is not None and self.price.interval.low > 0:
            parts.append("text about nobody is predicted worse")
        if self.price is not None and not self.is_price_known:
            parts.append("price unknown")
        return "; ".join(parts)

    def _lowered(self, gone: Estimate) -> str:
        if gone.interval.low <= 0:
            return f"not shown to lower it (n = {self.models})"
        lowers = f"lowers it (n = {self.models})"
        if not self.has_placebo:
            return lowers
        p = self.placebo_p
        if p is None:
            return f"{lowers}; more than its placebo in fewer than {self.models} models"
        shown = f"more than its placebo in {self.beyond} of {self.models} models, p {p:.3g}"
        return f"{lowers}; {shown}" + ("" if p <= ALARM else " (not shown)")


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

    @property
    def right(self) -> tuple[bool, bool, bool]:
        """Of the three answers, which are right; "unclear" is no answer, and never right.

        Where another head is masked, the attribute is there: only "hidden" says so.
        """
        return self.gone == "removed", self.less == "hidden", self.there == "hidden"

    @property
    def wrong(self) -> tuple[bool, bool, bool]:
        """Which are wrong."""
        answers = (self.gone, self.less, self.there)
        return tuple(  # type: ignore[return-value]
            not right and answer != "unclear"
            for right, answer in zip(self.right, answers, strict=True)
        )


class Grown(Record):
    """A model of the calibration, by its hashes."""

    what: str
    weights: str
    texts: str = ""
    """SHA-256 of what it was trained on."""


class Refreshed(Record):
    """Parts of a calibration that a later run made anew, and what made them."""

    parts: tuple[str, ...]
    command: str
    versions: FrozenMapping
    machine: str
    models: tuple[Grown, ...]


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
    refreshed: tuple[Refreshed, ...] = ()
    """Later runs of some parts; all else is of the first run, with its versions and machine."""

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read back what `to_json` wrote, or a file that still had verdicts as words.

        Verdicts follow from the figures, so that words can be corrected without another run. Only
        what an edit did beside its placebo was kept in no figure: it is read from the words.
        """
        told = json.loads(text)
        if isinstance(told, dict):
            for row in (*told.get("rulers", ()), *told.get("locators", ())):
                row.pop("verdict", None)
                row.pop("why", None)
            for row in told.get("edits", ()):
                words = row.pop("verdict", "")
                if "than its placebo" in words:
                    row["has_placebo"] = True
                    row["beyond"] = None if "no more than" in words else row["models"]
        return super().from_json(json.dumps(told))

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
    """In a few words, with the family, the number of models and the least dose found."""
    found = calibrated(one)
    if found is None:
        return NOT_TRIED
    least = f"; {found.least_dose}" if found.least_dose else ""
    return f"{found.verdict} ({found.architecture}, n = {len(found.points)}{least})"


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


def _at_least(hits: int, n: int, rate: float) -> float:
    """The probability of at least so many hits of n by a rate (binomial)."""
    return math.fsum(math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(hits, n + 1))
