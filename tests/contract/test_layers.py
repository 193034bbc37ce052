"""The layers are checked by import-linter, cycles by tools/structure.py; here, that both notice."""

import importlib.util
import os
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


@pytest.fixture
def package(tmp_path):
    return Path(
        shutil.copytree(
            ROOT / "src" / "levelhead",
            tmp_path / "levelhead",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    )


def test_the_package_keeps_its_contracts(package):
    result = lint(package)
    assert result.returncode == 0, result.stdout
    assert "5 kept, 0 broken" in result.stdout


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("core/errors.py", "import levelhead.engine.tasks", "Dependencies point one way"),
        ("engine/tasks.py", "import levelhead.cli", "Dependencies point one way"),
        ("interop/__init__.py", "import levelhead.cli", "Dependencies point one way"),
        ("surprise/__init__.py", "", "Dependencies point one way"),
        ("core/errors.py", "import torch", "torch stays out"),
        ("data/__init__.py", "import torch", "torch stays out"),
        ("measures/__init__.py", "import transformers", "transformers enters by models only"),
        ("engine/events.py", "import rich", "typer and rich stay in cli"),
        ("study/__init__.py", "import altair", "altair stays in report"),
    ],
)
def test_a_broken_contract_is_noticed(package, file, line, contract):
    place = package / file
    place.parent.mkdir(exist_ok=True)
    place.write_text((place.read_text() if place.exists() else "") + f"\n{line}\n")
    result = lint(package)
    assert result.returncode != 0
    broken = [splitline for splitline in result.stdout.splitlines() if " BROKEN" in splitline]
    assert any(responses.startswith(contract) for responses in broken), result.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("models/__init__.py", "import torch, transformers"),
        ("measures/__init__.py", "import torch, levelhead.engine.scheduler"),
        ("report/__init__.py", "import altair"),
        ("cli/study/study.py", "import rich"),
    ],
)
def test_what_is_allowed_passes(package, file, line):
    place = package / file
    place.parent.mkdir(exist_ok=True)
    place.write_text((place.read_text() if place.exists() else "") + f"\n{line}\n")
    result = lint(package)
    assert result.returncode == 0, result.stdout


def test_no_modules_import_each_other(structure):
    assert structure.cycles(structure.modules()) == []


@pytest.mark.parametrize(
    ("file", "line", "cycle"),
    [
        (
            "models/queries/query.py",
            "if TYPE_CHECKING:\n    from levelhead.models.queries.build import Pooling",
            ["levelhead.models.queries.build", "levelhead.models.queries.query"],
        ),
        (
            "core/errors.py",
            "def late():\n    from levelhead.core import files",
            ["levelhead.core.errors", "levelhead.core.files"],
        ),
    ],
    ids=["in types only", "inside a function"],
)
def test_a_cycle_is_noticed(package, structure, monkeypatch, file, line, cycle):
    place = package / file
    place.write_text(place.read_text() + f"\n{line}\n")
    monkeypatch.setattr(structure, "SOURCE", package)
    assert structure.cycles(structure.modules()) == [cycle]
