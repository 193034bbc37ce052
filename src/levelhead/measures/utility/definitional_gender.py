"""Definitional gender: does an edited model still know that a king is a man?

An edit that removes stereotypes by removing what words mean has removed knowledge. The sentences
are about words that name a group by definition (`data.prompts.definitional_gender`): a pronoun
refers to the person, or a noun says the person's group. It is a utility: an edit should not change
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, final

from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.prompts.definitional_gender import (
    DEFINED_WORDS,
    TEMPLATES,
    DefinitionTemplate,
    make_definition_sentences,
)
from levelhead.data.prompts.pronoun_agreement import AgreementSentence
from levelhead.measures.options import hash_items
from levelhead.measures.utility.right_word import RightWordMeasure, RightWordTexts

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True)
class DefinitionalGender(RightWordMeasure):
    """Percentage of sentences whose word is likelier that is right by definition.

    The word is a pronoun, or a noun that says the group. Words are sampled, each with all of its
    sentences. A constant answer is right in 50%, and a tie counts half.
    """

    texts: tuple[AgreementSentence, ...] | None = None
    """User's sentences; by default those of words and templates."""
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    words: tuple[str, ...] = DEFINED_WORDS
    """Words of the first group that denote one person; the lexicon has their counterparts."""
    templates: tuple[DefinitionTemplate, ...] | None = None
    """Sentences with {word} and a blank; None: three of levelhead."""

    metrics: ClassVar[dict[str, str]] = {
        "definitional_gender": "knowledge people need: what words mean by definition",
        "definitional_gender_margin": "by how much right words are likelier",
    }
    wording: ClassVar[RightWordTexts] = RightWordTexts(
        name="definitional_gender",
        key="definitional gender",
        units="words",
        equations=(
            "share of sentences whose word that is right by definition is likelier; ties count "
            "half",
            "mean log-probability of the word that is right by definition less that of the other",
        ),
        directions=("larger: more words are right", "larger: right words are likelier"),
        note="always the same word: 50%",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.texts is None and not (self.words and self._all_templates):
            raise LevelheadError(
                "there are no sentences", hint="give words and templates, or your own texts"
            )

    @property
    def _all_templates(self) -> tuple[DefinitionTemplate, ...]:
        return TEMPLATES if self.templates is None else self.templates

    @cached_property
    def items(self) -> tuple[AgreementSentence, ...]:
        """The sentences."""
        if self.texts is not None:
            return self.texts
        return make_definition_sentences(
            self.resolved_lexicon,
            groups=self.groups,
            words=self.words,
            templates=self._all_templates,
        )

    @property
    def data(self) -> Mapping[str, str]:
        """Hash of the lexicon, or of the user's sentences."""
        return self.lexicon_hash if self.texts is None else {"texts": hash_items(self.texts)}
