"""MethodTable: every mitigation of a model by its effect beyond placebos, and its price."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from levelhead.core.calibration import MeasureKey
from levelhead.core.notebook import NotebookResult
from levelhead.core.results import Estimate, Provenance, Record
from levelhead.measures.compare import Comparison
from levelhead.mitigate.controls.placebo_test import NO_EFFECT, PlaceboTest
from levelhead.mitigate.evaluation.knowledge import KnowledgePanel

MAX_COST = 0.1
"""Share of the base's perplexity up to which a rise counts as small."""
MethodVerdict = Literal[
    "works",
    "reduces bias, price not shown to be small",
    "reduces bias, knowledge lost",
    "costs too much",
    "reduces bias, placebos not compared",
    "not shown",
]


class MethodResult(Record):
    """A method in the setting that was chosen on one half, and its effects on the other."""

    method: str
    setting: str = ""
    n_settings: Annotated[int, Field(ge=0)] = 0
    gain: Estimate | None = None
    """Decrease of the distance from parity."""
    placebo: PlaceboTest | None = None
    price: tuple[Comparison, ...] = ()
    """Utilities of the edited model less those of the base."""
    knowledge: KnowledgePanel | None = None
    removal: str = ""
    """Whether the group was removed or hidden at the layer that the heads read."""
    cpu_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Time to fit the settings and to choose one."""
    missing: tuple[tuple[str, str], ...] = ()
    """Cells without a value, with the reason."""

    @property
    def relative_cost(self) -> tuple[float, float, float] | None:
        """Rise of the first utility where more is worse, relative to the base, with its interval.

        None if there is no such utility, as perplexity is.
        """
        for comparison in self.price:
            if comparison.measure in ("ppl", "pppl"):
                change, base = comparison.difference, comparison.first.value
                return (
                    change.value / base,
                    change.interval.low / base,
                    change.interval.high / base,
                )
        return None

    @property
    def verdict(self) -> MethodVerdict:
        """What is shown."""
        if self.gain is None or self.gain.interval.low <= 0:
            return "not shown"
        has_tested_placebos = self.placebo is not None and self.placebo.is_testable
        if self.placebo is not None and (
            self.placebo.outcome == NO_EFFECT
            or (has_tested_placebos and not self.placebo.mitigates)
        ):
            return "not shown"
        cost = self.relative_cost
        if cost is not None and cost[1] > MAX_COST:
            return "costs too much"
        if self.knowledge is not None and self.knowledge.lost:
            return "reduces bias, knowledge lost"
        # None, too few, or all of one effect: neither for the method nor against it.
        if not has_tested_placebos:
            return "reduces bias, placebos not compared"
        if cost is None or cost[2] > MAX_COST:
            return "reduces bias, price not shown to be small"
        return "works"


class MethodTable(NotebookResult, Record):
    """Methods of mitigation on one model, by one measure."""

    measure: str
    base: Estimate
    """The unedited model on the half that tests."""
    claim: str
    n_placebos: int
    methods: tuple[MethodResult, ...]
    measured_by: MeasureKey | None = None
    """Key of the measure with this type of model."""
    provenance: Provenance

    @property
    def title(self) -> str:
        """The measure, and the methods that work."""
        working = [row.method for row in self.methods if row.verdict == "works"]
        return f"{self.measure}: {', '.join(working) or 'no method'} shown to work"

    def to_rows(self) -> list[dict[str, object]]:
        """One row for each method."""
        rows: list[dict[str, object]] = []
        for row in self.methods:
            p = row.placebo and row.placebo.p
            cost, gain = row.relative_cost, row.gain
            knowledge = row.knowledge
            rows.append(
                {
                    "method": row.method,
                    "setting": row.setting,
                    "settings": row.n_settings,
                    "gain": gain and gain.value,
                    "low": gain and gain.interval.low,
                    "high": gain and gain.interval.high,
                    "p": p and (p.value if p.adjusted is None else p.adjusted),
                    "placebos": row.placebo and row.placebo.outcome,
                    "cost": cost and cost[0],
                    "cost_low": cost and cost[1],
                    "cost_high": cost and cost[2],
                    "knowledge": knowledge and knowledge.title,
                    "removal": row.removal,
                    "cpu_seconds": row.cpu_seconds,
                    "verdict": row.verdict,
                    "missing": "; ".join(f"{cell}: {reason}" for cell, reason in row.missing),
                }
            )
        return rows

    def __str__(self) -> str:
        lines = [f"{row.method} ({row.setting or 'none'}): {row.verdict}" for row in self.methods]
        return "\n".join((self.title, *lines))
