"""Queries that workers answer with a model that they load: the same bytes, under the same keys."""

import shutil

import pytest
import torch
import zoo

from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.prompts.decisions import load_scenarios
from levelhead.engine.executors.base import InProcess
from levelhead.engine.scheduler import TasksFailedError
from levelhead.measures.decisions.decision import Decision
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.responses import read_responses
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading import in_workers
from levelhead.models.loading.http_model import HttpModel
from levelhead.models.loading.in_workers import describe_source, load_source
from levelhead.models.loading.load import load
from levelhead.models.serving.vllm_model import VllmModel
from levelhead.models.sites import Site

REQUESTS = ("the doctor is", "a lazy man said that", "the river", "the zebra")
OPTIONS = ("quick", "tired and lazy")
PLAIN = ChatFormat("plain").settings


@pytest.fixture(autouse=True)
def empty_cache():
    """No model of another test is held."""
    in_workers._load_source.cache_clear()
    yield
    in_workers._load_source.cache_clear()


@pytest.fixture(scope="module")
def folder():
    return zoo.folder("llama", "LlamaForCausalLM")


def query_sets(config=GenerationConfig(max_tokens=5)):
    """Texts, with one request that cannot be read, and chosen options."""
    texts = tuple(
        MeasureItem(name, ((name, 0), (name, 1)) if config.temperature else ((name, 0),), (name,))
        for name in REQUESTS
    )
    chosen = tuple(MeasureItem(name, ((name, OPTIONS),), (name,)) for name in REQUESTS)
    settings = {"chat": PLAIN, "answer_start": ""}
    return [
        QuerySet("generate", FrozenDict({**settings, **config.settings}), ("requests",), texts),
        QuerySet("choose", FrozenDict(settings), ("requests",), chosen),
    ]


def stored(lm, store, **given):
    """The responses, and every result's bytes by key."""
    responses = read_responses(lm, query_sets(), context=RunContext(store=str(store), **given))
    files = {
        path.name: path.read_bytes() for path in (store / "units").rglob("*") if path.is_file()
    }
    assert files
    return responses, files


def edits():
    return (
        HeadScale([Site("head_out", 0, 0), Site("head_out", 2, 3)], 0.5),
        Projection(Site("block_out", 1), torch.eye(24)[:2]),
    )


@pytest.mark.parametrize("is_edited", [False, True])
def test_stored_bytes_are_those_of_this_process(folder, tmp_path, is_edited):
    lm = load(folder, batch_size=3)
    lm = lm.edited(*edits()) if is_edited else lm
    here, files = stored(lm, tmp_path / "here")
    there, there_files = stored(lm, tmp_path / "there", executor=InProcess())
    assert there_files == files
    for one, other in zip(here, there, strict=True):
        assert one.texts == other.texts
        assert torch.equal(one.values, other.values)
        assert one.dropped == other.dropped != ()
    # What one of them stored, the other does not compute again.
    again, _ = stored(lm, tmp_path / "here", executor=NoExecutor())
    assert again[0].texts == here[0].texts


class NoExecutor:
    """Computes nothing, and must not be called with a task."""

    def run(self, tasks, *, cancel):
        assert tasks == []
        return iter(())


def test_a_measure_runs_in_workers(folder, tmp_path, monkeypatch):
    lm = load(folder)
    loads = []
    monkeypatch.setattr(in_workers, "load", lambda *a, **k: loads.append(k) or load(*a, **k))
    measure = Decision(scenarios=load_scenarios()[:1])
    inference = Inference(resamples=99, permutations=99)
    context = RunContext(executor=InProcess(), store=str(tmp_path))
    with pytest.raises(LevelheadError, match="none of"):  # the tiny model does not know the words
        measure(lm, inference=inference, context=context)
    assert len(loads) == 1  # one model, however many tasks


@pytest.mark.parametrize(
    ("family", "model_class", "options"),
    [
        ("llama", "LlamaForCausalLM", {}),
        ("llama", "LlamaForCausalLM", {"dtype": "float64", "batch_size": 2}),
        ("llama", "LlamaForCausalLM", {"bos": "tokenizer"}),
        ("gpt2", "GPT2LMHeadModel", {"bos": "always"}),
        ("gpt2", "GPT2LMHeadModel", {}),
        ("bert", "BertForPreTraining", {}),
    ],
)
def test_a_worker_loads_an_equal_model(family, model_class, options):
    lm = load(zoo.folder(family, model_class), **options)
    again = load_source(describe_source(lm))
    assert again.settings == lm.settings
    assert again.content_hash == lm.content_hash
    assert again is load_source(describe_source(lm))


def test_edits_arrive_with_their_tensors(folder):
    lm = load(folder).edited(*edits())
    source = FrozenDict(dict(describe_source(lm)))
    again = load_source(source)
    assert [edit.content_hash for edit in again.edits] == [edit.content_hash for edit in edits()]
    assert again.content_hash == lm.content_hash


def test_another_model_is_refused(folder, tmp_path):
    merged = load(folder).edited(edits()[0]).merged()
    with pytest.raises(TasksFailedError, match="loads another model") as error:
        stored(merged, tmp_path / "merged", executor=InProcess())
    assert "save_pretrained" in str(error.value.failures[0].reason)

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    lm = load(copy)
    assert lm.content_hash  # computed before the files change
    zoo.built("llama", "LlamaForCausalLM", seed=1).save_pretrained(copy)
    with pytest.raises(TasksFailedError, match="loads another model"):
        stored(lm, tmp_path / "changed", executor=InProcess())


def test_a_model_behind_http_has_no_workers():
    with pytest.raises(LevelheadError, match="one process, which sends requests in parallel"):
        describe_source(HttpModel("http://127.0.0.1:1"))


def test_a_model_in_vllm_is_described_without_its_engine(folder):
    options = FrozenDict({"enforce_eager": True, "sizes": [1, 2]})
    model = VllmModel(str(folder), dtype="bfloat16", max_length=64, engine_options=options)
    assert load_source(describe_source(model)) == model
