"""Claims in the Results of Zhang 2023, which hold for a model or not, or are undecided.

The paper reports no numbers; each claim is stated as the weakest form that would make it true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.results import Estimate, Record
from levelhead.explain.prompting.contrasts import (
    Decision,
    PromptContrast,
    Verdict,
    matches_paper_direction,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

ModelKind = Literal["masked", "causal", "any"]
Side = Literal["turned", "same"]
"""Position of the margin with knowledge: beyond 0, or on the same side as without."""


class ClaimResult(Record):
    """One claim of the paper, and whether it holds for a model."""

    claim: str
    estimate: Estimate
    """Estimate that the verdict is based on."""
    verdict: str
    holds: Decision


class PaperClaim(NamedTuple):
    """A claim about one kind of knowledge."""

    text: str
    kind: str
    expected: tuple[Verdict, ...] | Side
    """Verdicts with which it is true; or the side of 0 that the margin must then be on."""
    model_kind: ModelKind = "any"


TURNED_SIDE: Side = "turned"
SMALLER_VERDICTS: tuple[Verdict, ...] = ("mitigated", "overturned")
# Zhang 2023, Results. A claim on the size of a change needs a verdict, one on its direction only a
# side of 0.
CLAIMS = (
    PaperClaim("similar syntax enhances the stereotype", "target_syntactic_similar", ("enhanced",)),
    PaperClaim("similar meaning enhances it", "target_semantic_similar", ("enhanced",)),
    PaperClaim(
        "neutral knowledge turns masked models round", "target_neutral", TURNED_SIDE, "masked"
    ),
    PaperClaim(
        "neutral knowledge leaves causal models alone", "target_neutral", ("unchanged",), "causal"
    ),
    PaperClaim(
        "a counterexample of similar syntax shrinks the margin",
        "target_counter_syntactic_similar",
        SMALLER_VERDICTS,
    ),
    PaperClaim(
        "a counterexample of similar meaning does not overturn",
        "target_counter_semantic_similar",
        "same",
    ),
    PaperClaim(
        "a counterexample of another occupation, similar syntax, overturns",
        "background_counter_syntactic_similar",
        TURNED_SIDE,
    ),
    PaperClaim(
        "a counterexample of another occupation, similar meaning, overturns",
        "background_counter_semantic_similar",
        TURNED_SIDE,
    ),
    PaperClaim(
        "neutral knowledge of another occupation overturns",
        "target_neutral_background_counter",
        TURNED_SIDE,
    ),
)


def check_paper_claims(
    base: Estimate, contrasts: Sequence[PromptContrast], *, syntax: Estimate | None, causal: bool
) -> tuple[ClaimResult, ...]:
    """Evaluate the paper's claims for one model.

    Args:
        base: Margin without knowledge.
        contrasts: Contrasts of the kinds of knowledge.
        syntax: Change by a counterexample of similar syntax less that by one of similar meaning,
            paired by occupation.
        causal: Whether the model is causal.
    """
    kinds = {contrast.kind: contrast for contrast in contrasts}
    results = [
        ClaimResult(
            claim="without knowledge the model prefers the dominating group",
            estimate=base,
            verdict=_describe_sign(base),
            holds="undecided" if 0 in base.interval else "yes" if base.value > 0 else "no",
        )
    ]
    if (unrelated := kinds.get("unrelated")) is not None:
        results.append(_check_unrelated(base, unrelated))
    model_kind: ModelKind = "causal" if causal else "masked"
    for claim in CLAIMS:
        contrast = kinds.get(claim.kind)
        if contrast is not None and claim.model_kind in ("any", model_kind):
            results.append(_check_claim(claim, contrast, base))
    if syntax is not None:
        results.append(_check_syntax(base, syntax))
    return tuple(results)


def _check_claim(claim: PaperClaim, contrast: PromptContrast, base: Estimate) -> ClaimResult:
    if not isinstance(claim.expected, str):
        holds = matches_paper_direction(contrast.verdict, claim.expected, base)
        return ClaimResult(
            claim=claim.text, estimate=contrast.change, verdict=contrast.verdict, holds=holds
        )
    side = _side(base, contrast.margin)
    holds = "undecided" if side is None else "yes" if side == claim.expected else "no"
    verdict = f"{contrast.verdict}; {_describe_sign(contrast.margin)}"
    return ClaimResult(claim=claim.text, estimate=contrast.margin, verdict=verdict, holds=holds)


def _side(base: Estimate, margin: Estimate) -> Side | None:
    """Side of 0 that a stereotype moved to; None if it, or the move, is not distinct from 0."""
    # The claims are about stereotypes: where the model has none without knowledge, none can turn.
    if base.interval.low <= 0 or 0 in margin.interval:
        return None
    return "same" if margin.value > 0 else "turned"


def _check_unrelated(base: Estimate, unrelated: PromptContrast) -> ClaimResult:
    """Whether the preference stays on its side, whatever its size, as the paper claims."""
    margin = unrelated.margin
    if 0 in base.interval or 0 in margin.interval:
        holds: Decision = "undecided"
    else:
        holds = "yes" if margin.value * base.value > 0 else "no"
    return ClaimResult(
        claim="unrelated knowledge leaves the preference",
        estimate=margin,
        verdict=f"{unrelated.verdict}; {_describe_sign(margin)}",
        holds=holds,
    )


def _check_syntax(base: Estimate, syntax: Estimate) -> ClaimResult:
    """Whether counterexamples act by syntax: those of similar syntax have larger effects."""
    if base.interval.low <= 0 or 0 in syntax.interval:
        holds: Decision = "undecided"
    else:
        holds = "yes" if syntax.value < 0 else "no"
    return ClaimResult(
        claim="similar syntax counters more than similar meaning",
        estimate=syntax,
        verdict=_describe_sign(syntax),
        holds=holds,
    )


def _describe_sign(estimate: Estimate) -> str:
    if 0 in estimate.interval:
        return "not distinct from 0"
    return "above 0" if estimate.value > 0 else "below 0"
