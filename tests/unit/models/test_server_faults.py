"""Servers with faults: each gives a clear error or a successful retry, and never a value."""

import logging
import os
import threading
import time
from urllib.parse import urlsplit

import pytest
from faulty_server import TEXT, faulty_server, generated, reply

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.engine.scheduler import TasksFailedError
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.query_kinds import check_answerable
from levelhead.measures.responses import read_responses
from levelhead.models.generation.config import FINISH_REASONS, GenerationConfig
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.http_model import HttpModel
from levelhead.models.loading.open_model import open_model
from levelhead.models.serving import client as client_module
from levelhead.models.serving.budget import BudgetSpentError, TokenBudget
from levelhead.models.serving.served_model import UnsupportedOverHttpError
from levelhead.study.audit.audit import AuditSources, plan_core
from levelhead.study.steps.config import ModelSource

CHAT = ChatFormat("chat", system="Be short.", examples=(("Who works?", "The nurse."),))
CONFIG = GenerationConfig(max_tokens=8, stop=("\n",))


def generate(url, **options):
    ((text,),) = HttpModel(url, **options).generate(["Who is here?"], CONFIG, chat=CHAT)
    return text


def test_messages_and_settings_are_sent_and_the_text_is_read():
    with faulty_server(lambda number, body: reply(generated())) as (url, queries):
        text = generate(url)
        assert generate(url) == text
    assert text == (TEXT, (), "stop", 11, 5)
    assert text.n_tokens == 5
    (path, body, headers), (_, again, _) = [query for query in queries if query[1]]
    assert path == "/v1/chat/completions"
    assert body["messages"] == CHAT.messages("Who is here?")
    assert (body["model"], body["max_tokens"], body["stop"]) == ("small", 8, ["\n"])
    assert body["seed"] == again["seed"]
    assert "authorization" not in headers


def test_samples_have_seeds_of_their_own():
    with faulty_server(lambda number, body: reply(generated())) as (url, queries):
        HttpModel(url).generate(["Who?", "Where?"], CONFIG, n=3, chat=CHAT)
    assert len({body["seed"] for _, body, _ in queries if body}) == 6


@pytest.mark.parametrize(
    ("answer", "text", "reason"),
    [
        (generated(choice={"finish_reason": "length"}), TEXT, "length"),
        (generated(message={"content": ""}), "", "stop"),
        (generated(message={"content": None}), "", "no_text"),
        (
            generated(message={"content": None}, choice={"finish_reason": "length"}),
            "",
            "length",
        ),
        (generated(message={"content": None, "refusal": "I cannot."}), "I cannot.", "refusal"),
        (
            generated(message={"content": None}, choice={"finish_reason": "content_filter"}),
            "",
            "content_filter",
        ),
        (generated(choice={"finish_reason": None}), TEXT, "other"),
    ],
)
def test_texts_that_are_missing_are_data_with_their_reason(answer, text, reason):
    with faulty_server(lambda number, body: reply(answer)) as (url, _):
        result = generate(url)
    assert (result.text, result.finish_reason) == (text, reason)
    assert result.has_ended == (reason == "stop")


def test_a_prompt_that_a_filter_refuses_is_data_and_other_refused_requests_are_errors():
    refused = {"error": {"code": "content_filter", "message": "policy"}}
    with faulty_server(lambda number, body: reply(refused, status=400)) as (url, _):
        assert generate(url)[:3] == ("", (), "content_filter")
    other = {"error": {"message": "max_tokens is too large"}}
    with (
        faulty_server(lambda number, body: reply(other, status=400)) as (url, _),
        pytest.raises(LevelheadError, match=r"answers 400.*too large"),
    ):
        generate(url)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_busy_servers_are_asked_again(status):
    def answers(number, body):
        return reply(generated()) if number else reply(b"", status=status, headers=wait.items())

    wait = {"Retry-After": "1"} if status == 429 else {}
    with faulty_server(answers) as (url, queries):
        began = time.monotonic()
        assert generate(url).text == TEXT
    assert sum(query[1] is not None for query in queries) == 2
    if status == 429:
        assert time.monotonic() - began >= 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (reply({"error": "broken"}, status=500), "answers 500.*broken"),
        (reply(b""), "does not answer with JSON"),
        (reply(b"<html>Sign in</html>"), "does not answer with JSON.*<html>"),
        (reply(b'{"choices": "\xff\xfe"}'), "does not answer with JSON.*utf-8"),
        (reply(b"[1]"), "does not answer with a JSON object"),
        (reply(b'{"choices": ' + b"[" * 100_000), "does not answer with JSON"),
        (reply({"choices": []}), "without a generated text"),
        (reply(generated(choice={"message": 3})), "without a generated text"),
        ("hang", "did not answer within 0.5 s, 1 times"),
        ("trickle", "an answer without end"),
    ],
)
def test_faults_are_errors(answer, message):
    with (
        faulty_server(lambda number, body: answer) as (url, _),
        pytest.raises(LevelheadError, match=message),
    ):
        generate(url, max_retries=0, timeout=0.5)


def test_an_answer_without_end_is_cut(monkeypatch):
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 1 << 20)
    with (
        faulty_server(lambda number, body: "endless") as (url, queries),
        pytest.raises(LevelheadError, match="an answer without end"),
    ):
        generate(url, timeout=30)
    assert sum(query[1] is not None for query in queries) == 1  # not asked again


@pytest.mark.parametrize("value", ["NaN", "Infinity", "0.7", "null", "1e400", '"x"'])
def test_broken_log_probabilities_are_no_values(value):
    entries = f'[{{"id": 1, "logprob": -1.0}}, {{"id": 2, "logprob": {value}}}]'
    data = (
        '{"choices": [{"index": 0, "logprobs": {"content": [{"top_logprobs": ' + entries + "}]}}]}"
    )
    with (
        faulty_server(
            lambda number, body: reply(data.encode()),
            tokenize=lambda body: {"tokens": [len(word) for word in body["content"].split()]},
        ) as (url, _),
        pytest.raises(LevelheadError, match=r"log-probabilit|does not answer with JSON"),
    ):
        HttpModel(url).log_prob(["aa a"])


def test_what_only_generates_says_what_can_be_measured():
    with faulty_server(lambda number, body: reply(generated())) as (url, _):
        remote = HttpModel(url)
        for ask in (
            lambda: remote.fill(["The nurse is a [MASK]"], ["man"]),
            lambda: remote.log_prob(["The nurse is here."]),
            lambda: remote.choose(["Who?"], [[" he", " she"]]),
        ):
            with pytest.raises(NotMeasurableError, match=r"has no /tokenize.*fill, log_prob") as no:
                ask()
            assert "generated texts" in str(no.value)
        with pytest.raises(NotMeasurableError, match="continues no answer that is begun"):
            remote.generation_prompts(["Who?"], CHAT, "Answer:")
        assert remote.identity.name == "small"


def test_an_audit_of_what_only_generates_says_what_is_missing():
    with faulty_server(lambda number, body: reply(generated())) as (url, _):
        model = open_model(f"{url}#small")
        assert (model.model, model.url) == ("small", url)
        audit = plan_core(model, AuditSources(ModelSource(path=url)), budget=None)
        omitted = {skipped.name: skipped for skipped in audit.omitted}
        # Of measures whose data need no fetching.
        for name in ("cloze", "decision, by log-probabilities"):
            assert omitted[name].reason == "does not fit this model"
            assert "has no /tokenize: it cannot report the log-prob" in omitted[name].details
        # What the model writes is measured, and nothing else.
        measures = audit.study_config.measures
        assert measures.keys() & omitted.keys() == set()
        assert "generated_answers=true" in measures["decision"]
    with pytest.raises(LevelheadError, match="--edit has no effect"):
        open_model("http://127.0.0.1:9", edit="folder")


def test_queries_that_need_weights_are_refused_before_any_request():
    def query_set(kind, query):
        return QuerySet(kind, FrozenDict({}), ("i",), (MeasureItem("i", (query,), ("i",)),))

    remote = HttpModel("http://127.0.0.1:9")
    for kind, query in (("embed", ("a",)), ("put", ("a [MASK]", "b")), ("score", ("a", [(0, 1)]))):
        with pytest.raises(UnsupportedOverHttpError):
            check_answerable(remote, [query_set(kind, query)])


def test_another_model_in_the_middle_of_a_run_is_an_error():
    with (
        faulty_server(lambda number, body: reply(generated(model=f"v{number}"))) as (url, _),
        pytest.raises(LevelheadError, match=r"answered as 'v\d' and now as 'v\d'"),
    ):
        HttpModel(url).generate(["a", "b"], CONFIG, chat=CHAT)


def test_requests_are_sent_at_the_same_time_and_not_more_than_allowed():
    running, most, lock = 0, 0, threading.Lock()

    def answers(number, body):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1
        last = body["messages"][-1]["content"]
        return reply(generated(message={"content": last}))

    requests, calls = [f"question {i}" for i in range(12)], []
    with faulty_server(answers) as (url, _):
        remote = HttpModel(url, concurrency=3, progress=lambda *counts: calls.append(counts))
        texts = remote.generate(requests, CONFIG, chat=CHAT)
    assert [text.text for (text,) in texts] == requests  # in their order
    assert most == 3
    assert calls == [(i + 1, 12) for i in range(12)]


def test_the_first_error_ends_the_work():
    with (
        faulty_server(lambda number, body: reply({"error": "no"}, status=400)) as (url, queries),
        pytest.raises(LevelheadError, match="answers 400"),
    ):
        HttpModel(url, concurrency=2).generate(["a"] * 50, CONFIG, chat=CHAT)
    assert sum(query[1] is not None for query in queries) < 10


def test_a_budget_stops_a_run_that_resumes_from_its_store(tmp_path):
    settings = FrozenDict({"chat": CHAT.settings, **CONFIG.settings})
    items = tuple(MeasureItem(f"{i}", ((f"Who is {i}?", 0),), (f"{i}",)) for i in range(40))
    queries = QuerySet("generate", settings, ("items",), items)
    context = RunContext(store=str(tmp_path / "store"))
    with faulty_server(lambda number, body: reply(generated())) as (url, requests):
        # An answer costs 16 tokens; the estimate of its prompt, which it must fit in, is larger.
        budget = TokenBudget(max_tokens=25 * 16)
        with pytest.raises(TasksFailedError, match=r"\d of \d tasks failed") as stopped:
            read_responses(HttpModel(url, budget=budget), [queries], context=context)
        assert "the budget is spent" in str(stopped.value)
        first = sum(body is not None for _, body, _ in requests)
        assert budget.used.prompt + budget.used.completion <= budget.max_tokens
        (responses,) = read_responses(HttpModel(url), [queries], context=context)
        assert len(responses) == 40
        again = sum(body is not None for _, body, _ in requests) - first
        # Only the requests of the shard that was cut are repeated.
        assert 0 < again < 40
        assert 40 <= first + again < 40 + 16
    assert responses.values[:, 0].tolist() == [[5.0, FINISH_REASONS.index("stop"), 11.0]] * 40
    assert responses.texts == ((TEXT,),) * 40


def test_a_budget_of_money_counts_what_the_server_reports():
    budget = TokenBudget(max_cost=0.001, prompt_price=10.0, completion_price=40.0)
    with faulty_server(lambda number, body: reply(generated())) as (url, _):
        remote = HttpModel(url, budget=budget, concurrency=1)
        remote.generate(["a"], CONFIG, chat=CHAT)
        assert budget.cost == pytest.approx((11 * 10 + 5 * 40) / 1e6)
        with pytest.raises(BudgetSpentError, match=r"of 0\.001 in money in"):
            remote.generate(["b"] * 9, CONFIG, chat=CHAT)
    assert budget.cost <= 0.001
    with pytest.raises(LevelheadError, match="needs the price"):
        TokenBudget(max_cost=1.0)
    with pytest.raises(LevelheadError, match="negative"):
        TokenBudget(max_tokens=-1)


def test_the_key_is_in_no_log_error_or_provenance(caplog, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "of-another-server")
    caplog.set_level(logging.DEBUG)
    refused = reply({"error": "key sk-secret is invalid"}, status=401)
    with faulty_server(lambda number, body: refused) as (url, queries):
        remote = HttpModel(url, key="sk-secret")
        with pytest.raises(LevelheadError, match="answers 401") as error:
            remote.generate(["a"], CONFIG, chat=CHAT)
        assert "sk-secret" not in f"{error.value}{remote!r}{remote.settings}{caplog.text}"
        assert remote.content_hash == HttpModel(url).content_hash
        HttpModel(url).server  # noqa: B018
        sent = [headers for _, _, headers in queries]
    assert sent[1]["authorization"] == "Bearer sk-secret"
    assert not any("of-another-server" in str(headers) for headers in sent)
    with pytest.raises(LevelheadError, match="characters that a header cannot have") as error:
        HttpModel("https://example.org", key="sk-secret\n")
    assert "sk-secret" not in str(error.value)
    with pytest.raises(LevelheadError, match="contains a name or a password") as error:
        HttpModel("https://me:sk-secret@example.org")
    assert "sk-secret" not in str(error.value)


def test_no_proxy_sees_requests_to_this_machine(monkeypatch):
    with faulty_server(lambda number, body: reply(generated())) as (proxy, seen):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        for name in [name for name in os.environ if name.lower() == "no_proxy"]:
            monkeypatch.delenv(name)
        with faulty_server(lambda number, body: reply(generated())) as (url, queries):
            assert urlsplit(url).hostname == "127.0.0.1"
            generate(url, key="secret")
        assert queries
        assert not seen
