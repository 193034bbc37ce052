"""What Zhang 2023 says in its Results, as rows that a model can answer: yes, no or undecided.

The paper reports no numbers; each claim is put as the least that would make it true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.results import Estimate, Record
from levelhead.explain.prompting.contrasts import Answer, Contrast, Verdict, is_expected

if TYPE_CHECKING:
    from collections.abc import Sequence

Of = Literal["masked", "causal", "any"]
Side = Literal["turned", "same"]
"""Of the margin with knowledge: beyond 0, or where it is without."""


class Finding(Record):
    """One claim of the paper, and whether it holds for a model."""

    claim: str
    number: Estimate
    """What it rests on."""
    verdict: str
    holds: Answer


class Claim(NamedTuple):
    """A claim on one kind of knowledge."""

    text: str
    kind: str
    holds: tuple[Verdict, ...] | Side
    """The verdicts with which it is true; or the side of 0 that the margin must then lie on."""
    of: Of = "any"


OVER: Side = "turned"
LESS: tuple[Verdict, ...] = ("mitigated", "overturned")
CLAIMS = (
    Claim("similar syntax enhances the stereotype", "target_syntactic_similar", ("enhanced",)),
    Claim("similar meaning enhances it", "target_semantic_similar", ("enhanced",)),
    Claim("neutral knowledge turns masked models round", "target_neutral", OVER, "masked"),
    Claim(
        "neutral knowledge leaves causal models alone", "target_neutral", ("unchanged",), "causal"
    ),
    Claim(
        "a counterexample of similar syntax shrinks the margin",
        "target_counter_syntactic_similar",
        LESS,
    ),
    Claim(
        "a counterexample of similar meaning does not overturn",
        "target_counter_semantic_similar",
        "same",
    ),
    Claim(
        "a counterexample of another occupation, similar syntax, overturns",
        "background_counter_syntactic_similar",
        OVER,
    ),
    Claim(
        "a counterexample of another occupation, similar meaning, overturns",
        "background_counter_semantic_similar",
        OVER,
    ),
    Claim(
        "neutral knowledge of another occupation overturns",
        "target_neutral_background_counter",
        OVER,
    ),
)


def findings(
    base: Estimate, contrasts: Sequence[Contrast], *, syntax: Estimate | None, causal: bool
) -> tuple[Finding, ...]:
    """The paper's claims on one model.

    Args:
        base: the margin without knowledge.
        contrasts: of the kinds of knowledge.
        syntax: the change by a counterexample of similar syntax, less that by one of similar
            meaning, occupation by occupation.
        causal: whether the model is causal.
    """
    kinds = {one.kind: one for one in contrasts}
    found = [
        Finding(
            claim="without knowledge the model prefers the dominating group",
            number=base,
            verdict=_told(base),
            holds="undecided" if 0 in base.interval else "yes" if base.value > 0 else "no",
        )
    ]
    if (unrelated := kinds.get("unrelated")) is not None:
        found.append(_robust(base, unrelated))
    of: Of = "causal" if causal else "masked"
    for claim in CLAIMS:
        own = kinds.get(claim.kind)
        if own is not None and claim.of in ("any", of):
            found.append(_claimed(claim, own, base))
    if syntax is not None:
        found.append(_syntax(base, syntax))
    return tuple(found)


def _claimed(claim: Claim, own: Contrast, base: Estimate) -> Finding:
    if not isinstance(claim.holds, str):
        holds = is_expected(own.verdict, claim.holds, base)
        return Finding(claim=claim.text, number=own.change, verdict=own.verdict, holds=holds)
    side = _side(base, own.margin)
    holds = "undecided" if side is None else "yes" if side == claim.holds else "no"
    told = f"{own.verdict}; {_told(own.margin)}"
    return Finding(claim=claim.text, number=own.margin, verdict=told, holds=holds)


def _side(base: Estimate, margin: Estimate) -> Side | None:
    """On which side of 0 a stereotype has come to lie; None where that, or itself, is not told."""
    if base.interval.low <= 0 or 0 in margin.interval:
        return None
    return "same" if margin.value > 0 else "turned"


def _robust(base: Estimate, unrelated: Contrast) -> Finding:
    """The preference stays on its side: the paper does not ask that its size does."""
    margin = unrelated.margin
    if 0 in base.interval or 0 in margin.interval:
        holds: Answer = "undecided"
    else:
        holds = "yes" if margin.value * base.value > 0 else "no"
    return Finding(
        claim="unrelated knowledge leaves the preference",
        number=margin,
        verdict=f"{unrelated.verdict}; {_told(margin)}",
        holds=holds,
    )


def _syntax(base: Estimate, syntax: Estimate) -> Finding:
    """Counterexamples work by syntax: those of similar syntax take more."""
    if base.interval.low <= 0 or 0 in syntax.interval:
        holds: Answer = "undecided"
    else:
        holds = "yes" if syntax.value < 0 else "no"
    return Finding(
        claim="similar syntax counters more than similar meaning",
        number=syntax,
        verdict=_told(syntax),
        holds=holds,
    )


def _told(one: Estimate) -> str:
    if 0 in one.interval:
        return "not told from 0"
    return "above 0" if one.value > 0 else "below 0"
