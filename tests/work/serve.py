"""A real server of a GGUF file on this machine: `python serve.py FILE`.

Prints its address; then, for every request that comes by standard input as a line of JSON, what the
same engine answers when it is called directly. Ends when its input does.
"""

import json
import os
import sys

import xllamacpp


def serve(path: str) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel, params.port, params.verbosity = 512, 1, 0, 0
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(server.handle_completions(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
    os._exit(0)  # the server's threads do not end by themselves
