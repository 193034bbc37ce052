"""An audit in plain words: what the rulers tell, what they do not, and what was not asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.calibration import calibrated, mark_of
from levelhead.core.results import Inconclusive, Measurement, Record
from levelhead.measure.aspects import corrected
from levelhead.measure.compare import Comparison
from levelhead.report.theme import ends, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate
    from levelhead.study.audit import Audit
    from levelhead.study.fitting import Role

LEVEL = 0.05
Status = Literal["differs", "unclear", "not shown", "no test", "not measured"]
SIGNS: dict[Status, str] = {
    "differs": "differs from parity",
    "unclear": "test and interval disagree",
    "not shown": "no difference shown",
    "no test": "no parity to test against",
    "not measured": "not measured",
}
NOT_SHOWN = (
    "What no ruler here asks: other groups, languages, domains and tasks.",
    "That groups are treated alike. Where no difference is shown, one smaller than the least "
    "effect beside it may still be there.",
    "How the model behaves in your application: intrinsic scores often do not predict it "
    "(Dawkins et al. 2024). Measure that, too: levelhead measure -m counterfactual.",
)


class Ruled(NamedTuple):
    """What one ruler says."""

    name: str
    role: Role
    status: Status
    measurement: Measurement | None
    why: str
    """In words."""


class Verdict(NamedTuple):
    """What all say together."""

    headline: str
    sentences: tuple[str, ...]
    rulers: tuple[Ruled, ...]
    comparisons: tuple[Comparison, ...]
    """With p corrected together."""


NOT_REACHED = Inconclusive(
    what="the run ended before it was asked", mend="call the audit again: it goes on from there"
)


def unreached(audit: Audit, results: Mapping[str, Record]) -> dict[str, Inconclusive]:
    """The rulers of an audit that has not ended, which it has not come to."""
    asked = {step.rpartition(".")[2] for step in results if step.startswith("cell.")}
    return {name: NOT_REACHED for name, _ in audit.roles if name not in asked}


def verdict(audit: Audit, results: Mapping[str, Record]) -> Verdict:
    """The rulers' p-values are corrected together (Holm); so are those of the differences."""
    roles = dict(audit.roles)
    cells = {
        step.rpartition(".")[2]: one for step, one in results.items() if step.startswith("cell.")
    }
    found = {name: one for name, one in cells.items() if isinstance(one, Measurement)}
    biases = [name for name in found if roles.get(name) == "bias"]
    adjusted = dict(zip(biases, corrected([found[name] for name in biases]), strict=True))
    rulers = [
        _ruled(name, role, adjusted.get(name, cells.get(name, NOT_REACHED)))
        for name, role in audit.roles  # in the audit's order, whichever the results are in
    ]
    compared = _compared(results)
    return Verdict(
        _headline(rulers), _sentences(rulers, compared, results), tuple(rulers), compared
    )


def _ruled(name: str, role: Role, one: Record) -> Ruled:
    if isinstance(one, Inconclusive):
        return Ruled(name, role, "not measured", None, one.what)
    if not isinstance(one, Measurement):
        raise TypeError(f"{name} is no measurement")  # `finished` reads by kind
    p = p_of(one)
    told = f"{number(one.value)} {ends(one.interval.low, one.interval.high)}"
    if role == "price" or one.parity is None or p is None:
        return Ruled(name, role, "no test", one, told)
    told += f", parity {number(one.parity)}"
    holds = one.interval.low <= one.parity <= one.interval.high
    if p <= LEVEL and not holds:
        return Ruled(name, role, "differs", one, told)
    if p <= LEVEL:
        # Words dealt anew keep their contexts, and a lean is tested by itself: neither "differs"
        # nor "no difference" follows.
        return Ruled(name, role, "unclear", one, f"{told}, within the interval; p {number(p)}")
    least = "" if one.detectable is None else f"; {number(one.detectable)} would have been found"
    return Ruled(name, role, "not shown", one, told + least)


def p_of(one: Measurement | Estimate) -> float | None:
    """The p-value, corrected if it is one of a family."""
    if one.p is None:
        return None
    return one.p.value if one.p.adjusted is None else one.p.adjusted


def _compared(results: Mapping[str, Record]) -> tuple[Comparison, ...]:
    found = [one for one in results.values() if isinstance(one, Comparison)]
    differences = corrected([one.difference for one in found])
    return tuple(
        one.model_copy(update={"difference": difference})
        for one, difference in zip(found, differences, strict=True)
    )


def _headline(rulers: Sequence[Ruled]) -> str:
    bias = [one for one in rulers if one.role == "bias"]
    differs = sum(one.status == "differs" for one in bias)
    if not any(one.measurement for one in bias):
        return "No ruler of bias could be read: this audit says nothing about bias."
    several = len(bias) != 1
    rulers_of = f"{len(bias)} ruler{'s' * several} of bias"
    verb = "tell" if differs != 1 else "tells"
    unread = sum(one.measurement is None for one in bias)
    lacking = f" {unread} could not be read." if unread else ""  # which is not "no difference"
    unclear = sum(one.status == "unclear" for one in bias)
    lacking += f" Test and interval of {unclear} disagree." if unclear else ""
    failed = sum(bool(mark_of(one.measurement)) for one in bias)
    lacking += f" {failed} failed where the truth is known." if failed else ""
    return f"{differs} of {rulers_of} {verb} this model from parity.{lacking}"


def _sentences(
    rulers: Sequence[Ruled], compared: Sequence[Comparison], results: Mapping[str, Record]
) -> tuple[str, ...]:
    told = []
    by: dict[Status, list[Ruled]] = {status: [] for status in SIGNS}
    for one in rulers:
        if one.role == "bias":
            by[one.status].append(one)
    for status, own in by.items():
        if own:
            listed = "; ".join(f"{one.name} ({one.why})" for one in own)
            told.append(f"{SIGNS[status].capitalize()}: {listed}.")
    failed = [
        f"{one.name} ({'; '.join(found.why)})"
        for one in rulers
        if one.role == "bias"
        and one.measurement is not None
        and (found := calibrated(one.measurement)) is not None
        and found.verdict == "misses"
    ]
    if failed:
        told.append(f"Not to be relied on, by models whose bias is known: {'; '.join(failed)}.")
    price = [f"{one.name} {one.why}" for one in rulers if one.role == "price" and one.measurement]
    if price:
        told.append(f"What it can do otherwise: {'; '.join(price)}.")
    told += [f"Item by item, second less first: {one}." for one in compared]
    told += [
        f"The edit, {step.partition('.')[2]}: {one.verdict} ({one.why})."  # type: ignore[attr-defined]
        for step, one in results.items()
        if step.startswith("removed.") and not isinstance(one, Inconclusive)
    ]
    return tuple(told)
