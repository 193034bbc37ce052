"""Calibration of a text scorer: its error rates on labelled texts, and what follows from them.

A scorer with sensitivity s and specificity t labels a share q = p s + (1 - p)(1 - t) of texts whose
true share is p. The estimator of Rogan and Gladen (1978), p = (q + t - 1) / (s + t - 1), undoes
this. Its correction is linear, so it is applied to the counts of each item, and the uncertainty of
s and t is added to the interval by a jackknife over the labelled texts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from levelhead.core.results import Interval
    from levelhead.measures.generation.scorers import TextScorer

MIN_INFORMATION = 0.2
"""Smallest s + t - 1 that is accepted. The correction divides by it: a scorer near guessing would
turn noise into findings."""
MIN_LABELLED = 20
"""Smallest number of labelled texts of each class."""


class ErrorRates(NamedTuple):
    """Sensitivity and specificity of a scorer."""

    sensitivity: float
    specificity: float

    @property
    def information(self) -> float:
        """Youden's index: 1 without errors, 0 for guessing."""
        return self.sensitivity + self.specificity - 1


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

    def __str__(self) -> str:
        sensitivity, specificity = self.intervals
        rates = self.rates
        return (
            f"sensitivity {rates.sensitivity:.2f} [{sensitivity.low:.2f}, {sensitivity.high:.2f}], "
            f"specificity {rates.specificity:.2f} [{specificity.low:.2f}, {specificity.high:.2f}] "
            f"on {self.source}, {self.n} texts"
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
