"""Metrics of a table of items by groups: spread of the group means, largest gap, interaction.

Values are `[items, 1 + groups]`: an item's own spread, for displays, and its value for every group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.measures.metric import Metric
from levelhead.measures.reductions import Reduction, take_resample
from levelhead.stats.degenerate import ROUNDING
from levelhead.stats.group_table import effect_sd_interval, gap_interval, make_effects
from levelhead.stats.paired import item_means

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.core.results import Interval
    from levelhead.measures.metric import PerItemValues
    from levelhead.stats.bootstrap import ItemCounts
    from levelhead.stats.designs import Design, Resample

DEFINITION = (
    "standard deviation of the groups' means over items, less the variance of their noise "
    "(variance component of an analysis of variance)"
)


@final
@dataclass(frozen=True)
class TableLabels:
    """What a table holds, for names, units and texts of its metrics."""

    name: str
    """Beginning of the names of the metrics."""
    quantity: str
    """What is compared, such as "log-odds of a favourable decision"."""
    unit: str
    attributes: tuple[str, ...]
    """Names of the attributes, such as the lexicons."""
    sizes: tuple[int, ...]
    """Number of groups of each attribute."""


def with_item_spread(table: torch.Tensor) -> torch.Tensor:
    """`[items, 1 + groups]`: the standard deviation of the groups within each item comes first."""
    return torch.cat([table.std(1, correction=0, keepdim=True), table], dim=1)


def make_table_metrics(labels: TableLabels, per_item_values: PerItemValues) -> tuple[Metric, ...]:
    """The metrics of a table: spread, largest gap and, of crossed attributes, their parts.

    Args:
        labels: what the table holds.
        per_item_values: function to `[items, 1 + groups]`.
    """
    effects = make_effects(labels.sizes)
    spread = Metric(
        name=f"{labels.name}_spread",
        equation=DEFINITION,
        per_item_values=per_item_values,
        aggregate=_make_effect_sd(effects.overall),
        unit=labels.unit,
        low=0.0,
        high=float("inf"),
        direction=f"larger: groups differ more in their {labels.quantity}",
        above=f"groups differ in their {labels.quantity}",
        comparability_key=f"{labels.name} spread",
        # Under equal treatment the differences between the groups of an item are symmetric around
        # 0. Exchanging the groups would assume equal noise of all: with unequal noise it found a
        # largest gap in 8 to 9 of 100 samples without any (docs/development/data/group_tables.csv).
        null="sign_flip",
        flip=_flip_table,
        alternative="greater",
        smooth_surrogate=f"{labels.name}_variance",
        closed_form_interval=_make_sd_interval(effects.overall),
    )
    variance = replace(
        spread,
        name=f"{labels.name}_variance",
        aggregate=_make_effect_variance(effects.overall),
        # An unbiased estimate of 0 is negative in half of all samples.
        low=-float("inf"),
        below="groups differ less than noise alone would make them",
        unit=f"{labels.unit} squared",
        smooth_surrogate=None,
        comparability_key=f"{labels.name} variance",
        closed_form_interval=_make_sd_interval(effects.overall, is_squared=True),
    )
    gap = replace(
        spread,
        name=f"{labels.name}_gap",
        equation="largest mean of a group less the smallest; interval from simultaneous intervals "
        "of all pairs",
        aggregate=largest_gap,
        # The largest of several differences is above 0 by chance: the sign flips show how much.
        parity=None,
        direction="larger: the two groups that differ most differ more",
        above="the two groups that differ most differ by more than chance",
        below="all groups are more alike than chance would make them",
        comparability_key=f"{labels.name} gap",
        closed_form_interval=_largest_gap_interval,
    )
    if effects.interaction is None:
        # It is listed, so that formulas do not depend on options; `GroupTable` measures it of two
        # attributes only.
        nothing = np.zeros_like(effects.overall)
        missing = _part_metric(spread, f"{labels.name}_interaction", nothing, "interaction")
        return spread, gap, variance, missing
    return (
        spread,
        gap,
        variance,
        _part_metric(
            spread,
            f"{labels.name}_interaction",
            effects.interaction,
            f"differences between {labels.attributes[0]} that depend on {labels.attributes[1]}",
        ),
        *(
            _part_metric(
                spread,
                f"{labels.name}, {attribute} alone",
                projection,
                f"differences between {attribute}, averaged over {other}",
            )
            for attribute, other, projection in zip(
                labels.attributes, reversed(labels.attributes), effects.margins, strict=True
            )
        ),
    )


def _part_metric(spread: Metric, name: str, projection: NDArray[np.float64], text: str) -> Metric:
    return replace(
        spread,
        name=name,
        equation=f"{DEFINITION}; {text}",
        aggregate=_make_effect_sd(projection),
        direction=f"larger: more {text}",
        above=f"there are {text}",
        comparability_key=name,
        closed_form_interval=_make_sd_interval(projection),
    )


def _flip_table(values: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    return values * signs[:, None]


def _table(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    table = take_resample(values, resample)[:, 1:]
    if table.shape[0] < 2:
        raise NotMeasurableError(
            f"{table.shape[0]} items: fewer than two have no noise to subtract",
            hint="give at least two items",
        )
    return table


def _project(table: torch.Tensor, projection: NDArray[np.float64]) -> torch.Tensor:
    return table @ torch.from_numpy(projection).to(table)


def _variance(projected: torch.Tensor) -> torch.Tensor:
    n = projected.shape[0]
    means = projected.mean(0)
    noise = ((projected - means) ** 2).sum() / (n - 1) / n
    return (means @ means - noise) / projected.shape[1]


def _make_effect_variance(projection: NDArray[np.float64], power: float = 1.0) -> Reduction:
    """The differentiable form of `stats.group_table.effect_variance`, or a power of it."""

    def literal(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        table = _table(values, resample)
        _require_differences(table.detach().numpy())
        variance = _variance(_project(table, projection))
        return variance if power == 1 else variance.clamp(min=0.0) ** power

    def vectorised(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
        tables = values[:, :, 1:]
        _require_differences(tables)
        projected = tables @ projection
        means = _column_means(projected, item_counts)
        n = item_counts.sum((1, 2))[:, None]
        # Of deviations from the mean of all items: squares of large means would lose digits.
        centre = projected.mean(0)
        squares = item_means(((projected - centre) ** 2).sum(2), item_counts)
        noise = (squares - ((means - centre) ** 2).sum(2)) / (n - 1)
        variance = ((means**2).sum(2) - noise) / tables.shape[2]
        return np.asarray(variance if power == 1 else np.maximum(variance, 0.0) ** power)

    return Reduction(literal, vectorised)


def _column_means(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
    """`[resamples, variants, columns]` means of values `[items, variants, columns]`."""
    means = item_means(values.reshape(len(values), -1), item_counts)
    return means.reshape(-1, *values.shape[1:])


def _require_differences(table: NDArray[np.float64]) -> None:
    """Raise an error for equal values of all groups: nothing was read, which is no parity."""
    spread = float(np.abs(table - table.mean(-1, keepdims=True)).max())
    if spread <= ROUNDING * float(np.abs(table).max()):
        raise NotMeasurableError(
            "all groups have equal values in every item",
            hint="check that the descriptions differ and that the model reads them",
        )


def _make_effect_sd(projection: NDArray[np.float64]) -> Reduction:
    return _make_effect_variance(projection, 0.5)


def _make_sd_interval(projection: NDArray[np.float64], *, is_squared: bool = False) -> SdInterval:
    return SdInterval(projection, is_squared)


@final
@dataclass(frozen=True, eq=False)
class SdInterval:
    """Closed-form interval of the standard deviation, or the variance, of an effect."""

    projection: NDArray[np.float64]
    is_squared: bool

    def __call__(self, values: torch.Tensor, design: Design, level: float) -> Interval:
        """The interval; each item must be a unit of its own."""
        interval = effect_sd_interval(
            _independent_rows(values, design) @ self.projection, level=level
        )
        if not self.is_squared:
            return interval
        return interval.model_copy(update={"low": interval.low**2, "high": interval.high**2})


def _largest_gap(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    means = _table(values, resample).mean(0)
    return means.max() - means.min()


def _largest_gap_many(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
    return np.asarray(np.ptp(_column_means(values[:, :, 1:], item_counts), axis=2))


largest_gap = Reduction(_largest_gap, _largest_gap_many)
"""Largest mean of a group less the smallest."""


def _largest_gap_interval(values: torch.Tensor, design: Design, level: float) -> Interval:
    return gap_interval(_independent_rows(values, design), level=level)


def _independent_rows(values: torch.Tensor, design: Design) -> NDArray[np.float64]:
    """`[units, groups]`: the mean of the items of each unit, which are independent."""
    (factor,) = design.factors
    rows = values[:, 1:].double().numpy()
    sums = np.zeros((factor.n_units, rows.shape[1]))
    np.add.at(sums, factor.unit_of_item, rows)
    return sums / np.bincount(factor.unit_of_item)[:, None]


def describe_largest_gap(means: Sequence[float], names: Sequence[str]) -> str:
    """Which groups have the largest and the smallest mean.

    >>> describe_largest_gap([0.1, -0.4, 0.3], ["a", "b", "c"])
    'the largest mean is that of c (0.3), the smallest that of b (-0.4)'
    """
    ranked = sorted(zip(means, names, strict=True))
    (low, low_name), (high, high_name) = ranked[0], ranked[-1]
    if not all(map(math.isfinite, (low, high))):
        return ""
    return (
        f"the largest mean is that of {high_name} ({high:.3g}), "
        f"the smallest that of {low_name} ({low:.3g})"
    )
