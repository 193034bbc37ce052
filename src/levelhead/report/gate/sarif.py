"""The report of a gate as SARIF 2.1.0, which GitHub's code scanning shows in pull requests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from levelhead._version import __version__
from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.escape import escape_controls

if TYPE_CHECKING:
    from levelhead.report.gate.gate import GateReport, RuleResult

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
LEVELS = {"fail": "error", "error": "error", "inconclusive": "warning"}
"""SARIF's level of each verdict. A pass is no alert: it is counted in the run's properties."""


def to_sarif(gate: GateReport, policy: str | Path) -> bytes:
    """Write what did not pass as results at the rules of the policy file.

    Args:
        gate: Report of a gate.
        policy: Path of the policy file, to whose rules the results point.
    """
    lines = _find_rule_lines(Path(policy), len(gate.results))
    # A rule's name must be unique in a run, but two rules may bound one measure.
    names = [f"{result.measure}/{i + 1}" for i, result in enumerate(gate.results)]
    alerts = [
        _make_result(result, i, name, str(policy), line)
        for i, (result, name, line) in enumerate(zip(gate.results, names, lines, strict=True))
        if result.verdict in LEVELS
    ]
    rules = [
        {
            "id": escape_controls(name),
            "shortDescription": _text(result.rule),
            "fullDescription": _text(result.purpose or result.rule),
        }
        for result, name in zip(gate.results, names, strict=True)
    ]
    counts = {
        verdict: sum(result.verdict == verdict for result in gate.results)
        for verdict in ("pass", "fail", "inconclusive", "error")
    }
    run: dict[str, object] = {
        "tool": {"driver": {"name": "levelhead", "version": __version__, "rules": rules}},
        "results": alerts,
        "properties": {"verdict": gate.verdict, "policy_sha256": gate.policy_sha256, **counts},
    }
    return to_canonical_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}) + b"\n"


def _make_result(
    result: RuleResult, index: int, name: str, policy: str, line: int
) -> dict[str, object]:
    fingerprint = hashlib.sha256(f"{result.measure}\n{result.rule}".encode()).hexdigest()
    return {
        "ruleId": escape_controls(name),
        "ruleIndex": index,
        "level": LEVELS[result.verdict],
        "message": _text(f"{result.verdict}: {result.rule}: {result.explanation}"),
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(Path(policy).as_posix())},
                    "region": {"startLine": line},
                }
            }
        ],
        # The same rule stays the same alert when lines are added above it.
        "partialFingerprints": {"levelheadRule/v1": fingerprint},
    }


def _text(text: str) -> dict[str, str]:
    return {"text": escape_controls(text)}


def _find_rule_lines(policy: Path, count: int) -> list[int]:
    """Return the line of every `[[rule]]`; line 1 for all if the file writes them otherwise."""
    lines = policy.read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines, 1) if line.replace(" ", "").startswith("[[rule]]")]
    return starts if len(starts) == count else [1] * count
