"""One row a setting, a panel a level; hard and weighted are told without colour."""

import pytest
from sweeps import swept_settings

from levelhead.mitigate.projection.config_grid import projection_grid
from levelhead.report.charts.edits.sweep import LOOKS, STEPS, sweep_chart


def panels(spec):
    return [one for line in spec["vconcat"] for one in line["hconcat"]]


def rows_of(spec, part, layer):
    own = part["layer"][layer].get("data") or part["data"]  # altair lifts what all layers share
    return spec["datasets"][own["name"]]


def told(spec):
    return " ".join(spec["title"]["subtitle"])


@pytest.fixture(scope="module")
def every():
    """The specification of all settings: seconds of altair, once."""
    return sweep_chart(swept_settings(), subject="a-model").to_dict()


def test_all_74_settings_by_level_in_the_order_of_the_grid(every):
    found, spec = swept_settings(), every
    assert [one["title"]["text"] for one in panels(spec)] == [
        "sent",
        "last",
        "penultimate",
        "penultimate+attn",
    ]
    drawn = [
        row for one in panels(spec) for row in rows_of(spec, one["hconcat"][1], 2) if "name" in row
    ]
    assert [row["name"] for row in drawn] == [one.name for one in projection_grid()]
    assert [row["change"] for row in drawn] == [one.change.value for one in found.variants]
    assert drawn[0]["low"] == found.variants[0].change.interval.low
    assert spec["title"]["text"] == ["Change of strength by each of 74 settings"]
    assert spec["title"]["subtitle"][:2] == [
        "a-model",
        "base 0.139 [0.099, 0.179], n 234; its parity 0.16: only a change towards parity "
        "reduces bias",
    ]
    assert "corrected p at most 0.05: 74 of 74" in told(spec)


def test_one_scale_for_all_panels_and_rows_apart_by_their_first_projection(every):
    spec = every
    scales = [one["hconcat"][1]["layer"][0]["encoding"]["x"]["scale"] for one in panels(spec)]
    assert all(one == scales[0] for one in scales)
    assert scales[0]["domain"][0] < scales[0]["domain"][1]
    assert scales[0]["domain"][1] > 0
    at = [row["row"] for row in rows_of(spec, panels(spec)[1]["hconcat"][1], 2)]
    assert at == [0, 1, 2.5, 3.5, 5, 6, 7.5, 8.5]


def test_signs_of_every_projection(every):
    spec = every
    signs = rows_of(spec, panels(spec)[3]["hconcat"][0], 1)
    assert len(signs) == 32 * 3  # the attention has no choice
    row = [one["look"] for one in signs if one["row"] == signs[3 * 3]["row"]]
    assert row == ["hard, 1 dimension", "hard, 2 dimensions", "weighted, 1 dimension"]  # 0,0,0,1,1
    assert len({*zip(STEPS, LOOKS, strict=True)}) == 4
    marks = rows_of(spec, panels(spec)[3]["hconcat"][0], 0)
    assert marks[3]["marks"] == "0,0,0,1,1"


def test_settings_behind_what_is_read_are_told_and_not_drawn():
    some = [one.name for one in projection_grid() if one.edit_point in {"sent", "last"}]
    spec = sweep_chart(swept_settings(behind=some)).to_dict()
    assert [one["title"]["text"] for one in panels(spec)] == ["penultimate", "penultimate+attn"]
    assert (
        "they act after all sites that strength reads and cannot change it: 2 of sent, 8 of last"
        in (told(spec))
    )
    few = sweep_chart(swept_settings(behind=("sent 0", "sent 1"))).to_dict()
    assert "cannot change it: sent 0; sent 1" in told(few)


def test_what_changes_nothing_is_said_and_has_no_point():
    spec = sweep_chart(swept_settings(levels=("sent",), idle=("sent 1",))).to_dict()
    layers = panels(spec)[0]["hconcat"][1]["layer"]
    assert layers[-1]["mark"]["text"] == "no answer changes"
    (idle,) = rows_of(spec, panels(spec)[0]["hconcat"][1], -1)
    assert idle["row"] == 1
    assert len(rows_of(spec, panels(spec)[0]["hconcat"][1], 2)) == 1
    none = sweep_chart(swept_settings(levels=("sent",), idle=("sent 0", "sent 1"))).to_dict()
    assert "lines: intervals" not in told(none)


def test_models_without_sent_and_names_of_ones_own():
    spec = sweep_chart(swept_settings(sent=False)).to_dict()
    assert panels(spec)[0]["title"]["subtitle"] == ["4 settings; edits last"]
    found = swept_settings(levels=("sent",))
    own = [one.model_copy(update={"name": f"mine {i}"}) for i, one in enumerate(found.variants)]
    mixed = sweep_chart(
        found.model_copy(
            update={"variants": (*own, *found.variants), "unaffected_variants": ("x",) * 5}
        )
    ).to_dict()
    assert [one["title"]["text"] for one in panels(mixed)] == ["sent", "settings"]
    marks = rows_of(mixed, panels(mixed)[1]["hconcat"][0], 0)
    assert [one["marks"] for one in marks] == ["mine 0", "mine 1"]
    assert "cannot change it: 5 of settings" in told(mixed)
    plain = sweep_chart(found.model_copy(update={"variants": tuple(own)})).to_dict()
    assert "marks:" not in told(plain)
