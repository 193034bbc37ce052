"""Do the intervals cover and the tests keep their level? Simulated at the sizes of the real data.

    python benchmarks/intervals.py --quick                            # about two minutes
    python benchmarks/intervals.py --folder DIR --write docs/statistics.md

Every row draws data sets of known truth, makes the interval (or the p-value) the library makes, and
counts. Blocks of data sets are units of the engine: a killed run goes on where it stopped. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from levelhead.core.canonical import canonical
from levelhead.core.frozen import Frozen
from levelhead.core.results import Interval
from levelhead.core.statistics.bootstrap import Method, bootstrap
from levelhead.core.statistics.designs import Design, clusters, crossed, groups
from levelhead.core.statistics.families import benjamini_hochberg, holm, max_t
from levelhead.core.statistics.intervals import (
    effect_size,
    effect_size_interval,
    proportion_interval,
)
from levelhead.core.statistics.means import equivalence, t_test
from levelhead.core.statistics.nulls import permutation, sign_flip
from levelhead.engine.events import Event, Stored
from levelhead.engine.jobs import Job, run
from levelhead.engine.processes import LocalProcesses
from levelhead.engine.units import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Rng = np.random.Generator
Array = NDArray[np.float64]
BLOCK = 50  # data sets in a unit
ALPHAS = (0.01, 0.05, 0.10)

# --- Worlds: data whose truth is known -----------------------------------------------------------


def normal(rng: Rng, n: int) -> Array:
    """Mean 0, deviation 1."""
    return rng.normal(size=n)


def skewed(rng: Rng, n: int) -> Array:
    """Mean 0, deviation 1, skewness 1.4: a centred gamma."""
    return (rng.gamma(2.0, size=n) - 2) / math.sqrt(2)


def saturated(rng: Rng, n: int, shift: float = 0.0) -> Array:
    """Differences of differences of probabilities near 0 and 1, as next-sentence scores give."""
    p = rng.beta([0.15 + shift, 0.15, 0.15, 0.15], 0.15, size=(n, 4))
    return (p[:, 0] - p[:, 1]) - (p[:, 2] - p[:, 3])


def top_tenth(values: Array) -> float:
    """The mean of the largest tenth, as in Strength and Distance (Dawkins et al. 2024)."""
    k = max(round(len(values) / 10), 1)
    return float(np.partition(values, -k)[-k:].mean())


@cache
def truth_saturated(shift: float) -> tuple[float, float]:
    """Mean and mean of the top tenth, over four million draws."""
    values = saturated(np.random.default_rng(20250101), 4_000_000, shift)
    return float(values.mean()), top_tenth(values)


LABELS = np.repeat(np.arange(40), np.random.default_rng(7).integers(5, 60, size=40))
ROWS, COLUMNS = np.divmod(np.arange(800), 20)  # a full table of 40 x 20
OCCUPATIONS = clusters(LABELS.tolist(), name="clusters")
TABLE = crossed({"rows": ROWS.tolist(), "columns": COLUMNS.tolist()})


def clustered(rng: Rng, noise: Callable[[Rng, int], Array]) -> Array:
    """40 clusters of 5 to 59 items; 0.3 of the variance lies between them."""
    within = rng.normal(size=LABELS.size)
    return math.sqrt(0.3) * noise(rng, 40)[LABELS] + math.sqrt(0.7) * within


def table(rng: Rng, rows: float, columns: float) -> Array:
    """A crossed table with variance of rows, of columns, and 1 of the rest."""
    effects = (
        math.sqrt(rows) * normal(rng, 40)[ROWS] + math.sqrt(columns) * normal(rng, 20)[COLUMNS]
    )
    return effects + normal(rng, 800)


# --- Intervals: one data set, its interval, and the truth ----------------------------------------

Judged = tuple[float, Interval]


def by_bootstrap(
    rng: Rng, data: Array, design: Design, of: Callable[[Array], float], method: Method | None
) -> Interval:
    """The interval of a statistic of the items drawn."""
    draws = DRAWS[0]
    return bootstrap(lambda i: of(data[i]), design, rng=rng, draws=draws, method=method).interval


def two_lists(
    rng: Rng, n: int, delta: float, noise: Callable[[Rng, int], Array], method: Method | None
) -> Judged:
    """Two lists of n words, delta within-group deviations apart; None means noncentral t at 8."""
    data = noise(rng, 2 * n)
    data[:n] += delta
    truth = delta / math.sqrt(1 + delta**2 / 4)
    if n < 20 and method is None:
        return truth, effect_size_interval(data[:n], data[n:])
    return truth, by_bootstrap(rng, data, groups(n, n), lambda x: effect_size(x[:n], x[n:]), method)


def pairs(rng: Rng, n: int, shift: float, *, top: bool) -> Judged:
    """Twins: the signed mean, or the mean of the top tenth chosen again in every resample."""
    mean, tenth = truth_saturated(shift)
    of = top_tenth if top else (lambda x: float(x.mean()))
    interval = by_bootstrap(rng, saturated(rng, n, shift), groups(n), of, None)
    return (tenth if top else mean), interval


def binary(rng: Rng, n: int, share: float) -> Judged:
    """Pairs, of each only which side won."""
    return share, proportion_interval(int(rng.binomial(n, share)), n)


def mean_over(rng: Rng, data: Array, design: Design, method: Method | None = None) -> Judged:
    """A mean whose truth is 0."""
    return 0.0, by_bootstrap(rng, data, design, lambda x: float(x.mean()), method)


@dataclass(frozen=True)
class IntervalRow:
    """A kind of data, how its interval is made, and one draw of it."""

    data: str
    how: str
    draw: Callable[[Rng], Judged]
    chosen: bool = True  # False: shown to say why it is not chosen


ONE_WAY_ROWS = clusters(ROWS.tolist(), name="rows")
ONE_WAY_COLUMNS = clusters(COLUMNS.tolist(), name="columns")

INTERVALS = (
    *(
        IntervalRow(
            f"effect size, 84 + 84 words, {noise.__name__}, {delta:g} deviations apart",
            "bca",
            lambda rng, noise=noise, delta=delta: two_lists(rng, 84, delta, noise, None),
        )
        for noise in (normal, skewed)
        for delta in (0.0, 1.0, 2.0)
    ),
    *(
        IntervalRow(
            f"effect size, 8 + 8 words, normal, {delta:g} deviations apart",
            "noncentral t",
            lambda rng, delta=delta: two_lists(rng, 8, delta, normal, None),
        )
        for delta in (0.0, 1.0, 2.0)
    ),
    IntervalRow(
        "effect size, 8 + 8 words, normal, 1 deviations apart",
        "percentile",
        lambda rng: two_lists(rng, 8, 1.0, normal, "percentile"),
        chosen=False,
    ),
    *(
        IntervalRow(
            f"{n} pairs, {'mean of the top tenth' if top else 'signed mean'}, shift {shift:g}",
            "bca",
            lambda rng, n=n, shift=shift, top=top: pairs(rng, n, shift, top=top),
        )
        for n in (234, 749)
        for top in (False, True)
        for shift in (0.0, 0.1)
    ),
    *(
        IntervalRow(
            f"1,508 binary pairs, share {share:g}",
            "wilson",
            lambda rng, share=share: binary(rng, 1508, share),
        )
        for share in (0.5, 0.605, 0.98)
    ),
    *(
        IntervalRow(
            f"mean over 40 unequal clusters, {noise.__name__}",
            "expanded",
            lambda rng, noise=noise: mean_over(rng, clustered(rng, noise), OCCUPATIONS),
        )
        for noise in (normal, skewed)
    ),
    IntervalRow(
        "mean over 40 unequal clusters, normal",
        "percentile, clusters ignored",
        lambda rng: mean_over(rng, clustered(rng, normal), groups(LABELS.size), "percentile"),
        chosen=False,
    ),
    *(
        IntervalRow(
            f"mean over a table of 40 x 20, variance of rows {rows:g}, of columns {columns:g}",
            how,
            lambda rng, rows=rows, columns=columns, design=design, method=method: mean_over(
                rng, table(rng, rows, columns), design, method
            ),
            chosen,
        )
        for rows, columns in ((0.3, 0.2), (0.1, 0.05), (0.0, 0.0))
        for how, design, method, chosen in (
            ("multiway", TABLE, None, True),
            ("pigeonhole, percentile", TABLE, "percentile", False),
            ("one-way over rows", ONE_WAY_ROWS, None, False),
            ("one-way over columns", ONE_WAY_COLUMNS, None, False),
        )
    ),
)

# --- Tests: one data set under the null, its p-value (the smallest of a family) ------------------


def permuted(rng: Rng, n: int) -> float:
    """Two lists of n words that do not differ."""
    data = skewed(rng, 2 * n)
    null = permutation(
        lambda i: effect_size(data[i[:n]], data[i[n:]]), groups(n, n), rng=rng, draws=DRAWS[1]
    )
    return null.p.value


def flipped(rng: Rng, data: Array, design: Design, *, top: bool = False) -> float:
    """Twins that may be swapped, one-sided for the top tenth."""
    of = top_tenth if top else (lambda x: float(x.mean()))
    side = "greater" if top else "two-sided"
    null = sign_flip(
        lambda signs: of(signs * data), design, rng=rng, draws=DRAWS[1], alternative=side
    )
    return null.p.value


def crossed_t(rng: Rng, rows: float, columns: float) -> float:
    """A table whose mean is 0, by the multiway bootstrap t."""
    data = table(rng, rows, columns)
    return bootstrap(lambda i: float(data[i].mean()), TABLE, rng=rng, draws=DRAWS[0]).p(0.0).value


def heads(rng: Rng, effects: int) -> tuple[Array, Array, Array]:
    """|t| of 144 correlated heads over 40 words, of their joint sign flips, and the data."""
    common = rng.normal(size=(40, 12)) @ rng.normal(size=(12, 144)) / math.sqrt(12)
    x = math.sqrt(0.7) * common + math.sqrt(0.3) * rng.normal(size=(40, 144))
    x[:, :effects] += 1.0
    signs = rng.choice([-1.0, 1.0], size=(DRAWS[1], 40))
    means, squares = signs @ x / 40, (x**2).mean(0)
    null = means / np.sqrt((squares - means**2) / 39)
    observed = x.mean(0) / np.sqrt((squares - x.mean(0) ** 2) / 39)
    return np.abs(observed), np.abs(null), x


def family(rng: Rng, correct: str, effects: int = 0) -> float:
    """The smallest corrected p among 144 heads that have no effect."""
    observed, null, x = heads(rng, effects)
    if correct == "max-T":
        return float(max_t(observed, null)[effects:].min())
    p = [t_test(column).p.value for column in x.T]
    return float(
        {"Holm": holm, "Benjamini-Hochberg": benjamini_hochberg}[correct](p)[effects:].min()
    )


@dataclass(frozen=True)
class TestRow:
    """A null hypothesis that is true, the test, and one p-value of it."""

    data: str
    how: str
    draw: Callable[[Rng], float]


TESTS = (
    TestRow("84 + 84 words, skewed", "permutation", lambda rng: permuted(rng, 84)),
    TestRow("8 + 8 words, skewed", "permutation", lambda rng: permuted(rng, 8)),
    *(
        TestRow(
            f"{n} pairs, {'mean of the top tenth, one-sided' if top else 'signed mean'}",
            "sign flip",
            lambda rng, n=n, top=top: flipped(rng, saturated(rng, n), groups(n), top=top),
        )
        for n in (234, 749)
        for top in (False, True)
    ),
    TestRow(
        "1,508 binary pairs",
        "sign flip",
        lambda rng: flipped(rng, rng.choice([-1.0, 1.0], size=1508), groups(1508)),
    ),
    TestRow(
        "40 unequal clusters, symmetric",
        "sign flip",
        lambda rng: flipped(rng, clustered(rng, normal), OCCUPATIONS),
    ),
    *(
        TestRow(
            f"table of 40 x 20, variance of rows {rows:g}, of columns {columns:g}",
            "multiway bootstrap t",
            lambda rng, rows=rows, columns=columns: crossed_t(rng, rows, columns),
        )
        for rows, columns in ((0.3, 0.2), (0.1, 0.05))
    ),
    TestRow(
        "500 differences, normal, one-sided",
        "t",
        lambda rng: t_test(normal(rng, 500), alternative="greater").p.value,
    ),
    TestRow(
        "234 differences exactly at the margin",
        "TOST",
        lambda rng: equivalence(saturated(rng, 234) + 0.2, -0.2, 0.2).value,
    ),
    *(
        TestRow(
            f"144 correlated heads, {effects or 'none'} with an effect",
            how,
            lambda rng, how=how, effects=effects: family(rng, how, effects),
        )
        for how, effects in (("max-T", 0), ("max-T", 10), ("Holm", 0), ("Benjamini-Hochberg", 0))
    ),
)

# --- Running and telling -------------------------------------------------------------------------

DRAWS = [499, 199]  # resamples of an interval, rearrangements of a test


def block(spec: Mapping[str, object]) -> bytes:
    """A block of data sets of one row: counts, to be added up."""
    kind, row, number = str(spec["kind"]), int(str(spec["row"])), int(str(spec["block"]))
    DRAWS[:] = [int(str(spec["draws"])), int(str(spec["rearrangements"]))]
    rngs = [
        np.random.default_rng([20261115, kind == "tests", row, number, i]) for i in range(BLOCK)
    ]
    if kind == "tests":
        p = np.array([TESTS[row].draw(rng) for rng in rngs])
        return canonical({"hits": [int((p <= alpha + 1e-12).sum()) for alpha in ALPHAS]})
    judged = [INTERVALS[row].draw(rng) for rng in rngs]
    return canonical(
        {
            "covered": sum(truth in interval for truth, interval in judged),
            "below": sum(truth < interval.low for truth, interval in judged),
            "above": sum(truth > interval.high for truth, interval in judged),
            "width": float(sum(interval.high - interval.low for _, interval in judged)),
        }
    )


def show_progress(event: Event) -> None:
    """A line now and then, with the time left."""
    if isinstance(event, Stored) and event.done % 20 == 0:
        left = "" if event.seconds_left is None else f", {event.seconds_left / 60:.1f} min left"
        print(f"{event.done} of {event.units} blocks{left}", file=sys.stderr, flush=True)


def simulate(folder: Path, sets: int, draws: int, rearrangements: int) -> dict[str, list[dict]]:
    """All rows, each over so many data sets."""
    blocks = math.ceil(sets / BLOCK)
    specs = [
        (kind, row, number)
        for kind, rows in (("intervals", INTERVALS), ("tests", TESTS))
        for row in range(len(rows))
        for number in range(blocks)
    ]
    units = tuple(
        Unit(
            "intervals:block",
            Frozen(
                {
                    "kind": kind,
                    "row": row,
                    "name": (INTERVALS if kind == "intervals" else TESTS)[row].data,
                    "block": number,
                    "draws": draws,
                    "rearrangements": rearrangements,
                }
            ),
        )
        for kind, row, number in specs
    )
    job = Job("coverage and level", units)
    runner = LocalProcesses(workers=2)
    store = run(job, folder, runner=runner, on_event=show_progress, extend=True)
    counts: dict[str, list[dict]] = {"intervals": [], "tests": []}
    for (kind, row, number), result in zip(specs, job.results(store), strict=True):
        found = json.loads(result)
        if number == 0:
            counts[kind].append(dict.fromkeys(found, 0) | {"hits": [0] * len(ALPHAS)})
        total = counts[kind][row]
        for name, value in found.items():
            total[name] = (
                [a + b for a, b in zip(total[name], value, strict=True)]
                if name == "hits"
                else total[name] + value
            )
    n = blocks * BLOCK
    return {
        "intervals": [
            {
                "data": row.data,
                "how": row.how,
                "chosen": row.chosen,
                "sets": n,
                **{name: count[name] / n for name in ("covered", "below", "above", "width")},
            }
            for row, count in zip(INTERVALS, counts["intervals"], strict=True)
        ],
        "tests": [
            {"data": row.data, "how": row.how, "sets": n, "rates": [h / n for h in count["hits"]]}
            for row, count in zip(TESTS, counts["tests"], strict=True)
        ],
    }


def faults(rows: dict[str, list[dict]], slack: float) -> list[str]:
    """Chosen intervals outside 92-98%, tests above their level by 3 standard errors."""
    found = []
    for row in rows["intervals"]:
        error = slack * math.sqrt(0.95 * 0.05 / row["sets"])
        if row["chosen"] and not 0.92 - error <= row["covered"] <= 0.98 + error:
            found.append(f"{row['data']}, {row['how']}: covers {row['covered']:.3f}")
    for row in rows["tests"]:
        for alpha, rate in zip(ALPHAS, row["rates"], strict=True):
            if rate > alpha + 3 * math.sqrt(alpha * (1 - alpha) / row["sets"]):
                found.append(f"{row['data']}, {row['how']}: P(p <= {alpha}) = {rate:.3f}")
    return found


def tables(rows: dict[str, list[dict]]) -> str:
    """The two tables as Markdown."""
    sets = rows["intervals"][0]["sets"]
    lines = [
        f"{sets:,} data sets a row, {DRAWS[0]} resamples, {DRAWS[1]} rearrangements; the standard "
        f"error of a coverage of 95% is {100 * math.sqrt(0.0475 / sets):.1f} points. Written by "
        "`benchmarks/intervals.py`.",
        "",
        "| data | interval | covers | truth below | truth above | mean width |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows["intervals"]:
        how = row["how"] if row["chosen"] else f"*{row['how']}*"
        covers = f"{100 * row['covered']:.1f}%"
        lines.append(
            f"| {row['data']} | {how} | {f'**{covers}**' if row['chosen'] else covers} "
            f"| {100 * row['below']:.1f}% | {100 * row['above']:.1f}% | {row['width']:.3f} |"
        )
    lines += [
        "",
        "Intervals in italics are not what levelhead chooses; they are there to show why.",
        "",
        "| true null | test | P(p <= .01) | P(p <= .05) | P(p <= .10) |",
        "|---|---|---|---|---|",
    ]
    for row in rows["tests"]:
        rates = " | ".join(f"{rate:.3f}" for rate in row["rates"])
        lines.append(f"| {row['data']} | {row['how']} | {rates} |")
    limits = ", ".join(
        f"{alpha + 3 * math.sqrt(alpha * (1 - alpha) / sets):.3f}" for alpha in ALPHAS
    )
    return "\n".join([*lines, "", f"Three standard errors above the level: {limits}."])


def write(page: Path, text: str) -> None:
    """Put the tables between the page's markers."""
    head, begin, rest = page.read_text().partition("<!-- tables: begin -->\n")
    _, end, tail = rest.partition("<!-- tables: end -->\n")
    if not (begin and end):
        sys.exit(f"{page} has no markers <!-- tables: begin --> and <!-- tables: end -->")
    page.write_text(f"{head}{begin}\n{text}\n\n{end}{tail}")


def main() -> None:
    """Simulate, print, and exit with 1 if a row is not as it must be."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="100 data sets, for CI")
    options.add_argument("--sets", type=int, default=2000)
    options.add_argument("--folder", type=Path, help="keeps the blocks; default: thrown away")
    options.add_argument("--write", type=Path, metavar="PAGE")
    given = options.parse_args()
    sets, draws = (100, 399) if given.quick else (given.sets, 499)
    with tempfile.TemporaryDirectory() as scratch:
        rows = simulate(given.folder or Path(scratch) / "run", sets, draws, 199)
    DRAWS[:] = [draws, 199]
    print(tables(rows))
    if given.write:
        write(given.write, tables(rows))
    # With few data sets the count itself is uncertain; with many the bounds are meant as they are.
    found = faults(rows, slack=3.0 if given.quick else 0.0)
    print(json.dumps({"rows": rows, "faults": found}))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
