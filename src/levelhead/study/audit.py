"""An audit is a study that levelhead writes: whatever fits a model, in the time there is.

What is asked follows from what the model can answer and how fast it answers here. The plan is kept
in the folder, so that the audit is resumed, and repeated elsewhere, with the same questions.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.canonical import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.files import write_atomic
from levelhead.core.results import Record
from levelhead.engine.run_folder import own
from levelhead.measure.readouts import model_key
from levelhead.study.dealing import MAPPED, MODEL, OVERHEAD, Cut, Dealing
from levelhead.study.finished import AUDIT, WRITTEN
from levelhead.study.fitting import LeftOut, Role, fitting
from levelhead.study.schema import Cells, Paired, Plan, Probing, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.models.lm import LM

STUDY = "study.json"
OTHER = "other"
TRYING = 0.6
"""Of the time there is, when no further ruler is tried out any more."""


class Audit(Record):
    """What is asked of a model, and what is not."""

    request: str
    """A hash of everything the plan was made from."""
    budget: float | None
    """Seconds."""
    about: str
    """The model in a line."""
    plan: Plan
    roles: tuple[tuple[str, Role], ...]
    """What each measure is for."""
    left_out: tuple[LeftOut, ...]
    cut: tuple[Cut, ...]
    expected: float | None
    """Seconds that the questions take, by a few of them."""


class Audited(NamedTuple):
    """How the models of an audit are opened."""

    model: Source
    against: Source | None = None


def planned(
    lm: LM,
    sources: Audited,
    *,
    budget: float | None,
    began: float | None = None,
    seed: int = 0,
    threads: int = 1,
    draws: int = 1999,
    permutations: int = 9999,
    on_step: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> Audit:
    """What to ask a model.

    Args:
        lm: the model, edited or not.
        sources: how the study opens it, and the one it is set beside.
        budget: seconds; None: everything is asked whole.
        began: since when they count, by `time.monotonic`; by default now.
        seed: of everything drawn.
        threads: of numpy and torch.
        draws: resamples for an interval.
        permutations: rearrangements for a p-value.
        on_step: is told what is tried out, how much, and of how much.
    """
    began = time.monotonic() if began is None else began
    most = None if budget is None else began + TRYING * budget
    rulers, left_out = fitting(lm, most, threads=threads, on_step=on_step)
    if not rulers:
        why = "; ".join(f"{one.what}: {one.why}" for one in left_out)
        raise LevelheadError(
            f"there is nothing to ask of {lm.identity.name}: {why}",
            mend="use a model with a head of its own, and check the data: `levelhead data list`",
        )
    models = 2 if sources.against else 1
    left = None if budget is None else (budget + began - time.monotonic()) * OVERHEAD
    dealt = Dealing(left, models, left_out)
    texts = dealt.rulers(rulers)
    measures = {name: text for name, text in texts.items() if text}
    roles = tuple((one.ruler.name, one.ruler.role) for one in rulers if one.ruler.name in measures)
    plan = {
        "format": "levelhead-study-1",
        "name": "audit",
        "about": f"An audit of {_shown(sources.model)}",
        "seed": seed,
        "threads": threads,
        "draws": draws,
        "permutations": permutations,
        "models": {MODEL: sources.model}
        | ({OTHER: sources.against} if sources.against is not None else {}),
        "measures": measures,
        "cells": {"audit": Cells(models=(MODEL,), measures=tuple(measures))},
    }
    if sources.against is not None:
        plan["against"] = {OTHER: Paired(first=OTHER, second=MODEL, measures=tuple(measures))}
    if sources.model.edit is not None:
        ruler = next((name for name in MAPPED if name in measures), None)
        plan["removed"] = {"edit": Probing(model=MODEL, ruler=ruler)}
    named = {one.ruler.name: one for one in rulers}
    heads = dealt.heads(lm, named, measures)
    plan |= dealt.knowledge(lm, named)
    plan |= heads or dealt.heads(lm, named, measures, last=True)
    found = Plan(**plan)  # type: ignore[arg-type]
    found.check()
    return Audit(
        request=request(
            lm,
            sources,
            budget=budget,
            seed=seed,
            threads=threads,
            draws=draws,
            permutations=permutations,
        ),
        budget=budget,
        about=_short(str(lm), lm, sources.model),
        plan=found,
        roles=roles,
        left_out=tuple(
            one.model_copy(update={"why": _short(one.why, lm, sources.model)})
            for one in dealt.left_out
        ),
        cut=tuple(dealt.cut),
        expected=None if budget is None else dealt.used,
    )


def request(lm: LM, sources: Audited, **told: object) -> str:
    """A hash of all that an audit's plan is made from, but the speed of the machine."""
    against = None if sources.against is None else sources.against.model_dump()
    return content_hash({"model": model_key(lm), "against": against, **told})


def read_audit(folder: str | Path) -> Audit:
    """The audit that a folder holds."""
    path = Path(folder) / AUDIT
    try:
        return Audit.from_json(path.read_bytes())
    except FileNotFoundError:
        raise LevelheadError(
            f"{folder} holds no audit", mend="name the folder that `levelhead audit` wrote"
        ) from None
    except ValueError:
        raise LevelheadError(
            f"{path} cannot be read", mend="audit the model again, into another folder"
        ) from None


def kept(folder: Path, wanted: str) -> Audit | None:
    """The audit that a folder holds, if it is the one that is wanted; another is refused."""
    if not (folder / AUDIT).exists():
        return None
    found = read_audit(folder)
    if found.request != wanted:
        raise LevelheadError(
            f"{folder} holds another audit: {found.about}",
            mend="name another folder; to go on with that one, give the same model and options",
        )
    return found


def keep(audit: Audit, folder: Path) -> None:
    """Write an audit's plan into its folder, also as a study that `levelhead study` repeats."""
    own(folder, (AUDIT, STUDY, *WRITTEN))
    write_atomic(str(folder / STUDY), audit.plan.to_json().encode() + b"\n")
    write_atomic(str(folder / AUDIT), audit.to_json().encode() + b"\n")


def _shown(source: Source) -> str:
    """A model's name without the folders it lies in: a report is sent to others."""
    name = Path(source.path).name if Path(source.path).exists() else source.path
    return f"{name}, edited" if source.edit else name


def _short(text: str, lm: LM, source: Source) -> str:
    return text.replace(lm.identity.name, _shown(source))
