"""Study files of the papers' own checkpoints: complete, planned and with every data set.

The checkpoints cannot be had in a test: each is replaced by a tiny model of its kind.
"""

import re
from pathlib import Path

import pytest
import zoo
from assets import unpacked_data

from levelhead.core.errors import LevelheadError
from levelhead.data.tasks import get_task_spec
from levelhead.measures.registry import parse_measure
from levelhead.study.config import read_study_config
from levelhead.study.session import StudySession
from levelhead.study.steps.kinds import make_steps

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "papers").glob("*/study-paper.toml"))
STAND_INS = {
    "google-bert/": ("bert", "BertForPreTraining"),
    "openai-community/gpt2": ("gpt2", "GPT2LMHeadModel"),
    "meta-llama/": ("llama", "LlamaForCausalLM"),
    "albert/": ("albert", "AlbertForMaskedLM"),
    "FacebookAI/": ("roberta", "RobertaForMaskedLM"),
}


def stand_in(path):
    """The tiny model of a checkpoint's kind."""
    (kind,) = (kind for prefix, kind in STAND_INS.items() if path.startswith(prefix))
    return str(zoo.folder(*kind))


def replaced(file, folder):
    """The study with its checkpoints replaced."""
    text = re.sub(
        r'^path = "(.*)"$', lambda hit: f'path = "{stand_in(hit[1])}"', file.read_text(), flags=re.M
    )
    target = folder / file.name
    target.write_text(re.sub(r"^paper_tables = .*\n", "", text, flags=re.M))
    return target


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.parent.name)
def test_every_step_of_a_paper_is_planned(file, tmp_path):
    published = read_study_config(file)
    assert not any("${" in model.path for model in published.models.values())
    config = read_study_config(replaced(file, tmp_path))
    session = StudySession(config, tmp_path / "out")
    names = [step.name for step in make_steps(session)]
    assert len(names) == len(set(names))
    known = set(names)
    for step in make_steps(session):
        assert set(step.after) <= known, step.name
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.parent.name)
def test_every_data_set_is_found(file, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(unpacked_data()))
    for name, spec in read_study_config(file).measures.items():
        assert parse_measure(spec).data, name


def test_yang2025_asks_what_the_paper_asks():
    config = read_study_config(ROOT / "papers" / "yang2025" / "study-paper.toml")
    assert {model.path for model in config.models.values()} == {
        "google-bert/bert-base-uncased",
        "openai-community/gpt2",
        "meta-llama/Llama-2-7b-hf",
        "meta-llama/Llama-2-7b-chat-hf",
    }
    (glue, _) = config.glue.values()
    assert len(glue.seeds) == 3
    assert config.map_comparisons["chat"].maps == ("llama2", "llama2-chat")


def test_all_nine_tasks_of_glue_can_be_selected():
    names = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
    lacking = set()
    for name in names:
        spec = get_task_spec(name)
        assert spec.sources("dev")
        if not spec.train:
            # The registry has no training part: an error names the columns of a file.
            with pytest.raises(LevelheadError, match="no train part") as error:
                spec.sources("train")
            assert "train=FILE" in error.value.hint
            lacking.add(name)
    assert lacking == {"sst2", "qnli", "qqp"}
