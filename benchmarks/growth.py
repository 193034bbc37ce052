"""How time and memory grow with rows, text length and lexicon size: exponents with intervals.

    python benchmarks/growth.py [--quick] [--only NAME ...] [--up-to SIZE]

NAME           counterfactual or mining, and what grows: .rows, .length (characters in a text),
               .sentence (the same, without full stops) or .lexicon (words of each group)
time           exponent of CPU time: slope of log time against log size, by least squares
memory         the same of peak memory beyond that of the imports
low, high      95% interval of the slope, by Student's t
points         [size, CPU seconds, megabytes] of every run

counterfactual makes the items of the measure from a CSV file: every text is swapped and its
placebo made, without a model. mining is `data mine` of text files. Every run is a process of its
own, and each size runs three times, once where a run takes minutes. Costs that are noise enter no
fit, as they would flatten the slope. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.stats import linregress, t

if TYPE_CHECKING:
    from collections.abc import Iterator

REPEATS = 3
LONG = 20.0
"""CPU seconds of a run that is not repeated."""
FLAT = {"seconds": 0.05, "megabytes": 4.0}
"""Costs below these are noise of the clock and of the allocator, and enter no fit."""


class Case(NamedTuple):
    """Sizes of the inputs of one run."""

    rows: int = 1_000
    length: int = 100
    lexicon: int = 100
    sentence: int = 12
    """Words of a sentence; 0 for texts without full stops."""


SIZES = {
    "counterfactual.rows": [Case(rows=n) for n in (1_000, 10_000, 100_000, 1_000_000)],
    "counterfactual.length": [Case(rows=100, length=n) for n in (1_000, 10_000, 100_000)],
    "counterfactual.lexicon": [Case(rows=20_000, lexicon=n) for n in (100, 1_000, 10_000)],
    "mining.rows": [Case(rows=n) for n in (10_000, 100_000, 1_000_000)],
    "mining.length": [Case(rows=300, length=n) for n in (1_000, 10_000, 100_000)],
    "mining.sentence": [Case(rows=300, length=n, sentence=0) for n in (1_000, 10_000, 100_000)],
    "mining.lexicon": [Case(rows=50_000, lexicon=n) for n in (100, 1_000, 10_000)],
}
QUICK = {
    "counterfactual.rows": [Case(rows=n) for n in (2_000, 8_000, 32_000)],
    "counterfactual.length": [Case(rows=20, length=n) for n in (4_000, 16_000, 64_000)],
    "counterfactual.lexicon": [Case(rows=5_000, lexicon=n) for n in (100, 1_000, 4_000)],
    "mining.rows": [Case(rows=n) for n in (8_000, 32_000, 128_000)],
    "mining.length": [Case(rows=100, length=n) for n in (4_000, 16_000, 64_000)],
    "mining.sentence": [Case(rows=100, length=n, sentence=0) for n in (4_000, 16_000, 64_000)],
    "mining.lexicon": [Case(rows=20_000, lexicon=n) for n in (100, 1_000, 4_000)],
}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--up-to", type=int, default=10**9, help="largest size")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        way, folder, *_ = args.run
        print(json.dumps(measure_costs(WAYS[way], Path(folder), args.run[2], args.run[3])))
        return
    result = {}
    for name in args.only:
        way, _, what = name.partition(".")
        points = []
        field = "length" if what == "sentence" else what
        cases = (QUICK if args.quick else SIZES)[name]
        for case in (case for case in cases if getattr(case, field) <= args.up_to):
            with tempfile.TemporaryDirectory() as scratch:
                files = write_inputs(Path(scratch), case)
                for _ in range(REPEATS):
                    command = [sys.executable, __file__, "--run", way, scratch, *files]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    costs = json.loads(done.stdout.splitlines()[-1])
                    points.append((getattr(case, field), costs["seconds"], costs["megabytes"]))
                    print(name, *points[-1], file=sys.stderr, flush=True)
                    if costs["seconds"] > LONG:
                        break
        result[name] = {
            "time": slope([(size, seconds) for size, seconds, _ in points], FLAT["seconds"]),
            "memory": slope([(size, peak) for size, _, peak in points], FLAT["megabytes"]),
            "points": [[size, round(s, 3), round(m, 1)] for size, s, m in points],
        }
    print(json.dumps(result))


def slope(points: list[tuple[int, float]], least: float) -> dict[str, float] | None:
    """The exponent, with its interval; None where fewer than two sizes cost more than noise."""
    sizes, costs = np.array([point for point in points if point[1] > least]).reshape(-1, 2).T
    if len(set(sizes)) < 2:
        return None
    fit = linregress(np.log(sizes), np.log(costs))
    half = float(t.ppf(0.975, len(sizes) - 2)) * fit.stderr
    low, high = fit.slope - half, fit.slope + half
    return {"value": round(fit.slope, 3), "low": round(low, 3), "high": round(high, 3)}


# -- the two ways


def measure_costs(way, folder: Path, texts: str, lexicon: str) -> dict[str, float]:
    """CPU seconds of a call, and the peak of its memory beyond the peak before it."""
    way(folder, texts, lexicon, is_rehearsal=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    way(folder, texts, lexicon, is_rehearsal=False)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "megabytes": (peak - before) / 1024}


def make_counterfactuals(folder: Path, texts: str, lexicon: str, *, is_rehearsal: bool) -> None:
    """Items of the measure, from a CSV file."""
    from levelhead.measures.classification.counterfactual import Counterfactual

    if is_rehearsal:
        # What is imported and compiled on first use is no cost of the rows.
        texts, lexicon = f"{folder}/few.csv", "gender-en"
    measure = Counterfactual(texts=texts, lexicon=lexicon)
    (real, *_) = measure.all_queries(SimpleNamespace(labels=("no", "yes")))
    assert len(real.items)


def mine(folder: Path, texts: str, lexicon: str, *, is_rehearsal: bool) -> None:
    """Pairs and contexts, from text files."""
    from levelhead.data.corpus.mine import mine_corpus

    if is_rehearsal:
        texts, lexicon = f"{folder}/few.csv", "gender-en"
    with tempfile.TemporaryDirectory() as output:
        mine_corpus([texts.replace(".csv", ".txt")], f"{output}/mined", lexicon=lexicon)


WAYS = {"counterfactual": make_counterfactuals, "mining": mine}


# -- the inputs

HEADER = """\
name = "growth"
language = "en"
groups = ["a", "b"]
source = "made up"
licence = "CC0-1.0"
limits = "no words of any language"
"""
TARGETS = """\
[targets.letters]
about = "made-up targets"
[targets.letters.sides.first]
leans = "a"
words = ["qet", "qta"]
[targets.letters.sides.second]
leans = "b"
words = ["qoe", "qnt"]
"""


def write_inputs(folder: Path, case: Case) -> tuple[str, str]:
    """Texts as CSV and as lines, a few of them for the rehearsal, and a lexicon."""
    words = write_lexicon(folder / "lexicon.toml", case.lexicon)
    for name, rows in (("few", 20), ("texts", case.rows)):
        texts = make_texts(words, rows, case.length if name == "texts" else 100, case.sentence)
        with (
            (folder / f"{name}.csv").open("w", newline="") as table,
            (folder / f"{name}.txt").open("w") as lines,
        ):
            writer = csv.writer(table)
            writer.writerow(["text"])
            for text in texts:
                writer.writerow([text])
                lines.write(f"{text}\n")
    return f"{folder / 'texts.csv'}", f"{folder / 'lexicon.toml'}"


def make_texts(words: list[str], rows: int, length: int, sentence: int) -> Iterator[str]:
    """Sentences of made-up words; one word in ten marks a group, and pronouns are among them."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfw"))
    plain = ["q" + "".join(rng.choice(letters, size)) for size in rng.integers(2, 9, 2_000)]
    marked = [*words, *["he", "she", "her", "his", "him"] * (1 + len(words) // 10)]
    vocabulary = np.array([*plain, *marked], dtype=object)
    count = max(3, length // 7)
    for row in range(rows):
        is_marked = rng.random(count) < 0.1
        places = np.where(
            is_marked,
            len(plain) + rng.integers(0, len(marked), count),
            rng.integers(0, len(plain), count),
        )
        text = vocabulary[places]
        if sentence:
            text[sentence - 1 :: sentence] += "."
            text[::sentence] = [word.capitalize() for word in text[::sentence]]
        yield f"{' '.join(text)} in case {row}."


def write_lexicon(path: Path, size: int) -> list[str]:
    """A lexicon of made-up pairs and the English pronouns, with placebos and one contrast."""
    pairs = [(f"wom{number}a", f"man{number}o") for number in range(size)]
    pronouns = [
        ("subject", "she", "he"),
        ("object", "her", "him"),
        ("possessive determiner", "her", "his"),
        ("possessive pronoun", "hers", "his"),
    ]
    blocks = [HEADER, '[[terms]]\nkind = "pronoun"', "rows = ["]
    blocks += [f'  {{ role = "{role}", a = "{a}", b = "{b}" }},' for role, a, b in pronouns]
    blocks += ["]", '[[terms]]\nkind = "person"', "rows = ["]
    blocks += [f'  {{ a = "{first}", b = "{second}" }},' for first, second in pairs]
    blocks += ["]"]
    for place, group in enumerate("ab"):
        rows = [f'["{first[place]}", "{second[place]}"],' for first, second in pairwise(pairs)]
        blocks += ["[[placebo]]", f'group = "{group}"', "rows = [", *rows, "]"]
    path.write_text("\n".join(blocks) + "\n" + TARGETS)
    return [word for pair in pairs for word in pair]


if __name__ == "__main__":
    main()
