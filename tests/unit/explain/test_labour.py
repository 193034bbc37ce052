import math

import pytest
from told import SHARES, answers

from levelhead.core.errors import NotMeasurable
from levelhead.data.prompts import Prompt
from levelhead.explain.labour import labour
from levelhead.measure.aspects import Judge

JUDGE = Judge(draws=99, permutations=99)


def odds(one):
    share = SHARES[one.occupation]
    return math.log(share / (1 - share))


@pytest.mark.parametrize(
    ("slope", "verdict"),
    [(1.0, "tracks"), (1.6, "exaggerates"), (0.3, "understates"), (0.0, "not related")],
)
def test_the_slope_on_shares_is_found(slope, verdict):
    found = labour(answers(lambda one: 0.5 + slope * odds(one), noise=0.1), JUDGE)
    assert found.slope.value == pytest.approx(slope, abs=0.08)
    assert found.at_half.value == pytest.approx(0.5, abs=0.08)
    assert found.verdict == verdict
    assert found.slope.parity == 1.0
    assert (found.correlation.value > 0.9) == (slope > 0)


def test_occupations_without_a_share_are_refused():
    own = [
        Prompt(f"{name}/base", name, group, "base", "", "", "")
        for name, group in (("juggler", "female"), ("seer", "female"), ("bard", "male"),
                            ("monk", "male"))
    ]  # fmt: skip
    with pytest.raises(NotMeasurable, match="the share of female in 'juggler' is not known"):
        labour(answers(lambda one: 0.0, prompts=own), JUDGE)
