"""The recipes of docs/development/extend.md work, applied to a copy of the package."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import recipes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "development" / "extend.md"
COPIED = (
    *("src/levelhead", "docs/measures", "tests/work"),
    *("tests/contract/test_measure_pages.py", "tests/contract/test_step_kinds.py"),
)
"""What the recipes change and what their checks read."""
PLACES = {
    "A measure": 3,
    "A model family": 1,
    "A data set": 2,
    "An edit": 2,
    "A study step": 2,
    "A chart": 2,
    "A command": 2,
}
"""How many files of src a recipe creates or edits."""
NUMBERS = {1: "One file", 2: "Two files", 3: "Three files"}
ADDED = {
    "A measure": {"name": "pair_margin", "n": True, "value": True, "p": True, "calibration": True},
    "A model family": {"heads": ["causal"], "fails": [], "mlp": True, "mask": True},
    "A data set": {"items": [["A good bed.", "good"], ["No bed.", "bad"]], "listed": True},
    "An edit": {"equal": True, "acts": True, "standalone": True},
    "A study step": {"result": True, "row": True},
    "A chart": {"schema": True, "low": True},
    "A command": {"help": True, "listed": True, "weights": True},
}
"""What the check of each recipe finds in the copy."""
WORDS = 1500
"""Of the page, code included."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What the checks find, in one process with the package to which every recipe was applied.

    It takes above 5 seconds: a fresh interpreter imports torch, transformers and the copy.
    """
    root = tmp_path_factory.mktemp("extended")
    for name in COPIED:
        source, target = ROOT / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # With the compiled files: copies keep their times, so that these still count.
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)
    for block in recipes.blocks(PAGE):
        if block.file:
            recipes.apply(block, root)
    work = root / "run"
    work.mkdir()
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(root / name) for name in ("src", "tests/work")),
        "LEVELHEAD_DATA": str(work / "data"),
        "LEVELHEAD_CACHE": str(work / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    run = subprocess.run(
        [sys.executable, str(root / "tests" / "work" / "recipes.py")],
        cwd=work,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads((work / "outcomes.json").read_text())
    assert Path(result.pop("package")) == root
    return result


@pytest.mark.parametrize("recipe", ADDED)
def test_what_a_recipe_adds_works(recipe, outcomes):
    assert outcomes[recipe] == ADDED[recipe], outcomes[recipe]


def test_every_recipe_is_tried():
    applied = [block.recipe for block in recipes.blocks(PAGE) if block.file]
    assert list(dict.fromkeys(applied)) == list(PLACES) == list(ADDED) == list(recipes.CHECKS)


@pytest.mark.parametrize("recipe", PLACES)
def test_a_recipe_touches_as_few_files_as_the_page_says(recipe):
    touched = {block.file for block in recipes.blocks(PAGE) if block.recipe == recipe}
    assert len({file for file in touched if file.startswith("src/")}) == PLACES[recipe]
    section = PAGE.read_text().partition(f"## {recipe}\n\n")[2]
    assert re.match(NUMBERS[PLACES[recipe]] + r"[.:]", section)


def test_every_block_is_applied_but_the_layers():
    (layers,) = [block for block in recipes.blocks(PAGE) if not block.file]
    given = [line.split("  ")[0].split(", ") for line in layers.text.splitlines()]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (wanted,) = [
        contract["layers"] for contract in contracts["contracts"] if contract["type"] == "layers"
    ]
    assert given == [row.split(" | ") for row in wanted]


def test_the_page_is_short():
    assert len(PAGE.read_text().split()) <= WORDS


def test_a_line_that_is_not_there_once_is_an_error():
    diff = "+above\n+it\n a\n+c\n+d\n b\n+e\n"
    assert recipes.insert("a\nb", diff, "file") == "above\nit\na\nc\nd\nb\ne"
    for text in ("b", "a\na"):
        with pytest.raises(AssertionError, match=r"file has \d lines 'a', not one"):
            recipes.insert(text, " a\n+c\n", "file")
