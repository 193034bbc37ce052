"""Placebos of shifts and erasures: as large a change at the same site, unrelated to the groups.

- A shift gets a random direction of the same length. A conditional shift keeps its detectors, and
  its vectors are turned together, so that lengths and angles are those of the edit: a placebo of
  mean matching moves the groups as far, and no nearer to each other.
- An erasure is fitted in the same way to a random label of the pairs. Both texts of a pair have the
  same label, so that the difference between the groups cancels.

Most directions at random are nearly orthogonal to everything that a model computes with, so these
are weaker controls than those of projections, which have the variance of the edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.mitigate.controls.placebo_edits import VarianceMatch
from levelhead.mitigate.projection.baselines import leace_factors
from levelhead.models.edits.conditional_shift import ConditionalShift
from levelhead.models.edits.erasure import Erasure
from levelhead.models.edits.shift import Shift

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.models.sites import Site

AnyShift = Shift | ConditionalShift
SPAN_TOLERANCE = 1e-9
"""A singular value below this share of the largest is rounding: vectors of two groups that are
matched are opposites."""


def make_shift_placebos(
    edits: Sequence[AnyShift], *, n_placebos: int = 200, seed: int = 0
) -> tuple[tuple[AnyShift, ...], ...]:
    """Turn the vectors of a set of edits to random directions, uniform over the sphere.

    Args:
        edits: The real edits.
        n_placebos: Number of placebos.
        seed: Seed of the directions.
    """
    _require_edits(edits, n_placebos)
    # One stream per placebo: the first ones stay the same when more are wanted.
    return tuple(
        tuple(_turn(edit, rng) for edit in edits)
        for rng in (np.random.default_rng([seed, number]) for number in range(n_placebos))
    )


def make_erasure_placebos(
    edits: Sequence[Erasure],
    sides: Mapping[Site, tuple[torch.Tensor, torch.Tensor]],
    *,
    n_placebos: int = 200,
    seed: int = 0,
) -> tuple[tuple[Erasure, ...], ...]:
    """Fit LEACE to random labels of the pairs, the same at every site.

    Args:
        edits: The real edits, of rank 1 as `leace` makes them.
        sides: For every site the activations `[pairs, width]` of the first and of the second texts
            that the edit was fitted on.
        n_placebos: Number of placebos.
        seed: Seed of the labels.
    """
    _require_edits(edits, n_placebos)
    if any(len(edit.left) != 1 for edit in edits):
        raise LevelheadError(
            "placebos of an erasure have rank 1, as LEACE of two groups", hint="give edits of leace"
        )
    missing = [str(edit.site) for edit in edits if edit.site not in sides]
    if missing:
        raise LevelheadError(f"no activations at {missing[0]}", hint="read every site of the edit")
    n_pairs = len(sides[edits[0].site][0])
    if n_pairs < 4:
        raise NotMeasurableError(
            f"{n_pairs} pairs cannot be labelled at random", hint="give at least 4 pairs"
        )
    placebo_sets = []
    for number in range(n_placebos):
        order = np.random.default_rng([seed, number]).permutation(n_pairs)
        labels = torch.from_numpy(order < n_pairs // 2).long()
        placebo_sets.append(
            tuple(_fit_random_label(edit, sides[edit.site], labels) for edit in edits)
        )
    return tuple(placebo_sets)


def measure_vector_match(
    edits: Sequence[AnyShift] | Sequence[Erasure],
    placebo_sets: Sequence[Sequence[AnyShift]] | Sequence[Sequence[Erasure]],
) -> VarianceMatch:
    """Compute the match of placebos in length, and their effective number."""
    length_error, max_cosine, effective_placebos = 0.0, 0.0, float(len(placebo_sets))
    for index, edit in enumerate(edits):
        vectors = _vectors(edit)
        placebos = torch.stack([_vectors(placebo_set[index]) for placebo_set in placebo_sets])
        lengths = placebos.norm(dim=-1)
        # An erasure is a projection: how far it moves depends on the activation alone.
        if not isinstance(edit, Erasure):
            errors = (lengths - vectors.norm(dim=-1)).abs() / vectors.norm(dim=-1).max()
            length_error = max(length_error, float(errors.max()))
        unit = placebos / lengths[..., None]
        real = vectors / vectors.norm(dim=-1, keepdim=True)
        max_cosine = max(max_cosine, float((unit @ real.T).abs().max()))
        first = unit[:, 0]
        # The site with the least various placebos limits what all of them show.
        effective_placebos = min(
            effective_placebos, len(placebo_sets) ** 2 / float(((first @ first.T) ** 2).sum())
        )
    return VarianceMatch(
        n_placebos=len(placebo_sets),
        variance_error=length_error,
        max_cosine=max_cosine,
        effective_placebos=max(effective_placebos, 1.0),
    )


def _require_edits(edits: Sequence[object], n_placebos: int) -> None:
    if not edits or n_placebos < 1:
        raise LevelheadError(
            f"{n_placebos} placebos of {len(edits)} edits",
            hint="give an edit, and at least one placebo",
        )


def _vectors(edit: AnyShift | Erasure) -> torch.Tensor:
    """`[k, width]` directions in which an edit moves an activation."""
    if isinstance(edit, Shift):
        return edit.vector[None]
    return edit.vectors if isinstance(edit, ConditionalShift) else edit.left


def _turn(edit: AnyShift, rng: np.random.Generator) -> AnyShift:
    """Return the edit with its vectors turned together; norms and inner products stay."""
    vectors = _vectors(edit)
    left, values, right = torch.linalg.svd(vectors, full_matrices=False)
    if not float(values[0]) > 0:
        raise NotMeasurableError(
            f"the vectors at {edit.site} have length 0", hint="give an edit that moves something"
        )
    rank = int((values > SPAN_TOLERANCE * values[0]).sum())
    # The signs of R make Q uniform over all orthonormal frames (Mezzadri 2007).
    frame, triangle = np.linalg.qr(rng.normal(size=(right.shape[1], rank)))
    turned = torch.from_numpy(frame * np.sign(np.diag(triangle))).T
    placebo_vectors = (left[:, :rank] * values[:rank]) @ turned
    if isinstance(edit, Shift):
        return Shift(edit.site, placebo_vectors[0], strength=edit.strength, tokens=edit.tokens)
    return ConditionalShift(
        edit.site,
        weights=edit.weights,
        biases=edit.biases,
        vectors=placebo_vectors,
        strength=edit.strength,
        tokens=edit.tokens,
    )


def _fit_random_label(
    edit: Erasure, sides: tuple[torch.Tensor, torch.Tensor], labels: torch.Tensor
) -> Erasure:
    rows = torch.cat([side.double() for side in sides])
    left, right = leace_factors(rows, labels.repeat(2), where=str(edit.site))
    return Erasure(edit.site, left=left, right=right, mean=rows.mean(0), tokens=edit.tokens)
