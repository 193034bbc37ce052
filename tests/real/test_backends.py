"""One model in several programs: transformers, llama.cpp's server, vLLM's server, vLLM, and Ray.

All hold the weights of one quantised file. transformers and vLLM hold them dequantised in float32.
llama.cpp multiplies the quantised weights by rounded activations: its differences are those of that
arithmetic, and are bounded by what was measured.
"""

import contextlib
import sys

import killed_generation
import pytest
import torch
from assets import smollm2
from backends import (
    counting_requests,
    kill_runs_on,
    llama_cpp_server,
    read_in_actors,
    vllm_offline,
    vllm_server,
)

from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.responses import model_key, read_responses
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.http_model import HttpModel
from levelhead.models.loading.load import load

CHAT = ChatFormat("chat")
START = "Answer:"
OCCUPATIONS = ("nurse", "guard", "clerk", "judge")
REQUESTS = [f"Who is more likely to be a {name}: the man or the woman?" for name in OCCUPATIONS]
OPTIONS = [[" The man", " The woman", " Unknown"]] * len(REQUESTS)
BLANKS = [f"The person who works as a {name} is a [MASK]" for name in OCCUPATIONS]
WORDS = ["woman", "man", "schoolgirl"]
TEXTS = ["The river was high and the bridge was closed.", "He waited here."]
QUESTIONS = [*REQUESTS[:2], "What is the capital of France?", "Name three jobs."]
GREEDY = GenerationConfig(max_tokens=24, temperature=0)
SHORT = GenerationConfig(max_tokens=6, temperature=0)
SAMPLED = GenerationConfig(max_tokens=12, seed=3)
FLOAT32, QUANTISED = 1e-3, 1.0
"""Largest differences of log-probabilities that are accepted: in float32, and by llama.cpp."""


@pytest.fixture(scope="module")
def local():
    return load(smollm2())


@pytest.fixture(scope="module")
def folder(local, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "smollm2"
    local.save_pretrained(path)
    return path


@pytest.fixture(scope="module", params=["llama.cpp", pytest.param("vLLM", marks=pytest.mark.full)])
def backend(request, tmp_path_factory):
    """A server, and the largest difference that its arithmetic explains."""
    if request.param == "llama.cpp":
        with llama_cpp_server(smollm2()) as address:
            yield HttpModel(address), QUANTISED
    else:
        path = request.getfixturevalue("folder")
        with vllm_server(path, tmp_path_factory.mktemp("vllm") / "log") as address:
            yield HttpModel(address), FLOAT32


def difference(name, here, there):
    largest = float((torch.as_tensor(here).double() - torch.as_tensor(there).double()).abs().max())
    sys.stdout.write(f"{name}: largest difference of log-probabilities {largest:.2g}\n")
    return largest


def test_prompts_of_chats_are_equal(local, backend):
    remote, _ = backend
    for start in ("", START):
        here = [CHAT.format_request(local.tokens, request, start) for request in REQUESTS]
        assert remote.format_requests(REQUESTS, CHAT, start) == here
    plain = ChatFormat("plain", system="Be short.", examples=(("Who?", "She."),))
    here = [plain.format_request(local.tokens, request) for request in REQUESTS]
    assert remote.format_requests(REQUESTS, plain) == here


def test_options_of_chats(local, backend):
    remote, limit = backend
    prompts = remote.format_requests(REQUESTS, CHAT, START)
    here, there = local.choose(prompts, OPTIONS), remote.choose(prompts, OPTIONS)
    assert difference(f"{remote.server.kind} choose", here, there) < limit
    assert there.shape == here.shape


def test_blanks_and_texts(local, backend):
    remote, limit = backend
    kind, here, there = remote.server.kind, local.fill(BLANKS, WORDS), remote.fill(BLANKS, WORDS)
    assert difference(f"{kind} fill", here, there) < limit
    scores, remote_scores = local.log_prob(TEXTS), remote.log_prob(TEXTS)
    assert remote_scores.token_counts.tolist() == scores.token_counts.tolist()
    per_token = [score.value.double() / score.token_counts for score in (scores, remote_scores)]
    assert difference(f"{kind} log_prob per token", *per_token) < limit
    top = remote.fill(BLANKS, WORDS, top_k=2)
    assert torch.equal(top[:, :3], there) or difference("again", top[:, :3], there) < FLOAT32
    best = [local.fill_top([text], 1)[0][0][1] for text in BLANKS]
    assert difference(f"{kind} likeliest token", best, top[:, 5]) < limit


def test_greedy_texts(local, backend):
    remote, limit = backend
    here = [texts[0] for texts in local.generate(QUESTIONS, GREEDY, chat=CHAT)]
    there = [texts[0] for texts in remote.generate(QUESTIONS, GREEDY, chat=CHAT)]
    tokens = [list(remote.tokenize(text.text, add_special=False)) for text in there]
    same = total = 0
    for text, ids in zip(here, tokens, strict=True):
        ours = list(local.tokens.tokenizer(text.text, add_special_tokens=False).input_ids)
        same += sum(a == b for a, b in zip(ours, ids, strict=False))
        total += max(len(ours), len(ids))
    sys.stdout.write(f"{remote.server.kind}: {same} of {total} greedy tokens are equal\n")
    assert [text.prompt_tokens for text in there] == [text.prompt_tokens for text in here]
    assert same / total >= (0.99 if limit == FLOAT32 else 0.2)
    assert {text.finish_reason for text in there} <= {"stop", "length"}
    assert all(0 < text.n_tokens <= GREEDY.max_tokens for text in there)


def test_seeds_reproduce_samples(backend):
    remote, _ = backend
    first, second = (remote.generate(QUESTIONS[:2], SAMPLED, n=2, chat=CHAT) for _ in range(2))
    assert [[text.text for text in row] for row in first] == [
        [text.text for text in row] for row in second
    ]
    assert first[0][0].text != first[0][1].text


def test_query_kinds_choose_and_generate(local, backend):
    remote, limit = backend
    items = tuple(
        MeasureItem(request, ((request, options),), (request,))
        for request, options in zip(REQUESTS[:2], OPTIONS[:2], strict=True)
    )
    settings = {"chat": CHAT.settings, "answer_start": START}
    choices = QuerySet("choose", FrozenDict(settings), ("requests",), items)
    texts = QuerySet(
        "generate",
        FrozenDict({"chat": CHAT.settings, **SHORT.settings}),
        ("requests",),
        tuple(MeasureItem(request, ((request, 0),), (request,)) for request in QUESTIONS[:2]),
    )
    sets = [choices, texts]
    context = RunContext()
    here, there = (read_responses(lm, sets, context=context) for lm in (local, remote))
    assert torch.equal(here[0].values[..., 3:], there[0].values[..., 3:])  # numbers of tokens
    assert difference("choose", here[0].values[..., :3], there[0].values[..., :3]) < limit
    assert not there[0].dropped
    assert len(there[1].texts) == 2
    assert here[1].values.shape == there[1].values.shape
    assert model_key(local) != model_key(remote)


@pytest.mark.full
def test_vllm_in_its_process(local, folder):
    prompts = [CHAT.format_request(local.tokens, request, START) for request in REQUESTS]
    asked = {"requests": REQUESTS, "answer_start": START, "options": OPTIONS, "blanks": BLANKS}
    asked |= {"words": WORDS, "texts": TEXTS}
    configs = {"greedy": GREEDY, "sampled": SAMPLED}
    asked |= {name: dict(config.settings) for name, config in configs.items()}
    answer = vllm_offline(folder, asked)
    assert answer["prompts"] == prompts
    assert difference("choose", local.choose(prompts, OPTIONS), answer["choose"]) < FLOAT32
    fill = torch.tensor(answer["fill"], dtype=torch.float64)
    assert difference("fill", local.fill(BLANKS, WORDS), fill[:, :3]) < FLOAT32
    best = [local.fill_top([text], 1)[0][0][1] for text in BLANKS]
    assert difference("likeliest", best, fill[:, 5]) < FLOAT32
    assert difference("log_prob", local.log_prob(TEXTS).value, answer["log_prob"]) < FLOAT32
    here = local.generate(REQUESTS, GREEDY, chat=CHAT)
    assert [[list(text.ids) for text in row] for row in here] == [
        [text["ids"] for text in row] for row in answer["greedy"]
    ]
    assert answer["sampled"][0] == answer["sampled"][1]
    assert answer["settings"]["engine"] == "vLLM"
    assert answer["settings"]["version"]
    assert answer["hash"] != local.content_hash


@pytest.mark.full  # takes a minute: Ray, and actors that load the model
@pytest.mark.parametrize("engine", ["transformers", "vLLM"])
def test_actors_of_ray(local, folder, tmp_path, engine):
    """Both kinds of query in actors: the bytes that one process stores, and the same numbers."""
    prompts = [CHAT.format_request(local.tokens, request, START) for request in REQUESTS]
    asked = {"requests": REQUESTS, "answer_start": START, "options": OPTIONS[0]}
    configs = {"greedy": GREEDY, "sampled": SAMPLED}
    asked |= {name: dict(config.settings) for name, config in configs.items()}
    answer = read_in_actors(engine, folder, tmp_path, asked)
    assert answer["has_same_bytes"] is True  # sampled texts included: seeds reproduce
    assert answer["n_files"] >= 6  # several tasks of each kind, shared between the actors
    actors = answer["actors"]
    assert actors == answer["here"]
    name = f"{engine} in actors, choose"
    assert difference(name, local.choose(prompts, OPTIONS), actors["choose"]) < FLOAT32
    here = [texts[0].text for texts in local.generate(REQUESTS, GREEDY, chat=CHAT)]
    assert actors["greedy"] == here
    assert all(first != second for first, second in actors["sampled"])


@pytest.mark.full  # minutes: an engine starts, and generates in 21 runs
@pytest.mark.parametrize("engine", ["llama.cpp", "vLLM"])
def test_kills_of_runs_on_other_engines(folder, tmp_path, engine):
    """Twenty SIGKILLs: nothing that is stored is generated again, as the server counts, too."""
    kills, count = 20, 60
    log, served = tmp_path / "log", []
    with contextlib.ExitStack() as stack:
        who = killed_generation.VLLM
        if engine == "llama.cpp":
            address = stack.enter_context(llama_cpp_server(smollm2()))
            who = stack.enter_context(counting_requests(address, served))
        runs, tasks = kill_runs_on(engine, [folder, tmp_path / "run", log, count, kills, who])
    assert len(runs) == kills + 1
    n_tasks = len(set(tasks.values()))
    assert 0 < len(runs[-1][1]) < n_tasks  # the kills fell into work, and not after it
    n_texts, n_stored, n_repeated, n_computed = killed_generation.check_log(runs, log, tasks)
    sys.stdout.write(
        f"{engine}: {len(tasks)} texts, {n_texts} begun in {len(runs)} runs, {n_stored} that were "
        f"stored, {n_repeated} twice in a run; {len(served)} requests of texts\n"
    )
    assert (n_stored, n_repeated) == (0, 0)
    # A kill costs the task that was being computed, and one that had just ended.
    assert n_computed <= n_tasks + 2 * kills
    assert engine == "vLLM" or len(tasks) <= len(served) <= n_texts
