"""The steps of a study that put a sweep's settings into classifiers (Dawkins et al. 2024, 5)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.data.paired import paired
from levelhead.measure.readouts import model_key
from levelhead.mitigate.baselines import sentence_debias
from levelhead.mitigate.bounds import measurable
from levelhead.mitigate.claims import column_of
from levelhead.mitigate.downstream import Downstream, Measured, downstream
from levelhead.mitigate.gains import redrawn, shared
from levelhead.mitigate.levels import edits_of, subspaces
from levelhead.mitigate.subspace import readable
from levelhead.mitigate.swept import Swept, said, swept
from levelhead.study.projecting import settings_of, told_by, will_have
from levelhead.study.work import Step, told_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.mitigate.gains import Redrawn
    from levelhead.mitigate.said import Said
    from levelhead.models.edits import Edit
    from levelhead.models.lm import LM
    from levelhead.study.schema import Outside
    from levelhead.study.work import Work

SENT_DEBIAS = "sent-debias"


def outside(work: Work, name: str, row: Outside) -> Iterator[Step]:
    """Every measure of every classifier, and what they say together."""
    of = work.plan.sweeps[row.sweep].model
    if "sent" not in will_have(work, of):  # settings of classifiers are named by a level it has not
        raise LevelheadError(
            f"{of}, which [downstream.{name}] sets classifiers beside, has no pooled vector",
            mend="sweep a model with a pooler: with its next-sentence head, or its own classifier",
        )
    base = work.makers(of)
    read = [f"sweep.{row.sweep}.{one}" for one in work.plan.sweeps[row.sweep].measures]
    for model in row.models:
        for one in row.outside:
            make = partial(swept_of, work, name, model, one)
            read.append(f"outside.{name}.{model}.{one}")
            yield Step(read[-1], make, (*base, *work.makers(model)))
    yield Step(f"downstream.{name}", partial(downstream_of, work, name), tuple(read))


def swept_of(work: Work, name: str, model: str, measure: str) -> Swept:
    """One measure of one classifier with every setting."""
    row, lm, own = work.plan.downstream[name], work.model(model), work.measure(measure)
    told = _told(work, row) | {"classifier": model_key(lm), "measure": told_of(own)}

    def make() -> Swept:
        found = said(lm, own, _edits(work, row, lm), context=work.context)
        return swept(measurable(found)[0], inference=work.inference)

    return work.kept(Swept, told, make)


def downstream_of(work: Work, name: str) -> Downstream:
    """Tables 5, 6 and 7."""
    row = work.plan.downstream[name]
    sweep = work.plan.sweeps[row.sweep]
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
    sweep = work.plan.sweeps[row.sweep]
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
    sweep = work.plan.sweeps[row.sweep]
    return {"sweep": told_by(work, sweep), "subspaces": row.subspaces, "also": SENT_DEBIAS}
