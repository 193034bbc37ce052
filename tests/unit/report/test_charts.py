"""Every kind of result has a chart that can be drawn."""

import pytest
from maps import (
    comparison,
    control,
    counter_stereotype,
    description,
    estimate,
    example_of,
    head_map,
    masked_lines,
    repeated_splits,
    targeted,
)
from sweeps import (
    choice_of,
    claims_of,
    downstream_of,
    front_of,
    handful_of,
    masked_task,
    placebo_judged,
    removed_or_hidden,
    stable_sites,
    swept_settings,
    tuned_edit,
)
from told import known

from levelhead.core.errors import LevelheadError
from levelhead.report.charts import CHARTS, MAPS, chart, save

RESULTS = [
    head_map(3, 4),
    comparison(3, 4, 2),
    control(),
    description(),
    repeated_splits(),
    counter_stereotype(),
    example_of(),
    targeted(),
    masked_lines(),
    swept_settings(levels=("sent", "last")),
    front_of(10),
    choice_of(),
    placebo_judged(),
    stable_sites(),
    handful_of(),
    claims_of(),
    downstream_of(),
    masked_task(),
    removed_or_hidden(),
    known(),
    tuned_edit(),
]


def test_every_row_is_tried():
    assert {type(one) for one in RESULTS} == set(CHARTS)


@pytest.mark.parametrize("result", RESULTS, ids=lambda one: type(one).__name__)
def test_it_is_drawn(result, tmp_path):
    drawn = chart(result)
    assert drawn.to_dict()["title"]["text"]
    save(drawn, tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    assert "undefined" not in svg
    assert "NaN" not in svg


@pytest.mark.parametrize("result", RESULTS, ids=lambda one: type(one).__name__)
def test_only_maps_are_clipped(result):
    if isinstance(result, MAPS):
        assert "drawn white" in str(chart(result, clip_negative=True).to_dict()["title"])
        return
    with pytest.raises(LevelheadError, match="has no scores of heads to clip") as error:
        chart(result, clip_negative=True)
    assert error.value.mend == "leave clip_negative out"


def test_what_has_no_chart():
    with pytest.raises(LevelheadError) as error:
        chart(estimate("x", 1.0))
    assert str(error.value) == (
        "there is no chart of a Estimate\n  mend: charts are drawn of: Choice, Control, "
        "CounterStereotype, Description, Downstream, Example, Findings, Front, Handful, HeadMap, "
        "Knowledge, Lines, MapComparison, MaskedTask, Placeboed, Removed, Repeated, Stable, Swept, "
        "Targeted, Tuned"
    )
