"""The cost of a study's steps that are more than one measurement, in passes over items.

A map, a masking or a sweep reads the items of a measure many times: with each head ablated, with
each set of heads masked, with each edit. One pass is counted exactly (`study.cost.estimate_cost`),
and a step is a number of passes. Steps that stop early or share layers take less than this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.locate.score_heads import ABLATE_ALL_UP_TO, N_BEST, N_WORST
from levelhead.mitigate.projection.config_grid import projection_grid
from levelhead.study.steps.head_maps import HeadMapStep
from levelhead.study.steps.masking import MaskHeadsStep, MaskingCurveStep
from levelhead.study.steps.projection_sweep import ProjectionSweepStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.models.lm import LM
    from levelhead.study.session import StudySession
    from levelhead.study.steps.config import StudyConfigBase

GRADIENT_PASSES = 3
"""A forward and a backward pass with frozen weights, in forward passes: 2 + 4 of 2 operations."""
# One half of the items; and ablating a head runs half of the layers again, on average.
HALF = 0.5


class PlannedPasses(NamedTuple):
    """A step, and how often it reads the items of a measure on a model."""

    step: str
    model: str
    measure: str
    passes: float


def list_planned_passes(session: StudySession) -> Iterator[PlannedPasses]:
    """List the passes of all maps, maskings and sweeps of a study.

    Args:
        session: the study; models that it trains are counted as their base.
    """
    yield from _map_passes(session)
    yield from _masking_passes(session)
    yield from _sweep_passes(session)


def _map_passes(session: StudySession) -> Iterator[PlannedPasses]:
    for name, row in session.config.rows(HeadMapStep).items():
        model = _base_of(session.config, row.model)
        ablated = _count_ablated(row, session.model(model))
        # The gradient on the discovery half, ablation on the other.
        once = (1 + GRADIENT_PASSES) * HALF + ablated * HALF * HALF
        yield PlannedPasses(f"map.{name}", model, row.measure, once)
        quick = row.quick_measure or row.measure
        for size in row.control_sizes if row.controls else ():
            passes = (row.controls or 0) * HALF * HALF
            yield PlannedPasses(f"control.{name}.{size}", model, quick, passes)
        if row.splits:
            yield PlannedPasses(f"splits.{name}", model, quick, row.splits * once)


def _masking_passes(session: StudySession) -> Iterator[PlannedPasses]:
    config = session.config
    maps = config.rows(HeadMapStep)
    for name, masks in config.rows(MaskHeadsStep).items():
        row = maps[masks.map]
        # Unmasked, top, bottom, all positive, and random sets of two sizes.
        passes = 4 + 2 * masks.random
        for measure in (row.measure, *masks.utility_measures):
            yield PlannedPasses(f"masking.{name}", _base_of(config, row.model), measure, passes)
    for name, curve in config.rows(MaskingCurveStep).items():
        model = _base_of(config, maps[curve.map].model)
        # Half of the heads have positive scores.
        n_points = 1 + _count_heads(session.model(model)) / 2 / curve.step_size
        for measure in curve.measures:
            yield PlannedPasses(f"lines.{name}", model, measure, n_points)


def _sweep_passes(session: StudySession) -> Iterator[PlannedPasses]:
    n_edits = len(projection_grid())
    for name, sweep in session.config.rows(ProjectionSweepStep).items():
        model = _base_of(session.config, sweep.model)
        for measure in dict.fromkeys((*sweep.measures, sweep.bias_measure, sweep.test_measure)):
            yield PlannedPasses(f"sweep.{name}", model, measure, 1 + n_edits)
        if sweep.placebos:
            # The best setting of each of four levels.
            yield PlannedPasses(f"placebo.{name}", model, sweep.test_measure, 4 * sweep.placebos)


def _base_of(config: StudyConfigBase, name: str) -> str:
    while name in config.trained_models:
        name = config.trained_models[name].base
    return name


def _count_heads(lm: LM) -> int:
    return lm.layout.layers * lm.layout.heads


def _count_ablated(row: HeadMapStep, lm: LM) -> int:
    if row.ablate_top == "none":
        return 0
    if isinstance(row.ablate_top, int):
        return row.ablate_top
    n_heads = _count_heads(lm)
    if row.ablate_top == "all" or n_heads <= ABLATE_ALL_UP_TO:
        return n_heads
    return N_BEST + N_WORST
