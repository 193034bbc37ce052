"""Probes: can a classifier predict the group that a text names from vectors, for unseen words?

Two probes are fixed here, and are not chosen by their results: a linear one (logistic regression)
and a non-linear one (a support vector machine with a Gaussian kernel on the leading components).
Both are cross-validated by words: a word and its twin are never in training and in test at once, so
that nothing can be memorised. Their settings are chosen within the training words.

The number is the area under the ROC curve (AUC): how often a text of the first group scores higher
than one of the second. Scores of different folds have different units, so only texts of one fold
are compared, and only texts of different words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final, get_args

import numpy as np
from sklearn import config_context
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.stats.degenerate import is_constant
from levelhead.stats.rng import check_rng

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.intp]

Probe = Literal["linear", "nonlinear"]
LeaveOut = Literal["words", "contexts"]
PROBES: tuple[Probe, ...] = get_args(Probe)
FOLDS, INNER_FOLDS = 5, 3
"""Number of folds of the words, and of folds within the training words."""
REPEATS = 2
"""Number of random splits into folds, so that the result does not depend on one split."""
C_VALUES = (0.001, 0.01, 0.1, 1.0)
"""C of the linear probe: the inverse of its regularisation."""
PCA_COMPONENTS = (8, 32, None)
"""Numbers of leading components for the non-linear probe; None: all of them."""
MIN_WORDS = 10
"""Minimum number of words for two nested splits into training and test."""


@final
@dataclass(frozen=True, eq=False)
class LabelledVectors:
    """Vectors with their groups and words; `label_vectors` checks them."""

    vectors: Floats
    """`[n, width]` vectors."""
    labels: NDArray[np.bool_]
    """`[n]` whether the vector is of the first group."""
    units: Ints
    """`[n]` index of its word and the word's counterfactual."""
    contexts: Ints
    """`[n]` index of the frame or text of the word."""

    @property
    def words(self) -> int:
        """Number of words; a word and its counterfactual count once."""
        return int(self.units.max()) + 1

    def permute_labels(self, rng: np.random.Generator) -> LabelledVectors:
        """Permute labels within each word and its counterfactual, alike in all texts."""
        is_swapped = rng.random(self.words) < 0.5
        # A word and its twin exchange labels together, which keeps groups equal in size and words
        # paired.
        return LabelledVectors(
            self.vectors, self.labels ^ is_swapped[self.units], self.units, self.contexts
        )


class PairwiseWins(NamedTuple):
    """Scores of texts of the first group compared with those of the second, by their words."""

    wins: Floats
    """`[words, words]` number of comparisons of a text of a word (row) with one of another
    word's twin (column) in one fold in which the first scores higher; equal scores count half."""
    n_compared: Floats
    """`[words, words]` number of comparisons."""
    config: int
    """Index of the setting of the probe that was chosen most often."""

    def auc(self, word_counts: NDArray[Any] | None = None) -> float:
        """AUC with every word counted so many times; a word is not compared with itself."""
        counts = np.ones(len(self.n_compared)) if word_counts is None else word_counts
        total = float(counts @ self.n_compared @ counts)
        if not total:
            raise NotMeasurableError(
                "no two words of one fold were drawn", hint="give more pairs of words"
            )
        return float(counts @ self.wins @ counts) / total

    @property
    def has_no_spread(self) -> bool:
        """Whether every word has the same AUC against every other: resamples have no spread."""
        # Both orders: a word against another's twin, and the other against this one's.
        is_compared = (self.n_compared + self.n_compared.T) > 0
        return is_constant(
            ((self.wins + self.wins.T)[is_compared])
            / (self.n_compared + self.n_compared.T)[is_compared]
        )


def label_vectors(
    vectors: ArrayLike,
    labels: Sequence[bool],
    units: Sequence[Hashable],
    *,
    contexts: Sequence[Hashable] | None = None,
) -> LabelledVectors:
    """Check vectors, and attach their groups and words.

    Args:
        vectors: `[n, width]` vectors.
        labels: Whether each is of the first group.
        units: Word of each; a word and its counterfactual in the other group are one.
        contexts: Frame of each; by default every text has a separate frame.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise LevelheadError(
            f"vectors of shape {rows.shape}, or not finite", hint="give [n, width] finite numbers"
        )
    context_names = list(range(len(rows))) if contexts is None else list(contexts)
    if not len(rows) == len(labels) == len(units) == len(context_names):
        raise LevelheadError(
            f"{len(rows)} vectors, {len(labels)} labels, {len(units)} units, "
            f"{len(context_names)} contexts",
            hint="give one of each a text",
        )
    data = LabelledVectors(
        rows, np.array(labels, dtype=np.bool_), _encode_ids(units), _encode_ids(context_names)
    )
    _require_words(data)
    return data


def cross_validate_probe(
    data: LabelledVectors,
    probe: Probe,
    *,
    rng: np.random.Generator,
    leave_out: LeaveOut = "words",
    config: int | None = None,
    repeats: int = REPEATS,
) -> PairwiseWins:
    """Train a probe on some words, and compare its scores of the others, in turn.

    Args:
        data: Vectors, groups and words.
        probe: Linear or nonlinear.
        rng: Random generator of the folds.
        leave_out: What is left out in turn: words; or, for a control, contexts of known words.
        config: Setting of the probe; by default chosen again within every training set.
        repeats: Number of splits into folds.
    """
    if probe not in PROBES:
        raise UnknownNameError("probe", str(probe), PROBES)
    chance = check_rng(rng)
    group_ids = data.units if leave_out == "words" else data.contexts
    if len(np.unique(group_ids)) < 2:
        raise NotMeasurableError(
            "all texts have one context: none can be left out", hint="give texts in several frames"
        )
    wins, n_compared = np.zeros((2, data.words, data.words))
    configs = _probe_configs(probe, *data.vectors.shape)
    config_counts = np.zeros(len(configs))
    # Which words share a fold is random: several cuts reduce the variance that this adds.
    for _ in range(repeats):
        for train, test in split_folds(group_ids, FOLDS, chance):
            # The configuration is chosen inside the training fold (nested cross-validation), so
            # that the test words do not influence it.
            fold_config = (
                _best_config(configs, data, train, group_ids, chance) if config is None else config
            )
            fold_wins, fold_compared = _fit_and_count_wins(
                configs[fold_config], data, _TrainTestSplit(data, train, test)
            )
            wins += fold_wins
            n_compared += fold_compared
            config_counts[fold_config] += 1
    return PairwiseWins(wins, n_compared, int(config_counts.argmax()))


def split_folds(
    group_ids: Ints, count: int, rng: np.random.Generator
) -> Iterator[tuple[Ints, Ints]]:
    """Items in training and in test, from folds of the units they belong to."""
    names = np.unique(group_ids)
    fold_of_group = np.empty(int(group_ids.max()) + 1, dtype=np.intp)
    # Folds are of groups, not of rows: texts of one word in both parts would leak the label.
    fold_of_group[names] = rng.permutation(np.arange(len(names)) % min(count, len(names)))
    for number in range(min(count, len(names))):
        is_test = fold_of_group[group_ids] == number
        yield np.flatnonzero(~is_test), np.flatnonzero(is_test)


class _ProbeConfig(NamedTuple):
    """A setting of a probe."""

    components: int | None
    """Number of leading components of the vectors that it uses; None: the vectors."""
    make: Callable[[], Any]
    """A classifier of scikit-learn."""


def _probe_configs(probe: Probe, rows: int, width: int) -> list[_ProbeConfig]:
    """The settings of a probe, the simplest first."""
    if probe == "linear":
        return [
            _ProbeConfig(None, partial(LogisticRegression, C=c, max_iter=1000)) for c in C_VALUES
        ]
    # Half of the rows are in a training set, if what is cut is equally large.
    max_components = min(width, rows // 2)
    sizes = [size for size in PCA_COMPONENTS if size is None or size < max_components]
    return [_ProbeConfig(size, partial(SVC, kernel="rbf", C=1.0, gamma="scale")) for size in sizes]


@final
class _TrainTestSplit:
    """Training and test texts as inputs of probes, computed once for all settings."""

    def __init__(self, data: LabelledVectors, train: Ints, test: Ints) -> None:
        self.data, self.train, self.test = data, train, test
        self._scaled: dict[int | None, tuple[Floats, Floats]] = {}

    def scaled(self, components: int | None) -> tuple[Floats, Floats]:
        """Both, in units of the spread of the training texts."""
        if components not in self._scaled:
            train, test = self.data.vectors[self.train], self.data.vectors[self.test]
            if components is not None:
                # Of the vectors as they are: a direction is as large as what it says.
                leading = PCA(min(components, len(train)), svd_solver="full")
                train, test = leading.fit_transform(train), leading.transform(test)
            # Fitted on the training texts alone, so that test texts do not influence their scale.
            scaler = StandardScaler()
            self._scaled[components] = scaler.fit_transform(train), scaler.transform(test)
        return self._scaled[components]


def _best_config(
    configs: Sequence[_ProbeConfig],
    data: LabelledVectors,
    train: Ints,
    group_ids: Ints,
    rng: np.random.Generator,
) -> int:
    """The setting with the best AUC on the part left out of the training set; the first of equals.

    If nothing can be left out, or there is no choice, the setting in the middle.
    """
    if len(configs) == 1 or len(np.unique(group_ids[train])) < 2:
        return len(configs) // 2
    splits = [
        _TrainTestSplit(data, train[inner], train[validation])
        for inner, validation in split_folds(group_ids[train], INNER_FOLDS, rng)
    ]
    aucs = []
    for config in configs:
        results = [_fit_and_count_wins(config, data, split) for split in splits]
        wins, n_compared = (sum(float(result[i].sum()) for result in results) for i in (0, 1))
        aucs.append(wins / n_compared if n_compared else 0.0)
    # Ties go to the first configuration, which is the plainest.
    return int(np.argmax(aucs))


def _fit_and_count_wins(
    config: _ProbeConfig, data: LabelledVectors, split: _TrainTestSplit
) -> tuple[Floats, Floats]:
    """Scores of test texts by a probe trained on other texts."""
    # `label_vectors` checked the vectors: of small training sets, half of the time would go into
    # checking them again.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        train, test = split.scaled(config.components)
        fitted = config.make().fit(train, data.labels[split.train])
        scores = np.asarray(fitted.decision_function(test), dtype=np.float64)
    return _count_wins(scores, data.labels[split.test], data.units[split.test], data.words)


def _count_wins(
    scores: Floats, labels: NDArray[np.bool_], units: Ints, words: int
) -> tuple[Floats, Floats]:
    """`[words, words]` twice: texts of the first group above those of the second, and pairs."""
    first, second = scores[labels], scores[~labels]
    # Equal scores count half, as in the Mann-Whitney statistic that equals the AUC.
    higher = (first[:, None] > second[None]) + 0.5 * (first[:, None] == second[None])
    word_ids, positions = np.unique(units, return_inverse=True)
    rows, columns = (
        np.eye(len(word_ids))[positions[is_in_group]] for is_in_group in (labels, ~labels)
    )
    wins, n_compared = np.zeros((2, words, words))
    block = np.ix_(word_ids, word_ids)
    # `[words, words]`: all pairs of texts are summed up by their words in two matrix products.
    wins[block], n_compared[block] = (
        rows.T @ higher @ columns,
        np.outer(rows.sum(0), columns.sum(0)),
    )
    np.fill_diagonal(wins, 0.0)
    np.fill_diagonal(n_compared, 0.0)
    return wins, n_compared


def _encode_ids(names: Sequence[Hashable]) -> Ints:
    ids = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.array([ids[name] for name in names], dtype=np.intp)


def _require_words(data: LabelledVectors) -> None:
    words = data.words if len(data.units) else 0
    if words < MIN_WORDS:
        raise NotMeasurableError(
            f"{words} pairs of words: a probe needs {MIN_WORDS} to be trained on some and tried on "
            "others",
            hint="give more words that the edit was not fitted on",
        )
    for is_in_group in (data.labels, ~data.labels):
        if len(np.unique(data.units[is_in_group])) < words:
            raise LevelheadError(
                "some word stands in one group only", hint="give every word with its twin"
            )
