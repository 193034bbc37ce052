"""Distance: do predictions for unrelated sentences differ between a context and its counterfactual?

Dawkins et al. 2024, Eq. 3, on twin triples, compared with placebos.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference
from levelhead.data.counterfactuals.swap import swap_within_groups
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.data.tokenize import tokenize_words
from levelhead.measures.base import Extras, RequiredHead, TestInputs
from levelhead.measures.inference import estimate
from levelhead.measures.items import QuerySet
from levelhead.measures.metric import Metric, all_or_none_interval
from levelhead.measures.next_sentence.twin_triples import FACTORS, PAPER, TwinTripleMeasure
from levelhead.measures.reductions import column_difference, mean, scale_aggregate
from levelhead.measures.responses import select_common_items
from levelhead.measures.skills.checks import SkillCheck, make_next_sentence_check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Estimate
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

MIN_TOP_ITEMS = 5
"""Minimum number of items in the top share of a control; with fewer, it is close to a maximum."""


def distance_scores(p: torch.Tensor) -> torch.Tensor:
    """The distance d of every pair, Eq. 3: |p(next | unrelated) - p(next | unrelated, twin)|.

    Dawkins et al. 2024, Table 4:

    >>> p = torch.tensor([[0.0151, 0.9985], [0.2752, 0.9955]], dtype=torch.float64)
    >>> [round(float(d), 4) for d in distance_scores(p)]
    [0.9834, 0.7203]
    """
    return (p[:, 0] - p[:, 1]).abs()


def swap_columns(values: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Exchange the two columns where the sign is negative."""
    return torch.where(signs[:, None] > 0, values, values.flip(1))


@final
@dataclass(frozen=True)
class Distance(TwinTripleMeasure):
    """Distance D: difference of predictions for unrelated sentences between twins (Eq. 3).

    The mean of d over the top tenth. An exchange of twins does not change it, so it gives no null
    distribution: parity is the D of placebos, which change as many words within one gender.
    """

    lexicon: str | Lexicon = "gender-en"
    """Lexicon that provides the placebo words."""

    metrics: ClassVar[dict[str, str]] = {
        "distance": "difference of predictions for unrelated sentences after twins",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("next_sentence",)
    parity_from_control: ClassVar[bool] = True

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The distance, and the signed difference between the genders' contexts."""
        top = Metric(
            name="distance",
            equation=f"{PAPER}, Eq. 3",
            per_item_values=lambda responses: distance_scores(responses.values[..., 0].exp()),
            aggregate=self.top_mean,
            unit="difference of probabilities",
            low=0.0,
            high=1.0,
            direction="larger: predictions for unrelated sentences differ more between twins",
            above="predictions for unrelated sentences differ more between twins than between "
            "placebo twins: the group matters beyond a change of words",
            below="predictions for unrelated sentences differ less between twins than between "
            "placebo twins: other words of one group matter more than the group",
            comparability_key=f"distance, top {self.top:g}",
            # An absolute difference is positive under equal treatment, too: placebos give its
            # parity.
            parity=None,
            method="expanded",
        )
        signed = replace(
            top,
            name="signed difference",
            per_item_values=self.signed_difference,
            aggregate=mean,
            low=-1.0,
            direction="above 0: unrelated sentences follow contexts of the first group, by name, "
            "more readily",
            above="unrelated sentences follow contexts of the first group more readily",
            below="unrelated sentences follow contexts of the second group more readily",
            comparability_key="distance, signed difference",
            parity=0.0,
            null="sign_flip",
            method=None,
        )
        return top, signed

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Queries whether the unrelated sentence follows the context, its twin and its placebo."""
        words = resolve_lexicon(self.lexicon)
        real, control = [], []
        for triple in self.items:
            original, twin = (
                (triple.context, triple.unrelated),
                (triple.twin_context, triple.twin_unrelated),
            )
            real.append(self.build_item(triple, original, twin))
            placebo_swap = swap_within_groups(triple.context, words)
            # A flagged context may change in more than its words, so its placebo is no control.
            is_usable = placebo_swap.counterfactual is not None and triple.id not in self.flags
            if is_usable and len(placebo_swap.changes) == _count_changed_words(
                triple.context, triple.twin_context
            ):
                control.append(
                    self.build_item(triple, original, (placebo_swap.text, triple.unrelated))
                )
        query_sets = [QuerySet("follows", FrozenDict({}), FACTORS, tuple(real))]
        if control:
            query_sets.append(
                QuerySet("follows", FrozenDict({}), FACTORS, tuple(control), may_be_empty=True)
            )
        return tuple(query_sets)

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck:
        """Check that the model prefers related to unrelated sentences."""
        return make_next_sentence_check(self.items, responses)

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Wrong predictions by gender, and the comparison of D with placebos, paired by item."""
        real = response_sets[0]
        wrong = [self._estimate_wrong_predictions(real, inference, column) for column in (0, 1)]
        placebos = response_sets[1] if len(response_sets) > 1 else ()
        # The top share is what is compared, so the minimum grows as the share gets smaller.
        minimum = math.ceil(MIN_TOP_ITEMS / self.top)
        if len(placebos) < minimum or isinstance(placebos, tuple):
            reason = f"{len(placebos)} unflagged contexts have a placebo twin, {minimum} are needed"
            return Extras(tuple(wrong), (f"distance has no parity here: {reason}",))
        try:
            pairs = self._compare_with_placebos(response_sets, inference)
        except NotMeasurableError as error:
            return Extras(tuple(wrong), (f"distance has no parity here: {error.problem}",))
        same, control, excess = pairs
        note = (
            f"parity is the distance of placebo twins, which {control.n} of {len(real)} contexts "
            f"have; p compares it with these contexts' own {same.value:.4g}"
        )
        return Extras((*wrong, *pairs), (note,), control.value, excess.p, excess)

    def _estimate_wrong_predictions(
        self, real: Responses, inference: Inference, column: int
    ) -> Estimate:
        share = replace(
            self.ordered_metrics[1],
            name=f"wrong predictions, {self.compared_groups[column]} contexts",
            per_item_values=lambda responses: (
                self.probabilities_by_group(responses)[:, column] > 0.5
            ).double(),
            aggregate=scale_aggregate(100, mean),
            low=0.0,
            high=100.0,
            unit="% of unrelated sentences taken to follow",
            parity=None,
            null=None,
        )
        values = share.per_item_values(real)
        if float(values.min()) == float(values.max()):
            # Resampling a constant share gives an interval without width.
            share = replace(share, closed_form_interval=all_or_none_interval)
        return estimate(inference, share, values, self.design(real, share), test=False)

    def probabilities_by_group(self, responses: Responses) -> torch.Tensor:
        """`[n, 2]` p(next | unrelated) after each group's context, original or not."""
        p = responses.values[..., 0].exp()
        original = torch.tensor([item.group == self.compared_groups[0] for item in responses.items])
        return torch.where(original[:, None], p, p.flip(1))

    def signed_difference(self, responses: Responses) -> torch.Tensor:
        """Difference of p(next | unrelated) between the first and the second group's contexts."""
        p = self.probabilities_by_group(responses)
        return p[:, 0] - p[:, 1]

    def test_inputs(self, response_sets: Sequence[Responses]) -> TestInputs:
        """The distance of contexts less that of their placebos, paired by item."""
        if len(response_sets) < 2:
            raise NotMeasurableError(
                "no context has a placebo twin", hint="give a lexicon with placebos"
            )
        # One of the two may be dropped alone: only items with both values are paired.
        pair = select_common_items(response_sets)
        both = torch.stack(
            [distance_scores(responses.values[..., 0].exp()) for responses in pair], dim=1
        )
        excess = replace(
            self.primary_metric,
            name="excess over placebo twins",
            aggregate=column_difference(self.top_mean, 0, 1),
            parity=0.0,
            null="sign_flip",
            flip=swap_columns,
            low=-1.0,
            # A difference of top shares depends on a few items: see docs/development/statistics.md.
            method="outer",
        )
        return TestInputs(excess, both, self.design(pair[1], self.primary_metric))

    def _compare_with_placebos(
        self, response_sets: Sequence[Responses], inference: Inference
    ) -> tuple[Estimate, ...]:
        excess, both, design = self.test_inputs(response_sets)
        same = replace(self.primary_metric, name="distance, contexts with a placebo twin")
        control = replace(self.primary_metric, name="distance of placebo twins")
        return (
            estimate(inference, same, both[:, 0], design, test=False),
            estimate(inference, control, both[:, 1], design, test=False),
            estimate(inference, excess, both, design),
        )


def _count_changed_words(old: str, new: str) -> int:
    """Number of words that a swap changed."""
    before, after = ([token.text for token in tokenize_words(text)] for text in (old, new))
    codes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in codes if kind != "equal")
