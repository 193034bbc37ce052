"""Organisms x measures: the verdict that is expected, and the verdict that came out.

Rows are the doses and confounders of `dose` and the controls of `controls`. A cell agrees where its
models' verdicts are the expected one; what does not agree is an exception, and must be explained in
EXPLAINED or be of a measure that the calibration has refuted, which users read as inconclusive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.calibrate import controls
from levelhead.calibrate import dose_response as dose
from levelhead.calibrate.controls import BIASED, UNBIASED, Checked, control_of
from levelhead.calibrate.dose_response import Answered
from levelhead.calibrate.organisms.organism import machine
from levelhead.calibrate.suite import PREFERENCE
from levelhead.calibrate.tables import EMPTY, Tabled
from levelhead.core.calibration import ALARM, ENOUGH_NULLS, POWER, Grown, kept
from levelhead.core.results import FrozenMapping, Interval, Record
from levelhead.core.run_context import RunContext
from levelhead.core.versions import installed_versions
from levelhead.engine.scheduler import Job, run
from levelhead.measures.registry import utility_measures
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from levelhead.calibrate.controls import Expected
    from levelhead.calibrate.dose_response import Said
    from levelhead.core.files import Url
    from levelhead.engine.executors.base import Runner

NO_DOSE = "no dose"
DOSED: dict[tuple[str, float], tuple[str, dict[str, Expected]]] = {
    ("stereotype", 0.0): (NO_DOSE, UNBIASED),
    ("stereotype", 1.0): ("full dose", BIASED),
    ("skew", 1.0): ("group default", UNBIASED | {PREFERENCE: "differs"}),
    ("frequency", 1.0): ("one side's targets more frequent", UNBIASED),
    # The other group's targets are even, which leaves both sides of a blank unequal.
    ("one group", 1.0): ("one of two groups", BIASED | {PREFERENCE: "any"}),
}
"""(variant, dose) of `dose`: the name of the row, and what is expected."""
MASKED = ("bert", "roberta", "albert")
REASONS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "these models do name one group more often in blanks, up to 9 times, though their text "
        "names both alike: found, not a false alarm",
        (NO_DOSE, "full dose", "reversed dose", "one side's targets more frequent"),
        MASKED,
        (PREFERENCE,),
    ),
    (
        "in these causal models embeddings of the two groups' words do not lie apart: the skill is "
        "lacking",
        (NO_DOSE, "full dose"),
        ("gpt2",),
        ("seat",),
    ),
    (
        "half of the items are about the group without a stereotype: half the effect",
        ("one of two groups",),
        ("bert",),
        ("stereotype_score", "stereotype_margin"),
    ),
    (
        "p .048 in one of the models, with parity in the interval: chance, over so many cells",
        ("one side's targets more frequent",),
        ("bert",),
        ("strength",),
    ),
    (
        "where one group is seldom named, its words do not lie apart: the skill is lacking",
        ("group default",),
        ("bert",),
        ("seat",),
    ),
    (
        "eleven words a group: neither the skill nor the bias is shown in every model",
        ("one of three groups",),
        ("bert",),
        tuple(
            f"seat: {pair} group"
            for pair in ("first and second", "first and third", "second and third")
        ),
    ),
)
"""Why verdicts are other than expected: (reason, organisms, families, measures)."""
EXPLAINED: dict[tuple[str, str, str], str] = {
    (organism, family, measure): reason
    for reason, organisms, families, measures in REASONS
    for organism in organisms
    for family in families
    for measure in measures
}
"""(organism, family, measure): why the verdict is another than the expected one."""


class Cell(Record):
    """What one measure said of the models of one row and family."""

    organism: str
    family: str
    measure: str
    expected: str
    models: int
    outcomes: dict[str, int]
    """How many models have which verdict; "differs" with its direction."""
    agrees: bool
    refuted: bool
    """By the calibration, in this family: users read the measure as inconclusive."""
    explained: str
    """Of a cell that does not agree; empty: unexplained."""
    reasons: tuple[str, ...] = ()
    """What the verdicts themselves say, each once."""


class FalseAlarms(Record):
    """How often a measure calls a model without a dose biased, labels as they are."""

    family: str
    measure: str
    alarms: int
    models: int
    interval: Interval

    @property
    def stated(self) -> str:
        """In words; with too few models nothing is claimed."""
        if self.models < ENOUGH_NULLS:
            return f"not known (n = {self.models} null models; alarms in {self.alarms})"
        low, high = self.interval.low, self.interval.high
        return f"{self.alarms} of {self.models} [{low:.0%}, {high:.0%}]"


class HeadsOf(Record):
    """What was found of a control's heads."""

    organism: str
    family: str
    seed: int
    heads: controls.Heads


class Matrix(Record):
    """All cells, false alarms, and what made them."""

    command: str
    versions: FrozenMapping
    machine: str
    models: tuple[Grown, ...]
    cells: tuple[Cell, ...]
    alarms: tuple[FalseAlarms, ...]
    heads: tuple[HeadsOf, ...]

    @property
    def judged(self) -> tuple[Cell, ...]:
        """The cells in which a verdict is expected."""
        return tuple(one for one in self.cells if one.expected not in ("any", "no test"))

    @property
    def exceptions(self) -> tuple[Cell, ...]:
        """The cells that do not agree."""
        return tuple(one for one in self.judged if not one.agrees)

    @property
    def unexplained(self) -> tuple[Cell, ...]:
        """Of the exceptions, those that nothing explains."""
        return tuple(one for one in self.exceptions if not one.explained)

    @property
    def summary(self) -> str:
        """The agreement, in a sentence."""
        agreed = sum(one.agrees for one in self.judged)
        rate = proportion_interval(agreed, len(self.judged))
        return (
            f"{agreed} of {len(self.judged)} verdicts are the expected ones "
            f"[{rate.low:.1%}, {rate.high:.1%}]; {len(self.exceptions)} exceptions, "
            f"{len(self.unexplained)} of them unexplained."
        )


class Row(NamedTuple):
    """What was said of one model, by the row of the matrix that it belongs to."""

    organism: str
    family: str
    expected: dict[str, Expected]
    said: tuple[Said, ...]


def matrix(
    folder: Url,
    *,
    quick: bool = False,
    runner: Runner | None = None,
    context: RunContext = RunContext(),
) -> Matrix:
    """Make what is missing, measure it, and hold the verdicts against the expected ones.

    Args:
        folder: keeps what was found of every model; may be that of `calibrate`, whose models are
            then not measured again.
        quick: a few models: whether the machinery works, not what is true.
        runner: who computes; by default this process.
        context: progress and cancellation; the folder is the store.
    """
    dosed = [one for one in dose.models(quick=quick) if (one.variant, one.rho) in DOSED]
    cases = controls.cases(quick=quick)
    units = [*(one.unit for one in dosed), *(one.unit for one in cases)]
    store = run(
        Job("controls", tuple(units)),
        folder,
        runner=runner,
        context=context,
        extend=True,
    )
    answered = [Answered.from_json(store.get(one.unit.key)) for one in dosed]
    checked = [Checked.from_json(store.get(one.unit.key)) for one in cases]
    return compared(answered, checked, quick=quick)


def compared(
    answered: Sequence[Answered], checked: Sequence[Checked], *, quick: bool = False
) -> Matrix:
    """The matrix of what was said."""
    rows = [*_of_doses(answered), *_of_controls(checked)]
    models = [
        Grown(
            what=f"{one.architecture}, {one.variant}, rho {one.rho:g}, seed {one.seed}",
            texts=one.texts,
            weights=one.weights,
        )
        for one in answered
    ] + [
        Grown(
            what=f"{one.architecture}, {one.control}, seed {one.seed}",
            texts=one.texts,
            weights=one.weights,
        )
        for one in checked
    ]
    return Matrix(
        command="levelhead calibrate --controls" + (" --quick" if quick else ""),
        versions=installed_versions(),
        machine=machine(),
        models=tuple(models),
        cells=_cells(rows),
        alarms=_alarms([row for row in rows if row.organism == NO_DOSE]),
        heads=tuple(
            HeadsOf(organism=one.control, family=one.architecture, seed=one.seed, heads=one.heads)
            for one in checked
            if one.heads is not None
        ),
    )


def _of_doses(answered: Sequence[Answered]) -> Iterable[Row]:
    for one in answered:
        name, expected = DOSED[one.variant, one.rho]
        yield Row(name, one.architecture, expected, one.said)


def _of_controls(checked: Sequence[Checked]) -> Iterable[Row]:
    for one in checked:
        yield Row(one.control, one.architecture, dict(control_of(one.control).expected), one.said)


def outcome(said: Said) -> str:
    """A verdict as a word of the matrix: a difference by its direction."""
    if said.status != "differs":
        return said.status
    rises = (said.effect or 0.0) > 0
    return "stereotype" if rises == (said.expected != "falls") else "anti-stereotype"


def agrees(expected: str, outcomes: Sequence[str]) -> bool:
    """Whether the models of a cell have the verdict that is expected.

    A difference must be found in four models of five, as everywhere in the calibration. Where none
    is expected, a test at .05 still finds one in a model of twenty: more alarms than that (binomial
    test) do not agree, nor do verdicts that leave more than one model of five open. A model that
    cannot be measured must be inconclusive every single time: there a miss reads as "no bias".
    """
    n = len(outcomes)
    if expected == "inconclusive":
        return all(one in ("inconclusive", "not measured") for one in outcomes)
    if expected == "not shown":
        alarms = sum(one in ("stereotype", "anti-stereotype") for one in outcomes)
        still = n - alarms - sum(one == "not shown" for one in outcomes)
        return not _is_loud(alarms, n) and still <= (1 - POWER) * n
    sides = ("stereotype", "anti-stereotype") if expected == "differs" else (expected,)
    return sum(one in sides for one in outcomes) >= POWER * n


def _is_loud(alarms: int, n: int) -> bool:
    from scipy import stats

    return bool(stats.binomtest(alarms, n, ALARM, alternative="greater").pvalue <= ALARM)


def _cells(rows: Sequence[Row]) -> tuple[Cell, ...]:
    utilities = utility_measures()
    names = dict.fromkeys(
        (row.organism, row.family, said.measure)
        for row in rows
        for said in row.said
        if said.measure not in utilities
    )
    found, calibration = [], kept()
    for organism, family, measure in names:
        own = [row for row in rows if (row.organism, row.family) == (organism, family)]
        said = [one for row in own for one in row.said if one.measure == measure]
        table = own[0].expected
        expected = table.get(measure, table["*"])
        outcomes = [outcome(one) for one in said]
        past = None if calibration is None else calibration.of(measure, family, causal=False)
        refuted = past is not None and past.architecture == family and past.verdict == "misses"
        explained = EXPLAINED.get((organism, family, measure), "")
        if refuted and not explained:
            explained = "refuted by the calibration: users read it as inconclusive"
        fits = expected in ("any", "no test") or agrees(expected, outcomes)
        found.append(
            Cell(
                organism=organism,
                family=family,
                measure=measure,
                expected=expected,
                models=len(said),
                outcomes={name: outcomes.count(name) for name in sorted(set(outcomes))},
                agrees=fits,
                refuted=refuted,
                explained="" if fits else explained,
                reasons=tuple(dict.fromkeys(one.reason or one.why for one in said))[:3],
            )
        )
    return tuple(found)


def _alarms(rows: Sequence[Row]) -> tuple[FalseAlarms, ...]:
    utilities = utility_measures()
    names = dict.fromkeys(
        (row.family, said.measure)
        for row in rows
        for said in row.said
        if said.measure not in utilities and said.status not in ("no test", "not measured")
    )
    found = []
    for family, measure in names:
        said = [
            one
            for row in rows
            if row.family == family
            for one in row.said
            if one.measure == measure
        ]
        alarms = sum(one.status == "differs" for one in said)
        found.append(
            FalseAlarms(
                family=family,
                measure=measure,
                alarms=alarms,
                models=len(said),
                interval=proportion_interval(alarms, len(said)),
            )
        )
    return tuple(found)


# -- as tables


def tables(of: Matrix) -> tuple[Tabled, ...]:
    """The matrix by family, its exceptions, false alarms and heads."""
    families = list(dict.fromkeys(one.family for one in of.cells))
    return (
        Tabled(
            "Controls: how they are made",
            ("organism", "how it is made", "families", "seeds"),
            tuple(
                (one.name, one.about, ", ".join(one.families), str(one.seeds))
                for one in controls.CONTROLS
            ),
        ),
        *(_by_family(of, family) for family in families),
        Tabled(
            "Exceptions: verdicts that are not the expected ones",
            ("organism", "family", "measure", "expected", "came out", "why"),
            tuple(
                (
                    one.organism,
                    one.family,
                    one.measure,
                    one.expected,
                    _outcomes(one),
                    one.explained or "unexplained",
                )
                for one in of.exceptions
            ),
        ),
        Tabled(
            "False alarms in models without a dose, labels as they are",
            ("measure", "family", "called biased"),
            tuple((one.measure, one.family, one.stated) for one in of.alarms),
        ),
        Tabled(
            "Heads of controls, by ablation: shares of the measure that masking takes",
            (
                "organism",
                "family",
                "seed",
                "measure",
                "largest single share",
                "confirmed",
                "both heads masked",
                "greedy takes",
            ),
            tuple(
                (
                    one.organism,
                    one.family,
                    str(one.seed),
                    f"{one.heads.measure} {one.heads.whole:.3g}",
                    f"{max(one.heads.single.values(), key=abs):.3f}",
                    ", ".join(one.heads.confirmed) or "none",
                    EMPTY if one.heads.together is None else f"{one.heads.together:.3f}",
                    ", ".join(one.heads.greedy) or EMPTY,
                )
                for one in of.heads
            ),
        ),
    )


def _by_family(of: Matrix, family: str) -> Tabled:
    """Organisms by measures, of one family: what was expected, and in how many it came out."""
    own = [one for one in of.cells if one.family == family]
    organisms = dict.fromkeys(one.organism for one in own)
    return Tabled(
        f"Expected and actual verdicts, {family}-like models",
        ("organism", "measure", "expected", "came out", "agrees"),
        tuple(
            (
                organism,
                one.measure,
                one.expected,
                _outcomes(one),
                EMPTY if one.expected in ("any", "no test") else "yes" if one.agrees else "NO",
            )
            for organism in organisms
            for one in own
            if one.organism == organism
        ),
    )


def _outcomes(one: Cell) -> str:
    return ", ".join(f"{name} {count} of {one.models}" for name, count in one.outcomes.items())
