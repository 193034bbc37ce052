"""What is tried: the grid as the paper trims it, and heads by what they add to the bias."""

from dataclasses import replace

import pytest
import zoo
from biased_classifier import LEXICON, classifier, texts
from metric_cases import made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.core.run_context import RunContext
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs
from levelhead.locate.head_map import head_label
from levelhead.measures.classification.controlled_difference import ControlledDifference
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.mitigate.evaluation.sweep import read_variant_responses
from levelhead.mitigate.heads.mask import mask_heads, scale_heads
from levelhead.mitigate.projection.config_grid import ProjectionConfig, projection_grid
from levelhead.mitigate.projection.edit_points import project
from levelhead.mitigate.selection import candidates
from levelhead.mitigate.selection.candidates import (
    ATTENTION,
    HARD_POOLED,
    TWO_HARD,
    EditCandidates,
    excluded_by_paper_rule,
    mask_candidates,
    projection_candidates,
    with_smooth_surrogate,
)
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

PAIRS = contrast_pairs(LEXICON)


def test_the_papers_rules_leave_22_of_74_settings():
    rules = {item.name: excluded_by_paper_rule(item) for item in projection_grid()}
    stored = [name for name, rule in rules.items() if not rule]
    assert len(stored) == 1 + 3 + 9 + 9
    assert "penultimate 0,0,1,1,1" in stored  # the winner of Table 5 at layer 11
    for name in stored:
        *steps, sent = name.split()[1].split(",")
        assert sent == "1"
        pairs = list(zip(steps[::2], steps[1::2], strict=True))
        assert ("0", "1") not in pairs
    # 8 of 32: "exactly the (c11 = 1, n11 = 0) cases".
    assert sum(rule == ATTENTION for rule in rules.values()) == 8
    assert rules["sent 0"] == HARD_POOLED
    assert rules["last 0,1,1"] == TWO_HARD
    assert rules["penultimate 0,1,0,0,1"] == TWO_HARD
    assert (
        sum(not excluded_by_paper_rule(item) for item in projection_grid(pooled=False)) == 3 + 9 + 9
    )


def test_projections_are_those_of_project_and_trimmed_ones_are_told():
    lm = model("accuracy")
    result = projection_candidates(lm, PAIRS)
    assert len(result.candidates) == 22
    assert len(result.excluded) == 52
    assert {candidate.kind for candidate in result.candidates} == {"projection"}
    for name in ("sent 1", "penultimate+attn 1,1,0,0,1"):
        assert result.edits[name] == project(lm, ProjectionConfig.from_name(name), PAIRS)
    full = projection_candidates(lm, PAIRS, paper_rules=False)
    assert len(full.candidates) == 74
    assert full.excluded == ()


def test_models_of_one_layer_or_without_a_pooled_vector_have_fewer():
    shallow = load(
        zoo.folder("bert", "BertForSequenceClassification", num_labels=2, num_hidden_layers=1)
    )
    assert [candidate.name for candidate in projection_candidates(shallow, PAIRS).candidates] == [
        *("sent 1", "last 0,0,1", "last 1,0,1", "last 1,1,1"),
    ]
    causal = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    assert len(projection_candidates(causal, PAIRS).candidates) == 21


def test_pairs_that_cannot_be_read_are_told_and_none_is_an_error():
    lm = model("accuracy")
    unknown = tuple(pair._replace(first=pair.first.replace("woman", "zebra")) for pair in PAIRS[:2])
    result = projection_candidates(lm, (*PAIRS, *unknown))
    assert len(result.dropped) == 2
    with pytest.raises(NotMeasurableError, match="the model can read none of 2 pairs of texts"):
        projection_candidates(lm, unknown)
    with pytest.raises(NotMeasurableError, match="there is no pair of texts"):
        projection_candidates(lm, ())


# -- heads


def make_measure():
    return ControlledDifference(Counterfactual(texts("dev", 60), lexicon=LEXICON))


def bias(lm, single):
    """The distance from parity, of readouts."""
    (readouts,) = single.read(lm)
    return abs(
        float(single.primary_metric.value(readouts, single.design(readouts, single.primary_metric)))
    )


def test_masks_by_ablation_are_in_the_order_of_what_each_head_adds():
    lm, single = classifier(1.0), make_measure()
    result = mask_candidates(lm, single, head_ranking="ablation")
    base = bias(lm, single)
    gains = {}
    for layer in range(3):
        for head in range(4):
            site = Site("head_out", layer, head)
            gains[site] = base - bias(lm.edited(mask_heads([site])), single)
    adding = sorted((site for site in gains if gains[site] > 0), key=lambda s: (-gains[s], s))
    sizes = [size for size in (1, 2, 3, 5, 10) if size <= len(adding)]
    assert [candidate.name for candidate in result.candidates] == [f"mask {size}" for size in sizes]
    assert result.edits["mask 3"] == (mask_heads(adding[:3]),)
    assert (
        result.candidates[1].description
        == f"heads {head_label(adding[0])}, {head_label(adding[1])} masked"
    )
    assert result.candidates[0].kind == "mask"


def test_masks_by_gradient_rank_by_the_derivative_of_the_bias():
    lm, single = classifier(1.0), make_measure()
    result = mask_candidates(lm, single, sizes=(1, 12, 3))
    smooth, step = single.smooth, 1e-3
    slopes = {}
    for layer in range(3):
        for head in range(4):
            site = Site("head_out", layer, head)
            ends = [bias(lm.edited(scale_heads([site], 1 + way * step)), smooth) for way in (1, -1)]
            slopes[site] = (ends[0] - ends[1]) / (2 * step)
    adding = sorted((site for site in slopes if slopes[site] > 0), key=lambda s: -slopes[s])
    assert result.edits["mask 1"] == (mask_heads(adding[:1]),)
    assert set(result.edits["mask 3"][0].sites) == set(adding[:3])
    assert "mask 12" not in result.edits
    assert result.notes == (f"heads are ranked by the gradient of {smooth.name}",)


def test_what_is_smooth():
    assert with_smooth_surrogate(made("strength")).name == "strength"
    assert with_smooth_surrogate(made("nli_fairness")).name == "net_neutral"
    assert with_smooth_surrogate(made("counterfactual")).name == "counterfactual_shift"
    assert (
        with_smooth_surrogate(make_measure()).name
        == "counterfactual_shift, excess over placebo twins"
    )


def test_heads_that_cannot_be_ranked_are_told():
    lm = classifier(0.0)
    # An edit that makes every text one: no gradient, and nothing to rank.
    every = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]
    flat = lm.edited(mask_heads(every))
    result = mask_candidates(flat, make_measure())
    assert result.candidates == ()
    assert result.notes[0].startswith("no head is ranked: ")
    with pytest.raises(UnknownNameError, match="way to rank heads"):
        mask_candidates(lm, make_measure(), head_ranking="chance")
    for sizes in ((), (0,)):
        with pytest.raises(LevelheadError, match="masks of"):
            mask_candidates(lm, make_measure(), sizes=sizes)


def test_candidates_stand_beside_each_other():
    first = EditCandidates((), (("a", "b"),), (), ("c",))
    both = first.merge(first._replace(notes=("d",)))
    assert both == EditCandidates((), (("a", "b"),) * 2, (), ("c", "d"))
    assert both.edits == {}


def test_a_head_is_ranked_on_the_items_that_both_models_could_read(monkeypatch):
    lm, measure = classifier(1.0), make_measure()

    def scores_without_an_item(*, base_too):
        def read(*args, **options):
            responses = read_variant_responses(*args, **options)
            dropped = responses.base.items[0].id
            fewer = {
                name: variant.select(lambda item: item.id != dropped)
                for name, variant in responses.variants.items()
            }
            base = responses.base
            if base_too:
                base = base.select(lambda item: item.id != dropped)
            return replace(responses, base=base, variants=fewer)

        monkeypatch.setattr(candidates, "read_variant_responses", read)
        return candidates._by_ablation(lm, measure, RunContext())[0]

    assert scores_without_an_item(base_too=False) == scores_without_an_item(base_too=True)
