"""A study's file is read strictly."""

import pytest
import studies

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.study.config import read_plan


def refused(folder, old, new):
    path = studies.study(folder)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(LevelheadError) as error:
        read_plan(path)
    return error.value


def test_a_whole_study_is_read(tmp_path):
    plan = read_plan(studies.study(tmp_path))
    assert plan.name == "tiny"
    assert plan.maps["gender"].splits == 3
    assert plan.cells["all"].models == ("tiny",)


@pytest.mark.parametrize(
    ("old", "new", "what", "mend"),
    [
        ("greedy = 3", "greedi = 3", "maps.gender.greedi", "did you mean greedy"),
        ("[cells.all]", "[cell.all]", "cell", "did you mean cells"),
        ("splits = 3", 'splits = "many"', "maps.gender.splits", "mend that value"),
        ("controls = 199", "controls = 99", "maps.gender.controls", "mend that value"),
        ('format = "levelhead-study-1"', 'format = "2"', "format", "mend that value"),
        ("[measures]", "[measures", "is no TOML", "mend that line"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_mend(tmp_path, old, new, what, mend):
    error = refused(tmp_path, old, new)
    assert what in error.what
    assert mend in error.mend


def test_names_must_be_in_the_study(tmp_path):
    error = refused(tmp_path, 'maps = ["gender", "again"]', 'maps = ["gender", "agian"]')
    assert isinstance(error, UnknownName)
    assert "map of the study" in error.what
    assert "again" in error.mend
    assert "model of the study" in refused(tmp_path, 'model = "tiny"', 'model = "tini"').what
    assert "measure of the study" in refused(tmp_path, 'measure = "seat"', 'measure = "set"').what
    assert "there is no measure" in refused(tmp_path, '"seat:', '"saet:').what


def test_a_metric_under_its_old_name_is_refused_with_the_new_one(tmp_path):
    error = refused(tmp_path, "[measures]", '[measures]\nold = "nli_parity:source=coal"')
    assert "'nli_parity' is a metric of the measure 'nli'" in error.what
    assert "write 'nli:metric=nli_parity'" in error.mend
    error = refused(tmp_path, "[measures]", '[measures]\nold = "stereotype_score"')
    assert "write 'stereoset'" in error.mend


def test_only_our_variables_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_HERE", "somewhere")
    path = studies.study(tmp_path)
    text = path.read_text()
    plan = text.replace('path = "', 'path = "${LEVELHEAD_HERE}')
    path.write_text(plan)
    assert read_plan(path).models["tiny"].path.startswith("somewhere")
    path.write_text(text.replace('path = "', 'path = "${HOME}'))
    with pytest.raises(LevelheadError, match="HOME"):
        read_plan(path)
    monkeypatch.delenv("LEVELHEAD_HERE")
    path.write_text(plan)
    with pytest.raises(LevelheadError, match="LEVELHEAD_HERE is not set"):
        read_plan(path)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(LevelheadError, match="cannot read"):
        read_plan(tmp_path / "none.toml")
