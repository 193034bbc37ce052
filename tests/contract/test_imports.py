"""What is not loaded: torch stays out of core, engine and the command line's help."""

import json
import subprocess
import sys

import pytest

HELP = """
import sys
sys.argv = ["levelhead", "--help"]
from levelhead.cli import main
try:
    main()
except SystemExit:
    pass
"""
EVERYTHING = """
import importlib, pkgutil, levelhead.{room} as room
for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
    importlib.import_module(module.name)
"""
HEAVY = {
    *("torch", "transformers", "tokenizers", "accelerate", "sklearn", "altair", "ray"),
    *("pandas", "polars", "narwhals"),
}


def loaded_by(code):
    """The top-level packages a fresh interpreter has loaded after running some code."""
    tell = """
import json, sys
print("\\n" + json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
    result = subprocess.run(
        [sys.executable, "-c", code + tell], capture_output=True, text=True, check=True
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_help_loads_neither_torch_nor_scipy():
    loaded = loaded_by(HELP)
    assert "typer" in loaded
    assert not loaded & (HEAVY | {"scipy", "numpy", "fsspec", "rich"})


def test_importing_levelhead_loads_nothing_heavy():
    assert not loaded_by("import levelhead") & (HEAVY | {"scipy", "numpy", "pydantic", "typer"})


@pytest.mark.parametrize("room", ["core", "stats", "engine", "data", "cli"])
def test_rooms_without_torch_load_no_torch(room):
    loaded = loaded_by(EVERYTHING.format(room=room))
    assert "levelhead" in loaded
    assert not loaded & HEAVY


def test_a_gate_needs_no_torch():
    """It reads measurements, in a pipeline that may have no other use for a model's engine."""
    assert (
        not loaded_by("import levelhead.report.gate.gate, levelhead.report.gate.ci_files") & HEAVY
    )


def test_this_test_can_fail():
    assert "torch" in loaded_by("import levelhead, torch")
    assert {"scipy", "numpy"} <= loaded_by(HELP + "\nimport scipy.stats")
