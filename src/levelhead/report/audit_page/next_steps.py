"""What to do after an audit: a few concrete steps, chosen from its result."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.verdicts import NO_SKILL
from levelhead.report.audit_page.comparison import COST, IMPROVED, WORSE, classify_change
from levelhead.report.audit_page.effect_scale import strength_of
from levelhead.report.audit_page.questions import find_question
from levelhead.study.audit.suite import LOCATORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.report.audit_page.verdict import AuditVerdict
    from levelhead.report.audit_page.verdict_text import AuditMeasureVerdict
    from levelhead.study.audit.audit import Audit

MAX_STEPS = 4
"""Number of steps: a longer list is not read."""
OWN_DATA = "levelhead measure {model} -m counterfactual --data texts.csv"


class NextStep(NamedTuple):
    """A step to take, with its command or the part of the page that it is about."""

    text: str
    command: str = ""
    target: str = ""
    """Id of a part of the page."""


def choose_next_steps(
    audit: Audit, verdict: AuditVerdict, *, has_head_map: bool
) -> tuple[NextStep, ...]:
    """Choose the steps that the result of an audit calls for, the most urgent first.

    Args:
        audit: plan of the audit.
        verdict: its verdict.
        has_head_map: whether the page shows which heads carry the bias.
    """
    name = audit.model_name.removesuffix(", edited")
    model = shlex.quote(name) + (" --edit EDIT" if name != audit.model_name else "")
    tests = [row for row in (*verdict.measures, *verdict.derived) if row.role == "bias"]
    tests = [row for row in tests if row.is_core]
    detected = [row for row in tests if row.outcome == "detected"]
    steps = [*_steps_after_gaps(verdict, tests), *_steps_after_comparison(verdict)]
    if detected:
        steps += _steps_after_finding(detected, model, has_head_map=has_head_map)
    elif any(row.outcome == "none found" for row in tests):
        steps.append(
            NextStep(
                "Do not read this as proof: smaller effects can be there. A larger budget uses "
                "more items and detects smaller ones.",
                f"levelhead audit {model} -o FOLDER --budget 1h",
            )
        )
    # Intrinsic measures often do not predict what an application does (Dawkins et al. 2024).
    steps.append(
        NextStep(
            "Test your own application: exchange the groups in your own texts and count the "
            "decisions that change.",
            OWN_DATA.format(model="MY-CLASSIFIER"),
        )
    )
    # The last step always stays: no audit replaces a test of the application.
    return tuple(steps[: MAX_STEPS - 1] + steps[-1:] if len(steps) > MAX_STEPS else steps)


def _steps_after_gaps(
    verdict: AuditVerdict, tests: Sequence[AuditMeasureVerdict]
) -> list[NextStep]:
    """Steps that complete an audit, or replace tests that could not tell."""
    reasons = {row.reason for row in verdict.measures if row.is_core and row.measurement is None}
    steps = []
    if "data missing" in reasons:
        steps.append(
            NextStep("Get the missing data; then run the same audit again.", "levelhead data list")
        )
    if reasons & {"time budget", "not reached"}:
        steps.append(
            NextStep("Finish the audit: run the same command again, it continues from here.")
        )
    if reasons - {"data missing", "time budget", "not reached"}:
        steps.append(NextStep("See which tests did not run, and what they need.", target="limits"))
    if not verdict.is_conclusive and any(row.reason == NO_SKILL for row in tests):
        steps.append(
            NextStep(
                "Check that this is the right model: it cannot do the tasks that the tests need, "
                "as if it were untrained or of another language."
            )
        )
    elif not verdict.is_conclusive and verdict.is_complete:
        steps.append(
            NextStep(
                "Use measures that are reliable for this kind of model: see how each did on models "
                "with planted bias.",
                target="questions",
            )
        )
    return steps


def _steps_after_comparison(verdict: AuditVerdict) -> list[NextStep]:
    kinds = {classify_change(comparison) for comparison in verdict.comparisons}
    if WORSE in kinds:
        return [
            NextStep("Look at what got worse: the change may not be worth it.", target="against")
        ]
    if COST in kinds:
        return [NextStep("Weigh what came nearer to parity against its cost.", target="against")]
    if IMPROVED not in kinds:
        return []
    gate = "levelhead gate FOLDER --policy policy.toml"
    return [
        NextStep(
            "Check what came nearer to parity, and let a policy guard it in the next release.",
            gate,
            "against",
        )
    ]


def _steps_after_finding(
    detected: Sequence[AuditMeasureVerdict], model: str, *, has_head_map: bool
) -> list[NextStep]:
    """Steps after bias was detected: read, locate, mitigate, and guard the release."""
    question = find_question(detected[0].measure)
    strongest_first = sorted(detected, key=lambda row: -strength_of(row.measurement))
    examples = next((row.examples_anchor for row in strongest_first if row.examples_anchor), "")
    steps = [
        NextStep(
            "Read the examples behind each finding, and decide whether they matter for your use.",
            target=examples or ("questions" if question is None else f"q-{question.id}"),
        )
    ]
    measures = {row.measure for row in detected}
    locator = next((row.text for row in LOCATORS if row.text.partition(":")[0] in measures), None)
    if has_head_map:
        steps.append(
            NextStep(
                "Mask the attention heads that carry the bias, then audit the edited model.",
                f"levelhead mitigate mask heads.json --top 3 -o edit\n"
                f"levelhead audit {model} --edit edit --against base -o edited",
                "heads",
            )
        )
    elif locator is not None:
        steps.append(
            NextStep(
                "Try an edit: find the parts of the model (attention heads) that carry this bias, "
                "switch them off, and audit again. Other findings may not change.",
                f"levelhead locate {model} -m {shlex.quote(locator)} -o heads.json\n"
                "levelhead mitigate mask heads.json --top 3 -o edit\n"
                f"levelhead audit {model} --edit edit --against base -o edited",
            )
        )
    else:
        steps.append(
            NextStep(
                "Choose a mitigation on your own labelled texts, with its utility cost.",
                f"levelhead mitigate select {model} --dev dev.csv --test test.csv -o edit",
            )
        )
    steps.append(
        NextStep(
            "State in a policy how much is acceptable, and let releases depend on it.",
            "levelhead gate FOLDER --policy policy.toml",
        )
    )
    return steps
