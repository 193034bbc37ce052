"""SNLI accuracy: utility cost of a mitigation for NLI (Dawkins et al. 2024, section 4).

Pairs that share a premise are not independent: premises are sampled.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import NotMeasurableError, UnknownNameError
from levelhead.core.frozen import FrozenDict
from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import NLI_LABELS
from levelhead.data.records import TextPair
from levelhead.measures.base import Extras, Measure, RequiredHead, hash_items
from levelhead.measures.classification.nli_occupations import (
    class_probabilities,
    resolve_label_order,
)
from levelhead.measures.inference import estimate
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.metric import Metric, all_or_none_interval
from levelhead.measures.reductions import mean, scale_aggregate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design


@final
@dataclass(frozen=True)
class SnliAccuracy(Measure):
    """Accuracy on labelled inference pairs. A utility, not a bias: it has no parity."""

    pairs: tuple[TextPair, ...] | None = None
    """User's pairs, labelled entailment, neutral or contradiction; by default SNLI's."""
    part: str = "test"
    labels: tuple[str, ...] | None = None
    """Classes in the order of the model's columns, if its config does not name them."""

    metrics: ClassVar[dict[str, str]] = {
        "snli": "accuracy of an inference classifier",
        "snli_likelihood": "log-probability of the label",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("classifier",)
    model_options: ClassVar[tuple[str, ...]] = ("labels",)

    @cached_property
    def items(self) -> tuple[TextPair, ...]:
        """The pairs."""
        if self.pairs is not None:
            return self.pairs
        rows = dataset("snli").items(self.part)
        return tuple(pair for pair in rows if isinstance(pair, TextPair))

    @property
    def data(self) -> Mapping[str, str]:
        """Hash of the file, or of the user's pairs."""
        if self.pairs is not None:
            return {"pairs": hash_items(self.pairs)}
        file = dataset("snli").file(self.part)
        return {f"snli/{file.path}": file.sha256}

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One classification query for each pair."""
        # SNLI marks pairs without a majority label by "-": they have no true class.
        for pair in self.items:
            if pair.label not in NLI_LABELS:
                raise UnknownNameError("label", pair.label, NLI_LABELS)
        items = tuple(
            MeasureItem(pair.id, ((pair.first, pair.second),), (pair.first,), pair.label)
            for pair in self.items
        )
        metadata = FrozenDict({"labels": list(resolve_label_order(lm, self.labels))})
        # One premise has three hypotheses, so premises are the sampled units.
        return (QuerySet("classify", FrozenDict({}), ("premises",), items, metadata=metadata),)

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Premises are sampled, independent of the label."""
        return responses.design()

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The accuracy and its smooth surrogate."""
        accuracy = Metric(
            name="snli",
            equation="accuracy; Dawkins et al. 2024, section 4",
            per_item_values=_is_right,
            aggregate=scale_aggregate(100, mean),
            unit="% of pairs",
            low=0.0,
            high=100.0,
            direction="larger: more labels are predicted",
            comparability_key="snli accuracy",
            role="utility",
            worse="lower",
            parity=None,
            smooth_surrogate="snli_likelihood",
        )
        likelihood = replace(
            accuracy,
            name="snli_likelihood",
            equation="mean log-probability of the label",
            per_item_values=lambda responses: _label_probability(responses).log(),
            aggregate=mean,
            unit="nats",
            low=-float("inf"),
            high=0.0,
            direction="larger: labels are likelier",
            comparability_key="snli likelihood",
            smooth_surrogate=None,
        )
        return accuracy, likelihood

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The accuracy by label, and the accuracy of always predicting the most common label."""
        responses, estimates, notes = response_sets[0], [], []
        (label, hits), *_ = Counter(item.group for item in responses.items).most_common(1)
        notes.append(f"always {label}: {100 * hits / len(responses):.1f}% of pairs")
        accuracy = self.get_metric("snli")
        # Overall accuracy can hide an edit that moves errors from one label to another.
        for label in responses.groups:
            label_responses = responses.select_where("group", label)
            values = accuracy.per_item_values(label_responses)
            constant = float(values.min()) == float(values.max())
            # All or none right: resampling would give an interval without width.
            label_metric = (
                replace(accuracy, closed_form_interval=all_or_none_interval)
                if constant
                else accuracy
            )
            try:
                design = self.design(label_responses, label_metric)
                estimates.append(
                    estimate(inference, label_metric, values, design, name=f"label: {label}")
                )
            except NotMeasurableError as error:
                notes.append(f"label {label}: {error.problem}")
        return Extras(tuple(estimates), tuple(notes))


def _label_probability(responses: Responses) -> torch.Tensor:
    """`[pairs]` probability of each pair's label."""
    true_classes = torch.tensor([NLI_LABELS.index(item.group) for item in responses.items])
    return class_probabilities(responses).gather(1, true_classes[:, None])[:, 0]


def _is_right(responses: Responses) -> torch.Tensor:
    true_classes = torch.tensor([NLI_LABELS.index(item.group) for item in responses.items])
    return (class_probabilities(responses).argmax(1) == true_classes).double()
