"""Every kind of result and every page of help, frozen: a refactoring must change names alone.

    python tools/golden.py FOLDER                      run, and write FOLDER/golden/*
    python tools/golden.py FOLDER --compare OTHER      ... and compare with what OTHER holds
        --mapping FILE                                 ... once its names are changed as FILE says
        --aligned                                      ... pairing renamed fields by their values
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

import numpy as np
from scipy.optimize import linear_sum_assignment
from typer.main import get_command
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.files import write_atomic
from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import save_edits
from levelhead.models.sites import Site
from levelhead.study.config import read_study_config
from levelhead.study.results_dir import RESULT_CLASSES
from levelhead.study.run import run_study

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
    edit = HeadScale([Site.from_paper_label("1-1"), Site.from_paper_label("2-2")], 0)
    save_edits([edit], str(folder / "edit"), fitted_words=("man", "woman"))
    (folder / WORDS.name).write_bytes(WORDS.read_bytes())
    results = run_study(read_study_config(STUDY), folder / "run", on_step=_print_step)
    kinds = {step.partition(".")[0] for step in results}
    if missing := sorted(set(RESULT_CLASSES) - kinds):
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


def renamings(first: Path, second: Path) -> dict[str, list[str]]:
    """What differs between two folders of frozen results once their fields are aligned.

    Keys that only one side has are paired by their values: a field that was renamed holds what it
    held. Numbers and lengths are compared exactly, texts are listed as pairs, to be read.

    Returns:
        `fields` (old -> new), `texts` (old -> new) and `values`: what no renaming explains.
    """
    seen: dict[str, set[str]] = {"fields": set(), "texts": set(), "values": set()}
    for path in sorted(first.glob("*.json")):
        older = second / path.name
        if not older.exists():
            # A step's name begins with its kind, which has a new name, too.
            seen["values"].add(f"{path.name}: only here")
            continue
        _align(json.loads(path.read_bytes()), json.loads(older.read_bytes()), path.stem, seen)
    return {kind: sorted(entries) for kind, entries in seen.items()}


def _align(new: object, old: object, where: str, seen: dict[str, set[str]]) -> None:
    if isinstance(new, dict) and isinstance(old, dict):
        for key in new.keys() & old.keys():
            _align(new[key], old[key], f"{where}.{key}", seen)
        for old_key, new_key in _paired_keys(new, old):
            seen["fields"].add(f"{old_key} -> {new_key}")
            _align(new[new_key], old[old_key], f"{where}.{new_key}", seen)
        if len(new) != len(old):
            seen["values"].add(f"{where}: {sorted(old.keys() ^ new.keys())}")
    elif isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        for index, (new_item, old_item) in enumerate(zip(new, old, strict=True)):
            _align(new_item, old_item, f"{where}[{index}]", seen)
    elif isinstance(new, str) and isinstance(old, str):
        if new != old:
            seen["texts"].add(f"{old} -> {new}")
    elif new != old:
        seen["values"].add(f"{where}: {old!r} -> {new!r}")


def _paired_keys(new: dict[str, object], old: dict[str, object]) -> list[tuple[str, str]]:
    """Keys of the two sides, each used once, so that as much as possible is alike."""
    added, gone = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    likeness = [[_likeness(new[new_key], old[old_key]) for new_key in added] for old_key in gone]
    shape = (len(gone), len(added))  # also where one side has none
    # Not the best match of each in turn: that leaves the last keys with what nobody took.
    rows, columns = linear_sum_assignment(np.reshape(likeness, shape), maximize=True)
    return [(gone[row], added[column]) for row, column in zip(rows, columns, strict=True)]


def _likeness(new: object, old: object) -> float:
    """The share of leaves that are equal; text that was reworded still has its length."""
    first, second = list(_leaves(new)), list(_leaves(old))
    if type(new) is not type(old) or len(first) != len(second):
        return 0.0
    equal = sum(a == b for a, b in zip(first, second, strict=True))
    return 0.5 + 0.5 * equal / max(len(first), 1)


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
    return to_canonical_json(_without(result)) + b"\n"


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
        return words.sub(lambda result: mapping[result[0]], text)

    def changed(value: object) -> object:
        if isinstance(value, dict):
            return {new(key): changed(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [changed(inner) for inner in value]
        return new(value) if isinstance(value, str) else value

    if not name.endswith(".json"):
        return new(contents.decode()).encode()
    # Renamed keys stand in another order: canonical bytes are sorted.
    return to_canonical_json(changed(json.loads(contents))) + b"\n"


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _print_step(name: str, done: int, of: int) -> None:
    print(f"{done} of {of}: {name}", file=sys.stderr)


def main() -> None:
    """Run the study, and compare or keep what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--compare", type=Path)
    parser.add_argument(
        "--aligned", action="store_true", help="pair renamed fields by their values, and list them"
    )
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
    if given.compare and given.aligned:
        aligned = renamings(place, given.compare / "golden")
        print(json.dumps(aligned, indent=1, ensure_ascii=False))
        raise SystemExit(bool(aligned["values"]))
    mapping = tomllib.loads(given.mapping.read_text()) if given.mapping else {}
    differs = differences(place, given.compare / "golden", mapping) if given.compare else []
    print(json.dumps({"results": len(results), "differ": differs}))
    if differs:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
