"""The layers are checked by import-linter, cycles by tools/structure.py; here, that both notice."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint(package):
    tool = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [str(tool), "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        env=os.environ | {"PYTHONPATH": str(package.parent)},
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def structure():
    path = ROOT / "tools" / "structure.py"
    spec = importlib.util.spec_from_file_location("structure", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copied(folder):
    return Path(
        shutil.copytree(
            ROOT / "src" / "levelhead",
            folder / "levelhead",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    )


@pytest.fixture
def package(tmp_path):
    return copied(tmp_path)


ONE_WAY = "Dependencies point one way"
BROKEN = [
    ("core/errors.py", "levelhead.engine.tasks", ONE_WAY),
    ("engine/tasks.py", "levelhead.cli", ONE_WAY),
    ("interop/__init__.py", "levelhead.cli", ONE_WAY),
    ("surprise/__init__.py", "", ONE_WAY),
    ("core/errors.py", "torch", "torch stays out"),
    ("data/__init__.py", "torch", "torch stays out"),
    ("measures/__init__.py", "transformers", "transformers enters by models only"),
    ("engine/events.py", "rich", "typer and rich stay in cli"),
    ("study/__init__.py", "altair", "altair stays in report"),
]
"""File, what it imports, and the beginning of the contract that forbids it."""
ALLOWED = [
    ("models/__init__.py", "torch, transformers"),
    ("measures/__init__.py", "torch, levelhead.engine.scheduler"),
    ("report/__init__.py", "altair"),
    ("cli/study/study.py", "rich"),
]


def add_import(package, file, imported):
    place = package / file
    place.parent.mkdir(exist_ok=True)
    line = f"import {imported}" if imported else ""
    place.write_text((place.read_text() if place.exists() else "") + f"\n{line}\n")


def broken_contracts(output):
    """The explanation of every broken contract, by its name."""
    _, _, output = output.partition("Broken contracts\n")
    titles = list(re.finditer(r"^(\S.*)\n-+$", output, flags=re.MULTILINE))
    ends = [*(title.start() for title in titles[1:]), len(output)]
    return {title[1]: output[title.end() : end] for title, end in zip(titles, ends, strict=True)}


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """What is said of a package that breaks every contract: building its graph takes the time."""
    package = copied(tmp_path_factory.mktemp("broken"))
    for file, imported, _ in BROKEN:
        add_import(package, file, imported)
    result = lint(package)
    assert result.returncode != 0
    return broken_contracts(result.stdout)


@pytest.mark.parametrize(("file", "imported", "contract"), BROKEN)
def test_a_broken_contract_is_noticed(broken, file, imported, contract):
    (explanation,) = [text for title, text in broken.items() if title.startswith(contract)]
    module = "levelhead." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if imported:
        assert re.search(rf"{re.escape(module)} -> {re.escape(imported)} \(l\.\d+\)", explanation)
    else:
        assert re.search(rf"^- {re.escape(module)}$", explanation, flags=re.MULTILINE)


def test_what_is_allowed_passes(package):
    """The package as it is, and with more of what it may import."""
    for file, imported in ALLOWED:
        add_import(package, file, imported)
    result = lint(package)
    assert result.returncode == 0, result.stdout
    assert "5 kept, 0 broken" in result.stdout


def test_modules_that_import_each_other_are_noticed_and_there_are_no_others(
    package, structure, monkeypatch
):
    """In types only and inside a function: both are added at once, as parsing takes the time."""
    for file, lines in (
        (
            "models/queries/query.py",
            "if TYPE_CHECKING:\n    from levelhead.models.queries.build import Pooling",
        ),
        ("core/errors.py", "def late():\n    from levelhead.core import files"),
    ):
        place = package / file
        place.write_text(place.read_text() + f"\n{lines}\n")
    monkeypatch.setattr(structure, "SOURCE", package)
    assert sorted(structure.cycles(structure.modules())) == [
        ["levelhead.core.errors", "levelhead.core.files"],
        ["levelhead.models.queries.build", "levelhead.models.queries.query"],
    ]
