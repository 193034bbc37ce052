"""Models that a study makes: trained further, or made classifiers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from levelhead.core.results import Record
from levelhead.data.tasks import task
from levelhead.measures.utility.glue_task import finetune_on
from levelhead.mitigate.training.cda_and_dropout import Child as TrainedChild
from levelhead.mitigate.training.cda_and_dropout import cda, dropout
from levelhead.models.training.continued_pretraining import Schooling
from levelhead.models.training.finetune import Tuning, finetuned
from levelhead.study.session import Step, Work
from levelhead.study.steps.config import Count, MadeModel, Names, PlanBase, Reference
from levelhead.study.steps.kinds import StepDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM
    from levelhead.study.row import RowCells


class Child(MadeModel):
    """A model trained further, made by the study."""

    how: Literal["cda", "dropout"]
    corpus: Names
    steps: Count = 200
    batch: Count = 32
    seed: int = 0

    step: ClassVar[str] = "child"
    folder: ClassVar[str] = "children"

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield Reference("model", ("models",), self.of)


class Tuned(MadeModel):
    """A classifier, made by the study from one of its models."""

    task: str
    """A row of data.tasks.TASKS."""
    seed: Annotated[int, Field(ge=0)] = 0
    epochs: Annotated[float, Field(gt=0)] | None = None
    """The task's own by default."""
    rate: Annotated[float, Field(gt=0)] = 1e-4
    batch: Count = 32
    dropout: bool = True
    """Whether the base's own acts while it is trained."""

    step: ClassVar[str] = "tuned"
    folder: ClassVar[str] = "tuned"

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield Reference("model", ("models", "children"), self.of)

    def check_in(self, plan: PlanBase) -> None:
        """Refuse a task that there is none of."""
        task(self.task)


class Trained(Record):
    """A classifier that the study has trained."""

    task: str
    seed: int
    rows: Annotated[int, Field(ge=1)]
    weights: dict[str, str]
    """SHA-256, by file."""


class How(NamedTuple):
    """How one classifier is trained."""

    task: str
    seed: int
    epochs: float | None
    rate: float
    batch: int
    dropout: bool


def child_steps(work: Work) -> Iterator[Step]:
    """A step for every model that is trained further."""
    for name, child in work.plan.rows(Child).items():
        yield Step(f"child.{name}", partial(child_of, work, name), work.makers(child.of))


def tuned_steps(work: Work) -> Iterator[Step]:
    """A step for every classifier."""
    for name, tuned in work.plan.rows(Tuned).items():
        yield Step(f"tuned.{name}", partial(tuned_of, work, name), work.makers(tuned.of))


def child_of(work: Work, name: str) -> TrainedChild:
    """A model trained further; it resumes by itself."""
    row = work.plan.rows(Child)[name]
    schooling = Schooling(
        steps=row.steps, batch=row.batch, seed=row.seed, threads=work.plan.threads
    )
    place = work.folder / "children" / name
    place.parent.mkdir(exist_ok=True)
    make = cda if row.how == "cda" else dropout
    return make(work.model(row.of), list(row.corpus), place, schooling=schooling)


def tuned_of(work: Work, name: str) -> Trained:
    """A classifier; it resumes by itself."""
    row = work.plan.rows(Tuned)[name]
    folder = trained(work, work.model(row.of), _how(row), work.folder / "tuned" / name)
    told = finetuned(folder)
    return Trained(task=row.task, seed=row.seed, rows=told["rows"], weights=told["weights"])


def trained(work: Work, base: LM, how: How, folder: Path, *, edits: Sequence[Edit] = ()) -> Path:
    """The folder of a classifier, trained if it is not there."""
    tuning = Tuning(
        epochs=how.epochs or task(how.task).epochs,
        rate=how.rate,
        batch=how.batch,
        dropout=how.dropout,
        seed=how.seed,
        threads=work.plan.threads,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    progress = work.progress(f"{how.task}, seed {how.seed}")
    return finetune_on(base, how.task, folder, tuning=tuning, edits=edits, progress=progress)


def _how(row: Tuned) -> How:
    return How(row.task, row.seed, row.epochs, row.rate, row.batch, row.dropout)


def child_rows(one: TrainedChild) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for what in ("texts", "twins", "shown"):
        yield {"name": one.how, "what": what, "value": getattr(one, what)}


def trained_rows(one: Trained) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    yield {"name": one.task, "what": f"texts shown, seed {one.seed}", "value": one.rows}


CHILDREN = StepDefinition(Child, child_steps, {TrainedChild: child_rows})
TUNED = StepDefinition(Tuned, tuned_steps, {Trained: trained_rows})
