"""Where a training lies until it is done."""

import json

import pytest
import zoo

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash
from levelhead.engine.leases import FolderInUseError
from levelhead.models.export.save import RECORD_FILE
from levelhead.models.training.resumable import (
    COMPLETE_MARKER,
    is_finished,
    latest_checkpoint,
    publish_model,
    start_or_resume,
)

PLAN = {"base": "a", "seed": 1, "folded": ()}


def test_it_is_gone_at_the_end_and_stays_after_an_error(tmp_path):
    goal, place = tmp_path / "goal", tmp_path / "goal.unfinished"
    with pytest.raises(KeyboardInterrupt), start_or_resume(goal, PLAN):
        raise KeyboardInterrupt
    assert (place / RECORD_FILE).read_bytes() == to_canonical_json(PLAN)
    other = start_or_resume(goal, PLAN | {"seed": 2})
    with pytest.raises(LevelheadError, match="another base, other texts") as error, other:
        pass
    assert error.value.hint.startswith("resume it with the settings it started with")
    with start_or_resume(goal, PLAN) as again:
        assert again == place
        with pytest.raises(FolderInUseError), start_or_resume(goal, PLAN):
            pass
    assert not place.exists()


def test_a_finished_folder_is_known_by_its_plan_and_its_weights(tmp_path):
    made, goal = tmp_path / "made", tmp_path / "goal"
    zoo.built("bert", "BertModel").save_pretrained(made)
    assert not is_finished(goal, PLAN)
    publish_model(made, goal, PLAN)
    assert not made.exists()
    output = json.loads((goal / RECORD_FILE).read_text())
    weights = {"model.safetensors": file_hash(goal / "model.safetensors")}
    assert output == {"base": "a", "seed": 1, "folded": [], "weights": weights}
    assert is_finished(goal, PLAN)
    assert not is_finished(goal, PLAN | {"seed": 2})
    with (goal / "model.safetensors").open("ab") as file:
        file.write(b"x")
    assert not is_finished(goal, PLAN)


def test_the_last_whole_checkpoint_by_number(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    for step in (20, 100, 200):
        (tmp_path / f"checkpoint-{step}").mkdir()
    for step in (20, 100):
        (tmp_path / f"checkpoint-{step}" / COMPLETE_MARKER).touch()
    assert latest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-100")
    assert not (tmp_path / "checkpoint-200").exists()
