"""Effects of several variants on one number, resampled together, with corrected p-values.

The same units are resampled for the base and all its variants. The family of all variants is
corrected by Romano and Wolf's step-down maximum of studentised effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Estimate, Interval, PValue
from levelhead.stats.degenerate import is_constant
from levelhead.stats.multiple_testing import max_t
from levelhead.stats.power import critical_max_t, minimum_detectable_effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.stats.designs import Design


@final
@dataclass(frozen=True, eq=False)
class PairedEffects:
    """Effects of several variants on one measure, resampled together."""

    values: NDArray[np.float64]
    """`[k]` effects."""
    resamples: NDArray[np.float64]
    """`[m, k]` effects in resamples of the units."""
    base: NDArray[np.float64]
    """`[m]` sign x the value of the unedited model, in the same resamples."""
    design: Design
    level: float
    items: tuple[str, ...] = ()
    """Ids of the resampled items: resamples of other items are no pairs."""

    @property
    def design_description(self) -> str:
        """What is resampled, and what is held fixed."""
        fixed = [factor.name for factor in self.design.fixed if factor.name not in self._names]
        return f"{self.design}" + (f"; {' and '.join(fixed)} held" if fixed else "")

    @property
    def _names(self) -> list[str]:
        return [factor.name for factor in self.design.factors]

    @property
    def standard_errors(self) -> NDArray[np.float64]:
        """`[k]` standard errors; 0 for a variant that changes nothing."""
        (factor,) = self.design.factors
        return np.asarray(self._spread * np.sqrt(factor.n_units / factor.df))

    @property
    def _spread(self) -> NDArray[np.float64]:
        return np.array(
            [0.0 if is_constant(column) else column.std(ddof=1) for column in self.resamples.T]
        )

    def null_statistics(self, columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """`[m, k]` studentised effects of some variants under the null hypothesis of no effect.

        They are the resamples around their values, in units of their spread. That variance is
        known, but the variance of an effect is estimated. So normal quantiles are replaced by
        Student's, variant by variant, which keeps the dependence between the variants.
        """
        (factor,) = self.design.factors
        z = (self.resamples[:, columns] - self.values[columns]) / self._spread[columns]
        tail = stats.norm.logsf(np.abs(z))
        return np.asarray(stats.t.isf(np.exp(tail), factor.df))

    def to_estimates(self, names: Sequence[str], *, unit: str = "") -> tuple[Estimate | None, ...]:
        """Estimates with intervals, and p-values that are corrected as one family.

        The estimate of a variant that changes nothing is None. The minimum detectable effect is
        that of the corrected test, for one variant with an effect among others without.
        """
        (factor,) = self.design.factors
        standard_errors = self.standard_errors
        # A variant without spread has no t. It is left out, and is not counted as a test.
        nonzero = np.flatnonzero(standard_errors > 0)
        if not nonzero.size:
            raise NotMeasurableError(
                "no part changes the measure at all",
                hint="check that the measure reads what the model says",
            )
        t = self.values[nonzero] / standard_errors[nonzero]
        null = self.null_statistics(nonzero)
        adjusted = max_t(np.abs(t), null)
        critical = critical_max_t(null)
        # The observed statistic counts among the resamples, so that p is never 0.
        raw = (1 + (null >= np.abs(t)).sum(axis=0)) / (1 + len(null))
        # Intervals are per variant; the adjusted p corrects for their number.
        t_quantile = float(stats.t.ppf((1 + self.level) / 2, factor.df))
        estimates: list[Estimate | None] = [None] * len(names)
        for column, i in enumerate(nonzero.tolist()):
            value, error = float(self.values[i]), float(standard_errors[i])
            estimates[i] = Estimate(
                name=names[i],
                value=value,
                interval=Interval(
                    low=value - t_quantile * error,
                    high=value + t_quantile * error,
                    level=self.level,
                    method=f"bootstrap t, {self.design_description}",
                ),
                parity=0.0,
                p=PValue(
                    value=float(raw[column]),
                    method="paired bootstrap",
                    alternative="two-sided",
                    n_resamples=len(null),
                    adjusted=float(adjusted[column]),
                    correction="romano-wolf",
                    family=len(nonzero),
                ),
                n=self.design.n_items,
                unit=unit,
                detectable=None
                if critical is None
                else minimum_detectable_effect(error, factor.df, critical_value=critical),
            )
        return tuple(estimates)
