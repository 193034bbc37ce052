"""What may be tried on a model: projections of a grid, and masks of the heads that matter most.

Dawkins et al. 2024, section 5, says which settings of its grid are not worth trying:

- "Information weighting should be applied at the sentence representation layer to preserve model
  accuracy on the downstream task": sent is weighted;
- "multi-dimensional subspaces should always be accompanied by information weighting": two
  dimensions are weighted;
- attention helps "except if combined with a multi-dimensional gender subspace without the use of
  information weighting within the same layer".

These are findings on one model, not laws: `trim=False` tries everything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.run_context import RunContext
from levelhead.locate.attribution.gradient import gradient
from levelhead.locate.head_map import label
from levelhead.measures.classification.controlled_difference import Excess
from levelhead.mitigate.evaluation.gain import bias_of, shared
from levelhead.mitigate.evaluation.sweep import said
from levelhead.mitigate.heads.mask import mask
from levelhead.mitigate.projection.config_grid import Setting, grid
from levelhead.mitigate.projection.edit_points import edits_of, has_sent, levels_of, subspaces
from levelhead.mitigate.projection.subspace import readable
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Dropped
    from levelhead.data.counterfactuals.contrast_pairs import TextPair
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.forward.edit_sweep import Edits
    from levelhead.models.lm import LM

Kind = Literal["projection", "mask"]
By = Literal["gradient", "ablation"]
SIZES = (1, 2, 3, 5, 10, 20, 50)
"""How many of the first heads are masked."""
SENT_HARD = "hard at sent costs accuracy"
TWO_HARD = "two dimensions without weighting"
ATTENTION = "attention beside two dimensions without weighting in its layer"


class Candidate(NamedTuple):
    """Edits that may be tried together, by name."""

    name: str
    kind: Kind
    about: str
    """What is edited, in words."""
    edits: Edits


class Candidates(NamedTuple):
    """All that is tried, and what is not."""

    some: tuple[Candidate, ...]
    trimmed: tuple[tuple[str, str], ...] = ()
    """Settings that the paper's rules leave out, and by which rule."""
    dropped: tuple[Dropped, ...] = ()
    """Pairs of texts that the model cannot read."""
    notes: tuple[str, ...] = ()

    @property
    def edits(self) -> dict[str, Edits]:
        """By name, in an order that breaks ties."""
        return {one.name: one.edits for one in self.some}

    def beside(self, other: Candidates) -> Candidates:
        """Both together."""
        return Candidates(
            self.some + other.some,
            self.trimmed + other.trimmed,
            self.dropped + other.dropped,
            self.notes + other.notes,
        )


def rule_against(setting: Setting) -> str:
    """The rule of Dawkins et al. 2024, section 5, that leaves a setting out; empty: none does.

    >>> rule_against(Setting.named("last 0,1,1")), rule_against(Setting.named("last 1,1,1"))
    ('two dimensions without weighting', '')
    """
    inner = setting.penultimate
    if setting.level == "penultimate+attn" and inner and inner.dims == 2 and not inner.weighted:
        return ATTENTION
    steps = [setting.step(part) for part in setting.parts if part != "attn"]
    if any(step.dims == 2 and not step.weighted for step in steps):
        return TWO_HARD
    if setting.sent is not None and not setting.sent.weighted:
        return SENT_HARD
    return ""


def projections(lm: LM, pairs: Sequence[TextPair], *, trim: bool = True) -> Candidates:
    """The settings of the grid that fit the model, their subspaces fitted in one pass.

    Args:
        lm: the model.
        pairs: of texts that differ in the contrast; those it cannot read are dropped.
        trim: leave out what the paper's rules leave out.
    """
    kept, dropped = readable(lm, pairs)
    if not kept:
        raise NotMeasurable(
            f"the model can read none of {len(pairs)} pairs of texts: {dropped[0].reason}"
            if dropped
            else "there is no pair of texts",
            mend="give a lexicon whose words the model knows",
        )
    settings = [one for one in grid(sent=has_sent(lm)) if one.level in levels_of(lm)]
    rules = {one: rule_against(one) if trim else "" for one in settings}
    found = subspaces(lm, kept)
    return Candidates(
        tuple(
            Candidate(one.name, "projection", f"projections at {', '.join(one.parts)}", edits)
            for one, rule in rules.items()
            if not rule
            for edits in (edits_of(lm, one, found),)
        ),
        tuple((one.name, rule) for one, rule in rules.items() if rule),
        dropped,
    )


def masks(
    lm: LM,
    measure: Measure,
    *,
    by: By = "gradient",
    sizes: Sequence[int] = SIZES,
    context: RunContext = RunContext(),
) -> Candidates:
    """The first heads masked, ranked by what they add to the bias on the measure's items.

    Args:
        lm: the model.
        measure: of bias.
        by: the gradient of the bias by every head's mask (of a step function, that of its smooth
            companion), or exact ablation of one head after another.
        sizes: how many of the first heads; sizes beyond those that add to the bias are left out.
        context: store, threads, progress and cancellation.
    """
    if by not in get_args(By):
        raise UnknownName("way to rank heads", str(by), get_args(By))
    if not sizes or any(size < 1 for size in sizes):
        raise LevelheadError(f"masks of {list(sizes)} heads", mend="give numbers such as 1, 3, 5")
    rank = _by_gradient if by == "gradient" else _by_ablation
    try:
        scores, notes = rank(lm, measure, context)
    except NotMeasurable as error:
        return Candidates((), notes=(f"no head is ranked: {error.what}",))
    order = sorted(scores, key=lambda site: (-scores[site], site.layer, site.head))
    adding = [site for site in order if scores[site] > 0]
    if not adding:
        return Candidates((), notes=(*notes, f"no head adds to {measure.name} by {by}"))
    return Candidates(
        tuple(
            Candidate(
                f"mask {size}",
                "mask",
                f"heads {', '.join(map(label, adding[:size]))} masked",
                (mask(adding[:size]),),
            )
            for size in sorted(set(sizes))
            if size <= len(adding)
        ),
        notes=notes,
    )


def smooth_of(measure: Measure) -> Measure:
    """The measure itself, or the smooth companion of a step function, on the same items."""
    companion = measure.headline.companion
    if companion is None:
        return measure
    if isinstance(measure, Excess):
        return measure.smooth
    if companion not in measure.metrics:
        raise NotMeasurable(
            f"{measure.name} is a step function, and {companion} is another measure",
            mend="rank heads by ablation",
        )
    return replace(measure, metric=companion)


def _heads(lm: LM) -> list[Site]:
    layers, heads = lm.anatomy.layers, lm.anatomy.heads
    return [Site("head_out", layer, head) for layer in range(layers) for head in range(heads)]


def _by_gradient(
    lm: LM, measure: Measure, context: RunContext
) -> tuple[dict[Site, float], tuple[str, ...]]:
    """The derivative of the bias itself by every mask: what masking takes away, to first order."""
    smooth = smooth_of(measure)
    readouts = smooth.read(lm, context=context)[0]
    shares = gradient(
        lm, smooth, readouts, of_values=_cotangents(smooth, readouts), context=context
    )
    grid = shares.total()
    notes = () if smooth is measure else (f"heads are ranked by the gradient of {smooth.name}",)
    return {site: float(grid[site.layer, site.head or 0]) for site in _heads(lm)}, notes


def _cotangents(measure: Measure, readouts: Readouts) -> torch.Tensor:
    """Of the distance from parity, which is what an edit is to make smaller."""
    head = measure.headline
    values = readouts.values.clone().requires_grad_()
    own = head.per_item(replace(readouts, values=values))
    bias = bias_of(head)(own, measure.design(readouts, head).whole)
    (found,) = torch.autograd.grad(bias, values)
    return found


def _by_ablation(
    lm: LM, measure: Measure, context: RunContext
) -> tuple[dict[Site, float], tuple[str, ...]]:
    """What the bias loses without a head; heads without which it has no value are not ranked."""
    head, over = measure.headline, bias_of(measure.headline)
    alone = {label(site): (mask([site]),) for site in _heads(lm)}
    found = said(lm, measure, alone, context=context)

    def bias(readouts: Readouts) -> float:
        (own,), _ = shared([readouts])
        return float(over(head.per_item(own).detach(), measure.design(own, head).whole))

    base, scores, notes = bias(found.base), {}, []
    for site in _heads(lm):
        try:
            scores[site] = base - bias(found.settings[label(site)])
        except (KeyError, NotMeasurable) as error:
            notes.append(f"head {label(site)} is not ranked: {getattr(error, 'what', 'no effect')}")
    return scores, tuple(notes)
