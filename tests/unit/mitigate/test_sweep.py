import pytest
import torch
from metric_cases import INFERENCE, made, model

from levelhead.core.errors import NotMeasurableError
from levelhead.mitigate.evaluation.sweep import (
    SweepReport,
    compute_sweep_report,
    read_variant_responses,
)
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.sites import Site


def sets(lm):
    first = torch.zeros(1, lm.layout.width)
    first[0, 0] = 1.0
    behind = Projection(Site("pooled"), first)
    return {
        "mask": (HeadScale([Site("head_out", 1, 0)], 0),),
        "behind": (behind,),
        "both": (HeadScale([Site("head_out", 0, 1)], 2), behind),
    }


def test_changes_are_those_of_each_model_by_itself():
    lm, measure = model("strength"), made("strength")
    result = compute_sweep_report(
        read_variant_responses(lm, measure, sets(lm)), inference=INFERENCE
    )
    assert SweepReport.from_json(result.to_json()) == result
    assert [variant.name for variant in result.variants] == list(sets(lm))
    assert result.unaffected_variants == ()
    base = measure(lm, inference=INFERENCE)
    subset, single = result.provenance, base.provenance
    assert (subset.model_hash, subset.seed) == (single.model_hash, single.seed)
    edits = subset.data["edits of the settings"]
    assert dict(subset.data) == {**single.data, "edits of the settings": edits}
    other = compute_sweep_report(
        read_variant_responses(lm, measure, {"mask": sets(lm)["mask"]}), inference=INFERENCE
    ).provenance
    assert other.data["edits of the settings"] != edits
    assert result.base.value == pytest.approx(base.value, abs=1e-5)
    for name, edits in sets(lm).items():
        alone = measure(lm.edited(*edits), inference=INFERENCE)
        item = result.variant(name)
        assert item.value == pytest.approx(alone.value, abs=1e-5)
        assert item.change.value == pytest.approx(alone.value - base.value, abs=1e-5)
        assert item.change.interval.low <= item.change.value <= item.change.interval.high


def test_what_cannot_change_a_measure_has_no_change():
    lm, measure = model("strength"), made("seat")
    every = {name: subset for name, subset in sets(lm).items() if name != "both"}
    result = compute_sweep_report(read_variant_responses(lm, measure, every), inference=INFERENCE)
    assert result.unaffected_variants == ("behind",)
    assert result.variant("behind") is None
    with pytest.raises(NotMeasurableError, match="no setting acts before what seat reads"):
        compute_sweep_report(
            read_variant_responses(lm, measure, {"behind": every["behind"]}), inference=INFERENCE
        )
