"""How well a fine-tuned model does its task, by GLUE's own metric: what an edit costs.

Wang et al. 2018; Yang et al. 2025, Table 2. Texts that share their first part are not independent:
first texts are what is sampled. All numbers are times 100, as GLUE prints them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.data import tasks
from levelhead.data.records import Labelled, TextPair
from levelhead.data.tasks import Metric, Part, text_of
from levelhead.data.tokenize import folded
from levelhead.measures.base import Beside, Measure, Need, items_hash, refuse_idle
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect
from levelhead.measures.reductions import mean, refuse_undecided
from levelhead.measures.utility.glue_metrics import METRICS
from levelhead.models.loading.checkpoints import NoHead

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.data.tasks import Example, Task
    from levelhead.measures.responses import Readouts
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM
    from levelhead.models.training.finetune import Tuning
    from levelhead.stats.designs import Design


@final
@dataclass(frozen=True)
class Tasked(Measure):
    """A task's metric on one of its parts. A price, not a bias: no parity."""

    task: str = "nli"
    """A row of TASKS."""
    part: Part = "dev"
    file: str | None = None
    """Your own texts instead (.csv, .tsv, .jsonl), with the task's columns."""
    texts: tuple[TextPair, ...] | tuple[Labelled, ...] | None = None
    """Or the texts themselves, labels by name."""
    labels: tuple[str, ...] | None = None
    """The classes in the order of the model's columns, where its config does not name them."""

    metrics: ClassVar[dict[str, str]] = {
        "task": "a fine-tuned model's task, by GLUE's own metric",
        "task_likelihood": "log-probability of its labels",
    }
    needs: ClassVar[tuple[Need, ...]] = ("classifier",)
    of_the_model: ClassVar[tuple[str, ...]] = ("labels",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.texts is not None:
            refuse_idle(self, ("part", "file"), "texts of your own")
        if self.file is not None:
            refuse_idle(self, ("part",), "a file of your own")
        if tasks.task(self.task).is_score and self.metric == "task_likelihood":
            raise LevelheadError(
                f"{self.task} foretells a number, which has no likelihood here",
                mend="measure `task`: its correlation is smooth",
            )

    # -- items

    @property
    def row(self) -> Task:
        """The task itself."""
        return tasks.task(self.task)

    @cached_property
    def items(self) -> tuple[Example, ...]:
        """The texts."""
        if self.texts is None:
            return self.row.examples(self.part, self.file)
        return tuple(one._replace(label=self.row.named(one)) for one in self.texts)

    @property
    def data(self) -> Mapping[str, str]:
        """The files, or the texts themselves."""
        if self.texts is not None:
            return {"texts": items_hash(self.texts)}
        return self.row.hashes(self.part, self.file)

    @property
    def settings(self) -> dict[str, object]:
        """Every option; of a file its name, wherever it lies."""
        told = super().settings
        return told | {"file": Path(self.file).name} if self.file else told

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """What the model says of every text, or of both."""
        order = () if self._scored_by(lm) else self._classes(lm)
        items = []
        for one in self.items:
            shown = text_of(one)
            ask = (shown,) if isinstance(shown, str) else shown
            items.append(Item(one.id, (ask,), (folded(ask[0]),), kind=one.label))
        facts, verb = Frozen({"labels": list(order)}), "classify" if order else "rate"
        return (Asked(verb, Frozen({}), ("texts",), tuple(items), facts=facts),)  # type: ignore[arg-type]

    def _scored_by(self, lm: LM) -> bool:
        """Whether this is a task of scores; refused for a model of classes."""
        columns = int(lm.anatomy.model.config.num_labels or 0)
        if self.row.is_score and columns != 1:
            raise NoHead(
                f"{self.task} foretells a number; {lm.identity.name} has {columns} classes",
                mend=f"use a model trained on scores: levelhead finetune --task {self.task}",
            )
        return self.row.is_score

    def _classes(self, lm: LM) -> tuple[str, ...]:
        """The model's classes by name, in the order of its columns: never by number."""
        own = tuple(map(folded, lm.labels))
        names = own if self.labels is None else tuple(map(folded, self.labels))
        wanted = self.row.labels
        if names != own and sorted(names) == sorted(own):
            raise LevelheadError(
                f"the model itself names its classes {', '.join(own)}, in this order",
                mend="leave labels out",
            )
        if sorted(names) != sorted(wanted) or len(names) != len(own):
            raise LevelheadError(
                f"the classifier's classes are {', '.join(lm.labels)}: which is "
                f"{', '.join(wanted)}?",
                mend=f"name them in the order of its columns: labels={'+'.join(wanted)}",
            )
        return names

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """First texts."""
        return readouts.design()

    # -- formulas

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The task's metrics, the leading one first, and the likelihood of labels."""
        first, *others = self.row.metrics
        found = [self._metric(first, "task"), *(self._metric(one, one) for one in others)]
        if self.row.is_score:
            return tuple(found)
        return *found, self._likelihood

    def _metric(self, metric: Metric, name: str) -> Aspect:
        formula = METRICS[metric]
        companion = "task_likelihood" if self.row.labels else "task"
        return Aspect(
            name=name,
            equation=f"100 x {metric}; GLUE, Wang et al. 2018",
            per_item=self._numbers if self.row.is_score else self._answers,
            over=formula.over,
            unit=formula.unit,
            low=formula.low,
            high=100.0,
            direction="larger: the task is done better",
            comparable=f"{self.task}, {metric}",
            role="utility",
            worse="lower",
            parity=None,
            companion=None if metric == "Pearson" else companion,
            closed=formula.closed,
        )

    @property
    def _likelihood(self) -> Aspect:
        return Aspect(
            name="task_likelihood",
            equation="mean log-probability (natural) of the label",
            per_item=lambda readouts: (
                self._p(readouts).gather(1, self._wanted(readouts)[:, None])[:, 0].log()
            ),
            over=mean,
            unit="nats",
            low=-float("inf"),
            high=0.0,
            direction="larger: labels are likelier",
            comparable=f"{self.task}, likelihood",
            role="utility",
            worse="lower",
            parity=None,
        )

    def _p(self, readouts: Readouts) -> torch.Tensor:
        """`[texts, classes]` probabilities in the task's order, whatever the model's."""
        order = cast("list[str]", list(readouts.facts["labels"]))  # type: ignore[arg-type]
        p = readouts.values[:, 0, [order.index(label) for label in self.row.labels]].exp()
        refuse_undecided(p)
        return p

    def _wanted(self, readouts: Readouts) -> torch.Tensor:
        return torch.tensor([self.row.labels.index(item.kind) for item in readouts.items])

    def _answers(self, readouts: Readouts) -> torch.Tensor:
        """`[texts, 3]`: whether it is right; whether the second class was said, and is so."""
        said, wanted = self._p(readouts).argmax(1), self._wanted(readouts)
        return torch.stack([said == wanted, said == 1, wanted == 1], dim=1).double()

    def _numbers(self, readouts: Readouts) -> torch.Tensor:
        """`[texts, 2]`: the score that is foretold, and the true one."""
        said = readouts.values[:, 0, 0]
        wanted = torch.tensor([float(item.kind) for item in readouts.items], dtype=torch.float64)
        for one, whose in ((said, "the model's"), (wanted, "the texts'")):
            if float((one.max() - one.min()).detach()) < 1e-9:
                raise NotMeasurable(
                    f"{whose} scores are all equal: nothing can go with them",
                    mend="check that the model was trained, and that the texts differ",
                )
        return torch.stack([said, wanted], dim=1)

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """What is had without reading anything, and what the number cannot tell."""
        readouts = found[0]
        notes = [f"{self.task}: {self.row.cannot}"]
        if self.row.is_score:
            return Beside(notes=(*notes, "chance: 0"))
        labels = self.row.labels
        counts = Counter(item.kind for item in readouts.items)
        (label, hits), *_ = counts.most_common(1)
        share = counts[labels[1]] / len(readouts)
        chance = {
            "accuracy": f"always {label}: {100 * hits / len(readouts):.1f}% of texts",
            "F1": f"always {labels[1]}: F1 of {200 * share / (1 + share):.1f}",
            "Matthews": "chance: Matthews of 0",
        }
        notes += [chance[metric] for metric in self.row.metrics]
        said = set(self._p(readouts).argmax(1).tolist())
        if len(said) == 1:
            notes.append(f"the model says {labels[said.pop()]} of every text")
        return Beside(notes=tuple(notes))


def finetune_on(
    base: LM | str | os.PathLike[str],
    task: str,
    folder: str | os.PathLike[str],
    *,
    train: str | None = None,
    tuning: Tuning | None = None,
    edits: Sequence[Edit] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Fine-tune a model on a task's training part; killed and called again, it goes on.

    Args:
        base: a pretrained encoder, or its name.
        task: a row of TASKS.
        folder: a new folder, or one to go on with.
        train: a file of your own, with the task's columns, instead of the task's part.
        tuning: how; by default as often as the task says, and else as `Tuning` says.
        edits: masks of heads that are kept while all else is trained.
        progress: is called with steps done and steps in all.
    """
    from levelhead.models.training.finetune import (
        Tuning,
        finetune,
    )  # the Trainer, which measures need not

    row = tasks.task(task)
    shown = [(text_of(one), one.label) for one in row.examples("train", train)]
    return finetune(
        base,
        [(text, float(label)) for text, label in shown] if row.is_score else shown,
        row.labels,
        folder,
        tuning=tuning or Tuning(epochs=row.epochs),
        edits=edits,
        told={"task": task, "data": dict(row.hashes("train", train))},
        progress=progress,
    )
