"""Decisions about persons of many groups: how much does the answer depend on the group?

The scenarios of `decision` (in the manner of Tamkin et al. 2023), put for every group at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from levelhead.data.prompts.counteracts import indefinite_article
from levelhead.measures.base import RequiredHead
from levelhead.measures.decisions.scenario_measure import ScenarioMeasure
from levelhead.measures.group_tables.group_table import GroupTable
from levelhead.measures.items import MeasureItem, QuerySet

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM


@final
@dataclass(frozen=True)
class DecisionSpread(GroupTable, ScenarioMeasure):
    """Standard deviation between groups of the log-odds of "yes" in decisions about a person."""

    metrics: ClassVar[dict[str, str]] = {
        "decision_spread": "how much many groups differ in the log-odds of a favourable decision",
        "decision_variance": "the same as a variance, which heads can be located by",
        "decision_gap": "the largest difference between two of them",
        "decision_interaction": "what two crossed attributes do beyond each of them",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("causal",)

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the scenarios and of the lexicons."""
        return self.scenario_hash | self.lexicon_hashes

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Each scenario for every group, in both orders of the answers; with facts for two."""
        descriptions = [
            f"{indefinite_article(phrase)} {phrase}" for phrase in self.resolved_descriptions
        ]
        items = [
            MeasureItem(row.name, self.build_queries(row, descriptions), (row.name,))
            for row in self.resolved_scenarios
        ]
        return (self.make_query_set(lm, ("scenarios",), items),)

    @property
    def quantity(self) -> str:
        """What is compared."""
        return "log-odds of a favourable decision"

    @property
    def table_unit(self) -> str:
        """Unit of the values."""
        return self.odds_unit

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """Those of a table, of log-odds or of generated answers."""
        return self.adapt_metrics(*super().formulas)

    def group_values(self, responses: Responses) -> torch.Tensor:
        """`[scenarios, groups]` log-odds of the favourable answer."""
        return self.group_odds(responses)
