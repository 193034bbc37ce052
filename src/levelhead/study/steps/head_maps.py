"""Head maps and their controls."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from levelhead.locate.describe import MapDescription, describe_map
from levelhead.locate.effects import estimate_effects
from levelhead.locate.head_map import Ablation, Component, HeadMap, LocateMethod, SplitBy
from levelhead.locate.score_heads import ablate_each, locate
from levelhead.locate.validation.greedy import (
    GreedySelection,
    confirm_greedy_selection,
    select_heads_greedily,
)
from levelhead.locate.validation.random_heads import RandomHeadControl, compare_with_random_heads
from levelhead.locate.validation.repeated_splits import (
    RepeatedSplitConfig,
    SplitRange,
    SplitStability,
    repeat_splits,
)
from levelhead.locate.validation.split import split_items
from levelhead.measures.responses import model_key
from levelhead.mitigate.heads.mask_top_heads import select_heads
from levelhead.study.session import StudySession, StudyStep, measure_inputs
from levelhead.study.steps.config import (
    Count,
    Reference,
    ResampleCount,
    StrictConfig,
    any_model_reference,
    as_tuple,
    measure_reference,
)
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.table_row import RowCells, estimate_cells, interval_cells, p_cells

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.locate.attribution.variants import AblationResponses
    from levelhead.locate.validation.split import ItemSplit, SplitHalf
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.paired_effects import PairedEffects


Components = Annotated[tuple[Component, ...], BeforeValidator(as_tuple), Field(min_length=1)]


class HeadMapStep(StrictConfig):
    """A head map and its controls."""

    model: str
    measure: str
    method: LocateMethod = "gradient"
    components: Components = ("heads",)
    ablation: Ablation = "zero"
    ablate_top: Count | Literal["all", "none"] | None = None
    split: Literal["auto"] | SplitBy = "auto"
    bias_direction: Literal["auto", "+", "-"] = "auto"
    description_permutations: ResampleCount | None = None
    """Number of label permutations for the null distribution of descriptions."""
    controls: Annotated[int, Field(ge=199)] | None = None
    """Number of random head sets of the same layers as the top k and all positive heads."""
    control_sizes: Annotated[tuple[Count | Literal["all"], ...], BeforeValidator(as_tuple)] = (3,)
    splits: Count | None = None
    """Number of repeated splits."""
    quick_measure: str | None = None
    """Faster measure, with fewer contexts, for controls and repeated splits."""
    k: Count = 3
    greedy_candidates: Count | None = None
    """Number of candidates of greedy selection."""

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield any_model_reference(self.model)
        yield measure_reference(self.measure)
        if self.quick_measure is not None:
            yield measure_reference(self.quick_measure)


def head_map_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield every map, and after it the steps that describe and confirm it."""
    for name, row in session.config.rows(HeadMapStep).items():
        yield StudyStep(
            f"map.{name}",
            partial(run_head_map_step, session, name),
            session.steps_that_train(row.model),
        )
        for step in _steps_of_map(session, name, row):
            yield step._replace(after=(f"map.{name}",))


def _steps_of_map(session: StudySession, name: str, row: HeadMapStep) -> Iterator[StudyStep]:
    if row.description_permutations:
        yield StudyStep(f"describe.{name}", partial(run_description_step, session, name))
    if row.controls:
        for k in row.control_sizes:
            yield StudyStep(f"control.{name}.{k}", partial(run_random_heads_step, session, name, k))
    if row.splits:
        yield StudyStep(f"splits.{name}", partial(run_repeated_splits_step, session, name))
    if row.greedy_candidates:
        yield StudyStep(f"greedy.{name}", partial(run_greedy_step, session, name))


def run_head_map_step(session: StudySession, name: str) -> HeadMap:
    """Compute a head map."""
    row = session.config.rows(HeadMapStep)[name]
    lm, measure = session.model(row.model), session.measure(row.measure)
    return session.load_or_compute(
        HeadMap,
        {"map": row.model_dump(), "measure": measure_inputs(measure), "model": model_key(lm)},
        lambda: locate(
            lm,
            measure,
            method=row.method,
            components=row.components,
            ablation=row.ablation,
            ablate_top=row.ablate_top,
            split=row.split,
            bias_direction=row.bias_direction,
            inference=session.inference,
            context=session.context,
        ),
    )


def run_description_step(session: StudySession, name: str) -> MapDescription:
    """Describe a map against maps with permuted labels."""
    row, head_map = session.config.rows(HeadMapStep)[name], session.head_map(name)
    return session.load_or_compute(
        MapDescription,
        {"map": head_map.content_hash, "relabellings": row.description_permutations},
        lambda: describe_map(
            session.measure(row.measure),
            *ablated_heads(session, name),
            n_relabellings=row.description_permutations or 0,
            inference=session.inference,
            measured_by=head_map.measured_by,
        ),
    )


def run_random_heads_step(
    session: StudySession, name: str, k: int | Literal["all"]
) -> RandomHeadControl:
    """Test the top heads against random ones on the confirmation half."""
    row, head_map = session.config.rows(HeadMapStep)[name], session.head_map(name)
    lm, measure = session.model(row.model), session.measure(row.quick_measure or row.measure)
    sites = select_heads(head_map, "top", k)

    def make() -> RandomHeadControl:
        responses, split = split_halves(session, lm, measure, head_map)
        # On the items that ranked them, top heads are better than random ones by selection alone.
        split.require_two_halves()
        return compare_with_random_heads(
            lm,
            measure,
            split.confirmation.select(responses),
            sites,
            sign=head_map.bias_sign.sign,
            n_random_sets=row.controls or 199,
            inference=session.inference,
            context=session.context,
        )

    inputs = {"map": head_map.content_hash, "k": k, "draws": row.controls}
    return session.load_or_compute(
        RandomHeadControl, inputs | {"measure": measure_inputs(measure)}, make
    )


def run_repeated_splits_step(session: StudySession, name: str) -> SplitStability:
    """Select and confirm heads on repeated splits."""
    row, head_map = session.config.rows(HeadMapStep)[name], session.head_map(name)
    lm, measure = session.model(row.model), session.measure(row.quick_measure or row.measure)

    def make() -> SplitStability:
        responses, split = split_halves(session, lm, measure, head_map)
        sites = [head.site for head in head_map.heads]
        ablated = ablate_each(
            lm,
            measure,
            responses,
            sites,
            split=split,
            ablation=row.ablation,
            context=session.context,
        )
        return repeat_splits(
            lm,
            measure,
            responses,
            config=RepeatedSplitConfig(row.splits or 20, split.split_by, row.k),
            sign=head_map.bias_sign.sign,
            ablation_responses=ablated,
            inference=session.inference,
            context=session.context,
        )

    inputs = {"map": head_map.content_hash, "splits": row.splits, "k": row.k}
    return session.load_or_compute(
        SplitStability, inputs | {"measure": measure_inputs(measure)}, make
    )


def run_greedy_step(session: StudySession, name: str) -> GreedySelection:
    """Select heads one after another on the discovery half."""
    row, head_map = session.config.rows(HeadMapStep)[name], session.head_map(name)
    lm, measure = session.model(row.model), session.measure(row.measure)

    def make() -> GreedySelection:
        responses, split = split_halves(session, lm, measure, head_map)
        # On the items that selected them, heads would be confirmed by selection alone.
        split.require_two_halves()
        candidates = head_map.positive_heads()[: row.greedy_candidates]
        selection = select_heads_greedily(
            lm,
            measure,
            split.discovery.select(responses),
            candidates,
            max_heads=row.k,
            sign=head_map.bias_sign.sign,
            inference=session.inference,
            context=session.context,
        )
        return confirm_greedy_selection(
            lm,
            measure,
            split.confirmation.select(responses),
            selection,
            candidates,
            sign=head_map.bias_sign.sign,
            inference=session.inference,
            context=session.context,
        )

    return session.load_or_compute(
        GreedySelection,
        {"map": head_map.content_hash, "k": row.k, "of": row.greedy_candidates},
        make,
    )


def split_halves(
    session: StudySession, lm: LM, measure: Measure, head_map: HeadMap
) -> tuple[Responses, ItemSplit]:
    """Responses of a model to a measure, and the halves of a map.

    A faster measure of the same words uses the map's halves: a new split could assign words of the
    discovery half to the confirmation half.
    """
    responses = measure.read(lm, context=session.context)[0]
    map_responses = responses
    if measure.settings != head_map.measurement.provenance.settings["measure"]:
        map_responses = session.measure(_measure_of(session, head_map)).read(
            lm, context=session.context
        )[0]
    # By the seed of the map: heads are confirmed on the items that did not choose them.
    return responses, split_items(
        measure, map_responses, split_by=head_map.split.split_by, seed=head_map.split.seed
    )


def _measure_of(session: StudySession, head_map: HeadMap) -> str:
    """The name of a map's measure."""
    maps = (
        row
        for name, row in session.config.rows(HeadMapStep).items()
        if session.results.get(f"map.{name}") is head_map
    )
    return next(maps).measure


def ablated_heads(session: StudySession, name: str) -> tuple[AblationResponses, SplitHalf]:
    """Ablate each head of a map, and return the confirmation half."""
    row, head_map = session.config.rows(HeadMapStep)[name], session.head_map(name)
    lm, measure = session.model(row.model), session.measure(row.measure)
    responses, split = split_halves(session, lm, measure, head_map)
    # Heads that were not ablated have no effect to resample.
    sites = [score.site for score in head_map.scores if score.effect is not None]
    ablated = ablate_each(
        lm, measure, responses, sites, split=split, ablation=row.ablation, context=session.context
    )
    return ablated, split.confirmation


def head_effects(session: StudySession, name: str) -> PairedEffects:
    """A map's effects on the confirmation half; all maps of a measure share the same resamples."""
    row, head_map = session.config.rows(HeadMapStep)[name], session.head_map(name)
    ablated, confirm = ablated_heads(session, name)
    return estimate_effects(
        session.measure(row.measure),
        confirm.select_variant(ablated, None),
        [confirm.select_variant(ablated, i) for i in range(len(ablated.variants))],
        sign=head_map.bias_sign.sign,
        inference=session.inference,
        # The name seeds the resamples, so maps of one measure share them.
        name="effects, confirm half",
    )


def head_map_rows(result: HeadMap) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    yield estimate_cells("find half", result.split.discovery, result.measure)
    if result.split.confirmation:
        yield estimate_cells("confirm half", result.split.confirmation, result.measure)
    yield {"name": "map", "what": "sign", "value": result.bias_sign.sign}
    positive = sum(score.score > 0 for score in result.heads)
    yield {"name": "map", "what": "positive scores", "value": positive, "n": len(result.heads)}
    for score in result.scores:
        yield {"name": score.label, "what": "score", "value": score.score}
        if score.effect is not None:
            cells: RowCells = {
                "detectable": score.detectable,
                **interval_cells(score.interval),
                **p_cells(score.p),
            }
            yield {"name": score.label, "what": "effect", "value": score.effect, **cells}
    for estimate in (result.agreement, result.replication):
        if estimate is not None:
            yield estimate_cells("map", estimate)


def description_rows(result: MapDescription) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for statistic in (*result.statistics, *result.layer_sums):
        cells: RowCells = {
            "low": statistic.null_low,
            "high": statistic.null_high,
            "parity": statistic.null_median,
        }
        yield {
            "name": "description",
            "what": statistic.name,
            "value": statistic.value,
            "method": f"{result.n_relabellings} relabellings" if result.n_relabellings else "",
            "over": f"{result.n_relabellings} relabellings" if result.n_relabellings else "",
            **cells,
            **p_cells(statistic.p),
        }


def control_rows(result: RandomHeadControl) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    name = f"{len(result.heads)} heads"
    yield estimate_cells(name, result.effect)
    cells: RowCells = {
        "value": result.random_median,
        "p": result.p.value,
        "n": len(result.random_effects),
    }
    yield {"name": name, "what": "random heads, median", **cells}
    yield {
        "name": name,
        "what": "random heads, 95%",
        "value": result.random_95th_percentile,
        "n": len(result.random_effects),
    }


def split_stability_rows(result: SplitStability) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for spread in (result.joint_effect, result.overlap, result.replication):
        if spread is not None:
            yield _spread_row(spread)
    for head, count in result.selection_counts:
        yield {"name": head, "what": f"splits with it in the top {result.k}", "value": count}


def _spread_row(spread: SplitRange) -> RowCells:
    cells: RowCells = {
        "low": spread.low,
        "high": spread.high,
        "method": "range over splits",
        "n": spread.n_splits,
    }
    cells["over"] = f"{spread.n_splits} splits"
    return {"name": "splits", "what": spread.name, "value": spread.median, **cells}


def greedy_rows(result: GreedySelection) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    yield {"name": "greedy", "what": "heads", "value": len(result.steps)}
    for step in result.steps:
        yield estimate_cells(step.head, step.gain, "gain")
    for estimate in (result.joint_effect, result.top_heads_effect):
        if estimate is not None:
            yield estimate_cells("confirm half", estimate)


HEAD_MAPS = StepDefinition(
    HeadMapStep,
    head_map_steps,
    {
        HeadMap: head_map_rows,
        MapDescription: description_rows,
        RandomHeadControl: control_rows,
        SplitStability: split_stability_rows,
        GreedySelection: greedy_rows,
    },
)
