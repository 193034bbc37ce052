import pytest
from maps import counter_stereotype

from levelhead.report.charts.attention_change import attention_change_chart


def rows(spec, panel, layer):
    subset = panel["layer"][layer]
    return spec["datasets"][subset.get("data", panel.get("data"))["name"]]


@pytest.fixture(scope="module")
def sample():
    """The result and its specification: seconds of altair, once."""
    result = counter_stereotype()
    return result, attention_change_chart(result).to_dict()


def test_means_with_intervals_for_both_groups(sample):
    result, spec = sample
    means, _ = spec["vconcat"]
    assert len(means["hconcat"]) == 2
    values = rows(spec, means["hconcat"][0], 0)
    biased, regular = result.attention.groups
    assert [(value["group"], value["sentence"], value["value"]) for value in values] == [
        ("biased heads", "original", biased.original.value),
        ("biased heads", "counter", biased.counter.value),
        ("regular heads", "original", regular.original.value),
        ("regular heads", "counter", regular.counter.value),
    ]
    assert values[0]["low"] == biased.original.interval.low


def test_the_claim_and_its_controls(sample):
    result, spec = sample
    panel = spec["vconcat"][1]["vconcat"][0]["hconcat"][0]
    values = rows(spec, panel, 2)
    assert [value["name"] for value in values] == [
        "biased heads: original - counter",
        "regular heads: original - counter",
        "biased - regular",
        "range of random groups of heads",
        "the same, as many tokens",
        "the same, placebo counterfactuals",
        "the same, less its placebo",
    ]
    (band,) = rows(spec, panel, 1)
    assert (band["low"], band["high"]) == (-0.008, 0.009)
    assert values[2]["value"] == result.attention.difference.value
    assert values[3]["value"] == result.attention.head_permutation_test.difference
    assert panel["layer"][2]["encoding"]["y"]["sort"] == [value["name"] for value in values]


def test_what_is_said(sample):
    responses = " ".join(sample[1]["title"]["subtitle"])
    assert "488 sentences of 122 targets, 1 dropped" in responses
    assert (
        "biased (44 heads): t = 3.18, p 0.0008; regular (28 heads): t = -1.48, p 0.93" in responses
    )


def test_without_controls():
    spec = attention_change_chart(counter_stereotype(full=False)).to_dict()
    panel = spec["vconcat"][1]["vconcat"][0]["hconcat"][0]
    assert len(rows(spec, panel, 1)) == 3
