"""The report of an audit: one self-contained file that begins with the verdict."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead._version import __version__
from levelhead.core.errors import MissingExtraError
from levelhead.report.audit_page.cards import (
    KIND_TEXT,
    capitalise,
    describe_certainty,
    describe_direction,
    describe_no_finding,
    make_cards,
)
from levelhead.report.audit_page.comparison import make_comparison
from levelhead.report.audit_page.data_sections import (
    data_section,
    omissions_section,
    provenance_section,
    statistics_section,
)
from levelhead.report.audit_page.effect_scale import describe_size, strength_of
from levelhead.report.audit_page.group_section import groups_section
from levelhead.report.audit_page.next_steps import choose_next_steps
from levelhead.report.audit_page.questions import find_question
from levelhead.report.audit_page.result_sections import (
    generations_section,
    heads_section,
    knowledge_section,
    probing_section,
)
from levelhead.report.audit_page.sections import truncate_text
from levelhead.report.audit_page.verdict import LIMITATIONS, compute_audit_verdict
from levelhead.report.save import vega_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Record
    from levelhead.report.audit_page.verdict import AuditVerdict
    from levelhead.study.audit.audit import Audit

TEMPLATES = files("levelhead.report") / "templates"
SCRIPTS = ("keys.js", "items.js")


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
        *groups_section(verdict),
        *generations_section(verdict),
        *heads_section(results),
        *knowledge_section(results),
        *probing_section(results),
        omissions_section(audit, verdict, results),
        statistics_section(verdict),
        *data_section(results),
        provenance_section(audit, results, command),
    ]
    # autoescape: names of models and texts of corpora are untrusted. StrictUndefined: a misspelt
    # field would otherwise print nothing.
    env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    env.globals["unescaped"] = markup
    text = env.from_string(_file("audit.html")).render(
        title=truncate_text(audit.study_config.description),
        about=truncate_text(audit.model_summary),
        headline=truncate_text(verdict.headline),
        tiles=make_tiles(verdict),
        findings=make_findings(verdict),
        other_results=make_other_results(verdict),
        steps=choose_next_steps(
            audit, verdict, has_head_map=any(section.id == "heads" for section in sections)
        ),
        not_shown=LIMITATIONS,
        comparison=make_comparison(verdict, audit),
        cards=make_cards(audit, verdict),
        parts=sections,
        version=__version__,
        # Files of the package are not escaped. The template does the same with items and charts
        # alone, which are JSON without any "<".
        style=markup(_file("audit.css")),
        scripts=[markup(_file(name)) for name in SCRIPTS],
        draw=markup(_file("draw.js")),
        bundle=markup(vega_bundle()) if any(section.figures for section in sections) else "",
    )
    return str(text).encode()


class Tile(NamedTuple):
    """A count of the first screen."""

    kind: str
    number: int
    word: str


class Finding(NamedTuple):
    """A detected bias, in words, and the card that explains it."""

    text: str
    certainty: str
    title: str
    target: str
    examples: str
    """Id of the items behind the finding; empty if none were recorded."""
    is_core: bool


def make_tiles(verdict: AuditVerdict) -> tuple[Tile, ...]:
    """The outcomes of the core suite's tests of bias; their counts add up to all tests."""
    outcomes = Counter(row.outcome for row in verdict.bias_tests)
    return (
        Tile("detected", outcomes["detected"], KIND_TEXT["detected"]),
        Tile("none found", outcomes["none found"], KIND_TEXT["none found"]),
        Tile("inconclusive", outcomes["inconclusive"], KIND_TEXT["inconclusive"]),
        Tile(
            "not reliable",
            outcomes["not reliable"] + outcomes["not run"],
            "not reliable or not run",
        ),
    )


def make_findings(verdict: AuditVerdict) -> tuple[Finding, ...]:
    """What was detected: the core suite first, strong findings before weak ones."""
    rows = [*verdict.measures, *verdict.derived]
    detected = [row for row in rows if row.role == "bias" and row.outcome == "detected"]
    detected.sort(key=lambda row: (not row.is_core, -strength_of(row.measurement)))
    return tuple(
        Finding(
            truncate_text(
                f"{capitalise(describe_direction(row))}: {describe_size(row.measurement)}."
            ),
            describe_certainty(row.measurement),
            row.title,
            _card_id(row.measure),
            row.examples_anchor,
            row.is_core,
        )
        for row in detected
        if row.measurement is not None
    )


def make_other_results(verdict: AuditVerdict) -> tuple[Finding, ...]:
    """What the other tests of the core suite say, and what they could have missed."""
    others = [row for row in verdict.bias_tests if row.outcome != "detected"]
    return tuple(
        Finding(
            truncate_text(describe_no_finding(row)), "", row.title, _card_id(row.measure), "", True
        )
        for row in others
    )


def _card_id(measure: str) -> str:
    question = find_question(measure)
    return "q-other" if question is None else f"q-{question.id}"


def _jinja() -> tuple[Any, Any]:
    try:
        return import_module("jinja2"), import_module("markupsafe").Markup
    except ImportError:
        raise MissingExtraError("writing a report", "report") from None


def _file(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")
