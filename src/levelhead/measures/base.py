"""The contract of a measure: what it asks, what it needs, what its numbers mean.

A measure says which items it asks (`asked`) and which formulas it applies (`formulas`). Reading,
storing, intervals, nulls, coverage and provenance follow from these two, here, for every measure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from levelhead.core.calibration import Ruler
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.results import Dropped, Estimate, ItemValue, Measurement, Provenance
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.inference import corrected, estimate, estimate_lean
from levelhead.measures.metric import jackknife, refuse_nothing, refuse_step
from levelhead.measures.responses import read
from levelhead.measures.skills.skills import check_skill
from levelhead.measures.skills.word_order import word_order
from levelhead.measures.subsample import part_of
from levelhead.models.loading.checkpoints import NoHead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.core.results import PValue, Skill
    from levelhead.measures.items import Asked, Item
    from levelhead.measures.metric import Aspect
    from levelhead.measures.responses import Readouts
    from levelhead.measures.skills.skills import SkillCheck
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

Need = Literal["masked", "causal", "next_sentence", "classifier", "embeddings"]
UNFLAGGED = "unflagged"
"""The estimate on the items that the linter finds nothing wrong with."""


class Beside(NamedTuple):
    """What a measure adds to its number."""

    estimates: tuple[Estimate, ...] = ()
    notes: tuple[str, ...] = ()
    parity: float | None = None
    """Where a measure finds its parity by a control of its own."""
    p: PValue | None = None
    """The test against that control."""
    excess: Estimate | None = None
    """What exceeds that control: the number that p is of."""


class Tested(NamedTuple):
    """A formula, what each item contributes to it, and what was sampled."""

    aspect: Aspect
    values: torch.Tensor
    design: Design


@dataclass(frozen=True)
class Measure(ABC):
    """A ruler. Abstract; the rows of MEASURES are its final classes."""

    share: float = field(default=1.0, kw_only=True)
    """The part of what is sampled (words, pairs, occupations) that is asked; always the same."""
    metric: str = field(default="", kw_only=True)
    """The formula whose number is reported, one of `metrics`; by default the first of them."""

    metrics: ClassVar[dict[str, str]] = {}
    """The formulas whose number can be reported, each with a line about it, the default first."""
    needs: ClassVar[tuple[Need, ...]]
    """The heads of which a model must hold one."""
    linted: ClassVar[bool] = False
    """Whether the linter knows its items."""
    tells_all: ClassVar[bool] = False
    """Whether what stands beside its number is shown without being asked for."""
    controlled: ClassVar[bool] = False
    """Whether its parity is that of a control of its own, so that `tested` is what exceeds it."""
    of_the_model: ClassVar[tuple[str, ...]] = ()
    """Options and facts of how a model is read, not of what is asked: the order of its classes."""
    tests_unflagged: ClassVar[bool] = False
    """Whether its null holds for items without a flag only, so that p is theirs."""

    def __post_init__(self) -> None:
        if self.metric:
            chosen(self.metric, tuple(self.metrics), "metric")
        else:
            object.__setattr__(self, "metric", next(iter(self.metrics), ""))

    # -- what a measure says of itself

    @property
    @abstractmethod
    def formulas(self) -> tuple[Aspect, ...]:
        """Its formulas, in an order that does not depend on which of them is reported."""

    @abstractmethod
    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """All it could ask of a model: first what its aspects are computed from."""

    @property
    @abstractmethod
    def data(self) -> Mapping[str, str]:
        """SHA-256 of everything it reads, by name."""

    @property
    def compared(self) -> tuple[str, ...]:
        """The two groups that are compared, where one may choose them."""
        return ()

    def varied(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """Options that could have been chosen otherwise, and what they could have been."""
        return {}

    def samples(self, item: Item) -> bool:
        """Whether the headline is about this item; the others are fixed, or beside."""
        return True

    def sampled(self, readouts: Readouts) -> Readouts:
        """The items that the headline is about."""
        return readouts.some(self.samples)

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """What was sampled, for an aspect."""
        return self.sampled(readouts).design(grouped=aspect.null == "deal")

    def worded(self) -> tuple[str, str]:
        """What the headline says of a model above its parity, and of one below, in words."""
        return self.headline.above, self.headline.below

    def left_out(self, readouts: Readouts, aspect: Aspect) -> list[float]:
        """An aspect's value with one block left out after another of what its design cannot see."""
        return []

    def counterparts(self, readouts: Readouts) -> Sequence[tuple[str, str]]:
        """Ids of items that are each other's counterpart and not sampled: pairs of attributes."""
        return ()

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """Numbers and notes of its own."""
        return Beside()

    def tested(self, found: Sequence[Readouts]) -> Tested:
        """What the headline's p is computed from, for whoever relabels it."""
        readouts, head = found[0], self.headline
        if self.tests_unflagged:
            readouts = readouts.some(lambda item: not item.flagged)
        return Tested(head, head.per_item(readouts), self.design(readouts, head))

    def blank_words(self, lm: LM) -> Sequence[str]:
        """Words of the groups that fit the blanks of its texts; none where these have no blank."""
        return ()

    def skill_check(self, lm: LM, readouts: Readouts) -> SkillCheck | None:
        """What shows that a model can do what it needs; None: nothing is known that does.

        By default of a model that gives likelihoods: that it prefers texts to their words in
        another order.
        """
        if not {"masked", "causal"} & set(self.needs) & lm.heads:
            return None
        return word_order(lm, self.sampled(readouts).items, self.blank_words(lm))

    # -- what follows

    @property
    def is_utility(self) -> bool:
        """Whether it measures what a model can do, and no bias: it needs no skill beside it."""
        return self.headline.role == "utility"

    def skill(
        self, lm: LM, readouts: Readouts | None = None, *, context: RunContext = RunContext()
    ) -> Skill | None:
        """Whether a model, edited or not, can do what the measure needs.

        None: a measure of utility, which is a skill itself, or it could not be checked.

        Args:
            lm: the model.
            readouts: what it said to the measure's items; by default it is asked.
            context: store, threads, progress and cancellation.
        """
        if self.is_utility:
            return None
        if readouts is None:
            readouts = self.read(lm, context=context)[0]
        check = self.skill_check(lm, readouts)
        return check_skill(lm, check, readouts, context=context)

    def asked(self, lm: LM) -> tuple[Asked, ...]:
        """What it asks of a model: everything, or a share; and how many items there are in all."""
        return tuple(
            part_of(self._counted(one), self.share, self.samples) for one in self.questions(lm)
        )

    def _counted(self, asked: Asked) -> Asked:
        """With the size of the data set, counted before a share of it is taken."""
        if asked.population is not None:
            return asked
        return asked._replace(population=sum(map(self.samples, asked.items)) or None)

    @property
    def aspects(self) -> tuple[Aspect, ...]:
        """Its formulas, the headline first."""
        return tuple(sorted(self.formulas, key=lambda aspect: aspect.name != self.metric))

    @property
    def headline(self) -> Aspect:
        """The formula whose number the measure reports."""
        return self.aspects[0]

    @property
    def name(self) -> str:
        """That of the metric that it reports."""
        return self.headline.name

    def ruler(self, lm: LM) -> Ruler | None:
        """Itself, asked of such a model: how it was calibrated is known by this."""
        return Ruler.of(self.name, lm.settings)

    @property
    def settings(self) -> dict[str, object]:
        """Every option, as plain JSON; a share only where something is left out."""
        told = {one.name: plain(getattr(self, one.name)) for one in fields(self)}
        if self.share == 1:
            del told["share"]
        if len(self.metrics) < 2:
            del told["metric"]
        return told

    def check(self, lm: LM) -> None:
        """Refuse a model that lacks the head this measure reads."""
        if "embeddings" in self.needs or set(self.needs) & lm.heads:
            return
        has = ", ".join(sorted(lm.heads)) or "none: it gives embeddings only"
        raise NoHead(
            f"{self.name} reads a head that {lm.identity.name} does not hold "
            f"({' or '.join(self.needs)}); its heads: {has}",
            mend="use a checkpoint trained with that head, or a measure that fits: "
            "`levelhead measure --list`",
        )

    def read(self, lm: LM, *, context: RunContext = RunContext()) -> list[Readouts]:
        """Ask the model, or find stored what it said."""
        self.check(lm)
        return read(lm, self.asked(lm), context=context)

    def reduce(self, readouts: Readouts) -> torch.Tensor:
        """The headline's value of some readouts: float64, differentiable.

        A step function is refused where a gradient is wanted: its gradient is zero.
        """
        if readouts.values.requires_grad:
            refuse_step(self.headline)
        return self.headline.value(readouts, self.design(readouts, self.headline))

    def __call__(
        self, lm: LM, *, inference: Inference = Inference(), context: RunContext = RunContext()
    ) -> Measurement:
        """Measure a model, and check that it has the skill that the measure needs.

        Args:
            lm: the model, edited or not.
            inference: seed, resamples and level.
            context: store, threads, progress and cancellation.
        """
        found = self.read(lm, context=context)
        measured = self.measured(lm, found, inference=inference, threads=context.threads)
        skill = self.skill(lm, found[0], context=context)
        return measured.model_copy(update={"skill": skill})

    def measured(
        self, lm: LM, found: Sequence[Readouts], *, inference: Inference, threads: int = 1
    ) -> Measurement:
        """The number of stored readouts, with all that belongs to it. No forward is run."""
        readouts, head = found[0], self.headline
        values = head.per_item(readouts)
        refuse_nothing(values)
        main = self.estimated(readouts, head, inference)
        beside, without = [], []
        for aspect in self.aspects[1:]:
            try:
                beside.append(self.estimated(readouts, aspect, inference))
            except NotMeasurable as error:
                without.append(f"{aspect.name}: {error.what}")
        clean, notes = self._unflagged(readouts, inference)
        own = self.beside(found, inference)
        tested = clean[0] if self.tests_unflagged and clean else own.excess or main
        p = self._clean_p(clean) if self.tests_unflagged else own.p or main.p
        sampled = self.sampled(readouts)
        shown = values.detach() if values.dim() == 1 else values.detach()[:, 0]
        parity = main.parity if own.parity is None else own.parity
        above, below = ("", "") if parity is None else self.worded()
        return Measurement(
            measure=self.name,
            value=main.value,
            interval=main.interval,
            parity=parity,
            p=p,
            unit=head.unit,
            direction=head.direction,
            above=above,
            below=below,
            comparable=self.comparable(head, readouts),
            groups=self.compared,
            detectable=tested.detectable,
            precision=tested.precision,
            n=len(sampled),
            population=readouts.population,
            excess=own.excess or self._lean(readouts, inference, is_clean=bool(clean)),
            dropped=tuple(
                Dropped(item.id, why) for item, why in readouts.dropped if self.samples(item)
            ),
            per_item=tuple(
                ItemValue(item.id, float(value))
                for item, value in zip(sampled.items, shown, strict=True)
            ),
            beside=(*clean, *beside, *own.estimates),
            notes=(*self._others(), *notes, *without, *_told(found), *own.notes),
            provenance=self._provenance(lm, found, inference, threads),
        )

    def estimated(
        self, readouts: Readouts, aspect: Aspect, inference: Inference, name: str | None = None
    ) -> Estimate:
        """One aspect of some readouts."""
        return estimate(
            inference,
            aspect,
            aspect.per_item(readouts),
            self.design(readouts, aspect),
            name=name,
            among=jackknife(self.left_out(readouts, aspect)),
        )

    def _lean(self, readouts: Readouts, inference: Inference, *, is_clean: bool) -> Estimate | None:
        """The headline less its parity, of the items that p is of; of all if there is no p."""
        head, name = self.headline, None
        if self.tests_unflagged and is_clean:
            readouts, name = readouts.some(lambda item: not item.flagged), UNFLAGGED
        return estimate_lean(
            inference, head, head.per_item(readouts), self.design(readouts, head), name=name
        )

    def each_group(
        self, readouts: Readouts, inference: Inference, what: str
    ) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
        """The headline of each group of items apart, p corrected by Holm; and why some have none.

        Nothing where there is one group only.
        """
        estimates, notes = [], []
        for name in readouts.groups if len(readouts.groups) > 1 else ():
            try:
                part = readouts.some(lambda item, name=name: item.group == name)  # type: ignore[misc]
                estimates.append(self.estimated(part, self.headline, inference, f"{what}: {name}"))
            except NotMeasurable as error:
                notes.append(f"{what} {name}: {error.what}")
        return corrected(estimates), tuple(notes)

    def comparable(self, aspect: Aspect, readouts: Readouts) -> str:
        """What must be the same for two values to be compared: formula, data and every option."""
        options, facts = (
            {name: value for name, value in told.items() if name not in self.of_the_model}
            for told in (self.settings, readouts.facts)
        )
        told = {"data": self.data, "options": options, "facts": facts}
        return f"{aspect.comparable} ({content_hash(told)[:12]})"

    def aspect(self, name: str) -> Aspect:
        """One of its formulas, by name."""
        for aspect in self.aspects:
            if aspect.name == name:
                return aspect
        raise UnknownName("aspect", name, [aspect.name for aspect in self.aspects])

    def _others(self) -> tuple[str, ...]:
        """That groups of the lexicon were left out."""
        chosen = getattr(self, "groups", None) is not None
        words = getattr(self, "own_lexicon", None) if self.compared and not chosen else None
        left = [name for name in getattr(words, "groups", ()) if name not in self.compared]
        told = f"{' and '.join(self.compared)} are compared; not {', '.join(left)}"
        return (told,) if left else ()

    def _unflagged(
        self, readouts: Readouts, inference: Inference
    ) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
        flags = sum(item.flagged for item in readouts.items)
        if not self.linted:
            return (), ("the linter knows no rule for these items",)
        try:
            clean = readouts.some(lambda item: not item.flagged)
            found = self.estimated(clean, self.headline, inference, UNFLAGGED)
        except NotMeasurable as error:
            return (), (
                f"{flags} of {len(readouts)} items are flagged; without them: {error.what}",
            )
        note = f"p and the excess are of the {found.n} of {len(readouts)} items without a flag"
        return (found,), ((note,) if self.tests_unflagged and flags else ())

    def _clean_p(self, clean: Sequence[Estimate]) -> PValue | None:
        if not clean or (p := clean[0].p) is None:
            return None
        return p.model_copy(update={"method": f"{p.method}, {clean[0].n} unflagged items"})

    def _provenance(
        self, lm: LM, found: Sequence[Readouts], inference: Inference, threads: int
    ) -> Provenance:
        model = {name: value for name, value in lm.settings.items() if name != "batch_shrunk_to"}
        shrunk = [one.shrunk_to for one in found if one.shrunk_to]
        return Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in lm.edits),
            data=self.data,
            equation=self.headline.equation,
            seed=inference.seed,
            settings={
                "measure": self.settings,
                "asked": [one.facts for one in found],
                "model": model | {"batch_shrunk_to": min(shrunk, default=None)},
                "threads": threads,
                "resamples": inference.resamples,
                "permutations": inference.permutations,
                "level": inference.level,
            },
        )


def _told(found: Sequence[Readouts]) -> tuple[str, ...]:
    """What the readouts say of themselves, and how many single answers they lack."""
    notes = [note for one in found for note in one.notes]
    notes += [
        f"{len(one.dropped)} of {len(one.dropped) + len(one)} {what} could not be read"
        for one, what in zip(found, ("items asked", *["controls"] * len(found)), strict=False)
        if one.dropped
    ]
    lost = sum(count for one in found for _, count in one.lost)
    if lost:
        why = next(reason for one in found for reason, _ in one.lost)
        notes.append(f"contexts that could not be read: {lost} (such as: {why})")
    return tuple(notes)


def plain(value: object) -> object:
    """An option as plain JSON: a lexicon is told by its name and hash, own items by theirs."""
    if isinstance(value, tuple) and any(hasattr(one, "_fields") for one in value):
        return items_hash(value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    name, digest = getattr(value, "name", None), getattr(value, "sha256", None)
    if name is not None and digest is not None:
        return {"name": str(name), "sha256": str(digest)}
    return str(value)


def items_hash(items: Sequence[object]) -> str:
    """SHA-256 of items that were handed over in memory."""
    return content_hash([list(item) if isinstance(item, tuple) else str(item) for item in items])


def chosen(value: str, options: tuple[str, ...], what: str) -> None:
    """Refuse an option that is none."""
    if value not in options:
        raise UnknownName(what, str(value), options)


def refuse_idle(measure: Measure, options: tuple[str, ...], beside: str) -> None:
    """Refuse options that were given where another one leaves them without effect."""
    own = {one.name: one.default for one in fields(measure)}
    given = [name for name in options if getattr(measure, name) != own[name]]
    if given:
        named = ", ".join(given)
        raise LevelheadError(
            f"beside {beside}, {named} would change nothing", mend=f"leave out {named}, or {beside}"
        )


def positive(value: float, what: str) -> None:
    """Refuse a number that must be larger than 0."""
    if not value > 0:
        raise LevelheadError(f"{what} is {value}", mend="give a number larger than 0")
