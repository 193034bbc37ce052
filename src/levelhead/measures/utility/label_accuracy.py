"""Accuracy of predicted labels: a utility, not a bias, so it has no parity."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from levelhead.measures.base import Extras, Measure
from levelhead.measures.inference import note_failure
from levelhead.measures.metric import Metric, all_or_none_interval
from levelhead.measures.reductions import mean, scale_aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Responses
    from levelhead.stats.designs import Design


class LabelAccuracy(Measure):
    """Abstract base class: the share of items whose label is predicted, and its log-probability.

    An item's group is its label.
    """

    metric_name: ClassVar[str]
    equation: ClassVar[str]
    item_noun: ClassVar[str]
    """What is labelled, in the plural, such as texts."""
    accuracy_key: ClassVar[str]
    """Part of the comparability key of the accuracy."""

    @abstractmethod
    def probabilities(self, responses: Responses) -> torch.Tensor:
        """`[items, classes]` class probabilities."""

    @abstractmethod
    def true_classes(self, responses: Responses) -> torch.Tensor:
        """`[items]` index of each item's label."""

    def is_right(self, responses: Responses) -> torch.Tensor:
        """`[items]` 1 if the likeliest class is the label, else 0."""
        predicted = self.probabilities(responses).argmax(1)
        return (predicted == self.true_classes(responses)).double()

    def label_log_probability(self, responses: Responses) -> torch.Tensor:
        """`[items]` log-probability of the label."""
        true_classes = self.true_classes(responses)[:, None]
        return self.probabilities(responses).gather(1, true_classes)[:, 0].log()

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Units are sampled, independent of the label."""
        return responses.design()

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The accuracy and its smooth surrogate."""
        accuracy = Metric(
            name=self.metric_name,
            equation=self.equation,
            per_item_values=self.is_right,
            aggregate=scale_aggregate(100, mean),
            unit=f"% of {self.item_noun}",
            low=0.0,
            high=100.0,
            direction="larger: more labels are predicted",
            comparability_key=self.accuracy_key,
            role="utility",
            worse="lower",
            parity=None,
            smooth_surrogate=f"{self.metric_name}_likelihood",
        )
        likelihood = replace(
            accuracy,
            name=f"{self.metric_name}_likelihood",
            equation="mean log-probability of the label",
            per_item_values=self.label_log_probability,
            aggregate=mean,
            unit="nats",
            low=-float("inf"),
            high=0.0,
            direction="larger: labels are likelier",
            comparability_key=f"{self.metric_name} likelihood",
            smooth_surrogate=None,
        )
        return accuracy, likelihood

    def guessing_value(self, responses: Responses) -> float:
        """Always the most common label."""
        return 100 * _count_most_common(responses)[1] / len(responses)

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The accuracy by label, and the accuracy of always predicting the most common label."""
        responses = response_sets[0]
        estimates: list[Estimate] = []
        # The baseline of unbalanced labels: an accuracy below it is worse than a constant.
        label, hits = _count_most_common(responses)
        notes = [f"always {label}: {100 * hits / len(responses):.1f}% of {self.item_noun}"]
        accuracy = replace(
            self.get_metric(self.metric_name), closed_form_interval=constant_share_percent_interval
        )
        # Overall accuracy can hide an edit that breaks one class only, or that moves errors from
        # one label to another.
        # Overall accuracy can hide an edit that breaks one class only.
        # Overall accuracy can hide an edit that moves errors from one label to another.
        for label in responses.groups:
            with note_failure(notes, f"label {label}"):
                estimates.append(
                    self.estimate_metric(
                        responses.select_where("group", label),
                        accuracy,
                        inference,
                        f"label: {label}",
                    )
                )
        return Extras(tuple(estimates), tuple(notes))


def _count_most_common(responses: Responses) -> tuple[str, int]:
    """Return the most common label, and its number of items."""
    return Counter(item.group for item in responses.items).most_common(1)[0]


def constant_share_percent_interval(
    values: torch.Tensor, design: Design, level: float
) -> Interval | None:
    """Wilson's interval if all or none are right, where resampling has no width."""
    same = float(values.min()) == float(values.max())
    return all_or_none_interval(values, design, level) if same else None
