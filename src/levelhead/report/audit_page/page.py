"""The report of an audit: one self-contained file that begins with the verdict."""

from __future__ import annotations

import base64
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead._version import __version__
from levelhead.calibrate.tables import summarise_in_one_line
from levelhead.core.calibration import (
    DAGGER_NOTE,
    calibration_verdict,
    failed_calibration_mark,
    find_calibration,
    with_mark,
)
from levelhead.core.errors import LevelheadError, MissingExtraError
from levelhead.core.results import Measurement, Record, StepFailure
from levelhead.core.verdicts import adjusted_p_value
from levelhead.data.catalog.datasets import datasets
from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.explain.attention.counterstereotype import CounterStereotypeResult
from levelhead.explain.attention.example import AttentionExample
from levelhead.explain.prompting.knowledge import KnowledgeResult
from levelhead.locate.head_map import HeadMap
from levelhead.measures.base import UNFLAGGED
from levelhead.mitigate.heads.mask_top_heads import MaskingReport
from levelhead.mitigate.probing.concept_removal import RemovalReport
from levelhead.report.audit_page.head_table import HeadTable, build_head_table
from levelhead.report.audit_page.verdict import (
    LIMITATIONS,
    STATUS_TEXT,
    compute_audit_verdict,
    unreached_measures,
)
from levelhead.report.charts.forest import forest_chart
from levelhead.report.charts.heads.head_distribution import distribution_chart
from levelhead.report.charts.registry import chart
from levelhead.report.head_map_labels import head_map_captions
from levelhead.report.save import render_svg, to_script_json, vega_bundle
from levelhead.report.theme import format_interval, format_number
from levelhead.study.steps.measurements import CompareModelsStep
from levelhead.study.table import result_to_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from altair.typing import ChartType

    from levelhead.report.audit_page.verdict import AuditMeasureVerdict, AuditVerdict
    from levelhead.study.audit.audit import Audit

MAX_LETTERS = 400
"""Number of characters of a text that the page shows."""
TEMPLATES = files("levelhead.report") / "templates"


class PageTable(NamedTuple):
    """Numbers in rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class PageFigure(NamedTuple):
    """A figure and the specification it was rendered from."""

    id: str
    caption: str
    alt: str
    svg: str
    """As base64."""
    spec: str
    """As JSON for a script."""
    width: int


class ReportSection(NamedTuple):
    """A part of the report."""

    id: str
    title: str
    lines: tuple[str, ...] = ()
    collapsed_tables: tuple[PageTable, ...] = ()
    """Tables that a reader has to open."""
    head_tables: tuple[HeadTable, ...] = ()
    figures: tuple[PageFigure, ...] = ()
    tables: tuple[PageTable, ...] = ()
    code: str = ""


def render_audit_page(audit: Audit, results: Mapping[str, Record], *, command: str) -> bytes:
    """Render the report of an audit as HTML.

    Args:
        audit: plan of the audit: the queried and the skipped measures.
        results: results by step.
        command: command that repeats the audit.
    """
    jinja2, markup = _jinja()
    verdict = compute_audit_verdict(audit, results)
    sections = [
        ReportSection("verdict", "Verdict"),
        _measures_section(verdict),
        *_comparison_section(verdict, audit),
        *_heads_section(results),
        *_knowledge_section(results),
        *_probing_section(results),
        _omissions_section(audit, results),
        _data_section(results),
        _provenance_section(audit, results, command),
    ]
    # autoescape: names of models and texts of corpora are untrusted. StrictUndefined: a misspelt
    # field would otherwise print nothing.
    env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = env.from_string(_file("audit.html")).render(
        title=truncate_text(audit.study_config.description),
        about=truncate_text(audit.model_summary),
        verdict=verdict._replace(sentences=tuple(map(truncate_text, verdict.sentences))),
        not_shown=LIMITATIONS,
        parts=[_mark_safe(section, markup) for section in sections],
        version=__version__,
        style=markup(_file("audit.css")),
        keys=markup(_file("keys.js")),
        draw=markup(_file("draw.js")),
        bundle=markup(vega_bundle()),
    )
    return str(text).encode()


def _jinja() -> tuple[Any, Any]:
    try:
        return import_module("jinja2"), import_module("markupsafe").Markup
    except ImportError:
        raise MissingExtraError("writing a report", "report") from None


def _file(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")


def _mark_safe(section: ReportSection, markup: Any) -> ReportSection:
    """Exempt chart data from HTML escaping: `to_script_json` already escapes what ends a script."""
    return section._replace(
        figures=tuple(figure._replace(spec=markup(figure.spec)) for figure in section.figures)
    )


def truncate_text(text: str) -> str:
    """Shorten a text for the page and state its full length."""
    if len(text) <= MAX_LETTERS:
        return text
    return f"{text[:MAX_LETTERS]}… ({len(text):,} characters)"


def make_figure(name: str, chart: ChartType, caption: str, alt: str) -> PageFigure:
    """Render a chart as a figure of the page."""
    svg = render_svg(chart)
    # The first width is that of the root element.
    width = int(float(svg.split(b'width="', 1)[1].split(b'"', 1)[0]))
    return PageFigure(
        name, caption, alt, base64.b64encode(svg).decode(), to_script_json(chart), width
    )


# -- parts


MEASURE_COLUMNS = (
    "measure",
    "what it shows",
    "value",
    "interval",
    "parity",
    "p",
    "minimum detectable effect",
    "items used",
    "validation on planted bias",
    "a larger value means",
)


def _measures_section(verdict: AuditVerdict) -> ReportSection:
    core = [row for row in verdict.measures if row.is_core]
    added = [row for row in verdict.measures if not row.is_core]
    biases = [row for row in (*core, *verdict.derived, *added) if row.role == "bias"]
    plotted = [
        (with_mark(row.name, row.measurement), row.measurement)
        for row in biases
        if row.measurement is not None
    ]
    figures: tuple[PageFigure, ...] = ()
    if plotted:
        plot = forest_chart(plotted, title="Measures of bias")
        alt = (
            f"Values and intervals of {len(plotted)} measures; the numbers are in the table below."
        )
        caption = "Every measure of bias, with its interval and parity."
        figures = (make_figure("forest", plot, caption, alt),)
    tables = [
        PageTable(
            f"Core suite: {verdict.coverage}; p is corrected for the number of its tests (Holm)",
            MEASURE_COLUMNS,
            tuple(_measure_row(row) for row in (*core, *verdict.derived)),
        )
    ]
    if added:
        caption = "Beyond the core suite; p is corrected separately; the summary does not count it"
        tables.append(PageTable(caption, MEASURE_COLUMNS, tuple(map(_measure_row, added))))
    notes = tuple(
        (row.name, truncate_text(note))
        for row in verdict.measures
        if row.measurement is not None
        for note in (*_calibration_notes(row.measurement), *row.measurement.notes)
    )
    caveats = PageTable("Notes and caveats", ("measure", "note"), notes)
    collapsed_tables = (caveats, *_supporting_statistics(verdict))
    return ReportSection(
        "measures",
        "Measures",
        collapsed_tables=collapsed_tables,
        figures=figures,
        tables=tuple(tables),
    )


def _supporting_statistics(verdict: AuditVerdict) -> Iterator[PageTable]:
    """Tables of the statistics that help to interpret each measure."""
    table_rows = tuple(
        (
            row.name,
            with_mark(truncate_text(extra.name), row.measurement, extra.name),
            *_estimate_cells(extra),
            str(extra.n),
        )
        for row in verdict.measures
        if row.measurement is not None
        for extra in row.measurement.extras
    )
    columns = ("measure", "number", "value", "interval", "parity", "p")
    if table_rows:
        yield PageTable(
            "Supporting statistics", (*columns, "minimum detectable effect", "n"), table_rows
        )


def _measure_row(verdict: AuditMeasureVerdict) -> tuple[str, ...]:
    if verdict.measurement is None:
        status_text = (
            f"{STATUS_TEXT[verdict.status]}: {verdict.reason}"
            if verdict.reason
            else STATUS_TEXT[verdict.status]
        )
        return (verdict.name, status_text, *[""] * 7, truncate_text(verdict.explanation))
    measurement = verdict.measurement
    status_text = "capability" if verdict.role == "utility" else STATUS_TEXT[verdict.status]
    if verdict.toward:
        status_text += f": {verdict.toward}"
    elif verdict.status == "inconclusive":
        status_text += f": {verdict.reason}"
    return (
        with_mark(verdict.name, measurement),
        status_text,
        *_estimate_cells(measurement),
        format_items_used(measurement),
        calibration_verdict(measurement),
        measurement.direction,
    )


def format_items_used(measurement: Measurement) -> str:
    """Number of used items, out of the full data set or, if its size is unknown, of those queried.

    >>> from types import SimpleNamespace as Shown
    >>> format_items_used(Shown(n=46, n_items=46, population=1508, sampled_fraction=46 / 1508))
    '46 of 1,508 (3%)'
    >>> format_items_used(Shown(n=45, n_items=46, population=None, sampled_fraction=None))
    '45 of 46 queried'
    """
    if measurement.population is None or measurement.sampled_fraction is None:
        return f"{measurement.n:,} of {measurement.n_items:,} queried"
    n_dropped = measurement.n_items - measurement.n
    share = (
        f"{measurement.sampled_fraction:.0%}"
        if measurement.sampled_fraction >= 0.01
        else "below 1%"
    )
    dropped = f", {n_dropped:,} dropped" if n_dropped else ""
    return f"{measurement.n:,} of {measurement.population:,} ({share}){dropped}"


def _calibration_notes(measurement: Measurement) -> tuple[str, ...]:
    """How the measure performed on models with planted bias."""
    calibration = find_calibration(measurement)
    return (
        ()
        if calibration is None
        else (f"validation on planted bias: {summarise_in_one_line(calibration)}",)
    )


def _estimate_cells(estimate: Any) -> tuple[str, ...]:
    p = adjusted_p_value(estimate)
    return (
        format_number(estimate.value),
        _interval(estimate.interval.low, estimate.interval.high),
        format_number(estimate.parity, missing=""),
        _p(p),
        format_number(estimate.detectable, missing=""),
    )


def _interval(low: float | None, high: float | None) -> str:
    """Format an interval with no-break spaces, so that a table cell keeps it on one line."""
    return "" if low is None or high is None else format_interval(low, high).replace(" ", "\u00a0")


def _p(p: float | None) -> str:
    if p is None:
        return ""
    # Four decimals would print smaller p-values as 0, which no test can give.
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def _comparison_section(verdict: AuditVerdict, audit: Audit) -> Iterator[ReportSection]:
    if not verdict.comparisons:
        return
    which = (
        ("the other model", "this model")
        if audit.study_config.rows(CompareModelsStep)
        else ("this model", "the edited model")
    )
    differences = [
        (f"{comparison.measure} {comparison.mark}".rstrip(), comparison.difference)
        for comparison in verdict.comparisons
    ]
    plot = forest_chart(differences, title=f"Second minus first: {which[1]} - {which[0]}")
    alt = f"Differences by {len(differences)} measures; the numbers are in the table below."
    columns = ("measure", "first", "second", "difference", "interval", "parity", "p")
    table = PageTable(
        "Paired item by item; p corrected for the number of comparisons (Holm)",
        (*columns, "minimum detectable effect", "what it says"),
        tuple(
            (
                name,
                format_number(comparison.first.value),
                format_number(comparison.second.value),
                *_estimate_cells(comparison.difference),
                comparison.verdict,
            )
            for comparison, (name, _) in zip(verdict.comparisons, differences, strict=True)
        ),
    )
    yield ReportSection(
        "against",
        "Item by item",
        (f"First: {which[0]}. Second: {which[1]}.",),
        figures=(make_figure("differences", plot, "Differences, with intervals.", alt),),
        tables=(table,),
    )


def _heads_section(results: Mapping[str, Record]) -> Iterator[ReportSection]:
    for step, head_map in results.items():
        if not isinstance(head_map, HeadMap):
            continue
        name = step.partition(".")[2]
        figures = [
            make_figure(
                f"spread-{name}",
                distribution_chart(head_map),
                "Distribution of the scores over heads.",
                f"Distribution of the scores of {len(head_map.heads)} heads.",
            )
        ]
        figures += _head_figures(results)
        ranked = head_map.ranked_heads
        significant = sorted(
            (head for head in ranked if head.is_significant),
            key=lambda head: -abs(head.effect or 0),
        )
        # The extremes show direction; significant effects may have small scores: list both.
        labels = {head.label for head in (*ranked[:5], *ranked[-5:], *significant[:10])}
        heads_in_table = [head for head in ranked if head.label in labels]
        table = PageTable(
            "Heads with the largest and smallest scores, and largest effects that differ from 0",
            ("head", "score", "effect of ablation", "interval", "corrected p"),
            tuple(
                (
                    head.label,
                    format_number(head.score),
                    format_number(head.effect, missing="not ablated"),
                    ""
                    if head.interval is None
                    else _interval(head.interval.low, head.interval.high),
                    "" if head.p is None else _p(head.p.adjusted),
                )
                for head in heads_in_table
            ),
        )
        captions = tuple(
            truncate_text(f"{line}.")
            for line in (
                *head_map_captions(head_map),
                f"heads: {head_map.verdict}",
                *head_map.notes,
            )
        )
        head_tables = (build_head_table(head_map),)
        yield ReportSection("heads", "Heads", captions, (), head_tables, tuple(figures), (table,))


def _head_figures(results: Mapping[str, Record]) -> Iterator[PageFigure]:
    captions: tuple[tuple[type[Record], str, str], ...] = (
        (MaskingReport, "masking", "Effect and utility cost of masking heads."),
        (CounterStereotypeResult, "explain", "Attention on a group's word, original and counter."),
        (
            AttentionExample,
            "example",
            "One sentence and its counterfactual: attention of single heads.",
        ),
    )
    for kind, name, caption in captions:
        for result in results.values():
            if isinstance(result, kind):
                alt = f"{caption} The numbers are in table.csv."
                yield make_figure(name, chart(result), caption, alt)


def _knowledge_section(results: Mapping[str, Record]) -> Iterator[ReportSection]:
    for step, result in results.items():
        if isinstance(result, KnowledgeResult):
            caption = "How knowledge before a prompt changes the group that the model predicts."
            knowledge_figure = make_figure(
                "knowledge", chart(result), caption, f"{caption} Numbers: table.csv."
            )
            numbers = [row for row in result_to_rows(step, result) if ", top " not in row.name]
            table = PageTable(
                "Counterexamples (Zhang 2023)",
                ("", "number", "value", "interval", "p"),
                tuple(
                    (
                        row.name,
                        row.what,
                        format_number(row.value),
                        _interval(row.low, row.high),
                        _p(row.p if row.adjusted is None else row.adjusted),
                    )
                    for row in numbers
                ),
            )
            yield ReportSection(
                "knowledge",
                "Counterexamples",
                figures=(knowledge_figure,),
                collapsed_tables=(table,),
            )


def _probing_section(results: Mapping[str, Record]) -> Iterator[ReportSection]:
    for result in results.values():
        if isinstance(result, RemovalReport):
            probing_figure = make_figure(
                "removed", chart(result), "What probes still detect.", "Probes' AUC."
            )
            captions = [f"{result.verdict}: {result.reason}", *result.notes]
            captions += (
                [f"The measure of the edit's effect: {DAGGER_NOTE}."]
                if failed_calibration_mark(result.bias_measure)
                else []
            )
            yield ReportSection(
                "removed", "Removed or hidden", tuple(captions), figures=(probing_figure,)
            )


def _omissions_section(audit: Audit, results: Mapping[str, Record]) -> ReportSection:
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


def _data_section(results: Mapping[str, Record]) -> ReportSection:
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
    tables = [PageTable("Data of the audit, and its limits", _CARD_COLUMNS, cards)] if cards else []
    if flagged:
        columns = ("measure", "items that the linter flags")
        tables.append(PageTable("Flags", columns, tuple(flagged)))
    return ReportSection("data", "Data", tables=tuple(tables))


_CARD_COLUMNS = ("data", "licence", "what it is", "limits")


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


def _provenance_section(audit: Audit, results: Mapping[str, Record], command: str) -> ReportSection:
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
