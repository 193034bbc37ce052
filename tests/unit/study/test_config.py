"""A study's file is read strictly."""

import pytest
import studies

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.study.config import read_study_config


def refused(folder, old, new):
    path = studies.study(folder)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(LevelheadError) as error:
        read_study_config(path)
    return error.value


def test_a_whole_study_is_read(tmp_path):
    plan = read_study_config(studies.study(tmp_path))
    assert plan.name == "tiny"
    assert plan.head_maps["gender"].splits == 3
    assert plan.measurements["all"].models == ("tiny",)


@pytest.mark.parametrize(
    ("old", "new", "what", "mend"),
    [
        (
            "greedy_candidates = 3",
            "greedi_candidates = 3",
            "head_maps.gender.greedi_candidates",
            "did you mean greedy_candidates",
        ),
        ("[measurements.all]", "[measurement.all]", "measurement", "did you mean measurements"),
        ("splits = 3", 'splits = "many"', "head_maps.gender.splits", "correct that value"),
        ("controls = 199", "controls = 99", "head_maps.gender.controls", "correct that value"),
        ('format = "levelhead-study-2"', 'format = "2"', "format", "correct that value"),
        ("[measures]", "[measures", "is not valid TOML", "correct that line"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_mend(tmp_path, old, new, what, mend):
    error = refused(tmp_path, old, new)
    assert what in error.problem
    assert mend in error.hint


def test_a_study_of_the_earlier_format_is_refused_in_words(tmp_path):
    error = refused(tmp_path, "levelhead-study-2", "levelhead-study-1")
    assert "earlier version" in error.problem
    assert 'format = "levelhead-study-2"' in error.hint


def test_names_must_be_in_the_study(tmp_path):
    error = refused(tmp_path, 'maps = ["gender", "again"]', 'maps = ["gender", "agian"]')
    assert isinstance(error, UnknownNameError)
    assert "map of the study" in error.problem
    assert "again" in error.hint
    assert "model of the study" in refused(tmp_path, 'model = "tiny"', 'model = "tini"').problem
    assert (
        "measure of the study" in refused(tmp_path, 'measure = "seat"', 'measure = "set"').problem
    )
    assert "there is no measure" in refused(tmp_path, '"seat:', '"saet:').problem


def test_a_metric_under_its_old_name_is_refused_with_the_new_one(tmp_path):
    error = refused(tmp_path, "[measures]", '[measures]\nold = "nli_parity:source=coal"')
    assert "'nli_parity' is a metric of the measure 'nli'" in error.problem
    assert "write 'nli:metric=nli_parity'" in error.hint
    error = refused(tmp_path, "[measures]", '[measures]\nold = "stereotype_score"')
    assert "write 'stereoset'" in error.hint


def test_only_our_variables_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_HERE", "somewhere")
    path = studies.study(tmp_path)
    text = path.read_text()
    plan = text.replace('path = "', 'path = "${LEVELHEAD_HERE}')
    path.write_text(plan)
    assert read_study_config(path).models["tiny"].path.startswith("somewhere")
    path.write_text(text.replace('path = "', 'path = "${HOME}'))
    with pytest.raises(LevelheadError, match="HOME"):
        read_study_config(path)
    monkeypatch.delenv("LEVELHEAD_HERE")
    path.write_text(plan)
    with pytest.raises(LevelheadError, match="LEVELHEAD_HERE is not set"):
        read_study_config(path)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(LevelheadError, match="cannot read"):
        read_study_config(tmp_path / "none.toml")
