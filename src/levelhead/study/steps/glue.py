"""Tasks with heads masked (Yang et al. 2025, Table 2)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from levelhead.core.results import Estimate, Record
from levelhead.data.tasks import task
from levelhead.locate.head_map import label
from levelhead.locate.validation.random_heads import random_heads
from levelhead.measures.responses import model_key
from levelhead.measures.utility.glue_task import Tasked
from levelhead.mitigate.evaluation.gain import redrawn, shared
from levelhead.mitigate.evaluation.sweep import SweptSetting, said
from levelhead.mitigate.evaluation.variant_responses import Said
from levelhead.mitigate.heads.mask import mask
from levelhead.mitigate.heads.mask_top_heads import SETS, chosen
from levelhead.replication.dawkins2024.downstream import averaged
from levelhead.study.row import RowCells, estimate_cells
from levelhead.study.session import Step, Work, told_of
from levelhead.study.steps.config import (
    Count,
    Names,
    PlanBase,
    Reference,
    Strict,
    as_tuple,
    map_named,
    refuse_repeated,
)
from levelhead.study.steps.head_maps import Located
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.steps.made_models import How, trained

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.mitigate.evaluation.gain import Redrawn
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM


class Masks(Strict):
    """Tasks with heads masked (Yang et al. 2025, Table 2)."""

    map: str
    tasks: Names
    seeds: Annotated[
        tuple[int, ...],
        BeforeValidator(as_tuple),
        Field(min_length=1),
        AfterValidator(refuse_repeated),
    ] = (0,)
    mask: Literal["before", "after"] = "after"
    """Masked while the classifier is trained, or in the trained one."""
    k: Count = 3
    random: Annotated[int, Field(ge=0)] = 0
    """So many sets of random heads of the same layers stand beside every set; masked after training
    only, since before it each would be a training of its own."""
    epochs: Annotated[float, Field(gt=0)] | None = None
    rate: Annotated[float, Field(gt=0)] = 1e-4
    batch: Count = 32
    dropout: bool = True
    """Whether the base's own acts while it is trained."""

    @model_validator(mode="after")
    def _random_after(self) -> Self:
        if self.random and self.mask == "before":
            raise ValueError("random sets of heads are masked after training: say mask = 'after'")
        return self

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield map_named(self.map)

    def check_in(self, plan: PlanBase) -> None:
        """Refuse tasks that there are none of."""
        for name in self.tasks:
            task(name)


class MaskedTask(Record):
    """What masking heads costs on one task: a column of Yang et al. 2025, Table 2."""

    task: str
    metric: str
    unit: str = ""
    mask: str
    """before or after training."""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    heads: dict[str, tuple[str, ...]]
    """Those of every set, by the paper's names."""
    full: float
    """Of no head masked, on average over the seeds."""
    sets: Annotated[tuple[SweptSetting, ...], Field(min_length=1)]
    """On average over the seeds; intervals of the changes over items, seeds as they are."""
    apart: tuple[dict[str, float], ...]
    """Of every seed by itself, no head masked as "full"."""
    random: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """With random heads of the same layers masked, by set, on average over the seeds."""

    def p(self, name: str) -> float:
        """That random heads of the same layers leave as little of the metric: (b + 1) / (m + 1)."""
        (value,) = (one.value for one in self.sets if one.name == name)
        random = self.random[name]
        return (sum(one <= value for one in random) + 1) / (len(random) + 1)


def glue_steps(work: Work) -> Iterator[Step]:
    """A step for every task; those of one task share the models they train."""
    before: dict[str, tuple[str, ...]] = {}
    for name, masks in work.plan.rows(Masks).items():
        for one in masks.tasks:
            make, step = partial(glue_of, work, name, one), f"glue.{name}.{one}"
            yield Step(step, make, (f"map.{masks.map}", *before.get(one, ())))
            before[one] = (*before.get(one, ()), step)


def glue_of(work: Work, name: str, of: str) -> MaskedTask:
    """One task with no head masked, the top k, and all positive ones."""
    row = work.plan.rows(Masks)[name]
    heads, source = work.map(row.map), work.plan.rows(Located)[row.map].model
    sets = {f"top {row.k}": chosen(heads, "top", row.k), "all positive": heads.positive()}
    masks: dict[str, tuple[Edit, ...]] = {one: (mask(sites),) for one, sites in sets.items()}
    base, measure = work.model(source), Tasked(task=of, part="dev")
    for one, sites in sets.items():
        rng = work.inference.rng("random heads", one)
        drawn = [random_heads(sites, base.anatomy.heads, rng=rng) for _ in range(row.random)]
        masks |= {f"{one}, random {i}": (mask(own),) for i, own in enumerate(drawn)}
    told = {
        "map": heads.content_hash,
        "row": row.model_dump(exclude={"tasks"}),
        "train": dict(task(of).hashes("train")),
        "epochs": row.epochs or task(of).epochs,
        "measure": told_of(measure),
        "model": model_key(base),
    }

    def make() -> MaskedTask:
        head, apart, found = measure.headline, [], []
        beside = 1 + len(sets)
        for seed in row.seeds:
            how = How(of, seed, row.epochs, row.rate, row.batch, row.dropout)
            said = _said(work, base, how, masks, row)
            readouts, _ = shared([said.base, *said.settings.values()])
            found.append(
                redrawn(measure, readouts, head.over, aspect=head, inference=work.inference)
            )
            values = [float(value) for value in found[-1].whole]
            apart.append(dict(zip(("full", *sets), values, strict=False)))
        mean = averaged(found)
        # Random heads are no hypotheses: they share no correction with the sets.
        of_sets = replace(mean, whole=mean.whole[:beside], draws=mean.draws[:, :beside])
        random = mean.whole[beside:].reshape(len(sets), row.random).tolist()
        return MaskedTask(
            task=of,
            metric=task(of).metrics[0],
            unit=head.unit,
            mask=row.mask,
            seeds=row.seeds,
            heads={one: tuple(label(site) for site in sites) for one, sites in sets.items()},
            full=float(mean.whole[0]),
            sets=_changes(of_sets, tuple(sets), head.unit),
            apart=tuple(apart),
            random=dict(zip(sets, map(tuple, random), strict=True)) if row.random else {},
        )

    return work.kept(MaskedTask, told, make)


def _said(work: Work, base: LM, how: How, masks: dict[str, tuple[Edit, ...]], row: Masks) -> Said:
    """What a classifier says to its task, with and without heads."""
    measure, place = Tasked(task=how.task, part="dev"), work.folder / "glue" / how.task
    key = f"{how.seed}"
    source = work.plan.rows(Located)[row.map].model
    whole = work.trained(trained(work, base, how, place / key), source)
    if row.mask == "after":
        return said(whole, measure, masks, context=work.context)
    found = {}
    for i, (name, edits) in enumerate(masks.items()):
        folder = trained(work, base, how, place / f"{key}-masked-{i}", edits=edits)
        found[name] = measure.read(work.trained(folder, source), context=work.context)[0]
    return Said(measure, measure.read(whole, context=work.context)[0], found)


def _changes(mean: Redrawn, names: Sequence[str], unit: str) -> tuple[SweptSetting, ...]:
    effects = mean.effects(way=-1)
    changes: tuple[Estimate | None, ...] = (None,) * len(names)  # not one answer changes
    if (effects.errors > 0).any():
        changes = effects.estimates([f"change, {one}" for one in names], unit=unit)
    return tuple(
        SweptSetting(name=name, value=float(value), change=change)
        for name, value, change in zip(names, mean.whole[1:], changes, strict=True)
    )


def masked_task_rows(one: MaskedTask) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    told = {"what": one.metric, "unit": one.unit}
    yield {"name": f"{one.task}, full", "value": one.full, **told}
    for setting in one.sets:
        name = f"{one.task}, {setting.name} {one.mask} training"
        yield {"name": name, "value": setting.value, **told}
        if setting.change is not None:
            yield estimate_cells(name, setting.change, f"change of {one.metric}")
        if random := one.random.get(setting.name):
            yield {
                "name": f"{one.task}, random heads of the layers of {setting.name}",
                "what": f"{one.metric}, mean and range; p: that they leave as little",
                "value": sum(random) / len(random),
                "low": min(random),
                "high": max(random),
                "over": f"{len(random)} {SETS}",
                "n": len(random),
                "unit": one.unit,
                "p": one.p(setting.name),
            }


GLUE = StepDefinition(Masks, glue_steps, {MaskedTask: masked_task_rows})
