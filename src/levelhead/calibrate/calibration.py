"""The calibration: every ruler, locator and edit on models of which the truth is known.

Its work is units of the engine, one organism each, so that it goes on where it was stopped. What
comes of the full run belongs into the package (calibration.json), with the command and the hashes
that made it: reports cite it beside every ruler, and say "not tried" without it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from levelhead.calibrate import dose, locating, mitigating
from levelhead.calibrate.dose import Answered
from levelhead.calibrate.locating import Known, Ordinary, families
from levelhead.calibrate.mitigating import Effects, mitigations
from levelhead.calibrate.organisms import machine, organism
from levelhead.calibrate.response import responses, skills
from levelhead.core.calibration import Calibration, Grown, Told
from levelhead.core.canonical import content_hash
from levelhead.core.versions import installed_versions
from levelhead.engine.jobs import Job, run

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from levelhead.calibrate.language import Words
    from levelhead.core.files import Url
    from levelhead.engine.events import Event
    from levelhead.engine.runners import Runner

    Model = dose.Model | locating.Located | mitigating.Dosed | mitigating.Constructed


def calibrate(
    folder: Url,
    *,
    quick: bool = False,
    runner: Runner | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    cancel: threading.Event | None = None,
) -> Calibration:
    """Grow what is missing, measure it, and say what it comes to.

    Args:
        folder: keeps what was found of every model.
        quick: a few models, in minutes: whether the machinery works, not what is true.
        runner: who computes; by default this process.
        on_event: is told how far it is.
        cancel: set it to stop.
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
        on_event=on_event,
        cancel=cancel,
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
            *(
                Grown(
                    what=f"{one.architecture}, {one.variant}, rho {one.rho:g}, seed {one.seed}",
                    texts=one.texts,
                    weights=one.weights,
                )
                for one in answered
            ),
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
