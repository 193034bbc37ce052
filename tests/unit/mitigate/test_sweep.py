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
    lm, ruler = model("strength"), made("strength")
    found = compute_sweep_report(read_variant_responses(lm, ruler, sets(lm)), inference=INFERENCE)
    assert SweepReport.from_json(found.to_json()) == found
    assert [one.name for one in found.variants] == list(sets(lm))
    assert found.unaffected_variants == ()
    base = ruler(lm, inference=INFERENCE)
    own, single = found.provenance, base.provenance
    assert (own.model_hash, own.seed) == (single.model_hash, single.seed)
    edits = own.data["edits of the settings"]
    assert dict(own.data) == {**single.data, "edits of the settings": edits}
    other = compute_sweep_report(
        read_variant_responses(lm, ruler, {"mask": sets(lm)["mask"]}), inference=INFERENCE
    ).provenance
    assert other.data["edits of the settings"] != edits
    assert found.base.value == pytest.approx(base.value, abs=1e-5)
    for name, edits in sets(lm).items():
        alone = ruler(lm.edited(*edits), inference=INFERENCE)
        one = found.variant(name)
        assert one.value == pytest.approx(alone.value, abs=1e-5)
        assert one.change.value == pytest.approx(alone.value - base.value, abs=1e-5)
        assert one.change.interval.low <= one.change.value <= one.change.interval.high


def test_what_cannot_change_a_measure_has_no_change():
    lm, ruler = model("strength"), made("seat")
    every = {name: own for name, own in sets(lm).items() if name != "both"}
    found = compute_sweep_report(read_variant_responses(lm, ruler, every), inference=INFERENCE)
    assert found.unaffected_variants == ("behind",)
    assert found.variant("behind") is None
    with pytest.raises(NotMeasurableError, match="no setting acts before what seat reads"):
        compute_sweep_report(
            read_variant_responses(lm, ruler, {"behind": every["behind"]}), inference=INFERENCE
        )
