"""The steps of a study that sweeps projections (Dawkins et al. 2024, inside the model)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import Ruler
from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Estimate, Provenance, Record
from levelhead.data.paired import paired, pairs_hash
from levelhead.measure.readouts import model_key
from levelhead.mitigate.choose import Choice, choose
from levelhead.mitigate.claims import Findings, column_of, findings
from levelhead.mitigate.gains import redrawn, shared
from levelhead.mitigate.judged import estimate_base_effect
from levelhead.mitigate.levels import edits_of, has_sent, levels_of, sites_of, subspaces
from levelhead.mitigate.placeboed import Placeboed, placeboed
from levelhead.mitigate.said import Said, best
from levelhead.mitigate.settings import LEVELS, Setting, grid
from levelhead.mitigate.stability import Stability, stability
from levelhead.mitigate.swept import Swept, said, swept
from levelhead.study.work import Step, told_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.data.paired import TextPair
    from levelhead.mitigate.gains import By
    from levelhead.mitigate.settings import Level
    from levelhead.mitigate.subspace import Subspace
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site
    from levelhead.study.schema import Sweeping
    from levelhead.study.work import Work


class Stable(Record):
    """How sure the subspaces are."""

    sites: Annotated[tuple[Stability, ...], Field(min_length=1)]


class OfPairs(Record):
    """The chosen setting fitted on so many pairs."""

    pairs: Annotated[int, Field(ge=1)]
    value: float
    change: Estimate | None = None


class Handful(Record):
    """What a setting changes against the number of pairs it was fitted on."""

    setting: str
    measure: str
    base: Estimate
    sizes: Annotated[tuple[OfPairs, ...], Field(min_length=1)]
    measured_by: Ruler | None = None
    """What it is measured by."""
    provenance: Provenance | None = None


def sweeping(work: Work, name: str, row: Sweeping) -> Iterator[Step]:
    """The steps of one sweep."""
    made = work.makers(row.model)
    if row.stability:
        yield Step(f"stability.{name}", partial(stability_of, work, name), made)
    for one in row.measures:
        yield Step(f"sweep.{name}.{one}", partial(swept_of, work, name, one), made)
    # Those after read what a sweep of the same measure has read, if there is one.
    read = tuple(f"sweep.{name}.{one}" for one in row.measures if one in (row.gain, row.test))
    found = tuple(f"findings.{name}.{one}" for one in dict.fromkeys((row.gain, row.test)))
    for step in found:
        make = partial(findings_of, work, name, step.rpartition(".")[2])
        yield Step(step, make, (*made, *read))
    chosen = f"choice.{name}"
    yield Step(chosen, partial(chosen_of, work, name, "parity"), found)
    if work.measure(row.gain).headline.lean is not None:
        yield Step(f"{chosen}.value", partial(chosen_of, work, name, "value"), (chosen,))
    if row.sizes:
        yield Step(f"pairs.{name}", partial(sized_of, work, name), (chosen,))
    if row.placebos:
        for level in row.levels or LEVELS:
            if level in will_have(work, row.model):
                judged = partial(placeboed_of, work, name, level)
                yield Step(f"placebo.{name}.{level}", judged, (chosen,))


def stability_of(work: Work, name: str) -> Stable:
    """The subspaces, fitted on other pairs that might have been drawn."""
    row = work.plan.sweeps[name]
    lm, pairs = work.model(row.model), _pairs(row)
    parts = sites_of(lm)
    sites = [site for part, own in parts.items() if part != "attn" for site in own]

    def make() -> Stable:
        inference = replace(work.inference, resamples=row.stability or work.inference.resamples)
        found = stability(lm, pairs, sites, centered=row.centered, inference=inference)
        return Stable(sites=found)

    return work.kept(Stable, {"row": told_by(work, row), "draws": row.stability}, make)


def swept_of(work: Work, name: str, measure: str) -> Swept:
    """One measure of all settings."""
    row, own = work.plan.sweeps[name], work.measure(measure)

    def make() -> Swept:
        return swept(_said(work, row, measure), inference=work.inference)

    return work.kept(Swept, {"row": told_by(work, row), "measure": told_of(own)}, make)


def findings_of(work: Work, name: str, measure: str) -> Findings:
    """What the paper says of settings, on one measure."""
    row, own = work.plan.sweeps[name], work.measure(measure)

    def make() -> Findings:
        said = _said(work, row, measure)
        head = own.headline
        over, better = column_of(head)
        readouts, _ = shared([said.base, *said.settings.values()])
        found = redrawn(own, readouts, over, aspect=head, inference=work.inference)
        told = {
            "measure": own.name,
            "better": better,
            "unit": head.unit,
            "measured_by": said.measured_by,
            "provenance": said.judged_by(work.inference),
            "base": estimate_base_effect(own, said.base, inference=work.inference),
        }
        return findings(found, tuple(said.settings), **told)  # type: ignore[arg-type]

    return work.kept(Findings, {"row": told_by(work, row), "measure": told_of(own)}, make)


def chosen_of(work: Work, name: str, by: By) -> Choice:
    """The best setting on dev, reported on test: nearest to parity, or of the smallest value."""
    row = work.plan.sweeps[name]
    measures = [work.measure(one) for one in (row.gain, row.test, *_some(row.price))]
    told = {
        "row": told_by(work, row),
        "most": row.most,
        "by": by,
        "measures": [told_of(one) for one in measures],
    }

    def make() -> Choice:
        dev, test = (replace(_said(work, row, one), by=by) for one in (row.gain, row.test))
        price = None if row.price is None else _said(work, row, row.price)
        return choose(dev, test, price=price, most=row.most, inference=work.inference)

    return work.kept(Choice, told, make)


def sized_of(work: Work, name: str) -> Handful:
    """The chosen setting, fitted on fewer pairs."""
    row, choice = work.plan.sweeps[name], work.done[f"choice.{name}"]
    if not isinstance(choice, Choice) or choice.chosen is None:
        raise NotMeasurable("no setting was chosen", mend="see why in the step before")
    setting = Setting.named(choice.chosen)
    told = {"row": told_by(work, row), "setting": setting.name, "sizes": list(row.sizes or ())}

    def make() -> Handful:
        lm, measure = work.model(row.model), work.measure(row.test)
        sets = {}
        for size in row.sizes or ():
            fitted = subspaces(lm, paired(row.pairs, n=size), centered=row.centered)
            sets[str(size)] = edits_of(lm, setting, fitted)
        found = said(lm, measure, sets, context=work.context)
        result = swept(found, inference=work.inference)
        sizes = tuple(
            OfPairs(pairs=int(one.name), value=one.value, change=one.change)
            for one in result.settings
        )
        told = {
            "measure": measure.name,
            "base": result.base,
            "measured_by": result.measured_by,
            "provenance": result.provenance,
        }
        return Handful(setting=setting.name, sizes=sizes, **told)  # type: ignore[arg-type]

    return work.kept(Handful, told | {"measure": told_of(work.measure(row.test))}, make)


def placeboed_of(work: Work, name: str, level: str) -> Placeboed:
    """The best setting of a level on dev, judged on test by placebos."""
    row = work.plan.sweeps[name]
    measures = [work.measure(one) for one in (row.gain, row.test)]
    told = {"row": told_by(work, row), "level": level, "placebos": row.placebos}

    def make() -> Placeboed:
        lm = work.model(row.model)
        dev = _said(work, row, row.gain)
        own = {one: dev.settings[one] for one in dev.settings if Setting.named(one).level == level}
        chosen = best(replace(dev, settings=own))
        if chosen is None:
            raise NotMeasurable(
                f"no setting of {level} gains on dev", mend="there is none to judge"
            )
        edits = edits_of(lm, Setting.named(chosen), _subspaces(work, row))
        return placeboed(
            lm,
            measures[1],
            edits,
            _pairs(row),
            setting=chosen,
            among=len(own),
            n=row.placebos or 200,
            inference=work.inference,
            context=work.context,
        )

    return work.kept(Placeboed, told | {"measures": [told_of(one) for one in measures]}, make)


def _said(work: Work, row: Sweeping, measure: str) -> Said:
    lm = work.model(row.model)
    sets = {one.name: edits_of(lm, one, _subspaces(work, row)) for one in settings_of(lm, row)}
    return said(lm, work.measure(measure), sets, context=work.context)


def will_have(work: Work, name: str) -> tuple[Level, ...]:
    """The levels of a model, also before the study has made it."""
    plan, source = work.plan, name
    while source in plan.tuned or source in plan.children:
        source = (plan.tuned.get(source) or plan.children[source]).of
    own = levels_of(work.model(source))
    return own if name not in plan.tuned or "sent" in own else ("sent", *own)  # a classifier


def settings_of(lm: LM, row: Sweeping) -> tuple[Setting, ...]:
    """The settings of a sweep, as far as a model has its levels."""
    wanted = [one for one in levels_of(lm) if row.levels is None or one in row.levels]
    return tuple(one for one in grid(sent=has_sent(lm)) if one.level in wanted)


def _subspaces(work: Work, row: Sweeping) -> dict[Site, Subspace]:
    """Fitted once a run, on activations of the model as it is."""
    key = f"{row.model} {row.pairs} {row.n} {row.centered}"
    if key not in work.fitted:
        lm = work.model(row.model)
        work.fitted[key] = subspaces(lm, _pairs(row), centered=row.centered)
    return work.fitted[key]


def _pairs(row: Sweeping) -> tuple[TextPair, ...]:
    return paired(row.pairs, n=row.n)


def told_by(work: Work, row: Sweeping) -> dict[str, object]:
    """All that the edits of a sweep depend on."""
    return {
        "model": model_key(work.model(row.model)),
        "pairs": pairs_hash(_pairs(row)),
        "levels": row.levels,
        "centered": row.centered,
    }


def _some(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)
