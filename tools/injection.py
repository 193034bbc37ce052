"""Inject a known dose of an association into a real model, and measure it.

    LEVELHEAD_ASSETS=... LEVELHEAD_DATA=... python tools/injection.py FOLDER MODEL [--write]

MODEL is minibert-en, SmolLM2-135M-Instruct (its GGUF file in LEVELHEAD_SMOLLM2) or a path. FOLDER
keeps models and results: a run that was killed continues. --only runs some models, such as
groups-1-0; --quick: two doses and no placebo. --write writes docs/results/data/injection.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.calibrate.injection.mitigation import mitigate_injection
from levelhead.calibrate.injection.run import Injection, list_injected_models
from levelhead.calibrate.injection.summary import summarise_injection
from levelhead.core.files import write_atomic
from levelhead.models.training.configs import ContinuedPretrainingConfig

if TYPE_CHECKING:
    from levelhead.calibrate.injection.summary import DoseResponse
    from levelhead.core.results import Interval

ROOT = Path(__file__).parents[1]
ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", ROOT.parent / "shared"))
DATA = ROOT / "docs" / "results" / "data" / "injection"
TRAINING = {
    "minibert-en": ContinuedPretrainingConfig(
        steps=25, batch_size=32, learning_rate=5e-4, mask_fraction=0.3, threads=1, save_steps=1000
    ),
    "SmolLM2-135M-Instruct": ContinuedPretrainingConfig(
        steps=16, batch_size=16, learning_rate=1e-4, threads=1, save_steps=1000
    ),
}
SEEDS = {"minibert-en": 2}
MASKED = "minibert-en"


def base_path(name: str) -> str:
    """Where the weights of a model are."""
    if name.startswith("SmolLM2"):
        return os.environ["LEVELHEAD_SMOLLM2"]
    path = ASSETS / "models" / name
    return str(path if path.exists() else name)


def interval_cells(name: str, interval: Interval | None) -> dict[str, str]:
    """The ends of an interval."""
    if interval is None:
        return {f"{name}low": "", f"{name}high": ""}
    return {f"{name}low": f"{interval.low:.3g}", f"{name}high": f"{interval.high:.3g}"}


def row_cells(model: str, row: DoseResponse) -> dict[str, object]:
    """A measure as a row."""

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.3g}"

    return {
        "model": model,
        "items": row.items,
        "measure": row.measure,
        "spearman": number(row.rank),
        **interval_cells("", row.rank_interval),
        "effect": number(row.effect),
        "least dose": number(row.smallest),
        "placebo spearman": number(row.placebo_rank),
        **interval_cells("placebo ", row.placebo_rank_interval),
        "alarms": row.alarms if row.placebos else "",  # none was read: no number
        "placebos": row.placebos,
        **interval_cells("alarms ", row.alarms_interval),
        "models": row.models,
        "unread": row.unread,
    }


def csv_text(rows: list[dict[str, object]]) -> str:
    """Rows as CSV."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def main() -> None:
    """Train, measure, print the summary, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("model")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--no-mitigation", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    folder = given.folder / given.model
    folder.mkdir(parents=True, exist_ok=True)
    training = TRAINING.get(given.model, TRAINING[MASKED])
    injection = Injection(base_path(given.model), folder, training, has_published=not given.quick)
    doses, seeds = (
        ((1.0,), 1) if given.quick else ((0.25, 0.5, 0.75, 1.0), SEEDS.get(given.model, 1))
    )
    listed = [
        *list_injected_models("groups", seeds, doses=doses),
        *([] if given.quick else list_injected_models("colours", seeds, doses=doses)),
    ]
    names = given.only or [model.name for model in listed]
    models = []
    for model in (model for name in names for model in listed if model.name == name):
        began = time.process_time()
        models.append(injection.measure(model))
        print(f"{time.process_time() - began:7.1f} CPU s  {model.name}", flush=True)
    rows = [row_cells(given.model, row) for row in summarise_injection(models)]
    text = csv_text(rows)
    print(text)
    edits = ""
    if not given.no_mitigation:
        edits = csv_text([dict(row) for row in mitigate_injection(injection)])
        print(edits)
    if given.write:
        if given.quick:
            parser.error("a quick run shows that it works, not what is true: give a full one")
        DATA.mkdir(parents=True, exist_ok=True)
        write_atomic(str(DATA / f"{given.model}.csv"), text.encode())
        if edits:
            write_atomic(str(DATA / f"{given.model}-edits.csv"), edits.encode())


if __name__ == "__main__":
    main()
