import itertools

import pytest
from metric_cases import INFERENCE, THINGS, made, model

from levelhead.core.errors import LevelheadError
from levelhead.locate.validation.greedy import GreedySelection, select_heads_greedily
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site

HEADS = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]
ROWS = itertools.islice(itertools.permutations(THINGS, 3), 0, 720, 36)
TEXTS = tuple(f"the {a} said that {b} was {c}." for a, b, c in ROWS)
LM, RULER = model("pppl"), made("pppl", texts=TEXTS)
FOUND = RULER.read(LM)[0]


def drop(*sites):
    """By how much the measure falls if these heads are masked, asked anew."""
    masked = RULER.read(LM.edited(HeadScale(sites, 0)))[0]
    return float(RULER.reduce(FOUND)) - float(RULER.reduce(masked))


def test_each_head_is_the_best_beside_those_before_it():
    heads_greedily = select_heads_greedily(
        LM, RULER, FOUND, HEADS, max_heads=2, inference=INFERENCE
    )
    singles = {site: drop(site) for site in HEADS}
    first = max(singles, key=singles.get)
    pairs = {site: drop(first, site) for site in HEADS if site != first}
    second = max(pairs, key=pairs.get)
    assert heads_greedily.sites == (first, second)
    gains = [singles[first], pairs[second] - singles[first]]
    assert [step.gain.value for step in heads_greedily.steps] == pytest.approx(gains, rel=1e-4)
    assert heads_greedily.stop_reason == "2 heads"
    assert all(
        step.gain.p.adjusted <= 0.05 and step.gain.n == len(TEXTS) for step in heads_greedily.steps
    )
    assert heads_greedily.steps[0].head == f"{first.layer + 1}-{first.head + 1}"
    assert heads_greedily.steps[0].gain.p.family == 12
    assert heads_greedily.steps[1].gain.p.family == 11
    assert GreedySelection.from_json(heads_greedily.to_json()).sites == heads_greedily.sites


def test_it_ends_where_nothing_is_gained():
    """Heads that only raise the measure if they are masked: none is chosen."""
    harmful = [site for site in HEADS if drop(site) < 0]
    heads_greedily = select_heads_greedily(
        LM, RULER, FOUND, harmful[:2], max_heads=2, inference=INFERENCE
    )
    assert heads_greedily.steps == ()
    assert heads_greedily.stop_reason == "no further head's gain differs from 0 after correction"


def test_the_sign_says_which_way_it_shall_fall():
    harmful = max(HEADS, key=lambda site: -drop(site))
    (step,) = select_heads_greedily(
        LM, RULER, FOUND, [harmful], max_heads=1, sign=-1, inference=INFERENCE
    ).steps
    assert step.gain.value == pytest.approx(-drop(harmful), rel=1e-4)


def test_it_ends_where_no_candidate_is_left():
    best = max(HEADS, key=drop)
    heads_greedily = select_heads_greedily(
        LM, RULER, FOUND, [best, best], max_heads=3, inference=INFERENCE
    )
    assert heads_greedily.sites == (best,)
    assert heads_greedily.stop_reason == "no candidate is left"


@pytest.mark.parametrize(("candidates", "k"), [((), 1), (HEADS, 0)])
def test_nothing_to_choose_is_refused(candidates, k):
    with pytest.raises(LevelheadError, match="no head can be chosen"):
        select_heads_greedily(LM, RULER, FOUND, candidates, max_heads=k)
