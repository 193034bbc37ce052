"""`levelhead locate` and `levelhead mitigate mask|scale`, as a user calls them."""

import pytest
import studies
from calibrations import AllFailed
from command import levelhead
from metric_cases import checkpoint, corpus

from levelhead.cli.locate import _show
from levelhead.locate.head_map import HeadMap
from levelhead.models.edits.files import load_edits

QUICK = ("--resamples", "99", "--permutations", "99")


@pytest.fixture(scope="module")
def measure(tmp_path_factory):
    words = studies.lexicon(tmp_path_factory.mktemp("words"))
    return f"seat:lexicon={words},targets=things,corpus={corpus()}"


@pytest.fixture(scope="module")
def heads(measure, tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    done = levelhead(
        "locate", checkpoint("seat"), "-m", measure, "--bias-direction", "+", *QUICK, "--store",
        folder / "store", "-o", folder / "heads.json", "--chart", folder / "heads.svg",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_a_map_by_a_measure_that_failed_says_so(heads, capsys, monkeypatch):
    result = HeadMap.from_json((heads[0] / "heads.json").read_bytes())
    for calibration, output in ((lambda: None, False), (AllFailed, True)):
        monkeypatch.setattr("levelhead.core.calibration.load_calibration", calibration)
        _show(result, details=False)
        assert ("seat \u2020 failed where the truth is known" in capsys.readouterr().out) is output


def test_a_map_is_shown_written_and_drawn(heads):
    folder, shown = heads
    result = HeadMap.from_json((folder / "heads.json").read_bytes())
    assert result.ranked_heads[0].label in shown
    assert "heads: layer-head, counted from 1" in shown
    assert "direction of bias: +: given, " in shown
    assert "for these words" in shown
    assert (folder / "heads.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("verb", "options", "factor"),
    [
        ("mask", ["--top", "2"], 0.0),
        ("mask", ["--positive"], 0.0),
        ("scale", ["--bottom", "1", "--factor", "2"], 2.0),
    ],
)
def test_an_edit_is_written_that_measure_takes(heads, tmp_path, verb, options, factor):
    folder, _ = heads
    done = levelhead("mitigate", verb, folder / "heads.json", *options, "-o", tmp_path / "edit")
    assert done.returncode == 0, done.stderr
    (edit,) = load_edits(tmp_path / "edit")
    result = HeadMap.from_json((folder / "heads.json").read_bytes())
    wanted = {"--top": result.positive_heads()[:2], "--positive": result.positive_heads()}
    assert set(edit.sites) == set(wanted.get(options[0], result.negative_heads()[:1]))
    assert edit.factor == factor
    assert "not known until measured" in done.stdout
    # The map was made in a few contexts: no head of it is confirmed, and nobody is left to guess.
    count = len(edit.sites)
    output = f"0 of {count} chosen heads are confirmed by ablation on held-out items"
    assert result.verdict == "0 confirmed"
    assert f"levelhead: warning: {output}" in done.stderr
    assert output in (tmp_path / "edit" / "README.md").read_text()


def test_which_heads_must_be_said(heads, tmp_path):
    folder, _ = heads
    for options in ([], ["--top", "1", "--positive"]):
        done = levelhead("mitigate", "mask", folder / "heads.json", *options, "-o", tmp_path / "e")
        assert done.returncode == 3
        assert "select heads by --top N" in done.stderr


def test_an_undetermined_sign_exits_2(measure, tmp_path):
    output = ("locate", checkpoint("seat"), "-m", measure, *QUICK, "--ablate-top", "none")
    done = levelhead(
        *output, "--top", "1", "-o", tmp_path / "heads.json", "--store", tmp_path / "s"
    )
    assert done.returncode == 2
    assert "sign undetermined" in done.stderr
    done = levelhead(
        "mitigate", "mask", tmp_path / "heads.json", "--top", "1", "-o", tmp_path / "e"
    )
    assert done.returncode == 2
    assert not (tmp_path / "e").exists()


def test_a_step_measure_exits_3_with_its_companion():
    done = levelhead("locate", checkpoint("crows"), "-m", "crows")
    assert done.returncode == 3
    assert "crows_margin" in done.stderr
