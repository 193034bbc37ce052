"""Calibration results of measures, locators and edits on models with a known bias.

`levelhead calibrate` computes them. The package includes the results of the full run, so that every
table can mark the values of a measure that failed.
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

ExpectedResponse = Literal["rises", "falls", "none", "any"]
"""Expected response of a measure to a stronger association of groups and targets. "none": no
response, and no finding without a dose either. "any": what it measures was neither planted nor
excluded, so a finding in a model without a dose may be true."""
CalibrationVerdict = Literal["not refuted", "misses", "not evaluated"]
"""A few models with a planted bias can refute a measure; they cannot prove that it is valid."""
MIN_DOSE_CORRELATION = 0.9
"""Smallest required Spearman correlation of a measure with the dose."""
MAX_FALSE_ALARM_RATE = 0.10
"""Largest accepted upper bound of the false alarm rate: twice the nominal level of the tests."""
MIN_POWER = 0.8
"""Share of models in which a dose must be found to count as detected."""
ALARM_P = 0.05
"""Significance level at which a measure reports a bias."""
MIN_NULL_MODELS = 3
"""Smallest number of models without a bias for any verdict on a measure."""
MIN_NULLS_FOR_RATE = 20
"""Smallest number of models without a bias for a statement about false alarms: no alarm in 20 gives
an interval of 0% to 16% (Wilson); no alarm in 3 gives 0% to 56%."""
MIN_FIRST_RATE, MIN_KNOWN_HEAD_MODELS = 0.8, 10
"""Share of models in which a known head must be first, and the smallest number of models."""
MAX_COST_HALF_WIDTH = 0.25
"""Half width of the interval of a utility cost above which the cost is called unknown: an interval
that holds both 0 and a quarter more perplexity does not separate a free edit from a costly one."""
# tools/calibration.py writes this file after a full run.
CALIBRATION_FILE = "calibration.json"
REFERENCE_ARCHITECTURE = {False: "bert", True: "llama"}
"""Model family that was trained with every dose, for masked (False) and causal (True) models."""
CHAT_ARCHITECTURE = "chat"
"""Constructed chat models, for the measures of decisions and of generated texts."""
DAGGER = "†"
"""Marks a measure that missed a planted bias or found one that was not planted."""
DAGGER_NOTE = f"{DAGGER} failed where the truth is known: see docs/results/calibration.md"
NOT_CALIBRATED = "not tried"


class MeasureKey(Record):
    """A measure and the kind of model it was computed on: the key of a calibration result."""

    measure: str
    """Name of the metric that the measure reports, as in `Measurement.measure`."""
    family: str
    causal: bool

    @classmethod
    def from_settings(cls, measure: str, model: Mapping[str, object]) -> MeasureKey | None:
        """Create the key from the settings of a model; None if they do not state its kind.

        Args:
            measure: name of the metric that the measure reports.
            model: settings of the model from a provenance.
        """
        if "causal" not in model:
            return None
        return cls(measure=measure, family=str(model.get("type", "")), causal=bool(model["causal"]))


class DoseDetection(Record):
    """Number of models of one dose in which the bias was found."""

    rho: float
    hits: int
    models: int


class ConfounderResponse(Record):
    """Response of a measure to a confounder, which is not a stereotype."""

    variant: str
    share: float | None
    """Share of the response to the full dose, as a mean over models; None if the measure does not
    separate the full dose from no dose."""
    range: tuple[float, float] | None
    """Smallest and largest share over models."""
    alarms: int
    models: int


class MeasureCalibration(Record):
    """Calibration of one measure on one model family."""

    measure: str
    architecture: str
    expected: ExpectedResponse
    models: int
    unread: int
    """Number of models on which the measure gave no value."""
    rank: float | None
    """Spearman correlation of the value with the dose."""
    rank_interval: Interval | None
    alarms: float | None
    """False alarm rate over permutations of the labels."""
    alarms_interval: Interval | None
    label_permutations: int
    nulls: int
    null_alarms: int
    """Number of models without a bias in which the measure reports one, with unpermuted labels."""
    power: tuple[DoseDetection, ...]
    smallest: float | None
    """Smallest dose that is detected together with every larger one."""
    confounded: tuple[ConfounderResponse, ...]
    points: tuple[tuple[float, int, float], ...]
    """(dose, seed, value) of every model with a planted stereotype or without one."""

    @property
    def has_dose(self) -> bool:
        """Whether the quantity that it measures was planted in doses."""
        return self.expected in ("rises", "falls")

    @property
    def verdict(self) -> CalibrationVerdict:
        """Whether the models refute the measure."""
        if self._faults:
            return "misses"
        return "not evaluated" if self._undecided_reason else "not refuted"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the measure is refuted, or why it is not evaluated."""
        return self._faults or ((self._undecided_reason,) if self._undecided_reason else ())

    @property
    def slope(self) -> float | None:
        """Least squares slope of the value by the dose; None with fewer than three doses."""
        doses = [dose for dose, _, _ in self.points]
        if len(set(doses)) < 3:
            return None
        from scipy.stats import linregress

        return float(linregress(doses, [value for _, _, value in self.points]).slope)

    @property
    def smallest_dose_text(self) -> str:
        """Smallest detected dose, in words; empty if the measure has no test."""
        if not self.power:
            return ""
        return "no dose found" if self.smallest is None else f"least dose found {self.smallest:g}"

    @property
    def false_alarms_text(self) -> str:
        """What is known about the false alarms, in words."""
        if self.nulls < MIN_NULLS_FOR_RATE:
            return f"false alarms not known (n = {self.nulls} null models)"
        if self.alarms is None or self.alarms_interval is None:
            return f"alarms in {self.null_alarms} of {self.nulls} null models"
        low, high = self.alarms_interval.low, self.alarms_interval.high
        return (
            f"false alarms {self.alarms:.1%} [{low:.1%}, {high:.1%}] (n = {self.nulls} null models)"
        )

    @property
    def full_verdict(self) -> str:
        """The verdict with the figures and reasons that support it."""
        return "; ".join(
            filter(
                None,
                (
                    f"{self.verdict} (n = {len(self.points)})",
                    self.smallest_dose_text,
                    self.false_alarms_text if self.nulls else "",
                    *self.reasons,
                ),
            )
        )

    @property
    def _faults(self) -> tuple[str, ...]:
        """Reasons that refute the measure."""
        values = [value for _, _, value in self.points]
        if not values:
            return ("no model could be measured",)
        faults = [f"{self.unread} models could not be measured"] if self.unread else []
        if self.has_dose:
            # Spearman's correlation is not defined for a constant.
            if len(values) > 1 and min(values) == max(values):
                faults.append("it gives the same value for every model")
            rank = self.rank
            if (
                rank is not None
                # A measure that falls with the dose must reach the same correlation, negated.
                and (-rank if self.expected == "falls" else rank) < MIN_DOSE_CORRELATION
            ):
                faults.append(f"Spearman's correlation with the dose is {rank:.2f}")
            # Only the largest dose refutes: a measure may be too weak to detect a small bias.
            if self.power and self.power[-1].hits < MIN_POWER * self.power[-1].models:
                full = self.power[-1]
                faults.append(f"the full dose is found in {full.hits} of {full.models} models")
        return (*faults, *self._false_alarm_faults)

    @property
    def _false_alarm_faults(self) -> tuple[str, ...]:
        """False alarms in models without a bias: under permuted labels and under the true ones."""
        # "any" excludes nothing, so a finding without a dose is not a false alarm there.
        if self.nulls < MIN_NULL_MODELS or self.expected == "any":
            return ()
        faults = []
        # An upper bound is a claim about the false alarm rate, so it needs enough models.
        # Without any alarm a wide interval only means few models and is no fault.
        bound = self.alarms_interval if self.alarms and self.nulls >= MIN_NULLS_FOR_RATE else None
        if bound is not None and bound.high > MAX_FALSE_ALARM_RATE:
            faults.append(f"false alarms may be as many as {bound.high:.0%}")
        # A binomial test: more alarms than the level allows refute a measure with few models too.
        if self.null_alarms and _binomial_tail(self.null_alarms, self.nulls, ALARM_P) <= ALARM_P:
            faults.append(f"alarms in {self.null_alarms} of {self.nulls} models without a bias")
        return tuple(faults)

    @property
    def _undecided_reason(self) -> str:
        """Why a measure without a fault has no verdict; empty if it has one."""
        if not self.has_dose:
            return "no dose of what it measures was planted"
        if not self.nulls:
            return "it has no test: false alarms are not known"
        return "too few models without a bias" if self.nulls < MIN_NULL_MODELS else ""


class Proportion(Record):
    """A share: hits of a number of trials, with its interval."""

    hits: int
    of: int
    interval: Interval


class SkillCalibration(Record):
    """Language skill of the trained models of one family."""

    architecture: str
    skill: str
    models: int
    worst: float
    """Skill of the model that is farthest from its optimum."""
    best: float
    """Optimum for the text of that model."""


class LocatorCalibration(Record):
    """Calibration of the locators on one model family."""

    architecture: str
    known: int
    """Number of models with a known head."""
    learned: int
    """Number of these models that learned something through it: some head is confirmed."""
    without: float
    """Largest contrast that remains when the known head is masked."""
    first: dict[str, Proportion]
    """Share of models in which the known head is ranked first, by locator."""
    alone: Proportion
    """Share of models in which the greedy search selects only the known head."""
    ordinary: int
    positive: tuple[int, int]
    """Smallest and largest number of heads per model that ablation confirms."""
    auroc: dict[str, Estimate | None]
    """AUROC over models, by locator; None if fewer than two models can be evaluated."""
    agreement: Estimate | None

    @property
    def verdict(self) -> str:
        """Whether every locator ranks the known head first often enough."""
        if any(proportion.of < MIN_KNOWN_HEAD_MODELS for proportion in self.first.values()):
            return "not evaluated: too few models"
        failing = [
            locator
            for locator, proportion in self.first.items()
            if proportion.hits < MIN_FIRST_RATE * proportion.of
        ]
        # The smallest number of models limits what the verdict can claim.
        n_models = min(proportion.of for proportion in self.first.values())
        return f"misses by {', '.join(failing)}" if failing else f"not refuted (n = {n_models})"


class EditCalibration(Record):
    """Effects of one edit on one model family: on planted bias, without bias, and on fluency."""

    edit: str
    architecture: str
    models: int
    """Number of models with a bias."""
    gone: Estimate | None
    """Share of the bias that the edit removes at the full dose, over models."""
    nulls: int
    """Number of models without a bias."""
    at_none: Estimate | None
    """Absolute change of the contrast without a dose, as a share of that of the full dose."""
    price: Estimate | None
    """Relative change of fluency at the full dose (utility cost)."""
    significant: int
    """Number of models without a bias in which a change is reported."""
    has_placebo: bool = False
    beyond: int | None = None
    """Number of models with a bias in which the edit removes more than its placebo; None: not all
    models, and the number was not stored."""

    @property
    def placebo_p(self) -> float | None:
        """One-sided p-value of a sign test over models: 3 of 3 models give 0.125 under the null."""
        if not self.has_placebo or self.beyond is None:
            return None
        # Under the null, an edit removes more than its placebo in half of the models.
        return _binomial_tail(self.beyond, self.models, 0.5)

    @property
    def is_cost_known(self) -> bool:
        """Whether the interval of the utility cost is narrow enough for a statement."""
        if self.price is None:
            return False
        return (self.price.interval.high - self.price.interval.low) / 2 <= MAX_COST_HALF_WIDTH

    @property
    def verdict(self) -> str:
        """Conclusion about the edit, in words."""
        if self.gone is None:
            return "not evaluated: fewer than two models"
        sentences = [self._reduction_text(self.gone)]
        if self.price is not None and self.price.interval.low > 0:
            sentences.append("text about nobody is predicted worse")
        if self.price is not None and not self.is_cost_known:
            sentences.append("utility cost unknown")
        return "; ".join(sentences)

    def _reduction_text(self, gone: Estimate) -> str:
        # An interval that holds 0 does not show a reduction.
        if gone.interval.low <= 0:
            return f"not shown to lower it (n = {self.models})"
        lowers = f"lowers it (n = {self.models})"
        if not self.has_placebo:
            return lowers
        p = self.placebo_p
        if p is None:
            return f"{lowers}; more than its placebo in fewer than {self.models} models"
        placebo_text = f"more than its placebo in {self.beyond} of {self.models} models, p {p:.3g}"
        return f"{lowers}; {placebo_text}" + ("" if p <= ALARM_P else " (not shown)")


class RemovalVerdicts(Record):
    """Verdicts about an attribute that is known to be removed or to be present."""

    architecture: str
    seed: int
    weights: str
    gone: str
    """Verdict if the only head that sees group words is masked."""
    less: str
    """Verdict if that head is scaled down."""
    there: str
    """Verdict if another head of its layer is masked."""

    @property
    def are_correct(self) -> tuple[bool, bool, bool]:
        """Which of the three answers are right; "unclear" is no answer and never right.

        If another head is masked, the attribute is present: only "hidden" is right.
        """
        return self.gone == "removed", self.less == "hidden", self.there == "hidden"

    @property
    def are_wrong(self) -> tuple[bool, bool, bool]:
        """Which of the three answers are wrong; "unclear" is never wrong."""
        answers = (self.gone, self.less, self.there)
        gone, less, there = (
            not is_correct and answer != "unclear"
            for is_correct, answer in zip(self.are_correct, answers, strict=True)
        )
        return gone, less, there


class OrganismHash(Record):
    """Hashes of one model of the calibration."""

    what: str
    weights: str
    texts: str = ""
    """SHA-256 of the training texts."""


class CalibrationUpdate(Record):
    """Parts of a calibration that a later run computed again, with its command and versions."""

    parts: tuple[str, ...]
    command: str
    versions: FrozenMapping
    machine: str
    models: tuple[OrganismHash, ...]


class Calibration(Record):
    """Calibration results of all measures, locators and edits."""

    command: str
    versions: FrozenMapping
    machine: str
    models: tuple[OrganismHash, ...]
    skills: tuple[SkillCalibration, ...]
    measures: tuple[MeasureCalibration, ...]
    locators: tuple[LocatorCalibration, ...]
    edits: tuple[EditCalibration, ...]
    removed: tuple[RemovalVerdicts, ...]
    """Verdicts about an attribute that is known to be removed or to be present."""
    refreshed: tuple[CalibrationUpdate, ...] = ()
    """Later runs of some parts; all other parts are from the first run and its machine."""

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote, or an older file that stored verdicts as text.

        Verdicts are computed from the figures, so their text can be corrected without another run.
        Only the comparison of an edit with its placebo was not stored as a figure: it is read from
        the text.
        """
        document = json.loads(text)
        if isinstance(document, dict):
            for row in (*document.get("measures", ()), *document.get("locators", ())):
                row.pop("verdict", None)
                row.pop("why", None)
            for row in document.get("edits", ()):
                words = row.pop("verdict", "")
                # "no more than its placebo" contains the phrase too, but gives no number.
                if "than its placebo" in words:
                    row["has_placebo"] = True
                    row["beyond"] = None if "no more than" in words else row["models"]
        return super().from_json(json.dumps(document))

    def find_measure(self, measure: str, family: str, *, causal: bool) -> MeasureCalibration | None:
        """Return the calibration of a measure on a model family, or on the most similar family.

        Args:
            measure: name of the measure.
            family: family of the model.
            causal: whether the model is causal.
        """
        by_architecture = {row.architecture: row for row in self.measures if row.measure == measure}
        # A family without a calibration has the verdict of the reference architecture of its kind.
        names = (family, REFERENCE_ARCHITECTURE[causal], *([CHAT_ARCHITECTURE] * causal))
        return next((by_architecture[name] for name in names if name in by_architecture), None)


# Every marked name in every table needs it, and an installed file does not change.
@cache
def load_calibration() -> Calibration | None:
    """Read the results of the full run from the package; None if the package lacks them."""
    path = files("levelhead.core") / CALIBRATION_FILE
    return Calibration.from_json(path.read_bytes()) if path.is_file() else None


def get_measure_key(measurement: Measurement) -> MeasureKey | None:
    """Return the calibration key of a measurement; None if its kind of model is not known."""
    return MeasureKey.from_settings(
        measurement.measure,
        cast("Mapping[str, object]", measurement.provenance.settings.get("model", {})),
    )


def find_calibration(
    measurement_or_key: Measurement | MeasureKey, extra: str | None = None
) -> MeasureCalibration | None:
    """Find the calibration of a measure on models of this kind; None if there is none.

    Args:
        measurement_or_key: a measurement, or the key of a measure and a kind of model.
        extra: name of a number that is reported with the measurement and may have a calibration.
    """
    calibration, key = (
        load_calibration(),
        get_measure_key(measurement_or_key)
        if isinstance(measurement_or_key, Measurement)
        else measurement_or_key,
    )
    if calibration is None or key is None:
        return None
    name = key.measure if extra is None else extra
    return calibration.find_measure(name, key.family, causal=key.causal)


def calibration_verdict(measurement: Measurement) -> str:
    """Return the verdict with the family, the number of models and the smallest dose found."""
    calibration = find_calibration(measurement)
    if calibration is None:
        return NOT_CALIBRATED
    dose_text = f"; {calibration.smallest_dose_text}" if calibration.smallest_dose_text else ""
    n = len(calibration.points)
    return f"{calibration.verdict} ({calibration.architecture}, n = {n}{dose_text})"


def failed_calibration_mark(record: Record | None, extra: str | None = None) -> str:
    """Return the mark of a measure that failed calibration; empty text otherwise.

    An extra number without a calibration has the mark of its measure.
    """
    if not isinstance(record, Measurement | MeasureKey):
        return ""
    # Without a calibration, an extra number is no more reliable than its measure.
    calibration = find_calibration(record, extra) or find_calibration(record)
    return DAGGER if calibration is not None and calibration.verdict == "misses" else ""


def with_mark(name: str, record: Record | None, extra: str | None = None) -> str:
    """Return a name, with the mark if its measure failed calibration."""
    return f"{name} {failed_calibration_mark(record, extra)}".rstrip()


def _binomial_tail(hits: int, n: int, rate: float) -> float:
    """Return the probability of at least `hits` successes in n binomial trials."""
    return math.fsum(math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(hits, n + 1))
