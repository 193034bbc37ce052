"""Servers that answer wrongly: real HTTP on this machine, by the standard library."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
from serving import running

from levelhead.core.errors import LevelheadError
from levelhead.data.prompts.counteracts import make_counteracts_prompts
from levelhead.engine.scheduler import TasksFailedError
from levelhead.measures.cloze.cloze import Cloze
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.loading.http_model import HttpModel

VOCABULARY = 2000
TEXT = "a b c [MASK]"


def tokens(text):
    """A word is a token, by its letters; "ab-cd" is two."""
    words = text.replace("-", " -").split()
    return [
        sum(ord(letter) * 31**i for i, letter in enumerate(word)) % VOCABULARY for word in words
    ]


def logprob(row, token):
    return -1.0 - (sum(row) * 7 + token * 13) % VOCABULARY / 100


def choice(index, row, count):
    """The `count` likeliest tokens after a row."""
    result = sorted(((logprob(row, i), i) for i in range(VOCABULARY)), reverse=True)[:count]
    best = [{"id": i, "logprob": value} for value, i in result]
    return {"index": index, "logprobs": {"content": [{"top_logprobs": best}]}}


@contextmanager
def server(*, cap=VOCABULARY, changed=lambda choices: choices, behind=(), status=200, to=None):
    """A server with faults, until the block ends; what it was asked."""
    queries = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            self.send_error(404)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            queries.append((self.path, body, self.headers.get("Authorization")))
            if to is not None:
                self.send_response(302)
                self.send_header("Location", to)
                self.end_headers()
                return
            if self.path == "/tokenize":
                answer = {"tokens": [*tokens(body["content"]), *behind]}
            else:
                count = min(body["logprobs"], cap)
                rows = enumerate(body["prompt"])
                answer = {"choices": changed([choice(i, row, count) for i, row in rows])}
            if status != 200:
                answer = {"error": self.headers.get("Authorization")}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

    with running(Handler) as address:
        yield address, queries


def test_answers_are_put_in_order_and_few_requests_are_made():
    with server(changed=lambda choices: choices[::-1]) as (url, queries):
        result = HttpModel(url).fill([TEXT], ["dd", "x-y", "x-z"], top_k=3)[0].tolist()
    stem, x = tokens("a b c"), tokens("x")
    for value, word in zip(result, ("dd", "x-y", "x-z"), strict=False):
        first, *second = tokens(word)
        rest = sum(logprob([*stem, *x], token) for token in second)
        assert value == pytest.approx(logprob(stem, first) + rest)
    assert result[6:] == sorted(result[6:], reverse=True)
    assert [logprob(stem, int(token)) for token in result[3:6]] == pytest.approx(result[6:])
    sent = [len(body["prompt"]) for path, body, _ in queries if path != "/tokenize"]
    assert sent in ([2], [2, 1], [2, 1, 1])  # both places at once; all tokens one by one if need be


@pytest.mark.parametrize(
    "changed",
    [
        lambda choices: [choice | {"index": 0} for choice in choices[::-1]],
        lambda choices: choices[:1],
        lambda choices: [
            {name: choice[name] for name in choice if name != "index"} for choice in choices
        ],
        lambda choices: [choice | {"logprobs": None} for choice in choices],
    ],
)
def test_answers_of_which_it_is_not_known_whose_they_are(changed):
    with (
        server(changed=changed) as (url, _),
        pytest.raises(LevelheadError, match="does not report log"),
    ):
        HttpModel(url).fill([TEXT], ["dd", "x-y"])


def base_prompts():
    """Some of the prompts of cloze: a request each takes a while."""
    prompts = [p for p in make_counteracts_prompts(backgrounds=1) if p.kind == "base"]
    return tuple(prompts[::8])


def test_what_is_not_reported_is_an_error_and_drops_no_prompt():
    """A measure of the prompts whose words happen to be likely would be one of the outcome."""
    prompts = base_prompts()
    words = (("woman", "girl"), ("man", "boy"))
    with server() as (url, _):
        assert not Cloze(prompts=prompts, words=words)(HttpModel(url)).dropped
    with server(cap=500) as (url, _), pytest.raises(TasksFailedError, match="reports 500 next"):
        Cloze(prompts=prompts, words=words)(HttpModel(url))


def test_nothing_is_kept_from_one_object_to_the_next():
    prompts = base_prompts()
    cloze = Cloze(prompts=prompts, words=(("woman",), ("man",)))
    with server() as (url, queries):
        first, second = HttpModel(url), HttpModel(url)
        cloze(first)
        before = len(queries)
        cloze(first)
        assert len(queries) == before
        cloze(second)
        assert len(queries) > before + len(prompts)


def test_a_key_goes_nowhere_else():
    with server() as (other, seen), server(to=f"{other}/v1/completions") as (url, _):
        with pytest.raises(LevelheadError, match="answers 302"):
            HttpModel(url, key="secret").fill([TEXT], ["dd"])
        assert not seen
    with server(status=401) as (url, queries):
        with pytest.raises(LevelheadError, match="answers 401") as output:
            HttpModel(url, key="secret").fill([TEXT], ["dd"])
        assert queries[0][2] == "Bearer secret"
        assert "secret" not in str(output.value)


def test_tokens_behind_every_text_are_refused():
    with (
        server(behind=(7,)) as (url, _),
        pytest.raises(LevelheadError, match="appends tokens to every text"),
    ):
        HttpModel(url).log_prob(["a b c"])


def test_texts_without_anything_before_them_cannot_be_scored():
    with server() as (url, _):
        assert HttpModel(url).log_prob(["a b"]).token_counts.tolist() == [1]
        with pytest.raises(UnreadableTextError, match="has only one token"):
            HttpModel(url).log_prob(["a"])
