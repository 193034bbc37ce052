import pytest
from maps import counter_stereotype

from levelhead.report.charts.attention_change import attention_change_chart


def rows(spec, panel, layer):
    own = panel["layer"][layer]
    return spec["datasets"][own.get("data", panel.get("data"))["name"]]


@pytest.fixture(scope="module")
def drawn():
    """The result and its specification: seconds of altair, once."""
    found = counter_stereotype()
    return found, attention_change_chart(found).to_dict()


def test_means_with_intervals_for_both_groups(drawn):
    found, spec = drawn
    means, _ = spec["vconcat"]
    assert len(means["hconcat"]) == 2
    values = rows(spec, means["hconcat"][0], 0)
    biased, regular = found.attention.groups
    assert [(one["group"], one["sentence"], one["value"]) for one in values] == [
        ("biased heads", "original", biased.original.value),
        ("biased heads", "counter", biased.counter.value),
        ("regular heads", "original", regular.original.value),
        ("regular heads", "counter", regular.counter.value),
    ]
    assert values[0]["low"] == biased.original.interval.low


def test_the_claim_and_its_controls(drawn):
    found, spec = drawn
    panel = spec["vconcat"][1]["vconcat"][0]["hconcat"][0]
    values = rows(spec, panel, 2)
    assert [one["name"] for one in values] == [
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
    assert values[2]["value"] == found.attention.difference.value
    assert values[3]["value"] == found.attention.head_permutation_test.difference
    assert panel["layer"][2]["encoding"]["y"]["sort"] == [one["name"] for one in values]


def test_what_is_said(drawn):
    said = " ".join(drawn[1]["title"]["subtitle"])
    assert "488 sentences of 122 targets, 1 dropped" in said
    assert "biased (44 heads): t = 3.18, p 0.0008; regular (28 heads): t = -1.48, p 0.93" in said


def test_without_controls():
    spec = attention_change_chart(counter_stereotype(whole=False)).to_dict()
    panel = spec["vconcat"][1]["vconcat"][0]["hconcat"][0]
    assert len(rows(spec, panel, 1)) == 3
