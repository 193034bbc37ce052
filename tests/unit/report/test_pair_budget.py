"""How many pairs are enough."""

import pytest
from sweeps import handful_of, stable_sites

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.edits.pair_budget import pair_budget_chart, stability_chart

SIZES = [5, 10, 20, 50, 100, 200, 500]


def test_a_line_a_site_on_a_log_scale():
    result = stable_sites()
    spec = stability_chart(result).to_dict()
    assert len(spec["vconcat"]) == 2
    line = spec["vconcat"][0]["layer"][1]
    rows = spec["datasets"][spec["vconcat"][0]["data"]["name"]]
    assert len(rows) == 3 * 7
    assert list(dict.fromkeys(row["of"] for row in rows)) == [
        "layer 11",
        "layer 12",
        "pooled (sent)",
    ]
    first = result.sites[0].by_size[0].cosine
    assert (rows[0]["value"], rows[0]["low"]) == (first.value, first.interval.low)
    assert rows[0]["at"] == pytest.approx(5 / 1.09)
    assert rows[7]["at"] == 5
    x = line["encoding"]["x"]
    assert (x["scale"]["type"], x["axis"]["values"]) == ("log", SIZES)
    output = " ".join(spec["title"]["subtitle"])
    assert output.startswith("made-up-model all 500 pairs of 44 words, words resampled: |cosine|")
    assert "layer 12 0.965 [0.955, 0.975]" in output
    assert "lines: range of 95% of the resamples" in output


def test_sites_of_heads_and_pairs_left_out():
    result = stable_sites()
    subset = result.sites[0].model_copy(
        update={"site": ("query", 4, 2), "dropped": (("pair", "too long"),)}
    )
    spec = stability_chart(
        result.model_copy(update={"sites": (subset,)}), subject="seen otherwise"
    ).to_dict()
    output = " ".join(spec["title"]["subtitle"])
    assert output.startswith("seen otherwise all 500 pairs")
    assert "query 5, head 3 0.985" in output
    assert output.endswith("1 pairs were left out")


def test_what_a_setting_changes_by_pairs():
    result = handful_of(idle=(5, 10))
    spec = pair_budget_chart(result, subject="a-model").to_dict()
    rows = next(item for item in spec["datasets"].values() if "pairs" in item[0])
    assert [row["pairs"] for row in rows] == SIZES[2:]
    assert [row["at"] for row in rows] == SIZES[2:]
    assert rows[0]["value"] == result.sizes[2].change.value
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
    result = stable_sites()
    bare = tuple(site.model_copy(update={"by_size": ()}) for site in result.sites)
    with pytest.raises(LevelheadError, match="no numbers of pairs were tried") as error:
        stability_chart(result.model_copy(update={"sites": bare}))
    assert error.value.hint == "give sizes"
