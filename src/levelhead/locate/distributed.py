"""Locating where there is room for the model: the whole of it is one unit, computed by a runner.

Several maps at once are a study (`study.apart`); one map of one model is one actor's work.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from levelhead.core.canonical_json import canonical
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.files import whole_path
from levelhead.core.frozen import Frozen
from levelhead.core.results import Inconclusive
from levelhead.core.run_context import Inference, RunContext
from levelhead.engine.executors.base import Computed
from levelhead.engine.tasks import Unit
from levelhead.locate.head_map import HeadMap
from levelhead.locate.score_heads import locate
from levelhead.measures.registry import parsed
from levelhead.models.loading.load import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.engine.executors.base import Runner

WORK = "levelhead.locate.distributed:located"


def locate_away(
    runner: Runner,
    model: str,
    measure: str,
    *,
    source: Mapping[str, Any],
    how: Mapping[str, Any],
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> HeadMap:
    """As `locate`, in a worker that loads the model itself.

    Args:
        runner: who computes.
        model: a Hub id, a folder or a file that the worker sees.
        measure: as the command line names it.
        source: the other arguments of `load`.
        how: by, parts, ablation, exact, split and sign, as for `locate`.
        inference: seed, resamples and level.
        context: store, which the worker must see, threads and cancellation.
    """
    edit = source.get("edit")
    spec = {
        "model": whole_path(model),
        "measure": measure,
        "source": {**source, "edit": edit and whole_path(edit)},
        "how": dict(how),
        "inference": asdict(inference),
        "store": None if context.store is None else os.fspath(context.store),
        "threads": context.threads,
    }
    unit = Unit(WORK, Frozen(spec), threads=context.threads)
    why = "no worker took it"
    for outcome in runner.run([unit], cancel=context.cancel):
        if isinstance(outcome, Computed):
            text = outcome.payload.decode()
            if text.startswith(_WITHOUT):
                found = Inconclusive.from_json(text.removeprefix(_WITHOUT))
                raise NotMeasurable(found.what, mend=found.mend)
            return HeadMap.from_json(text)
        why = outcome.why
    raise LevelheadError(f"locating failed: {why}", mend="mend the cause, and run it again")


_WITHOUT = "not measurable: "


def located(spec: Frozen) -> bytes:
    """The unit of work: the map as JSON, or why there is none."""
    asked = json.loads(canonical(spec))
    lm = load(asked["model"], **asked["source"])
    try:
        found = locate(
            lm,
            parsed(asked["measure"]),
            inference=Inference(**asked["inference"]),
            context=RunContext(store=asked["store"], threads=asked["threads"]),
            **asked["how"],
        )
    except NotMeasurable as error:
        return (_WITHOUT + Inconclusive(what=error.what, mend=error.mend).to_json()).encode()
    return found.to_json().encode()
