"""Choose among many settings on dev, and report the choice once, on other items.

The best of 74 settings looks good on the items it was chosen on even if none has an effect, because
the choice uses the noise. So three numbers are reported together. The first is the gain on dev. The
second is the gain of the best setting on dev items that the choice did not use: in every resample,
the best setting by the sampled items is tested on the items outside the resample (Efron and
Tibshirani 1997, "Improvements on cross-validation", leave-one-out bootstrap). The third is the gain
of the chosen setting on test.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from pydantic import Field
from scipy import stats

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import LevelheadError
from levelhead.core.results import DroppedItem, Estimate, Interval, Probability, Provenance, Record
from levelhead.core.run_context import Inference
from levelhead.mitigate.controls.placebo_test import (
    BIAS_REVERSED,
    NO_EFFECT,
    estimate_base_effect,
    has_no_effect,
    is_bias_reversed,
    single_effect,
)
from levelhead.mitigate.evaluation.gain import Objective, keep_common_items, resample_paired
from levelhead.mitigate.evaluation.pareto import ParetoFront, compute_pareto_front
from levelhead.mitigate.evaluation.rank_stability import RankAgreement, compute_rank_agreement
from levelhead.mitigate.evaluation.variant_responses import (
    best_within_limit,
    resample_bias,
    resample_cost,
    variant_names,
    within_cost_limit,
)
from levelhead.stats.power import minimum_detectable_effect

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from levelhead.measures.metric import Worse
    from levelhead.mitigate.evaluation.gain import PairedResamples
    from levelhead.mitigate.evaluation.variant_responses import VariantResponses


class DevSelection(Record):
    """A setting chosen on dev, with its effect on other items."""

    objective: Objective = "parity"
    """Definition of the gain: nearer to parity, or a smaller value."""
    chosen: str | None
    """Setting with the largest gain on dev within the limit of the utility cost; None if none
    gains."""
    n_variants: Annotated[int, Field(ge=1)]
    n_considered: Annotated[int, Field(ge=0)]
    """Number of settings within the limit of the utility cost."""
    selection_frequency: Probability | None = None
    """Share of resamples of dev in which the same setting is the best."""
    on_dev: Estimate | None = None
    """Gain on the items it was chosen on, which is too large."""
    out_of_bag_gain: Estimate | None = None
    """Gain of the best of as many settings on dev items that it was not chosen on."""
    optimism: float | None = None
    """Difference of the gain on dev and that gain."""
    base: Estimate | None = None
    """Signed distance of the model from parity on test, tested two-sided; None for measures
    without another side. If it shows no effect, no gain is mitigation."""
    on_test: Estimate | None = None
    """Gain on test: the number to report."""
    change: Estimate | None = None
    """Value of the edited model less that of the base on test; None if it does not change."""
    cost: Estimate | None = None
    """Increase of the utility cost; above 0 is worse."""
    rank_agreement: tuple[RankAgreement, ...] = ()
    """Rank agreement of all settings on dev and test, if test has all of them."""
    pareto_front: ParetoFront | None = None
    """Gain on dev against utility cost."""
    variants_without_cost: tuple[str, ...] = ()
    """Settings that act after all layers that the utility measure reads. They are not on the front,
    and not within a limit."""
    dropped_dev: tuple[DroppedItem, ...] = ()
    dropped_test: tuple[DroppedItem, ...] = ()
    notes: tuple[str, ...] = ()
    measured_by: MeasureKey | None = None
    """Key of the measure with this type of model."""
    provenance: tuple[Provenance, ...] = ()
    """Provenance of the measurements on dev, on test, and of the utility costs."""


def select_on_dev(
    dev: VariantResponses,
    test: VariantResponses,
    *,
    utility: VariantResponses | None = None,
    utility_test: VariantResponses | None = None,
    max_utility_loss: float | None = None,
    worse: Worse | None = None,
    inference: Inference = Inference(),
    n_resamples: int | None = None,
) -> DevSelection:
    """Choose on dev and report on test, without running a model.

    Args:
        dev: Responses to a measure of bias, of all settings.
        test: Responses to the same measure on other items, of the setting that `best_variant`
            returns or of all settings.
        utility: Responses to the utility measure.
        utility_test: The same on other items; by default the cost is reported on the items of the
            choice.
        max_utility_loss: Maximum increase of the utility cost; by default unlimited.
        worse: Direction of a worse utility, if the metric does not state it.
        inference: Seed and level.
        n_resamples: Number of resamples of the units; by default that of `inference`, at most 999.
    """
    names = variant_names(dev)
    notes = _forbid_dev_test_overlap(dev, test)
    # Of the unedited model on test: without a bias there, no setting could mitigate any.
    base = estimate_base_effect(test.measure, test.base, inference=inference)
    if has_no_effect(base):
        notes = (*notes, f"{NO_EFFECT} on test ({base}): no gain can be shown to be mitigation")
    is_affordable = within_cost_limit(names, utility, max_utility_loss, worse)
    resamples, dropped = resample_bias(dev, names, inference, n_resamples, out_of_bag=True)
    gains = resamples.effects()
    provenances = [
        responses.provenance_with(inference)
        for responses in (dev, test, utility, utility_test)
        if responses is not None
    ]
    make_selection = partial(
        DevSelection,
        objective=dev.objective,
        n_variants=len(names),
        n_considered=int(is_affordable.sum()),
        base=base,
        variants_without_cost=()
        if utility is None
        else tuple(name for name in names if name in utility.unaffected_variants),
        pareto_front=None
        if utility is None
        else _gain_cost_front(dev, utility, resamples, worse, inference, n_resamples),
        dropped_dev=dropped,
        measured_by=dev.measured_by,
        provenance=tuple(provenance for provenance in provenances if provenance is not None),
    )
    name = best_within_limit(names, gains.values, is_affordable)
    if name is None:
        reason = "no setting within the price gains anything on dev"
        return make_selection(chosen=None, notes=(reason, *notes))
    index = names.index(name)
    unit = dev.measure.primary_metric.unit
    on_dev = single_effect(resamples.effects([index]), f"gain of {name} on dev", unit)
    out_of_bag_gain, selection_frequency = _out_of_bag_gain(resamples, is_affordable, index, unit)
    if name in test.variants and is_bias_reversed(
        test.measure,
        keep_common_items([test.base, test.variants[name]])[0],
        test.measure.primary_metric,
    ):
        # By value it may look like a gain: a smaller Strength of a model that leans the other way.
        notes = (*notes, BIAS_REVERSED)
    held_out = _report_on_test(dev, test, name, resamples, inference, n_resamples)
    cost, cost_notes = _report_cost(utility, utility_test, name, worse, inference, n_resamples)
    return make_selection(
        chosen=name,
        selection_frequency=selection_frequency,
        on_dev=on_dev,
        out_of_bag_gain=out_of_bag_gain,
        optimism=on_dev.value - out_of_bag_gain.value,
        on_test=held_out.gain,
        change=held_out.change,
        dropped_test=held_out.dropped,
        rank_agreement=held_out.rank_agreement,
        cost=cost,
        notes=(*notes, *cost_notes),
    )


def _gain_cost_front(
    dev: VariantResponses,
    utility: VariantResponses,
    resamples: PairedResamples,
    worse: Worse | None,
    inference: Inference,
    n_resamples: int | None,
) -> ParetoFront | None:
    """Front of gain and utility cost, over the settings with a utility cost."""
    indices = [i for i, name in enumerate(dev.variants) if name not in utility.unaffected_variants]
    if not indices:
        return None
    names = [tuple(dev.variants)[i] for i in indices]
    cost_effects = resample_cost(utility, names, worse, inference, n_resamples).effects(sign=-1)
    units = (dev.measure.primary_metric.unit, utility.measure.primary_metric.unit)
    return compute_pareto_front(names, resamples.effects(indices), cost_effects, units=units)


class _TestResult(NamedTuple):
    gain: Estimate
    change: Estimate | None
    dropped: tuple[DroppedItem, ...]
    rank_agreement: tuple[RankAgreement, ...]


def _report_on_test(
    dev: VariantResponses,
    test: VariantResponses,
    name: str,
    resamples: PairedResamples,
    inference: Inference,
    n_resamples: int | None,
) -> _TestResult:
    """Gain of the chosen setting on test, and rank agreement of all settings."""
    if name not in test.variants:
        raise LevelheadError(
            f"test does not hold {name!r}, which dev chooses",
            hint="ask best_variant(dev) which it is, and read that setting on test",
        )
    metric = test.measure.primary_metric
    has_all_variants = all(variant in test.variants for variant in dev.variants)
    # The number to report must not depend on what the other settings could read.
    chosen_resamples, dropped = resample_bias(test, [name], inference, n_resamples)
    (base, edited), _ = keep_common_items([test.base, test.variants[name]])
    value_effects = resample_paired(
        test.measure,
        [base, edited],
        metric.aggregate,
        metric=metric,
        inference=inference,
        n_resamples=n_resamples,
    ).effects(sign=-1)
    gain = single_effect(chosen_resamples.effects(), f"gain of {name} on test", metric.unit)
    change = None
    if value_effects.standard_errors[0] > 0:
        change = single_effect(value_effects, f"change of {metric.name}", metric.unit)
    rank_agreement: tuple[RankAgreement, ...] = ()
    # Rank agreement needs all settings on the same items, which may be fewer than the chosen one's.
    if has_all_variants and len(dev.variants) > 1:
        all_resamples, _ = resample_bias(test, tuple(dev.variants), inference, n_resamples)
        rank_agreement = compute_rank_agreement(resamples.effects(), all_resamples.effects())
    return _TestResult(gain, change, dropped, rank_agreement)


def _report_cost(
    utility: VariantResponses | None,
    utility_test: VariantResponses | None,
    name: str,
    worse: Worse | None,
    inference: Inference,
    n_resamples: int | None,
) -> tuple[Estimate | None, tuple[str, ...]]:
    """Utility cost of the chosen setting, with notes on its items."""
    cost_responses = utility_test or utility
    if cost_responses is None:
        return None, ("no utility was measured: what the edit costs is not known",)
    if name in cost_responses.unaffected_variants:
        return None, (f"{name} acts behind all that the price reads: what it costs is not known",)
    if name not in cost_responses.variants:
        raise LevelheadError(
            f"the utility cost of {name!r} was not read", hint="read it for the chosen"
        )
    cost_effects = resample_cost(cost_responses, [name], worse, inference, n_resamples).effects(
        sign=-1
    )
    # Where the limit selected the settings, a low cost is partly luck, as a large gain is.
    notes = () if utility_test else ("the price is of the items on which settings were chosen",)
    unit = cost_responses.measure.primary_metric.unit
    if not cost_effects.standard_errors[0] > 0:
        return None, (*notes, "the price does not change at all")
    return single_effect(cost_effects, f"price of {name}", unit), notes


def _out_of_bag_gain(
    resamples: PairedResamples, is_affordable: NDArray[np.bool_], index: int, unit: str
) -> tuple[Estimate, float]:
    """Mean gain, on the units outside each resample, of the best setting by the sampled units.

    It also returns how often that setting is `index`. Its standard error is the mean of those of
    the best settings, as if they were fully correlated, which is conservative. On the units outside
    a resample, a distance from parity has the side of the sampled units
    (`PairedResamples.out_of_bag`), so that noise adds to neither.
    """
    effects = resamples.effects()
    # The base, last, gains nothing: it is picked where nothing gains, as by the whole choice.
    resampled_gains = np.where(is_affordable, effects.resamples, -np.inf)
    best_indices = np.where(resampled_gains.max(axis=1) > 0, resampled_gains.argmax(axis=1), -1)
    # Each resample is evaluated on the units that did not choose its winner (leave-one-out
    # bootstrap, Efron and Tibshirani 1997), which removes the optimism of the choice.
    rows = np.arange(len(best_indices))
    out_of_bag_gains = resamples.out_of_bag[rows, 0] - resamples.out_of_bag[rows, 1 + best_indices]
    # The units are those of dev, so the interval has their degrees of freedom.
    (factor,) = resamples.design.factors
    value, error = (
        float(out_of_bag_gains.mean()),
        float(effects.standard_errors[best_indices[best_indices >= 0]].mean()),
    )
    half_width = float(stats.t.ppf((1 + resamples.level) / 2, factor.df)) * error
    estimate = Estimate(
        name=f"gain of the best of {int(is_affordable.sum())} on items left out",
        value=value,
        interval=Interval(
            low=value - half_width,
            high=value + half_width,
            level=resamples.level,
            method=f"out of bag, t, {effects.design_description}",
        ),
        parity=0.0,
        n=resamples.design.n_items,
        unit=unit,
        detectable=minimum_detectable_effect(error, factor.df),
    )
    return estimate, float((best_indices == index).mean())


def _forbid_dev_test_overlap(dev: VariantResponses, test: VariantResponses) -> tuple[str, ...]:
    """Raise an error for test items that are in dev; return notes on common units."""
    if (dev.measure.name, dev.objective) != (test.measure.name, test.objective):
        raise LevelheadError(
            f"chosen by {dev.measure.name} and reported by {test.measure.name}",
            hint="give one measure and one kind of gain, on dev and on test",
        )
    first, second = dev.measure.select_sampled(dev.base), test.measure.select_sampled(test.base)
    dev_ids = {item.id for item in first.items}
    repeated = [item.id for item in second.items if item.id in dev_ids]
    if repeated:
        raise LevelheadError(
            f"{len(repeated)} items of test are in dev ({repeated[0]}): a choice is not to be "
            "reported on items it has seen",
            hint="split the items before choosing",
        )
    notes = []
    for i, name in enumerate(second.factors):
        test_units = {item.units[i] for item in second.items}
        both = test_units & {item.units[i] for item in first.items}
        if both:
            notes.append(
                f"{len(both)} of {len(test_units)} {name} of test are in dev too, with other "
                "items: the report is not all of new ones"
            )
    return tuple(notes)
