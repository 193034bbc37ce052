"""Causal mediation: which parts of a model carry the effect of an exchange of words?

Vig et al. 2020 ("Investigating gender bias in language models using causal mediation analysis").
Attribution patching ranks all parts on one half of the items; exact patching tests the first of
them on the other half, with intervals and corrected p-values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, final, get_args

from levelhead.core.errors import LevelheadError, require_option
from levelhead.core.results import Provenance
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.locate.attribution.gradient import gate_shape
from levelhead.locate.effects import DEFAULT_RESAMPLES, estimate_effects, estimate_rank_agreement
from levelhead.locate.head_map import Component, SplitBy, component_site
from levelhead.locate.patching.interchange import Patch, TokenChoice
from levelhead.locate.patching.mediation_map import MediatedEffect, MediationMap
from levelhead.locate.patching.read_patches import attribute_patches, read_patches
from levelhead.locate.patching.twins import make_twins
from levelhead.locate.validation.split import split_items
from levelhead.measures.metric import require_differentiable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate
    from levelhead.locate.patching.interchange import Direction
    from levelhead.locate.patching.read_patches import PatchedResponses
    from levelhead.locate.patching.twins import TwinItems, TwinWords
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site
    from levelhead.stats.paired_effects import PairedEffects

# As many as are ablated by default: every head of a model of 12 layers, with its layers' MLPs.
PATCH_ALL_UP_TO = 160
"""Number of parts up to which all are patched; of more, only those with extreme attributions."""
N_FIRST, N_LAST = 20, 5


@final
@dataclass(frozen=True)
class MediationConfig:
    """The parts and tokens that are exchanged, and which of them exactly."""

    components: tuple[Component, ...] = ("heads", "mlp")
    patch_top: int | str | None = None
    """How many of the largest attributions are patched exactly, "all" or "none"; None: all of at
    most 160 parts, otherwise the 20 first and the 5 last."""
    tokens: TokenChoice = "all"
    has_direct_effects: bool = False
    """Whether direct effects are measured, too: one more forward pass for every part."""
    split: Literal["auto"] | SplitBy = "auto"
    """How items are split into the half that ranks and the half that confirms."""

    def __post_init__(self) -> None:
        require_option("choice of tokens", self.tokens, get_args(TokenChoice))
        for component in self.components:
            require_option("part", component, get_args(Component))
        if not self.components or len(set(self.components)) < len(self.components):
            raise LevelheadError(
                "name each part once", hint=f"choose from {', '.join(get_args(Component))}"
            )
        is_number = type(self.patch_top) is int and self.patch_top > 0
        if not (is_number or self.patch_top in (None, "all", "none")):
            raise LevelheadError(
                f"{self.patch_top!r} parts cannot be patched", hint="give 'all', 'none' or a number"
            )


def mediate(
    lm: LM,
    measure: Measure,
    *,
    twins: TwinWords = "gender-en",
    config: MediationConfig = MediationConfig(),
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> MediationMap:
    """Find the parts of a model through which an exchange of words changes a measure.

    Args:
        lm: The model, edited or not.
        measure: The measure; its primary metric must be smooth.
        twins: The words that are exchanged: a lexicon, its name, or words and their replacements.
        config: Parts and tokens that are exchanged.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    require_differentiable(measure.primary_metric)
    response_sets = measure.read(lm, context=context)
    twin_items = make_twins(lm, measure, response_sets[0], twins)
    responses = response_sets[0].select(lambda item: item.id in twin_items.item_ids)
    run = _MediationRun(lm, measure, twin_items, config, inference, context)
    halves = split_items(measure, responses, split_by=config.split, seed=inference.seed)
    discovery, confirmation = (
        half.select(responses) for half in (halves.discovery, halves.confirmation)
    )
    parts = list_parts(lm, config.components)
    attributions = run.attribute(discovery, parts)
    patched_sites = _choose_patched(attributions, config.patch_top)
    # The ranking and its agreement are of one half, every test is of the other.
    on_discovery = run.patch(discovery, patched_sites, "indirect")
    on_confirmation = (
        on_discovery
        if halves.split_by == "none"
        else run.patch(confirmation, patched_sites, "indirect")
    )
    indirect = run.estimate(on_confirmation, patched_sites, "indirect")
    direct: dict[Site, Estimate | None] = {}
    if config.has_direct_effects and patched_sites:
        direct = run.estimate(
            run.patch(confirmation, patched_sites, "direct"), patched_sites, "direct"
        )
    return MediationMap(
        measure=measure.name,
        twins=_describe_words(twins),
        tokens=config.tokens,
        split_by=halves.split_by,
        claim=halves.claim,
        total=run.estimate_total(on_confirmation, "confirm half"),
        discovery_total=run.estimate_total(on_discovery, "find half"),
        effects=tuple(
            MediatedEffect(
                component=component,
                layer=site.layer,
                head=site.head,
                attribution=attributions[site],
                indirect=indirect.get(site),
                direct=direct.get(site),
            )
            for site, component in parts.items()
        ),
        agreement=None
        if not patched_sites
        else estimate_rank_agreement(
            [attributions[site] for site in patched_sites],
            run.effects_of(on_discovery, "attribution and exchange"),
            name="attribution and exact effect on the find half",
        ),
        dropped=twin_items.dropped,
        n_items=len(responses),
        measurement=measure.compute_measurement(
            lm, response_sets, inference=inference, context=replace(context, record_items=False)
        ),
        notes=_make_notes(indirect, patched_sites, parts, twin_items),
        provenance=run.make_provenance(halves.split_by),
    )


@dataclass(frozen=True, eq=False)
class _MediationRun:
    """Inputs that all steps share."""

    lm: LM
    measure: Measure
    twins: TwinItems
    config: MediationConfig
    inference: Inference
    context: RunContext

    def attribute(self, responses: Responses, parts: Mapping[Site, Component]) -> dict[Site, float]:
        """Approximate the indirect effect of every part."""
        shares = attribute_patches(
            self.lm,
            self.measure,
            self.twins,
            responses,
            components=self.config.components,
            tokens=self.config.tokens,
            context=self.context,
        )
        totals = {component: by_item.sum(0) for component, by_item in shares.items()}
        return {
            site: float(totals[component][site.layer, site.head or 0])
            for site, component in parts.items()
        }

    def patch(
        self, responses: Responses, sites: Sequence[Site], direction: Direction
    ) -> PatchedResponses:
        """Responses with each part exchanged."""
        return read_patches(
            self.lm,
            self.twins,
            responses,
            [Patch((site,), direction) for site in sites],
            tokens=self.config.tokens,
            context=self.context,
        )

    def effects_of(self, patched: PatchedResponses, name: str) -> PairedEffects:
        """L(patched) - L(texts), on the same resampled units."""
        return self._estimate_differences(
            patched.responses_of(None),
            [patched.responses_of(i) for i in range(len(patched.patches))],
            name,
        )

    def estimate(
        self, patched: PatchedResponses, sites: Sequence[Site], name: str
    ) -> dict[Site, Estimate | None]:
        """Effects by site, corrected as one family."""
        if not sites:
            return {}
        # An exchange that changes no answer has no test, and is reported without one.
        changed = [i for i in range(len(sites)) if patched.has_change(i)]
        if not changed:
            return dict.fromkeys(sites)
        kept = replace(
            patched,
            patches=tuple(patched.patches[i] for i in changed),
            values=patched.values[[0, 1, *(2 + i for i in changed)]],
        )
        estimates = self.effects_of(kept, name).to_estimates(
            [f"{name} effect of {sites[i]}" for i in changed],
            unit=self.measure.primary_metric.unit,
        )
        by_index = dict(zip(changed, estimates, strict=True))
        return {site: by_index.get(i) for i, site in enumerate(sites)}

    def estimate_total(self, patched: PatchedResponses, name: str) -> Estimate:
        """The total effect: L(twins) - L(texts)."""
        differences = self._estimate_differences(
            patched.responses_of(None), [patched.twins], f"total, {name}"
        )
        # Raises an error if no twin has another answer than its text: there is nothing to mediate.
        (estimate,) = differences.to_estimates(
            [f"total effect, {name}"], unit=self.measure.primary_metric.unit
        )
        assert estimate is not None  # noqa: S101  # without any spread `to_estimates` raises
        return estimate

    def _estimate_differences(
        self, base: Responses, variants: Sequence[Responses], name: str
    ) -> PairedEffects:
        return estimate_effects(
            self.measure,
            base,
            variants,
            # Effects of ablation are model less variant; those of an exchange, variant less model.
            sign=-1,
            inference=self.inference,
            name=name,
            n_resamples=max(99, min(self.inference.resamples, DEFAULT_RESAMPLES)),
        )

    def make_provenance(self, split_by: SplitBy) -> Provenance:
        """All settings that the map depends on."""
        lm, config = self.lm, self.config
        model = {name: value for name, value in lm.settings.items() if name != "batch_shrunk_to"}
        return Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in lm.edits),
            data=dict(self.measure.data) | {"twins": self.twins.words_hash},
            equation="Vig et al. 2020, section 3, as differences",
            seed=self.inference.seed,
            settings={
                "measure": self.measure.settings,
                "model": model,
                "parts": list(config.components),
                "tokens": config.tokens,
                "exact": config.patch_top,
                "split": split_by,
                "threads": self.context.threads,
                "resamples": self.inference.resamples,
                "level": self.inference.level,
            },
        )


def list_parts(lm: LM, components: Sequence[Component]) -> dict[Site, Component]:
    """List every site of some parts of a model, in order of layer and head."""
    parts: dict[Site, Component] = {}
    for component in components:
        layers, heads = gate_shape(lm.layout, component)
        for layer in range(layers):
            for head in range(heads):
                site = component_site(component, layer, head if component == "heads" else None)
                parts[site] = component
    return parts


def _choose_patched(attributions: Mapping[Site, float], patch_top: int | str | None) -> list[Site]:
    """Choose the parts to patch, in the order of the map."""
    if patch_top == "none":
        return []
    if patch_top == "all" or (patch_top is None and len(attributions) <= PATCH_ALL_UP_TO):
        return list(attributions)
    # By size: which direction is that of the total effect is not known before the twins are read.
    ranked = sorted(attributions, key=lambda site: -abs(attributions[site]))
    chosen = set(
        ranked[:patch_top] if isinstance(patch_top, int) else [*ranked[:N_FIRST], *ranked[-N_LAST:]]
    )
    return [site for site in attributions if site in chosen]


def _describe_words(words: TwinWords) -> str:
    if isinstance(words, str):
        return words
    return words.name if isinstance(words, Lexicon) else "given words"


def _make_notes(
    indirect: Mapping[Site, Estimate | None],
    patched: Sequence[Site],
    parts: Mapping[Site, Component],
    twins: TwinItems,
) -> tuple[str, ...]:
    notes = []
    unchanged = [str(site) for site in patched if indirect.get(site) is None]
    if unchanged:
        notes.append(f"the exchange changes nothing at {', '.join(unchanged)}: no p-value")
    if len(patched) < len(parts):
        notes.append(f"{len(patched)} of {len(parts)} parts were exchanged, all are ranked")
    if twins.dropped:
        counts = "; ".join(f"{count} items: {reason}" for reason, count in twins.dropped)
        notes.append(f"left out: {counts}")
    return tuple(notes)
