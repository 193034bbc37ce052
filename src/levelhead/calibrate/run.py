"""The calibration: every ruler, locator and edit on models of which the truth is known.

Its work is units of the engine, one organism each, so that it goes on where it was stopped. What
comes of the full run belongs into the package (calibration.json), with the command and the hashes
that made it: reports cite it beside every ruler, and say "not tried" without it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from levelhead.calibrate import dose_response as dose
from levelhead.calibrate import edits as mitigating
from levelhead.calibrate import locators as locating
from levelhead.calibrate.dose_response import Answered
from levelhead.calibrate.edits import Effects, mitigations
from levelhead.calibrate.locators import Known, Ordinary, families
from levelhead.calibrate.organisms.organism import machine, organism
from levelhead.calibrate.response import responses, skills
from levelhead.core.calibration import Calibration, Grown, Refreshed, Told
from levelhead.core.canonical_json import content_hash
from levelhead.core.run_context import RunContext
from levelhead.core.versions import installed_versions
from levelhead.engine.scheduler import Job, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.calibrate.organisms.language import Words
    from levelhead.core.files import Url
    from levelhead.engine.executors.base import Runner

    Model = dose.Model | locating.Located | mitigating.Dosed | mitigating.Constructed


def calibrate(
    folder: Url,
    *,
    quick: bool = False,
    runner: Runner | None = None,
    context: RunContext = RunContext(),
) -> Calibration:
    """Grow what is missing, measure it, and say what it comes to.

    Args:
        folder: keeps what was found of every model.
        quick: a few models, in minutes: whether the machinery works, not what is true.
        runner: who computes; by default this process.
        context: progress and cancellation; the folder is the store.
    """
    dosed = dose.models(quick=quick)
    located = locating.models(quick=quick)
    edited = mitigating.models(quick=quick)
    constructed = mitigating.constructed(quick=quick)
    units = [one.unit for models in (dosed, located, edited, constructed) for one in models]
    store = run(
        Job("calibrate", tuple(units)),
        folder,
        runner=runner,
        context=context,
        extend=True,  # what a quick run has found is not grown again
    )

    def kept_of(models: Sequence[Model]) -> list[bytes]:
        return [store.get(one.unit.key) for one in models]

    answered = [Answered.from_json(own) for own in kept_of(dosed)]
    known = [Known.from_json(own) for own in kept_of([o for o in located if o.kind == "known"])]
    plain = [
        Ordinary.from_json(own) for own in kept_of([o for o in located if o.kind == "ordinary"])
    ]
    removed = tuple(Told.from_json(own) for own in kept_of(constructed))
    effects = [own for one in kept_of(edited) for own in Effects.from_json(one).edited]
    return Calibration(
        command="levelhead calibrate" + (" --quick" if quick else ""),
        versions=installed_versions(),
        machine=machine(),
        models=(
            *_grown(answered),
            *(_with_heads("known head", one) for one in known),
            *(_with_heads("four layers", one) for one in plain),
            *(_with_heads("known head, many words", one, words="many") for one in removed),
        ),
        skills=skills(answered),
        rulers=responses(answered),
        locators=families(known, plain),
        edits=mitigations(effects),
        removed=removed,
    )


def refreshed(
    folder: Url,
    past: Calibration,
    *,
    quick: bool = False,
    runner: Runner | None = None,
    context: RunContext = RunContext(),
) -> Calibration:
    """The measures' part of a calibration made anew; locators, edits and removals stay as they are.

    For statistics that changed: only models of the dose are grown and measured. What was made anew
    keeps its own command, versions, machine and models; everything else keeps those it had.

    Args:
        folder: keeps what was found of every model; may be that of `calibrate`.
        past: the calibration whose other parts are kept.
        quick: a few models, in minutes: whether the machinery works, not what is true.
        runner: who computes; by default this process.
        context: progress and cancellation; the folder is the store.
    """
    models = dose.models(quick=quick)
    units = tuple(one.unit for one in models)
    store = run(Job("measures", units), folder, runner=runner, context=context, extend=True)
    answered = [Answered.from_json(store.get(one.unit.key)) for one in models]
    parts = ("skills", "rulers")
    own = Refreshed(
        parts=parts,
        command="python tools/calibration.py --measures-only" + (" --quick" if quick else ""),
        versions=installed_versions(),
        machine=machine(),
        models=_grown(answered),
    )
    return past.model_copy(
        update={
            "skills": skills(answered),
            "rulers": responses(answered),
            "refreshed": (*(one for one in past.refreshed if one.parts != parts), own),
        }
    )


def _grown(answered: Sequence[Answered]) -> tuple[Grown, ...]:
    return tuple(
        Grown(
            what=f"{one.architecture}, {one.variant}, rho {one.rho:g}, seed {one.seed}",
            texts=one.texts,
            weights=one.weights,
        )
        for one in answered
    )


def _with_heads(what: str, one: Known | Ordinary | Told, *, words: Words = "few") -> Grown:
    return Grown(
        what=f"{one.architecture}, {what}, seed {one.seed}",
        texts=_texts(one.seed, words),
        weights=one.weights,
    )


@cache
def _texts(seed: int, words: Words) -> str:
    """SHA-256 of the texts of the full dose, which are the same for every architecture."""
    return content_hash(organism(seed=seed, words=words).texts)
