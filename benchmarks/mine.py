"""What mining costs beside a plain regular expression and beside bare Polars, in CPU time.

    python benchmarks/mine.py [--quick] [--keep FOLDER]

vs_regex       sentences a CPU-second of `data mine` / of Python's alternation of its words
vs_polars      CPU time of `data mine` / of the bare Polars expression that finds its words
memory_growth  peak memory over the larger of the two sizes that are compared / over the smaller
time_growth    CPU time a further sentence from the second size to the third / from first to second
rare, often    the first two for texts of which one in twenty (as in web text that was filtered) or
               one in three (as in news) holds a word of the lexicon; above: rare
per_second     sentences a CPU-second, of each of the three

Sizes are 1, 5 and 20 million sentences, 1 and 5 compared (with --quick 1,000, 250 thousand and 1
million, the last two compared, rare only).
Every run is a process of its own, and costs are marginal: between two sizes, so that neither
start-up nor imports count. Sentences are made up of a fixed seed; some hold accents and quotation
marks. They are kept in a folder of temporary files, or where --keep says. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars

from levelhead.data.corpus.matcher import SentenceMatcher
from levelhead.data.corpus.matcher_polars import (
    _ascii_word_runs,
    build_ascii_pattern,
    build_text_pattern,
)
from levelhead.data.corpus.mine import mine_corpus
from levelhead.data.lexicons.lexicon import lexicon

MILLION = 1_000_000
SIZES = (MILLION, 5 * MILLION, 20 * MILLION)
QUICK = (1_000, MILLION // 4, MILLION)
BLOCK = MILLION // 4
"""Sentences in a file."""
REGEX = (2_000, 12_000)
HELD = {"rare": 0.05, "often": 0.33}
KERNEL = SentenceMatcher(lexicon("gender-en"), ("female", "male"))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keep", type=Path, help="keep the texts here, and use those that are")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--files", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        WAYS[args.way](args.files)
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "peak_mb": peak}))
        return
    sizes = QUICK if args.quick else SIZES
    with tempfile.TemporaryDirectory() as scratch:
        place = args.keep or Path(scratch)
        result = {
            name: compared(place / name, share, sizes)
            for name, share in HELD.items()
            if not (args.quick and name != "rare")
        }
    print(json.dumps(result["rare"] | result, sort_keys=True))


def compared(place: Path, share: float, sizes: tuple[int, ...]) -> dict[str, object]:
    """The ratios for one kind of texts."""
    files = corpus(place, share, max(sizes))
    ours = [ran("levelhead", files, size) for size in sizes]
    first = next(place for place, size in enumerate(sizes) if size >= BLOCK)
    two = sizes[first : first + 2]
    bare = [ran("polars", files, size) for size in two]
    base = [ran("regex", files, size) for size in REGEX]
    marginal = [
        (more["seconds"] - less["seconds"]) / (to - since)
        for less, more, since, to in zip(ours, ours[1:], sizes, sizes[1:], strict=False)
    ]
    subset = marginal[first]
    theirs = (bare[1]["seconds"] - bare[0]["seconds"]) / (two[1] - two[0])
    regex = (base[1]["seconds"] - base[0]["seconds"]) / (REGEX[1] - REGEX[0])
    output = {"levelhead": subset, "polars": theirs, "regex": regex}
    return {
        "vs_regex": round(regex / subset, 1),
        "vs_polars": round(subset / theirs, 3),
        "memory_growth": round(ours[first + 1]["peak_mb"] / ours[first]["peak_mb"], 3),
        "time_growth": round(marginal[1] / marginal[0], 3),
        "per_second": {name: round(1 / single) for name, single in output.items()},
        "sizes": list(sizes),
    }


def ran(way: str, files: list[Path], size: int) -> dict[str, float]:
    """One way over so many sentences, in a process of its own."""
    some = [f"{path}" for path in files[: -(-size // BLOCK)]]
    if size % BLOCK:  # a part of the first file
        part = files[0].parent / f"first-{size}.parquet"
        polars.scan_parquet(files[0]).head(size).sink_parquet(part)
        some = [f"{part}"]
    command = [sys.executable, __file__, "--way", way, "--files", *some]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{way} {size:,}: {result}", file=sys.stderr, flush=True)
    return result


# -- the three ways


def by_levelhead(files: list[str]) -> None:
    """Pairs, contexts, manifest."""
    with tempfile.TemporaryDirectory() as folder:
        mine_corpus(files, Path(folder) / "mined")


def by_polars(files: list[str]) -> None:
    """Which texts hold a word, and which words: by ASCII's boundaries, the quickest there are."""
    text = polars.col("text")
    result = (
        polars.scan_parquet(files)
        .filter(text.str.contains(build_text_pattern(KERNEL.vocabulary)))
        .select(text, text.str.extract_all(build_ascii_pattern(KERNEL.vocabulary)).alias("words"))
        .collect(engine="streaming")
    )
    assert len(result)


def by_regex(files: list[str]) -> None:
    """Python's own regular expressions."""
    words = re.compile(rf"\b(?:{'|'.join(_ascii_word_runs(KERNEL.vocabulary))})\b", re.IGNORECASE)
    texts = polars.read_parquet(files)["text"].to_list()
    assert sum(len(words.findall(text)) for text in texts)


WAYS = {"levelhead": by_levelhead, "polars": by_polars, "regex": by_regex}


# -- the texts


def corpus(place: Path, share: float, size: int) -> list[Path]:
    """Files of `BLOCK` sentences, no two alike, of which a share holds a word of the lexicon."""
    place.mkdir(parents=True, exist_ok=True)
    base = place / "base.parquet"
    if not base.exists():
        polars.DataFrame({"text": sentences(share)}).write_parquet(base)
    files = []
    for number in range(-(-size // BLOCK)):
        files.append(place / f"{number:03}.parquet")
        if not files[-1].exists():
            text = polars.col("text") + polars.lit(f" in case {number}.")
            polars.scan_parquet(base).select(text).sink_parquet(files[-1])
    return files


def sentences(share: float) -> list[str]:
    """A block of sentences: made-up words by Zipf's law, some accented, some within quotes."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    lengths = rng.integers(2, 11, 30_000)
    words = np.array(["".join(rng.choice(letters, size)) for size in lengths], dtype=object)
    words = words[[word not in KERNEL.vocabulary for word in words]]
    accented = rng.random(len(words)) < 0.002
    words[accented] = [f"caf\u00e9{word}" for word in words[accented]]
    chance = 1 / np.arange(10, len(words) + 10)
    known = np.array(_ascii_word_runs(KERNEL.vocabulary), dtype=object)
    likely = 1 / np.arange(3, len(known) + 3)
    counts = rng.integers(8, 32, BLOCK)
    sample = rng.choice(words, counts.sum(), p=chance / chance.sum())
    holds = rng.random(BLOCK) < share
    result, begin = [], 0
    for count, held in zip(counts, holds, strict=True):
        subset = sample[begin : begin + count]
        begin += count
        if held:
            some = rng.choice(known, rng.integers(1, 4), p=likely / likely.sum())
            subset[rng.integers(0, count, len(some))] = some
        text = " ".join(subset).capitalize()
        result.append(f"\u201c{text},\u201d they said" if count % 16 == 0 else text)
    return result


if __name__ == "__main__":
    main()
