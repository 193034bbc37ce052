"""Calibrations that were never run: measures that did as a test needs it."""

import pytest

from levelhead.core.calibration import MeasureCalibration
from levelhead.core.results import Interval
from levelhead.study.table import result_to_rows

BOUNDS = Interval(low=0.8, high=1.0, level=0.95, method="given")


def calibrated(measure, architecture="bert", *, verdict="not refuted", rank=0.97, expected="rises"):
    row = MeasureCalibration(
        measure=measure,
        architecture=architecture,
        expected=expected,
        models=25,
        unread=int(verdict == "misses"),  # a fault of its own, whatever else is given
        rank=rank,
        rank_interval=None if rank is None else BOUNDS,
        alarms=0.05,
        alarms_interval=BOUNDS,
        label_permutations=200,
        nulls=10,
        null_alarms=0,
        power=(),
        smallest=None,
        confounded=(),
        points=((0.0, 0, 0.1), (0.5, 0, 0.4), (1.0, 0, 0.9)),
    )
    assert (row.verdict == "misses") == (verdict == "misses")  # it follows from the figures
    return row


class AllFailed:
    """A calibration in which every measure failed; it keeps what it was asked for."""

    def __init__(self):
        self.asked = []

    def find_measure(self, measure, family, *, causal):
        self.asked.append((measure, family, causal))
        return calibrated(measure, verdict="misses", rank=0.12)


class Failed:
    """A calibration in which some measures failed, and no other was tried."""

    def __init__(self, *names):
        self.names = names

    def find_measure(self, measure, family, *, causal):
        return calibrated(measure, verdict="misses") if measure in self.names else None


def marks(result, failed):
    """The marks of all rows that have to do with a measure, and of the others."""
    with pytest.MonkeyPatch.context() as failing:
        failing.setattr("levelhead.core.calibration.load_calibration", lambda: Failed(failed))
        output = result_to_rows("step", result)
    words = ("seat", "gain", "difference of means") if failed == "seat" else (failed,)
    subset = [row for row in output if any(word in row.what for word in words)]
    return {row.mark for row in subset}, {row.mark for row in output if row not in subset}
