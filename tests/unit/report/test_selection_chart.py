"""A choice of a setting: its gains on dev, on items left out and on test."""

import pytest
from sweeps import choice_of

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.edits.selection import is_drawable, selection_chart


def test_the_front_and_three_gains():
    result = choice_of()
    spec = selection_chart(result, subject="a-model").to_dict()
    assert len(spec["vconcat"]) == 2
    rows = next(item for item in spec["datasets"].values() if item and "which" in item[0])
    expected = [result.on_dev, result.out_of_bag_gain, result.on_test]
    assert [row["gain"] for row in rows] == [item.value for item in expected]
    assert [row["low"] for row in rows] == [item.interval.low for item in expected]
    assert rows[2]["formatted"].startswith(
        "test: the number to report\n0.0519 [0.0369, 0.0669], n 749"
    )
    assert rows[1]["which"] == "dev, the best of 74 on out-of-bag items"
    assert spec["title"]["text"] == [
        f"Chosen on dev by distance from parity among 74 settings: {result.chosen}"
    ]
    assert "the best in 21% of resamples" in spec["vconcat"][1]["title"]["text"]
    assert "kind" in str(spec["vconcat"][0])


def test_without_a_price_the_gains_alone():
    spec = selection_chart(choice_of(priced=False)).to_dict()
    assert len(spec["vconcat"]) == 1
    assert spec["title"]["subtitle"] == [
        "no utility was measured: what the edit costs is not known"
    ]


def test_nothing_chosen():
    none = choice_of(chosen=False).model_copy(update={"n_considered": 3})
    spec = selection_chart(none).to_dict()
    assert len(spec["vconcat"]) == 1
    assert spec["title"]["text"] == [
        "Chosen on dev by distance from parity among 74 settings: none"
    ]
    assert spec["title"]["subtitle"][-1] == "3 of 74 settings are within the utility cost"
    bare = choice_of(priced=False, chosen=False)
    assert not is_drawable(bare)
    with pytest.raises(
        LevelheadError, match="nothing was chosen and no utility cost was measured"
    ) as error:
        selection_chart(bare)
    assert (
        error.value.hint
        == "give a utility measure; the notes of the selection say why nothing was chosen"
    )
