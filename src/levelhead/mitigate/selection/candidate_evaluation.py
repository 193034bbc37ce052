"""Evaluation of candidates: all of them together on dev, only the chosen one on test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from levelhead.core.errors import LevelheadError
from levelhead.measures.classification.controlled_difference import ControlledDifference
from levelhead.measures.inference import estimate
from levelhead.mitigate.controls.placebo_test import single_effect
from levelhead.mitigate.evaluation.gain import keep_common_items, resample_paired
from levelhead.mitigate.evaluation.sweep import read_variant_responses
from levelhead.mitigate.evaluation.variant_responses import VariantResponses, resample_bias
from levelhead.mitigate.selection.selection_report import CandidateResult, HeldOutResult
from levelhead.mitigate.selection.simultaneous_bounds import (
    drop_unmeasurable,
    estimate_utility_loss,
    simultaneous_lower_bounds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.core.results import DroppedItem, Estimate
    from levelhead.core.run_context import Inference, RunContext
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Worse
    from levelhead.mitigate.selection.candidates import EditCandidates
    from levelhead.models.forward.edit_sweep import EditSet
    from levelhead.models.lm import LM

DroppedBySource = tuple[tuple[str, tuple["DroppedItem", ...]], ...]
"""Dropped items, by the responses or data that they were dropped from."""


@final
@dataclass(frozen=True)
class UtilityLimit:
    """Limit of the utility loss of an edit."""

    min_utility_kept: float = 0.95
    """Share of the base's utility that must be kept."""
    max_utility_loss: float | None = None
    """Maximum loss in the utility's unit (points of accuracy), instead of the share."""
    worse: Worse | None = None
    """Direction of a worse utility, if the metric does not state it."""

    def __post_init__(self) -> None:
        if not 0 < self.min_utility_kept <= 1:
            raise LevelheadError(
                f"{self.min_utility_kept} of the utility is to be kept",
                hint="give a share such as 0.95, at most 1",
            )
        if self.max_utility_loss is not None and self.max_utility_loss < 0:
            raise LevelheadError(
                f"a loss of at most {self.max_utility_loss}", hint="give 0 or more"
            )

    @property
    def share(self) -> float | None:
        """Share that must be kept; None if a maximum loss is given instead."""
        return self.min_utility_kept if self.max_utility_loss is None else None


class CandidateResponses(NamedTuple):
    """Responses of all candidates, and the candidates that the measure cannot use."""

    responses: VariantResponses
    unmeasurable: dict[str, str]


class CandidateEvaluator(NamedTuple):
    """Evaluates candidates with one inference and one limit of the utility loss."""

    inference: Inference
    limit: UtilityLimit

    def read_candidates(
        self, lm: LM, measure: Measure, edits: Mapping[str, EditSet], context: RunContext
    ) -> CandidateResponses:
        """Responses of the model and the candidates, read together."""
        responses = read_variant_responses(lm, measure, edits, context=context)
        measurable, unmeasurable = drop_unmeasurable(responses)
        reason = "acts behind all that is read"
        return CandidateResponses(
            measurable, unmeasurable | dict.fromkeys(responses.unaffected_variants, reason)
        )

    def estimate_base(self, responses: VariantResponses) -> Estimate:
        """Estimate a measure of the unedited model."""
        metric = responses.measure.primary_metric
        values = metric.per_item_values(responses.base)
        return estimate(
            self.inference,
            metric,
            values,
            responses.measure.design(responses.base, metric),
            # The base is a reference for limit and report: no verdict rests on a test of it.
            test=False,
        )

    def allowed_loss(self, utility: VariantResponses) -> float:
        """Maximum permitted loss of the utility on these items."""
        if self.limit.max_utility_loss is not None:
            return self.limit.max_utility_loss
        # Of these items: a share of dev's accuracy would be another share of test's.
        return (1 - self.limit.min_utility_kept) * abs(self.estimate_base(utility).value)

    def evaluate_on_dev(
        self, candidates: EditCandidates, bias: CandidateResponses, utility: CandidateResponses
    ) -> tuple[tuple[CandidateResult, ...], DroppedBySource]:
        """Gain, lower bound and loss of every candidate; and the dropped items."""
        # A candidate without a cost cannot be chosen, and would only widen the joint bounds.
        names = [name for name in bias.responses.variants if name in utility.responses.variants]
        gains: dict[str, tuple[Estimate | None, float]] = {}
        dropped: tuple[DroppedItem, ...] = ()
        if names:
            resamples, dropped = resample_bias(bias.responses, names, self.inference, None)
            effects = resamples.effects()
            metric = bias.responses.measure.primary_metric
            estimates = (
                effects.to_estimates([f"gain of {name}" for name in names], unit=metric.unit)
                # `to_estimates` refuses a family in which nothing changes.
                if (effects.standard_errors > 0).any()
                else (None,) * len(names)
            )
            # The weaker claim decides: of the difference, and of its part without the control.
            bounds = np.minimum(
                simultaneous_lower_bounds(effects), self._part_lower_bounds(bias.responses, names)
            ).tolist()
            gains = dict(zip(names, zip(estimates, bounds, strict=True), strict=True))
        max_loss = self.allowed_loss(utility.responses)
        rows = []
        for candidate in candidates.candidates:
            make_row = partial(
                CandidateResult,
                name=candidate.name,
                kind=candidate.kind,
                description=candidate.description,
            )
            # With its reason, not dropped: the report lists every candidate that was tried.
            reason = bias.unmeasurable.get(candidate.name) or utility.unmeasurable.get(
                candidate.name
            )
            if reason is not None:
                rows.append(make_row(exclusion_reason=f"not measurable: {reason}"))
                continue
            gain, low = gains[candidate.name]
            cost = estimate_utility_loss(
                utility.responses, candidate.name, worse=self.limit.worse, inference=self.inference
            )
            rows.append(
                make_row(
                    gain=gain,
                    lower_bound=low if gain is not None and math.isfinite(low) else None,
                    loss=cost,
                    exclusion_reason=_exclusion_reason(gain, low, cost, max_loss),
                )
            )
        return tuple(rows), (
            ("dev", dropped or _dropped(bias.responses)),
            ("price on dev", _dropped(utility.responses)),
        )

    def evaluate_on_test(
        self, name: str, bias: CandidateResponses, utility: CandidateResponses
    ) -> tuple[HeldOutResult, DroppedBySource]:
        """Gain and loss of the chosen candidate on test."""
        gain = cost = None
        max_loss = self.allowed_loss(utility.responses)
        # Not confirmed until measured: a candidate that test cannot read must not pass.
        is_gain_confirmed = is_utility_kept = False
        dropped = _dropped(bias.responses)
        if name in bias.responses.variants:
            resamples, dropped = resample_bias(bias.responses, [name], self.inference, None)
            effects = resamples.effects()
            if effects.standard_errors[0] > 0:
                gain = single_effect(
                    effects, f"gain of {name} on test", bias.responses.measure.primary_metric.unit
                )
                part_bound = float(self._part_lower_bounds(bias.responses, [name])[0])
                # A single candidate: its interval needs no correction for a choice among several.
                is_gain_confirmed = gain.interval.low > 0 and part_bound > 0
        if name in utility.responses.variants:
            cost = estimate_utility_loss(
                utility.responses, name, worse=self.limit.worse, inference=self.inference
            )
            # The upper end, not the estimate: few items would otherwise let any cost pass.
            is_utility_kept = cost is None or cost.interval.high <= max_loss
        result = HeldOutResult(
            gain=gain,
            loss=cost,
            max_utility_loss=max_loss,
            is_gain_confirmed=is_gain_confirmed,
            is_utility_kept=is_utility_kept,
        )
        return result, (("test", dropped), ("price on test", _dropped(utility.responses)))

    def _part_lower_bounds(
        self, responses: VariantResponses, names: Sequence[str]
    ) -> NDArray[np.float64]:
        """`[k]` lower bounds of the decrease of a difference's first part; inf without a part.

        A difference also decreases if its second part grows, which is no gain.
        """
        if not isinstance(responses.measure, ControlledDifference):
            # Infinity leaves the bounds of the whole measure as they are where the minimum is
            # taken.
            return np.full(len(names), np.inf)
        # The excess over placebos also falls if placebos flip more, which helps no group.
        part = responses.measure.uncontrolled_metric
        all_responses, _ = keep_common_items(
            [responses.base, *(responses.variants[name] for name in names)]
        )
        resamples = resample_paired(
            responses.measure, all_responses, part.aggregate, metric=part, inference=self.inference
        )
        return simultaneous_lower_bounds(resamples.effects())


def _dropped(responses: VariantResponses) -> tuple[DroppedItem, ...]:
    return keep_common_items([responses.base, *responses.variants.values()])[1]


def _exclusion_reason(
    gain: Estimate | None, low: float, cost: Estimate | None, max_loss: float
) -> str:
    """The reason why a candidate may not be chosen."""
    reasons = []
    if gain is None:
        reasons.append("changes nothing")
    elif low == -math.inf:
        reasons.append("no gain shown: what the bias is made of does not change")
    elif low <= 0:
        reasons.append(f"no gain shown: the lower bound is {low:.4g}")
    if cost is not None and cost.interval.high > max_loss:
        reasons.append(f"may cost {cost.interval.high:.4g}, and the limit is {max_loss:.4g}")
    return "; ".join(reasons)
