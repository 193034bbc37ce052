"""Attribution of a measure to the features of a sparse dictionary, and their exact ablation.

The activation is h = sum_i f_i d_i + c + e, with the part e that the dictionary does not describe.
To first order, without feature i the measure changes by -f_i <d_i, dL/dh>, and with the feature of
the twin by (f_i' - f_i) <d_i, dL/dh> (Marks et al. 2024, "Sparse feature circuits", section 3.1),
for all features at the cost of one forward and backward pass, and one forward pass of the twins.
The features with the largest attributions on one half of the items are then ablated exactly on the
other half, with corrected p-values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.results import Provenance
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.locate.attribution.gradient import compute_cotangents, require_nonzero_gradient
from levelhead.locate.effects import DEFAULT_RESAMPLES, estimate_effects, estimate_rank_agreement
from levelhead.locate.patching.feature_map import FeatureEffect, FeatureMap
from levelhead.locate.patching.twins import make_twins
from levelhead.locate.validation.sign import determine_bias_sign
from levelhead.locate.validation.split import split_items
from levelhead.measures.edit_sweep import read_needed
from levelhead.measures.inference import estimate
from levelhead.measures.metric import require_differentiable
from levelhead.measures.query_kinds import LocalQuery, shard_size
from levelhead.measures.responses import build_query
from levelhead.models.edits.base import Edit
from levelhead.models.edits.feature_ablation import FeatureAblation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.canonical_json import Json
    from levelhead.core.results import Estimate
    from levelhead.locate.head_map import SplitBy
    from levelhead.locate.patching.twins import TwinItems, TwinWords
    from levelhead.measures.base import Measure
    from levelhead.measures.items import QueryArgs
    from levelhead.measures.responses import Responses
    from levelhead.models.edits.dictionary import SparseDictionary
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import Query
    from levelhead.models.sites import Site

AttributionBaseline = Literal["zero", "twins"]
"""What a feature is compared with: its absence, or its value in the counterfactual text."""


@final
@dataclass(frozen=True)
class FeatureConfig:
    """What features are compared with, and how many are ablated exactly."""

    baseline: AttributionBaseline = "zero"
    ablate_top: int = 20
    """Number of the features with the largest attributions that are ablated."""
    split: Literal["auto"] | SplitBy = "auto"
    """How items are split into the half that ranks and the half that confirms."""

    def __post_init__(self) -> None:
        require_option("baseline", self.baseline, get_args(AttributionBaseline))
        if self.ablate_top < 1:
            raise LevelheadError(
                f"{self.ablate_top} features cannot be ablated", hint="give 1 or more"
            )


def locate_features(
    lm: LM,
    measure: Measure,
    dictionary: SparseDictionary,
    *,
    twins: TwinWords = "gender-en",
    config: FeatureConfig = FeatureConfig(),
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> FeatureMap:
    """Find the features of a dictionary that add to a measure.

    Args:
        lm: The model, edited or not.
        measure: The measure; its primary metric must be smooth.
        dictionary: A dictionary of this model's activations.
        twins: The words that are exchanged, for the baseline "twins".
        config: Baseline, number of ablations and split.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    require_differentiable(measure.primary_metric)
    _check_dictionary(lm, dictionary)
    (all_responses,) = read_needed(lm, measure, [()], context=context)
    if all_responses is None:
        raise NotMeasurableError("the model answers nothing", hint="check the measure")
    twin_items = None
    if config.baseline == "twins":
        twin_items = make_twins(lm, measure, all_responses, twins)
    halves = split_items(measure, all_responses, split_by=config.split, seed=inference.seed)
    discovery = halves.discovery.select(all_responses)
    base_estimates = [
        _estimate(measure, half.select(all_responses), inference)
        for half in (halves.discovery, halves.confirmation)
    ]
    bias_sign = determine_bias_sign(measure.primary_metric, base_estimates[0])
    direction = bias_sign.sign or 1
    attributions = direction * attribute_features(
        lm, measure, dictionary, discovery, twins=twin_items
    )
    # Without its feature the model is nearer to parity if the attribution is positive. By size for
    # twins: an exchange moves a measure to either side.
    order = attributions.abs() if config.baseline == "twins" else attributions
    ranked = [int(i) for i in order.argsort(descending=True, stable=True) if order[i] > 0]
    if not ranked:
        raise NotMeasurableError(
            "no feature is active where the measure reads", hint="give another site or measure"
        )
    ablated = ranked[: config.ablate_top]
    base, *variants = read_needed(
        lm,
        measure,
        [(), *((FeatureAblation.of(dictionary, [feature]),) for feature in ablated)],
        context=context,
    )
    if base is None or any(variant is None for variant in variants):
        raise NotMeasurableError(
            f"{dictionary.site} lies behind all that {measure.name} reads",
            hint="give a dictionary of an earlier site",
        )
    effects = {
        name: estimate_effects(
            measure,
            half.select(base),
            [half.select(variant) for variant in variants if variant is not None],
            sign=bias_sign.sign,
            inference=inference,
            name=f"features, {name}",
            n_resamples=max(99, min(inference.resamples, DEFAULT_RESAMPLES)),
        )
        for name, half in (("find", halves.discovery), ("confirm", halves.confirmation))
    }
    confirmed: tuple[Estimate | None, ...] = (None,) * len(ablated)
    if (effects["confirm"].standard_errors > 0).any():
        confirmed = effects["confirm"].to_estimates(
            [f"effect of feature {feature}" for feature in ablated],
            unit=measure.primary_metric.unit,
        )
    return FeatureMap(
        measure=measure.name,
        site=(dictionary.site.stream, dictionary.site.layer, dictionary.site.head),
        dictionary=dictionary.content_hash,
        n_features=dictionary.n_features,
        n_attributed=int((attributions != 0).sum()),
        baseline=config.baseline,
        split_by=halves.split_by,
        claim=halves.claim,
        bias_sign=bias_sign,
        discovery_base=base_estimates[0],
        base=base_estimates[1],
        effects=tuple(
            FeatureEffect(
                feature=feature,
                attribution=float(attributions[feature]),
                discovery=float(effects["find"].values[i]),
                ablation=confirmed[i],
            )
            for i, feature in enumerate(ablated)
        ),
        agreement=estimate_rank_agreement(
            [float(attributions[feature]) for feature in ablated],
            effects["find"],
            name="attribution and exact ablation on the find half",
        ),
        dropped=() if twin_items is None else twin_items.dropped,
        n_items=len(all_responses),
        provenance=_make_provenance(lm, measure, dictionary, config, inference),
    )


def attribute_features(
    lm: LM,
    measure: Measure,
    dictionary: SparseDictionary,
    responses: Responses,
    *,
    twins: TwinItems | None = None,
) -> torch.Tensor:
    """Approximate what each feature adds to a measure: `[features]`, float64.

    Args:
        lm: The model.
        measure: The measure; a step function raises an error.
        dictionary: A dictionary of this model's activations.
        responses: Responses of the model.
        twins: Twins, whose features replace those of the texts; only items with a twin then count.
            None: the features are compared with their absence.
    """
    index = index_answers(lm, measure, responses)
    cotangents = compute_cotangents(measure, responses)
    require_nonzero_gradient(cotangents, measure, "its readouts")
    by_answer = index.answer_cotangents(cotangents[None])[0]
    rows = [i for i, query in enumerate(index.queries) if twins is None or query in twins.twin_of]
    total = torch.zeros(dictionary.n_features, dtype=torch.float64)
    size = shard_size(lm, index.query_set.query_kind)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        queries = [index.queries[i] for i in part]
        local_query = _build(lm, index.query_set.query_kind, queries, index.query_set.settings)
        twin = None
        if twins is not None:
            twin = _build(
                lm, index.query_set.query_kind, twins.twins(queries), index.query_set.settings
            ).query
        query = local_query.query
        query_of_row = torch.tensor(query.items or range(len(query.rows)))
        total += _attribute_query(
            lm, dictionary, query, twin, by_answer[part][query_of_row][:, : local_query.n_columns]
        )
    # What an exchange adds is itself the effect; what an absence removes is what the feature adds.
    return total


def _attribute_query(
    lm: LM,
    dictionary: SparseDictionary,
    query: Query,
    twin: Query | None,
    cotangents: torch.Tensor,
) -> torch.Tensor:
    total = torch.zeros(dictionary.n_features, dtype=torch.float64)

    def attribute_batch(indices: Sequence[int]) -> torch.Tensor:
        features_of_twin = None
        if twin is not None:
            twin_edit = _ProbeEdit(dictionary.site)
            with torch.no_grad():
                lm.edited(twin_edit).run_rows(twin, indices)
            features_of_twin = dictionary.encode(twin_edit.activations[0])
        edit = _ProbeEdit(dictionary.site)
        with torch.enable_grad():
            values = lm.edited(edit).run_rows(query, indices).values.flatten(1)
            # Without columns that are no answers, such as the spare one of a query with blanks.
            values = values[:, : cotangents.shape[1]]
            (gradient,) = torch.autograd.grad(
                values,
                edit.probes,
                cotangents[list(indices)][:, : values.shape[1]].to(values),
            )
        with torch.no_grad():
            features, scale = dictionary.encoder(edit.activations[0])
            along = scale * (gradient @ dictionary.decoder.to(gradient).T)
            change = features if features_of_twin is None else features_of_twin - features
            # Padding has no gradient, whatever its features are.
            return (change * along).flatten(0, -2).double().sum(0).cpu()

    for _, attributions in lm.batching.run_batches(query.rows, attribute_batch):
        total += attributions
    return total


@final
@dataclass(frozen=True, eq=False)
class _ProbeEdit(Edit):
    """Adds zeros whose gradient is taken, and keeps the activation; for measuring only."""

    site: Site
    activations: list[torch.Tensor] = field(default_factory=list)
    probes: list[torch.Tensor] = field(default_factory=list)
    kind: ClassVar[str] = "probe"

    @property
    def sites(self) -> tuple[Site, ...]:  # type: ignore[override]  # a field there, derived here
        """The site."""
        return (self.site,)

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Return the activation plus zeros."""
        self.activations.append(activation.detach())
        self.probes.append(torch.zeros_like(activation, requires_grad=torch.is_grad_enabled()))
        return activation + self.probes[-1]

    def matrix(self, site: Site, width: int) -> None:
        """None: it is never merged."""
        return

    def width(self, site: Site) -> None:
        """Any."""
        return

    @property
    def settings(self) -> Mapping[str, Json]:
        """Its identity: two probes keep different activations."""
        return {"probe": id(self)}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """None are stored."""
        return {}


def _build(
    lm: LM, query_kind: str, queries: Sequence[QueryArgs], settings: Mapping[str, object]
) -> LocalQuery:
    local_query, dropped = build_query(lm, query_kind, queries, settings)  # type: ignore[arg-type]
    if dropped or not isinstance(local_query, LocalQuery):
        raise LevelheadError(
            "a query that was answered before cannot be built now",
            hint="use the model and the tokenizer that were read",
        )
    return local_query


def _check_dictionary(lm: LM, dictionary: SparseDictionary) -> None:
    width = lm.layout.site_width(lm.layout.require_site(dictionary.site))
    if width != dictionary.width:
        raise LevelheadError(
            f"the dictionary is {dictionary.width} wide, and {dictionary.site} {width}",
            hint="give a dictionary that was trained on this model",
        )


def _estimate(measure: Measure, responses: Responses, inference: Inference) -> Estimate:
    metric = measure.primary_metric
    return estimate(
        inference,
        metric,
        metric.per_item_values(responses).detach(),
        measure.design(responses, metric),
        test=False,
    )


def _make_provenance(
    lm: LM,
    measure: Measure,
    dictionary: SparseDictionary,
    config: FeatureConfig,
    inference: Inference,
) -> Provenance:
    return Provenance.of(
        lm.identity.name,
        lm.content_hash,
        revision=lm.identity.revision,
        edits=tuple(edit.content_hash for edit in lm.edits),
        data=dict(measure.data) | {"dictionary": dictionary.content_hash},
        equation="Marks et al. 2024, section 3.1; exact ablation",
        seed=inference.seed,
        settings={
            "measure": measure.settings,
            "baseline": config.baseline,
            "ablated": config.ablate_top,
            "split": config.split,
            "resamples": inference.resamples,
            "level": inference.level,
        },
    )
