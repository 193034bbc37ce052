"""Which candidate is chosen, and why, in words."""

import pytest
from sweeps import found

from levelhead.mitigate.selection.selection_report import OnTest, Tried, largest, why_this


def tried(name, low, why_not=""):
    return Tried(
        name=name, kind="mask", about="", gain=found("gain", low + 1), low=low, why_not=why_not
    )


ROWS = (
    tried("a", 1.0),
    tried("b", 3.0, "may cost 9, and 5 may be paid"),
    tried("c", 2.0),
    tried("d", 2.0),
    Tried(name="e", kind="mask", about="", why_not="changes nothing"),
)


def on_test(gains, keeps):
    return OnTest(gain=None, loss=None, most=5.0, gains=gains, keeps=keeps)


def test_the_first_of_the_largest_bounds_that_may_be_chosen():
    assert largest(ROWS) == "c"
    assert largest(ROWS[1:2]) is None
    assert largest(()) is None


CHOSEN = (
    "c has the largest lower bound of the gain on dev, of 3 candidates (of 5 tried) that are shown "
    "to gain within the price; "
)


@pytest.mark.parametrize(
    ("rows", "name", "test", "said"),
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
def test_why_is_told_in_words(rows, name, test, said):
    assert why_this(rows, name, test) == said
