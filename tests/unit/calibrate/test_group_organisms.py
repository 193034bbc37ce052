import dataclasses

import numpy as np
import pytest
import torch

from levelhead.calibrate.organisms.group_tables import GENDER, GroupOrganism
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.measures.group_tables.association_spread import AssociationSpread

INFERENCE = Inference(seed=0, permutations=199, resamples=99)


def measured(organism, **options):
    lm = organism.load_lm()
    return dataclasses.replace(organism.measure, **options)(lm, inference=INFERENCE)


@pytest.mark.parametrize("is_crossed", [False, True])
def test_the_planted_log_odds_are_those_of_the_model(is_crossed):
    organism = GroupOrganism(8 if is_crossed else 5, is_crossed, dose=1.0, seed=3)
    responses = organism.measure.read(organism.load_lm())[0]
    table = organism.measure.group_values(responses)
    assert torch.allclose(table, torch.from_numpy(organism.planted_log_odds), atol=0.01)
    means = organism.planted_log_odds.mean(0)
    result = organism.measure.compute_measurement(
        organism.load_lm(), [responses], inference=INFERENCE
    )
    assert result.extra("association_gap").value == pytest.approx(np.ptp(means), abs=0.01)


def test_three_groups_are_found_and_the_worst_is_named():
    organism = GroupOrganism(3, dose=0.5)
    result = measured(organism)
    assert result.p.value <= 0.01
    assert result.interval.low <= organism.planted_log_odds.mean(0).std() <= result.interval.high
    assert decide_measure_verdict(result).status == "differs"
    names = organism.measure.compared_groups
    worst = names[int(organism.planted_log_odds.mean(0).argmax())]
    assert any(f"the largest mean is that of {worst}" in note for note in result.notes)
    largest = max(
        (result.extra(f"{name} against the others") for name in names), key=lambda row: row.value
    )
    assert largest.name.startswith(worst)
    assert largest.p.family == 3


def test_a_bias_only_where_two_attributes_meet_is_found_and_both_alone_are_silent():
    organism = GroupOrganism(3, is_crossed=True, effect="interaction", dose=0.5)
    result = measured(organism, metric="association_interaction")
    assert result.p.value <= 0.01
    for attribute in ("origin-en", GENDER):
        alone = result.extra(f"association, {attribute} alone")
        assert alone.p.value > 0.05
        assert alone.interval.low == 0
    # Each attribute by itself, as two audits would measure it: nothing.
    lm = organism.load_lm()
    table = torch.from_numpy(organism.planted_log_odds).reshape(-1, 3, 2)
    assert float(table.mean((0, 2)).std(correction=0)) < 0.15
    crossed = organism.measure
    values = crossed.group_values(crossed.read(lm)[0]).reshape(-1, 3, 2)
    assert float(values.mean((0, 1)).diff().abs()) < 0.2


def test_an_attribute_alone_is_no_interaction():
    organism = GroupOrganism(3, is_crossed=True, effect="first attribute", dose=0.5, seed=1)
    result = measured(organism)
    assert result.extra("association, origin-en alone").p.value <= 0.01
    assert result.extra("association_interaction").p.value > 0.05


def test_without_a_bias_alarms_are_rare():
    alarms = sum(measured(GroupOrganism(5, dose=0.0, seed=s)).p.value <= 0.05 for s in range(10))
    assert alarms <= 2


def test_an_interaction_needs_two_attributes():
    organism = GroupOrganism(3)
    with pytest.raises(LevelheadError, match="two attributes"):
        AssociationSpread("origin-en", metric="association_interaction")(organism.load_lm())
    with pytest.raises(LevelheadError, match="two attributes"):
        GroupOrganism(3, effect="interaction")


@pytest.mark.parametrize("descriptions", [("a person", "a person"), ("one person",)])
def test_descriptions_belong_to_groups(descriptions):
    measure = AssociationSpread("origin-en", ("german", "turkish"), descriptions=descriptions)
    with pytest.raises(LevelheadError, match="description"):
        measure.resolved_descriptions  # noqa: B018  # it raises
