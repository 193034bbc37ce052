"""Candidate steering edits, among which the selection on dev chooses method, site and strength."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from levelhead.core.errors import LevelheadError
from levelhead.mitigate.selection.candidates import EditCandidate, EditCandidates
from levelhead.mitigate.steering.fit import SteeringConfig, SteeringMethod, fit_steering
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.mitigate.steering.fit import SteeringFit
    from levelhead.models.lm import LM

# 1 is the difference of means itself. Few, because each candidate widens the joint bounds and
# raises the number of placebos that a test of the best one needs.
STRENGTHS = (0.5, 1.0, 2.0)
"""Factors of the vectors."""
METHODS: tuple[SteeringMethod, ...] = get_args(SteeringMethod)


def steering_sites(lm: LM) -> tuple[Site, ...]:
    """The outputs of a layer in the middle and of the layer before the last.

    Vectors act best in middle layers (Rimsky et al. 2024, section 4.1), and an edit of the last
    layer's output reaches only the head.
    """
    layers = lm.layout.layers
    return tuple(
        Site("block_out", layer) for layer in sorted({(layers - 1) // 2, max(layers - 2, 0)})
    )


def steering_candidates(
    lm: LM,
    pairs: Sequence[ContrastPair] | Mapping[tuple[str, str], Sequence[ContrastPair]],
    *,
    sites: Sequence[Site] | None = None,
    methods: Sequence[SteeringMethod] = METHODS,
    strengths: Sequence[float] = STRENGTHS,
    config: SteeringConfig = SteeringConfig(),
) -> EditCandidates:
    """Every method with every strength at each site, fitted in one pass.

    Args:
        lm: The model.
        pairs: See `fit_steering`.
        sites: The sites, each a candidate by itself; by default `steering_sites`. For edits of
            several layers, see `steer`.
        methods: The methods.
        strengths: Factors of the vectors.
        config: See `fit_steering`.
    """
    if not strengths or not methods or not all(strength > 0 for strength in strengths):
        raise LevelheadError(
            f"steering by {list(methods)} with strengths {list(strengths)}",
            hint="give strengths above 0; shifts move to each group in turn",
        )
    fits = fit_steering(lm, pairs, sites or steering_sites(lm), config=config)
    candidates = tuple(
        EditCandidate(
            f"{_describe(method, group)} {strength:g} at {site}",
            "steering",
            f"{_describe(method, group)}, {strength:g} times the difference of means, at {site}",
            (fit.to_edit(method, group=group, strength=strength),),
        )
        for site, fit in fits.items()
        for method in methods
        for group in _groups_of(fit, method)
        for strength in strengths
    )
    dropped = next(iter(fits.values())).dropped
    return EditCandidates(candidates, dropped=dropped, notes=_describe_accuracies(fits))


def _groups_of(fit: SteeringFit, method: SteeringMethod) -> tuple[str | None, ...]:
    return (None,) if method == "mean_matching" else fit.groups


def _describe(method: SteeringMethod, group: str | None) -> str:
    words = {"shift": "shift to", "conditional": "shift from"}
    return "mean matching" if group is None else f"{words[method]} {group}"


def _describe_accuracies(fits: Mapping[Site, SteeringFit]) -> tuple[str, ...]:
    return tuple(
        f"{accuracy.accuracy} at {site}"
        for site, fit in fits.items()
        for accuracy in fit.accuracies
    )
