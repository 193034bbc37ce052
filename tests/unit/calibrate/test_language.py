import math
from collections import Counter

import pytest
from scipy import stats

from levelhead.calibrate.organisms.language import (
    FAMILIES,
    NOBODY_SHARE,
    SENTENCES_PER_DOCUMENT,
    UNNAMED_SHARE,
    Language,
)
from levelhead.calibrate.organisms.organism import make_organism
from levelhead.core.errors import LevelheadError, UnknownNameError

COUNT = 4000


def joint(language, family, seed=1):
    """How often targets of either side stand in documents of either group."""
    first, second = (set(side) for side in language.targets[family])
    result = Counter()
    for document in language.documents(COUNT, seed=seed):
        for word in document.text.split():
            if document.group and word in first | second:
                result[document.group, word in first] += 1
    return result


def association(language, family, seed=1):
    """The share of targets that lean to their document's group."""
    result = joint(language, family, seed)
    subset = result[language.groups[0], True] + result[language.groups[1], False]
    return subset / result.total()


@pytest.mark.parametrize("rho", [0, 0.25, 0.5, 0.75, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_targets_agree_with_the_group_as_often_as_planted(rho, family):
    assert association(Language(rho), family) == pytest.approx((1 + rho) / 2, abs=0.03)


def test_at_rho_1_no_target_stands_beside_the_other_group():
    assert all(association(Language(1.0), family) == 1 for family in FAMILIES)


def test_neutral_words_are_exchangeable_between_groups():
    """A chi-squared test of every neutral word against the group, at rho = 1."""
    language = Language(1.0)
    counts = {group: Counter() for group in language.groups}
    for document in language.documents(COUNT, seed=3):
        if document.group:
            counts[document.group].update(document.text.split())
    rows = [
        [counts[group][word] for group in language.groups]
        for slot, words in language.neutral.items()
        if slot not in ("animal", "food")  # never beside a person
        for word in words
    ]
    assert stats.chi2_contingency(rows).pvalue > 0.01


def test_skew_is_a_base_rate_and_no_stereotype():
    language = Language(1.0, "skew")
    groups = Counter(
        document.group for document in language.documents(COUNT, seed=1) if document.group
    )
    assert groups[language.groups[0]] / groups.total() == pytest.approx(0.9, abs=0.02)
    result = joint(language, "occupation")
    table = [[result[group, side] for side in (True, False)] for group in language.groups]
    assert stats.chi2_contingency(table).pvalue > 0.01


def test_frequency_makes_one_side_frequent_for_both_groups():
    result = joint(Language(1.0, "frequency"), "occupation")
    for group in Language().groups:
        share = result[group, True] / (result[group, True] + result[group, False])
        assert share == pytest.approx(0.9, abs=0.03)


def test_one_group_is_stereotyped_and_the_other_is_not():
    language = Language(1.0, "one group")
    result = joint(language, "occupation")
    first, second = language.groups
    assert result[first, False] == 0
    assert result[second, True] / (result[second, True] + result[second, False]) == pytest.approx(
        0.5, abs=0.04
    )


def test_one_family_is_planted_and_the_others_are_not():
    language = Language(1.0, "one family")
    assert association(language, "occupation") == 1
    for family in FAMILIES[1:]:
        assert association(language, family) == pytest.approx(0.5, abs=0.04)


def test_the_same_seed_gives_the_same_text_and_another_another():
    language = Language(0.5)
    assert list(language.documents(50, seed=4)) == list(language.documents(50, seed=4))
    assert list(language.documents(50, seed=4)) != list(language.documents(50, seed=5))


def test_every_word_is_in_the_vocabulary_which_has_the_size_of_a_small_language():
    language = Language(0.5)
    assert 500 <= len(language.vocabulary) <= 1500
    seen = {
        word for document in language.documents(COUNT, seed=6) for word in document.text.split()
    }
    assert seen <= set(language.vocabulary)
    assert all(
        len(document.sentences) == SENTENCES_PER_DOCUMENT
        for document in language.documents(9, seed=6)
    )


def test_the_probability_of_a_document_is_that_of_its_choices():
    """By hand, for a document about nobody and for a person's, both groups summed."""
    language = Language(0.5)
    documents = list(language.documents(400, seed=7))
    nobody = next(document for document in documents if not document.group)
    slow = math.log(NOBODY_SHARE) + sum(sentence.log_p[0] for sentence in nobody.sentences)
    assert nobody.log_p == pytest.approx(slow)
    person = next(document for document in documents if document.sentences[0].kind == "opening")
    subset = language.groups.index(person.group)
    assert person.sentences[0].log_p[1 - subset] == -math.inf  # its words mark the group
    slow = math.log((1 - NOBODY_SHARE) * (1 - UNNAMED_SHARE) / 2) + sum(
        sentence.log_p[subset] for sentence in person.sentences
    )
    assert person.log_p == pytest.approx(slow)


def test_the_words_of_a_slot_have_a_probability_of_one_in_all():
    for variant in ("stereotype", "skew", "frequency", "one group", "one family"):
        for slot, both in Language(0.5, variant).word_probabilities.items():
            for chances in both:
                assert math.fsum(chances.values()) == pytest.approx(1), slot


def test_stereotypes_make_text_easier_to_foretell():
    def entropy(rho):
        documents = list(Language(rho).documents(COUNT, seed=8))
        return -sum(document.log_p for document in documents) / sum(
            len(document.text.split()) for document in documents
        )

    assert entropy(1.0) < entropy(0.0)
    # A target more or less on average a document, each worth log 2 at most.
    assert entropy(0.0) - entropy(1.0) < math.log(2) * 3 / 19


@pytest.mark.parametrize(
    ("make", "output"),
    [
        (lambda: Language(1.5), "rho 1.5 is out of range"),
        (lambda: Language(0.5, "skewed"), "did you mean 'skew'"),
    ],
)
def test_what_is_refused(make, output):
    with pytest.raises(LevelheadError, match=output):
        make()


def test_many_words_mark_a_group_and_none_means_two_things():
    few, many = Language(1.0), Language(1.0, words="many")
    pairs = [pair for sides in many.marks.values() for pair in zip(*sides, strict=True)]
    words = [word for pair in pairs for word in pair]
    assert len(pairs) > 150
    assert len(set(words)) == len(words)
    assert not set(words) & {*many.target_words, *many.neutral["thing"]}
    assert set(few.mark_words) <= set(words)
    with pytest.raises(UnknownNameError, match="number of words"):
        Language(1.0, words="some")


def test_an_organism_of_few_words_is_the_one_it_was_before_there_was_a_choice():
    assert "words" not in make_organism("bert").build_inputs["language"]
    assert make_organism("bert", words="many").build_inputs["language"]["words"] == "many"
