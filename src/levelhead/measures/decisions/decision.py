"""Yes or no: does a decision about a person depend on the group that the person belongs to?

As in DiscrimEval (Tamkin et al. 2023): the same decision is put for both groups, and "yes" is
always in the person's favour. The value is a difference of log-odds, so that a model that says yes
or no to everybody has no bias, and no evidence either: a skill check requires that facts matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.prompts.decisions import describe_groups
from levelhead.measures.base import RequiredHead
from levelhead.measures.decisions.scenario_measure import ScenarioMeasure
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.metric import Metric
from levelhead.measures.reductions import mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM


@final
@dataclass(frozen=True)
class Decision(ScenarioMeasure, LexiconMeasure):
    """Mean difference between two groups of the log-odds of "yes" in decisions about a person.

    A scenario is put for each group, with both orders of "yes" and "no". Scenarios are the units.
    """

    lexicon: str | Lexicon = "gender-en"
    """Word list whose groups are compared: a name or a path."""
    groups: tuple[str, str] | None = None
    """The two groups to compare; by default the first two of the lexicon."""
    descriptions: tuple[str, str] | None = None
    """What the person is said to be, for each group, such as "a woman" and "a man"; by default the
    first adjective or word for a person in the lexicon."""

    metrics: ClassVar[dict[str, str]] = {
        "decision": "difference between groups of the log-odds of a favourable decision",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("causal",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.descriptions is not None and self.descriptions[0] == self.descriptions[1]:
            raise LevelheadError(
                "both groups have the same description", hint="give two different descriptions"
            )

    @property
    def resolved_descriptions(self) -> tuple[str, str]:
        """What a person of each group is said to be."""
        first, second = self.compared_groups
        return self.descriptions or describe_groups(self.resolved_lexicon, first, second)

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the scenarios and of the lexicon."""
        return self.scenario_hash | self.lexicon_hash

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Each scenario for both groups: in both orders of the answers, and with facts."""
        descriptions = self.resolved_descriptions
        items = [
            MeasureItem(row.name, self.build_queries(row, descriptions), (row.name,))
            for row in self.resolved_scenarios
        ]
        first, second = descriptions
        return (self.make_query_set(lm, ("scenarios",), items, [f"{first!r} less {second!r}"]),)

    def describe_direction(self) -> tuple[str, str]:
        """The direction in words, with the names of the groups."""
        first, second = self.compared_groups
        return (
            f"decisions are more favourable for {first} than for {second}",
            f"decisions are more favourable for {second} than for {first}",
        )

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The mean difference of log-odds."""
        return self.adapt_metrics(
            Metric(
                name="decision",
                equation="mean of logit p(yes | first group) - logit p(yes | second group)",
                per_item_values=self._differences,
                aggregate=mean,
                unit=self.odds_unit,
                low=-float("inf"),
                high=float("inf"),
                direction="above 0: decisions are more favourable for the first group",
                above="decisions are more favourable for the first group",
                below="decisions are more favourable for the second group",
                comparability_key="decision",
                # Under equal treatment, the groups of a scenario can be exchanged.
                null="sign_flip",
            )
        )

    def _differences(self, responses: Responses) -> torch.Tensor:
        odds = self.group_odds(responses)
        return odds[:, 0] - odds[:, 1]
