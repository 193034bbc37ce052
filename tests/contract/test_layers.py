"""The layers are checked by import-linter; here, that the check would notice."""

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
    broken = [said for said in result.stdout.splitlines() if " BROKEN" in said]
    assert any(said.startswith(contract) for said in broken), result.stdout


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
