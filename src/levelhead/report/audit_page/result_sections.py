"""Sections of an audit's page with generations, its head map, prompts and probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark
from levelhead.explain.attention.counterstereotype import CounterStereotypeResult
from levelhead.explain.attention.example import AttentionExample
from levelhead.explain.prompting.knowledge import KnowledgeResult
from levelhead.locate.head_map import HeadMap
from levelhead.measures.item_details import PAIR
from levelhead.mitigate.heads.mask_top_heads import MaskingReport
from levelhead.mitigate.probing.concept_removal import RemovalReport
from levelhead.report.audit_page.head_table import build_head_table
from levelhead.report.audit_page.sections import (
    PageFigure,
    PageTable,
    ReportSection,
    interval_text,
    make_figure,
    p_text,
    truncate_text,
)
from levelhead.report.charts.heads.head_distribution import distribution_chart
from levelhead.report.charts.registry import chart
from levelhead.report.head_map_labels import head_map_captions
from levelhead.report.theme import format_number
from levelhead.study.table import result_to_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from levelhead.core.results import ItemDetail, Measurement, QueryDetail, Record
    from levelhead.report.audit_page.verdict import AuditVerdict


LARGEST, MEDIAN = "largest difference", "median"
PAIR_NOTE = (
    "The model answered the same request about a person of either group. A single pair is no "
    "evidence: two answers to one request differ as well. The test compares all of them."
)


def generations_section(verdict: AuditVerdict) -> Iterator[ReportSection]:
    """Some generated texts about two groups, side by side: extreme pairs and the median."""
    tables = [
        table
        for row in verdict.measures
        if row.measure == "generation" and row.measurement is not None
        for table in _pair_table(row.title, row.measurement)
    ]
    if tables:
        yield ReportSection(
            "generations", "Generated texts side by side", (PAIR_NOTE,), tables=tuple(tables)
        )


def _pair_table(title: str, measurement: Measurement) -> Iterator[PageTable]:
    """The pairs of a measurement whose texts were recorded."""
    details = {detail.item: detail for detail in measurement.item_details}
    values = [row for row in measurement.per_item_values if row.item in details]
    if not values or len(measurement.groups) != 2:
        return
    # Pairs of equal labels: those of different length first.
    ranked = sorted(values, key=lambda row: (row.value, _length_gap(details[row.item]), row.item))
    first, second = measurement.groups
    chosen = {
        f"{LARGEST}, towards {first}": ranked[-1],
        f"{LARGEST}, towards {second}": ranked[0],
        MEDIAN: ranked[len(ranked) // 2],
    }
    rows = [
        (
            f"{kind} ({format_number(row.value)} {measurement.unit})",
            *map(_describe_texts, _split_sides(details[row.item])),
        )
        for kind, row in chosen.items()
    ]
    caption = f"{title}: {len(rows)} of {len(values):,} pairs"
    yield PageTable(caption, ("pair", first, second), tuple(rows))


def _split_sides(detail: ItemDetail) -> tuple[tuple[QueryDetail, ...], tuple[QueryDetail, ...]]:
    """The recorded texts about each group: the first half and the second."""
    half = len(detail.queries) // 2
    return detail.queries[:half], detail.queries[half:]


def _length_gap(detail: ItemDetail) -> float:
    first, second = (
        sum(dict(query.responses).get("words", 0.0) for query in side)
        for side in _split_sides(detail)
    )
    return first - second


def _describe_texts(queries: tuple[QueryDetail, ...]) -> str:
    """One request with the answers to it, and what scorers say of each."""
    request = queries[0].text.partition(PAIR)[0] if queries else ""
    answers = [
        f"“{truncate_text(query.text.partition(PAIR)[2].strip())}” "
        f"({', '.join(f'{label} {format_number(value)}' for label, value in query.responses)})"
        for query in queries
    ]
    return " → ".join((truncate_text(request), " / ".join(answers)))


def heads_section(results: Mapping[str, Record]) -> Iterator[ReportSection]:
    """Each head map: its scores by head and the figures of the steps that use it."""
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
                    else interval_text(head.interval.low, head.interval.high),
                    "" if head.p is None else p_text(head.p.adjusted),
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


def knowledge_section(results: Mapping[str, Record]) -> Iterator[ReportSection]:
    """The effect of knowledge before a prompt."""
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
                        interval_text(row.low, row.high),
                        p_text(row.p if row.adjusted is None else row.adjusted),
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


def probing_section(results: Mapping[str, Record]) -> Iterator[ReportSection]:
    """Whether an edit removed or hid a group."""
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
