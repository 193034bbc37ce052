"""Organisms x measures: the expected and the actual verdicts.

Rows are the doses and confounders of `dose_response` and the controls of `controls`. A cell agrees
where its models have the expected verdict. Every other cell is an exception, and must be explained
in `explained_verdicts` or be of a measure that the calibration has refuted, which users read as
inconclusive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.calibrate import controls, dose_response
from levelhead.calibrate.controls import BIASED, UNBIASED, ControlResult, get_control
from levelhead.calibrate.dose_response import ModelResponses
from levelhead.calibrate.explained_verdicts import EXPLAINED, NO_DOSE
from levelhead.calibrate.organisms.organism import describe_machine
from levelhead.calibrate.suite import PREFERENCE
from levelhead.calibrate.tables import EMPTY, TextTable
from levelhead.core.calibration import (
    ALARM_P,
    MIN_NULLS_FOR_RATE,
    MIN_POWER,
    OrganismHash,
    load_calibration,
)
from levelhead.core.results import FrozenMapping, Interval, Record
from levelhead.core.run_context import RunContext
from levelhead.core.versions import installed_versions
from levelhead.engine.scheduler import Job, run_job
from levelhead.measures.registry import utility_measures
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from levelhead.calibrate.controls import ExpectedVerdict
    from levelhead.calibrate.dose_response import MeasureResponse
    from levelhead.core.files import Url
    from levelhead.engine.executors.base import Executor

DOSE_ROWS: dict[tuple[str, float], tuple[str, dict[str, ExpectedVerdict]]] = {
    ("stereotype", 0.0): (NO_DOSE, UNBIASED),
    ("stereotype", 1.0): ("full dose", BIASED),
    ("skew", 1.0): ("group default", UNBIASED | {PREFERENCE: "differs"}),
    ("frequency", 1.0): ("one side's targets more frequent", UNBIASED),
    # The other group's targets are uniform, so the two groups of a blank are unequal: a
    # preference may be found or not.
    ("one group", 1.0): ("one of two groups", BIASED | {PREFERENCE: "any"}),
}
"""Name and expected verdicts of a row, by (variant, dose) of `dose_response`."""


class VerdictCell(Record):
    """Verdicts of one measure on the models of one row and family."""

    organism: str
    family: str
    measure: str
    expected: str
    models: int
    outcomes: dict[str, int]
    """Number of models by verdict; "differs" with its direction."""
    is_expected: bool
    is_refuted: bool
    """Whether the calibration refuted the measure in this family: users read it as inconclusive."""
    explanation: str
    """Explanation of a cell that does not agree; empty: unexplained."""
    reasons: tuple[str, ...] = ()
    """Reasons of the verdicts, each once."""


class FalseAlarms(Record):
    """How often a measure finds a bias in models without a dose, with the original labels."""

    family: str
    measure: str
    alarms: int
    models: int
    interval: Interval

    @property
    def description(self) -> str:
        """The rate in words; with too few models none is claimed."""
        if self.models < MIN_NULLS_FOR_RATE:
            return f"not known (n = {self.models} null models; alarms in {self.alarms})"
        low, high = self.interval.low, self.interval.high
        return f"{self.alarms} of {self.models} [{low:.0%}, {high:.0%}]"


class OrganismHeads(Record):
    """Results on the heads of a control."""

    organism: str
    family: str
    seed: int
    heads: controls.ControlHeads


class VerdictMatrix(Record):
    """All cells and false alarms, with the command, versions and models that made them."""

    command: str
    versions: FrozenMapping
    machine: str
    models: tuple[OrganismHash, ...]
    cells: tuple[VerdictCell, ...]
    alarms: tuple[FalseAlarms, ...]
    heads: tuple[OrganismHeads, ...]

    @property
    def tested_cells(self) -> tuple[VerdictCell, ...]:
        """The cells with an expected verdict."""
        return tuple(cell for cell in self.cells if cell.expected not in ("any", "no test"))

    @property
    def exceptions(self) -> tuple[VerdictCell, ...]:
        """The cells that do not agree."""
        return tuple(cell for cell in self.tested_cells if not cell.is_expected)

    @property
    def unexplained(self) -> tuple[VerdictCell, ...]:
        """The exceptions without an explanation."""
        return tuple(cell for cell in self.exceptions if not cell.explanation)

    @property
    def summary(self) -> str:
        """The agreement, in a sentence."""
        agreed = sum(cell.is_expected for cell in self.tested_cells)
        rate = proportion_interval(agreed, len(self.tested_cells))
        return (
            f"{agreed} of {len(self.tested_cells)} verdicts are the expected ones "
            f"[{rate.low:.1%}, {rate.high:.1%}]; {len(self.exceptions)} exceptions, "
            f"{len(self.unexplained)} of them unexplained."
        )


class VerdictRow(NamedTuple):
    """The responses of one model, with its row of the matrix."""

    organism: str
    family: str
    expected: dict[str, ExpectedVerdict]
    responses: tuple[MeasureResponse, ...]


def run_verdict_matrix(
    folder: Url,
    *,
    quick: bool = False,
    executor: Executor | None = None,
    context: RunContext = RunContext(),
) -> VerdictMatrix:
    """Make and measure what is missing, and compare the verdicts with the expected ones.

    Args:
        folder: path or URL that stores the results of every model; may be that of `calibrate`,
            whose models are then not measured again.
        quick: whether to use a few models only, to check the machinery; the results are no
            evidence.
        executor: computes the units; this process by default.
        context: progress and cancellation; the folder is the store.
    """
    dose_models = [
        model
        for model in dose_response.list_dose_models(quick=quick)
        if (model.variant, model.rho) in DOSE_ROWS
    ]
    cases = controls.list_control_cases(quick=quick)
    tasks = [*(item.task for item in dose_models), *(item.task for item in cases)]
    store = run_job(
        Job("controls", tuple(tasks)),
        folder,
        executor=executor,
        context=context,
        extend=True,
    )
    model_responses = [ModelResponses.from_json(store.get(model.task.key)) for model in dose_models]
    control_results = [ControlResult.from_json(store.get(case.task.key)) for case in cases]
    return build_verdict_matrix(model_responses, control_results, quick=quick)


def build_verdict_matrix(
    model_responses: Sequence[ModelResponses],
    control_results: Sequence[ControlResult],
    *,
    quick: bool = False,
) -> VerdictMatrix:
    """Build the matrix from the responses.

    Args:
        model_responses: responses of the dose models.
        control_results: responses of the controls.
        quick: whether they come from a quick run.
    """
    rows = [*_make_dose_rows(model_responses), *_make_control_rows(control_results)]
    models = [
        OrganismHash(
            what=f"{result.architecture}, {result.variant}, rho {result.rho:g}, seed {result.seed}",
            texts=result.texts,
            weights=result.weights,
        )
        for result in model_responses
    ] + [
        OrganismHash(
            what=f"{result.architecture}, {result.control}, seed {result.seed}",
            texts=result.texts,
            weights=result.weights,
        )
        for result in control_results
    ]
    return VerdictMatrix(
        command="levelhead calibrate --controls" + (" --quick" if quick else ""),
        versions=installed_versions(),
        machine=describe_machine(),
        models=tuple(models),
        cells=_make_cells(rows),
        alarms=_make_false_alarms([row for row in rows if row.organism == NO_DOSE]),
        heads=tuple(
            OrganismHeads(
                organism=result.control,
                family=result.architecture,
                seed=result.seed,
                heads=result.heads,
            )
            for result in control_results
            if result.heads is not None
        ),
    )


def _make_dose_rows(model_responses: Sequence[ModelResponses]) -> Iterable[VerdictRow]:
    for result in model_responses:
        name, expected = DOSE_ROWS[result.variant, result.rho]
        yield VerdictRow(name, result.architecture, expected, result.responses)


def _make_control_rows(control_results: Sequence[ControlResult]) -> Iterable[VerdictRow]:
    for result in control_results:
        yield VerdictRow(
            result.control,
            result.architecture,
            dict(get_control(result.control).expected),
            result.responses,
        )


def get_directed_verdict(response: MeasureResponse) -> str:
    """Return a verdict as a word of the matrix, a difference with its direction.

    Args:
        response: the response of a measure.
    """
    if response.status != "differs":
        return response.status
    rises = (response.effect or 0.0) > 0
    return "stereotype" if rises == (response.expected != "falls") else "anti-stereotype"


def has_expected_verdict(expected: str, outcomes: Sequence[str]) -> bool:
    """Report whether the models of a cell have the expected verdict.

    A difference must be found in four models of five, as everywhere in the calibration. Where none
    is expected, a test at .05 still finds one in a model of twenty: more alarms than that (binomial
    test) do not agree, nor do verdicts that leave more than one model of five open. A model that
    cannot be measured must be inconclusive every single time: there a miss reads as "no bias".

    Args:
        expected: the expected verdict.
        outcomes: the verdict of each model.
    """
    n = len(outcomes)
    if expected == "inconclusive":
        return all(outcome in ("inconclusive", "not measured") for outcome in outcomes)
    if expected == "not shown":
        alarms = sum(outcome in ("stereotype", "anti-stereotype") for outcome in outcomes)
        n_open = n - alarms - sum(outcome == "not shown" for outcome in outcomes)
        return not _has_excess_alarms(alarms, n) and n_open <= (1 - MIN_POWER) * n
    sides = ("stereotype", "anti-stereotype") if expected == "differs" else (expected,)
    return sum(outcome in sides for outcome in outcomes) >= MIN_POWER * n


def _has_excess_alarms(alarms: int, n: int) -> bool:
    from scipy import stats

    return bool(stats.binomtest(alarms, n, ALARM_P, alternative="greater").pvalue <= ALARM_P)


def _make_cells(rows: Sequence[VerdictRow]) -> tuple[VerdictCell, ...]:
    utilities = utility_measures()
    names = dict.fromkeys(
        (row.organism, row.family, response.measure)
        for row in rows
        for response in row.responses
        if response.measure not in utilities
    )
    cells, calibration = [], load_calibration()
    for organism, family, measure in names:
        family_rows = [row for row in rows if (row.organism, row.family) == (organism, family)]
        responses = [
            response
            for row in family_rows
            for response in row.responses
            if response.measure == measure
        ]
        expected_verdicts = family_rows[0].expected
        expected = expected_verdicts.get(measure, expected_verdicts["*"])
        outcomes = [get_directed_verdict(response) for response in responses]
        measure_calibration = (
            # `causal` only selects a fallback, and the condition below accepts this family alone.
            None if calibration is None else calibration.find_measure(measure, family, causal=False)
        )
        is_refuted = (
            measure_calibration is not None
            and measure_calibration.architecture == family
            and measure_calibration.verdict == "misses"
        )
        # A refuted measure meets the same criteria: its exceptions are listed, not left out.
        explanation = EXPLAINED.get((organism, family, measure), "")
        if is_refuted and not explanation:
            explanation = "refuted by the calibration: users read it as inconclusive"
        is_expected = expected in ("any", "no test") or has_expected_verdict(expected, outcomes)
        cells.append(
            VerdictCell(
                organism=organism,
                family=family,
                measure=measure,
                expected=expected,
                models=len(responses),
                outcomes={name: outcomes.count(name) for name in sorted(set(outcomes))},
                is_expected=is_expected,
                is_refuted=is_refuted,
                explanation="" if is_expected else explanation,
                reasons=tuple(
                    dict.fromkeys(response.reason or response.failure for response in responses)
                )[:3],
            )
        )
    return tuple(cells)


def _make_false_alarms(rows: Sequence[VerdictRow]) -> tuple[FalseAlarms, ...]:
    utilities = utility_measures()
    names = dict.fromkeys(
        (row.family, response.measure)
        for row in rows
        for response in row.responses
        if response.measure not in utilities and response.status not in ("no test", "not measured")
    )
    false_alarms = []
    for family, measure in names:
        responses = [
            response
            for row in rows
            if row.family == family
            for response in row.responses
            if response.measure == measure
        ]
        alarms = sum(response.status == "differs" for response in responses)
        false_alarms.append(
            FalseAlarms(
                family=family,
                measure=measure,
                alarms=alarms,
                models=len(responses),
                interval=proportion_interval(alarms, len(responses)),
            )
        )
    return tuple(false_alarms)


# -- as tables


def make_matrix_tables(verdict_matrix: VerdictMatrix) -> tuple[TextTable, ...]:
    """Make the tables of controls, verdicts by family, exceptions, false alarms and heads.

    Args:
        verdict_matrix: the matrix.
    """
    # docs/results/data/calibration has these tables: tools/calibration.py writes them.
    families = list(dict.fromkeys(cell.family for cell in verdict_matrix.cells))
    return (
        TextTable(
            "Controls: how they are made",
            ("organism", "how it is made", "families", "seeds"),
            tuple(
                (control.name, control.description, ", ".join(control.families), str(control.seeds))
                for control in controls.CONTROLS
            ),
        ),
        *(_make_family_table(verdict_matrix, family) for family in families),
        TextTable(
            "Exceptions: verdicts that are not the expected ones",
            ("organism", "family", "measure", "expected", "actual", "why"),
            tuple(
                (
                    cell.organism,
                    cell.family,
                    cell.measure,
                    cell.expected,
                    _format_outcomes(cell),
                    cell.explanation or "unexplained",
                )
                for cell in verdict_matrix.exceptions
            ),
        ),
        TextTable(
            "False alarms in models without a dose, with the original labels",
            ("measure", "family", "called biased"),
            tuple(
                (alarm.measure, alarm.family, alarm.description) for alarm in verdict_matrix.alarms
            ),
        ),
        TextTable(
            "Heads of controls, by ablation: shares of the measure that masking removes",
            (
                "organism",
                "family",
                "seed",
                "measure",
                "largest single share",
                "confirmed",
                "both heads masked",
                "greedy selects",
            ),
            tuple(
                (
                    row.organism,
                    row.family,
                    str(row.seed),
                    f"{row.heads.measure} {row.heads.effect:.3g}",
                    f"{max(row.heads.single_shares.values(), key=abs):.3f}",
                    ", ".join(row.heads.confirmed) or "none",
                    EMPTY if row.heads.joint_share is None else f"{row.heads.joint_share:.3f}",
                    ", ".join(row.heads.greedy) or EMPTY,
                )
                for row in verdict_matrix.heads
            ),
        ),
    )


def _make_family_table(verdict_matrix: VerdictMatrix, family: str) -> TextTable:
    """Make the table of organisms by measures of one family, with counts of the verdicts."""
    cells = [cell for cell in verdict_matrix.cells if cell.family == family]
    organisms = dict.fromkeys(cell.organism for cell in cells)
    return TextTable(
        f"Expected and actual verdicts, {family}-like models",
        ("organism", "measure", "expected", "actual", "agrees"),
        tuple(
            (
                organism,
                cell.measure,
                cell.expected,
                _format_outcomes(cell),
                EMPTY
                if cell.expected in ("any", "no test")
                else "yes"
                if cell.is_expected
                else "NO",
            )
            for organism in organisms
            for cell in cells
            if cell.organism == organism
        ),
    )


def _format_outcomes(cell: VerdictCell) -> str:
    return ", ".join(f"{name} {count} of {cell.models}" for name, count in cell.outcomes.items())
