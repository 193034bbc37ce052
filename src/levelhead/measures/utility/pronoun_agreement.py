"""Pronoun agreement: does a model still know what people need it to know?

An edit that takes a group out of a model may take grammar with it: that the man is `he`. This is
asked where no stereotype can help, of sentences in which everybody is of one group
(`data.agreeing`). A price, not a bias: an edit is to leave it as it was. The gap between the
groups, in sentences that were asked of both, is a bias: one group's people are written about worse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast, final, get_args

import numpy as np
import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.published import any_lexicon
from levelhead.data.prompts.pronoun_agreement import (
    BEYOND,
    PEOPLE,
    Agreeing,
    Agreement,
    Source,
    agreeing,
    data_of,
)
from levelhead.measures.base import Beside, Measure, Need, chosen, items_hash
from levelhead.measures.inference import estimate
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect, scaled
from levelhead.measures.reductions import mean, scaled_by
from levelhead.models.inputs.tokenizer import MASK
from levelhead.stats.degenerate import is_constant
from levelhead.stats.designs import groups as independent
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.run_context import Inference
    from levelhead.measures.items import Ask
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

SOURCES: tuple[str, ...] = get_args(Source)
GAP = "gap: "
"""Begins the name of the difference between the groups, the first less the second."""


@final
@dataclass(frozen=True)
class PronounAgreement(Measure):
    """How often the pronoun that agrees is likelier than the other group's, in percent.

    A masked model is asked for the pronoun in its place, a causal one for the whole sentence with
    either. Every sentence is asked of both groups, and of GAP as many passages of either: always
    the same pronoun is right in 50%. A tie counts half.
    """

    texts: tuple[Agreeing, ...] | None = None
    """Your own sentences; by default those of the sources."""
    sources: tuple[Source, ...] = ("winogender", "winobias", "gap")
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    people: tuple[str, ...] = PEOPLE
    """Words of the first group that stand for people."""
    limit: int | None = 400
    """Of GAP's passages, which are long."""

    metrics: ClassVar[dict[str, str]] = {
        "pronoun_agreement": "knowledge people need: pronouns that are beyond doubt",
        "pronoun_agreement_margin": "by how much they are likelier",
    }
    needs: ClassVar[tuple[Need, ...]] = ("masked", "causal")

    def __post_init__(self) -> None:
        super().__post_init__()
        for source in self.sources:
            chosen(source, SOURCES, "source")
        if self.texts is None and not self.sources:
            raise LevelheadError("there is no source", mend=f"name some of {', '.join(SOURCES)}")

    # -- items

    @cached_property
    def own_lexicon(self) -> Lexicon:
        """The lexicon itself."""
        return any_lexicon(self.lexicon)

    @property
    def compared(self) -> tuple[str, str]:
        """The two groups whose pronouns are asked."""
        return self.own_lexicon.two(self.groups)

    @cached_property
    def _read(self) -> Mapping[str, Agreement]:
        return {
            source: agreeing(
                source,
                self.own_lexicon,
                groups=self.groups,
                people=self.people,
                limit=self.limit,
            )
            for source in self.sources
        }

    @property
    def items(self) -> tuple[Agreeing, ...]:
        """The sentences."""
        if self.texts is not None:
            return self.texts
        return tuple(one for own in self._read.values() for one in own.sentences)

    @property
    def data(self) -> Mapping[str, str]:
        """The sources' files and the lexicon, or the sentences themselves."""
        if self.texts is not None:
            return {"texts": items_hash(self.texts)}
        words = self.own_lexicon
        return data_of(self.sources) | {f"lexicon {words.name}": words.sha256}

    @property
    def _beyond(self) -> int:
        """Sentences that could have been asked and are not: the limit, or the other group's."""
        if self.texts is not None:
            return 0
        return sum(dict(own.left_out).get(BEYOND, 0) for own in self._read.values())

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """Both pronouns in every sentence: in the blank, or in the whole text."""
        causal = lm.anatomy.cls.causal
        items = tuple(
            Item(one.id, _asks(one, causal=causal), (one.unit,), one.group, kind=one.source)
            for one in self.items
        )
        notes = ["always the same pronoun: 50%"]
        if self.texts is None:
            notes += [
                f"{source}: left out {count} ({reason})"
                for source, own in self._read.items()
                for reason, count in own.left_out
                if count
            ]
        told = {
            "factors": ("sentences",),
            "items": items,
            "notes": tuple(notes),
            "population": len(items) + self._beyond or None,
        }
        if causal:
            return (Asked("score", Frozen({}), **told),)  # type: ignore[arg-type]
        words = sorted({word for one in self.items for word in (one.own, one.other)})
        columns = {one.id: [words.index(one.own), words.index(one.other)] for one in self.items}
        facts = Frozen({"columns": columns})
        return (Asked("fill", Frozen({"words": words}), facts=facts, **told),)  # type: ignore[arg-type]

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Sentences, asked of whichever group."""
        return readouts.design()

    # -- formulas

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The share of agreement and its smooth companion, either of them first."""
        share = Aspect(
            name="pronoun_agreement",
            equation="share of sentences whose agreeing pronoun is likelier; ties count half",
            per_item=_agrees,
            over=scaled_by(100, mean),
            unit="% of sentences",
            low=0.0,
            high=100.0,
            direction="larger: more pronouns agree",
            comparable="pronoun agreement, same sentences",
            role="utility",
            worse="lower",
            parity=None,
            companion="pronoun_agreement_margin",
            closed=_where_constant,
        )
        margin = replace(
            share,
            name="pronoun_agreement_margin",
            equation="mean log-probability of the agreeing pronoun less that of the other",
            per_item=_margins,
            over=mean,
            unit="nats",
            low=-float("inf"),
            high=float("inf"),
            direction="larger: pronouns that agree are likelier",
            comparable="pronoun agreement margin, same sentences",
            companion=None,
            closed=None,
        )
        return share, margin

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """The headline by group and by source, and the gap between the groups."""
        readouts = found[0]
        estimates: list[Estimate] = []
        notes: list[str] = []
        parts = [(f"group: {name}", "group", name) for name in readouts.groups]
        kinds = dict.fromkeys(item.kind for item in readouts.items)
        parts += [(f"source: {name}", "kind", name) for name in kinds] if len(kinds) > 1 else []
        for told, field, name in parts:
            own = readouts.some(lambda item, f=field, n=name: getattr(item, f) == n)  # type: ignore[misc]
            head = self.headline
            try:
                values, design = head.per_item(own), self.design(own, head)
                estimates.append(estimate(inference, head, values, design, name=told, tested=False))
            except NotMeasurable as error:
                notes.append(f"{told}: {error.what}")
        try:
            estimates.append(self._gap(readouts, inference))
        except NotMeasurable as error:
            notes.append(f"gap between the groups: {error.what}")
        return Beside(tuple(estimates), tuple(notes))

    def _gap(self, readouts: Readouts, inference: Inference) -> Estimate:
        """By how much the first group's pronouns agree more often, in sentences asked of both."""
        first, second = self.compared
        values = self.headline.per_item(readouts).detach()
        by_sentence: dict[str, dict[str, float]] = {}
        for item, value in zip(readouts.items, values.tolist(), strict=True):
            by_sentence.setdefault(item.units[0], {})[item.group] = value
        both = [pair for pair in by_sentence.values() if {first, second} <= set(pair)]
        if not both:
            raise NotMeasurable(
                "no sentence was read of both groups", mend="ask sources whose people are exchanged"
            )
        differences = torch.tensor([pair[first] - pair[second] for pair in both]).double()
        is_share = self.headline.unit == "% of sentences"
        gap = replace(
            self.headline,
            name=f"{GAP}{first} - {second}",
            over=scaled_by(100, mean) if is_share else mean,
            unit="percentage points" if is_share else self.headline.unit,
            low=-100.0 if is_share else -float("inf"),
            high=100.0 if is_share else float("inf"),
            parity=0.0,
            # Under equal treatment either group could have been asked in the other's place: the
            # difference of a sentence changes its sign. Without any difference there is no such
            # distribution, and the interval's p-value is 1.
            null="flip" if bool(differences.any()) else None,
            companion=None,
            closed=_where_no_spread if is_share else None,
        )
        return estimate(inference, gap, differences, independent(len(both), name="sentences"))


def _asks(one: Agreeing, *, causal: bool) -> tuple[Ask, ...]:
    start, end = one.span
    before, after = one.text[:start], one.text[end:]
    if causal:
        return (one.text, None), (f"{before}{one.other}{after}", None)
    return ((f"{before}{MASK}{after}",),)


def _margins(readouts: Readouts) -> torch.Tensor:
    """`[sentences]` log-probability with the agreeing pronoun less that with the other."""
    if "columns" in readouts.facts:
        columns = cast("Mapping[str, tuple[int, int]]", readouts.facts["columns"])
        places = torch.tensor([list(columns[item.id]) for item in readouts.items])
        both = readouts.values[:, 0].gather(1, places)
    else:
        both = readouts.values[:, :, 0]
    fixed = readouts.values.detach()
    if len(fixed) > 1 and bool((fixed == fixed[:1]).all()):
        raise NotMeasurable(
            "the model says the same of every sentence: all answers are equal",
            mend="check that it was trained, and that it reads the texts",
        )
    found = both[:, 0] - both[:, 1]
    if not bool(found.detach().abs().max() > 0):
        raise NotMeasurable(
            "both pronouns are equally likely in every sentence: the model tells nothing",
            mend="check that the model was trained, and that it reads the texts",
        )
    return found


def _agrees(readouts: Readouts) -> torch.Tensor:
    margins = _margins(readouts)
    return (margins > 0).double() + 0.5 * (margins == 0).double()


def _where_no_spread(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Of differences that are all alike: Wilson's, for resampling has no width there.

    All 0: neither group is favoured in any sentence, by as much as that many sentences can say.
    """
    if not is_constant(values.numpy()):
        return None
    value = float(values[0])
    trials = len(values)
    apart = proportion_interval(round(abs(value) * trials), trials, level=level)
    reach = max(apart.high - abs(value), abs(value) - apart.low)
    ends = {"low": max(value - reach, -1.0), "high": min(value + reach, 1.0)}
    return scaled(apart.model_copy(update=ends), 100)


def _where_constant(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's where every sentence gives the same: resampling has no width there.

    All agree, or none, or one pronoun is said whoever it is about: half of every sentence.
    """
    (factor,) = design.factors
    means = np.bincount(factor.unit, weights=values.numpy()) / np.bincount(factor.unit)
    if not is_constant(means):
        return None
    hits = round(float(means.mean()) * factor.units)
    return scaled(proportion_interval(hits, factor.units, level=level), 100)
