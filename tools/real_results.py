"""Most measures on real weights with the full data: data files, and a summary on their page.

    LEVELHEAD_ASSETS=... LEVELHEAD_DATA=... python tools/real_results.py WORK_FOLDER
        [--results measures|chat-models] [--only MEASURE ...] [--again] [--page]

Every measure runs as `levelhead measure MODEL -m MEASURE` runs it, with a store in WORK_FOLDER that
all share; its seconds are kept, and what has run does not run again. `--again` computes results
anew, from stored responses; `--page` only writes the data files and the page's summary. `--only`
runs some of the measures. What has not run in WORK_FOLDER keeps its rows in the data files. Larger
chat models are read from the folder in LEVELHEAD_CHAT_MODELS.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.calibration import failed_calibration_mark
from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import write_atomic
from levelhead.core.results import Measurement
from levelhead.core.run_context import RunContext
from levelhead.measures.registry import parse_measures
from levelhead.measures.run import run_measures
from levelhead.models.loading.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from levelhead.core.results import Estimate

ROOT = Path(__file__).parents[1]
ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", ROOT.parent / "shared"))
RESULTS = ROOT / "docs" / "results"
BEGIN, END = (
    f"<!-- tools/real_results.py writes {side} this line -->\n" for side in ("below", "above")
)
FILES = {
    "values": (
        *("model", "measure", "value", "low", "high", "parity", "p", "n", "queries"),
        *("detectable", "seconds", "skill", "mark", "note"),
    ),
    "extras": ("model", "measure", "name", "value", "low", "high", "n", "p", "holm_tests"),
    "notes": ("model", "measure", "note"),
}
"""The data files and their columns."""
USUAL_PARITY = ("", "0", "50")
"""Parities that the page's text states; others stand in the cell."""
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
MEASURES = {
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
BBQ = "bbq:per_template=2"
"""Two items of each template, of all eleven categories."""
CHAT = (
    "decision",
    "implicit_association",
    "implicit_association:metric=implicit_association_d",
    "winobias:source=winogender",
    "unqover",
    "callback",
    "callback:metric=callback_impact_ratio",
    "generation",
    "generation:metric=generation_refusals",
    "generation:metric=generation_failures",
    "generation:metric=generation_length",
    "winobias",
    "winobias:metric=winobias_gap",
    "winobias:metric=winobias_accuracy",
    "relative_decision",
    "relative_decision:metric=relative_decision_share",
    # Last, because it is longest.
    BBQ,
    *(
        f"{BBQ},metric={metric}"
        for metric in (
            *("bbq_disambiguated", "bbq_s_amb", "bbq_s_dis"),
            *("bbq_accuracy", "bbq_unknown"),
        )
    ),
)
FEW_TEXTS = "generation:k=1"
"""160 pairs of answers, a fifth of those of the smaller model."""
CHAT_LARGER = (
    *("decision", "implicit_association", "winobias:source=winogender"),
    FEW_TEXTS,
    *(f"{FEW_TEXTS},metric=generation_{what}" for what in ("refusals", "failures", "length")),
    *("unqover", "callback", "winobias", "relative_decision", BBQ),
)
"""Measures of larger models, in the order in which they are run: the most telling first."""
CHAT_MODELS = {"Qwen2.5-Coder-0.5B-Instruct": "qwen2.5-coder-0.5b-instruct.gguf"}
"""Larger chat models and the names of their files."""


CROSSED = "association_spread:lexicon=origin-en,crossed_with=gender-en,crossed_groups=female+male"
GROUPS = (
    *("association_spread", "association_spread:family=competence"),
    *("association_spread:lexicon=origin-en", CROSSED),
)
LANGUAGES = (
    *(f"association_spread:language={code}" for code in ("fr", "es", "de", "it", "nl", "tr", "zh")),
    *(f"crows:language={code},subsample_fraction=0.15" for code in ("fr", "nl")),
    *(f"stereoset:language={code},subsample_fraction=0.15" for code in ("es", "fr", "de", "tr")),
    *(f"bbq:language={code},category=Age,per_template=2" for code in ("es", "nl", "tr")),
    *(f"honest:language={code},k=5,subsample_fraction=0.2" for code in ("es", "fr", "it")),
)


class ResultSet(NamedTuple):
    """A page of results and what runs for it."""

    page: str
    """Name of the page without .md, and of its folder of data files."""
    runs: dict[str, tuple[str, ...]]
    """Measures by model."""


RESULT_SETS = {
    result_set.page: result_set
    for result_set in (
        ResultSet("measures-on-real-models", MEASURES),
        # Data only: the page of the measure says what they mean.
        ResultSet(
            "many-groups",
            {
                "minibert-en": (*GROUPS, "association_spread:lexicon=origin-en,family=competence"),
                "SmolLM2-135M-Instruct": (*GROUPS, "decision_spread"),
                "Qwen2.5-Coder-0.5B-Instruct": LANGUAGES,
            },
        ),
        ResultSet(
            "chat-models",
            {"SmolLM2-135M-Instruct": CHAT} | dict.fromkeys(CHAT_MODELS, CHAT_LARGER),
        ),
    )
}
GROUPS_OPTION = re.compile(r"\bgroups=[^,]+")
FAILED = ".failed"
"""Suffix of the file with the error of a measure that gave no result."""
THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))
SIGNIFICANT = 0.05
MAX_ROWS = 30
"""Measures in a table on a page; a longer one is for programs."""

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
    if name in CHAT_MODELS:
        return str(Path(os.environ["LEVELHEAD_CHAT_MODELS"]) / CHAT_MODELS[name])
    return str(ASSETS / "models" / name)


def texts_file(folder: Path) -> dict[str, str]:
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


def compute(result_set: ResultSet, folder: Path, only: list[str], *, again: bool) -> None:
    """Run what has not run yet; `again`: all that has run, from stored responses."""
    folder.mkdir(parents=True, exist_ok=True)
    context = RunContext(store=folder / "store", threads=THREADS)
    for name, measures in result_set.runs.items():
        pending = [
            (measure, path)
            for measure in measures
            if (path := result_path(folder, name, measure)).exists() is again
            and (not only or measure in only)
        ]
        if not pending:
            continue
        lm = load(model(name))
        for measure, path in pending:
            began = time.monotonic()
            subset = texts_file(folder) if measure.startswith("counterfactual") else None
            try:
                result = run_measures(lm, parse_measures(measure, subset), context=context)
            except LevelheadError as error:
                print(f"{name} {measure}: {error}", flush=True)
                path.with_suffix(FAILED).write_text(f"{error}\n")
                continue
            output = {
                "measurements": [measurement.model_dump() for measurement in result.measurements],
                "comparisons": [],
            }
            write_atomic(str(path), to_canonical_json(output) + b"\n")
            seconds = time.monotonic() - began
            print(f"{seconds:7.1f} s  levelhead measure {name} -m {measure}", flush=True)
            if not again:
                with (folder / "seconds.jsonl").open("a") as file:
                    file.write(json.dumps({"run": path.stem, "seconds": round(seconds, 1)}) + "\n")


def result_path(folder: Path, name: str, measure: str) -> Path:
    """The file of a result."""
    return folder / f"{name} {measure.replace('/', '_')}.json"


def number(value: float | None, digits: int = 4) -> str:
    """Some digits, or nothing."""
    return "" if value is None else f"{value:.{digits}g}"


def estimate_cells(estimate: Estimate) -> dict[str, object]:
    """The cells that a measure and an extra estimate have in common."""
    return {
        "value": number(estimate.value),
        "low": number(estimate.interval.low),
        "high": number(estimate.interval.high),
        "n": estimate.n,
    }


def results(
    result_set: ResultSet, folder: Path
) -> Iterator[tuple[str, str, Measurement | None, float]]:
    """Every result, with its model, its measure and the seconds; None where a command failed."""
    log = folder / "seconds.jsonl"
    seconds = {
        row["run"]: row["seconds"]
        for row in map(json.loads, log.read_text().splitlines() if log.exists() else ())
    }
    for name, measures in result_set.runs.items():
        for measure in measures:
            path = result_path(folder, name, measure)
            if not path.exists():
                # What was not run here keeps the row that it has.
                if path.with_suffix(FAILED).exists():
                    yield name, measure, None, math.nan
                continue
            for content in json.loads(path.read_text())["measurements"]:
                groups = "groups=" + "+".join(content["groups"])
                spec = measure.replace("groups=all", groups)
                result = Measurement.from_json(json.dumps(content))
                yield name, spec, result, seconds.get(path.stem, math.nan)


def value_row(result: Measurement | None, seconds: float) -> dict[str, object]:
    """A row of the values; a command that failed has a note and no value."""
    if result is None:
        return {"note": "failed"}
    return estimate_cells(result) | {
        "parity": number(result.parity),
        "p": "" if result.p is None else number(result.p.value),
        "queries": result.n + len(result.dropped),
        "detectable": number(result.detectable, 3),
        "seconds": "" if math.isnan(seconds) else f"{seconds:.0f}",
        "skill": skill_text(result),
        "mark": failed_calibration_mark(result),
    }


def skill_text(result: Measurement) -> str:
    """Whether the model can do what the measure needs: "shown", "not shown" or nothing."""
    if result.skill is None:
        return ""
    return "shown" if result.skill.is_shown else "not shown"


def extra_row(extra: Estimate) -> dict[str, object]:
    """A row of an extra estimate; p is the corrected one where there is one."""
    cells = {"name": extra.name, **estimate_cells(extra)}
    if extra.p is None:
        return cells
    corrected = extra.p.adjusted is not None
    p = number(extra.p.adjusted if corrected else extra.p.value, 3)
    return cells | {"p": p, "holm_tests": extra.p.family if corrected else ""}


def data_files(result_set: ResultSet, folder: Path) -> dict[str, str]:
    """The data files as CSV, by name."""
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in FILES}
    for model_name, measure, result, seconds in results(result_set, folder):
        key = {"model": model_name, "measure": measure}
        rows["values"].append(key | value_row(result, seconds))
        if result is not None:
            rows["notes"] += [key | {"note": note} for note in result.notes]
            rows["extras"] += [key | extra_row(extra) for extra in result.extras]
    texts = {}
    for name, columns in FILES.items():
        path = RESULTS / "data" / result_set.page / f"{name}.csv"
        file = io.StringIO()
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(with_kept_rows(result_set, rows, name, path))
        texts[name] = file.getvalue()
    return texts


def with_kept_rows(
    result_set: ResultSet, rows: dict[str, list[dict[str, object]]], name: str, path: Path
) -> list[dict[str, object]]:
    """New rows of a data file and those of measures that have not run here, in the set's order."""
    order = {
        (model_name, named_groups(measure)): (i, j)
        for i, (model_name, measures) in enumerate(result_set.runs.items())
        for j, measure in enumerate(measures)
    }

    def place(row: Mapping[str, object]) -> tuple[int, int] | None:
        return order.get((str(row["model"]), named_groups(str(row["measure"]))))

    # A measure that ran has a value or a note; extras and notes may be fewer than before.
    run_here = {place(row) for row in rows["values"]}
    kept: list[dict[str, object]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            # What is no longer in the set is dropped.
            kept = [{**row} for row in csv.DictReader(file) if place(row) not in run_here | {None}]
    return sorted((*kept, *rows[name]), key=lambda row: place(row) or (len(order), 0))


def named_groups(measure: str) -> str:
    """A measure with its groups as in the set: a result names all of them."""
    return GROUPS_OPTION.sub("groups=all", measure)


def summary(values: str) -> str:
    """The values as tables: one for language models, one for classifiers; none if it is long."""
    rows = [row for row in csv.DictReader(io.StringIO(values)) if "groups=" not in row["measure"]]
    if len({row["measure"] for row in rows}) > MAX_ROWS:
        return "The values are in a [data file](#data).\n"
    tables = []
    for tuned in (False, True):
        subset = [row for row in rows if row["model"].startswith(TUNED) is tuned]
        if not subset:
            continue
        models = list(dict.fromkeys(row["model"] for row in subset))
        cells: dict[str, dict[str, str]] = {}
        for row in subset:
            cells.setdefault(row["measure"], {})[row["model"]] = summary_cell(row)
        lines = [f"| measure | {' | '.join(models)} |", "|" + "---|" * (len(models) + 1)]
        for measure, by_model in cells.items():
            texts = " | ".join(by_model.get(name, "") for name in models)
            lines.append(f"| `{measure}` | {texts} |")
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def summary_cell(row: dict[str, str]) -> str:
    """A value with its interval; bold where a valid test shows a difference from parity."""
    if not row["value"]:
        return row["note"]
    text = f"{row['value']} [{row['low']}, {row['high']}]"
    if row["parity"] not in USUAL_PARITY:
        text += f", parity {row['parity']}"
    # Of a model without the skill, no value is evidence.
    no_skill = "§" if row.get("skill") == "not shown" else ""
    if row["mark"] or row["note"] or no_skill:
        return " ".join(filter(None, (text, row["mark"], no_skill, "‡" if row["note"] else "")))
    return f"**{text}**" if row["p"] and float(row["p"]) <= SIGNIFICANT else text


def compared_with_peers(folder: Path) -> str:
    """What benchmarks/peers.py printed, if its last line was kept in the folder."""
    path = folder / "peers.json"
    if not path.exists():
        return ""
    output = json.loads(path.read_text())
    harness, scorer = output["lm_eval"], output["minicons"]
    lines = [
        "### Comparison with other tools",
        "",
        "`python benchmarks/peers.py` (one thread, float32, batches of 32, one model in memory):",
        "",
        f"- lm-evaluation-harness, all {harness['pairs']} CrowS pairs with SmolLM2-135M: largest",
        f"  relative difference of a log-likelihood {harness['difference']:.1e}; CPU seconds after",
        f"  loading the model: {harness['seconds_levelhead']} (levelhead, items to responses) and",
        f"  {harness['seconds_lm_eval']} (lm-eval, simple_evaluate), ratio {harness['ratio']}.",
        f"- minicons, pseudo-log-likelihoods of {scorer['texts']} sentences by minibert: largest",
        f"  relative difference {scorer['difference']:.1e}.",
    ]
    return "\n".join(lines) + "\n"


def write(result_set: ResultSet, folder: Path) -> None:
    """The data files, and the page between its marks."""
    texts = data_files(result_set, folder)
    for name, text in texts.items():
        path = RESULTS / "data" / result_set.page / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(str(path), text.encode())
    page = RESULTS / f"{result_set.page}.md"
    if not page.exists():
        return
    above, _, rest = page.read_text().partition(BEGIN)
    _, _, below = rest.partition(END)
    parts = "\n".join(filter(None, (summary(texts["values"]), compared_with_peers(folder))))
    write_atomic(str(page), f"{above}{BEGIN}\n{parts}\n{END}{below}".encode())


def main() -> None:
    """Run, then write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", choices=RESULT_SETS, default=next(iter(RESULT_SETS)))
    parser.add_argument("--only", nargs="+", default=[], metavar="MEASURE")
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--again", action="store_true", help="compute from stored responses")
    given = parser.parse_args()
    result_set = RESULT_SETS[given.results]
    if not given.page:
        compute(result_set, given.folder, given.only, again=given.again)
    write(result_set, given.folder)


if __name__ == "__main__":
    main()
