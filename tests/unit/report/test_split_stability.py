from maps import repeated_splits

from levelhead.report.charts.heads.split_stability import split_stability_chart


def test_how_often_heads_were_chosen_and_what_splits_confirm():
    found = repeated_splits()
    spec = split_stability_chart(found, subject="seat, made-up-model").to_dict()
    chosen, *spreads = spec["vconcat"]
    rows = spec["datasets"][chosen["data"]["name"]]
    assert [(one["head"], one["times"]) for one in rows] == list(found.selection_counts[:20])
    assert chosen["encoding"]["x"]["scale"]["domain"] == [0, 20]
    assert [one["title"]["text"] for one in spreads] == [
        "effect of the top 3",
        "heads shared of 3",
        "score on find, effect on confirm",
    ]
    assert spreads[0]["title"]["subtitle"] == ["median 0.31, from 0.12 to 0.49; 20 values"]
    told = spec["title"]["subtitle"]
    assert told[0] == "seat, made-up-model"
    assert "4 heads that were chosen less often are not shown" in told


def test_without_replication():
    found = repeated_splits(12).model_copy(update={"replication": None})
    spec = split_stability_chart(found).to_dict()
    assert len(spec["vconcat"]) == 3
    assert not any("not shown" in line for line in spec["title"]["subtitle"])
