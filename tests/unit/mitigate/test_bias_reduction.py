"""The gain by a measure is the base's bias minus the edited model's; what cannot fall is said."""

import pytest
import torch
from metric_cases import INFERENCE, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.mitigate.evaluation.bias_reduction import estimate_bias_reduction
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.sites import Site


def test_the_gain_is_that_of_each_model_by_itself():
    lm, crows = model("crows_margin"), made("crows_margin")
    edit = HeadScale([Site("head_out", 0, 1)], 0)
    result = estimate_bias_reduction(crows, lm, [edit], inference=INFERENCE)
    base, edited = crows(lm, inference=INFERENCE), crows(lm.edited(edit), inference=INFERENCE)
    gain = abs(base.value - base.parity) - abs(edited.value - edited.parity)
    assert result.value == pytest.approx(gain, abs=1e-5)
    assert result.interval.low < result.value < result.interval.high
    assert result.name == "gain of crows_margin"


def test_what_cannot_change_the_measure_is_refused():
    lm, seat = model("strength"), made("seat")
    first = torch.zeros(1, lm.layout.width)
    first[0, 0] = 1.0
    with pytest.raises(LevelheadError, match="the edit acts behind all that seat reads"):
        estimate_bias_reduction(seat, lm, [Projection(Site("pooled"), first)], inference=INFERENCE)
    with pytest.raises(NotMeasurableError, match="no part changes the measure at all"):
        estimate_bias_reduction(
            made("crows_margin"), lm, [HeadScale([Site("head_out", 0, 1)], 1)], inference=INFERENCE
        )
    with pytest.raises(LevelheadError, match="is a utility"):
        estimate_bias_reduction(
            made("pppl"), lm, [HeadScale([Site("head_out", 0, 1)], 0)], inference=INFERENCE
        )
