"""An audit becomes a pull request to a model card, through the Hub's own client on loopback."""

import base64
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading

import pytest
from huggingface_hub import ModelCard

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CARD = "---\nlicense: mit\n---\n# A model of theirs\n"
PUSH = """
import audits
from levelhead.core.errors import LevelheadError
from levelhead.report.push import push_to_model_card
try:
    print(push_to_model_card("us/tiny", audits.audit(), audits.results()))
except LevelheadError as error:
    print(error)
"""


class Hub(http.server.BaseHTTPRequestHandler):
    """One repository, whose answers a test sets, and what was asked."""

    card, commits, commit_status = CARD, [], 200

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/us/tiny"):
            self.reply({"id": "us/tiny", "modelId": "us/tiny", "sha": COMMIT, "siblings": []})
        elif path == f"/us/tiny/resolve/{COMMIT}/README.md" and self.card is not None:
            self.reply(self.card.encode())
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/api/validate-yaml"):
            self.reply({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            self.reply(
                {"files": [{"path": "README.md", "uploadMode": "regular", "shouldIgnore": False}]}
            )
        elif "/commit/" in self.path and self.commit_status == 200:
            self.commits.append((self.path, [json.loads(line) for line in body.splitlines()]))
            address = f"http://{self.headers['Host']}/us/tiny"
            self.reply(
                {
                    "commitUrl": f"{address}/commit/{COMMIT}",
                    "commitOid": COMMIT,
                    "pullRequestUrl": f"{address}/discussions/1",
                }
            )
        else:
            self.reply({"error": "A commit has happened since."}, self.commit_status)

    def reply(self, content, status=200):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def push(tmp_path, **answers):
    """Push to a Hub with these answers; return what was printed, and the commits."""
    handler = type("OneHub", (Hub,), {"commits": [], **answers})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HF_ENDPOINT": address,
        "HF_HOME": str(tmp_path),
        "HF_TOKEN": "hf_of_a_test",
    }
    try:
        result = subprocess.run(
            [sys.executable, "-c", PUSH], env=environment, capture_output=True, text=True
        )
    finally:
        server.shutdown()
        server.server_close()
    assert result.returncode == 0, result.stderr
    return result.stdout.strip().replace(address, "HUB"), handler.commits


@pytest.mark.parametrize("card", [CARD, None])
def test_the_audit_is_proposed_and_the_rest_of_the_card_stays(tmp_path, card):
    printed, ((path, (header, file)),) = push(tmp_path, card=card)
    assert printed == "HUB/us/tiny/discussions/1"
    assert path == "/api/models/us/tiny/commit/main?create_pr=1"
    assert header["value"]["parentCommit"] == COMMIT
    assert file["value"]["path"] == "README.md"
    readme = base64.b64decode(file["value"]["content"]).decode()
    results = {result.metric_name: result for result in ModelCard(readme).data.eval_results}
    assert results["seat"].metric_value == 1.2
    assert results["seat"].metric_args["interval"] == [1.0, 1.4]
    assert ("# A model of theirs\n" in readme) == ("license: mit" in readme) == (card is not None)


def test_a_card_that_changed_since_is_not_replaced(tmp_path):
    printed, commits = push(tmp_path, commit_status=412)
    assert printed.startswith("the Hub did not take the model card of us/tiny: ")
    assert "hf auth login" in printed
    assert commits == []
