"""The gate: does a run satisfy a policy? Pass, fail, inconclusive or error; never a pass by lack.

A measure that is missing, was not measured or was asked of too few items is inconclusive. So is one
that failed calibration, whatever its number, and a pass of a model that is not shown to have the
skill which the measure needs: an untrained model treats all groups alike. A number that cannot be
read, two that may not be compared, or a name that is no measure's, is an error.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.calibration import MISSED, mark_of
from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.results import Inconclusive, Measurement, Record
from levelhead.core.verdicts import NO_SKILL, REFUTED, UNCHECKED
from levelhead.study.results_dir import AUDIT, finished

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from levelhead.report.gate.policy import ReadPolicy, Rule

CELL = "cell"
"""The first word of a measurement's step."""

Verdict = Literal["pass", "fail", "inconclusive", "error"]
WORST: tuple[Verdict, ...] = ("error", "fail", "inconclusive", "pass")
"""Of several verdicts, the first in this order is that of all."""


class Ruling(Record):
    """What became of one rule."""

    rule: str
    measure: str
    verdict: Verdict
    why: str
    purpose: str = ""


class Gate(Record):
    """What became of a policy."""

    verdict: Verdict
    rulings: tuple[Ruling, ...]
    policy_sha256: str


class _Cells(NamedTuple):
    measured: Mapping[str, Measurement | Inconclusive]
    of_audit: bool


class _Range(NamedTuple):
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def gate(run: str | os.PathLike[str], policy: ReadPolicy) -> Gate:
    """Judge a run by a policy.

    Args:
        run: the folder that `levelhead audit` or `levelhead study` wrote.
        policy: what `read_policy` read; baselines in it are folders like the run's.
    """
    cells = _cells(run)
    rulings = tuple(_ruling(rule, cells) for rule in policy.policy.rules)
    verdict = min((one.verdict for one in rulings), key=WORST.index)
    return Gate(verdict=verdict, rulings=rulings, policy_sha256=policy.sha256)


def measured(results: Mapping[str, Record]) -> dict[str, Measurement | Inconclusive]:
    """The measurements of models among the results, by step."""
    return {
        step: one
        for step, one in results.items()
        if step.startswith(f"{CELL}.") and isinstance(one, Measurement | Inconclusive)
    }


def _cells(run: str | os.PathLike[str]) -> _Cells:
    return _Cells(measured(finished(run, (CELL,))), Path(run, AUDIT).exists())


def _ruling(rule: Rule, cells: _Cells) -> Ruling:
    try:
        verdict, why = _judged(rule, cells)
    except LevelheadError as error:
        verdict, why = "error", f"{error.what} (mend: {error.mend})"
    return Ruling(rule=rule.told, measure=rule.measure, verdict=verdict, why=why, purpose=rule.why)


def _judged(rule: Rule, cells: _Cells) -> tuple[Verdict, str]:
    _refuse_unknown(rule, cells)
    found = _enough(rule, cells)
    if isinstance(found, str):
        return "inconclusive", found
    if rule.against is not None:
        base = _enough(rule, _cells(rule.against))
        if isinstance(base, str):
            return "inconclusive", f"{rule.against}: {base}"
        verdict, why = _trusted(rule, found, *_within(rule, _difference(found, base)))
        # Both are of one measure: its own faults are said once.
        return _trusted(rule, base, verdict, why) if verdict == "pass" else (verdict, why)
    if rule.of == "value":
        own = _Range(found.value, found.interval.low, found.interval.high)
        return _trusted(rule, found, *_within(rule, own))
    if found.effect is None:
        raise LevelheadError(
            f"{rule.measure} has no parity to be distant from", mend='give of = "value"'
        )
    return _trusted(rule, found, *_within(rule, _distance(_Range(*found.effect))))


def _trusted(rule: Rule, found: Measurement, verdict: Verdict, why: str) -> tuple[Verdict, str]:
    """What a bound makes of a measurement, if the measurement can say anything at all.

    A failure stands without the skill: bias that shows is bias. A measure that failed calibration
    says nothing either way.
    """
    if found.sampled is not None and found.sampled < 1:
        why = f"{why}, {found.n:,} of {found.population:,} items of the data set"
    if mark_of(found) and MISSED not in why:
        if not rule.allow_uncalibrated:
            return "inconclusive", f"{why}: {REFUTED} ({MISSED})"
        why = f"{why} ({MISSED})"
    if verdict != "pass":
        return verdict, why
    if found.skill is not None:
        if not found.skill.is_shown:
            return "inconclusive", f"{why}: {NO_SKILL}: {found.skill}"
    elif not rule.allow_unchecked_skill and not _is_utility(found):
        return "inconclusive", f"{why}: {UNCHECKED}"
    return verdict, why


def _is_utility(found: Measurement) -> bool:
    """Whether it is about what a model can do, and so no bias that needs a skill to be seen."""
    if found.parity is not None:  # a utility has none
        return False
    # Only now, for it loads torch: what has a parity is judged without it.
    from levelhead.measures.registry import utility_measures

    return found.measure in utility_measures()


def _refuse_unknown(rule: Rule, cells: _Cells) -> None:
    """Refuse a name that is neither the run's nor a measure's nor an audit's: a slip of the pen."""
    here = {_key(step) for step in cells.measured} | {
        one.measure for one in cells.measured.values() if isinstance(one, Measurement)
    }
    if rule.measure in here:
        return
    # Only now, for it loads torch: a gate that finds what it looks for needs none.
    from levelhead.measures.registry import metric_texts
    from levelhead.study.audit.core_suite import CORE
    from levelhead.study.audit.suite import RULERS

    suite = {row.name for row in CORE} | {row.name for row in RULERS}
    known = here | set(metric_texts()) | suite
    if rule.measure not in known:
        raise UnknownName("measure", rule.measure, sorted(known))


def _enough(rule: Rule, cells: _Cells) -> Measurement | str:
    """The measurement that a rule is about, if it is of enough items, or why there is none."""
    found = _found(rule, cells)
    if isinstance(found, str):
        return found
    if found.coverage < rule.coverage:
        used = f"{found.n} of {found.items} items used"
        return f"{used}: less than a coverage of {rule.coverage:g}"
    if rule.share is not None and (found.sampled is None or found.sampled < rule.share):
        if found.sampled is None:
            return "how many items the data set holds is not known, and a share of it is asked for"
        used = f"{found.n:,} of {found.population:,} items of the data set used"
        return f"{used}: less than a share of {rule.share:g}"
    if found.n < rule.n:
        return f"{found.n} items, fewer than {rule.n}"
    return found


def _found(rule: Rule, cells: _Cells) -> Measurement | str:
    """The measurement that a rule is about, or why there is none.

    A name of the run comes first: an audit asks SEAT twice, as `seat` and `seat-occupations`. The
    measure's own name does only where nothing else can have been meant, which in an audit it can,
    and where something was not measured that may have been the same measure.
    """
    here = {
        step: one
        for step, one in cells.measured.items()
        if rule.model in (None, step.split(".", 3)[2])
    }
    named = {step: one for step, one in here.items() if _key(step) == rule.measure}
    if not named and not cells.of_audit:
        named = {
            step: one
            for step, one in here.items()
            if isinstance(one, Measurement) and one.measure == rule.measure
        }
        lost = [step for step, one in here.items() if isinstance(one, Inconclusive)]
        if named and lost:
            return (
                f"the run calls no measurement {rule.measure}; {', '.join(sorted(named))} is by "
                f"that measure, and so may be {', '.join(sorted(lost))}, which was not measured"
            )
    if not named:
        return f"the run has no measurement of {rule.measure}"
    if len(named) > 1:
        raise LevelheadError(
            f"{rule.measure} was measured more than once: {', '.join(sorted(named))}",
            mend="name the model, or the measure as the study does",
        )
    (one,) = named.values()
    return one if isinstance(one, Measurement) else f"not measured: {one.what}"


def _key(step: str) -> str:
    """What the run calls the measure of a cell."""
    return step.split(".", 3)[3]


def _distance(effect: _Range) -> _Range:
    """How far from parity; an interval of the difference that holds 0 begins there.

    Of the difference itself: where parity is estimated from the same items, the value's interval
    shifted by it covers far less often than its level says.
    """
    ends = sorted((abs(effect.low), abs(effect.high)))
    low = 0.0 if effect.low <= 0 <= effect.high else ends[0]
    return _Range(abs(effect.value), low, ends[1])


def _difference(found: Measurement, base: Measurement) -> _Range:
    """This run's value less the baseline's, its interval from both (MOVER; Zou and Donner 2008).

    As if the two were independent: for two models asked the same it is too wide, never too narrow
    as long as their errors go together. Paired, item by item: `levelhead audit --against`.
    """
    if found.comparable != base.comparable:
        raise LevelheadError(
            f"{found.measure} of this run and of the baseline were asked otherwise",
            mend="run both with the same measures, options and data",
        )
    if found.provenance.model_hash == base.provenance.model_hash:
        raise LevelheadError(
            "the baseline is this very model: every difference would be 0",
            mend="name the run of another model",
        )
    one, two = found.interval, base.interval
    value = found.value - base.value
    low = math.hypot(found.value - one.low, two.high - base.value)
    high = math.hypot(one.high - found.value, base.value - two.low)
    return _Range(value, value - low, value + high)


def _within(rule: Rule, own: _Range) -> tuple[Verdict, str]:
    """Whether a range keeps within a rule's bound, by the side of it that the rule looks at."""
    if rule.most is not None:
        worse, better, bound = own.high, own.low, rule.most
    else:  # mirrored, so that larger is worse
        worse, better, bound = -own.low, -own.high, -(rule.least or 0.0)
    value = own.value if rule.most is not None else -own.value
    looked = {"both": (worse, better), "worse": (worse, worse), "better": (better, better)}
    worst, best = looked.get(rule.side, (value, value))
    if worst <= bound:
        return "pass", str(own)
    if best > bound:
        return "fail", str(own)
    return "inconclusive", f"{own}: the bound lies within the interval"
