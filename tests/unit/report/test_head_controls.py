from maps import control

from levelhead.report.charts.heads.head_controls import control_chart


def test_all_random_sets_and_where_the_chosen_one_lies():
    found = control()
    spec = control_chart(found, subject="seat, made-up-model").to_dict()
    bars, rules, interval = (spec["datasets"][one["data"]["name"]] for one in spec["layer"])
    assert sum(one["sets"] for one in bars) == 199
    assert [one["at"] for one in rules] == [
        found.effect.value,
        found.random_median,
        found.random_95th_percentile,
    ]
    assert interval == [{"low": found.effect.interval.low, "high": found.effect.interval.high}]
    told = spec["title"]["subtitle"]
    assert told[0] == "seat, made-up-model"
    assert "p 0.005" in " ".join(told)
    assert "2-7, 5-1, 6-12 (layer-head, counted from 1)" in " ".join(spec["title"]["text"])
    assert told[-1] == "these layers allow few sets: 84 different ones were drawn"


def test_many_heads_are_counted():
    many = control().model_copy(update={"heads": tuple(f"1-{i}" for i in range(1, 10))})
    assert (
        control_chart(many)
        .to_dict()["title"]["text"][0]
        .startswith("Masking 9 heads, with 199 random sets")
    )
    one = control().model_copy(update={"heads": ("3-1",)})
    assert (
        control_chart(one).to_dict()["title"]["text"][0].startswith("Masking head 3-1 (layer-head")
    )
