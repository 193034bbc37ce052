"""Scripts of bash that call `levelhead` and `python -`, without reading torch anew for each call.

A cold start costs five seconds of imports, and the documents' blocks call the command line some
forty times. So a server, forked with everything imported, forks a process for every call; a client
of a few lines gives it arguments, folder, environment and its own input and outputs (as open files
over a Unix socket), and exits as the call did. What depends on a fresh interpreter is tested with
one: the same blocks in `make full`.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from contextlib import contextmanager
from pathlib import Path

from command import SERVER

CLIENT = """import json, os, socket, struct, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    call = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [struct.pack("I", len(call))], [0, 1, 2])
    server.sendall(call)
    answer = server.recv(1)
sys.exit(answer[0] if answer else "the server of commands ended without an answer")
"""
COLD = """levelhead() {{ '{python}' -m levelhead "$@"; }}
"""
WARM = """levelhead() {{ '{python}' -ISc "$CLIENT" '{socket}' levelhead "$@"; }}
python() {{ '{python}' -ISc "$CLIENT" '{socket}' python "$@"; }}
"""


@contextmanager
def commands():
    """A server of commands; gives the path of its socket."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's path must be short
        path = str(Path(folder) / "socket")
        ready, output = SERVER.Pipe(duplex=False)
        process = SERVER.Process(target=_serve, args=(path, output))
        process.start()
        output.close()
        ready.recv()
        try:
            yield path
        finally:
            process.terminate()
            process.join()


def bash(code, cwd, server=None):
    """Run a script; `levelhead` is that of this interpreter, a cold one without a server."""
    names = (WARM if server else COLD).format(python=sys.executable, socket=server)
    block = Path(cwd) / "block"
    block.write_text(names + code)
    return subprocess.run(
        ["bash", "-euo", "pipefail", str(block)],
        cwd=cwd,
        env=os.environ | {"CLIENT": CLIENT},
        capture_output=True,
        text=True,
        check=False,
    )


def _serve(path, output):
    """Fork a process for every connection, until terminated."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        output.send(True)
        while True:
            client, _ = server.accept()
            if not os.fork():
                server.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(client)
            client.close()


def _answer(client):
    """Run the call in a process of its own and send its exit code."""
    size, files, _, _ = socket.recv_fds(client, 4, 3)
    call = client.makefile("rb").read(struct.unpack("I", size)[0])
    child = os.fork()
    if not child:
        client.close()
        os._exit(_called(*json.loads(call), files))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    client.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _called(argv, cwd, environ, files):
    """The exit code of a call, its output written to the given files."""
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = argv
    try:
        if argv[0] == "levelhead":
            from levelhead.cli import main

            main()
        elif argv == ["python", "-"]:
            exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})  # noqa: S102
        else:
            raise ValueError(f"only `levelhead ...` and `python -` are served here, not {argv}")
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    else:
        code = 0
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1
