"""The steps of a study that trains classifiers: for sweeps outside, and tasks with masked heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field

from levelhead.core.results import Estimate, Record
from levelhead.data.tasks import task
from levelhead.locate.controls import random_heads
from levelhead.locate.headmap import label
from levelhead.measure.readouts import model_key
from levelhead.measure.task import Tasked, finetune_on
from levelhead.mitigate.downstream import averaged
from levelhead.mitigate.gains import redrawn, shared
from levelhead.mitigate.heads import mask
from levelhead.mitigate.said import Said
from levelhead.mitigate.swept import SweptSetting, said
from levelhead.mitigate.targeted import chosen
from levelhead.models.finetune import Tuning, finetuned
from levelhead.study.work import told_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from levelhead.mitigate.gains import Redrawn
    from levelhead.models.edits import Edit
    from levelhead.models.lm import LM
    from levelhead.study.schema import Masks, Tuned
    from levelhead.study.work import Work


class Trained(Record):
    """A classifier that the study has trained."""

    task: str
    seed: int
    rows: Annotated[int, Field(ge=1)]
    weights: dict[str, str]
    """SHA-256, by file."""


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


class How(NamedTuple):
    """How one classifier is trained."""

    task: str
    seed: int
    epochs: float | None
    rate: float
    batch: int
    dropout: bool


def tuned_of(work: Work, name: str) -> Trained:
    """A classifier; it resumes by itself."""
    row = work.plan.tuned[name]
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


def glue_of(work: Work, name: str, of: str) -> MaskedTask:
    """One task with no head masked, the top k, and all positive ones."""
    row = work.plan.glue[name]
    heads, source = work.map(row.map), work.plan.maps[row.map].model
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
    source = work.plan.maps[row.map].model
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


def _how(row: Tuned) -> How:
    return How(row.task, row.seed, row.epochs, row.rate, row.batch, row.dropout)
