"""Which adjectives does a model give to persons of many groups?

The same sentence is put for each group, and the probabilities of two lists of adjectives in its
blank are compared: a difference between groups is due to the group alone. Counterfactual log-odds
of words as in Kurita et al. 2019, for any number of groups, as the measures of several groups that
Czarnowska et al. 2021 collect.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast, final

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.data.languages.language import language
from levelhead.data.lexicons.lexicon import TargetFamily
from levelhead.measures.base import RequiredHead
from levelhead.measures.group_tables.group_table import GroupTable
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.options import hash_items
from levelhead.models.inputs.tokenizer import MASK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.data.languages.language import PersonSentences
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

SLOT = "{person}"


@final
@dataclass(frozen=True)
class AssociationSpread(GroupTable):
    """Standard deviation between groups of the log-odds of two lists of adjectives in a sentence.

    Sentences are the units; the adjectives are fixed.
    """

    family: str = "threat"
    """Adjectives: threat, warmth or competence."""
    targets: TargetFamily | None = None
    """User's two lists of words, instead of a family."""
    templates: tuple[str, ...] | None = None
    """User's sentences with {person}, each with [MASK] at its end; None: those of levelhead."""
    language: str = "en"
    """Language of sentences, adjectives and the default lexicon: a code, or a user's folder."""

    metrics: ClassVar[dict[str, str]] = {
        "association_spread": "how much many groups differ in the adjectives that they are given",
        "association_variance": "the same as a variance, which heads can be located by",
        "association_gap": "the largest difference between two of them",
        "association_interaction": "what two crossed attributes do beyond each of them",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("masked", "causal")

    @property
    def _persons(self) -> PersonSentences:
        return language(self.language).persons

    @property
    def person_pattern(self) -> str:
        """Noun phrase of a person in the language."""
        return self._persons.description

    @property
    def default_lexicon(self) -> str:
        """The religions in the language."""
        return language(self.language).default_lexicon

    @cached_property
    def resolved_targets(self) -> TargetFamily:
        """The two lists of words."""
        targets = self.targets or self._persons.family(self.family)
        if len(targets.sides) != 2:
            raise LevelheadError(
                f"{targets.name} has {len(targets.sides)} lists", hint="give two lists"
            )
        return targets

    @cached_property
    def resolved_templates(self) -> tuple[str, ...]:
        """The sentences."""
        templates = self._persons.templates if self.templates is None else self.templates
        for text in templates:
            if text.count(SLOT) != 1 or text.count(MASK) != 1:
                raise LevelheadError(
                    f"{text!r} does not hold {SLOT} and {MASK} once each",
                    hint=f"write for example 'The {SLOT} next door is {MASK}.'",
                )
        return templates

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of sentences, words and lexicons."""
        sides = [(side.name, side.words) for side in self.resolved_targets.sides]
        return {
            "templates": hash_items(self.resolved_templates),
            "words": hash_items(sides),
        } | self.lexicon_hashes

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Each sentence for each group, scoring every adjective in its blank."""
        first, second = self._known_words(lm)
        items = [
            MeasureItem(
                template,
                tuple(
                    (self._fill_template(lm, template, phrase),)
                    for phrase in self.resolved_descriptions
                ),
                (template,),
            )
            for template in self.resolved_templates
        ]
        side_names = [side.name for side in self.resolved_targets.sides]
        return (
            QuerySet(
                "fill",
                FrozenDict({"words": (*first, *second)}),
                ("sentences",),
                tuple(items),
                metadata=FrozenDict({"first": len(first)}),
                notes=(
                    f"{self.resolved_targets.name}: {len(first)} words of {side_names[0]} against "
                    f"{len(second)} of {side_names[1]}; the interval is over sentences and says "
                    "nothing of other words",
                ),
            ),
        )

    def blank_words(self, lm: LM) -> Sequence[str]:
        """The adjectives that the model knows."""
        return [word for words in self._known_words(lm) for word in words]

    def _known_words(self, lm: LM) -> list[tuple[str, ...]]:
        known = [
            tuple(word for word in dict.fromkeys(side.words) if lm.token_ids_of_word(word))
            for side in self.resolved_targets.sides
        ]
        for side, words in zip(self.resolved_targets.sides, known, strict=True):
            if not words:
                raise NotMeasurableError(
                    f"the model knows no word of the list {side.name!r}",
                    hint="give words that are in its vocabulary",
                )
        return known

    @staticmethod
    def _fill_template(lm: LM, template: str, phrase: str) -> str:
        text = template.replace(SLOT, phrase)
        # A causal model reads only what comes before the blank.
        return text[: text.index(MASK) + len(MASK)] if lm.is_causal else text

    @property
    def quantity(self) -> str:
        """What is compared."""
        first, second = (side.name for side in self.resolved_targets.sides)
        return f"log-odds of words of {self.resolved_targets.name}, {first} against {second}"

    @property
    def table_unit(self) -> str:
        """Unit of the values."""
        return "nats"

    def group_values(self, responses: Responses) -> torch.Tensor:
        """`[sentences, groups]` log-odds of the first list's words over the second's."""
        first = cast("int", responses.metadata["first"])
        # Sums of probabilities in log space: rare words underflow otherwise.
        return responses.values[..., :first].logsumexp(2) - responses.values[..., first:].logsumexp(
            2
        )
