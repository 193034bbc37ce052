"""Tables of many groups: coverage of the intervals, level of the tests, and organisms.

    python benchmarks/group_tables.py --quick              # under a minute
    python benchmarks/group_tables.py --write FILE.csv     # about 15 minutes of one core

Simulated tables have known means of the groups. Organisms are causal models constructed with a
known spread between groups, or with an interaction alone. The last line is JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from levelhead.calibrate.organisms.group_tables import GroupOrganism
from levelhead.core.run_context import Inference
from levelhead.data.lexicons.name_lists import CountedName, NameList
from levelhead.measures.decisions.callback import Callback
from levelhead.measures.group_tables.table_metrics import (
    TableLabels,
    make_table_metrics,
    with_item_spread,
)
from levelhead.measures.group_tables.weighted_groups import values_of_drawn_groups
from levelhead.measures.inference import estimate, null_distribution
from levelhead.measures.metric import jackknife_variance
from levelhead.stats.designs import clustered_design, grouped_design
from levelhead.stats.group_table import (
    effect_sd_interval,
    gap_of_pairs,
    make_effects,
    simultaneous_pair_intervals,
)

Array = np.ndarray
ITEMS = 24
SHAPES = ("equal noise", "unequal noise", "correlated", "heavy tails", "skewed")


def draw_table(rng: np.random.Generator, means: Array, shape: str) -> Array:
    """`[items, groups]` values whose groups have these means.

    Args:
        rng: random generator.
        means: mean of each group.
        shape: kind of noise.
    """
    size = (ITEMS, means.size)
    noise = rng.standard_normal(size)
    if shape == "unequal noise":
        noise *= np.linspace(0.5, 2.0, means.size)
    if shape == "correlated":
        noise = 0.5 * noise + rng.standard_normal((ITEMS, 1)) + 0.5 * np.roll(noise, 1, axis=1)
    if shape == "heavy tails":
        noise = rng.standard_t(4, size) / 2**0.5
    if shape == "skewed":
        noise = rng.exponential(1.0, size) - 1.0
    return means + noise


def simulate_coverage(n_groups: int, effect: float, shape: str, n_tables: int) -> list[dict]:
    """Coverage of the intervals of the spread, of all pairs at once and of the largest gap."""
    rng = np.random.default_rng([n_groups, round(100 * effect), SHAPES.index(shape)])
    center = make_effects((n_groups,)).overall
    hits = {"spread": 0, "all pairs": 0, "gap": 0}
    for _ in range(n_tables):
        means = center @ rng.standard_normal(n_groups)
        means *= effect / means.std()
        table = draw_table(rng, means, shape)
        interval = effect_sd_interval(table @ center)
        hits["spread"] += interval.low <= means.std() <= interval.high
        pairs = simultaneous_pair_intervals(table)
        hits["all pairs"] += all(
            row.low <= means[row.first] - means[row.second] <= row.high for row in pairs
        )
        gap = gap_of_pairs(pairs, level=0.95)
        hits["gap"] += gap.low <= np.ptp(means) <= gap.high
    return [
        row_of("coverage", f"{number}, {shape}, sd {effect:g}", n_groups, count, n_tables)
        for number, count in hits.items()
    ]


def simulate_level(sizes: tuple[int, ...], shape: str, n_tables: int) -> list[dict]:
    """Share of tables without an effect in which a test finds one at 5%.

    With two attributes the interaction alone is absent: each attribute has an effect of its own.
    """
    rng = np.random.default_rng([*sizes, SHAPES.index(shape), 7])
    labels = TableLabels("x", "values", "nats", ("a", "b")[: len(sizes)], sizes)
    tested = {
        metric.name: metric
        for metric in make_table_metrics(labels, lambda values: values)
        if metric.name in (("x_spread", "x_gap") if len(sizes) == 1 else ("x_interaction",))
    }
    alarms = dict.fromkeys(tested, 0)
    for number in range(n_tables):
        means = np.zeros(int(np.prod(sizes)))
        if len(sizes) == 2:
            means = (rng.standard_normal((sizes[0], 1)) + rng.standard_normal(sizes[1])).ravel()
        table = draw_table(rng, means, shape)
        values, design = with_item_spread(torch.from_numpy(table)), grouped_design(ITEMS)
        for name, metric in tested.items():
            null = null_distribution(
                Inference(seed=number, permutations=199), metric, values, design, name=name
            )
            alarms[name] += null is not None and null.p.value <= 0.05
    text = " x ".join(map(str, sizes))
    return [
        row_of("false alarms", f"{name[2:]}, {shape}", text, count, n_tables)
        for name, count in alarms.items()
    ]


def simulate_names(n_names: int, people: int, effect: float, n_lists: int) -> list[dict]:
    """Names whose people are counted: coverage or false alarms, weighed and by likeliest group."""
    rng = np.random.default_rng([n_names, people, round(effect)])
    p_all = rng.beta(0.4, 0.4, 1_000_000)
    truth = effect * float(
        (p_all * p_all).mean() / p_all.mean() - (p_all * (1 - p_all)).mean() / (1 - p_all).mean()
    )
    metric = Callback(names="bloomberg-names").primary_metric
    hits = {"weighed": 0, "likeliest group": 0}
    for number in range(n_lists):
        p, total = rng.beta(0.4, 0.4, n_names), 1 + rng.poisson(people - 1, n_names)
        first = rng.binomial(total, p)
        counts = zip(first.tolist(), (total - first).tolist(), strict=True)
        names = NameList(
            ("black", "white"), tuple(CountedName(f"{i}", c) for i, c in enumerate(counts))
        )
        y, share = effect * p + rng.standard_normal(n_names), first / total
        for case, weight in (("weighed", share), ("likeliest group", (share > 0.5).astype(float))):
            values = torch.from_numpy(np.stack([y, weight, 1 - weight], axis=1))
            labels = [row.name for row in names.names]
            draws = values_of_drawn_groups(metric, values, labels, (names, names.groups))
            result = estimate(
                Inference(seed=number, resamples=399),
                metric,
                values,
                clustered_design(labels, within=list(share > 0.5)),
                extra_variance=jackknife_variance(draws) if case == "weighed" else 0.0,
            )
            if effect:
                hits[case] += result.interval.low <= truth <= result.interval.high
            else:
                hits[case] += result.p.value <= 0.05
    what = "coverage" if effect else "false alarms"
    return [
        row_of(
            what,
            f"names, {case}, about {people} people each",
            f"2, {n_names} names",
            count,
            n_lists,
        )
        for case, count in hits.items()
    ]


def row_of(what: str, case: str, groups: object, count: int, total: int) -> dict:
    """A share with its Clopper-Pearson interval."""
    ends = stats.binomtest(count, total).proportion_ci()
    return {
        "what": what,
        "case": case,
        "groups": groups,
        "n": total,
        "share": round(float(count) / total, 4),
        "low": round(float(ends.low), 4),
        "high": round(float(ends.high), 4),
    }


def measure_organism(organism: GroupOrganism) -> dict[str, tuple[float, float]]:
    """Value and p of every number of an organism's measure."""
    inference = Inference(seed=0, permutations=999, resamples=199)
    result = organism.measure(organism.load_lm(), inference=inference)
    numbers = {result.measure: (result.value, result.p.value)}
    for extra in result.extras:
        if extra.p is not None and "against" not in extra.name:
            numbers[extra.name] = (extra.value, extra.p.value)
    return numbers


def organism_rows(seeds: range, null_seeds: range, doses: tuple[float, ...]) -> list[dict]:
    """Dose and response, detections, and false alarms of organisms."""
    rows = []
    planted, measured = [], []
    for dose in doses:
        for seed in seeds:
            numbers = measure_organism(GroupOrganism(3, dose=dose, seed=seed))
            planted.append(dose)
            measured.append(numbers["association_spread"][0])
            print(f"three groups, dose {dose:g}, seed {seed}: {numbers}", flush=True)
    if len(set(planted)) > 1:
        rho = stats.spearmanr(planted, measured).statistic
        rows.append(
            {
                "what": "dose and response",
                "case": "spread, Spearman",
                "groups": 3,
                "n": len(planted),
                "share": round(float(rho), 3),
            }
        )
    for n_groups in (3, 5, 8):
        alarms = 0
        for seed in null_seeds:
            numbers = measure_organism(GroupOrganism(n_groups, dose=0.0, seed=seed))
            alarms += numbers["association_spread"][1] <= 0.05
        rows.append(row_of("false alarms", "spread, organisms", n_groups, alarms, len(null_seeds)))
        print(rows[-1], flush=True)
    found: dict[str, int] = {}
    for seed in seeds:
        organism = GroupOrganism(3, is_crossed=True, effect="interaction", dose=0.5, seed=seed)
        numbers = measure_organism(organism)
        print(f"interaction alone, seed {seed}: {numbers}", flush=True)
        for name, (_, p) in numbers.items():
            found[name] = found.get(name, 0) + (p <= 0.05)
    return rows + [
        row_of("interaction alone, 0.5 nat", name, "3 x 2", count, len(seeds))
        for name, count in found.items()
    ]


def main() -> None:
    """Run the simulations and the organisms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    n_tables, n_null = (60, 40) if options.quick else (400, 600)
    rows = []
    for n_groups in (3,) if options.quick else (3, 5, 8):
        for effect in (0.0, 0.3) if options.quick else (0.0, 0.1, 0.3, 1.0):
            for shape in SHAPES[: 2 if options.quick else None]:
                rows += simulate_coverage(n_groups, effect, shape, n_tables)
                print(rows[-3:], flush=True)
    for sizes in ((3,), (3, 2)) if options.quick else ((3,), (5,), (8,), (3, 2), (8, 2)):
        for shape in SHAPES[:1] if options.quick else SHAPES:
            rows += simulate_level(sizes, shape, n_null)
            print(rows[-2:], flush=True)
    for n_names, people in (
        ((24, 4),) if options.quick else ((24, 4), (24, 100), (60, 4), (60, 100))
    ):
        for effect in (0.0, 1.0):
            rows += simulate_names(n_names, people, effect, n_tables)
            print(rows[-2:], flush=True)
    if options.quick:
        rows += organism_rows(range(1), range(1), (0.5,))
    else:
        rows += organism_rows(range(5), range(5, 25), (0.0, 0.125, 0.25, 0.5, 1.0))
    if options.write:
        columns = ("what", "case", "groups", "n", "share", "low", "high")
        with options.write.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    print(json.dumps({"group_tables": rows}))


if __name__ == "__main__":
    main()
