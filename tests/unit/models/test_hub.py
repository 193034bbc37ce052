"""A Hub id, fetched over HTTP from a server on loopback that speaks the Hub's protocol."""

import hashlib
import http.server
import json
import shutil
import subprocess
import sys
import threading

import pytest
import zoo

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Serves one repository, with code and a pickle in it that nobody may ask for."""
    files = shutil.copytree(
        zoo.folder("bert", "BertForPreTraining"), tmp_path_factory.mktemp("hub") / "files"
    )
    (files / "evil.py").write_text("raise SystemExit('run')")
    (files / "pytorch_model.bin").write_bytes(b"pickled")
    queries = []

    class Hub(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_HEAD(self):
            self.answer(send=False)

        def do_GET(self):
            self.answer(send=True)

        def answer(self, *, send):
            path = self.path.partition("?")[0]
            if path.startswith("/api/models/us/tiny/tree/"):
                tree = [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0" * 40}
                    for f in files.iterdir()
                ]
                self.reply(json.dumps(tree).encode(), "application/json", send=send)
            elif path.startswith("/api/models/us/tiny"):
                listed = [{"rfilename": file.name} for file in files.iterdir()]
                about = {"id": "us/tiny", "modelId": "us/tiny", "sha": COMMIT, "siblings": listed}
                self.reply(json.dumps(about).encode(), "application/json", send=send)
            elif path.startswith("/us/tiny/resolve/"):
                name = path.rpartition("/")[2]
                queries.append(name)
                self.reply((files / name).read_bytes(), "application/octet-stream", send=send)
            else:
                self.send_error(404)

        def reply(self, data, kind, *, send):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.end_headers()
            if send:
                self.wfile.write(data)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", queries
    server.shutdown()
    server.server_close()
    thread.join(timeout=10)


LOADING = """
import levelhead
try:
    levelhead.load("us/elsewhere", revision="main")
except levelhead.core.errors.LevelheadError as error:
    print(error)
lm = levelhead.load("us/tiny", revision="main")
print(lm.identity.revision, sorted(lm.heads), lm.embed(["the nurse"]).shape)
"""


@pytest.fixture(scope="module")
def loaded(hub, tmp_path_factory):
    """What a program says that loads what the Hub lacks, then what it has; what was asked for."""
    endpoint, queries = hub
    # The Hub's address is read when its client is imported: another process, once for all tests.
    # It takes more than 5 s, most of them to import torch and transformers.
    result = subprocess.run(
        [sys.executable, "-c", LOADING],
        capture_output=True,
        text=True,
        check=False,
        env={
            "PATH": "",
            "PYTHONPATH": ":".join(sys.path),
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(tmp_path_factory.mktemp("cache")),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
        },
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, queries


def test_a_hub_id_is_fetched_without_code_or_pickles(loaded):
    stdout, queries = loaded
    assert stdout.splitlines()[-1].split()[0] == COMMIT
    assert "['masked', 'next_sentence'] torch.Size([1, 24])" in stdout
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(queries)
    assert not {"evil.py", "pytorch_model.bin"} & set(queries)


def test_a_hub_that_does_not_know_it_says_so(loaded):
    stdout, _ = loaded
    assert "'us/elsewhere' is not a local folder, and the Hub download failed" in stdout
