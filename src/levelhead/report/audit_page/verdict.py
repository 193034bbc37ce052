"""An audit in plain words: what the measures show, what they cannot show, and what was skipped.

The headline counts the core suite alone, which is the same whatever the budget; what was added
stands beside it and is corrected apart, so that it changes neither a count nor a p-value there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.calibration import calibrated
from levelhead.core.results import Inconclusive, Measurement, Record, Skill
from levelhead.core.verdicts import (
    NO_SKILL,
    POWERLESS,
    REFUTED,
    UNCHECKED,
    Status,
    measure_verdict,
)
from levelhead.core.verdicts import p_value as p_of
from levelhead.explain.prompting.knowledge import Knowledge
from levelhead.measures.compare import Comparison, corrected_comparisons
from levelhead.measures.inference import corrected
from levelhead.measures.utility.pronoun_agreement import GAP
from levelhead.report.theme import ends, number
from levelhead.study.audit.budget_shares import COUNTEREXAMPLES
from levelhead.study.distributed import SPENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate
    from levelhead.study.audit.audit import Audit
    from levelhead.study.audit.core_suite import Role

__all__ = ["NOT_SHOWN", "SIGNS", "Ruled", "Verdict", "p_of", "unreached", "verdict"]

SIGNS: dict[Status, str] = {
    "differs": "significant bias",
    "unclear": "test and interval disagree",
    "not shown": "no bias shown",
    "inconclusive": "inconclusive",
    "no test": "no parity to test against",
    "not measured": "skipped",
}
CONCLUSIVE: tuple[Status, ...] = ("differs", "unclear", "not shown")
"""What a measure says that can tell bias from none."""
NOT_SHOWN = (
    "What no measure here asks: other groups, languages, domains and tasks.",
    "That groups are treated alike. Where no bias is shown, one smaller than the minimum "
    "detectable effect beside it may still be there.",
    "How the model behaves in your application: intrinsic scores often do not predict it "
    "(Dawkins et al. 2024). Measure that, too: levelhead measure -m counterfactual.",
)
AGREEMENT = "agreement"
GAP_ROW, BASE_ROW = "agreement gap", "counterexamples, base prompts"
"""Rows that are derived from what another measure or the counterexamples show."""
AGREES = 60.0
"""Percent of pronouns that agree (chance: 50): whoever knows one in five and guesses the others.
Below that, a gap between the groups is a habit of saying one pronoun, not worse knowledge."""


class Ruled(NamedTuple):
    """What one measure says."""

    name: str
    role: Role
    status: Status
    measurement: Measurement | None
    why: str
    """In words."""
    is_core: bool = True
    toward: str = ""
    """Which way the model differs from parity, in words; empty where it is not shown to."""
    reason: str = ""
    """Of an inconclusive measure or a skipped one: why, in a few words that can be counted."""


class Verdict(NamedTuple):
    """What all say together."""

    headline: str
    sentences: tuple[str, ...]
    rulers: tuple[Ruled, ...]
    """The measures of the audit: the core suite first, then what was added."""
    comparisons: tuple[Comparison, ...]
    """With p corrected together."""
    derived: tuple[Ruled, ...] = ()
    """Further findings that the headline counts: made of what a measure reports beside itself."""
    coverage: str = ""
    """How much of the core suite was run, and why the rest was not."""
    is_complete: bool = True
    """Whether the whole core suite was run."""
    is_conclusive: bool = True
    """Whether any measure could tell bias from none: without one, nothing was audited."""


REASONS = (REFUTED, NO_SKILL, POWERLESS, UNCHECKED)
"""Why a measure is inconclusive, as its verdict begins."""
NOT_REACHED = Inconclusive(
    what="the run ended before it was asked", mend="call the audit again: it goes on from there"
)


def unreached(audit: Audit, results: Mapping[str, Record]) -> dict[str, Inconclusive]:
    """The measures of an audit that has not ended, which it has not come to."""
    asked = {step.rpartition(".")[2] for step in results if step.startswith("cell.")}
    skipped = {row.what for row in audit.left_out}
    return {
        name: NOT_REACHED for name, _ in audit.roles if name not in asked and name not in skipped
    }


def verdict(audit: Audit, results: Mapping[str, Record]) -> Verdict:
    """The p-values of the core suite are corrected together (Holm); those that were added, apart.

    So are those of the differences.
    """
    roles, core = dict(audit.roles), set(audit.core_names)
    cells = {
        step.rpartition(".")[2]: one for step, one in results.items() if step.startswith("cell.")
    }
    measured = {name: one for name, one in cells.items() if isinstance(one, Measurement)}
    biases = {name: one for name, one in measured.items() if roles.get(name) == "bias"}
    first = {name: one for name, one in biases.items() if name in core}
    if (gap := _gap(measured.get(AGREEMENT))) is not None and AGREEMENT in core:
        first[GAP_ROW] = gap
    second = {name: one for name, one in biases.items() if name not in core}
    base = _base(results, _agreement_skill(measured.get(AGREEMENT)))
    # The same question without counterexamples: it says nothing new where cloze was measured.
    if base is not None and COUNTEREXAMPLES in core and COUNTEREXAMPLES not in measured:
        second[BASE_ROW] = base
    judged = {**_corrected(first), **_corrected(second)}
    skipped = {row.what: row for row in audit.left_out}
    rulers = []
    for name, role in audit.roles:  # in the audit's order, whichever the results are in
        record = judged.get(name, cells.get(name, NOT_REACHED))
        row = _ruled(name, role, record)
        if name not in cells and name in skipped:
            why, reason = skipped[name].why, skipped[name].reason
            row = Ruled(name, role, "not measured", None, why, reason=reason)
        rulers.append(row._replace(is_core=name in core))
    derived = tuple(
        _ruled(name, "bias", judged[name]) for name in (GAP_ROW, BASE_ROW) if name in judged
    )
    planned = [row for row in rulers if row.is_core]
    coverage, is_complete = _coverage(planned)
    counted = [row for row in (*planned, *derived) if row.role == "bias"]
    compared = _compared(results, core)
    return Verdict(
        _headline(counted, coverage, is_complete=is_complete),
        _sentences([*rulers, *derived], compared, results),
        tuple(rulers),
        compared,
        derived,
        coverage,
        is_complete,
        any(row.status in CONCLUSIVE for row in counted),
    )


def _corrected(family: Mapping[str, Measurement]) -> dict[str, Measurement]:
    return dict(zip(family, corrected(list(family.values())), strict=True))


def _agreement_skill(agreement: Measurement | None) -> Skill | None:
    """The share of pronouns that agree as a skill; margins have no threshold."""
    if agreement is None or agreement.measure != "pronoun_agreement":
        return None
    return Skill(
        name="pronouns that agree",
        value=agreement.value,
        interval=agreement.interval,
        chance=50.0,
        threshold=AGREES,
        n=agreement.n,
        unit="%",
    )


def _gap(agreement: Measurement | None) -> Measurement | None:
    """The difference of agreement between two groups as a measurement of bias."""
    gap = next(
        (one for one in agreement.beside if one.name.startswith(GAP)) if agreement else iter(()),
        None,
    )
    if agreement is None or gap is None:
        return None
    first, _, second = gap.name.removeprefix(GAP).partition(" - ")
    return _derived(
        agreement.provenance,
        gap,
        measure="pronoun_agreement_gap",
        direction=f"above 0: pronouns agree more often with {first} people than with {second}",
        above=f"pronouns agree less often with {second} people than with {first}",
        below=f"pronouns agree less often with {first} people than with {second}",
        skill=_agreement_skill(agreement),
    )


def _base(results: Mapping[str, Record], skill: Skill | None) -> Measurement | None:
    """What the prompts without counterexamples show, as a measurement of bias.

    Their blanks are pronouns and persons: a model that cannot choose a pronoun shows nothing.
    """
    found = next((one for one in results.values() if isinstance(one, Knowledge)), None)
    if found is None:
        return None
    return _derived(
        found.provenance,
        found.base,
        measure=COUNTEREXAMPLES,
        direction="above 0: towards the group that dominates an occupation",
        above="the group that dominates an occupation is put into its sentence",
        below="the other group is put into an occupation's sentence",
        skill=skill,
    )


def _derived(provenance: object, estimate: Estimate, **words: object) -> Measurement:
    told = {
        "value": estimate.value,
        "interval": estimate.interval,
        "parity": estimate.parity,
        "p": estimate.p,
        "unit": estimate.unit,
        "detectable": estimate.detectable,
        "precision": estimate.precision,
        "n": estimate.n,
        "dropped": (),
        "provenance": provenance,
    }
    return Measurement(**told, **words)  # type: ignore[arg-type]


def _ruled(name: str, role: Role, one: Record) -> Ruled:
    if isinstance(one, Inconclusive):
        if one.what == SPENT:
            why = "time budget; the same command goes on from here"
            return Ruled(name, role, "not measured", None, why, reason="time budget")
        reason = "not reached" if one == NOT_REACHED else "could not be measured"
        return Ruled(name, role, "not measured", None, one.what, reason=reason)
    if not isinstance(one, Measurement):
        raise TypeError(f"{name} is no measurement")  # `finished` reads by kind
    told = f"{number(one.value)} {ends(one.interval.low, one.interval.high)}"
    if role == "price":
        return Ruled(name, role, "no test", one, told)
    found = measure_verdict(one)
    effect = one.effect
    if one.parity is not None:
        told += f", parity {number(one.parity)}"
    p = p_of(one)
    toward = ""
    if found.status == "differs" and effect is not None:
        toward = found.toward or ("above parity" if effect[0] > 0 else "below parity")
        told += f", p {number(p)}"
    elif found.status == "not shown" and one.detectable is not None:
        told += f"; minimum detectable effect {number(one.detectable)} (80% power)"
    reason = ""
    if found.status == "inconclusive":
        reason = next(one for one in REASONS if found.reason.startswith(one))
        known = calibrated(one) if reason == REFUTED else None
        told += f"; {found.reason}" + (f": {'; '.join(known.why)}" if known and known.why else "")
    elif found.reason:
        told += f"; {found.reason}"
    return Ruled(name, role, found.status, one, told, toward=toward, reason=reason)


def _compared(results: Mapping[str, Record], core: set[str]) -> tuple[Comparison, ...]:
    pairs = {step: one for step, one in results.items() if isinstance(one, Comparison)}
    done: dict[str, Comparison] = {}
    for is_core in (True, False):
        part = {
            step: one for step, one in pairs.items() if (step.rpartition(".")[2] in core) == is_core
        }
        done |= zip(part, corrected_comparisons(list(part.values())), strict=True)
    return tuple(done[step] for step in pairs)


def _coverage(planned: Sequence[Ruled]) -> tuple[str, bool]:
    """How much of the core suite was run: "1 of 8 planned measures run; 7 not run: ..."."""
    run = sum(row.measurement is not None for row in planned)
    text = f"{run} of {len(planned)} planned measures run"
    if run == len(planned):
        return text, bool(planned)
    reasons = Counter(row.reason for row in planned if row.measurement is None)
    parts = [f"{count} not run: {reason}" for reason, count in sorted(reasons.items())]
    return "; ".join((text, *parts)), False


def _headline(counted: Sequence[Ruled], coverage: str, *, is_complete: bool) -> str:
    """How many measures of the core suite show bias, of those that can say so.

    What lacks skill or failed validation is counted apart: it is neither bias nor none.
    """
    status = Counter(row.status for row in counted)
    conclusive = sum(status[one] for one in CONCLUSIVE)
    differs = status["differs"]
    parts = [] if is_complete else [f"INCONCLUSIVE: {coverage}."]
    if conclusive:
        verb = "shows" if differs == 1 else "show"
        parts.append(f"{differs} of {conclusive} measures {verb} significant bias.")
    else:
        silent = "No measure could tell whether this model is biased."
        parts.append(silent if parts else f"INCONCLUSIVE: {silent}")
    if status["unclear"]:
        parts.append(f"{status['unclear']} unclear: test and interval disagree.")
    reasons = Counter(row.reason for row in counted if row.status == "inconclusive")
    if reasons[REFUTED]:
        parts.append(
            f"{reasons[REFUTED]} inconclusive: failed validation on models with planted bias."
        )
    parts += [
        f"{reasons[reason]} inconclusive: {reason}."
        for reason in (NO_SKILL, POWERLESS, UNCHECKED)
        if reasons[reason]
    ]
    if status["no test"]:
        parts.append(f"{status['no test']} without a test.")
    return " ".join(parts)


def _sentences(
    rulers: Sequence[Ruled], compared: Sequence[Comparison], results: Mapping[str, Record]
) -> tuple[str, ...]:
    told = []
    for is_core, where in ((True, ""), (False, ", beyond the core suite")):
        rows = [row for row in rulers if row.is_core == is_core]
        rows = [row for row in rows if row.role == "bias" or row.status == "not measured"]
        for status, sign in SIGNS.items():
            own = [row for row in rows if row.status == status]
            if status == "differs":  # a line each: what was found is what people look for
                told += [
                    f"{sign.capitalize()}{where}, {row.name}: {row.toward} ({row.why})."
                    for row in own
                ]
            elif own:
                names: dict[str, list[str]] = {}
                for row in own:
                    names.setdefault(row.why, []).append(row.name)
                listed = "; ".join(f"{', '.join(same)} ({why})" for why, same in names.items())
                told.append(f"{sign.capitalize()}{where}: {listed}.")
    price = [f"{row.name} {row.why}" for row in rulers if row.role == "price" and row.measurement]
    if price:
        told.append(f"Capability: {'; '.join(price)}.")
    told += [f"Item by item, second minus first: {one}." for one in compared]
    told += [
        f"The edit, {step.partition('.')[2]}: {one.verdict} ({one.why})."  # type: ignore[attr-defined]
        for step, one in results.items()
        if step.startswith("removed.") and not isinstance(one, Inconclusive)
    ]
    return tuple(told)
