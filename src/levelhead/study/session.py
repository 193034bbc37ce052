"""The shared state of a study's steps: models, measures, the store, and results by hash."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar, final

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.files import absolute_url
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.engine.events import TasksPlanned, TaskStored
from levelhead.engine.store import DamagedFileError, open_store
from levelhead.engine.tasks import Task
from levelhead.locate.attribution import gradient, variants
from levelhead.locate.head_map import HeadMap
from levelhead.measures import responses
from levelhead.measures.registry import parse_measure
from levelhead.models.loading.load import load
from levelhead.models.loading.open_model import is_http, open_model
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
    from levelhead.study.steps.config import StudyConfigBase

TASK_FUNCTION = "levelhead.study.run:run_study"
REVISION = 4
"""Version of the computation of results; an increment invalidates stored results."""
Result = TypeVar("Result", bound=Record)


class StudyStep(NamedTuple):
    """A part of a study with one result."""

    name: str
    make: Callable[[], Record]
    after: tuple[str, ...] = ()
    """The steps whose results or stored responses this step uses."""


@final
@dataclass(eq=False)
class StudySession:
    """One run of a study: lazily loaded models, and results by step."""

    config: StudyConfigBase
    folder: Path
    context: RunContext = RunContext()
    """Context whose store holds responses and results; by default the folder does."""
    results: dict[str, Record] = field(default_factory=dict)
    subspaces: dict[str, dict[Site, Subspace]] = field(default_factory=dict)
    """Subspaces, by the data they were fitted on."""
    sentence_debias_edits: dict[str, tuple[Projection, ...]] = field(default_factory=dict)
    """SentenceDebias edits, by the data they were fitted on."""
    _models: dict[str, LM] = field(default_factory=dict)
    _measures: dict[str, Measure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.context = _study_context(self.config, self.folder, self.context)

    @property
    def store_url(self) -> str:
        """Location of the store of responses and results."""
        return str(self.context.store)

    @property
    def store(self) -> Store:
        """The open store of responses and results."""
        return open_store(self.store_url)

    @property
    def inference(self) -> Inference:
        """The seed, resamples and permutations of the study's tests and intervals."""
        config = self.config
        return Inference(
            seed=config.seed, resamples=config.resamples, permutations=config.permutations
        )

    def model(self, name: str) -> LM:
        """A model of the study, or a trained variant of one."""
        if name not in self._models:
            source = self.config.models.get(name)
            if source is None:
                model_dir = self.folder / self.config.trained_models[name].folder / name
                self._models[name] = self.load_trained(model_dir, name)
            else:
                self._models[name] = open_model(
                    source.path,
                    revision=source.revision,
                    dtype=source.dtype,
                    batch_size=source.batch_size,
                    device=source.device,
                    edit=source.edit,
                    budget=self.context.token_budget if is_http(source.path) else None,
                )
        return self._models[name]

    def load_trained(self, folder: Path, name: str) -> LM:
        """Load a model that the study has trained, with the load options of its base."""
        trained_models = self.config.trained_models
        # The base of a trained model may be trained, too: options are those of the given model.
        while name in trained_models:
            name = trained_models[name].base
        source = self.config.models[name]
        return load(
            str(folder), dtype=source.dtype, batch_size=source.batch_size, device=source.device
        )

    def steps_that_train(self, *names: str) -> tuple[str, ...]:
        """The steps that train these models; given models need none."""
        trained_models = self.config.trained_models
        return tuple(
            f"{trained_models[name].step}.{name}" for name in names if name in trained_models
        )

    def measure(self, name: str) -> Measure:
        """A measure of the study; all steps share one object, because it holds data."""
        if name not in self._measures:
            self._measures[name] = parse_measure(self.config.measures[name])
        return self._measures[name]

    def progress_callback(self, description: str) -> Callable[[int, int], None]:
        """A callback for the finished and total number of training steps."""
        # Started by the first call: a resumed training begins with steps that are done.
        start: list[tuple[float, int]] = []

        def report(done: int, total: int) -> None:
            if not start:
                start.append((time.monotonic(), done))
                self.context.progress(TasksPlanned(n_tasks=total, n_stored=done, damaged=()))
                return
            start_time, first_done = start[0]
            seconds_per_step = (time.monotonic() - start_time) / max(done - first_done, 1)
            self.context.progress(
                TaskStored(description, done, total, seconds_left=seconds_per_step * (total - done))
            )

        return report

    def load_or_compute(
        self, kind: type[Result], inputs: Mapping[str, object], make: Callable[[], Result]
    ) -> Result:
        """Load a result by the hash of its inputs, or compute and store it.

        Increase `REVISION` when a step computes differently: code is no part of the hash.

        Args:
            kind: Class of the result; its name is part of the hash.
            inputs: Everything that the result depends on, apart from the study's inference.
            make: Function that computes the result.
        """
        config = self.config
        spec = FrozenDict(
            {
                "kind": kind.__name__,
                "inputs": content_hash(inputs),
                "inference": inference_keys(self.inference),
                "revisions": [responses.REVISION, gradient.REVISION, variants.REVISION],
            }
        )
        # Only the key of this task is used: no executor computes it.
        task = Task(TASK_FUNCTION, spec, revision=REVISION, threads=config.threads)
        store = self.store
        try:
            is_stored = store.has(task.key)
        except DamagedFileError:
            is_stored = False
        if not is_stored:
            store.put(task.key, make().to_json().encode())
        # A new result is read from its bytes as well, so that first and resumed runs are equal.
        return kind.from_json(store.get(task.key))

    def head_map(self, name: str) -> HeadMap:
        """The head map of an earlier step."""
        head_map = self.results[f"map.{name}"]
        if not isinstance(head_map, HeadMap):
            raise NotMeasurableError(
                f"there is no map {name}", hint="see the reason in the map's step"
            )
        return head_map


def _study_context(config: StudyConfigBase, folder: Path, context: RunContext) -> RunContext:
    """Combine a caller's context with the store and the threads of a study.

    The plan sets the threads, because the last bits of results depend on their number.
    """
    if context.threads not in (1, config.threads):
        raise LevelheadError(
            f"{context.threads} threads, and the study says {config.threads}",
            hint="give threads in the study only",
        )
    # Workers read the study only: a choice made elsewhere would not reach them.
    if config.record_items and not context.record_items:
        raise LevelheadError(
            "the study records the texts of items", hint="say record_items = false in the study"
        )
    store = str(folder / "store") if context.store is None else absolute_url(context.store)
    return replace(context, store=store, threads=config.threads, record_items=config.record_items)


def measure_inputs(measure: Measure) -> dict[str, object]:
    """The inputs of a measure that its hash covers."""
    return {"name": measure.name, "settings": measure.settings, "data": dict(measure.data)}
