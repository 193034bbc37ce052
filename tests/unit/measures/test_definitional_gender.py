"""Definitional gender: its sentences, literal shares, and what is not in it."""

import re
from collections import Counter
from dataclasses import replace

import pytest
import zoo
from metric_cases import INFERENCE, WORDS, model

from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.lexicon import Term, lexicon
from levelhead.data.prompts.counteracts import load_counteracts_table
from levelhead.data.prompts.definitional_gender import (
    DEFINED_WORDS,
    DefinitionTemplate,
    make_definition_sentences,
)
from levelhead.data.prompts.pronoun_agreement import PERSON_WORDS
from levelhead.measures.utility.definitional_gender import DefinitionalGender
from levelhead.models.loading.load import load

SENTENCES = DefinitionalGender().items
PEOPLE = replace(
    WORDS,
    terms=(
        *WORDS.terms,
        Term("person", (("female", "nurse"), ("male", "doctor"))),
        Term("person", (("female", "river"), ("male", "house"))),
    ),
)
"""In the words of the tiny models, who have no queen."""
TEMPLATES = (
    DefinitionTemplate("pronoun", "the {word} said that [MASK] was here.", "subject"),
    DefinitionTemplate("noun", "the {word} is a [MASK].", "woman"),
)
TINY = DefinitionalGender(lexicon=PEOPLE, words=("nurse", "river"), templates=TEMPLATES)


def test_sentences_come_in_pairs_in_which_a_constant_answer_is_right_in_half():
    assert Counter(sentence.group for sentence in SENTENCES)["female"] == len(SENTENCES) / 2
    by_word = Counter(sentence.unit for sentence in SENTENCES)
    assert len(by_word) == 2 * len(DEFINED_WORDS)
    assert set(by_word.values()) == {2, 3}
    answers = Counter(sentence.correct_pronoun for sentence in SENTENCES)
    assert answers["she"] == answers["he"]
    assert answers["her"] == answers["his"]
    assert answers["woman"] == answers["man"]
    texts = [sentence.text for sentence in SENTENCES]
    assert "The nun is a woman." in texts
    assert "The king said that he was tired." in texts
    assert len(set(texts)) == len({sentence.id for sentence in SENTENCES}) == len(texts)
    for sentence in SENTENCES:
        assert sentence.wrong_pronoun != sentence.correct_pronoun


def test_a_noun_is_not_asked_where_the_letters_say_it():
    nouns = {sentence.unit for sentence in SENTENCES if sentence.source == "noun"}
    assert {"queen", "monk"} <= nouns
    assert not [word for word in nouns if "man" in word]


def test_no_item_is_one_of_a_measure_of_bias():
    """No stereotype helps: no target, occupation or trait of the lexicons is in a sentence."""
    gender = lexicon("gender-en")
    targets = {word for family in gender.families for side in family.sides for word in side.words}
    targets |= set(load_counteracts_table()["occupations"])
    words = {word for sentence in SENTENCES for word in re.findall(r"\w+", sentence.text.lower())}
    assert words & {word.lower() for word in targets} == set()
    # Nor are they the people of the sentences on pronoun agreement.
    assert words & set(PERSON_WORDS) <= {"woman"}


def test_the_share_is_that_of_the_right_word_masked_and_causal():
    masked = model("definitional_gender")
    causal = load(zoo.folder("llama", "LlamaForCausalLM"))
    margins = {"masked": [], "causal": []}
    for item in TINY.items:
        before, after = item.text[: item.span[0]], item.text[item.span[1] :]
        words = [item.correct_pronoun, item.wrong_pronoun]
        says = masked.fill([f"{before}[MASK]{after}"], words)[0]
        margins["masked"].append(float(says[0] - says[1]))
        says = causal.log_prob([f"{before}{word}{after}" for word in words]).value
        margins["causal"].append(float(says[0] - says[1]))
    for name, lm in (("masked", masked), ("causal", causal)):
        result = TINY(lm, inference=INFERENCE)
        assert result.value == pytest.approx(100 * sum(m > 0 for m in margins[name]) / 8)
        assert (result.n, result.dropped, result.parity, result.p) == (8, (), None, None)
        assert "always the same word: 50%" in result.notes
        parts = ["group: female", "group: male", "source: pronoun", "source: noun"]
        assert [extra.name for extra in result.extras][-4:] == parts
        smooth = replace(TINY, metric="definitional_gender_margin")(lm, inference=INFERENCE)
        assert smooth.value == pytest.approx(sum(margins[name]) / 8, abs=1e-4)
        assert "4 words" in smooth.interval.method


def test_words_with_one_counterpart_are_asked_once():
    gender = lexicon("gender-en")
    both = make_definition_sentences(gender, words=("mom", "mum"))
    assert both == make_definition_sentences(gender, words=("mom",))


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(LevelheadError, match="no pair with 'nurse' for female and male"):
        assert DefinitionalGender(words=("nurse",)).items
    with pytest.raises(LevelheadError, match="there are no sentences"):
        DefinitionalGender(words=())
    unknown = (DefinitionTemplate("pronoun", "{word} [MASK]", "vocative"),)
    with pytest.raises(LevelheadError, match="no pronoun 'vocative' for both groups"):
        assert DefinitionalGender(templates=unknown).items
