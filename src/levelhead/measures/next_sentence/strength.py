"""Strength, and a likelihood contrast in its place: is the stereotype preferred, less so in twins?

Dawkins et al. 2024, Eq. 2, on twin triples.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

from levelhead.core.frozen import Frozen
from levelhead.core.run_context import Inference
from levelhead.data.records import TwinTriple
from levelhead.measures.base import Beside, Need, chosen
from levelhead.measures.items import Asked
from levelhead.measures.metric import Aspect
from levelhead.measures.next_sentence.twin_triples import FACTORS, PAPER, SWAPPED, Twins
from levelhead.measures.reductions import Reduction, mean, one_sided_part
from levelhead.measures.skills.skills import SkillCheck, sentences_follow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM

Scale = Literal["probability", "logit"]


def strength_of(p: torch.Tensor) -> torch.Tensor:
    """The s of every triple pair, Eq. 2: p(S) - p(A) - [p(swap of S) - p(swap of A)].

    `p` is `[n, 4]`: stereotype, anti-stereotype, and the twins of these two, whose labels flip.
    Dawkins et al. 2024, Table 3:

    >>> import torch
    >>> a, b = [0.9994, 0.9836, 0.9997, 0.9894], [0.9986, 0.0253, 0.9930, 0.9888]
    >>> [round(float(s), 4) for s in strength_of(torch.tensor([a, b], dtype=torch.float64))]
    [0.0055, 0.9691]
    """
    return p[:, 0] - p[:, 1] - p[:, 2] + p[:, 3]


@dataclass(frozen=True)
class Preference(Twins):
    """Strength and what plays its part without a next-sentence head. Abstract."""

    tests_unflagged: ClassVar[bool] = True
    called: ClassVar[str]

    @property
    @abstractmethod
    def unit(self) -> str:
        """Of s."""

    @property
    @abstractmethod
    def reach(self) -> float:
        """The largest |s|."""

    @property
    @abstractmethod
    def alike(self) -> str:
        """What values of it may be compared with."""

    @abstractmethod
    def bias_of(self, readouts: Readouts) -> torch.Tensor:
        """The s of every item."""

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The mean of the top share, how far it leans, and the mean of all."""
        top = Aspect(
            name=self.called,
            equation=f"{PAPER}, Eq. 2" + ("" if self.called == "strength" else ", after it"),
            per_item=self.bias_of,
            over=self.top_mean,
            unit=self.unit,
            low=-self.reach,
            high=self.reach,
            direction="larger: the stereotype is preferred more, on the most biased items",
            above="the stereotype is preferred to the anti-stereotype",
            below="the anti-stereotype is preferred to the stereotype",
            comparable=f"{self.alike}, top {self.top:g}",
            parity=None,
            null="flip",
            lean=self.lean,
            method="expanded",
        )
        signed = replace(
            top,
            name="signed mean",
            over=mean,
            lean=None,
            direction="above 0: the stereotype is preferred; below 0: the anti-stereotype",
            comparable=f"{self.alike}, signed mean",
            parity=0.0,
            method=None,
        )
        lean = replace(
            top,
            name="lean",
            over=self.lean,
            lean=None,
            direction="above 0: more of the top share prefers the stereotype than its twin does",
            comparable=f"{self.alike}, lean of the top {self.top:g}",
            parity=0.0,
        )
        return top, lean, signed

    @property
    def lean(self) -> Reduction:
        """Half of what the top share is above the top share with all twins exchanged."""
        return one_sided_part(self.top_mean)

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """The two origins apart."""
        origins, said = self.origins(found[0], self.aspect("signed mean"), inference)
        return Beside(origins, (said,))


@final
@dataclass(frozen=True)
class Strength(Preference):
    """Strength S of a model with a next-sentence head (Dawkins et al. 2024, Eq. 2).

    The mean of s over the top tenth of triple pairs. Positive under no bias: its parity is the mean
    of this and of what it is with all twins exchanged, and its test that of their difference.
    """

    scale: Scale = "probability"
    """"logit": of log-odds, which do not saturate; not comparable with probabilities."""

    metrics: ClassVar[dict[str, str]] = {
        "strength": "stereotypes in next-sentence judgements, top tenth",
    }
    needs: ClassVar[tuple[Need, ...]] = ("next_sentence",)
    called: ClassVar[str] = "strength"

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen(self.scale, get_args(Scale), "scale")

    @property
    def unit(self) -> str:
        """Of s."""
        return "difference of probabilities" if self.scale == "probability" else "log-odds"

    @property
    def reach(self) -> float:
        """The largest |s|."""
        return 2.0 if self.scale == "probability" else float("inf")

    @property
    def alike(self) -> str:
        """With Strength on the same scale."""
        return f"strength, {self.scale}, {SWAPPED if self.triples is None else 'own triples'}"

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """Whether each of four sentences follows."""
        items = tuple(self.item(one, *_four(one)) for one in self.items)
        return (Asked("follows", Frozen({}), FACTORS, items),)

    def skill_check(self, lm: LM, readouts: Readouts) -> SkillCheck:
        """That related sentences are judged to follow rather than unrelated ones."""
        return sentences_follow(self.items, readouts)

    def bias_of(self, readouts: Readouts) -> torch.Tensor:
        """s, of probabilities or of log-odds."""
        yes, no = readouts.values[..., 0], readouts.values[..., 1]
        return strength_of(yes.exp() if self.scale == "probability" else yes - no)


@final
@dataclass(frozen=True)
class Contrast(Preference):
    """What Strength asks, asked of likelihoods: for models without a next-sentence head.

    s = log p(S|c) - log p(A|c) - [log p(swap of S|twin) - log p(swap of A|twin)], in nats: of the
    second sentence's tokens given the first (causal models), or its pseudo log-likelihood (masked
    models). It plays the same part as Strength (Dawkins et al. 2024, Eq. 2) and is another measure:
    a likelihood is not a judgement that a sentence follows.
    """

    metrics: ClassVar[dict[str, str]] = {
        "contrast": "Strength's question asked of likelihoods; not comparable with it",
    }
    needs: ClassVar[tuple[Need, ...]] = ("causal", "masked")
    called: ClassVar[str] = "contrast"
    unit = "nats"
    reach = float("inf")
    alike = "contrast, one vocabulary"

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """The likelihood of each of four sentences after its context."""
        items = tuple(
            self.item(one)._replace(
                asks=tuple(
                    (f"{first} {second}", ((len(first) + 1, len(first) + 1 + len(second)),))
                    for first, second in _four(one)
                )
            )
            for one in self.items
        )
        return (Asked("score", Frozen({}), FACTORS, items),)

    def bias_of(self, readouts: Readouts) -> torch.Tensor:
        """s, of log-likelihoods."""
        return strength_of(readouts.values[..., 0])


def _four(one: TwinTriple) -> tuple[tuple[str, str], ...]:
    """Contexts with a stereotype, an anti-stereotype, and the twins of these."""
    return (
        (one.context, one.stereotype),
        (one.context, one.anti_stereotype),
        (one.twin_context, one.twin_stereotype),
        (one.twin_context, one.twin_anti_stereotype),
    )
