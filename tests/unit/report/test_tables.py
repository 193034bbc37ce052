"""The tidy table as files."""

import csv
import io

import audits
import polars
from calibrations import AllFailed
from hypothesis import given
from hypothesis import strategies as st

from levelhead.report import tables
from levelhead.study.table_row import TableRow


def test_parquet_holds_what_csv_holds():
    result = tables.results_to_rows(audits.results())
    base = list(csv.DictReader(io.StringIO(tables.to_csv_bytes(result).decode())))
    typed = polars.read_parquet(io.BytesIO(tables.to_parquet_bytes(result)))
    assert typed.columns == list(base[0])
    assert typed.height == len(base) == len(result)
    assert typed["value"].dtype == polars.Float64
    assert typed["value"].to_list() == [float(row["value"]) for row in base]
    assert typed["p"].null_count() == sum(not row["p"] for row in base)


def test_latex_has_intervals_and_marks():
    rows = [
        TableRow(
            step="cell", name="a_b", what="50%", value=1.5, low=1.0, high=2.0, p=0.04, over="words"
        ),
        TableRow(step="cell", name="", what="x", value=-2.0, p=0.001, adjusted=0.2),
        TableRow(step="cell", name="", what="x", value=3.0, p=0.0005),
    ]
    text = tables.to_latex_bytes(rows).decode()
    assert r"cell & a\_b & 50\% & $1.5$* & $[1, 2]$ & words \\" in text
    assert r"$-2$ &" in text  # the corrected p decides
    assert "$3$***" in text
    assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 1


def test_a_measure_that_failed_is_marked_in_every_file(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)
    base = tables.results_to_rows(audits.results())
    assert not any(row.mark for row in base)
    assert "dagger" not in tables.to_latex_bytes(base).decode()
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    result = tables.results_to_rows(audits.results())
    of_measures = [row for row in result if row.mark]
    assert {row.what for row in of_measures} >= {"seat", "crows"}
    maps = [row for row in result if row.step == "map.heads"]
    assert maps
    assert all(row.mark for row in maps)
    assert len(of_measures) < len(result)  # probes of what is removed are no measures
    assert tables.to_csv_bytes(result).decode().count("†") == len(of_measures)
    text = tables.to_latex_bytes(result).decode()
    assert r"seat$^\dagger$ &" in text
    assert r"$^\dagger$ failed where the truth is known" in text


@given(st.text())
def test_no_text_leaves_latex_open(text):
    shown = tables.escape_latex(text)
    base = shown
    for sign in (
        "textbackslash{}",
        "textasciitilde{}",
        "textasciicircum{}",
        "textless{}",
        "textgreater{}",
        "textbar{}",
    ):
        base = base.replace("\\" + sign, "")
    for sign in "&%$#_{}":
        base = base.replace("\\" + sign, "")
    assert not set(base) & set("\\&%$#_{}~^\n\r")
