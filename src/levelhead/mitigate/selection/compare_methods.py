"""Compare methods of mitigation on one model: chosen on one half of the items, tested on the other.

Every method that edits a model is given the same pairs of texts and the same items. Its best
setting on the discovery half is measured once on the confirmation half, against placebos of its own
kind: random heads, projections, shifts, labels or features. Models that were trained have no
placebos here, which would be as many trainings.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar, final

import numpy as np

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.core.results import Provenance
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs_digest
from levelhead.data.counterfactuals.held_out import held_out_pairs
from levelhead.locate.validation.split import split_items
from levelhead.measures.edit_sweep import read_needed
from levelhead.measures.inference import estimate
from levelhead.measures.run import compare
from levelhead.mitigate.controls.placebo_report import PlaceboConfig, make_matched_placebos
from levelhead.mitigate.controls.placebo_test import (
    PlaceboResponses,
    run_placebo_test,
    single_effect,
)
from levelhead.mitigate.evaluation.gain import (
    bias_aggregate,
    keep_common_items,
    resample_paired,
)
from levelhead.mitigate.evaluation.knowledge import evaluate_knowledge
from levelhead.mitigate.evaluation.variant_responses import VariantResponses, best_variant
from levelhead.mitigate.probing.concept_removal import (
    LEVEL,
    BiasReductionEvidence,
    ProbeConfig,
    concept_removal,
)
from levelhead.mitigate.projection.subspace import drop_unreadable_pairs
from levelhead.mitigate.selection.method_settings import EDIT_METHODS, FitInputs
from levelhead.mitigate.selection.method_table import MethodResult, MethodTable
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from levelhead.core.results import Estimate
    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.locate.validation.split import ItemSplit, SplitHalf
    from levelhead.measures.base import Measure
    from levelhead.measures.compare import Comparison
    from levelhead.measures.responses import Responses
    from levelhead.mitigate.controls.placebo_test import PlaceboTest
    from levelhead.models.edits.dictionary import SparseDictionary
    from levelhead.models.forward.edit_sweep import EditSet
    from levelhead.models.lm import LM

Value = TypeVar("Value")
NO_TRAINING_PLACEBOS = "a test would need as many trainings as placebos"


@final
@dataclass(frozen=True, eq=False)
class MethodComparison:
    """What methods are compared by."""

    measure: Measure
    """Measure of bias, with a smooth metric."""
    pairs: Sequence[ContrastPair]
    """Pairs of texts that edits are fitted on."""
    utility_measures: Sequence[Measure] = ()
    knowledge_measures: Sequence[Measure] = ()
    methods: Sequence[str] = tuple(EDIT_METHODS)
    dictionary: SparseDictionary | None = None
    probe_lexicon: str | None = None
    """Lexicon whose other words test whether the group was removed; None: not tested."""
    n_placebos: int = 99
    other_contrasts: Sequence[Sequence[ContrastPair]] | None = None
    """Pairs with other contrasts, for placebos of projections; by default English ones."""

    def __post_init__(self) -> None:
        for method in self.methods:
            if method not in EDIT_METHODS:
                raise UnknownNameError("method", method, EDIT_METHODS)
        if self.n_placebos < 19:
            raise LevelheadError(f"{self.n_placebos} placebos", hint="give 19 or more")


def compare_methods(
    lm: LM,
    comparison: MethodComparison,
    *,
    variants: Mapping[str, LM] | None = None,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> MethodTable:
    """Compare methods of mitigation.

    Args:
        lm: The unedited model.
        comparison: Measures, pairs and methods.
        variants: The same model trained or prompted, by the method's name.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    readable_pairs, _ = drop_unreadable_pairs(lm, comparison.pairs)
    responses = read_needed(lm, comparison.measure, [()], context=context)[0]
    if responses is None:
        raise NotMeasurableError("the model answers nothing", hint="check the measure")
    halves = split_items(comparison.measure, responses, seed=inference.seed)
    halves.require_two_halves()
    run = _Run(lm, comparison, tuple(readable_pairs), halves, inference, context)
    test = halves.confirmation.select(responses)
    metric = comparison.measure.primary_metric
    inputs = FitInputs(
        lm,
        comparison.measure,
        halves.discovery.select(responses),
        readable_pairs,
        comparison.dictionary,
        context,
    )
    return MethodTable(
        measure=comparison.measure.name,
        base=estimate(
            inference,
            metric,
            metric.per_item_values(test).detach(),
            comparison.measure.design(test, metric),
        ),
        claim=halves.claim,
        n_placebos=comparison.n_placebos,
        methods=(
            *(run.evaluate_edits(method, inputs) for method in comparison.methods),
            *(run.evaluate_variant(name, model) for name, model in (variants or {}).items()),
        ),
        measured_by=comparison.measure.measure_key(lm),
        provenance=run.make_provenance(variants or {}),
    )


@final
@dataclass(frozen=True, eq=False)
class _Run:
    """Inputs that all methods share."""

    lm: LM
    comparison: MethodComparison
    pairs: tuple[ContrastPair, ...]
    halves: ItemSplit
    inference: Inference
    context: RunContext

    def evaluate_edits(self, method: str, inputs: FitInputs) -> MethodResult:
        """Choose a setting on the discovery half, and test it on the other."""
        start = time.process_time()
        try:
            settings = EDIT_METHODS[method](inputs)
            chosen = self._choose(settings)
        except NotMeasurableError as error:
            return MethodResult(method=method, missing=(("all", error.problem),))
        seconds = round(time.process_time() - start, 1)
        draft = MethodResult(method=method, n_settings=len(settings), cpu_seconds=seconds)
        if chosen is None:
            reason = ("all", "no setting gains on the half that chooses")
            return draft.model_copy(update={"missing": (reason,)})
        edits = settings[chosen]
        draft = draft.model_copy(update={"setting": chosen})
        return self._evaluate(draft, self.lm.edited(*edits), edits)

    def evaluate_variant(self, method: str, variant: LM) -> MethodResult:
        """Test a model that was trained or prompted."""
        return self._evaluate(MethodResult(method=method, n_settings=1), variant, None)

    def _choose(self, settings: Mapping[str, EditSet]) -> str | None:
        base, *others = self._read(self.halves.discovery, [(), *settings.values()])
        variants = {
            name: responses
            for name, responses in zip(settings, others, strict=True)
            if responses is not None
        }
        if base is None or not variants:
            raise NotMeasurableError(
                "it acts behind all that the measure reads", hint="give another measure"
            )
        return best_variant(VariantResponses(self.comparison.measure, base, variants))

    def _read(self, half: SplitHalf, sets: Sequence[EditSet]) -> list[Responses | None]:
        """Responses of a half; of a half of the items, the others are not read."""
        items = half.items if half.blocks is None else None
        return [
            None if responses is None else half.select(responses)
            for responses in read_needed(
                self.lm, self.comparison.measure, sets, items=items, context=self.context
            )
        ]

    def _evaluate(self, draft: MethodResult, variant: LM, edits: EditSet | None) -> MethodResult:
        missing: list[tuple[str, str]] = []
        updates: dict[str, object] = {}

        def fill(cell: str, make: Callable[[], Value]) -> Value | None:
            try:
                value = make()
            # An empty cell with its reason: one of many must not end the comparison.
            except LevelheadError as error:
                missing.append((cell, error.problem))
                return None
            updates[cell] = value
            return value

        if edits is None:
            missing.append(("placebo", NO_TRAINING_PLACEBOS))
        else:
            fill("placebo", lambda: self._test_placebos(edits, draft.n_settings))
        gain = fill("gain", lambda: self._estimate_gain(variant, edits))
        fill("price", lambda: tuple(self._compare_utilities(variant)))
        if self.comparison.knowledge_measures:
            fill(
                "knowledge",
                lambda: evaluate_knowledge(
                    self.lm,
                    variant,
                    self.comparison.knowledge_measures,
                    inference=self.inference,
                    context=self.context,
                ),
            )
        if edits is not None and self.comparison.probe_lexicon is not None:
            fill("removal", lambda: self._probe(edits, gain))
        return draft.model_copy(update={**updates, "missing": tuple(missing)})

    def _test_placebos(self, edits: EditSet, n_settings: int) -> PlaceboTest:
        comparison = self.comparison
        placebo_sets = self._make_placebos(edits)
        base, edited, *others = self._read(self.halves.confirmation, [(), edits, *placebo_sets])
        if base is None or edited is None:
            raise NotMeasurableError("nothing is changed", hint="give another measure")
        return run_placebo_test(
            comparison.measure,
            PlaceboResponses(base, edited, [other for other in others if other is not None]),
            inference=self.inference,
            # A single head has no more placebos than there are heads: the test says if too few.
            min_placebos=min(comparison.n_placebos, len(placebo_sets)),
            n_candidates=n_settings,
        )

    def _make_placebos(self, edits: EditSet) -> Sequence[EditSet]:
        comparison, seed = self.comparison, self.inference.seed
        (edit, *_) = edits
        if isinstance(edit, HeadScale):
            return make_head_placebos(self.lm, edit, comparison.n_placebos, seed)
        placebos = PlaceboConfig(
            comparison.n_placebos,
            comparison.n_placebos,
            other_contrasts=comparison.other_contrasts,
            dictionary=comparison.dictionary,
        )
        return make_matched_placebos(
            self.lm, comparison.measure, edits, self.pairs, placebos, seed
        )[0]

    def _estimate_gain(self, variant: LM, edits: EditSet | None) -> Estimate:
        half, measure = self.halves.confirmation, self.comparison.measure
        if edits is None:
            both = (
                read_needed(model, measure, [()], items=half.items, context=self.context)[0]
                for model in (self.lm, variant)
            )
            pair = [None if responses is None else half.select(responses) for responses in both]
        else:
            pair = self._read(half, [(), edits])
        common, _ = keep_common_items([responses for responses in pair if responses is not None])
        metric = measure.primary_metric
        effects = resample_paired(
            measure, common, bias_aggregate(metric), metric=metric, inference=self.inference
        ).effects()
        return single_effect(effects, f"gain of {metric.name}", metric.unit)

    def _compare_utilities(self, variant: LM) -> Iterator[Comparison]:
        for measure in self.comparison.utility_measures:
            yield compare(measure, self.lm, variant, inference=self.inference, context=self.context)

    def _probe(self, edits: EditSet, gain: Estimate | None) -> str:
        # Words of the pairs that edits were fitted on are left out.
        pairs = held_out_pairs(self.comparison.probe_lexicon or "", fitted_on=self.pairs).pairs
        layers = self.lm.layout.layers
        report = concept_removal(
            self.lm,
            edits,
            drop_unreadable_pairs(self.lm, pairs)[0],
            fitted_on=self.pairs,
            bias_reduction=BiasReductionEvidence(
                gain, self.comparison.measure.measure_key(self.lm)
            ),
            probes=ProbeConfig(sites=(Site("block_out", layers - 1),), label_permutations=99),
            inference=replace(self.inference, level=LEVEL),
        )
        return report.verdict

    def make_provenance(self, variants: Mapping[str, LM]) -> Provenance:
        """All inputs of the comparison."""
        lm, comparison = self.lm, self.comparison
        dictionary = comparison.dictionary
        return Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in lm.edits),
            data=dict(comparison.measure.data)
            | {"pairs of texts": contrast_pairs_digest(comparison.pairs)}
            | ({} if dictionary is None else {"dictionary": dictionary.content_hash})
            | {f"variant {name}": model.content_hash for name, model in variants.items()},
            equation="decrease of the distance from parity, on the half that tests",
            seed=self.inference.seed,
            settings={
                "measure": comparison.measure.settings,
                "methods": list(comparison.methods),
                "placebos": comparison.n_placebos,
                "resamples": self.inference.resamples,
                "level": self.inference.level,
            },
        )


def make_head_placebos(
    lm: LM, edit: HeadScale, n_placebos: int, seed: int
) -> tuple[tuple[HeadScale, ...], ...]:
    """Scale as many random heads by the same factor, none of them a head of the edit.

    Args:
        lm: The model.
        edit: The real edit.
        n_placebos: Number of placebos.
        seed: Seed of the heads.
    """
    others = [
        Site("head_out", layer, head)
        for layer in range(lm.layout.layers)
        for head in range(lm.layout.heads)
        if Site("head_out", layer, head) not in edit.sites
    ]
    n_heads = len(edit.sites)
    if n_heads > len(others):
        raise NotMeasurableError(
            f"{len(others)} other heads cannot replace {n_heads}", hint="edit fewer heads"
        )
    if n_heads == 1:
        # Each head once: there are no more placebos than heads.
        order = np.random.default_rng([seed, 0]).permutation(len(others))[:n_placebos]
        return tuple((HeadScale([others[i]], edit.factor),) for i in order)
    return tuple(
        (
            HeadScale(
                [
                    others[i]
                    for i in np.random.default_rng([seed, number]).permutation(len(others))[
                        :n_heads
                    ]
                ],
                edit.factor,
            ),
        )
        for number in range(n_placebos)
    )
