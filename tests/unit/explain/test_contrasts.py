import pytest
from counteracts_answers import answers, counteracts_prompts, side

from levelhead.core.results import Estimate, Interval, PValue
from levelhead.core.run_context import Inference
from levelhead.explain.prompting.contrasts import (
    EXPECTED_VERDICTS,
    compute_change_difference,
    compute_contrasts,
    decide_verdict,
    matches_paper_direction,
)
from levelhead.measures.cloze.margins import estimate_margin

INFERENCE = Inference(resamples=99, permutations=99)
PLANTED = {
    "base": 1.0,
    "target_syntactic_similar": 1.8,
    "target_semantic_similar": 1.05,
    "target_neutral": 0.5,
    "target_counter_syntactic_similar": -0.9,
    "target_counter_semantic_similar": 0.6,
    "background_counter_syntactic_similar": -0.4,
    "background_counter_semantic_similar": 0.98,
    "target_neutral_background_counter": 1.0,
    "unrelated": 1.02,
}


@pytest.fixture(scope="module")
def result():
    subset = answers(lambda single: 0.7 + side(single) * PLANTED.get(single.kind, 1.0))
    return subset, {
        contrast.kind: contrast for contrast in compute_contrasts(subset, INFERENCE, ks=())
    }


def test_every_kind_of_the_paper_is_a_contrast(result):
    assert set(result[1]) == set(EXPECTED_VERDICTS)
    assert {item.kind for item in counteracts_prompts()} - {"base"} >= set(EXPECTED_VERDICTS)


def test_the_base_is_half_the_difference_between_the_sides(result):
    base = estimate_margin(result[0], "base", INFERENCE)
    assert base.value == pytest.approx(1.0, abs=0.03)
    assert base.interval.low > 0.9


@pytest.mark.parametrize("kind", list(EXPECTED_VERDICTS))
def test_changes_are_those_planted_and_a_preference_everywhere_is_none(result, kind):
    single = result[1][kind]
    assert single.change.value == pytest.approx(PLANTED[kind] - 1.0, abs=0.05)
    assert single.margin.value == pytest.approx(PLANTED[kind], abs=0.05)
    assert single.shift.value == pytest.approx(0, abs=0.05)
    assert single.change.p.family == 9
    assert single.change.p.adjusted >= single.change.p.value


def test_verdicts(result):
    responses = {kind: single.verdict for kind, single in result[1].items()}
    assert responses == {
        "target_syntactic_similar": "enhanced",
        "target_semantic_similar": "unchanged",  # by 5% of the base: shown to be small
        "target_neutral": "mitigated",
        "target_counter_syntactic_similar": "overturned",
        "target_counter_semantic_similar": "mitigated",
        "background_counter_syntactic_similar": "overturned",
        "background_counter_semantic_similar": "unchanged",
        "target_neutral_background_counter": "unchanged",
        "unrelated": "unchanged",
    }
    assert result[1]["unrelated"].matches_paper == "yes"
    assert result[1]["target_semantic_similar"].matches_paper == "no"


def test_occupations_flip_where_the_preferred_group_changes(result):
    # The base prefers women by 1.7 where they dominate, men by 0.3 where those do.
    # Overturned: 0.7 -/+ 0.9, so both turn.
    assert result[1]["target_counter_syntactic_similar"].share_flipped.value == 1.0
    assert result[1]["unrelated"].share_flipped.value == 0.0
    # Mitigated to 0.6: 1.3 and 0.1: the men's turn.
    assert result[1]["target_counter_semantic_similar"].share_flipped.value == pytest.approx(
        0.5, abs=0.1
    )


def test_a_shift_for_one_group_everywhere_is_no_change_between_occupations():
    subset = answers(lambda single: side(single) + (single.kind == "unrelated"))
    (unrelated,) = (
        contrast
        for contrast in compute_contrasts(subset, INFERENCE, ks=())
        if contrast.kind == "unrelated"
    )
    assert unrelated.shift.value == pytest.approx(1, abs=0.05)
    assert unrelated.verdict == "unchanged"


def test_the_paper_s_numbers_and_equation_1():
    subset = answers(lambda single: side(single) * PLANTED.get(single.kind, 1.0), noise=0.02)
    (single,) = (
        contrast
        for contrast in compute_contrasts(subset, INFERENCE, ks=(3,))
        if contrast.kind == "target_syntactic_similar"
    )
    top = next(top for top in single.top_k if top.k == 3)
    # Both words are always among the likeliest; P(first) + P(second) = 0.5, evenly over sides.
    assert top.first.value == pytest.approx(0.25, abs=0.01)
    assert top.words == 2 * 40
    assert top.ratio.value > 0 > top.other_ratio.value  # they would cancel in one mean
    assert top.margin.value > 0.2


def test_two_kinds_are_compared_occupation_by_occupation(result):
    subset = compute_change_difference(
        result[0], "target_counter_syntactic_similar", "target_counter_semantic_similar", INFERENCE
    )
    assert subset.value == pytest.approx(-1.5, abs=0.05)
    assert compute_change_difference(result[0], "target_neutral", "none such", INFERENCE) is None


def estimate(value, low, high, p=None):
    return Estimate(
        name="",
        value=value,
        interval=Interval(low=low, high=high, level=0.95, method="made up"),
        p=None if p is None else PValue(value=p, method="", alternative="two-sided"),
        n=40,
    )


@pytest.mark.parametrize(
    ("base", "margin", "change", "same", "verdict"),
    [
        ((0.1, -0.1, 0.3), (1, 0.5, 1.5), (0.9, 0.4, 1.4, 0.001), False, "no base preference"),
        ((1, 0.5, 1.5), (1.1, 0.6, 1.6), (0.1, -0.1, 0.3, 0.5), False, "undecided"),
        ((1, 0.5, 1.5), (1.1, 0.6, 1.6), (0.1, 0.05, 0.15, 0.001), True, "unchanged"),
        ((-1, -1.5, -0.5), (-2, -3, -1.5), (-1, -1.5, -0.5, 0.001), False, "enhanced"),
        ((-1, -1.5, -0.5), (0.2, -0.1, 0.5), (1.2, 1, 1.4, 0.001), False, "mitigated"),
        ((-1, -1.5, -0.5), (0.5, 0.1, 0.9), (1.5, 1, 2, 0.001), False, "overturned"),
    ],
)
def test_what_is_said_of_a_contrast(base, margin, change, same, verdict):
    assert (
        decide_verdict(estimate(*base), estimate(*margin), estimate(*change), is_unchanged=same)
        == verdict
    )


def test_what_is_not_decided_neither_holds_nor_fails():
    base = estimate(1, 0.5, 1.5)
    assert matches_paper_direction("undecided", ("enhanced",), base) == "undecided"
    assert matches_paper_direction("no base preference", ("unchanged",), base) == "undecided"
    assert matches_paper_direction("overturned", ("mitigated", "overturned"), base) == "yes"
    assert matches_paper_direction("unchanged", ("enhanced",), base) == "no"
    assert matches_paper_direction("enhanced", (), base) == "undecided"  # a kind of your own
    # Of a preference against the statistics the paper expects nothing.
    assert (
        matches_paper_direction("enhanced", ("enhanced",), estimate(-1, -1.5, -0.5)) == "undecided"
    )


def test_kinds_of_one_s_own_are_contrasts_too():
    subset = [item._replace(kind="mine", id=f"{item.id}/mine") if item.kind == "unrelated" else item
           for item in counteracts_prompts()]  # fmt: skip
    result = answers(
        lambda single: side(single) * (0.5 if single.kind == "mine" else 1.0), prompts=subset
    )
    (mine,) = (
        contrast
        for contrast in compute_contrasts(result, INFERENCE, ks=())
        if contrast.kind == "mine"
    )
    assert mine.verdict == "mitigated"
    assert mine.matches_paper == "undecided"
