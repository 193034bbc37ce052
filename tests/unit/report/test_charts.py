"""Every kind of result has a chart that can be drawn."""

import json

import pytest
from counteracts_answers import known
from maps import (
    comparison,
    control,
    counter_stereotype,
    description,
    estimate,
    example_of,
    head_map,
    masked_lines,
    measurement,
    repeated_splits,
    targeted,
)
from sweeps import (
    choice_of,
    claims_of,
    downstream_of,
    edits_by_knowledge,
    front_of,
    handful_of,
    masked_task,
    placebo_judged,
    removed_or_hidden,
    stable_sites,
    swept_settings,
    tuned_edit,
)

from levelhead.core.errors import LevelheadError
from levelhead.measures.compare import Comparison
from levelhead.report.charts.forest import forest_chart
from levelhead.report.charts.registry import CHARTS, MAPS, chart, save

RESULTS = [
    measurement(),
    Comparison(
        measure="seat",
        first=measurement(1.0),
        second=measurement(0.5),
        difference=estimate("difference of seat", -0.5, p=0.01),
        verdict="nearer to parity",
    ),
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
    edits_by_knowledge(),
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
    assert {type(result) for result in RESULTS} == set(CHARTS)


def name_of(result):
    return type(result).__name__


RENDERED = ("HeadMap", "MaskingReport", "DownstreamReport")
"""A single grid, panels of layers, and a scatter: what Vega draws is tried on these. What we write
is the specification, which every result's test checks; all pictures are drawn in the full tier."""


def parts(spec):
    """Every part of a specification that is an object."""
    if isinstance(spec, dict):
        yield spec
        for value in spec.values():
            yield from parts(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from parts(value)


def fields(spec):
    """The fields that a part and its layers draw, as far as they are names."""
    for part in parts(spec.get("encoding", {})):
        if isinstance(part.get("field"), str):
            yield part["field"].replace("\\", "")


@pytest.mark.parametrize("result", RESULTS, ids=name_of)
def test_its_specification_is_whole(result):
    """It has a title, marks and numbers, and every field that is drawn stands in its data."""
    spec = chart(result).to_dict()
    assert spec["title"]["text"]
    text = json.dumps(spec, allow_nan=False)  # no NaN, no infinity
    assert "undefined" not in text
    assert any("mark" in part for part in parts(spec))
    held = spec["datasets"]
    assert all(held.values())

    def check(part, names):
        subset = part.get("data", {}).get("name")
        names = names if subset is None else held[subset]
        computed = {item.get("as") for item in part.get("transform", ())}
        for field in fields(part):
            assert field in computed or any(field in row for row in names), field
        for kind in ("layer", "concat", "hconcat", "vconcat"):
            for inner in part.get(kind, ()):
                check(inner, names)

    check(spec, [])


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(result, marks=() if name_of(result) in RENDERED else pytest.mark.full)
        for result in RESULTS
    ],
    ids=name_of,
)
def test_it_is_drawn(result, tmp_path):
    save(chart(result), tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    assert "undefined" not in svg
    assert "NaN" not in svg


@pytest.mark.parametrize("result", RESULTS, ids=name_of)
def test_only_maps_are_clipped(result):
    if isinstance(result, MAPS):
        assert "negative scores are white" in str(
            chart(result, clip_negative=True).to_dict()["title"]
        )
        return
    with pytest.raises(LevelheadError, match="has no scores of heads to clip") as error:
        chart(result, clip_negative=True)
    assert error.value.hint == "leave clip_negative out"


def test_what_has_no_chart():
    with pytest.raises(LevelheadError) as error:
        chart(estimate("x", 1.0))
    assert str(error.value) == (
        "there is no chart of a Estimate\n  hint: results with a chart: AttentionExample, "
        "ClaimTests, Comparison, CounterStereotypeResult, DevSelection, DownstreamReport, "
        "GlueMaskingResult, HeadMap, KnowledgeFront, KnowledgeResult, MapComparison, "
        "MapDescription, MaskingCurves, MaskingReport, Measurement, "
        "PairBudgetCurve, ParetoFront, PlaceboReport, RandomHeadControl, RemovalReport, "
        "SelectionReport, SplitStability, SubspaceStabilityReport, SweepReport"
    )


def test_values_of_one_unit_have_one_axis():
    """Of two models on two axes the smaller value may stand further right."""
    rows = [("a", estimate("a", 1.0, p=0.5)), ("b", estimate("b", -2.0))]

    def domains(**options):
        spec = forest_chart(rows, title="two", **options).to_dict()
        found = [
            encoding["scale"]["domain"]
            for part in parts(spec)
            for encoding in (part.get("x", {}),)
            if isinstance(encoding, dict) and "scale" in encoding
        ]
        return {tuple(domain) for domain in found}

    ((low, high),) = domains(share_axis=True)
    assert low < -2.1 < 1.1 < high
    assert len(domains()) == 2
