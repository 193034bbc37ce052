"""Sentences about words that name a group by definition, such as a queen or a monk.

A pronoun or a noun after the word is right by its meaning and not by a stereotype. The people of
the sentences on pronoun agreement are left out, so that the two sets share no word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.data.prompts.pronoun_agreement import AgreementSentence
from levelhead.data.tokenize import fold_case

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon

DefinitionKind = Literal["pronoun", "noun"]
DEFINED_WORDS = (
    *("mom", "mama", "bride", "fiancee", "girlfriend", "widow", "grandmother", "grandma"),
    *("granddaughter", "niece", "stepmother", "stepdaughter", "stepsister", "godmother"),
    *("goddaughter", "matriarch", "bridesmaid", "lass", "schoolgirl", "waitress"),
    *("stewardess", "policewoman", "businesswoman", "chairwoman", "congresswoman"),
    *("spokeswoman", "saleswoman", "sportswoman", "horsewoman", "councilwoman", "servicewoman"),
    *("mailwoman", "anchorwoman", "camerawoman", "cowgirl", "headmistress"),
    *("schoolmistress", "landlady", "sorceress", "witch", "enchantress", "priestess", "nun"),
    *("abbess", "queen", "princess", "empress", "duchess", "baroness", "marchioness"),
    *("noblewoman", "alumna", "masseuse"),
)
"""Words of the first group that denote one person; the lexicon gives their counterparts."""
BLANK = "[MASK]"


class DefinitionTemplate(NamedTuple):
    """A sentence about a person, with a blank that a word of the person's group fills."""

    kind: DefinitionKind
    text: str
    """Sentence with {word} and one `[MASK]`."""
    answer: str
    """Role of the pronoun in the lexicon, or the first group's noun."""


TEMPLATES = (
    DefinitionTemplate("pronoun", "The {word} said that [MASK] was tired.", "subject"),
    DefinitionTemplate("pronoun", "The {word} lost [MASK] keys.", "possessive determiner"),
    DefinitionTemplate("noun", "The {word} is a [MASK].", "woman"),
)
"""Two pronouns, and recognition of the group. No occupation, trait or activity of stereotypes."""


def make_definition_sentences(
    lexicon: Lexicon,
    *,
    groups: Sequence[str] | None = None,
    words: Sequence[str] = DEFINED_WORDS,
    templates: Sequence[DefinitionTemplate] = TEMPLATES,
) -> tuple[AgreementSentence, ...]:
    """Make a sentence of every template about every word and about its counterpart.

    Args:
        lexicon: lexicon with the words and the pronouns.
        groups: the two groups; by default the first two of the lexicon.
        words: words of the first group.
        templates: the sentences.
    """
    first, second = lexicon.resolve_group_pair(groups)
    # Reversed, so that the first row of a word in the lexicon decides.
    counterparts = {
        fold_case(word): (word, other) for word, other in reversed(lexicon.pairs(first, second))
    }
    missing = [word for word in words if fold_case(word) not in counterparts]
    if missing:
        raise LevelheadError(
            f"{lexicon.name} has no pair with {missing[0]!r} for {first} and {second}",
            hint="give words of the first group that the lexicon pairs",
        )
    pairs = _unshared([counterparts[fold_case(word)] for word in words])
    return tuple(
        sentence
        for number, template in enumerate(templates)
        for answers in (_answers(lexicon, (first, second), template, counterparts),)
        for pair in pairs
        for sentence in _fill_template(template, number, pair, answers, (first, second))
    )


def _unshared(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs none of whose words is in an earlier pair."""
    used_words: set[str] = set()
    unshared = []
    for pair in pairs:
        # Dad is the counterpart of mom and of mum: with both, a constant answer would not be 50%.
        if used_words.isdisjoint(pair):
            unshared.append(pair)
            used_words.update(pair)
    return unshared


def _answers(
    lexicon: Lexicon,
    groups: tuple[str, str],
    template: DefinitionTemplate,
    counterparts: dict[str, tuple[str, str]],
) -> tuple[str, str]:
    """Return the words of both groups that fill the blank of a template."""
    if template.kind == "noun":
        answers = counterparts.get(fold_case(template.answer))
    else:
        answers = next(
            (
                (str(term.word(groups[0])), str(term.word(groups[1])))
                for term in lexicon.terms
                if term.role == template.answer and all(map(term.word, groups))
            ),
            None,
        )
    if answers is None:
        raise LevelheadError(
            f"{lexicon.name} has no {template.kind} {template.answer!r} for both groups",
            hint="give other templates, or a lexicon with these words",
        )
    return answers


def _fill_template(
    template: DefinitionTemplate,
    number: int,
    pair: tuple[str, str],
    answers: tuple[str, str],
    groups: tuple[str, str],
) -> Iterator[AgreementSentence]:
    # "The policewoman is a woman" is read off the letters, and shows no knowledge.
    if template.kind == "noun" and any(
        answer in word for word, answer in zip(pair, answers, strict=True)
    ):
        return
    for side, (word, group) in enumerate(zip(pair, groups, strict=True)):
        before, _, after = template.text.format(word=word).partition(BLANK)
        yield AgreementSentence(
            id=f"{word} {number}",
            source=template.kind,
            text=f"{before}{answers[side]}{after}",
            span=(len(before), len(before) + len(answers[side])),
            wrong_pronoun=answers[1 - side],
            group=group,
            # By word: whether a model knows what a queen is says little about a king.
            unit=word,
        )
