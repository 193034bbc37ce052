"""Probes: can a classifier tell from vectors which group a text names, of words it never saw?

Two probes, fixed here and not chosen by what they find: a linear one (logistic regression) and a
non-linear one (a support vector machine with a Gaussian kernel on the leading components). Both are
cross-validated by words: a word and its twin are never in training and in test at once, so that
nothing can be known by heart. Their settings are chosen within the training words.

The number is the area under the ROC curve (AUC): how often a text of the first group scores higher
than one of the second. Scores of different folds have different units, so only texts of one fold
are compared, and only texts of different words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final, get_args

import numpy as np
from sklearn import config_context  # type: ignore[import-untyped]
from sklearn.decomposition import PCA  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from sklearn.svm import SVC  # type: ignore[import-untyped]

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.stats.degenerate import is_constant
from levelhead.stats.rng import generator

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.intp]

Probe = Literal["linear", "nonlinear"]
By = Literal["words", "contexts"]
PROBES: tuple[Probe, ...] = get_args(Probe)
FOLDS, INNER = 5, 3
"""Parts of the words: those left out in turn, and those within the training words."""
REPEATS = 2
"""Cuts into folds, each with its own chance: which words fall together shall not matter."""
STRENGTHS = (0.001, 0.01, 0.1, 1.0)
"""C of the linear probe: the inverse of its regularisation."""
COMPONENTS = (8, 32, None)
"""Leading components that the non-linear probe is given; None: all of them."""
LEAST = 10
"""Words with fewer than this cannot be cut into training and test twice over."""


@final
@dataclass(frozen=True, eq=False)
class Labelled:
    """Vectors, the group of each, and the word it comes from. `labelled` makes and checks one."""

    vectors: Floats
    """`[n, width]`."""
    labels: NDArray[np.bool_]
    """`[n]`: whether it is of the first group."""
    units: Ints
    """`[n]`: the number of its word and the word's twin."""
    contexts: Ints
    """`[n]`: the number of the frame or text the word stands in."""

    @property
    def words(self) -> int:
        """How many words there are, a word and its twin counting once."""
        return int(self.units.max()) + 1

    def dealt(self, rng: np.random.Generator) -> Labelled:
        """Which of a word and its twin is of the first group: dealt at random, all texts alike."""
        turned = rng.random(self.words) < 0.5
        return Labelled(self.vectors, self.labels ^ turned[self.units], self.units, self.contexts)


class Compared(NamedTuple):
    """How texts of the first group score against those of the second, by their words."""

    above: Floats
    """`[words, words]`: of how many texts of a word (row) and of another's twin (column) in one
    fold the first scores higher; equal scores count half."""
    pairs: Floats
    """`[words, words]`: how many were compared."""
    setting: int
    """The setting of the probe that was chosen most often, by its number."""

    def auc(self, times: NDArray[Any] | None = None) -> float:
        """The AUC with every word counted so many times; a word is not compared with itself."""
        counts = np.ones(len(self.pairs)) if times is None else times
        many = float(counts @ self.pairs @ counts)
        if not many:
            raise NotMeasurable(
                "no two words of one fold were drawn", mend="give more pairs of words"
            )
        return float(counts @ self.above @ counts) / many

    @property
    def constant(self) -> bool:
        """Whether every word gives the same AUC against every other: nothing is left to chance."""
        some = (self.pairs + self.pairs.T) > 0
        return is_constant(((self.above + self.above.T)[some]) / (self.pairs + self.pairs.T)[some])


def labelled(
    vectors: ArrayLike,
    labels: Sequence[bool],
    units: Sequence[Hashable],
    *,
    contexts: Sequence[Hashable] | None = None,
) -> Labelled:
    """Vectors with their groups and words, checked.

    Args:
        vectors: `[n, width]`.
        labels: whether each is of the first group.
        units: the word of each, a word and its twin in the other group being one.
        contexts: the frame that each stands in; by default every text has its own.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise LevelheadError(
            f"vectors of shape {rows.shape}, or not finite", mend="give [n, width] finite numbers"
        )
    places = list(range(len(rows))) if contexts is None else list(contexts)
    if not len(rows) == len(labels) == len(units) == len(places):
        raise LevelheadError(
            f"{len(rows)} vectors, {len(labels)} labels, {len(units)} units, "
            f"{len(places)} contexts",
            mend="give one of each a text",
        )
    found = Labelled(rows, np.array(labels, dtype=np.bool_), _numbers(units), _numbers(places))
    _refuse_few(found)
    return found


def compared(
    data: Labelled,
    probe: Probe,
    *,
    rng: np.random.Generator,
    by: By = "words",
    setting: int | None = None,
    repeats: int = REPEATS,
) -> Compared:
    """Train a probe on some words and compare its scores of the others, each word in its turn.

    Args:
        data: vectors, groups and words.
        probe: linear or nonlinear.
        rng: of the folds.
        by: what is left out in turn: words; or contexts, the words being known, for a control.
        setting: of the probe; by default chosen anew within every training set.
        repeats: cuts into folds.
    """
    if probe not in PROBES:
        raise UnknownName("probe", str(probe), PROBES)
    chance = generator(rng)
    of = data.units if by == "words" else data.contexts
    if len(np.unique(of)) < 2:
        raise NotMeasurable(
            "all texts have one context: none can be left out", mend="give texts in several frames"
        )
    above, pairs = np.zeros((2, data.words, data.words))
    settings = _settings(probe, *data.vectors.shape)
    chosen = np.zeros(len(settings))
    for _ in range(repeats):
        for train, test in folds(of, FOLDS, chance):
            own = _best(settings, data, train, of, chance) if setting is None else setting
            one, two = _tried(settings[own], data, _Cut(data, train, test))
            above += one
            pairs += two
            chosen[own] += 1
    return Compared(above, pairs, int(chosen.argmax()))


def folds(of: Ints, count: int, rng: np.random.Generator) -> Iterator[tuple[Ints, Ints]]:
    """Items in training and in test, what they belong to being cut into so many parts."""
    names = np.unique(of)
    part = np.empty(int(of.max()) + 1, dtype=np.intp)
    part[names] = rng.permutation(np.arange(len(names)) % min(count, len(names)))
    for number in range(min(count, len(names))):
        own = part[of] == number
        yield np.flatnonzero(~own), np.flatnonzero(own)


class _Setting(NamedTuple):
    """How a probe may be made."""

    components: int | None
    """Leading components of the vectors that it is given; None: the vectors."""
    make: Callable[[], Any]
    """A classifier of scikit-learn."""


def _settings(probe: Probe, rows: int, width: int) -> list[_Setting]:
    """What a probe may be, the plainest first."""
    if probe == "linear":
        return [_Setting(None, partial(LogisticRegression, C=c, max_iter=1000)) for c in STRENGTHS]
    # Half of the rows are in a training set, if what is cut is equally large.
    most = min(width, rows // 2)
    sizes = [size for size in COMPONENTS if size is None or size < most]
    return [_Setting(size, partial(SVC, kernel="rbf", C=1.0, gamma="scale")) for size in sizes]


@final
class _Cut:
    """Texts to train on and texts to try: what probes are given, computed once for all settings."""

    def __init__(self, data: Labelled, train: Ints, test: Ints) -> None:
        self.data, self.train, self.test = data, train, test
        self._scaled: dict[int | None, tuple[Floats, Floats]] = {}

    def scaled(self, components: int | None) -> tuple[Floats, Floats]:
        """Both, in units of the training texts' spread."""
        if components not in self._scaled:
            train, test = self.data.vectors[self.train], self.data.vectors[self.test]
            if components is not None:
                # Of the vectors as they are: a direction is as large as what it says.
                leading = PCA(min(components, len(train)), svd_solver="full")
                train, test = leading.fit_transform(train), leading.transform(test)
            scaler = StandardScaler()
            self._scaled[components] = scaler.fit_transform(train), scaler.transform(test)
        return self._scaled[components]


def _best(
    settings: Sequence[_Setting],
    data: Labelled,
    train: Ints,
    of: Ints,
    rng: np.random.Generator,
) -> int:
    """The setting with the best AUC on what is left out of the training set; the first of equals.

    Where there is nothing to leave out, or no choice, the one in the middle.
    """
    if len(settings) == 1 or len(np.unique(of[train])) < 2:
        return len(settings) // 2
    cuts = [_Cut(data, train[inner], train[left]) for inner, left in folds(of[train], INNER, rng)]
    found = []
    for setting in settings:
        tried = [_tried(setting, data, cut) for cut in cuts]
        above, pairs = (sum(float(one[i].sum()) for one in tried) for i in (0, 1))
        found.append(above / pairs if pairs else 0.0)
    return int(np.argmax(found))


def _tried(setting: _Setting, data: Labelled, cut: _Cut) -> tuple[Floats, Floats]:
    """A probe trained on some texts: how it ranks others."""
    # `labelled` checked the vectors: of small training sets, half of the time would go into
    # checking them again.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        train, test = cut.scaled(setting.components)
        fitted = setting.make().fit(train, data.labels[cut.train])
        scores = np.asarray(fitted.decision_function(test), dtype=np.float64)
    return _between(scores, data.labels[cut.test], data.units[cut.test], data.words)


def _between(
    scores: Floats, labels: NDArray[np.bool_], units: Ints, words: int
) -> tuple[Floats, Floats]:
    """`[words, words]` twice: texts of the first group above those of the second, and pairs."""
    first, second = scores[labels], scores[~labels]
    higher = (first[:, None] > second[None]) + 0.5 * (first[:, None] == second[None])
    here, place = np.unique(units, return_inverse=True)
    rows, columns = (np.eye(len(here))[place[own]] for own in (labels, ~labels))
    above, pairs = np.zeros((2, words, words))
    own = np.ix_(here, here)
    above[own], pairs[own] = rows.T @ higher @ columns, np.outer(rows.sum(0), columns.sum(0))
    np.fill_diagonal(above, 0.0)
    np.fill_diagonal(pairs, 0.0)
    return above, pairs


def _numbers(names: Sequence[Hashable]) -> Ints:
    known = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.array([known[name] for name in names], dtype=np.intp)


def _refuse_few(data: Labelled) -> None:
    words = data.words if len(data.units) else 0
    if words < LEAST:
        raise NotMeasurable(
            f"{words} pairs of words: a probe needs {LEAST} to be trained on some and tried on "
            "others",
            mend="give more words that the edit was not fitted on",
        )
    for own in (data.labels, ~data.labels):
        if len(np.unique(data.units[own])) < words:
            raise LevelheadError(
                "some word stands in one group only", mend="give every word with its twin"
            )
