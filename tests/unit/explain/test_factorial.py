import pytest
from counteracts_answers import answers, asked, side

from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.explain.prompting.factorial import compute_factorial_effects, read_factorial_levels

INFERENCE = Inference(resamples=99, permutations=99)


def planted(one):
    """Nouns take 0.4 more than adjectives, group first 0.2 more, the verb nothing."""
    if one.kind not in read_factorial_levels():
        return side(one)
    word, order, _ = read_factorial_levels()[one.kind]
    less = 0.4 * (word == "noun") + 0.2 * (order == "group first")
    return side(one) * (1 - less)


def test_each_thing_by_itself():
    found = compute_factorial_effects(answers(planted), INFERENCE)
    word, order, verb = found.effects
    assert word.name == "word: noun - adjective"
    assert word.value == pytest.approx(-0.4, abs=0.03)
    assert order.value == pytest.approx(-0.2, abs=0.03)
    assert 0 in verb.interval
    assert word.p.family == 3
    assert len(found.cells) == 8
    both = next(one for one in found.cells if one.levels == ("noun", "group first", "worked as"))
    assert both.change.value == pytest.approx(-0.6, abs=0.05)


def test_occupations_that_lack_a_cell_are_left_out_and_all_of_them_refused():
    own = [
        one
        for one in asked()
        if (one.occupation, one.kind) != ("nurse", next(iter(read_factorial_levels())))
    ]
    found = compute_factorial_effects(answers(planted, prompts=own), INFERENCE)
    assert found.effects[0].n == 39
    some = [one for one in asked() if one.kind != next(iter(read_factorial_levels()))]
    with pytest.raises(NotMeasurableError, match="no occupation was queried in all eight cells"):
        compute_factorial_effects(answers(planted, prompts=some), INFERENCE)
