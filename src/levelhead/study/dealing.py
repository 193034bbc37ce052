"""The time there is, dealt to the parts of an audit; what it is not enough for is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from levelhead.core.results import Record
from levelhead.study.budget import questions, shared_out
from levelhead.study.fitting import LIMITS, QUOTAS, LeftOut
from levelhead.study.schema import Explained, Located, Masking, Prompting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.lm import LM
    from levelhead.study.budget import Thrift
    from levelhead.study.fitting import Fitting

MODEL = "model"
"""The audited model's name in the plan."""
MAPPED = ("seat", "seat-occupations")
"""The rulers whose heads are located: the first that is asked."""
PRICES = ("pppl", "ppl")
DEALT = {"rulers": 0.45, "heads": 0.25, "masking": 0.1, "explain": 0.05, "knowledge": 0.15}
"""Of the time for questions, the share of each part; what one leaves goes to the next."""
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


class Cut(Record):
    """Something that was asked in part, for lack of time."""

    what: str
    whole: Annotated[int, Field(ge=0)]
    asked: Annotated[int, Field(ge=0)]


class Dealing:
    """The time that is left, and what it was not enough for."""

    def __init__(self, total: float | None, models: int, left_out: Sequence[LeftOut]) -> None:
        self.total = total
        self.models = models
        self.used = 0.0
        self.left_out = list(left_out)
        self.cut: list[Cut] = []

    @property
    def left(self) -> float:
        """The seconds that are not dealt yet."""
        return float("inf") if self.total is None else self.total - self.used

    def part(self, name: str) -> float:
        """The seconds of a part: its share of what is left, as the later parts share it."""
        if self.total is None:
            return float("inf")
        names = list(DEALT)
        later = sum(DEALT[one] for one in names[names.index(name) :])
        return (self.total - self.used) * DEALT[name] / later

    def rulers(self, fitting: Sequence[Fitting]) -> dict[str, str]:
        """Every ruler as it is asked; empty if there is no time for it."""
        ways = self._ways(fitting, self.part("rulers"))
        if not ways and self.total is not None:
            ways = self._ways(fitting, self.total / OVERHEAD)  # rather than anything else
        biases = [one for one in fitting if one.ruler.role == "bias"]
        if not any(one.ruler.name in ways for one in biases or fitting):
            # One is asked even if it takes longer: a price alone, or nothing, would be no audit.
            cheapest = min(biases or fitting, key=lambda one: one.seconds(one.least))
            ways |= {cheapest.ruler.name: cheapest.least}
        texts = {}
        for one in fitting:
            name = one.ruler.name
            if name not in ways:
                self.left_out.append(LeftOut(what=name, why="there is no time for it"))
                texts[name] = ""
                continue
            way = ways[name]
            self.used += one.seconds(way) * self.models
            texts[name] = one.ruler.text if way is None else with_option(one.ruler.text, way)
            if way is not None:
                asked = questions(one.asked, one.measure, way)
                self.cut.append(Cut(what=name, whole=one.whole, asked=asked))
        return texts

    def _ways(self, fitting: Sequence[Fitting], limit: float) -> dict[str, Thrift | None]:
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

    def _fits(self, one: Fitting, limit: float) -> list[Thrift | None]:
        """How a ruler can be asked in some time, the most first."""
        return [way for way in one.ways if one.seconds(way) * self.models <= limit * 1.001]

    def heads(
        self, lm: LM, fitting: dict[str, Fitting], measures: dict[str, str], *, last: bool = False
    ) -> dict[str, object]:
        """The map of heads, and what is made of it.

        Tried twice: in its part of the time, and, where that is too little, last, in all that the
        others left.
        """
        mapped, price = (
            next((p for p in names if p in measures), None) for names in (MAPPED, PRICES)
        )
        limit = self.left if last else self.part("heads")
        every = lm.anatomy.layers * lm.anatomy.heads
        way = None if mapped is None else _located(fitting[mapped], every, limit)
        if mapped is None or way is None:
            why = "there is no time to locate them" if mapped else "no ruler of embeddings is asked"
            if last:
                self.left_out.append(LeftOut(what="heads", why=why))
            return {}
        one, (thrift, exact, cost) = fitting[mapped], way
        self.used += cost
        if exact != "all":
            self.cut.append(Cut(what="heads ablated one by one", whole=every, asked=exact))
        measures["heads"] = with_option(one.ruler.text, thrift)
        plan: dict[str, object] = {
            "maps": {"heads": Located(model=MODEL, measure="heads", exact=exact)}
        }
        variants = one.seconds(thrift) + (fitting[price].seconds(LIMITS[-1]) if price else 0.0)
        if price and 10 * variants <= self.part("masking"):
            self.used += 10 * variants
            measures["price"] = with_option(fitting[price].ruler.text, LIMITS[-1])
            plan["masking"] = {"heads": Masking(map="heads", prices=("price",), random=3)}
        elif price:
            self.left_out.append(LeftOut(what="masking", why="there is no time for it"))
        return plan | self._explained(one)

    def _explained(self, one: Fitting) -> dict[str, object]:
        """The counter-stereotype experiment, with as many pairs as there is time for."""
        fits = [n for n in PAIRS if n * FORWARDS_A_PAIR * one.pace <= self.part("explain")]
        if not fits:
            self.left_out.append(LeftOut(what="counter-stereotypes", why="there is no time"))
            return {}
        self.used += fits[0] * FORWARDS_A_PAIR * one.pace
        if fits[0] < PAIRS[0]:
            self.cut.append(Cut(what="counter-stereotypes", whole=PAIRS[0], asked=fits[0]))
        explained = Explained(map="heads", pairs="counter-stereotype", n=fits[0])
        return {"explain": {"heads": explained}}

    def knowledge(self, lm: LM, fitting: dict[str, Fitting]) -> dict[str, object]:
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


def _located(
    one: Fitting, every: int, limit: float
) -> tuple[Thrift, int | Literal["all"], float] | None:
    """With how many contexts a word heads are located, how many are ablated, and the seconds."""
    ways: list[tuple[Thrift, int | Literal["all"]]] = [(thrift, "all") for thrift in QUOTAS]
    ways += [(QUOTAS[-1], few) for few in FEW_HEADS if few < every]
    for thrift, exact in ways:
        count = every if exact == "all" else exact
        cost = one.seconds(thrift) * (1 + BOTH_WAYS + WITHOUT * count)
        if cost <= limit:
            return thrift, exact, cost
    return None


def with_option(text: str, way: Thrift) -> str:
    """A measure with an option set, in the place of the same option if it has it."""
    name, _, rest = text.partition(":")
    options = [one for one in filter(None, rest.split(",")) if not one.startswith(f"{way.option}=")]
    return f"{name}:{','.join([*options, f'{way.option}={way.value:g}'])}"
