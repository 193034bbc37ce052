"""Tasks with heads masked (Yang et al. 2025, Table 2)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from levelhead.data.tasks import get_task_spec
from levelhead.locate.validation.random_heads import sample_random_heads
from levelhead.measures.responses import model_key
from levelhead.measures.utility.glue_task import GlueTask
from levelhead.mitigate.evaluation.gain import keep_common_items, resample_paired
from levelhead.mitigate.evaluation.sweep import read_variant_responses
from levelhead.mitigate.evaluation.variant_responses import VariantResponses
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.mitigate.heads.mask_top_heads import RANDOM_HEAD_SETS, select_heads
from levelhead.replication.yang2025.glue_masking import GlueMaskingResult, compute_glue_masking
from levelhead.study.session import StudySession, StudyStep, measure_inputs
from levelhead.study.steps.config import (
    Count,
    Names,
    Reference,
    StrictConfig,
    StudyConfigBase,
    as_tuple,
    forbid_repeated_seeds,
    map_reference,
)
from levelhead.study.steps.head_maps import HeadMapStep
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.steps.trained_models import ClassifierTraining, ensure_classifier
from levelhead.study.table_row import RowCells, estimate_cells

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM


class GlueMaskingStep(StrictConfig):
    """Tasks with heads masked (Yang et al. 2025, Table 2)."""

    map: str
    tasks: Names
    seeds: Annotated[
        tuple[int, ...],
        BeforeValidator(as_tuple),
        Field(min_length=1),
        AfterValidator(forbid_repeated_seeds),
    ] = (0,)
    mask: Literal["before", "after"] = "after"
    """Whether heads are masked during training ("before") or in the trained classifier."""
    k: Count = 3
    random: Annotated[int, Field(ge=0)] = 0
    """Number of random head sets of the same layers per set, as a control. Only for masking after
    training: before it, each set would need a separate training."""
    epochs: Annotated[float, Field(gt=0)] | None = None
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    batch_size: Count = 32
    dropout: bool = True
    """Whether the base model's dropout is active in training."""

    @model_validator(mode="after")
    def _random_after(self) -> Self:
        if self.random and self.mask == "before":
            raise ValueError(
                "random sets of heads can only be masked after training: give mask = 'after'"
            )
        return self

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield map_reference(self.map)

    def check_in(self, config: StudyConfigBase) -> None:
        """Raise an error for unknown tasks."""
        for name in self.tasks:
            get_task_spec(name)


def glue_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per task; steps of one task share their trained models."""
    earlier_steps: dict[str, tuple[str, ...]] = {}
    for name, masks in session.config.rows(GlueMaskingStep).items():
        for task_name in masks.tasks:
            make, step = (
                partial(run_glue_step, session, name, task_name),
                f"glue.{name}.{task_name}",
            )
            # One after the other: steps of one task would train the same classifier at once.
            yield StudyStep(step, make, (f"map.{masks.map}", *earlier_steps.get(task_name, ())))
            earlier_steps[task_name] = (*earlier_steps.get(task_name, ()), step)


def run_glue_step(session: StudySession, name: str, task_name: str) -> GlueMaskingResult:
    """Measure a task without masked heads, with the top k masked, and with all positive ones."""
    row = session.config.rows(GlueMaskingStep)[name]
    head_map, source = session.head_map(row.map), session.config.rows(HeadMapStep)[row.map].model
    sets = {
        f"top {row.k}": select_heads(head_map, "top", row.k),
        "all positive": head_map.positive_heads(),
    }
    masks: dict[str, tuple[Edit, ...]] = {
        set_name: (mask_heads(sites),) for set_name, sites in sets.items()
    }
    base, measure = session.model(source), GlueTask(task=task_name, part="dev")
    for set_name, sites in sets.items():
        # A generator for each set: its random heads do not depend on the other sets.
        rng = session.inference.rng("random heads", set_name)
        random_sets = [
            sample_random_heads(sites, base.layout.heads, rng=rng) for _ in range(row.random)
        ]
        masks |= {
            f"{set_name}, random {i}": (mask_heads(random_sites),)
            for i, random_sites in enumerate(random_sets)
        }
    inputs = {
        # Without the list of tasks: the result of one must not depend on the others.
        "map": head_map.content_hash,
        "row": row.model_dump(exclude={"tasks"}),
        "train": dict(get_task_spec(task_name).hashes("train")),
        "epochs": row.epochs or get_task_spec(task_name).epochs,
        "measure": measure_inputs(measure),
        "model": model_key(base),
    }

    def make() -> GlueMaskingResult:
        metric, resampled = measure.primary_metric, {}
        for seed in row.seeds:
            training = ClassifierTraining(
                task_name, seed, row.epochs, row.learning_rate, row.batch_size, row.dropout
            )
            variant_responses = _read_masked(session, base, training, masks, row)
            responses, _ = keep_common_items(
                [variant_responses.base, *variant_responses.variants.values()]
            )
            resampled[seed] = resample_paired(
                measure, responses, metric.aggregate, metric=metric, inference=session.inference
            )
        return compute_glue_masking(measure, resampled, sets, mask=row.mask, n_random=row.random)

    return session.load_or_compute(GlueMaskingResult, inputs, make)


def _read_masked(
    session: StudySession,
    base: LM,
    training: ClassifierTraining,
    masks: dict[str, tuple[Edit, ...]],
    row: GlueMaskingStep,
) -> VariantResponses:
    """Responses of a classifier on its task, with and without masked heads."""
    measure, task_dir = (
        GlueTask(task=training.task, part="dev"),
        session.folder / "glue" / training.task,
    )
    key = f"{training.seed}"
    source = session.config.rows(HeadMapStep)[row.map].model
    classifier = session.load_trained(
        ensure_classifier(session, base, training, task_dir / key), source
    )
    if row.mask == "after":
        # One classifier for all masks; before training, each mask gives another classifier.
        return read_variant_responses(classifier, measure, masks, context=session.context)
    responses = {}
    for i, (name, edits) in enumerate(masks.items()):
        folder = ensure_classifier(
            session, base, training, task_dir / f"{key}-masked-{i}", edits=edits
        )
        responses[name] = measure.read(
            session.load_trained(folder, source), context=session.context
        )[0]
    return VariantResponses(
        measure, measure.read(classifier, context=session.context)[0], responses
    )


def glue_masking_rows(result: GlueMaskingResult) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    cells: RowCells = {"what": result.metric, "unit": result.unit}
    yield {"name": f"{result.task}, full", "value": result.full, **cells}
    for setting in result.sets:
        name = f"{result.task}, {setting.name} {result.mask} training"
        yield {"name": name, "value": setting.value, **cells}
        if setting.change is not None:
            yield estimate_cells(name, setting.change, f"change of {result.metric}")
        if random := result.random.get(setting.name):
            yield {
                "name": f"{result.task}, random heads of the layers of {setting.name}",
                "what": f"{result.metric}, mean and range; p: that they leave as little",
                "value": sum(random) / len(random),
                "low": min(random),
                "high": max(random),
                "over": f"{len(random)} {RANDOM_HEAD_SETS}",
                "n": len(random),
                "unit": result.unit,
                "p": result.p(setting.name),
            }


GLUE = StepDefinition(GlueMaskingStep, glue_steps, {GlueMaskingResult: glue_masking_rows})
