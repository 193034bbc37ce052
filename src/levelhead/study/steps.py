"""The steps of a study: one function each, whose result is kept under the hash of its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from levelhead.core.results import Measurement
from levelhead.data.published import any_lexicon
from levelhead.explain.counterstereotype import CounterStereotype, counterstereotype
from levelhead.explain.example import Example, example
from levelhead.explain.knowledge import Knowledge, knowledge
from levelhead.explain.pairs import attribute_first, drawn
from levelhead.explain.sources import pairs_from, templated
from levelhead.locate.compare import MapComparison, compare_maps
from levelhead.locate.controls import Control, control
from levelhead.locate.describe import Description, describe
from levelhead.locate.find import locate, without_each
from levelhead.locate.greedy import Greedy, confirmed, greedy
from levelhead.locate.headmap import HeadMap
from levelhead.locate.repeated import Repeated, repeated
from levelhead.measure import skills
from levelhead.measure.cloze import Cloze
from levelhead.measure.readouts import model_key
from levelhead.mitigate.amplify import Amplified, amplify
from levelhead.mitigate.children import Child, cda, dropout
from levelhead.mitigate.targeted import Lines, Targeted, chosen, lines, targeted
from levelhead.models.continue_training import Schooling
from levelhead.study.outside import outside
from levelhead.study.pairing import compared_with, probed
from levelhead.study.projecting import sweeping
from levelhead.study.tuning import glue_of, tuned_of
from levelhead.study.work import Step, Work, told_of

if TYPE_CHECKING:
    from levelhead.explain.pairs import Pairs
    from levelhead.models.lm import LM
    from levelhead.study.schema import Explained, Located


Steps = Iterator[Step]


def steps(work: Work) -> Steps:
    """Every step, in an order in which each finds what it needs."""
    for part in (_models, _cells, _pairs, _maps, _with_maps, _settings, _tasks):
        yield from part(work)


def _models(work: Work) -> Steps:
    for name, child in work.plan.children.items():
        yield Step(f"child.{name}", partial(child_of, work, name), work.makers(child.of))
    for name, tuned in work.plan.tuned.items():
        yield Step(f"tuned.{name}", partial(tuned_of, work, name), work.makers(tuned.of))


def _cells(work: Work) -> Steps:
    for name, cells in work.plan.cells.items():
        for model in cells.models:
            for one in cells.measures:
                make = partial(measured_of, work, model, one)
                yield Step(f"cell.{name}.{model}.{one}", make, work.makers(model))


def _pairs(work: Work) -> Steps:
    for name, pair in work.plan.against.items():
        for one in pair.measures:
            make = partial(compared_with, work, pair, one)
            yield Step(f"against.{name}.{one}", make, work.makers(pair.first, pair.second))
    for name, row in work.plan.removed.items():
        yield Step(f"removed.{name}", partial(probed, work, row), work.makers(row.model))


def _maps(work: Work) -> Steps:
    for name, row in work.plan.maps.items():
        yield Step(f"map.{name}", partial(map_of, work, name), work.makers(row.model))
        for step in _of_map(work, name, row):
            yield step._replace(after=(f"map.{name}",))


def _with_maps(work: Work) -> Steps:
    for kind, make in (
        ("masking", masked_of),
        ("lines", lines_of),
        ("amplify", amplified_of),
        ("explain", explained_of),
        ("knowledge", knowledge_of),
        ("compare", compared_of),
    ):
        for name, row in getattr(work.plan, kind).items():
            maps = row.maps if kind == "compare" else () if kind == "knowledge" else (row.map,)
            after = tuple(f"map.{one}" for one in maps)
            if kind == "knowledge":
                after = work.makers(row.model)
            yield Step(f"{kind}.{name}", partial(make, work, name), after)
            if kind == "explain":
                yield Step(f"example.{name}", partial(exampled_of, work, name), after)


def _settings(work: Work) -> Steps:
    for name, sweep in work.plan.sweeps.items():
        yield from sweeping(work, name, sweep)
    for name, outer in work.plan.downstream.items():
        yield from outside(work, name, outer)


def _tasks(work: Work) -> Steps:
    before: dict[str, tuple[str, ...]] = {}  # those of one task share the models they train
    for name, masks in work.plan.glue.items():
        for one in masks.tasks:
            make, step = partial(glue_of, work, name, one), f"glue.{name}.{one}"
            yield Step(step, make, (f"map.{masks.map}", *before.get(one, ())))
            before[one] = (*before.get(one, ()), step)


def _of_map(work: Work, name: str, row: Located) -> Steps:
    if row.describe:
        yield Step(f"describe.{name}", partial(described_of, work, name))
    if row.controls:
        for k in row.control_sizes:
            yield Step(f"control.{name}.{k}", partial(controlled_of, work, name, k))
    if row.splits:
        yield Step(f"splits.{name}", partial(repeated_of, work, name))
    if row.greedy:
        yield Step(f"greedy.{name}", partial(greedy_of, work, name))


def child_of(work: Work, name: str) -> Child:
    """A model trained further; it resumes by itself."""
    row = work.plan.children[name]
    schooling = Schooling(
        steps=row.steps, batch=row.batch, seed=row.seed, threads=work.plan.threads
    )
    place = work.folder / "children" / name
    place.parent.mkdir(exist_ok=True)
    make = cda if row.how == "cda" else dropout
    return make(work.model(row.of), list(row.corpus), place, schooling=schooling)


def measured_of(work: Work, model: str, name: str) -> Measurement:
    """One measure of one model."""
    lm, measure = work.model(model), work.measure(name)
    return work.kept(
        Measurement,
        {"measure": told_of(measure), "model": model_key(lm), "skill": skills.REVISION},
        lambda: measure(lm, inference=work.inference, context=work.context),
    )


def map_of(work: Work, name: str) -> HeadMap:
    """A map of heads."""
    row = work.plan.maps[name]
    lm, measure = work.model(row.model), work.measure(row.measure)
    return work.kept(
        HeadMap,
        {"map": row.model_dump(), "measure": told_of(measure), "model": model_key(lm)},
        lambda: locate(
            lm,
            measure,
            by=row.by,
            parts=row.parts,
            ablation=row.ablation,
            exact=row.exact,
            split=row.split,
            sign=row.sign,
            inference=work.inference,
            context=work.context,
        ),
    )


def described_of(work: Work, name: str) -> Description:
    """A map described beside relabelled ones."""
    row, heads = work.plan.maps[name], work.map(name)
    return work.kept(
        Description,
        {"map": heads.content_hash, "relabellings": row.describe},
        lambda: describe(
            work.measure(row.measure),
            *work.ablated(name),
            relabellings=row.describe or 0,
            inference=work.inference,
            measured_by=heads.measured_by,
        ),
    )


def controlled_of(work: Work, name: str, k: int | str) -> Control:
    """The top heads beside random ones, on the confirm half."""
    row, heads = work.plan.maps[name], work.map(name)
    lm, measure = work.model(row.model), work.measure(row.quick or row.measure)
    sites = chosen(heads, "top", k)  # type: ignore[arg-type]

    def make() -> Control:
        readouts, cut = work.halves(lm, measure, heads)
        cut.refuse_one()
        return control(
            lm,
            measure,
            cut.confirm.of(readouts),
            sites,
            sign=heads.direction.sign,
            draws=row.controls or 199,
            inference=work.inference,
            context=work.context,
        )

    told = {"map": heads.content_hash, "k": k, "draws": row.controls}
    return work.kept(Control, told | {"measure": told_of(measure)}, make)


def repeated_of(work: Work, name: str) -> Repeated:
    """Found and confirmed again and again."""
    row, heads = work.plan.maps[name], work.map(name)
    lm, measure = work.model(row.model), work.measure(row.quick or row.measure)

    def make() -> Repeated:
        readouts, cut = work.halves(lm, measure, heads)
        sites = [one.site for one in heads.heads]
        ablated = without_each(
            lm, measure, readouts, sites, cut=cut, ablation=row.ablation, context=work.context
        )
        return repeated(
            lm,
            measure,
            readouts,
            k=row.k,
            splits=row.splits or 20,
            by=cut.by,
            sign=heads.direction.sign,
            ablated=ablated,
            inference=work.inference,
            context=work.context,
        )

    told = {"map": heads.content_hash, "splits": row.splits, "k": row.k}
    return work.kept(Repeated, told | {"measure": told_of(measure)}, make)


def greedy_of(work: Work, name: str) -> Greedy:
    """Heads chosen one after another, on the find half."""
    row, heads = work.plan.maps[name], work.map(name)
    lm, measure = work.model(row.model), work.measure(row.measure)

    def make() -> Greedy:
        readouts, cut = work.halves(lm, measure, heads)
        cut.refuse_one()
        candidates = heads.positive()[: row.greedy]
        chosen = greedy(
            lm,
            measure,
            cut.find.of(readouts),
            candidates,
            k=row.k,
            sign=heads.direction.sign,
            inference=work.inference,
            context=work.context,
        )
        return confirmed(
            lm,
            measure,
            cut.confirm.of(readouts),
            chosen,
            candidates,
            sign=heads.direction.sign,
            inference=work.inference,
            context=work.context,
        )

    return work.kept(Greedy, {"map": heads.content_hash, "k": row.k, "of": row.greedy}, make)


def masked_of(work: Work, name: str) -> Targeted:
    """Table 1."""
    row = work.plan.masking[name]
    heads = work.map(row.map)
    own = work.plan.maps[row.map]
    lm = work.model(own.model)
    measures = [work.measure(one) for one in (own.measure, *row.prices)]
    told = {"map": heads.content_hash, "k": row.k, "random": row.random}
    return work.kept(
        Targeted,
        told | {"measures": [told_of(one) for one in measures]},
        lambda: targeted(
            lm,
            heads,
            measures,
            k=row.k,
            random=row.random,
            inference=work.inference,
            context=work.context,
        ),
    )


def lines_of(work: Work, name: str) -> Lines:
    """Table 3."""
    row = work.plan.lines[name]
    heads = work.map(row.map)
    lm = work.model(work.plan.maps[row.map].model)
    measures = [(one, work.measure(one)) for one in row.measures]
    told = {"map": heads.content_hash, "every": row.every, "names": list(row.measures)}
    return work.kept(
        Lines,
        told | {"measures": [told_of(one) for _, one in measures]},
        lambda: lines(
            lm,
            heads,
            measures,
            every=row.every,
            inference=work.inference,
            context=work.context,
        ),
    )


def amplified_of(work: Work, name: str) -> Amplified:
    """Amplifying beside masking."""
    row = work.plan.amplify[name]
    heads, own = work.map(row.map), work.plan.maps[row.map]
    lm, measure, price = work.model(own.model), work.measure(own.measure), row.price
    told = {"map": heads.content_hash, "row": row.model_dump(), "k": own.k}
    return work.kept(
        Amplified,
        told | {"measures": [told_of(measure), told_of(work.measure(price))]},
        lambda: amplify(
            lm,
            heads,
            measure,
            work.measure(price),
            k=own.k,
            ks=row.ks,
            factors=row.factors,
            inference=work.inference,
            context=work.context,
        ),
    )


def explained_of(work: Work, name: str) -> CounterStereotype:
    """The counter-stereotype experiment."""
    row, heads, lm, pairs = _explained(work, name)
    placebo = None if row.placebo in (None, "none") else row.placebo
    words = None if placebo is None else any_lexicon(placebo).sha256
    told = {"map": heads.content_hash, "row": row.model_dump(), "placebo": words}
    told["pairs"] = dict(pairs.data)
    return work.kept(
        CounterStereotype,
        told,
        lambda: counterstereotype(
            lm,
            pairs,
            biased=heads.positive(),
            regular=heads.negative(),
            n=row.n,
            off=row.off,
            placebo=placebo,
            inference=work.inference,
        ),
    )


def knowledge_of(work: Work, name: str) -> Knowledge:
    """The battery of Counteracts."""
    row = work.plan.knowledge[name]
    lm = work.model(row.model)
    cloze = Cloze(
        prompts=row.prompts,
        backgrounds=row.backgrounds,
        form=row.form,
        separator=row.separator,
        lexicon=row.lexicon,
    )
    told = {"model": model_key(lm), "measure": told_of(cloze), "parts": row.parts}
    return work.kept(
        Knowledge,
        told,
        lambda: knowledge(
            lm, cloze, parts=row.parts, inference=work.inference, context=work.context
        ),
    )


def exampled_of(work: Work, name: str) -> Example:
    """Figure 3: the first pair of the draw, not the one that looks best."""
    row, heads, lm, pairs = _explained(work, name)
    told = {"map": heads.content_hash, "row": row.model_dump(), "pairs": dict(pairs.data)}

    def make() -> Example:
        own = attribute_first(pairs) if lm.is_causal else pairs
        pair = drawn(own, 2, seed=work.plan.seed, off=row.off).pairs[0]
        return example(lm, pair, biased=heads.top(1), regular=heads.bottom(1))

    return work.kept(Example, told, make)


def _explained(work: Work, name: str) -> tuple[Explained, HeadMap, LM, Pairs]:
    row = work.plan.explain[name]
    heads, lm = work.map(row.map), work.model(work.plan.maps[row.map].model)
    if row.frames:
        return row, heads, lm, templated(any_lexicon(row.frames))
    return row, heads, lm, pairs_from(row.pairs or "")


def compared_of(work: Work, name: str) -> MapComparison:
    """Maps side by side."""
    names = work.plan.compare[name].maps
    maps = [(one, work.map(one)) for one in names]

    def make() -> MapComparison:
        return compare_maps(maps, [work.effects(one) for one in names])

    told = {"maps": [own.content_hash for _, own in maps], "names": list(names)}
    return work.kept(MapComparison, told, make)
