"""Servers with faults, asked by commands: an error, or a verdict that is inconclusive."""

import json

import pytest
from faults import invoke, outcome, statuses
from faulty_server import faulty_server, generated, reply

from levelhead.models.serving import client as client_module
from levelhead.models.serving.client import ServerClient
from levelhead.study.audit import core_suite
from levelhead.study.audit import suite as audit_suite
from levelhead.study.audit.core_suite import CHATS, CoreMeasure

COMMANDS = {
    "decision": "decision:generated_answers=true,subsample_fraction=0.3",
    "generation": "generation:k=2,tokens=4,subsample_fraction=0.1",
    "implicit association": "implicit_association:generated_answers=true",
}
QUICK = ("--resamples", "99", "--permutations", "99", "--json", "--quiet")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Requests are sent once and answered within half a second; verdicts need no calibration."""
    make = ServerClient.__init__

    def make_impatient(self, url, **options):
        make(self, url, **(options | {"timeout": 0.5, "max_retries": 0}))

    monkeypatch.setattr(ServerClient, "__init__", make_impatient)
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 1 << 20)
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)


def same(answer):
    return lambda number, body: answer


ERRORS = {
    "error 500": same(reply({"error": "broken"}, status=500)),
    "error 404": same(reply({"error": "no"}, status=404)),
    "error 429": same(reply(b"slow down", status=429)),
    "a redirect": same(reply(b"", status=302, headers={"Location": "http://127.0.0.1:9/"}.items())),
    "an empty body": same(reply(b"")),
    "HTML": same(reply(b"<html>Sign in</html>")),
    "invalid UTF-8": same(reply(b'{"choices": "\xff\xfe"}')),
    "NaN": same(reply(b'{"choices": NaN}')),
    "brackets without end": same(reply(b"[" * 100_000)),
    "no choices": same(reply({"choices": []})),
    "a choice of a number": same(reply({"choices": [3]})),
    "a text of a number": same(reply({"choices": [{"message": 3}]})),
    "another model each time": lambda number, body: reply(generated(model=f"v{number}")),
    "hang": same("hang"),
    "trickle": same("trickle"),
    "endless": same("endless"),
}


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("command", list(COMMANDS)[:1])
def test_measure_of_a_broken_server(command, fault, tmp_path):
    with faulty_server(ERRORS[fault]) as (url, _):
        words = ["measure", f"{url}/v1#small", "-m", COMMANDS[command], *QUICK]
        assert outcome(invoke(*words)) == "error"


@pytest.mark.parametrize("fault", ["error 500", "HTML", "hang"])
@pytest.mark.parametrize("command", list(COMMANDS)[1:])
def test_other_measures_of_a_broken_server(command, fault, tmp_path):
    with faulty_server(ERRORS[fault]) as (url, _):
        words = ["measure", f"{url}/v1#small", "-m", COMMANDS[command], *QUICK]
        assert outcome(invoke(*words)) == "error"


def says(content, **choice):
    return same(reply(generated(message={"content": content}, choice=choice)))


def echo(number, body):
    return reply(generated(message={"content": body["messages"][-1]["content"]}))


TEXTS = {
    "yes to everything": says("Yes."),
    "no to everything": says("No."),
    "nothing": says(""),
    "no text": says(None),
    "noise": says("zzz qqq"),
    "a refusal": says("I'm sorry, but I can't help with that."),
    "the request": echo,
    "control characters": says("\x00\x1b[2K\u202e"),
    "cut by a filter": says("", finish_reason="content_filter"),
    "cut by length": says("Ye", finish_reason="length"),
    "every other answer": lambda number, body: says(("Yes.", "No.")[number % 2])(number, body),
}


FEW = ("yes to everything", "nothing", "the request")


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (command, fault) if fault in FEW else pytest.param(command, fault, marks=pytest.mark.full)
        for command in COMMANDS
        for fault in (TEXTS if command == "decision" else FEW)
    ],
)
def test_measure_of_a_server_that_does_not_read(command, fault, tmp_path):
    with faulty_server(TEXTS[fault]) as (url, _):
        words = ["measure", f"{url}/v1#small", "-m", COMMANDS[command], *QUICK]
        result = invoke(*words)
    assert "not shown" not in statuses(result)


@pytest.mark.parametrize("fault", ["error 500", "hang", "yes to everything"])
def test_audit_of_a_broken_server(fault, tmp_path, monkeypatch):
    core = (CoreMeasure("decision", "decision:subsample_fraction=0.3", CHATS),)
    monkeypatch.setattr(core_suite, "CORE", core)
    monkeypatch.setattr(audit_suite, "AUDIT_MEASURES", ())
    with faulty_server((ERRORS | TEXTS)[fault]) as (url, _):
        words = ["audit", f"{url}/v1#small", "-o", tmp_path / "a", "--budget", "none", *QUICK]
        result = invoke(*words)
    assert outcome(result) in ("error", "inconclusive")
    if outcome(result) == "inconclusive":
        document = json.loads(result.stdout)
        assert not document["conclusive"]
        assert {row["status"] for row in document["measures"]} <= {"not measured", "inconclusive"}


@pytest.mark.parametrize("index", [1e400, -1, "0", None, [], 10**400, 0.5])
def test_an_index_that_is_none_is_an_error(index):
    """Infinity and integers of 400 digits are JSON numbers for Python."""
    text = json.dumps({"choices": [{"index": "INDEX", "logprobs": {"content": []}}]})
    number = "1e400" if index == 1e400 else json.dumps(index)
    answer = reply(text.replace('"INDEX"', number).encode())
    with faulty_server(
        same(answer), tokenize=lambda body: {"tokens": [1, 2, 3][: len(body["content"].split())]}
    ) as (url, _):
        result = invoke("measure", f"{url}/v1", "-m", "lpbs", *QUICK)
    assert outcome(result) == "error"


def test_a_server_that_hangs_is_given_up(tmp_path):
    """Not every one of thousands of requests waits for its timeout and its retries."""
    with faulty_server(same("hang")) as (url, queries):
        result = invoke("measure", f"{url}/v1#small", "-m", COMMANDS["decision"], *QUICK)
    assert "requests in a row without an answer" in str(result.exception)
    asked = sum(body is not None for _, body, _ in queries)
    assert client_module.MAX_UNANSWERED <= asked <= 20  # as many as are sent at the same time
