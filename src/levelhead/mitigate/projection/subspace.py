"""Subspaces: the directions of a contrast at a site, from paired texts.

The activations of the two texts of each pair are subtracted, and the principal directions of the
differences are the basis (Dawkins et al. 2024, section 4). Differences are one-sided (first less
second), so centring them would subtract the direction of the contrast itself. The differences and
their negatives together have mean 0, and their principal directions are the right singular vectors
of the uncentred differences. On synthetic differences along a planted direction the fitted
direction has |cosine| 0.99 with it, and after centring about 0.2.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.results import DroppedItem
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs_digest
from levelhead.models.edits.base import Projection
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.queries import build
from levelhead.models.queries.query import Query, Readout
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.models.edits.base import TokenSelection
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import ForwardOutput, OutputStage
    from levelhead.models.sites import StreamLayer

ActivationPooling = Literal["first", "mean", "word", "last"]
"""Tokens at which a text's activation is read: the first, all that are not special (their mean),
those of the word that differs (their mean), or the last."""
POOLINGS: tuple[ActivationPooling, ...] = get_args(ActivationPooling)


def parse_pooling(text: str | None) -> ActivationPooling | None:
    """Check and return the pooling with a name; None, the default, stays None."""
    return None if text is None else require_option("place to read", text, POOLINGS)


RANK_TOLERANCE = 1e-6
"""A singular value below this share of the largest is rounding of float32 activations."""


@final
@dataclass(frozen=True, eq=False)
class Subspace:
    """Directions at a site, the largest first, and the share of the differences each explains."""

    site: Site
    basis: torch.Tensor = field(repr=False)
    """`[k, width]` in float64, orthonormal; the largest entry of a direction is positive."""
    explained_variance_ratio: torch.Tensor
    """`[k]` s_i^2 / sum_j s_j^2 of the singular values: the explained-variance ratio."""
    n_pairs: int
    """Number of differences that it was fitted on."""
    centered: bool = False
    pooling: ActivationPooling | None = None
    """Tokens at which the texts were read; None if the differences were given."""
    source: str = ""
    """SHA-256 of the pairs."""
    dropped: tuple[DroppedItem, ...] = field(default=(), repr=False)
    """Pairs that this model cannot read."""

    def to_projection(
        self, *, weighted: bool, n_components: int, tokens: TokenSelection = "all"
    ) -> Projection:
        """Remove the first `n_components` directions (Dawkins et al. 2024, Eq. 5).

        w_i = v_i^n with v_i the share of variance: n = 0 is hard, n = 1 weighted. The equation as
        printed has v_i before the sum; section 4 applies it to each component, as here.
        """
        if not 1 <= n_components <= len(self.basis):
            raise LevelheadError(
                f"{n_components} dimensions of a subspace that was fitted with {len(self.basis)}",
                hint=f"take 1 to {len(self.basis)}, or fit it with more",
            )
        # A ratio in [0, 1]: as a weight, the variance itself would depend on the scale of the
        # activations.
        weights = self.explained_variance_ratio[:n_components] if weighted else None
        return Projection(self.site, self.basis[:n_components], weights=weights, tokens=tokens)


def drop_unreadable_pairs(
    lm: LM, pairs: Sequence[ContrastPair]
) -> tuple[tuple[ContrastPair, ...], tuple[DroppedItem, ...]]:
    """Pairs whose differing words are in the model's vocabulary, and the others with reasons.

    All unknown words look alike: their differences would be 0, or that of the unknown token.
    """
    readable_pairs, dropped = [], []
    for pair in pairs:
        try:
            texts = (pair.first, pair.second)
            for encoded, span, text in zip(lm.tokens.encode(texts), pair.spans, texts, strict=True):
                lm.tokens.positions_of_word(encoded, span, text)
            readable_pairs.append(pair)
        except UnreadableTextError as error:
            dropped.append(DroppedItem(pair.id, error.problem))
    return tuple(readable_pairs), tuple(dropped)


def default_pooling(lm: LM, site: Site) -> ActivationPooling:
    """Tokens at which a site is read: those that an edit there acts on.

    It is the first token if a head reads only that, which is the [CLS] of Dawkins et al. 2024 at
    the last layer. At other sites all tokens are edited, and their mean is read. The paper does not
    state which tokens its inner subspaces were fitted on. (A text has one pooled vector.)
    """
    last = site == Site("block_out", lm.layout.layers - 1)
    return (
        "first"
        if site.stream == "pooled" or (last and lm.layout.model_class.first_position_reader)
        else "mean"
    )


def activation_differences(
    lm: LM,
    pairs: Sequence[ContrastPair],
    sites: Iterable[Site],
    *,
    pooling: ActivationPooling | None = None,
) -> dict[Site, torch.Tensor]:
    """`[pairs, width]` in float64: the first text's activation less the second's, at every site.

    Args:
        lm: The model, with its edits.
        pairs: Pairs that it can read (`drop_unreadable_pairs`).
        sites: The sites.
        pooling: Tokens at which the texts are read; by default `default_pooling` of every site.
    """
    sides = paired_activations(lm, pairs, sites, pooling=pooling)
    return {site: first - second for site, (first, second) in sides.items()}


def paired_activations(
    lm: LM,
    pairs: Sequence[ContrastPair],
    sites: Iterable[Site],
    *,
    pooling: ActivationPooling | None = None,
) -> dict[Site, tuple[torch.Tensor, torch.Tensor]]:
    """`[pairs, width]` activations in float64 of the first texts at each site, and of the second.

    All sites are read in one pass over the texts, at whatever tokens each is read.
    """
    if not pairs:
        raise NotMeasurableError(
            "there is no pair of texts", hint="give pairs, such as contrast_pairs()"
        )
    readable_pairs, dropped = drop_unreadable_pairs(lm, pairs)
    if dropped:
        raise UnreadableTextError(
            f"{len(dropped)} of {len(pairs)} pairs cannot be read: {dropped[0].reason}",
            hint="take drop_unreadable_pairs(lm, pairs), which counts them",
        )
    texts = [text for pair in readable_pairs for text in (pair.first, pair.second)]
    spans = [span for pair in readable_pairs for span in pair.spans]
    values_by_site = read_activations(lm, texts, spans, sites, pooling=pooling)
    # Texts alternate, the first and the second of each pair.
    return {site: (values[0::2], values[1::2]) for site, values in values_by_site.items()}


def read_activations(
    lm: LM,
    texts: Sequence[str],
    spans: Sequence[tuple[int, int]],
    sites: Iterable[Site],
    *,
    pooling: ActivationPooling | Mapping[Site, ActivationPooling] | None = None,
) -> dict[Site, torch.Tensor]:
    """`[texts, width]` activations of texts at sites in float64, in one pass.

    Args:
        lm: The model, with its edits.
        texts: The texts.
        spans: A word of each text, if a site is read at a word.
        sites: The sites.
        pooling: Tokens at which all sites or each site is read; by default `default_pooling`.
    """
    if isinstance(pooling, str):
        parse_pooling(pooling)
    sites_by_pooling: dict[ActivationPooling, list[Site]] = defaultdict(list)
    unique_sites = tuple(dict.fromkeys(sites))
    for site in unique_sites:
        site_pooling = pooling if isinstance(pooling, str) or pooling is None else pooling[site]
        sites_by_pooling[site_pooling or default_pooling(lm, lm.layout.require_site(site))].append(
            site
        )
    values = _read_sites(lm, texts, spans, sites_by_pooling).double()
    ordered_sites = [site for pooling_sites in sites_by_pooling.values() for site in pooling_sites]
    split = values.split([lm.layout.site_width(site) for site in ordered_sites], dim=1)
    by_site = dict(zip(ordered_sites, split, strict=True))
    return {site: by_site[site] for site in unique_sites}


def fit_subspace(
    site: Site, differences: torch.Tensor, *, n_components: int = 2, centered: bool = False
) -> Subspace:
    """The principal directions of differences at a site.

    Args:
        site: Site of the differences.
        differences: `[pairs, width]` differences.
        n_components: Number of directions.
        centered: Whether to subtract the mean difference first, as PCA libraries do. It removes the
            common direction; for comparison only.
    """
    rows = differences.double()
    if rows.dim() != 2 or not rows.isfinite().all():
        raise LevelheadError(
            f"differences of shape {tuple(rows.shape)} at {site}, or not finite",
            hint="give [pairs, width] finite numbers",
        )
    # By default differences are not centred: their mean is the common direction of the contrast,
    # which the edit must contain.
    if centered:
        rows = rows - rows.mean(0)
    basis, ratios = principal_directions(rows, n_components, where=str(site))
    return Subspace(site, basis, ratios, len(rows), centered)


def principal_directions(
    rows: torch.Tensor, n_components: int, *, where: str = "the site"
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[n_components, width]` first right singular vectors, and their shares of the squares."""
    if n_components < 1:
        raise LevelheadError(f"{n_components} dimensions", hint="take at least one")
    _, values, vectors = torch.linalg.svd(rows, full_matrices=False)
    rank = int((values > RANK_TOLERANCE * values[:1]).sum()) if values.any() else 0
    if rank < n_components:
        raise NotMeasurableError(
            f"{len(rows)} differences at {where} span {rank} dimensions, {n_components} are wanted",
            hint="give more pairs, or fewer dimensions; texts that are read where they do not "
            "differ (before the word, in a causal model) have no difference",
        )
    basis = vectors[:n_components]
    # The sign of a singular vector is arbitrary and may differ between LAPACK builds: a fixed sign
    # makes stored edits reproducible.
    largest = basis.gather(1, basis.abs().argmax(1, keepdim=True))
    return basis * largest.sign(), (values**2 / (values**2).sum())[:n_components]


def fit_site_subspaces(
    lm: LM,
    pairs: Sequence[ContrastPair],
    sites: Iterable[Site],
    *,
    n_components: int | Mapping[Site, int] = 2,
    pooling: ActivationPooling | None = None,
    centered: bool = False,
) -> dict[Site, Subspace]:
    """Fit subspaces at sites, from one pass over the pairs that the model can read.

    Args:
        lm: The model, with its edits.
        pairs: Pairs of texts.
        sites: The sites.
        n_components: Number of directions, for all sites or for each.
        pooling: Tokens at which the texts are read; by default `default_pooling` of every site.
        centered: See `fit_subspace`.
    """
    readable_pairs, dropped = drop_unreadable_pairs(lm, pairs)
    if not readable_pairs:
        raise NotMeasurableError(
            "the model can read no pair" + (f": {dropped[0].reason}" if dropped else ""),
            hint="give pairs of words that its vocabulary has",
        )
    differences = activation_differences(lm, readable_pairs, sites, pooling=pooling)
    source = contrast_pairs_digest(readable_pairs)
    fitted = {}
    for site, rows in differences.items():
        site_components = n_components if isinstance(n_components, int) else n_components[site]
        subspace = fit_subspace(site, rows, n_components=site_components, centered=centered)
        site_pooling = pooling or default_pooling(lm, site)
        fitted[site] = Subspace(
            site,
            subspace.basis,
            subspace.explained_variance_ratio,
            subspace.n_pairs,
            centered,
            site_pooling,
            source,
            dropped,
        )
    return fitted


@final
@dataclass(frozen=True, eq=False)
class _SideBySide(Readout):
    """Several readouts of the same forward pass, with their columns concatenated."""

    readouts: tuple[Readout, ...]

    @property
    def output_stage(self) -> OutputStage:
        """The head of the readout that runs farthest: apart from `hidden`, a model has one head."""
        return next(
            (readout.output_stage for readout in self.readouts if readout.output_stage != "hidden"),
            "hidden",
        )

    @property
    def capture_sites(self) -> frozenset[StreamLayer]:
        """All sites that any of the readouts needs."""
        return frozenset().union(*(readout.capture_sites for readout in self.readouts))

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """The columns of all readouts."""
        return torch.cat([readout(output) for readout in self.readouts], dim=1)


def _read_sites(
    lm: LM,
    texts: Sequence[str],
    spans: Sequence[tuple[int, int]],
    sites_by_pooling: Mapping[ActivationPooling, Sequence[Site]],
) -> torch.Tensor:
    if not sites_by_pooling:
        raise LevelheadError("there is no site to read", hint="give at least one Site")
    queries = [
        build.build_lm_hidden_states_query(lm, texts, sites, spans, None)
        if pooling == "word"
        else build.build_lm_hidden_states_query(lm, texts, sites, None, pooling)
        for pooling, sites in sites_by_pooling.items()
    ]
    readouts = tuple(query.readout for query in queries)
    # The rows are of the texts alone, whatever the tokens read: one forward serves every pooling.
    return lm.run(Query(queries[0].rows, _SideBySide(readouts)))
