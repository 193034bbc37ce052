"""Candidate edits of a model: projections of a grid, and masks of the most important heads.

Steering edits are listed in mitigate/steering/candidates.py.

Dawkins et al. 2024, section 5, recommends against some settings of its grid:

- "Information weighting should be applied at the sentence representation layer to preserve model
  accuracy on the downstream task": sent is weighted;
- "multi-dimensional subspaces should always be accompanied by information weighting": two
  dimensions are weighted;
- attention helps "except if combined with a multi-dimensional gender subspace without the use of
  information weighting within the same layer".

These are findings on one model, not laws: `paper_rules=False` includes all settings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.run_context import RunContext
from levelhead.locate.attribution.gradient import compute_gradient
from levelhead.locate.head_map import head_label
from levelhead.measures.classification.controlled_difference import ControlledDifference
from levelhead.mitigate.evaluation.gain import bias_aggregate, keep_common_items
from levelhead.mitigate.evaluation.sweep import read_variant_responses
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.mitigate.projection.config_grid import ProjectionConfig, projection_grid
from levelhead.mitigate.projection.edit_points import (
    build_edits,
    fit_subspaces,
    has_pooled,
    list_edit_points,
)
from levelhead.mitigate.projection.subspace import drop_unreadable_pairs
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import DroppedItem
    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.forward.edit_sweep import EditSet
    from levelhead.models.lm import LM

Kind = Literal["projection", "mask", "steering"]
DEFAULT_KINDS: tuple[Kind, ...] = ("projection", "mask")
HeadRanking = Literal["gradient", "ablation"]
SIZES = (1, 2, 3, 5, 10, 20, 50)
"""Numbers of the first heads to mask."""
HARD_POOLED = "hard at sent costs accuracy"
TWO_HARD = "two dimensions without weighting"
ATTENTION = "attention beside two dimensions without weighting in its layer"


@final
@dataclass(frozen=True)
class CandidateGrid:
    """Candidate edits."""

    paper_rules: bool = True
    """Whether to leave out settings that the paper recommends against."""
    head_ranking: HeadRanking = "gradient"
    """Ranking of the heads."""
    sizes: Sequence[int] = SIZES
    """Numbers of the first heads to mask."""
    kinds: Sequence[Kind] = DEFAULT_KINDS
    """Kinds of edits. Steering is not tried by default: every candidate widens the joint bounds."""

    def __post_init__(self) -> None:
        if not self.kinds:
            raise LevelheadError(
                "no kind of edit", hint=f"give some of {', '.join(get_args(Kind))}"
            )
        for kind in self.kinds:
            require_option("kind of edit", kind, get_args(Kind))


class EditCandidate(NamedTuple):
    """Candidate edits of one kind, by name."""

    name: str
    kind: Kind
    description: str
    """Description of the edit."""
    edits: EditSet


class EditCandidates(NamedTuple):
    """All candidates, and the settings that were left out."""

    candidates: tuple[EditCandidate, ...]
    excluded: tuple[tuple[str, str], ...] = ()
    """Settings that the paper's rules leave out, with the rule."""
    dropped: tuple[DroppedItem, ...] = ()
    """Pairs of texts that the model cannot read."""
    notes: tuple[str, ...] = ()

    @property
    def edits(self) -> dict[str, EditSet]:
        """Edits by name, in an order that breaks ties."""
        return {candidate.name: candidate.edits for candidate in self.candidates}

    def merge(self, other: EditCandidates) -> EditCandidates:
        """The candidates of both."""
        return EditCandidates(
            self.candidates + other.candidates,
            self.excluded + other.excluded,
            self.dropped + other.dropped,
            self.notes + other.notes,
        )


def excluded_by_paper_rule(config: ProjectionConfig) -> str:
    """Rule of Dawkins et al. 2024, section 5, that leaves a setting out; empty if there is none.

    >>> excluded_by_paper_rule(ProjectionConfig.from_name("last 0,1,1"))
    'two dimensions without weighting'
    >>> excluded_by_paper_rule(ProjectionConfig.from_name("last 1,1,1"))
    ''
    """
    # The attention rule is first: such a setting breaks the next rule as well, and its reason is
    # the more specific.
    inner = config.penultimate
    if (
        config.edit_point == "penultimate+attn"
        and inner
        and inner.n_components == 2
        and not inner.weighted
    ):
        return ATTENTION
    # The attention always has one hard dimension, so the rule is about the other sites.
    steps = [config.step(group) for group in config.site_groups if group != "attn"]
    if any(step.n_components == 2 and not step.weighted for step in steps):
        return TWO_HARD
    if config.pooled is not None and not config.pooled.weighted:
        return HARD_POOLED
    return ""


def projection_candidates(
    lm: LM, pairs: Sequence[ContrastPair], *, paper_rules: bool = True
) -> EditCandidates:
    """Settings of the grid that fit the model, with subspaces fitted in one pass.

    Args:
        lm: The model.
        pairs: Pairs of texts that differ in the contrast; unreadable pairs are dropped.
        paper_rules: Whether to leave out settings by the paper's rules.
    """
    readable_pairs, dropped = drop_unreadable_pairs(lm, pairs)
    if not readable_pairs:
        raise NotMeasurableError(
            f"the model can read none of {len(pairs)} pairs of texts: {dropped[0].reason}"
            if dropped
            else "there is no pair of texts",
            hint="give a lexicon whose words the model knows",
        )
    configs = [
        config
        for config in projection_grid(pooled=has_pooled(lm))
        if config.edit_point in list_edit_points(lm)
    ]
    rules = {config: excluded_by_paper_rule(config) if paper_rules else "" for config in configs}
    # Once at the deepest level, which holds the sites of all settings.
    subspaces = fit_subspaces(lm, readable_pairs)
    return EditCandidates(
        tuple(
            EditCandidate(
                config.name, "projection", f"projections at {', '.join(config.site_groups)}", edits
            )
            for config, rule in rules.items()
            if not rule
            for edits in (build_edits(lm, config, subspaces),)
        ),
        tuple((config.name, rule) for config, rule in rules.items() if rule),
        dropped,
    )


def mask_candidates(
    lm: LM,
    measure: Measure,
    *,
    head_ranking: HeadRanking = "gradient",
    sizes: Sequence[int] = SIZES,
    context: RunContext = RunContext(),
) -> EditCandidates:
    """Masks of the first heads, ranked by their contribution to the bias on the measure's items.

    Args:
        lm: The model.
        measure: Measure of bias.
        head_ranking: The gradient of the bias by every head's mask (for a step function, that of
            its smooth surrogate), or exact ablation of one head after another.
        sizes: Numbers of heads; numbers larger than that of the heads that add to the bias are left
            out.
        context: Store, threads, progress and cancellation.
    """
    require_option("way to rank heads", head_ranking, get_args(HeadRanking))
    if not sizes or any(size < 1 for size in sizes):
        raise LevelheadError(f"masks of {list(sizes)} heads", hint="give numbers such as 1, 3, 5")
    rank = _by_gradient if head_ranking == "gradient" else _by_ablation
    try:
        # Without a ranking there are no masks to try, but there are still projections.
        scores, notes = rank(lm, measure, context)
    except NotMeasurableError as error:
        return EditCandidates((), notes=(f"no head is ranked: {error.problem}",))
    # Ties are ordered by position: equal scores must always give the same masks.
    order = sorted(scores, key=lambda site: (-scores[site], site.layer, site.head))
    # By its score, masking any other head would not lower the bias.
    adding = [site for site in order if scores[site] > 0]
    if not adding:
        return EditCandidates(
            (), notes=(*notes, f"no head adds to {measure.name} by {head_ranking}")
        )
    return EditCandidates(
        tuple(
            EditCandidate(
                f"mask {size}",
                "mask",
                f"heads {', '.join(map(head_label, adding[:size]))} masked",
                (mask_heads(adding[:size]),),
            )
            for size in sorted(set(sizes))
            # A larger number would mask the same heads under another name, and every further
            # candidate widens the joint bounds.
            if size <= len(adding)
        ),
        notes=notes,
    )


def with_smooth_surrogate(measure: Measure) -> Measure:
    """The measure itself, or the smooth surrogate of a step function, on the same items."""
    surrogate = measure.primary_metric.smooth_surrogate
    if surrogate is None:
        return measure
    if isinstance(measure, ControlledDifference):
        return measure.smooth
    # A surrogate of another measure has other items: its ranking would not be about this bias.
    if surrogate not in measure.metrics:
        raise NotMeasurableError(
            f"{measure.name} is a step function, and {surrogate} is another measure",
            hint="rank heads by ablation",
        )
    return replace(measure, metric=surrogate)


def _heads(lm: LM) -> list[Site]:
    layers, heads = lm.layout.layers, lm.layout.heads
    return [Site("head_out", layer, head) for layer in range(layers) for head in range(heads)]


def _by_gradient(
    lm: LM, measure: Measure, context: RunContext
) -> tuple[dict[Site, float], tuple[str, ...]]:
    """Derivative of the bias by every mask: the effect of masking, to first order."""
    smooth = with_smooth_surrogate(measure)
    responses = smooth.read(lm, context=context)[0]
    notes = () if smooth is measure else (f"heads are ranked by the gradient of {smooth.name}",)
    return rank_heads_by_gradient(lm, smooth, responses, context=context), notes


def rank_heads_by_gradient(
    lm: LM, measure: Measure, responses: Responses, *, context: RunContext = RunContext()
) -> dict[Site, float]:
    """Derivative of the distance from parity by the mask of every head.

    Args:
        lm: The model.
        measure: The measure; its primary metric must be smooth.
        responses: Responses of the model, to all items or to some.
        context: Store, threads, progress and cancellation.
    """
    shares = compute_gradient(
        lm, measure, responses, value_cotangents=_cotangents(measure, responses), context=context
    )
    grid = shares.total()
    return {site: float(grid[site.layer, site.head or 0]) for site in _heads(lm)}


def _cotangents(measure: Measure, responses: Responses) -> torch.Tensor:
    """Derivative of the distance from parity, which an edit is to reduce."""
    metric = measure.primary_metric
    values = responses.values.clone().requires_grad_()
    item_values = metric.per_item_values(replace(responses, values=values))
    bias = bias_aggregate(metric)(item_values, measure.design(responses, metric).full_sample)
    # Through |value - parity|: the derivative has the sign of the model's own bias.
    (cotangents,) = torch.autograd.grad(bias, values)
    return cotangents


def _by_ablation(
    lm: LM, measure: Measure, context: RunContext
) -> tuple[dict[Site, float], tuple[str, ...]]:
    """Decrease of the bias without each head; heads without a value are not ranked."""
    metric, aggregate = measure.primary_metric, bias_aggregate(measure.primary_metric)
    single_masks = {head_label(site): (mask_heads([site]),) for site in _heads(lm)}
    variant_responses = read_variant_responses(lm, measure, single_masks, context=context)

    def bias(responses: Responses) -> float:
        return float(
            aggregate(
                metric.per_item_values(responses).detach(),
                measure.design(responses, metric).full_sample,
            )
        )

    scores, notes = {}, []
    for site in _heads(lm):
        try:
            # On the items that both could read: an item that only one has would rank the head.
            (base, masked), _ = keep_common_items(
                [variant_responses.base, variant_responses.variants[head_label(site)]]
            )
            scores[site] = bias(base) - bias(masked)
        # KeyError: a mask that cannot change any answer has no responses.
        except (KeyError, NotMeasurableError) as error:
            notes.append(
                f"head {head_label(site)} is not ranked: {getattr(error, 'problem', 'no effect')}"
            )
    return scores, tuple(notes)
