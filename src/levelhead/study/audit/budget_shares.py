"""Allocation of the time that the core suite leaves to the additions of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, cast

from pydantic import Field

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record
from levelhead.measures.registry import parse_measure
from levelhead.models.serving.budget import BudgetSpentError
from levelhead.models.serving.served_model import ServedModel
from levelhead.study.audit.suite import (
    LIMITS,
    PERPLEXITY_MEASURES,
    AuditMeasure,
    Omitted,
    omit_after_error,
    omit_for_time,
    rank_locators,
    time_measure,
)
from levelhead.study.audit.time_budget import count_queries, split_time
from levelhead.study.steps.counterstereotype import CounterstereotypeStep
from levelhead.study.steps.head_maps import HeadMapStep
from levelhead.study.steps.masking import MaskHeadsStep
from levelhead.study.steps.prompting import PromptingStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.lm import LM
    from levelhead.study.audit.suite import TimedMeasure
    from levelhead.study.audit.time_budget import CheaperOption, QueryTimer

MODEL = "model"
"""The audited model's name in the plan."""
COUNTEREXAMPLES = "cloze"
"""The measure whose prompts the counterexamples vary."""
BUDGET_SHARES = {
    "measures": 0.45,
    "heads": 0.25,
    "masking": 0.1,
    "explain": 0.05,
    "knowledge": 0.15,
}
"""Share of the query time of each part; unused time goes to the next part."""
OVERHEAD = 0.75
"""Share of the remaining time for queries; the rest is for statistics and charts."""
GRADIENT_FORWARDS = 3.2
"""Cost of a gradient in two passes, in forward passes."""
ABLATION_FORWARDS = 0.6
"""Cost of a forward pass without one head, in full forward passes."""
FALLBACK_HEAD_COUNTS = (24, 8)
"""Number of heads to ablate one by one if there is no time for all."""
PAIR_COUNTS = (500, 200, 100, 50)
FORWARDS_A_PAIR = 6
"""Forward passes of a pair: original, counterfactual and placebo, with their attention."""


class Truncated(Record):
    """A measure or step that was sampled for lack of time."""

    name: str
    n_total: Annotated[int, Field(ge=0)]
    n_used: Annotated[int, Field(ge=0)]


class TimeBudget:
    """The remaining time, and the measures that do not fit into it."""

    def __init__(
        self,
        lm: LM,
        timer: QueryTimer,
        total: float | None,
        models: int,
        omitted: Sequence[Omitted],
    ) -> None:
        self.lm = lm
        self.timer = timer
        self.total = total
        self.models = models
        self.used = 0.0
        self.omitted = list(omitted)
        self.truncated: list[Truncated] = []

    @property
    def seconds_left(self) -> float:
        """Seconds that are not allocated yet."""
        return float("inf") if self.total is None else self.total - self.used

    def seconds_for(self, name: str) -> float:
        """Seconds of a part: its share of the remaining time among itself and the later parts."""
        if self.total is None:
            return float("inf")
        names = list(BUDGET_SHARES)
        later = sum(BUDGET_SHARES[part] for part in names[names.index(name) :])
        return (self.total - self.used) * BUDGET_SHARES[name] / later

    def plan_measures(self, candidates: Sequence[TimedMeasure]) -> dict[str, str]:
        """Allocate time to the candidate measures and return those that fit, with their size."""
        options = self._allot(candidates, self.seconds_for("measures"))
        texts = {}
        for candidate in candidates:
            name = candidate.audit_measure.name
            if name not in options:
                self.omitted.append(omit_for_time(name))
                continue
            option = options[name]
            self.used += candidate.seconds(option) * self.models
            texts[name] = with_option(candidate.audit_measure.text, option)
            if option is not None:
                n_used = count_queries(candidate.query_sets, candidate.measure, option)
                self.truncated.append(
                    Truncated(name=name, n_total=candidate.n_queries, n_used=n_used)
                )
        return texts

    def _allot(
        self, candidates: Sequence[TimedMeasure], limit: float
    ) -> dict[str, CheaperOption | None]:
        """Choose the size of each measure; the most expensive is dropped first."""
        remaining = list(candidates)
        while remaining:
            allotted = split_time(
                {
                    candidate.audit_measure.name: candidate.seconds() * self.models
                    for candidate in remaining
                },
                limit,
            )
            options = {
                candidate.audit_measure.name: self._affordable_options(
                    candidate, allotted[candidate.audit_measure.name]
                )
                for candidate in remaining
            }
            # An empty list means that not even the smallest sample fits.
            if all(options.values()):
                return {name: affordable[0] for name, affordable in options.items()}
            unaffordable = [
                candidate for candidate in remaining if not options[candidate.audit_measure.name]
            ]
            remaining.remove(
                max(
                    unaffordable, key=lambda candidate: candidate.seconds(candidate.cheapest_option)
                )
            )
        return {}

    def _affordable_options(
        self, candidate: TimedMeasure, limit: float
    ) -> list[CheaperOption | None]:
        """The sizes of a measure that fit into some time, the largest first."""
        return [
            option
            for option in candidate.options
            # Shares are sums of floats: a size that fits exactly must not fail by rounding.
            if candidate.seconds(option) * self.models <= limit * 1.001
        ]

    def plan_head_map(self, measures: dict[str, str], *, last: bool = False) -> dict[str, object]:
        """Plan the head map and the steps that use it.

        It uses the best calibrated measure that fits into the time. Planning tries twice: with the
        map's share of the time and, if that is too short, with all remaining time at the end.

        Args:
            measures: measures of the plan; those of the map are added.
            last: whether this is the last attempt, which records why there is no map.
        """
        lm = cast("LM | ServedModel", self.lm)
        if isinstance(lm, ServedModel):
            if last:
                details = f"a model {lm.place} shows no heads"
                self.omitted.append(Omitted(name="heads", details=details))
            return {}
        limit = self.seconds_left if last else self.seconds_for("heads")
        n_heads = self.lm.layout.layers * self.lm.layout.heads
        candidates, reasons = rank_locators(self.lm) if limit > 0 else ([], ["time budget"])
        for audit_measure in candidates:
            try:
                timed_measure = time_measure(self.lm, audit_measure, self.timer)
            except LevelheadError as error:
                reasons.append(f"{audit_measure.name}: {error.problem}")
                continue
            ablation_choice = _choose_ablation(timed_measure, n_heads, limit)
            if ablation_choice is not None:
                return self._accept_head_map(timed_measure, ablation_choice, n_heads, measures)
            reasons.append(f"{audit_measure.name}: time budget")
        if last:
            is_late = any("time budget" in reason for reason in reasons)
            details = "; ".join(reasons) or "no measure that can locate heads fits this model"
            reason: Literal["time budget", "does not fit this model"] = (
                "time budget" if is_late else "does not fit this model"
            )
            self.omitted.append(Omitted(name="heads", details=details, reason=reason))
        return {}

    def _accept_head_map(
        self,
        timed_measure: TimedMeasure,
        ablation_choice: tuple[CheaperOption | None, int | Literal["all"], float],
        n_heads: int,
        measures: dict[str, str],
    ) -> dict[str, object]:
        """Plan a map by one measure, with masking and the counter-stereotype experiment."""
        option, n_ablated, cost = ablation_choice
        self.used += cost
        if n_ablated != "all":
            self.truncated.append(
                Truncated(name="heads ablated one by one", n_total=n_heads, n_used=n_ablated)
            )
        measures["heads"] = with_option(timed_measure.audit_measure.text, option)
        tables: dict[str, object] = {
            "head_maps": {"heads": HeadMapStep(model=MODEL, measure="heads", ablate_top=n_ablated)}
        }
        utility = self._time_utility_measure()
        seconds_per_variant = timed_measure.seconds(option) + (
            utility.seconds() if utility else 0.0
        )
        # Ten variants: the base, top, bottom and all positive heads, and three random sets of two
        # sizes.
        if utility and 10 * seconds_per_variant <= self.seconds_for("masking"):
            self.used += 10 * seconds_per_variant
            measures["price"] = utility.audit_measure.text
            tables["masking"] = {
                "heads": MaskHeadsStep(map="heads", utility_measures=("price",), random=3)
            }
        elif utility:
            self.omitted.append(omit_for_time("masking"))
        return tables | self._plan_counterstereotype(timed_measure)

    def _time_utility_measure(self) -> TimedMeasure | None:
        """Plan the utility cost of masking heads, on few texts."""
        for name in PERPLEXITY_MEASURES:
            audit_measure = AuditMeasure(name, with_option(name, LIMITS[-1]), ())
            try:
                return time_measure(self.lm, audit_measure, self.timer)
            except LevelheadError:
                continue
        return None

    def _plan_counterstereotype(self, timed_measure: TimedMeasure) -> dict[str, object]:
        """Plan the counter-stereotype experiment, with as many pairs as fit into the time."""
        affordable_counts = [
            n
            for n in PAIR_COUNTS
            if n * FORWARDS_A_PAIR * timed_measure.seconds_per_query <= self.seconds_for("explain")
        ]
        if not affordable_counts:
            self.omitted.append(omit_for_time("counter-stereotypes"))
            return {}
        self.used += affordable_counts[0] * FORWARDS_A_PAIR * timed_measure.seconds_per_query
        if affordable_counts[0] < PAIR_COUNTS[0]:
            self.truncated.append(
                Truncated(
                    name="counter-stereotypes", n_total=PAIR_COUNTS[0], n_used=affordable_counts[0]
                )
            )
        step = CounterstereotypeStep(
            map="heads", pairs="counter-stereotype", n=affordable_counts[0]
        )
        return {"counterstereotypes": {"heads": step}}

    def plan_knowledge(self) -> dict[str, object]:
        """Plan the counterexamples."""
        limit = self.seconds_for("knowledge")
        base = parse_measure(COUNTEREXAMPLES)
        try:
            base.check(self.lm)
            n_total = count_queries(base.queries(self.lm), base)
        except LevelheadError:  # no prompt fits this model
            return {}
        for backgrounds in (None, 3, 1):
            measure = base.with_options(backgrounds=backgrounds)
            query_sets = measure.queries(self.lm)
            n_used = count_queries(query_sets, measure)
            try:
                cost = n_used * self.timer.seconds_per_query(query_sets) if limit > 0 else 0.0
            except BudgetSpentError as error:
                self.omitted.append(omit_after_error("counterexamples", error))
                return {}
            if limit > 0 and cost <= limit:
                self.used += cost
                step = PromptingStep(model=MODEL, backgrounds=backgrounds, factorial=False)
                if backgrounds is not None:
                    self.truncated.append(
                        Truncated(name="counterexamples", n_total=n_total, n_used=n_used)
                    )
                return {"knowledge": {"prompts": step}}
        self.omitted.append(omit_for_time("counterexamples"))
        return {}


def _choose_ablation(
    timed_measure: TimedMeasure, n_heads: int, limit: float
) -> tuple[CheaperOption | None, int | Literal["all"], float] | None:
    """Size of the measure of a head map, number of ablated heads, and seconds."""
    options: list[tuple[CheaperOption | None, int | Literal["all"]]] = [
        (option, "all") for option in timed_measure.options
    ]
    options += [
        (timed_measure.cheapest_option, n_fallback)
        for n_fallback in FALLBACK_HEAD_COUNTS
        if n_fallback < n_heads
    ]
    for option, n_ablated in options:
        count = n_heads if n_ablated == "all" else n_ablated
        # The unedited responses, the gradient, then one shorter pass for each head.
        cost = timed_measure.seconds(option) * (1 + GRADIENT_FORWARDS + ABLATION_FORWARDS * count)
        if cost <= limit:
            return option, n_ablated, cost
    return None


def with_option(text: str, option: CheaperOption | None) -> str:
    """Set an option of a measure's text, or replace it."""
    if option is None:
        return text
    name, _, rest = text.partition(":")
    options = [
        part for part in filter(None, rest.split(",")) if not part.startswith(f"{option.name}=")
    ]
    return f"{name}:{','.join([*options, f'{option.name}={option.value:g}'])}"
