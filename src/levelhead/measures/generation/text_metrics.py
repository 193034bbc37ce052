"""Metrics that compare texts about two groups: shares of labels, and lengths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, final

from levelhead.measures.generation.text_shares import (
    difference_between_groups,
    difference_of_ratios,
    exchange_groups,
    make_group_ratio,
    paired_difference_interval,
    paired_shares,
    separate_difference_interval,
    separate_shares,
    uniform_share_interval,
)
from levelhead.measures.metric import Metric, flip_signs

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from levelhead.core.results import Interval
    from levelhead.measures.generation.scoring.scorer_calibration import GroupRates
    from levelhead.measures.generation.text_shares import GroupShares
    from levelhead.measures.metric import Aggregate
    from levelhead.measures.responses import Responses
    from levelhead.stats.designs import Design

    PerItem = Callable[[Responses], torch.Tensor]
    # A function, because a model that scores texts is loaded for them.
    Rates = Callable[[], GroupRates | None]

SURROGATE = "bbq"
"""A sampled text has no gradient; log-odds of a decision have."""
WORDS_PER_TOKEN = 4
"""More than any text has: characters of some scripts are words."""


def uncorrected() -> None:
    """The error rates of a share that is not corrected."""


@final
@dataclass(frozen=True)
class TextComparison:
    """How texts about two groups are compared."""

    groups: tuple[str, str]
    noun: str
    """What the texts are called: answers, continuations."""
    aggregate: Aggregate
    null: Literal["sign_flip", "permute_units"] | None
    same: str
    """What must be the same before two values are comparable."""
    shares: Callable[[torch.Tensor, Design], tuple[GroupShares, GroupShares]]
    """Function to the shares of each group, by item."""
    difference_interval: Callable[[torch.Tensor, Design, GroupRates | None, float], Interval | None]
    """Function to the interval of a difference that is the same in all items."""
    flip: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = flip_signs

    def share(
        self,
        name: str,
        what: str,
        per_item: PerItem,
        rates: Rates = uncorrected,
        *,
        is_silence: bool = False,
    ) -> Metric:
        """Difference of the share of texts that are something, in percentage points.

        Args:
            name: Name of the metric.
            what: What the texts are: "positive", "refusals".
            per_item: Function to the values of the items.
            rates: Function to the error rates by which the share is corrected.
            is_silence: Whether such texts say nothing of a person. If all are of this kind, there
                is no interval: a model that refuses everybody does not show equal treatment.
        """
        first, second = self.groups
        return Metric(
            name=name,
            equation=f"share of {self.noun} that are {what}, first group less second",
            per_item_values=per_item,
            aggregate=self.aggregate,
            unit="percentage points",
            low=-100.0,
            high=100.0,
            direction=f"above 0: {self.noun} about {first} are more often {what}",
            above=f"{self.noun} about {first} are more often {what} than about {second}",
            below=f"{self.noun} about {second} are more often {what} than about {first}",
            comparability_key=f"{name}, {self.same} and scorer",
            null=self.null,
            flip=self.flip,
            smooth_surrogate=SURROGATE,
            closed_form_interval=partial(self._constant_interval, is_silence, rates),
            can_be_constant=True,
        )

    def length(self, name: str, per_item: PerItem, tokens: int) -> Metric:
        """Difference of the mean number of words.

        Args:
            name: Name of the metric.
            per_item: Function to the values of the items.
            tokens: Maximum number of tokens of a text.
        """
        first, second = self.groups
        return Metric(
            name=name,
            equation="mean number of words, first group less second",
            per_item_values=per_item,
            aggregate=self.aggregate,
            unit="words",
            low=-float(tokens * WORDS_PER_TOKEN),
            high=float(tokens * WORDS_PER_TOKEN),
            direction=f"above 0: {self.noun} about {first} are longer",
            above=f"{self.noun} about {first} are longer than about {second}",
            below=f"{self.noun} about {second} are longer than about {first}",
            comparability_key=f"{name}, {self.same}",
            null=self.null,
            flip=self.flip,
            smooth_surrogate=SURROGATE,
        )

    def rates(
        self, what: str, per_item: PerItem, rates: Rates = uncorrected
    ) -> tuple[Metric, Metric]:
        """The share of texts about each group that are something, of separate items.

        Args:
            what: What the texts are: "positive", "refusals".
            per_item: Function to the values of the items.
            rates: Function to the error rates by which the share is corrected.
        """
        first, second = (
            Metric(
                name=f"{what}, {group}",
                equation=f"share of {self.noun} about {group} that are {what}",
                per_item_values=per_item,
                aggregate=make_group_ratio(number),
                unit=f"% of {self.noun}",
                # A corrected share may lie outside 0 to 100: the errors of the scorer are
                # estimated.
                low=-float("inf"),
                high=float("inf"),
                direction=f"larger: {self.noun} about {group} are more often {what}",
                comparability_key=f"{what}, {self.same} and scorer",
                parity=None,
                smooth_surrogate=SURROGATE,
                closed_form_interval=partial(self._group_interval, number, rates),
            )
            for number, group in enumerate(self.groups)
        )
        return first, second

    def _constant_interval(
        self, is_silence: bool, rates: Rates, values: torch.Tensor, design: Design, level: float
    ) -> Interval | None:
        if is_silence and all(group.is_total for group in self.shares(values, design)):
            return None
        return self.difference_interval(values, design, rates(), level)

    def _group_interval(
        self,
        number: int,
        rates: Rates,
        values: torch.Tensor,
        design: Design,
        level: float,
    ) -> Interval | None:
        group, found = self.shares(values, design)[number], rates()
        return uniform_share_interval(group, found and found[number], level)


def compare_paired(groups: tuple[str, str], noun: str, same: str) -> TextComparison:
    """Compare texts of paired items: under equal treatment, both groups' texts are exchangeable."""
    return TextComparison(
        groups,
        noun,
        difference_of_ratios,
        "sign_flip",
        same,
        paired_shares,
        paired_difference_interval,
        exchange_groups,
    )


def compare_separate(
    groups: tuple[str, str], noun: str, same: str, *, is_crossed: bool = False
) -> TextComparison:
    """Compare texts of separate items: under equal treatment, units are exchangeable.

    Args:
        groups: The two groups.
        noun: What the texts are called.
        same: What must be the same before two values are comparable.
        is_crossed: Whether items have units of two factors, which no permutation can keep.
    """
    null: Literal["permute_units"] | None = None if is_crossed else "permute_units"
    return TextComparison(
        groups,
        noun,
        difference_between_groups,
        null,
        same,
        separate_shares,
        separate_difference_interval,
    )
