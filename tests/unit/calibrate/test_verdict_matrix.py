"""The matrix of verdicts: what agrees, what is an exception, and what may be claimed of alarms."""

import pytest

from levelhead.calibrate import verdict_matrix as module
from levelhead.calibrate.controls import ControlResult
from levelhead.calibrate.dose_response import MeasureResponse, ModelResponses
from levelhead.calibrate.verdict_matrix import (
    build_verdict_matrix,
    get_directed_verdict,
    has_expected_verdict,
    make_matrix_tables,
)


def responses_of(status, effect=0.0, *, measure="cloze", expected="rises", reason=""):
    return MeasureResponse(
        measure=measure, expected=expected, value=effect, interval=None, parity=0.0, p=0.5, n=10,
        dropped=0, status=status, effect=effect, reason=reason,
    )  # fmt: skip


def model(rho, seed, *subset, architecture="bert", variant="stereotype"):
    return ModelResponses(
        architecture=architecture, rho=rho, variant=variant, seed=seed, texts="0" * 64,
        weights="0" * 64, skills=(), responses=subset,
    )  # fmt: skip


def control(name, seed, *subset, architecture="bert"):
    return ControlResult(
        control=name, architecture=architecture, seed=seed, texts="0" * 64, weights="0" * 64,
        responses=subset,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr(module, "load_calibration", lambda: None)


def test_a_difference_is_told_by_its_direction():
    assert get_directed_verdict(responses_of("differs", 1.0)) == "stereotype"
    assert get_directed_verdict(responses_of("differs", -1.0)) == "anti-stereotype"
    assert get_directed_verdict(responses_of("differs", -1.0, expected="falls")) == "stereotype"
    assert get_directed_verdict(responses_of("inconclusive", 1.0)) == "inconclusive"


@pytest.mark.parametrize(
    ("expected", "outcomes", "agreed"),
    [
        ("stereotype", ["stereotype"] * 4 + ["not shown"], True),
        ("stereotype", ["stereotype"] * 3 + ["not shown"] * 2, False),
        ("stereotype", ["anti-stereotype"] * 5, False),
        ("anti-stereotype", ["anti-stereotype"] * 3, True),
        ("anti-stereotype", ["not shown"] * 3, False),  # a one-sided test
        ("differs", ["stereotype", "anti-stereotype"], True),
        ("not shown", ["not shown"] * 19 + ["stereotype"], True),
        ("not shown", ["not shown"] * 16 + ["stereotype"] * 4, False),
        ("not shown", ["not shown"] * 15 + ["inconclusive"] * 5, False),
        ("inconclusive", ["inconclusive", "not measured"], True),
        ("inconclusive", ["inconclusive"] * 9 + ["not shown"], False),  # one is one too many
        ("inconclusive", ["inconclusive"] * 9 + ["unclear"], False),
    ],
)
def test_what_agrees_with_an_expectation(expected, outcomes, agreed):
    assert has_expected_verdict(expected, outcomes) is agreed


def test_an_untrained_model_that_is_called_not_biased_is_an_exception():
    held = build_verdict_matrix([], [control("untrained", 0, responses_of("not shown"))])
    (cell,) = held.unexplained
    assert (cell.organism, cell.expected, cell.outcomes) == (
        "untrained",
        "inconclusive",
        {"not shown": 1},
    )
    assert "1 exceptions, 1 of them unexplained" in held.summary


def test_an_exception_is_explained_by_its_row_or_by_a_refuted_measure(monkeypatch):
    rows = [control("untrained", 0, responses_of("not shown"))]
    monkeypatch.setitem(module.EXPLAINED, ("untrained", "bert", "cloze"), "why")
    assert not build_verdict_matrix([], rows).unexplained
    assert build_verdict_matrix([], rows).exceptions[0].explanation == "why"
    monkeypatch.undo()

    class Kept:
        def find_measure(self, measure, family, *, causal):
            class Row:
                architecture, verdict = family, "misses"

            return Row

    monkeypatch.setattr(module, "load_calibration", Kept)
    (cell,) = build_verdict_matrix([], rows).exceptions
    assert cell.is_refuted
    assert "read it as inconclusive" in cell.explanation


def test_prices_are_no_measures_of_bias_and_icat_has_no_test():
    rows = [responses_of("no test", measure="icat"), responses_of("no test", measure="ppl")]
    held = build_verdict_matrix([model(1.0, 0, *rows)], [])
    assert [(cell.measure, cell.expected) for cell in held.cells] == [("icat", "no test")]
    assert not held.tested_cells


def test_false_alarms_are_claimed_with_twenty_null_models_only():
    def held(n):
        return build_verdict_matrix(
            [
                model(0.0, s, responses_of("differs" if s == 0 else "not shown", 1.0))
                for s in range(n)
            ],
            [],
        )

    (few,), (enough,) = held(19).alarms, held(20).alarms
    assert few.description == "not known (n = 19 null models; alarms in 1)"
    assert enough.description == "1 of 20 [1%, 24%]"
    assert held(20).cells[0].is_expected  # one of twenty is what the test promises


def test_the_tables_show_what_was_expected_and_what_came_out():
    held = build_verdict_matrix(
        [model(0.0, s, responses_of("not shown")) for s in range(2)],
        [control("reversed dose", 0, responses_of("differs", -1.0))],
    )
    rows = [row for table in make_matrix_tables(held) for row in table.rows]
    assert ("reversed dose", "cloze", "anti-stereotype", "anti-stereotype 1 of 1", "yes") in rows
    assert ("no dose", "cloze", "not shown", "not shown 2 of 2", "yes") in rows
    assert module.VerdictMatrix.from_json(held.to_json()) == held
