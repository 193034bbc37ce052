"""Subspaces: the directions along which a contrast shows at a site, from paired texts.

The activations of the two texts of each pair are subtracted, and the principal directions of the
differences are the basis (Dawkins et al. 2024, section 4). Differences are one-sided (first less
second), so centring them would subtract the very direction that is sought; the differences and
their negatives together have mean 0, and their principal directions are the right singular vectors
of the differences as they are. On synthetic differences along a planted direction the fitted one
has |cosine| 0.99 with it, and after centring about 0.2.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.results import Dropped
from levelhead.data.counterfactuals.contrast_pairs import pairs_hash
from levelhead.models.edits.base import Projection
from levelhead.models.inputs.tokenizer import NotReadable
from levelhead.models.queries import build as asks
from levelhead.models.queries.query import Reading, Readout
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from levelhead.data.counterfactuals.contrast_pairs import TextPair
    from levelhead.models.edits.base import Which
    from levelhead.models.forward.forward_pass import Where
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import Part, Result

At = Literal["first", "mean", "word", "last"]
"""The tokens at which a text's activation is read: the first, all that are not special (their
mean), those of the word that differs (their mean), the last."""

NOTHING = 1e-6
"""A singular value below this share of the largest is rounding of float32 activations."""


@final
@dataclass(frozen=True, eq=False)
class Subspace:
    """Directions at a site, most telling first, and the share of the differences each explains."""

    site: Site
    basis: torch.Tensor = field(repr=False)
    """`[k, width]` in float64, orthonormal; the largest entry of a direction is positive."""
    shares: torch.Tensor
    """`[k]` s_i^2 / sum_j s_j^2 of the singular values: the explained-variance ratio."""
    pairs: int
    """How many differences it was fitted on."""
    centered: bool = False
    at: At | None = None
    """Where the texts were read; None if the differences were given."""
    source: str = ""
    """SHA-256 of the pairs."""
    dropped: tuple[Dropped, ...] = field(default=(), repr=False)
    """Pairs that this model cannot read."""

    def edit(self, *, weighted: bool, dims: int, tokens: Which = "all") -> Projection:
        """Take the first `dims` directions out (Dawkins et al. 2024, Eq. 5).

        w_i = v_i^n with v_i the share of variance: n = 0 is hard, n = 1 weighted. The equation as
        printed has v_i before the sum; section 4 applies it to each component, and so do we.
        """
        if not 1 <= dims <= len(self.basis):
            raise LevelheadError(
                f"{dims} dimensions of a subspace that was fitted with {len(self.basis)}",
                mend=f"take 1 to {len(self.basis)}, or fit it with more",
            )
        weights = self.shares[:dims] if weighted else None
        return Projection(self.site, self.basis[:dims], weights=weights, tokens=tokens)


def readable(lm: LM, pairs: Sequence[TextPair]) -> tuple[tuple[TextPair, ...], tuple[Dropped, ...]]:
    """The pairs whose differing words this model's vocabulary has, and the others with reasons.

    All unknown words look alike: their differences would be 0, or that of the unknown token.
    """
    kept, dropped = [], []
    for pair in pairs:
        try:
            texts = (pair.first, pair.second)
            for encoded, span, text in zip(lm.tokens.encode(texts), pair.spans, texts, strict=True):
                lm.tokens.at(encoded, span, text)
            kept.append(pair)
        except NotReadable as error:
            dropped.append(Dropped(pair.id, error.what))
    return tuple(kept), tuple(dropped)


def at_by_default(lm: LM, site: Site) -> At:
    """Where a site is read: at the tokens an edit there acts on.

    The first token where a head reads that alone, which is the [CLS] of Dawkins et al. 2024 at the
    last layer; elsewhere all tokens are edited, and their mean is read. The paper does not say
    which tokens its inner subspaces were fitted on. (A pooled vector is one a text.)
    """
    last = site == Site("block_out", lm.anatomy.layers - 1)
    return "first" if site.stream == "pooled" or (last and lm.anatomy.cls.reads_first) else "mean"


def differences(
    lm: LM, pairs: Sequence[TextPair], sites: Iterable[Site], *, at: At | None = None
) -> dict[Site, torch.Tensor]:
    """`[pairs, width]` in float64: the first text's activation less the second's, at every site.

    Args:
        lm: the model, with its edits.
        pairs: that it can read (`readable`).
        sites: where.
        at: at which tokens; by default `at_by_default` of every site.
    """
    found = both_sides(lm, pairs, sites, at=at)
    return {site: first - second for site, (first, second) in found.items()}


def both_sides(
    lm: LM, pairs: Sequence[TextPair], sites: Iterable[Site], *, at: At | None = None
) -> dict[Site, tuple[torch.Tensor, torch.Tensor]]:
    """`[pairs, width]` in float64, twice: what the first texts give at a site, and the second.

    All sites are read in one pass over the texts, whatever tokens each is read at.
    """
    if not pairs:
        raise NotMeasurable("there is no pair of texts", mend="give pairs, such as paired()")
    kept, dropped = readable(lm, pairs)
    if dropped:
        raise NotReadable(
            f"{len(dropped)} of {len(pairs)} pairs cannot be read: {dropped[0].reason}",
            mend="take readable(lm, pairs), which counts them",
        )
    texts = [text for pair in kept for text in (pair.first, pair.second)]
    spans = [span for pair in kept for span in pair.spans]
    found = activations(lm, texts, spans, sites, at=at)
    return {site: (values[0::2], values[1::2]) for site, values in found.items()}


def activations(
    lm: LM,
    texts: Sequence[str],
    spans: Sequence[tuple[int, int]],
    sites: Iterable[Site],
    *,
    at: At | Mapping[Site, At] | None = None,
) -> dict[Site, torch.Tensor]:
    """`[texts, width]` in float64: what texts give at sites, in one pass.

    Args:
        lm: the model, with its edits.
        texts: what is read.
        spans: a word of each, where a site is read at a word.
        sites: where.
        at: at which tokens, at all sites or at each; by default `at_by_default`.
    """
    if isinstance(at, str) and at not in get_args(At):
        raise UnknownName("place to read", str(at), get_args(At))
    by_place: dict[At, list[Site]] = defaultdict(list)
    asked = tuple(dict.fromkeys(sites))
    for site in asked:
        own = at if isinstance(at, str) or at is None else at[site]
        by_place[own or at_by_default(lm, lm.anatomy.find(site))].append(site)
    values = _read(lm, texts, spans, by_place).double()
    wanted = [site for own in by_place.values() for site in own]
    split = values.split([lm.anatomy.size(site) for site in wanted], dim=1)
    found = dict(zip(wanted, split, strict=True))
    return {site: found[site] for site in asked}


def subspace(
    site: Site, differences: torch.Tensor, *, dims: int = 2, centered: bool = False
) -> Subspace:
    """The principal directions of differences at a site.

    Args:
        site: where they were read.
        differences: `[pairs, width]`.
        dims: how many directions.
        centered: subtract the mean difference first, as PCA libraries do with what they are given.
            It takes the common direction away; for comparison only.
    """
    rows = differences.double()
    if rows.dim() != 2 or not rows.isfinite().all():
        raise LevelheadError(
            f"differences of shape {tuple(rows.shape)} at {site}, or not finite",
            mend="give [pairs, width] finite numbers",
        )
    if centered:
        rows = rows - rows.mean(0)
    basis, shares = directions(rows, dims, where=str(site))
    return Subspace(site, basis, shares, len(rows), centered)


def directions(
    rows: torch.Tensor, dims: int, *, where: str = "the site"
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[dims, width]` first right singular vectors of rows, and their shares of the squares."""
    if dims < 1:
        raise LevelheadError(f"{dims} dimensions", mend="take at least one")
    _, values, vectors = torch.linalg.svd(rows, full_matrices=False)
    held = int((values > NOTHING * values[:1]).sum()) if values.any() else 0
    if held < dims:
        raise NotMeasurable(
            f"{len(rows)} differences at {where} span {held} dimensions, {dims} are wanted",
            mend="give more pairs, or fewer dimensions; texts that are read where they do not "
            "differ (before the word, in a causal model) have no difference",
        )
    basis = vectors[:dims]
    largest = basis.gather(1, basis.abs().argmax(1, keepdim=True))
    return basis * largest.sign(), (values**2 / (values**2).sum())[:dims]


def fit(
    lm: LM,
    pairs: Sequence[TextPair],
    sites: Iterable[Site],
    *,
    dims: int | Mapping[Site, int] = 2,
    at: At | None = None,
    centered: bool = False,
) -> dict[Site, Subspace]:
    """Subspaces at sites, from one pass over the pairs that the model can read.

    Args:
        lm: the model, with its edits.
        pairs: of texts.
        sites: where.
        dims: how many directions, of all or of every site.
        at: at which tokens; by default `at_by_default` of every site.
        centered: see `subspace`.
    """
    kept, dropped = readable(lm, pairs)
    if not kept:
        raise NotMeasurable(
            "the model can read no pair" + (f": {dropped[0].reason}" if dropped else ""),
            mend="give pairs of words that its vocabulary has",
        )
    found = differences(lm, kept, sites, at=at)
    source = pairs_hash(kept)
    fitted = {}
    for site, rows in found.items():
        own = dims if isinstance(dims, int) else dims[site]
        one = subspace(site, rows, dims=own, centered=centered)
        place = at or at_by_default(lm, site)
        fitted[site] = Subspace(
            site, one.basis, one.shares, one.pairs, centered, place, source, dropped
        )
    return fitted


@final
@dataclass(frozen=True, eq=False)
class _SideBySide(Readout):
    """Several readouts of the same forward, their columns side by side."""

    parts: tuple[Readout, ...]

    @property
    def part(self) -> Part:
        """As far as the one that goes farthest: beside `hidden`, a model has one head."""
        return next((one.part for one in self.parts if one.part != "hidden"), "hidden")

    @property
    def watch(self) -> frozenset[Where]:
        """All that any of them needs."""
        return frozenset().union(*(one.watch for one in self.parts))

    def __call__(self, result: Result) -> torch.Tensor:
        """Their numbers."""
        return torch.cat([one(result) for one in self.parts], dim=1)


def _read(
    lm: LM,
    texts: Sequence[str],
    spans: Sequence[tuple[int, int]],
    by_place: Mapping[At, Sequence[Site]],
) -> torch.Tensor:
    if not by_place:
        raise LevelheadError("there is no site to read", mend="give at least one Site")
    readings = [
        asks.states(lm, texts, sites, spans, None)
        if at == "word"
        else asks.states(lm, texts, sites, None, at)
        for at, sites in by_place.items()
    ]
    parts = tuple(reading.readout for reading in readings)
    return lm.run(Reading(readings[0].rows, _SideBySide(parts)))
