"""Locate the heads that carry what a measure sees: Yang et al. 2025, section 3, with a second half.

The gradient ranks all heads on the discovery half. Exact ablation of all heads, or of the first
ones of a large model, gives effects, intervals and p-values on the confirmation half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from levelhead.core.errors import LevelheadError, require_option
from levelhead.core.results import Provenance
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.gradient import compute_gradient, gate_shape
from levelhead.locate.attribution.integrated_gradients import integrate_masks
from levelhead.locate.attribution.mean_activations import compute_mean_activations
from levelhead.locate.attribution.variants import read_variants
from levelhead.locate.effects import DEFAULT_RESAMPLES, estimate_effects, estimate_rank_agreement
from levelhead.locate.head_map import (
    Ablation,
    Component,
    ComponentScore,
    HeadMap,
    LocateMethod,
    SplitBy,
    SplitReport,
    component_site,
)
from levelhead.locate.validation.sign import SignOption, determine_bias_sign
from levelhead.locate.validation.split import split_items
from levelhead.measures.metric import require_differentiable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.core.results import Estimate
    from levelhead.locate.attribution.variants import AblationResponses
    from levelhead.locate.head_map import BiasSign
    from levelhead.locate.validation.split import ItemSplit, SplitHalf
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site
    from levelhead.stats.paired_effects import PairedEffects

AblateTop = int | Literal["all", "none"]
# 160 covers 12 layers with 12 heads and an MLP each (156 parts); ablating every part of larger
# models takes long.
ABLATE_ALL_UP_TO = 160
"""Number of heads up to which all are ablated; for larger models, only the heads with extreme
scores."""
N_BEST, N_WORST = 20, 5
EQUATION_OF_METHOD = {
    "gradient": "Yang et al. 2025, Eq. 4",
    "ablation": "Yang et al. 2025, Eq. 2 with m = 0, one part at a time",
    "path": "Yang et al. 2025, Eq. 4 along m = 0 to 1 (Sundararajan et al. 2017)",
}


def locate(
    lm: LM,
    measure: Measure,
    *,
    method: LocateMethod = "gradient",
    components: Sequence[Component] = ("heads",),
    ablation: Ablation = "zero",
    ablate_top: AblateTop | None = None,
    split: Literal["auto"] | SplitBy = "auto",
    bias_direction: SignOption = "auto",
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> HeadMap:
    """Score every head of a model by its contribution to a measure.

    Args:
        lm: The model, edited or not.
        measure: The measure of bias.
        method: "gradient" (Eq. 4), "ablation", or "path": the gradient integrated over masks from 0
            to 1.
        components: Parts to score: heads, mlp, embeddings.
        ablation: Output of an ablated part: nothing ("zero"), or its mean over all tokens.
        ablate_top: How many of the highest scores are ablated: a number, "all" or "none"; by
            default all of at most 160 parts, otherwise the 20 highest and the 5 lowest.
        split: How items are split into halves.
        bias_direction: Direction of bias; "auto": as on the discovery half.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    # Ten parameters, each an option of the method: a user sets one or two of them by name.
    _check_options(method, components, ablation, ablate_top)
    run = _LocateRun(lm, measure, inference, context)
    if method != "ablation":
        require_differentiable(measure.primary_metric)
    responses = measure.read(lm, context=context)
    item_split = split_items(measure, responses[0], split_by=split, seed=run.inference.seed)
    # Sign and scores see the discovery half only; a sign from all items would leak into the test.
    discovery = item_split.discovery.select(responses[0])
    discovery_estimate = measure.estimate_metric(
        discovery, measure.primary_metric, run.inference, "find half"
    )
    bias_sign = determine_bias_sign(measure.primary_metric, discovery_estimate, bias_direction)
    component_heads = [
        (component, layer, head)
        for component in components
        for layer in range(gate_shape(lm.layout, component)[0])
        for head in range(gate_shape(lm.layout, component)[1])
    ]
    component_of_site = {
        component_site(
            *component_head[:2], component_head[2] if component_head[0] == "heads" else None
        ): component_head
        for component_head in component_heads
    }
    ablation_responses: AblationResponses | None = None
    path_notes: tuple[str, ...] = ()
    if method == "ablation":
        # All items are ablated once: each half is selected from the stored answers without a
        # forward.
        ablation_responses = run.ablate(responses[0], list(component_of_site), item_split, ablation)
        values = run.estimate_half_effects(
            ablation_responses, item_split.discovery, bias_sign, "find"
        ).values.tolist()
        scores = dict(zip(component_of_site, values, strict=True))
    else:
        scores, path_notes = run.gradient_scores(
            method, discovery, component_of_site, components, bias_sign
        )
    # Without embeddings all words are one vector: there is nothing to compare.
    ablatable_sites = [site for site in component_of_site if site.stream != "embeddings"]
    ablated_sites = _select_ablated_sites(scores, "all" if method == "ablation" else ablate_top)
    ablated_sites = [site for site in ablated_sites if site in ablatable_sites]
    if ablation_responses is None and ablated_sites:
        ablation_responses = run.ablate(responses[0], ablated_sites, item_split, ablation)
    evaluation = run.evaluate(
        ablation_responses, item_split, bias_sign, [scores[site] for site in ablated_sites]
    )
    estimates = dict(zip(ablated_sites, evaluation.estimates, strict=True))
    if item_split.split_by == "none" and len(ablated_sites) < len(ablatable_sites):
        # These sites were chosen on the items that test them, so a correction over the ablated
        # family would ignore the competitors that lost.
        estimates = {
            site: estimate and estimate.model_copy(update={"p": None})
            for site, estimate in estimates.items()
        }
    confirmation_estimate = None
    if item_split.split_by != "none":
        confirmation = item_split.confirmation.select(responses[0])
        confirmation_estimate = measure.estimate_metric(
            confirmation, measure.primary_metric, run.inference, "confirm half"
        )
    return HeadMap(
        method=method,
        ablation=ablation,
        layers=lm.layout.layers,
        heads_per_layer=lm.layout.heads,
        measure=measure.name,
        bias_sign=bias_sign,
        split=SplitReport(
            split_by=item_split.split_by,
            seed=item_split.seed,
            claim=item_split.claim,
            discovery=discovery_estimate,
            confirmation=confirmation_estimate,
        ),
        scores=tuple(
            _make_component_score(component_head, scores[site], estimates.get(site))
            for site, component_head in component_of_site.items()
        ),
        agreement=evaluation.agreement if method != "ablation" else None,
        replication=evaluation.replication if item_split.split_by != "none" else None,
        # A map is about heads: the content of the items is in a measurement of its own.
        measurement=measure.compute_measurement(
            lm,
            responses,
            inference=run.inference,
            context=replace(context, record_items=False),
        ),
        notes=path_notes
        + _notes(estimates, len(ablatable_sites), discovery, item_split, responses[0]),
        provenance=run.provenance(
            method, components, ablation, ablate_top, item_split, bias_direction, discovery
        ),
    )


def ablate_each(
    lm: LM,
    measure: Measure,
    responses: Responses,
    sites: Sequence[Site],
    *,
    split: ItemSplit,
    ablation: Ablation = "zero",
    context: RunContext = RunContext(),
) -> AblationResponses:
    """Responses of a model without each of some parts, one at a time."""
    site_means: dict[Site, torch.Tensor] = {}
    if ablation == "mean":
        # Mean ablation keeps a head's usual output, so that later layers see what they are used to;
        # with zero, part of an effect is the shock of an unusual input.
        site_means = compute_mean_activations(lm, measure, responses, sites)
    return read_variants(
        lm,
        measure,
        responses,
        [AblationVariant((site,), None if ablation == "mean" else 0.0) for site in sites],
        block_of=split.block_of,
        means=site_means,
        context=context,
    )


class _Evaluation(NamedTuple):
    estimates: tuple[Estimate | None, ...] = ()
    agreement: Estimate | None = None
    replication: Estimate | None = None


@dataclass(frozen=True, eq=False)
class _LocateRun:
    """Inputs that all steps share."""

    lm: LM
    measure: Measure
    inference: Inference
    context: RunContext

    def gradient_scores(
        self,
        method: LocateMethod,
        discovery: Responses,
        component_of_site: Mapping[Site, tuple[Component, int, int]],
        components: Sequence[Component],
        bias_sign: BiasSign,
    ) -> tuple[dict[Site, float], tuple[str, ...]]:
        """The derivative by every mask, times the sign, and notes on it."""
        path_notes: tuple[str, ...] = ()
        if method == "path":
            path = integrate_masks(self.lm, self.measure, discovery, components=components)
            scores_by_component = path.scores
            path_notes = (
                f"contributions add up to {path.full_value - path.masked_value:.4g}: from "
                f"{path.masked_value:.4g} with all these parts masked to {path.full_value:.4g}; "
                f"{path.n_nodes} nodes, off by {abs(path.gap):.1g}",
            )
        else:
            contributions = compute_gradient(
                self.lm,
                self.measure,
                discovery,
                components=components,
                context=self.context,
            )
            scores_by_component = {
                component: contributions.total(component) for component in components
            }
        # An undetermined sign (0) keeps the raw derivative, so that scores still rank the parts.
        direction = bias_sign.sign or 1
        return {
            site: direction * float(scores_by_component[component][layer, head])
            for site, (component, layer, head) in component_of_site.items()
        }, path_notes

    def ablate(
        self, responses: Responses, sites: Sequence[Site], split: ItemSplit, ablation: Ablation
    ) -> AblationResponses:
        """Responses of the model without each of some parts."""
        return ablate_each(
            self.lm,
            self.measure,
            responses,
            sites,
            split=split,
            ablation=ablation,
            context=self.context,
        )

    def estimate_half_effects(
        self, ablation_responses: AblationResponses, half: SplitHalf, bias_sign: BiasSign, name: str
    ) -> PairedEffects:
        """The effects on one half."""
        return estimate_effects(
            self.measure,
            half.select_variant(ablation_responses, None),
            [
                half.select_variant(ablation_responses, i)
                for i in range(len(ablation_responses.variants))
            ],
            sign=bias_sign.sign,
            inference=self.inference,
            name=f"effects, {name} half",
            # Resampled for every part of the model: more than the default would cost time, not
            # insight.
            n_resamples=max(99, min(self.inference.resamples, DEFAULT_RESAMPLES)),
        )

    def evaluate(
        self,
        ablation_responses: AblationResponses | None,
        split: ItemSplit,
        bias_sign: BiasSign,
        scores: Sequence[float],
    ) -> _Evaluation:
        """Effects on the confirmation half, and agreement of scores with effects on either half."""
        if ablation_responses is None:
            return _Evaluation()
        names = [str(variant.sites[0]) for variant in ablation_responses.variants]
        confirmation_effects = self.estimate_half_effects(
            ablation_responses, split.confirmation, bias_sign, "confirm"
        )
        discovery_effects = confirmation_effects
        if split.split_by != "none":
            discovery_effects = self.estimate_half_effects(
                ablation_responses, split.discovery, bias_sign, "find"
            )
        return _Evaluation(
            confirmation_effects.to_estimates(names, unit=self.measure.primary_metric.unit),
            estimate_rank_agreement(
                scores, discovery_effects, name="score and effect on the find half"
            ),
            estimate_rank_agreement(
                scores, confirmation_effects, name="score and effect on the confirm half"
            ),
        )

    def provenance(
        self,
        method: LocateMethod,
        components: Sequence[Component],
        ablation: Ablation,
        ablate_top: AblateTop | None,
        split: ItemSplit,
        bias_direction: SignOption,
        discovery: Responses,
    ) -> Provenance:
        """All settings that the map depends on."""
        lm = self.lm
        # How far batches shrank depends on the machine's free memory, not on the map.
        model = {name: value for name, value in lm.settings.items() if name != "batch_shrunk_to"}
        return Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in lm.edits),
            data=self.measure.data,
            equation=EQUATION_OF_METHOD[method],
            seed=self.inference.seed,
            settings={
                "measure": self.measure.settings,
                "asked": discovery.metadata,
                "model": model,
                "parts": list(components),
                "ablation": ablation,
                "exact": ablate_top,
                "split": split.split_by,
                "sign": bias_direction,
                "threads": self.context.threads,
                "resamples": self.inference.resamples,
                "level": self.inference.level,
            },
        )


def _check_options(
    method: str, components: Sequence[str], ablation: str, ablate_top: AblateTop | None
) -> None:
    for value, options, option_name in (
        (method, get_args(LocateMethod), "way to locate"),
        (ablation, get_args(Ablation), "ablation"),
        *((component, get_args(Component), "part") for component in components),
    ):
        require_option(option_name, value, options)
    if not components or len(set(components)) < len(components):
        raise LevelheadError(
            "name each part once", hint=f"choose from {', '.join(get_args(Component))}"
        )
    if method == "ablation" and "embeddings" in components:
        raise LevelheadError(
            "without embeddings all words are one vector: there is nothing to compare",
            hint="take the embeddings' gradient",
        )
    if not (
        ablate_top is None
        or ablate_top in ("all", "none")
        or (type(ablate_top) is int and ablate_top > 0)
    ):
        raise LevelheadError(
            f"{ablate_top!r} parts cannot be ablated", hint="give 'all', 'none' or how many"
        )
    if method == "ablation" and ablate_top not in (None, "all"):
        raise LevelheadError(
            f"by ablation every part is ablated, not {ablate_top!r}", hint="leave out exact"
        )


def _select_ablated_sites(scores: Mapping[Site, float], ablate_top: AblateTop | None) -> list[Site]:
    """The parts to ablate, in the order of the map."""
    if ablate_top == "none":
        return []
    ranked = sorted(scores, key=lambda site: -scores[site])
    if ablate_top == "all" or (ablate_top is None and len(ranked) <= ABLATE_ALL_UP_TO):
        return list(scores)
    selected = (
        ranked[:ablate_top]
        if isinstance(ablate_top, int)
        else [*ranked[:N_BEST], *ranked[-N_WORST:]]
    )
    # In the map's order, not by rank: `scores` and estimates are paired by position.
    selected_sites = set(selected)
    return [site for site in scores if site in selected_sites]


def _make_component_score(
    component_head: tuple[Component, int, int], score: float, estimate: Estimate | None
) -> ComponentScore:
    component, layer, head = component_head
    component_score = ComponentScore(
        component=component, layer=layer, head=head if component == "heads" else None, score=score
    )
    if estimate is None:
        return component_score
    copied_fields = ("interval", "p", "detectable")
    tested_values = {name: getattr(estimate, name) for name in copied_fields}
    return component_score.model_copy(update={"effect": estimate.value, **tested_values})


def _notes(
    estimates: Mapping[Site, Estimate | None],
    n_components: int,
    discovery: Responses,
    split: ItemSplit,
    responses: Responses,
) -> tuple[str, ...]:
    notes = []
    sites_without_effect = [str(site) for site, estimate in estimates.items() if estimate is None]
    if sites_without_effect:
        notes.append(f"ablation changes nothing at {', '.join(sites_without_effect)}: no p-value")
    if len(estimates) < n_components:
        notes.append(
            f"{len(estimates)} of {n_components} parts were ablated, the others are only ranked"
            + ("; rank agreement is of these, which lie far apart" if estimates else "")
        )
    if split.split_by == "contexts":
        for name, half in (("find", discovery), ("confirm", split.confirmation.select(responses))):
            if len(half) < len(responses):
                n_dropped = len(responses) - len(half)
                notes.append(f"{n_dropped} items have no context in the {name} half")
    if responses.owner:
        notes.append("effects' intervals resample words; their contexts are fixed")
    return tuple(notes)
