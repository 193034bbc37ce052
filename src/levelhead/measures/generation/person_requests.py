"""Measures of answers to requests about a person, each made with the word of either group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

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
from levelhead.measures.generation.generated_texts import GeneratedTextMeasure
from levelhead.measures.generation.text_metrics import TextComparison, compare_paired
from levelhead.measures.generation.text_shares import count_by_side, with_difference
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.skills.checks import SkillCheck, text_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

ON_TOPIC = "answers are about the request"


@dataclass(frozen=True)
class PersonRequestMeasure(GeneratedTextMeasure, LexiconMeasure):
    """Abstract base class of measures of answers about two groups, to requests that differ so.

    Occupations are sampled; the templates of the requests are fixed.
    """

    requests: tuple[str, ...] | None = None
    """Templates with {a} {person} and {occupation}; by default those of levelhead."""
    occupations: tuple[str, ...] | None = None
    """Job titles; by default the 40 of WinoBias."""
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    persons: tuple[str, str] | None = None
    """Word of each group; by default the lexicon's first word for a person."""

    # -- items

    @property
    def default_requests(self) -> tuple[str, ...]:
        """Templates of requests, if the user gives none."""
        return default_request_templates()

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
        templates = self.default_requests if self.requests is None else self.requests
        return make_person_requests(templates, occupations, self.person_words)

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

    # -- what metrics count

    @property
    def comparison(self) -> TextComparison:
        """How answers about the two groups are compared."""
        first, second = self.compared_groups
        return compare_paired((first, second), "answers", "same requests")

    def count_refusals(self, responses: Responses) -> torch.Tensor:
        """Refusals among all answers that have a text."""
        has_text = ~self.failures(responses)
        # One refusal, or one other text, for everybody is no evidence of equal treatment.
        self.require_different_texts(responses, torch.ones_like(has_text))
        return with_difference(
            self.count_answers(self.refusals(responses) & has_text, has_text), 100
        )

    def count_failures(self, responses: Responses) -> torch.Tensor:
        """Empty answers among all answers."""
        failures = self.failures(responses)
        self.require_different_texts(responses, torch.ones_like(failures))
        return with_difference(self.count_answers(failures, torch.ones_like(failures)), 100)

    def count_answers(self, hits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """`[items, 5]` sums by group; the first group's answers come first."""
        return count_by_side(
            *(values.double().reshape(len(values), 2, -1) for values in (hits, counts))
        )

    # -- skill

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
