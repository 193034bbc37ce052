"""Every kind of result and every page of help, frozen: a refactoring must change names alone.

    python tools/golden.py FOLDER                      run, and write FOLDER/golden/*
    python tools/golden.py FOLDER --compare OTHER      ... and compare with what OTHER holds
        --mapping FILE                                 ... once its names are changed as FILE says
    python tools/golden.py FOLDER --write              ... and keep it in tests/golden
    python tools/golden.py --write-help                keep the help alone

The study is tests/golden/every_kind.toml on real weights: LEVELHEAD_ASSETS and LEVELHEAD_DATA name
them. Versions and paths are left out. On one machine results are the same to the byte; on another
the last bits of sums differ. What is kept in tests/golden is condensed (long lists by their length,
first entries and sum) and compared to five digits by tests/golden/test_every_kind.py.

A mapping is a TOML file of `old = "new"`: whole words, in the keys and the texts of OTHER. It
proves that names alone have changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from typer.main import get_command
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.core.canonical_json import canonical
from levelhead.core.files import write_atomic
from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import save_edits
from levelhead.models.sites import Site
from levelhead.study.config import read_plan
from levelhead.study.results_dir import KINDS
from levelhead.study.run import run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
STUDY = ROOT / "tests" / "golden" / "every_kind.toml"
WORDS = STUDY.with_name("few_words.toml")
KEPT = STUDY.with_suffix(".json")
HELP = STUDY.with_name("help.txt")
LONG = 4
"""Entries: a longer list is condensed to its first two."""
COLUMNS = "100"
"""Of a terminal: help is wrapped to it."""


def frozen_results(folder: Path) -> dict[str, bytes]:
    """Run the study in a folder; canonical JSON of its first result of every kind, by step."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["LEVELHEAD_GOLDEN"] = str(folder)
    edit = HeadScale([Site.paper("1-1"), Site.paper("2-2")], 0)
    save_edits([edit], str(folder / "edit"), seen=("man", "woman"))
    (folder / WORDS.name).write_bytes(WORDS.read_bytes())
    results = run(read_plan(STUDY), folder / "run", on_step=_print_step)
    kinds = {step.partition(".")[0] for step in results}
    if missing := sorted(set(KINDS) - kinds):
        raise SystemExit(f"the study gives no result of these kinds: {', '.join(missing)}")
    paths = sorted((folder / "run" / "results").glob("*.json"))
    return {path.name: _portable(json.loads(path.read_bytes())) for path in paths}


def frozen_help() -> bytes:
    """`--help` of every command, one below the other."""
    os.environ |= {"COLUMNS": COLUMNS, "TERM": "dumb", "NO_COLOR": "1"}
    pages = []
    for words in _commands():
        shown = CliRunner().invoke(app, [*words, "--help"], prog_name="levelhead")
        if shown.exit_code:
            raise SystemExit(f"{' '.join(words)} --help failed:\n{shown.output}")
        pages.append(f"$ levelhead {' '.join([*words, '--help'])}\n{shown.output.rstrip()}\n")
    return "\n".join(pages).encode()


def differences(first: Path, second: Path, mapping: dict[str, str] | None = None) -> list[str]:
    """What differs between two folders of frozen results, a line for each file.

    Args:
        first: the newer.
        second: the older.
        mapping: the older's names, and what they are called in the newer.
    """
    names = sorted({path.name for folder in (first, second) for path in folder.iterdir()})
    return [
        name
        for name in names
        if _read(first / name) != _renamed(_read(second / name), name, mapping or {})
    ]


def condensed(value: object) -> object:
    """A result that a person can read in a diff: long lists by length, first entries and sum."""
    if isinstance(value, dict):
        return {key: condensed(inner) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) <= LONG:
        return [condensed(inner) for inner in value]
    numbers = [float(leaf) for leaf in _leaves(value) if isinstance(leaf, int | float)]
    first = [condensed(inner) for inner in value[:2]]
    return {"length": len(value), "first": first, "sum": sum(numbers)}


def kept_text(results: dict[str, bytes]) -> bytes:
    """JSON with a line for every result: a diff shows which of them changed."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(condensed(json.loads(contents)), sort_keys=True)}"
        for name, contents in sorted(results.items())
    ]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield value


def _commands() -> list[list[str]]:
    pages: list[list[str]] = [[]]
    waiting = [([], get_command(app))]
    while waiting:
        words, group = waiting.pop()
        for name, command in sorted(getattr(group, "commands", {}).items()):
            pages.append([*words, name])
            waiting.append(([*words, name], command))
    return sorted(pages)


def _portable(result: object) -> bytes:
    """Canonical bytes without what belongs to a machine: versions of packages, and folders."""
    return canonical(_without(result)) + b"\n"


def _without(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without(inner) for key, inner in value.items() if key != "versions"}
    if isinstance(value, list):
        return [_without(inner) for inner in value]
    if isinstance(value, str):
        for name in ("LEVELHEAD_GOLDEN", "LEVELHEAD_ASSETS", "LEVELHEAD_DATA"):
            if place := os.environ.get(name):
                value = value.replace(place, f"${{{name}}}")
    return value


def _renamed(contents: bytes | None, name: str, mapping: dict[str, str]) -> bytes | None:
    if contents is None or not mapping:
        return contents
    words = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, mapping))})(?!\w)")

    def new(text: str) -> str:
        return words.sub(lambda found: mapping[found[0]], text)

    def changed(value: object) -> object:
        if isinstance(value, dict):
            return {new(key): changed(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [changed(inner) for inner in value]
        return new(value) if isinstance(value, str) else value

    if not name.endswith(".json"):
        return new(contents.decode()).encode()
    # Renamed keys stand in another order: canonical bytes are sorted.
    return canonical(changed(json.loads(contents))) + b"\n"


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _print_step(name: str, done: int, of: int) -> None:
    print(f"{done} of {of}: {name}", file=sys.stderr)


def main() -> None:
    """Run the study, and compare or keep what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--mapping", type=Path, help="TOML of old = new names of OTHER")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--write-help", action="store_true")
    given = parser.parse_args()
    pages = frozen_help()
    if given.write or given.write_help:
        write_atomic(str(HELP), pages)
    if given.write_help:
        return
    if given.folder is None:
        parser.error("give a folder for the study's run")
    place = given.folder.resolve() / "golden"
    place.mkdir(parents=True, exist_ok=True)
    results = frozen_results(given.folder.resolve())
    for path in place.iterdir():
        path.unlink()
    for name, contents in {**results, HELP.name: pages}.items():
        write_atomic(str(place / name), contents)
    if given.write:
        write_atomic(str(KEPT), kept_text(results))
    mapping = tomllib.loads(given.mapping.read_text()) if given.mapping else {}
    differs = differences(place, given.compare / "golden", mapping) if given.compare else []
    print(json.dumps({"results": len(results), "differ": differs}))
    if differs:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
