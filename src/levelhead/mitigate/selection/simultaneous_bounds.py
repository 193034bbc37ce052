"""Bounds that hold for all candidates at once, and what a candidate costs.

The best of many looks good by chance. Chosen by its lower bound, where the bounds of all candidates
hold together, what is chosen gains something with the level's confidence even so: the quantile of
the largest studentised error over all candidates (max-T; Romano and Wolf 2005) takes the place of
Student's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy import stats

from levelhead.core.errors import NotMeasurable
from levelhead.measures.classification.group_rates import paired_shares
from levelhead.measures.inference import estimate
from levelhead.measures.metric import refuse_nothing, scaled
from levelhead.mitigate.evaluation.gain import paid_by, shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.run_context import Inference
    from levelhead.locate.effects import Effects
    from levelhead.measures.metric import Over, Worse
    from levelhead.mitigate.evaluation.variant_responses import Said
    from levelhead.stats.designs import Design, Draw


def lower_bounds(found: Effects) -> NDArray[np.float64]:
    """`[k]`: below which no gain lies, at the level, for all candidates together.

    -inf for candidates that change nothing: they have no gain to bound.
    """
    errors = found.errors
    some = np.flatnonzero(errors > 0)
    bounds = np.full(len(found.values), -np.inf)
    if some.size:
        (factor,) = found.design.factors
        largest = found.null(some).max(axis=1)
        # A few draws must not make the band narrower than that of one candidate alone.
        alone = float(stats.t.ppf((1 + found.level) / 2, factor.df))
        reach = max(float(np.quantile(largest, found.level, method="higher")), alone)
        bounds[some] = found.values[some] - reach * errors[some]
    return bounds


def measurable(said: Said) -> tuple[Said, dict[str, str]]:
    """The settings that the headline has a value of, and why the others have none.

    An edit that makes a classifier say the same of everything leaves nothing to be measured; it
    must not stop the others.
    """
    head, kept, without = said.measure.headline, {}, {}
    for name, readouts in said.settings.items():
        try:
            refuse_nothing(head.per_item(readouts).detach())
            kept[name] = readouts
        except NotMeasurable as error:
            without[name] = error.what
    return replace(said, settings=kept), without


def loss(price: Said, name: str, *, worse: Worse | None, inference: Inference) -> Estimate | None:
    """By how much a setting is worse than the base, paired; None: not one answer changes.

    Of shares (accuracy) by Bonett and Price's formula, which keeps its width where few answers
    change or none; of other prices by resampling.

    Args:
        price: what the model and its settings said.
        name: of the setting.
        worse: which way is worse, where the price's name does not tell.
        inference: seed, resamples and level.
    """
    head = price.measure.headline
    over = paid_by(head, worse)
    (base, own), _ = shared([price.base, price.settings[name]])
    both = torch.stack([head.per_item(one).detach() for one in (base, own)], dim=1)
    is_share = both.dim() == 2 and bool(((both == 0) | (both == 1)).all())
    if not is_share and bool((both[:, 0] == both[:, 1]).all()):
        return None
    design = price.measure.design(base, head)
    paired = replace(
        head,
        name=f"loss of {head.name}",
        over=_second_less_first(over),
        low=-float("inf"),
        high=float("inf"),
        parity=0.0,
        null=None,
        lean=None,
        alternative="two-sided",
        method=None if head.method == "bca" else head.method,
        closed=_of_shares(over) if is_share else None,
    )
    return estimate(inference, paired, both, design, tested=not is_share)


def _second_less_first(over: Over) -> Over:
    def of(values: torch.Tensor, draw: Draw) -> torch.Tensor:
        return over(values[:, 1], draw) - over(values[:, 0], draw)

    return of


def _of_shares(over: Over) -> Callable[[torch.Tensor, Design, float], Interval]:
    """Bonett and Price's interval in the price's unit, of what gets worse less what gets better."""

    def closed(values: torch.Tensor, design: Design, level: float) -> Interval:
        ones = torch.ones(len(values), dtype=values.dtype)
        scale = float(over(ones, design.whole))  # -100 where less of a percentage is worse
        first, second = (0, 1) if scale < 0 else (1, 0)
        return scaled(paired_shares(values[:, [first, second]], design, level), abs(scale))

    return closed
