"""Linear detectors of a group, fitted on some words and evaluated on others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.stats import fisher_exact

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Estimate, Interval, Record
from levelhead.mitigate.projection.baselines import PROBE_ALPHA, training_half
from levelhead.stats.degenerate import is_constant
from levelhead.stats.intervals import constant_mean_interval
from levelhead.stats.means import t_test

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DetectorMethod = Literal["logistic", "lda"]
"""Logistic regression (L2, C = 1), or linear discriminant analysis with a shrunk covariance."""
NEUTRAL = -1
"""Label of a text that names no group."""


class DetectorAccuracy(Record):
    """How well a detector separates texts of words that it was not fitted on."""

    group: str
    accuracy: Estimate
    """Mean of sensitivity and specificity; 0.5 is chance."""
    sensitivity: Estimate
    """Share of the group's texts in which it fires."""
    specificity: Estimate
    """Share of all other texts in which it does not."""


class LabelledRows(NamedTuple):
    """Activations of texts at a site, with the group and the word of each text."""

    rows: torch.Tensor
    """`[texts, width]` in float64."""
    labels: NDArray[np.intp]
    """`[texts]` index of the group, or `NEUTRAL`."""
    units: Sequence[str]
    """Word of each text and its counterfactuals; all texts of a unit are in one half."""


class GroupDetectors(NamedTuple):
    """Means and detectors of all groups, fitted on the training half."""

    means: torch.Tensor
    """`[groups, width]` mean of the training texts of each group, in float64."""
    weights: torch.Tensor
    """`[groups, width]` w_g: a detector fires where <w_g, h> + b_g > 0."""
    biases: torch.Tensor
    """`[groups]` b_g."""
    accuracies: tuple[DetectorAccuracy, ...]


def fit_group_detectors(
    data: LabelledRows,
    groups: Sequence[str],
    *,
    method: DetectorMethod = "logistic",
    seed: int = 0,
    where: str = "the site",
) -> GroupDetectors:
    """Fit the mean and a detector of every group on half of the words, and test them on the others.

    A detector separates its group from all other texts. For two groups and no neutral texts the
    second is the first with the other sign, so that exactly one of them fires.

    Args:
        data: Activations with groups and words.
        groups: Names of the groups, by label.
        method: Kind of classifier.
        seed: Seed of the halves.
        where: Name of the site in errors.
    """
    train = training_half(data.units, seed)
    labels, is_train = data.labels, torch.from_numpy(train)
    for index, group in enumerate(groups):
        for half, name in ((train, "training"), (~train, "held-out")):
            if not ((labels == index) & half).any():
                raise NotMeasurableError(
                    f"the {name} half has no text of {group}", hint="give more pairs of words"
                )
    means = torch.stack(
        [data.rows[is_train & torch.from_numpy(labels == i)].mean(0) for i in range(len(groups))]
    )
    fitted = [
        _fit_plane(data.rows[is_train].numpy(), labels[train] == i, method)
        for i in range(len(groups))
    ]
    weights, biases = (torch.stack(parts) for parts in zip(*fitted, strict=True))
    if len(groups) == 2 and not (labels == NEUTRAL).any():
        # The same plane: a tie of rounding must not leave a text to both detectors or to none.
        weights[1], biases[1] = -weights[0], -biases[0]
    fires = ((data.rows @ weights.T + biases) > 0).numpy()
    accuracies = tuple(
        _evaluate(group, fires[~train, i], labels[~train] == i, np.asarray(data.units)[~train])
        for i, group in enumerate(groups)
    )
    for i, group in enumerate(groups):
        _require_detection(group, fires[~train, i], labels[~train] == i, where)
    return GroupDetectors(means, weights, biases, accuracies)


def _fit_plane(
    rows: NDArray[np.float64], is_group: NDArray[np.bool_], method: DetectorMethod
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fit normal and offset of a plane that separates a group from all other rows."""
    # Both take a while to import.
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression

    # One common scale keeps directions as they are, which scaling of every dimension would not.
    centre = rows.mean(0)
    scale = float(np.sqrt(((rows - centre) ** 2).mean())) or 1.0
    # Balanced: with several groups most texts are not of the group, and never to fire would be the
    # most accurate.
    model: Any = (
        LogisticRegression(max_iter=2000, class_weight="balanced")
        if method == "logistic"
        else LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=[0.5, 0.5])
    )
    model.fit((rows - centre) / scale, is_group)
    normal = model.coef_[0] / scale
    offset = float(model.intercept_[0]) - float(normal @ centre)
    if not np.isfinite(normal).all() or not np.linalg.norm(normal) > 0:
        raise LevelheadError(
            f"the {method} detector has no finite direction", hint="give texts that differ"
        )
    return torch.from_numpy(normal.copy()), torch.tensor(offset, dtype=torch.float64)


def _evaluate(
    group: str,
    fires: NDArray[np.bool_],
    is_group: NDArray[np.bool_],
    units: NDArray[Any],
) -> DetectorAccuracy:
    sensitivity = _mean_over_units("sensitivity", fires[is_group], units[is_group])
    specificity = _mean_over_units("specificity", ~fires[~is_group], units[~is_group])
    # The mean of both ends is conservative: it is exact if both errors are fully correlated.
    low, high = (
        (getattr(sensitivity.interval, end) + getattr(specificity.interval, end)) / 2
        for end in ("low", "high")
    )
    return DetectorAccuracy(
        group=group,
        accuracy=Estimate(
            name=f"held-out accuracy of the detector of {group}",
            value=(sensitivity.value + specificity.value) / 2,
            interval=Interval(
                low=low, high=high, level=0.95, method="mean of the ends of both shares"
            ),
            parity=0.5,
            n=sensitivity.n + specificity.n,
        ),
        sensitivity=sensitivity,
        specificity=specificity,
    )


def _mean_over_units(name: str, is_right: NDArray[np.bool_], units: NDArray[Any]) -> Estimate:
    """Mean over words of the share of their texts that are right; texts of a word are dependent."""
    shares = [float(is_right[units == unit].mean()) for unit in sorted(set(units.tolist()))]
    value = float(np.mean(shares))
    if len(shares) < 2 or is_constant(shares):
        interval = constant_mean_interval(value, 0.0, 1.0, len(shares))
    else:
        ends = t_test(shares).interval
        interval = ends.model_copy(update={"low": max(ends.low, 0.0), "high": min(ends.high, 1.0)})
    return Estimate(name=name, value=value, interval=interval, n=len(is_right))


def _require_detection(
    group: str, fires: NDArray[np.bool_], is_group: NDArray[np.bool_], where: str
) -> None:
    """Raise unless a detector fires more often in held-out texts of its group than in others."""
    # As for the probes of INLP: without a detection there is nothing that could be steered, which
    # is no evidence of parity.
    table = [
        [int((fires & is_group).sum()), int((~fires & is_group).sum())],
        [int((fires & ~is_group).sum()), int((~fires & ~is_group).sum())],
    ]
    if not fisher_exact(np.array(table), alternative="greater").pvalue < PROBE_ALPHA:
        raise NotMeasurableError(
            f"at {where} no linear detector reads {group}: it fires in {table[0][0]} of "
            f"{sum(table[0])} held-out texts of {group} and in {table[1][0]} of {sum(table[1])} "
            "others",
            hint="give more pairs, or another site",
        )
