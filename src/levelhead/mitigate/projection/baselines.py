"""Published erasure methods: SentenceDebias, LEACE and INLP, each as edits at a site.

All three are fitted on the same paired texts as a `Subspace`, read at the same tokens, and give
edits like any other: they can be measured, compared, merged into weights and removed. Their papers
edit a sentence's vector after the model; here it is edited where the model uses it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import binomtest

from levelhead.core.errors import MissingExtraError, NotMeasurableError
from levelhead.mitigate.projection.subspace import (
    ActivationPooling,
    default_pooling,
    drop_unreadable_pairs,
    principal_directions,
)
from levelhead.models.edits.base import Projection
from levelhead.models.edits.erasure import Erasure
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.models.edits.base import TokenSelection
    from levelhead.models.lm import LM

POOLED = Site("pooled")
PROBE_ALPHA = 0.05
"""Significance level: a probe reads a label if a random guess would be right as often with a
smaller probability."""
MIN_MEAN_DIFFERENCE = 1e-6
"""A difference of means below this share of the activations' size is rounding of float32."""


def sentence_debias(
    lm: LM,
    pairs: Sequence[ContrastPair],
    site: Site = POOLED,
    *,
    n_components: int = 1,
    pooling: ActivationPooling | None = None,
) -> tuple[Projection]:
    """SentenceDebias (Liang et al. 2020, section 2): remove the first directions of pairs.

    As in their code, the pooler's outputs are normalised to length 1 and centred pair by pair, and
    one principal direction of the result is removed. The normalisation is for the fit only: a
    projection is linear, so repeating it after the edit would change no direction, and the
    classifier after it was trained on vectors of any length.

    Args:
        lm: The model, with its edits.
        pairs: Pairs of texts that it can read (`drop_unreadable_pairs`).
        site: The site. Meade et al. 2022 use the last layer instead, fitted with `pooling="mean"`,
            all tokens.
        n_components: Number of directions.
        pooling: Tokens at which the texts are read; by default as `default_pooling`.
    """
    rows, _, resolved_pooling = _activations(lm, pairs, site, pooling)
    lengths = rows.norm(dim=1, keepdim=True)
    # A vector of length 0 cannot be brought to length 1, and NaN would spread to all directions.
    if not bool((lengths > 0).all()):
        raise NotMeasurableError(
            f"a text has an activation of length 0 at {site}",
            hint="take another site: what was masked has no direction",
        )
    unit = rows / lengths
    # Centring each pair leaves +d/2 and -d/2, whose principal directions are those of the
    # differences d.
    basis, _ = principal_directions(unit[0::2] - unit[1::2], n_components, where=str(site))
    return (Projection(site, basis, tokens=edited_tokens(site, resolved_pooling)),)


def leace(
    lm: LM,
    pairs: Sequence[ContrastPair],
    site: Site = POOLED,
    *,
    pooling: ActivationPooling | None = None,
    shrinkage: bool = True,
) -> tuple[Erasure]:
    """LEACE (Belrose et al. 2023): the smallest change after which no linear probe reads the label.

    An equivalent condition is that, on the texts of the fit, the covariance of the edited
    activation and the label (first or second of its pair) is 0. It is computed by the
    concept-erasure package.

    Args:
        lm: The model, with its edits.
        pairs: Pairs of texts that it can read (`drop_unreadable_pairs`).
        site: The site.
        pooling: Tokens at which the texts are read; by default as `default_pooling`.
        shrinkage: Whether the covariance of the activations is estimated by shrinkage, as the
            package does by default; without it, fewer texts than dimensions leave most of it
            undetermined.
    """
    rows, labels, resolved_pooling = _activations(lm, pairs, site, pooling)
    left, right = leace_factors(rows, labels, where=str(site), shrinkage=shrinkage)
    tokens = edited_tokens(site, resolved_pooling)
    return (Erasure(site, left=left, right=right, mean=rows.mean(0), tokens=tokens),)


def inlp(
    lm: LM,
    pairs: Sequence[ContrastPair],
    site: Site = POOLED,
    *,
    pooling: ActivationPooling | None = None,
    max_rounds: int = 35,
    seed: int = 0,
) -> tuple[Projection]:
    """INLP (Ravfogel et al. 2020): remove the directions of probes until none reads the label.

    Args:
        lm: The model, with its edits.
        pairs: Pairs of texts that it can read (`drop_unreadable_pairs`).
        site: The site.
        pooling: Tokens at which the texts are read; by default as `default_pooling`.
        max_rounds: Maximum number of rounds, and so of directions; more than these raise an error.
        seed: Seed of the half of the units that the probes are tested on.
    """
    rows, labels, resolved_pooling = _activations(lm, pairs, site, pooling)
    # Both texts of a pair belong to its unit, so neither half knows the other text of a word.
    units = [pair.unit for pair in pairs for _ in range(2)]
    basis = inlp_directions(rows, labels, units, max_rounds=max_rounds, seed=seed, where=str(site))
    return (Projection(site, basis, tokens=edited_tokens(site, resolved_pooling)),)


def leace_factors(
    rows: torch.Tensor, labels: torch.Tensor, *, where: str = "the site", shrinkage: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[1, width]` left and right factors of LEACE's projection.

    Args:
        rows: `[texts, width]` in float64.
        labels: `[texts]`, 0 or 1.
        where: Name of the site in errors.
        shrinkage: See `leace`.
    """
    try:
        package: Any = import_module("concept_erasure")
    except ImportError:
        raise MissingExtraError("LEACE", "leace") from None
    means = [rows[labels == label].mean(0) for label in (0, 1)]
    # LEACE erases the covariance with the label, which is 0 where the means are equal.
    if not (means[1] - means[0]).norm() > MIN_MEAN_DIFFERENCE * rows.norm(dim=1).mean():
        raise NotMeasurableError(
            f"the two sides have the same mean at {where}: there is nothing to erase",
            hint="read the texts where they differ (behind the word, in a causal model)",
        )
    # The package would rather keep a small covariance than erase it (svd_tol), and mixes in another
    # projection where the variance would grow, which it never does for the texts themselves:
    # either would leave a covariance with the label.
    eraser = package.LeaceEraser.fit(
        rows, labels.to(rows), shrinkage=shrinkage, svd_tol=1e-12, constrain_cov_trace=False
    )
    return eraser.proj_left.T, eraser.proj_right


def inlp_directions(
    rows: torch.Tensor,
    labels: torch.Tensor,
    units: Sequence[str],
    *,
    max_rounds: int = 35,
    seed: int = 0,
    where: str = "the site",
) -> torch.Tensor:
    """`[rounds, width]` orthonormal directions of successive probes (Ravfogel et al. 2020).

    Each round fits a logistic regression (L2, C = 1, on activations of mean square 1) on half of
    the units, tests it on the other half, and removes its direction from both. It stops at the
    first probe that is right no more often than chance: a one-sided binomial test at 0.05 over the
    held-out texts.

    Args:
        rows: `[texts, width]` in float64.
        labels: `[texts]`, 0 or 1, each in half of them.
        units: Unit of each text; all texts of a unit are in one half.
        max_rounds: Maximum number of rounds.
        seed: Seed of the halves.
        where: Name of the site in errors.
    """
    from sklearn.linear_model import (  # takes a while to import
        LogisticRegression,
    )

    train = training_half(units, seed)
    x, y = rows.numpy().copy(), labels.numpy()
    # Centred and scaled by training texts alone: held-out texts must not influence the probe. One
    # common scale keeps directions as they are, which scaling of every dimension would not.
    x -= x[train].mean(0)
    x /= np.sqrt((x[train] ** 2).mean()) or 1.0
    basis = np.empty((0, x.shape[1]))
    for _ in range(max_rounds + 1):
        remaining = x - (x @ basis.T) @ basis
        probe = LogisticRegression(max_iter=2000).fit(remaining[train], y[train])
        n_correct = int((probe.predict(remaining[~train]) == y[~train]).sum())
        if (
            binomtest(n_correct, int((~train).sum()), 0.5, alternative="greater").pvalue
            >= PROBE_ALPHA
        ):
            break
        (direction,) = probe.coef_
        # The probe saw activations without the basis, but its solver leaves rounding along it.
        direction = direction - (direction @ basis.T) @ basis
        basis = np.vstack([basis, direction / np.linalg.norm(direction)])
    else:
        raise NotMeasurableError(
            f"after {max_rounds} rounds at {where} a probe still reads the label of {n_correct} of "
            f"{int((~train).sum())} held-out texts",
            hint="allow more rounds (max_rounds=...)",
        )
    if not len(basis):
        raise NotMeasurableError(
            f"at {where} no probe reads the label: {n_correct} of {int((~train).sum())} held-out "
            "texts is what chance gives; there is nothing to take out",
            hint="give more pairs, or another site",
        )
    return torch.from_numpy(basis)


def training_half(units: Sequence[str], seed: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether the probes are fitted on each text: those of half of the units."""
    names = sorted(set(units))
    if len(names) < 4:
        raise NotMeasurableError(
            f"{len(names)} units cannot be parted into halves to fit probes and to try them",
            hint="give pairs of at least 4 units (pairs of words)",
        )
    # Split by units, not by texts: a word in both halves would let the probe memorise it.
    train_units = np.random.default_rng(seed).permutation(names)[: len(names) // 2]
    return np.isin(units, train_units)


def _activations(
    lm: LM, pairs: Sequence[ContrastPair], site: Site, pooling: ActivationPooling | None
) -> tuple[torch.Tensor, torch.Tensor, ActivationPooling]:
    """`[2 pairs, width]` in float64, first and second alternately; labels; and the pooling."""
    if not pairs:
        raise NotMeasurableError(
            "there is no pair of texts", hint="give pairs, such as contrast_pairs()"
        )
    _, dropped = drop_unreadable_pairs(lm, pairs)
    if dropped:
        raise UnreadableTextError(
            f"{len(dropped)} of {len(pairs)} pairs cannot be read: {dropped[0].reason}",
            hint="take drop_unreadable_pairs(lm, pairs), which counts them",
        )
    resolved_pooling = pooling or default_pooling(lm, lm.layout.require_site(site))
    texts = [text for pair in pairs for text in (pair.first, pair.second)]
    if resolved_pooling == "word":
        spans = [span for pair in pairs for span in pair.spans]
        by_site = lm.read(texts, [site], spans=spans)
    else:
        by_site = lm.read(texts, [site], pooling=resolved_pooling)
    # Rows alternate, so that slices with step 2 are the two sides.
    return by_site[site].double(), torch.tensor([1, 0]).repeat(len(pairs)), resolved_pooling


def edited_tokens(site: Site, pooling: ActivationPooling) -> TokenSelection:
    """The tokens that the edit acts on: the first if only that was read."""
    return "first" if pooling == "first" and site.stream != "pooled" else "all"
