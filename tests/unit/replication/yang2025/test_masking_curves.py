"""Curves of masked heads: every point is an edited model, and the first is the model itself."""

import functools

import pytest
from calibrations import marks
from metric_cases import made, model

from levelhead.core.calibration import DAGGER
from levelhead.core.run_context import Inference
from levelhead.locate.score_heads import locate
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.replication.yang2025.masking_curves import MaskingCurves, measure_masking_curves

INFERENCE = Inference(seed=1, resamples=99, permutations=99)


@functools.cache
def located():
    measure, lm = made("seat"), model("seat")
    return (
        measure,
        lm,
        locate(lm, measure, split="contexts", bias_direction="+", inference=INFERENCE),
    )


def test_a_measure_that_failed_is_marked_and_a_price_is_not():
    bias_measure, lm, heads = located()
    result = measure_masking_curves(
        lm, heads, [("seat", bias_measure), ("price", made("pppl"))], inference=INFERENCE
    )
    assert result.measure == "value"
    assert marks(result, "seat") == ({DAGGER}, {""})


def test_lines_begin_with_no_head_masked():
    bias_measure, lm, heads = located()
    measure = made("lpbs")
    result = measure_masking_curves(lm, heads, [("lpbs", measure)], step=3, inference=INFERENCE)
    (curve,) = result.curves
    ks = [point.k for point in curve.points]
    assert ks[0] == 0
    assert ks[-1] == len(heads.positive_heads())
    assert curve.points[0].change is None
    first, last = curve.points[0], curve.points[-1]
    assert last.change.value == pytest.approx(last.value - first.value, abs=1e-9)
    assert bias_measure.name == heads.measure
    assert (result.map, result.measure) == (heads.content_hash, measure.name)
    for point in curve.points:
        edited = lm.edited(mask_heads(heads.positive_heads()[: point.k])) if point.k else lm
        assert point.value == pytest.approx(float(measure.reduce(measure.read(edited)[0])))
    assert MaskingCurves.from_json(result.to_json()) == result
