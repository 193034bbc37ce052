"""Train the standard organisms and measure them: docs/guide/model-organisms.md, organisms.toml.

    python tools/organisms.py FOLDER [--write]

FOLDER keeps what was found of each organism, so that the work goes on where it was stopped. With
--write, the tables of that page and the hashes of organisms.toml are written anew.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from pathlib import Path

from levelhead.calibrate.organisms.organism import (
    HELD_OUT_SEED_OFFSET,
    THREADS,
    TRAIN_CONFIGS,
    describe_machine,
    make_organism,
)
from levelhead.calibrate.skills import measure_skills
from levelhead.core.files import file_hash, write_atomic
from levelhead.core.run_context import Inference
from levelhead.core.versions import installed_versions
from levelhead.measures.inference import null_distribution
from levelhead.measures.run import run_measures
from levelhead.stats.intervals import proportion_interval
from levelhead.stats.means import t_test
from levelhead.stats.multiple_testing import holm

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guide" / "model-organisms.md"
TABLE = ROOT / "src/levelhead/calibrate/organisms.toml"
DATA = ROOT / "docs" / "results" / "data" / "organisms" / "standard-organisms.csv"
LINK = (
    "Value and p of each model, with its skills and the best that is possible: "
    f"[{DATA.name}](../results/data/organisms/{DATA.name})."
)
MARK = "<!-- tools/organisms.py writes below this line -->\n"
PLANTED = {name: range(5 if name == "bert" else 2) for name in TRAIN_CONFIGS}
EVEN = {name: range(4 * i, 4 * i + 4) for i, name in enumerate(TRAIN_CONFIGS)}
"""Seeds at rho 1, and at rho 0: there no two models have read the same text."""
RELABELLINGS = 25
INFERENCE = Inference(resamples=999, permutations=1999)
QUICK = Inference(resamples=99, permutations=399)


def find_result(architecture: str, rho: float, seed: int) -> dict:
    """Everything about one organism."""
    organism = make_organism(architecture, rho, seed=seed)
    folder = organism.grow()
    lm = organism.load_lm()
    measures = organism.planted_measures().for_model(lm)
    measured = run_measures(lm, list(measures.values()), inference=INFERENCE).measurements
    return {
        "architecture": architecture,
        "rho": rho,
        "seed": seed,
        "texts_sha256": organism.build_inputs["texts_sha256"],
        "weights_sha256": file_hash(folder / "model.safetensors"),
        "skills": [
            [skill.estimate.model_dump(), skill.best]
            for skill in measure_skills(lm, organism.language, seed=seed + HELD_OUT_SEED_OFFSET)
        ],
        "measurements": [
            {
                "measure": m.measure,
                "value": m.value,
                "interval": [m.interval.low, m.interval.high],
                "parity": m.parity,
                "p": m.p.value,
                "holm": m.p.adjusted,
            }
            for m in measured
        ],
        "alarms": alarms(organism, lm) if rho == 0 else None,
    }


def alarms(single, lm) -> list[float]:
    """The least p, Holm-corrected, of all measures, for every permutation of the labels."""
    least = []
    for permutation in range(RELABELLINGS):
        labels, p = 1000 * single.train_config.seed + permutation, []
        for name, measure in single.planted_measures(label_seed=labels).for_model(lm).items():
            aspect, values, design = measure.test_inputs(measure.read(lm))
            p.append(
                null_distribution(QUICK, aspect, values, design, name=f"{name} {labels}").p.value
            )
        least.append(float(holm(p).min()))
    return least


def stored_result(folder: Path, architecture: str, rho: float, seed: int) -> dict:
    """Found before, or now."""
    path = folder / f"{architecture} {rho:g} {seed}.json"
    if not path.exists():
        output = json.dumps(find_result(architecture, rho, seed), indent=1)
        write_atomic(str(path), output.encode())
        print(path.name, flush=True)
    return json.loads(path.read_text())


def toml(rows: list[dict]) -> str:
    """Recipes, seeds and hashes."""
    versions = {name: dict(installed_versions())[name] for name in ("torch", "transformers")}
    lines = [
        "# What the standard organisms came out as; tools/organisms.py writes it. Weights depend",
        "# on the versions and on the kind of processor: elsewhere other bytes may grow.",
        *(f'{name} = "{version}"' for name, version in versions.items()),
        f'machine = "{describe_machine()}"',
        f"threads = {THREADS}",
    ]
    for row in rows:
        lines += ["", "[[organisms]]"]
        for key in ("architecture", "rho", "seed", "texts_sha256", "weights_sha256"):
            lines.append(f"{key} = {json.dumps(row[key])}")
    return "\n".join(lines) + "\n"


def table(rows: list[dict]) -> str:
    """One row per model, as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = ("seat", "cloze", "crows", "strength or contrast")
    writer.writerow(("organism", "seed", "skills", "at best", *names))
    for row in sorted(rows, key=lambda row: -row["rho"]):
        skills = "; ".join(
            f"{e['value']:.3f} [{e['interval']['low']:.3f}, {e['interval']['high']:.3f}]"
            for e, _ in row["skills"]
        )
        best = "; ".join(f"{best:.3f}" for _, best in row["skills"])
        cells = [
            f"{m['value']:.3g} ({_p(m['p'])})"
            for names in (("seat",), ("cloze",), ("crows",), ("strength", "contrast"))
            for m in row["measurements"]
            if m["measure"] in names
        ]
        name = f"{row['architecture']}, rho {row['rho']:g}"
        writer.writerow((name, row["seed"], skills, best, *cells))
    return file.getvalue()


def page(rows: list[dict]) -> str:
    """The link to the table, and what it comes to."""
    return f"{LINK}\n\n{verdicts(rows)}"


def verdicts(rows: list[dict]) -> str:
    """What it comes to."""
    planted = [row for row in rows if row["rho"] == 1]
    nothing = [row for row in rows if row["rho"] == 0]
    output = []
    for architecture in TRAIN_CONFIGS:
        subset = [row for row in planted if row["architecture"] == architecture]
        hits = {}
        for row in subset:
            for m in row["measurements"]:
                hits.setdefault(m["measure"], []).append(m["p"] < 0.01)
        if subset:
            rates = ", ".join(f"{name} {sum(h)} of {len(h)}" for name, h in hits.items())
            output.append(f"- {architecture}, rho 1, detected with p < .01: {rates}")
    if nothing:
        alarmed = [min(m["holm"] for m in row["measurements"]) <= 0.05 for row in nothing]
        rates = [
            sum(p <= 0.05 for p in row["alarms"][:RELABELLINGS]) / RELABELLINGS for row in nothing
        ]
        every = [m["p"] <= 0.05 for row in nothing for m in row["measurements"]]
        output.append(
            f"- rho 0, labels as they are: {sum(alarmed)} of {len(nothing)} models with a measure "
            f"at a Holm-corrected p <= .05 {proportion_interval(sum(alarmed), len(nothing))}; "
            f"{sum(every)} of {len(every)} uncorrected p <= .05"
        )
        output.append(
            f"- rho 0, {RELABELLINGS} permutations of the labels for each of {len(nothing)} "
            f"models: {_rate(rates)} with such a measure (models as clusters)"
        )
    return "\n".join(output) + "\n"


def _rate(rates: list[float]) -> str:
    if len(set(rates)) == 1:
        return f"{100 * rates[0]:.1f}% in every model"
    test = t_test(rates)
    low, high = max(0.0, test.interval.low), test.interval.high
    return f"{100 * test.mean:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"


def _p(p: float) -> str:
    return f"p {p:.4f}".replace("0.", ".")


def main() -> None:
    """Grow, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    rows = [
        stored_result(given.folder, architecture, rho, seed)
        for rho, seeds in ((1.0, PLANTED), (0.0, EVEN))
        for architecture in TRAIN_CONFIGS
        for seed in seeds[architecture]
    ]
    print(page(rows))
    if given.write:
        above = PAGE.read_text().partition(MARK)[0]
        PAGE.write_text(f"{above}{MARK}\n{page(rows)}")
        DATA.write_text(table(rows))
        TABLE.write_text(toml(rows))


if __name__ == "__main__":
    main()
