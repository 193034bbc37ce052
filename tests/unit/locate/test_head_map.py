import numpy as np
import pytest
from metric_cases import INFERENCE, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Estimate, Interval, PValue
from levelhead.locate.head_map import (
    BiasSign,
    ComponentScore,
    HeadMap,
    SplitReport,
    UndeterminedSignError,
    component_site,
)
from levelhead.models.sites import Site

SCORES = ((0.5, -0.2, 0.5), (0.0, 0.9, -0.7))
"""Two layers of three heads; 1-1 and 1-3 tie."""
MEASUREMENT = made("crows_margin")(model("crows_margin"), inference=INFERENCE)
HALF = Estimate(
    name="find half",
    value=0.4,
    interval=Interval(low=0.1, high=0.7, level=0.95, method="by hand"),
    n=10,
)


def judged(adjusted, effect):
    p = PValue(
        value=0.001,
        method="by hand",
        alternative="two-sided",
        adjusted=adjusted,
        correction="romano-wolf",
        family=6,
    )
    return {"p": p, "effect": effect}


def mapped(sign=1, by="words", scores=SCORES, output=None, others=()):
    heads = [
        ComponentScore(
            component="heads", layer=i, head=j, score=score, **(output or {}).get((i, j), {})
        )
        for i, row in enumerate(scores)
        for j, score in enumerate(row)
    ]
    return HeadMap(
        method="gradient",
        ablation="zero",
        layers=len(scores),
        heads_per_layer=len(scores[0]),
        measure="crows_margin",
        bias_sign=BiasSign(sign=sign, reason="0.4 [-0.1, 0.7] on the find half"),
        split=SplitReport(split_by=by, seed=0, claim="by hand", discovery=HALF, confirmation=HALF),
        scores=(*heads, *others),
        measurement=MEASUREMENT,
        provenance=MEASUREMENT.provenance,
    )


def labels(sites):
    return [f"{site.layer + 1}-{site.head + 1}" for site in sites]


def test_heads_are_ranked_and_ties_broken_by_layer_and_head():
    subset = mapped()
    assert [head.label for head in subset.ranked_heads] == [
        "2-2",
        "1-1",
        "1-3",
        "2-1",
        "1-2",
        "2-3",
    ]
    assert labels(subset.top(2)) == ["2-2", "1-1"]
    assert labels(subset.positive_heads()) == ["2-2", "1-1", "1-3"]
    assert labels(subset.negative_heads()) == ["2-3", "1-2"]
    assert labels(subset.bottom(1)) == ["2-3"]
    assert subset.top(1) == (Site("head_out", 1, 1),)


@pytest.mark.parametrize(
    ("ask", "wanted", "there"),
    [("top", 4, "3 have a positive"), ("bottom", 3, "2 have a negative"), ("top", 0, "3 have")],
)
def test_more_heads_than_there_are_of_that_sign_are_refused(ask, wanted, there):
    with pytest.raises(LevelheadError, match=f"{wanted} heads are wanted; {there}") as error:
        getattr(mapped(), ask)(wanted)
    assert "from 1 to" in error.value.hint


def test_where_no_head_is_positive_none_is_to_be_had():
    with pytest.raises(LevelheadError, match="1 heads are wanted; 0 have a positive score"):
        mapped(scores=((-1.0, -2.0),)).top(1)


@pytest.mark.parametrize(
    "ask", ["positive_heads", "negative_heads", "confirmed_heads", "top", "bottom"]
)
def test_without_a_sign_no_head_is_called_biased(ask):
    subset = mapped(sign=0)
    with pytest.raises(UndeterminedSignError, match=r"sign undetermined: 0\.4") as error:
        getattr(subset, ask)(*((1,) if ask in ("top", "bottom") else ()))
    assert "bias_direction='+'" in error.value.hint
    assert isinstance(error.value, NotMeasurableError)
    assert "sign undetermined" in str(subset)


def test_what_is_confirmed_is_positive_in_both_halves_after_correction():
    output = {
        (0, 0): judged(0.04, 0.3),
        (0, 1): judged(0.01, 0.3),  # a negative score
        (0, 2): judged(0.06, 0.3),  # not after correction
        (1, 1): judged(0.01, -0.3),  # the other way
    }
    subset = mapped(output=output)
    assert labels(subset.confirmed_heads()) == ["1-1"]
    assert subset.verdict == "1 confirmed"
    assert mapped(sign=0, output=output).verdict == "sign undetermined"


def test_what_was_judged_by_the_items_it_was_found_on_is_not_confirmed():
    subset = mapped(by="none", output={(0, 0): judged(0.01, 0.3)})
    with pytest.raises(NotMeasurableError, match="found and tested on the same items"):
        subset.confirmed_heads()
    assert subset.verdict == "1 significant on the same items (exploratory)"
    assert "confirmed" not in str(subset)


def test_a_map_cut_short_is_no_map():
    full = mapped().model_dump()
    for scores in (full["scores"][:-1], (*full["scores"], full["scores"][0])):
        with pytest.raises(ValueError, match="a map of 6 heads has"):
            HeadMap(
                **(dict(mapped()) | {"scores": tuple(ComponentScore(**score) for score in scores)})
            )


def test_a_grid_has_no_number_where_there_is_none():
    subset = mapped(output={(0, 1): judged(0.5, 0.25)})
    assert np.array_equal(subset.grid(), np.array(SCORES))
    effects = subset.grid("effect")
    assert effects[0, 1] == 0.25
    assert np.isnan(effects).sum() == 5


def test_other_parts_have_names_and_no_rank():
    others = (
        ComponentScore(component="mlp", layer=1, score=9.0),
        ComponentScore(component="embeddings", score=5.0),
    )
    subset = mapped(others=others)
    assert len(subset.heads) == len(subset.ranked_heads) == 6
    assert [other.label for other in others] == ["mlp 2", "embeddings"]
    assert [other.site for other in others] == [Site("mlp_out", 1), Site("embeddings")]
    assert labels(subset.top(1)) == ["2-2"]
    assert component_site("heads", 1, 2) == Site("head_out", 1, 2)


@pytest.mark.parametrize("sign", [1, -1])
def test_it_says_which_heads_come_first(sign):
    output = str(mapped(sign=sign))
    assert output == (
        "crows_margin by gradient: 2-2 0.9, 1-1 0.5, 1-3 0.5 first of 6; no head was tested"
    )


def test_it_is_read_back_from_json():
    subset = mapped(
        output={(0, 1): judged(0.5, 0.25)}, others=(ComponentScore(component="mlp", score=1.0),)
    )
    again = HeadMap.from_json(subset.to_json())
    assert again == subset
    assert again.to_json() == subset.to_json()
