"""How biased heads are spread: counts, concentration, layers, each beside maps of dealt labels.

"A small set of heads" is what any skewed distribution looks like. So every description of the
effects stands beside the same description of maps in which the labels were dealt anew.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError
from levelhead.core.results import PValue, Record
from levelhead.core.run_context import Inference
from levelhead.locate.validation.relabel import relabelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.locate.attribution.variants import Variants
    from levelhead.locate.validation.split import Half
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aspect

TOP = 3
SHARES = (0.05, 0.10)


class Figure(Record):
    """One number that describes a map, beside maps of dealt labels."""

    name: str
    value: float
    null_median: float | None = None
    null_low: float | None = None
    null_high: float | None = None
    """2.5% and 97.5% of the dealt maps."""
    p: PValue | None = None
    """That dealt labels give a number as far out, on the nearer side, twice."""


class Description(Record):
    """Numbers that describe a map."""

    figures: tuple[Figure, ...]
    layers: tuple[Figure, ...]
    """The sum of each layer's values, the first layer first."""
    relabellings: int
    measured_by: Ruler | None = None

    def figure(self, name: str) -> Figure:
        """One of the numbers."""
        return next(one for one in self.figures if one.name == name)


def described(values: NDArray[np.float64], layer: Sequence[int]) -> dict[str, float]:
    """Counts of positive and negative heads, how the positive mass is spread, sums by layer.

    The effective number of heads is (sum b)^2 / sum b^2 over positive b: 1 if one head carries
    everything, n if n carry the same.

    >>> round(described(np.array([3.0, 1.0, -1.0]), [0, 0, 1])["effective number of heads"], 2)
    1.6
    """
    positive = np.sort(values[values > 0])[::-1]
    mass = float(positive.sum())

    def share(count: int) -> float:
        return float(positive[:count].sum()) / mass if mass else 0.0

    found = {
        "positive heads": float(positive.size),
        "negative heads": float((values < 0).sum()),
        f"share of the top {TOP}": share(TOP),
        **{
            f"share of the top {100 * part:.0f}%": share(max(1, math.ceil(part * values.size)))
            for part in SHARES
        },
        "effective number of heads": mass**2 / float((positive**2).sum()) if mass else 0.0,
        "total": float(values.sum()),
        "largest": float(values.max()),
    }
    for number in sorted(set(layer)):
        found[f"layer {number + 1}"] = float(values[np.array(layer) == number].sum())
    return found


def describe(
    measure: Measure,
    ablated: Variants,
    half: Half,
    *,
    relabellings: int = 199,
    inference: Inference = Inference(),
    measured_by: Ruler | None = None,
) -> Description:
    """Describe the effects of ablation on a half, and those of dealt labels. No forward is run.

    Args:
        measure: what was measured.
        ablated: the model without each head.
        half: of which items.
        relabellings: how often labels are dealt anew.
        inference: seed.
        measured_by: the measure, asked of such a model.
    """
    rng = inference.rng(measure.name, "relabelled maps")
    if any(variant.sites[0].stream != "head_out" for variant in ablated.variants):
        raise LevelheadError("a description is of heads", mend="ablate heads only")
    layer = [variant.sites[0].layer for variant in ablated.variants]
    readouts = [half.varied(ablated, None)]
    readouts += [half.varied(ablated, i) for i in range(len(ablated.variants))]
    head = measure.headline

    whole = measure.design(readouts[0], head).whole
    values = np.array([float(head.over(head.per_item(one), whole)) for one in readouts])
    own = described(_way(values[0], head) * (values[0] - values[1:]), layer)
    null: dict[str, list[float]] = {name: [] for name in own}
    for _ in range(relabellings):
        change, per_item = relabelled(measure, readouts[0], rng)
        dealt = [change(one) for one in readouts]
        whole = measure.design(dealt[0], head).whole
        values = np.array([float(head.over(per_item(one), whole)) for one in dealt])
        fallen = _way(values[0], head) * (values[0] - values[1:])
        for name, value in described(fallen, layer).items():
            null[name].append(value)
    figures = [_figure(name, value, null[name]) for name, value in own.items()]
    return Description(
        figures=tuple(one for one in figures if not one.name.startswith("layer ")),
        layers=tuple(one for one in figures if one.name.startswith("layer ")),
        relabellings=relabellings,
        measured_by=measured_by,
    )


def _way(value: float, head: Aspect) -> float:
    """Which way is bias: the same rule for the map and for dealt ones, by their own value."""
    if head.role == "parity":
        return -1.0
    return 1.0 if head.parity is None or value >= head.parity else -1.0


def _figure(name: str, value: float, null: Sequence[float]) -> Figure:
    plain = Figure(name=name, value=value)
    if not null:
        return plain
    b = min(sum(one >= value for one in null), sum(one <= value for one in null))
    told = PValue(
        value=min(1.0, 2 * (b + 1) / (len(null) + 1)),
        method="labels dealt anew",
        alternative="two-sided",
        draws=len(null),
    )
    low, median, high = np.quantile(null, [0.025, 0.5, 0.975])
    return plain.model_copy(
        update={
            "null_low": float(low),
            "null_median": float(median),
            "null_high": float(high),
            "p": told,
        }
    )


def scored(values: NDArray[np.float64]) -> Description:
    """The same numbers of a map's scores, `[layers, heads]`, without a null."""
    layer = np.repeat(np.arange(len(values)), values.shape[1]).tolist()
    figures = [_figure(name, one, ()) for name, one in described(values.ravel(), layer).items()]
    return Description(
        figures=tuple(one for one in figures if not one.name.startswith("layer ")),
        layers=tuple(one for one in figures if one.name.startswith("layer ")),
        relabellings=0,
    )
