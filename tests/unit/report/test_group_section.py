import pytest

from levelhead.calibrate.organisms.group_tables import GroupOrganism
from levelhead.core.run_context import Inference
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.report.audit_page.group_section import groups_section
from levelhead.report.audit_page.verdict import AuditVerdict
from levelhead.report.audit_page.verdict_text import AuditMeasureVerdict
from levelhead.report.charts.registry import chart, save

INFERENCE = Inference(seed=0, permutations=999, resamples=99)


@pytest.fixture(scope="module")
def crossed():
    organism = GroupOrganism(3, is_crossed=True, effect="interaction", dose=1.0)
    return organism.measure(organism.load_lm(), inference=INFERENCE)


def page(*rows):
    measures = tuple(
        AuditMeasureVerdict(
            name,
            "bias",
            status or decide_measure_verdict(measurement).status,
            measurement,
            "explained",
            measure="association_spread",
        )
        for name, measurement, status in rows
    )
    return list(groups_section(AuditVerdict("", (), measures, ())))


def test_groups_are_rows_and_measures_are_columns(crossed):
    (section,) = page(("threat", crossed, None), ("again", crossed, None))
    (matrix,) = section.head_tables
    assert matrix.columns == ("threat", "again")
    assert {row.name for row in matrix.rows} == set(crossed.groups)
    first = matrix.rows[0]
    # The group that differs most comes first, with its number in words.
    value = max(
        (e for e in crossed.extras if e.name.endswith("against the others")),
        key=lambda e: abs(e.value),
    )
    assert value.name.startswith(first.name)
    assert first.cells[0].mark == "●"
    assert f"{first.name}, threat: " in first.cells[0].description
    assert any("beyond both attributes" in line for line in section.lines)


def test_an_inconclusive_measure_colours_nothing(crossed):
    (section,) = page(("threat", crossed, "inconclusive"))
    assert section.head_tables == ()
    assert section.lines == ("threat: explained",)


def test_two_groups_need_no_matrix(crossed):
    pair = crossed.model_copy(update={"groups": ("a", "b")})
    assert page(("pair", pair, None)) == []


def test_a_chart_of_many_groups_is_a_map_of_both_attributes(crossed, tmp_path):
    drawn = chart(crossed)
    datasets = [rows for rows in drawn.to_dict()["datasets"].values() if "is_shown" in rows[0]]
    (cells,) = datasets
    assert {(cell["row"], cell["column"]) for cell in cells} == {
        tuple(group.rsplit(" ", 1)) for group in crossed.groups
    }
    by_name = {f"{estimate.name}": estimate for estimate in crossed.extras}
    for cell in cells:
        estimate = by_name[f"{cell['group']} against the others"]
        assert cell["value"] == estimate.value
        assert cell["is_shown"] == (estimate.p.adjusted <= 0.05)
    save(drawn, tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text()
    assert all(name.rsplit(" ", 1)[0] in text for name in crossed.groups)
    # A group without an estimate leaves no hole that reads as no difference.
    kept = tuple(e for e in crossed.extras if e.name != f"{crossed.groups[0]} against the others")
    assert "is_shown" not in str(chart(crossed.model_copy(update={"extras": kept})).to_dict())
