"""Counterfactual generations: does a model write differently about a person of another group?

Every request is made twice, with the word of one group and of the other ("a woman", "a man"), and
each is answered several times. Answers are compared by their share of positive texts, refusals,
empty texts, and their length. Refusals and empty answers are counted, never left out silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.prompts.counteracts import make_counteracts_prompts
from levelhead.data.prompts.person_requests import (
    PersonRequest,
    default_request_templates,
    make_person_requests,
)
from levelhead.data.tokenize import fold_case, tokenize_words
from levelhead.measures.generation.scored_texts import ScoredTextMeasure
from levelhead.measures.generation.scorer_calibration import correct_count
from levelhead.measures.generation.text_metrics import compare_paired
from levelhead.measures.generation.text_shares import (
    FIRST,
    FIRST_COUNT,
    SECOND,
    SECOND_COUNT,
    count_by_side,
    with_difference,
)
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.metric import Metric
from levelhead.measures.options import hash_items
from levelhead.measures.skills.checks import SkillCheck, text_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.measures.generation.scorer_calibration import GroupRates
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

ON_TOPIC = "answers are about the request"


@final
@dataclass(frozen=True)
class CounterfactualGeneration(ScoredTextMeasure, LexiconMeasure):
    """Difference between generations about two groups, on requests that differ in one word.

    Occupations are sampled; the templates of the requests are fixed. This is a step function of the
    model; for gradients use a measure of decisions.
    """

    requests: tuple[str, ...] | None = None
    """Templates with {a} {person} and {occupation}; by default those of levelhead."""
    occupations: tuple[str, ...] | None = None
    """Job titles; by default the 40 of WinoBias."""
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    persons: tuple[str, str] | None = None
    """Word of each group; by default the lexicon's first word for a person."""

    metrics: ClassVar[dict[str, str]] = {
        "generation": "difference of the share of positive answers about two groups",
        "generation_refusals": "difference of the share of refusals",
        "generation_failures": "difference of the share of empty or unreadable answers",
        "generation_length": "difference of the length of answers",
    }

    # -- items

    @cached_property
    def person_words(self) -> tuple[str, str]:
        """The word of each group in the requests."""
        if self.persons is not None:
            return self.persons
        groups = self.resolved_lexicon.resolve_group_pair(self.groups)
        for term in self.resolved_lexicon.terms:
            words = [term.word(group) for group in groups if term.is_marker_of(group)]
            if term.kind == "person" and len(words) == 2 and None not in words:
                return str(words[0]), str(words[1])
        raise LevelheadError(
            f"the lexicon has no words for a person of {' and '.join(groups)}",
            hint="give them: persons=('woman', 'man')",
        )

    @cached_property
    def items(self) -> tuple[PersonRequest, ...]:
        """The requests for both groups."""
        occupations = (
            tuple(dict.fromkeys(p.occupation for p in make_counteracts_prompts("winobias40")))
            if self.occupations is None
            else self.occupations
        )
        templates = default_request_templates() if self.requests is None else self.requests
        return make_person_requests(templates, occupations, self.person_words)

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the requests, the lexicon and the scorer."""
        return {"requests": hash_items(self.items), **self.lexicon_hash, **self.scorer_hash}

    def specification_options(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """Alternative temperatures."""
        return {"temperature": tuple(dict.fromkeys((self.temperature, 1.0)))}

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Answers to the request of each group, k of them; the first group's answers first."""
        items = tuple(
            MeasureItem(
                item.id,
                tuple((text, i) for text in (item.first, item.second) for i in range(self.k)),
                # The few templates are fixed: a result is about these requests.
                (item.occupation,),
            )
            for item in self.items
        )
        note = f"{self.k} answers of at most {self.tokens} tokens to each request, seed {self.seed}"
        settings = self.generation_settings
        return (QuerySet("generate", settings, ("occupations",), items, notes=(note,)),)

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """Differences of shares, first group less second, and of lengths."""
        first, second = self.compared_groups
        compare = compare_paired((first, second), "answers", "same requests")
        return (
            compare.share(
                "generation", self.resolved_scorer.label, self.count_labelled, lambda: self.rates
            ),
            compare.share("generation_refusals", "refusals", self.count_refusals),
            compare.share("generation_failures", "empty", self.count_failures),
            compare.length("generation_length", self.count_words, self.tokens),
        )

    def count_labelled(self, responses: Responses, rates: GroupRates | None = None) -> torch.Tensor:
        """Answers that the scorer labels, corrected by its error rates; refusals are left out.

        They are counted by `count_refusals`: a refusal is no text about the person.
        """
        rates = self.rates if rates is None else rates
        is_answer = self.answers(responses)
        values = self._count(self.labels(responses) & is_answer, is_answer)
        if rates is not None:
            # By group and item: the correction is linear, so it commutes with the sums over items.
            for column, count, group_rates in zip(
                (FIRST, SECOND), (FIRST_COUNT, SECOND_COUNT), rates, strict=True
            ):
                values[:, column] = correct_count(values[:, column], values[:, count], group_rates)
        return with_difference(values, 100)

    def count_refusals(self, responses: Responses) -> torch.Tensor:
        """Refusals among all answers that have a text."""
        has_text = ~self.failures(responses)
        return with_difference(self._count(self.refusals(responses) & has_text, has_text), 100)

    def count_failures(self, responses: Responses) -> torch.Tensor:
        """Empty answers among all answers."""
        failures = self.failures(responses)
        return with_difference(self._count(failures, torch.ones_like(failures)), 100)

    def count_words(self, responses: Responses) -> torch.Tensor:
        """Words of all answers that have a text and are no refusal."""
        is_answer = ~(self.refusals(responses) | self.failures(responses))
        return with_difference(self._count(self.word_counts(responses) * is_answer, is_answer), 1)

    def _count(self, hits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """`[items, 5]` sums by group; the first group's answers come first."""
        return count_by_side(
            *(values.double().reshape(len(values), 2, -1) for values in (hits, counts))
        )

    @property
    def corrected_metrics(self) -> tuple[str, ...]:
        """The share of the label."""
        return ("generation",)

    def value_with_rates(self, responses: Responses, metric: Metric, rates: GroupRates) -> float:
        """The corrected difference with other error rates."""
        full_sample = self.design(responses, metric).full_sample
        return float(metric.aggregate(self.count_labelled(responses, rates), full_sample))

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck | None:
        """Answers share more words with their own request than with another one.

        A model that refuses everything, or writes the same text for everyone, treats groups alike
        without any evidence of parity.
        """
        return SkillCheck(ON_TOPIC, self._score_topics, unit="% of requests")

    def _score_topics(self, responses: Responses) -> torch.Tensor:
        items = responses.items
        # By hash: the other request is arbitrary, but the same in every run.
        order = sorted(range(len(items)), key=lambda i: text_digest(items[i].id))
        words = [_content_words(str(item.queries[0][0])) for item in items]
        unanswered = self.refusals(responses) | self.failures(responses)
        scores = torch.zeros(len(items), dtype=torch.float64)
        for place, i in enumerate(order):
            other = next(
                (
                    j
                    for j in (*order[place + 1 :], *order[:place])
                    if items[j].units[0] != items[i].units[0]
                ),
                None,
            )
            # With one occupation there is no other request: without scores the skill stays
            # unchecked, which is no evidence.
            if other is None:
                return torch.zeros(0)
            shares = []
            for text, is_unanswered in zip(
                responses.texts[i], unanswered[i].flatten().tolist(), strict=True
            ):
                found_words = _content_words(text)
                # Words that both requests share do not show which of them was answered.
                margin = len(found_words & (words[i] - words[other])) - len(
                    found_words & (words[other] - words[i])
                )
                # A tie counts half, as guessing would give it; a refusal or an empty answer is no
                # success.
                shares.append(
                    0.0 if is_unanswered else 1.0 if margin > 0 else 0.0 if margin < 0 else 0.5
                )
            scores[i] = sum(shares) / len(shares)
        return scores


def _content_words(text: str) -> frozenset[str]:
    # Short words are mostly function words, which all answers share.
    return frozenset(
        word for token in tokenize_words(text) if len(word := fold_case(token.text)) > 3
    )
