import json
import math

import numpy as np
import pytest
from calibrations import AllFailed
from command import levelhead
from metric_cases import INFERENCE, made, model
from scipy import stats

from levelhead.core.calibration import DAGGER_NOTE
from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.measures.robustness.measure_agreement import (
    agreement_from_csv,
    agreement_from_results,
    measure_agreement,
    spearman_interval,
)
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site


def table(**columns):
    rows = zip(*columns.values(), strict=True)
    return {str(i): dict(zip(columns, row, strict=True)) for i, row in enumerate(rows)}


def test_orders_that_are_alike_and_opposite():
    result = measure_agreement(table(a=range(8), b=np.exp(range(8)), c=range(8, 0, -1)))
    assert result.cell("a", "b").spearman == pytest.approx(1)
    assert result.cell("c", "a").spearman == pytest.approx(-1)
    assert result.cell("a", "b").interval.low > 0.5
    assert result.cell("a", "b").interval.high == pytest.approx(1)
    assert {cell.p.family for cell in result.cells} == {3}


def test_it_is_scipys_spearman_ties_and_all():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 30).tolist(), rng.normal(size=30).tolist()
    cell = measure_agreement(table(x=x, y=y)).cell("x", "y")
    exact = stats.spearmanr(x, y)
    assert cell.spearman == pytest.approx(exact.statistic)
    assert cell.p.value == pytest.approx(exact.pvalue, abs=0.03)
    assert cell.interval.low < cell.spearman < cell.interval.high


def test_the_interval_covers():
    """Normal pairs of known correlation: Spearman's own value lies inside 19 times in 20."""
    rng = np.random.default_rng(1)
    rho, n = 0.6, 20
    truth = 6 / math.pi * math.asin(rho / 2)
    inside = 0
    for _ in range(1000):
        x = rng.normal(size=n)
        y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=n)
        interval = spearman_interval(float(stats.spearmanr(x, y).statistic), n)
        inside += interval.low <= truth <= interval.high
    assert 0.92 <= inside / 1000 <= 0.98


def test_what_cannot_be_compared_is_said():
    rows = table(a=range(6), b=[1.0] * 6, c=[3, 1, 2, 5, 4, 6])
    rows["9"] = {"d": 1.0}
    result = measure_agreement(rows)
    assert [(cell.first, cell.second) for cell in result.cells] == [("a", "c")]
    assert "a and b: one of them is the same in every row" in result.notes
    assert "a and d: 0 rows have both, 5 are needed" in result.notes
    with pytest.raises(LevelheadError, match="not compared"):
        result.cell("a", "d")
    with pytest.raises(LevelheadError, match="no two measures"):
        measure_agreement(table(a=[1, 2, 3], b=[1, 2, 3]))
    with pytest.raises(LevelheadError, match="1 measures where"):
        measure_agreement(table(a=range(9)))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two measures on a tiny model with seven edits."""
    folder = tmp_path_factory.mktemp("results")
    lm = model("crows")
    for i in range(7):
        edited = lm.edited(HeadScale([Site("head_out", 1, i % 4)], 0.2 * i)) if i else lm
        rows = [made(name)(edited, inference=INFERENCE) for name in ("crows_margin", "cloze")]
        output = {"measurements": [row.model_dump() for row in rows], "comparisons": []}
        (folder / f"{i}.json").write_bytes(to_canonical_json(output))
    return folder


@pytest.fixture
def untried(monkeypatch):
    """As if no measure had been tried where the truth is known."""
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)


@pytest.mark.usefixtures("untried")
def test_results_of_measure_are_set_against_each_other(results):
    result = agreement_from_results([str(results)])
    assert result.n_rows == 7
    values = [json.loads(path.read_bytes())["measurements"] for path in sorted(results.iterdir())]
    columns = [[row[i]["value"] for row in values] for i in (0, 1)]
    cell = result.cell("crows_margin", "cloze")
    assert cell.spearman == pytest.approx(stats.spearmanr(*columns).statistic)
    assert cell.n == 7
    assert result.notes[0].startswith("7 rows of 1 models: edits of one model are not independent")
    assert dict(result.directions)["cloze"].startswith("above 0")
    completed = levelhead("measure", "--agreement", str(results))
    assert completed.returncode == 0
    assert "crows_margin" in completed.stdout
    full = levelhead("measure", "--agreement", str(results), "--json")
    assert json.loads(full.stdout)["cells"][0]["n"] == 7


def test_measures_that_failed_are_marked(results, monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    result = agreement_from_results([str(results)])
    assert result.measures == ("crows_margin \u2020", "cloze \u2020")
    assert result.notes[-1] == DAGGER_NOTE


@pytest.mark.usefixtures("untried")
def test_values_that_are_not_comparable_are_different_columns(results, tmp_path):
    lm = model("crows")
    other = made("crows_margin", protocol="meade")(lm, inference=INFERENCE)
    path = tmp_path / "other.json"
    path.write_bytes(to_canonical_json({"measurements": [other.model_dump()], "comparisons": []}))
    result = agreement_from_results([str(results), str(path)])
    assert set(result.measures) == {"crows_margin #1", "crows_margin #2", "cloze"}
    conflict = other.model_copy(update={"value": other.value + 1})
    second = tmp_path / "conflict.json"
    second.write_bytes(
        to_canonical_json({"measurements": [conflict.model_dump()], "comparisons": []})
    )
    with pytest.raises(LevelheadError, match="occurs twice"):
        agreement_from_results([str(results), str(path), str(second)])


def test_files_that_are_no_results_are_refused(tmp_path):
    with pytest.raises(LevelheadError, match="no result"):
        agreement_from_results([str(tmp_path)])
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(LevelheadError, match="was not written by"):
        agreement_from_results([str(tmp_path)])
    with pytest.raises(LevelheadError, match="cannot read"):
        agreement_from_csv(str(tmp_path / "none.csv"))
    (tmp_path / "b.csv").write_text("name,x,y\n" + "".join(f"m{i},{i},{i * i}\n" for i in range(6)))
    assert agreement_from_csv(str(tmp_path / "b.csv")).measures == ("x", "y")
    with pytest.raises(LevelheadError, match="no column 'z'"):
        agreement_from_csv(str(tmp_path / "b.csv"), ["x", "z"])
    table = str(tmp_path / "b.csv")
    for words in ([str(tmp_path), "-m", "x"], [table, "--agreement", table], [table, "a-model"]):
        assert levelhead("measure", "--agreement", *words).returncode == 3
