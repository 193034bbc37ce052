"""The time that the core suite leaves, dealt to what an audit adds; what it is not enough for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record
from levelhead.measures.registry import parsed
from levelhead.study.audit.suite import FLUENCY, LIMITS, LeftOut, Ruler, fitted, locators, no_time
from levelhead.study.audit.time_budget import questions, shared_out
from levelhead.study.steps.counterstereotype import Explained
from levelhead.study.steps.head_maps import Located
from levelhead.study.steps.masking import Masking
from levelhead.study.steps.prompting import Prompting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.lm import LM
    from levelhead.study.audit.suite import Fitting
    from levelhead.study.audit.time_budget import Paces, Thrift

MODEL = "model"
"""The audited model's name in the plan."""
COUNTEREXAMPLES = "cloze"
"""The measure whose prompts the battery of counterexamples varies."""
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

    def __init__(
        self, lm: LM, paces: Paces, total: float | None, models: int, left_out: Sequence[LeftOut]
    ) -> None:
        self.lm = lm
        self.paces = paces
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
        """The measures that are added, as they are asked."""
        ways = self._ways(fitting, self.part("rulers"))
        texts = {}
        for one in fitting:
            name = one.ruler.name
            if name not in ways:
                self.left_out.append(no_time(name))
                continue
            way = ways[name]
            self.used += one.seconds(way) * self.models
            texts[name] = with_option(one.ruler.text, way)
            if way is not None:
                asked = questions(one.asked, one.measure, way)
                self.cut.append(Cut(what=name, whole=one.whole, asked=asked))
        return texts

    def _ways(self, fitting: Sequence[Fitting], limit: float) -> dict[str, Thrift | None]:
        """How each measure is asked in its part of some time; the dearest is given up first."""
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
        """How a measure can be asked in some time, the most first."""
        return [way for way in one.ways if one.seconds(way) * self.models <= limit * 1.001]

    def heads(self, measures: dict[str, str], *, last: bool = False) -> dict[str, object]:
        """The map of heads, and what is made of it.

        By the best calibrated measure that there is time for. Tried twice: in its part of the time,
        and, where that is too little, last, in all that the others left.

        Args:
            measures: of the plan; those of the map are added.
            last: whether to say why there is none.
        """
        limit = self.left if last else self.part("heads")
        every = self.lm.anatomy.layers * self.lm.anatomy.heads
        candidates, why = locators(self.lm) if limit > 0 else ([], ["time budget"])
        for ruler in candidates:
            try:
                fit = fitted(self.lm, ruler, self.paces)
            except LevelheadError as error:
                why.append(f"{ruler.name}: {error.what}")
                continue
            way = _located(fit, every, limit)
            if way is not None:
                return self._mapped(fit, way, every, measures)
            why.append(f"{ruler.name}: time budget")
        if last:
            is_late = any("time budget" in reason for reason in why)
            told = "; ".join(why) or "no measure that can locate heads fits this model"
            reason: Literal["time budget", "does not fit this model"] = (
                "time budget" if is_late else "does not fit this model"
            )
            self.left_out.append(LeftOut(what="heads", why=told, reason=reason))
        return {}

    def _mapped(
        self,
        fit: Fitting,
        way: tuple[Thrift | None, int | Literal["all"], float],
        every: int,
        measures: dict[str, str],
    ) -> dict[str, object]:
        """A map by one measure, with masking and the counter-stereotype experiment."""
        thrift, exact, cost = way
        self.used += cost
        if exact != "all":
            self.cut.append(Cut(what="heads ablated one by one", whole=every, asked=exact))
        measures["heads"] = with_option(fit.ruler.text, thrift)
        plan: dict[str, object] = {
            "maps": {"heads": Located(model=MODEL, measure="heads", exact=exact)}
        }
        price = self._price()
        variants = fit.seconds(thrift) + (price.seconds() if price else 0.0)
        if price and 10 * variants <= self.part("masking"):
            self.used += 10 * variants
            measures["price"] = price.ruler.text
            plan["masking"] = {"heads": Masking(map="heads", prices=("price",), random=3)}
        elif price:
            self.left_out.append(no_time("masking"))
        return plan | self._explained(fit)

    def _price(self) -> Fitting | None:
        """What masking heads costs, on few texts."""
        for name in FLUENCY:
            ruler = Ruler(name, with_option(name, LIMITS[-1]), ())
            try:
                return fitted(self.lm, ruler, self.paces)
            except LevelheadError:
                continue
        return None

    def _explained(self, one: Fitting) -> dict[str, object]:
        """The counter-stereotype experiment, with as many pairs as there is time for."""
        fits = [n for n in PAIRS if n * FORWARDS_A_PAIR * one.pace <= self.part("explain")]
        if not fits:
            self.left_out.append(no_time("counter-stereotypes"))
            return {}
        self.used += fits[0] * FORWARDS_A_PAIR * one.pace
        if fits[0] < PAIRS[0]:
            self.cut.append(Cut(what="counter-stereotypes", whole=PAIRS[0], asked=fits[0]))
        explained = Explained(map="heads", pairs="counter-stereotype", n=fits[0])
        return {"explain": {"heads": explained}}

    def knowledge(self) -> dict[str, object]:
        """The battery of counterexamples."""
        limit = self.part("knowledge")
        base = parsed(COUNTEREXAMPLES)
        try:
            base.check(self.lm)
            whole = questions(base.asked(self.lm), base)
        except LevelheadError:  # a model that no prompt can be asked of
            return {}
        for backgrounds in (None, 3, 1):
            measure = replace(base, backgrounds=backgrounds)  # type: ignore[call-arg]
            rows = measure.asked(self.lm)
            asked = questions(rows, measure)
            cost = asked * self.paces.pace(rows) if limit > 0 else 0.0
            if limit > 0 and cost <= limit:
                self.used += cost
                row = Prompting(model=MODEL, backgrounds=backgrounds, parts=False)
                if backgrounds is not None:
                    self.cut.append(Cut(what="counterexamples", whole=whole, asked=asked))
                return {"knowledge": {"prompts": row}}
        self.left_out.append(no_time("counterexamples"))
        return {}


def _located(
    one: Fitting, every: int, limit: float
) -> tuple[Thrift | None, int | Literal["all"], float] | None:
    """With how much of a measure heads are located, how many are ablated, and the seconds."""
    ways: list[tuple[Thrift | None, int | Literal["all"]]] = [(way, "all") for way in one.ways]
    ways += [(one.least, few) for few in FEW_HEADS if few < every]
    for thrift, exact in ways:
        count = every if exact == "all" else exact
        cost = one.seconds(thrift) * (1 + BOTH_WAYS + WITHOUT * count)
        if cost <= limit:
            return thrift, exact, cost
    return None


def with_option(text: str, way: Thrift | None) -> str:
    """A measure with an option set, in the place of the same option if it has it."""
    if way is None:
        return text
    name, _, rest = text.partition(":")
    options = [one for one in filter(None, rest.split(",")) if not one.startswith(f"{way.option}=")]
    return f"{name}:{','.join([*options, f'{way.option}={way.value:g}'])}"
