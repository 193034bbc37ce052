"""locate, end to end: every number of a map against forwards of edited models."""

import numpy as np
import pytest
import torch
from metric_cases import made, model
from scipy import stats

import levelhead
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate import score_heads as room
from levelhead.locate.attribution.gradient import compute_gradient
from levelhead.locate.attribution.integrated_gradients import integrate_masks
from levelhead.locate.head_map import HeadMap, UndeterminedSignError
from levelhead.locate.score_heads import locate
from levelhead.locate.validation.split import split_items
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site

INFERENCE = Inference(seed=1, resamples=99, permutations=99)
HEADS = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]


def made_for(name="seat", **options):
    return model(name, **options), made(
        name, **({"contexts_per_word": 6} if name == "seat" else {})
    )


def half_effects(lm, measure, half, sign):
    """What a half of the items loses without each head, by whole forwards of edited models."""
    base = float(measure.reduce(half.select(measure.read(lm)[0])))
    return [
        sign
        * (
            base
            - float(measure.reduce(half.select(measure.read(lm.edited(HeadScale([site], 0)))[0])))
        )
        for site in HEADS
    ]


@pytest.mark.parametrize("split", ["words", "contexts", "none"])
@pytest.mark.parametrize("sign", ["+", "-"])
def test_the_gradient_ranks_on_one_half_and_ablation_judges_on_the_other(split, sign):
    lm, measure = made_for(dtype="float64")
    subset = locate(lm, measure, split=split, bias_direction=sign, inference=INFERENCE)
    result = measure.read(lm)[0]
    cut = split_items(measure, result, split_by=split, seed=INFERENCE.seed)
    way = 1 if sign == "+" else -1
    scores = way * compute_gradient(lm, measure, cut.discovery.select(result)).total()
    assert subset.grid() == pytest.approx(scores.numpy(), abs=1e-9)
    confirm = half_effects(lm, measure, cut.confirmation, way)
    assert subset.grid("effect").ravel() == pytest.approx(confirm, abs=1e-8)
    assert subset.bias_sign.sign == way
    assert subset.bias_sign.reason.startswith("given, ")
    assert (subset.split.split_by, subset.split.seed, subset.split.claim) == (split, 1, cut.claim)
    assert subset.split.discovery.value == pytest.approx(
        float(measure.reduce(cut.discovery.select(result)))
    )
    find = half_effects(lm, measure, cut.discovery, way)
    rho = stats.spearmanr(scores.flatten(), find).statistic
    assert subset.agreement.value == pytest.approx(rho)
    if split == "none":
        assert subset.split.confirmation is None
        assert subset.replication is None
    else:
        assert subset.split.confirmation.value == pytest.approx(
            float(measure.reduce(cut.confirmation.select(result)))
        )
        rho = stats.spearmanr(scores.flatten(), confirm).statistic
        assert subset.replication.value == pytest.approx(rho)
    assert subset.measurement.value == pytest.approx(float(measure.reduce(result)))
    assert subset.measurement.item_details == ()
    for head in subset.heads:
        assert head.interval.low < head.effect < head.interval.high
        assert head.p.family == 12
        assert head.detectable > 0


@pytest.mark.parametrize("split", ["words", "contexts"])
def test_by_ablation_scores_are_effects_on_the_find_half(split):
    lm, measure = made_for(dtype="float64")
    subset = locate(
        lm, measure, method="ablation", split=split, bias_direction="+", inference=INFERENCE
    )
    cut = split_items(measure, measure.read(lm)[0], split_by=split, seed=INFERENCE.seed)
    assert subset.grid().ravel() == pytest.approx(
        half_effects(lm, measure, cut.discovery, 1), abs=1e-8
    )
    confirm = half_effects(lm, measure, cut.confirmation, 1)
    assert subset.grid("effect").ravel() == pytest.approx(confirm, abs=1e-8)
    assert subset.agreement is None
    assert subset.provenance.equation.startswith("Yang et al. 2025, Eq. 2")


def test_a_path_gives_its_contributions():
    lm, measure = made_for(dtype="float64")
    subset = locate(
        lm,
        measure,
        method="path",
        split="none",
        bias_direction="-",
        ablate_top="none",
        inference=INFERENCE,
    )
    grid = integrate_masks(lm, measure, measure.read(lm)[0]).scores["heads"]
    assert subset.grid() == pytest.approx(-grid.numpy(), abs=1e-9)
    assert subset.notes[0].startswith(f"contributions add up to {float(grid.sum()):.2g}"[:-1])


def test_a_step_measure_has_no_gradient_but_can_be_ablated():
    lm, measure = made_for("crows")
    for by in ("gradient", "path"):
        with pytest.raises(LevelheadError, match="crows is a step function") as error:
            locate(lm, measure, method=by)
        assert "crows_margin" in error.value.hint
    subset = locate(lm, measure, method="ablation", bias_direction="+", inference=INFERENCE)
    result = measure.read(lm)[0]
    sides = measure.primary_metric.per_item_values(result)
    for site, head in zip(HEADS, subset.heads, strict=True):
        masked = measure.read(lm.edited(HeadScale([site], 0)))[0]
        change = float(measure.reduce(result)) - float(measure.reduce(masked))
        assert head.score == pytest.approx(change)
        # Where no item changes its side there is no spread to judge by, and no p.
        same = torch.equal(measure.primary_metric.per_item_values(masked), sides)
        assert (head.p is None) == same
    assert np.any(subset.grid() != 0)


def test_a_step_measure_is_refused_before_anything_is_read(monkeypatch):
    lm, measure = made_for("crows")
    monkeypatch.setattr(type(measure), "read", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(LevelheadError, match="step function"):
        locate(lm, measure)


def test_a_sign_that_is_not_known_is_said():
    lm, measure = made_for()
    subset = locate(lm, measure, ablate_top="none", inference=INFERENCE)
    assert subset.bias_sign.sign == 0
    assert "contains parity 0" in subset.bias_sign.reason
    with pytest.raises(UndeterminedSignError):
        subset.top(1)
    base = locate(lm, measure, ablate_top="none", bias_direction="+", inference=INFERENCE)
    assert np.array_equal(subset.grid(), base.grid())
    assert base.top(1)


def test_it_is_the_same_again_and_read_back(tmp_path):
    lm, measure = made_for()
    options = {"bias_direction": "+", "inference": INFERENCE, "components": ("heads", "mlp")}
    ours, again = (
        locate(lm, measure, context=RunContext(store=tmp_path / name), **options).to_json()
        for name in ("a", "b")
    )
    assert ours == again
    subset = HeadMap.from_json(ours)
    assert subset.to_json() == ours
    stored = locate(lm, measure, context=RunContext(store=tmp_path / "a"), **options)
    assert stored.to_json() == ours


@pytest.mark.parametrize("exact", ["all", "none", 3, None])
def test_so_many_are_ablated(exact):
    lm, measure = made_for()
    subset = locate(lm, measure, ablate_top=exact, bias_direction="+", inference=INFERENCE)
    tested = {head.label for head in subset.heads if head.effect is not None}
    ranked = [head.label for head in subset.ranked_heads]
    wanted = {"all": 12, "none": 0, 3: 3, None: 12}[exact]
    assert tested == set(ranked[:wanted])
    output = f"{wanted} of 12 parts were ablated, the others are only ranked"
    assert any(note.startswith(output) for note in subset.notes) == (wanted < 12)


def test_of_a_large_model_the_best_and_the_worst(monkeypatch):
    monkeypatch.setattr(room, "ABLATE_ALL_UP_TO", 11)
    monkeypatch.setattr(room, "N_BEST", 3)
    monkeypatch.setattr(room, "N_WORST", 2)
    lm, measure = made_for()
    subset = locate(lm, measure, split="words", bias_direction="+", inference=INFERENCE)
    tested = [head.label for head in subset.ranked_heads if head.effect is not None]
    ranked = [head.label for head in subset.ranked_heads]
    assert tested == [*ranked[:3], *ranked[-2:]]


def test_other_parts_are_located_beside_heads():
    lm, measure = made_for("crows_margin", dtype="float64")
    subset = locate(
        lm, measure, components=("heads", "mlp"), bias_direction="+", inference=INFERENCE
    )
    assert [score.component for score in subset.scores] == ["heads"] * 12 + ["mlp"] * 3
    shares = compute_gradient(lm, measure, measure.read(lm)[0], components=("heads", "mlp"))
    expected = torch.cat([shares.total("heads").flatten(), shares.total("mlp").flatten()])
    assert [item.score for item in subset.scores] == pytest.approx(expected.tolist(), abs=1e-9)
    assert subset.scores[13].site == Site("mlp_out", 1)
    assert subset.scores[13].effect is not None


def test_mean_ablation_is_another_effect():
    lm, measure = made_for()
    zero, mean = (
        locate(lm, measure, ablation=way, bias_direction="+", inference=INFERENCE)
        for way in ("zero", "mean")
    )
    assert np.array_equal(zero.grid(), mean.grid())
    assert np.abs(zero.grid("effect") - mean.grid("effect")).min() > 0
    assert (mean.ablation, mean.provenance.settings["ablation"]) == ("mean", "mean")


def test_heads_chosen_on_the_items_they_are_judged_on_have_no_p():
    """Three of twelve, chosen and judged on all items: their family is not these three."""
    lm, measure = made_for("crows_margin")
    subset = locate(
        lm, measure, split="none", ablate_top=3, bias_direction="+", inference=INFERENCE
    )
    tested = [head for head in subset.heads if head.effect is not None]
    assert len(tested) == 3
    assert all(item.p is None and item.interval is not None for item in tested)


def test_embeddings_are_ranked_and_not_ablated():
    """Without them all words are one vector: there is nothing to compare."""
    lm, measure = made_for(dtype="float64")
    parts = ("heads", "embeddings")
    subset = locate(
        lm, measure, components=parts, split="words", bias_direction="+", inference=INFERENCE
    )
    assert subset.scores[-1].component == "embeddings"
    assert subset.scores[-1].effect is None
    assert all(head.p is not None for head in subset.heads)
    with pytest.raises(LevelheadError, match="without embeddings all words are one vector"):
        locate(
            lm,
            measure,
            method="ablation",
            components=parts,
            bias_direction="+",
            inference=INFERENCE,
        )


def test_by_ablation_every_part_is_ablated():
    with pytest.raises(LevelheadError, match="by ablation every part is ablated, not 3"):
        locate(*made_for(), method="ablation", ablate_top=3, inference=INFERENCE)


def test_an_edited_model_is_located_as_it_is():
    lm, measure = made_for()
    edit = HeadScale([HEADS[6]], 0)
    subset = locate(lm.edited(edit), measure, bias_direction="+", inference=INFERENCE)
    assert subset.grid()[1, 2] == 0
    assert subset.heads[6].effect is None
    assert any("changes nothing at head_out 1.2" in note for note in subset.notes)
    assert subset.provenance.edits == (edit.content_hash,)


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ({"method": "gradiant"}, "gradiant"),
        ({"ablation": "median"}, "median"),
        ({"components": ("head",)}, "head"),
        ({"split": "halves"}, "halves"),
        ({"bias_direction": "plus"}, "plus"),
    ],
)
def test_unknown_options_are_named(options, output):
    with pytest.raises(UnknownNameError, match=output):
        locate(*made_for(), inference=INFERENCE, **options)


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ({"components": ()}, "name each part once"),
        ({"components": ("heads", "heads")}, "name each part once"),
        ({"ablate_top": 0}, "0 parts cannot be ablated"),
        ({"ablate_top": True}, "True parts cannot be ablated"),
        ({"ablate_top": "some"}, "'some' parts cannot be ablated"),
    ],
)
def test_senseless_options_are_refused(options, output):
    with pytest.raises(LevelheadError, match=output):
        locate(*made_for(), inference=INFERENCE, **options)


def test_the_room_is_callable():
    lm, measure = made_for()
    subset = levelhead.locate(
        lm, measure, bias_direction="+", ablate_top="none", inference=INFERENCE
    )
    assert (
        subset.to_json()
        == locate(lm, measure, bias_direction="+", ablate_top="none", inference=INFERENCE).to_json()
    )


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_a_model_in_half_precision_is_located(ablation):
    lm = model("seat", dtype="bfloat16")
    subset = locate(
        lm, made("seat"), ablate_top=2, ablation=ablation, bias_direction="+", inference=INFERENCE
    )
    assert sum(head.effect is not None for head in subset.heads) == 2
