"""A server on this machine that speaks OpenAI's protocol, with scripted faults."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from serving import running

TEXT = "She is a nurse."


def generated(**changes):
    """An answer with one text."""
    message = {"role": "assistant", "content": TEXT} | changes.pop("message", {})
    choice = {"index": 0, "message": message, "finish_reason": "stop"} | changes.pop("choice", {})
    usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    return {"model": "small", "choices": [choice], "usage": usage} | changes


def reply(body, *, status=200, headers=()):
    """A scripted answer: JSON of an object, or the bytes themselves."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return {"status": status, "headers": dict(headers), "data": data}


@contextmanager
def faulty_server(answers, *, tokenize=None):  # noqa: C901  # the methods of one handler
    """A server until the block ends, and what it was asked: (path, body, headers).

    answers: Function from the number of a POST request and its body to a `reply`, or "hang",
        "endless" or "trickle". tokenize: Function from a body to an answer of /tokenize; None: 404.
    """
    queries, stopped, lock = [], threading.Event(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def _headers(self):
            return {name.lower(): value for name, value in self.headers.items()}

        def do_GET(self):
            queries.append((self.path, None, self._headers()))
            self._send(reply({"data": [{"id": "small", "owned_by": "us"}]}))

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/tokenize":
                self._send(reply(b"", status=404) if tokenize is None else reply(tokenize(body)))
                return
            with lock:
                number = sum(query is not None for _, query, _ in queries)
                queries.append((self.path, body, self._headers()))
            answer = answers(number, body)
            if answer == "hang":
                stopped.wait(20)
            elif answer in ("endless", "trickle"):
                self._send_without_end(b" " * (1 << 16 if answer == "endless" else 1))
            else:
                self._send(answer)

        def _send(self, answer):
            self.send_response(answer["status"])
            for name, value in answer["headers"].items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer["data"])))
            self.end_headers()
            self.wfile.write(answer["data"])

        def _send_without_end(self, piece):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                while not stopped.is_set():
                    self.wfile.write(piece)
                    time.sleep(0.01 if len(piece) == 1 else 0)
            except OSError:
                pass
            self.close_connection = True

    with running(Handler) as address:
        try:
            yield address, queries
        finally:
            stopped.set()
