"""Rows of a study's table for the results of a projection sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.mitigate.controls.placebo_test import NO_EFFECT
from levelhead.study.table_row import RowCells, estimate_cells, p_cells

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.mitigate.controls.placebo_report import PlaceboReport
    from levelhead.mitigate.evaluation.sweep import SweepReport
    from levelhead.mitigate.selection.select_on_dev import DevSelection
    from levelhead.replication.dawkins2024.claims import ClaimTests
    from levelhead.replication.dawkins2024.pair_budget import (
        PairBudgetCurve,
        SubspaceStabilityReport,
    )


def sweep_rows(result: SweepReport) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    yield estimate_cells("base", result.base, result.measure)
    for setting in result.variants:
        yield {
            "name": setting.name,
            "what": result.measure,
            "value": setting.value,
            "unit": result.unit,
        }
        if setting.change is not None:
            yield estimate_cells(setting.name, setting.change)


def findings_rows(result: ClaimTests) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    if result.base is not None:
        what = NO_EFFECT if result.untestable_reason else result.base.name
        yield estimate_cells("base", result.base, what)
    for claim in result.claims:
        name = f"{claim.claim}, {claim.edit_point}"
        if claim.difference is not None:
            yield estimate_cells(name, claim.difference, f"difference of {result.measure}")
        cells: RowCells = {"value": claim.improved_pairs, "n": claim.n_pairs}
        yield {"name": name, "what": f"settings with {result.better} {result.measure}", **cells}


def selection_rows(result: DevSelection) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    name = result.chosen or "none"
    if result.base is not None:
        yield estimate_cells("base", result.base)
    for estimate in (result.on_dev, result.out_of_bag_gain, result.on_test, result.change):
        if estimate is not None:
            yield estimate_cells(name, estimate)
    if result.cost is not None:
        yield estimate_cells(name, result.cost, mark="")
    for agreement in result.rank_agreement:
        for estimate in (agreement.overlap, agreement.spearman, agreement.kendall):
            if estimate is not None:
                yield estimate_cells(f"top {agreement.share:.0%} on dev", estimate)
    for point in result.pareto_front.points if result.pareto_front else ():
        cells: RowCells = {
            "value": point.share,
            "n": result.pareto_front.n_resamples if result.pareto_front else None,
        }
        yield {"name": point.name, "what": "share of resamples on the front", **cells}


def placebo_rows(result: PlaceboReport) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for test, prefix in ((result.placebo_test, ""), (result.placebo_test_by_value, "by value: ")):
        if test is None:
            continue
        yield estimate_cells(result.variant, test.gain, f"{prefix}{test.gain.name}")
        if test.base is not None:
            yield estimate_cells("base", test.base, f"{prefix}{test.base.name}")
        cells: RowCells = {"n": len(test.placebo_gains), **p_cells(test.p)}
        yield {
            "name": result.variant,
            "what": f"{prefix}placebos, 95%",
            "value": test.quantile,
            **cells,
        }
        if test.effective_placebos is not None:
            what = f"{prefix}independent placebos that they amount to"
            yield {"name": "placebos", "what": what, "value": test.effective_placebos, **cells}
        if test.is_testable:
            mitigates = test.mitigates if prefix else result.mitigates
            yield {"name": result.variant, "what": f"{prefix}mitigates", "value": int(mitigates)}
        else:
            # A 0 would mean "does not mitigate", which the test does not show.
            yield {"name": result.variant, "what": f"{prefix}{test.outcome}", "value": 1}
        for estimate in (test.significant_share, test.significant_gain_share):
            over: RowCells = {"over": f"{len(test.placebo_gains)} placebos"}
            yield estimate_cells("placebos", estimate, f"{prefix}{estimate.name}") | over
    yield {
        "name": "placebos",
        "what": "as many at right angles",
        "value": result.variance_match.effective_placebos,
        "mark": "",
    }
    if result.confidence_control is not None:
        control = result.confidence_control
        yield {
            "name": result.variant,
            "what": "temperature",
            "value": control.temperature,
            "mark": "",
        }
        if control.gain is not None:
            yield estimate_cells(result.variant, control.gain) | p_cells(control.p)
        if control.gain_over_moment_matched is not None:
            yield estimate_cells(result.variant, control.gain_over_moment_matched)
        yield {
            "name": result.variant,
            "what": "beyond lost confidence",
            "value": int(control.exceeds_confidence_loss),
        }


def stability_rows(result: SubspaceStabilityReport) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for site in result.sites:
        name = " ".join(str(part) for part in site.site if part is not None)
        for estimate in (site.share, site.cosine, site.angle):
            yield estimate_cells(name, estimate)
        for size in site.by_size:
            yield estimate_cells(f"{name}, {size.n_pairs} pairs", size.cosine)


def pair_budget_rows(result: PairBudgetCurve) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    yield estimate_cells("base", result.base, result.measure)
    for size in result.sizes:
        name = f"{result.variant}, {size.pairs} pairs"
        yield {"name": name, "what": result.measure, "value": size.value}
        if size.change is not None:
            yield estimate_cells(name, size.change)
