"""Tasks a model is made a classifier for: which data, which classes, which metric.

GLUE (Wang et al. 2018) and inference as Dawkins et al. 2024 use it. Metrics are GLUE's own; of two,
the one that Yang et al. 2025 print first (Table 2) leads. Of some tasks the training part is too
large for what other repositories carry: a file of one's own stands in for it, and for any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final, get_args

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.files import file_hash
from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import NLI
from levelhead.data.records import Labelled, TextPair
from levelhead.data.tokenize import folded
from levelhead.data.user_files import own_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Part = Literal["train", "dev", "test"]
Metric = Literal["accuracy", "F1", "Matthews", "Pearson", "Spearman"]
Example = TextPair | Labelled
Source = tuple[str, str]
"""A data set and a part of it."""
HIGHEST = 5.0
"""Of a score; the lowest is 0."""
PAIR = ("sentence1", "sentence2", "label")
ENTAILED = ("entailment", "not_entailment")


@final
@dataclass(frozen=True, kw_only=True)
class Task:
    """A row of the table."""

    name: str
    about: str
    cannot: str
    """What its number cannot tell."""
    train: tuple[Source, ...] = ()
    dev: tuple[Source, ...] = ()
    test: tuple[Source, ...] = ()
    labels: tuple[str, ...] = ()
    """The classes, in the order in which published files number them; none: a score, 0 to 5."""
    metrics: tuple[Metric, ...] = ("accuracy",)
    """The first leads. F1 is of the second class, as in GLUE."""
    columns: tuple[str, ...] = PAIR
    """What a file of one's own calls its text, or two texts, and the label."""
    epochs: float = 3.0
    """How often the training part is shown, if nobody says otherwise."""

    @property
    def is_score(self) -> bool:
        """Whether a number is foretold, and no class."""
        return not self.labels

    def sources(self, part: Part) -> tuple[Source, ...]:
        """The data sets a part is made of; an error if there is none."""
        if part not in get_args(Part):
            raise UnknownName(f"part of {self.name}", part, get_args(Part))
        found: tuple[Source, ...] = getattr(self, part)
        if not found:
            why = "GLUE keeps its labels" if part == "test" else "it is not among the data sets"
            raise LevelheadError(
                f"there is no {part} part of {self.name} to be had: {why}",
                mend=f"give a file of your own (.csv, .tsv, .jsonl) with the columns "
                f"{', '.join(self.columns)}: {part}=FILE",
            )
        return found

    def examples(self, part: Part, file: str | None = None) -> tuple[Example, ...]:
        """The texts of a part, labels by name (a score: as a number).

        Args:
            part: train, dev or test.
            file: your own instead, with the columns that `columns` names.
        """
        found = self._own(file) if file else self._published(part)
        if not found:
            raise LevelheadError(
                f"the {part} part of {self.name} is empty", mend="give a file with rows"
            )
        return tuple(one._replace(label=self.named(one)) for one in found)

    def hashes(self, part: Part, file: str | None = None) -> Mapping[str, str]:
        """SHA-256 of every file that `examples` reads, by name."""
        if file:
            return {f"file {Path(file).name}": file_hash(file)}
        own = [(name, dataset(name).file(of)) for name, of in self.sources(part)]
        return {f"{name}/{one.path}": one.sha256 for name, one in own}

    def _published(self, part: Part) -> list[Example]:
        return [
            one._replace(id=f"{name}-{one.id}")
            for name, of in self.sources(part)
            for one in dataset(name).items(of)
            if isinstance(one, TextPair | Labelled)
        ]

    def _own(self, file: str) -> list[Example]:
        *texts, label = self.columns
        first = own_texts(file, texts[0], label, scores=self.is_score)
        if len(texts) == 1:
            return list(first)
        second = own_texts(file, texts[1])
        return [
            TextPair(one.id, one.text, other.text, one.label)
            for one, other in zip(first, second, strict=True)
        ]

    def named(self, one: Example) -> str:
        """The class by its name, where a file gives its number; a score in one form."""
        if self.is_score:
            return repr(_score(one))
        numbers = {str(i): label for i, label in enumerate(self.labels)}
        told = folded(one.label.strip())
        if told not in (*self.labels, *numbers):
            raise UnknownName(f"label of {self.name} ({one.id})", one.label, self.labels)
        return numbers.get(told, told)


def _score(one: Example) -> float:
    try:
        found = float(one.label)
    except ValueError:
        found = math.nan
    if not 0 <= found <= HIGHEST:
        raise LevelheadError(
            f"{one.id} has the score {one.label!r}", mend="give a number from 0 to 5"
        )
    return found


def text_of(one: Example) -> str | tuple[str, str]:
    """What is shown of an example: its text, or its two texts."""
    return one.text if isinstance(one, Labelled) else (one.first, one.second)


def seen_before(train: Sequence[Example], others: Sequence[Example]) -> int:
    """How many of the others stand in the training part, word for word."""
    known = {text_of(one) for one in train}
    return sum(text_of(one) in known for one in others)


_INFERENCE = "Its annotators' habits tell much of the label from the second text alone."
_SMALL = "Few texts: a point more or less is chance."
_ROWS = (
    Task(
        name="nli",
        about="inference: subsets of SNLI and MultiNLI, judged on SNLI",
        cannot=f"{_INFERENCE} 46,279 pairs are a twentieth of SNLI and MultiNLI.",
        train=(("snli", "train"), ("mnli", "train")),
        dev=(("snli", "dev"),),
        test=(("snli", "test"),),
        labels=NLI,
        columns=("premise", "hypothesis", "label"),
        epochs=2.0,
    ),
    Task(
        name="mnli",
        about="inference: subsets of MultiNLI, matched genres",
        cannot=f"{_INFERENCE} Not the official parts; no mismatched genres.",
        train=(("mnli", "train"),),
        dev=(("mnli", "dev"),),
        test=(("mnli", "heldout"),),
        labels=NLI,
        columns=("sentence1", "sentence2", "gold_label"),
        epochs=2.0,
    ),
    Task(
        name="rte",
        about="does one text follow from another",
        cannot=_SMALL,
        train=(("glue-rte", "train"),),
        dev=(("glue-rte", "dev"),),
        labels=ENTAILED,
    ),
    Task(
        name="mrpc",
        about="do two sentences say the same",
        cannot="Two thirds do: always saying so has a high F1.",
        train=(("glue-mrpc", "train"),),
        dev=(("glue-mrpc", "dev"),),
        test=(("glue-mrpc", "test"),),
        labels=("not_equivalent", "equivalent"),
        metrics=("F1", "accuracy"),
    ),
    Task(
        name="cola",
        about="is a sentence acceptable English",
        cannot="Sentences of linguists: what they argue about, not what people write.",
        train=(("glue-cola", "train"),),
        dev=(("glue-cola", "dev-in"), ("glue-cola", "dev-out")),
        labels=("unacceptable", "acceptable"),
        metrics=("Matthews",),
        columns=("sentence", "label"),
    ),
    Task(
        name="stsb",
        about="how alike are two sentences, from 0 to 5",
        cannot="Captions, headlines and forums; the scale is its annotators'.",
        train=(("glue-stsb", "train"),),
        dev=(("glue-stsb", "dev"),),
        metrics=("Pearson", "Spearman"),
        columns=("sentence1", "sentence2", "score"),
    ),
    Task(
        name="wnli",
        about="whom does a pronoun mean",
        cannot=f"{_SMALL} Its dev part shares sentences with train, labelled the other way round: "
        "what is learned by heart is wrong there.",
        train=(("glue-wnli", "train"),),
        dev=(("glue-wnli", "dev"),),
        labels=("not_entailment", "entailment"),
    ),
    Task(
        name="sst2",
        about="is a phrase of a film review positive",
        cannot="Film reviews only.",
        dev=(("glue-sst2", "dev"),),
        labels=("negative", "positive"),
        columns=("sentence", "label"),
    ),
    Task(
        name="qnli",
        about="does a sentence answer a question",
        cannot="Words that both share tell much of it.",
        dev=(("glue-qnli", "dev"),),
        labels=ENTAILED,
        columns=("question", "sentence", "label"),
    ),
    Task(
        name="qqp",
        about="do two questions ask the same",
        cannot="1,000 pairs of its dev part.",
        dev=(("glue-qqp", "dev"),),
        labels=("not_duplicate", "duplicate"),
        metrics=("F1", "accuracy"),
        columns=("question1", "question2", "is_duplicate"),
    ),
)
TASKS: dict[str, Task] = {row.name: row for row in _ROWS}


def task(name: str) -> Task:
    """A task, by name.

    >>> task("mrpc").metrics
    ('F1', 'accuracy')
    """
    if name not in TASKS:
        raise UnknownName("task", name, TASKS)
    return TASKS[name]
