"""Most measures on real weights with the full data, and docs/real-results.md from what they gave.

    LEVELHEAD_ASSETS=... LEVELHEAD_DATA=... python tools/real_results.py WORK_FOLDER [--page]

Each command is run once, with a store in WORK_FOLDER that all share; its seconds are kept, and
commands that have run are not run again. `--again` judges stored readouts anew, without the
commands; `--page` only writes the page.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

from levelhead.core.calibration import with_mark
from levelhead.core.results import Measurement
from levelhead.core.run_context import RunContext

ROOT = Path(__file__).parents[1]
ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", ROOT.parent / "shared"))
sys.path.insert(0, str(ROOT / "tests" / "work"))

STEREOSET = (
    "stereoset",
    "stereoset:kind=intersentence",
    "stereoset:metric=stereotype_margin",
    "stereoset:metric=lms",
    "stereoset:metric=icat",
)
WEATS = tuple(f"seat:weat_test=weat{number}" for number in (1, 6, 7, 8))
CAUSAL = (
    "contrast",
    "crows",
    "cloze",
    "cloze:metric=cloze_probability",
    "cloze:metric=cloze_relative",
    "cloze_top",
    "ppl",
    *WEATS,
    *STEREOSET,
    "continuation",
)
RUNS = {
    "minibert-en": (
        "seat:lexicon=kaneko,targets=stereotypes",
        "seat:lexicon=kaneko,targets=stereotypes,contexts=matched",
        "seat",
        "seat:sentence_test=sent-weat6",
        *WEATS,
        "seat:lexicon=religion-en,targets=threat,groups=all,contexts_per_word=10",
        "strength",
        "strength:scale=logit",
        "distance",
        "contrast",
        "crows",
        "crows:protocol=meade",
        "crows:metric=crows_margin",
        "cloze",
        "cloze:metric=cloze_probability",
        "cloze:metric=cloze_relative",
        "cloze_top",
        "lpbs",
        "lpbs:kurita_compat=true",
        "lpbs:test=math_arts",
        "lpbs:test=science_arts",
        *STEREOSET,
        "pppl",
    ),
    "minibert-en tuned on SNLI": (
        "snli",
        "snli:metric=snli_likelihood",
        "nli",
        "nli:metric=nli_accuracy",
        "nli:metric=nli_parity",
        "nli:metric=nli_parity_majority",
        "nli:metric=nli_gap",
        "nli:metric=net_neutral",
        "nli:metric=fraction_neutral",
        "nli:metric=threshold_neutral",
        "nli:metric=threshold_neutral,tau=0.7",
    ),
    "minibert-en tuned on CoLA": ("counterfactual", "counterfactual:metric=counterfactual_shift"),
    "stories15m": ("seat:lexicon=kaneko,targets=stereotypes", *CAUSAL),
    "SmolLM2-135M-Instruct": (
        *CAUSAL,
        "seat:lexicon=kaneko,targets=stereotypes,contexts_per_word=10",
    ),
}
THREADS = 2


TUNED = "minibert-en tuned on "
SWAPPED = "cola-dev.csv"
"""CoLA's development sets, on which counterfactuals are made."""


def model(name: str) -> str:
    """Where the weights of a model are; classifiers are trained on first use."""
    if name.startswith("SmolLM2"):
        from assets import smollm2

        return str(smollm2())
    if name.startswith(TUNED):
        import classifiers

        made = {"SNLI": classifiers.snli_classifier, "CoLA": classifiers.cola_classifier}
        return str(made[name.removeprefix(TUNED)]())
    return str(ASSETS / "models" / name)


def own_texts(folder: Path) -> dict[str, str]:
    """CoLA's development sets as a user's file."""
    from levelhead.data.catalog.datasets import dataset

    path = folder / SWAPPED
    if not path.exists():
        with path.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("text", "label"))
            for part in ("dev-in", "dev-out"):
                rows.writerows((item.text, item.label) for item in dataset("glue-cola").items(part))
    return {"texts": str(path), "text": "text", "label": "label"}


def options(measure: str, folder: Path) -> list[str]:
    """What a command needs beside the measure's name."""
    if not measure.startswith("counterfactual"):
        return []
    subset = own_texts(folder)
    return ["--data", subset["texts"], "--text", subset["text"], "--label", subset["label"]]


def command(name: str, measure: str) -> str:
    """The command, as a reader would type it."""
    return f"levelhead measure {name} -m {measure} --threads {THREADS}"


def computed(folder: Path) -> None:
    """Run what has not run yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, measures in RUNS.items():
        for measure in measures:
            path = folder / f"{name} {measure.replace('/', '_')}.json"
            if path.exists():
                continue
            began = time.monotonic()
            result = subprocess.run(
                [
                    *(sys.executable, "-m", "levelhead", "measure", model(name), "-m", measure),
                    *options(measure, folder),
                    *("--threads", str(THREADS), "--store", str(folder / "store")),
                    *("--output", str(path)),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            seconds = time.monotonic() - began
            print(f"{seconds:7.1f} s  {command(name, measure)}", flush=True)
            if result.returncode:
                print(result.stderr)
                continue
            (folder / "seconds.jsonl").open("a").write(
                json.dumps({"run": path.stem, "seconds": round(seconds, 1)}) + "\n"
            )


def judged(folder: Path) -> None:
    """What has run, judged anew: the same as the commands, with one process for all."""
    from levelhead.core.canonical_json import to_canonical_json
    from levelhead.measures.registry import parse_measures
    from levelhead.measures.run import run_measures
    from levelhead.models.loading.load import load

    for name, measures in RUNS.items():
        lm = load(model(name))
        for measure in measures:
            path = folder / f"{name} {measure}.json"
            if not path.exists():
                continue
            subset = own_texts(folder) if measure.startswith("counterfactual") else None
            wanted = parse_measures(measure, subset)
            result = run_measures(
                lm, wanted, context=RunContext(store=folder / "store", threads=THREADS)
            )
            output = {
                "measurements": [measurement.model_dump() for measurement in result.measurements],
                "comparisons": [],
            }
            path.write_bytes(to_canonical_json(output) + b"\n")
            print(path.name, flush=True)


def page(folder: Path) -> str:
    """The page, from what the commands gave."""
    lines = [
        "# Real results",
        "",
        "Most measures on real weights with the full data, as `tools/real_results.py` wrote it;",
        "tasks' and classifiers' own stand under [tasks](real-tasks.md) and",
        "[downstream](real-downstream.md).",
        "`cloze_relative`: these intervals are of runs that redrew the kinds of knowledge as if",
        "they were a sample; they are wider than the same command gives now.",
        "The models are small and their own: nothing here is about bert-base or any larger model.",
        "A negative result stands here like any other. Intervals: 95%. p: as each measure's null",
        "has it, uncorrected, one command each. Detectable: the distance from parity that would",
        "have been found four times out of five. p and detectable of `strength`, `contrast` and",
        "`distance` are of runs that tested one side only; the same command now tests both, and p",
        "is twice as large where it was below 0.5. Seconds: wall time of the command on two cores,",
        f"readouts not yet stored, start-up included; `--threads {THREADS}`. Measures",
        "of one model that ask the same (cloze, cloze_probability, cloze_relative; crows,",
        "crows_margin) find the readouts of the first stored. Other work ran beside some commands:",
        "seconds are for an idea, not for comparison. † marks a measure that failed where truth",
        "is known ([calibration](calibration.md)).",
    ]
    seconds = {
        row["run"]: row["seconds"]
        for row in map(json.loads, (folder / "seconds.jsonl").read_text().splitlines())
    }
    for name, measures in RUNS.items():
        lines += ["", f"## {name}", ""]
        lines += [
            "| `levelhead measure MODEL -m ...` | value | 95% interval | parity | p | n of asked |"
            " detectable | seconds |",
            "|---|---|---|---|---|---|---|---|",
        ]
        notes = []
        for measure in measures:
            stem = f"{name} {measure.replace('/', '_')}"
            path = folder / f"{stem}.json"
            if not path.exists():
                lines.append(f"| `{measure}` | failed | | | | | | |")
                continue
            for load in json.loads(path.read_text())["measurements"]:
                output = measure
                if "groups=all" in measure:
                    output = measure.replace("groups=all", "groups=" + "+".join(load["groups"]))
                output = with_mark(f"`{output}`", Measurement.from_json(json.dumps(load)))
                lines.append(row(output, load, seconds.get(stem, math.nan)))
                notes += [f"- {output}"]
                notes += [f"    - {note}" for note in load["notes"]]
                notes += [f"    - {format_extra(part)}" for part in load["extras"]]
        lines += ["", "Beside the numbers:", "", *notes]
    return "\n".join([*lines, *beside_peers(folder)]) + "\n"


def beside_peers(folder: Path) -> list[str]:
    """What benchmarks/peers.py printed, if its last line was kept in the folder."""
    path = folder / "peers.json"
    if not path.exists():
        return []
    output = json.loads(path.read_text())
    harness, scorer = output["lm_eval"], output["minicons"]
    return [
        "",
        "## Beside the peers",
        "",
        "`python benchmarks/peers.py` (one thread, float32, batches of 32, one model in memory):",
        "",
        f"- lm-evaluation-harness, all {harness['pairs']} CrowS pairs with SmolLM2-135M: largest",
        f"  relative difference of a log-likelihood {harness['difference']:.1e}; CPU seconds after",
        f"  loading the model: {harness['seconds_levelhead']} (levelhead, items to readouts) and",
        f"  {harness['seconds_lm_eval']} (lm-eval, simple_evaluate), ratio {harness['ratio']}.",
        f"- minicons, pseudo-log-likelihoods of {scorer['texts']} sentences by minibert: largest",
        f"  relative difference {scorer['difference']:.1e}.",
    ]


def row(measure: str, single: dict, seconds: float) -> str:
    """A line of the table."""
    interval = f"[{single['interval']['low']:.4g}, {single['interval']['high']:.4g}]"
    p = "" if single["p"] is None else f"{single['p']['value']:.4g}"
    parity = "" if single["parity"] is None else f"{single['parity']:.4g}"
    detectable = "" if single["detectable"] is None else f"{single['detectable']:.3g}"
    queries = single["n"] + len(single["dropped"])
    return (
        f"| {measure} | {single['value']:.4g} | {interval} | {parity} | {p} | "
        f"{single['n']} of {queries} | {detectable} | {seconds:.0f} |"
    )


def format_extra(part: dict) -> str:
    """An extra estimate as text."""
    p = part["p"]
    output = (
        "" if p is None else f", p {p['value'] if p['adjusted'] is None else p['adjusted']:.3g}"
    )
    holm = "" if p is None or p["adjusted"] is None else f" (Holm, {p['family']} tests)"
    interval = f"[{part['interval']['low']:.4g}, {part['interval']['high']:.4g}]"
    return f"{part['name']}: {part['value']:.4g} {interval}, n {part['n']}{output}{holm}"


def main() -> None:
    """Run, then write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--again", action="store_true", help="judge stored readouts anew")
    given = parser.parse_args()
    if given.again:
        judged(given.folder)
    elif not given.page:
        computed(given.folder)
    (ROOT / "docs" / "real-results.md").write_text(page(given.folder), encoding="utf-8")


if __name__ == "__main__":
    main()
