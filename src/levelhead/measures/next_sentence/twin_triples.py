"""Twin triples: a context, what may follow it, and the same with the genders exchanged.

Dawkins et al. 2024, section 2, on the enhanced StereoSet. A twin exchanges the genders,
so the label flips with it: the twin of a stereotype is an anti-stereotype.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.run_context import Inference
from levelhead.data.catalog.datasets import dataset
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.lint import lint
from levelhead.data.records import TwinTriple
from levelhead.data.tokenize import folded, tokens
from levelhead.measures.base import Measure, chosen, items_hash
from levelhead.measures.items import Item
from levelhead.measures.metric import Aspect
from levelhead.measures.reductions import Reduction, Rounding, tail_size, top_mean_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Estimate
    from levelhead.measures.responses import Readouts

Part = Literal["all", "dev", "test"]
Units = Literal["auto", "terms", "items"]
PAPER = "Dawkins et al. 2024"
SWAPPED = "stereoset-swapped"
FACTORS = ("units",)


@dataclass(frozen=True)
class Twins(Measure):
    """What the measures on twin triples share. Abstract."""

    triples: tuple[TwinTriple, ...] | None = None
    """Your own; None: the enhanced StereoSet."""
    part: Part = "all"
    """Of the enhanced StereoSet: dev (234 pairs), test (749) or all."""
    top: float = 0.1
    """The share of items that the headline averages: the largest."""
    rounding: Rounding = "round"
    units: Units = "auto"
    """What was sampled: "terms" (items on one target term are drawn together) or "items". "auto":
    terms, where there are at least eight."""

    linted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen(self.part, get_args(Part), "part")
        chosen(self.rounding, get_args(Rounding), "rounding")
        chosen(self.units, get_args(Units), "units")
        tail_size(10**6, self.top, self.rounding)  # refuses a share that is none
        if self.triples is not None and self.part != "all":
            raise LevelheadError(
                f"part {self.part!r} of triples of your own", mend="choose among them before"
            )

    @cached_property
    def items(self) -> tuple[TwinTriple, ...]:
        """The triples."""
        if self.triples is not None:
            return tuple(self.triples)
        row = dataset(SWAPPED)
        parts = row.parts if self.part == "all" else (self.part,)
        found = chain.from_iterable(map(row.items, parts))
        return tuple(item for item in found if isinstance(item, TwinTriple))

    @property
    def data(self) -> Mapping[str, str]:
        """The data set's files, or the triples themselves."""
        if self.triples is not None:
            return {"triples": items_hash(self.triples)}
        files = dataset(SWAPPED).files
        return {
            f"{SWAPPED}/{file.path}": file.sha256
            for file in files
            if self.part in ("all", file.part)
        }

    @cached_property
    def flags(self) -> frozenset[str]:
        """The items that the linter flags."""
        return frozenset(flag.item for flag in lint(self.items))

    @cached_property
    def compared(self) -> tuple[str, str]:
        """The groups of originals, as the data name them."""
        names = sorted({one.group for one in self.items})
        if len(names) != 2:
            raise NotMeasurable(
                f"originals of {len(names)} groups ({', '.join(names) or 'none'})",
                mend="twins compare two groups: name the one of every original, two in all",
            )
        return names[0], names[1]

    def item(self, one: TwinTriple, *asks: tuple[str, str]) -> Item:
        """A triple and some pairs of texts that are asked of it."""
        unit = _term(one) if self.by_term else one.id
        return Item(one.id, asks, (unit,), one.group, flagged=one.id in self.flags)

    @cached_property
    def by_term(self) -> bool:
        """Whether items on one target term are drawn together."""
        if self.units != "auto":
            return self.units == "terms"
        return len({_term(one) for one in self.items}) >= 8

    @property
    def top_mean(self) -> Reduction:
        """The mean over the top share of the items drawn, chosen anew for every draw."""
        return top_mean_of(self.top, self.rounding)

    def origins(
        self, readouts: Readouts, aspect: Aspect, inference: Inference
    ) -> tuple[tuple[Estimate, ...], str]:
        """The signed mean by the gender of the original, on unflagged items; and what it says.

        Swaps are one-sided: all originals were written by people and all twins by a program. If
        that moved s, it would move it one way for originals of one gender and the other way for
        those of the other, and only one of them would look like a stereotype.
        """
        found: list[Estimate] = []
        try:
            clean = readouts.some(lambda item: not item.flagged)
        except NotMeasurable:
            return (), "swap artefact not excluded: every item is flagged"
        names = tuple(clean.groups)
        for group in names:
            try:
                part = clean.some(lambda item, group=group: item.group == group)  # type: ignore[misc]
                found.append(
                    self.estimated(part, aspect, inference, f"{aspect.name}, {group} originals")
                )
            except NotMeasurable as error:
                return tuple(found), f"swap artefact not excluded: {group} originals: {error.what}"
        if len(found) < 2:
            return tuple(found), "swap artefact not excluded: originals of one group only"
        if len({estimate.value > 0 for estimate in found}) > 1:
            return tuple(found), "swap artefact not excluded: the two origins differ in sign"
        if found[0].value <= 0:
            return tuple(found), "both origins lean against the stereotype"
        shown = all(one.p is not None and one.p.value <= 0.05 for one in found)
        return tuple(found), (
            "stereotype: both origins lean to it, each with p <= .05"
            if shown
            else "both origins lean to the stereotype, not both with p <= .05"
        )


@cache
def _terms() -> frozenset[str]:
    """The words that mark a gender."""
    words = lexicon("gender-en")
    return frozenset(folded(word) for group in words.groups for word in words.words(group))


def _term(one: TwinTriple) -> str:
    """The target term of a triple: the first word of its context that marks a gender.

    StereoSet asked for many contexts on each of a few dozen terms; items on one term are not
    independent. The enhanced data do not name the term.
    """
    words = (folded(token.text) for token in tokens(one.context))
    return next((word for word in words if word in _terms()), one.id)
