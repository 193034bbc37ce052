"""Results of the calibration as text tables, for the terminal and the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.calibration import MIN_NULLS_FOR_RATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.calibration import (
        Calibration,
        EditCalibration,
        MeasureCalibration,
        Proportion,
        RemovalVerdicts,
    )
    from levelhead.core.results import Estimate, Interval

EMPTY = "-"
NOT_STEREOTYPES = ("skew", "frequency")
"""Planted confounders that are no stereotype."""


class TextTable(NamedTuple):
    """A table of strings with a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def make_calibration_tables(calibration: Calibration) -> tuple[TextTable, ...]:
    """Make the tables of skills, measures, confounders, locators, edits and removals.

    Args:
        calibration: the results.
    """
    # docs/results/data/calibration has these tables: tools/calibration.py writes them.
    return (
        TextTable(
            "Did the models learn their language?",
            ("family", "skill", "models", "worst", "the best possible there"),
            tuple(
                (
                    skill.architecture,
                    skill.skill,
                    str(skill.models),
                    f"{skill.worst:.3f}",
                    f"{skill.best:.3f}",
                )
                for skill in calibration.skills
            ),
        ),
        TextTable(
            "Measures: does the value follow the dose, and is it silent without one?",
            (
                "measure",
                "family",
                "Spearman",
                "slope by dose",
                "alarms with permuted labels",
                "alarms without a dose",
                "power by dose",
                "verdict",
            ),
            tuple(
                _make_measure_row(measure) for measure in calibration.measures if measure.has_dose
            ),
        ),
        TextTable(
            "Utilities and Distance: no dose of what they measure was planted",
            ("measure", "family", "Spearman", "alarms without a dose", "verdict"),
            tuple(
                (
                    measure.measure,
                    measure.architecture,
                    _format_value(measure.rank, measure.rank_interval),
                    _format_null_alarms(measure),
                    measure.full_verdict,
                )
                for measure in calibration.measures
                if not measure.has_dose
            ),
        ),
        TextTable(
            "Confounders: the response to them, in shares of the response to the full dose",
            ("measure", "family", "confounder", "share", "least and largest", "alarms"),
            tuple(
                (
                    measure.measure,
                    measure.architecture,
                    confounder.variant,
                    EMPTY if confounder.share is None else f"{confounder.share:.2f}",
                    EMPTY
                    if confounder.range is None
                    else f"{confounder.range[0]:.2f}, {confounder.range[1]:.2f}",
                    f"{confounder.alarms} of {confounder.models}",
                )
                for measure in calibration.measures
                for confounder in measure.confounded
                if measure.has_dose
            ),
        ),
        TextTable(
            "Locators: is the known head first?",
            (
                "family",
                "first by gradient",
                "by path",
                "by ablation",
                "greedy selects it alone",
                "models that learned through it",
                "left without it",
                "verdict",
            ),
            tuple(
                (
                    locator.architecture,
                    *(_format_share(locator.first[by]) for by in ("gradient", "path", "ablation")),
                    _format_share(locator.alone),
                    f"{locator.learned} of {locator.known}",
                    f"{locator.without:.1g}",
                    locator.verdict,
                )
                for locator in calibration.locators
            ),
        ),
        TextTable(
            "Locators on ordinary models: are the heads that ablation confirms ranked first?",
            (
                "family",
                "models",
                "confirmed heads of 16",
                "AUROC, gradient",
                "AUROC, path",
                "gradient and ablation, Spearman",
            ),
            tuple(
                (
                    locator.architecture,
                    str(locator.ordinary),
                    "{} to {}".format(*locator.positive),
                    *(_format_estimate(locator.auroc[by]) for by in ("gradient", "path")),
                    _format_estimate(locator.agreement),
                )
                for locator in calibration.locators
                if locator.ordinary
            ),
        ),
        TextTable(
            "Edits: their effect on a bias, on none, and on perplexity",
            (
                "edit",
                "family",
                "share of the bias gone",
                "change without a bias",
                "called a change",
                "utility cost",
                "verdict",
            ),
            tuple(
                (
                    edit.edit,
                    edit.architecture,
                    _format_estimate(edit.gone),
                    _format_estimate(edit.at_none),
                    f"{edit.significant} of {edit.nulls}",
                    _format_utility_cost(edit),
                    edit.verdict,
                )
                for edit in calibration.edits
            ),
        ),
        TextTable(
            "Removed or hidden: verdicts where the answer is known",
            (
                "family",
                "seed",
                "the only head that sees groups masked (removed)",
                "scaled to a quarter (hidden)",
                "another head masked (not removed)",
                "right, wrong, no answer",
            ),
            (
                *(
                    (
                        verdicts.architecture,
                        str(verdicts.seed),
                        verdicts.gone,
                        verdicts.less,
                        verdicts.there,
                        _count_answers([verdicts]),
                    )
                    for verdicts in calibration.removed
                ),
                *_make_removal_totals(calibration.removed),
            ),
        ),
    )


def summarise_in_one_line(calibration: MeasureCalibration) -> str:
    """Summarise the calibration of a measure in one line, to report it with a value.

    Args:
        calibration: the calibration of the measure on one family.
    """
    follows = calibration.rank is not None and calibration.has_dose
    rank = f"Spearman {calibration.rank:.2f} with a planted dose" if follows else ""
    # An alarm in most models of a confounder: users may see the same on data with that property.
    also = [
        confounder.variant
        for confounder in calibration.confounded
        if confounder.variant in NOT_STEREOTYPES and 2 * confounder.alarms > confounder.models
    ]
    confounders = f"also responds to {' and '.join(also)}" if also else ""
    alarms = calibration.false_alarms_text if calibration.nulls else ""
    parts = filter(
        None, (rank, calibration.smallest_dose_text, alarms, confounders, *calibration.reasons)
    )
    details = "; ".join(parts)
    models = f"{len(calibration.points)} {calibration.architecture}-like models"
    return f"{calibration.verdict} (n = {models}): {details}"


def _make_measure_row(calibration: MeasureCalibration) -> tuple[str, ...]:
    power = ", ".join(
        f"{dose_power.rho:g}: {dose_power.hits}/{dose_power.models}"
        for dose_power in calibration.power
    )
    return (
        calibration.measure,
        calibration.architecture,
        _format_value(calibration.rank, calibration.rank_interval),
        EMPTY if calibration.slope is None else f"{calibration.slope:.4g}",
        _format_permuted_alarm_rate(calibration),
        _format_null_alarms(calibration),
        power or EMPTY,
        calibration.full_verdict,
    )


def _format_utility_cost(calibration: EditCalibration) -> str:
    estimate = _format_estimate(calibration.price)
    return (
        estimate
        if calibration.price is None or calibration.is_cost_known
        else f"utility cost unknown: {estimate}"
    )


def _count_answers(verdicts: Sequence[RemovalVerdicts], column: int | None = None) -> str:
    """Count right, wrong and missing answers, of one column or of all three."""
    columns = range(3) if column is None else (column,)
    right = sum(row.are_correct[i] for row in verdicts for i in columns)
    wrong = sum(row.are_wrong[i] for row in verdicts for i in columns)
    return f"{right}, {wrong}, {len(verdicts) * len(columns) - right - wrong}"


def _make_removal_totals(verdicts: Sequence[RemovalVerdicts]) -> tuple[tuple[str, ...], ...]:
    """Make the last row: right, wrong and missing answers of every column."""
    if not verdicts:
        return ()
    return (
        (
            "all",
            str(len(verdicts)),
            *(_count_answers(verdicts, column) for column in range(3)),
            _count_answers(verdicts),
        ),
    )


def _format_permuted_alarm_rate(calibration: MeasureCalibration) -> str:
    """Format the alarm rate with permuted labels."""
    # Models are the sampled units: many permutations of few models give no rate.
    if calibration.alarms is None or calibration.nulls >= MIN_NULLS_FOR_RATE:
        return _format_value(calibration.alarms, calibration.alarms_interval)
    return f"not known (n = {calibration.nulls})"


def _format_null_alarms(calibration: MeasureCalibration) -> str:
    """Format the number of alarms with the original labels."""
    return f"{calibration.null_alarms} of {calibration.nulls}" if calibration.nulls else EMPTY


def _format_value(value: float | None, interval: Interval | None) -> str:
    if value is None:
        return EMPTY
    bounds = "" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
    return f"{value:.2f}{bounds}"


def _format_estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return EMPTY
    # Equal models have no t interval: a point would look like one that is exact.
    if estimate.interval.low == estimate.interval.high:
        return f"{estimate.value:.2f} in all {estimate.n}"
    return f"{_format_value(estimate.value, estimate.interval)}, n {estimate.n}"


def _format_share(share: Proportion) -> str:
    return f"{share.hits} of {share.of} [{share.interval.low:.0%}, {share.interval.high:.0%}]"
