"""Make, run and compare placebo edits of a model, as a test of an edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple, final

import numpy as np
from pydantic import Field

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Provenance, Record
from levelhead.core.run_context import RunContext
from levelhead.data.counterfactuals.contrast_pairs import placebo_pairs
from levelhead.mitigate.controls.confidence_control import (
    ConfidenceControl,
    has_two_classes,
    run_confidence_control,
)
from levelhead.mitigate.controls.feature_placebos import (
    make_feature_placebos,
    measure_activity,
    measure_activity_match,
)
from levelhead.mitigate.controls.placebo_edits import (
    VarianceMatch,
    make_placebos,
    measure_variance_match,
    within_side_differences,
)
from levelhead.mitigate.controls.placebo_test import (
    MIN_PLACEBOS,
    Outcome,
    PlaceboResponses,
    PlaceboTest,
    require_placebos,
    run_placebo_test,
)
from levelhead.mitigate.controls.steering_placebos import (
    make_erasure_placebos,
    make_shift_placebos,
    measure_vector_match,
)
from levelhead.mitigate.evaluation.sweep import read_variant_responses
from levelhead.mitigate.projection.subspace import (
    default_pooling,
    drop_unreadable_pairs,
    paired_activations,
    read_activations,
)
from levelhead.models.edits.base import Projection
from levelhead.models.edits.conditional_shift import ConditionalShift
from levelhead.models.edits.erasure import Erasure
from levelhead.models.edits.feature_ablation import FeatureAblation
from levelhead.models.edits.shift import Shift
from levelhead.models.inputs.tokenizer import MASK

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from levelhead.core.run_context import Inference
    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair, Placebo
    from levelhead.measures.base import Measure
    from levelhead.measures.items import QuerySet
    from levelhead.mitigate.evaluation.gain import Objective
    from levelhead.mitigate.projection.subspace import ActivationPooling
    from levelhead.models.edits.base import Edit
    from levelhead.models.edits.dictionary import SparseDictionary
    from levelhead.models.forward.edit_sweep import EditSet
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

# Pairs of texts that differ, but in nothing that is about a group: two names are of one group.
PLACEBO_CONTRASTS: tuple[Placebo, ...] = ("tense", "number", "names")
TEXT_PAIR_QUERIES = ("follows", "classify", "rate")
"""Query kinds whose arguments are a text or a pair; those of other kinds begin with a text."""
MAX_TEXTS = 400
"""Maximum number of texts from which the variance of activations is computed."""


class PlaceboReport(Record):
    """Whether a setting mitigates, compared with placebos that remove as much."""

    variant: str
    placebo_test: PlaceboTest
    placebo_test_by_value: PlaceboTest | None = None
    """The same test with a smaller value as the gain; None for measures with one parity for all
    models."""
    confidence_control: ConfidenceControl | None = None
    """Gain beyond lost confidence; None for measures that are not of two classes."""
    variance_match: VarianceMatch
    """Match of the placebos, on texts that they were not matched on."""
    n_candidates: Annotated[int, Field(ge=1)] = 1
    """Number of settings that this one was chosen from, on other items. Its placebos were not
    chosen, so p is corrected for it."""
    measured_by: MeasureKey | None = None
    """Key of the measure with this type of model."""
    provenance: Provenance | None = None
    """Provenance; the hash of its edits is of the setting and all placebos."""

    @property
    def verdict(self) -> str:
        """Verdict in words: the kind of gain, if there is one."""
        if (
            self.placebo_test.outcome == "mitigates"
            and self.confidence_control is not None
            and not self.confidence_control.exceeds_confidence_loss
        ):
            return f"the gain is not more than lost confidence; {self.confidence_control.verdict}"
        return self.placebo_test.verdict

    @property
    def outcome(self) -> Outcome:
        """Result of the comparison, or the reason why there is none."""
        if self.placebo_test.outcome == "mitigates" and not self.mitigates:
            return "not shown to mitigate"
        return self.placebo_test.outcome

    @property
    def mitigates(self) -> bool:
        """Whether it gains beyond placebos and, if this is measured, beyond lost confidence."""
        return self.placebo_test.mitigates and (
            self.confidence_control is None or self.confidence_control.exceeds_confidence_loss
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Limits of the verdict."""
        notes = list(self.placebo_test.notes)
        if self.confidence_control is None:
            notes.append("lost confidence is not controlled for: the measure is not of two classes")
        if self.n_candidates > 1:
            notes.append(
                f"the setting is the best of {self.n_candidates} on other items, and placebos "
                f"stand at it alone: p is multiplied by {self.n_candidates}, an upper bound on "
                "what it would be if each had chosen its own"
            )
        return tuple(notes)


class ChosenSetting(NamedTuple):
    """The setting to test, with its name."""

    variant: str
    edits: tuple[Edit, ...]
    """Projections, shifts or erasures, all of one kind; or one ablation of features."""
    n_candidates: int = 1
    """Number of settings that it was chosen from; p is corrected for it."""


@final
@dataclass(frozen=True)
class PlaceboConfig:
    """Number and contrasts of the placebo edits."""

    n_placebos: int = MIN_PLACEBOS
    min_placebos: int = MIN_PLACEBOS
    """Minimum number of placebos for a test."""
    other_contrasts: Sequence[Sequence[ContrastPair]] | None = None
    """Pairs with other contrasts; by default tense, number and two words of one group, in
    English."""
    pooling: ActivationPooling | None = None
    """Tokens at which the texts of an erasure are read; by default as `default_pooling`."""
    dictionary: SparseDictionary | None = None
    """The dictionary of ablated features."""


def evaluate_with_placebos(
    lm: LM,
    measure: Measure,
    setting: ChosenSetting,
    pairs: Sequence[ContrastPair],
    *,
    placebos: PlaceboConfig = PlaceboConfig(),
    inference: Inference,
    context: RunContext = RunContext(),
) -> PlaceboReport:
    """Make placebos of some edits, measure the model with each, and test the setting.

    Args:
        lm: The unedited model.
        measure: Measure of bias, on items that the edits were not chosen on.
        setting: The setting to test.
        pairs: Pairs that its edits were fitted on; their texts are paired again within each side.
        placebos: Number and contrasts of the placebos.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    variant, edits, n_candidates = setting
    require_placebos(placebos.n_placebos, placebos.min_placebos)
    placebo_sets, variance_match = make_matched_placebos(
        lm, measure, edits, pairs, placebos, inference.seed
    )
    sets = {variant: edits} | {
        f"placebo {i}": placebo_set for i, placebo_set in enumerate(placebo_sets)
    }
    responses = read_variant_responses(lm, measure, sets, context=context)
    # A gain of exactly 0 for the edit and all placebos would read as "not shown to mitigate".
    if responses.unaffected_variants:
        raise NotMeasurableError(
            f"{variant} acts behind all that {measure.name} reads",
            hint="test it by a measure that it can change",
        )
    # In the order of `sets`: the setting itself comes first.
    edited, *placebo_responses = responses.variants.values()
    test_responses = PlaceboResponses(responses.base, edited, placebo_responses)
    confidence_control = None
    if has_two_classes(responses.base):
        confidence_control = run_confidence_control(measure, test_responses, inference=inference)

    def run_test(objective: Objective) -> PlaceboTest:
        return run_placebo_test(
            measure,
            test_responses,
            objective=objective,
            inference=inference,
            min_placebos=placebos.min_placebos,
            n_candidates=n_candidates,
        )

    test_by_value = None
    # Only where parity depends on the model does a smaller value differ from a smaller distance.
    if measure.primary_metric.signed_part is not None:
        test_by_value = run_test("value")
    return PlaceboReport(
        variant=variant,
        placebo_test=run_test("parity"),
        placebo_test_by_value=test_by_value,
        confidence_control=confidence_control,
        variance_match=variance_match,
        n_candidates=n_candidates,
        measured_by=responses.measured_by,
        provenance=responses.provenance_with(inference),
    )


def make_matched_placebos(
    lm: LM,
    measure: Measure,
    edits: tuple[Edit, ...],
    pairs: Sequence[ContrastPair],
    placebos: PlaceboConfig,
    seed: int,
) -> tuple[Sequence[EditSet], VarianceMatch]:
    """Make placebos of the kind of the edits, and compute their match.

    Args:
        lm: The unedited model.
        measure: The measure, whose texts they are matched on.
        edits: The real edits.
        pairs: Pairs that these were fitted on.
        placebos: Number and contrasts of the placebos.
        seed: Seed of the placebos.
    """
    if any(isinstance(edit, FeatureAblation) for edit in edits):
        return _make_feature_placebos(lm, measure, edits, placebos, seed)
    projections = [edit for edit in edits if isinstance(edit, Projection)]
    shifts = [edit for edit in edits if isinstance(edit, Shift | ConditionalShift)]
    erasures = [edit for edit in edits if isinstance(edit, Erasure)]
    if len(shifts) == len(edits):
        shift_sets = make_shift_placebos(shifts, n_placebos=placebos.n_placebos, seed=seed)
        return shift_sets, measure_vector_match(shifts, shift_sets)
    if len(erasures) == len(edits):
        sides = paired_activations(
            lm,
            drop_unreadable_pairs(lm, pairs)[0],
            [edit.site for edit in erasures],
            pooling=placebos.pooling,
        )
        erasure_sets = make_erasure_placebos(
            erasures, sides, n_placebos=placebos.n_placebos, seed=seed
        )
        return erasure_sets, measure_vector_match(erasures, erasure_sets)
    if len(projections) < len(edits):
        kinds = sorted({type(edit).__name__ for edit in edits})
        raise LevelheadError(
            "placebos are projections along other directions, shifts by other vectors or erasures "
            f"of other labels, not {', '.join(kinds)}",
            hint="give edits of one of these kinds; compare heads by `compare_with_random_heads` "
            "with random ones",
        )
    sites = [edit.site for edit in projections]
    site_activations = read_measure_activations(lm, measure, sites, seed)
    # Matched on every other text and checked on the rest: the fit of its own texts is always good.
    matching_activations, held_out_activations = (
        {site: rows[half::2] for site, rows in site_activations.items()} for half in (0, 1)
    )
    pools = contrast_differences(
        lm, pairs, sites, other_contrasts=placebos.other_contrasts, seed=seed
    )
    sets = make_placebos(
        projections, pools, matching_activations, n_placebos=placebos.n_placebos, seed=seed
    )
    return sets, measure_variance_match(projections, sets, held_out_activations)


def _make_feature_placebos(
    lm: LM, measure: Measure, edits: tuple[Edit, ...], placebos: PlaceboConfig, seed: int
) -> tuple[Sequence[EditSet], VarianceMatch]:
    (edit, *others) = edits
    if others or not isinstance(edit, FeatureAblation):
        raise LevelheadError(
            "placebos of features are of one ablation, without other edits",
            hint="ablate all features in one FeatureAblation",
        )
    if placebos.dictionary is None:
        raise LevelheadError(
            "placebos of features need their dictionary", hint="give PlaceboConfig(dictionary=...)"
        )
    running_texts = collect_running_texts(measure.queries(lm)[0], np.random.default_rng(seed))
    texts = sorted({text for texts_of_query in running_texts for text in texts_of_query})
    # Matched on every other text and checked on the rest.
    matching, held_out = (
        measure_activity(lm, placebos.dictionary, texts[half::2]) for half in (0, 1)
    )
    sets = make_feature_placebos(
        edit, placebos.dictionary, matching, n_placebos=placebos.n_placebos, seed=seed
    )
    return sets, measure_activity_match(edit, sets, held_out)


def contrast_differences(
    lm: LM,
    pairs: Sequence[ContrastPair],
    sites: Sequence[Site],
    *,
    other_contrasts: Sequence[Sequence[ContrastPair]] | None = None,
    seed: int = 0,
) -> dict[Site, tuple[torch.Tensor, ...]]:
    """Differences of other contrasts, and of texts of the same side, for every site."""
    differences: dict[Site, list[torch.Tensor]] = {site: [] for site in sites}
    for contrast in (
        [placebo_pairs(kind) for kind in PLACEBO_CONTRASTS]
        if other_contrasts is None
        else other_contrasts
    ):
        readable_pairs, _ = drop_unreadable_pairs(lm, contrast)
        for site, (first, second) in paired_activations(lm, readable_pairs, sites).items():
            differences[site].append(first - second)
    for site, sides in paired_activations(lm, drop_unreadable_pairs(lm, pairs)[0], sites).items():
        # One seed: the same texts are paired at every site, as the placebos' common weights need.
        differences[site].append(within_side_differences(*sides, seed=seed))
    return {site: tuple(pools) for site, pools in differences.items()}


def read_measure_activations(
    lm: LM, measure: Measure, sites: Sequence[Site], seed: int
) -> dict[Site, torch.Tensor]:
    """Activations of the sites on the measure's texts, at the edited tokens.

    These are the first token or the pooled vector, from the queries as they are. At other sites a
    random word of every text is used: an edit of all tokens removes what single tokens vary in, not
    what their means vary in.
    """
    rng = np.random.default_rng(seed)
    running_texts = collect_running_texts(measure.queries(lm)[0], rng)
    if len(running_texts) < 2:
        raise NotMeasurableError(
            f"{measure.name} asks {len(running_texts)} running texts, by which placebos could be "
            "matched",
            hint="test the edit with a measure that asks complete texts, or words in their blanks",
        )
    # Placebos must match the variance of the tokens that the edit changes, and a mean over tokens
    # has less variance than single tokens.
    by_word = [site for site in sites if default_pooling(lm, site) == "mean"]
    first = [site for site in sites if site not in by_word]
    by_site: dict[Site, torch.Tensor] = {}
    if first:
        sample = [running_texts[i] for i in sorted(rng.permutation(len(running_texts))[:MAX_TEXTS])]
        texts = [
            texts_of_query[0] if len(texts_of_query) == 1 else texts_of_query
            for texts_of_query in sample
        ]
        by_site |= lm.read(texts, first, pooling="first")
    if by_word:
        chosen_texts, spans = _pick_words(
            lm, sorted({text for texts_of_query in running_texts for text in texts_of_query}), rng
        )
        by_site |= read_activations(lm, chosen_texts, spans, by_word, pooling="word")
    return {site: by_site[site].double() for site in sites}


def collect_running_texts(queries: QuerySet, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """The texts or pairs of texts of a query, with a scored word in each blank.

    If no word is scored, a text with a blank is left out.
    """
    texts = set()
    for args in (args for item in queries.items for args in item.queries):
        if queries.query_kind in TEXT_PAIR_QUERIES:
            texts.add(tuple(map(str, args)))
            continue
        text = str(args[0])
        # "put" names its word in each question, the other kinds name all words in the settings.
        words = args[1:2] if queries.query_kind == "put" else queries.settings.get("words", ())
        if MASK in text and isinstance(words, tuple) and words:
            text = text.replace(MASK, str(words[rng.integers(len(words))]))
        if MASK not in text:
            texts.add((text,))
    return sorted(texts)


def _pick_words(
    lm: LM, texts: Sequence[str], rng: np.random.Generator
) -> tuple[list[str], list[tuple[int, int]]]:
    """Some texts that the model can read, with a word of each."""
    chosen_texts, spans = [], []
    for i in rng.permutation(len(texts)):
        try:
            (encoded,) = lm.tokens.encode([texts[i]])
        except LevelheadError:
            continue
        words = encoded.word_positions()
        chosen_texts.append(texts[i])
        spans.append(encoded.offsets[words[rng.integers(len(words))]])
        if len(chosen_texts) == MAX_TEXTS:
            break
    return chosen_texts, spans
