"""One row a setting, a panel a level; hard and weighted are told without colour."""

import pytest
from sweeps import swept_settings

from levelhead.mitigate.projection.config_grid import projection_grid
from levelhead.report.charts.edits.sweep import LOOKS, STEPS, sweep_chart


def panels(spec):
    return [item for line in spec["vconcat"] for item in line["hconcat"]]


def rows_of(spec, part, layer):
    subset = part["layer"][layer].get("data") or part["data"]  # altair lifts what all layers share
    return spec["datasets"][subset["name"]]


def read_output(spec):
    return " ".join(spec["title"]["subtitle"])


@pytest.fixture(scope="module")
def every():
    """The specification of all settings: seconds of altair, once."""
    return sweep_chart(swept_settings(), subject="a-model").to_dict()


def test_all_74_settings_by_level_in_the_order_of_the_grid(every):
    result, spec = swept_settings(), every
    assert [panel["title"]["text"] for panel in panels(spec)] == [
        "sent",
        "last",
        "penultimate",
        "penultimate+attn",
    ]
    sample = [
        row
        for panel in panels(spec)
        for row in rows_of(spec, panel["hconcat"][1], 2)
        if "name" in row
    ]
    assert [row["name"] for row in sample] == [item.name for item in projection_grid()]
    assert [row["change"] for row in sample] == [
        variant.change.value for variant in result.variants
    ]
    assert sample[0]["low"] == result.variants[0].change.interval.low
    assert spec["title"]["text"] == ["Change of strength by each of 74 settings"]
    assert spec["title"]["subtitle"][:2] == [
        "a-model",
        "base 0.139 [0.099, 0.179], n 234; its parity 0.16: only a change towards parity "
        "reduces bias",
    ]
    assert "corrected p at most 0.05: 74 of 74" in read_output(spec)


def test_one_scale_for_all_panels_and_rows_apart_by_their_first_projection(every):
    spec = every
    scales = [panel["hconcat"][1]["layer"][0]["encoding"]["x"]["scale"] for panel in panels(spec)]
    assert all(scale == scales[0] for scale in scales)
    assert scales[0]["domain"][0] < scales[0]["domain"][1]
    assert scales[0]["domain"][1] > 0
    at = [row["row"] for row in rows_of(spec, panels(spec)[1]["hconcat"][1], 2)]
    assert at == [0, 1, 2.5, 3.5, 5, 6, 7.5, 8.5]


def test_signs_of_every_projection(every):
    spec = every
    signs = rows_of(spec, panels(spec)[3]["hconcat"][0], 1)
    assert len(signs) == 32 * 3  # the attention has no choice
    row = [sign["look"] for sign in signs if sign["row"] == signs[3 * 3]["row"]]
    assert row == ["hard, 1 dimension", "hard, 2 dimensions", "weighted, 1 dimension"]  # 0,0,0,1,1
    assert len({*zip(STEPS, LOOKS, strict=True)}) == 4
    marks = rows_of(spec, panels(spec)[3]["hconcat"][0], 0)
    assert marks[3]["marks"] == "0,0,0,1,1"


def test_settings_behind_what_is_read_are_told_and_not_drawn():
    some = [item.name for item in projection_grid() if item.edit_point in {"sent", "last"}]
    spec = sweep_chart(swept_settings(behind=some)).to_dict()
    assert [panel["title"]["text"] for panel in panels(spec)] == ["penultimate", "penultimate+attn"]
    assert (
        "they act after all sites that strength reads and cannot change it: 2 of sent, 8 of last"
        in (read_output(spec))
    )
    few = sweep_chart(swept_settings(behind=("sent 0", "sent 1"))).to_dict()
    assert "cannot change it: sent 0; sent 1" in read_output(few)


def test_what_changes_nothing_is_said_and_has_no_point():
    spec = sweep_chart(swept_settings(levels=("sent",), idle=("sent 1",))).to_dict()
    layers = panels(spec)[0]["hconcat"][1]["layer"]
    assert layers[-1]["mark"]["text"] == "no answer changes"
    (idle,) = rows_of(spec, panels(spec)[0]["hconcat"][1], -1)
    assert idle["row"] == 1
    assert len(rows_of(spec, panels(spec)[0]["hconcat"][1], 2)) == 1
    none = sweep_chart(swept_settings(levels=("sent",), idle=("sent 0", "sent 1"))).to_dict()
    assert "lines: intervals" not in read_output(none)


def test_models_without_sent_and_names_of_ones_own():
    spec = sweep_chart(swept_settings(sent=False)).to_dict()
    assert panels(spec)[0]["title"]["subtitle"] == ["4 settings; edits last"]
    result = swept_settings(levels=("sent",))
    subset = [
        variant.model_copy(update={"name": f"mine {i}"})
        for i, variant in enumerate(result.variants)
    ]
    mixed = sweep_chart(
        result.model_copy(
            update={"variants": (*subset, *result.variants), "unaffected_variants": ("x",) * 5}
        )
    ).to_dict()
    assert [panel["title"]["text"] for panel in panels(mixed)] == ["sent", "settings"]
    marks = rows_of(mixed, panels(mixed)[1]["hconcat"][0], 0)
    assert [mark["marks"] for mark in marks] == ["mine 0", "mine 1"]
    assert "cannot change it: 5 of settings" in read_output(mixed)
    base = sweep_chart(result.model_copy(update={"variants": tuple(subset)})).to_dict()
    assert "marks:" not in read_output(base)
