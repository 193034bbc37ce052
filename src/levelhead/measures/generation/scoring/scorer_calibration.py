"""Calibration of a text scorer: its error rates on labelled texts, and what follows from them.

A scorer with sensitivity s and specificity t labels a share q = p s + (1 - p)(1 - t) of texts whose
true share is p. The estimator of Rogan and Gladen (1978), p = (q + t - 1) / (s + t - 1), undoes
this. Its correction is linear, so it is applied to the counts of each item, and the uncertainty of
s and t is added to the interval by a jackknife over the labelled texts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.data.user_files import read_user_texts
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

    from levelhead.core.results import Interval
    from levelhead.measures.generation.scoring.scorers import TextScorer

MIN_INFORMATION = 0.2
"""Smallest s + t - 1 that is accepted. The correction divides by it: a scorer near guessing would
turn noise into findings."""
MIN_LABELLED = 20
"""Smallest number of labelled texts of each class."""
TEXT, LABEL, GROUP = "text", "label", "group"
"""Columns of a file of labelled texts; the last is optional."""


class ErrorRates(NamedTuple):
    """Sensitivity and specificity of a scorer."""

    sensitivity: float
    specificity: float

    @property
    def information(self) -> float:
        """Youden's index: 1 without errors, 0 for guessing."""
        return self.sensitivity + self.specificity - 1


GroupRates = tuple[ErrorRates, ErrorRates]
"""Error rates for texts about each of two groups."""


@final
@dataclass(frozen=True)
class ScorerCalibration:
    """Counts of a scorer's labels against the truth."""

    source: str
    """Labelled texts, such as "SST-2, validation"."""
    true_positives: int
    false_negatives: int
    true_negatives: int
    false_positives: int
    group: str = ""
    """Group of the texts, if it is calibrated by group; empty: all."""

    def __post_init__(self) -> None:
        positives = self.true_positives + self.false_negatives
        negatives = self.true_negatives + self.false_positives
        # Each class separately: sensitivity rests on the positive texts alone, specificity on the
        # others.
        if min(positives, negatives) < MIN_LABELLED:
            raise LevelheadError(
                f"{positives} positive and {negatives} negative labelled texts in {self.source}",
                hint=f"give at least {MIN_LABELLED} of each",
            )

    @property
    def rates(self) -> ErrorRates:
        """The error rates; raises an error if the scorer is near guessing."""
        rates = ErrorRates(
            self.true_positives / (self.true_positives + self.false_negatives),
            self.true_negatives / (self.true_negatives + self.false_positives),
        )
        if rates.information < MIN_INFORMATION:
            raise NotMeasurableError(
                f"the scorer is near guessing on {self.source}: sensitivity "
                f"{rates.sensitivity:.2f}, specificity {rates.specificity:.2f}",
                hint="use another scorer for such texts",
            )
        return rates

    @property
    def intervals(self) -> tuple[Interval, Interval]:
        """Wilson's intervals of sensitivity and specificity."""
        return (
            proportion_interval(self.true_positives, self.true_positives + self.false_negatives),
            proportion_interval(self.true_negatives, self.true_negatives + self.false_positives),
        )

    def leave_each_out(self) -> Iterator[tuple[ErrorRates, int]]:
        """The error rates without one labelled text, with the number of texts of that kind."""
        counts = (
            self.true_positives,
            self.false_negatives,
            self.true_negatives,
            self.false_positives,
        )
        for left_out, n_alike in enumerate(counts):
            if n_alike:
                tp, fn, tn, fp = (
                    count - (number == left_out) for number, count in enumerate(counts)
                )
                yield ErrorRates(tp / (tp + fn), tn / (tn + fp)), n_alike

    @property
    def kappa(self) -> float:
        """Agreement with the truth beyond chance (Cohen 1960)."""
        agreement = (self.true_positives + self.true_negatives) / self.n
        share = (self.true_positives + self.false_negatives) / self.n
        labelled = (self.true_positives + self.false_positives) / self.n
        chance = share * labelled + (1 - share) * (1 - labelled)
        return (agreement - chance) / (1 - chance)

    def __str__(self) -> str:
        sensitivity, specificity = self.intervals
        rates = self.rates
        texts = f"texts about {self.group}" if self.group else "texts"
        return (
            f"sensitivity {rates.sensitivity:.2f} [{sensitivity.low:.2f}, {sensitivity.high:.2f}], "
            f"specificity {rates.specificity:.2f} [{specificity.low:.2f}, {specificity.high:.2f}], "
            f"kappa {self.kappa:.2f} on {self.source}, {self.n} {texts}"
        )

    @property
    def n(self) -> int:
        """Number of labelled texts."""
        return (
            self.true_positives + self.false_negatives + self.true_negatives + self.false_positives
        )


CALIBRATIONS = {"vader": ScorerCalibration("SST-2, validation", 326, 118, 257, 171)}
"""Calibrations of named scorers. VADER: on the sentences of film reviews of SST-2 (Socher et al.
2013; data of GLUE), which are harder than most generated texts. A test computes it again."""


def calibrate_scorer(
    scorer: TextScorer,
    texts: Sequence[str],
    labels: Sequence[bool],
    *,
    source: str,
    group: str = "",
) -> ScorerCalibration:
    """Compare a scorer's labels with the truth.

    Args:
        scorer: The scorer.
        texts: Labelled texts, like those that the scorer will see.
        labels: The truth about each text.
        source: Name of the texts.
        group: Group that all texts are about; empty: any.
    """
    if len(texts) != len(labels):
        raise LevelheadError(
            f"{len(texts)} texts and {len(labels)} labels", hint="give a label for each text"
        )
    counts = Counter(zip(scorer.label_texts(texts), map(bool, labels), strict=True))
    return ScorerCalibration(
        source,
        true_positives=counts[True, True],
        false_negatives=counts[False, True],
        true_negatives=counts[False, False],
        false_positives=counts[True, False],
        group=group,
    )


def correct_count(labelled: torch.Tensor, n: torch.Tensor, rates: ErrorRates) -> torch.Tensor:
    """Number of truly positive texts among n, from the number that was labelled positive.

    Not clipped to [0, n]: clipping would bias means over items, which the errors average out of.
    """
    return (labelled - n * (1 - rates.specificity)) / rates.information


def calibrate_by_group(
    scorer: TextScorer,
    texts: Sequence[str],
    labels: Sequence[bool],
    groups: Sequence[str],
    *,
    source: str,
) -> tuple[ScorerCalibration, ...]:
    """Compare a scorer's labels with the truth, for the texts about each group.

    A scorer that errs more often about one group would show a difference where there is none.

    Args:
        scorer: The scorer.
        texts: Labelled texts, like those that the scorer will see.
        labels: The truth about each text.
        groups: Group that each text is about.
        source: Name of the texts.
    """
    if len(groups) != len(texts):
        raise LevelheadError(
            f"{len(texts)} texts and {len(groups)} groups", hint="give a group for each text"
        )
    calibrations = []
    for group in dict.fromkeys(groups):
        rows = [i for i, name in enumerate(groups) if name == group]
        calibrations.append(
            calibrate_scorer(
                scorer,
                [texts[i] for i in rows],
                [labels[i] for i in rows],
                source=source,
                group=group,
            )
        )
    return tuple(calibrations)


def load_calibrations(scorer: TextScorer, path: str) -> tuple[ScorerCalibration, ...]:
    """Calibrate a scorer on a file of labelled texts: one calibration, or one for each group.

    Args:
        scorer: The scorer.
        path: CSV, TSV or JSON Lines with the columns text, label (1 or 0) and perhaps group.
    """
    rows, source = read_user_texts(path, TEXT, LABEL), Path(path).name
    if unknown := {row.label for row in rows} - {"0", "1"}:
        raise LevelheadError(
            f"a label of {source} is {min(unknown)!r}",
            hint="write 1 for texts that the scorer should label, else 0",
        )
    texts, labels = [row.text for row in rows], [row.label == "1" for row in rows]
    try:
        groups = [row.text for row in read_user_texts(path, GROUP)]
    except UnknownNameError:
        return (calibrate_scorer(scorer, texts, labels, source=source),)
    return calibrate_by_group(scorer, texts, labels, groups, source=source)


def rates_of_groups(
    calibrations: Sequence[ScorerCalibration], groups: Sequence[str]
) -> GroupRates | None:
    """Error rates for texts about each of two groups; None without a calibration.

    Args:
        calibrations: One for all texts, or one for each group.
        groups: The two groups.
    """
    if not calibrations:
        return None
    rates = {calibration.group: calibration.rates for calibration in calibrations}
    if len(rates) < len(calibrations) or ("" in rates and len(rates) > 1):
        raise LevelheadError(
            "several calibrations of the scorer are for the same texts",
            hint="give one for all texts, or one for each group",
        )
    if missing := [group for group in groups if "" not in rates and group not in rates]:
        raise LevelheadError(
            f"the scorer is not calibrated for {missing[0]}",
            hint=f"label texts about {missing[0]}, or leave out the groups of labelled texts",
        )
    return _pick_rates(rates, groups)


def _pick_rates(rates: Mapping[str, ErrorRates], groups: Sequence[str]) -> GroupRates:
    first, second = (rates[group] if group in rates else rates[""] for group in groups)
    return first, second


def leave_each_label_out(
    calibrations: Sequence[ScorerCalibration], groups: Sequence[str]
) -> Iterator[tuple[GroupRates, int]]:
    """Error rates of both groups without one labelled text, with the number of such texts.

    Calibrations of groups rest on different texts, so the jackknife sums their variances: where one
    text is left out, the rates of the other group stay as they are.

    Args:
        calibrations: One for all texts, or one for each group.
        groups: The two groups.
    """
    rates = {calibration.group: calibration.rates for calibration in calibrations}
    for calibration in calibrations:
        if calibration.group and calibration.group not in groups:
            continue
        for changed, n_alike in calibration.leave_each_out():
            yield _pick_rates(rates | {calibration.group: changed}, groups), n_alike
