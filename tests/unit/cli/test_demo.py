"""`levelhead demo`: the first command a newcomer runs."""

import pytest
from command import levelhead
from typer.testing import CliRunner

from levelhead.cli import app


@pytest.mark.full  # the README's first block runs the quick one, too
@pytest.mark.parametrize(
    ("args", "detecting"), [([], "3 of 4 measures"), (["--full"], "4 of 4 measures")]
)
def test_the_demo_shows_the_planted_bias_and_none_where_there_is_none(args, detecting, tmp_path):
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo.html"), *args])
    assert result.exit_code == 0, result.output
    report = result.stdout
    lines = report[report.index("measure ") :].splitlines()
    assert lines[0].split()[:4] == ["measure", "planted", "value", "interval"]
    rows = [line.split() for line in lines[1:9]]
    assert [row[0] for row in rows[::2]] == ["seat", "cloze", "crows", "strength"]
    assert [row[2] for row in rows] == ["0", "1"] * 4
    assert "rho 0: 0 of 4 measures detect a bias" in report
    assert f"rho 1: {detecting} detect a bias" in report
    # After a short training the model lacks a skill: the measure is not counted, and why is shown.
    assert ("rho 1: inconclusive: strength: " in report) == (not args)
    assert ("--full" in report) == (not args)
    assert report.count("at best") == 6
    assert report.count("is stored in") == 2
    # The biased one edited: less of both, at a cost that is shown.
    edited = report[report.index("Edited model (rho 1)") :].splitlines()[2:5]
    assert [line.split(":")[0].strip() for line in edited] == ["strength", "seat", "pppl"]
    assert all(": nearer to parity" in line for line in edited[:2])
    page = (tmp_path / "demo.html").read_text()
    assert "detected by 3 of 4 tests" in page


def test_an_unknown_architecture_is_exit_3():
    result = levelhead("demo", "--architecture", "brt")
    assert result.returncode == 3
    assert "bert" in result.stderr
    assert "Traceback" not in result.stderr
