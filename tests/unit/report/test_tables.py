"""The tidy table as files."""

import csv
import io

import audits
import polars
from calibrations import AllFailed
from hypothesis import given
from hypothesis import strategies as st

from levelhead.report import tables
from levelhead.study.row import TableRow


def test_parquet_holds_what_csv_holds():
    found = tables.results_to_rows(audits.results())
    plain = list(csv.DictReader(io.StringIO(tables.to_csv_bytes(found).decode())))
    typed = polars.read_parquet(io.BytesIO(tables.to_parquet_bytes(found)))
    assert typed.columns == list(plain[0])
    assert typed.height == len(plain) == len(found)
    assert typed["value"].dtype == polars.Float64
    assert typed["value"].to_list() == [float(row["value"]) for row in plain]
    assert typed["p"].null_count() == sum(not row["p"] for row in plain)


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


def test_a_ruler_that_failed_is_marked_in_every_file(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)
    plain = tables.results_to_rows(audits.results())
    assert not any(row.mark for row in plain)
    assert "dagger" not in tables.to_latex_bytes(plain).decode()
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    found = tables.results_to_rows(audits.results())
    of_rulers = [row for row in found if row.mark]
    assert {row.what for row in of_rulers} >= {"seat", "crows"}
    maps = [row for row in found if row.step == "map.heads"]
    assert maps
    assert all(row.mark for row in maps)
    assert len(of_rulers) < len(found)  # probes of what is removed are no rulers
    assert tables.to_csv_bytes(found).decode().count("†") == len(of_rulers)
    text = tables.to_latex_bytes(found).decode()
    assert r"seat$^\dagger$ &" in text
    assert r"$^\dagger$ failed where the truth is known" in text


@given(st.text())
def test_no_text_leaves_latex_open(text):
    shown = tables.escape_latex(text)
    plain = shown
    for sign in (
        "textbackslash{}",
        "textasciitilde{}",
        "textasciicircum{}",
        "textless{}",
        "textgreater{}",
        "textbar{}",
    ):
        plain = plain.replace("\\" + sign, "")
    for sign in "&%$#_{}":
        plain = plain.replace("\\" + sign, "")
    assert not set(plain) & set("\\&%$#_{}~^\n\r")
