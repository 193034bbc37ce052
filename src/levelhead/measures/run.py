"""Run several measures on one model or on two; queries that they share are computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.compare import Comparison, compare_responses, holm_corrected_comparisons
from levelhead.measures.inference import holm_corrected
from levelhead.measures.responses import Responses, read_responses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Measurement
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM


class MeasureRun(NamedTuple):
    """Measurements of a model, and comparisons with a second model if there is one."""

    measurements: tuple[Measurement, ...]
    comparisons: tuple[Comparison, ...] = ()


def compare(
    measure: Measure,
    first: LM,
    second: LM,
    *,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Comparison:
    """Compare a second model, or an edit of the first, by one measure, paired by item."""
    measure_run = run_measures(
        second, [measure], against=first, inference=inference, context=context
    )
    return measure_run.comparisons[0]


def run_measures(
    lm: LM,
    measures: Sequence[Measure],
    *,
    against: LM | None = None,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> MeasureRun:
    """Run several measures on a model; Holm's correction covers the primary metrics' p-values.

    Skills are checked if a model is measured alone. With `against`, they are not: a difference
    between two models is a difference without any skill, and sweeps compare many models
    (`add_skills` adds the checks).

    Args:
        lm: The model, edited or not.
        measures: The measures.
        against: Another model, or the same with other edits; differences are `lm` less `against`.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    if not measures:
        raise LevelheadError("there is no measure", hint="name at least one")

    def read_model(model: LM) -> list[list[Responses]]:
        # All measures are read together, so that queries which they share are planned once.
        query_sets = [measure.queries(model) for measure in measures]
        flat = [query_set for part in query_sets for query_set in part]
        response_iterator = iter(read_responses(model, flat, context=context))
        return [[next(response_iterator) for _ in part] for part in query_sets]

    def measure_model(model: LM, response_sets: list[list[Responses]]) -> tuple[Measurement, ...]:
        rows = zip(measures, response_sets, strict=True)
        return holm_corrected(
            [
                m.compute_measurement(
                    model, measure_responses, inference=inference, context=context
                )
                for m, measure_responses in rows
            ]
        )

    # The content hash covers weights and edits, so two names of one model are found, too.
    if against is not None and against.content_hash == lm.content_hash:
        raise LevelheadError(
            "the two models are the same: every difference would be 0",
            hint="give another model, or the same with an edit",
        )
    for measure in measures:
        for model in (lm, *((against,) if against is not None else ())):
            # All checks come first: reading may take hours before a later measure fails.
            measure.check(model)
    response_sets = read_model(lm)
    measurements = measure_model(lm, response_sets)
    # Skill checks need further forward passes; comparisons leave them out.
    if against is None:
        first_responses = [responses[0] for responses in response_sets]
        return MeasureRun(add_skills(lm, measures, measurements, first_responses, context=context))
    base_response_sets = read_model(against)
    base_measurements = measure_model(against, base_response_sets)
    pairs = zip(
        measures,
        base_response_sets,
        response_sets,
        zip(base_measurements, measurements, strict=True),
        strict=True,
    )
    comparisons = [
        compare_responses(m, base_responses, model_responses, measurement_pair, inference=inference)
        for m, base_responses, model_responses, measurement_pair in pairs
    ]
    # The family is all compared measures: more measures mean more chances of a difference.
    return MeasureRun(measurements, holm_corrected_comparisons(comparisons))


def add_skills(
    lm: LM,
    measures: Sequence[Measure],
    measurements: Sequence[Measurement],
    responses: Sequence[Responses] | None = None,
    *,
    context: RunContext = RunContext(),
) -> tuple[Measurement, ...]:
    """Add to measurements the checks of the skills that the measures need.

    Args:
        lm: The measured model.
        measures: The measures.
        measurements: One measurement for each measure.
        responses: Responses of each measure; by default they are read, or loaded from the store.
        context: Store, threads, progress and cancellation.
    """
    responses_by_measure: Sequence[Responses | None] = responses or [None] * len(measures)
    return tuple(
        measurement.model_copy(
            update={"skill": measure.assess_skill(lm, measure_responses, context=context)}
        )
        for measure, measurement, measure_responses in zip(
            measures, measurements, responses_by_measure, strict=True
        )
    )
