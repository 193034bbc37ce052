"""Run a study: every step is kept under the hash of what it depends on, so it can be resumed.

A step's readings lie in the same store by shard: what is killed loses one shard. Nothing in the
results depends on the clock or on what was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from levelhead.core.canonical import content_hash
from levelhead.core.errors import NotMeasurable
from levelhead.core.files import write_atomic
from levelhead.core.frozen import Frozen
from levelhead.core.results import Measurement, Record
from levelhead.engine.claim import claimed
from levelhead.engine.store import open_store
from levelhead.engine.units import Unit
from levelhead.explain.counterstereotype import CounterStereotype, counterstereotype
from levelhead.explain.sources import pairs_from, templated
from levelhead.locate.compare import MapComparison, compare_maps
from levelhead.locate.controls import Control, control
from levelhead.locate.describe import Description, describe
from levelhead.locate.effects import effects
from levelhead.locate.find import locate, without_each
from levelhead.locate.greedy import Greedy, greedy
from levelhead.locate.headmap import HeadMap
from levelhead.locate.repeated import Repeated, repeated
from levelhead.locate.split import halves
from levelhead.measure.aspects import Judge
from levelhead.measure.readouts import model_key
from levelhead.measure.table import parsed
from levelhead.mitigate.amplify import Amplified, amplify
from levelhead.mitigate.children import Child, cda, dropout
from levelhead.mitigate.targeted import Lines, Targeted, chosen, lines, targeted
from levelhead.models.continue_training import Schooling
from levelhead.models.load import load
from levelhead.study.table import Inconclusive, Row, rows, to_csv

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping

    from levelhead.engine.events import Event
    from levelhead.engine.store import Store
    from levelhead.locate.effects import Effects
    from levelhead.locate.split import Half, Split
    from levelhead.locate.variants import Variants
    from levelhead.measure.measure import Measure
    from levelhead.measure.readouts import Readouts
    from levelhead.models.lm import LM
    from levelhead.study.schema import Located, Plan

WORK = "levelhead.study.run:run"
REVISION = 1
Result = TypeVar("Result", bound=Record)


def run(
    plan: Plan,
    folder: str | Path,
    *,
    on_step: Callable[[str, int, int], None] = lambda name, done, of: None,
    on_event: Callable[[Event], None] = lambda event: None,
    cancel: threading.Event | None = None,
) -> dict[str, Record]:
    """Run what is missing of a study; write `table.csv` and `results/`.

    A step that cannot be measured is Inconclusive, with the reason; it has no row in the table.

    Args:
        plan: the study.
        folder: where everything is kept.
        on_step: is told the step that begins, how many are done, and of how many.
        on_event: is told how far a step is.
        cancel: set it to stop.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with claimed(str(place)):
        study = _Study(plan, place, on_event, cancel)
        steps = list(study.steps())
        for done, (name, make) in enumerate(steps):
            on_step(name, done, len(steps))
            try:
                study.done[name] = make()
            except NotMeasurable as error:
                # One number that cannot be had is no reason to lose the others; it stays empty.
                study.done[name] = Inconclusive(what=error.what, mend=error.mend)
        on_step("done", len(steps), len(steps))
        table: list[Row] = []
        (place / "results").mkdir(exist_ok=True)
        for name, result in study.done.items():
            table += rows(name, result)
            write_atomic(str(place / "results" / f"{name}.json"), result.to_json().encode() + b"\n")
        write_atomic(str(place / "table.csv"), to_csv(table).encode())
    return study.done


@dataclass(eq=False)
class _Study:
    """One run: models are loaded when they are needed, results by name of their step."""

    plan: Plan
    folder: Path
    on_event: Callable[[Event], None]
    cancel: threading.Event | None
    done: dict[str, Record] = field(default_factory=dict)
    _models: dict[str, LM] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where readings and results are kept."""
        return str(self.folder / "store")

    @property
    def store(self) -> Store:
        """The same, open."""
        return open_store(self.url)

    @property
    def judge(self) -> Judge:
        """How chance is judged."""
        plan = self.plan
        return Judge(seed=plan.seed, draws=plan.draws, permutations=plan.permutations)

    def model(self, name: str) -> LM:
        """A model of the study, or a child of one."""
        if name not in self._models:
            source = self.plan.models.get(name)
            if source is None:
                base = self.plan.models[self.plan.children[name].of]
                place = str(self.folder / "children" / name)
                self._models[name] = load(place, dtype=base.dtype, batch_size=base.batch_size)
            else:
                self._models[name] = load(
                    source.path,
                    revision=source.revision,
                    dtype=source.dtype,
                    batch_size=source.batch_size,
                )
        return self._models[name]

    def measure(self, name: str) -> Measure:
        """A measure of the study."""
        return parsed(self.plan.measures[name])

    def steps(self) -> Iterator[tuple[str, Callable[[], Record]]]:
        """Every step, in an order in which each finds what it needs."""
        plan = self.plan
        for name in plan.children:
            yield f"child.{name}", lambda name=name: self.child(name)  # type: ignore[misc]
        for name, cells in plan.cells.items():
            for model in cells.models:
                for one in cells.measures:
                    yield (
                        f"cell.{name}.{model}.{one}",
                        lambda model=model, one=one: self.measured(model, one),  # type: ignore[misc]
                    )
        for name, row in plan.maps.items():
            yield f"map.{name}", lambda name=name: self.map(name)  # type: ignore[misc]
            yield from self._of_map(name, row)
        for kind, make in (
            ("masking", self.masked),
            ("lines", self.lines),
            ("amplify", self.amplified),
            ("explain", self.explained),
            ("compare", self.compared),
        ):
            for name in getattr(plan, kind):
                yield f"{kind}.{name}", lambda make=make, name=name: make(name)  # type: ignore[misc]

    def _of_map(self, name: str, row: Located) -> Iterator[tuple[str, Callable[[], Record]]]:
        if row.describe:
            yield f"describe.{name}", lambda: self.described(name)
        if row.controls:
            for k in row.control_sizes:
                yield f"control.{name}.{k}", lambda k=k: self.controlled(name, k)  # type: ignore[misc]
        if row.splits:
            yield f"splits.{name}", lambda: self.repeated(name)
        if row.greedy:
            yield f"greedy.{name}", lambda: self.greedy(name)

    # -- steps

    def child(self, name: str) -> Child:
        """A model trained further; it resumes by itself."""
        row = self.plan.children[name]
        schooling = Schooling(
            steps=row.steps, batch=row.batch, seed=row.seed, threads=self.plan.threads
        )
        place = self.folder / "children" / name
        place.parent.mkdir(exist_ok=True)
        make = cda if row.how == "cda" else dropout
        return make(self.model(row.of), list(row.corpus), place, schooling=schooling)

    def measured(self, model: str, name: str) -> Measurement:
        """One measure of one model."""
        lm, measure = self.model(model), self.measure(name)
        return self.kept(
            Measurement,
            {"measure": _told(measure), "model": model_key(lm)},
            lambda: measure(lm, judge=self.judge, **self.how),  # type: ignore[arg-type]
        )

    def map(self, name: str) -> HeadMap:
        """A map of heads."""
        row = self.plan.maps[name]
        lm, measure = self.model(row.model), self.measure(row.measure)
        return self.kept(
            HeadMap,
            {"map": row.model_dump(), "measure": _told(measure), "model": model_key(lm)},
            lambda: locate(
                lm,
                measure,
                by=row.by,
                parts=row.parts,
                ablation=row.ablation,
                exact=row.exact,
                split=row.split,
                sign=row.sign,
                judge=self.judge,
                cancel=self.cancel,
                **self.how,  # type: ignore[arg-type]
            ),
        )

    def described(self, name: str) -> Description:
        """A map described beside relabelled ones."""
        row, heads = self.plan.maps[name], self._map(name)
        return self.kept(
            Description,
            {"map": heads.content_hash, "relabellings": row.describe},
            lambda: describe(
                self.measure(row.measure),
                *self._ablated(name),
                relabellings=row.describe or 0,
                judge=self.judge,
            ),
        )

    def controlled(self, name: str, k: int | str) -> Control:
        """The top heads beside random ones, on the confirm half."""
        row, heads = self.plan.maps[name], self._map(name)
        lm, measure = self.model(row.model), self.measure(row.quick or row.measure)
        sites = chosen(heads, "top", k)  # type: ignore[arg-type]

        def make() -> Control:
            readouts, cut = self._halves(lm, measure, heads)
            return control(
                lm,
                measure,
                cut.confirm.of(readouts),
                sites,
                sign=heads.direction.sign,
                draws=row.controls or 199,
                judge=self.judge,
                cancel=self.cancel,
                **self.how,  # type: ignore[arg-type]
            )

        told = {"map": heads.content_hash, "k": k, "draws": row.controls}
        return self.kept(Control, told | {"measure": _told(measure)}, make)

    def repeated(self, name: str) -> Repeated:
        """Found and confirmed again and again."""
        row, heads = self.plan.maps[name], self._map(name)
        lm, measure = self.model(row.model), self.measure(row.quick or row.measure)

        def make() -> Repeated:
            readouts, cut = self._halves(lm, measure, heads)
            sites = [one.site for one in heads.heads]
            told = {"cut": cut, "ablation": row.ablation, **self.how}
            ablated = without_each(lm, measure, readouts, sites, **told)  # type: ignore[arg-type]
            return repeated(
                lm,
                measure,
                readouts,
                k=row.k,
                splits=row.splits or 20,
                by=cut.by,
                sign=heads.direction.sign,
                ablated=ablated,
                judge=self.judge,
                cancel=self.cancel,
                **self.how,  # type: ignore[arg-type]
            )

        told = {"map": heads.content_hash, "splits": row.splits, "k": row.k}
        return self.kept(Repeated, told | {"measure": _told(measure)}, make)

    def greedy(self, name: str) -> Greedy:
        """Heads chosen one after another, on the find half."""
        row, heads = self.plan.maps[name], self._map(name)
        lm, measure = self.model(row.model), self.measure(row.measure)

        def make() -> Greedy:
            readouts, cut = self._halves(lm, measure, heads)
            return greedy(
                lm,
                measure,
                cut.find.of(readouts),
                heads.positive()[: row.greedy],
                k=row.k,
                sign=heads.direction.sign,
                judge=self.judge,
                cancel=self.cancel,
                **self.how,  # type: ignore[arg-type]
            )

        return self.kept(Greedy, {"map": heads.content_hash, "k": row.k, "of": row.greedy}, make)

    def masked(self, name: str) -> Targeted:
        """Table 1."""
        row = self.plan.masking[name]
        heads = self._map(row.map)
        own = self.plan.maps[row.map]
        lm = self.model(own.model)
        measures = [self.measure(one) for one in (own.measure, *row.prices)]
        told = {"map": heads.content_hash, "k": row.k, "random": row.random}
        return self.kept(
            Targeted,
            told | {"measures": [_told(one) for one in measures]},
            lambda: targeted(
                lm,
                heads,
                measures,
                k=row.k,
                random=row.random,
                judge=self.judge,
                **self.how,  # type: ignore[arg-type]
            ),
        )

    def lines(self, name: str) -> Lines:
        """Table 3."""
        row = self.plan.lines[name]
        heads = self._map(row.map)
        lm = self.model(self.plan.maps[row.map].model)
        measures = [(one, self.measure(one)) for one in row.measures]
        told = {"map": heads.content_hash, "every": row.every}
        return self.kept(
            Lines,
            told | {"measures": [_told(one) for _, one in measures]},
            lambda: lines(
                lm,
                heads,
                measures,
                every=row.every,
                judge=self.judge,
                **self.how,  # type: ignore[arg-type]
            ),
        )

    def amplified(self, name: str) -> Amplified:
        """Amplifying beside masking."""
        row = self.plan.amplify[name]
        heads, own = self._map(row.map), self.plan.maps[row.map]
        lm, measure, price = self.model(own.model), self.measure(own.measure), row.price
        told = {"map": heads.content_hash, "row": row.model_dump()}
        return self.kept(
            Amplified,
            told | {"measures": [_told(measure), _told(self.measure(price))]},
            lambda: amplify(
                lm,
                heads,
                measure,
                self.measure(price),
                k=own.k,
                ks=row.ks,
                factors=row.factors,
                judge=self.judge,
                **self.how,  # type: ignore[arg-type]
            ),
        )

    def explained(self, name: str) -> CounterStereotype:
        """The counter-stereotype experiment."""
        from levelhead.data.published import any_lexicon

        row = self.plan.explain[name]
        heads = self._map(row.map)
        lm = self.model(self.plan.maps[row.map].model)
        pairs = templated(any_lexicon(row.frames)) if row.frames else pairs_from(row.pairs or "")
        told = {"map": heads.content_hash, "row": row.model_dump(), "pairs": dict(pairs.data)}
        return self.kept(
            CounterStereotype,
            told,
            lambda: counterstereotype(
                lm,
                pairs,
                biased=heads.positive(),
                regular=heads.negative(),
                n=row.n,
                off=row.off,
                judge=self.judge,
            ),
        )

    def compared(self, name: str) -> MapComparison:
        """Maps side by side."""
        names = self.plan.compare[name].maps
        maps = [(one, self._map(one)) for one in names]

        def make() -> MapComparison:
            return compare_maps(maps, [self._effects(one) for one in names])

        told = {"maps": [own.content_hash for _, own in maps], "names": list(names)}
        return self.kept(MapComparison, told, make)

    # -- what steps share

    @property
    def how(self) -> dict[str, object]:
        """How everything is read."""
        return {"store": self.url, "threads": self.plan.threads, "on_event": self.on_event}

    def kept(
        self, kind: type[Result], inputs: Mapping[str, object], make: Callable[[], Result]
    ) -> Result:
        """A result, found by the hash of all it depends on, or made and kept."""
        plan = self.plan
        judge = {"seed": plan.seed, "draws": plan.draws, "permutations": plan.permutations}
        spec = Frozen({"kind": kind.__name__, "inputs": content_hash(inputs), "judge": judge})
        unit = Unit(WORK, spec, revision=REVISION, threads=plan.threads)
        store = self.store
        if not store.has(unit.key):
            store.put(unit.key, make().to_json().encode())
        return kind.from_json(store.get(unit.key))

    def _map(self, name: str) -> HeadMap:
        found = self.done[f"map.{name}"]
        if not isinstance(found, HeadMap):
            raise NotMeasurable(f"there is no map {name}", mend="see why it could not be made")
        return found

    def _halves(self, lm: LM, measure: Measure, heads: HeadMap) -> tuple[Readouts, Split]:
        readouts = measure.read(lm, **self.how)[0]  # type: ignore[arg-type]
        split = heads.halves
        return readouts, halves(measure, readouts, by=split.by, seed=split.seed)

    def _ablated(self, name: str) -> tuple[Variants, Half]:
        """The model without each head of a map, and the confirm half."""
        row, heads = self.plan.maps[name], self._map(name)
        lm, measure = self.model(row.model), self.measure(row.measure)
        readouts, cut = self._halves(lm, measure, heads)
        sites = [one.site for one in heads.scores if one.effect is not None]
        told = {"cut": cut, "ablation": row.ablation, **self.how}
        ablated = without_each(lm, measure, readouts, sites, **told)  # type: ignore[arg-type]
        return ablated, cut.confirm

    def _effects(self, name: str) -> Effects:
        """A map's effects on the confirm half; the same draws for all maps of a measure."""
        row, heads = self.plan.maps[name], self._map(name)
        ablated, confirm = self._ablated(name)
        return effects(
            self.measure(row.measure),
            confirm.varied(ablated, None),
            [confirm.varied(ablated, i) for i in range(len(ablated.variants))],
            sign=heads.direction.sign,
            judge=self.judge,
            name="effects, confirm half",
        )


def _told(measure: Measure) -> dict[str, object]:
    """All a measure depends on."""
    return {"name": measure.name, "settings": measure.settings, "data": dict(measure.data)}
