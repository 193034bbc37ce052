"""Licences of the dependencies: docs/reference/licences.csv.

    python tools/licences.py [--write]

A row for every package that `pip install levelhead` or one of its extras brings, with the licence
that its metadata states and the extras that need it ("" for the package itself). Packages that are
not installed here are marked. Ends with 1 where the file differs, or where a licence is neither
permissive nor listed with a reason in REVIEWED.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
import tomllib
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "reference" / "licences.csv"
COLUMNS = ("package", "licence", "needed by")
NOT_INSTALLED = "not installed where this file was made"
PERMISSIVE = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software|HPND|Unlicense|Zlib|CC0|Public Domain|MPL|Mozilla",
    re.IGNORECASE,
)
"""MPL 2.0 is copyleft by file: using a package unchanged puts no condition on ours."""
REVIEWED: dict[str, str] = {}
"""Packages whose licence is none of these, and why they may be used."""
PREFIX = "License :: OSI Approved :: "


def licence(name: str) -> str:
    """The licence that a package's metadata states, in a line."""
    try:
        metadata = distribution(name).metadata
    except PackageNotFoundError:
        return NOT_INSTALLED
    text = metadata.get("License-Expression") or ""
    classifiers = metadata.get_all("Classifier") or []
    if not text:
        names = [line.removeprefix(PREFIX) for line in classifiers if line.startswith(PREFIX)]
        text = " AND ".join(names)
    # Some packages put the whole text into the field: its first line names it.
    return text or (metadata.get("License") or "").strip().partition("\n")[0]


def packages() -> dict[str, set[str]]:
    """Every package, with the extras that bring it; "" for the package itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed: dict[str, set[str]] = defaultdict(set)
    by_extra = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra, requirements in by_extra.items():
        # An extra of other extras brings nothing of its own.
        pending = [row for row in map(Requirement, requirements) if row.name != project["name"]]
        while pending:
            requirement = pending.pop()
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            if extra in needed[name]:
                continue
            needed[name].add(extra)
            try:
                brings = distribution(name).requires or []
            except PackageNotFoundError:
                continue
            for text in brings:
                child = Requirement(text)
                wanted = [{"extra": item} for item in requirement.extras] or [{"extra": ""}]
                if child.marker is None or any(map(child.marker.evaluate, wanted)):
                    pending.append(child)
    # What the package itself brings needs no extra.
    return {name: {""} if "" in extras else extras for name, extras in needed.items()}


def make_table() -> str:
    """The file's text."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, extras in sorted(packages().items()):
        writer.writerow((name, licence(name), " ".join(sorted(extras))))
    return file.getvalue()


def refused(table: str) -> list[str]:
    """Packages whose licence nobody has looked at."""
    return [
        f"{row['package']}: {row['licence'] or 'no licence stated'}"
        for row in csv.DictReader(io.StringIO(table))
        if row["licence"] != NOT_INSTALLED
        and not PERMISSIVE.search(row["licence"])
        and row["package"] not in REVIEWED
    ]


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    table = make_table()
    if parser.parse_args().write:
        FILE.write_text(table)
    faults = refused(table)
    if FILE.read_text() != table:
        faults.append(f"{FILE.relative_to(ROOT)} differs: python tools/licences.py --write")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
