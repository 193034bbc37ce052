"""The report of an audit: one self-contained file that begins with the verdict."""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from levelhead._version import __version__
from levelhead.core.errors import MissingExtraError
from levelhead.report.audit_page.data_sections import (
    data_section,
    omissions_section,
    provenance_section,
)
from levelhead.report.audit_page.measure_sections import comparison_section, measures_section
from levelhead.report.audit_page.result_sections import (
    heads_section,
    knowledge_section,
    probing_section,
)
from levelhead.report.audit_page.sections import ReportSection, truncate_text
from levelhead.report.audit_page.verdict import LIMITATIONS, compute_audit_verdict
from levelhead.report.save import vega_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Record
    from levelhead.study.audit.audit import Audit

TEMPLATES = files("levelhead.report") / "templates"


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
        measures_section(verdict),
        *comparison_section(verdict, audit),
        *heads_section(results),
        *knowledge_section(results),
        *probing_section(results),
        omissions_section(audit, results),
        data_section(results),
        provenance_section(audit, results, command),
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
