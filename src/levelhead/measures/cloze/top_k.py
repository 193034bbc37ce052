"""Cloze the paper's way (Zhang 2023, Figures 2-4): group words among the k likeliest words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast, final

import torch

from levelhead.core.errors import NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.run_context import Inference
from levelhead.measures.base import Beside, positive
from levelhead.measures.cloze.prompts_base import (
    FACTORS,
    PAPER,
    Prompted,
    base_only,
)
from levelhead.measures.items import Asked
from levelhead.measures.metric import Aspect
from levelhead.measures.reductions import half_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM


@final
@dataclass(frozen=True)
class ClozeTop(Prompted):
    """The paper's own number: group probabilities summed over the k likeliest predictions.

    Half the difference of P(first) - P(second) between occupations that either group dominates; a
    word that is not among the k counts as 0 (Zhang 2023, Figures 2-4: k = 3, 5, 10). A step
    function of what is among them: `cloze_probability` is its smooth companion.
    """

    k: int = 10

    metrics: ClassVar[dict[str, str]] = {
        "cloze_top": "the paper's way: group words among the k likeliest",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self.k, "k")

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """The ten likeliest tokens of every prompt, or k if that is more."""
        first, second, _ = self.verbalizer(lm)
        items, told = self.texts(lm)
        tokens = [
            sorted({pieces[0] for word in side if len(pieces := lm.pieces(word)) == 1})
            for side in (first, second)
        ]
        if not all(tokens):
            raise NotMeasurable(
                "no word of one group is a single token of this model",
                mend="use cloze_probability, which scores words of several tokens",
            )
        return (
            Asked(
                "top",
                Frozen({"k": max(self.k, 10)}),
                FACTORS,
                items,
                facts=Frozen({"tokens": tokens, "told": told}),
                notes=(
                    told,
                    f"verbalizer: {len(tokens[0])} + {len(tokens[1])} single tokens of "
                    f"{len(first)} + {len(second)} words; the others are never among the top",
                ),
            ),
        )

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The number at k."""
        return (self._at(self.k, "cloze_top"),)

    def _at(self, k: int, name: str) -> Aspect:
        return Aspect(
            name=name,
            equation=f"{PAPER}, Figures 2-4, k = {k}",
            per_item=lambda readouts: base_only(readouts, _top_difference(readouts, k)),
            over=half_difference,
            unit="difference of probabilities",
            low=-1.0,
            high=1.0,
            direction="above 0: occupations are given to the group that dominates them",
            above="occupations are given to the group that dominates them",
            below="occupations are given to the group that does not dominate them",
            comparable=f"cloze top {k}, same prompts and words",
            null="deal",
            companion="cloze_probability",
        )

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """The paper's three k, and how often no group word is among them."""
        readouts, estimates, notes = found[0], [], []
        for k in (3, 5, 10):
            try:
                estimates.append(self.estimated(readouts, self._at(k, f"top {k}"), inference))
            except NotMeasurable as error:
                notes.append(f"top {k}: {error.what}")
        values = _top_masses(readouts, self.k)
        none = int((values.sum(1) == 0).sum())
        notes.append(f"{none} of {len(readouts)} prompts have no group word among the top {self.k}")
        return Beside(tuple(estimates), tuple(notes))


def _top_masses(readouts: Readouts, k: int) -> torch.Tensor:
    """`[n, 2]` probability of each group's tokens among the k likeliest."""
    found = readouts.values[:, 0]
    ids, p = found[:, : found.shape[1] // 2][:, :k], found[:, found.shape[1] // 2 :][:, :k].exp()
    sides = cast("tuple[tuple[int, ...], ...]", readouts.facts["tokens"])
    masses = [(p * torch.isin(ids, torch.tensor(side, dtype=ids.dtype))).sum(1) for side in sides]
    return torch.stack(masses, dim=1)


def _top_difference(readouts: Readouts, k: int) -> torch.Tensor:
    masses = _top_masses(readouts, k)
    return masses[:, 0] - masses[:, 1]
