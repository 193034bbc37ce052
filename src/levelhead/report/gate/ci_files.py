"""The report of a gate as files for continuous integration: JUnit XML and a step summary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from levelhead.core.escape import escape_controls, escape_markdown

if TYPE_CHECKING:
    from levelhead.report.gate.gate import GateReport, RuleResult

_NOT_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, escaped or not."""
VERDICT_SYMBOLS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "error": "⚠️"}


def to_junit_xml(gate: GateReport, *, name: str = "levelhead gate") -> bytes:
    """Write the results as test cases; inconclusive ones are errors, so that CI does not pass."""
    failed = sum(result.verdict == "fail" for result in gate.results)
    errors = sum(result.verdict in ("inconclusive", "error") for result in gate.results)
    counts = {"tests": len(gate.results), "failures": failed, "errors": errors}
    attributes = {key: str(value) for key, value in counts.items()}
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": _xml(name), **attributes, "skipped": "0"}
    )
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(
        properties, "property", {"name": "policy_sha256", "value": gate.policy_sha256}
    )
    for result in gate.results:
        case = ElementTree.SubElement(
            suite, "testcase", {"name": _xml(result.rule), "classname": _xml(result.measure)}
        )
        if result.verdict == "pass":
            ElementTree.SubElement(case, "system-out").text = _xml(result.explanation)
            continue
        kind = "failure" if result.verdict == "fail" else "error"
        ElementTree.SubElement(
            case, kind, {"message": _xml(result.explanation), "type": result.verdict}
        )
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def to_markdown_summary(gate: GateReport) -> str:
    """Write the results as Markdown, for `GITHUB_STEP_SUMMARY`."""
    rows = [
        f"## levelhead gate: {gate.verdict}",
        "",
        "| | rule | result | purpose |",
        "|---|---|---|---|",
        *(_row(result) for result in gate.results),
        "",
        f"Policy `{gate.policy_sha256[:12]}`. A pass holds for these measures on these queries; "
        "it does not prove that groups are treated alike.",
    ]
    return "\n".join(rows) + "\n"


def _row(result: RuleResult) -> str:
    cells = (
        f"{VERDICT_SYMBOLS[result.verdict]} {result.verdict}",
        result.rule,
        result.explanation,
        result.purpose,
    )
    return "| " + " | ".join(escape_markdown(cell) for cell in cells) + " |"


def _xml(text: str) -> str:
    # Bidirectional and C1 characters are XML, but turn or hide what a viewer shows.
    return _NOT_XML.sub("\ufffd", escape_controls(text))
