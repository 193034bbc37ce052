"""Paired comparison of two models, or of a model and its edit, on the same items."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from levelhead.core.calibration import failed_calibration_mark
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frames import make_number_row
from levelhead.core.notebook import NotebookResult
from levelhead.core.results import Estimate, Measurement, Record
from levelhead.measures.inference import estimate, holm_corrected
from levelhead.measures.metric import jackknife_variance, require_values
from levelhead.measures.reductions import column_difference
from levelhead.measures.responses import select_common_items
from levelhead.stats.power import ALPHA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses


SAME_VOCABULARY = "one vocabulary"
"""Part of a comparability key: values are sums over tokens, which depend on the tokenizer."""
NEARER, FARTHER, CHANGED_SIDES = "nearer to parity", "farther from parity", "changed sides"
NOT_SHOWN = "no difference shown"


class Comparison(NotebookResult, Record):
    """Difference of a second model from a first by one measure, paired by item."""

    measure: str
    first: Measurement
    second: Measurement
    difference: Estimate
    """Second less first, on the items that both models could read."""
    extras: tuple[Estimate, ...] = ()
    """The same for the other metrics."""
    distance: Estimate | None = None
    """Distance of the second model from parity less that of the first, paired: below 0, the second
    is nearer. None if the measure has no parity."""
    verdict: str
    """Nearer to parity or farther from it, because a difference may be either; for a utility,
    higher or lower."""
    notes: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """Mark of a measure that failed calibration on either model's type."""
        return failed_calibration_mark(self.first) or failed_calibration_mark(self.second)

    @property
    def title(self) -> str:
        """The measure and the verdict."""
        return f"{self.measure}: {self.verdict}"

    def to_rows(self) -> list[dict[str, object]]:
        """The values of both models, their difference, and the change of the distance."""
        distance = () if self.distance is None else (self.distance,)
        return [
            make_number_row("first model", self.first),
            make_number_row("second model", self.second),
            *(
                make_number_row(estimate.name, estimate)
                for estimate in (self.difference, *distance, *self.extras)
            ),
        ]

    def __str__(self) -> str:
        measure = f"{self.measure} {self.mark}".rstrip()
        return (
            f"{measure}: {self.first.value:.4g} -> {self.second.value:.4g}, difference "
            f"{self.difference.value:.4g} {self.difference.interval}: {self.verdict}"
        )


def compare_responses(
    measure: Measure,
    first: Sequence[Responses],
    second: Sequence[Responses],
    measurements: tuple[Measurement, Measurement],
    *,
    inference: Inference,
) -> Comparison:
    """Compare two models' responses to one measure by item, without a forward pass."""
    first_measurement, second_measurement = measurements
    _require_comparable(first_measurement, second_measurement)
    # Identical bits mean that the edit was not applied: a difference of 0 would read as a result.
    if _are_identical(first, second):
        raise NotMeasurableError(
            "the two models gave the same answer to every query, bit for bit",
            hint="check that the edit changes something: an edit without effect is no comparison",
        )
    shared_ids = {item.id for item in first[0].items} & {item.id for item in second[0].items}
    if not shared_ids:
        raise NotMeasurableError(
            "no item could be read by both models", hint="look at what each dropped, and why"
        )
    n_unshared = len(first[0]) + len(second[0]) - 2 * len(shared_ids)
    notes = (
        [f"{n_unshared} items that only one of the models could read are left out"]
        if n_unshared
        else []
    )
    pair = tuple(
        response_sets[0].select(lambda item: item.id in shared_ids)
        for response_sets in (first, second)
    )
    primary, *other_metrics = measure.ordered_metrics
    # Distances need a parity of both: a control may be missing for one of the models.
    has_parity = first_measurement.parity is not None and second_measurement.parity is not None
    distance = _distance(measure, first, second, pair, inference) if has_parity else None
    differences = [_primary_difference(measure, primary, pair, inference)]
    for metric in other_metrics:
        try:
            differences.append(_difference(measure, metric, pair, inference))
        # A secondary metric that cannot be compared becomes a note, as in a single measurement.
        except LevelheadError as error:
            notes.append(f"{metric.name}: {error.problem}")
    return Comparison(
        measure=measure.name,
        # The content of the items is in the measurements of the single models.
        first=first_measurement.without_items(),
        second=second_measurement.without_items(),
        difference=differences[0],
        extras=tuple(differences[1:]),
        distance=distance,
        verdict=_verdict(
            measure,
            differences,
            distance,
            changed_sides=has_changed_sides(first_measurement, second_measurement),
        ),
        notes=tuple(notes),
    )


def _require_comparable(first: Measurement, second: Measurement) -> None:
    """Raise an error for two values that are not comparable."""
    if first.comparability_key == second.comparability_key and first.measure == second.measure:
        return
    options = [measurement.provenance.settings["measure"] for measurement in (first, second)]
    if first.measure == second.measure and options[0] == options[1]:
        raise LevelheadError(
            f"{first.measure} queried the two models differently: other words, prompts or "
            "another protocol fit them",
            hint="give words that both know, or one protocol and form for both",
        )
    raise LevelheadError(
        f"{first.measure} ({first.comparability_key}) and "
        f"{second.measure} ({second.comparability_key}) are different measures",
        hint="compare the same measure with the same options",
    )


def _primary_difference(
    measure: Measure, metric: Metric, pair: tuple[Responses, ...], inference: Inference
) -> Estimate:
    try:
        return _difference(measure, metric, pair, inference)
    except NotMeasurableError as error:
        if not metric.is_step:
            raise
        raise NotMeasurableError(
            f"{metric.name}, a step function, differs for no item or all alike: {error.problem}",
            hint=f"compare {metric.smooth_surrogate}, its smooth surrogate",
        ) from None


def _difference(
    measure: Measure, metric: Metric, pair: tuple[Responses, ...], inference: Inference
) -> Estimate:
    """A metric of the second model less that of the first, on the same items in every resample."""
    if SAME_VOCABULARY in metric.comparability_key and not _are_tokenized_alike(pair):
        raise LevelheadError(
            f"{metric.name} adds up over tokens, and the two models cut the texts differently",
            hint="compare models of one tokenizer, such as a model and its edit",
        )
    values = [metric.per_item_values(responses) for responses in pair]
    for item_values in values:
        require_values(item_values)
    stacked = torch.stack(values, dim=1)
    # Column 0 is the first model, 1 the second: one resample of items serves both.
    difference_metric = replace(
        metric.difference(column_difference(metric.aggregate, 1, 0)),
        alternative="two-sided",
        method=None if metric.method == "bca" else metric.method,
    )
    return estimate(
        inference,
        difference_metric,
        stacked,
        measure.design(pair[0], metric),
        name=f"difference of {metric.name}",
        extra_variance=jackknife_variance(
            [
                after - before
                for before, after in zip(
                    *(measure.leave_block_out_values(responses, metric) for responses in pair),
                    strict=True,
                )
            ]
        ),
    )


def _distance(
    measure: Measure,
    first: Sequence[Responses],
    second: Sequence[Responses],
    pair: tuple[Responses, ...],
    inference: Inference,
) -> Estimate | None:
    """|value - parity| of the second less that of the first, on the same items in every resample.

    If parity is estimated, every resample estimates it anew: the distance is that of the signed
    part, or of the excess over the control.
    """
    primary = measure.primary_metric
    values, metric, design = (
        [primary.per_item_values(responses) for responses in pair],
        primary,
        None,
    )
    aggregate, parity = primary.signed_part or primary.aggregate, primary.parity or 0.0
    # The control is of each model: both models' excesses over their own controls are compared.
    if measure.parity_from_control:
        try:
            tests = [
                measure.test_inputs(response_sets)
                for response_sets in _select_shared_items(first, second)
            ]
        except NotMeasurableError:
            return None
        values = [inputs.values for inputs in tests]
        metric, design = tests[0].metric, tests[0].design
        aggregate, parity = metric.aggregate, metric.parity or 0.0
    try:
        difference = metric.difference(
            lambda both, resample: (
                (aggregate(both[:, 1], resample) - parity).abs()
                - (aggregate(both[:, 0], resample) - parity).abs()
            )
        )
        return estimate(
            inference,
            # An absolute value near 0 has no BCa interval: resamples lie on one side of it.
            replace(difference, method="expanded"),
            torch.stack(values, dim=1),
            design or measure.design(pair[0], primary),
            name="change of the distance from parity",
        )
    except NotMeasurableError:
        # The distance is equal in every resample: it has no interval, and no verdict follows.
        return None


def _select_shared_items(
    first: Sequence[Responses], second: Sequence[Responses]
) -> tuple[list[Responses], list[Responses]]:
    """Responses of a measure and its control for the items that both models could read."""
    selected = select_common_items((*first, *second))
    return selected[: len(first)], selected[len(first) :]


def has_changed_sides(first: Measurement, second: Measurement) -> bool:
    """Whether two models are shown to lie on different sides of parity."""
    effects = first.effect, second.effect
    if effects[0] is None or effects[1] is None:
        return False
    low, high = sorted(effects, key=lambda effect: effect[0] if effect else 0.0)
    # Both intervals must exclude parity: near parity, the side is random.
    return low is not None and high is not None and low[2] < 0 < high[1]


def _verdict(
    measure: Measure,
    differences: Sequence[Estimate],
    distance: Estimate | None,
    *,
    changed_sides: bool = False,
) -> str:
    main, primary = differences[0], measure.primary_metric
    # An interval that includes 0 shows neither direction: no verdict beyond "not shown".
    if 0 in main.interval:
        return _not_shown_text(main)
    direction = "higher" if main.value > 0 else "lower"
    # An effect size can change because its spread does: the means must differ the same way.
    if primary.must_agree_with is not None:
        confirming = next(
            (
                estimate
                for estimate in differences
                if estimate.name.endswith(primary.must_agree_with)
            ),
            None,
        )
        if (
            confirming is None
            or 0 in confirming.interval
            or (confirming.value > 0) != (main.value > 0)
        ):
            return (
                f"{primary.name} {direction}; the {primary.must_agree_with} does not show the "
                "same: no claim"
            )
        suffix = f", and the {primary.must_agree_with} is {direction} too"
    else:
        suffix = ""
    return _describe_side(measure, direction, distance, changed_sides=changed_sides) + suffix


def _describe_side(
    measure: Measure, direction: str, distance: Estimate | None, *, changed_sides: bool
) -> str:
    """The direction of a difference relative to parity, if the distance's interval shows one."""
    if distance is None:
        if measure.is_utility or measure.parity_from_control:
            return direction
        # Without parity only the role of the metric says which direction is worse.
        is_more_bias = direction == measure.primary_metric.worse
        return f"{direction}: {'more' if is_more_bias else 'less'} bias by this measure"
    if 0 in distance.interval:
        text = f"{direction}; not shown to be nearer to parity or farther from it"
    else:
        text = f"{NEARER if distance.value < 0 else FARTHER} ({direction})"
    return f"{CHANGED_SIDES}: {text}" if changed_sides else text


def _not_shown_text(difference: Estimate) -> str:
    min_effect = difference.detectable
    p = difference.p
    family_text = "" if p is None or p.family is None else f" among {p.family} measures"
    if min_effect is None:
        return f"{NOT_SHOWN}{family_text}"
    return f"{NOT_SHOWN}{family_text} (one of {min_effect:.3g} would have been)"


def holm_corrected_comparisons(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Correct the differences of several comparisons by Holm, and update their verdicts."""
    differences = holm_corrected([comparison.difference for comparison in comparisons])
    corrected = []
    for comparison, difference in zip(comparisons, differences, strict=True):
        update: dict[str, object] = {"difference": difference}
        is_not_significant = difference.p is not None and (difference.p.adjusted or 0.0) > ALPHA
        # A difference that the correction makes insignificant must not keep its verdict.
        if comparison.verdict.startswith(NOT_SHOWN) or is_not_significant:
            update["verdict"] = _not_shown_text(difference)
        corrected.append(comparison.model_copy(update=update))
    return tuple(corrected)


def _are_identical(first: Sequence[Responses], second: Sequence[Responses]) -> bool:
    return all(
        first_responses.items == second_responses.items
        and bool(torch.equal(first_responses.values, second_responses.values))
        # The values of texts are their lengths.
        and first_responses.texts == second_responses.texts
        for first_responses, second_responses in zip(first, second, strict=True)
    )


def _are_tokenized_alike(pair: Sequence[Responses]) -> bool:
    """Whether both models split every text into equally many tokens; next-sentence heads always."""
    if all(responses.metadata.get("protocol") == "follows" for responses in pair):
        return True
    # Column 1 of scored texts is the number of tokens that the score sums over.
    return bool(torch.equal(*(responses.values[..., 1] for responses in pair)))
