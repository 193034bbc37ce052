"""Placebo edits: they remove as much from the same sites, along directions unrelated to the groups.

A placebo has the site, tokens, rank and weights of a real edit, and the variance along each of its
directions is that along the real direction, so it removes as much. Its directions are sampled from
those in which texts differ for other reasons: sums, with random weights, of the differences of
pairs that have another contrast (tense, number, two names of one group) and of texts paired within
their side (`shuffled`), with equal weight for every contrast. So placebos are sampled independently
of each other, even from few contrasts. They are turned, within the plane of the direction and a
principal direction of the site's activations, until the variances agree: away from principal
directions of high variance, or towards one. They may be close to the real directions: if other
differences share these, an edit is not specific to the groups, which a placebo must show. An edit
is compared with the gains of many placebos (mitigate/controls/placebo_test.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Record
from levelhead.mitigate.controls.match_variance import VarianceMatcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.models.edits.base import Projection
    from levelhead.models.sites import Site


class VarianceMatch(Record):
    """Match of placebos with their edit, and their effective number."""

    n_placebos: Annotated[int, Field(ge=1)]
    variance_error: float
    """Largest relative difference of variance along a direction; of shifts, of the length of a
    vector; of erasures, which are fitted alike, 0."""
    max_cosine: Annotated[float, Field(ge=0)]
    """Largest |cosine| of a placebo's direction with a direction of the real edit."""
    effective_placebos: Annotated[float, Field(ge=1)]
    """Equivalent number of orthogonal placebos, at the site where it is smallest: m^2 / the sum
    of the squared cosines of all pairs of first directions. Near 1, nothing else at this site
    varies as much as the edit's direction, and all placebos are the same."""


def within_side_differences(
    first: torch.Tensor, second: torch.Tensor, *, seed: int = 0
) -> torch.Tensor:
    """Differences `[2n, width]` of texts paired within their side, never with themselves.

    The difference between the sides cancels in every single difference. It would remain if the
    texts of one side were paired with other texts of the other side, or if all texts were paired at
    random, because a subspace is fitted on differences whatever their sign. With one seed the same
    texts are paired at every site.

    Args:
        first: `[n, width]` activations of the texts of one side at a site.
        second: The same of the other side.
        seed: Seed of the pairing.
    """
    rng = np.random.default_rng(seed)
    differences = []
    for side in (first, second):
        if len(side) < 2:
            raise NotMeasurableError(
                f"{len(side)} texts of a side cannot be paired with one another",
                hint="give at least two a side",
            )
        order = rng.permutation(len(side))
        partner = np.empty_like(order)
        partner[order] = np.roll(order, 1)  # one ring: no text meets itself
        differences.append(side - side[torch.from_numpy(partner)])
    return torch.cat(differences).double()


def make_placebos(
    edits: Sequence[Projection],
    pools: Mapping[Site, Sequence[torch.Tensor]],
    activations: Mapping[Site, torch.Tensor],
    *,
    n_placebos: int = 200,
    seed: int = 0,
) -> tuple[tuple[Projection, ...], ...]:
    """Make placebos of a set of edits; the weights of pairs are the same at every site.

    Args:
        edits: The real edits.
        pools: For every site and contrast the differences `[m, width]` of its pairs, contrasts and
            pairs in the same order at every site.
        activations: For every site its activations `[n, width]` at the edited tokens, on texts of
            all kinds: pairs that differ only in the groups' words vary along the real direction,
            which no other direction can match.
        n_placebos: Number of placebos.
        seed: Seed of the placebos.
    """
    if not edits or n_placebos < 1:
        raise LevelheadError(
            f"{n_placebos} placebos of {len(edits)} edits",
            hint="give an edit, and at least one placebo",
        )
    _check(edits, pools, activations)
    matchers = [VarianceMatcher.fit(edit, activations[edit.site]) for edit in edits]
    # Without equal sizes one contrast with large differences would dominate all placebos.
    scaled_pools = {edit.site: _equalise_contrasts(pools[edit.site]) for edit in edits}
    n_directions = max(len(edit.weights) for edit in edits)
    placebo_sets = []
    for number in range(n_placebos):
        # One stream per placebo: the first ones stay the same when more are wanted.
        rng = np.random.default_rng([seed, number])
        # The same weights at every site, so that a placebo is one contrast throughout the model, as
        # the edit is.
        weights = torch.from_numpy(
            rng.normal(size=(n_directions, len(scaled_pools[edits[0].site])))
        )
        placebo_sets.append(
            tuple(
                matcher.make_placebo(weights @ scaled_pools[matcher.edit.site], rng)
                for matcher in matchers
            )
        )
    return tuple(placebo_sets)


def _equalise_contrasts(pools: Sequence[torch.Tensor]) -> torch.Tensor:
    """All differences of a site, scaled so that every contrast has the same sum of squares."""
    sizes = [pool.double().norm() for pool in pools]
    if not all(float(size) > 0 for size in sizes):
        raise NotMeasurableError(
            "the pairs of a contrast do not differ at all", hint="give pairs that the model reads"
        )
    return torch.cat([pool.double() / size for pool, size in zip(pools, sizes, strict=True)])


def measure_variance_match(
    edits: Sequence[Projection],
    placebo_sets: Sequence[Sequence[Projection]],
    activations: Mapping[Site, torch.Tensor],
) -> VarianceMatch:
    """Compute the match of placebos; it is reported with the test that uses them."""
    variance_error, max_cosine, effective_placebos = 0.0, 0.0, float(len(placebo_sets))
    for index, edit in enumerate(edits):
        rows = activations[edit.site].detach().double()
        bases = torch.stack(
            [placebo_set[index].basis for placebo_set in placebo_sets]
        )  # [m, k, width]
        target, variances = (
            (rows @ directions.mT).var(dim=-2) for directions in (edit.basis, bases)
        )
        variance_error = max(variance_error, float((variances / target - 1).abs().max()))
        max_cosine = max(max_cosine, float((bases @ edit.basis.T).abs().max()))
        first = bases[:, 0]
        # The site with the least various placebos limits what all of them show.
        effective_placebos = min(
            effective_placebos, len(placebo_sets) ** 2 / float(((first @ first.T) ** 2).sum())
        )
    return VarianceMatch(
        n_placebos=len(placebo_sets),
        variance_error=variance_error,
        max_cosine=max_cosine,
        effective_placebos=max(effective_placebos, 1.0),
    )


def _check(
    edits: Sequence[Projection],
    pools: Mapping[Site, Sequence[torch.Tensor]],
    activations: Mapping[Site, torch.Tensor],
) -> None:
    sites = [edit.site for edit in edits]
    for kind, by_site in (("differences", pools), ("activations", activations)):
        lacking = [str(site) for site in sites if site not in by_site]
        if lacking:
            raise LevelheadError(
                f"no {kind} at {', '.join(lacking)}", hint="read every site of the edit"
            )
    shapes = {tuple(len(pool) for pool in pools[site]) for site in sites}
    if len(shapes) > 1 or not all(shapes) or not all(map(min, shapes)):
        raise LevelheadError(
            "the sites do not hold the same contrasts and pairs",
            hint="give every site the differences of the same pairs, in the same order",
        )
    for edit in edits:
        width = edit.width(edit.site)
        if not all(pool.isfinite().all() for pool in pools[edit.site]):
            raise NotMeasurableError(
                f"some differences at {edit.site} are not finite",
                hint="load the model with dtype='float32'",
            )
        if any(rows.shape[1] != width for rows in (*pools[edit.site], activations[edit.site])):
            raise LevelheadError(
                f"the edit at {edit.site} is {width} wide, and not all that was read there is",
                hint="read the site of the edit itself",
            )
