"""Performance of a fine-tuned model on its task, by GLUE's metric: the utility cost of an edit.

Wang et al. 2018; Yang et al. 2025, Table 2. Texts that share their first part are not independent:
first texts are sampled. All values are times 100, as in GLUE.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.data import tasks
from levelhead.data.records import LabelledExample, TextPair
from levelhead.data.tasks import TaskMetric, TaskSplit, example_text
from levelhead.data.tokenize import fold_case
from levelhead.measures.base import Extras, Measure, RequiredHead
from levelhead.measures.classification.classes import class_probabilities, match_classes
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.metric import Metric
from levelhead.measures.options import forbid_unused_options, hash_items
from levelhead.measures.reductions import mean
from levelhead.measures.utility.glue_metrics import METRICS
from levelhead.models.loading.checkpoints import MissingHeadError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from levelhead.core.run_context import Inference
    from levelhead.data.tasks import Example, TaskSpec
    from levelhead.measures.items import QueryKind
    from levelhead.measures.responses import Responses
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM
    from levelhead.models.training.configs import FinetuneConfig
    from levelhead.stats.designs import Design


@final
@dataclass(frozen=True)
class GlueTask(Measure):
    """A task's metric on one of its splits. A utility, not a bias: it has no parity."""

    task: str = "nli"
    """Name of a task, a row of TASKS."""
    part: TaskSplit = "dev"
    file: str | None = None
    """Path of a file with the user's texts (.csv, .tsv, .jsonl), with the task's columns."""
    texts: tuple[TextPair, ...] | tuple[LabelledExample, ...] | None = None
    """User's texts, with labels by name."""
    labels: tuple[str, ...] | None = None
    """Classes in the order of the model's columns, if its config does not name them."""

    metrics: ClassVar[dict[str, str]] = {
        "task": "a fine-tuned model's task, by GLUE's own metric",
        "task_likelihood": "log-probability of its labels",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("classifier",)
    model_options: ClassVar[tuple[str, ...]] = ("labels",)
    file_options: ClassVar[tuple[str, ...]] = ("file",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.texts is not None:
            forbid_unused_options(self, ("part", "file"), "texts of your own")
        if self.file is not None:
            forbid_unused_options(self, ("part",), "a file of your own")
        if tasks.get_task_spec(self.task).is_regression and self.metric == "task_likelihood":
            raise LevelheadError(
                f"{self.task} predicts a number, which has no likelihood here",
                hint="measure `task`: its correlation is smooth",
            )

    # -- items

    @property
    def spec(self) -> TaskSpec:
        """The specification of the task."""
        return tasks.get_task_spec(self.task)

    @cached_property
    def items(self) -> tuple[Example, ...]:
        """The texts."""
        if self.texts is None:
            return self.spec.examples(self.part, self.file)
        return tuple(
            example._replace(label=self.spec.canonical_label(example)) for example in self.texts
        )

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the files, or of the user's texts."""
        if self.texts is not None:
            return {"texts": hash_items(self.texts)}
        return self.spec.hashes(self.part, self.file)

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One query for each text or pair."""
        order = () if self._predicts_score(lm) else self._classes(lm)
        items = []
        for example in self.items:
            text = example_text(example)
            query = (text,) if isinstance(text, str) else text
            items.append(
                MeasureItem(example.id, (query,), (fold_case(query[0]),), kind=example.label)
            )
        metadata = FrozenDict({"labels": list(order)})
        query_kind: QueryKind = "classify" if order else "rate"
        return (QuerySet(query_kind, FrozenDict({}), ("texts",), tuple(items), metadata=metadata),)

    def _predicts_score(self, lm: LM) -> bool:
        """Whether the task is a regression; raises an error if the model is a classifier."""
        # transformers marks a regression head by a single label.
        columns = int(lm.layout.model.config.num_labels or 0)
        if self.spec.is_regression and columns != 1:
            raise MissingHeadError(
                f"{self.task} predicts a number; {lm.identity.name} has {columns} classes",
                hint=f"use a model trained on scores: levelhead finetune --task {self.task}",
            )
        return self.spec.is_regression

    def _classes(self, lm: LM) -> tuple[str, ...]:
        return match_classes(lm, self.labels, self.spec.labels)

    def design(self, responses: Responses, metric: Metric) -> Design:
        """First texts are sampled."""
        return responses.design()

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The task's metrics, the main one first, and the likelihood of the labels."""
        first, *other_names = self.spec.metrics
        metrics = [self._metric(first, "task"), *(self._metric(name, name) for name in other_names)]
        if self.spec.is_regression:
            return tuple(metrics)
        return *metrics, self._likelihood

    def _metric(self, metric: TaskMetric, name: str) -> Metric:
        formula = METRICS[metric]
        smooth_surrogate = "task_likelihood" if self.spec.labels else "task"
        return Metric(
            name=name,
            equation=f"100 x {metric}; GLUE, Wang et al. 2018",
            per_item_values=self._scores if self.spec.is_regression else self._predictions,
            aggregate=formula.aggregate,
            unit=formula.unit,
            low=formula.low,
            high=100.0,
            direction="larger: the task is done better",
            comparability_key=f"{self.task}, {metric}",
            role="utility",
            worse="lower",
            parity=None,
            # Pearson is smooth in the predicted scores; the other metrics are step functions.
            smooth_surrogate=None if metric == "Pearson" else smooth_surrogate,
            closed_form_interval=formula.closed_form_interval,
        )

    @property
    def _likelihood(self) -> Metric:
        return Metric(
            name="task_likelihood",
            equation="mean log-probability (natural) of the label",
            per_item_values=lambda responses: (
                self._probabilities(responses)
                .gather(1, self._true_classes(responses)[:, None])[:, 0]
                .log()
            ),
            aggregate=mean,
            unit="nats",
            low=-float("inf"),
            high=0.0,
            direction="larger: labels are likelier",
            comparability_key=f"{self.task}, likelihood",
            role="utility",
            worse="lower",
            parity=None,
        )

    def _probabilities(self, responses: Responses) -> torch.Tensor:
        """`[texts, classes]` probabilities, in the task's order of classes."""
        return class_probabilities(responses, self.spec.labels)

    def _true_classes(self, responses: Responses) -> torch.Tensor:
        return torch.tensor([self.spec.labels.index(item.kind) for item in responses.items])

    def _predictions(self, responses: Responses) -> torch.Tensor:
        """`[texts, 3]`: is right, second class is predicted, second class is true."""
        predicted, true_classes = (
            self._probabilities(responses).argmax(1),
            self._true_classes(responses),
        )
        return torch.stack(
            [predicted == true_classes, predicted == 1, true_classes == 1], dim=1
        ).double()

    def _scores(self, responses: Responses) -> torch.Tensor:
        """`[texts, 2]`: the predicted and the true score."""
        predicted = responses.values[:, 0, 0]
        true_scores = torch.tensor(
            [float(item.kind) for item in responses.items], dtype=torch.float64
        )
        for scores, owner in ((predicted, "the model's"), (true_scores, "the texts'")):
            # A constant list has no correlation: 0 would read as a bad model, not as a broken one.
            if float((scores.max() - scores.min()).detach()) < 1e-9:
                raise NotMeasurableError(
                    f"{owner} scores are all equal: they have no correlation",
                    hint="check that the model was trained, and that the texts differ",
                )
        return torch.stack([predicted, true_scores], dim=1)

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Notes on the chance level, and on the limitations of the task."""
        responses = response_sets[0]
        notes = [f"{self.task}: {self.spec.limitations}"]
        if self.spec.is_regression:
            return Extras(notes=(*notes, "chance: 0"))
        labels = self.spec.labels
        counts = Counter(item.kind for item in responses.items)
        (label, hits), *_ = counts.most_common(1)
        share = counts[labels[1]] / len(responses)
        chance = {
            "accuracy": f"always {label}: {100 * hits / len(responses):.1f}% of texts",
            # Precision is the share and recall is 1: F1 = 2 share / (1 + share).
            "F1": f"always {labels[1]}: F1 of {200 * share / (1 + share):.1f}",
            "Matthews": "chance: Matthews of 0",
        }
        notes += [chance[metric] for metric in self.spec.metrics]
        predicted_classes = set(self._probabilities(responses).argmax(1).tolist())
        if len(predicted_classes) == 1:
            notes.append(f"the model predicts {labels[predicted_classes.pop()]} for every text")
        return Extras(notes=tuple(notes))


def finetune_on_task(
    base: LM | str | os.PathLike[str],
    task: str,
    folder: str | os.PathLike[str],
    *,
    train: str | None = None,
    config: FinetuneConfig | None = None,
    edits: Sequence[Edit] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Fine-tune a model on a task's training split; an interrupted run resumes from its folder.

    Args:
        base: A pretrained encoder, or its name.
        task: Name of a task, a row of TASKS.
        folder: A new folder, or one to resume from.
        train: Path of a file with the task's columns, instead of the task's training split.
        config: Training options; by default the task's epochs and the defaults of `FinetuneConfig`.
        edits: Masks of heads that stay fixed during training.
        progress: Function that is called with the completed and the total number of steps.
    """
    # Imported here, because the Trainer is slow to import and measures do not need it.
    from levelhead.models.training.configs import FinetuneConfig
    from levelhead.models.training.finetune import finetune

    spec = tasks.get_task_spec(task)
    labelled_texts = [
        (example_text(example), example.label) for example in spec.examples("train", train)
    ]
    return finetune(
        base,
        [(text, float(label)) for text, label in labelled_texts]
        if spec.is_regression
        else labelled_texts,
        spec.labels,
        folder,
        config=config or FinetuneConfig(epochs=spec.epochs),
        edits=edits,
        metadata={"task": task, "data": dict(spec.hashes("train", train))},
        progress=progress,
    )
