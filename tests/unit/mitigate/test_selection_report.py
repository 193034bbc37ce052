"""Which candidate is chosen, and why, in words."""

import pytest
from sweeps import estimate_of

from levelhead.mitigate.selection.selection_report import (
    CandidateResult,
    HeldOutResult,
    best_candidate,
    explain_choice,
)


def tried(name, low, why_not=""):
    return CandidateResult(
        name=name,
        kind="mask",
        description="",
        gain=estimate_of("gain", low + 1),
        lower_bound=low,
        exclusion_reason=why_not,
    )


ROWS = (
    tried("a", 1.0),
    tried("b", 3.0, "may cost 9, and the limit is 5"),
    tried("c", 2.0),
    tried("d", 2.0),
    CandidateResult(name="e", kind="mask", description="", exclusion_reason="changes nothing"),
)


def on_test(gains, keeps):
    return HeldOutResult(
        gain=None, loss=None, max_utility_loss=5.0, is_gain_confirmed=gains, is_utility_kept=keeps
    )


def test_the_first_of_the_largest_bounds_that_may_be_chosen():
    assert best_candidate(ROWS) == "c"
    assert best_candidate(ROWS[1:2]) is None
    assert best_candidate(()) is None


CHOSEN = (
    "c has the largest lower bound of the gain on dev, of 3 candidates (of 5 tried) that are shown "
    "to gain within the price; "
)


@pytest.mark.parametrize(
    ("rows", "name", "test", "responses"),
    [
        (ROWS, "c", on_test(True, True), f"{CHOSEN}gain and price are confirmed on test"),
        (
            ROWS,
            "c",
            on_test(False, True),
            f"nothing is recommended: {CHOSEN}the gain is not confirmed on test",
        ),
        (
            ROWS,
            "c",
            on_test(False, False),
            f"nothing is recommended: {CHOSEN}the gain and the price are not confirmed on test",
        ),
        (
            ROWS[1:2],
            None,
            None,
            "nothing is recommended: of 1 candidates 1 are shown to gain on dev, and none of them "
            "within the price",
        ),
        (
            ROWS[4:],
            None,
            None,
            "nothing is recommended: none of 1 candidates is shown to gain on dev",
        ),
    ],
)
def test_why_is_told_in_words(rows, name, test, responses):
    assert explain_choice(rows, name, test) == responses
