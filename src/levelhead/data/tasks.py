"""Classification tasks for fine-tuning: data, classes and metrics.

The tasks are GLUE (Wang et al. 2018) and inference as in Dawkins et al. 2024. Metrics are those of
GLUE; of two, the first is the one that Yang et al. 2025 print first (Table 2). The training parts
of some tasks are too large for other repositories to include; a user's file can replace these and
all other parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final, get_args

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.files import file_hash
from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import NLI_LABELS
from levelhead.data.records import LabelledExample, TextPair
from levelhead.data.tokenize import fold_case
from levelhead.data.user_files import read_user_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TaskSplit = Literal["train", "dev", "test"]
TaskMetric = Literal["accuracy", "F1", "Matthews", "Pearson", "Spearman"]
Example = TextPair | LabelledExample
DatasetPart = tuple[str, str]
"""Name of a data set and of one of its parts."""
MAX_SCORE = 5.0
"""Largest score of a regression task; the smallest is 0."""
PAIR_COLUMNS = ("sentence1", "sentence2", "label")
ENTAILMENT_LABELS = ("entailment", "not_entailment")


@final
@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task: its data, classes and metrics."""

    name: str
    description: str
    limitations: str
    """What the metric of the task cannot show."""
    train: tuple[DatasetPart, ...] = ()
    dev: tuple[DatasetPart, ...] = ()
    test: tuple[DatasetPart, ...] = ()
    labels: tuple[str, ...] = ()
    """Classes, in the order of their numbers in published files; empty for a score of 0 to 5."""
    metrics: tuple[TaskMetric, ...] = ("accuracy",)
    """Metrics; the first is the primary one. F1 is that of the second class, as in GLUE."""
    columns: tuple[str, ...] = PAIR_COLUMNS
    """Columns of a user's file: its text or two texts, and the label."""
    epochs: float = 3.0
    """Default number of training epochs."""

    @property
    def is_regression(self) -> bool:
        """Whether the model predicts a number instead of a class."""
        return not self.labels

    def sources(self, part: TaskSplit) -> tuple[DatasetPart, ...]:
        """Return the data sets of a part; raise an error if there is none.

        Args:
            part: train, dev or test.
        """
        if part not in get_args(TaskSplit):
            raise UnknownNameError(f"part of {self.name}", part, get_args(TaskSplit))
        sources: tuple[DatasetPart, ...] = getattr(self, part)
        if not sources:
            reason = (
                "GLUE does not publish its labels" if part == "test" else "it is no known data set"
            )
            raise LevelheadError(
                f"no {part} part of {self.name} is available: {reason}",
                hint=f"give a file (.csv, .tsv, .jsonl) with the columns "
                f"{', '.join(self.columns)}: {part}=FILE",
            )
        return sources

    def examples(self, part: TaskSplit, file: str | None = None) -> tuple[Example, ...]:
        """Return the examples of a part, with class names or scores as labels.

        Args:
            part: train, dev or test.
            file: a user's file that replaces the part, with the columns in `columns`.
        """
        examples = self._read_user_file(file) if file else self._read_published(part)
        if not examples:
            raise LevelheadError(
                f"the {part} part of {self.name} is empty", hint="give a file with rows"
            )
        return tuple(example._replace(label=self.canonical_label(example)) for example in examples)

    def hashes(self, part: TaskSplit, file: str | None = None) -> Mapping[str, str]:
        """Return the SHA-256 of every file that `examples` reads, by name.

        Args:
            part: train, dev or test.
            file: a user's file that replaces the part.
        """
        if file:
            return {f"file {Path(file).name}": file_hash(file)}
        files = [(name, dataset(name).file(part_name)) for name, part_name in self.sources(part)]
        return {f"{name}/{file_row.path}": file_row.sha256 for name, file_row in files}

    def _read_published(self, part: TaskSplit) -> list[Example]:
        return [
            # Ids are unique within a data set only, and a part may join several.
            example._replace(id=f"{name}-{example.id}")
            for name, part_name in self.sources(part)
            for example in dataset(name).items(part_name)
            if isinstance(example, TextPair | LabelledExample)
        ]

    def _read_user_file(self, file: str) -> list[Example]:
        *texts, label = self.columns
        first = read_user_texts(file, texts[0], label, scores=self.is_regression)
        if len(texts) == 1:
            return list(first)
        # The label is read once, with the first text.
        second = read_user_texts(file, texts[1])
        return [
            TextPair(first_row.id, first_row.text, second_row.text, first_row.label)
            # Both are columns of the same rows, in the order of the file.
            for first_row, second_row in zip(first, second, strict=True)
        ]

    def canonical_label(self, example: Example) -> str:
        """Return the name of a class for its name or number; a score in one text form.

        Args:
            example: an example as it was read.
        """
        if self.is_regression:
            return repr(_parse_score(example))
        # Published GLUE files use numbers, users' files often names.
        numbers = {str(i): label for i, label in enumerate(self.labels)}
        label_text = fold_case(example.label.strip())
        if label_text not in (*self.labels, *numbers):
            raise UnknownNameError(
                f"label of {self.name} ({example.id})", example.label, self.labels
            )
        return numbers.get(label_text, label_text)


def _parse_score(example: Example) -> float:
    try:
        score = float(example.label)
    except ValueError:
        score = math.nan
    # NaN fails this comparison too, so text that is no number is rejected here.
    if not 0 <= score <= MAX_SCORE:
        raise LevelheadError(
            f"{example.id} has the score {example.label!r}", hint="give a number from 0 to 5"
        )
    return score


def example_text(example: Example) -> str | tuple[str, str]:
    """Return the input of the model: the text of an example or its two texts.

    Args:
        example: an example of a task.
    """
    return example.text if isinstance(example, LabelledExample) else (example.first, example.second)


def count_train_overlap(train: Sequence[Example], examples: Sequence[Example]) -> int:
    """Count the examples whose exact text is also in the training part.

    Args:
        train: examples of the training part.
        examples: examples of another part.
    """
    # A text that the model was trained on inflates its score.
    train_texts = {example_text(example) for example in train}
    return sum(example_text(example) in train_texts for example in examples)


_INFERENCE = "Artefacts of annotation predict much of the label from the second text alone."
_SMALL = "Few texts: a difference of one point may be due to randomness."
_TASK_SPECS = (
    TaskSpec(
        name="nli",
        description="inference: subsets of SNLI and MultiNLI, evaluated on SNLI",
        limitations=f"{_INFERENCE} 46,279 pairs are a twentieth of SNLI and MultiNLI.",
        train=(("snli", "train"), ("mnli", "train")),
        dev=(("snli", "dev"),),
        test=(("snli", "test"),),
        labels=NLI_LABELS,
        columns=("premise", "hypothesis", "label"),
        epochs=2.0,
    ),
    TaskSpec(
        name="mnli",
        description="inference: subsets of MultiNLI, matched genres",
        limitations=f"{_INFERENCE} Not the official parts; no mismatched genres.",
        train=(("mnli", "train"),),
        dev=(("mnli", "dev"),),
        test=(("mnli", "heldout"),),
        labels=NLI_LABELS,
        columns=("sentence1", "sentence2", "gold_label"),
        epochs=2.0,
    ),
    TaskSpec(
        name="rte",
        description="does one text follow from another",
        limitations=_SMALL,
        train=(("glue-rte", "train"),),
        dev=(("glue-rte", "dev"),),
        labels=ENTAILMENT_LABELS,
    ),
    TaskSpec(
        name="mrpc",
        description="do two sentences have the same meaning",
        limitations="Two thirds are equivalent: a constant answer has a high F1.",
        train=(("glue-mrpc", "train"),),
        dev=(("glue-mrpc", "dev"),),
        test=(("glue-mrpc", "test"),),
        labels=("not_equivalent", "equivalent"),
        metrics=("F1", "accuracy"),
    ),
    TaskSpec(
        name="cola",
        description="is a sentence acceptable English",
        limitations="Sentences of linguistics papers, not of everyday text.",
        train=(("glue-cola", "train"),),
        dev=(("glue-cola", "dev-in"), ("glue-cola", "dev-out")),
        labels=("unacceptable", "acceptable"),
        metrics=("Matthews",),
        columns=("sentence", "label"),
    ),
    TaskSpec(
        name="stsb",
        description="how similar are two sentences, from 0 to 5",
        limitations="Captions, headlines and forums; the scale is that of its annotators.",
        train=(("glue-stsb", "train"),),
        dev=(("glue-stsb", "dev"),),
        metrics=("Pearson", "Spearman"),
        columns=("sentence1", "sentence2", "score"),
    ),
    TaskSpec(
        name="wnli",
        description="whom does a pronoun refer to",
        limitations=f"{_SMALL} Its dev part shares sentences with train, with opposite labels: "
        "memorised answers are wrong there.",
        train=(("glue-wnli", "train"),),
        dev=(("glue-wnli", "dev"),),
        labels=("not_entailment", "entailment"),
    ),
    TaskSpec(
        name="sst2",
        description="is a phrase of a film review positive",
        limitations="Film reviews only.",
        dev=(("glue-sst2", "dev"),),
        labels=("negative", "positive"),
        columns=("sentence", "label"),
    ),
    TaskSpec(
        name="qnli",
        description="does a sentence answer a question",
        limitations="Shared words predict much of the label.",
        dev=(("glue-qnli", "dev"),),
        labels=ENTAILMENT_LABELS,
        columns=("question", "sentence", "label"),
    ),
    TaskSpec(
        name="qqp",
        description="do two questions have the same meaning",
        limitations="Only 1,000 pairs of its dev part.",
        dev=(("glue-qqp", "dev"),),
        labels=("not_duplicate", "duplicate"),
        metrics=("F1", "accuracy"),
        columns=("question1", "question2", "is_duplicate"),
    ),
)
TASKS: dict[str, TaskSpec] = {row.name: row for row in _TASK_SPECS}


def get_task_spec(name: str) -> TaskSpec:
    """Return a task, by name.

    >>> get_task_spec("mrpc").metrics
    ('F1', 'accuracy')
    """
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return TASKS[name]
