"""Queries of a model as tasks of workers, each of which loads the model itself.

A task keeps its key, whoever computes it: a store holds the same results under the same keys, and a
run that began in one process continues on a cluster.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import absolute_path_str, join_url, read_bytes, write_atomic
from levelhead.core.frozen import FrozenDict
from levelhead.engine.tasks import Task
from levelhead.models.edits.files import EDITS_FILE, TENSORS_FILE, load_edits, save_edits
from levelhead.models.loading.load import load
from levelhead.models.serving.served_model import ServedModel
from levelhead.models.serving.vllm_model import VllmModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.executors.base import Executor, Outcome
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM

TRANSFORMERS, VLLM = "transformers", "vLLM"
EDITS_FOLDER = "memory://levelhead-edits"


@final
@dataclass(frozen=True)
class ModelInWorkers:
    """Executor of a model's queries: its tasks are computed by another executor's workers."""

    executor: Executor
    source: FrozenDict
    """What a worker loads the model from; `describe_source` makes it."""
    work: str
    """Function of the workers: it takes `source` and, as `task`, the specification of a task."""

    def run(self, tasks: Sequence[Task], *, cancel: CancelSignal) -> Iterator[Outcome]:
        """Yield the outcome of each task under the key that the task has in this process."""
        remote = [self._make_remote(task) for task in tasks]
        keys = {there.key: here.key for there, here in zip(remote, tasks, strict=True)}
        for outcome in self.executor.run(remote, cancel=cancel):
            yield replace(outcome, key=keys[outcome.key])

    def _make_remote(self, task: Task) -> Task:
        spec = FrozenDict({"source": self.source, "task": task.spec})
        return Task(self.work, spec, revision=task.revision, threads=task.threads)


def describe_source(lm: LM | ServedModel) -> FrozenDict:
    """Describe what a worker needs to load an equal model: files by name, edits by content.

    Args:
        lm: The model. A local folder must be on a disk that the workers share.
    """
    if isinstance(lm, VllmModel):
        options: dict[str, Any] = {
            "folder": absolute_path_str(lm.folder),
            "dtype": lm.dtype,
            "max_length": lm.max_length,
            "engine_options": lm.engine_options,
        }
        return FrozenDict({"engine": VLLM, "options": options})
    if isinstance(lm, ServedModel):
        raise LevelheadError(
            f"a model {lm.place} is queried by one process, which sends requests in parallel",
            hint="leave out the executor; `concurrency` is the number of parallel requests",
        )
    if lm.layout.parallel.size > 1:
        raise LevelheadError(
            "processes that share a model cannot be workers",
            hint="leave out the executor, or load the model without `parallel`",
        )
    options = {
        "name": absolute_path_str(lm.identity.name),
        "revision": lm.identity.revision,
        "device": None if lm.device.type == "cpu" else lm.device.type,
        "dtype": lm.settings["dtype"],
        # The policies that give this token, or none, whatever the files of the model say.
        "bos": "tokenizer" if lm.tokens.bos is None else "always",
        "batch_size": lm.batching.size,
        "allow_pickle": lm.identity.checkpoint.is_pickled,
    }
    return FrozenDict({"engine": TRANSFORMERS, "options": options, "edits": _pack(lm.edits)})


def load_source(source: Mapping[str, object]) -> LM | VllmModel:
    """Load the model of `describe_source`; a worker keeps the model that it has loaded last."""
    return _load_source(to_canonical_json(source))


# One model: two large ones may not fit into the memory of a worker.
@lru_cache(maxsize=1)
def _load_source(source_json: bytes) -> LM | VllmModel:
    source = json.loads(source_json)
    options = source["options"]
    if source["engine"] == VLLM:
        engine_options = FrozenDict(options.pop("engine_options"))
        return VllmModel(**options, engine_options=engine_options)
    return load(**options, edit=_unpack(source["edits"]))


def _pack(edits: Sequence[Edit]) -> dict[str, str]:
    """The files of edits as text: a worker may have no disk in common with this process."""
    if not edits:
        return {}
    folder = join_url(EDITS_FOLDER, content_hash([edit.content_hash for edit in edits]))
    save_edits(edits, folder)
    return {
        name: base64.b64encode(read_bytes(join_url(folder, name))).decode()
        for name in (EDITS_FILE, TENSORS_FILE)
    }


def _unpack(files: Mapping[str, str]) -> tuple[Edit, ...]:
    if not files:
        return ()
    folder = join_url(EDITS_FOLDER, content_hash(files))
    for name, text in files.items():
        write_atomic(join_url(folder, name), base64.b64decode(text))
    return load_edits(folder)
