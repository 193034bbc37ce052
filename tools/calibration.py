"""What came of `levelhead calibrate`, into the package and onto its page: docs/calibration.md.

    python tools/calibration.py FOLDER [--write]

FOLDER is that of a full run. With --write, the page's tables and picture are written anew, and the
numbers that reports cite (calibration.json of levelhead.core).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from levelhead.calibrate.told import tables
from levelhead.core.calibration import KEPT, Calibration
from levelhead.core.files import write_atomic

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "calibration.md"
PICTURE = ROOT / "docs" / "pictures" / "dose.svg"
PACKAGE = ROOT / "src" / "levelhead" / "core" / KEPT
MARK = "<!-- tools/calibration.py writes below this line -->\n"


def page(found: Calibration) -> str:
    """The tables, and what made them."""
    told = [table.markdown for table in tables(found) if table.rows]
    versions = ", ".join(
        f"{name} {found.versions[name]}" for name in ("levelhead", "torch", "transformers")
    )
    told.append(
        f"Made by `{found.command}` from {len(found.models)} models; "
        f"{versions}; {found.machine}. Hashes of texts and weights: `{KEPT}` of "
        "`levelhead.core`.\n"
    )
    return "\n".join(told)


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found = Calibration.from_json((given.folder / KEPT).read_bytes())
    if given.write and "--quick" in found.command:
        parser.error("a quick run shows that it works, not what is true: give a full one")
    print(page(found))
    if given.write:
        above = PAGE.read_text().partition(MARK)[0]
        write_atomic(str(PAGE), f"{above}{MARK}\n{page(found)}".encode())
        write_atomic(str(PICTURE), (given.folder / "dose.svg").read_bytes())
        write_atomic(str(PACKAGE), (given.folder / KEPT).read_bytes())


if __name__ == "__main__":
    main()
