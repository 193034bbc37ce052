"""The gate tests whether a run satisfies a policy: pass, fail, inconclusive or error.

Missing evidence never passes. A measure that is missing, was not measured or was queried on too few
items is inconclusive. So is a measure that failed calibration, whatever its value, and a pass of a
model that is not shown to have the skill which the measure needs: an untrained model treats all
groups alike. An unreadable number, two numbers that are not comparable, or an unknown name is an
error.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.notebook import NotebookResult
from levelhead.core.results import Measurement, Record, StepFailure
from levelhead.core.verdicts import NO_SKILL, REFUTED, UNCHECKED
from levelhead.study.results_dir import AUDIT_FILE, load_results

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from levelhead.report.gate.policy import LoadedPolicy, Rule

CELL = "cell"
"""The first part of the name of a measurement's step."""

GateVerdict = Literal["pass", "fail", "inconclusive", "error"]
SEVERITY_ORDER: tuple[GateVerdict, ...] = ("error", "fail", "inconclusive", "pass")
"""The overall verdict is the first in this order that any rule has."""


class RuleResult(Record):
    """The result of one rule."""

    rule: str
    measure: str
    verdict: GateVerdict
    explanation: str
    purpose: str = ""


class GateReport(NotebookResult, Record):
    """The results of all rules of a policy."""

    verdict: GateVerdict
    results: tuple[RuleResult, ...]
    policy_sha256: str

    @property
    def title(self) -> str:
        """The verdict of all rules together."""
        return f"gate: {self.verdict}"

    def to_rows(self) -> list[dict[str, object]]:
        """One row per rule: its verdict and the explanation."""
        return [result.model_dump() for result in self.results]


class _RunMeasurements(NamedTuple):
    measurements: Mapping[str, Measurement | StepFailure]
    is_audit: bool


class _Range(NamedTuple):
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def run_gate(run_dir: str | os.PathLike[str], policy: LoadedPolicy) -> GateReport:
    """Evaluate a run by a policy.

    Args:
        run_dir: folder that `levelhead audit` or `levelhead study` wrote.
        policy: policy from `read_policy`; its baselines are folders of the same kind.
    """
    measurements = _load_measurements(run_dir)
    results = tuple(_apply_rule(rule, measurements) for rule in policy.policy.rules)
    verdict = min((result.verdict for result in results), key=SEVERITY_ORDER.index)
    return GateReport(verdict=verdict, results=results, policy_sha256=policy.sha256)


def collect_measurements(results: Mapping[str, Record]) -> dict[str, Measurement | StepFailure]:
    """The measurements of models among the results, by step."""
    return {
        step: result
        for step, result in results.items()
        if step.startswith(f"{CELL}.") and isinstance(result, Measurement | StepFailure)
    }


def _load_measurements(run_dir: str | os.PathLike[str]) -> _RunMeasurements:
    return _RunMeasurements(
        collect_measurements(load_results(run_dir, (CELL,))), Path(run_dir, AUDIT_FILE).exists()
    )


def _apply_rule(rule: Rule, cells: _RunMeasurements) -> RuleResult:
    try:
        verdict, explanation = _decide(rule, cells)
    except LevelheadError as error:
        verdict, explanation = "error", f"{error.problem} (hint: {error.hint})"
    return RuleResult(
        rule=rule.description,
        measure=rule.measure,
        verdict=verdict,
        explanation=explanation,
        purpose=rule.purpose,
    )


def _decide(rule: Rule, cells: _RunMeasurements) -> tuple[GateVerdict, str]:
    _forbid_unknown_measure(rule, cells)
    measurement = _require_enough_items(rule, cells)
    if isinstance(measurement, str):
        return "inconclusive", measurement
    if rule.baseline is not None:
        base = _require_enough_items(rule, _load_measurements(rule.baseline))
        if isinstance(base, str):
            return "inconclusive", f"{rule.baseline}: {base}"
        verdict, explanation = _require_trust(
            rule, measurement, *_compare_with_bound(rule, _difference_range(measurement, base))
        )
        # Both are of one measure: a fault of the measure is reported once.
        return (
            _require_trust(rule, base, verdict, explanation)
            if verdict == "pass"
            else (verdict, explanation)
        )
    if rule.quantity == "value":
        value_range = _Range(measurement.value, measurement.interval.low, measurement.interval.high)
        return _require_trust(rule, measurement, *_compare_with_bound(rule, value_range))
    if measurement.effect is None:
        raise LevelheadError(
            f"{rule.measure} has no parity to be distant from", hint='give quantity = "value"'
        )
    return _require_trust(
        rule, measurement, *_compare_with_bound(rule, _distance_range(_Range(*measurement.effect)))
    )


def _require_trust(
    rule: Rule, measurement: Measurement, verdict: GateVerdict, explanation: str
) -> tuple[GateVerdict, str]:
    """Downgrade a verdict to inconclusive if the measurement is no evidence for it.

    A fail needs no skill: bias that is measured is there. A measure that failed calibration is no
    evidence for either verdict.
    """
    if measurement.sampled_fraction is not None and measurement.sampled_fraction < 1:
        explanation = (
            f"{explanation}, {measurement.n:,} of {measurement.population:,} items of the data set"
        )
    if failed_calibration_mark(measurement) and DAGGER_NOTE not in explanation:
        if not rule.allow_uncalibrated:
            return "inconclusive", f"{explanation}: {REFUTED} ({DAGGER_NOTE})"
        explanation = f"{explanation} ({DAGGER_NOTE})"
    if verdict != "pass":
        return verdict, explanation
    if measurement.skill is not None:
        if not measurement.skill.is_shown:
            return "inconclusive", f"{explanation}: {NO_SKILL}: {measurement.skill}"
    elif not rule.allow_unchecked_skill and not _is_utility(measurement):
        return "inconclusive", f"{explanation}: {UNCHECKED}"
    return verdict, explanation


def _is_utility(measurement: Measurement) -> bool:
    """Whether the measure is one of utility, which needs no check of skill."""
    if measurement.parity is not None:  # a utility has none
        return False
    # Imported here because it loads torch, which measures with a parity do not need.
    from levelhead.measures.registry import utility_measures

    return measurement.measure in utility_measures()


def _forbid_unknown_measure(rule: Rule, cells: _RunMeasurements) -> None:
    """Raise an error for a name that the run, the measures and the audits do not have: a typo."""
    names_in_run = {_measure_name(step) for step in cells.measurements} | {
        result.measure for result in cells.measurements.values() if isinstance(result, Measurement)
    }
    if rule.measure in names_in_run:
        return
    # Imported here because it loads torch, which a gate without unknown names does not need.
    from levelhead.measures.registry import metric_texts
    from levelhead.study.audit.core_suite import CORE
    from levelhead.study.audit.suite import AUDIT_MEASURES

    # A measure that this audit skipped is inconclusive, not a misspelt name.
    suite = {row.name for row in CORE} | {row.name for row in AUDIT_MEASURES}
    known_names = names_in_run | set(metric_texts()) | suite
    if rule.measure not in known_names:
        raise UnknownNameError("measure", rule.measure, sorted(known_names))


def _require_enough_items(rule: Rule, cells: _RunMeasurements) -> Measurement | str:
    """The measurement of a rule if it has enough items, else the reason why not."""
    measurement = _find_measurement(rule, cells)
    if isinstance(measurement, str):
        return measurement
    if measurement.coverage < rule.min_coverage:
        used = f"{measurement.n} of {measurement.n_items} items used"
        return f"{used}: less than a coverage of {rule.min_coverage:g}"
    if rule.min_share is not None and (
        measurement.sampled_fraction is None or measurement.sampled_fraction < rule.min_share
    ):
        if measurement.sampled_fraction is None:
            return "the rule needs a share of the data set, whose size is not known"
        used = f"{measurement.n:,} of {measurement.population:,} items of the data set used"
        return f"{used}: less than a share of {rule.min_share:g}"
    if measurement.n < rule.min_items:
        return f"{measurement.n} items, fewer than {rule.min_items}"
    return measurement


def _find_measurement(rule: Rule, cells: _RunMeasurements) -> Measurement | str:
    """The measurement of a rule, or the reason why there is none.

    Names of the run come first: an audit queries SEAT twice, as `seat` and `seat-occupations`. The
    measure's name is used only if it is unambiguous. It may be ambiguous in an audit, or if a
    failed measurement may have been by the same measure.
    """
    results = {
        step: result
        for step, result in cells.measurements.items()
        if rule.model in (None, step.split(".", 3)[2])
    }
    matches = {
        step: result for step, result in results.items() if _measure_name(step) == rule.measure
    }
    if not matches and not cells.is_audit:
        matches = {
            step: result
            for step, result in results.items()
            if isinstance(result, Measurement) and result.measure == rule.measure
        }
        unmeasured = [step for step, result in results.items() if isinstance(result, StepFailure)]
        if matches and unmeasured:
            return (
                f"the run calls no measurement {rule.measure}; {', '.join(sorted(matches))} is by "
                f"that measure, and so may be {', '.join(sorted(unmeasured))}, which "
                "was not measured"
            )
    if not matches:
        return f"the run has no measurement of {rule.measure}"
    if len(matches) > 1:
        raise LevelheadError(
            f"{rule.measure} was measured more than once: {', '.join(sorted(matches))}",
            hint="name the model, or the measure as the study does",
        )
    (result,) = matches.values()
    return result if isinstance(result, Measurement) else f"not measured: {result.problem}"


def _measure_name(step: str) -> str:
    """The name of a step's measure in the run."""
    return step.split(".", 3)[3]


def _distance_range(effect: _Range) -> _Range:
    """The distance from parity; if the interval of the difference contains 0, it begins at 0.

    The interval is that of the difference itself: where parity is estimated from the same items,
    the value's interval shifted by parity covers far less often than its nominal level.
    """
    ends = sorted((abs(effect.low), abs(effect.high)))
    low = 0.0 if effect.low <= 0 <= effect.high else ends[0]
    return _Range(abs(effect.value), low, ends[1])


def _difference_range(measurement: Measurement, base: Measurement) -> _Range:
    """This run's value minus the baseline's, with a MOVER interval (Zou and Donner 2008).

    The interval assumes independence: for two models with the same items it is conservative as
    long as their errors are positively correlated. For a paired comparison, use
    `levelhead audit --against`.
    """
    if measurement.comparability_key != base.comparability_key:
        raise LevelheadError(
            f"{measurement.measure} of this run and of the baseline were measured differently",
            hint="run both with the same measures, options and data",
        )
    if measurement.provenance.model_hash == base.provenance.model_hash:
        raise LevelheadError(
            "the baseline is the same model: every difference would be 0",
            hint="name the run of another model",
        )
    interval, base_interval = measurement.interval, base.interval
    value = measurement.value - base.value
    # MOVER: the limits' distances add in quadrature, each from the side that it limits.
    low = math.hypot(measurement.value - interval.low, base_interval.high - base.value)
    high = math.hypot(interval.high - measurement.value, base.value - base_interval.low)
    return _Range(value, value - low, value + high)


def _compare_with_bound(rule: Rule, value_range: _Range) -> tuple[GateVerdict, str]:
    """Compare a range with a rule's bound, by the side of the interval that the rule names."""
    if rule.at_most is not None:
        worse, better, bound = value_range.high, value_range.low, rule.at_most
    else:  # mirrored, so that larger is worse
        worse, better, bound = -value_range.low, -value_range.high, -(rule.at_least or 0.0)
    value = value_range.value if rule.at_most is not None else -value_range.value
    ends_by_side = {"both": (worse, better), "worse": (worse, worse), "better": (better, better)}
    worst, best = ends_by_side.get(rule.interval_side, (value, value))
    if worst <= bound:
        return "pass", str(value_range)
    if best > bound:
        return "fail", str(value_range)
    return "inconclusive", f"{value_range}: the bound lies within the interval"
