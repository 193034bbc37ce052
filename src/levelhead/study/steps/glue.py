"""Tasks with heads masked (Yang et al. 2025, Table 2)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from levelhead.core.results import Estimate, Record
from levelhead.data.tasks import get_task_spec
from levelhead.locate.head_map import head_label
from levelhead.locate.validation.random_heads import sample_random_heads
from levelhead.measures.responses import model_key
from levelhead.measures.utility.glue_task import GlueTask
from levelhead.mitigate.evaluation.gain import keep_common_items, resample_paired
from levelhead.mitigate.evaluation.sweep import VariantRow, read_variant_responses
from levelhead.mitigate.evaluation.variant_responses import VariantResponses
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.mitigate.heads.mask_top_heads import RANDOM_HEAD_SETS, select_heads
from levelhead.replication.dawkins2024.downstream import average_resamples
from levelhead.study.row import RowCells, estimate_cells
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
from levelhead.study.steps.made_models import ClassifierTraining, ensure_classifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.mitigate.evaluation.gain import PairedResamples
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


class GlueMaskingResult(Record):
    """The utility cost of masking heads on one task: a column of Yang et al. 2025, Table 2."""

    task: str
    metric: str
    unit: str = ""
    mask: str
    """"before" or "after" training."""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    heads: dict[str, tuple[str, ...]]
    """Heads of every set, by the paper's names."""
    full: float
    """Value without masked heads, averaged over seeds."""
    sets: Annotated[tuple[VariantRow, ...], Field(min_length=1)]
    """Values averaged over seeds; intervals of changes are over items with fixed seeds."""
    per_seed: tuple[dict[str, float], ...]
    """Values by seed; "full" is without masked heads."""
    random: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Values with random heads of the same layers masked, by set, averaged over seeds."""

    def p(self, name: str) -> float:
        """p-value against random heads of the same layers: (b + 1) / (m + 1)."""
        (value,) = (head_set.value for head_set in self.sets if head_set.name == name)
        random = self.random[name]
        return (sum(random_value <= value for random_value in random) + 1) / (len(random) + 1)


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
        metric, per_seed, resampled = measure.primary_metric, [], []
        n_reported = 1 + len(sets)
        for seed in row.seeds:
            training = ClassifierTraining(
                task_name, seed, row.epochs, row.learning_rate, row.batch_size, row.dropout
            )
            variant_responses = _read_masked(session, base, training, masks, row)
            responses, _ = keep_common_items(
                [variant_responses.base, *variant_responses.variants.values()]
            )
            resampled.append(
                resample_paired(
                    measure, responses, metric.aggregate, metric=metric, inference=session.inference
                )
            )
            values = [float(value) for value in resampled[-1].full]
            # zip stops after the named sets; the values of random heads follow them.
            per_seed.append(dict(zip(("full", *sets), values, strict=False)))
        mean = average_resamples(resampled)
        # Random heads are a control and no hypotheses: they are not in the sets' correction.
        of_sets = replace(
            mean, full=mean.full[:n_reported], resamples=mean.resamples[:, :n_reported]
        )
        # Shape [sets, random]: the random heads follow the sets, in their order.
        random = mean.full[n_reported:].reshape(len(sets), row.random).tolist()
        return GlueMaskingResult(
            task=task_name,
            metric=get_task_spec(task_name).metrics[0],
            unit=metric.unit,
            mask=row.mask,
            seeds=row.seeds,
            heads={
                set_name: tuple(head_label(site) for site in sites)
                for set_name, sites in sets.items()
            },
            full=float(mean.full[0]),
            sets=_changes(of_sets, tuple(sets), metric.unit),
            per_seed=tuple(per_seed),
            random=dict(zip(sets, map(tuple, random), strict=True)) if row.random else {},
        )

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


def _changes(mean: PairedResamples, names: Sequence[str], unit: str) -> tuple[VariantRow, ...]:
    effects = mean.effects(sign=-1)
    changes: tuple[Estimate | None, ...] = (None,) * len(names)  # no response changes
    if (effects.standard_errors > 0).any():
        changes = effects.to_estimates([f"change, {set_name}" for set_name in names], unit=unit)
    return tuple(
        VariantRow(name=name, value=float(value), change=change)
        for name, value, change in zip(names, mean.full[1:], changes, strict=True)
    )


def glue_masking_rows(result: GlueMaskingResult) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    cells = {"what": result.metric, "unit": result.unit}
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
