"""Placebo edits: as much taken out of the same sites, along directions not of the groups.

A placebo has the site, tokens, rank and weights of a real edit, and every one of its directions has
the variance of the real one's, so it takes as much away. Its directions come from differences of
pairs that have another contrast (tense, number, two names of one group) or of texts paired within
their side (`shuffled`). They are turned, within the plane of the direction and a principal
direction of the site's activations, until the variances agree: away from those of high variance, or
towards one. Nothing keeps them away from the real directions: where other contrasts share these, an
edit is not of the groups alone, which is what a placebo is to show. An edit is judged by what many
placebos gain (mitigate/judged.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Record
from levelhead.mitigate.turned import Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.models.edits import Projection
    from levelhead.models.sites import Site

PAIRS = 5
"""Pairs a placebo is fitted on: fitted on resamples of all pairs of a contrast, 200 placebos would
be all but one direction."""


class Matched(Record):
    """How well placebos match the edit they stand for, and how many they are."""

    placebos: Annotated[int, Field(ge=1)]
    variance: float
    """The largest relative difference of variance along a direction."""
    real: Annotated[float, Field(ge=0)]
    """The largest |cosine| of a placebo's direction with one of the real edit."""
    effective: Annotated[float, Field(ge=1)]
    """How many placebos at right angles would be as various, at the site where they are least so:
    m^2 / the sum of the squared cosines of all pairs of first directions. Near the number of
    contrasts, each contrast is but one placebo, asked often."""


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
    pairs: int = PAIRS,
) -> tuple[tuple[Projection, ...], ...]:
    """Placebos of a set of edits, one set of edits each.

    Placebo i takes contrast i modulo their number and some of its pairs, drawn with replacement:
    the same contrast and pairs at every site.

    Args:
        edits: the real ones.
        pools: for every site and contrast the differences `[m, width]` of its pairs, contrasts and
            pairs in the same order at every site.
        activations: for every site what it holds `[n, width]`, of the tokens that are edited, on
            texts of all kinds: pairs that differ in the groups' words alone vary along the real
            direction, which nothing else can match.
        n: how many.
        seed: another seed, other placebos.
        pairs: how many pairs each is fitted on.
    """
    if not edits or n < 1 or pairs < 1:
        raise LevelheadError(
            f"{n} placebos of {len(edits)} edits on {pairs} pairs each",
            mend="give an edit, and at least one placebo and pair",
        )
    _check(edits, pools, activations)
    places = [Place.of(edit, activations[edit.site]) for edit in edits]
    sizes = [len(pool) for pool in pools[edits[0].site]]
    found = []
    for number in range(n):
        contrast = number % len(sizes)
        rng = np.random.default_rng([seed, number])
        rows = torch.from_numpy(rng.choice(sizes[contrast], pairs))
        found.append(
            tuple(place.placebo(pools[place.edit.site][contrast][rows], rng) for place in places)
        )
    return tuple(found)


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
