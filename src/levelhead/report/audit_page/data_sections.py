"""Sections of an audit's page on what was skipped, the data and the provenance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.calibrate.tables import summarise_in_one_line
from levelhead.core.calibration import find_calibration, with_mark
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Measurement, Record, StepFailure
from levelhead.data.catalog.datasets import datasets
from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.measures.base import UNFLAGGED
from levelhead.report.audit_page.questions import find_measure_text, registry_name
from levelhead.report.audit_page.sections import (
    PageTable,
    ReportSection,
    estimate_texts,
    truncate_text,
)
from levelhead.study.audit.suite import planned_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.report.audit_page.verdict import AuditVerdict
    from levelhead.study.audit.audit import Audit

CARD_COLUMNS = ("data", "licence", "what it is", "limits")
REMEDIES = {
    "time budget": "A larger --budget in the same folder: the audit continues from here.",
    "token budget": "A larger --max-tokens or --max-cost: the audit continues from here.",
    "not reached": "The same command again: the audit continues from here.",
    "data missing": "The data: `levelhead data list` shows where to get them.",
    "does not fit this model": "A model with the head or the tokens that the measure needs.",
    "error": "A correction of the error that is named here.",
}
"""What would make something testable, by the reason why it was not."""
DEFAULT_REMEDY = "A correction of the problem that is named here; then the same command again."
STEP_TITLES = {
    "heads": "Map of attention heads",
    "masking": "Utility cost of masking heads",
    "counter-stereotypes": "Attention on counter-stereotypes",
    "counterexamples": "Counterexamples before a prompt",
}


def omissions_section(
    audit: Audit, verdict: AuditVerdict, results: Mapping[str, Record]
) -> ReportSection:
    """What was not tested, why, what would make it testable, and what was sampled."""
    failures = {
        step.rpartition(".")[2] if step.startswith("cell.") else step: result
        for step, result in results.items()
        if isinstance(result, StepFailure)
    }
    hints = {name: failure.hint for name, failure in failures.items()}
    rows = [row for row in verdict.measures if row.measurement is None]
    skipped = [
        (
            row.label,
            _describe_reason(row.reason, row.explanation),
            _remedy(row.reason, hints.get(row.name)),
        )
        for row in rows
    ]
    listed = {row.name for row in rows}
    skipped += [
        (
            _label_omitted(item.name),
            _describe_reason(item.reason, item.details),
            _remedy(item.reason),
        )
        for item in audit.omitted
        if item.name not in listed
    ]
    # Steps that are no measure, such as a head map.
    skipped += [
        (_label_omitted(name.partition(".")[2]), failure.problem, _remedy("", failure.hint))
        for name, failure in failures.items()
        if name not in listed
    ]
    skipped_rows = tuple(tuple(map(truncate_text, row)) for row in skipped)
    columns = ("what", "why not", "what would make it testable")
    tables = [PageTable("Not tested", columns, skipped_rows)] * bool(skipped)
    if audit.truncated:
        budget = f" in {audit.budget:g} seconds" if audit.budget else ""
        truncated_rows = tuple(
            (_label_omitted(item.name), f"{item.n_used:,} of {item.n_total:,}")
            for item in audit.truncated
        )
        tables.append(PageTable(f"Sampled{budget}", ("what", "queries"), truncated_rows))
    captions = () if tables else ("Every measure that fits this model was run in full.",)
    return ReportSection("limits", "Not tested, and why", captions, tables=tuple(tables))


def _describe_reason(reason: str, details: str) -> str:
    return reason if details.startswith(reason) else f"{reason}: {details}"


def _remedy(reason: str, hint: str | None = None) -> str:
    """What would make something testable: by the reason, or by the failure's hint."""
    return REMEDIES.get(reason) or hint or DEFAULT_REMEDY


def _label_omitted(name: str) -> str:
    """A readable name of a measure or step that the audit skipped."""
    if name in STEP_TITLES:
        return f"{STEP_TITLES[name]} [{name}]"
    text = find_measure_text(registry_name(planned_text(name)))
    return name if text is None else f"{text.title} [{name}]"


def statistics_section(verdict: AuditVerdict) -> ReportSection:
    """The statistics that help to interpret each measure, and its caveats; a reader opens them."""
    rows = [row for row in (*verdict.measures, *verdict.derived) if row.measurement is not None]
    statistics = tuple(
        (
            row.label,
            with_mark(truncate_text(extra.name), row.measurement, extra.name),
            *estimate_texts(extra),
            str(extra.n),
        )
        for row in rows
        if row.measurement is not None
        for extra in row.measurement.extras
    )
    notes = tuple(
        (row.label, truncate_text(note))
        for row in rows
        if row.measurement is not None
        for note in (*_calibration_notes(row.measurement), *row.measurement.notes)
    )
    columns = ("measure", "number", "value", "interval", "parity", "p")
    tables = [
        PageTable(
            "Supporting statistics", (*columns, "smallest detectable effect", "n"), statistics
        )
    ] * bool(statistics)
    tables += [PageTable("Notes and caveats", ("measure", "note"), notes)] * bool(notes)
    return ReportSection(
        "statistics",
        "Statistics and notes",
        (f"Core suite: {verdict.coverage}. p is corrected for the number of its tests (Holm).",),
        tuple(tables),
    )


def _calibration_notes(measurement: Measurement) -> tuple[str, ...]:
    """How the measure performed on models with planted bias."""
    calibration = find_calibration(measurement)
    if calibration is None:
        return ()
    return (f"validation on planted bias: {summarise_in_one_line(calibration)}",)


def data_section(results: Mapping[str, Record]) -> Iterator[ReportSection]:
    """The data sets and lexicons, their limits, and the items that the linter flags."""
    # A dict as an ordered set: the order of the results makes the page reproducible.
    names: dict[str, None] = {}
    flagged = []
    for step, result in results.items():
        if isinstance(result, Measurement):
            names |= dict.fromkeys(result.provenance.data)
            n_clean = next((extra.n for extra in result.extras if extra.name == UNFLAGGED), None)
            if n_clean is not None:
                key = step.rpartition(".")[2]
                flagged.append((key, f"{result.n - n_clean:,} of {result.n:,}"))
    cards = tuple(_dataset_cards(list(names)))
    tables = [PageTable("Data of the audit, and its limits", CARD_COLUMNS, cards)] if cards else []
    if flagged:
        columns = ("measure", "items that the linter flags")
        tables.append(PageTable("Flags", columns, tuple(flagged)))
    if tables:
        yield ReportSection("data", "Data", tables=tuple(tables))


def _dataset_cards(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Rows for the data sets and lexicons that the sources name, without duplicates."""
    known_datasets = datasets()
    listed: set[str] = set()
    for name in names:
        words = name.replace("/", " ").replace(":", " ").split()
        for word in words:
            if word in known_datasets and word not in listed:
                dataset = known_datasets[word]
                yield dataset.name, dataset.licence, dataset.about, dataset.cannot
                listed.add(word)
        if (
            name.startswith("lexicon ")
            and (lexicon_name := name.removeprefix("lexicon ")) not in listed
        ):
            listed.add(lexicon_name)
            try:
                lexicon = resolve_lexicon(lexicon_name)
            except LevelheadError:  # the user's lexicon, deleted since the audit
                yield truncate_text(lexicon_name), "", "a lexicon", "not available any more"
                continue
            yield lexicon.name, lexicon.licence, "a lexicon", lexicon.limits


def provenance_section(audit: Audit, results: Mapping[str, Record], command: str) -> ReportSection:
    """Everything that the numbers depend on, and the command that repeats the audit."""
    measurement = next(
        (result for result in results.values() if isinstance(result, Measurement)), None
    )
    entries: list[tuple[str, str]] = [("hash of the request", audit.request_hash)]
    if measurement is not None:
        provenance = measurement.provenance
        entries += [
            ("model", truncate_text(provenance.model)),
            ("SHA-256 of its files and edits", provenance.model_hash),
            ("revision", provenance.revision or "none"),
            *((f"edit {i}", edit) for i, edit in enumerate(provenance.edits, 1)),
            *(
                (f"version of {name}", str(version))
                for name, version in provenance.versions.items()
            ),
        ]
    config = audit.study_config
    entries += [
        (key, str(getattr(config, key))) for key in ("seed", "threads", "resamples", "permutations")
    ]
    entries += [(f"measure {name}", truncate_text(text)) for name, text in config.measures.items()]
    table = PageTable("Everything the numbers depend on", ("what", "which"), tuple(entries))
    return ReportSection("provenance", "Provenance", tables=(table,), code=command)
