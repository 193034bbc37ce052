"""What others take out of a model: SentenceDebias, LEACE and INLP, each as edits at a site.

All three are fitted on the same paired texts as a `Subspace`, read at the same tokens, and give
edits like any other: they can be measured, compared, folded into weights and taken away. Their
papers edit a sentence's vector after the model; here it is edited where the model uses it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import binomtest

from levelhead.core.errors import MissingExtra, NotMeasurable
from levelhead.mitigate.projection.subspace import At, at_by_default, directions, readable
from levelhead.models.edits.base import Projection
from levelhead.models.edits.erasure import Erasure
from levelhead.models.inputs.tokenizer import NotReadable
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.counterfactuals.contrast_pairs import TextPair
    from levelhead.models.edits.base import Which
    from levelhead.models.lm import LM

POOLED = Site("pooled")
CHANCE = 0.05
"""A probe reads a label if chance alone would be right as often with less than this probability."""
LEFT = 1e-6
"""A difference of means below this share of the activations' size is rounding of float32."""


def sentence_debias(
    lm: LM,
    pairs: Sequence[TextPair],
    site: Site = POOLED,
    *,
    dims: int = 1,
    at: At | None = None,
) -> tuple[Projection]:
    """SentenceDebias (Liang et al. 2020, section 2): the first directions of pairs, wholly.

    As their code has it: the pooler's output, brought to length 1, centred pair by pair, and the
    principal directions of what is left; one of them is taken out. Bringing to length 1 is for the
    fit alone: a projection is linear, so doing it again behind the edit would change no direction,
    and the classifier behind it was trained on vectors of any length.

    Args:
        lm: the model, with its edits.
        pairs: of texts that it can read (`mitigate.subspace.readable`).
        site: where. Meade et al. 2022 take the last layer instead, fitted `at="mean"`, all tokens.
        dims: how many directions.
        at: at which tokens the texts are read; by default as `at_by_default`.
    """
    rows, _, place = _activations(lm, pairs, site, at)
    lengths = rows.norm(dim=1, keepdim=True)
    if not bool((lengths > 0).all()):
        raise NotMeasurable(
            f"a text has an activation of length 0 at {site}",
            mend="take another site: what was masked has no direction",
        )
    unit = rows / lengths
    basis, _ = directions(unit[0::2] - unit[1::2], dims, where=str(site))
    return (Projection(site, basis, tokens=_edited(site, place)),)


def leace(
    lm: LM,
    pairs: Sequence[TextPair],
    site: Site = POOLED,
    *,
    at: At | None = None,
    shrinkage: bool = True,
) -> tuple[Erasure]:
    """LEACE (Belrose et al. 2023): the least change after which no linear probe reads the label.

    Of the texts it is fitted on, the covariance of the edited activation and the label (first or
    second of its pair) is 0, which is the same. Computed by the concept-erasure package.

    Args:
        lm: the model, with its edits.
        pairs: of texts that it can read (`mitigate.subspace.readable`).
        site: where.
        at: at which tokens the texts are read; by default as `at_by_default`.
        shrinkage: estimate the covariance of the activations by shrinking, as the package does by
            default; without it, fewer texts than dimensions leave most of it unknown.
    """
    rows, labels, place = _activations(lm, pairs, site, at)
    left, right = leace_factors(rows, labels, where=str(site), shrinkage=shrinkage)
    tokens = _edited(site, place)
    return (Erasure(site, left=left, right=right, mean=rows.mean(0), tokens=tokens),)


def inlp(
    lm: LM,
    pairs: Sequence[TextPair],
    site: Site = POOLED,
    *,
    at: At | None = None,
    most: int = 35,
    seed: int = 0,
) -> tuple[Projection]:
    """INLP (Ravfogel et al. 2020): probe after probe, until none reads the label any more.

    Args:
        lm: the model, with its edits.
        pairs: of texts that it can read (`mitigate.subspace.readable`).
        site: where.
        at: at which tokens the texts are read; by default as `at_by_default`.
        most: rounds, and so directions, at most; more than these are an error.
        seed: which half of the units the probes are tried on.
    """
    rows, labels, place = _activations(lm, pairs, site, at)
    units = [pair.unit for pair in pairs for _ in range(2)]
    basis = inlp_directions(rows, labels, units, most=most, seed=seed, where=str(site))
    return (Projection(site, basis, tokens=_edited(site, place)),)


def leace_factors(
    rows: torch.Tensor, labels: torch.Tensor, *, where: str = "the site", shrinkage: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[1, width]` left and right factors of LEACE's projection.

    Args:
        rows: `[texts, width]` in float64.
        labels: `[texts]`, 0 or 1.
        where: for the text of an error.
        shrinkage: see `leace`.
    """
    try:
        package: Any = import_module("concept_erasure")
    except ImportError:
        raise MissingExtra("LEACE", "leace") from None
    means = [rows[labels == label].mean(0) for label in (0, 1)]
    if not (means[1] - means[0]).norm() > LEFT * rows.norm(dim=1).mean():
        raise NotMeasurable(
            f"the two sides have the same mean at {where}: there is nothing to erase",
            mend="read the texts where they differ (behind the word, in a causal model)",
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
    most: int = 35,
    seed: int = 0,
    where: str = "the site",
) -> torch.Tensor:
    """`[rounds, width]` orthonormal: what probes read, one after the other (Ravfogel et al. 2020).

    Each round fits a logistic regression (L2, C = 1, on activations of mean square 1) on half of
    the units, tries it on the other half, and takes its direction out of both. It stops at the
    first probe that is right no more often than chance would be: a one-sided binomial test at 0.05
    over the held-out texts.

    Args:
        rows: `[texts, width]` in float64.
        labels: `[texts]`, 0 or 1, each in half of them.
        units: what each text belongs to; a unit is wholly in one half.
        most: rounds.
        seed: of the halves.
        where: for the text of an error.
    """
    from sklearn.linear_model import (  # type: ignore[import-untyped]  # takes a while to import
        LogisticRegression,
    )

    train = _half(units, seed)
    x, y = rows.numpy().copy(), labels.numpy()
    x -= x[train].mean(0)
    x /= np.sqrt((x[train] ** 2).mean()) or 1.0
    basis = np.empty((0, x.shape[1]))
    for _ in range(most + 1):
        left = x - (x @ basis.T) @ basis
        probe = LogisticRegression(max_iter=2000).fit(left[train], y[train])
        right = int((probe.predict(left[~train]) == y[~train]).sum())
        if binomtest(right, int((~train).sum()), 0.5, alternative="greater").pvalue >= CHANCE:
            break
        (found,) = probe.coef_
        found = found - (found @ basis.T) @ basis
        basis = np.vstack([basis, found / np.linalg.norm(found)])
    else:
        raise NotMeasurable(
            f"after {most} rounds at {where} a probe still reads the label of {right} of "
            f"{int((~train).sum())} held-out texts",
            mend="allow more rounds (most=...)",
        )
    if not len(basis):
        raise NotMeasurable(
            f"at {where} no probe reads the label: {right} of {int((~train).sum())} held-out texts "
            "is what chance gives; there is nothing to take out",
            mend="give more pairs, or another site",
        )
    return torch.from_numpy(basis)


def _half(units: Sequence[str], seed: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which texts the probes are fitted on: those of half of the units."""
    names = sorted(set(units))
    if len(names) < 4:
        raise NotMeasurable(
            f"{len(names)} units cannot be parted into halves to fit probes and to try them",
            mend="give pairs of at least 4 units (pairs of words)",
        )
    drawn = np.random.default_rng(seed).permutation(names)[: len(names) // 2]
    return np.isin(units, drawn)


def _activations(
    lm: LM, pairs: Sequence[TextPair], site: Site, at: At | None
) -> tuple[torch.Tensor, torch.Tensor, At]:
    """`[2 pairs, width]` in float64, first and second in turn; which they are; where they stand."""
    if not pairs:
        raise NotMeasurable("there is no pair of texts", mend="give pairs, such as paired()")
    _, dropped = readable(lm, pairs)
    if dropped:
        raise NotReadable(
            f"{len(dropped)} of {len(pairs)} pairs cannot be read: {dropped[0].reason}",
            mend="take readable(lm, pairs), which counts them",
        )
    place = at or at_by_default(lm, lm.anatomy.find(site))
    texts = [text for pair in pairs for text in (pair.first, pair.second)]
    if place == "word":
        spans = [span for pair in pairs for span in pair.spans]
        found = lm.read(texts, [site], spans=spans)
    else:
        found = lm.read(texts, [site], pooling=place)
    return found[site].double(), torch.tensor([1, 0]).repeat(len(pairs)), place


def _edited(site: Site, place: At) -> Which:
    """The tokens that the edit acts on: the first where that alone was read."""
    return "first" if place == "first" and site.stream != "pooled" else "all"
