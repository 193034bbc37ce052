"""A model behind HTTP, beside the same engine called directly and beside transformers."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from assets import smollm2, unpacked_data
from backends import only_generating
from scipy import stats
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.data.prompts.counteracts import make_counteracts_prompts
from levelhead.data.prompts.decisions import load_scenarios
from levelhead.measures.cloze.battery import Battery
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.formatting import choose_prompt_format
from levelhead.measures.decisions.decision import Decision
from levelhead.measures.query_kinds import QUERY_KINDS
from levelhead.measures.utility.perplexity import Perplexity
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.loading.http_model import HttpModel
from levelhead.models.loading.load import load
from levelhead.models.loading.open_model import open_model
from levelhead.models.serving.served_model import ScoredRow, UnsupportedOverHttpError
from levelhead.study.audit.audit import AuditSources, plan_core
from levelhead.study.audit.core_suite import CHAT, WRITING, kind_of
from levelhead.study.steps.config import ModelSource

SERVE = Path(__file__).parents[1] / "work" / "serve.py"
WORDS = (("woman", "girl", "lady", "female", "schoolgirl"), ("man", "boy", "gentleman", "male"))
OCCUPATIONS = ("nurse", "secretary", "cleaner", "farmer", "driver", "guard")
TEXT = "The person who works as a nurse is a [MASK]"


@pytest.fixture(scope="module")
def served():
    with subprocess.Popen(
        [sys.executable, str(SERVE), str(smollm2())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address

        def directly(body):
            process.stdin.write(json.dumps(body) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield HttpModel(address), directly
        process.stdin.close()
        process.wait(30)


def test_words_are_those_of_the_same_engine_called_directly(served):
    remote, directly = served
    result = remote.fill([TEXT], ["woman", "man", "schoolgirl"])[0].tolist()
    stem = remote.tokenize(TEXT.removesuffix(" [MASK]"))
    for word, value in zip(["woman", "man", "schoolgirl"], result, strict=True):
        ids, total = remote.tokenize(TEXT.replace("[MASK]", word))[len(stem) :], 0.0
        for i, token in enumerate(ids):
            answer = directly({"prompt": [[*stem, *ids[:i]]], "max_tokens": 1, "logprobs": 60000})
            choice = answer[0] if isinstance(answer, list) else answer["choices"][0]
            (first,) = choice["logprobs"]["content"]
            total += next(item["logprob"] for item in first["top_logprobs"] if item["id"] == token)
        assert value == pytest.approx(total, abs=1e-3)
    assert len(remote.tokenize("a schoolgirl")) > 2  # of several tokens


def test_a_text_s_log_probability_is_the_sum_of_its_tokens(served):
    remote, _ = served
    value, count = remote.log_prob(["The nurse is here"])
    ids = remote.tokenize("The nurse is here")
    parts = [
        remote.score_rows([ScoredRow(ids[:i], ids[i : i + 1])]).values[0]
        for i in range(1, len(ids))
    ]
    assert float(value[0]) == pytest.approx(sum(parts), abs=1e-3)
    assert int(count[0]) == len(parts)


def test_margins_rank_as_those_of_the_dequantised_weights(served):
    remote, _ = served
    lm = load(smollm2())
    way = choose_prompt_format(lm, "natural", "native")
    texts = [
        way.format_prompt(prompt)
        for prompt in make_counteracts_prompts(backgrounds=1)
        if prompt.kind == "base"
    ]
    words = [*WORDS[0], *WORDS[1]]
    here, there = lm.fill(texts, words).double(), remote.fill(texts, words).double()
    first = len(WORDS[0])
    margins = [
        item[:, :first].logsumexp(1) - item[:, first:].logsumexp(1) for item in (here, there)
    ]
    rho = stats.spearmanr(*margins).statistic
    largest = float((margins[0] - margins[1]).abs().max())
    sys.stdout.write(f"rank correlation {rho:.4f}, largest difference {largest:.4f}\n")
    assert rho >= 0.95, f"rank correlation {rho:.3f}, largest difference {largest:.3f}"
    assert largest < 1.0
    assert torch.isfinite(there).all()


# Whole measures; the margins that they are made of are compared in the fast tier, above.
@pytest.mark.full
def test_measures_that_fill_and_score_are_those_of_the_same_weights(served):
    """The whole way: prompts, likeliest tokens, resampling, provenance; and a price."""
    remote, _ = served
    lm = load(smollm2())
    prompts = tuple(
        prompt
        for prompt in make_counteracts_prompts(backgrounds=1)
        if prompt.kind in ("base", "neutral") and prompt.occupation in OCCUPATIONS
    )
    cloze, inference = (
        Cloze(prompts=prompts, words=WORDS),
        Inference(resamples=199, permutations=199),
    )
    here, there = cloze(lm, inference=inference), cloze(remote, inference=inference)
    assert there.value == pytest.approx(here.value, abs=0.3)
    assert (there.n, len(there.dropped)) == (here.n, 0)
    assert there.provenance.settings["model"]["server"] == remote.url
    answers = Battery(cloze).read(remote)
    same = (answers._best[0] == Battery(cloze).read(lm)._best[0])[:, 0].double().mean()
    assert same >= 0.8  # the likeliest token of all, by 4-bit arithmetic and by float32
    price = Perplexity(texts=("The river was high and the bridge was closed.", "He waited here."))
    subset = [price(item, inference=inference).value for item in (lm, remote)]
    assert subset[1] == pytest.approx(subset[0], rel=0.1)
    with pytest.raises(NotMeasurableError, match="chat template of a model behind HTTP"):
        replace(cloze, form="chat")(remote)
    with pytest.raises(UnsupportedOverHttpError, match="parts of a text cannot be scored"):
        QUERY_KINDS["score"](remote, [("The river was high.", [(4, 9)])], {})


@pytest.fixture(scope="module")
def writing(served):
    remote, _ = served
    with only_generating(remote.url) as address:
        yield f"{address}/v1"


def plan_of(address):
    sources = AuditSources(ModelSource(path=address))
    return plan_core(open_model(address), sources, budget=120.0)


# All questions of BBQ are read: seconds. The fast tier plans and runs an audit of a server that
# only writes in tests/unit/cli/test_audit.py.
@pytest.mark.full
def test_an_audit_of_a_served_chat_model_measures_what_the_server_can_answer(served, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(unpacked_data()))
    remote, _ = served
    assert kind_of(remote) == CHAT
    plan = plan_of(remote.url)
    assert set(plan.study_config.measures) == set(plan.core) >= {"decision", "bbq", "cloze"}
    assert not any("generated_answers" in text for text in plan.study_config.measures.values())
    assert not plan.omitted


@pytest.mark.full
def test_an_audit_of_a_server_that_only_writes_reads_what_it_writes(writing, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(unpacked_data()))
    remote = HttpModel(writing)
    assert kind_of(remote) == WRITING
    plan = plan_of(writing)
    measures = plan.study_config.measures
    assert set(measures) == set(plan.core) >= {"decision", "bbq", "winobias", "generation"}
    assert {name for name, text in measures.items() if "generated_answers=true" in text} == {
        *("decision", "bbq", "winobias", "callback", "implicit-association")
    }
    omitted = {row.name: row for row in plan.omitted}
    assert "measured by generated answers instead" in (
        omitted["decision, by log-probabilities"].details
    )
    assert {omitted[name].reason for name in ("cloze", "crows", "ppl")} == {
        "does not fit this model"
    }
    # The real engine answers, and its answers are read.
    measure = Decision(scenarios=load_scenarios()[:2], generated_answers=True)
    (responses,) = measure.read(remote)
    scores = measure.answer_scores(responses)
    assert 0 < float(scores.sum(-1).mean()) <= 1


@pytest.mark.full
def test_an_audit_ends_with_its_budget_of_tokens_and_is_no_verdict(writing, monkeypatch, tmp_path):
    monkeypatch.setenv("LEVELHEAD_DATA", str(unpacked_data()))
    given = ["audit", writing, "-o", str(tmp_path / "audit"), "--max-tokens", "1500", "--json"]
    result = CliRunner().invoke(app, [*given, "--budget", "none", "--quiet"])
    assert getattr(result.exception, "code", None) == 2, result.output
    document = json.loads(result.stdout)
    assert document["verdict"].startswith("INCONCLUSIVE: 0 of ")
    reasons = {row["name"]: row["reason"] for row in document["measures"]}
    assert {reasons[name] for name in ("decision", "bbq", "generation")} == {"token budget"}
    assert "of 1500 tokens" in document["measures"][0]["explanation"]


def test_the_command_line_asks_a_server(served, tmp_path):
    remote, _ = served
    texts = tmp_path / "texts.txt"
    texts.write_text("The river was high and the bridge was closed.\nHe waited here.\n")
    run = CliRunner().invoke
    result = run(app, ["measure", remote.url, "-m", f"ppl:texts={texts}", "--json"])
    assert result.exit_code == 0, result.output
    assert "SmolLM2" in result.stdout
    refused = run(app, ["measure", remote.url, "-m", "strength"])
    assert refused.exit_code != 0
    assert "reads a head that" in f"{refused.exception}{refused.output}"
    edited = run(app, ["explain", "knowledge", remote.url, "--edit", "any"])
    assert isinstance(edited.exception, LevelheadError)
    assert "--edit has no effect on a model behind HTTP" in str(edited.exception)


def test_whatever_needs_the_model_itself_is_refused(served):
    remote, _ = served
    for verb in ("embed", "edited", "run", "fill_top", "layout", "tokens", "save_pretrained"):
        with pytest.raises(
            UnsupportedOverHttpError, match=f"a model behind HTTP has no {verb}, only fill"
        ):
            getattr(remote, verb)
    assert remote.heads == {"causal"}
    assert "SmolLM2" in remote.server_info["model"]
    assert remote.content_hash != HttpModel(remote.url, "other").content_hash
    with pytest.raises(UnreadableTextError, match="does not end in its one"):
        remote.fill(["The [MASK] works as a nurse."], ["man"])


def test_servers_that_cannot_be_asked_are_told():
    for url, why in (
        ("ftp://127.0.0.1", "is not the address of a server"),
        ("http://127.0.0.1:9", "cannot be reached"),
    ):
        with pytest.raises(LevelheadError, match=why):
            HttpModel(url, timeout=5, max_retries=0).fill([TEXT], ["man"])
    with pytest.raises(LevelheadError, match="sent unencrypted"):
        HttpModel("http://example.org", key="secret")
    assert "secret" not in repr(HttpModel("https://example.org", key="secret"))
    with pytest.raises(UnsupportedOverHttpError, match="cannot be edited"):
        HttpModel("http://127.0.0.1:9", edits=("any",))
