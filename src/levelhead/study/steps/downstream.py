"""A sweep's settings again, in classifiers (Dawkins et al. 2024, Tables 5, 6 and 7)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from levelhead.core.calibration import mark_of
from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.data.counterfactuals.contrast_pairs import paired
from levelhead.measures.responses import model_key
from levelhead.mitigate.evaluation.gain import redrawn, shared
from levelhead.mitigate.evaluation.sweep import Swept, said, swept
from levelhead.mitigate.projection.baselines import sentence_debias
from levelhead.mitigate.projection.edit_points import edits_of, subspaces
from levelhead.mitigate.projection.subspace import readable
from levelhead.mitigate.selection.simultaneous_bounds import measurable
from levelhead.replication.dawkins2024.claims import column_of
from levelhead.replication.dawkins2024.downstream import Downstream, Measured, Viability, downstream
from levelhead.study.row import RowCells, estimate_cells
from levelhead.study.session import Step, told_of
from levelhead.study.steps.config import Names, PlanBase, Reference, Strict, measure_named
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.steps.made_models import Tuned
from levelhead.study.steps.projection_sweep import (
    Sweeping,
    findings_rows,
    settings_of,
    told_by,
    will_have,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.mitigate.evaluation.gain import Redrawn
    from levelhead.mitigate.evaluation.variant_responses import Said
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM
    from levelhead.study.session import Work


SENT_DEBIAS = "sent-debias"


class Outside(Strict):
    """The settings of a sweep again, in classifiers (Dawkins et al. 2024, Tables 5, 6 and 7)."""

    sweep: str
    """Of the pretrained model."""
    inside: Names
    """Measures of it."""
    models: Names
    """Classifiers that are averaged: one task, several seeds."""
    outside: Names
    """Measures of them, the price among them."""
    price: str
    keep: Annotated[float, Field(ge=0)] = 0.05
    """What a viable setting may lose of the price: in its unit, or as a share of the base's."""
    viability: Viability = "relative"
    subspaces: Literal["refitted", "reused"] = "refitted"
    """Fitted on each classifier, or those of the pretrained model."""

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield Reference("sweep", ("sweeps",), self.sweep)
        for name in self.models:
            yield Reference("classifier", ("tuned",), name)
        yield from map(measure_named, (*self.inside, *self.outside))

    def check_in(self, plan: PlanBase) -> None:
        """Refuse classifiers of another model or task, the same one twice, and columns likewise."""
        if self.price not in self.outside:
            raise UnknownName("price among the measures outside", self.price, self.outside)
        if twice := sorted({*self.inside} & {*self.outside}):
            raise LevelheadError(
                f"{twice[0]} is a measure inside and outside",
                mend="give one of them a name of its own",
            )
        made = [plan.rows(Tuned)[name] for name in self.models]
        if {one.of for one in made} != {plan.rows(Sweeping)[self.sweep].model}:
            raise LevelheadError(
                "classifiers of another model than the sweep's", mend="compare a model with its own"
            )
        if len({one.task for one in made}) > 1 or len({one.seed for one in made}) < len(made):
            raise LevelheadError(
                "classifiers that are averaged differ in more than their seed, or not in it",
                mend="give one task and a seed to each",
            )


def downstream_steps(work: Work) -> Iterator[Step]:
    """The steps of every comparison with classifiers."""
    for name, row in work.plan.rows(Outside).items():
        yield from outside(work, name, row)


def outside(work: Work, name: str, row: Outside) -> Iterator[Step]:
    """Every measure of every classifier, and what they say together."""
    of = work.plan.rows(Sweeping)[row.sweep].model
    if "sent" not in will_have(work, of):  # settings of classifiers are named by a level it has not
        raise LevelheadError(
            f"{of}, which [downstream.{name}] sets classifiers beside, has no pooled vector",
            mend="sweep a model with a pooler: with its next-sentence head, or its own classifier",
        )
    base = work.makers(of)
    read = [f"sweep.{row.sweep}.{one}" for one in work.plan.rows(Sweeping)[row.sweep].measures]
    for model in row.models:
        for one in row.outside:
            make = partial(swept_of, work, name, model, one)
            read.append(f"outside.{name}.{model}.{one}")
            yield Step(read[-1], make, (*base, *work.makers(model)))
    yield Step(f"downstream.{name}", partial(downstream_of, work, name), tuple(read))


def swept_of(work: Work, name: str, model: str, measure: str) -> Swept:
    """One measure of one classifier with every setting."""
    row, lm, own = work.plan.rows(Outside)[name], work.model(model), work.measure(measure)
    told = _told(work, row) | {"classifier": model_key(lm), "measure": told_of(own)}

    def make() -> Swept:
        found = said(lm, own, _edits(work, row, lm), context=work.context)
        return swept(measurable(found)[0], inference=work.inference)

    return work.kept(Swept, told, make)


def downstream_of(work: Work, name: str) -> Downstream:
    """Tables 5, 6 and 7."""
    row = work.plan.rows(Outside)[name]
    sweep = work.plan.rows(Sweeping)[row.sweep]
    base, models = work.model(sweep.model), [work.model(one) for one in row.models]
    measures = [work.measure(one) for one in (*row.inside, *row.outside)]
    told = _told(work, row) | {
        "row": row.model_dump(),
        "classifiers": [model_key(lm) for lm in models],
        "measures": [told_of(one) for one in measures],
    }

    def make() -> Downstream:
        asked = [(one, base) for one in row.inside]
        asked += [(one, lm) for one in row.outside for lm in models]
        read = {one: _measured(work, one, base) for one in row.inside}
        read |= {one: _measured(work, one, models[0]) for one in row.outside}
        every = [(read[one], _said(work, lm, row, one)) for one, lm in asked]
        each = [tuple(_edits(work, row, lm)) for lm in (base, *models)]
        wanted = tuple(dict.fromkeys(name for names in each for name in names))
        names = tuple(one for one in wanted if all(one in own.settings for _, own in every))
        found: dict[Measured, list[Redrawn]] = {}
        for measure, own in every:
            found.setdefault(measure, []).append(_redrawn(work, own, names))
        inside = {read[one]: found[read[one]][0] for one in row.inside}
        outer = {read[one]: found[read[one]] for one in row.outside}
        left_out = tuple(one for one in wanted if one not in names)
        rule = {"price": row.price, "keep": row.keep, "viability": row.viability}
        judged = [own.judged_by(work.inference) for _, own in every]
        told = {"left_out": left_out, "provenance": [one for one in judged if one is not None]}
        return downstream(names, inside, outer, **rule, **told)  # type: ignore[arg-type]

    return work.kept(Downstream, told, make)


def _said(work: Work, lm: LM, row: Outside, measure: str) -> Said:
    """What a model says with every setting that has a value; behind all that is read: as it is."""
    edits = _edits(work, row, lm)
    found = said(lm, work.measure(measure), edits, context=work.context)
    kept, _ = measurable(found)
    every = {**kept.settings, **dict.fromkeys(kept.behind, kept.base)}
    return replace(kept, settings=every, behind=())


def _redrawn(work: Work, own: Said, names: Sequence[str]) -> Redrawn:
    readouts, _ = shared([own.base, *(own.settings[name] for name in names)])
    head = own.measure.headline
    over, _ = column_of(head)
    return redrawn(own.measure, readouts, over, aspect=head, inference=work.inference, left=True)


def _measured(work: Work, name: str, lm: LM) -> Measured:
    measure = work.measure(name)
    told = {"unit": measure.headline.unit, "measured_by": measure.ruler(lm)}
    return Measured(name=name, better=column_of(measure.headline)[1], **told)  # type: ignore[arg-type]


def _edits(work: Work, row: Outside, lm: LM) -> dict[str, tuple[Edit, ...]]:
    """The 74 settings and SentenceDebias, on this model's activations or the pretrained one's."""
    sweep = work.plan.rows(Sweeping)[row.sweep]
    base = work.model(sweep.model)
    source = base if row.subspaces == "reused" else lm
    key = f"{model_key(source)} {sweep.pairs} {sweep.n} {sweep.centered}"
    if key not in work.debiased:
        pairs = paired(sweep.pairs, n=sweep.n)
        work.fitted[key] = subspaces(source, pairs, centered=sweep.centered)
        work.debiased[key] = sentence_debias(source, readable(source, pairs)[0])
    fitted = work.fitted[key]
    found: dict[str, tuple[Edit, ...]] = {SENT_DEBIAS: work.debiased[key]}
    return found | {one.name: edits_of(lm, one, fitted) for one in settings_of(lm, sweep)}


def _told(work: Work, row: Outside) -> dict[str, object]:
    sweep = work.plan.rows(Sweeping)[row.sweep]
    return {"sweep": told_by(work, sweep), "subspaces": row.subspaces, "also": SENT_DEBIAS}


def downstream_rows(one: Downstream) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    failed = {column.name: mark_of(column.measured_by) for column in one.columns}
    for column in one.columns:
        told = {"what": column.name, "unit": column.unit, "mark": failed[column.name]}
        for name, value in {"base": column.base, **column.settings}.items():
            yield {"name": name, "value": value, **told}
    for best in one.best:
        if best.value is not None:
            told = {"what": f"best by {best.measure}", "mark": failed[best.measure]}
            named = f"{best.level}: {best.setting}"
            yield {"name": named, "value": best.value, "n": best.among, **told}
    what = f"least {one.price} of a viable setting, and how many are"
    yield {"name": "viable", "what": what, "value": one.limit, "n": len(one.viable)}
    both = {
        f"spearman of {a} and {b}": failed[a] or failed[b] for a in one.inside for b in one.outside
    }
    for estimate in one.correlations:
        yield estimate_cells("inside and outside", estimate, mark=both[estimate.name])
    for regret in one.regrets:
        name = f"{regret.setting}, not {regret.best}; they differ: {regret.differ}"
        yield estimate_cells(
            name, regret.lost, mark=failed[regret.chosen_by] or failed[regret.measure]
        )
    for found in one.findings:
        for row in findings_rows(found):
            yield {"mark": mark_of(found.measured_by), **row}


DOWNSTREAM = StepDefinition(Outside, downstream_steps, {Downstream: downstream_rows})
