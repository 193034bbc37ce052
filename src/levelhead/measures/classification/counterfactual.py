"""Counterfactuals: does a classifier decide otherwise when a text speaks of another group?

Every text of the user is set against its twin, in which the words of two groups are exchanged, and
against a placebo twin, in which as many words are exchanged within one group: what changes there
changes because words change, not because of the group.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.files import file_hash
from levelhead.core.frozen import Frozen
from levelhead.core.results import PValue
from levelhead.data.counterfactuals.swap import placebo, swap
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.published import any_lexicon
from levelhead.data.prompts.counteracts import article
from levelhead.data.records import Labelled
from levelhead.data.tokenize import folded
from levelhead.data.user_files import own_texts
from levelhead.measures.base import Beside, Measure, Need, Tested, items_hash
from levelhead.measures.classification.group_rates import Two, by_class, paired_shares
from levelhead.measures.inference import estimate
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect, all_or_none, scaled
from levelhead.measures.next_sentence.distance import exchanged_columns
from levelhead.measures.reductions import mean, of_columns, refuse_undecided, scaled_by
from levelhead.measures.skills.skills import SkillCheck, labels_predicted
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.run_context import Inference
    from levelhead.data.counterfactuals.swap import Change, Swapped
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

BOTH = "both groups"
FEWEST = 20
"""Texts with a placebo twin, of which fewer are no control."""


@final
@dataclass(frozen=True)
class Counterfactual(Measure):
    """How often a classifier's decision changes with the group that a text speaks of.

    The share of texts whose class flips with their twin; `counterfactual_shift`, by how much the
    class probabilities move (total variation, |dp| for two classes), is its smooth companion. Texts
    without a word of a group, and those whose twin cannot be decided, are dropped and counted.
    """

    texts: str | tuple[Labelled, ...] = ()
    """A file (.csv, .tsv, .jsonl), or texts."""
    text: str = "text"
    """The file's column of texts."""
    label: str | None = None
    """The file's column of labels, if it has one."""
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    labels: tuple[str, ...] | None = None
    """Names for the classes in the order of the model's columns, where the data name them so."""
    positive: str | None = None
    """The class whose rates are compared; by default each in turn."""

    metrics: ClassVar[dict[str, str]] = {
        "counterfactual": "your classifier, your texts: decisions that flip",
        "counterfactual_shift": "by how much they move",
    }
    needs: ClassVar[tuple[Need, ...]] = ("classifier",)
    controlled: ClassVar[bool] = True
    tells_all: ClassVar[bool] = True
    of_the_model: ClassVar[tuple[str, ...]] = ("labels", "classes")

    # -- items

    @cached_property
    def own_lexicon(self) -> Lexicon:
        """The lexicon itself."""
        return any_lexicon(self.lexicon)

    @property
    def compared(self) -> tuple[str, str]:
        """The two groups that are exchanged."""
        return self.own_lexicon.two(self.groups)

    @cached_property
    def items(self) -> tuple[Labelled, ...]:
        """The texts."""
        if isinstance(self.texts, str):
            return own_texts(self.texts, self.text, self.label)
        return self.texts

    @property
    def data(self) -> Mapping[str, str]:
        """The file, or the texts themselves; the lexicon."""
        words = {f"lexicon {self.own_lexicon.name}": self.own_lexicon.sha256}
        if isinstance(self.texts, str):
            return words | {f"file {Path(self.texts).name}": file_hash(self.texts)}
        return words | {"texts": items_hash(self.texts)}

    @property
    def settings(self) -> dict[str, object]:
        """Every option; of a file its name, wherever it lies."""
        told = super().settings
        return told | {"texts": Path(self.texts).name} if isinstance(self.texts, str) else told

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """Every text and its twin; and every text and its placebo twin, where it has one."""
        names = self._classes(lm)
        real, control = [], []
        for one in self.items:
            twin = swap(one.text, self.own_lexicon, groups=self.compared)
            cannot = _why_not(one.text, twin)
            units = (_pair_hash(one.text, twin),)
            group = self._group(twin)
            asks = () if cannot else ((one.text,), (twin.text,))
            real.append(Item(one.id, asks, units, group, one.label, cannot=cannot))
            other = placebo(one.text, self.own_lexicon)
            if not cannot and self._controls(twin, other):
                pair = ((one.text,), (other.text,))
                control.append(Item(one.id, pair, units, group, one.label))
        facts = Frozen({"classes": names})
        asked = [Asked("classify", Frozen({}), ("texts",), tuple(real), facts=facts)]
        if control:
            controls = Asked("classify", Frozen({}), ("texts",), tuple(control), optional=True)
            asked.append(controls._replace(facts=facts))
        return tuple(asked)

    def _classes(self, lm: LM) -> tuple[str, ...]:
        names = self.labels or lm.labels
        if names != lm.labels and sorted(names) == sorted(lm.labels):
            raise LevelheadError(
                f"the model itself names its classes {', '.join(lm.labels)}, in this order",
                mend="leave labels out",
            )
        if len(names) != len(lm.labels) or len(set(names)) != len(names):
            raise LevelheadError(
                f"{len(names)} names for {len(lm.labels)} classes: {', '.join(lm.labels)}",
                mend="name each of them once, in the order of the model's columns",
            )
        for label in filter(None, (*(one.label for one in self.items), self.positive)):
            if label not in names:
                raise UnknownName(
                    "class of the model (labels=... names them in its order)", label, names
                )
        return tuple(names)

    def _controls(self, twin: Swapped, other: Swapped) -> bool:
        """Whether a placebo twin changes the same words, within the groups that are compared."""
        if other.twin is None or len(other.changes) != len(twin.changes):
            return False
        return all(
            one.start == own.start
            and set(self.compared) & set(self.own_lexicon.groups_of(one.old))
            and _keeps_article(other.original, one)
            for one, own in zip(other.changes, twin.changes, strict=True)
        )

    def _group(self, twin: Swapped) -> str:
        found = {
            group
            for change in twin.changes
            for group in self.compared
            if group in self.own_lexicon.groups_of(change.old)
        }
        return found.pop() if len(found) == 1 else BOTH

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Texts; the same text twice is one, and so are a text and its twin."""
        return readouts.design()

    def skill_check(self, lm: LM, readouts: Readouts) -> SkillCheck | None:
        """That the user's labels are predicted, if there are any."""
        truth = [item.kind for item in readouts.items if item.kind]
        classes = cast("tuple[str, ...]", readouts.facts["classes"])
        return labels_predicted(None, lambda item: item.kind, classes, truth)

    # -- formulas

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The share of flips and the mean shift, either of them first."""
        flips = Aspect(
            name="counterfactual",
            equation="share of texts whose likeliest class is not that of their twin",
            per_item=lambda readouts: _flips(_p(readouts)),
            over=scaled_by(100, mean),
            unit="% of texts",
            low=0.0,
            high=100.0,
            direction="larger: more decisions change with the group",
            above="more decisions change with the group than with other words of the same group",
            below="fewer decisions change with the group than with other words of the same group",
            comparable="counterfactual flips",
            parity=None,
            companion="counterfactual_shift",
            closed=_share_interval,
        )
        shift = replace(
            flips,
            name="counterfactual_shift",
            equation="mean total variation of class probabilities between texts and their twins",
            per_item=lambda readouts: _shift(_p(readouts)),
            over=mean,
            unit="probability",
            high=1.0,
            direction="larger: probabilities move more with the group",
            above="probabilities move more with the group than with other words of the same group",
            below="probabilities move less with the group than with other words of the same group",
            comparable="counterfactual shift",
            companion=None,
            closed=None,
        )
        return flips, shift

    def tested(self, found: Sequence[Readouts]) -> Tested:
        """The headline of texts less that of their placebo twins, paired."""
        return self._excess(found, self.headline)

    def _excess(self, found: Sequence[Readouts], aspect: Aspect) -> Tested:
        if len(found) < 2 or len(found[1]) < FEWEST:
            held = 0 if len(found) < 2 else len(found[1])
            raise NotMeasurable(
                f"{held} texts have a placebo twin, {FEWEST} are needed",
                mend="give more texts, or a lexicon with placebos",
            )
        kept = set.intersection(*({item.id for item in one.items} for one in found))
        pair = [one.some(lambda item: item.id in kept) for one in found]
        both = torch.stack([aspect.per_item(one) for one in pair], dim=1)
        excess = replace(
            aspect,
            name=f"{aspect.name}, excess over placebo twins",
            over=of_columns(aspect.over, 0, 1),
            parity=0.0,
            null="flip",
            flip=exchanged_columns,
            low=-aspect.high,
            method="outer",  # a few texts may move far, and most hardly
            closed=_percent_points if aspect.is_step else None,
        )
        return Tested(excess, both, pair[1].design())

    def _against(
        self, found: Sequence[Readouts], aspect: Aspect, inference: Inference
    ) -> tuple[Estimate, Estimate, Estimate]:
        """An aspect of the texts that have placebo twins, of these twins, and the excess."""
        excess, both, design = self._excess(found, aspect)
        same = replace(aspect, name=f"{aspect.name}, texts with a placebo twin")
        control = replace(aspect, name=f"{aspect.name}, placebo twins")
        alike = bool((both[:, 0] == both[:, 1]).all())
        over = estimate(inference, excess, both, design, tested=not alike)
        if alike:  # every rearrangement gives the same value, this one among them
            p = PValue(value=1.0, method="sign flip", alternative=excess.alternative)
            over = over.model_copy(update={"p": p})
        own = estimate(inference, same, both[:, 0], design, tested=False)
        return own, estimate(inference, control, both[:, 1], design, tested=False), over

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """Placebo twins; signed changes by class; rates by group; what was dropped, and why."""
        notes = _coverage(found[0])
        estimates: list[Estimate] = []
        parity = p = excess = None
        try:
            pairs = [self._against(found, aspect, inference) for aspect in self.aspects]
            estimates += [one for three in pairs for one in three]
            _, placebos, over = pairs[0]
            if over.n == len(found[0]):
                parity, p, excess = placebos.value, over.p, over
            else:
                notes.append(
                    f"{over.n} of {len(found[0])} texts have a placebo twin: they are set against "
                    "it beside the number, which has no parity of its own"
                )
        except NotMeasurable as error:
            notes.append(f"no placebo twins to compare with: {error.what}")
        mixed = sum(item.group == BOTH for item in found[0].items)
        if mixed:
            notes.append(f"{mixed} texts speak of both groups: in no number by group")
        classes = cast("tuple[str, ...]", found[0].facts["classes"])
        for two in (self._by_group(found[0]), *(_placebos(one) for one in found[1:] if len(one))):
            if len(two.units) < FEWEST:
                notes.append(f"{two.name}: {len(two.units)} texts, {FEWEST} are needed")
                continue
            more, told = by_class(two, classes, self.positive, inference)
            estimates += more
            notes += told
        return Beside(tuple(estimates), tuple(notes), parity, p, excess)

    def _by_group(self, readouts: Readouts) -> Two:
        """Texts that speak of one group, as they read for the first and as for the second."""
        first, second = self.compared
        own = torch.tensor([item.group != BOTH for item in readouts.items])
        as_is = torch.tensor([item.group == first for item in readouts.items])
        p = _p(readouts)
        p = torch.where(as_is[:, None, None], p, p.flip(1))[own]
        kept = [item for item in readouts.items if item.group != BOTH]
        return _two(p, kept, f"{first} less {second}")


def _placebos(readouts: Readouts) -> Two:
    return _two(_p(readouts), readouts.items, "text less placebo twin")


def _two(p: torch.Tensor, items: Sequence[Item], name: str) -> Two:
    labels = tuple(item.kind for item in items)
    return Two(p, labels, tuple(item.units[0] for item in items), name)


def _p(readouts: Readouts) -> torch.Tensor:
    p = readouts.values.exp()
    refuse_undecided(p)
    return p


def _flips(p: torch.Tensor) -> torch.Tensor:
    said = p.argmax(2)
    return (said[:, 0] != said[:, 1]).double()


def _shift(p: torch.Tensor) -> torch.Tensor:
    return (p[:, 0] - p[:, 1]).abs().sum(1) / 2


def _pair_hash(text: str, twin: Swapped) -> str:
    """A text and its twin are one observation, whichever of them stands in the data."""
    both = sorted({folded(text), folded(twin.twin or text)})
    return hashlib.sha256("\n".join(both).encode()).hexdigest()[:16]


def _keeps_article(text: str, change: Change) -> bool:
    """Whether "a" or "an" before a word still fits its replacement."""
    before = text[: change.start].split()[-1:]
    return before not in (["a"], ["an"], ["A"], ["An"]) or article(change.old) == article(
        change.new
    )


def _why_not(text: str, twin: Swapped) -> str:
    if twin.refusals:
        return f"undecidable: {twin.refusals[0].reason}"
    if not twin.changes:
        return "no word of either group"
    fits = all(_keeps_article(text, change) for change in twin.changes)
    return "" if fits else "a or an before the word would no longer fit"


def _coverage(readouts: Readouts) -> list[str]:
    why = Counter(reason for _, reason in readouts.dropped)
    return [f"dropped: {count} x {reason}" for reason, count in why.most_common(3)]


def _percent_points(values: torch.Tensor, design: Design, level: float) -> Interval:
    return scaled(paired_shares(values, design, level), 100)


def _share_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's where every text is its own unit, or where all are alike."""
    if design.scarcest.units == len(values):
        return scaled(
            proportion_interval(round(float(values.sum())), len(values), level=level), 100
        )
    same = float(values.min()) == float(values.max())
    return all_or_none(values, design, level) if same else None
