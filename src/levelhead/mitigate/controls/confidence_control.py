"""Less bias, or less confidence? The control is the base at the edited model's confidence.

An edit that makes a classifier unsure of everything reduces every difference of probabilities, bias
included. So the base's log-odds are divided by the temperature at which their mean size equals the
edited model's (Guo et al. 2017, section 4.2, used here as a control). Mitigation beyond that is the
gain of the edit over the temperature-scaled base.

A temperature has no offset. A classifier that gives much the same confident answer to everything is
no less sure than before, and shows as small a difference. So the edit must also gain over a second
base, with its log-odds shifted and scaled to the edited model's mean and spread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import DroppedItem, Estimate, PValue, Record
from levelhead.core.run_context import Inference
from levelhead.mitigate.controls.placebo_test import placebo_p_value, single_effect
from levelhead.mitigate.evaluation.gain import bias_aggregate, resample_paired

if TYPE_CHECKING:
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.mitigate.controls.placebo_test import PlaceboResponses

# Rounding of low-precision models makes the sum of two class probabilities miss 1.
SUMS_TO_ONE = 1e-3
"""Tolerance of the sum of the probabilities of the two classes."""


class ConfidenceControl(Record):
    """The part of a gain that is lost confidence, and the gain beyond it."""

    measure: str
    confidence: tuple[float, float]
    """Mean |log-odds| of the base and of the edited model."""
    temperature: Annotated[float, Field(gt=0)]
    """Above 1: the edited model is less sure. Computed on all items, and fixed in resamples."""
    gain_from_temperature: Estimate | None = None
    """Gain of the base by the temperature alone; None: it has no effect."""
    gain: Estimate | None = None
    """Gain of the edit over the temperature-scaled base, paired; None: their answers are the
    same."""
    gain_over_moment_matched: Estimate | None = None
    """Gain of the edit over the base that is shifted and scaled to its mean and spread; None: no
    gain."""
    p: PValue | None = None
    """p-value against the gains of placebos over their temperature-scaled bases; None without
    placebos."""
    exceeds_confidence_loss: bool
    """Whether the intervals of both gains lie above 0 and, with placebos, p is significant."""
    dropped: tuple[DroppedItem, ...] = ()

    @property
    def verdict(self) -> str:
        """The result in words."""
        detail = f"temperature {self.temperature:.3g}"
        if self.exceeds_confidence_loss:
            return f"mitigates beyond lost confidence ({detail})"
        if not _is_above_zero(self.gain_over_moment_matched) and _is_above_zero(self.gain):
            return "no mitigation shown beyond a shift and a scale of all log-odds"
        return f"no mitigation shown beyond lost confidence ({detail})"


def fit_temperature(base: Responses, edited: Responses) -> float:
    """The T at which mean |log-odds / T| of the base is mean |log-odds| of the edited model.

    It is a ratio of the two means, since a temperature divides every log-odds alike.
    """
    before, after = (float(_log_odds(responses).abs().mean()) for responses in (base, edited))
    # Written with `not` so that NaN is refused too.
    if not after > 0 or not before > 0:
        raise NotMeasurableError(
            f"the mean |log-odds| is {before:.3g} before and {after:.3g} after the edit: a model "
            "that decides nothing has no temperature",
            hint="check the edit; a classifier that says the same of everything shows no parity",
        )
    return before / after


def apply_temperature(responses: Responses, temperature: float) -> Responses:
    """Responses with every log-odds divided by a temperature."""
    return _with_log_odds(responses, _log_odds(responses) / temperature)


def match_moments(base: Responses, edited: Responses) -> Responses:
    """Responses of the base with the mean and spread of the edited model's log-odds."""
    before, after = _log_odds(base), _log_odds(edited)
    spread = before.std(correction=0)
    # A constant base has no spread to scale: only its mean can be matched.
    scale = after.std(correction=0) / spread if spread > 0 else 0.0
    return _with_log_odds(base, (before - before.mean()) * scale + after.mean())


def run_confidence_control(
    measure: Measure,
    responses: PlaceboResponses,
    *,
    inference: Inference = Inference(),
    metric: str | None = None,
    n_resamples: int | None = None,
) -> ConfidenceControl:
    """Compute the gain of an edit beyond lost confidence, without running a model.

    Args:
        measure: Measure of bias, from log-probabilities of two classes.
        responses: Responses of the base, of the edited model and with each placebo edit, which is
            compared with the base at a separate temperature.
        inference: Seed and level.
        metric: The metric; by default the primary metric of the measure.
        n_resamples: Number of resamples of the units; by default that of `inference`, at most 999.
    """
    formula = measure.primary_metric if metric is None else measure.get_metric(metric)
    (before, after, *placebo_responses), dropped = responses.keep_common_items()
    temperature = fit_temperature(before, after)
    # Fitted once and then held fixed: intervals do not include the temperature's uncertainty.
    base_at_temperature = apply_temperature(before, temperature)
    resamples = resample_paired(
        measure,
        # The first is the reference of all effects: 0 is the edit's, 1 that of taking the
        # temperature away.
        [base_at_temperature, after, before],
        bias_aggregate(formula),
        metric=formula,
        inference=inference,
        n_resamples=n_resamples,
    )
    has_effect = resamples.effects().standard_errors > 0
    gain = (
        single_effect(resamples.effects([0]), "gain beyond confidence", formula.unit)
        if has_effect[0]
        else None
    )
    # Turned round: from the base to the base at its temperature.
    temperature_effects = resamples.effects([1], sign=-1)
    # A temperature cannot shift log-odds. A base with the same mean and spread as the edited model
    # also controls for an edit that mainly moves the offset.
    moment_matched = [match_moments(before, after), after]
    effects_over_matched = resample_paired(
        measure,
        moment_matched,
        bias_aggregate(formula),
        metric=formula,
        inference=inference,
        n_resamples=n_resamples,
    ).effects()
    gain_over_matched = None
    if effects_over_matched.standard_errors[0] > 0:
        gain_over_matched = single_effect(
            effects_over_matched, "gain over a base shifted and scaled", formula.unit
        )
    p = None
    if placebo_responses:
        value = 0.0 if gain is None else gain.value
        p = placebo_p_value(
            value,
            [
                _gain_over_temperature(measure, formula, before, placebo)
                for placebo in placebo_responses
            ],
        )
    return ConfidenceControl(
        measure=measure.name,
        confidence=(_mean_confidence(before), _mean_confidence(after)),
        temperature=temperature,
        gain_from_temperature=single_effect(
            temperature_effects, "gain of temperature", formula.unit
        )
        if has_effect[1]
        else None,
        gain=gain,
        gain_over_moment_matched=gain_over_matched,
        p=p,
        exceeds_confidence_loss=_is_above_zero(gain)
        and _is_above_zero(gain_over_matched)
        and (p is None or p.value <= 1 - inference.level + 1e-12),
        dropped=dropped,
    )


def _mean_confidence(responses: Responses) -> float:
    return float(_log_odds(responses).abs().mean())


def _gain_over_temperature(
    measure: Measure, formula: Metric, base: Responses, edited: Responses
) -> float:
    """Gain of one edit over the base at its temperature."""
    design, aggregate = measure.design(base, formula), bias_aggregate(formula)
    base_at_temperature = apply_temperature(base, fit_temperature(base, edited))
    before, after = (
        float(aggregate(formula.per_item_values(responses), design.full_sample))
        for responses in (base_at_temperature, edited)
    )
    return before - after


def has_two_classes(responses: Responses) -> bool:
    """Whether responses are log-probabilities of two classes: others have no temperature."""
    values = responses.values.detach()
    if values.dim() != 3 or values.shape[2] != 2:
        return False
    # Two columns may also be a score and a token count, which have no temperature.
    miss = (torch.logsumexp(values, dim=2).exp() - 1).abs().max()
    return float(miss) <= SUMS_TO_ONE


def _is_above_zero(gain: Estimate | None) -> bool:
    """Whether the interval of a gain lies above 0."""
    return gain is not None and gain.interval.low > 0


def _with_log_odds(responses: Responses, log_odds: torch.Tensor) -> Responses:
    """Responses with other log-odds of their first class."""
    # `logsigmoid` stays finite where a probability rounds to 1 and the other's log would be -inf.
    values = torch.nn.functional.logsigmoid(torch.stack([log_odds, -log_odds], dim=-1))
    return replace(responses, values=values)


def _log_odds(responses: Responses) -> torch.Tensor:
    """`[items, queries]` log-odds of the first class; an error unless there are two classes."""
    values = responses.values.detach()
    if has_two_classes(responses):
        return values[..., 0] - values[..., 1]
    raise NotMeasurableError(
        f"readouts of shape {list(values.shape)} are no log-probabilities of two classes",
        hint="a temperature needs a measure that asks whether sentences follow, such as strength "
        "or distance, or a classifier of two classes",
    )
