"""Distance: are unrelated sentences judged alike after a context and after its twin?

Dawkins et al. 2024, Eq. 3, on twin triples, against placebo twins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.run_context import Inference
from levelhead.data.counterfactuals.swap import placebo
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.published import any_lexicon
from levelhead.data.tokenize import tokens
from levelhead.measures.base import Beside, Need, Tested
from levelhead.measures.inference import estimate
from levelhead.measures.items import Asked
from levelhead.measures.metric import Aspect, all_or_none
from levelhead.measures.next_sentence.twin_triples import FACTORS, PAPER, Twins
from levelhead.measures.reductions import mean, of_columns, scaled_by
from levelhead.measures.skills.skills import SkillCheck, sentences_follow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Estimate
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM

FEWEST = 5
"""Items that the top share of a control must hold: of fewer, it is a maximum."""


def distance_of(p: torch.Tensor) -> torch.Tensor:
    """The distance d of every pair, Eq. 3: |p(next | unrelated) - p(next | unrelated) of the twin|.

    Dawkins et al. 2024, Table 4:

    >>> p = torch.tensor([[0.0151, 0.9985], [0.2752, 0.9955]], dtype=torch.float64)
    >>> [round(float(d), 4) for d in distance_of(p)]
    [0.9834, 0.7203]
    """
    return (p[:, 0] - p[:, 1]).abs()


def exchanged_columns(values: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """The two columns exchanged where the sign is negative."""
    return torch.where(signs[:, None] > 0, values, values.flip(1))


@final
@dataclass(frozen=True)
class Distance(Twins):
    """Distance D: how differently unrelated sentences are judged after twins (Eq. 3).

    The mean of d over the top tenth. Exchanging twins does not change it, so it has no null there:
    its parity is the D of placebo twins, which change as many words within one gender.
    """

    lexicon: str | Lexicon = "gender-en"
    """Where placebo words come from."""

    metrics: ClassVar[dict[str, str]] = {
        "distance": "unequal judgement of unrelated sentences after twins",
    }
    needs: ClassVar[tuple[Need, ...]] = ("next_sentence",)
    controlled: ClassVar[bool] = True

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The distance; which gender's contexts make unrelated sentences follow."""
        top = Aspect(
            name="distance",
            equation=f"{PAPER}, Eq. 3",
            per_item=lambda readouts: distance_of(readouts.values[..., 0].exp()),
            over=self.top_mean,
            unit="difference of probabilities",
            low=0.0,
            high=1.0,
            direction="larger: unrelated sentences are judged more unequally after twins",
            above="unrelated sentences are judged more unequally after twins than after placebo "
            "twins: the group matters beyond a change of words",
            below="unrelated sentences are judged less unequally after twins than after placebo "
            "twins: other words of one group matter more than the group",
            comparable=f"distance, top {self.top:g}",
            parity=None,
            method="expanded",
        )
        signed = replace(
            top,
            name="signed difference",
            per_item=self.signed,
            over=mean,
            low=-1.0,
            direction="above 0: unrelated sentences follow contexts of the first group, by name, "
            "more readily",
            above="unrelated sentences follow contexts of the first group more readily",
            below="unrelated sentences follow contexts of the second group more readily",
            comparable="distance, signed difference",
            parity=0.0,
            null="flip",
            method=None,
        )
        return top, signed

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """Whether the unrelated sentence follows the context, its twin, and its placebo twin."""
        words = any_lexicon(self.lexicon)
        real, control = [], []
        for one in self.items:
            own, twin = (one.context, one.unrelated), (one.twin_context, one.twin_unrelated)
            real.append(self.item(one, own, twin))
            other = placebo(one.context, words)
            fits = other.twin is not None and one.id not in self.flags
            if fits and len(other.changes) == _changed(one.context, one.twin_context):
                control.append(self.item(one, own, (other.text, one.unrelated)))
        asked = [Asked("follows", Frozen({}), FACTORS, tuple(real))]
        if control:
            asked.append(Asked("follows", Frozen({}), FACTORS, tuple(control), optional=True))
        return tuple(asked)

    def skill_check(self, lm: LM, readouts: Readouts) -> SkillCheck:
        """That related sentences are judged to follow rather than unrelated ones."""
        return sentences_follow(self.items, readouts)

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """Wrong predictions by gender, and D against placebo twins, paired by item."""
        real = found[0]
        wrong = [self._wrong(real, inference, column) for column in (0, 1)]
        placebos = found[1] if len(found) > 1 else ()
        least = math.ceil(FEWEST / self.top)
        if len(placebos) < least or isinstance(placebos, tuple):
            why = f"{len(placebos)} unflagged contexts have a placebo twin, {least} are needed"
            return Beside(tuple(wrong), (f"distance has no parity here: {why}",))
        try:
            pairs = self._against(found, inference)
        except NotMeasurable as error:
            return Beside(tuple(wrong), (f"distance has no parity here: {error.what}",))
        same, control, excess = pairs
        told = (
            f"parity is the distance of placebo twins, which {control.n} of {len(real)} contexts "
            f"have; p compares it with these contexts' own {same.value:.4g}"
        )
        return Beside((*wrong, *pairs), (told,), control.value, excess.p, excess)

    def _wrong(self, real: Readouts, inference: Inference, column: int) -> Estimate:
        share = replace(
            self.aspects[1],
            name=f"wrong predictions, {self.compared[column]} contexts",
            per_item=lambda readouts: (self.by_group(readouts)[:, column] > 0.5).double(),
            over=scaled_by(100, mean),
            low=0.0,
            high=100.0,
            unit="% of unrelated sentences taken to follow",
            parity=None,
            null=None,
        )
        values = share.per_item(real)
        if float(values.min()) == float(values.max()):
            share = replace(share, closed=all_or_none)  # resampling knows no other
        return estimate(inference, share, values, self.design(real, share), tested=False)

    def by_group(self, readouts: Readouts) -> torch.Tensor:
        """`[n, 2]` p(next | unrelated) after either group's context, whichever is the original."""
        p = readouts.values[..., 0].exp()
        original = torch.tensor([item.group == self.compared[0] for item in readouts.items])
        return torch.where(original[:, None], p, p.flip(1))

    def signed(self, readouts: Readouts) -> torch.Tensor:
        """p(next | unrelated) after the first group's contexts less that after the second's."""
        p = self.by_group(readouts)
        return p[:, 0] - p[:, 1]

    def tested(self, found: Sequence[Readouts]) -> Tested:
        """The distance of contexts less that of their placebo twins, paired."""
        if len(found) < 2:
            raise NotMeasurable(
                "no context has a placebo twin", mend="give a lexicon with placebos"
            )
        # One of the two may have been dropped alone: only what both could read is paired.
        kept = set.intersection(*({item.id for item in one.items} for one in found))
        pair = [one.some(lambda item: item.id in kept) for one in found]
        both = torch.stack([distance_of(one.values[..., 0].exp()) for one in pair], dim=1)
        excess = replace(
            self.headline,
            name="excess over placebo twins",
            over=of_columns(self.top_mean, 0, 1),
            parity=0.0,
            null="flip",
            flip=exchanged_columns,
            low=-1.0,
            method="outer",  # a difference of top shares
        )
        return Tested(excess, both, self.design(pair[1], self.headline))

    def _against(self, found: Sequence[Readouts], inference: Inference) -> tuple[Estimate, ...]:
        excess, both, design = self.tested(found)
        same = replace(self.headline, name="distance, contexts with a placebo twin")
        control = replace(self.headline, name="distance of placebo twins")
        return (
            estimate(inference, same, both[:, 0], design, tested=False),
            estimate(inference, control, both[:, 1], design, tested=False),
            estimate(inference, excess, both, design),
        )


def _changed(old: str, new: str) -> int:
    """How many words a swap changed."""
    before, after = ([token.text for token in tokens(text)] for text in (old, new))
    codes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in codes if kind != "equal")
