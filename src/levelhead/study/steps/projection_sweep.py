"""Projections in all settings (Dawkins et al. 2024, inside the model)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from levelhead.core.calibration import Ruler
from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Estimate, Provenance, Record
from levelhead.data.counterfactuals.contrast_pairs import paired, pairs_hash
from levelhead.measures.responses import model_key
from levelhead.mitigate.controls.placebo_report import Placeboed, placeboed
from levelhead.mitigate.controls.placebo_test import NO_EFFECT, estimate_base_effect
from levelhead.mitigate.evaluation.gain import By, redrawn, shared
from levelhead.mitigate.evaluation.sweep import Swept, said, swept
from levelhead.mitigate.evaluation.variant_responses import Said, best
from levelhead.mitigate.projection.config_grid import LEVELS, Level, Setting, grid
from levelhead.mitigate.projection.edit_points import (
    edits_of,
    has_sent,
    levels_of,
    sites_of,
    subspaces,
)
from levelhead.mitigate.projection.subspace_stability import Stability, stability
from levelhead.mitigate.selection.select_on_dev import Choice, choose
from levelhead.replication.dawkins2024.claims import Findings, column_of, findings
from levelhead.study.row import RowCells, estimate_cells, p_cells
from levelhead.study.session import Step, told_of
from levelhead.study.steps.config import (
    Count,
    Counts,
    Draws,
    Names,
    Reference,
    Strict,
    any_model,
    as_tuple,
    measure_named,
)
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.steps.made_models import Tuned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.data.counterfactuals.contrast_pairs import TextPair
    from levelhead.mitigate.projection.subspace import Subspace
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site
    from levelhead.study.session import Work


class Sweeping(Strict):
    """Projections in all settings (Dawkins et al. 2024): chosen on dev, reported on test."""

    model: str
    measures: Names
    """Of every setting."""
    gain: str
    """The measure by which a setting is chosen."""
    test: str
    """The same on other items, for the report."""
    price: str | None = None
    most: float | None = None
    """By how much the price may rise."""
    pairs: str = "gender-en"
    """A lexicon: its words in neutral frames are what subspaces are fitted on."""
    n: Count | None = None
    """Pairs; all by default."""
    centered: bool = False
    levels: Annotated[tuple[Level, ...], BeforeValidator(as_tuple), Field(min_length=1)] | None = (
        None
    )
    """All by default."""
    stability: Draws | None = None
    """Resamples of the pairs."""
    sizes: Counts | None = None
    """Numbers of pairs to fit the chosen setting on."""
    placebos: Annotated[int, Field(ge=200)] | None = None
    """Of the best setting of every level."""

    @model_validator(mode="after")
    def _reports_on_other_items(self) -> Self:
        if self.gain == self.test:
            raise ValueError(f"{self.gain} chooses and reports: test is a measure of other items")
        return self

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield any_model(self.model)
        named = (*self.measures, self.gain, self.test)
        yield from map(measure_named, named if self.price is None else (*named, self.price))


def sweep_steps(work: Work) -> Iterator[Step]:
    """The steps of every sweep."""
    for name, sweep in work.plan.rows(Sweeping).items():
        yield from sweeping(work, name, sweep)


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
    row = work.plan.rows(Sweeping)[name]
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
    row, own = work.plan.rows(Sweeping)[name], work.measure(measure)

    def make() -> Swept:
        return swept(_said(work, row, measure), inference=work.inference)

    return work.kept(Swept, {"row": told_by(work, row), "measure": told_of(own)}, make)


def findings_of(work: Work, name: str, measure: str) -> Findings:
    """What the paper says of settings, on one measure."""
    row, own = work.plan.rows(Sweeping)[name], work.measure(measure)

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
    row = work.plan.rows(Sweeping)[name]
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
    row, choice = work.plan.rows(Sweeping)[name], work.done[f"choice.{name}"]
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
    row = work.plan.rows(Sweeping)[name]
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
    made, source = work.plan.made, name
    while source in made:
        source = made[source].of
    own = levels_of(work.model(source))
    is_classifier = isinstance(made.get(name), Tuned)
    return own if not is_classifier or "sent" in own else ("sent", *own)


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


def swept_rows(one: Swept) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    yield estimate_cells("base", one.base, one.measure)
    for setting in one.settings:
        yield {"name": setting.name, "what": one.measure, "value": setting.value, "unit": one.unit}
        if setting.change is not None:
            yield estimate_cells(setting.name, setting.change)


def findings_rows(one: Findings) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    if one.base is not None:
        what = NO_EFFECT if one.untestable else one.base.name
        yield estimate_cells("base", one.base, what)
    for claim in one.claims:
        name = f"{claim.claim}, {claim.level}"
        if claim.difference is not None:
            yield estimate_cells(name, claim.difference, f"difference of {one.measure}")
        told = {"value": claim.better, "n": claim.pairs}
        yield {"name": name, "what": f"settings with {one.better} {one.measure}", **told}


def choice_rows(one: Choice) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    name = one.chosen or "none"
    if one.base is not None:
        yield estimate_cells("base", one.base)
    for estimate in (one.on_dev, one.corrected, one.on_test, one.change):
        if estimate is not None:
            yield estimate_cells(name, estimate)
    if one.price is not None:
        yield estimate_cells(name, one.price, mark="")
    for agreement in one.agreement:
        for estimate in (agreement.overlap, agreement.spearman, agreement.kendall):
            if estimate is not None:
                yield estimate_cells(f"top {agreement.share:.0%} on dev", estimate)
    for point in one.front.points if one.front else ():
        told = {"value": point.share, "n": one.front.draws if one.front else None}
        yield {"name": point.name, "what": "share of resamples on the front", **told}


def placebo_rows(one: Placeboed) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for own, by in ((one.judged, ""), (one.by_value, "by value: ")):
        if own is None:
            continue
        yield estimate_cells(one.setting, own.gain, f"{by}{own.gain.name}")
        if own.base is not None:
            yield estimate_cells("base", own.base, f"{by}{own.base.name}")
        told = {"n": len(own.placebos), **p_cells(own.p)}
        yield {"name": one.setting, "what": f"{by}placebos, 95%", "value": own.quantile, **told}
        if own.effective is not None:
            what = f"{by}independent placebos that they amount to"
            yield {"name": "placebos", "what": what, "value": own.effective, **told}
        if own.is_testable:
            mitigates = own.mitigates if by else one.mitigates
            yield {"name": one.setting, "what": f"{by}mitigates", "value": int(mitigates)}
        else:
            # A 0 would read as "does not mitigate".
            yield {"name": one.setting, "what": f"{by}{own.outcome}", "value": 1}
        for estimate in (own.significant, own.significant_gains):
            over = {"over": f"{len(own.placebos)} placebos"}
            yield estimate_cells("placebos", estimate, f"{by}{estimate.name}") | over
    angles = {"what": "as many at right angles", "value": one.matched.effective}
    yield {"name": "placebos", **angles, "mark": ""}
    if one.collapse is not None:
        found = one.collapse
        warm = {"what": "temperature", "value": found.temperature}
        yield {"name": one.setting, **warm, "mark": ""}
        if found.gain is not None:
            yield estimate_cells(one.setting, found.gain) | p_cells(found.p)
        if found.over_alike is not None:
            yield estimate_cells(one.setting, found.over_alike)
        yield {"name": one.setting, "what": "beyond lost confidence", "value": int(found.beyond)}


def stability_rows(one: Stable) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for site in one.sites:
        name = " ".join(str(part) for part in site.site if part is not None)
        for estimate in (site.share, site.cosine, site.angle):
            yield estimate_cells(name, estimate)
        for size in site.by_size:
            yield estimate_cells(f"{name}, {size.pairs} pairs", size.cosine)


def pair_budget_rows(one: Handful) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    yield estimate_cells("base", one.base, one.measure)
    for size in one.sizes:
        name = f"{one.setting}, {size.pairs} pairs"
        yield {"name": name, "what": one.measure, "value": size.value}
        if size.change is not None:
            yield estimate_cells(name, size.change)


PROJECTION_SWEEP = StepDefinition(
    Sweeping,
    sweep_steps,
    {
        Stable: stability_rows,
        Swept: swept_rows,
        Findings: findings_rows,
        Choice: choice_rows,
        Handful: pair_budget_rows,
        Placeboed: placebo_rows,
    },
)
