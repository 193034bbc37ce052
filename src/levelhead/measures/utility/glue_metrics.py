"""GLUE's metrics, times 100, of resampled texts, with intervals where resampling has no width.

Wang et al. 2018. F1 and Matthews are defined for two classes, F1 for the second one. A ratio 0 / 0
is 0, as in scikit-learn, which scores GLUE. Ties in Spearman's correlation have their mean rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from scipy import stats

from levelhead.core.results import Interval
from levelhead.measures.reductions import take_resample
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.data.tasks import TaskMetric
    from levelhead.measures.metric import Aggregate
    from levelhead.stats.designs import Design, Resample


class MetricFormula(NamedTuple):
    """A metric of per-item values: (right, predicted, true) or (predicted score, true score)."""

    aggregate: Aggregate
    unit: str
    low: float
    closed_form_interval: Callable[[torch.Tensor, Design, float], Interval | None] | None = None


def f1(cells: torch.Tensor) -> torch.Tensor:
    """2 tp / (2 tp + fp + fn).

    >>> round(float(f1(torch.tensor([0.4, 0.1, 0.2, 0.3]))), 4)
    0.7273
    """
    tp, fp, fn, _ = cells
    return _ratio(2 * tp, 2 * tp + fp + fn)


def matthews(cells: torch.Tensor) -> torch.Tensor:
    """(tp tn - fp fn) / sqrt((tp + fp)(tp + fn)(tn + fp)(tn + fn)).

    >>> round(float(matthews(torch.tensor([0.4, 0.1, 0.2, 0.3]))), 4)
    0.4082
    """
    tp, fp, fn, tn = cells
    return _ratio(tp * tn - fp * fn, ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)).sqrt())


def pearson_correlation(predicted: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Pearson's correlation of two lists; 0 if one of them is constant."""
    x, y = predicted - predicted.mean(), true - true.mean()
    return _ratio((x * y).sum(), (x @ x).sqrt() * (y @ y).sqrt())


def spearman_correlation(predicted: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Spearman's correlation: Pearson's correlation of the ranks."""
    # Ranks are a step function, so the gradient stops here.
    ranks = [
        torch.from_numpy(stats.rankdata(scores.detach().numpy())) for scores in (predicted, true)
    ]
    return pearson_correlation(ranks[0], ranks[1])


def _ratio(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    # A tensor zero, not a float: the result must have a dtype and a graph like any other value.
    return numerator / denominator if float(denominator.detach()) else torch.zeros_like(numerator)


def _cells(values: torch.Tensor) -> torch.Tensor:
    """Shares of (tp, fp, fn, tn), from values (right, predicted, true)."""
    predicted, true = values[:, 1], values[:, 2]
    products = (
        predicted * true,
        predicted * (1 - true),
        (1 - predicted) * true,
        (1 - predicted) * (1 - true),
    )
    return torch.stack([product.mean() for product in products])


def _cell_aggregate(metric: Callable[[torch.Tensor], torch.Tensor]) -> Aggregate:
    def aggregate(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        return 100 * metric(_cells(take_resample(values, resample)))

    return aggregate


def _accuracy(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    return 100 * take_resample(values, resample)[:, 0].mean()


def _score_aggregate(metric: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Aggregate:
    def aggregate(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        resampled = take_resample(values, resample)
        return 100 * metric(resampled[:, 0], resampled[:, 1])

    return aggregate


def _all_or_none_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval if all or none are right."""
    correct = values[:, 0]
    if float(correct.min()) != float(correct.max()):
        return None
    units = design.limiting_factor.n_units
    interval = proportion_interval(units if float(correct[0]) else 0, units, level=level)
    return interval.model_copy(update={"low": 100 * interval.low, "high": 100 * interval.high})


def _near_constant_interval(
    metric: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor, Design, float], Interval | None]:
    """Interval if all resamples have one value: one class is predicted for all, or all are right.

    An outcome that was never observed has a share of at most Wilson's upper end, by the sampled
    units; the interval spans the metric with this share of each kind of answer changed.
    """

    def closed(values: torch.Tensor, design: Design, level: float) -> Interval | None:
        correct, predicted = values[:, 0], values[:, 1]
        is_all_correct = float(correct.min()) == 1
        # Matthews is 0 for either constant class, F1 only if the second class is never predicted.
        is_never_predicted = float(predicted.max()) == 0 or (
            metric is matthews and float(predicted.min()) == 1
        )
        if not (is_all_correct or is_never_predicted):
            return None
        unseen = proportion_interval(0, design.limiting_factor.n_units, level=level).high
        cells = _cells(values)
        ends = [float(metric(cells))]
        # Cells are (tp, fp, fn, tn): each pair changes the prediction and keeps the true class.
        for cell, target in ((0, 2), (1, 3), (2, 0), (3, 1)):
            altered, moved = cells.clone(), min(unseen, float(cells[cell]))
            altered[cell] -= moved
            altered[target] += moved
            ends.append(float(metric(altered)))
        return Interval(
            low=100 * min(ends),
            high=100 * max(ends),
            level=level,
            method="wilson of what was never seen",
        )

    return closed


METRICS: dict[TaskMetric, MetricFormula] = {
    "accuracy": MetricFormula(_accuracy, "% of texts", 0.0, _all_or_none_interval),
    "F1": MetricFormula(_cell_aggregate(f1), "100 x F1", 0.0, _near_constant_interval(f1)),
    "Matthews": MetricFormula(
        _cell_aggregate(matthews), "100 x phi", -100.0, _near_constant_interval(matthews)
    ),
    "Pearson": MetricFormula(_score_aggregate(pearson_correlation), "100 x r", -100.0),
    "Spearman": MetricFormula(_score_aggregate(spearman_correlation), "100 x rho", -100.0),
}
