"""An audit is a study that levelhead writes: a core suite of measures, and what time is left for.

The core suite is fixed (`core_suite`). What is added to it follows from how fast the model answers
here and how much time the core suite left. The plan is kept in the folder, so that the audit is
resumed, and repeated elsewhere, with the same questions.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.files import write_atomic
from levelhead.core.results import Record
from levelhead.core.run_context import Inference
from levelhead.engine.run_dir import own
from levelhead.measures.registry import metric_of, parsed
from levelhead.measures.responses import model_key
from levelhead.study.audit.budget_shares import MODEL, OVERHEAD, Cut, Dealing
from levelhead.study.audit.core_suite import Role, core_suite, kind_of
from levelhead.study.audit.suite import LeftOut, extensions, left_out_by, locators
from levelhead.study.audit.time_budget import Paces
from levelhead.study.config import Plan
from levelhead.study.results_dir import AUDIT, WRITTEN
from levelhead.study.steps.config import Source, inference_keys
from levelhead.study.steps.measurements import Cells, Paired
from levelhead.study.steps.probing import Probing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.models.lm import LM

STUDY = "study.json"
OTHER = "other"
CELLS, MORE = "audit", "more"
"""The cells of the core suite, and of what is added."""
CORE_LIMIT = 3.0
"""Of the budget, when no further measure of the core suite begins: below that the suite is run to
its end, budget or not, for a verdict that depends on the clock would be none."""
LOOKING = 0.3
"""Of the time that is left, when no further measure is looked at."""
Stage = Literal["core", "whole"]


class Audit(Record):
    """What is asked of a model, and what is not."""

    request: str
    """A hash of everything the core suite's plan was made from."""
    budget: float | None
    """Seconds."""
    about: str
    """The model in a line."""
    plan: Plan
    roles: tuple[tuple[str, Role], ...]
    """What each measure is for: those of the core suite, whether they could be asked or not, and
    those that were added."""
    core: tuple[str, ...] = ()
    """The names of the core suite; empty where no suite was planned: then all roles are."""
    stage: Stage = "whole"
    """Whether what is added to the core suite is planned yet."""
    left_out: tuple[LeftOut, ...]
    cut: tuple[Cut, ...]
    expected: float | None
    """Seconds that the added questions take, by a few of them."""

    @property
    def core_names(self) -> tuple[str, ...]:
        """The measures that the verdict rests on."""
        return self.core or tuple(name for name, _ in self.roles)

    @property
    def core_steps(self) -> frozenset[str]:
        """The steps of the core suite, as the study names them."""
        return frozenset(f"cell.{CELLS}.{MODEL}.{name}" for name in self.core_names)


class Audited(NamedTuple):
    """How the models of an audit are opened."""

    model: Source
    against: Source | None = None


def plan_core(
    lm: LM,
    sources: Audited,
    *,
    budget: float | None,
    inference: Inference = Inference(),
    threads: int = 1,
) -> Audit:
    """The core suite of a model: the same whatever the budget and the machine.

    Args:
        lm: the model, edited or not.
        sources: how the study opens it, and the one it is set beside.
        budget: seconds, kept for what is added later; None: there is no limit.
        inference: seed, resamples and permutations.
        threads: of numpy and torch.
    """
    suite = core_suite(kind_of(lm))
    measures: dict[str, str] = {}
    left_out: list[LeftOut] = []
    for row in suite:
        try:
            measure = parsed(row.text)
            measure.check(lm)
            measure.asked(lm)
        except LevelheadError as error:
            left_out.append(left_out_by(row.name, error))
        else:
            measures[row.name] = row.text
    if not any(row.role == "bias" and row.name in measures for row in suite):
        why = "; ".join(f"{skipped.what}: {skipped.why}" for skipped in left_out)
        reasons = Counter(skipped.reason for skipped in left_out)
        counts = "; ".join(f"{count} not run: {name}" for name, count in sorted(reasons.items()))
        raise NothingToAsk(
            f"INCONCLUSIVE: no measure of bias can be asked of {lm.identity.name}: "
            f"{len(measures)} of {len(suite)} planned measures run; {counts} ({why})",
            mend="use a model with a head of its own, and check the data: `levelhead data list`",
        )
    plan: dict[str, object] = {
        "format": "levelhead-study-1",
        "name": "audit",
        "about": f"An audit of {_shown(sources.model)}",
        **inference_keys(inference),
        "threads": threads,
        "models": {MODEL: sources.model}
        | ({OTHER: sources.against} if sources.against is not None else {}),
        "measures": measures,
        "cells": {CELLS: Cells(models=(MODEL,), measures=tuple(measures))},
    }
    if sources.against is not None:
        plan["against"] = {OTHER: Paired(first=OTHER, second=MODEL, measures=tuple(measures))}
    if sources.model.edit is not None:
        names = {metric_of(measures[name]): name for name in reversed(measures)}
        ruler = next(
            (names[metric] for row in locators(lm)[0] if (metric := metric_of(row.text)) in names),
            None,
        )
        plan["removed"] = {"edit": Probing(model=MODEL, ruler=ruler)}
    core = Plan.model_validate(plan)
    core.check()
    return Audit(
        request=request(lm, sources, inference, threads),
        budget=budget,
        about=_short(str(lm), lm, sources.model),
        plan=core,
        roles=tuple((row.name, row.role) for row in suite),
        core=tuple(row.name for row in suite),
        stage="core",
        left_out=tuple(_shortened(left_out, lm, sources.model)),
        cut=(),
        expected=None,
    )


def extended(
    audit: Audit,
    lm: LM,
    *,
    left: float | None,
    on_step: Callable[[str, int, int], None] = lambda what, done, of: None,
    paces: Paces | None = None,
) -> Audit:
    """An audit with what there is time for beyond its core suite.

    Args:
        audit: its core suite, which has been run.
        lm: the model.
        left: seconds; None: everything is asked whole.
        on_step: is told what is looked at, how many were, and of how many.
        paces: how long questions take; by default a few of each kind are timed.
    """
    began = time.monotonic()
    core = audit.plan
    paces = paces or Paces(lm, threads=core.threads, is_timed=left is not None)
    until = None if left is None else began + LOOKING * left
    names = {name: core.measures[name] for name in audit.core if name in core.measures}
    rulers, left_out = extensions(lm, names, paces, until=until, on_step=on_step)
    total = None if left is None else (began + left - time.monotonic()) * OVERHEAD
    dealt = Dealing(lm, paces, total, 2 if core.rows(Paired) else 1, left_out)
    added = dealt.rulers(rulers)
    measures = {**core.measures, **added}
    parts: dict[str, object] = {}
    if added:
        more = Cells(models=(MODEL,), measures=tuple(added))
        parts["cells"] = {**core.rows(Cells), MORE: more}
        if core.rows(Paired):
            pair = core.rows(Paired)[OTHER]
            both = (*pair.measures, *added)
            parts["against"] = {OTHER: pair.model_copy(update={"measures": both})}
    heads = dealt.heads(measures)
    parts |= dealt.knowledge()
    parts |= heads or dealt.heads(measures, last=True)
    plan = core.model_copy(update={**parts, "measures": measures})
    plan.check()
    source = core.models[MODEL]
    roles = {fit.ruler.name: fit.ruler.role for fit in rulers}
    return audit.model_copy(
        update={
            "plan": plan,
            "roles": (*audit.roles, *((name, roles[name]) for name in added)),
            "stage": "whole",
            "left_out": (*audit.left_out, *_shortened(dealt.left_out, lm, source)),
            "cut": tuple(dealt.cut),
            "expected": None if left is None else dealt.used,
        }
    )


class NothingToAsk(LevelheadError):
    """No measure of bias of the core suite can be asked of a model."""


def request(lm: LM, sources: Audited, inference: Inference, threads: int) -> str:
    """A hash of all that a core suite's plan is made from: neither budget nor speed are."""
    against = None if sources.against is None else sources.against.model_dump()
    keys = {**inference_keys(inference), "threads": threads}
    return content_hash({"model": model_key(lm), "against": against, **keys})


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
    """The audit that a folder holds, if it is the one that is wanted; another is refused.

    The same one with another budget is not another: its core suite is the same.
    """
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


def _shortened(left_out: Sequence[LeftOut], lm: LM, source: Source) -> Iterator[LeftOut]:
    for skipped in left_out:
        yield skipped.model_copy(update={"why": _short(skipped.why, lm, source)})
