"""Do the intervals cover and the tests keep their level? Simulated at the sizes of the real data.

    python benchmarks/intervals.py --quick                            # under a minute
    python benchmarks/intervals.py --folder DIR --write docs/development/statistics.md

Every row draws data sets of known truth, makes the interval (or the p-value) the library makes, and
counts. Blocks of data sets are units of the engine: a killed run goes on where it stopped. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import levelhead.stats
from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.files import file_hash
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Interval
from levelhead.core.run_context import RunContext
from levelhead.engine.events import Event, TaskStored
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.engine.scheduler import Job, run_job
from levelhead.engine.tasks import Task
from levelhead.stats.bootstrap import Method, bootstrap
from levelhead.stats.designs import Design, clustered_design, crossed_design, grouped_design
from levelhead.stats.intervals import (
    effect_size_interval,
    proportion_interval,
    weat_effect_size,
)
from levelhead.stats.means import t_test
from levelhead.stats.multiple_testing import holm, max_t
from levelhead.stats.permutation import permutation, sign_flip

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
OCCUPATIONS = clustered_design(LABELS.tolist(), name="clusters")
TABLE = crossed_design({"rows": ROWS.tolist(), "columns": COLUMNS.tolist()})
WORDS, CONTEXTS = np.divmod(np.arange(1600), 20)
SEAT = crossed_design(
    {"words": WORDS.tolist(), "contexts": CONTEXTS.tolist()}, within=(WORDS < 40).tolist()
)
FOUR = clustered_design(np.repeat(np.arange(4), 10).tolist())


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
    rng: Rng, data: Array, design: Design, of: Callable[..., float], method: Method | None = None
) -> Interval:
    """The interval of a statistic of the groups drawn."""
    return bootstrap(
        lambda draw: of(*(data[group] for group in draw.groups)),
        design,
        rng=rng,
        n_resamples=DRAWS[0],
        method=method,
    ).interval


def mean(x: Array) -> float:
    """As a float."""
    return float(x.mean())


def two_lists(
    rng: Rng, n: int, delta: float, noise: Callable[[Rng, int], Array], method: Method | None
) -> Judged:
    """Two lists of n words, delta within-group deviations apart; None means noncentral t at 8."""
    data = noise(rng, 2 * n)
    data[:n] += delta
    truth = delta / math.sqrt(1 + delta**2 / 4)
    if n < 20 and method is None:
        return truth, effect_size_interval(data[:n], data[n:])
    return truth, by_bootstrap(rng, data, grouped_design(n, n), weat_effect_size, method)


def pairs(rng: Rng, n: int, shift: float, *, top: bool) -> Judged:
    """Twins: the signed mean, or the mean of the top tenth chosen again in every resample."""
    of, truth = (top_tenth, truth_saturated(shift)[1]) if top else (mean, truth_saturated(shift)[0])
    return truth, by_bootstrap(rng, saturated(rng, n, shift), grouped_design(n), of)


def binary(rng: Rng, n: int, share: float) -> Judged:
    """Pairs, of each only which side won."""
    return share, proportion_interval(int(rng.binomial(n, share)), n)


def mean_over(rng: Rng, data: Array, design: Design, method: Method | None = None) -> Judged:
    """A mean whose truth is 0."""
    return 0.0, by_bootstrap(rng, data, design, mean, method)


def words_in_contexts(rng: Rng, delta: float) -> Judged:
    """SEAT's design: 40 + 40 words, each read in the same 20 contexts."""
    group = delta * (WORDS < 40)
    words, contexts = normal(rng, 80)[WORDS], normal(rng, 20)[CONTEXTS]
    data = group + math.sqrt(0.3) * words + math.sqrt(0.2) * contexts + normal(rng, 1600)
    return delta / math.sqrt(1.5 + delta**2 / 4), by_bootstrap(rng, data, SEAT, weat_effect_size)


def top_of_table(rng: Rng) -> Judged:
    """The mean of the top tenth of a crossed table."""
    truth = math.sqrt(1.5) * 1.7549833  # of a normal distribution with the same variance
    return truth, by_bootstrap(rng, table(rng, 0.3, 0.2), TABLE, top_tenth)


@dataclass(frozen=True)
class IntervalRow:
    """A kind of data, how its interval is made, and one draw of it."""

    data: str
    how: str
    draw: Callable[[Rng], Judged]
    must: Literal["cover", "miss", "show"] = "cover"
    cheap: bool = False  # no resampling: many data sets even when quick


ONE_WAY_ROWS = clustered_design(ROWS.tolist(), name="rows")
ONE_WAY_COLUMNS = clustered_design(COLUMNS.tolist(), name="columns")

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
            cheap=True,
        )
        for delta in (0.0, 1.0, 2.0)
    ),
    *(
        IntervalRow(
            "effect size, 8 + 8 words, normal, 2 deviations apart",
            method,
            lambda rng, method=method: two_lists(rng, 8, 2.0, normal, method),
            "show",
        )
        for method in ("percentile", "bca", "expanded")
    ),
    IntervalRow(
        "mean of 8 items, normal",
        "expanded",
        lambda rng: mean_over(rng, normal(rng, 8), grouped_design(8)),
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
            cheap=True,
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
        lambda rng: mean_over(
            rng, clustered(rng, normal), grouped_design(LABELS.size), "percentile"
        ),
        "miss",
    ),
    IntervalRow(
        "mean over 4 clusters of 10, normal",
        "expanded",
        lambda rng: mean_over(rng, normal(rng, 4).repeat(10) + normal(rng, 40), FOUR),
    ),
    *(
        IntervalRow(
            f"mean over a table of 40 x 20, variance of rows {rows:g}, of columns {columns:g}",
            how,
            lambda rng, rows=rows, columns=columns, design=design, method=method: mean_over(
                rng, table(rng, rows, columns), design, method
            ),
            must,
        )
        for rows, columns, how, design, method, must in (
            (0.3, 0.2, "multiway", TABLE, None, "cover"),
            (0.3, 0.2, "pigeonhole, percentile", TABLE, "percentile", "show"),
            (0.3, 0.2, "one-way over rows", ONE_WAY_ROWS, None, "miss"),
            (0.3, 0.2, "one-way over columns", ONE_WAY_COLUMNS, None, "miss"),
            (0.1, 0.05, "multiway", TABLE, None, "cover"),
            (0.0, 0.0, "multiway", TABLE, None, "cover"),
            (0.0, 0.0, "pigeonhole, percentile", TABLE, "percentile", "show"),
        )
    ),
    *(
        IntervalRow(
            f"effect size, 40 + 40 words x 20 contexts, {delta:g} apart",
            "multiway",
            lambda rng, delta=delta: words_in_contexts(rng, delta),
        )
        for delta in (1.0, 2.5)
    ),
    IntervalRow(
        "mean of the top tenth of a table of 40 x 20, variance of rows 0.3, of columns 0.2",
        "multiway",
        top_of_table,
        "show",
    ),
)

# --- Tests: one data set under the null, its p-value (the smallest of a family) ------------------


def permuted(rng: Rng, n: int) -> float:
    """Two lists of n words that do not differ."""
    data = skewed(rng, 2 * n)
    null = permutation(
        lambda draw: weat_effect_size(*(data[group] for group in draw.groups)),
        grouped_design(n, n),
        rng=rng,
        n_resamples=DRAWS[1],
    )
    return null.p.value


def flipped(rng: Rng, data: Array, design: Design, *, top: bool = False) -> float:
    """Twins that may be swapped, one-sided for the top tenth."""
    of, side = (top_tenth, "greater") if top else (mean, "two-sided")
    null = sign_flip(
        lambda signs: of(signs * data), design, rng=rng, n_resamples=DRAWS[1], alternative=side
    )
    return null.p.value


def by_t(rng: Rng, data: Array, design: Design) -> float:
    """A mean that is 0, by the bootstrap t."""
    result = bootstrap(lambda draw: mean(data[draw.items]), design, rng=rng, n_resamples=DRAWS[0])
    return result.p(0.0).value


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
    return float(holm(stats.ttest_1samp(x, 0.0).pvalue)[effects:].min())


@dataclass(frozen=True)
class TestRow:
    """A null hypothesis that is true, the test, and one p-value of it."""

    data: str
    how: str
    draw: Callable[[Rng], float]
    cheap: bool = False


TESTS = (
    TestRow("84 + 84 words, skewed", "permutation", lambda rng: permuted(rng, 84)),
    TestRow("8 + 8 words, skewed", "permutation", lambda rng: permuted(rng, 8)),
    *(
        TestRow(
            f"{n} pairs, {'mean of the top tenth, one-sided' if top else 'signed mean'}",
            "sign flip",
            lambda rng, n=n, top=top: flipped(rng, saturated(rng, n), grouped_design(n), top=top),
        )
        for n in (234, 749)
        for top in (False, True)
    ),
    TestRow(
        "1,508 binary pairs",
        "sign flip",
        lambda rng: flipped(rng, rng.choice([-1.0, 1.0], size=1508), grouped_design(1508)),
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
            lambda rng, rows=rows, columns=columns: by_t(rng, table(rng, rows, columns), TABLE),
        )
        for rows, columns in ((0.3, 0.2), (0.1, 0.05))
    ),
    TestRow(
        "40 unequal clusters, symmetric",
        "bootstrap t",
        lambda rng: by_t(rng, clustered(rng, normal), OCCUPATIONS),
    ),
    TestRow(
        "500 differences, normal, one-sided",
        "t",
        lambda rng: t_test(normal(rng, 500), alternative="greater").p.value,
        cheap=True,
    ),
    *(
        TestRow(
            f"144 correlated heads, {effects or 'none'} with an effect",
            how,
            lambda rng, how=how, effects=effects: family(rng, how, effects),
            cheap=True,
        )
        for how, effects in (("max-T", 0), ("max-T", 10), ("Holm", 0))
    ),
)

# --- Running and telling -------------------------------------------------------------------------

DRAWS = [299, 199]  # resamples of an interval, rearrangements of a test


def block(spec: Mapping[str, object]) -> bytes:
    """A block of data sets of one row: counts, to be added up."""
    kind, row, number = str(spec["kind"]), int(str(spec["row"])), int(str(spec["block"]))
    DRAWS[:] = [int(str(spec["draws"])), int(str(spec["rearrangements"]))]
    rngs = [
        np.random.default_rng([20261115, kind == "tests", row, number, i]) for i in range(BLOCK)
    ]
    if kind == "tests":
        p = np.array([TESTS[row].draw(rng) for rng in rngs])
        return to_canonical_json({"hits": [int((p <= alpha + 1e-12).sum()) for alpha in ALPHAS]})
    judged = [INTERVALS[row].draw(rng) for rng in rngs]
    return to_canonical_json(
        {
            "covered": sum(truth in interval for truth, interval in judged),
            "below": sum(truth < interval.low for truth, interval in judged),
            "above": sum(truth > interval.high for truth, interval in judged),
            "width": float(sum(interval.high - interval.low for _, interval in judged)),
        }
    )


def show_progress(event: Event) -> None:
    """A line now and then, with the time left."""
    if isinstance(event, TaskStored) and event.n_done % 20 == 0:
        left = "" if event.seconds_left is None else f", {event.seconds_left / 60:.1f} min left"
        print(f"{event.n_done} of {event.n_tasks} blocks{left}", file=sys.stderr, flush=True)


def code_hash() -> str:
    """Of everything the counts depend on: a changed formula must not find the old ones."""
    files = [Path(__file__), *sorted(Path(levelhead.stats.__file__).parent.glob("*.py"))]
    return content_hash([file_hash(file) for file in files])


def simulate(folder: Path, *, sets: int, quick: bool) -> dict[str, list[dict]]:
    """Every row over so many data sets; quick leaves out what is only shown."""
    sets, cheap_sets = (50, 500) if quick else (sets, sets)
    fixed = {"draws": DRAWS[0], "rearrangements": DRAWS[1], "code": code_hash()}
    rows = [
        ("intervals", i, row)
        for i, row in enumerate(INTERVALS)
        if not (quick and row.must == "show")
    ]
    rows += [("tests", i, row) for i, row in enumerate(TESTS)]
    units: dict[tuple[str, int], list[Task]] = {
        (kind, i): [
            Task("intervals:block", FrozenDict({"kind": kind, "row": i, "block": number, **fixed}))
            for number in range(math.ceil((cheap_sets if row.cheap else sets) / BLOCK))
        ]
        for kind, i, row in rows
    }
    job = Job("coverage and level", tuple(unit for some in units.values() for unit in some))
    runner = LocalProcesses(workers=2)
    store = run_job(
        job, folder, executor=runner, context=RunContext(progress=show_progress), extend=True
    )
    output: dict[str, list[dict]] = {"intervals": [], "tests": []}
    for kind, i, row in rows:
        result = [json.loads(store.get(unit.key)) for unit in units[kind, i]]
        n = BLOCK * len(result)
        line = {"data": row.data, "how": row.how, "sets": n}
        if kind == "tests":
            hits = np.sum([block["hits"] for block in result], axis=0)
            line |= {"rates": [float(hit) / n for hit in hits]}
        else:
            line |= {name: sum(block[name] for block in result) / n for name in result[0]}
            line |= {"must": row.must}
        output[kind].append(line)
    return output


def faults(rows: dict[str, list[dict]], slack: float) -> list[str]:
    """Intervals outside 92-98%, tests above their level by 3 standard errors.

    And intervals that must miss and do not: then the row says nothing about the method beside it.
    """
    result = []
    for row in rows["intervals"]:
        error = slack * math.sqrt(0.95 * 0.05 / row["sets"])
        covers = 0.92 - error <= row["covered"] <= 0.98 + error
        misses = row["covered"] < 0.92 + error
        if not {"cover": covers, "miss": misses, "show": True}[row["must"]]:
            result.append(f"{row['data']}, {row['how']}: covers {row['covered']:.3f}")
    for row in rows["tests"]:
        for alpha, rate in zip(ALPHAS, row["rates"], strict=True):
            if rate > alpha + 3 * math.sqrt(alpha * (1 - alpha) / row["sets"]):
                result.append(f"{row['data']}, {row['how']}: P(p <= {alpha}) = {rate:.3f}")
    return result


INTERVAL_COLUMNS = ("data", "interval", "chosen", "covers", "below", "above", "width", "sets")
TEST_COLUMNS = ("data", "test", *(f"share of p <= {alpha:.2f}" for alpha in ALPHAS), "sets")


def tables(rows: dict[str, list[dict]]) -> dict[str, str]:
    """Both data files as CSV, by name; coverage in percent."""
    intervals = [
        (
            *(row["data"], row["how"], "yes" if row["must"] == "cover" else "no"),
            *(f"{100 * row[name]:.1f}" for name in ("covered", "below", "above")),
            *(f"{row['width']:.3f}", row["sets"]),
        )
        for row in rows["intervals"]
    ]
    levels = [
        (row["data"], row["how"], *(f"{rate:.3f}" for rate in row["rates"]), row["sets"])
        for row in rows["tests"]
    ]
    files = {"coverage": (INTERVAL_COLUMNS, intervals), "levels": (TEST_COLUMNS, levels)}
    texts = {}
    for name, (columns, cells) in files.items():
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([columns, *cells])
        texts[name] = file.getvalue()
    return texts


def summary(texts: dict[str, str]) -> str:
    """What the data files show, for their page."""
    intervals, levels = (list(csv.DictReader(io.StringIO(texts[name]))) for name in texts)
    sets = int(intervals[0]["sets"])
    chosen = [row for row in intervals if row["chosen"] == "yes"]
    least, most = (extreme(chosen, key=lambda row: float(row["covers"])) for extreme in (min, max))
    by_alpha = zip(ALPHAS, TEST_COLUMNS[2:-1], strict=True)
    largest = ", ".join(
        f"{max(float(row[column]) for row in levels):.3f} at {alpha:g} (three standard errors "
        f"above: {alpha + 3 * math.sqrt(alpha * (1 - alpha) / sets):.3f})"
        for alpha, column in by_alpha
    )
    return "\n".join(
        [
            f"{sets:,} data sets a row, {DRAWS[0]} resamples, {DRAWS[1]} rearrangements; the "
            f"standard error of a coverage of 95% is {100 * math.sqrt(0.0475 / sets):.1f} points. "
            "Written by `benchmarks/intervals.py`.",
            "",
            f"- [Coverage](data/coverage.csv) of the {len(chosen)} chosen intervals: "
            f"{least['covers']}% ({least['data']}) to {most['covers']}% ({most['data']}). The "
            f"other {len(intervals) - len(chosen)} rows show why another interval is chosen, or "
            "where the chosen one has its limit.",
            f"- [Level](data/levels.csv) of {len(levels)} tests, largest share of p-values: "
            f"{largest}.",
        ]
    )


def write(page: Path, texts: dict[str, str]) -> None:
    """Data files in the folder `data` beside a page, and their summary into the page."""
    folder = page.parent / "data"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    head, begin, rest = page.read_text().partition("<!-- tables: begin -->\n")
    _, end, tail = rest.partition("<!-- tables: end -->")
    if not begin or not end:
        sys.exit(f"{page} has no markers <!-- tables: begin --> and <!-- tables: end -->")
    page.write_text(f"{head}{begin}\n{summary(texts)}\n\n{end}{tail}")


def main() -> None:
    """Simulate, print, and exit with 1 if a row is not as it must be."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="50 data sets where resampled")
    options.add_argument("--model", type=Path, help="not used; every benchmark takes it")
    options.add_argument("--sets", type=int, default=2000)
    options.add_argument("--folder", type=Path, help="keeps the blocks; default: thrown away")
    options.add_argument("--write", type=Path, metavar="PAGE")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch) / "run"
        rows = simulate(folder, sets=given.sets, quick=given.quick)
    print(tables(rows))
    if given.write:
        write(given.write, tables(rows))
    # With few data sets the count itself is uncertain; with many the bounds are meant as they are.
    result = faults(rows, slack=3.0 if given.quick else 0.0)
    print(json.dumps({"rows": rows, "faults": result}))
    sys.exit(1 if result else 0)


if __name__ == "__main__":
    main()
