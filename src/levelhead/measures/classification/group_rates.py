"""Decision rates of a classifier by class and group, on texts in two versions.

Signed changes of probability, gaps of true and false positive rates, and the ratio of selection
rates ("impact ratio"; US practice examines ratios below four fifths). All are paired by text.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Interval
from levelhead.measures.inference import estimate, holm_corrected, note_failure, null_distribution
from levelhead.measures.metric import Metric, scale_interval
from levelhead.measures.next_sentence.distance import swap_columns
from levelhead.measures.reductions import column_difference, mean, take_resample
from levelhead.stats.designs import clustered_design
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Estimate
    from levelhead.core.run_context import Inference
    from levelhead.stats.designs import Design, Resample


class PairedPredictions(NamedTuple):
    """Predictions of a classifier for texts in two versions."""

    p: torch.Tensor
    """`[texts, 2, classes]` class probabilities."""
    labels: tuple[str, ...]
    """True label of each text; an empty string if it is unknown."""
    units: tuple[str, ...]
    """Sampling unit of each text; identical texts are one unit."""
    name: str
    """Name of the difference: which version less which."""


def estimate_by_class(
    predictions: PairedPredictions,
    classes: Sequence[str],
    positive: str | None,
    inference: Inference,
) -> tuple[list[Estimate], list[str]]:
    """Estimate rates and their differences by class, with Holm's correction for each kind of rate.

    Args:
        predictions: Predictions for both versions of each text.
        classes: Names of the classes, in the order of the columns.
        positive: Class to report; None reports all classes.
        inference: Seed, resamples and level.
    """
    predicted = predictions.p.argmax(2)
    estimates: list[Estimate] = []
    notes: list[str] = []
    names = classes if positive is None else (positive,)
    everything = torch.ones(len(predictions.labels), dtype=torch.bool)
    # Equal TPR and FPR are equalized odds (Hardt et al. 2016); both need true labels.
    for kind in ("p", "rate", "TPR", "FPR") if any(predictions.labels) else ("p", "rate"):
        family = []
        for name in names:
            c = classes.index(name)
            decided = (predicted == c).double()
            has_label = torch.tensor([label == name for label in predictions.labels])
            keep = {"TPR": has_label, "FPR": ~has_label}.get(kind, everything)
            both = predictions.p[:, :, c] if kind == "p" else decided
            description = f"p({name})" if kind == "p" else f"{kind} of {name}"
            full_name, is_step = f"{description}, {predictions.name}", kind != "p"
            with note_failure(notes, full_name):
                family.append(
                    _difference(full_name, both[keep], keep, predictions, inference, is_step)
                )
        estimates += holm_corrected(family)
    ratios = []
    for name in names:
        decided = (predicted == classes.index(name)).double()
        description = f"impact ratio of {name}, {predictions.name.replace(' less ', ' over ')}"
        with note_failure(notes, description):
            ratios.append(_ratio(description, decided, predictions, inference))
    estimates += holm_corrected(ratios)
    return estimates, notes


def _difference(
    name: str,
    both: torch.Tensor,
    keep: torch.Tensor,
    predictions: PairedPredictions,
    inference: Inference,
    is_step: bool,
) -> Estimate:
    """Mean difference between the two versions, with a null that exchanges them."""
    if not len(both):
        raise NotMeasurableError("no text has this label", hint="leave the labels out")
    difference = Metric(
        name=name,
        equation="mean over texts of the first way less the second",
        per_item_values=lambda responses: both,
        aggregate=column_difference(mean, 0, 1),
        unit="share of texts" if is_step else "probability",
        low=-1.0,
        high=1.0,
        direction="above 0: more for the first way",
        above="decided so more often for the first way",
        below="decided so more often for the second way",
        comparability_key=name,
        null="sign_flip",
        flip=swap_columns,
        closed_form_interval=paired_share_interval if is_step else None,
    )
    units = [
        unit for unit, is_kept in zip(predictions.units, keep.tolist(), strict=True) if is_kept
    ]
    # If no text changes, an exchange of versions gives no null distribution.
    changes = bool((both[:, 0] != both[:, 1]).any())
    return estimate(inference, difference, both, clustered_design(units), test=changes)


def _ratio(
    name: str, decided: torch.Tensor, predictions: PairedPredictions, inference: Inference
) -> Estimate:
    """Selection rate of the first version over that of the second, tested by exchanging them."""
    if not bool(decided[:, 1].any()):
        raise NotMeasurableError("the second is never decided so", hint="give more texts")
    ratio = Metric(
        name=name,
        equation="selection rate of the first way over that of the second",
        per_item_values=lambda responses: decided,
        aggregate=_rates,
        unit="ratio",
        low=0.0,
        high=float("inf"),
        direction="above 1: decided so more often for the first way",
        above="decided so more often for the first way",
        below="decided so more often for the second way",
        comparability_key=name,
        parity=1.0,
        closed_form_interval=_log_interval,
    )
    design = clustered_design(predictions.units)
    result = estimate(inference, ratio, decided, design, test=False)
    # A minimum detectable effect is a difference; a ratio has no such scale.
    result = result.model_copy(update={"detectable": None, "precision": None})
    if bool((decided[:, 0] == decided[:, 1]).all()):
        return result
    # The test uses the difference of rates: the ratio's distance from 1 depends on which version
    # is the numerator.
    gap = replace(
        ratio,
        aggregate=column_difference(mean, 0, 1),
        parity=0.0,
        null="sign_flip",
        flip=swap_columns,
    )
    null = null_distribution(inference, gap, decided, design, name=name)
    return result if null is None else result.model_copy(update={"p": null.p})


def _rates(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    totals = take_resample(values, resample).sum(0)
    return totals[0] / totals[1]


def paired_share_interval(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Interval of the difference of two paired shares (Bonett and Price 2012), columns of 0 and 1.

    If the few texts that change all change in one direction, so do they in every resample; this
    formula adds one text in each direction. It counts as many texts as units were sampled.
    """
    n = design.limiting_factor.n_units
    change = values[:, 0] - values[:, 1]
    first, second = (float((change * sign > 0).double().mean()) * n for sign in (1, -1))
    # Laplace adjustment of Bonett and Price 2012: one added discordant text in each direction.
    b, c = (first + 1) / (n + 2), (second + 1) / (n + 2)
    half_width = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt(
        (b + c - (b - c) ** 2) / (n + 2)
    )
    return Interval(
        low=b - c - half_width, high=b - c + half_width, level=level, method="bonett-price"
    )


def paired_percent_interval(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Interval of Bonett and Price: it has a width if nothing flips, where resampling has none."""
    return scale_interval(paired_share_interval(values, design, level), 100)


def _log_interval(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Interval of the log ratio by linearisation, with clustered variance.

    If the numerator is never selected, half a decision replaces zero, with its own variance.
    """
    unit = torch.from_numpy(design.limiting_factor.unit_of_item)
    # The usual continuity correction of 0.5: the log of a ratio with a zero count is infinite.
    total = values.sum(0) + (0.5 if bool((values.sum(0) == 0).any()) else 0.0)
    # The differential of log(a / b) is da / a - db / b: each text's share of the log ratio.
    parts = values[:, 0] / total[0] - values[:, 1] / total[1]
    by_unit = torch.zeros(design.limiting_factor.n_units, dtype=values.dtype).index_add(
        0, unit, parts
    )
    is_never_decided = not bool(values[:, 0].any())
    # The log of a small count has a variance of about 1 / count, here of the half decision.
    error = math.sqrt(float(by_unit.square().sum()) + (1 / 0.5 if is_never_decided else 0.0))
    # Without any change the linearised variance is 0; Wilson's upper end of 0 changes gives a
    # width.
    if not error:
        half_width = proportion_interval(0, design.limiting_factor.n_units, level=level).high
        method = "wilson of no change"
        return Interval(low=1 - half_width, high=1 + half_width, level=level, method=method)
    centre = float((total[0] / total[1]).log())
    half_width = float(stats.t.ppf((1 + level) / 2, design.limiting_factor.df)) * error
    low = 0.0 if is_never_decided else math.exp(centre - half_width)
    return Interval(low=low, high=math.exp(centre + half_width), level=level, method="log ratio")
