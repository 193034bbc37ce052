"""Research results: data files, the pages that summarise them, the tools that write both."""

import csv
import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from maps import head_map

from levelhead.calibrate.tables import TextTable, make_calibration_tables
from levelhead.core.calibration import Calibration
from levelhead.core.results import StepFailure
from levelhead.mitigate.evaluation.price import MitigationReport, Unmeasured
from levelhead.study.table import to_csv
from levelhead.study.table_row import TableRow

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
FILES = sorted((RESULTS / "data").rglob("*.csv"))
NUMBERS = {"value", "low", "high", "parity", "p", "detectable", "n", "queries", "seconds"}
MAX_WORDS = 4000


@pytest.fixture
def tool(monkeypatch):
    """A tool by its name; tools are no part of a package."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def between(page, begin, end):
    above, _, rest = (RESULTS / page).read_text().partition(begin)
    text, found, _ = rest.partition(end)
    assert above
    assert found
    return text.strip()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_data_files_are_tidy(path):
    with path.open() as file:
        header, *rows = csv.reader(file)
    assert len(set(header)) == len(header)
    assert rows
    for row in rows:
        assert len(row) == len(header), row
        for column, cell in zip(header, row, strict=True):
            if column in NUMBERS and cell:
                float(cell)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.md")), ids=lambda path: path.name)
def test_pages_are_short_and_their_tables_are_data(path):
    text = path.read_text()
    assert len(text.split()) <= MAX_WORDS
    # Tables of the papers' claims stand on one page.
    assert "| claim |" in text or "](claims.md#" in text


def test_every_data_file_is_linked():
    linked = {
        (page.parent / link).resolve()
        for page in RESULTS.parent.rglob("*.md")
        for link in re.findall(r"\]\(([\w/.-]+\.csv)\)", page.read_text())
    }
    assert {path for path in linked if RESULTS in path.parents} == set(FILES)


def test_lists_of_studies_agree_with_their_files(tool):
    study_results = tool("study_results")
    runs = []
    for page in ("bias-a-head.md", "bbq-heads.md", "counteracts.md", "projective-methods.md"):
        text = between(page, study_results.BEGIN, study_results.END)
        listed = re.findall(r"\[(\S+)\.csv\]", text)
        texts = {run: (study_results.DATA / f"{run}.csv").read_text() for run in listed}
        assert text == study_results.summary(texts).strip()
        for content in texts.values():
            assert content.startswith(",".join(study_results.COLUMNS) + "\n")
        runs += listed
    assert sorted(runs) == sorted(path.stem for path in study_results.DATA.glob("*.csv"))


def test_the_page_of_claims_is_what_its_tool_makes_of_the_studies(tool):
    claims = tool("claims")
    source = tomllib.loads(claims.SOURCE.read_text())
    verdicts = list(claims.list_verdicts(source))
    assert claims.PAGE.read_text() == claims.page(source, verdicts)
    assert claims.TABLE.read_text() == claims.table(verdicts)
    assert {row.paper for row in verdicts} == {"yang2025", "zhang2023", "dawkins2024"}
    for paper in source["papers"]:
        for file in paper["repeat"].values():
            assert (RESULTS.parents[1] / "papers" / paper["name"] / file).exists()


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        ("below", -2, -1, "holds"),
        ("below", -2, 1, "undecided"),
        ("below", 1, 2, "does not hold"),
        ("above", 1, 2, "holds"),
        ("above", -2, 1, "undecided"),
        ("above", -2, -1, "does not hold"),
        ("zero", -1, 1, "undecided"),  # an interval that contains 0 does not prove it
        ("zero", 1, 2, "does not hold"),
        ("none", 1, 2, "untestable"),
    ],
)
def test_verdicts_follow_from_intervals(tool, rule, low, high, verdict):
    row = {"low": str(low), "high": str(high)}
    assert tool("claims").decide(rule, row) == verdict


def test_a_cost_is_little_within_its_limit(tool):
    decide = tool("claims").decide
    rise, fall = {"low": "-1", "high": "4"}, {"low": "-4", "high": "1"}
    assert decide("within", rise, 5.0, 1) == decide("within", fall, 5.0, -1) == "holds"
    assert decide("within", rise, 3.0, 1) == decide("within", fall, 3.0, -1) == "undecided"
    assert decide("within", {"low": "4", "high": "6"}, 3.0, 1) == "does not hold"
    assert decide("any", {"n": "0"}) == "does not hold"
    assert decide("any", {"n": "2"}) == "holds"


def test_a_claim_names_one_row(tool):
    with pytest.raises(ValueError, match="unpack"):
        tool("claims").find_row("yang2025", "masking.table1", "top 3", "no such number")


def test_tables_of_measures_agree_with_their_files(tool):
    real_results = tool("real_results")
    pages = [page for page in real_results.RESULT_SETS if (RESULTS / f"{page}.md").exists()]
    assert pages
    for page in pages:
        text = between(f"{page}.md", real_results.BEGIN, real_results.END)
        values = (RESULTS / "data" / page / "values.csv").read_text()
        assert text.startswith(real_results.summary(values).strip())


def test_the_calibration_page_and_files_agree_with_the_package(tool, monkeypatch, tmp_path):
    calibration = tool("calibration")
    result = Calibration.from_json(calibration.PACKAGE.read_bytes())
    assert between("calibration.md", *calibration.MARKS) == calibration.page(result).strip()
    committed = calibration.DATA
    monkeypatch.setattr(calibration, "DATA", tmp_path)
    calibration.write_tables(make_calibration_tables(result))
    written = sorted(tmp_path.iterdir())
    assert len(written) == 8
    for path in written:
        assert path.read_text() == (committed / path.name).read_text(), path.name


def test_the_agreement_of_controls_is_that_of_the_verdicts(tool):
    calibration = tool("calibration")
    with (calibration.DATA / "verdicts.csv").open() as file:
        agrees = [row["agrees"] for row in csv.DictReader(file)]
    yes, no = agrees.count("yes"), agrees.count("NO")
    text = between("calibration.md", *calibration.MATRIX_MARKS)
    assert text.startswith(f"{yes} of {yes + no} verdicts are the expected ones")
    assert f"{no} exceptions" in text
    with (calibration.DATA / "exceptions.csv").open() as file:
        assert len(list(csv.DictReader(file))) == no


def test_parts_of_a_cell_have_columns_of_their_own(tool):
    table = TextTable(
        "t",
        ("name", "share", "cost", "least and largest"),
        (
            ("a", "9 of 10 [60%, 98%]", "unknown: 0.94 [0.11, 1.78], n 3", "0.05, 0.15"),
            ("b", "not known (n = 3)", "-", "-"),
        ),
    )
    header, *rows = csv.reader(tool("calibration").csv_text(table).splitlines())
    assert header == [
        *("name", "share", "share: of", "share: low", "share: high", "share: note"),
        *("cost", "cost: low", "cost: high", "cost: n", "cost: note", "least and largest"),
    ]
    assert rows == [
        ["a", "9", "10", "0.6", "0.98", "", "0.94", "0.11", "1.78", "3", "unknown", "0.05, 0.15"],
        ["b", "", "", "", "", "not known (n = 3)", "", "", "", "", "", ""],
    ]


@pytest.fixture
def run(tmp_path):
    """A folder as a study writes it: a step with numbers, a map, and a step that failed."""
    folder = tmp_path / "study"
    (folder / "results").mkdir(parents=True)
    rows = [
        TableRow(step="masking.all", name="top 3", what="change", value=-1 / 3, low=-1.0, high=0.5,
                 over="words", p=0.2, adjusted=0.4, n=12),
        TableRow(step="masking.all", name="top 3, top 5", what="rough", value=1.0),
    ]  # fmt: skip
    (folder / "table.csv").write_text(to_csv(rows))
    failure = StepFailure(problem="no heads", hint="give a sign")
    for step, text in (
        ("masking.all", "{}"),
        ("map.gender", head_map().to_json()),
        ("control.gender", failure.to_json()),
    ):
        (folder / "results" / f"{step}.json").write_text(text)
    return folder


def test_a_run_is_written_as_numbers_and_never_as_nothing(tool, run, monkeypatch, tmp_path):
    study_results = tool("study_results")
    page = tmp_path / "page.md"
    page.write_text(f"above\n{study_results.BEGIN}{study_results.END}below\n")
    monkeypatch.setattr(study_results, "DATA", tmp_path)
    monkeypatch.setattr(sys, "argv", ["study_results.py", str(page), str(run), "--write"])
    study_results.main()
    with (tmp_path / "study.csv").open() as file:
        rows = list(csv.DictReader(file))
    (change,) = [row for row in rows if row["step"] == "masking.all"]
    assert (change["value"], change["p"], change["over"]) == ("-0.3333", "0.4000", "words")
    (failed,) = [row for row in rows if row["step"] == "control.gender"]
    assert (failed["value"], failed["note"]) == ("", "inconclusive: no heads")
    effects = [row for row in rows if row["step"] == "map.gender" and row["number"] == "score"]
    assert len(effects) == sum(study_results.SHOWN_HEADS)
    text = page.read_text()
    assert f"| 3 | {len(rows) - 1} | control.gender |" in text
    assert text.startswith("above\n")
    assert text.endswith("below\n")


def test_a_failed_command_is_no_value_and_what_was_not_run_has_no_row(tool, tmp_path, monkeypatch):
    real_results = tool("real_results")
    monkeypatch.setattr(real_results, "RESULTS", tmp_path)
    (tmp_path / "seconds.jsonl").write_text(json.dumps({"run": "x", "seconds": 1.0}))
    result_set = next(iter(real_results.RESULT_SETS.values()))
    name, measures = next(iter(result_set.runs.items()))
    path = real_results.result_path(tmp_path, name, measures[0])
    path.with_suffix(real_results.FAILED).write_text("no value")
    texts = real_results.data_files(result_set, tmp_path)
    (row,) = csv.DictReader(texts["values"].splitlines())
    assert (row["measure"], row["value"], row["note"]) == (measures[0], "", "failed")
    assert "failed" in real_results.summary(texts["values"])


def test_measures_that_have_not_run_here_keep_their_rows(tool, tmp_path, monkeypatch):
    real_results = tool("real_results")
    monkeypatch.setattr(real_results, "RESULTS", tmp_path)
    result_set = real_results.ResultSet("page", {"a": ("m:groups=all", "n"), "b": ("m",)})
    path = real_results.result_path(tmp_path, "a", "n")
    path.with_suffix(real_results.FAILED).write_text("no value")
    data = tmp_path / "data" / "page"
    data.mkdir(parents=True)
    kept = [
        {"model": "b", "measure": "m", "value": "3"},
        {"model": "a", "measure": "n", "value": "2"},  # runs again
        {"model": "a", "measure": "m:groups=x+y", "value": "1"},
        {"model": "a", "measure": "no longer there", "value": "0"},
    ]
    with (data / "values.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, real_results.FILES["values"], restval="")
        writer.writeheader()
        writer.writerows(kept)
    rows = csv.DictReader(real_results.data_files(result_set, tmp_path)["values"].splitlines())
    assert [(row["model"], row["measure"], row["value"], row["note"]) for row in rows] == [
        ("a", "m:groups=x+y", "1", ""),
        ("a", "n", "", "failed"),
        ("b", "m", "3", ""),
    ]


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ({}, "**1 [0.5, 2]**"),
        ({"p": "0.2"}, "1 [0.5, 2]"),
        ({"mark": "†"}, "1 [0.5, 2] †"),
        ({"skill": "not shown"}, "1 [0.5, 2] §"),
        ({"skill": "shown"}, "**1 [0.5, 2]**"),
        ({"note": "older run"}, "1 [0.5, 2] ‡"),
        ({"parity": "0.3"}, "**1 [0.5, 2], parity 0.3**"),
    ],
)
def test_only_valid_tests_are_bold(tool, cells, text):
    row = {"value": "1", "low": "0.5", "high": "2", "parity": "0", "p": "0.01"}
    row |= {"mark": "", "note": ""}
    assert tool("real_results").summary_cell(row | cells) == text


def test_what_a_mitigation_could_not_compare_is_a_row(tool, tmp_path):
    report = MitigationReport(
        bias=(), price=(), unmeasured=(Unmeasured(measure="facts", reason="no item changed"),)
    )
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "mitigation.mask.json").write_text(report.to_json())
    (tmp_path / "table.csv").write_text(to_csv([]))
    (row,) = tool("study_results").run_rows(tmp_path)
    assert row == {
        "step": "mitigation.mask",
        "name": "facts",
        "note": "not compared: no item changed",
    }
