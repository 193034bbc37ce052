"""GLUE's metrics, times 100, of the texts drawn; and their intervals where resampling has none.

Wang et al. 2018. F1 and Matthews are of two classes, F1 of the second one. Where a formula is 0 / 0
it is 0, as scikit-learn has it, by which GLUE is scored. Ties of Spearman share their mean rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from scipy import stats

from levelhead.core.results import Interval
from levelhead.measures.reductions import drawn
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.data.tasks import Metric
    from levelhead.measures.metric import Over
    from levelhead.stats.designs import Design, Draw


class Formula(NamedTuple):
    """A metric of what each text contributes: (right, said, true) or (score foretold, true)."""

    over: Over
    unit: str
    low: float
    closed: Callable[[torch.Tensor, Design, float], Interval | None] | None = None


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


def pearson(said: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """The correlation of two lists; 0 where one of them does not vary."""
    x, y = said - said.mean(), true - true.mean()
    return _ratio((x * y).sum(), (x @ x).sqrt() * (y @ y).sqrt())


def spearman(said: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """The correlation of their ranks."""
    ranks = [torch.from_numpy(stats.rankdata(one.detach().numpy())) for one in (said, true)]
    return pearson(ranks[0], ranks[1])


def _ratio(above: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    return above / below if float(below.detach()) else torch.zeros_like(above)


def _cells(values: torch.Tensor) -> torch.Tensor:
    """Shares of (tp, fp, fn, tn) of answers (right, said, true)."""
    said, true = values[:, 1], values[:, 2]
    both = (said * true, said * (1 - true), (1 - said) * true, (1 - said) * (1 - true))
    return torch.stack([one.mean() for one in both])


def _of_cells(metric: Callable[[torch.Tensor], torch.Tensor]) -> Over:
    def over(values: torch.Tensor, draw: Draw) -> torch.Tensor:
        return 100 * metric(_cells(drawn(values, draw)))

    return over


def _share(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    return 100 * drawn(values, draw)[:, 0].mean()


def _of_scores(metric: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Over:
    def over(values: torch.Tensor, draw: Draw) -> torch.Tensor:
        own = drawn(values, draw)
        return 100 * metric(own[:, 0], own[:, 1])

    return over


def _all_alike(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval where all are right, or none."""
    right = values[:, 0]
    if float(right.min()) != float(right.max()):
        return None
    units = design.scarcest.units
    found = proportion_interval(units if float(right[0]) else 0, units, level=level)
    return found.model_copy(update={"low": 100 * found.low, "high": 100 * found.high})


def _nearly_constant(
    metric: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor, Design, float], Interval | None]:
    """An interval where every resample gives one value: one class is said of all, or all is right.

    What was never seen has a share of at most Wilson's upper end, by the units sampled; the metric
    is taken with so many answers of each kind turned round.
    """

    def closed(values: torch.Tensor, design: Design, level: float) -> Interval | None:
        right, said = values[:, 0], values[:, 1]
        all_right = float(right.min()) == 1
        never = float(said.max()) == 0 or (metric is matthews and float(said.min()) == 1)
        if not (all_right or never):
            return None
        unseen = proportion_interval(0, design.scarcest.units, level=level).high
        cells = _cells(values)
        ends = [float(metric(cells))]
        for cell, turned in ((0, 2), (1, 3), (2, 0), (3, 1)):
            other, moved = cells.clone(), min(unseen, float(cells[cell]))
            other[cell] -= moved
            other[turned] += moved
            ends.append(float(metric(other)))
        return Interval(
            low=100 * min(ends),
            high=100 * max(ends),
            level=level,
            method="wilson of what was never seen",
        )

    return closed


METRICS: dict[Metric, Formula] = {
    "accuracy": Formula(_share, "% of texts", 0.0, _all_alike),
    "F1": Formula(_of_cells(f1), "100 x F1", 0.0, _nearly_constant(f1)),
    "Matthews": Formula(_of_cells(matthews), "100 x phi", -100.0, _nearly_constant(matthews)),
    "Pearson": Formula(_of_scores(pearson), "100 x r", -100.0),
    "Spearman": Formula(_of_scores(spearman), "100 x rho", -100.0),
}
