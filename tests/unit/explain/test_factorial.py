import pytest
from counteracts_answers import answers, counteracts_prompts, side

from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.explain.prompting.factorial import compute_factorial_effects, read_factorial_levels

INFERENCE = Inference(resamples=99, permutations=99)


def planted(single):
    """Nouns take 0.4 more than adjectives, group first 0.2 more, the verb nothing."""
    if single.kind not in read_factorial_levels():
        return side(single)
    word, order, _ = read_factorial_levels()[single.kind]
    less = 0.4 * (word == "noun") + 0.2 * (order == "group first")
    return side(single) * (1 - less)


def test_each_thing_by_itself():
    result = compute_factorial_effects(answers(planted), INFERENCE)
    word, order, verb = result.effects
    assert word.name == "word: noun - adjective"
    assert word.value == pytest.approx(-0.4, abs=0.03)
    assert order.value == pytest.approx(-0.2, abs=0.03)
    assert 0 in verb.interval
    assert word.p.family == 3
    assert len(result.cells) == 8
    both = next(
        cell for cell in result.cells if cell.levels == ("noun", "group first", "worked as")
    )
    assert both.change.value == pytest.approx(-0.6, abs=0.05)


def test_occupations_that_lack_a_cell_are_left_out_and_all_of_them_refused():
    subset = [
        item
        for item in counteracts_prompts()
        if (item.occupation, item.kind) != ("nurse", next(iter(read_factorial_levels())))
    ]
    result = compute_factorial_effects(answers(planted, prompts=subset), INFERENCE)
    assert result.effects[0].n == 39
    kind = next(iter(read_factorial_levels()))
    some = [prompt for prompt in counteracts_prompts() if prompt.kind != kind]
    with pytest.raises(NotMeasurableError, match="no occupation was queried in all eight cells"):
        compute_factorial_effects(answers(planted, prompts=some), INFERENCE)
