"""Settings of every mitigation that edits a model, for the table of methods.

Each method has a few settings, which are fitted on pairs of texts and on half of a measure's items.
Few, because the p-value of the chosen one is multiplied by their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import RunContext
from levelhead.locate.patching.feature_attribution import attribute_features
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.mitigate.projection.baselines import inlp, leace, sentence_debias
from levelhead.mitigate.projection.subspace import fit_site_subspaces
from levelhead.mitigate.selection.candidates import rank_heads_by_gradient
from levelhead.mitigate.steering.candidates import steering_sites
from levelhead.mitigate.steering.fit import fit_steering
from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.feature_ablation import FeatureAblation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.mitigate.steering.fit import SteeringFit
    from levelhead.models.edits.base import Edit
    from levelhead.models.edits.dictionary import SparseDictionary
    from levelhead.models.forward.edit_sweep import EditSet
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

N_HEADS, SCALE = (1, 3, 10), 0.5
N_FEATURES = (1, 3, 10)
STRENGTHS = (1.0, 2.0)
MAX_INLP_DIRECTIONS = 8
"""The published number, up to 35, is of vectors with 768 dimensions that only one layer reads."""


@final
@dataclass(frozen=True, eq=False)
class FitInputs:
    """What edits are fitted on."""

    lm: LM
    measure: Measure
    discovery: Responses
    """Responses of the model to the half of the items that chooses."""
    pairs: Sequence[ContrastPair]
    """Pairs of texts that the model can read."""
    dictionary: SparseDictionary | None = None
    context: RunContext = RunContext()

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """The outputs of a layer in the middle and of the one before the last."""
        return steering_sites(self.lm)

    @cached_property
    def ranked_heads(self) -> tuple[Site, ...]:
        """The heads that add to the bias, the largest first."""
        scores = rank_heads_by_gradient(self.lm, self.measure, self.discovery, context=self.context)
        order = sorted(scores, key=lambda site: (-scores[site], site.layer, site.head))
        return tuple(site for site in order if scores[site] > 0)

    @cached_property
    def steering(self) -> dict[Site, SteeringFit]:
        """Means and detectors of the groups."""
        return fit_steering(self.lm, self.pairs, self.sites)


def _mask(inputs: FitInputs) -> dict[str, EditSet]:
    return _top_heads(inputs, lambda heads: mask_heads(heads), "masked")


def _scale(inputs: FitInputs) -> dict[str, EditSet]:
    return _top_heads(inputs, lambda heads: HeadScale(heads, SCALE), f"times {SCALE:g}")


def _top_heads(
    inputs: FitInputs, make: Callable[[Sequence[Site]], Edit], name: str
) -> dict[str, EditSet]:
    heads = inputs.ranked_heads
    return {f"{n} heads {name}": (make(heads[:n]),) for n in N_HEADS if n <= len(heads)}


def _project(inputs: FitInputs) -> dict[str, EditSet]:
    subspaces = fit_site_subspaces(inputs.lm, inputs.pairs, inputs.sites, n_components=1)
    return {
        str(site): (subspace.to_projection(weighted=False, n_components=1),)
        for site, subspace in subspaces.items()
    }


def _sentence_debias(inputs: FitInputs) -> dict[str, EditSet]:
    return {
        str(site): sentence_debias(inputs.lm, inputs.pairs, site, pooling="mean")
        for site in inputs.sites
    }


def _inlp(inputs: FitInputs) -> dict[str, EditSet]:
    return _at_sites(
        inputs,
        lambda site: inlp(inputs.lm, inputs.pairs, site, max_rounds=MAX_INLP_DIRECTIONS),
    )


def _leace(inputs: FitInputs) -> dict[str, EditSet]:
    return _at_sites(inputs, lambda site: leace(inputs.lm, inputs.pairs, site))


def _at_sites(inputs: FitInputs, fit: Callable[[Site], EditSet]) -> dict[str, EditSet]:
    """The sites where the method can be fitted; an error if there are none."""
    settings, reasons = {}, []
    for site in inputs.sites:
        try:
            settings[str(site)] = fit(site)
        except NotMeasurableError as error:
            reasons.append(f"{site}: {error.problem}")
    if not settings:
        raise NotMeasurableError("; ".join(reasons), hint="give more pairs, or another site")
    return settings


def _mean_matching(inputs: FitInputs) -> dict[str, EditSet]:
    return {
        f"{site}, times {strength:g}": (fit.to_mean_matching(strength=strength),)
        for site, fit in inputs.steering.items()
        for strength in STRENGTHS
    }


def _shift(inputs: FitInputs) -> dict[str, EditSet]:
    return {
        f"to {group} at {site}": (fit.to_shift(group),)
        for site, fit in inputs.steering.items()
        for group in fit.groups
    }


def _conditional_shift(inputs: FitInputs) -> dict[str, EditSet]:
    return {
        f"from {group} at {site}": (fit.to_conditional(group),)
        for site, fit in inputs.steering.items()
        for group in fit.groups
    }


def _ablate_features(inputs: FitInputs) -> dict[str, EditSet]:
    if inputs.dictionary is None:
        raise NotMeasurableError("no dictionary of this model", hint="give dictionary=")
    metric = inputs.measure.primary_metric
    value = float(inputs.measure.reduce(inputs.discovery).detach())
    # Towards parity: a feature with a positive attribution adds to the value.
    sign = 1.0 if metric.parity is None or value >= metric.parity else -1.0
    scores = sign * attribute_features(
        inputs.lm, inputs.measure, inputs.dictionary, inputs.discovery
    )
    ranked = [int(i) for i in scores.argsort(descending=True, stable=True) if scores[i] > 0]
    return {
        f"{n} features": (FeatureAblation.of(inputs.dictionary, ranked[:n]),)
        for n in N_FEATURES
        if n <= len(ranked)
    }


EDIT_METHODS: Mapping[str, Callable[[FitInputs], dict[str, EditSet]]] = {
    "mask heads": _mask,
    "scale heads": _scale,
    "projection": _project,
    "SentenceDebias": _sentence_debias,
    "INLP": _inlp,
    "LEACE": _leace,
    "mean matching": _mean_matching,
    "shift": _shift,
    "conditional shift": _conditional_shift,
    "feature ablation": _ablate_features,
}
"""Function that makes the settings of each method, by name."""
