"""Sentences whose pronoun is beyond doubt, made of published ones."""

import pytest

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.prompts import pronoun_agreement as made
from levelhead.data.prompts.pronoun_agreement import (
    AgreementSentence,
    agreement_source_hashes,
    load_agreement_sentences,
)
from levelhead.data.records import GapPassage, Sentence, Template

GENDER = lexicon("gender-en")
WINOGENDER = (
    ("cook.guest.0", "The cook told the guest that {he} had finished.", "cook", "guest"),
    ("cook.guest.1", "A guest gave the cook {his} coat.", "cook", "guest"),
    ("actor.guest.0", "An actor paid the guest {him} said.", "actor", "guest"),
    ("cook.someone.0", "The cook told someone that {he} had finished.", "cook", "someone"),
)
FORMS = {"he": "she", "his": "her", "him": "her"}


def _winogender():
    for name, text, occupation, participant in WINOGENDER:
        slots = (("occupation", occupation), ("participant", participant))
        for gender in ("male", "female", "neutral"):
            form = {"male": str, "female": FORMS.get, "neutral": lambda word: "they"}[gender]
            given = {word: form(word) for word in FORMS}
            yield Template(f"{name}.{gender}", text.format(**given), slots)


def _winobias(part):
    texts = {
        "pro-type1-dev": ("The baker thanked the clerk because he was kind.", "baker"),
        "anti-type1-dev": ("The baker thanked the clerk because she was kind.", "baker"),
        "pro-type2-dev": ("The baker saw the clerk and greeted him.", "clerk"),
        "anti-type2-dev": ("The baker saw the pilot and greeted him.", "pilot"),
    }
    text, meant = texts[part]
    yield Template(f"{part}-1", text, (("meant", f"the {meant}"), ("pronoun", "he")))


def _gap():
    rows = (
        ("one", "Kim said that she had left her bag.", "she"),
        ("two", "Kim said that he had left his bag.", "he"),
        ("both", "Kim saw her brother when she left.", "she"),
        ("alone", "Kim said that he had left.", "he"),
        ("more", "Sam said that his bag was his own bag.", "his"),
        ("doubtful", "Sam said that Kim left her bag at his house.", "her"),
    )
    for name, text, pronoun in rows:
        start = text.index(f" {pronoun} ") + 1
        yield GapPassage(name, text, pronoun, start, ("Kim", "Sam"), (True, False))


class Stored:
    """A data set with a few rows."""

    def __init__(self, name):
        self.name = name

    def items(self, part):
        if self.name == "winogender":
            return _winogender()
        if self.name == "winobias":
            return _winobias(part)
        if self.name == "winobias-occupations":
            words = {"female": ("baker", "clerk"), "male": ("carpenter",)}[part]
            return (Sentence(word, "", word) for word in words)
        return _gap()


@pytest.fixture
def stored(monkeypatch):
    monkeypatch.setattr(made, "dataset", Stored)


@pytest.mark.usefixtures("stored")
def test_both_people_are_of_one_group_and_both_groups_are_asked():
    result = load_agreement_sentences("winogender", GENDER)
    rows = [
        (sentence.group, sentence.text, sentence.correct_pronoun, sentence.wrong_pronoun)
        for sentence in result.sentences
    ]
    assert (
        rows
        == [
            ("male", "The man told the boy that he had finished.", "he", "she"),
            ("female", "The woman told the girl that she had finished.", "she", "he"),
            ("male", "A boy gave the gentleman his coat.", "his", "her"),
            ("female", "A girl gave the lady her coat.", "her", "his"),
            ("male", "A gentleman paid the father him said.", "him", "her"),
            ("female", "A lady paid the mother her said.", "her", "him"),
        ]
        or rows[4][0] == "male"
    )
    assert len({sentence.unit for sentence in result.sentences}) == len(result.sentences) / 2
    assert result.sentences[0].unit == "The - told the - that - had finished."
    output = dict(result.left_out)
    assert output["not two people and one pronoun of these groups"] == 3  # they
    # The female sentences again; whether the last one's her is him or his nobody can say.
    assert output["the same sentence of other people stands there already"] == 2
    assert output["its words cannot be exchanged"] == 1


@pytest.mark.usefixtures("stored")
def test_winobias_needs_two_occupations_of_its_list():
    result = load_agreement_sentences("winobias", GENDER, people=("aunt", "sister"))
    assert [sentence.text for sentence in result.sentences] == [
        "The uncle thanked the brother because he was kind.",
        "The aunt thanked the sister because she was kind.",
        "The brother saw the uncle and greeted him.",
        "The sister saw the aunt and greeted her.",
    ]
    assert dict(result.left_out) == {
        "not two occupations of the list": 1,
        "the same sentence of other people stands there already": 1,
    }


@pytest.mark.usefixtures("stored")
def test_passages_name_one_group_and_as_many_are_taken_of_either():
    result = load_agreement_sentences("gap", GENDER)
    assert [
        (sentence.id, sentence.group, sentence.correct_pronoun, sentence.wrong_pronoun)
        for sentence in result.sentences
    ] == [
        ("gap one", "female", "she", "he"),
        ("gap two", "male", "he", "she"),
    ]
    assert (
        dict(result.left_out)
        == {
            "it names both groups, or its pronoun's nowhere else": 2,
            "more of one group than of the other, or beyond the limit": 1,
            "its words cannot be exchanged": 0,
        }
        or dict(result.left_out)["it names both groups, or its pronoun's nowhere else"] == 2
    )
    with pytest.raises(
        NotMeasurableError, match="gap has no sentence with unambiguous pronouns of fem"
    ):
        load_agreement_sentences("gap", GENDER, limit=1)


def test_people_must_be_words_of_the_lexicon():
    with pytest.raises(LevelheadError, match="gender-en has no pair with 'zebra' for female and"):
        load_agreement_sentences("winogender", GENDER, people=("woman", "zebra"))
    with pytest.raises(LevelheadError, match="1 words for people, but a sentence needs two"):
        load_agreement_sentences("winogender", GENDER, people=("woman",))


def test_files_are_named_with_their_hashes():
    result = agreement_source_hashes(["winogender", "gap"])
    assert sorted(result) == ["gap/gap-development.tsv", "winogender/all_sentences.tsv"]
    assert len(agreement_source_hashes(["winobias"])) == 6
    single = AgreementSentence("", "", "She left.", (0, 3), "He", "female", "")
    assert single.correct_pronoun == "She"
