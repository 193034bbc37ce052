"""What a measure loses without a part: effects of ablation, with intervals and corrected p-values.

e = sign x (L(model) - L(model without it)): positive where the part adds to the bias, as its score.
Words are redrawn, the same ones for the model and all its variants, and the formula is computed
anew from the stored readouts of every draw. The family of all parts is corrected by Romano and
Wolf's step-down maximum of studentised effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy import stats

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Estimate, Interval, PValue
from levelhead.measures.metric import refuse_nothing
from levelhead.stats.degenerate import is_constant
from levelhead.stats.designs import one_factor
from levelhead.stats.multiple_testing import max_t
from levelhead.stats.paired import resampled
from levelhead.stats.power import critical_of_maximum, minimum_detectable_effect
from levelhead.stats.rank_correlation import spearman

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aspect
    from levelhead.measures.responses import Readouts
    from levelhead.stats.designs import Design

DRAWS = 999


@final
@dataclass(frozen=True, eq=False)
class Effects:
    """Effects of several variants on one measure, redrawn together."""

    values: NDArray[np.float64]
    """`[k]`."""
    draws: NDArray[np.float64]
    """`[m, k]`: the same of the units redrawn."""
    base: NDArray[np.float64]
    """`[m]`: sign x the value of the model as it is, of the same draws."""
    design: Design
    level: float
    items: tuple[str, ...] = ()
    """Of which items: draws of other items are no pairs."""

    @property
    def told(self) -> str:
        """What is redrawn, and what is not."""
        fixed = [factor.name for factor in self.design.fixed if factor.name not in self._names]
        return f"{self.design}" + (f"; {' and '.join(fixed)} held" if fixed else "")

    @property
    def _names(self) -> list[str]:
        return [factor.name for factor in self.design.factors]

    @property
    def errors(self) -> NDArray[np.float64]:
        """`[k]` standard errors; 0 for what changes nothing."""
        (factor,) = self.design.factors
        return np.asarray(self._spread * np.sqrt(factor.units / factor.df))

    @property
    def _spread(self) -> NDArray[np.float64]:
        return np.array([0.0 if is_constant(one) else one.std(ddof=1) for one in self.draws.T])

    def null(self, some: NDArray[np.intp]) -> NDArray[np.float64]:
        """`[m, k]`: how large studentised effects of some parts are if there are none.

        The draws around their own values, in units of their spread. That is a known variance, and
        the effects' is estimated: normal quantiles become Student's, part by part, which leaves
        the parts as dependent as they are.
        """
        (factor,) = self.design.factors
        z = (self.draws[:, some] - self.values[some]) / self._spread[some]
        tail = stats.norm.logsf(np.abs(z))
        return np.asarray(stats.t.isf(np.exp(tail), factor.df))

    def estimates(self, names: Sequence[str], *, unit: str = "") -> tuple[Estimate | None, ...]:
        """With intervals and p-values, corrected as one family; None for what changes nothing.

        The minimum detectable effect is of the corrected test: of one part that has an effect among
        others that have none.
        """
        (factor,) = self.design.factors
        errors = self.errors
        some = np.flatnonzero(errors > 0)
        if not some.size:
            raise NotMeasurable(
                "no part changes the measure at all",
                mend="check that the measure reads what the model says",
            )
        t = self.values[some] / errors[some]
        null = self.null(some)
        adjusted = max_t(np.abs(t), null)
        critical = critical_of_maximum(null)
        raw = (1 + (null >= np.abs(t)).sum(axis=0)) / (1 + len(null))
        reach = float(stats.t.ppf((1 + self.level) / 2, factor.df))
        found: list[Estimate | None] = [None] * len(names)
        for place, i in enumerate(some.tolist()):
            value, error = float(self.values[i]), float(errors[i])
            found[i] = Estimate(
                name=names[i],
                value=value,
                interval=Interval(
                    low=value - reach * error,
                    high=value + reach * error,
                    level=self.level,
                    method=f"bootstrap t, {self.told}",
                ),
                parity=0.0,
                p=PValue(
                    value=float(raw[place]),
                    method="paired bootstrap",
                    alternative="two-sided",
                    draws=len(null),
                    adjusted=float(adjusted[place]),
                    correction="romano-wolf",
                    family=len(some),
                ),
                n=self.design.items,
                unit=unit,
                detectable=None
                if critical is None
                else minimum_detectable_effect(error, factor.df, critical=critical),
            )
        return tuple(found)


def effects(
    measure: Measure,
    base: Readouts,
    others: Sequence[Readouts],
    *,
    sign: int,
    inference: Inference,
    name: str = "effects",
    draws: int = DRAWS,
    aspect: Aspect | None = None,
) -> Effects:
    """The effects of variants, and what they are of redrawn units.

    Args:
        measure: whose headline is computed.
        base: what the model said.
        others: what each variant said to the same items.
        sign: which way is bias; 0 counts as 1.
        inference: level and seed.
        name: another name, other chance.
        draws: of the units.
        aspect: another formula than the headline.
    """
    head = aspect or measure.headline
    design = one_factor(measure.design(base, head))
    values = [head.per_item(readouts).detach() for readouts in (base, *others)]
    for one in values:
        refuse_nothing(one)
    way = sign or 1

    rng = inference.rng(measure.name, name)
    whole = way * np.array([float(head.over(one, design.whole)) for one in values])
    (found,) = resampled(design, values, (head.over,), rng, draws)
    found = way * found
    return Effects(
        values=whole[0] - whole[1:],
        draws=found[:, :1] - found[:, 1:],
        base=found[:, 0],
        design=design,
        level=inference.level,
        items=tuple(item.id for item in measure.sampled(base).items),
    )


def rank_agreement(
    scores: Sequence[float], found: Effects, *, name: str = "rank agreement"
) -> Estimate | None:
    """Spearman's correlation of scores (held as they are) and effects (redrawn)."""
    if len(scores) < 3 or is_constant(scores) or is_constant(found.values):
        return None
    value = float(spearman(scores, found.values)[0])
    rows = np.array([row for row in found.draws if not is_constant(row)])
    if len(rows) < 2:
        return None
    redrawn = spearman(np.broadcast_to(scores, rows.shape), rows)
    (factor,) = found.design.factors
    # On Fisher's scale: resampled ranks are noisier than the ranks themselves, so their quantiles
    # lie too low, and only their spread is used.
    spread = float(np.std(np.arctanh(np.clip(redrawn, -0.9999, 0.9999)), ddof=1))
    spread *= float(np.sqrt(factor.units / factor.df))
    reach = float(stats.t.ppf((1 + found.level) / 2, factor.df)) * spread
    centre = float(np.arctanh(np.clip(value, -0.9999, 0.9999)))
    return Estimate(
        name=name,
        value=value,
        interval=Interval(
            low=float(np.tanh(centre - reach)),
            high=float(np.tanh(centre + reach)),
            level=found.level,
            method=f"spearman, fisher z, effects redrawn: {found.design}",
        ),
        n=len(scores),
    )
