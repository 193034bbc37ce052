"""Fit steering vectors and group detectors on contrastive texts, and make edits of them.

The vector is the difference of the groups' mean activations (contrastive activation addition,
Rimsky et al. 2024, section 3). A linear map can make the means of groups equal only if it is given
the group (Singh et al. 2024, "Representation surgery", section 4); here a linear detector decides
it for every token. LEACE, which needs no group, is `mitigate.projection.baselines.leace`.

Adding one vector to all texts moves both groups alike. It changes what a model says on average, and
a difference between groups only as far as the model is not linear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, final, get_args

import numpy as np

from levelhead.core.errors import (
    LevelheadError,
    NotMeasurableError,
    UnknownNameError,
    require_option,
)
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs_digest
from levelhead.mitigate.projection.baselines import edited_tokens
from levelhead.mitigate.projection.subspace import (
    ActivationPooling,
    default_pooling,
    drop_unreadable_pairs,
    read_activations,
)
from levelhead.mitigate.steering.detectors import (
    NEUTRAL,
    DetectorMethod,
    LabelledRows,
    fit_group_detectors,
)
from levelhead.models.edits.conditional_shift import ConditionalShift
from levelhead.models.edits.shift import Shift

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from levelhead.core.results import DroppedItem
    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.mitigate.projection.edit_points import FitOn
    from levelhead.mitigate.steering.detectors import DetectorAccuracy
    from levelhead.models.edits.base import TokenSelection
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

SteeringMethod = Literal["shift", "conditional", "mean_matching"]
"""A vector for all texts; for the texts of one group; or one for the texts of each group."""
SplitBy = Literal["auto", "words", "contexts"]
"""Half of the words, or half of the texts of every word; "auto" chooses."""
MIN_WORDS = 20
"""Number of words from which half of them are enough to fit a detector that reads others."""
GROUPS = ("first", "second")
"""Names of the groups of unnamed pairs: their first and their second texts."""


@final
@dataclass(frozen=True)
class SteeringConfig:
    """How vectors and detectors are fitted."""

    pooling: ActivationPooling | None = None
    """Tokens at which the texts are read; by default as `default_pooling`."""
    detector: DetectorMethod = "logistic"
    """Classifier that detects a group."""
    neutral: Sequence[ContrastPair] = ()
    """Pairs that name no group, such as `placebo_pairs("tense")`: a detector must not fire there.
    Without them, the detectors of two groups part all texts among themselves."""
    split_by: SplitBy = "auto"
    """Half that vectors and detectors are fitted on; accuracies are those on the other half, and
    hold for new words only if words are split."""
    seed: int = 0
    """Seed of the halves."""

    def __post_init__(self) -> None:
        require_option("detector", self.detector, get_args(DetectorMethod))
        require_option("split", self.split_by, get_args(SplitBy))


@final
@dataclass(frozen=True, eq=False)
class SteeringFit:
    """Group means and detectors at a site, from which edits are made."""

    site: Site
    groups: tuple[str, ...]
    means: torch.Tensor = field(repr=False)
    """`[groups, width]` mean activation of each group, on the training half."""
    weights: torch.Tensor = field(repr=False)
    """`[groups, width]` normals of the detectors."""
    biases: torch.Tensor = field(repr=False)
    """`[groups]` offsets of the detectors."""
    accuracies: tuple[DetectorAccuracy, ...]
    """Accuracy of each detector, on the other half."""
    split_by: Literal["words", "contexts"]
    """What was halved: with `contexts` the accuracies hold for these words alone."""
    tokens: TokenSelection
    """Tokens that the edits act on."""
    pooling: ActivationPooling
    """Tokens at which the texts were read."""
    n_texts: int
    """Number of texts, of both halves."""
    source: str = ""
    """SHA-256 of the pairs."""
    dropped: tuple[DroppedItem, ...] = field(default=(), repr=False)
    """Pairs that this model cannot read."""

    def vector(self, toward: str) -> torch.Tensor:
        """Mean of a group less the mean of the other groups' means, `[width]`."""
        index = self._index(toward)
        others = [i for i in range(len(self.groups)) if i != index]
        return self.means[index] - self.means[others].mean(0)

    def to_shift(self, toward: str, *, strength: float = 1.0) -> Shift:
        """Move all texts towards a group (Rimsky et al. 2024); a negative strength moves away."""
        return Shift(self.site, self.vector(toward), strength=strength, tokens=self.tokens)

    def to_conditional(self, when: str, *, strength: float = 1.0) -> ConditionalShift:
        """Move the texts where a group is detected to the mean of the other groups."""
        index = self._index(when)
        return ConditionalShift(
            self.site,
            weights=self.weights[index : index + 1],
            biases=self.biases[index : index + 1],
            vectors=-self.vector(when)[None],
            strength=strength,
            tokens=self.tokens,
        )

    def to_mean_matching(self, *, strength: float = 1.0) -> ConditionalShift:
        """Move every group, where it is detected, to the mean of all groups' means."""
        return ConditionalShift(
            self.site,
            weights=self.weights,
            biases=self.biases,
            vectors=self.means.mean(0) - self.means,
            strength=strength,
            tokens=self.tokens,
        )

    def to_edit(
        self, method: SteeringMethod, *, group: str | None = None, strength: float = 1.0
    ) -> Shift | ConditionalShift:
        """Make the edit of a method.

        Args:
            method: Kind of edit.
            group: Group that a shift moves to, or that a conditional shift moves from; the first by
                default. Mean matching moves all groups.
            strength: Factor of the vectors.
        """
        require_option("steering method", method, get_args(SteeringMethod))
        if method == "mean_matching":
            if group is not None:
                raise LevelheadError(
                    "mean matching moves all groups", hint="leave out group, or use conditional"
                )
            return self.to_mean_matching(strength=strength)
        make_edit = self.to_shift if method == "shift" else self.to_conditional
        return make_edit(self.groups[0] if group is None else group, strength=strength)

    def _index(self, group: str) -> int:
        if group not in self.groups:
            raise UnknownNameError("group", group, self.groups)
        return self.groups.index(group)


def fit_steering(
    lm: LM,
    pairs: Sequence[ContrastPair] | Mapping[tuple[str, str], Sequence[ContrastPair]],
    sites: Iterable[Site],
    *,
    config: SteeringConfig = SteeringConfig(),
) -> dict[Site, SteeringFit]:
    """Fit vectors and detectors at sites, in one pass over the pairs that the model can read.

    Args:
        lm: The model, with its edits.
        pairs: Counterfactual pairs of texts, such as `contrast_pairs()`: all first texts are of
            the group "first" and all second ones of "second". For other names, or more groups:
            pairs by the names of their two groups.
        sites: The sites.
        config: Tokens that are read, classifier, neutral texts and seed.
    """
    named_pairs = pairs if isinstance(pairs, Mapping) else {GROUPS: pairs}
    texts = _collect_texts(lm, named_pairs, config)
    pooling = {
        site: config.pooling or default_pooling(lm, lm.layout.require_site(site)) for site in sites
    }
    by_site = read_activations(lm, texts.texts, texts.spans, pooling, pooling=pooling)
    source = contrast_pairs_digest([pair for some in named_pairs.values() for pair in some])
    fits = {}
    for site, rows in by_site.items():
        detectors = fit_group_detectors(
            LabelledRows(rows, np.array(texts.labels), texts.units),
            texts.groups,
            method=config.detector,
            seed=config.seed,
            where=str(site),
        )
        fits[site] = SteeringFit(
            site,
            texts.groups,
            detectors.means,
            detectors.weights,
            detectors.biases,
            detectors.accuracies,
            split_by=texts.split_by,
            tokens=edited_tokens(site, pooling[site]),
            pooling=pooling[site],
            n_texts=len(texts.texts),
            source=source,
            dropped=texts.dropped,
        )
    return fits


def steer(
    lm: LM,
    pairs: Sequence[ContrastPair] | Mapping[tuple[str, str], Sequence[ContrastPair]],
    sites: Sequence[Site],
    method: SteeringMethod = "mean_matching",
    *,
    group: str | None = None,
    strength: float = 1.0,
    fit_on: FitOn = "cumulative",
    config: SteeringConfig = SteeringConfig(),
) -> tuple[Shift | ConditionalShift, ...]:
    """Make steering edits at one or several sites; `lm.edited(*steer(...))` is the edited model.

    Args:
        lm: The model.
        pairs: See `fit_steering`.
        sites: The sites, in the order of a forward pass.
        method: Kind of edit.
        group: Group that a shift moves to, or that a conditional shift moves from; by default the
            first.
        strength: Factor of the vectors.
        fit_on: Activations after the edits at the sites before (`cumulative`), or those of the
            unedited model, all in one pass (`base`). After means are matched once, the base's
            vectors would move the groups past each other at the next site.
        config: See `fit_steering`.
    """
    require_option("way of fitting", fit_on, ("base", "cumulative"))
    if fit_on == "base":
        fits = fit_steering(lm, pairs, sites, config=config)
        return tuple(fit.to_edit(method, group=group, strength=strength) for fit in fits.values())
    edits: tuple[Shift | ConditionalShift, ...] = ()
    for site in dict.fromkeys(sites):
        try:
            fit = fit_steering(lm.edited(*edits), pairs, [site], config=config)[site]
        except NotMeasurableError as error:
            if not edits:
                raise
            # Fewer edits than sites must not pass unnoticed.
            edited_sites = ", ".join(str(edit.site) for edit in edits)
            raise NotMeasurableError(
                f"after the edits at {edited_sites}: {error.problem}",
                hint=f"leave out {site}: the edits before may leave nothing to detect there",
            ) from None
        edits += (fit.to_edit(method, group=group, strength=strength),)
    if not edits:
        raise LevelheadError("there is no site to edit", hint="give at least one Site")
    return edits


class _Texts(NamedTuple):
    groups: tuple[str, ...]
    texts: list[str]
    spans: list[tuple[int, int]]
    labels: list[int]
    units: list[str]
    split_by: Literal["words", "contexts"]
    dropped: tuple[DroppedItem, ...]


def _collect_texts(
    lm: LM,
    named_pairs: Mapping[tuple[str, str], Sequence[ContrastPair]],
    config: SteeringConfig,
) -> _Texts:
    """All readable texts, each once, with their groups and the units that are halved."""
    groups = tuple(dict.fromkeys(group for names in named_pairs for group in names))
    if len(groups) < 2:
        raise LevelheadError(
            f"{len(groups)} groups have no difference", hint="give pairs of two groups"
        )
    pair_of: dict[tuple[str, tuple[int, int], int], ContrastPair] = {}
    words, contexts = _Merged(), _Merged()
    dropped: list[DroppedItem] = []
    sources = [
        ((groups.index(first), groups.index(second)), some)
        for (first, second), some in named_pairs.items()
    ]
    for labels, some in [*sources, ((NEUTRAL, NEUTRAL), config.neutral)]:
        readable_pairs, unreadable = drop_unreadable_pairs(lm, some)
        dropped += unreadable
        for pair in readable_pairs:
            for text, span, label in zip(
                (pair.first, pair.second), pair.spans, labels, strict=True
            ):
                # With several groups a text is in several pairs, which must be in one half.
                before = pair_of.setdefault((text, span, label), pair)
                words.join(pair.unit, before.unit)
                contexts.join(pair.id, before.id)
    labels_read = {label for _, _, label in pair_of}
    missing = [group for i, group in enumerate(groups) if i not in labels_read]
    if missing:
        reason = f": {dropped[0].reason}" if dropped else ""
        raise NotMeasurableError(
            f"the model can read no text of {missing[0]}{reason}",
            hint="give pairs of words that its vocabulary has",
        )
    by_word = [words.root(pair.unit) for pair in pair_of.values()]
    split_by = config.split_by
    if split_by == "auto":
        split_by = "words" if len(set(by_word)) >= MIN_WORDS else "contexts"
    return _Texts(
        groups,
        [text for text, _, _ in pair_of],
        [span for _, span, _ in pair_of],
        [label for _, _, label in pair_of],
        by_word if split_by == "words" else [contexts.root(p.id) for p in pair_of.values()],
        split_by,
        tuple(dropped),
    )


class _Merged(dict[str, str]):
    """Names that are joined into sets, each with one name (union-find)."""

    def root(self, name: str) -> str:
        while (parent := self.setdefault(name, name)) != name:
            name = parent
        return name

    def join(self, first: str, second: str) -> None:
        self[self.root(first)] = self.root(second)
