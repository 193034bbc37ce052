"""Metrics: the formulas of a measure, with all that a reader needs to interpret their values.

A metric computes one value (or a few) for every item, and aggregates them to one value. Both steps
are written in float64 torch, so that the reported and the differentiated value are the same code;
only the second step is repeated for resampled or relabelled items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, final

import numpy as np
import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import (
    Alternative,
    Interval,
)
from levelhead.stats.intervals import effect_size_interval, proportion_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.responses import Responses
    from levelhead.stats.bootstrap import Method
    from levelhead.stats.designs import Design, Resample

PerItemValues = Callable[["Responses"], torch.Tensor]
"""Function to `[items]` or `[items, k]` values of the items."""
Aggregate = Callable[[torch.Tensor, "Resample"], torch.Tensor]
"""Function from the values and a resample of the items to the value of the metric."""
MetricRole = Literal["bias", "parity", "utility"]
"""What a larger value means if there is no parity: more bias, more equal treatment (parity), or
neither, because it is about what a model can do (utility)."""
Worse = Literal["higher", "lower"]


def flip_signs(values: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Exchange counterfactuals: the value of an item changes its sign."""
    return values * signs


def flip_first_column(values: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Flip the signs of the first column only; the other columns are weights."""
    return torch.cat([values[:, :1] * signs[:, None], values[:, 1:]], dim=1)


@final
@dataclass(frozen=True, eq=False)
class Metric:
    """One metric of a measure, with the interpretation of its value."""

    name: str
    equation: str
    """Paper and equation."""
    per_item_values: PerItemValues
    aggregate: Aggregate
    unit: str
    low: float
    high: float
    """The smallest and the largest possible value."""
    direction: str
    """What a larger value means."""
    comparability_key: str
    """Values are comparable if their keys are equal."""
    above: str = field(default="", kw_only=True)
    """Meaning of a value above parity, in words; required if there is a parity."""
    below: str = field(default="", kw_only=True)
    """Meaning of a value below parity; empty if none is possible."""
    role: MetricRole = field(default="bias", kw_only=True)
    worse: Worse | None = field(default=None, kw_only=True)
    """Direction of worse values if there is no parity. A utility must give it; for bias it is
    "higher", for equal treatment "lower"."""
    parity: float | None = 0.0
    """The value under equal treatment; None: the mean of the null, or no parity without a null."""
    null: Literal["sign_flip", "permute_units"] | None = None
    """Null distribution: "sign_flip" exchanges counterfactuals, "permute_units" permutes units
    between groups. None: p is the bootstrap test against parity, if there is a parity."""
    flip: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = flip_signs
    signed_part: Aggregate | None = None
    """The part of the value that changes sign if all counterfactuals are exchanged. If it is given,
    the test uses it, and the rest of the value is the parity: if all items are biased in one
    direction, a mean of the largest values hardly changes under exchange, and would be taken for
    random although it is not."""
    alternative: Alternative = "two-sided"
    smooth_surrogate: str | None = None
    """Smooth metric to differentiate instead, if this one is a step function with zero gradient."""
    must_agree_with: str | None = None
    """Name of another metric that must show the same difference before two models differ."""
    method: Method | None = None
    """Bootstrap method of the interval, if the design alone does not determine it."""
    closed_form_interval: Callable[[torch.Tensor, Design, float], Interval | None] | None = None
    """Closed-form interval, if it is more accurate than resampling."""
    can_be_constant: bool = False
    """Whether equal values of all items are data, such as no refusal about anybody, and have a
    closed-form interval. Else they are taken for those of a model that does not read the items."""

    def __post_init__(self) -> None:
        if self.signed_part is not None and self.parity is not None:
            raise LevelheadError(
                f"{self.name} has two parities", hint="give a signed part or a parity, not both"
            )
        if self.role == "utility":
            # Perplexity is worse if higher, accuracy if lower: no default is right for both.
            if self.worse is None:
                raise LevelheadError(
                    f"{self.name} does not say whether higher or lower is worse",
                    hint="give worse='higher' or worse='lower'",
                )
            return
        worse: Worse = "lower" if self.role == "parity" else "higher"
        if self.worse not in (None, worse):
            raise LevelheadError(
                f"{self.name} has the role {self.role}, so {self.worse} values cannot be worse",
                hint=f"leave out worse=, or give worse=None with a new role: it becomes {worse!r}",
            )
        object.__setattr__(self, "worse", worse)

    @property
    def is_step(self) -> bool:
        """Whether the gradient is zero wherever it exists."""
        return self.smooth_surrogate is not None

    @property
    def flips_signs(self) -> bool:
        """Whether exchanging an item's counterfactuals changes the sign of its value."""
        return self.null == "sign_flip" and self.flip in (flip_signs, flip_first_column)

    def difference(self, aggregate: Aggregate) -> Metric:
        """A difference of values of this metric, with a parity of 0.

        It has other bounds than a value, which would shorten the interval, and no null.
        """
        return replace(
            self,
            aggregate=aggregate,
            low=-float("inf"),
            high=float("inf"),
            parity=0.0,
            null=None,
            signed_part=None,
            closed_form_interval=None,
        )

    def value(self, responses: Responses, design: Design) -> torch.Tensor:
        """Compute the value, differentiable in the responses unless it is a step function."""
        return self.aggregate(self.per_item_values(responses), design.full_sample)


def require_values(values: torch.Tensor) -> None:
    """Raise an error if there are no values, or if some are not finite."""
    if not len(values):
        raise NotMeasurableError("there is no item", hint="check why every item was dropped")
    # One NaN would make the value NaN, and every comparison with it false: no difference is shown.
    n_bad = int((~values.isfinite()).flatten(1 if values.dim() > 1 else 0).sum())
    if n_bad:
        raise NotMeasurableError(
            f"{n_bad} of {values.numel()} responses are not finite numbers",
            hint="load the model with dtype='float32'; if it stays, its weights are damaged",
        )


def require_differentiable(metric: Metric) -> None:
    """Raise an error for the gradient of a step function, which would suggest "no biased heads"."""
    if metric.smooth_surrogate is not None:
        raise LevelheadError(
            f"{metric.name} is a step function: its gradient is zero wherever there is one",
            hint=f"take the gradient of {metric.smooth_surrogate}, its smooth surrogate; "
            "`levelhead measure --list` gives its name",
        )


def wilson_percent_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval of a share, in percent, if every item is its own unit."""
    if len(design.factors) > 1 or design.factors[0].n_units != len(values):
        return None
    # A tie is half a success, as in `share_above_zero`.
    hits = round(float((values > 0).sum() + (values == 0).sum() / 2))
    return scale_interval(proportion_interval(hits, len(values), level=level), 100)


def all_or_none_interval(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Wilson's interval of 0% or 100%, with the sampled units as trials."""
    units = design.limiting_factor.n_units
    return scale_interval(
        proportion_interval(units if float(values[0]) else 0, units, level=level), 100
    )


# From simulated coverage (docs/development/statistics.md): below 30 words a side, percentiles
# cover too little for an effect size.
SHORT_LIST_LENGTH = 30
"""Number of words a side below which an effect size has a closed-form interval."""


def short_list_interval(
    x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor, level: float
) -> Interval | None:
    """Interval of an effect size of short lists: of words' means, in units of the rows' spread."""
    if min(len(x), len(y)) >= SHORT_LIST_LENGTH:
        return None
    # Noncentral t, exact for normal scores of equal spread (decision 0003).
    interval = effect_size_interval(x.numpy(), y.numpy(), level=level)
    return scale_interval(
        interval, float(torch.cat([x, y]).std(correction=1) / rows.std(correction=1))
    )


def scale_interval(interval: Interval, factor: float) -> Interval:
    """Convert an interval to another unit."""
    ends = {"low": factor * interval.low, "high": factor * interval.high}
    return interval.model_copy(update=ends)


def jackknife_variance(leave_one_out_values: Sequence[float]) -> float:
    """Jackknife variance of a value, from its values with each block left out in turn."""
    if not leave_one_out_values:
        return 0.0
    values = np.array(leave_one_out_values)
    # Jackknife: values without one block differ little, and (n - 1) / n times their sum of squares
    # restores the variance.
    return float((values.size - 1) / values.size * ((values - values.mean()) ** 2).sum())
