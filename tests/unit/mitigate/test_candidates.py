"""What is tried: the grid as the paper trims it, and heads by what they add to the bias."""

import pytest
import zoo
from leaning import LEXICON, classifier, texts
from rulers import made, model

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.data.counterfactuals.contrast_pairs import paired
from levelhead.locate.head_map import label
from levelhead.measures.classification.controlled_difference import Excess
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.mitigate.heads.mask import mask, scale
from levelhead.mitigate.projection.config_grid import Setting, grid
from levelhead.mitigate.projection.edit_points import project
from levelhead.mitigate.selection.candidates import (
    ATTENTION,
    SENT_HARD,
    TWO_HARD,
    Candidates,
    masks,
    projections,
    rule_against,
    smooth_of,
)
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

PAIRS = paired(LEXICON)


def test_the_papers_rules_leave_22_of_74_settings():
    rules = {one.name: rule_against(one) for one in grid()}
    kept = [name for name, rule in rules.items() if not rule]
    assert len(kept) == 1 + 3 + 9 + 9
    assert "penultimate 0,0,1,1,1" in kept  # the winner of Table 5 at layer 11
    for name in kept:
        *steps, sent = name.split()[1].split(",")
        assert sent == "1"
        pairs = list(zip(steps[::2], steps[1::2], strict=True))
        assert ("0", "1") not in pairs
    # 8 of 32: "exactly the (c11 = 1, n11 = 0) cases".
    assert sum(rule == ATTENTION for rule in rules.values()) == 8
    assert rules["sent 0"] == SENT_HARD
    assert rules["last 0,1,1"] == TWO_HARD
    assert rules["penultimate 0,1,0,0,1"] == TWO_HARD
    assert sum(not rule_against(one) for one in grid(sent=False)) == 3 + 9 + 9


def test_projections_are_those_of_project_and_trimmed_ones_are_told():
    lm = model("accuracy")
    found = projections(lm, PAIRS)
    assert len(found.some) == 22
    assert len(found.trimmed) == 52
    assert {one.kind for one in found.some} == {"projection"}
    for name in ("sent 1", "penultimate+attn 1,1,0,0,1"):
        assert found.edits[name] == project(lm, Setting.named(name), PAIRS)
    whole = projections(lm, PAIRS, trim=False)
    assert len(whole.some) == 74
    assert whole.trimmed == ()


def test_models_of_one_layer_or_without_a_pooled_vector_have_fewer():
    shallow = load(
        zoo.folder("bert", "BertForSequenceClassification", num_labels=2, num_hidden_layers=1)
    )
    assert [one.name for one in projections(shallow, PAIRS).some] == [
        *("sent 1", "last 0,0,1", "last 1,0,1", "last 1,1,1"),
    ]
    causal = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    assert len(projections(causal, PAIRS).some) == 21


def test_pairs_that_cannot_be_read_are_told_and_none_is_an_error():
    lm = model("accuracy")
    unknown = tuple(pair._replace(first=pair.first.replace("woman", "zebra")) for pair in PAIRS[:2])
    found = projections(lm, (*PAIRS, *unknown))
    assert len(found.dropped) == 2
    with pytest.raises(NotMeasurable, match="the model can read none of 2 pairs of texts"):
        projections(lm, unknown)
    with pytest.raises(NotMeasurable, match="there is no pair of texts"):
        projections(lm, ())


# -- heads


def ruler():
    return Excess(Counterfactual(texts("dev", 60), lexicon=LEXICON))


def bias(lm, one):
    """The distance from parity, of readouts."""
    (readouts,) = one.read(lm)
    return abs(float(one.headline.value(readouts, one.design(readouts, one.headline))))


def test_masks_by_ablation_are_in_the_order_of_what_each_head_adds():
    lm, one = classifier(1.0), ruler()
    found = masks(lm, one, by="ablation")
    base = bias(lm, one)
    gains = {}
    for layer in range(3):
        for head in range(4):
            site = Site("head_out", layer, head)
            gains[site] = base - bias(lm.edited(mask([site])), one)
    adding = sorted((site for site in gains if gains[site] > 0), key=lambda s: (-gains[s], s))
    sizes = [size for size in (1, 2, 3, 5, 10) if size <= len(adding)]
    assert [own.name for own in found.some] == [f"mask {size}" for size in sizes]
    assert found.edits["mask 3"] == (mask(adding[:3]),)
    assert found.some[1].about == f"heads {label(adding[0])}, {label(adding[1])} masked"
    assert found.some[0].kind == "mask"


def test_masks_by_gradient_rank_by_the_derivative_of_the_bias():
    lm, one = classifier(1.0), ruler()
    found = masks(lm, one, sizes=(1, 12, 3))
    smooth, step = one.smooth, 1e-3
    slopes = {}
    for layer in range(3):
        for head in range(4):
            site = Site("head_out", layer, head)
            ends = [bias(lm.edited(scale([site], 1 + way * step)), smooth) for way in (1, -1)]
            slopes[site] = (ends[0] - ends[1]) / (2 * step)
    adding = sorted((site for site in slopes if slopes[site] > 0), key=lambda s: -slopes[s])
    assert found.edits["mask 1"] == (mask(adding[:1]),)
    assert set(found.edits["mask 3"][0].at) == set(adding[:3])
    assert "mask 12" not in found.edits
    assert found.notes == (f"heads are ranked by the gradient of {smooth.name}",)


def test_what_is_smooth():
    assert smooth_of(made("strength")).name == "strength"
    assert smooth_of(made("nli_fairness")).name == "net_neutral"
    assert smooth_of(made("counterfactual")).name == "counterfactual_shift"
    assert smooth_of(ruler()).name == "counterfactual_shift, excess over placebo twins"


def test_heads_that_cannot_be_ranked_are_told():
    lm = classifier(0.0)
    # An edit that makes every text one: no gradient, and nothing to rank.
    every = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]
    flat = lm.edited(mask(every))
    found = masks(flat, ruler())
    assert found.some == ()
    assert found.notes[0].startswith("no head is ranked: ")
    with pytest.raises(UnknownName, match="way to rank heads"):
        masks(lm, ruler(), by="chance")
    for sizes in ((), (0,)):
        with pytest.raises(LevelheadError, match="masks of"):
            masks(lm, ruler(), sizes=sizes)


def test_candidates_stand_beside_each_other():
    first = Candidates((), (("a", "b"),), (), ("c",))
    both = first.beside(first._replace(notes=("d",)))
    assert both == Candidates((), (("a", "b"),) * 2, (), ("c", "d"))
    assert both.edits == {}
