"""lm-evaluation-harness on a real model and on the same model edited."""

import json

import lm_eval
import pytest
from assets import asset, smollm2
from lm_eval.tasks import TaskManager

import levelhead.interop.lm_eval
from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import save_edits
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

TASK = """
task: rooms
dataset_path: json
dataset_kwargs:
  data_files: {{test: {path}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
metric_list:
  - metric: acc
  - metric: brier_score
"""
ROWS = [
    ("The capital of France is", [" Paris", " Berlin"], 0),
    ("Two and two are", [" five", " four"], 1),
    ("Fire is", [" hot", " cold"], 0),
    ("At night the sky is", [" green", " dark"], 1),
    ("Fish live in", [" water", " trees"], 0),
    ("A week has", [" nine days", " seven days"], 1),
]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    lines = [json.dumps({"text": a, "choices": b, "label": c}) for a, b, c in ROWS]
    (folder / "rooms.jsonl").write_text("\n".join(lines))
    (folder / "rooms.yaml").write_text(TASK.format(path=folder / "rooms.jsonl"))
    return folder


def scored(tasks, monkeypatch, **args):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tasks / "cache"))
    result = lm_eval.simple_evaluate(
        model=args.pop("model", "levelhead"),
        model_args=args,
        tasks=["rooms"],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        batch_size=4,
        device="cpu",
        bootstrap_iters=0,
    )
    return result["results"]["rooms"]


# SmolLM2 takes a quarter of a minute. The small model knows too little for a bound of its accuracy,
# and the harness's class forgets its beginning token; ours loads the exported weights, too.
@pytest.mark.parametrize(
    ("name", "baked", "least"),
    [("stories15m", "levelhead", 0), pytest.param("SmolLM2", "hf", 4 / 6, marks=pytest.mark.full)],
)
def test_an_edited_model_has_another_score_and_a_baked_one_the_same(
    name, baked, least, tasks, tmp_path, monkeypatch
):
    model = str(smollm2() if name == "SmolLM2" else asset("models", name))
    lm = load(model)
    sites = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]
    edit = HeadScale(sites, 0)
    save_edits([edit], tmp_path / "edit")
    lm.edited(edit).save_pretrained(tmp_path / "baked")
    base = scored(tasks, monkeypatch, pretrained=model)
    edited = scored(tasks, monkeypatch, pretrained=model, edit=str(tmp_path / "edit"))
    unedited = scored(
        *(tasks, monkeypatch),
        model=baked,
        pretrained=str(tmp_path / "baked"),
        dtype="float32",
    )
    brier = "brier_score,none"
    assert abs(edited[brier] - base[brier]) > 0.005
    assert edited[brier] == pytest.approx(unedited[brier], abs=1e-4)
    assert base["acc,none"] >= least


def test_the_beginning_token_that_a_tokenizer_forgets_is_there():
    model = str(asset("models", "stories15m"))
    lm = load(model)
    edited_lm = levelhead.interop.lm_eval.EditedLM(model)
    assert edited_lm.tok_encode("Once upon") == list(lm.tokens.encode(["Once upon"])[0].row.ids)
    assert edited_lm.tok_encode("Once upon")[0] == lm.tokens.bos == edited_lm.prefix_token_id
    assert lm.tokens.tokenizer("Once upon")["input_ids"][0] != lm.tokens.bos  # its own stays


def test_a_masked_model_is_refused(monkeypatch):
    import zoo

    with pytest.raises(LevelheadError, match="is no causal model"):
        levelhead.interop.lm_eval.EditedLM(str(zoo.folder("bert", "BertForPreTraining")))
