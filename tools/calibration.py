"""What came of `levelhead calibrate`, into the package and onto its page: docs/calibration.md.

    python tools/calibration.py FOLDER [--write]
    python tools/calibration.py FOLDER --measures-only [--quick] [--workers N] [--write]
    python tools/calibration.py FOLDER --matrix [--quick] [--workers N] [--write]

FOLDER is that of a full run. With --write, the page's tables and picture are written anew, and the
numbers that reports cite (calibration.json of levelhead.core).

--measures-only runs the dose models alone, into FOLDER, and keeps the package's locators, edits and
removals with the versions and the machine that made them. --matrix holds every verdict against the
expected one, writes FOLDER/controls.json, and with --write the page's matrix; it ends with 1 where
an exception is unexplained. Both go on where they were stopped, and share their models in FOLDER.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.calibrate.run import refresh_calibration
from levelhead.calibrate.tables import make_calibration_tables
from levelhead.calibrate.verdict_matrix import VerdictMatrix, run_verdict_matrix
from levelhead.calibrate.verdict_matrix import make_matrix_tables as matrix_tables
from levelhead.core.calibration import CALIBRATION_FILE, Calibration
from levelhead.core.files import write_atomic
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.report.charts.dose_response import dose_response_chart
from levelhead.report.save import render_svg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.calibration import OrganismHash

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "calibration.md"
PICTURE = ROOT / "docs" / "pictures" / "dose.svg"
PACKAGE = ROOT / "src" / "levelhead" / "core" / CALIBRATION_FILE
MARK = "<!-- tools/calibration.py writes below this line -->\n"
BEGIN, END = (
    f"<!-- tools/calibration.py --matrix writes {what} this line -->\n"
    for what in ("below", "above")
)


def page(result: Calibration) -> str:
    """The tables, and what made them."""
    output = [table.markdown for table in make_calibration_tables(result) if table.rows]
    output.append(_made("Made", result.command, result.versions, result.machine, result.models))
    for later in result.refreshed:
        parts = " and ".join(later.parts)
        output.append(
            _made(
                f"Made anew ({parts})", later.command, later.versions, later.machine, later.models
            )
        )
    output.append(f"Hashes of texts and weights: `{CALIBRATION_FILE}` of `levelhead.core`.\n")
    return "\n".join(output)


def matrix_page(held: VerdictMatrix) -> str:
    """The matrix as the page has it."""
    output = [held.summary + "\n"]
    output += [table.markdown for table in matrix_tables(held) if table.rows]
    output.append(_made("Made", held.command, held.versions, held.machine, held.models))
    return "\n".join(output)


def _made(
    what: str,
    command: str,
    versions: Mapping[str, object],
    machine: str,
    models: Sequence[OrganismHash],
) -> str:
    shown = ", ".join(f"{name} {versions[name]}" for name in ("levelhead", "torch", "transformers"))
    return f"{what} by `{command}` from {len(models)} models; {shown}; {machine}.\n"


def write(result: Calibration, picture: bytes) -> None:
    """The page below its mark, the picture, and the file of the package."""
    above = PAGE.read_text().partition(MARK)[0]
    write_atomic(str(PAGE), f"{above}{MARK}\n{page(result)}".encode())
    write_atomic(str(PICTURE), picture)
    write_atomic(str(PACKAGE), result.to_json().encode() + b"\n")


def write_matrix(held: VerdictMatrix) -> None:
    """The page between its two marks."""
    above, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, below = rest.partition(END)
    write_atomic(str(PAGE), f"{above}{BEGIN}\n{matrix_page(held)}\n{END}{below}".encode())


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--measures-only", action="store_true")
    what.add_argument("--matrix", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    given = parser.parse_args()
    if given.write and given.quick:
        parser.error("a quick run shows that it works, not what is true: give a full one")
    given.folder.mkdir(parents=True, exist_ok=True)
    store = f"{given.folder}/store"
    runner = LocalProcesses(given.workers) if given.workers else None
    if given.matrix:
        held = run_verdict_matrix(store, quick=given.quick, executor=runner)
        write_atomic(str(given.folder / "controls.json"), held.to_json().encode() + b"\n")
        print(matrix_page(held))
        if given.write:
            write_matrix(held)
        if held.unexplained:
            parser.exit(1, f"{len(held.unexplained)} exceptions are unexplained\n")
        return
    if given.measures_only:
        past = Calibration.from_json(PACKAGE.read_bytes())
        result = refresh_calibration(store, past, quick=given.quick, executor=runner)
        picture = render_svg(dose_response_chart(result.measures)) if given.write else b""
    else:
        result = Calibration.from_json((given.folder / CALIBRATION_FILE).read_bytes())
        if given.write and "--quick" in result.command:
            parser.error("a quick run shows that it works, not what is true: give a full one")
        picture = (given.folder / "dose.svg").read_bytes() if given.write else b""
    print(page(result))
    if given.write:
        write(result, picture)


if __name__ == "__main__":
    main()
