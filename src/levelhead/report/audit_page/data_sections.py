"""Sections of an audit's page on what was skipped, the data and the provenance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Measurement, Record, StepFailure
from levelhead.data.catalog.datasets import datasets
from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.measures.base import UNFLAGGED
from levelhead.report.audit_page.sections import PageTable, ReportSection, truncate_text
from levelhead.report.audit_page.verdict import unreached_measures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.study.audit.audit import Audit

CARD_COLUMNS = ("data", "licence", "what it is", "limits")


def omissions_section(audit: Audit, results: Mapping[str, Record]) -> ReportSection:
    """What was skipped, and what was sampled."""
    skipped: list[tuple[str, str, str]] = [
        (item.name, item.reason, truncate_text(item.details)) for item in audit.omitted
    ]
    skipped += [
        (step, "not measured", truncate_text(f"{result.problem} ({result.hint})"))
        for step, result in {**results, **unreached_measures(audit, results)}.items()
        if isinstance(result, StepFailure)
    ]
    tables = [PageTable("Skipped", ("what", "reason", "details"), tuple(skipped))] * bool(skipped)
    if audit.truncated:
        budget = f" in {audit.budget:g} seconds" if audit.budget else ""
        truncated_rows = tuple(
            (item.name, f"{item.n_used:,} of {item.n_total:,}") for item in audit.truncated
        )
        tables.append(PageTable(f"Sampled{budget}", ("what", "questions"), truncated_rows))
    captions = () if tables else ("Every measure that fits this model was queried in full.",)
    return ReportSection("limits", "Skipped and sampled", captions, tables=tuple(tables))


def data_section(results: Mapping[str, Record]) -> ReportSection:
    """The data sets and lexicons, their limits, and the items that the linter flags."""
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
    return ReportSection("data", "Data", tables=tuple(tables))


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
