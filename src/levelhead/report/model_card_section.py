"""An audit in a model's README: a section between two marks, and results in its metadata.

All other content stays unchanged, byte for byte: the text around the marks and every other key of
the metadata. Results of other tools in `model-index` are retained.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from levelhead.core.calibration import (
    DAGGER_NOTE,
    calibration_verdict,
    failed_calibration_mark,
    with_mark,
)
from levelhead.core.errors import LevelheadError
from levelhead.core.escape import escape_markdown
from levelhead.core.verdicts import adjusted_p_value, decide_measure_verdict
from levelhead.report.audit_page.verdict import LIMITATIONS, compute_audit_verdict
from levelhead.report.theme import format_interval, format_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Measurement, Record
    from levelhead.report.audit_page.verdict import AuditVerdict
    from levelhead.study.audit.audit import Audit

BEGIN, END = "<!-- levelhead audit: begin -->", "<!-- levelhead audit: end -->"
SOURCE = "levelhead"
"""Dataset type of levelhead's results, by which a later run finds and replaces them."""
# Not by a YAML library, which would drop comments and reorder keys of the metadata.
_FRONT = re.compile(
    r"\A---[ \t]*\r?\n(.*?)(^---[ \t]*\r?\n|^---[ \t]*\Z)", re.DOTALL | re.MULTILINE
)
# Ends at the next key at the beginning of a line, or at the end.
_INDEX = re.compile(r"^model-index:.*?(?=^[^\s#-]|\Z)", re.DOTALL | re.MULTILINE)


def update_readme(readme: str, audit: Audit, results: Mapping[str, Record], *, name: str) -> str:
    """Add the audit's section and results to a README.

    Args:
        readme: current README; empty if there is none.
        audit: plan of the audit.
        results: results by step.
        name: name of the model in the metadata.
    """
    verdict = compute_audit_verdict(audit, results)
    front, body = _split_front_matter(readme)
    ours = [
        _eval_result(audit, row.name, row.measurement)
        for row in verdict.measures
        if row.measurement
    ]
    text = f"---\n{_update_model_index(front, ours, name)}---\n" + _insert_section(
        body, render_section(verdict)
    )
    try:
        ModelCard(text)  # to read it is to check it
    # Invalid metadata raises errors of huggingface_hub or of its YAML parser.
    except Exception as error:
        raise LevelheadError(
            f"the README would not be a valid model card: {(str(error).splitlines() or [''])[0]}",
            hint="correct its metadata, between the two lines ---",
        ) from None
    return text


def render_section(verdict: AuditVerdict) -> str:
    """Write the verdict of the audit as Markdown."""
    rows = [
        "| measure | value | interval | parity | corrected p | verdict | items used |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in verdict.measures:
        measurement = row.measurement
        if measurement is None:
            rows.append(
                f"| {escape_markdown(row.name)} | not measured: "
                f"{escape_markdown(row.explanation)} | | | | | |"
            )
            continue
        p = adjusted_p_value(measurement)
        cells = (
            with_mark(escape_markdown(row.name), measurement),
            format_number(measurement.value),
            format_interval(measurement.interval.low, measurement.interval.high),
            format_number(measurement.parity, missing=""),
            "" if p is None else f"{p:.4f}",
            "" if row.role == "utility" else escape_markdown(_verdict_text(measurement)),
            describe_items_used(measurement),
        )
        rows.append("| " + " | ".join(cells) + " |")
    lines = ["## Stereotype bias: an audit", "", escape_markdown(verdict.headline), "", *rows, ""]
    if any(failed_calibration_mark(row.measurement) for row in verdict.measures):
        lines += [DAGGER_NOTE, ""]
    lines += ["What this does not show:", "", *(f"- {line}" for line in LIMITATIONS)]
    return "\n".join(lines)


def describe_items_used(measurement: Measurement) -> str:
    """The number of used items, out of the full data set if its size is known.

    "46 of 46" would hide that only 3% of the data set was queried.
    """
    dropped = f", {len(measurement.dropped)} dropped" if measurement.dropped else ""
    if measurement.population is None or measurement.sampled_fraction is None:
        return f"{measurement.n} of {measurement.n_items}"
    share = (
        f"{measurement.sampled_fraction:.0%}" if measurement.sampled_fraction >= 0.005 else "<1%"
    )  # else 3 of 1,508 rounds to 0%
    return f"{measurement.n:,} of {measurement.population:,} ({share}){dropped}"


def _verdict_text(measurement: Measurement) -> str:
    """The status of a measurement, with its direction or reason."""
    verdict = decide_measure_verdict(measurement)
    return ": ".join(part for part in (verdict.status, verdict.toward or verdict.reason) if part)


def _split_front_matter(readme: str) -> tuple[str, str]:
    """Split the README into its metadata, without the lines of dashes, and the rest."""
    match = _FRONT.match(readme)
    return (match[1], readme[match.end() :]) if match else ("", readme)


def _insert_section(body: str, section_text: str) -> str:
    """Replace an earlier section of levelhead, or append one."""
    if body.count(BEGIN) != body.count(END) or body.count(BEGIN) > 1:
        raise LevelheadError(
            "the README contains levelhead's marks more than once, or only one of them",
            hint=f"leave one pair of {BEGIN} and {END}, or none",
        )
    block = f"{BEGIN}\n{section_text}\n{END}"
    if BEGIN in body:
        before, _, rest = body.partition(BEGIN)
        return before + block + rest.partition(END)[2]
    return f"{body}{'' if not body or body.endswith(chr(10)) else chr(10)}\n{block}\n"


def _update_model_index(front: str, ours: list[EvalResult], name: str) -> str:
    """Put levelhead's results into `model-index`; every other line stays unchanged."""
    other_results: list[EvalResult] = []
    if match := _INDEX.search(front):
        try:
            data: Any = ModelCard(f"---\n{match[0]}---\n").data
            other_results = [
                result for result in data.eval_results or () if result.dataset_type != SOURCE
            ]
            name = data.model_name or name
        except Exception as error:
            raise LevelheadError(
                f"the README's model-index cannot be read: {(str(error).splitlines() or [''])[0]}",
                hint="correct it, or remove it",
            ) from None
        front = front[: match.start()] + front[match.end() :]
    index = ModelCardData(model_name=name, eval_results=[*other_results, *ours])
    if front and not front.endswith("\n"):
        front += "\n"
    return f"{front}{index.to_yaml()}\n"


def _eval_result(audit: Audit, name: str, measurement: Measurement) -> EvalResult:
    # The Hub files results of one task, data set type, config, split and revision as one entry,
    # under the name of the first: without a separate config, crows would appear under SEAT's.
    return EvalResult(
        task_type="other",
        task_name="stereotype bias" if dict(audit.roles)[name] == "bias" else "ability",
        dataset_type=SOURCE,
        dataset_config=name,
        dataset_name=audit.study_config.measures[name],
        metric_type=measurement.measure,
        metric_name=name,
        metric_value=float(f"{measurement.value:.6g}"),
        metric_args={
            "interval": [
                float(f"{end:.6g}") for end in (measurement.interval.low, measurement.interval.high)
            ],
            "level": measurement.interval.level,
            "parity": measurement.parity,
            "n": measurement.n,
            "asked": measurement.n_items,
            "population": measurement.population,
            "verdict": decide_measure_verdict(measurement).status,
            "where the truth is known": calibration_verdict(measurement),
        },
    )
