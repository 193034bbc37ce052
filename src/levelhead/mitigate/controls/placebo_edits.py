"""Placebo edits: as much taken out of the same sites, along directions not of the groups.

A placebo has the site, tokens, rank and weights of a real edit, and every one of its directions has
the variance of the real one's, so it takes as much away. Its directions are drawn from those in
which texts differ for other reasons: sums, with random weights, of the differences of pairs that
have another contrast (tense, number, two names of one group) and of texts paired within their side
(`shuffled`), every contrast counting alike. So placebos are drawn independently of each other,
however few the contrasts. They are turned, within the plane of the direction and a principal
direction of the site's activations, until the variances agree: away from those of high variance, or
towards one. Nothing keeps them away from the real directions: where other differences share these,
an edit is not of the groups alone, which is what a placebo is to show. An edit is judged by what
many placebos gain (mitigate/controls/placebo_test.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Record
from levelhead.mitigate.controls.match_variance import Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.models.edits.base import Projection
    from levelhead.models.sites import Site


class Matched(Record):
    """How well placebos match the edit they stand for, and how many they are."""

    placebos: Annotated[int, Field(ge=1)]
    variance: float
    """The largest relative difference of variance along a direction."""
    real: Annotated[float, Field(ge=0)]
    """The largest |cosine| of a placebo's direction with one of the real edit."""
    effective: Annotated[float, Field(ge=1)]
    """How many placebos at right angles would be as various, at the site where they are least so:
    m^2 / the sum of the squared cosines of all pairs of first directions. Near 1, nothing else at
    this site varies as much as the edit's direction, and its placebos are all the same."""


def shuffled(first: torch.Tensor, second: torch.Tensor, *, seed: int = 0) -> torch.Tensor:
    """Differences `[2n, width]` of texts paired within their side, never with themselves.

    What the sides differ in cancels in every single difference. Pairing the texts of one side with
    other texts of the other keeps it; so does pairing at random among all, since a subspace is
    fitted on differences whatever their sign. With one seed the same texts are paired at every
    site.

    Args:
        first: `[n, width]` what the texts of one side give at a site.
        second: the same of the other side.
        seed: another seed, other pairs.
    """
    rng = np.random.default_rng(seed)
    found = []
    for side in (first, second):
        if len(side) < 2:
            raise NotMeasurable(
                f"{len(side)} texts of a side cannot be paired with one another",
                mend="give at least two a side",
            )
        order = rng.permutation(len(side))
        partner = np.empty_like(order)
        partner[order] = np.roll(order, 1)  # one ring: no text meets itself
        found.append(side - side[torch.from_numpy(partner)])
    return torch.cat(found).double()


def placebos(
    edits: Sequence[Projection],
    pools: Mapping[Site, Sequence[torch.Tensor]],
    activations: Mapping[Site, torch.Tensor],
    *,
    n: int = 200,
    seed: int = 0,
) -> tuple[tuple[Projection, ...], ...]:
    """Placebos of a set of edits, one set of edits each; the same weights of pairs at every site.

    Args:
        edits: the real ones.
        pools: for every site and contrast the differences `[m, width]` of its pairs, contrasts and
            pairs in the same order at every site.
        activations: for every site what it holds `[n, width]`, of the tokens that are edited, on
            texts of all kinds: pairs that differ in the groups' words alone vary along the real
            direction, which nothing else can match.
        n: how many.
        seed: another seed, other placebos.
    """
    if not edits or n < 1:
        raise LevelheadError(
            f"{n} placebos of {len(edits)} edits", mend="give an edit, and at least one placebo"
        )
    _check(edits, pools, activations)
    places = [Place.of(edit, activations[edit.site]) for edit in edits]
    every = {edit.site: _alike(pools[edit.site]) for edit in edits}
    dims = max(len(edit.weights) for edit in edits)
    found = []
    for number in range(n):
        rng = np.random.default_rng([seed, number])
        weights = torch.from_numpy(rng.normal(size=(dims, len(every[edits[0].site]))))
        found.append(
            tuple(place.placebo(weights @ every[place.edit.site], rng) for place in places)
        )
    return tuple(found)


def _alike(pools: Sequence[torch.Tensor]) -> torch.Tensor:
    """All differences of a site, every contrast with as large a sum of squares."""
    sizes = [pool.double().norm() for pool in pools]
    if not all(float(size) > 0 for size in sizes):
        raise NotMeasurable(
            "the pairs of a contrast do not differ at all", mend="give pairs that the model reads"
        )
    return torch.cat([pool.double() / size for pool, size in zip(pools, sizes, strict=True)])


def matched(
    edits: Sequence[Projection],
    others: Sequence[Sequence[Projection]],
    activations: Mapping[Site, torch.Tensor],
) -> Matched:
    """How well placebos match: to be told beside what is judged by them."""
    variance, real, effective = 0.0, 0.0, float(len(others))
    for place, edit in enumerate(edits):
        rows = activations[edit.site].detach().double()
        bases = torch.stack([own[place].basis for own in others])  # [m, k, width]
        wanted, found = ((rows @ own.mT).var(dim=-2) for own in (edit.basis, bases))
        variance = max(variance, float((found / wanted - 1).abs().max()))
        real = max(real, float((bases @ edit.basis.T).abs().max()))
        first = bases[:, 0]
        effective = min(effective, len(others) ** 2 / float(((first @ first.T) ** 2).sum()))
    return Matched(
        placebos=len(others), variance=variance, real=real, effective=max(effective, 1.0)
    )


def _check(
    edits: Sequence[Projection],
    pools: Mapping[Site, Sequence[torch.Tensor]],
    activations: Mapping[Site, torch.Tensor],
) -> None:
    sites = [edit.site for edit in edits]
    for what, held in (("differences", pools), ("activations", activations)):
        lacking = [str(site) for site in sites if site not in held]
        if lacking:
            raise LevelheadError(
                f"no {what} at {', '.join(lacking)}", mend="read every site of the edit"
            )
    shapes = {tuple(len(pool) for pool in pools[site]) for site in sites}
    if len(shapes) > 1 or not all(shapes) or not all(map(min, shapes)):
        raise LevelheadError(
            "the sites do not hold the same contrasts and pairs",
            mend="give every site the differences of the same pairs, in the same order",
        )
    for edit in edits:
        width = edit.width(edit.site)
        if not all(pool.isfinite().all() for pool in pools[edit.site]):
            raise NotMeasurable(
                f"some differences at {edit.site} are not finite",
                mend="load the model with dtype='float32'",
            )
        if any(own.shape[1] != width for own in (*pools[edit.site], activations[edit.site])):
            raise LevelheadError(
                f"the edit at {edit.site} is {width} wide, and not all that was read there is",
                mend="read the site of the edit itself",
            )
