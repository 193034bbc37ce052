"""Test of mitigation: the gain of an edit, compared with the gains of placebo edits.

Almost any edit changes almost any measure, and a paired test on enough items detects the change. So
an edit counts as mitigation only if it gains more than 95 of 100 edits that remove as much from the
same sites, along directions unrelated to the groups (placebo_edits.py).

The test requires a bias to mitigate and many placebos. If the model shows no bias by the measure,
or if all placebos are the same edit, the outcome is "untestable", and never "not shown".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import numpy as np
from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import DroppedItem, Estimate, PValue, Record
from levelhead.core.run_context import Inference
from levelhead.mitigate.controls.effective_placebos import effective_number, needed_placebos
from levelhead.mitigate.evaluation.gain import (
    bias_aggregate,
    keep_common_items,
    resample_paired,
    signed_bias_aggregate,
)
from levelhead.stats.degenerate import ROUNDING
from levelhead.stats.intervals import proportion_interval
from levelhead.stats.paired_effects import PairedEffects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.mitigate.evaluation.gain import Objective, PairedResamples

# With 200 placebos the least p is 1/201, so that a correction over about ten settings can
# still reach 0.05 (`needed_placebos`).
MIN_PLACEBOS = 200
"""Default number of placebos."""
SAME_EFFECT_CORRELATION = 0.95
"""Correlation over items from which the effect of the placebos counts as that of the edit."""
NO_EFFECT: Final = "untestable: base shows no effect"
DEPENDENT: Final = "untestable: placebos not independent"
TOO_FEW: Final = "untestable: too few placebos"
BIAS_REVERSED = "the bias is turned to the other side, at least as far: no reduction"
Outcome = Literal[
    "mitigates",
    "not shown to mitigate",
    "untestable: base shows no effect",
    "untestable: placebos not independent",
    "untestable: too few placebos",
]


class PlaceboTest(Record):
    """Gain of an edit by one measure, compared with the gains of placebo edits."""

    measure: str
    gain: Estimate
    """Decrease of the distance from parity (mitigate/evaluation/gain.py), paired."""
    change: Estimate | None = None
    """Value of the edited model less that of the base; None if it does not change."""
    placebo_gains: Annotated[tuple[float, ...], Field(min_length=1)]
    """Gain of every placebo."""
    quantile: float
    """95% quantile of the gains of placebos (at the level of the inference)."""
    p: PValue
    """One-sided p-value, (b + 1) / (m + 1), with b placebos that gain as much. For a setting
    chosen from several it is adjusted by an upper bound: multiplied by their number
    (Bonferroni)."""
    base: Estimate | None = None
    """Signed distance of the model from parity, tested two-sided; None for measures without
    another side, and for results of earlier versions."""
    effective_placebos: Annotated[float, Field(ge=1)] | None = None
    """Effective number of independent placebos (effective_placebos.py); None for results of
    earlier versions."""
    is_bias_reversed: bool = False
    """Whether the edited model is on the other side of parity, at least as far: no reduction."""
    exceeds_placebos: bool
    item_correlation: float
    """Median correlation over items of the changes by a placebo with those by the edit."""
    mitigates: bool
    """Whether the edit is testable and gains more than the placebos, which have other effects,
    with an interval above 0, and without turning the bias to the other side."""
    significant_share: Estimate
    """Share of placebos that an ordinary paired test calls an effect, in either direction."""
    significant_gain_share: Estimate
    """Share of placebos that it calls a gain."""
    dropped: tuple[DroppedItem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Result of the comparison, or the reason why there is none."""
        alpha = 1 - self.gain.interval.level
        # A model without a shown bias has no distance to lose: any gain would be noise.
        if self.base is not None and not _is_shown(self.base):
            return NO_EFFECT
        # Their least p is above alpha, so even the best edit could not pass.
        if len(self.placebo_gains) < needed_placebos(alpha, self.p.family or 1):
            return TOO_FEW
        # A hundred copies of one placebo are one comparison, and a small p from them is luck.
        if self.effective_placebos is not None and self.effective_placebos < needed_placebos(alpha):
            return DEPENDENT
        return "mitigates" if self.mitigates else "not shown to mitigate"

    @property
    def is_testable(self) -> bool:
        """Whether this model and these placebos could show mitigation at all."""
        return not self.outcome.startswith("untestable")

    @property
    def verdict(self) -> str:
        """The result in words."""
        count, alpha = len(self.placebo_gains), 1 - self.gain.interval.level
        amount = (
            ""
            if self.effective_placebos is None
            else f" that amount to {self.effective_placebos:.3g} independent ones"
        )
        summary = f"{count} placebos{amount}, {_describe_p(self.p)}"
        if self.outcome == NO_EFFECT:
            return f"{NO_EFFECT} ({self.base}); mitigation cannot be tested on this model"
        if self.outcome == TOO_FEW:
            needed = needed_placebos(alpha, self.p.family or 1)
            selection_note = f" of the best of {self.p.family} settings" if self.p.family else ""
            return f"{TOO_FEW} ({count}; a p of {alpha:.2g}{selection_note} needs {needed})"
        if self.outcome == DEPENDENT:
            return (
                f"{DEPENDENT} ({count} amount to {self.effective_placebos:.3g} over {self.gain.n} "
                f"items, {needed_placebos(alpha)} are needed); mitigation cannot be tested on this "
                "model"
            )
        if self.is_bias_reversed:
            return f"not shown to mitigate: {BIAS_REVERSED} ({summary})"
        if self.mitigates:
            return f"mitigates: gains more than placebos do ({summary})"
        if self.exceeds_placebos and self.item_correlation >= SAME_EFFECT_CORRELATION:
            same = f"correlation {self.item_correlation:.2f}, item by item"
            return f"not shown to mitigate: placebos do what the edit does ({same}; {summary})"
        if self.exceeds_placebos:
            return (
                f"gains more than placebos do ({summary}), and not shown for other items than these"
            )
        return f"not shown to mitigate: placebos gain as much ({summary})"


class PlaceboResponses(NamedTuple):
    """Responses of a model without an edit, with the edit and with each of its placebos."""

    base: Responses
    edited: Responses
    placebos: Sequence[Responses] = ()

    def keep_common_items(self) -> tuple[list[Responses], tuple[DroppedItem, ...]]:
        """The items that base, edited model and placebos could all read; and the others."""
        return keep_common_items([self.base, self.edited, *self.placebos])


def require_placebos(n_placebos: int, min_placebos: int) -> None:
    """Raise an error if there are fewer placebos than required."""
    if n_placebos < max(min_placebos, 1):
        raise LevelheadError(
            f"{n_placebos} placebos are too few to estimate what happens at random",
            hint=f"give at least {max(min_placebos, 1)}, or fewer by min_placebos=",
        )


def run_placebo_test(
    measure: Measure,
    responses: PlaceboResponses,
    *,
    inference: Inference = Inference(),
    metric: str | None = None,
    objective: Objective = "parity",
    min_placebos: int = MIN_PLACEBOS,
    n_candidates: int = 1,
    n_resamples: int | None = None,
) -> PlaceboTest:
    """Test an edit against its placebos, without running a model.

    Args:
        measure: Measure of bias.
        responses: Responses of the base, of the edited model and with each placebo edit.
        inference: Seed and level.
        metric: The metric; by default the primary metric. SEAT's "difference of means" has a scale.
        objective: Definition of the gain: nearer to parity, or a smaller value
            (mitigate/evaluation/gain.py).
        min_placebos: Minimum number of placebos for a test.
        n_candidates: Number of settings that the edit was chosen from, on other items. Its placebos
            were not chosen, so p is corrected.
        n_resamples: Number of resamples of the units; by default that of `inference`, at most 999.
    """
    n_placebos = len(responses.placebos)
    require_placebos(n_placebos, min_placebos)
    formula = measure.primary_metric if metric is None else measure.get_metric(metric)
    all_responses, dropped = responses.keep_common_items()
    resamples = resample_paired(
        measure,
        all_responses,
        bias_aggregate(formula, objective),
        metric=formula,
        inference=inference,
        n_resamples=n_resamples,
    )
    value_resamples = resample_paired(
        measure,
        all_responses[:2],
        formula.aggregate,
        metric=formula,
        inference=inference,
        n_resamples=n_resamples,
    )
    gain = single_effect(resamples.effects([0]), f"gain of {formula.name}", formula.unit)
    gains = resamples.effects(range(1, n_placebos + 1))
    p = placebo_p_value(gain.value, gains.values, n_candidates=n_candidates)
    # `higher` takes a gain that a placebo has: interpolation would lower the bar.
    quantile = float(np.quantile(gains.values, inference.level, method="higher"))
    adjusted_p = p.value if p.adjusted is None else p.adjusted
    # Where all placebos do harm, an edit must still gain something. 1e-12 absorbs the rounding of
    # 1 - level, so that p = 0.05 counts at level 0.95.
    exceeds_placebos = gain.value > max(quantile, 0.0) and adjusted_p <= 1 - inference.level + 1e-12
    shares, notes = _significant_shares(gains, inference.level)
    changes = _changes(
        [formula.per_item_values(answers).detach().numpy() for answers in all_responses]
    )
    item_correlation = _item_correlation(changes)
    base_bias, is_reversed = _base_and_reversal(
        measure, all_responses[:2], formula, inference, n_resamples
    )
    draft = PlaceboTest(
        measure=measure.name,
        gain=gain,
        change=_value_change(value_resamples.effects([0], sign=-1), formula.name, formula.unit),
        placebo_gains=tuple(gains.values.tolist()),
        quantile=quantile,
        p=p,
        base=base_bias,
        effective_placebos=effective_number(changes[1:]),
        is_bias_reversed=is_reversed,
        exceeds_placebos=exceeds_placebos,
        item_correlation=item_correlation,
        # Placebos that change the same items alike are no contrast: they would show nothing.
        mitigates=exceeds_placebos
        and item_correlation < SAME_EFFECT_CORRELATION
        and gain.interval.low > 0
        and not is_reversed,
        significant_share=shares[0],
        significant_gain_share=shares[1],
        dropped=dropped,
        notes=notes,
    )
    # What cannot be tested mitigates nothing, whatever the numbers are.
    return draft if draft.is_testable else draft.model_copy(update={"mitigates": False})


def _base_effect(resamples: PairedResamples, name: str, unit: str) -> Estimate:
    """Signed distance of a model from parity, from resamples, with its two-sided test.

    Args:
        resamples: The signed metric of the model (first), on resampled units.
        name: Name of the measure.
        unit: Unit of the value.
    """
    effects = PairedEffects(
        values=resamples.full[:1],
        resamples=resamples.resamples[:, :1],
        base=resamples.resamples[:, 0],
        design=resamples.design,
        level=resamples.level,
        items=resamples.items,
    )
    if not effects.standard_errors[0] > 0:
        raise NotMeasurableError(
            f"{name} of the model has no spread: whether it is biased cannot be tested",
            hint="give items that differ",
        )
    (estimate,) = effects.to_estimates([f"{name} of the base, from parity"], unit=unit)
    assert estimate is not None  # noqa: S101  # its error is above 0
    return estimate


def estimate_base_effect(
    measure: Measure, base: Responses, *, inference: Inference
) -> Estimate | None:
    """Signed distance of a model from parity, tested two-sided.

    None for a measure without another side: a utility, or a value that cannot be below its parity.

    Args:
        measure: Measure of bias.
        base: Responses of the model.
        inference: Seed and level.
    """
    metric = measure.primary_metric
    signed_aggregate = signed_bias_aggregate(metric)
    if signed_aggregate is None:
        return None
    resamples = resample_paired(
        measure, [base], signed_aggregate, metric=metric, inference=inference
    )
    return _base_effect(resamples, metric.name, metric.unit)


def has_no_effect(base: Estimate | None) -> bool:
    """Whether a tested model shows no bias, so that no mitigation can be tested on it."""
    return base is not None and not _is_shown(base)


def _is_shown(base: Estimate) -> bool:
    # Two-sided: a bias to either side is one that an edit may reduce.
    return base.p is not None and base.p.value <= 1 - base.interval.level + 1e-12


def _base_and_reversal(
    measure: Measure,
    all_responses: Sequence[Responses],
    formula: Metric,
    inference: Inference,
    n_resamples: int | None,
) -> tuple[Estimate | None, bool]:
    """The base's signed distance from parity, and whether the edit turns it to the other side.

    The sign counts even if a gain is a smaller value: a smaller Strength of a model that is biased
    as far in the other direction is no reduction.
    """
    signed_aggregate = signed_bias_aggregate(formula)
    if signed_aggregate is None:
        return None, False
    resamples = resample_paired(
        measure,
        all_responses,
        signed_aggregate,
        metric=formula,
        inference=inference,
        n_resamples=n_resamples,
    )
    return _base_effect(resamples, formula.name, formula.unit), is_bias_reversed(
        measure, all_responses, formula
    )


def is_bias_reversed(measure: Measure, all_responses: Sequence[Responses], formula: Metric) -> bool:
    """Whether an edited model is on the other side of parity, at least as far as its base.

    Args:
        measure: Measure of bias.
        all_responses: Responses of the model and of the edited model to the same items.
        formula: Metric of the measure.
    """
    signed_aggregate = signed_bias_aggregate(formula)
    if signed_aggregate is None:
        return False
    design = measure.design(all_responses[0], formula)
    before, after = (
        float(signed_aggregate(formula.per_item_values(responses).detach(), design.full_sample))
        for responses in all_responses
    )
    # A change of sign alone is no reversal: an edit may overshoot parity and still gain.
    return before * after < 0 and abs(after) >= abs(before)


def _describe_p(p: PValue) -> str:
    if p.adjusted is None:
        return f"p {p.value:.3g}"
    return f"p at most {p.adjusted:.3g} for the best of {p.family} settings ({p.value:.3g} for one)"


def single_effect(effects: PairedEffects, name: str, unit: str) -> Estimate:
    """The estimate of a single effect; an error if the edit changes nothing."""
    if not effects.standard_errors[0] > 0:
        raise NotMeasurableError(
            f"{name}: the edit changes nothing, or all items alike",
            hint="check the edit: one without effect is no edit",
        )
    (estimate,) = effects.to_estimates([name], unit=unit)
    if estimate is None:
        raise NotMeasurableError(f"{name}: no spread", hint="give more items")
    return estimate


def placebo_p_value(
    value: float, placebos: Sequence[float] | NDArray[np.float64], *, n_candidates: int = 1
) -> PValue:
    """One-sided p-value of a gain among those of placebos; equal gains count.

    It is one-sided because the claim is a gain, that is a smaller distance from parity. An edit
    that gains less than its placebos is not shown to mitigate.

    Args:
        value: Gain of the edit.
        placebos: Gain of each placebo.
        n_candidates: Number of settings that the edit was chosen from, on other items. If no
            setting does more than a placebo, the p of each is uniform, and that of the chosen one
            is at least the smallest of them: multiplied by their number it is an upper bound.

    >>> placebo_p_value(3.0, [1.0, 3.0, 4.0]).value
    0.75
    >>> placebo_p_value(3.0, [1.0] * 199, n_candidates=4).adjusted
    0.02
    """
    # Equal gains count for the placebo: rounding must not turn a tie into a win of the edit.
    reached = int((np.asarray(placebos) >= value - ROUNDING * abs(value)).sum())
    # The edit counts as one of the exchangeable edits: p is never 0 (Phipson and Smyth 2010).
    p = (reached + 1) / (len(placebos) + 1)
    # The edit was the best of its settings and placebos had no such choice: Bonferroni corrects
    # for this.
    is_chosen = n_candidates > 1
    return PValue(
        value=p,
        method="placebo edits, one-sided for a gain",
        alternative="greater",
        n_resamples=len(placebos),
        adjusted=min(1.0, n_candidates * p) if is_chosen else None,
        correction="bonferroni over the settings chosen among" if is_chosen else None,
        family=n_candidates if is_chosen else None,
    )


def _changes(items: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """`[1 + placebos, items]` changes of every item by the edit, first, and by each placebo."""
    # One number per item, also of metrics with several columns.
    base, *edited = (values.reshape(len(values), -1).mean(axis=1) for values in items)
    return np.stack([values - base for values in edited])


def _item_correlation(changes: NDArray[np.float64]) -> float:
    """Correlation over items of the changes by each placebo with those by the edit."""
    # A correlation is undefined for a placebo that changes all items alike.
    moved = changes[1:][changes[1:].std(axis=1) > 0]
    if not len(moved) or not changes[0].std() > 0:
        return 0.0
    return float(np.median([np.corrcoef(changes[0], change)[0, 1] for change in moved]))


def _value_change(effects: PairedEffects, name: str, unit: str) -> Estimate | None:
    return (
        single_effect(effects, f"change of {name}", unit)
        if effects.standard_errors[0] > 0
        else None
    )


def _significant_shares(
    gains: PairedEffects, level: float
) -> tuple[tuple[Estimate, Estimate], tuple[str, ...]]:
    """Shares of placebos that a paired test calls an effect, and a gain."""
    count = len(gains.values)
    idle = int((gains.standard_errors == 0).sum())
    # Any edit would gain more than placebos without effect.
    if idle == count:
        raise NotMeasurableError(
            "no placebo changes the measure: they are no control",
            hint="check the placebo edits, and that they act on the sites of the edit",
        )
    tests = [
        estimate
        for estimate in gains.to_estimates([""] * count)
        if estimate is not None and estimate.p
    ]
    # 1e-12 absorbs the rounding of 1 - level.
    alpha = 1 - level + 1e-12
    hits = [estimate for estimate in tests if estimate.p is not None and estimate.p.value <= alpha]

    def share(name: str, number: int) -> Estimate:
        interval = proportion_interval(number, count, level=level)
        return Estimate(name=name, value=number / count, interval=interval, n=count)

    idle_note = (f"{idle} of {count} placebos change nothing; they count as not significant",)
    return (
        share("placebos that a paired test calls an effect", len(hits)),
        share(
            "placebos that a paired test calls a gain", sum(estimate.value > 0 for estimate in hits)
        ),
    ), (idle_note if idle else ())
