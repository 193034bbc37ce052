"""An audit is a study that levelhead writes: whatever fits a model, in the time there is.

What is asked follows from what the model can answer and how fast it answers here. The plan is kept
in the folder, so that the audit is resumed, and repeated elsewhere, with the same questions.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from levelhead.core.canonical import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.files import write_atomic
from levelhead.core.results import Record
from levelhead.measure.readouts import model_key
from levelhead.measure.table import parsed
from levelhead.study.budget import Thrift, pace, questions, shared_out, units
from levelhead.study.schema import (
    Cells,
    Explained,
    Located,
    Masking,
    Paired,
    Plan,
    Probing,
    Prompting,
    Source,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.measure.asked import Asked
    from levelhead.measure.measure import Measure
    from levelhead.models.lm import LM

AUDIT = "audit.json"
STUDY = "study.json"
MODEL, OTHER = "model", "other"
Role = Literal["bias", "price"]


class Ruler(NamedTuple):
    """A measure of the audit, and how it is asked with less time."""

    name: str
    text: str
    """As the command line names it."""
    role: Role
    thrifts: tuple[Thrift, ...]


SHARES = tuple(Thrift("share", 0.5**i) for i in range(1, 7))
QUOTAS = tuple(Thrift("quota", n) for n in (5, 3, 2, 1))
LIMITS = tuple(Thrift("limit", n) for n in (100, 50, 20))
RULERS: tuple[Ruler, ...] = (
    Ruler("seat", "seat:lexicon=kaneko,targets=stereotypes,quota=10", "bias", QUOTAS),
    Ruler("seat-occupations", "seat:quota=30", "bias", QUOTAS),
    Ruler("strength", "strength", "bias", SHARES),
    Ruler("distance", "distance", "bias", SHARES),
    Ruler("contrast", "contrast", "bias", SHARES),
    Ruler("cloze", "cloze:backgrounds=1", "bias", SHARES),
    Ruler("stereotype", "stereotype_score", "bias", SHARES),
    Ruler("crows", "crows", "bias", SHARES),
    Ruler("nli-fairness", "nli_fairness", "bias", SHARES),
    Ruler("nli-coal", "nli_coal", "bias", SHARES),
    Ruler("pppl", "pppl:limit=200", "price", LIMITS),
    Ruler("ppl", "ppl:limit=200", "price", LIMITS),
    # Not GAP: its passages alone take a quarter of a minute to be found.
    Ruler("agreement", "pronoun_agreement:sources=winogender+winobias", "price", SHARES),
    Ruler("snli", "snli", "price", SHARES),
)
"""One row a ruler, in the order in which they are asked."""
MAPPED = ("seat", "seat-occupations")
"""The rulers whose heads are located: the first that is asked."""
PRICES = ("pppl", "ppl")
DEALT = {"rulers": 0.45, "heads": 0.25, "masking": 0.1, "explain": 0.05, "knowledge": 0.15}
"""Of the time for questions, the share of each part; what one leaves goes to the next."""
TRYING = 0.6
"""Of the time there is, when no further ruler is tried out any more."""
FEWEST = 20
"""Words, pairs or occupations: of fewer, a part of a ruler is not asked."""
OVERHEAD = 0.75
"""Of the time there is, what questions may take: the rest is statistics and drawing."""
BOTH_WAYS = 3.2
"""A gradient in two passes, in forwards."""
WITHOUT = 0.6
"""A forward without one head, in whole ones."""
FEW_HEADS = (24, 8)
"""How many heads are ablated one by one if there is no time for all."""
PAIRS = (500, 200, 100, 50)
FORWARDS_A_PAIR = 6
"""Original, counterfactual and placebo, with their attention."""


class LeftOut(Record):
    """Something the audit does not say, and why."""

    what: str
    why: str


class Cut(Record):
    """Something that was asked in part, for lack of time."""

    what: str
    whole: Annotated[int, Field(ge=0)]
    asked: Annotated[int, Field(ge=0)]


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


class _Asked(NamedTuple):
    ruler: Ruler
    measure: Measure
    asked: Sequence[Asked]
    whole: int
    pace: float
    """Seconds a question; 0 if time does not matter."""

    @property
    def ways(self) -> list[Thrift | None]:
        """Whole, and in parts that are not too small."""
        return [
            way
            for way in (None, *self.ruler.thrifts)
            if way is None
            or way.option != "share"
            or units(self.asked[0], self.measure, way) >= FEWEST
        ]

    @property
    def least(self) -> Thrift | None:
        """The smallest part of it that is asked."""
        return self.ways[-1]

    def seconds(self, thrift: Thrift | None = None) -> float:
        return self.pace * questions(self.asked, self.measure, thrift)


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
    fitting, left_out = _fitting(lm, most, threads=threads, on_step=on_step)
    if not fitting:
        why = "; ".join(f"{one.what}: {one.why}" for one in left_out)
        raise LevelheadError(
            f"there is nothing to ask of {lm.identity.name}: {why}",
            mend="use a model with a head of its own, and check the data: `levelhead data list`",
        )
    models = 2 if sources.against else 1
    left = None if budget is None else (budget + began - time.monotonic()) * OVERHEAD
    dealt = _Time(left, models, left_out)
    texts = dealt.rulers(fitting)
    measures = {name: text for name, text in texts.items() if text}
    roles = tuple((one.ruler.name, one.ruler.role) for one in fitting if one.ruler.name in measures)
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
    plan |= dealt.heads(lm, {one.ruler.name: one for one in fitting}, measures)
    plan |= dealt.knowledge(lm, {one.ruler.name: one for one in fitting})
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
        about=str(lm),
        plan=found,
        roles=roles,
        left_out=tuple(dealt.left_out),
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
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(str(folder / STUDY), audit.plan.to_json().encode() + b"\n")
    write_atomic(str(folder / AUDIT), audit.to_json().encode() + b"\n")


def _shown(source: Source) -> str:
    """A model's name without the folders it lies in."""
    name = Path(source.path).name if Path(source.path).exists() else source.path
    return f"{name}, edited" if source.edit else name


def _fitting(
    lm: LM, until: float | None, *, threads: int, on_step: Callable[[str, int, int], None]
) -> tuple[list[_Asked], list[LeftOut]]:
    """The rulers that a model can be asked by, and why it cannot by others."""
    found: list[_Asked] = []
    left_out: list[LeftOut] = []
    for number, ruler in enumerate(RULERS):
        on_step(f"trying {ruler.name}", number, len(RULERS))
        try:
            measure = parsed(ruler.text)
            measure.check(lm)
            if found and until is not None and time.monotonic() > until:
                raise LevelheadError("there is no time to try it", mend="give a larger budget")
            asked = measure.asked(lm)
            each = 0.0 if until is None else pace(lm, asked, threads=threads)
        except LevelheadError as error:
            left_out.append(LeftOut(what=ruler.name, why=error.what))
            continue
        found.append(_Asked(ruler, measure, asked, questions(asked, measure), each))
    on_step("tried", len(RULERS), len(RULERS))
    return found, left_out


class _Time:
    """The time that is left, and what it was not enough for."""

    def __init__(self, total: float | None, models: int, left_out: Sequence[LeftOut]) -> None:
        self.total = total
        self.models = models
        self.used = 0.0
        self.left_out = list(left_out)
        self.cut: list[Cut] = []

    def part(self, name: str) -> float:
        """The seconds of a part: its share of what is left, as the later parts share it."""
        if self.total is None:
            return float("inf")
        names = list(DEALT)
        later = sum(DEALT[one] for one in names[names.index(name) :])
        return (self.total - self.used) * DEALT[name] / later

    def rulers(self, fitting: Sequence[_Asked]) -> dict[str, str]:
        """Every ruler as it is asked; empty if there is no time for it."""
        ways = self._ways(fitting, self.part("rulers"))
        if not ways and self.total is not None:
            ways = self._ways(fitting, self.total / OVERHEAD)  # rather than anything else
        if not ways:  # one is asked even if it takes longer: nothing would be no audit
            cheapest = min(fitting, key=lambda one: one.seconds(one.least))
            ways = {cheapest.ruler.name: cheapest.least}
        texts = {}
        for one in fitting:
            name = one.ruler.name
            if name not in ways:
                self.left_out.append(LeftOut(what=name, why="there is no time for it"))
                texts[name] = ""
                continue
            way = ways[name]
            self.used += one.seconds(way) * self.models
            texts[name] = one.ruler.text if way is None else _with(one.ruler.text, way)
            if way is not None:
                asked = questions(one.asked, one.measure, way)
                self.cut.append(Cut(what=name, whole=one.whole, asked=asked))
        return texts

    def _ways(self, fitting: Sequence[_Asked], limit: float) -> dict[str, Thrift | None]:
        """How each ruler is asked in its part of some time; the dearest is given up first."""
        left = list(fitting)
        while left:
            given = shared_out({one.ruler.name: one.seconds() * self.models for one in left}, limit)
            ways = {one.ruler.name: self._fits(one, given[one.ruler.name]) for one in left}
            if all(ways.values()):
                return {name: own[0] for name, own in ways.items()}
            without = [one for one in left if not ways[one.ruler.name]]
            left.remove(max(without, key=lambda one: one.seconds(one.least)))
        return {}

    def _fits(self, one: _Asked, limit: float) -> list[Thrift | None]:
        """How a ruler can be asked in some time, the most first."""
        return [way for way in one.ways if one.seconds(way) * self.models <= limit * 1.001]

    def heads(
        self, lm: LM, fitting: dict[str, _Asked], measures: dict[str, str]
    ) -> dict[str, object]:
        """The map of heads, and what is made of it."""
        mapped, price = (
            next((p for p in names if p in measures), None) for names in (MAPPED, PRICES)
        )
        if mapped is None:
            self.left_out.append(LeftOut(what="heads", why="no ruler of embeddings is asked"))
            return {}
        one = fitting[mapped]
        every = lm.anatomy.layers * lm.anatomy.heads
        limit = self.part("heads")
        ways: list[tuple[Thrift, int | Literal["all"]]] = [(way, "all") for way in QUOTAS]
        ways += [(QUOTAS[-1], few) for few in FEW_HEADS if few < every]
        for way, exact in ways:
            count = every if exact == "all" else exact
            cost = one.seconds(way) * (1 + BOTH_WAYS + WITHOUT * count)
            if cost <= limit:
                break
        else:
            self.left_out.append(LeftOut(what="heads", why="there is no time to locate them"))
            return {}
        self.used += cost
        if exact != "all":
            self.cut.append(Cut(what="heads ablated one by one", whole=every, asked=count))
        measures["heads"] = _with(one.ruler.text, way)
        plan: dict[str, object] = {
            "maps": {"heads": Located(model=MODEL, measure="heads", exact=exact)}
        }
        variants = one.seconds(way) + (fitting[price].seconds(LIMITS[-1]) if price else 0.0)
        if price and 10 * variants <= self.part("masking"):
            self.used += 10 * variants
            measures["price"] = _with(fitting[price].ruler.text, LIMITS[-1])
            plan["masking"] = {"heads": Masking(map="heads", prices=("price",), random=3)}
        elif price:
            self.left_out.append(LeftOut(what="masking", why="there is no time for it"))
        fits = [n for n in PAIRS if n * FORWARDS_A_PAIR * one.pace <= self.part("explain")]
        if not fits:
            self.left_out.append(LeftOut(what="counter-stereotypes", why="there is no time"))
            return plan
        self.used += fits[0] * FORWARDS_A_PAIR * one.pace
        if fits[0] < PAIRS[0]:
            self.cut.append(Cut(what="counter-stereotypes", whole=PAIRS[0], asked=fits[0]))
        explained = Explained(map="heads", pairs="counter-stereotype", n=fits[0])
        return plan | {"explain": {"heads": explained}}

    def knowledge(self, lm: LM, fitting: dict[str, _Asked]) -> dict[str, object]:
        """The battery of counterexamples."""
        one = fitting.get("cloze")
        if one is None:
            return {}
        limit = self.part("knowledge")
        for backgrounds in (None, 3, 1):
            measure = replace(one.measure, backgrounds=backgrounds)  # type: ignore[call-arg]
            asked = questions(measure.asked(lm), measure)
            cost = asked * one.pace
            if cost <= limit:
                self.used += cost
                row = Prompting(model=MODEL, backgrounds=backgrounds, parts=False)
                if backgrounds is not None:
                    whole = replace(one.measure, backgrounds=None)  # type: ignore[call-arg]
                    every = questions(whole.asked(lm), whole)
                    self.cut.append(Cut(what="counterexamples", whole=every, asked=asked))
                return {"knowledge": {"prompts": row}}
        self.left_out.append(LeftOut(what="counterexamples", why="there is no time for them"))
        return {}


def _with(text: str, way: Thrift) -> str:
    """A measure with an option set, in the place of the same option if it has it."""
    name, _, rest = text.partition(":")
    options = [one for one in filter(None, rest.split(",")) if not one.startswith(f"{way.option}=")]
    return f"{name}:{','.join([*options, f'{way.option}={way.value:g}'])}"
