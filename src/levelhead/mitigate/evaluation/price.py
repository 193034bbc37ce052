"""A mitigation and its price: the change of measures of bias, and the utility cost.

The mitigated model may be edited, trained, or the same with a system prompt. It is compared with
the base item by item, on measures of bias and on measures of utility, its price: for chat models
following instructions, common knowledge and fluency.

It is called a mitigation only if the bias falls beyond placebos and the knowledge of a panel is
kept (`evaluation.knowledge`); otherwise the verdict names what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frames import make_number_row
from levelhead.core.notebook import NotebookResult
from levelhead.core.results import Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.compare import (
    NEARER,
    Comparison,
    holm_corrected_comparisons,
)
from levelhead.measures.run import compare
from levelhead.measures.utility.facts import Facts
from levelhead.measures.utility.instructions import Instructions
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity
from levelhead.measures.utility.pronoun_agreement import PronounAgreement
from levelhead.mitigate.controls.placebo_test import (
    NO_EFFECT,
    PlaceboResponses,
    PlaceboTest,
    run_placebo_test,
)
from levelhead.mitigate.evaluation.knowledge import KnowledgePanel
from levelhead.models.serving.served_model import ServedModel
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Worse
    from levelhead.models.lm import LM

LACKS_SKILL = "the mitigated model lacks the skill that the measure needs: no claim"
Verdict = Literal[
    "mitigation",
    "bias reduced, knowledge lost",
    "bias reduced, knowledge not shown to be kept",
    "bias reduced, knowledge not measured",
    "bias reduced, placebos not compared",
    "not shown",
]


class Unmeasured(Record):
    """A measure without a comparison."""

    measure: str
    reason: str
    is_worse: bool = False
    """Whether all items show a utility to be worse alike, which leaves no interval."""


class MitigationReport(NotebookResult, Record):
    """Changes of bias and of utility by a mitigation, each less the base and paired by item."""

    bias: tuple[Comparison, ...]
    """Comparisons by measures of bias, corrected together (Holm)."""
    price: tuple[Comparison, ...]
    """Comparisons by measures of utility, not corrected: a correction would hide a cost."""
    unmeasured: tuple[Unmeasured, ...] = ()
    """What could not be compared, with the reason: this shows neither a reduction nor no cost."""
    costs: tuple[str, ...] = ()
    """Utilities that are shown to be worse."""
    placebo_tests: tuple[PlaceboTest, ...] = ()
    """The reductions, compared with those by placebos; empty if there are none."""
    knowledge: KnowledgePanel | None = None
    """Whether knowledge is kept; None if it was not measured."""

    @property
    def reduced(self) -> tuple[str, ...]:
        """Measures by which the mitigated model is shown to be nearer to parity."""
        return tuple(
            row.measure
            for row in self.bias
            # Not after "changed sides": a bias against another group is no reduction.
            if not _lacks_skill(row) and row.verdict.startswith(NEARER)
        )

    @property
    def verdict(self) -> Verdict:
        """Mitigation, or what is missing: a reduction beyond placebos, or knowledge."""
        if not self._has_bias_fallen:
            return "not shown"
        # A shown loss decides before anything that is merely missing.
        if self.knowledge is not None and self.knowledge.lost:
            return "bias reduced, knowledge lost"
        # The skill comes second: without knowledge, the model often lacks the skill as well.
        if any(map(_lacks_skill, self.bias)):
            return "not shown"
        if not self._has_tested_placebos:
            return "bias reduced, placebos not compared"
        if self.knowledge is None:
            return "bias reduced, knowledge not measured"
        if not self.knowledge.is_kept:
            return "bias reduced, knowledge not shown to be kept"
        return "mitigation"

    @property
    def _has_tested_placebos(self) -> bool:
        """Whether placebos could show a mitigation by every measure."""
        testable = {test.measure for test in self.placebo_tests if test.is_testable}
        return bool(self.bias) and testable >= {row.measure for row in self.bias}

    @property
    def _has_bias_fallen(self) -> bool:
        """Whether every measure falls beyond its placebos; without a test, whether some falls."""
        # All of them: the best of several measures would need a correction.
        if self._has_tested_placebos:
            return all(test.mitigates for test in self.placebo_tests)
        # Untestable is neither for nor against, except that a base without a bias has none to lose.
        without_effect = {test.measure for test in self.placebo_tests if test.outcome == NO_EFFECT}
        return any(
            row.verdict.startswith(NEARER) and row.measure not in without_effect
            for row in self.bias
        )

    @property
    def title(self) -> str:
        """What is shown, in one line."""
        reduced = ", ".join(self.reduced) or "no measure"
        missing = f"; {len(self.unmeasured)} not measured" if self.unmeasured else ""
        costs = ", ".join(self.costs) or f"none of {len(self.price)} utilities"
        return f"{self.verdict}: nearer to parity by {reduced}; worse in {costs}{missing}"

    def to_rows(self) -> list[dict[str, object]]:
        """The rows of all comparisons, and the changes of knowledge."""
        rows: list[dict[str, object]] = [
            {"measure": row.measure, "part": part, **cells}
            for part, comparisons in (("bias", self.bias), ("price", self.price))
            for row in comparisons
            for cells in row.to_rows()
        ]
        changes = () if self.knowledge is None else self.knowledge.changes
        return rows + [
            {
                "measure": row.measure,
                "part": "knowledge",
                **make_number_row(row.change.name, row.change),
            }
            for row in changes
        ]

    def __str__(self) -> str:
        lines = [f"{row}{f'; {LACKS_SKILL}' if _lacks_skill(row) else ''}" for row in self.bias]
        lines += [f"price: {row}" for row in self.price]
        lines += [f"placebos: {test.measure}: {test.verdict}" for test in self.placebo_tests]
        lines += [] if self.knowledge is None else str(self.knowledge).splitlines()
        lines += [f"not measured: {row.measure}: {row.reason}" for row in self.unmeasured]
        return "\n".join((self.title, *lines))


def list_price_measures(lm: LM | ServedModel) -> tuple[Measure, ...]:
    """List the measures of utility for the price of a mitigation.

    Args:
        lm: The mitigated model. What a system prompt cannot change is left out.
    """
    if isinstance(lm, ServedModel):
        knowledge = Facts(generated_answers=not lm.can_score)
        return (Instructions(), knowledge)
    if "causal" in lm.heads:
        has_only_prompt = bool(lm.system_prompt) and not lm.edits
        fluency = () if has_only_prompt else (Perplexity(limit=50),)
        if lm.tokens.tokenizer.chat_template:
            return (Instructions(), Facts(), *fluency)
        return (Facts(), *fluency)
    if "masked" in lm.heads:
        return (PseudoPerplexity(limit=20), PronounAgreement(sources=("winogender", "winobias")))
    raise NotMeasurableError(
        f"no utility of {lm.identity.name} is known without its task",
        hint="give price=: a measure of its task, such as accuracy on your labelled texts",
    )


def evaluate_mitigation(
    lm: LM | ServedModel,
    mitigated: LM | ServedModel,
    measures: Sequence[Measure],
    *,
    price: Sequence[Measure] | None = None,
    placebos: Sequence[LM] = (),
    knowledge: KnowledgePanel | None = None,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> MitigationReport:
    """Compare a mitigated model with its base by measures of bias, and by its utilities.

    Args:
        lm: The base model.
        mitigated: The same with edits, with a system prompt, or trained further.
        measures: Measures of bias.
        price: Measures of utility; by default those of `list_price_measures`.
        placebos: The base with placebo edits, 19 or more that amount to as many independent ones.
        knowledge: Result of `evaluate_knowledge` for the same models.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    if price is None:
        price = list_price_measures(mitigated)
    for measures_of_part, is_price in ((measures, False), (price, True)):
        for measure in measures_of_part:
            if measure.is_utility != is_price:
                role = "utility" if is_price else "bias"
                raise LevelheadError(
                    f"{measure.name} is no measure of {role}",
                    hint="give measures of bias as measures=, and utilities as price=",
                )
    unmeasured: list[Unmeasured] = []
    parts: tuple[list[Comparison], list[Comparison]] = ([], [])
    models = cast("LM", lm), cast("LM", mitigated)
    for measure in (*measures, *price):
        try:
            row = compare(measure, *models, inference=inference, context=context)
            # A model that cannot do the task any more also treats groups alike.
            skill = measure.assess_skill(models[1], context=context)
        # Not other errors, such as missing data: a stored report would keep them.
        except NotMeasurableError as error:
            without_spread = _describe_without_spread(measure, models, inference.level, context)
            unmeasured.append(
                without_spread or Unmeasured(measure=measure.name, reason=error.problem)
            )
            continue
        second = row.second.model_copy(update={"skill": skill})
        parts[measure.is_utility].append(row.model_copy(update={"second": second}))
    tests, untested = _test_placebos(measures, models, placebos, inference, context)
    bias, costs = parts
    worse = {measure.name: measure.primary_metric.worse for measure in price}
    return MitigationReport(
        bias=holm_corrected_comparisons(bias) if bias else (),
        price=tuple(costs),
        unmeasured=(*unmeasured, *untested),
        placebo_tests=tests,
        knowledge=knowledge,
        costs=(
            *(row.measure for row in costs if _is_worse(row, worse[row.measure])),
            *(row.measure for row in unmeasured if row.is_worse),
        ),
    )


def _test_placebos(
    measures: Sequence[Measure],
    models: tuple[LM, LM],
    placebos: Sequence[LM],
    inference: Inference,
    context: RunContext,
) -> tuple[tuple[PlaceboTest, ...], tuple[Unmeasured, ...]]:
    """Compare the reductions with those by placebos."""
    if not placebos:
        return (), ()
    tests, untested = [], []
    for measure in measures:
        try:
            base, mitigated, *others = (
                measure.read(lm, context=context)[0] for lm in (*models, *placebos)
            )
            responses = PlaceboResponses(base, mitigated, others)
            tests.append(run_placebo_test(measure, responses, inference=inference, min_placebos=1))
        except NotMeasurableError as error:
            untested.append(Unmeasured(measure=measure.name, reason=f"placebos: {error.problem}"))
    return tuple(tests), tuple(untested)


def _describe_without_spread(
    measure: Measure, models: tuple[LM, LM], level: float, context: RunContext
) -> Unmeasured | None:
    """What is known if all items changed alike, or none: resamples have no spread then."""
    metric = measure.primary_metric
    try:
        base, mitigated = (measure.read(lm, context=context)[0] for lm in models)
        values = [metric.per_item_values(responses) for responses in (base, mitigated)]
        design = measure.design(base, metric)
        totals = [float(metric.aggregate(part, design.full_sample)) for part in values]
    except NotMeasurableError:
        return None
    if base.items != mitigated.items:
        return None
    if not values[0].equal(values[1]):
        return Unmeasured(
            measure=measure.name,
            reason=f"from {totals[0]:.4g} to {totals[1]:.4g} {metric.unit}, alike for all "
            f"{design.limiting_factor.name}: no interval",
            is_worse=metric.role == "utility"
            and (totals[1] > totals[0] if metric.worse == "higher" else totals[1] < totals[0]),
        )
    # Wilson's bound of 0 hits: no change among these units is no proof that there is none.
    factor = design.limiting_factor
    bound = proportion_interval(0, factor.n_units, level=level).high
    return Unmeasured(
        measure=measure.name,
        reason=f"no item changed; of other {factor.name}, at most {bound:.0%} would "
        f"({level:.0%}, {factor.n_units} {factor.name})",
    )


def _is_worse(comparison: Comparison, worse: Worse | None) -> bool:
    interval = comparison.difference.interval
    return interval.low > 0 if worse == "higher" else interval.high < 0


def _lacks_skill(comparison: Comparison) -> bool:
    skill = comparison.second.skill
    return skill is not None and not skill.is_shown
