"""Accuracy: how often your labelled texts are called what they are. A price, not a bias.

Of single texts or of pairs, by a classifier; of pairs also by a next-sentence head, whose two
classes are `next` and `unrelated`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, cast, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.files import file_hash
from levelhead.core.frozen import Frozen
from levelhead.data.records import Labelled, TextPair
from levelhead.data.tokenize import folded
from levelhead.data.user_files import own_texts
from levelhead.measures.base import Beside, Measure, Need, items_hash
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect, all_or_none
from levelhead.measures.reductions import mean, refuse_undecided, scaled_by

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Interval
    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

FOLLOWS = ("next", "unrelated")
"""The classes of a next-sentence head, in the order in which it is read."""


@final
@dataclass(frozen=True)
class Accuracy(Measure):
    """How often a model calls labelled texts, or pairs of them, by their labels.

    What is sampled is texts, and of pairs the first texts: those that share one are not
    independent, and the same text twice is one.
    """

    texts: str | tuple[Labelled, ...] | tuple[TextPair, ...] = ()
    """A file (.csv, .tsv, .jsonl) of single texts, or texts, or pairs."""
    text: str = "text"
    """The file's column of texts."""
    label: str = "label"
    """The file's column of labels."""
    labels: tuple[str, ...] | None = None
    """Names for the classes in the order of the model's columns, where the data name them so."""

    metrics: ClassVar[dict[str, str]] = {
        "accuracy": "your classifier, your labelled texts: how many are right",
        "accuracy_likelihood": "log-probability of their labels",
    }
    needs: ClassVar[tuple[Need, ...]] = ("classifier", "next_sentence")
    of_the_model: ClassVar[tuple[str, ...]] = ("labels", "classes")

    # -- items

    @cached_property
    def items(self) -> tuple[Labelled, ...] | tuple[TextPair, ...]:
        """The texts."""
        if isinstance(self.texts, str):
            return own_texts(self.texts, self.text, self.label)
        return self.texts

    @property
    def data(self) -> Mapping[str, str]:
        """The file, or the texts themselves."""
        if isinstance(self.texts, str):
            return {f"file {Path(self.texts).name}": file_hash(self.texts)}
        return {"texts": items_hash(self.texts)}

    @property
    def settings(self) -> dict[str, object]:
        """Every option; of a file its name, wherever it lies."""
        told = super().settings
        return told | {"texts": Path(self.texts).name} if isinstance(self.texts, str) else told

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """What the model says of every text."""
        follows = "classifier" not in lm.heads
        classes = tuple(map(folded, self._classes(lm, follows=follows)))
        items = []
        for one in self.items:
            ask = (one.text,) if isinstance(one, Labelled) else (one.first, one.second)
            if follows and len(ask) == 1:
                raise LevelheadError(
                    f"{one.id} is a single text, and a next-sentence head reads pairs",
                    mend="give pairs, or a classifier",
                )
            if folded(one.label) not in classes:
                raise UnknownName(
                    "class of the model (labels=... names them in its order)", one.label, classes
                )
            items.append(Item(one.id, (ask,), (folded(ask[0]),), folded(one.label)))
        verb: Literal["follows", "classify"] = "follows" if follows else "classify"
        facts = Frozen({"classes": classes})
        return (Asked(verb, Frozen({}), ("texts",), tuple(items), facts=facts),)

    def _classes(self, lm: LM, *, follows: bool) -> tuple[str, ...]:
        own = FOLLOWS if follows else lm.labels
        names = own if self.labels is None else self.labels
        if names != own and sorted(map(folded, names)) == sorted(map(folded, own)):
            raise LevelheadError(
                f"the model itself names its classes {', '.join(own)}, in this order",
                mend="leave labels out",
            )
        if len(names) != len(own) or len(set(map(folded, names))) != len(names):
            raise LevelheadError(
                f"{len(names)} names for {len(own)} classes: {', '.join(own)}",
                mend="name each of them once, in the order of the model's columns",
            )
        return names

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Texts, or first texts of pairs, whatever the label."""
        return readouts.design()

    # -- formulas

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The accuracy and its smooth companion, either of them first."""
        accuracy = Aspect(
            name="accuracy",
            equation="share of texts whose likeliest class is their label",
            per_item=_is_right,
            over=scaled_by(100, mean),
            unit="% of texts",
            low=0.0,
            high=100.0,
            direction="larger: more labels are foretold",
            comparable="accuracy",
            role="utility",
            worse="lower",
            parity=None,
            companion="accuracy_likelihood",
            closed=_where_constant,
        )
        likelihood = replace(
            accuracy,
            name="accuracy_likelihood",
            equation="mean log-probability of the label",
            per_item=lambda readouts: _of_label(readouts).log(),
            over=mean,
            unit="nats",
            low=-float("inf"),
            high=0.0,
            direction="larger: labels are likelier",
            comparable="accuracy likelihood",
            companion=None,
            closed=None,
        )
        return accuracy, likelihood

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """The accuracy by label, and what the commonest label alone would give."""
        readouts, estimates, notes = found[0], [], []
        (label, hits), *_ = Counter(item.group for item in readouts.items).most_common(1)
        notes.append(f"always {label}: {100 * hits / len(readouts):.1f}% of texts")
        share = self.aspect("accuracy")
        for label in readouts.groups:
            own = readouts.some(lambda item, label=label: item.group == label)  # type: ignore[misc]
            try:
                estimates.append(self.estimated(own, share, inference, f"label: {label}"))
            except NotMeasurable as error:
                notes.append(f"label {label}: {error.what}")
        return Beside(tuple(estimates), tuple(notes))


def _p(readouts: Readouts) -> torch.Tensor:
    """`[texts, classes]`."""
    p = readouts.values[:, 0].exp()
    refuse_undecided(p)
    return p


def _wanted(readouts: Readouts) -> torch.Tensor:
    """`[texts]` the number of each one's label."""
    classes = cast("list[str]", list(readouts.facts["classes"]))  # type: ignore[arg-type]
    return torch.tensor([classes.index(item.group) for item in readouts.items])


def _of_label(readouts: Readouts) -> torch.Tensor:
    return _p(readouts).gather(1, _wanted(readouts)[:, None])[:, 0]


def _is_right(readouts: Readouts) -> torch.Tensor:
    return (_p(readouts).argmax(1) == _wanted(readouts)).double()


def _where_constant(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's where all or none are right: resampling would give an interval of no width."""
    same = float(values.min()) == float(values.max())
    return all_or_none(values, design, level) if same else None
