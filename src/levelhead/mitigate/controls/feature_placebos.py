"""Placebos of a feature ablation: random features of the same dictionary with matched activity.

The activity of a feature is the mean square of what its ablation removes, over the tokens of a
measure's texts. Each ablated feature is replaced by one of the features with the nearest activity.
Features are chosen by their number alone, never by what they mean, so some placebos may be about
the groups, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.mitigate.controls.placebo_edits import VarianceMatch
from levelhead.models.edits.feature_ablation import FeatureAblation
from levelhead.models.training.dictionary import read_token_activations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.edits.dictionary import SparseDictionary
    from levelhead.models.lm import LM

N_NEAREST = 50
"""Number of features with the nearest activity among which each feature of a set is replaced: of
sets of two, there are then a thousand."""


def measure_activity(
    lm: LM, dictionary: SparseDictionary, texts: Sequence[str], *, rows: int = 4096
) -> torch.Tensor:
    """Mean square of what each feature adds, over the tokens of texts: `[features]`, float64.

    Args:
        lm: The model.
        dictionary: A dictionary of its activations.
        texts: Texts.
        rows: Number of tokens of a batch.
    """
    activations = read_token_activations(lm, texts, dictionary.site)
    total = torch.zeros(dictionary.n_features, dtype=torch.float64)
    for part in activations.split(rows):
        total += (dictionary.contributions(part).double() ** 2).sum(0)
    return total / len(activations)


def make_feature_placebos(
    edit: FeatureAblation,
    dictionary: SparseDictionary,
    activity: torch.Tensor,
    *,
    n_placebos: int = 200,
    seed: int = 0,
) -> tuple[tuple[FeatureAblation, ...], ...]:
    """Replace the features of an ablation by others with the nearest activity.

    Args:
        edit: The real edit.
        dictionary: The dictionary of its features.
        activity: `[features]`, of `measure_activity`.
        n_placebos: Number of placebos.
        seed: Seed of the choice.
    """
    if n_placebos < 1:
        raise LevelheadError(f"{n_placebos} placebos", hint="give at least one")
    if edit.features and max(edit.features) >= dictionary.n_features:
        raise LevelheadError("the features are not of this dictionary", hint="give their own")
    real = list(edit.features)
    if not bool((activity[real] > 0).all()):
        raise NotMeasurableError(
            "a feature of the edit is not active in these texts: nothing can match it",
            hint="leave it out, or give texts in which it is active",
        )
    others = [
        feature
        for feature in torch.nonzero(activity > 0).flatten().tolist()
        if feature not in edit.features
    ]
    # A single feature has as many placebos as there are others; each is used once.
    n_nearest = n_placebos if len(real) == 1 else max(N_NEAREST, len(real))
    if len(others) < n_nearest:
        raise NotMeasurableError(
            f"{len(others)} other features are active, and {n_nearest} are needed",
            hint="give a larger dictionary, more texts, or fewer placebos",
        )
    log_activity = activity.log()
    nearest = [
        sorted(others, key=lambda other: abs(float(log_activity[other] - log_activity[feature])))[
            :n_nearest
        ]
        for feature in real
    ]
    if len(real) == 1:
        sets = [[feature] for feature in nearest[0]]
    else:
        # One stream per placebo: the first ones stay the same when more are wanted.
        sets = [
            _draw(nearest, np.random.default_rng([seed, number])) for number in range(n_placebos)
        ]
    return tuple(
        (FeatureAblation.of(dictionary, features, strength=edit.strength, tokens=edit.tokens),)
        for features in sets
    )


def _draw(nearest: Sequence[Sequence[int]], rng: np.random.Generator) -> list[int]:
    """Draw one feature for each, all of them different."""
    drawn: list[int] = []
    for candidates in nearest:
        left = [feature for feature in candidates if feature not in drawn]
        drawn.append(left[rng.integers(len(left))])
    return drawn


def measure_activity_match(
    edit: FeatureAblation,
    placebo_sets: Sequence[Sequence[FeatureAblation]],
    activity: torch.Tensor,
) -> VarianceMatch:
    """Compute the match of placebos, on texts that they were not matched on.

    Args:
        edit: The real edit.
        placebo_sets: The placebos.
        activity: `[features]`, of other texts.
    """
    target = float(activity[list(edit.features)].sum())
    if not target > 0:
        raise NotMeasurableError(
            "the features of the edit are not active in the other half of the texts",
            hint="give more texts",
        )
    removed = np.array(
        [float(activity[list(placebo.features)].sum()) for (placebo,) in placebo_sets]
    )
    real = torch.nn.functional.normalize(edit.directions, dim=1)
    directions = [
        torch.nn.functional.normalize(placebo.directions, dim=1) for (placebo,) in placebo_sets
    ]
    first = torch.stack([rows[0] for rows in directions])
    return VarianceMatch(
        n_placebos=len(placebo_sets),
        variance_error=float(np.abs(removed / target - 1).max()),
        max_cosine=max(float((rows @ real.T).abs().max()) for rows in directions),
        effective_placebos=max(1.0, len(placebo_sets) ** 2 / float(((first @ first.T) ** 2).sum())),
    )
