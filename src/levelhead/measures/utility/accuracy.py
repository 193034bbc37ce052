"""Accuracy on the user's labelled texts: a utility, not a bias.

A classifier predicts labels of single texts or of pairs; a next-sentence head predicts labels of
pairs, with the classes `next` and `unrelated`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, cast, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.core.files import file_hash
from levelhead.core.frozen import FrozenDict
from levelhead.data.records import LabelledExample, TextPair
from levelhead.data.tokenize import fold_case
from levelhead.data.user_files import read_user_texts
from levelhead.measures.base import Extras, Measure, RequiredHead, hash_items
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.metric import Metric, all_or_none_interval
from levelhead.measures.reductions import mean, require_decisions, scale_aggregate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Interval
    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

NEXT_SENTENCE_CLASSES = ("next", "unrelated")
"""Classes of a next-sentence head, in the order of its columns."""


@final
@dataclass(frozen=True)
class Accuracy(Measure):
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

    # -- items

    @cached_property
    def items(self) -> tuple[LabelledExample, ...] | tuple[TextPair, ...]:
        """The texts."""
        if isinstance(self.texts, str):
            return read_user_texts(self.texts, self.text, self.label)
        return self.texts

    @property
    def data(self) -> Mapping[str, str]:
        """Hash of the file, or of the user's texts."""
        if isinstance(self.texts, str):
            return {f"file {Path(self.texts).name}": file_hash(self.texts)}
        return {"texts": hash_items(self.texts)}

    @property
    def settings(self) -> dict[str, object]:
        """All options; a file is given by its name, without its folder."""
        settings = super().settings
        return (
            settings | {"texts": Path(self.texts).name} if isinstance(self.texts, str) else settings
        )

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One query for each text or pair."""
        is_next_sentence = "classifier" not in lm.heads
        # Case is folded, because configs and files spell labels differently ("Entailment").
        classes = tuple(map(fold_case, self._classes(lm, is_next_sentence=is_next_sentence)))
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

    def _classes(self, lm: LM, *, is_next_sentence: bool) -> tuple[str, ...]:
        model_classes = NEXT_SENTENCE_CLASSES if is_next_sentence else lm.labels
        names = model_classes if self.labels is None else self.labels
        if names != model_classes and sorted(map(fold_case, names)) == sorted(
            map(fold_case, model_classes)
        ):
            raise LevelheadError(
                f"the model itself names its classes {', '.join(model_classes)}, in this order",
                hint="leave labels out",
            )
        if len(names) != len(model_classes) or len(set(map(fold_case, names))) != len(names):
            raise LevelheadError(
                f"{len(names)} names for {len(model_classes)} classes: {', '.join(model_classes)}",
                hint="name each of them once, in the order of the model's columns",
            )
        return names

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Texts, or first texts of pairs, are sampled, independent of the label."""
        return responses.design()

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The accuracy and its smooth surrogate."""
        accuracy = Metric(
            name="accuracy",
            equation="share of texts whose likeliest class is their label",
            per_item_values=_is_right,
            aggregate=scale_aggregate(100, mean),
            unit="% of texts",
            low=0.0,
            high=100.0,
            direction="larger: more labels are predicted",
            comparability_key="accuracy",
            role="utility",
            worse="lower",
            parity=None,
            smooth_surrogate="accuracy_likelihood",
            closed_form_interval=_constant_interval,
        )
        likelihood = replace(
            accuracy,
            name="accuracy_likelihood",
            equation="mean log-probability of the label",
            per_item_values=lambda responses: _label_probability(responses).log(),
            aggregate=mean,
            unit="nats",
            low=-float("inf"),
            high=0.0,
            direction="larger: labels are likelier",
            comparability_key="accuracy likelihood",
            smooth_surrogate=None,
            closed_form_interval=None,
        )
        return accuracy, likelihood

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The accuracy by label, and the accuracy of always predicting the most common label."""
        responses, estimates, notes = response_sets[0], [], []
        # The baseline of unbalanced labels: an accuracy below it is worse than a constant.
        (label, hits), *_ = Counter(item.group for item in responses.items).most_common(1)
        notes.append(f"always {label}: {100 * hits / len(responses):.1f}% of texts")
        accuracy = self.get_metric("accuracy")
        # Overall accuracy can hide an edit that breaks one class only.
        for label in responses.groups:
            label_responses = responses.select_where("group", label)
            try:
                estimates.append(
                    self.estimate_metric(label_responses, accuracy, inference, f"label: {label}")
                )
            except NotMeasurableError as error:
                notes.append(f"label {label}: {error.problem}")
        return Extras(tuple(estimates), tuple(notes))


def _probabilities(responses: Responses) -> torch.Tensor:
    """`[texts, classes]` class probabilities."""
    p = responses.values[:, 0].exp()
    require_decisions(p)
    return p


def _true_classes(responses: Responses) -> torch.Tensor:
    """`[texts]` index of each text's label."""
    classes = cast("tuple[str, ...]", responses.metadata["classes"])
    return torch.tensor([classes.index(item.group) for item in responses.items])


def _label_probability(responses: Responses) -> torch.Tensor:
    return _probabilities(responses).gather(1, _true_classes(responses)[:, None])[:, 0]


def _is_right(responses: Responses) -> torch.Tensor:
    return (_probabilities(responses).argmax(1) == _true_classes(responses)).double()


def _constant_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval if all or none are right, where resampling has no width."""
    same = float(values.min()) == float(values.max())
    return all_or_none_interval(values, design, level) if same else None
