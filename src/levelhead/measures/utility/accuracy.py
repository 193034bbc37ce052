"""Accuracy on the user's labelled texts: a utility, not a bias.

A classifier predicts labels of single texts or of pairs; a next-sentence head predicts labels of
pairs, with the classes `next` and `unrelated`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, cast, final

import torch

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.frozen import FrozenDict
from levelhead.data.records import LabelledExample, TextPair
from levelhead.data.tokenize import fold_case
from levelhead.data.user_files import read_user_texts
from levelhead.measures.base import RequiredHead
from levelhead.measures.classification.classes import rename_classes
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.metric import Metric
from levelhead.measures.options import hash_texts
from levelhead.measures.reductions import require_decisions
from levelhead.measures.utility.label_accuracy import (
    LabelAccuracy,
    constant_share_percent_interval,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

NEXT_SENTENCE_CLASSES = ("next", "unrelated")
"""Classes of a next-sentence head, in the order of its columns."""


@final
@dataclass(frozen=True)
class Accuracy(LabelAccuracy):
    """How often a model predicts the labels of texts, or of pairs of texts.

    Texts are sampled, and for pairs the first texts: pairs that share a first text are not
    independent, and duplicates are one unit.
    """

    texts: str | tuple[LabelledExample, ...] | tuple[TextPair, ...] = ()
    """Path of a file (.csv, .tsv, .jsonl) of single texts, or texts, or pairs."""
    text: str = "text"
    """Column of the file that holds the texts."""
    label: str = "label"
    """Column of the file that holds the labels."""
    labels: tuple[str, ...] | None = None
    """Names of the classes in the data, in the order of the model's columns."""

    metrics: ClassVar[dict[str, str]] = {
        "accuracy": "your classifier, your labelled texts: how many are right",
        "accuracy_likelihood": "log-probability of their labels",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("classifier", "next_sentence")
    model_options: ClassVar[tuple[str, ...]] = ("labels", "classes")
    file_options: ClassVar[tuple[str, ...]] = ("texts",)
    metric_name: ClassVar[str] = "accuracy"
    equation: ClassVar[str] = "share of texts whose likeliest class is their label"
    item_noun: ClassVar[str] = "texts"
    accuracy_key: ClassVar[str] = "accuracy"

    @cached_property
    def items(self) -> tuple[LabelledExample, ...] | tuple[TextPair, ...]:
        """The texts."""
        if isinstance(self.texts, str):
            return read_user_texts(self.texts, self.text, self.label)
        return self.texts

    @property
    def data(self) -> Mapping[str, str]:
        """Hash of the file, or of the user's texts."""
        return hash_texts(self.texts)

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One query for each text or pair."""
        is_next_sentence = "classifier" not in lm.heads
        # Case is folded, because configs and files spell labels differently ("Entailment").
        model_classes = NEXT_SENTENCE_CLASSES if is_next_sentence else lm.labels
        names = rename_classes(model_classes, self.labels, fold_case)
        classes = tuple(map(fold_case, names))
        items = []
        for record in self.items:
            query = (
                (record.text,)
                if isinstance(record, LabelledExample)
                else (record.first, record.second)
            )
            # Checked for every record: a file may mix single texts and pairs.
            if is_next_sentence and len(query) == 1:
                raise LevelheadError(
                    f"{record.id} is a single text, and a next-sentence head reads pairs",
                    hint="give pairs, or a classifier",
                )
            if fold_case(record.label) not in classes:
                raise UnknownNameError(
                    "class of the model (labels=... names them in its order)", record.label, classes
                )
            items.append(
                MeasureItem(record.id, (query,), (fold_case(query[0]),), fold_case(record.label))
            )
        query_kind: Literal["follows", "classify"] = "follows" if is_next_sentence else "classify"
        metadata = FrozenDict({"classes": classes})
        return (QuerySet(query_kind, FrozenDict({}), ("texts",), tuple(items), metadata=metadata),)

    def probabilities(self, responses: Responses) -> torch.Tensor:
        """`[texts, classes]` class probabilities."""
        p = responses.values[:, 0].exp()
        require_decisions(p)
        return p

    def true_classes(self, responses: Responses) -> torch.Tensor:
        """`[texts]` index of each text's label."""
        classes = cast("list[str]", list(responses.metadata["classes"]))  # type: ignore[arg-type]
        return torch.tensor([classes.index(item.group) for item in responses.items])

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The accuracy and its smooth surrogate."""
        accuracy, likelihood = super().formulas
        interval = constant_share_percent_interval
        return replace(accuracy, closed_form_interval=interval), likelihood
