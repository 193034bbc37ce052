"""The query kind `generate`: texts are stored with their numbers, and never generated again."""

import contextlib
import hashlib
import io
import os
import sys
from pathlib import Path

import killed_generation
import numpy as np
import pytest
import torch
import zoo
from ray_cluster import ray_cluster

from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.measures import query_kinds
from levelhead.measures.edit_sweep import read_all_variants
from levelhead.measures.generation import text_queries
from levelhead.measures.generation.text_queries import Answers
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.responses import (
    _decode_shard,
    encode_shard,
    read_responses,
)
from levelhead.models.edits.base import HeadScale
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

CONFIG = GenerationConfig(max_tokens=5)
PLAIN = ChatFormat("plain", system="a nurse works .", examples=(("the man is", "here"),))
REQUESTS = ("the doctor is", "a lazy man said that", "the river")


@pytest.fixture(scope="module")
def lm():
    return load(zoo.folder("llama", "LlamaForCausalLM"))


def query_set(requests=REQUESTS, *, n=3, config=CONFIG, chat=PLAIN, start="she"):
    settings = {**config.settings, "chat": chat.settings, "answer_start": start}
    items = tuple(
        MeasureItem(request, tuple((request, i) for i in range(n)), (request,), request[:1])
        for request in requests
    )
    return QuerySet("generate", FrozenDict(settings), ("requests",), items)


@pytest.fixture
def generated(monkeypatch):
    """How many texts each call generated."""
    original, counts = text_queries.in_process.generate_texts, []

    def counted(lm, prompts, sample_numbers, config):
        counts.append(len(prompts))
        return original(lm, prompts, sample_numbers, config)

    monkeypatch.setattr(text_queries.in_process, "generate_texts", counted)
    return counts


def test_texts_and_numbers_are_those_of_lm_generate(lm):
    (responses,) = read_responses(
        lm, [query_set()], context=RunContext(store="memory://generate-a")
    )
    prompts = [PLAIN.format_request(lm.tokens, request, "she") for request in REQUESTS]
    expected = lm.generate(prompts, CONFIG, n=3)
    assert responses.texts == tuple(tuple(t.text for t in texts) for texts in expected)
    assert responses.values.tolist() == [
        [[len(t.ids), t.has_ended, t.prompt_tokens] for t in texts] for texts in expected
    ]
    # What is selected keeps its texts.
    selected = responses.select(lambda item: item.group == "t")
    assert selected.texts == (responses.texts[0], responses.texts[2])
    assert read_responses(
        lm, [query_set(REQUESTS[:1])], context=RunContext(store="memory://generate-b")
    )[0].texts == (responses.texts[0],)


def test_stored_texts_are_never_generated_again(lm, tmp_path, generated, monkeypatch):
    passes = []
    monkeypatch.setattr(
        lm.layout.model,
        "forward",
        lambda *a, f=lm.layout.model.forward, **k: passes.append(1) or f(*a, **k),
    )
    context = RunContext(store=str(tmp_path))
    (first,) = read_responses(lm, [query_set()], context=context)
    assert generated == [9]
    n_passes = len(passes)
    assert n_passes == 5  # the prompt, and four more tokens
    (again,) = read_responses(lm, [query_set(REQUESTS)], context=context)
    assert (generated, len(passes)) == ([9], n_passes)
    assert again.texts == first.texts
    assert torch.equal(again.values, first.values)
    # Another setting, format or edit is another query.
    for other in (
        query_set(config=GenerationConfig(5, seed=1)),
        query_set(config=GenerationConfig(5, stop=("man",))),
        query_set(chat=ChatFormat("plain")),
        query_set(start=""),
    ):
        read_responses(lm, [other], context=context)
    edited = lm.edited(HeadScale([Site("head_out", 0, 0)], 0))
    read_responses(edited, [query_set()], context=context)
    assert generated == [9] * 6


def test_requests_that_cannot_be_answered_are_dropped_with_the_reason(lm):
    long = " ".join(["the man is"] * 17)
    (responses,) = read_responses(lm, [query_set((*REQUESTS, long, "the zebra"))])
    assert [item.id for item in responses.items] == list(REQUESTS)
    assert len(responses.texts) == 3
    reasons = {item.id: reason for item, reason in responses.dropped}
    assert "more tokens" in reasons[long]
    assert "vocabulary lacks" in reasons["the zebra"]


def test_texts_of_every_kind_survive_the_store():
    texts = ("", "two\nlines", 'quote " and \\', "na\u00efve \U0001f600", "\u2028\x00")
    values = torch.arange(15, dtype=torch.float64).view(5, 3)
    shard = _decode_shard(encode_shard(Answers(values, texts), {2: "too long"}, 0))
    assert shard.texts == texts
    assert shard.row_or_reason == (0, 1, "too long", 2, 3, 4)
    assert np.array_equal(shard.values, values)


def test_bytes_of_answers_without_texts_are_as_before():
    values = torch.tensor([[0.5, -1.0]])
    file = io.BytesIO()
    np.save(file, values.numpy())
    payload = encode_shard(Answers(values), {1: "a reason"}, 0)
    assert payload == b'{"dropped":{"1":"a reason"},"shrunk_to":null}\n' + file.getvalue()
    assert _decode_shard(payload).texts is None


def test_a_sweep_of_edits_has_the_texts_of_each_model(lm):
    sets = [(), (HeadScale([Site("head_out", 0, 0), Site("head_out", 2, 1)], 0),)]
    variants = read_all_variants(lm, query_set(), sets)
    for edits, variant in zip(sets, variants, strict=True):
        (alone,) = read_responses(
            lm.edited(*edits), [query_set()], context=RunContext(store="memory://generate-c")
        )
        assert variant.texts == alone.texts
        assert torch.equal(variant.values, alone.values)
    assert variants[0].texts != variants[1].texts


def test_generated_text_has_no_gradient_to_locate_by(lm):
    class Measure:
        name = "texts"

        def queries(self, lm):
            return (query_set(),)

    (responses,) = read_responses(lm, [query_set()])
    with pytest.raises(Exception, match="is of sampled text"):
        index_answers(lm, Measure(), responses)


def files_of(folder):
    """Hashes of all results that a run leaves; the lock and records of jobs are none."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((Path(folder) / "units").rglob("*"))
        if path.is_file()
    }


# In one process it takes 6 s, of which most are the imports of a process that is killed.
@pytest.mark.parametrize(
    ("who", "kills", "count"),
    [
        (killed_generation.HERE, 3, 30),
        pytest.param(killed_generation.HERE, 20, 180, marks=pytest.mark.full),
        # Minutes: the workers of every run import torch.
        pytest.param(killed_generation.PROCESSES, 20, 180, marks=pytest.mark.full),
        pytest.param("ray", 8, 90, marks=pytest.mark.full),
    ],
)
def test_kills_change_no_byte_and_nothing_stored_is_generated_again(
    tmp_path, monkeypatch, who, kills, count
):
    monkeypatch.setitem(query_kinds.QUERIES_PER_SHARD, "generate", killed_generation.PER_SHARD)
    model, folder, log = zoo.folder("llama", "LlamaForCausalLM"), tmp_path / "run", tmp_path / "log"
    arguments = [model, folder, log, str(count), str(kills)]
    with contextlib.ExitStack() as stack:
        if who == "ray":
            who = stack.enter_context(ray_cluster()).address
        runs, tasks = killed_generation.kill_runs(
            [sys.executable],
            [*arguments, who],
            os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert len(runs) == kills + 1

    lm, asked = load(model), killed_generation.query_set(count)
    assert tasks == killed_generation.list_tasks(lm, asked, RunContext().threads)
    n_tasks = len(set(tasks.values()))
    assert 0 < len(runs[-1][1]) < n_tasks  # the kills fell into work, and not after it
    # Nothing that was stored before a run is generated in it, and nothing twice in one run.
    _, n_stored, n_repeated, n_computed = killed_generation.check_log(runs, log, tasks)
    assert (n_stored, n_repeated) == (0, 0)
    # A kill costs at most the task that each worker was computing, and one that it had just ended.
    assert n_computed <= n_tasks + kills * 2 * killed_generation.ACTORS

    quiet = tmp_path / "quiet"
    (expected,) = read_responses(lm, [asked], context=RunContext(store=str(quiet)))
    assert files_of(folder) == files_of(quiet) != {}
    (resumed,) = read_responses(lm, [asked], context=RunContext(store=str(folder)))
    assert resumed.texts == expected.texts
    assert torch.equal(resumed.values, expected.values)
