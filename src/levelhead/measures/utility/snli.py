"""SNLI accuracy: utility cost of a mitigation for NLI (Dawkins et al. 2024, section 4).

Pairs that share a premise are not independent: premises are sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import UnknownNameError
from levelhead.core.frozen import FrozenDict
from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import NLI_LABELS
from levelhead.data.records import TextPair
from levelhead.measures.base import RequiredHead
from levelhead.measures.classification.classes import match_classes, nli_probabilities
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.options import hash_items
from levelhead.measures.utility.label_accuracy import LabelAccuracy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM


@final
@dataclass(frozen=True)
class SnliAccuracy(LabelAccuracy):
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
    metric_name: ClassVar[str] = "snli"
    equation: ClassVar[str] = "accuracy; Dawkins et al. 2024, section 4"
    item_noun: ClassVar[str] = "pairs"
    accuracy_key: ClassVar[str] = "snli accuracy"

    @cached_property
    def items(self) -> tuple[TextPair, ...]:
        """The pairs."""
        if self.pairs is not None:
            return self.pairs
        return dataset("snli").records(self.part, TextPair)

    @property
    def data(self) -> Mapping[str, str]:
        """Hash of the file, or of the user's pairs."""
        if self.pairs is not None:
            return {"pairs": hash_items(self.pairs)}
        return dataset("snli").hashes(self.part)

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
        metadata = FrozenDict({"labels": list(match_classes(lm, self.labels, NLI_LABELS))})
        # One premise has three hypotheses, so premises are the sampled units.
        return (QuerySet("classify", FrozenDict({}), ("premises",), items, metadata=metadata),)

    def probabilities(self, responses: Responses) -> torch.Tensor:
        """`[pairs, 3]` class probabilities."""
        return nli_probabilities(responses)

    def true_classes(self, responses: Responses) -> torch.Tensor:
        """`[pairs]` index of each pair's label."""
        return torch.tensor([NLI_LABELS.index(item.group) for item in responses.items])
