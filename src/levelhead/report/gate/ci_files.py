"""What a gate found, as files that continuous integration reads: JUnit XML and a step summary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from levelhead.report.gate.gate import Gate, Ruling

_NOT_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, escaped or not."""
SIGNS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "error": "⚠️"}


def junit(gate: Gate, *, name: str = "levelhead gate") -> bytes:
    """The rulings as test cases. What is inconclusive is an error: it must not look passed."""
    failed = sum(one.verdict == "fail" for one in gate.rulings)
    errors = sum(one.verdict in ("inconclusive", "error") for one in gate.rulings)
    counts = {"tests": len(gate.rulings), "failures": failed, "errors": errors}
    told = {key: str(value) for key, value in counts.items()}
    root = ElementTree.Element("testsuites", told)
    suite = ElementTree.SubElement(root, "testsuite", {"name": _xml(name), **told, "skipped": "0"})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(
        properties, "property", {"name": "policy_sha256", "value": gate.policy_sha256}
    )
    for one in gate.rulings:
        case = ElementTree.SubElement(
            suite, "testcase", {"name": _xml(one.rule), "classname": _xml(one.measure)}
        )
        if one.verdict == "pass":
            ElementTree.SubElement(case, "system-out").text = _xml(one.why)
            continue
        kind = "failure" if one.verdict == "fail" else "error"
        ElementTree.SubElement(case, kind, {"message": _xml(one.why), "type": one.verdict})
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def summary(gate: Gate) -> str:
    """The rulings as Markdown, for `GITHUB_STEP_SUMMARY`."""
    rows = [
        f"## levelhead gate: {gate.verdict}",
        "",
        "| | rule | what was found | what it is for |",
        "|---|---|---|---|",
        *(_row(one) for one in gate.rulings),
        "",
        f"Policy `{gate.policy_sha256[:12]}`. A pass is about these measures on these questions; "
        "it is no proof that groups are treated alike.",
    ]
    return "\n".join(rows) + "\n"


def _row(one: Ruling) -> str:
    cells = (f"{SIGNS[one.verdict]} {one.verdict}", one.rule, one.why, one.purpose)
    return "| " + " | ".join(_markdown(cell) for cell in cells) + " |"


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def _markdown(text: str) -> str:
    """Text that cannot end a cell, begin a tag or a link, or be code."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([|`\[\]*_\\])", r"\\\1", plain)
