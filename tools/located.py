"""Heads found where they are known: docs/located.md.

    python tools/located.py FOLDER [--write]

Two kinds of organisms. Known: one head alone sees group words, in the last layer; is it first, and
does the greedy search end with it? Ordinary, at rho 1, four layers of four heads: does the gradient
on the find half rank the heads that ablation confirms on the other? FOLDER keeps what was found of
each, so that the work goes on where it was stopped; --write writes the page's tables anew.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats
from sklearn.metrics import roc_auc_score

from levelhead.calibrate.organisms import organism
from levelhead.core.files import write_atomic
from levelhead.core.statistics.families import holm
from levelhead.core.statistics.intervals import proportion_interval
from levelhead.locate.ablated import Variant
from levelhead.locate.find import locate
from levelhead.locate.greedy import greedy
from levelhead.locate.headmap import label
from levelhead.locate.split import halves
from levelhead.locate.variants import vary
from levelhead.measure.aspects import Judge
from levelhead.models.sites import Site

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "located.md"
MARK = "<!-- tools/located.py writes below this line -->\n"
KNOWN_HEAD = (1, 2)
KNOWN = {"gpt2": range(10), "bert": range(10)}
ORDINARY = {"gpt2": range(5), "bert": range(5)}
JUDGE = Judge(draws=999, permutations=999)


def ruler_of(one):
    """The contrast of all items: on few items a top tenth would be five."""
    return replace(one.rulers().contrast, top=1.0)


def known(architecture: str, seed: int) -> dict:
    """Where the one head that sees group words comes."""
    one = organism(architecture, 1.0, seed=seed, known_head=KNOWN_HEAD)
    began = time.perf_counter()
    lm = one.lm()
    seconds = time.perf_counter() - began
    ruler, site = ruler_of(one), Site("head_out", *KNOWN_HEAD)
    heads = locate(lm, ruler, exact="all", judge=JUDGE)
    by_ablation = locate(lm, ruler, by="ablation", judge=JUDGE)
    readouts = ruler.read(lm)[0]
    cut = halves(ruler, readouts, by=heads.halves.by, seed=heads.halves.seed)
    chosen = greedy(
        lm, ruler, cut.find.of(readouts), [one.site for one in heads.ranked], k=4,
        sign=heads.direction.sign or 1, judge=JUDGE,
    )  # fmt: skip
    others = [one.site for one in heads.heads if one.site != site]
    varied = vary(lm, ruler, readouts, [Variant((site,)), *(Variant((site, o)) for o in others)])
    value = [float(ruler.reduce(varied.of(i))) for i in (None, *range(len(others) + 1))]
    order = [one.site for one in heads.ranked]
    return {
        "architecture": architecture,
        "seed": seed,
        "seconds": seconds,
        "sign": heads.direction.sign,
        "value": value[0],
        "without": value[1],
        "rank by gradient": order.index(site) + 1,
        "rank by ablation": [one.site for one in by_ablation.ranked].index(site) + 1,
        "confirmed": [label(one) for one in heads.confirmed()],
        "greedy": [step.head for step in chosen.steps],
        "beyond": max(abs(own - value[1]) for own in value[2:]),
        "largest other effect": max(
            abs(one.effect or 0.0) for one in heads.heads if one.site != site
        ),
        "own effect": next(one.effect for one in heads.heads if one.site == site),
        "agreement": heads.agreement.value,
    }


def ordinary(architecture: str, seed: int) -> dict:
    """Whether the gradient ranks what ablation confirms."""
    plain = organism(architecture, 1.0, seed=seed)
    one = replace(plain, recipe=replace(plain.recipe, layers=4, heads=4))
    began = time.perf_counter()
    lm = one.lm()
    seconds = time.perf_counter() - began
    heads = locate(lm, ruler_of(one), exact="all", judge=JUDGE)
    p = holm([1.0 if head.p is None else head.p.value for head in heads.heads])
    positive = [
        bool(own <= 0.05) and (head.effect or 0) > 0
        for own, head in zip(p, heads.heads, strict=True)
    ]
    auroc = None
    if 0 < sum(positive) < len(positive):
        auroc = float(roc_auc_score(positive, [head.score for head in heads.heads]))
    return {
        "architecture": architecture,
        "seed": seed,
        "seconds": seconds,
        "sign": heads.direction.sign,
        "value": heads.measurement.value,
        "positive": sum(positive),
        "auroc": auroc,
        "agreement": heads.agreement.value,
        "replication": heads.replication.value,
    }


def table(rows: list[dict], columns: list[str]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = (row[name] for name in columns)
        told = (
            f"{cell:.3g}" if isinstance(cell, float) else ", ".join(cell) or "none"
            if isinstance(cell, list) else "none" if cell is None else str(cell)
            for cell in cells
        )  # fmt: skip
        lines.append("| " + " | ".join(told) + " |")
    return "\n".join(lines) + "\n"


def page(found: dict[str, list[dict]]) -> str:
    """The tables."""
    text = ["## A head that is known\n"]
    for architecture in KNOWN:
        rows = [row for row in found["known"] if row["architecture"] == architecture]
        if not rows:
            continue
        planted = label(Site("head_out", *KNOWN_HEAD))
        text.append(f"### {architecture}, planted head {planted} (counted from 1)\n")
        for how in ("gradient", "ablation"):
            hits = sum(row[f"rank by {how}"] == 1 for row in rows)
            interval = proportion_interval(hits, len(rows))
            text.append(
                f"First by {how}: {hits} of {len(rows)} seeds "
                f"[{interval.low:.0%}, {interval.high:.0%}].\n"
            )
        alone = sum(row["greedy"] == [planted] for row in rows)
        text.append(f"Greedy selection ends with it alone: {alone} of {len(rows)}.\n")
        columns = ["seed", "value", "without", "rank by gradient", "rank by ablation", "own effect"]
        columns += ["largest other effect", "beyond", "greedy", "confirmed"]
        text.append(table(rows, columns))
    text.append("## Ordinary organisms, rho 1, four layers of four heads\n")
    rows = found["ordinary"]
    for name, some in (
        ("all", rows),
        ("with at least 5 positive heads", [row for row in rows if row["positive"] >= 5]),
    ):
        values = [row["auroc"] for row in some if row["auroc"] is not None]
        if len(values) > 1:
            reach = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1)
            reach /= np.sqrt(len(values))
            text.append(
                f"AUROC of the gradient on the find half against heads that ablation finds "
                f"positive on the confirm half (Holm, 0.05), {name}: {np.mean(values):.3f} "
                f"[{np.mean(values) - reach:.3f}, {min(1, np.mean(values) + reach):.3f}] over "
                f"{len(values)} models.\n"
            )
    columns = ["architecture", "seed", "value", "positive", "auroc", "agreement", "replication"]
    text.append(table(rows, columns))
    return "\n".join(text)


def main() -> None:
    """Find what is missing, and print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="One seed of each.")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict]] = {"known": [], "ordinary": []}
    for kind, plan, make in (("known", KNOWN, known), ("ordinary", ORDINARY, ordinary)):
        for architecture, seeds in plan.items():
            for seed in list(seeds)[:1] if given.quick else seeds:
                path = given.folder / f"{kind}-{architecture}-{seed}.json"
                if not path.exists():
                    told = json.dumps(make(architecture, seed)).encode()
                    write_atomic(str(path), told)
                    print(path.name, told.decode(), flush=True)
                found[kind].append(json.loads(path.read_bytes()))
    text = page(found)
    if given.write:
        head, _, _ = PAGE.read_text().partition(MARK)
        write_atomic(str(PAGE), (head + MARK + "\n" + text).encode())
    print(text)


if __name__ == "__main__":
    main()
