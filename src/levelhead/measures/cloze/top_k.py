"""Cloze as in the paper (Zhang 2023, Figures 2-4): group words among the top k words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast, final

import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference
from levelhead.measures.base import Extras
from levelhead.measures.cloze.prompt_measure import (
    FACTORS,
    PAPER,
    PromptMeasure,
    select_base,
)
from levelhead.measures.inference import note_failure
from levelhead.measures.items import QuerySet
from levelhead.measures.metric import Metric
from levelhead.measures.options import check_positive
from levelhead.measures.reductions import half_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Estimate
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM


@final
@dataclass(frozen=True)
class ClozeTopK(PromptMeasure):
    """The paper's metric: group probabilities summed over the top k predictions.

    Half the difference of P(first) - P(second) between occupations that each group dominates; a
    word outside the top k counts as 0 (Zhang 2023, Figures 2-4: k = 3, 5, 10). This is a step
    function of the top k; `cloze_probability` is its smooth surrogate.
    """

    k: int = 10

    metrics: ClassVar[dict[str, str]] = {
        "cloze_top": "the paper's way: group words among the k likeliest",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.k, "k")

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One query for each prompt: the top ten tokens, or the top k if k is larger."""
        first, second, _ = self.verbalizer(lm)
        items, format_note = self.build_items(lm)
        tokens = [
            sorted({pieces[0] for word in side if len(pieces := lm.token_ids_of_word(word)) == 1})
            for side in (first, second)
        ]
        # With no candidate of one group, its probability would be 0 for every prompt.
        if not all(tokens):
            raise NotMeasurableError(
                "no word of one group is a single token of this model",
                hint="use cloze_probability, which scores words of several tokens",
            )
        return (
            QuerySet(
                "top",
                # At least 10, the paper's largest k, so that every smaller k shares the stored
                # responses.
                FrozenDict({"k": max(self.k, 10)}),
                FACTORS,
                items,
                metadata=FrozenDict({"tokens": tokens, "format": format_note}),
                notes=(
                    format_note,
                    f"verbalizer: {len(tokens[0])} + {len(tokens[1])} single tokens of "
                    f"{len(first)} + {len(second)} words; the others are never among the top",
                ),
            ),
        )

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The metric at k."""
        return (self._metric_at(self.k, "cloze_top"),)

    def _metric_at(self, k: int, name: str) -> Metric:
        return Metric(
            name=name,
            equation=f"{PAPER}, Figures 2-4, k = {k}",
            per_item_values=lambda responses: select_base(responses, _top_difference(responses, k)),
            aggregate=half_difference,
            unit="difference of probabilities",
            low=-1.0,
            high=1.0,
            direction="above 0: occupations are given to the group that dominates them",
            above="occupations are given to the group that dominates them",
            below="occupations are given to the group that does not dominate them",
            comparability_key=f"cloze top {k}, same prompts and words",
            null="permute_units",
            smooth_surrogate="cloze_probability",
        )

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The metric at the paper's three k, and the count of prompts without a group word."""
        responses = response_sets[0]
        estimates: list[Estimate] = []
        notes: list[str] = []
        # Zhang's Figures 2-4; the stored ten tokens contain the top 3 and the top 5.
        for k in (3, 5, 10):
            with note_failure(notes, f"top {k}"):
                estimates.append(
                    self.estimate_metric(responses, self._metric_at(k, f"top {k}"), inference)
                )
        values = _top_masses(responses, self.k)
        n_none = int((values.sum(1) == 0).sum())
        notes.append(
            f"{n_none} of {len(responses)} prompts have no group word among the top {self.k}"
        )
        return Extras(tuple(estimates), tuple(notes))


def _top_masses(responses: Responses, k: int) -> torch.Tensor:
    """`[n, 2]` probability of each group's tokens among the top k."""
    top = responses.values[:, 0]
    # The query gives all ids first, then all log-probabilities, both in descending order.
    ids, p = top[:, : top.shape[1] // 2][:, :k], top[:, top.shape[1] // 2 :][:, :k].exp()
    sides = cast("tuple[tuple[int, ...], ...]", responses.metadata["tokens"])
    masses = [(p * torch.isin(ids, torch.tensor(side, dtype=ids.dtype))).sum(1) for side in sides]
    return torch.stack(masses, dim=1)


def _top_difference(responses: Responses, k: int) -> torch.Tensor:
    masses = _top_masses(responses, k)
    return masses[:, 0] - masses[:, 1]
