"""Notebooks, executed by a kernel that has everything imported after the first of them."""

import os
import sys
from contextlib import contextmanager

import jupytext
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from shell import CLIENT

LAUNCHER = """#!/bin/sh
exec '{python}' -ISc "$LEVELHEAD_CLIENT" '{socket}' levelhead "$@"
"""
COLD = """#!/bin/sh
exec '{python}' -m levelhead "$@"
"""


@contextmanager
def kernel(folder, data, server=None):
    """A kernel; its `levelhead` is that of this interpreter, a cold one without a server."""
    command = folder / "levelhead"
    command.write_text((LAUNCHER if server else COLD).format(python=sys.executable, socket=server))
    command.chmod(0o755)
    path = os.pathsep.join((str(folder), os.environ["PATH"]))
    manager = KernelManager(kernel_name="python3")
    names = {"PATH": path, "LEVELHEAD_CLIENT": CLIENT, "LEVELHEAD_DATA": str(data)}
    manager.start_kernel(env=os.environ | names)
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)


def executed(code, cwd, manager):
    """The notebook of a percent script with its outputs, run in a folder without leftover names."""
    notebook = jupytext.reads(code, fmt="py:percent")
    start = jupytext.reads(f"# %%\n%reset -f\n%cd -q {cwd}\n", fmt="py:percent")
    notebook.cells = [*start.cells, *notebook.cells]
    return NotebookClient(notebook, km=manager, timeout=900).execute()


def html_outputs(notebook):
    """What the notebook shows as HTML."""
    return [
        output["data"]["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "text/html" in output.get("data", {})
    ]
