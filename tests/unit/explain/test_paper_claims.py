import pytest
from counteracts_answers import answers, side

from levelhead.core.run_context import Inference
from levelhead.explain.prompting.contrasts import compute_change_difference, compute_contrasts
from levelhead.explain.prompting.knowledge import COUNTEREXAMPLE_KINDS
from levelhead.explain.prompting.paper_claims import CLAIMS, check_paper_claims
from levelhead.measures.cloze.margins import estimate_margin

INFERENCE = Inference(resamples=99, permutations=99)
AS_PAPER = {
    "target_syntactic_similar": 1.8,
    "target_semantic_similar": 1.6,
    "target_neutral": -0.5,
    "target_counter_syntactic_similar": 0.2,
    "target_counter_semantic_similar": 0.7,
    "background_counter_syntactic_similar": -0.5,
    "background_counter_semantic_similar": -0.5,
    "target_neutral_background_counter": -0.5,
}


def find_result(planted, *, causal, sign=1):
    subset = answers(lambda single: sign * side(single) * planted.get(single.kind, 1.0))
    made = compute_contrasts(subset, INFERENCE, ks=())
    return check_paper_claims(
        estimate_margin(subset, "base", INFERENCE),
        made,
        syntax=compute_change_difference(subset, *COUNTEREXAMPLE_KINDS, INFERENCE),
        causal=causal,
    )


def test_a_model_of_which_all_holds():
    assert {item.holds for item in find_result(AS_PAPER, causal=False)} == {"yes"}


def test_causal_models_have_a_claim_of_their_own_on_neutral_knowledge():
    subset = {item.claim: item.holds for item in find_result(AS_PAPER, causal=True)}
    assert subset["neutral knowledge leaves causal models alone"] == "no"
    assert "neutral knowledge turns masked models round" not in subset
    assert len(subset) == len(CLAIMS) + 2  # of two claims on neutral knowledge one applies


def test_a_model_that_nothing_changes():
    subset = {item.claim: item.holds for item in find_result({}, causal=False)}
    assert subset["unrelated knowledge leaves the preference"] == "yes"
    assert subset["a counterexample of similar meaning does not overturn"] == "yes"
    assert subset["similar syntax enhances the stereotype"] == "no"
    assert subset["similar syntax counters more than similar meaning"] == "undecided"


def test_without_a_base_preference_hardly_anything_is_decided():
    subset = find_result({}, causal=False, sign=0)
    assert {item.holds for item in subset} == {"undecided"}


@pytest.mark.parametrize("sign", [1, -1])
def test_a_preference_against_the_statistics_is_said_to_be_one(sign):
    first, robust, *others = find_result(AS_PAPER, causal=False, sign=sign)
    assert first.holds == ("yes" if sign == 1 else "no")
    assert robust.holds == "yes"
    # There is no stereotype that knowledge could enhance or turn round.
    assert {other.holds for other in others} == {"yes" if sign == 1 else "undecided"}


def test_a_side_that_is_not_told_is_not_claimed():
    """A margin around 0: neither overturned, nor shown not to be."""
    near = AS_PAPER | {
        "target_counter_semantic_similar": 0.0,
        "background_counter_syntactic_similar": 0.0,
    }
    subset = {item.claim: item for item in find_result(near, causal=False)}
    for claim in (
        "a counterexample of similar meaning does not overturn",
        "a counterexample of another occupation, similar syntax, overturns",
    ):
        assert subset[claim].holds == "undecided"
        assert 0 in subset[claim].estimate.interval
