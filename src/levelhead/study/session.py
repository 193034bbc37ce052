"""What the steps of a study share: models, measures, the store, and results kept by hash."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar, final

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.files import absolute
from levelhead.core.frozen import Frozen
from levelhead.core.results import Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.engine.events import Planned, Stored
from levelhead.engine.store import DamagedFile, open_store
from levelhead.engine.tasks import Unit
from levelhead.locate.attribution import gradient, variants
from levelhead.locate.head_map import HeadMap
from levelhead.measures import responses as readouts
from levelhead.measures.registry import parsed
from levelhead.models.loading.load import load
from levelhead.study.steps.config import inference_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from levelhead.engine.store import Store
    from levelhead.measures.base import Measure
    from levelhead.mitigate.projection.subspace import Subspace
    from levelhead.models.edits.base import Projection
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site
    from levelhead.study.steps.config import PlanBase

WORK = "levelhead.study.run:run"
REVISION = 4
"""Raised when what a step makes of the readings changes: stored results are then made anew."""
Result = TypeVar("Result", bound=Record)


class Step(NamedTuple):
    """A part of a study that has a result of its own."""

    name: str
    make: Callable[[], Record]
    after: tuple[str, ...] = ()
    """The steps whose results it needs, or whose readings it would read once more."""


@final
@dataclass(eq=False)
class Work:
    """One run of a study: models are loaded when they are needed, results by name of their step."""

    plan: PlanBase
    folder: Path
    context: RunContext = RunContext()
    """Its store is where readings and results are kept; by default in the folder."""
    done: dict[str, Record] = field(default_factory=dict)
    fitted: dict[str, dict[Site, Subspace]] = field(default_factory=dict)
    """Subspaces, by what they were fitted on."""
    debiased: dict[str, tuple[Projection, ...]] = field(default_factory=dict)
    """SentenceDebias, likewise."""
    _models: dict[str, LM] = field(default_factory=dict)
    _measures: dict[str, Measure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.context = _study_context(self.plan, self.folder, self.context)

    @property
    def url(self) -> str:
        """Where readings and results are kept."""
        return str(self.context.store)

    @property
    def store(self) -> Store:
        """The same, open."""
        return open_store(self.url)

    @property
    def inference(self) -> Inference:
        """How chance is judged."""
        plan = self.plan
        return Inference(seed=plan.seed, resamples=plan.draws, permutations=plan.permutations)

    def model(self, name: str) -> LM:
        """A model of the study, or a child of one."""
        if name not in self._models:
            source = self.plan.models.get(name)
            if source is None:
                place = self.folder / self.plan.made[name].folder / name
                self._models[name] = self.trained(place, name)
            else:
                self._models[name] = load(
                    source.path,
                    revision=source.revision,
                    dtype=source.dtype,
                    batch_size=source.batch_size,
                    device=source.device,
                    edit=source.edit,
                )
        return self._models[name]

    def trained(self, folder: Path, name: str) -> LM:
        """A model that the study has made, read as the one that it comes from."""
        made = self.plan.made
        while name in made:
            name = made[name].of
        source = self.plan.models[name]
        return load(
            str(folder), dtype=source.dtype, batch_size=source.batch_size, device=source.device
        )

    def makers(self, *names: str) -> tuple[str, ...]:
        """The steps that make these models; those that are given need none."""
        made = self.plan.made
        return tuple(f"{made[name].step}.{name}" for name in names if name in made)

    def measure(self, name: str) -> Measure:
        """A measure of the study; one object for all its steps, for the data that it holds."""
        if name not in self._measures:
            self._measures[name] = parsed(self.plan.measures[name])
        return self._measures[name]

    def progress(self, what: str) -> Callable[[int, int], None]:
        """To be called with steps of training done and steps in all."""
        began: list[tuple[float, int]] = []

        def tell(done: int, of: int) -> None:
            if not began:
                began.append((time.monotonic(), done))
                self.context.progress(Planned(units=of, stored=done, damaged=()))
                return
            since, first = began[0]
            pace = (time.monotonic() - since) / max(done - first, 1)
            self.context.progress(Stored(what, done, of, seconds_left=pace * (of - done)))

        return tell

    def kept(
        self, kind: type[Result], inputs: Mapping[str, object], make: Callable[[], Result]
    ) -> Result:
        """A result, found by the hash of all it depends on, or made and kept."""
        plan = self.plan
        spec = Frozen(
            {
                "kind": kind.__name__,
                "inputs": content_hash(inputs),
                "judge": inference_keys(self.inference),
                "revisions": [readouts.REVISION, gradient.REVISION, variants.REVISION],
            }
        )
        unit = Unit(WORK, spec, revision=REVISION, threads=plan.threads)
        store = self.store
        try:
            kept = store.has(unit.key)
        except DamagedFile:
            kept = False
        if not kept:
            store.put(unit.key, make().to_json().encode())
        return kind.from_json(store.get(unit.key))

    def map(self, name: str) -> HeadMap:
        """A map that was made before."""
        found = self.done[f"map.{name}"]
        if not isinstance(found, HeadMap):
            raise NotMeasurable(f"there is no map {name}", mend="see why it could not be made")
        return found


def _study_context(plan: PlanBase, folder: Path, context: RunContext) -> RunContext:
    """A caller's context with the store and the threads of a study.

    The threads are the plan's: they are part of what its results depend on, in their last bits.
    """
    if context.threads not in (1, plan.threads):
        raise LevelheadError(
            f"{context.threads} threads, and the study says {plan.threads}",
            mend="give threads in the study only",
        )
    store = str(folder / "store") if context.store is None else absolute(context.store)
    return replace(context, store=store, threads=plan.threads)


def told_of(measure: Measure) -> dict[str, object]:
    """All a measure depends on."""
    return {"name": measure.name, "settings": measure.settings, "data": dict(measure.data)}
