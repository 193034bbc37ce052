"""The page of a study: a paper's tables beside ours, figures, and everything escaped."""

import json
from pathlib import Path

import pytest
from calibrations import AllFailed
from maps import head_map
from sweeps import choice_of, handful_of, placebo_judged, stable_sites, swept_settings

from levelhead.core.calibration import DAGGER, DAGGER_NOTE
from levelhead.core.errors import LevelheadError
from levelhead.core.results import StepFailure
from levelhead.mitigate.projection.config_grid import projection_grid
from levelhead.report.study_page import (
    PaperTable,
    PaperTables,
    draw_figures,
    read_paper_tables,
    write_study_page,
)
from levelhead.study.table import result_to_rows

ROOT = Path(__file__).parents[3]


@pytest.fixture
def specified(monkeypatch):
    """Figures are written as what they are drawn from: their specification."""
    monkeypatch.setattr(
        "levelhead.report.study_page.save",
        lambda figure, path: Path(path).write_text(json.dumps(figure.to_dict(), allow_nan=False)),
    )


def paper(ours="map.gender", note="<b>bold</b>"):
    table = PaperTable(
        title="Table <1>",
        note=note,
        columns=("masked", "SEAT"),
        rows=(("none", "1.35"),),
        step=ours,
    )
    return PaperTables(source="A & B 2025", tables=(table,))


def test_the_papers_tables_stand_beside_ours(tmp_path):
    heads = head_map()
    page = write_study_page({"map.gender": heads}, paper(), tmp_path, title="A <study>").read_text()
    assert "Table &lt;1&gt;" in page
    assert "<b>bold" not in page
    assert "A &amp; B 2025" in page
    assert "<td>1.35</td>" in page
    score = next(row for row in result_to_rows("map.gender", heads) if row.what == "score")
    assert f"<td>{score.value:.4g}</td>" in page
    assert "<script" not in page
    unsure = {"map.other": StepFailure(problem="sign <undetermined>", hint="more words")}
    missing = write_study_page(unsure, paper("map.third"), tmp_path, title="x").read_text()
    assert "map.other: sign &lt;undetermined&gt;" in missing
    assert "Table" not in missing


def test_what_a_failed_measure_says_is_marked(tmp_path, monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)
    base = write_study_page({"map.gender": head_map()}, paper(), tmp_path, title="x").read_text()
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    page = write_study_page({"map.gender": head_map()}, paper(), tmp_path, title="x").read_text()
    assert DAGGER not in base
    assert f"<td>score {DAGGER}</td>" in page
    assert DAGGER_NOTE in page


def test_every_result_with_a_chart_has_its_figures(specified, tmp_path):
    figures = draw_figures({"map.gender": head_map()}, tmp_path)
    assert set(figures) >= {"map.gender", "map.gender.distribution", "map.gender.ranked"}
    written = {path.name for path in (tmp_path / "figures").iterdir()}
    assert written == {f"{name}.{kind}" for name in figures for kind in ("svg", "png")}
    for name in figures:
        assert json.loads((tmp_path / "figures" / f"{name}.svg").read_text())["title"]["text"]
    page = write_study_page({}, None, tmp_path, title="x", figures=figures).read_text()
    assert page.count("<img") == len(figures)


@pytest.mark.full  # its figures' specifications are tried above; test_save draws SVG and PNG
def test_every_result_with_a_chart_is_drawn(tmp_path):
    for name in draw_figures({"map.gender": head_map()}, tmp_path):
        assert (tmp_path / "figures" / f"{name}.svg").read_text().startswith("<svg")
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_of_projections_is_drawn(specified, tmp_path):
    results = {
        "stability.nsp": stable_sites(),
        "sweep.nsp.strength": swept_settings(levels=("sent", "last")),
        "sweep.nsp.pppl": StepFailure(problem="nothing acts before", hint="another level"),
        "choice.nsp": choice_of(),
        "choice.none": choice_of(priced=False, chosen=False),
        "pairs.nsp": handful_of(),
        "placebo.nsp.sent": placebo_judged(),
    }
    figures = draw_figures(results, tmp_path)
    assert set(figures) == set(results) - {"sweep.nsp.pppl", "choice.none"}
    page = write_study_page(results, None, tmp_path, title="x", figures=figures).read_text()
    for name in figures:
        assert f'src="figures/{name}.svg"' in page
        assert json.loads((tmp_path / "figures" / f"{name}.svg").read_text())["title"]["text"]


def test_what_the_paper_prints_is_read():
    result = read_paper_tables(ROOT / "papers" / "yang2025" / "printed.toml")
    assert result.tables[0].rows[1] == ("top 3", "1.21", "4.16")
    strength = read_paper_tables(ROOT / "papers" / "dawkins2024" / "printed.toml").tables[0]
    assert strength.step == "sweep.nsp.strength"
    assert {item.name for item in projection_grid()} <= {row[0] for row in strength.rows}
    with pytest.raises(LevelheadError, match="cannot read"):
        read_paper_tables(ROOT / "nowhere.toml")
