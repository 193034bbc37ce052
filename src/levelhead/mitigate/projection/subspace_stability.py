"""Stability of a fitted subspace: the same fit on resampled pairs.

Words are resampled, not sentences, because the frames of one word are not independent. Each
resample's subspace is compared with that of all pairs. The differences estimate those between the
subspace of all pairs and that of all words of the kind (Efron and Tibshirani 1993).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import DroppedItem, Estimate, Interval, Provenance, Record
from levelhead.core.run_context import Inference
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs_digest
from levelhead.mitigate.projection.subspace import (
    RANK_TOLERANCE,
    activation_differences,
    default_pooling,
    drop_unreadable_pairs,
    principal_directions,
)
from levelhead.stats.bootstrap import bootstrap
from levelhead.stats.designs import clustered_design

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.mitigate.projection.subspace import ActivationPooling
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site
    from levelhead.stats.designs import Resample

    Items = NDArray[np.intp]

SIZES = (5, 10, 20, 50, 100, 200, 500)
"""Numbers of pairs, from the "very small handful" of Dawkins et al. 2024 upwards."""

MIN_WORDS = 6
"""Minimum number of words: five words have 126 different resamples, and the tails of a 95% range
are three of them."""
RIGHT_ANGLE = 90.0

EQUATION = "Dawkins et al. 2024, section 4"


class StabilityAtSize(Record):
    """Stability with a number of pairs, each of a resampled word."""

    n_pairs: Annotated[int, Field(ge=1)]
    cosine: Estimate
    """|cosine| of the first direction with that of all pairs: the median of the resamples and
    the range that `level` of them are in."""
    share: Estimate
    """Share of variance of the first direction: median and range. Few differences are explained
    more easily."""


class StabilityReport(Record):
    """Variation of a subspace and its shares over resampled pairs."""

    site: tuple[str, int, int | None]
    pooling: str
    n_components: Annotated[int, Field(ge=1)]
    share: Estimate
    """Share of variance of the first direction, with its interval over words."""
    cosine: Estimate
    """|cosine| of the first direction with a resample's: median and range."""
    angle: Estimate
    """Largest principal angle between the subspaces in degrees: median and range."""
    by_size: tuple[StabilityAtSize, ...]
    n: Annotated[int, Field(ge=1)]
    """Number of pairs of texts that were used."""
    words: Annotated[int, Field(ge=2)]
    """Number of units that were resampled."""
    dropped: tuple[DroppedItem, ...]
    provenance: Provenance


class _SubspaceComparison(NamedTuple):
    """Statistics of one resample."""

    share: float
    cosine: float
    angle: float


def subspace_stability(
    lm: LM,
    pairs: Sequence[ContrastPair],
    sites: Iterable[Site],
    *,
    n_components: int = 2,
    pooling: ActivationPooling | None = None,
    centered: bool = False,
    sizes: Sequence[int] = SIZES,
    inference: Inference = Inference(resamples=199),
) -> tuple[StabilityReport, ...]:
    """Stability of the subspace at every site, from one pass over the pairs.

    Args:
        lm: The model, with its edits.
        pairs: Pairs of texts; their units are resampled.
        sites: The sites.
        n_components: Number of directions of the subspace.
        pooling: Tokens at which the texts are read; by default `default_pooling` of every site.
        centered: See `fit_subspace`.
        sizes: Further numbers of pairs, each pair of a resampled word, so that a size beyond the
            number of words estimates the result of so many words.
        inference: Seed, level and resamples, of all pairs and of every size; all sites have the
            same resamples.
    """
    readable_pairs, dropped = drop_unreadable_pairs(lm, pairs)
    # Centring takes one dimension away, so one pair more is needed.
    if any(size < n_components + centered for size in sizes):
        raise LevelheadError(
            f"{min(sizes)} pairs cannot span {n_components} dimensions",
            hint=f"take sizes of at least {n_components + centered}",
        )
    units = [pair.unit for pair in readable_pairs]
    if len(set(units)) < MIN_WORDS:
        raise NotMeasurableError(
            f"{len(set(units))} words cannot be resampled: at least {MIN_WORDS} are needed",
            hint="give pairs of more words",
        )
    settings = {
        "n_components": n_components,
        "centered": centered,
        "resamples": inference.resamples,
        "level": inference.level,
    }
    provenance = Provenance.of(
        lm.identity.name,
        lm.content_hash,
        revision=lm.identity.revision,
        edits=tuple(edit.content_hash for edit in lm.edits),
        data={"pairs": contrast_pairs_digest(readable_pairs)},
        equation=EQUATION,
        seed=inference.seed,
        settings=settings | {"sizes": tuple(sizes)},
    )
    reports = []
    for site, rows in activation_differences(lm, readable_pairs, sites, pooling=pooling).items():
        resampler = _SubspaceResampler(rows, units, n_components, centered, inference)
        resampler.require_full_rank()
        reports.append(
            StabilityReport(
                site=(site.stream, site.layer, site.head),
                pooling=pooling or default_pooling(lm, site),
                n_components=n_components,
                **resampler.at_full_size(),
                by_size=tuple(resampler.at_size(size) for size in sizes),
                n=len(readable_pairs),
                words=len(set(units)),
                dropped=dropped,
                provenance=provenance,
            )
        )
    return tuple(reports)


class _SubspaceResampler(NamedTuple):
    """Differences at one site, and their resampling."""

    rows: torch.Tensor
    units: Sequence[str]
    n_components: int
    centered: bool
    inference: Inference

    def at_full_size(self) -> dict[str, Estimate]:
        """As many resampled words as there are, with all their pairs."""
        design = clustered_design(self.units, name="words")
        basis = self._fit(np.arange(len(self.rows)))[0]
        comparisons: list[_SubspaceComparison] = []

        def share(resample: Resample) -> float:
            # Every resample is decomposed once: its angles are stored with the share.
            comparisons.append(self._compare(resample.items, basis))
            return comparisons[-1].share

        result = bootstrap(
            share,
            design,
            rng=np.random.default_rng(self.inference.seed),
            n_resamples=self.inference.resamples,
            level=self.inference.level,
            method="expanded",
        )
        share_estimate = Estimate(
            name="share", value=result.value, interval=result.interval, n=len(self.rows)
        )
        # The first comparison is of the full sample with itself, which `bootstrap` computes for the
        # value.
        return {
            "share": share_estimate,
            "cosine": self._summarise(
                "cosine", [comparison.cosine for comparison in comparisons[1:]], str(design)
            ),
            "angle": self._summarise(
                "angle",
                [comparison.angle for comparison in comparisons[1:]],
                str(design),
                "degrees",
            ),
        }

    def at_size(self, size: int) -> StabilityAtSize:
        """A number of words sampled with replacement, one pair of each."""
        # The size is part of the seed, so that a size has the same result whatever others run.
        rng = np.random.default_rng((self.inference.seed, size))
        basis = self._fit(np.arange(len(self.rows)))[0]
        numbers = {unit: i for i, unit in enumerate(dict.fromkeys(self.units))}
        unit = np.array([numbers[name] for name in self.units])
        # `[words]` the pairs of each word.
        members = [np.flatnonzero(unit == i) for i in range(len(numbers))]
        comparisons: list[_SubspaceComparison] = []
        while len(comparisons) < self.inference.resamples:
            # Words first, then one pair of each: words are the independent units, pairs of a word
            # are not.
            words = rng.integers(len(members), size=size)
            chosen_items = np.array([rng.choice(members[word]) for word in words])
            if len(set(chosen_items.tolist())) < self.n_components + self.centered:
                continue  # a handful of one pair again and again is none that anybody would take
            comparisons.append(self._compare(chosen_items, basis))
        how = f"{size} of {len(members)} words"
        return StabilityAtSize(
            n_pairs=size,
            cosine=self._summarise(
                "cosine", [comparison.cosine for comparison in comparisons], how
            ),
            share=self._summarise("share", [comparison.share for comparison in comparisons], how),
        )

    def require_full_rank(self) -> None:
        """Raise an error for rows that span too few dimensions, before any resample is drawn."""
        self._fit(np.arange(len(self.rows)))

    def _fit(self, items: Items) -> tuple[torch.Tensor, torch.Tensor]:
        return principal_directions(self._centred(items), self.n_components)

    @property
    def _scale(self) -> float:
        """The largest length of a difference."""
        return float(self.rows.norm(dim=1).max())

    def _centred(self, items: Items) -> torch.Tensor:
        rows = self.rows[torch.from_numpy(items)]
        return rows - rows.mean(0) if self.centered else rows

    def _compare(self, items: Items, full_basis: torch.Tensor) -> _SubspaceComparison:
        """Statistics of a resample, also if it spans fewer dimensions than requested.

        A few words that are sampled repeatedly may span one dimension, and whether some resample
        does is chance: an error would be raised at random. The missing dimension counts as
        orthogonal to its target; a resample without any difference counts as fully explained.
        """
        rows = self._centred(items)
        values = torch.linalg.svdvals(rows)
        # Rounding of what was centred leaves about 1e-16 of the whole, which is no difference.
        rank = int((values > RANK_TOLERANCE * max(float(values[0]), self._scale)).sum())
        if rank == 0:
            return _SubspaceComparison(share=1.0, cosine=0.0, angle=RIGHT_ANGLE)
        basis, ratios = principal_directions(rows, min(rank, self.n_components))
        # Singular values of the product of two bases are the cosines of the principal angles.
        # Rounding may push one above 1, where arccos is undefined.
        cosines = torch.linalg.svdvals(basis @ full_basis.T).clamp(max=1)
        return _SubspaceComparison(
            share=float(ratios[0]),
            # The sign of a singular vector is arbitrary, so only the absolute cosine has meaning.
            cosine=min(float((basis[0] @ full_basis[0]).abs()), 1.0),
            angle=RIGHT_ANGLE
            if rank < self.n_components
            else float(cosines.min().arccos().rad2deg()),
        )

    def _summarise(self, name: str, values: Sequence[float], how: str, unit: str = "") -> Estimate:
        tail = (1 - self.inference.level) / 2
        low, middle, high = np.quantile(values, [tail, 0.5, 1 - tail])
        return Estimate(
            name=name,
            value=float(middle),
            interval=Interval(
                low=float(low),
                high=float(high),
                level=self.inference.level,
                method=f"range of resamples, {how}",
            ),
            n=len(self.rows),
            unit=unit,
        )
