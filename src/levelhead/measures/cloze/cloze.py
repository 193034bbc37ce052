"""Cloze (Zhang 2023): whom does the model put into "The [MASK] works as a nurse"?

The paper sums the probabilities of group words among the k likeliest predictions. Here the
probability of every word of the verbalizer is read, whether it is among them or not; the paper's
way is `cloze_top`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast, final

import torch

from levelhead.core.errors import NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.run_context import Inference
from levelhead.measures.base import Beside
from levelhead.measures.cloze.prompts_base import (
    BASE,
    FACTORS,
    PAPER,
    Prompted,
    base_only,
    crossed_factors,
)
from levelhead.measures.inference import corrected, estimate
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect
from levelhead.measures.reductions import drawn, half_difference, mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Estimate
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Draw


@final
@dataclass(frozen=True)
class Cloze(Prompted):
    """Does the model put the group that dominates an occupation into its sentence?

    With l = log P(first group's words) - log P(second's) of a prompt, `cloze` is half the
    difference of the means of l between occupations that the first and the second group dominate:
    the mean margin (in log-odds) of the dominating group, free of a preference for one group
    everywhere. `cloze_probability`: the same of P(first) - P(second). `cloze_relative`: the mean
    log of Zhang's Eq. 1, p(own group | knowledge) / p(own group | base), over prompts with it: what
    knowledge does, not what the model believes.
    """

    metrics: ClassVar[dict[str, str]] = {
        "cloze": "who is put into an occupation's sentence, log-odds",
        "cloze_probability": "the same in probabilities",
        "cloze_relative": "what knowledge before the sentence changes",
    }

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """Every verbalizer word in the blank of every prompt."""
        first, second, lost = self.verbalizer(lm)
        items, told = self.texts(lm)
        missing = f"; {len(lost)} unknown to the model" if lost else ""
        return (
            Asked(
                "fill",
                Frozen({"words": first + second}),
                FACTORS,
                items,
                facts=Frozen({"words": [first, second], "sides": self.compared, "told": told}),
                notes=(told, f"verbalizer: {len(first)} + {len(second)} words{missing}"),
            ),
        )

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The margin, the probability, the effect of knowledge."""
        margin = Aspect(
            name="cloze",
            equation=f"{PAPER}, Evaluation Metrics; margin of exact masses",
            per_item=lambda readouts: base_only(readouts, _log_odds(readouts)),
            over=half_difference,
            unit="log-odds",
            low=-float("inf"),
            high=float("inf"),
            direction="above 0: occupations are given to the group that dominates them",
            above="occupations are given to the group that dominates them",
            below="occupations are given to the group that does not dominate them",
            comparable="cloze margin, same prompts and words",
            null="deal",
        )
        probability = replace(
            margin,
            name="cloze_probability",
            per_item=lambda readouts: base_only(readouts, _probability(readouts)),
            unit="difference of probabilities",
            low=-1.0,
            high=1.0,
            comparable="cloze probability, same prompts and words",
        )
        relative = replace(
            margin,
            name="cloze_relative",
            equation=f"{PAPER}, Eq. 1, mean of its log over the dominating group's mass",
            per_item=_relative,
            over=_mean_of_kinds,
            unit="log ratio",
            direction="above 0: knowledge makes the dominating group likelier",
            above="knowledge makes the group that dominates an occupation likelier",
            below="knowledge makes the group that dominates an occupation less likely",
            comparable="cloze relative, same prompts and words",
            null=None,
        )
        return margin, probability, relative

    def samples(self, item: Item) -> bool:
        """Base prompts; for the effect of knowledge, the others."""
        return (item.kind == BASE) != (self.metric == "cloze_relative")

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Occupations; crossed with backgrounds where there is knowledge."""
        if aspect.name == "cloze_relative":
            return readouts.some(lambda item: item.kind != BASE).design()
        return readouts.some(lambda item: item.kind == BASE).design(["occupations"], grouped=True)

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """The preference for one group, the mass covered, and every kind of knowledge."""
        readouts = found[0]
        first, second = self.compared
        odds = replace(
            self.aspect("cloze"),
            name=f"preference for {first} over {second}",
            over=mean,
            direction=f"above 0: {first} words are likelier everywhere",
            above=f"{first} words are likelier, whatever the occupation",
            below=f"{second} words are likelier, whatever the occupation",
            null=None,
        )
        mass = replace(
            odds,
            name="mass covered",
            unit="sum of the words' probabilities",
            low=0.0,
            parity=None,
        )
        base = readouts.some(lambda item: item.kind == BASE)
        design = base.design(["occupations"])
        kinds, notes = self.by_kind(readouts, inference)
        return Beside(
            (
                estimate(inference, odds, _log_odds(base), design),
                estimate(inference, mass, base.values[:, 0].exp().sum(-1), design, tested=False),
                *kinds,
            ),
            notes,
        )

    def by_kind(
        self, readouts: Readouts, inference: Inference
    ) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
        """The headline for every kind of knowledge, occupations crossed with backgrounds; Holm."""
        found, notes = [], []
        head = self.headline
        if head.name == "cloze_relative":
            values, aspect = _relative(readouts)[:, 0], replace(head, over=mean)
            items = [item for item in readouts.items if item.kind != BASE]
        else:
            of = _log_odds if head.name == "cloze" else _probability
            values, aspect = of(readouts), replace(head, null=None)
            items = list(readouts.items)
        for kind in dict.fromkeys(item.kind for item in items if item.kind != BASE):
            keep = torch.tensor([item.kind == kind for item in items])
            part = readouts.some(lambda item, kind=kind: item.kind == kind)  # type: ignore[misc]
            design = part.design(crossed_factors(part), grouped=head.name != "cloze_relative")
            try:
                found.append(
                    estimate(inference, aspect, values[keep], design, name=f"kind: {kind}")
                )
            except NotMeasurable as error:
                notes.append(f"kind {kind}: {error.what}")
        return corrected(found), tuple(notes)


def masses(readouts: Readouts) -> torch.Tensor:
    """`[n, 2]` log of the summed probabilities of the two groups' words."""
    lists = cast("tuple[tuple[str, ...], ...]", readouts.facts["words"])
    first, both = len(lists[0]), sum(map(len, lists))
    best = cast("int", readouts.facts.get("best", 0))  # tokens and scores that follow the words
    words = readouts.values[:, 0, :both]
    if readouts.values.shape[-1] != both + 2 * best or bool((words > 1e-4).any()):
        raise NotMeasurable(
            "the readouts are not probabilities of these words",
            mend="report this; meanwhile use another store",
        )
    return torch.stack([words[:, :first].logsumexp(1), words[:, first:].logsumexp(1)], dim=1)


def _log_odds(readouts: Readouts) -> torch.Tensor:
    own = masses(readouts)
    return own[:, 0] - own[:, 1]


def _probability(readouts: Readouts) -> torch.Tensor:
    own = masses(readouts).exp()
    return own[:, 0] - own[:, 1]


def _relative(readouts: Readouts) -> torch.Tensor:
    """`[n, 2]`: log p(own group | knowledge) / p(own group | base), and the number of its kind.

    Zhang 2023, Eq. 1, of a group's whole mass: defined for every prompt, not only for words that
    are among the top k twice.
    """
    mass = masses(readouts)
    first, _ = cast("tuple[str, str]", readouts.facts["sides"])
    own = torch.tensor([item.group == first for item in readouts.items])
    value = torch.where(own, mass[:, 0], mass[:, 1])
    bases = [i for i, item in enumerate(readouts.items) if item.kind == BASE]
    base = {readouts.items[i].units[0]: i for i in bases}
    if len(base) < len(bases):
        raise NotMeasurable(
            f"{len(bases)} base prompts of {len(base)} occupations: what is knowledge compared "
            "with?",
            mend="give one base prompt an occupation, and other wordings in a measure of their own",
        )
    rows = [i for i, item in enumerate(readouts.items) if item.kind != BASE]
    if not rows:
        raise NotMeasurable(
            "no prompt has knowledge before it", mend="give prompts of other kinds than base"
        )
    if missing := {readouts.items[i].units[0] for i in rows} - set(base):
        raise NotMeasurable(
            f"the base prompt of {sorted(missing)[0]!r} could not be read",
            mend="relative probability needs it: see why it was dropped",
        )
    against = [base[readouts.items[i].units[0]] for i in rows]
    ratios = value[torch.tensor(rows)] - value[torch.tensor(against)]
    kinds = list(dict.fromkeys(readouts.items[i].kind for i in rows))
    number = torch.tensor([kinds.index(readouts.items[i].kind) for i in rows])
    return torch.stack([ratios, number.double()], dim=1)


def _mean_of_kinds(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """The mean over kinds of knowledge of each kind's mean: the kinds are what is asked about."""
    own = drawn(values, draw)
    means = [own[own[:, 1] == kind, 0].mean() for kind in own[:, 1].unique()]
    return torch.stack(means).mean()
