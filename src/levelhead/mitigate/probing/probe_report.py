"""What probes and clusters find in vectors, each number with its interval and its control.

- Labels dealt anew to the words, which twin is which, say what a probe finds where there is nothing
  to find: the p-value, and a floor for the standard error. Words redrawn under fixed scores do not
  show that another training set would have given other scores (Nadeau and Bengio 2003): on
  simulated vectors without any group in them their standard error was 0.65 to 1 of the true one.
- Dealt labels as a control task (Hewitt and Liang 2019): words known, frames unseen. What a probe
  learns of labels that mean nothing is what it can know by heart; selectivity is the AUC of the
  true labels less that, asked the same way. Verdicts rest on words unseen, where heart fails.
- Two clusters without any labels (Gonen and Goldberg 2019): how well they fall along the groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field
from scipy import stats
from sklearn.cluster import KMeans  # type: ignore[import-untyped]
from sklearn.metrics import v_measure_score  # type: ignore[import-untyped]

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Interval, PValue, Record
from levelhead.mitigate.probing.probes import PROBES, compared
from levelhead.stats.bootstrap import bootstrap
from levelhead.stats.degenerate import is_constant
from levelhead.stats.designs import groups
from levelhead.stats.power import minimum_detectable_effect

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.mitigate.probing.probes import Compared, Labelled, Probe

    Floats = NDArray[np.float64]

CHANCE = 0.5
DEALS = 19
"""Labels dealt anew: the fewest with which p can be 0.05."""
LEAST_DEALS = 9
CONTROLS = 3
"""Control tasks, whose mean is told."""
DEALT_LABELS = 999
"""For clusters, which are not fitted anew."""


class Probed(Record):
    """What one probe can tell of the group, from vectors of words it never saw."""

    probe: str
    auc: Estimate
    """Parity 0.5; p by labels dealt anew; `detectable` is a distance from 0.5."""
    dealt: Estimate
    """The AUC of labels dealt anew, mean of the deals and the range of `level` of them."""
    control: Estimate | None
    """The AUC of a control task, words known and frames not; None without two frames."""
    selectivity: Estimate | None
    """The AUC of the true labels less that of the control task, both with words known."""


class Clustered(Record):
    """How far two clusters of words are the two groups."""

    accuracy: Estimate
    """Of the better of the two ways to name the clusters; parity: that of labels dealt anew."""
    v_measure: Annotated[float, Field(ge=0, le=1)]
    """Rosenberg and Hirschberg 2007: 0 if the clusters say nothing of the groups, 1 if all."""


class Found(Record):
    """All that was found in one set of vectors."""

    probes: tuple[Probed, ...]
    clusters: Clustered

    def of(self, probe: Probe) -> Probed:
        """One of the probes."""
        return next(one for one in self.probes if one.probe == probe)


def found_in(
    data: Labelled,
    *,
    inference: Inference,
    deals: int = DEALS,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Found:
    """Try both probes and the clusters on vectors.

    Args:
        data: vectors, groups and words.
        inference: seed, resamples and level.
        deals: how often labels are dealt anew.
        on_step: is told how many trainings are done, and how many there are.
    """
    if deals < LEAST_DEALS:
        raise LevelheadError(
            f"labels dealt {deals} times: too few to know their spread",
            mend=f"deal them at least {LEAST_DEALS} times",
        )
    each = deals + 1
    probes = []
    for number, probe in enumerate(PROBES):

        def tell(done: int, before: int = number * each) -> None:
            on_step(before + done, len(PROBES) * each)

        probes.append(probed(data, probe, inference=inference, deals=deals, on_deal=tell))
    return Found(probes=tuple(probes), clusters=clustered(data, inference=inference))


def probed(
    data: Labelled,
    probe: Probe,
    *,
    inference: Inference,
    deals: int = DEALS,
    on_deal: Callable[[int], None] = lambda done: None,
) -> Probed:
    """Try one probe: the AUC on words unseen, and its controls."""
    rng = inference.rng(probe, "folds")
    true = compared(data, probe, rng=rng)
    on_deal(1)
    null = []
    for number in range(deals):
        dealt = compared(data.dealt(rng), probe, rng=rng, setting=true.setting)
        null.append(dealt.auc())
        on_deal(number + 2)
    spread = np.array(null)
    auc = _auc(true, spread, inference, probe)
    control, selectivity = _controlled(data, probe, inference)
    return Probed(
        probe=probe,
        auc=auc,
        dealt=_range("AUC of dealt labels", spread, inference.level, data.words),
        control=control,
        selectivity=selectivity,
    )


def clustered(data: Labelled, *, inference: Inference) -> Clustered:
    """Two clusters of words, each the mean of its texts; compared with the groups."""
    keys = 2 * data.units + data.labels
    sums = np.zeros((2 * data.words, data.vectors.shape[1]))
    np.add.at(sums, keys, data.vectors)
    means = sums / np.bincount(keys, minlength=2 * data.words)[:, None]
    rng = inference.rng("clusters")
    cluster = KMeans(2, n_init=10, random_state=int(rng.integers(2**31))).fit_predict(means)
    hits = (cluster == np.arange(2 * data.words) % 2).reshape(data.words, 2)
    if hits.mean() < CHANCE:
        hits = ~hits
    # Turning a word and its twin over turns both hits over.
    turned = rng.random((DEALT_LABELS, data.words)) < CHANCE
    share = (hits.mean(1)[None] * ~turned + (1 - hits.mean(1)[None]) * turned).mean(1)
    null = np.maximum(share, 1 - share)
    value = float(hits.mean())
    at_least = int((null >= value - 1e-12).sum())
    own = hits.mean(1)
    spread = 0.0 if is_constant(own) else float(own.std(ddof=1)) / data.words**0.5
    p = PValue(
        value=(at_least + 1) / (DEALT_LABELS + 1),
        method="labels dealt anew",
        alternative="greater",
        draws=DEALT_LABELS,
    )
    return Clustered(
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


def _auc(true: Compared, null: Floats, inference: Inference, probe: str) -> Estimate:
    words, value = len(true.pairs), true.auc()
    error = max(
        _error(true, inference, probe), 0.0 if is_constant(null) else float(null.std(ddof=1))
    )
    at_least = int((null >= value - 1e-12).sum())
    return Estimate(
        name=f"{probe} AUC",
        value=value,
        interval=_interval(value, error, words, inference.level, f"{words} words, floor of deals"),
        parity=CHANCE,
        p=PValue(
            value=(at_least + 1) / (len(null) + 1),
            method="labels dealt anew",
            alternative="greater",
            draws=len(null),
        ),
        n=words,
        unit="words and their twins",
        detectable=minimum_detectable_effect(error, words - 1) if error else None,
    )


def _error(of: Compared, inference: Inference, name: str) -> float:
    """The standard error over words redrawn, their scores being what they are."""
    if of.constant:
        return 0.0
    words = len(of.pairs)
    return bootstrap(
        lambda draw: of.auc(np.bincount(draw.items, minlength=words)),
        groups(words, name="words"),
        rng=inference.rng(name, "interval"),
        draws=inference.resamples,
        level=inference.level,
        method="percentile",
    ).standard_error


def _interval(value: float, error: float, words: int, level: float, how: str) -> Interval:
    """Student's; without spread, what a share of words that were not met could change.

    A share e of all words with P(none of them is among n) = tail is in 2 e of the comparisons.
    """
    if error:
        reach = float(stats.t.ppf((1 + level) / 2, words - 1)) * error
        method = f"t, {how}"
    else:
        unmet = 1 - ((1 - level) / 2) ** (1 / words)
        reach, method = 2 * unmet * max(value, 1 - value), f"words not met, {how}"
    return Interval(
        low=max(0.0, value - reach), high=min(1.0, value + reach), level=level, method=method
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
            method=f"range of {len(values)} deals",
        ),
        parity=CHANCE,
        n=n,
    )


def _controlled(
    data: Labelled, probe: Probe, inference: Inference
) -> tuple[Estimate | None, Estimate | None]:
    """The control task and the selectivity, words known and contexts unseen."""
    if len(np.unique(data.contexts)) < 2:
        return None, None
    rng = inference.rng(probe, "control")
    true = compared(data, probe, rng=rng, by="contexts", repeats=1)
    dealt = [
        compared(data.dealt(rng), probe, rng=rng, by="contexts", setting=true.setting, repeats=1)
        for _ in range(CONTROLS)
    ]
    scores = np.array([one.auc() for one in dealt])
    control = float(scores.mean())
    error = float(np.hypot(_error(true, inference, f"{probe} known"), scores.std(ddof=1)))
    value = true.auc() - control
    reach = float(stats.t.ppf((1 + inference.level) / 2, CONTROLS - 1)) * max(error, 1e-9)
    selectivity = Estimate(
        name=f"{probe} selectivity",
        value=value,
        interval=Interval(
            low=value - reach,
            high=value + reach,
            level=inference.level,
            method=f"t, {data.words} words and {CONTROLS} deals",
        ),
        parity=0.0,
        n=data.words,
    )
    return _range(
        f"{probe} AUC of a control task", scores, inference.level, data.words
    ), selectivity
