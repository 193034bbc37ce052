from maps import control

from levelhead.report.charts.heads.head_controls import control_chart


def test_all_random_sets_and_where_the_chosen_one_lies():
    result = control()
    spec = control_chart(result, subject="seat, made-up-model").to_dict()
    bars, rules, interval = (spec["datasets"][item["data"]["name"]] for item in spec["layer"])
    assert sum(bar["sets"] for bar in bars) == 199
    assert [rule["at"] for rule in rules] == [
        result.effect.value,
        result.random_median,
        result.random_95th_percentile,
    ]
    assert interval == [{"low": result.effect.interval.low, "high": result.effect.interval.high}]
    output = spec["title"]["subtitle"]
    assert output[0] == "seat, made-up-model"
    assert "p 0.005" in " ".join(output)
    assert "2-7, 5-1, 6-12 (layer-head, counted from 1)" in " ".join(spec["title"]["text"])
    assert output[-1] == "these layers allow few sets: 84 different ones were drawn"


def test_many_heads_are_counted():
    many = control().model_copy(update={"heads": tuple(f"1-{i}" for i in range(1, 10))})
    assert (
        control_chart(many)
        .to_dict()["title"]["text"][0]
        .startswith("Masking 9 heads, with 199 random sets")
    )
    single = control().model_copy(update={"heads": ("3-1",)})
    assert (
        control_chart(single)
        .to_dict()["title"]["text"][0]
        .startswith("Masking head 3-1 (layer-head")
    )
