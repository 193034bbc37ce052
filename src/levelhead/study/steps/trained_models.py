"""Models that a study trains: by continued pretraining, or as classifiers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from pydantic import Field

from levelhead.core.results import Record
from levelhead.data.tasks import get_task_spec
from levelhead.measures.utility.glue_task import finetune_on_task
from levelhead.mitigate.training.methods import TRAINING_METHODS
from levelhead.mitigate.training.variants import MethodName, TrainedVariant
from levelhead.models.training.configs import ContinuedPretrainingConfig, FinetuneConfig
from levelhead.models.training.finetune import read_finetune_record
from levelhead.study.session import StudySession, StudyStep
from levelhead.study.steps.config import Count, Names, Reference, StudyConfigBase, TrainedModelStep
from levelhead.study.steps.kinds import StepDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM
    from levelhead.study.table_row import RowCells


class ContinuedPretrainingStep(TrainedModelStep):
    """A model that the study trains by continued pretraining."""

    method: MethodName
    corpus: Names
    placebo: bool = False
    """Train the method's placebo: the same without its knowledge of groups."""
    lexicon: str = "gender-en"
    steps: Count = 200
    batch_size: Count = 32
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """By default the value of the method."""
    seed: int = 0

    step: ClassVar[str] = "child"
    folder: ClassVar[str] = "children"

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield Reference("model", ("models",), self.base)


class FinetuneStep(TrainedModelStep):
    """A classifier that the study trains from one of its models."""

    task: str
    """Name of a task in data.tasks.TASKS."""
    seed: Annotated[int, Field(ge=0)] = 0
    epochs: Annotated[float, Field(gt=0)] | None = None
    """By default the value of the task."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    batch_size: Count = 32
    dropout: bool = True
    """Whether the base model's dropout is active in training."""

    step: ClassVar[str] = "tuned"
    folder: ClassVar[str] = "tuned"

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield Reference("model", ("models", "continued_pretraining"), self.base)

    def check_in(self, config: StudyConfigBase) -> None:
        """Raise an error for an unknown task."""
        get_task_spec(self.task)


class TrainedClassifier(Record):
    """A classifier that the study has trained."""

    task: str
    seed: int
    rows: Annotated[int, Field(ge=1)]
    weights: dict[str, str]
    """SHA-256 by file."""


class ClassifierTraining(NamedTuple):
    """Training options of one classifier."""

    task: str
    seed: int
    epochs: float | None
    learning_rate: float
    batch_size: int
    dropout: bool


def continued_pretraining_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per model with continued pretraining."""
    for name, row in session.config.rows(ContinuedPretrainingStep).items():
        yield StudyStep(
            f"child.{name}",
            partial(run_continued_pretraining_step, session, name),
            session.steps_that_train(row.base),
        )


def finetune_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per classifier."""
    for name, row in session.config.rows(FinetuneStep).items():
        yield StudyStep(
            f"tuned.{name}",
            partial(run_finetune_step, session, name),
            session.steps_that_train(row.base),
        )


def run_continued_pretraining_step(session: StudySession, name: str) -> TrainedVariant:
    """Run continued pretraining; an interrupted run resumes."""
    row = session.config.rows(ContinuedPretrainingStep)[name]
    method = TRAINING_METHODS[row.method]
    training_config = ContinuedPretrainingConfig(
        steps=row.steps,
        batch_size=row.batch_size,
        learning_rate=row.learning_rate or method.learning_rate,
        seed=row.seed,
        threads=session.config.threads,
    )
    model_dir = session.folder / "children" / name
    # Training puts its unfinished files next to the folder of the model.
    model_dir.parent.mkdir(exist_ok=True)
    return method.make(row.lexicon)(
        session.model(row.base),
        list(row.corpus),
        model_dir,
        config=training_config,
        placebo=row.placebo,
        progress=session.progress_callback(name),
    )


def run_finetune_step(session: StudySession, name: str) -> TrainedClassifier:
    """Train a classifier; an interrupted run resumes."""
    row = session.config.rows(FinetuneStep)[name]
    folder = ensure_classifier(
        session, session.model(row.base), _classifier_training(row), session.folder / "tuned" / name
    )
    report = read_finetune_record(folder)
    return TrainedClassifier(
        task=row.task, seed=row.seed, rows=report["rows"], weights=report["weights"]
    )


def ensure_classifier(
    session: StudySession,
    base: LM,
    training: ClassifierTraining,
    folder: Path,
    *,
    edits: Sequence[Edit] = (),
) -> Path:
    """The folder of a classifier, which is trained if it does not exist."""
    tuning = FinetuneConfig(
        epochs=training.epochs or get_task_spec(training.task).epochs,
        learning_rate=training.learning_rate,
        batch_size=training.batch_size,
        dropout=training.dropout,
        seed=training.seed,
        # A part of the training: another number of threads gives other weights.
        threads=session.config.threads,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    progress = session.progress_callback(f"{training.task}, seed {training.seed}")
    return finetune_on_task(
        base, training.task, folder, config=tuning, edits=edits, progress=progress
    )


def _classifier_training(row: FinetuneStep) -> ClassifierTraining:
    return ClassifierTraining(
        row.task, row.seed, row.epochs, row.learning_rate, row.batch_size, row.dropout
    )


def trained_variant_rows(result: TrainedVariant) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    name = f"{result.method}, placebo" if result.placebo else result.method
    for what in ("texts", "twins", "rows_seen"):
        yield {"name": name, "what": what, "value": getattr(result, what)}


def classifier_rows(result: TrainedClassifier) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    yield {"name": result.task, "what": f"texts shown, seed {result.seed}", "value": result.rows}


CONTINUED_PRETRAINING = StepDefinition(
    ContinuedPretrainingStep, continued_pretraining_steps, {TrainedVariant: trained_variant_rows}
)
FINETUNING = StepDefinition(FinetuneStep, finetune_steps, {TrainedClassifier: classifier_rows})
