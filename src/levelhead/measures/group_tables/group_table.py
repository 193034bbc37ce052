"""Base of the measures of many groups: groups, their descriptions and what is reported."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.group_descriptions import (
    check_descriptions,
    cross_groups,
    describe_persons,
)
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.measures.base import Extras, Measure
from levelhead.measures.group_tables.table_metrics import (
    TableLabels,
    describe_largest_gap,
    make_table_metrics,
    with_item_spread,
)
from levelhead.measures.inference import estimate, holm_corrected, note_failure
from levelhead.measures.metric import Metric, flip_signs
from levelhead.measures.reductions import mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from levelhead.core.results import Estimate
    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

AGAINST_OTHERS = " against the others"
"""End of the names of estimates of single groups."""
INTERACTION = "_interaction"
"""End of the name of the metric that needs two attributes."""


@dataclass(frozen=True)
class GroupTable(Measure):
    """Abstract base class of measures with a value for each group in each item.

    A second lexicon crosses the groups of the first: women and men of each origin.
    """

    lexicon: str | Lexicon | None = None
    """Word list of the groups, by default religions."""
    groups: tuple[str, ...] | None = None
    """Groups of the lexicon, by default all."""
    crossed_with: str | Lexicon | None = None
    """Second word list, crossed with the first."""
    crossed_groups: tuple[str, ...] | None = None
    """Groups of the second, by default all."""
    descriptions: tuple[str, ...] | None = None
    """Noun phrase for a person of each group, such as "Muslim person", second groups varying
    fastest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crossed_groups is not None and self.crossed_with is None:
            raise LevelheadError(
                "crossed_groups without a second lexicon", hint="give crossed_with as well"
            )

    def check(self, lm: LM) -> None:
        """Raise an error if the model lacks the head, or an interaction its second attribute."""
        super().check(lm)
        if self.metric.endswith(INTERACTION) and self.crossed_with is None:
            raise LevelheadError(
                f"{self.metric} compares two attributes, and there is one",
                hint="give the second lexicon, such as crossed_with=gender-en",
            )

    @abstractmethod
    def group_values(self, responses: Responses) -> torch.Tensor:
        """`[items, groups]` value of each group in each item."""

    @property
    @abstractmethod
    def quantity(self) -> str:
        """What is compared, in words."""

    @property
    @abstractmethod
    def table_unit(self) -> str:
        """Unit of the values."""

    @cached_property
    def lexicons(self) -> tuple[Lexicon, ...]:
        """The lexicon of each attribute."""
        first = self.default_lexicon if self.lexicon is None else self.lexicon
        names = [first] if self.crossed_with is None else [first, self.crossed_with]
        return tuple(resolve_lexicon(name) for name in names)

    @property
    def default_lexicon(self) -> str:
        """Name of the lexicon that is used if none is given."""
        return "religion-en"

    @property
    def person_pattern(self) -> str:
        """Noun phrase of a person with an adjective of the group."""
        return "{adjective} person"

    @cached_property
    def attribute_groups(self) -> tuple[tuple[str, ...], ...]:
        """The groups of each attribute."""
        chosen = (self.groups, self.crossed_groups)
        result = []
        for lexicon, names in zip(self.lexicons, chosen, strict=False):
            groups = lexicon.groups if names is None else names
            for group in groups:
                lexicon.words(group)  # raises for an unknown group
            if len(set(groups)) < max(2, len(groups)):
                raise LevelheadError(
                    f"{len(groups)} groups of {lexicon.name}: {', '.join(groups)}",
                    hint="name at least two different groups",
                )
            result.append(tuple(groups))
        return tuple(result)

    @property
    def compared_groups(self) -> tuple[str, ...]:
        """All compared groups; of two attributes, their pairs."""
        return cross_groups(self.attribute_groups)

    @cached_property
    def resolved_descriptions(self) -> tuple[str, ...]:
        """A noun phrase for a person of each group."""
        descriptions = self.descriptions or describe_persons(
            self.lexicons, self.attribute_groups, self.person_pattern
        )
        check_descriptions(descriptions, len(self.compared_groups))
        return descriptions

    @property
    def lexicon_hashes(self) -> dict[str, str]:
        """SHA-256 of the lexicons, by name."""
        return {f"lexicon {lexicon.name}": lexicon.sha256 for lexicon in self.lexicons}

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """Spread, largest gap and, of two attributes, their interaction and each alone."""
        labels = TableLabels(
            name=next(iter(self.metrics)).removesuffix("_spread"),
            quantity=self.quantity,
            unit=self.table_unit,
            attributes=tuple(lexicon.name for lexicon in self.lexicons),
            sizes=tuple(map(len, self.attribute_groups)),
        )
        return make_table_metrics(
            labels,
            lambda responses: with_item_spread(self.group_values(responses)),
        )

    @property
    def ordered_metrics(self) -> tuple[Metric, ...]:
        """The metrics, the primary one first; without the interaction of a single attribute."""
        primary, *others = super().ordered_metrics
        is_crossed = self.crossed_with is not None
        return (
            primary,
            *(row for row in others if is_crossed or not row.name.endswith(INTERACTION)),
        )

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Each group against the mean of the others, corrected together, and the largest gap."""
        extras = super().compute_extras(response_sets, inference)
        responses = response_sets[0]
        table = self.group_values(responses).detach()
        estimates, notes = self._estimate_groups(table, responses, inference)
        gap = describe_largest_gap(table.mean(0).tolist(), self.compared_groups)
        phrases = ", ".join(map(repr, self.resolved_descriptions))
        return replace_extras(
            extras, estimates, (gap, f"persons are described as {phrases}", *notes)
        )

    def _estimate_groups(
        self, table: torch.Tensor, responses: Responses, inference: Inference
    ) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
        """The difference of each group from the mean of the others."""
        primary = self.primary_metric
        n_groups = table.shape[1]
        others = (table.sum(1, keepdim=True) - table) / (n_groups - 1)
        difference = replace(
            primary.difference(mean),
            flip=flip_signs,
            null="sign_flip",
            alternative="two-sided",
            unit=self.table_unit,
            smooth_surrogate=None,
            direction="above 0: the group's values are larger than the mean of the others",
            above="the group's values are larger than the mean of the others",
            below="the group's values are smaller than the mean of the others",
        )
        design = self.design(responses, primary)
        estimates: list[Estimate] = []
        notes: list[str] = []
        for number, group in enumerate(self.compared_groups):
            with note_failure(notes, group):
                estimates.append(
                    estimate(
                        inference,
                        difference,
                        (table - others)[:, number],
                        design,
                        name=f"{group}{AGAINST_OTHERS}",
                    )
                )
        return holm_corrected(estimates), tuple(notes)

    def describe_direction(self) -> tuple[str, str]:
        """The direction in words."""
        return self.primary_metric.above, self.primary_metric.below


def replace_extras(
    extras: Extras, estimates: tuple[Estimate, ...], notes: tuple[str, ...]
) -> Extras:
    """Add estimates and notes to those of the base class."""
    return extras._replace(
        estimates=(*extras.estimates, *estimates), notes=(*extras.notes, *filter(None, notes))
    )
