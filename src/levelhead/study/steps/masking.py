"""Heads of a map masked and amplified (Yang et al. 2025, Tables 1 and 3)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import mark_of
from levelhead.mitigate.heads.amplify import Amplified, amplify
from levelhead.mitigate.heads.mask_top_heads import Lines, Targeted, lines, targeted
from levelhead.study.row import RowCells, estimate_cells
from levelhead.study.session import Step, Work, told_of
from levelhead.study.steps.config import (
    Count,
    Counts,
    Factors,
    Names,
    Reference,
    Strict,
    map_named,
    measure_named,
)
from levelhead.study.steps.head_maps import Located
from levelhead.study.steps.kinds import StepDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.mitigate.evaluation.change import Change


class Masking(Strict):
    """Table 1 of Yang et al. 2025: top, bottom, all positive and random heads masked."""

    map: str
    prices: Names
    k: Count = 3
    random: Annotated[int, Field(ge=2)] = 5

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield map_named(self.map)
        yield from map(measure_named, self.prices)


class Masked(Strict):
    """Table 3: other measures as more and more heads of a map are masked."""

    map: str
    measures: Names
    every: Count = 5

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield map_named(self.map)
        yield from map(measure_named, self.measures)


class Amplifying(Strict):
    """Heads with negative scores amplified, beside masking."""

    map: str
    price: str
    ks: Counts = (1, 3, 5)
    factors: Factors = (1.5, 2.0, 3.0)

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield map_named(self.map)
        yield measure_named(self.price)


def masking_steps(work: Work) -> Iterator[Step]:
    """A step for every table of masked heads."""
    for name, row in work.plan.rows(Masking).items():
        yield Step(f"masking.{name}", partial(masked_of, work, name), (f"map.{row.map}",))


def curve_steps(work: Work) -> Iterator[Step]:
    """A step for every set of curves."""
    for name, row in work.plan.rows(Masked).items():
        yield Step(f"lines.{name}", partial(lines_of, work, name), (f"map.{row.map}",))


def amplify_steps(work: Work) -> Iterator[Step]:
    """A step for every choice of heads to amplify."""
    for name, row in work.plan.rows(Amplifying).items():
        yield Step(f"amplify.{name}", partial(amplified_of, work, name), (f"map.{row.map}",))


def masked_of(work: Work, name: str) -> Targeted:
    """Table 1."""
    row = work.plan.rows(Masking)[name]
    heads = work.map(row.map)
    own = work.plan.rows(Located)[row.map]
    lm = work.model(own.model)
    measures = [work.measure(one) for one in (own.measure, *row.prices)]
    told = {"map": heads.content_hash, "k": row.k, "random": row.random}
    return work.kept(
        Targeted,
        told | {"measures": [told_of(one) for one in measures]},
        lambda: targeted(
            lm,
            heads,
            measures,
            k=row.k,
            random=row.random,
            inference=work.inference,
            context=work.context,
        ),
    )


def lines_of(work: Work, name: str) -> Lines:
    """Table 3."""
    row = work.plan.rows(Masked)[name]
    heads = work.map(row.map)
    lm = work.model(work.plan.rows(Located)[row.map].model)
    measures = [(one, work.measure(one)) for one in row.measures]
    told = {"map": heads.content_hash, "every": row.every, "names": list(row.measures)}
    return work.kept(
        Lines,
        told | {"measures": [told_of(one) for _, one in measures]},
        lambda: lines(
            lm,
            heads,
            measures,
            every=row.every,
            inference=work.inference,
            context=work.context,
        ),
    )


def amplified_of(work: Work, name: str) -> Amplified:
    """Amplifying beside masking."""
    row = work.plan.rows(Amplifying)[name]
    heads, own = work.map(row.map), work.plan.rows(Located)[row.map]
    lm, measure, price = work.model(own.model), work.measure(own.measure), row.price
    told = {"map": heads.content_hash, "row": row.model_dump(), "k": own.k}
    return work.kept(
        Amplified,
        told | {"measures": [told_of(measure), told_of(work.measure(price))]},
        lambda: amplify(
            lm,
            heads,
            measure,
            work.measure(price),
            k=own.k,
            ks=row.ks,
            factors=row.factors,
            inference=work.inference,
            context=work.context,
        ),
    )


def _change_rows(name: str, one: Change) -> Iterator[RowCells]:
    failed = mark_of(one.measured_by)
    yield estimate_cells(name, one.value, one.measure, failed)
    for estimate in (one.change, one.confirmed, *one.beside):
        if estimate is not None:
            yield estimate_cells(name, estimate, mark=failed)


def masking_rows(one: Targeted) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for change in one.base:
        yield from _change_rows("none", change)
    for row in one.rows:
        for change in row.changes:
            yield from _change_rows(row.name, change)


def curve_rows(one: Lines) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for curve in one.curves:
        failed = mark_of(curve.measured_by)
        for point in curve.points:
            told = {"low": point.low, "high": point.high, "mark": failed, "over": "items"}
            yield {"name": f"top {point.k}", "what": curve.name, "value": point.value, **told}
            if point.change is not None:
                yield estimate_cells(
                    f"top {point.k}", point.change, f"change of {curve.name}", failed
                )


def amplified_rows(one: Amplified) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for setting in (one.masking, *one.tried):
        name = f"{len(setting.heads)} heads x {setting.factor:g}"
        yield {"name": name, "what": "gain, find half", "value": setting.gain}
        yield {"name": name, "what": "price, find half", "value": setting.price, "mark": ""}
    gains = (one.masking_gain, one.gain, one.difference)
    for estimate in (one.masking_gain, one.masking_price, one.gain, one.price, one.difference):
        if estimate is not None:
            yield estimate_cells("confirm half", estimate, mark=None if estimate in gains else "")


MASKING = StepDefinition(Masking, masking_steps, {Targeted: masking_rows})
CURVES = StepDefinition(Masked, curve_steps, {Lines: curve_rows})
AMPLIFY = StepDefinition(Amplifying, amplify_steps, {Amplified: amplified_rows})
