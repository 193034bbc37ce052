from maps import head_map

from levelhead.report.charts.heads.head_ranking import head_ranking_chart


def order(spec):
    panels = spec.get("hconcat", [spec])
    return panels[0]["encoding"]["y"]["sort"]


def test_first_and_last_heads_in_order():
    result = head_map(12, 12)
    spec = head_ranking_chart(result).to_dict()
    labels = [head.label for head in result.ranked_heads]
    assert order(spec) == [*labels[:20], "...", *labels[-5:]]
    assert "119 heads between are not shown" in spec["title"]["subtitle"]
    assert [item["title"]["text"] for item in spec["hconcat"] if "title" in item] == ["corrected p"]


def test_all_heads_of_a_small_model():
    result = head_map(4, 6)
    spec = head_ranking_chart(result).to_dict()
    assert order(spec) == [head.label for head in result.ranked_heads]
    assert not any("not shown" in line for line in spec["title"]["subtitle"])


def test_effects_intervals_and_corrected_p():
    result = head_map(2, 4)
    spec = head_ranking_chart(result).to_dict()
    (rows,) = [item for item in spec["datasets"].values() if "score" in item[0]]
    first = result.ranked_heads[0]
    assert rows[0]["effect"] == first.effect
    assert (rows[0]["low"], rows[0]["high"]) == (first.interval.low, first.interval.high)
    assert rows[0]["formatted p"] == f"{first.p.adjusted:.3g}"
    assert rows[0]["significant"] == first.is_significant


def test_without_ablation_scores_alone():
    spec = head_ranking_chart(head_map(2, 4, judged=False)).to_dict()
    assert "hconcat" not in spec
    assert "no head was ablated: scores rank heads, they are no test" in spec["title"]["subtitle"]


def test_the_gap_shows_nothing():
    spec = head_ranking_chart(head_map(12, 12)).to_dict()
    rows = next(item for item in spec["datasets"].values() if "score" in item[0])
    gap = next(row for row in rows if row["label"] == "...")
    assert gap["formatted p"] == ""
    assert "score" not in gap
