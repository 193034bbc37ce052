"""The best that can be done is what the generator itself would do."""

import math
import random

import pytest

from levelhead.calibrate.organisms.language import NOBODY_SHARE, Language
from levelhead.calibrate.skills import _compute_best_accuracy, _compute_next_sentence_odds


def sentences(language, kind, count=2000, seed=5):
    result = (
        sentence
        for document in language.documents(count, seed=seed)
        for sentence in document.sentences
    )
    return [item for item in result if item.kind == kind]


def test_a_word_of_the_pattern_is_certain_and_a_neutral_one_as_likely_as_its_slot_says():
    language = Language(0.5)
    spoken = sentences(language, "elsewhere")[0]
    for place, slot in enumerate(spoken.slots):
        best = _compute_best_accuracy(language, [spoken], 0, place)
        expected = (
            max(language.word_probabilities[slot][0].values())
            if slot in language.word_probabilities
            else 1.0
        )
        assert best == pytest.approx(expected)


def test_a_mark_is_told_by_another_mark_and_else_it_is_a_guess():
    language = Language(0.0)
    pronouns = [sentence for sentence in sentences(language, "next") if "pronoun" in sentence.slots]
    output = next(pronoun for pronoun in pronouns if "own" in pronoun.slots)
    alone = next(pronoun for pronoun in pronouns if "own" not in pronoun.slots)
    assert _compute_best_accuracy(
        language, [output], 0, output.slots.index("pronoun")
    ) == pytest.approx(1)
    assert _compute_best_accuracy(
        language, [alone], 0, alone.slots.index("pronoun")
    ) == pytest.approx(0.5)


def test_a_target_tells_the_group_as_far_as_it_was_planted():
    language = Language(0.5)
    spoken = next(
        sentence
        for sentence in sentences(language, "next")
        if sentence.slots.count("pronoun") == 1 and "own" not in sentence.slots
        and sum(slot in language.targets for slot in sentence.slots) == 1
    )  # fmt: skip
    assert _compute_best_accuracy(
        language, [spoken], 0, spoken.slots.index("pronoun")
    ) == pytest.approx(0.75)


def test_an_article_narrows_the_words_behind_it():
    language = Language(1.0)
    spoken = next(
        sentence
        for sentence in sentences(language, "next")
        if "an" in sentence.words and "pronoun" in sentence.slots
    )
    place = spoken.slots.index("occupation")
    side = language.marks["pronoun"][0].count(spoken.words[0]) == 0
    vowels = [word for word in language.targets["occupation"][side] if word[0] in "aeiou"]
    assert _compute_best_accuracy(language, [spoken], 0, place) == pytest.approx(1 / len(vowels))


def test_odds_of_following_by_counting():
    """Bayes' rule against a simulation: of all pairs, how many with like odds follow?"""
    language = Language(1.0)
    documents = list(language.documents(4000, seed=9))
    chance = random.Random(1)
    bins = {}
    for document in documents:
        follows = chance.random() < 0.5
        first = document.sentences[0]
        second = (document if follows else chance.choice(documents)).sentences[1]
        odds = _compute_next_sentence_odds(language, first, second)
        bins.setdefault(round(odds, 3), []).append(follows)
    assert bins.pop(0.0).count(True) == 0
    for odds, truth in bins.items():
        if len(truth) > 200:
            p = odds / (1 + odds)
            error = math.sqrt(p * (1 - p) / len(truth))
            assert sum(truth) / len(truth) == pytest.approx(p, abs=4 * error)
    assert max(bins) <= max(1 / NOBODY_SHARE, 2 / (1 - NOBODY_SHARE)) + 1e-9
