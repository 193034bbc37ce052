"""How many pairs are enough."""

import pytest
from sweeps import handful_of, stable_sites

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.edits.pair_budget import pair_budget_chart, stability_chart

SIZES = [5, 10, 20, 50, 100, 200, 500]


def test_a_line_a_site_on_a_log_scale():
    found = stable_sites()
    spec = stability_chart(found).to_dict()
    assert len(spec["vconcat"]) == 2
    line = spec["vconcat"][0]["layer"][1]
    rows = spec["datasets"][spec["vconcat"][0]["data"]["name"]]
    assert len(rows) == 3 * 7
    assert list(dict.fromkeys(row["of"] for row in rows)) == [
        "layer 11",
        "layer 12",
        "pooled (sent)",
    ]
    first = found.sites[0].by_size[0].cosine
    assert (rows[0]["value"], rows[0]["low"]) == (first.value, first.interval.low)
    assert rows[0]["at"] == pytest.approx(5 / 1.09)
    assert rows[7]["at"] == 5
    x = line["encoding"]["x"]
    assert (x["scale"]["type"], x["axis"]["values"]) == ("log", SIZES)
    told = " ".join(spec["title"]["subtitle"])
    assert told.startswith("made-up-model all 500 pairs of 44 words, words resampled: |cosine|")
    assert "layer 12 0.965 [0.955, 0.975]" in told
    assert "lines: range of 95% of the resamples" in told


def test_sites_of_heads_and_pairs_left_out():
    found = stable_sites()
    own = found.sites[0].model_copy(
        update={"site": ("query", 4, 2), "dropped": (("pair", "too long"),)}
    )
    spec = stability_chart(
        found.model_copy(update={"sites": (own,)}), subject="seen otherwise"
    ).to_dict()
    told = " ".join(spec["title"]["subtitle"])
    assert told.startswith("seen otherwise all 500 pairs")
    assert "query 5, head 3 0.985" in told
    assert told.endswith("1 pairs were left out")


def test_what_a_setting_changes_by_pairs():
    found = handful_of(idle=(5, 10))
    spec = pair_budget_chart(found, subject="a-model").to_dict()
    rows = next(own for own in spec["datasets"].values() if "pairs" in own[0])
    assert [row["pairs"] for row in rows] == SIZES[2:]
    assert [row["at"] for row in rows] == SIZES[2:]
    assert rows[0]["value"] == found.sizes[2].change.value
    assert spec["title"]["subtitle"] == [
        "a-model",
        "base 0.165 [0.135, 0.195], n 234; its parity 0",
        "lines: intervals of each alone over items, 95%; not over pairs",
        "no answer changes at all with 5, 10 pairs",
    ]


def test_refusals():
    with pytest.raises(
        LevelheadError, match="last 1,0,0 changes nothing, with any number of pairs"
    ):
        pair_budget_chart(handful_of(idle=SIZES))
    found = stable_sites()
    bare = tuple(one.model_copy(update={"by_size": ()}) for one in found.sites)
    with pytest.raises(LevelheadError, match="no numbers of pairs were tried") as error:
        stability_chart(found.model_copy(update={"sites": bare}))
    assert error.value.hint == "give sizes"
