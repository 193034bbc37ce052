"""The command line, as a user runs it, without reading torch and transformers anew each time.

A server with everything imported forks a process of its own for each command: eleven seconds of
imports become none. What depends on a fresh interpreter (`env`) gets one.
"""

import multiprocessing
import os
import pkgutil
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import levelhead as package

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        item.name
        for item in pkgutil.walk_packages(package.__path__, "levelhead.")
        if not item.name.endswith("__main__")
    ]
)


def levelhead(*args, env=None, cwd=None):
    """Run a verb in a process of its own."""
    argv = ["levelhead", *map(str, args)]
    if env is not None:
        command = [sys.executable, "-m", *argv]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=env, cwd=cwd
        )
    return _forked(_verb, argv, cwd)


def script(path, cwd, *args):
    """Run a file of Python in a process of its own."""
    return _forked(_file, [str(path), *map(str, args)], cwd)


def _forked(what, argv, cwd):
    with tempfile.TemporaryDirectory() as folder:
        output = [Path(folder) / name for name in ("stdout", "stderr")]
        arguments = (what, argv, str(cwd or Path.cwd()), dict(os.environ), *map(str, output))
        process = SERVER.Process(target=_run, args=arguments)
        process.start()
        process.join()
        out, err = (path.read_text() if path.exists() else "" for path in output)
    return subprocess.CompletedProcess(argv, process.exitcode, out, err)


def _run(what, argv, cwd, environ, out, err):
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    sys.argv = argv
    sys.stdin = open(os.devnull)  # noqa: SIM115
    for name, path, number in (("stdout", out, 1), ("stderr", err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        # As a fresh interpreter would: a terminal that is not UTF-8 is said by this variable.
        encoding = environ.get("PYTHONIOENCODING", "utf-8")
        setattr(sys, name, open(number, "w", encoding=encoding, closefd=False))  # noqa: SIM115
    what()


def _verb():
    from levelhead.cli import main

    main()


def _file():
    runpy.run_path(sys.argv[0], run_name="__main__")
