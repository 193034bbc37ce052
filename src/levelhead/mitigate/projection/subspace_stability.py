"""How sure a fitted subspace is: the same fit on other pairs that might have been drawn.

Words are resampled, not sentences: the frames of one word are no independent witnesses. What is
compared is each resample's subspace with that of all pairs, which stands for how far that of all
pairs is from the one that all words of the kind would give (Efron and Tibshirani 1993).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Dropped, Estimate, Interval, Provenance, Record
from levelhead.core.run_context import Inference
from levelhead.data.counterfactuals.contrast_pairs import pairs_hash
from levelhead.mitigate.projection.subspace import (
    NOTHING,
    at_by_default,
    differences,
    directions,
    readable,
)
from levelhead.stats.bootstrap import bootstrap
from levelhead.stats.designs import clusters

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from levelhead.data.counterfactuals.contrast_pairs import TextPair
    from levelhead.mitigate.projection.subspace import At
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site
    from levelhead.stats.designs import Draw

    Items = NDArray[np.intp]

SIZES = (5, 10, 20, 50, 100, 200, 500)
"""From the "very small handful" of Dawkins et al. 2024 upwards."""

LEAST_WORDS = 6
"""Fewer are refused: of five words there are 126 different resamples, and the tails of a 95% range
are three of them."""
RIGHT_ANGLE = 90.0

EQUATION = "Dawkins et al. 2024, section 4"


class OfSize(Record):
    """What so many pairs give, each of a word drawn anew."""

    pairs: Annotated[int, Field(ge=1)]
    cosine: Estimate
    """|cosine| of the first direction with that of all pairs: the median of the draws and the
    range that `level` of them lie in."""
    share: Estimate
    """Of the first direction, likewise. Few differences are explained more easily."""


class Stability(Record):
    """How far a subspace and its shares move with the pairs they were fitted on."""

    site: tuple[str, int, int | None]
    at: str
    dims: Annotated[int, Field(ge=1)]
    share: Estimate
    """The share of variance of the first direction, with its interval over words."""
    cosine: Estimate
    """|cosine| of the first direction with a resample's: median and range."""
    angle: Estimate
    """The largest principal angle between the subspaces in degrees: median and range."""
    by_size: tuple[OfSize, ...]
    n: Annotated[int, Field(ge=1)]
    """Pairs of texts that were used."""
    words: Annotated[int, Field(ge=2)]
    """Units that were resampled."""
    dropped: tuple[Dropped, ...]
    provenance: Provenance


class _Fitted(NamedTuple):
    """Of one draw."""

    share: float
    cosine: float
    angle: float


def stability(
    lm: LM,
    pairs: Sequence[TextPair],
    sites: Iterable[Site],
    *,
    dims: int = 2,
    at: At | None = None,
    centered: bool = False,
    sizes: Sequence[int] = SIZES,
    inference: Inference = Inference(resamples=199),
) -> tuple[Stability, ...]:
    """The stability of the subspace at every site, from one pass over the pairs.

    Args:
        lm: the model, with its edits.
        pairs: of texts; their units are resampled.
        sites: where.
        dims: of the subspace.
        at: at which tokens; by default `at_by_default` of every site.
        centered: see `subspace`.
        sizes: numbers of pairs to try as well; each pair of a word drawn anew, so that a size
            beyond the number of words says what so many words would give.
        inference: seed, level and resamples, of the whole and of every size; all sites are judged
            on the same resamples.
    """
    kept, dropped = readable(lm, pairs)
    if any(size < dims + centered for size in sizes):
        raise LevelheadError(
            f"{min(sizes)} pairs cannot span {dims} dimensions",
            mend=f"take sizes of at least {dims + centered}",
        )
    units = [pair.unit for pair in kept]
    if len(set(units)) < LEAST_WORDS:
        raise NotMeasurable(
            f"{len(set(units))} words cannot be resampled: at least {LEAST_WORDS} are needed",
            mend="give pairs of more words",
        )
    settings = {
        "dims": dims,
        "centered": centered,
        "draws": inference.resamples,
        "level": inference.level,
    }
    provenance = Provenance.of(
        lm.identity.name,
        lm.content_hash,
        revision=lm.identity.revision,
        edits=tuple(edit.content_hash for edit in lm.edits),
        data={"pairs": pairs_hash(kept)},
        equation=EQUATION,
        seed=inference.seed,
        settings=settings | {"sizes": tuple(sizes)},
    )
    found = []
    for site, rows in differences(lm, kept, sites, at=at).items():
        one = _Judged(rows, units, dims, centered, inference)
        one.refuse_degenerate()
        found.append(
            Stability(
                site=(site.stream, site.layer, site.head),
                at=at or at_by_default(lm, site),
                dims=dims,
                **one.whole(),
                by_size=tuple(one.of_size(size) for size in sizes),
                n=len(kept),
                words=len(set(units)),
                dropped=dropped,
                provenance=provenance,
            )
        )
    return tuple(found)


class _Judged(NamedTuple):
    """Differences at one site, and how they are resampled."""

    rows: torch.Tensor
    units: Sequence[str]
    dims: int
    centered: bool
    inference: Inference

    def whole(self) -> dict[str, Estimate]:
        """As many words as there are, with all their pairs."""
        design = clusters(self.units, name="words")
        basis = self._fit(np.arange(len(self.rows)))[0]
        kept: list[_Fitted] = []

        def share(draw: Draw) -> float:
            # Every resample is decomposed once: its angles are kept beside the share.
            kept.append(self._compared(draw.items, basis))
            return kept[-1].share

        found = bootstrap(
            share,
            design,
            rng=np.random.default_rng(self.inference.seed),
            draws=self.inference.resamples,
            level=self.inference.level,
            method="expanded",
        )
        own = Estimate(name="share", value=found.value, interval=found.interval, n=len(self.rows))
        return {
            "share": own,
            "cosine": self._told("cosine", [one.cosine for one in kept[1:]], str(design)),
            "angle": self._told("angle", [one.angle for one in kept[1:]], str(design), "degrees"),
        }

    def of_size(self, size: int) -> OfSize:
        """So many words drawn with replacement, one pair of each."""
        rng = np.random.default_rng((self.inference.seed, size))
        basis = self._fit(np.arange(len(self.rows)))[0]
        numbers = {unit: i for i, unit in enumerate(dict.fromkeys(self.units))}
        unit = np.array([numbers[name] for name in self.units])
        members = [np.flatnonzero(unit == i) for i in range(len(numbers))]
        kept: list[_Fitted] = []
        while len(kept) < self.inference.resamples:
            words = rng.integers(len(members), size=size)
            chosen = np.array([rng.choice(members[word]) for word in words])
            if len(set(chosen.tolist())) < self.dims + self.centered:
                continue  # a handful of one pair again and again is none that anybody would take
            kept.append(self._compared(chosen, basis))
        how = f"{size} of {len(members)} words"
        return OfSize(
            pairs=size,
            cosine=self._told("cosine", [one.cosine for one in kept], how),
            share=self._told("share", [one.share for one in kept], how),
        )

    def refuse_degenerate(self) -> None:
        """Refuse rows that span too little as they are, before any resample is drawn."""
        self._fit(np.arange(len(self.rows)))

    def _fit(self, items: Items) -> tuple[torch.Tensor, torch.Tensor]:
        return directions(self._centred(items), self.dims)

    @property
    def _scale(self) -> float:
        """A length that a difference has."""
        return float(self.rows.norm(dim=1).max())

    def _centred(self, items: Items) -> torch.Tensor:
        rows = self.rows[torch.from_numpy(items)]
        return rows - rows.mean(0) if self.centered else rows

    def _compared(self, items: Items, with_basis: torch.Tensor) -> _Fitted:
        """Of a resample; what spans fewer dimensions than are wanted has a value all the same.

        A few words drawn again and again may span one dimension, and whether some resample does is
        chance: refusing then would refuse at random. The dimension that is missing is at a right
        angle to what it should be near; a resample without any difference explains itself.
        """
        rows = self._centred(items)
        values = torch.linalg.svdvals(rows)
        # Rounding of what was centred leaves about 1e-16 of the whole, which is no difference.
        held = int((values > NOTHING * max(float(values[0]), self._scale)).sum())
        if held == 0:
            return _Fitted(share=1.0, cosine=0.0, angle=RIGHT_ANGLE)
        basis, shares = directions(rows, min(held, self.dims))
        cosines = torch.linalg.svdvals(basis @ with_basis.T).clamp(max=1)
        return _Fitted(
            share=float(shares[0]),
            cosine=min(float((basis[0] @ with_basis[0]).abs()), 1.0),
            angle=RIGHT_ANGLE if held < self.dims else float(cosines.min().arccos().rad2deg()),
        )

    def _told(self, name: str, values: Sequence[float], how: str, unit: str = "") -> Estimate:
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
