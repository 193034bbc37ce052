"""Knowledge that a mitigation must not remove, by tests of equivalence.

An edit that removes a bias by removing knowledge is no mitigation: a model that no longer knows
that a king is a man, or which pronoun agrees with a woman, cannot have a stereotype either. So a
panel of measures of knowledge is compared before and after an edit, item by item. That no loss is
shown is no evidence: few items never show one. Here the loss must be shown to be small, by two
one-sided tests within a margin (Schuirmann 1987; `stats.equivalence`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.notebook import NotebookResult
from levelhead.core.results import DroppedItem, Estimate, Measurement, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.skills.checks import CHANCE, SKILL_THRESHOLD
from levelhead.measures.utility.definitional_gender import DefinitionalGender
from levelhead.measures.utility.pronoun_agreement import PronounAgreement
from levelhead.mitigate.evaluation.gain import keep_common_items
from levelhead.stats.equivalence import bounded_change_interval, is_equivalent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.models.serving.served_model import ServedModel

MARGIN = 5.0
"""Default margin, in percentage points: a tenth of what separates a guess between two words (50%)
from knowledge (100%), so that nine tenths of a full skill are kept."""
PERCENT = "%"
Outcome = Literal["equivalent", "changed", "inconclusive"]
NO_SKILL = "the unedited model is not shown to know it: nothing can be kept or lost"


class KnowledgeChange(NotebookResult, Record):
    """One measure of knowledge, before and after an edit."""

    measure: str
    base: Measurement
    edited: Measurement
    change: Estimate
    """Share of right answers of the edited model less that of the base, in percentage points and
    paired by item, with the interval of both one-sided tests."""
    margin: float
    chance: float
    """Share that guessing reaches."""
    outcome: Outcome
    """Equivalent within the margin; changed: a change is shown, and it is not shown to be within
    the margin; inconclusive: neither, or the base has no such knowledge."""
    reason: str = ""
    """Reason why it is inconclusive, if it is not the width of the interval."""
    dropped: tuple[DroppedItem, ...] = ()
    """Items that a model could not read, with reasons."""

    @property
    def is_lost(self) -> bool:
        """Whether a loss is shown."""
        return self.outcome == "changed" and self.change.value < 0

    @property
    def title(self) -> str:
        """The measure and the outcome."""
        return f"{self.measure}: {self.outcome}"

    def to_rows(self) -> list[dict[str, object]]:
        """One row: the change with its interval, the margin and the outcome."""
        return [
            {
                "measure": self.measure,
                "base": self.base.value,
                "edited": self.edited.value,
                "change": self.change.value,
                "low": self.change.interval.low,
                "high": self.change.interval.high,
                "margin": self.margin,
                "n": self.change.n,
                "outcome": self.outcome,
            }
        ]

    def __str__(self) -> str:
        return (
            f"{self.measure}: {self.base.value:.4g} -> {self.edited.value:.4g}, change "
            f"{self.change.value:.3g} {self.change.interval} of {self.change.n}: {self.outcome} "
            f"(margin {self.margin:g} percentage points)"
            + (f"; {self.reason}" if self.reason else "")
        )


class KnowledgePanel(NotebookResult, Record):
    """Changes of knowledge by an edit, each with a test of equivalence."""

    changes: tuple[KnowledgeChange, ...]
    margin: Annotated[float, Field(gt=0)]
    """Largest change, in percentage points, that counts as none."""
    unmeasured: tuple[tuple[str, str], ...] = ()
    """Measures that gave no number, with the reason: what they measure is not shown to be kept."""

    @property
    def is_kept(self) -> bool:
        """Whether all knowledge of the panel is shown to be equivalent."""
        # Intersection-union: every test must reject, so their number needs no correction.
        return (
            bool(self.changes)
            and not self.unmeasured
            and all(change.outcome == "equivalent" for change in self.changes)
        )

    @property
    def lost(self) -> tuple[str, ...]:
        """Measures that show a loss."""
        return tuple(change.measure for change in self.changes if change.is_lost)

    @property
    def title(self) -> str:
        """What is shown, in one line."""
        if self.lost:
            return f"knowledge lost: {', '.join(self.lost)}"
        equivalent = [row.measure for row in self.changes if row.outcome == "equivalent"]
        total = len(self.changes) + len(self.unmeasured)
        if self.is_kept:
            return (
                f"knowledge kept within {self.margin:g} percentage points: {', '.join(equivalent)}"
            )
        return f"knowledge not shown to be kept: {len(equivalent)} of {total} measures equivalent"

    def to_rows(self) -> list[dict[str, object]]:
        """The rows of all measures."""
        return [row for change in self.changes for row in change.to_rows()]

    def __str__(self) -> str:
        missing = (f"not measured: {name}: {reason}" for name, reason in self.unmeasured)
        return "\n".join((self.title, *map(str, self.changes), *missing))


def list_knowledge_measures(lm: LM | ServedModel) -> tuple[Measure, ...]:
    """List the measures of the default panel: definitions and pronoun agreement.

    Args:
        lm: The model.
    """
    if not {"masked", "causal"} & lm.heads:
        raise NotMeasurableError(
            f"no panel of knowledge of {lm.identity.name} is known without its task",
            hint="give measures: the accuracy of its task on your labelled texts",
        )
    # As in the core suite of an audit: half of the sentences, and none of GAP, whose passages are
    # long, show as much in a fraction of the time.
    agreement = PronounAgreement(sources=("winogender", "winobias"), subsample_fraction=0.5)
    return DefinitionalGender(), agreement


def evaluate_knowledge(
    lm: LM,
    edited: LM,
    measures: Sequence[Measure] | None = None,
    *,
    margin: float = MARGIN,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> KnowledgePanel:
    """Test whether an edit keeps what a model knows.

    Args:
        lm: The unedited model.
        edited: The same with edits, with a system prompt, or trained further.
        measures: Measures of utility that are shares of right answers; by default those of
            `list_knowledge_measures`.
        margin: Largest change that counts as none, in percentage points.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    if not 0 < margin < 100:
        raise LevelheadError(
            f"a margin of {margin:g} percentage points", hint="give a number between 0 and 100"
        )
    # A forgotten edit would read as one that keeps everything.
    if lm.content_hash == edited.content_hash:
        raise LevelheadError(
            "the two models are the same: everything would be kept",
            hint="give the base first, and then the same with an edit",
        )
    measures = list_knowledge_measures(lm) if measures is None else measures
    for measure in measures:
        metric = measure.primary_metric
        if metric.role != "utility" or not metric.unit.startswith(PERCENT):
            raise LevelheadError(
                f"{measure.name} is no share of right answers: its margin is not known",
                hint="give measures of utility in %, such as definitional_gender or accuracy",
            )
    changes, unmeasured = [], []
    for measure in measures:
        try:
            changes.append(_compare_knowledge(measure, lm, edited, margin, inference, context))
        except NotMeasurableError as error:
            unmeasured.append((measure.name, error.problem))
    return KnowledgePanel(changes=tuple(changes), margin=margin, unmeasured=tuple(unmeasured))


def _compare_knowledge(
    measure: Measure,
    lm: LM,
    edited: LM,
    margin: float,
    inference: Inference,
    context: RunContext,
) -> KnowledgeChange:
    all_responses = [measure.read(model, context=context) for model in (lm, edited)]
    base, second = (
        measure.compute_measurement(model, response_sets, inference=inference).without_items()
        for model, response_sets in zip((lm, edited), all_responses, strict=True)
    )
    pair, dropped = keep_common_items(
        [measure.select_sampled(response_sets[0]) for response_sets in all_responses]
    )
    change = _estimate_change(measure, pair)
    chance = measure.guessing_value(pair[0])
    if chance is None:
        raise NotMeasurableError(
            f"the share that guessing reaches is not known for {measure.name}",
            hint="give a measure whose chance level is known, such as accuracy",
        )
    # Without the knowledge both models guess alike, which would look like equivalence; of little
    # knowledge, the margin would be most. The threshold is that of skill checks.
    threshold = chance + (100 - chance) * (SKILL_THRESHOLD - CHANCE) / (100 - CHANCE)
    has_skill = base.interval.low > chance and base.value >= threshold
    if not has_skill:
        outcome: Outcome = "inconclusive"
    elif is_equivalent(change.interval, margin):
        outcome = "equivalent"
    else:
        outcome = "inconclusive" if 0 in change.interval else "changed"
    return KnowledgeChange(
        measure=measure.name,
        base=base,
        edited=second,
        change=change,
        margin=margin,
        chance=chance,
        outcome=outcome,
        reason=""
        if has_skill
        else f"{NO_SKILL} ({base.value:.4g}; chance {chance:.4g}, needed {threshold:.4g})",
        dropped=dropped,
    )


def _estimate_change(measure: Measure, pair: Sequence[Responses]) -> Estimate:
    """Change of the share of right answers, with the interval of the two one-sided tests."""
    metric = measure.primary_metric
    design = measure.design(pair[0], metric)
    values = [metric.per_item_values(responses).detach().double() for responses in pair]
    changes = 100 * (values[1] - values[0])
    before, after = (float(metric.aggregate(part, design.full_sample)) for part in values)
    # The interval is that of a mean over items; F1, for example, is none. 1e-6 is above rounding.
    if abs(float(changes.mean()) - (after - before)) > 1e-6:
        raise NotMeasurableError(
            f"{metric.name} is no mean over items", hint="give a share of right answers"
        )
    factor = design.limiting_factor
    return Estimate(
        name=f"change of {metric.name}",
        value=float(changes.mean()),
        interval=bounded_change_interval(
            changes.numpy(), factor.unit_of_item, bound=100.0, unit=factor.name
        ),
        parity=0.0,
        n=len(changes),
        unit="percentage points",
    )
