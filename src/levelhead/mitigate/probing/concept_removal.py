"""Removed or hidden: can the group still be read from a model's vectors after an edit?

A smaller value of a measure does not show that the bias is gone: "lipstick on a pig" (Gonen and
Goldberg 2019) describes the bias that remains where the measure does not look. Probes that were
fixed in advance use words and texts that the edit was not fitted on, at a site that later parts of
the model read:

- removed: the upper bound of the AUC of both probes is at most 0.55;
- hidden: a lower bound is at least 0.60, and a measure is shown to have fallen;
- unclear: all other cases, and cases in which the data could not have shown it.

Both bounds are ends of one interval of level 0.9: one-sided bounds of 0.95, as in tests of
equivalence (Schuirmann 1987). "Removed" is a statement about these probes at this site only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, final

import torch
from pydantic import Field

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import DroppedItem, Estimate, Provenance, Record
from levelhead.core.run_context import Inference
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs_digest
from levelhead.data.counterfactuals.held_out import assign_word_units, fitted_words
from levelhead.mitigate.probing.probe_report import (
    CHANCE,
    LABEL_PERMUTATIONS,
    ProbeReport,
    probe_vectors,
)
from levelhead.mitigate.probing.probes import (
    C_VALUES,
    FOLDS,
    INNER_FOLDS,
    PCA_COMPONENTS,
    REPEATS,
    label_vectors,
)
from levelhead.mitigate.projection.edit_points import has_pooled
from levelhead.mitigate.projection.subspace import (
    default_pooling,
    drop_unreadable_pairs,
    paired_activations,
)
from levelhead.models.sites import Site, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.mitigate.probing.probes import LabelledVectors
    from levelhead.mitigate.projection.subspace import ActivationPooling
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM

RemovalVerdict = Literal["removed", "hidden", "unclear"]
# Two bounds with a gap between them: an AUC in the gap is "unclear", not one of two verdicts.
REMOVED_BELOW, PRESENT_ABOVE = 0.55, 0.60
"""Bounds of the AUC, which were fixed before any experiment."""
# The ends of a two-sided 90% interval are one-sided 95% bounds, which verdicts use.
LEVEL = 0.9
EQUATION = "AUC of probes on held-out words; after Gonen and Goldberg 2019, Hewitt and Liang 2019"


class ExplainedVerdict(NamedTuple):
    """A verdict and its reason."""

    verdict: RemovalVerdict
    reason: str


@final
@dataclass(frozen=True)
class BiasReductionEvidence:
    """Evidence that an edit reduces a measure of bias."""

    gain: Estimate | bool | None = None
    """Gain of the measure, or whether it fell; None if no measure was computed."""
    measured_by: MeasureKey | None = None
    """Key of that measure with this type of model."""


@final
@dataclass(frozen=True)
class ProbeConfig:
    """Vectors that probes read, and the number of label permutations."""

    sites: Sequence[Site] | None = None
    """Sites of the vectors; by default those that the model's heads read (`output_head_sites`)."""
    pooling: ActivationPooling | None = None
    """Tokens of the vectors; by default those that an edit at the site acts on."""
    label_permutations: int = LABEL_PERMUTATIONS


class SiteRemoval(Record):
    """One site, before and after the edit."""

    site: tuple[Stream, int, int | None]
    pooling: str
    verdict: RemovalVerdict
    reason: str
    before: ProbeReport
    after: ProbeReport


class RemovalReport(Record):
    """Whether the groups are still separable, at every site that was probed."""

    verdict: RemovalVerdict
    """Hidden if the group is hidden at any site, removed if it is removed at all sites."""
    reason: str
    sites: Annotated[tuple[SiteRemoval, ...], Field(min_length=1)]
    bias_reduction: Estimate | bool | None
    """Gain of the measure that the edit is to reduce, or whether it fell."""
    bias_measure: MeasureKey | None = None
    """Key of that measure with this type of model."""
    words: Annotated[int, Field(ge=1)]
    """Number of groups of words that share no counterfactual, which are split into training and
    test."""
    n: Annotated[int, Field(ge=1)]
    """Number of pairs of texts."""
    dropped: tuple[DroppedItem, ...]
    notes: tuple[str, ...] = ()
    provenance: Provenance


def decide_removal(
    before: ProbeReport, after: ProbeReport, *, bias_reduction: Estimate | bool | None
) -> ExplainedVerdict:
    """Decide between removed, hidden and unclear from probes before and after an edit.

    Args:
        before: Probes of the unedited model.
        after: Probes of the edited model.
        bias_reduction: Gain of a measure of bias, or whether it fell; None if none was computed.
    """
    # A group that could not be read before cannot be called removed.
    if not _readable_evidence(before):
        return ExplainedVerdict(
            "unclear", "the groups were not separable before the edit: nothing to remove"
        )
    if evidence := _readable_evidence(after):
        if is_bias_reduced(bias_reduction):
            return ExplainedVerdict("hidden", f"the measure fell, and {evidence}")
        fell = (
            "no measure was given"
            if bias_reduction is None
            else "the measure is not shown to have fallen"
        )
        return ExplainedVerdict("unclear", f"still readable ({evidence}); {fell}")
    for probe in after.probes:
        if reason := _why_not_removed(probe.auc):
            return ExplainedVerdict("unclear", reason)
    return ExplainedVerdict(
        "removed", f"no probe is above {REMOVED_BELOW}: {_describe_aucs(after)}"
    )


def is_bias_reduced(bias_reduction: Estimate | bool | None) -> bool:
    """Whether a measure is shown to have fallen: its gain has an interval above 0."""
    return (
        bias_reduction.interval.low > 0
        if isinstance(bias_reduction, Estimate)
        else bool(bias_reduction)
    )


def output_head_sites(lm: LM) -> tuple[Site, ...]:
    """Sites that a model's heads read: its pooled vector, its last layer, or both."""
    last = Site("block_out", lm.layout.layers - 1)
    if not has_pooled(lm):
        return (last,)
    return (Site("pooled"), last) if lm.heads & {"masked", "causal"} else (Site("pooled"),)


def concept_removal(
    lm: LM,
    edits: Sequence[Edit],
    pairs: Sequence[ContrastPair],
    *,
    fitted_on: Iterable[str | ContrastPair],
    bias_reduction: BiasReductionEvidence = BiasReductionEvidence(),
    probes: ProbeConfig = ProbeConfig(),
    inference: Inference = Inference(resamples=499, level=LEVEL),
    on_step: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> RemovalReport:
    """Test an edit by probes on words and texts that it was not fitted on.

    Args:
        lm: The unedited model.
        edits: The edits to test.
        pairs: Held-out texts, such as `held_out_pairs("gender-en", fitted_on=...)`.
        fitted_on: Words, or pairs of texts, that the edits were fitted or chosen on; pairs with one
            of them raise an error.
        bias_reduction: Gain of the measure that the edits are to reduce.
        probes: Sites, tokens and number of label permutations.
        inference: Seed of folds, permutations and resamples; resamples of the words; level of the
            intervals, whose ends are the bounds.
        on_step: Callback that receives the stage, the steps done and the total.
    """
    _forbid_fitted_words(pairs, fitted_on)
    # Narrower bounds would call a group removed, or hidden, on less evidence.
    if inference.level < LEVEL:
        raise LevelheadError(
            f"bounds of level {inference.level:g} show little", hint=f"give {LEVEL} or more"
        )
    readable_pairs, dropped = drop_unreadable_pairs(lm, pairs)
    if not readable_pairs:
        raise NotMeasurableError(
            "the model can read no pair" + (f": {dropped[0].reason}" if dropped else ""),
            hint="give pairs of words that its vocabulary has",
        )
    pooling = probes.pooling
    probed_sites = (
        output_head_sites(lm) if probes.sites is None else tuple(dict.fromkeys(probes.sites))
    )
    edited = lm.edited(*edits)
    sides = [
        paired_activations(model, readable_pairs, probed_sites, pooling=pooling)
        for model in (lm, edited)
    ]
    # Bitwise equal vectors: the edit acts behind this site, and probes there would test no edit.
    untouched = [site for site in probed_sites if _are_equal(sides[0][site], sides[1][site])]
    if len(untouched) == len(probed_sites):
        raise LevelheadError(
            f"the edit changes nothing at {', '.join(map(str, probed_sites))}",
            hint="read a site at or behind the edit",
        )
    # Words that share a counterpart are one unit, or training would hold the other side of test
    # words.
    units = assign_word_units(readable_pairs)

    def _probe_site(site_vectors: tuple[torch.Tensor, torch.Tensor], label: str) -> ProbeReport:
        data = _label_pairs(site_vectors, readable_pairs, units)
        on_training = _step_reporter(on_step, label)
        return probe_vectors(
            data,
            inference=inference,
            label_permutations=probes.label_permutations,
            on_step=on_training,
        )

    site_results = []
    for site in probed_sites:
        before = _probe_site(sides[0][site], f"{site} before")
        is_untouched = site in untouched
        after = before if is_untouched else _probe_site(sides[1][site], f"{site} after")
        explained = decide_removal(before, after, bias_reduction=bias_reduction.gain)
        site_results.append(
            SiteRemoval(
                site=(site.stream, site.layer, site.head),
                pooling=pooling or default_pooling(lm, site),
                verdict=explained.verdict,
                reason=explained.reason,
                before=before,
                after=after,
            )
        )
    overall = combine_verdicts(site_results)
    return RemovalReport(
        verdict=overall.verdict,
        reason=overall.reason,
        sites=tuple(site_results),
        bias_reduction=bias_reduction.gain,
        bias_measure=bias_reduction.measured_by,
        words=len(set(units)),
        n=len(readable_pairs),
        dropped=dropped,
        notes=tuple(f"{site}: the edit changes nothing there" for site in untouched),
        provenance=Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in edited.edits),
            data={"pairs": contrast_pairs_digest(readable_pairs)},
            equation=EQUATION,
            seed=inference.seed,
            settings=_settings()
            | {
                "label_permutations": probes.label_permutations,
                "resamples": inference.resamples,
                "level": inference.level,
            },
        ),
    )


def combine_verdicts(site_results: Sequence[SiteRemoval]) -> ExplainedVerdict:
    """Combine the verdicts of sites: hidden at any site is hidden, removed must hold at all."""
    reasons = [
        (f"{Site(*result.site)}: {result.reason}", result.verdict) for result in site_results
    ]
    # One site at which the groups are readable refutes "removed", whatever the others say.
    for decisive in ("hidden", "unclear"):
        for reason, site_verdict in reasons:
            if site_verdict == decisive:
                return ExplainedVerdict(site_verdict, reason)
    return ExplainedVerdict("removed", "; ".join(reason for reason, _ in reasons))


def _readable_evidence(report: ProbeReport) -> str:
    """The evidence that groups are separable, as text; empty if it is not shown."""
    best = max((probe.auc for probe in report.probes), key=lambda auc: auc.interval.low)
    return f"{best}" if best.interval.low >= PRESENT_ABOVE else ""


def _why_not_removed(auc: Estimate) -> str:
    """Reason why an AUC does not show that a group is gone; empty if it does."""
    if auc.interval.high > REMOVED_BELOW:
        return f"neither gone nor shown to be there: {auc}"
    # An AUC below 0.5 shows a rule that holds the wrong way round: the groups are still readable.
    if auc.value < 1 - REMOVED_BELOW and auc.interval.high < CHANCE:
        return f"below chance, which is readable too: {auc}"
    # Absence of evidence is no removal where the sample could not have shown a readable group.
    if auc.detectable is not None and CHANCE + auc.detectable > PRESENT_ABOVE:
        return f"too few words: the least AUC they could show is {CHANCE + auc.detectable:.2f}"
    return ""


def _describe_aucs(report: ProbeReport) -> str:
    return ", ".join(str(probe.auc) for probe in report.probes)


def _settings() -> dict[str, object]:
    return {
        "folds": FOLDS,
        "inner folds": INNER_FOLDS,
        "repeats": REPEATS,
        "linear": list(C_VALUES),
        "nonlinear": list(PCA_COMPONENTS),
        "gone": REMOVED_BELOW,
        "there": PRESENT_ABOVE,
    }


def _forbid_fitted_words(
    pairs: Sequence[ContrastPair], fitted_on: Iterable[str | ContrastPair]
) -> None:
    used = fitted_words(fitted_on)
    overlap = sorted(fitted_words(pairs) & used)
    if overlap:
        raise LevelheadError(
            f"{len(overlap)} words of the pairs were used for the edit: {', '.join(overlap[:5])}",
            hint="take held_out_pairs(lexicon, fitted_on=...), which leaves them out and counts "
            "them",
        )


def _are_equal(first_sides: Sequence[torch.Tensor], second_sides: Sequence[torch.Tensor]) -> bool:
    return all(
        torch.equal(first, second) for first, second in zip(first_sides, second_sides, strict=True)
    )


def _label_pairs(
    sides: tuple[torch.Tensor, torch.Tensor], pairs: Sequence[ContrastPair], units: list[int]
) -> LabelledVectors:
    contexts = [pair.id.partition(": ")[2] for pair in pairs]
    return label_vectors(
        torch.cat(sides).numpy(),
        # All first texts, then all second ones, as `torch.cat(sides)` has them.
        [True] * len(pairs) + [False] * len(pairs),
        units * 2,
        contexts=contexts * 2,
    )


def _step_reporter(
    on_step: Callable[[str, int, int], None], label: str
) -> Callable[[int, int], None]:
    return lambda done, total: on_step(label, done, total)
