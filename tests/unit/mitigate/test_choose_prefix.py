"""The choice and the report, on the real model that has a margin: see tests/real/test_knowledge.py.

Here what is decided of numbers.
"""

import pytest
import torch
from counteracts_answers import answers, side

from levelhead.core.results import Estimate, Interval
from levelhead.core.run_context import Inference
from levelhead.mitigate.prompting.choose_prefix import (
    PrefixCandidate,
    _best_candidate,
    _gain,
    _gain_over_unrelated,
    _reason_against,
    neutral_sentences,
)
from levelhead.mitigate.prompting.prefixes import PromptPrefix

INFERENCE = Inference(resamples=99, permutations=99)


def estimate(value, low, high):
    ends = Interval(low=low, high=high, level=0.95, method="made up")
    return Estimate(name="", value=value, interval=ends, n=20)


def candidate(name, margin, damage, viable):
    subset = estimate(margin, margin - 1, margin + 1)
    return PrefixCandidate(name=name, text="", margin=subset, loss=damage, is_viable=viable)


def test_the_nearest_to_parity_that_is_cheap_enough_is_chosen():
    rows = [
        candidate("far", 0.9, 0.0, True),
        candidate("beyond", -0.2, 0.05, True),
        candidate("near", 0.1, 0.5, False),
    ]
    assert _best_candidate(rows).name == "beyond"
    assert (
        _best_candidate([rows[2], candidate("dear", 0.0, 0.9, False)]).name == "near"
    )  # the cheapest


@pytest.mark.parametrize(("left", "gain"), [(0.4, 0.6), (-0.4, 0.6), (-1.5, -0.5)])
def test_a_gain_is_towards_parity_whichever_side_it_ends_on(left, gain):
    subset = answers(lambda single: side(single) * (1.0 if single.kind == "base" else left))
    result = _gain(subset, PromptPrefix("unrelated", "", 1), INFERENCE, "gain")
    assert result.value == pytest.approx(gain, abs=0.05)


@pytest.mark.parametrize(
    ("base", "gain", "net", "viable", "why"),
    [
        ((1, 0.5, 1.5), (0.5, 0.1, 0.9), 0.2, True, ""),
        ((1, 0.5, 1.5), (0.5, 0.1, 0.9), 0.2, False, "every candidate takes more than 0.1"),
        ((0.2, -0.1, 0.5), (0.1, 0.01, 0.2), 0.2, True, "nothing to gain"),
        ((1, 0.5, 1.5), (0.3, -0.1, 0.7), 0.2, True, "holds no effect"),
        ((1, 0.5, 1.5), (-0.3, -0.6, -0.1), 0.2, True, "holds no effect"),
        ((1, 0.5, 1.5), (0.5, 0.1, 0.9), 0.05, True, "by as many unrelated sentences"),
    ],
)
def test_what_is_not_told_from_no_effect_is_not_recommended(base, gain, net, viable, why):
    subset = candidate("one", 0.1, 0.0, viable)
    beyond = estimate(net, net - 0.1, net + 0.1)
    result = _reason_against(estimate(*base), estimate(*gain), beyond, subset, 0.1)
    assert (why in result) if why else not result


def test_what_unrelated_sentences_do_is_taken_off_the_gain():
    left = {"base": 1.0, "unrelated": 0.7, "target_neutral": 0.2}
    subset = answers(lambda single: side(single) * left.get(single.kind, 1.0))
    result = _gain_over_unrelated(
        subset, PromptPrefix("target_neutral", "", 1), PromptPrefix("unrelated", "", 1), INFERENCE
    )
    assert result.value == pytest.approx(0.5, abs=0.05)


def test_plain_sentences_speak_of_no_person():
    from levelhead.data.lexicons.published import resolve_lexicon
    from levelhead.data.tokenize import tokenize_words

    words = {
        word.lower()
        for term in resolve_lexicon("gender-en").terms
        for group in ("female", "male")
        if (word := term.word(group))
    }
    responses = {
        token.text.lower() for sentence in neutral_sentences() for token in tokenize_words(sentence)
    }
    assert len(neutral_sentences()) == 24
    assert not words & responses
    assert torch.tensor([len(sentence.split()) for sentence in neutral_sentences()]).min() >= 6
