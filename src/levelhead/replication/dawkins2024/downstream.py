"""Does less bias inside a model mean less bias of what is built on it? Dawkins et al. 2024, 5.

The same settings are measured inside the pretrained model and in classifiers trained from it, into
which the projections are put without retraining. Several classifiers, which differ in the seed of
their training, are averaged setting by setting. What was sampled are a measure's items (triples,
occupations, premises): they are redrawn, each measure's apart. The settings are a fixed grid and
the seeds are those there are: neither is redrawn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field
from scipy import stats

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Interval, Provenance, Record
from levelhead.mitigate.evaluation.rank_stability import correlated
from levelhead.mitigate.projection.config_grid import LEVELS
from levelhead.replication.dawkins2024.claims import Better, Findings, findings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.mitigate.evaluation.gain import Redrawn

Viability = Literal["absolute", "relative"]
MARGIN = 0.05
"""The share of the best value below which a loss is none to speak of."""


class Column(Record):
    """A measure of the base and of every setting: a column of Table 7."""

    name: str
    better: Better
    unit: str = ""
    measured_by: Ruler | None = None
    """What it is measured by."""
    base: float
    names: tuple[str, ...]
    values: tuple[float, ...]
    apart: tuple[tuple[float, ...], ...] = ()
    """Of each classifier by itself: the base, then the settings."""

    @property
    def settings(self) -> dict[str, float]:
        """The values by setting, in the order of the grid."""
        return dict(zip(self.names, self.values, strict=True))


class Best(Record):
    """The best setting of a level by a measure, among those that are viable: Table 5.

    It is the best of those of its level on the items it is reported on: too good.
    """

    level: str
    """Or "base"."""
    measure: str
    among: Annotated[int, Field(ge=1)]
    setting: str | None
    """None: no setting of the level is viable."""
    value: float | None = None
    price: float | None = None


class Regret(Record):
    """What is lost outside by a choice made inside, or by another objective."""

    chosen_by: str
    measure: str
    setting: str
    """The best by the one measure."""
    best: str
    """The best by the other itself, on all of its items."""
    lost: Estimate
    """By how much the best by a measure is better in it than the one chosen by the other, on units
    left out of its choice."""
    differ: Literal["yes", "no", "undecided"]
    """Whether something is lost; no: the upper end is below a twentieth of the best value."""


class Downstream(Record):
    """Tables 5, 6 and 7 of Dawkins et al. 2024, and how far inside and outside agree."""

    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    inside: tuple[str, ...]
    outside: tuple[str, ...]
    models: Annotated[int, Field(ge=1)]
    """Classifiers that are averaged."""
    price: str
    viability: Viability
    keep: float
    """What a viable setting may lose of the price: in its unit, or as a share of the base's."""
    limit: float
    """The worst price that a viable setting has."""
    viable: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Settings that some model cannot be asked of, or has no value with."""
    best: tuple[Best, ...]
    correlations: tuple[Estimate, ...]
    """Spearman, over all settings and the base, of every column inside with every one outside."""
    regrets: tuple[Regret, ...]
    findings: tuple[Findings, ...]
    provenance: tuple[Provenance, ...] = ()
    """Of every measure of every model."""

    def column(self, name: str) -> Column:
        """A column by its name."""
        for one in self.columns:
            if one.name == name:
                return one
        raise LevelheadError(f"no column {name!r}", mend="see .columns")


class Measured(Record):
    """How a column reads: its name, which way is better, its unit."""

    name: str
    better: Better
    unit: str = ""
    measured_by: Ruler | None = None
    """What it is measured by."""


def averaged(several: Sequence[Redrawn]) -> Redrawn:
    """The mean over models of one measure, draw by draw: they were asked the same items."""
    first = several[0]
    if any(own.items != first.items or own.draws.shape != first.draws.shape for own in several):
        raise LevelheadError(
            "classifiers that are averaged could not read the same items",
            mend="look at what each dropped, and why",
        )
    return replace(
        first,
        whole=np.mean([own.whole for own in several], axis=0),
        draws=np.mean([own.draws for own in several], axis=0),
        left=np.mean([own.left for own in several], axis=0),
    )


def downstream(
    names: Sequence[str],
    inside: Mapping[Measured, Redrawn],
    outside: Mapping[Measured, Sequence[Redrawn]],
    *,
    price: str,
    left_out: Sequence[str] = (),
    keep: float = 0.05,
    viability: Viability = "relative",
    provenance: Sequence[Provenance] = (),
) -> Downstream:
    """Compare settings inside a model and in what is built on it. No model is run.

    Args:
        names: the settings, in the order of the columns.
        inside: measures of the pretrained model, base first.
        outside: measures of each classifier, base first, with units left out.
        price: one of them, such as an accuracy.
        left_out: settings that are told to be missing.
        keep: what a viable setting may lose of it.
        viability: "absolute": in the price's own unit (points, where it is in %); "relative": as a
            share of the base's.
        provenance: of what was asked.
    """
    if viability not in ("absolute", "relative"):
        raise LevelheadError(f"viability is {viability!r}", mend="give absolute or relative")
    if price not in {one.name for one in outside}:
        raise LevelheadError(f"{price} is no measure outside", mend="measure the price as well")
    means = {one: averaged(several) for one, several in outside.items()}
    if any(len(own.whole) != 1 + len(names) for own in (*inside.values(), *means.values())):
        raise LevelheadError(
            f"{len(names)} settings, and columns of another length", mend="give every setting once"
        )
    columns = [_column(one, own, names) for one, own in inside.items()]
    columns += [_column(one, means[one], names, apart) for one, apart in outside.items()]
    paid = next(own for one, own in means.items() if one.name == price)
    base, way = float(paid.whole[0]), _sign(next(one for one in means if one.name == price))
    limit = base - way * keep * (abs(base) if viability == "relative" else 1.0)
    fits = way * paid.whole[1:] >= way * limit - 1e-12
    every = {**inside, **means}
    bests = [
        row
        for one, own in every.items()
        if one.name != price
        for row in _bests(one, own, names, fits if one in means else None, paid.whole[1:])
    ]
    return Downstream(
        columns=tuple(columns),
        inside=tuple(one.name for one in inside),
        outside=tuple(one.name for one in outside),
        models=len(next(iter(outside.values()))),
        price=price,
        viability=viability,
        keep=keep,
        limit=limit,
        left_out=tuple(left_out),
        provenance=tuple(provenance),
        viable=tuple(name for name, own in zip(names, fits, strict=True) if own),
        best=tuple(bests),
        correlations=_correlations(inside, means),
        regrets=_regrets(inside, means, names, price, fits),
        findings=tuple(
            findings(
                own,
                names,
                measure=one.name,
                better=one.better,
                unit=one.unit,
                measured_by=one.measured_by,
            )
            for one, own in every.items()
        ),
    )


def _column(
    one: Measured, own: Redrawn, names: Sequence[str], apart: Sequence[Redrawn] = ()
) -> Column:
    return Column(
        name=one.name,
        better=one.better,
        unit=one.unit,
        measured_by=one.measured_by,
        base=float(own.whole[0]),
        names=tuple(names),
        values=tuple(own.whole[1:].tolist()),
        apart=tuple(tuple(each.whole.tolist()) for each in apart),
    )


def _bests(
    one: Measured,
    own: Redrawn,
    names: Sequence[str],
    fits: NDArray[np.bool_] | None,
    paid: NDArray[np.float64],
) -> list[Best]:
    """The best of every level; outside, of those that are viable."""
    found = []
    for level in LEVELS:
        places = [i for i, name in enumerate(names) if name.partition(" ")[0] == level]
        if not places:
            continue
        told = {"level": level, "measure": one.name, "among": len(places)}
        some = [i for i in places if fits is None or fits[i]]
        if not some:
            found.append(Best(setting=None, **told))  # type: ignore[arg-type]
            continue
        values = _sign(one) * own.whole[1:]
        place = max(some, key=lambda i: values[i])
        told |= {"value": float(own.whole[1 + place]), "price": float(paid[place])}
        found.append(Best(setting=names[place], **told))  # type: ignore[arg-type]
    return found


def _correlations(
    inside: Mapping[Measured, Redrawn], outside: Mapping[Measured, Redrawn]
) -> tuple[Estimate, ...]:
    found = []
    for one, own in inside.items():
        for other, far in outside.items():
            # -1: the base itself, which is one of the paper's 76 models.
            first, second = (each.effects(range(-1, len(each.whole) - 1)) for each in (own, far))
            estimate = correlated(first, second, f"spearman of {one.name} and {other.name}")
            found += [] if estimate is None else [estimate]
    return tuple(found)


def _regrets(
    inside: Mapping[Measured, Redrawn],
    outside: Mapping[Measured, Redrawn],
    names: Sequence[str],
    price: str,
    fits: NDArray[np.bool_],
) -> tuple[Regret, ...]:
    """What the best by every other measure loses in each measure outside, of viable settings."""
    if not fits.any():
        return ()
    every = {**inside, **outside}
    found = []
    for other, far in outside.items():
        for one, own in every.items():
            if one.name in (other.name, price):
                continue
            chosen, best = (
                int(np.where(fits, _sign(each) * values.whole[1:], -np.inf).argmax())
                for each, values in ((one, own), (other, far))
            )
            lost = _lost(
                far, _sign(other), (chosen, best), fits, f"{other.name} lost by {one.name}"
            )
            found.append(
                Regret(
                    chosen_by=one.name,
                    measure=other.name,
                    setting=names[chosen],
                    best=names[best],
                    lost=lost,
                    differ=_differ(lost, MARGIN * abs(float(far.whole[1 + best]))),
                )
            )
    return tuple(found)


def _lost(
    far: Redrawn, sign: int, both: tuple[int, int], fits: NDArray[np.bool_], name: str
) -> Estimate:
    """The mean, on units left out, of the best by the units drawn less the one that was chosen.

    Its standard error is the larger of two: that of the difference of the chosen setting and the
    best one, and that of the same where the best is found anew in every draw.
    """
    chosen, best = both
    if not len(far.left):
        raise LevelheadError("no units were left out", mend="redraw with left=True")
    drawn = np.where(fits, sign * far.draws[:, 1:], -np.inf).argmax(axis=1)
    rows = np.arange(len(drawn))
    value = float((sign * (far.left[rows, 1 + drawn] - far.left[:, 1 + chosen])).mean())
    (factor,) = far.design.factors
    spreads = [
        float((far.draws[rows, 1 + own] - far.draws[:, 1 + chosen]).std(ddof=1))
        for own in (np.full(len(rows), best), drawn)
    ]
    error = max(spreads) * float(np.sqrt(factor.units / factor.df))
    reach = float(stats.t.ppf((1 + far.level) / 2, factor.df)) * error
    return Estimate(
        name=name,
        value=value,
        interval=Interval(
            low=value - reach,
            high=value + reach,
            level=far.level,
            method=f"out of bag, t, {far.design}",
        ),
        parity=0.0,
        n=far.design.items,
    )


def _differ(lost: Estimate, margin: float) -> Literal["yes", "no", "undecided"]:
    if lost.interval.low > 0:
        return "yes"
    return "no" if lost.interval.high < margin else "undecided"


def _sign(one: Measured) -> int:
    return 1 if one.better == "higher" else -1
