import pytest
from maps import head_map

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.heads.head_distribution import distribution_chart, distributions_chart


def test_every_head_is_counted_once():
    result = head_map(12, 12)
    spec = distribution_chart(result).to_dict()
    count, strokes = spec["vconcat"]
    bars = spec["datasets"][count["data"]["name"]]
    assert sum(bar["heads"] for bar in bars) == 144
    assert sum(bar["heads"] for bar in bars if bar["low"] >= 0) == sum(
        head.score >= 0 for head in result.heads
    )
    assert len(spec["datasets"][strokes["data"]["name"]]) == 144
    first = ", ".join(f"{head.label} ({head.score:.3g})" for head in result.ranked_heads[:3])
    assert f"largest, layer-head counted from 1: {first}" in spec["title"]["subtitle"]


def test_the_axis_says_whether_the_sign_is_known():
    def axis(sign):
        return distribution_chart(head_map(sign=sign)).to_dict()["vconcat"][1]["encoding"]["x"][
            "title"
        ]

    assert axis(1) == "score: above 0 adds to the bias, below 0 takes from it"
    assert axis(0) == "score, sign undetermined"


def test_several_models_as_shares():
    maps = [("one", head_map(12, 12)), ("two", head_map(6, 12, seed=1))]
    spec = distributions_chart(maps).to_dict()
    rows = next(item for item in spec["datasets"].values() if "share" in item[0])
    for name, result in maps:
        subset = [row for row in rows if row["map"] == name]
        assert sum(item["heads"] for item in subset[:-1]) == len(result.heads)
        assert sum(item["share"] for item in subset[:-1]) == pytest.approx(1)
    assert {row["low"] for row in rows if row["map"] == "one"} == {
        row["low"] for row in rows if row["map"] == "two"
    }
    assert spec["title"]["subtitle"][0] == (
        "one: 144 heads, seat 1.35 [1.15, 1.55], more is called bias"
    )


def test_mixed_signs_are_said():
    spec = distributions_chart([("one", head_map()), ("two", head_map(sign=0))]).to_dict()
    assert "SIGN UNDETERMINED" in spec["title"]["subtitle"][1]
    title = spec["layer"][1]["encoding"]["x"]["title"]
    assert title == "score; the subtitle says which signs are known"


def test_refusals():
    with pytest.raises(LevelheadError, match="there is no map to plot"):
        distributions_chart([])
    with pytest.raises(LevelheadError, match="two maps have the same name"):
        distributions_chart([("one", head_map()), ("one", head_map())])
    other = head_map().model_copy(update={"measure": "contrast"})
    with pytest.raises(LevelheadError, match="two was located by contrast, one by seat") as error:
        distributions_chart([("one", head_map()), ("two", other)])
    assert error.value.hint == "plot only maps of one measure together"
