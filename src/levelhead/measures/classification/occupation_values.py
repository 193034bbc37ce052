"""Values and intervals by occupation, for pairs of inference on occupations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from levelhead.core.results import Interval
from levelhead.data.catalog.readers import NLI_LABELS
from levelhead.measures.classification.classes import nli_probabilities
from levelhead.measures.reductions import take_resample
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.measures.metric import PerItemValues
    from levelhead.measures.responses import Responses
    from levelhead.stats.designs import Design, Resample


def occupation_numbers(responses: Responses) -> torch.Tensor:
    """`[pairs]` index of each pair's occupation."""
    return number_labels([item.units[0] for item in responses.items])[0]


def number_labels(labels: Sequence[object]) -> tuple[torch.Tensor, int]:
    """Convert labels to indices in order of appearance, and count the distinct labels."""
    number: dict[object, int] = {}
    numbers = [number.setdefault(label, len(number)) for label in labels]
    return torch.tensor(numbers), len(number)


def sum_by_occupation(responses: Responses, values: torch.Tensor, group: str) -> torch.Tensor:
    """`[occupations, k]`: sums over the pairs of one group."""
    is_of_group = torch.tensor([item.group == group for item in responses.items])
    occupation = occupation_numbers(responses)
    total = torch.zeros(int(occupation.max()) + 1, values.shape[1], dtype=torch.float64)
    return total.index_add(0, occupation[is_of_group], values[is_of_group])


def spread_over_pairs(responses: Responses, values: torch.Tensor) -> torch.Tensor:
    """`[pairs, 2]`: the occupation's value at each of its pairs, and the pair's weight."""
    return _with_weights(values, occupation_numbers(responses))


def by_occupation(compute: PerItemValues) -> PerItemValues:
    """`[pairs, 2]`: as `spread_over_pairs`, of a function of the responses."""
    return lambda responses: spread_over_pairs(responses, compute(responses))


def by_cell(predicate: Callable[[torch.Tensor], torch.Tensor]) -> PerItemValues:
    """`[pairs, 2]`: a value by occupation and word, of p averaged over templates; and weights."""

    def spread(responses: Responses) -> torch.Tensor:
        cell, count = number_labels([(item.units[0], item.kind) for item in responses.items])
        total = torch.zeros(count, len(NLI_LABELS), dtype=torch.float64)
        total = total.index_add(0, cell, nli_probabilities(responses).detach())
        return _with_weights(predicate(total / cell.bincount()[:, None]).double(), cell)

    return spread


def _with_weights(values: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    # Weights of one owner sum to 1, so the design can resample pairs while owners count equally.
    part = 1 / owner.bincount().double()
    return torch.stack([values[owner], part[owner]], dim=1)


def weighted_mean(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    """The mean over occupations, or cells, of values that are repeated at each of their pairs."""
    resampled = take_resample(values, resample)
    return (resampled[:, 0] * resampled[:, 1]).sum() / resampled[:, 1].sum()


def constant_share_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval of a constant share (all 0 or all 1), with occupations as trials."""
    first_values = values if values.dim() == 1 else values[:, 0]
    if float(first_values.min()) != float(first_values.max()):
        return None
    # Trials are occupations, not pairs: pairs of one occupation are not independent.
    units = design.limiting_factor.n_units
    return proportion_interval(units if float(first_values[0]) else 0, units, level=level)


def share_of_occupations_interval(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Wilson's interval of a share of occupations."""
    hits = round(float((values[:, 0] * values[:, 1]).sum()))
    interval = proportion_interval(hits, design.limiting_factor.n_units, level=level)
    return interval.model_copy(update={"method": f"wilson, {design}"})


def constant_factor_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """If one factor is constant: the product of the ends of both factors' Wilson intervals."""
    neutral, equal = values[:, 1], values[:, 2]
    # If both factors vary, resampling covers; this product of ends would be too wide.
    if all(float(factor.min()) != float(factor.max()) for factor in (neutral, equal)):
        return None
    units = design.limiting_factor.n_units
    parity = share_of_occupations_interval(values[:, 2:], design, level)
    accuracy = proportion_interval(round(float(neutral.mean()) * units), units, level=level)
    return Interval(
        low=parity.low * accuracy.low,
        high=parity.high * accuracy.high,
        level=level,
        method="wilson of either factor",
    )
