"""Maps of heads, and the controls that belong to them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from levelhead.locate.describe import Description, describe
from levelhead.locate.effects import effects
from levelhead.locate.head_map import Ablation, By, HeadMap, Part, SplitBy
from levelhead.locate.score_heads import locate, without_each
from levelhead.locate.validation.greedy import Greedy, confirmed, greedy
from levelhead.locate.validation.random_heads import Control, control
from levelhead.locate.validation.repeated_splits import Repeated, Spread, repeated
from levelhead.locate.validation.split import halves
from levelhead.measures.responses import model_key
from levelhead.mitigate.heads.mask_top_heads import chosen
from levelhead.study.row import RowCells, estimate_cells, interval_cells, p_cells
from levelhead.study.session import Step, Work, told_of
from levelhead.study.steps.config import (
    Count,
    Draws,
    Reference,
    Strict,
    any_model,
    as_tuple,
    measure_named,
)
from levelhead.study.steps.kinds import StepDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.locate.attribution.variants import Variants
    from levelhead.locate.effects import Effects
    from levelhead.locate.validation.split import Half, Split
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM


Parts = Annotated[tuple[Part, ...], BeforeValidator(as_tuple), Field(min_length=1)]


class Located(Strict):
    """A map of heads, and the controls that belong to it."""

    model: str
    measure: str
    by: By = "gradient"
    parts: Parts = ("heads",)
    ablation: Ablation = "zero"
    exact: Count | Literal["all", "none"] | None = None
    split: Literal["auto"] | SplitBy = "auto"
    sign: Literal["found", "+", "-"] = "found"
    describe: Draws | None = None
    """Relabellings that descriptions stand beside."""
    controls: Annotated[int, Field(ge=199)] | None = None
    """Random sets of heads, of the same layers as the top k and all positive ones."""
    control_sizes: Annotated[tuple[Count | Literal["all"], ...], BeforeValidator(as_tuple)] = (3,)
    splits: Count | None = None
    """Repeated splits."""
    quick: str | None = None
    """A measure with fewer contexts for controls and repeated splits."""
    k: Count = 3
    greedy: Count | None = None
    """Candidates of greedy selection."""

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield any_model(self.model)
        yield measure_named(self.measure)
        if self.quick is not None:
            yield measure_named(self.quick)


def map_steps(work: Work) -> Iterator[Step]:
    """Every map, and behind it what describes and confirms it."""
    for name, row in work.plan.rows(Located).items():
        yield Step(f"map.{name}", partial(map_of, work, name), work.makers(row.model))
        for step in _steps_of_map(work, name, row):
            yield step._replace(after=(f"map.{name}",))


def _steps_of_map(work: Work, name: str, row: Located) -> Iterator[Step]:
    if row.describe:
        yield Step(f"describe.{name}", partial(described_of, work, name))
    if row.controls:
        for k in row.control_sizes:
            yield Step(f"control.{name}.{k}", partial(controlled_of, work, name, k))
    if row.splits:
        yield Step(f"splits.{name}", partial(repeated_of, work, name))
    if row.greedy:
        yield Step(f"greedy.{name}", partial(greedy_of, work, name))


def map_of(work: Work, name: str) -> HeadMap:
    """A map of heads."""
    row = work.plan.rows(Located)[name]
    lm, measure = work.model(row.model), work.measure(row.measure)
    return work.kept(
        HeadMap,
        {"map": row.model_dump(), "measure": told_of(measure), "model": model_key(lm)},
        lambda: locate(
            lm,
            measure,
            by=row.by,
            parts=row.parts,
            ablation=row.ablation,
            exact=row.exact,
            split=row.split,
            sign=row.sign,
            inference=work.inference,
            context=work.context,
        ),
    )


def described_of(work: Work, name: str) -> Description:
    """A map described beside relabelled ones."""
    row, heads = work.plan.rows(Located)[name], work.map(name)
    return work.kept(
        Description,
        {"map": heads.content_hash, "relabellings": row.describe},
        lambda: describe(
            work.measure(row.measure),
            *ablated_heads(work, name),
            relabellings=row.describe or 0,
            inference=work.inference,
            measured_by=heads.measured_by,
        ),
    )


def controlled_of(work: Work, name: str, k: int | str) -> Control:
    """The top heads beside random ones, on the confirm half."""
    row, heads = work.plan.rows(Located)[name], work.map(name)
    lm, measure = work.model(row.model), work.measure(row.quick or row.measure)
    sites = chosen(heads, "top", k)  # type: ignore[arg-type]

    def make() -> Control:
        readouts, cut = split_halves(work, lm, measure, heads)
        cut.refuse_one()
        return control(
            lm,
            measure,
            cut.confirm.of(readouts),
            sites,
            sign=heads.direction.sign,
            draws=row.controls or 199,
            inference=work.inference,
            context=work.context,
        )

    told = {"map": heads.content_hash, "k": k, "draws": row.controls}
    return work.kept(Control, told | {"measure": told_of(measure)}, make)


def repeated_of(work: Work, name: str) -> Repeated:
    """Found and confirmed again and again."""
    row, heads = work.plan.rows(Located)[name], work.map(name)
    lm, measure = work.model(row.model), work.measure(row.quick or row.measure)

    def make() -> Repeated:
        readouts, cut = split_halves(work, lm, measure, heads)
        sites = [one.site for one in heads.heads]
        ablated = without_each(
            lm, measure, readouts, sites, cut=cut, ablation=row.ablation, context=work.context
        )
        return repeated(
            lm,
            measure,
            readouts,
            k=row.k,
            splits=row.splits or 20,
            by=cut.by,
            sign=heads.direction.sign,
            ablated=ablated,
            inference=work.inference,
            context=work.context,
        )

    told = {"map": heads.content_hash, "splits": row.splits, "k": row.k}
    return work.kept(Repeated, told | {"measure": told_of(measure)}, make)


def greedy_of(work: Work, name: str) -> Greedy:
    """Heads chosen one after another, on the find half."""
    row, heads = work.plan.rows(Located)[name], work.map(name)
    lm, measure = work.model(row.model), work.measure(row.measure)

    def make() -> Greedy:
        readouts, cut = split_halves(work, lm, measure, heads)
        cut.refuse_one()
        candidates = heads.positive()[: row.greedy]
        chosen = greedy(
            lm,
            measure,
            cut.find.of(readouts),
            candidates,
            k=row.k,
            sign=heads.direction.sign,
            inference=work.inference,
            context=work.context,
        )
        return confirmed(
            lm,
            measure,
            cut.confirm.of(readouts),
            chosen,
            candidates,
            sign=heads.direction.sign,
            inference=work.inference,
            context=work.context,
        )

    return work.kept(Greedy, {"map": heads.content_hash, "k": row.k, "of": row.greedy}, make)


def split_halves(work: Work, lm: LM, measure: Measure, heads: HeadMap) -> tuple[Readouts, Split]:
    """What a model says to a measure, and the halves that a map was made with.

    A quicker measure of the same words takes the halves of the map's own: one word more or less
    would deal them anew.
    """
    found = measure.read(lm, context=work.context)[0]
    own = found
    if measure.settings != heads.measurement.provenance.settings["measure"]:
        own = work.measure(_measure_of(work, heads)).read(lm, context=work.context)[0]
    return found, halves(measure, own, by=heads.halves.by, seed=heads.halves.seed)


def _measure_of(work: Work, heads: HeadMap) -> str:
    """The name of the measure that a map was made with."""
    maps = (
        row
        for name, row in work.plan.rows(Located).items()
        if work.done.get(f"map.{name}") is heads
    )
    return next(maps).measure


def ablated_heads(work: Work, name: str) -> tuple[Variants, Half]:
    """The model without each head of a map, and the confirm half."""
    row, heads = work.plan.rows(Located)[name], work.map(name)
    lm, measure = work.model(row.model), work.measure(row.measure)
    found, cut = split_halves(work, lm, measure, heads)
    sites = [one.site for one in heads.scores if one.effect is not None]
    ablated = without_each(
        lm, measure, found, sites, cut=cut, ablation=row.ablation, context=work.context
    )
    return ablated, cut.confirm


def head_effects(work: Work, name: str) -> Effects:
    """A map's effects on the confirm half; the same draws for all maps of a measure."""
    row, heads = work.plan.rows(Located)[name], work.map(name)
    ablated, confirm = ablated_heads(work, name)
    return effects(
        work.measure(row.measure),
        confirm.varied(ablated, None),
        [confirm.varied(ablated, i) for i in range(len(ablated.variants))],
        sign=heads.direction.sign,
        inference=work.inference,
        name="effects, confirm half",
    )


def map_rows(one: HeadMap) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    yield estimate_cells("find half", one.halves.find, one.measure)
    if one.halves.confirm:
        yield estimate_cells("confirm half", one.halves.confirm, one.measure)
    yield {"name": "map", "what": "sign", "value": one.direction.sign}
    positive = sum(score.score > 0 for score in one.heads)
    yield {"name": "map", "what": "positive scores", "value": positive, "n": len(one.heads)}
    for score in one.scores:
        yield {"name": score.label, "what": "score", "value": score.score}
        if score.effect is not None:
            told = {
                "detectable": score.detectable,
                **interval_cells(score.interval),
                **p_cells(score.p),
            }
            yield {"name": score.label, "what": "effect", "value": score.effect, **told}
    for estimate in (one.agreement, one.replication):
        if estimate is not None:
            yield estimate_cells("map", estimate)


def description_rows(one: Description) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for figure in (*one.figures, *one.layers):
        told = {"low": figure.null_low, "high": figure.null_high, "parity": figure.null_median}
        yield {
            "name": "description",
            "what": figure.name,
            "value": figure.value,
            "method": f"{one.relabellings} relabellings" if one.relabellings else "",
            "over": f"{one.relabellings} relabellings" if one.relabellings else "",
            **told,
            **p_cells(figure.p),
        }


def control_rows(one: Control) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    name = f"{len(one.heads)} heads"
    yield estimate_cells(name, one.effect)
    told = {"value": one.median, "p": one.p.value, "n": len(one.random)}
    yield {"name": name, "what": "random heads, median", **told}
    yield {"name": name, "what": "random heads, 95%", "value": one.top, "n": len(one.random)}


def repeated_rows(one: Repeated) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for spread in (one.joint, one.overlap, one.replication):
        if spread is not None:
            yield _spread_row(spread)
    for head, count in one.chosen:
        yield {"name": head, "what": f"splits with it in the top {one.k}", "value": count}


def _spread_row(one: Spread) -> RowCells:
    told = {"low": one.low, "high": one.high, "method": "range over splits", "n": one.splits}
    told["over"] = f"{one.splits} splits"
    return {"name": "splits", "what": one.name, "value": one.median, **told}


def greedy_rows(one: Greedy) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    yield {"name": "greedy", "what": "heads", "value": len(one.steps)}
    for step in one.steps:
        yield estimate_cells(step.head, step.gain, "gain")
    for estimate in (one.joint, one.top):
        if estimate is not None:
            yield estimate_cells("confirm half", estimate)


HEAD_MAPS = StepDefinition(
    Located,
    map_steps,
    {
        HeadMap: map_rows,
        Description: description_rows,
        Control: control_rows,
        Repeated: repeated_rows,
        Greedy: greedy_rows,
    },
)
