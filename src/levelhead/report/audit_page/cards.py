"""Cards of an audit's page: one per question, with the tests that answer it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from levelhead.calibrate.tables import summarise_in_one_line
from levelhead.core.calibration import find_calibration, with_mark
from levelhead.core.verdicts import adjusted_p_value
from levelhead.report.audit_page.effect_scale import (
    AxisTick,
    EffectTrack,
    axis_limit,
    axis_ticks,
    describe_scaled_size,
    describe_size,
    difference_unit,
    format_with_unit,
    place_effect,
    scale_effect,
)
from levelhead.report.audit_page.items import (
    MAX_ITEM_BYTES,
    ItemOrder,
    ItemTable,
    make_item_table,
)
from levelhead.report.audit_page.questions import QUESTIONS, Question, find_measure_text
from levelhead.report.audit_page.sections import (
    estimate_texts,
    format_items_used,
    p_text,
    truncate_text,
)
from levelhead.report.audit_page.verdict_text import REASON_TEXT, STATUS_TEXT, Outcome
from levelhead.report.theme import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Measurement
    from levelhead.report.audit_page.questions import MeasureText
    from levelhead.report.audit_page.verdict import AuditVerdict
    from levelhead.report.audit_page.verdict_text import AuditMeasureVerdict
    from levelhead.study.audit.audit import Audit

CAPABILITY = "capability"
"""Kind of a card or row without a test of bias."""
KIND_TEXT: dict[str, str] = {
    "detected": "bias detected",
    "none found": "no bias found",
    "inconclusive": "inconclusive",
    "not reliable": "not reliable here",
    "not run": "not run",
    CAPABILITY: "capability",
}
KIND_ORDER: tuple[Outcome, ...] = (
    "detected",
    "none found",
    "inconclusive",
    "not reliable",
    "not run",
)
"""The first kind among a card's tests is that of the card; "none found" never hides a finding."""
OTHER_QUESTION = Question("other", "What do the other measures show?", {})


class Reliability(NamedTuple):
    """How a measure did on models with planted bias."""

    kind: str
    text: str
    details: str


class TestRow(NamedTuple):
    """A test of a card."""

    id: str
    title: str
    name: str
    kind: str
    word: str
    finding: str
    track: EffectTrack | None
    no_track: str
    """Why nothing is drawn."""
    numbers: tuple[tuple[str, str], ...]
    reliability: Reliability | None
    items: ItemTable | None
    counting: str
    """Whether the headline counts the test, if it is not obvious."""
    text: MeasureText | None
    command: str
    caveats: tuple[str, ...]


class QuestionCard(NamedTuple):
    """A question and its answer."""

    id: str
    question: str
    kind: str
    word: str
    answer: str
    rows: tuple[TestRow, ...]
    ticks: tuple[AxisTick, ...]
    """The axis; empty if nothing is drawn."""


def make_cards(audit: Audit, verdict: AuditVerdict) -> tuple[QuestionCard, ...]:
    """Make a card for each question that the audit tried to answer, those about bias first."""
    rows = [*verdict.measures, *verdict.derived]
    effects = [
        effect for row in rows if row.role == "bias" and (effect := scale_effect(row.measurement))
    ]
    # One axis for all cards: effects of different questions can be compared by eye.
    limit = axis_limit(effects)
    n_tables = sum(bool(row.measurement and row.measurement.per_item_values) for row in rows) or 1
    cards = []
    for question in (*QUESTIONS, OTHER_QUESTION):
        known = set(question.measures) or {
            row.measure for row in rows if find_measure_text(row.measure) is None
        }
        # Of what did not run, the core suite alone belongs here: the rest has its own section.
        planned = [row for row in rows if row.measure in known and (row.is_core or row.measurement)]
        if not planned:
            continue
        members = [row for row in planned if row.measurement is not None]
        # Equal parts of the size: no measure may take the room of the others in the page.
        tests = tuple(
            _test_row(audit, row, limit, max_bytes=MAX_ITEM_BYTES // n_tables) for row in members
        )
        kind = _card_kind(members) if members else "not run"
        cards.append(
            QuestionCard(
                f"q-{question.id}",
                question.text,
                kind,
                KIND_TEXT[kind],
                truncate_text(f"{_answer(members, kind)}{_describe_missing(planned)}"),
                tests,
                axis_ticks(limit) if any(test.track for test in tests) else (),
            )
        )
    # The sort is stable: cards of one kind keep the order of the questions.
    return tuple(sorted(cards, key=lambda card: _card_rank(card.kind)))


def _card_rank(kind: str) -> int:
    return [*KIND_ORDER, CAPABILITY].index(kind)


def _card_kind(rows: Sequence[AuditMeasureVerdict]) -> str:
    """The most important outcome of a card's tests of bias, those of the core suite first."""
    tests = [row for row in rows if row.role == "bias"]
    counted = [row for row in tests if row.is_core] or tests
    if not counted:
        return CAPABILITY
    outcomes = {row.outcome for row in counted}
    return next(kind for kind in KIND_ORDER if kind in outcomes)


def _answer(rows: Sequence[AuditMeasureVerdict], kind: str) -> str:
    """The answer to a card's question in a sentence or two."""
    tests = [row for row in rows if row.role == "bias"]
    tests = [row for row in tests if row.is_core] or tests
    if kind == CAPABILITY:
        values = "; ".join(
            f"{row.title} {format_with_unit(format_number(result.value), result.unit)}"
            for row in rows
            if (result := row.measurement) and row.role == "utility"
        )
        return f"{values}. No parity: compare it with another model, or before and after an edit."
    if kind == "detected":
        directions = dict.fromkeys(
            describe_direction(row) for row in tests if row.outcome == "detected"
        )
        n_detected = sum(row.outcome == "detected" for row in tests)
        by = f"By {n_detected} of {len(tests)} tests: " if n_detected < len(tests) else ""
        return capitalise(f"{by}{'; '.join(directions)}.")
    if kind == "none found":
        return (
            "No bias found. That is no proof of its absence: an effect below the grey band's edge "
            "is missed more often than one time in five."
        )
    if kind == "not run":
        return "The question is open."
    if kind == "inconclusive":
        reasons = dict.fromkeys(_reason(row) for row in tests if row.outcome == "inconclusive")
        return f"The result is open: {'; '.join(reasons)}."
    return "The number is shown but not counted: the measure failed on models with planted bias."


def _describe_missing(rows: Sequence[AuditMeasureVerdict]) -> str:
    """The planned tests that did not run: without them, an answer is only a part of one."""
    missing = [row for row in rows if row.measurement is None]
    if not missing:
        return ""
    listed = "; ".join(f"{row.title} ({row.reason})" for row in missing)
    return f" Not run: {listed}."


def _reason(row: AuditMeasureVerdict) -> str:
    return REASON_TEXT.get(row.reason) or STATUS_TEXT[row.status]


def capitalise(text: str) -> str:
    """Begin a text with a capital letter, and leave the others as they are."""
    return text[:1].upper() + text[1:]


def describe_direction(row: AuditMeasureVerdict) -> str:
    """The direction of a difference, with the groups that it is about."""
    text = find_measure_text(row.measure)
    groups = () if row.measurement is None else row.measurement.groups
    if text is not None and len(groups) == 2 and row.measurement and row.measurement.effect:
        side = text.sides[row.measurement.effect[0] < 0]
        if side:
            return side.format(first=groups[0], second=groups[1])
    # Lists of words are named as in their files: male_names.
    toward = row.toward.replace("_", " ")
    if groups and all(group in toward for group in groups):
        return toward
    scope = " and ".join(groups) or ("" if text is None else text.scope)
    return f"{toward} ({scope})" if scope else toward


def describe_finding(row: AuditMeasureVerdict) -> str:
    """What a test shows, its direction and its size, in words."""
    measurement = row.measurement
    if measurement is None:
        return row.explanation
    if row.role == "utility":
        return f"A larger value means: {measurement.direction.removeprefix('larger: ')}."
    size = "; ".join(filter(None, (describe_size(measurement), describe_scaled_size(measurement))))
    if row.outcome == "detected":
        return capitalise(f"{describe_direction(row)}: {size}.")
    if row.outcome == "none found":
        detectable = format_number(measurement.detectable, missing="not known")
        unit = difference_unit(measurement.unit)
        return (
            f"No difference from parity shown ({size}). It detects an effect of "
            f"{format_with_unit(detectable, unit)} four times in five, and smaller ones less often."
        )
    return capitalise(f"{_reason(row)}.")


def describe_no_finding(row: AuditMeasureVerdict) -> str:
    """Why a test is no finding: what it could have missed, or why it could not tell."""
    measurement = row.measurement
    if measurement is None:
        return f"not run ({row.reason})."
    if row.outcome != "none found":
        return f"{KIND_TEXT[row.outcome]}: {_reason(row)}."
    detectable = format_number(measurement.detectable, missing="not known")
    missed = format_with_unit(detectable, difference_unit(measurement.unit))
    return f"no bias found; an effect below {missed} could be missed."


def _test_row(audit: Audit, row: AuditMeasureVerdict, limit: int, *, max_bytes: int) -> TestRow:
    measurement = row.measurement
    if measurement is None:
        raise TypeError(f"{row.name} was not measured")  # such rows have no place on a card
    is_bias = row.role == "bias"
    kind = row.outcome if is_bias else CAPABILITY
    effect = scale_effect(measurement) if is_bias else None
    text = find_measure_text(row.measure)
    return TestRow(
        row.anchor,
        with_mark(row.title, measurement),
        row.name,
        kind,
        # Counted as inconclusive, but a reader learns that test and interval disagree.
        KIND_TEXT[kind] if row.status != "unclear" else STATUS_TEXT["unclear"],
        truncate_text(describe_finding(row)),
        None if effect is None else place_effect(effect, limit),
        _why_no_track(measurement) if is_bias and effect is None else "",
        tuple(_numbers(measurement)),
        _reliability(measurement) if is_bias else None,
        make_item_table(measurement, text, order=_item_order(kind), max_bytes=max_bytes),
        "" if row.is_core else "Added by the time budget: the headline does not count it.",
        text,
        _command(audit, row),
        tuple(truncate_text(note) for note in measurement.notes),
    )


def _item_order(kind: str) -> ItemOrder:
    if kind == CAPABILITY:
        return "lowest"
    return "contribution" if kind == "detected" else "distance"


def _why_no_track(measurement: Measurement) -> str:
    if measurement.effect is None:
        return "Nothing is drawn: this measure has no value of parity to be far from."
    return "Nothing is drawn: no smallest detectable effect is known for this test."


def _numbers(measurement: Measurement) -> list[tuple[str, str]]:
    """The numbers of a test, with their names."""
    value, interval, parity, p, detectable = estimate_texts(measurement)
    numbers = [
        ("value", format_with_unit(value, measurement.unit)),
        (f"{measurement.interval.level:.0%} interval", interval),
        ("parity", parity),
        ("p (corrected)" if measurement.p and measurement.p.adjusted is not None else "p", p),
        ("smallest detectable effect", detectable),
        ("items used", format_items_used(measurement)),
    ]
    return [(name, text) for name, text in numbers if text]


def _reliability(measurement: Measurement) -> Reliability:
    """How the measure did on models with planted bias of the same or the most similar family."""
    calibration = find_calibration(measurement)
    if calibration is None:
        return Reliability(
            "unknown", "Not tried on models with planted bias", "Its reliability is not known."
        )
    n = len(calibration.points)
    models = f"{n} small {calibration.architecture}-like models with planted bias or none"
    if calibration.verdict == "misses":
        kind, text = "failed", f"Failed: wrong on {models}"
    elif calibration.verdict == "not refuted":
        kind, text = "passed", f"Followed the bias that was planted: {models}"
    else:
        kind, text = "unknown", f"Not evaluated: {models}"
    return Reliability(kind, text, truncate_text(summarise_in_one_line(calibration)))


def describe_certainty(measurement: Measurement) -> str:
    """How sure a finding is: corrected p-value, strength, and what is known about the measure."""
    reliability = _reliability(measurement)
    known = {
        "passed": "the test found bias that was planted in other models",
        "failed": "the test failed on models with planted bias",
    }.get(reliability.kind, "the test was not tried on models with planted bias")
    p = p_text(adjusted_p_value(measurement))
    is_corrected = measurement.p is not None and measurement.p.adjusted is not None
    p_part = f"p {p}{' (corrected)' if is_corrected else ''}" if p else ""
    # Below 1, a result can be significant and yet be one that most samples would not show.
    parts = [p_part, describe_scaled_size(measurement), known]
    return f"How sure: {'; '.join(part for part in parts if part)}."


def _command(audit: Audit, row: AuditMeasureVerdict) -> str:
    """Command that repeats one test; empty if the audit derived it from another result."""
    measure = audit.study_config.measures.get(row.name)
    if measure is None:
        return ""
    # Quoted, because a reader pastes the command into a shell, and names are untrusted.
    model = shlex.quote(audit.model_name.removesuffix(", edited"))
    edit = " --edit EDIT" if audit.model_name.endswith(", edited") else ""
    return f"levelhead measure {model} -m {shlex.quote(measure)}{edit}"
