"""Do verdicts keep what they say? Power at the printed effect, coverage of effects' intervals.

    python benchmarks/verdicts.py --quick      # under a minute
    python benchmarks/verdicts.py [--times N] [--only NAME ...]

Data sets of known truth, and the tests and intervals that the library makes of them
(tests/work/power.py). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "work"))

import power  # noqa: E402


def main() -> None:
    """Simulate, print a line a row, and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--times", type=int, default=800)
    parser.add_argument("--only", nargs="*", default=None)
    given = parser.parse_args()
    times = 20 if given.quick else given.times
    result: dict[str, dict[str, dict[str, float]]] = {"power": {}, "coverage": {}}
    worlds = [("power", name) for name in power.POWER]
    worlds += [("coverage", name) for name in power.COVERAGE]
    for kind, name in worlds:
        if given.only is not None and not any(part in name for part in given.only):
            continue
        start = time.process_time()
        share, at = (power.power if kind == "power" else power.coverage)(name, times)
        result[kind][name] = {"share": share, "at": at, "data sets": times}
        spent = time.process_time() - start
        print(f"{kind} | {name} | {100 * share:.1f}% | {at:.4g} | {spent:.0f} s", flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
