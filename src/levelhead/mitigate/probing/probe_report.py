"""Results of probes and clusters on vectors, each with its interval and its control.

- Permuted labels (which counterfactual is which, per word) show the result of a probe if there is
  nothing to detect: the p-value, and a minimum for the standard error. Resampled words under fixed
  scores do not show that another training set would give other scores (Nadeau and Bengio 2003): on
  simulated vectors without any group in them their standard error was 0.65 to 1 of the true one.
- Permuted labels as a control task (Hewitt and Liang 2019): known words, unseen frames. What a
  probe learns of meaningless labels is what it can memorise; selectivity is the AUC of the true
  labels less that AUC, computed the same way. Verdicts use unseen words, where memorising fails.
- Two clusters without any labels (Gonen and Goldberg 2019): how well they separate the groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Interval, PValue, Record
from levelhead.mitigate.probing.probes import PROBES, cross_validate_probe
from levelhead.stats.bootstrap import bootstrap
from levelhead.stats.degenerate import is_constant
from levelhead.stats.designs import grouped_design
from levelhead.stats.power import minimum_detectable_effect

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.mitigate.probing.probes import LabelledVectors, PairwiseWins, Probe

    Floats = NDArray[np.float64]

CHANCE = 0.5
LABEL_PERMUTATIONS = 19
"""Number of label permutations: the fewest with which p can be 0.05."""
MIN_LABEL_PERMUTATIONS = 9
CONTROL_TASKS = 3
"""Number of control tasks, whose mean is reported."""
CLUSTER_PERMUTATIONS = 999
"""Permutations for clusters, which are not refitted."""


class ProbeResult(Record):
    """How well one probe predicts the group from vectors of unseen words."""

    probe: str
    auc: Estimate
    """AUC; parity 0.5; p by permuted labels; `detectable` is a distance from 0.5."""
    permuted_auc: Estimate
    """AUC with permuted labels: mean of the permutations, and the range of `level` of them."""
    control: Estimate | None
    """AUC of a control task with known words and unseen frames; None without two frames."""
    selectivity: Estimate | None
    """AUC of the true labels less that of the control task, both with known words."""


class ClusterResult(Record):
    """Agreement of two clusters of words with the two groups."""

    accuracy: Estimate
    """Agreement with the better of the two assignments of clusters to groups; parity: with
    permuted labels."""
    v_measure: Annotated[float, Field(ge=0, le=1)]
    """Rosenberg and Hirschberg 2007: 0 if the clusters are unrelated to the groups, 1 if they
    are equal."""


class ProbeReport(Record):
    """All results on one set of vectors."""

    probes: tuple[ProbeResult, ...]
    clusters: ClusterResult

    def probe_result(self, probe: Probe) -> ProbeResult:
        """Return one of the probes."""
        return next(result for result in self.probes if result.probe == probe)


def probe_vectors(
    data: LabelledVectors,
    *,
    inference: Inference,
    label_permutations: int = LABEL_PERMUTATIONS,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> ProbeReport:
    """Evaluate both probes and the clusters on vectors.

    Args:
        data: Vectors, groups and words.
        inference: Seed, resamples and level.
        label_permutations: Number of label permutations.
        on_step: Callback that receives the number of finished trainings and their total.
    """
    if label_permutations < MIN_LABEL_PERMUTATIONS:
        raise LevelheadError(
            f"labels permuted {label_permutations} times: too few to know their spread",
            hint=f"permute them at least {MIN_LABEL_PERMUTATIONS} times",
        )
    trainings = label_permutations + 1
    probes = []
    for number, probe in enumerate(PROBES):

        def report_training(done: int, before: int = number * trainings) -> None:
            on_step(before + done, len(PROBES) * trainings)

        probes.append(
            run_probe(
                data,
                probe,
                inference=inference,
                label_permutations=label_permutations,
                on_permutation=report_training,
            )
        )
    return ProbeReport(probes=tuple(probes), clusters=cluster_words(data, inference=inference))


def run_probe(
    data: LabelledVectors,
    probe: Probe,
    *,
    inference: Inference,
    label_permutations: int = LABEL_PERMUTATIONS,
    on_permutation: Callable[[int], None] = lambda done: None,
) -> ProbeResult:
    """Evaluate one probe: the AUC on unseen words, and its controls."""
    rng = inference.rng(probe, "folds")
    true = cross_validate_probe(data, probe, rng=rng)
    on_permutation(1)
    null = []
    for number in range(label_permutations):
        # The configuration of the true labels is reused: choosing it again under every permutation
        # would multiply the number of trainings.
        permuted = cross_validate_probe(
            data.permute_labels(rng), probe, rng=rng, config=true.config
        )
        null.append(permuted.auc())
        on_permutation(number + 2)
    spread = np.array(null)
    auc = _auc(true, spread, inference, probe)
    control, selectivity = _run_control_task(data, probe, inference)
    return ProbeResult(
        probe=probe,
        auc=auc,
        permuted_auc=_range("AUC of permuted labels", spread, inference.level, data.words),
        control=control,
        selectivity=selectivity,
    )


def cluster_words(data: LabelledVectors, *, inference: Inference) -> ClusterResult:
    """Two clusters of words, each word the mean of its texts, compared with the groups."""
    # Two rows per word: even ones of the second group, odd ones of the first.
    keys = 2 * data.units + data.labels
    sums = np.zeros((2 * data.words, data.vectors.shape[1]))
    np.add.at(sums, keys, data.vectors)
    means = sums / np.bincount(keys, minlength=2 * data.words)[:, None]
    rng = inference.rng("clusters")
    # K-means finds local optima, so the best of ten starts is taken, from a fixed seed.
    cluster = KMeans(2, n_init=10, random_state=int(rng.integers(2**31))).fit_predict(means)
    hits = (cluster == np.arange(2 * data.words) % 2).reshape(data.words, 2)
    # Clusters have no names: the naming that agrees better with the groups is taken.
    if hits.mean() < CHANCE:
        hits = ~hits
    # Turning a word and its counterfactual over turns both hits over.
    is_swapped = rng.random((CLUSTER_PERMUTATIONS, data.words)) < CHANCE
    share = (hits.mean(1)[None] * ~is_swapped + (1 - hits.mean(1)[None]) * is_swapped).mean(1)
    # The null gets the same free choice of names as the value, or it would lie too low.
    null = np.maximum(share, 1 - share)
    # 1e-12: equal shares that differ by rounding count as ties, which is conservative.
    value = float(hits.mean())
    at_least = int((null >= value - 1e-12).sum())
    word_hits = hits.mean(1)
    # By word: a word and its counterfactual are one observation.
    spread = 0.0 if is_constant(word_hits) else float(word_hits.std(ddof=1)) / data.words**0.5
    p = PValue(
        value=(at_least + 1) / (CLUSTER_PERMUTATIONS + 1),
        method="labels permuted",
        alternative="greater",
        n_resamples=CLUSTER_PERMUTATIONS,
    )
    return ClusterResult(
        accuracy=Estimate(
            name="accuracy of two clusters",
            value=value,
            interval=_interval(value, spread, data.words, inference.level, "words"),
            parity=float(null.mean()),
            p=p,
            n=2 * data.words,
            unit="share of words",
        ),
        v_measure=float(np.clip(v_measure_score(np.arange(2 * data.words) % 2, cluster), 0, 1)),
    )


def _auc(true: PairwiseWins, null: Floats, inference: Inference, probe: str) -> Estimate:
    words, value = len(true.n_compared), true.auc()
    # The larger of the two: the bootstrap keeps the probe fixed and is too small alone (Nadeau and
    # Bengio 2003), and the spread under permutation includes the training.
    error = max(
        _standard_error(true, inference, probe),
        0.0 if is_constant(null) else float(null.std(ddof=1)),
    )
    at_least = int((null >= value - 1e-12).sum())
    return Estimate(
        name=f"{probe} AUC",
        value=value,
        interval=_interval(
            value, error, words, inference.level, f"{words} words, floor of permutations"
        ),
        parity=CHANCE,
        p=PValue(
            value=(at_least + 1) / (len(null) + 1),
            method="labels permuted",
            alternative="greater",
            n_resamples=len(null),
        ),
        n=words,
        unit="words and their twins",
        detectable=minimum_detectable_effect(error, words - 1) if error else None,
    )


def _standard_error(wins: PairwiseWins, inference: Inference, name: str) -> float:
    """Standard error over resampled words, with their scores held fixed."""
    # Every resample would have one value, which `bootstrap` refuses; the interval has a formula for
    # it.
    if wins.has_no_spread:
        return 0.0
    words = len(wins.n_compared)
    return bootstrap(
        lambda resample: wins.auc(np.bincount(resample.items, minlength=words)),
        grouped_design(words, name="words"),
        rng=inference.rng(name, "interval"),
        n_resamples=inference.resamples,
        level=inference.level,
        # Only the standard error is used, so the cheapest interval method will do.
        method="percentile",
    ).standard_error


def _interval(value: float, error: float, words: int, level: float, how: str) -> Interval:
    """Student's interval; without spread, the change that unsampled words could cause.

    A share e of all words with P(none of them is among n) = tail is in 2 e of the comparisons.
    """
    if error:
        half_width = float(stats.t.ppf((1 + level) / 2, words - 1)) * error
        method = f"t, {how}"
    else:
        unmet = 1 - ((1 - level) / 2) ** (1 / words)
        half_width, method = 2 * unmet * max(value, 1 - value), f"words not met, {how}"
    return Interval(
        low=max(0.0, value - half_width),
        high=min(1.0, value + half_width),
        level=level,
        method=method,
    )


def _range(name: str, values: Floats, level: float, n: int) -> Estimate:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(
        name=name,
        value=float(values.mean()),
        interval=Interval(
            low=min(float(low), float(values.mean())),
            high=max(float(high), float(values.mean())),
            level=level,
            method=f"range of {len(values)} permutations",
        ),
        parity=CHANCE,
        n=n,
    )


def _run_control_task(
    data: LabelledVectors, probe: Probe, inference: Inference
) -> tuple[Estimate | None, Estimate | None]:
    """Control task and selectivity, with known words and unseen contexts."""
    if len(np.unique(data.contexts)) < 2:
        return None, None
    rng = inference.rng(probe, "control")
    true = cross_validate_probe(data, probe, rng=rng, leave_out="contexts", repeats=1)
    # Labels are permuted per word, so a probe can only know them by heart.
    permuted = [
        cross_validate_probe(
            data.permute_labels(rng),
            probe,
            rng=rng,
            leave_out="contexts",
            config=true.config,
            repeats=1,
        )
        for _ in range(CONTROL_TASKS)
    ]
    scores = np.array([wins.auc() for wins in permuted])
    control = float(scores.mean())
    error = float(np.hypot(_standard_error(true, inference, f"{probe} known"), scores.std(ddof=1)))
    value = true.auc() - control
    # The few control tasks limit the degrees of freedom, more than the words do; 1e-9 keeps an
    # interval of positive width where nothing varies.
    half_width = float(stats.t.ppf((1 + inference.level) / 2, CONTROL_TASKS - 1)) * max(error, 1e-9)
    selectivity = Estimate(
        name=f"{probe} selectivity",
        value=value,
        interval=Interval(
            low=value - half_width,
            high=value + half_width,
            level=inference.level,
            method=f"t, {data.words} words and {CONTROL_TASKS} permutations",
        ),
        parity=0.0,
        n=data.words,
    )
    return _range(
        f"{probe} AUC of a control task", scores, inference.level, data.words
    ), selectivity
