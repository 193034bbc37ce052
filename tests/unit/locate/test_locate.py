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


def half_effects(lm, ruler, half, sign):
    """What a half of the items loses without each head, by whole forwards of edited models."""
    base = float(ruler.reduce(half.select(ruler.read(lm)[0])))
    return [
        sign
        * (base - float(ruler.reduce(half.select(ruler.read(lm.edited(HeadScale([site], 0)))[0]))))
        for site in HEADS
    ]


@pytest.mark.parametrize("split", ["words", "contexts", "none"])
@pytest.mark.parametrize("sign", ["+", "-"])
def test_the_gradient_ranks_on_one_half_and_ablation_judges_on_the_other(split, sign):
    lm, ruler = made_for(dtype="float64")
    own = locate(lm, ruler, split=split, bias_direction=sign, inference=INFERENCE)
    found = ruler.read(lm)[0]
    cut = split_items(ruler, found, split_by=split, seed=INFERENCE.seed)
    way = 1 if sign == "+" else -1
    scores = way * compute_gradient(lm, ruler, cut.discovery.select(found)).total()
    assert own.grid() == pytest.approx(scores.numpy(), abs=1e-9)
    confirm = half_effects(lm, ruler, cut.confirmation, way)
    assert own.grid("effect").ravel() == pytest.approx(confirm, abs=1e-8)
    assert own.bias_sign.sign == way
    assert own.bias_sign.reason.startswith("given, ")
    assert (own.split.split_by, own.split.seed, own.split.claim) == (split, 1, cut.claim)
    assert own.split.discovery.value == pytest.approx(
        float(ruler.reduce(cut.discovery.select(found)))
    )
    find = half_effects(lm, ruler, cut.discovery, way)
    rho = stats.spearmanr(scores.flatten(), find).statistic
    assert own.agreement.value == pytest.approx(rho)
    if split == "none":
        assert own.split.confirmation is None
        assert own.replication is None
    else:
        assert own.split.confirmation.value == pytest.approx(
            float(ruler.reduce(cut.confirmation.select(found)))
        )
        rho = stats.spearmanr(scores.flatten(), confirm).statistic
        assert own.replication.value == pytest.approx(rho)
    assert own.measurement.value == pytest.approx(float(ruler.reduce(found)))
    for one in own.heads:
        assert one.interval.low < one.effect < one.interval.high
        assert one.p.family == 12
        assert one.detectable > 0


@pytest.mark.parametrize("split", ["words", "contexts"])
def test_by_ablation_scores_are_effects_on_the_find_half(split):
    lm, ruler = made_for(dtype="float64")
    own = locate(lm, ruler, method="ablation", split=split, bias_direction="+", inference=INFERENCE)
    cut = split_items(ruler, ruler.read(lm)[0], split_by=split, seed=INFERENCE.seed)
    assert own.grid().ravel() == pytest.approx(half_effects(lm, ruler, cut.discovery, 1), abs=1e-8)
    confirm = half_effects(lm, ruler, cut.confirmation, 1)
    assert own.grid("effect").ravel() == pytest.approx(confirm, abs=1e-8)
    assert own.agreement is None
    assert own.provenance.equation.startswith("Yang et al. 2025, Eq. 2")


def test_a_path_gives_its_contributions():
    lm, ruler = made_for(dtype="float64")
    own = locate(
        lm,
        ruler,
        method="path",
        split="none",
        bias_direction="-",
        ablate_top="none",
        inference=INFERENCE,
    )
    grid = integrate_masks(lm, ruler, ruler.read(lm)[0]).scores["heads"]
    assert own.grid() == pytest.approx(-grid.numpy(), abs=1e-9)
    assert own.notes[0].startswith(f"contributions add up to {float(grid.sum()):.2g}"[:-1])


def test_a_step_measure_has_no_gradient_but_can_be_ablated():
    lm, ruler = made_for("crows")
    for by in ("gradient", "path"):
        with pytest.raises(LevelheadError, match="crows is a step function") as error:
            locate(lm, ruler, method=by)
        assert "crows_margin" in error.value.hint
    own = locate(lm, ruler, method="ablation", bias_direction="+", inference=INFERENCE)
    found = ruler.read(lm)[0]
    sides = ruler.primary_metric.per_item_values(found)
    for site, one in zip(HEADS, own.heads, strict=True):
        masked = ruler.read(lm.edited(HeadScale([site], 0)))[0]
        change = float(ruler.reduce(found)) - float(ruler.reduce(masked))
        assert one.score == pytest.approx(change)
        # Where no item changes its side there is no spread to judge by, and no p.
        same = torch.equal(ruler.primary_metric.per_item_values(masked), sides)
        assert (one.p is None) == same
    assert np.any(own.grid() != 0)


def test_a_step_measure_is_refused_before_anything_is_read(monkeypatch):
    lm, ruler = made_for("crows")
    monkeypatch.setattr(type(ruler), "read", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(LevelheadError, match="step function"):
        locate(lm, ruler)


def test_a_sign_that_is_not_known_is_said():
    lm, ruler = made_for()
    own = locate(lm, ruler, ablate_top="none", inference=INFERENCE)
    assert own.bias_sign.sign == 0
    assert "contains parity 0" in own.bias_sign.reason
    with pytest.raises(UndeterminedSignError):
        own.top(1)
    plain = locate(lm, ruler, ablate_top="none", bias_direction="+", inference=INFERENCE)
    assert np.array_equal(own.grid(), plain.grid())
    assert plain.top(1)


def test_it_is_the_same_again_and_read_back(tmp_path):
    lm, ruler = made_for()
    options = {"bias_direction": "+", "inference": INFERENCE, "components": ("heads", "mlp")}
    ours, again = (
        locate(lm, ruler, context=RunContext(store=tmp_path / name), **options).to_json()
        for name in ("a", "b")
    )
    assert ours == again
    own = HeadMap.from_json(ours)
    assert own.to_json() == ours
    stored = locate(lm, ruler, context=RunContext(store=tmp_path / "a"), **options)
    assert stored.to_json() == ours


@pytest.mark.parametrize("exact", ["all", "none", 3, None])
def test_so_many_are_ablated(exact):
    lm, ruler = made_for()
    own = locate(lm, ruler, ablate_top=exact, bias_direction="+", inference=INFERENCE)
    tested = {one.label for one in own.heads if one.effect is not None}
    ranked = [one.label for one in own.ranked_heads]
    wanted = {"all": 12, "none": 0, 3: 3, None: 12}[exact]
    assert tested == set(ranked[:wanted])
    told = f"{wanted} of 12 parts were ablated, the others are only ranked"
    assert any(note.startswith(told) for note in own.notes) == (wanted < 12)


def test_of_a_large_model_the_best_and_the_worst(monkeypatch):
    monkeypatch.setattr(room, "ABLATE_ALL_UP_TO", 11)
    monkeypatch.setattr(room, "N_BEST", 3)
    monkeypatch.setattr(room, "N_WORST", 2)
    lm, ruler = made_for()
    own = locate(lm, ruler, split="words", bias_direction="+", inference=INFERENCE)
    tested = [one.label for one in own.ranked_heads if one.effect is not None]
    ranked = [one.label for one in own.ranked_heads]
    assert tested == [*ranked[:3], *ranked[-2:]]


def test_other_parts_are_located_beside_heads():
    lm, ruler = made_for("crows_margin", dtype="float64")
    own = locate(lm, ruler, components=("heads", "mlp"), bias_direction="+", inference=INFERENCE)
    assert [one.component for one in own.scores] == ["heads"] * 12 + ["mlp"] * 3
    shares = compute_gradient(lm, ruler, ruler.read(lm)[0], components=("heads", "mlp"))
    expected = torch.cat([shares.total("heads").flatten(), shares.total("mlp").flatten()])
    assert [one.score for one in own.scores] == pytest.approx(expected.tolist(), abs=1e-9)
    assert own.scores[13].site == Site("mlp_out", 1)
    assert own.scores[13].effect is not None


def test_mean_ablation_is_another_effect():
    lm, ruler = made_for()
    zero, mean = (
        locate(lm, ruler, ablation=way, bias_direction="+", inference=INFERENCE)
        for way in ("zero", "mean")
    )
    assert np.array_equal(zero.grid(), mean.grid())
    assert np.abs(zero.grid("effect") - mean.grid("effect")).min() > 0
    assert (mean.ablation, mean.provenance.settings["ablation"]) == ("mean", "mean")


def test_heads_chosen_on_the_items_they_are_judged_on_have_no_p():
    """Three of twelve, chosen and judged on all items: their family is not these three."""
    lm, ruler = made_for("crows_margin")
    own = locate(lm, ruler, split="none", ablate_top=3, bias_direction="+", inference=INFERENCE)
    tested = [one for one in own.heads if one.effect is not None]
    assert len(tested) == 3
    assert all(one.p is None and one.interval is not None for one in tested)


def test_embeddings_are_ranked_and_not_ablated():
    """Without them all words are one vector: there is nothing to compare."""
    lm, ruler = made_for(dtype="float64")
    parts = ("heads", "embeddings")
    own = locate(
        lm, ruler, components=parts, split="words", bias_direction="+", inference=INFERENCE
    )
    assert own.scores[-1].component == "embeddings"
    assert own.scores[-1].effect is None
    assert all(one.p is not None for one in own.heads)
    with pytest.raises(LevelheadError, match="without embeddings all words are one vector"):
        locate(
            lm, ruler, method="ablation", components=parts, bias_direction="+", inference=INFERENCE
        )


def test_by_ablation_every_part_is_ablated():
    with pytest.raises(LevelheadError, match="by ablation every part is ablated, not 3"):
        locate(*made_for(), method="ablation", ablate_top=3, inference=INFERENCE)


def test_an_edited_model_is_located_as_it_is():
    lm, ruler = made_for()
    edit = HeadScale([HEADS[6]], 0)
    own = locate(lm.edited(edit), ruler, bias_direction="+", inference=INFERENCE)
    assert own.grid()[1, 2] == 0
    assert own.heads[6].effect is None
    assert any("changes nothing at head_out 1.2" in note for note in own.notes)
    assert own.provenance.edits == (edit.content_hash,)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"method": "gradiant"}, "gradiant"),
        ({"ablation": "median"}, "median"),
        ({"components": ("head",)}, "head"),
        ({"split": "halves"}, "halves"),
        ({"bias_direction": "plus"}, "plus"),
    ],
)
def test_unknown_options_are_named(options, told):
    with pytest.raises(UnknownNameError, match=told):
        locate(*made_for(), inference=INFERENCE, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"components": ()}, "name each part once"),
        ({"components": ("heads", "heads")}, "name each part once"),
        ({"ablate_top": 0}, "0 parts cannot be ablated"),
        ({"ablate_top": True}, "True parts cannot be ablated"),
        ({"ablate_top": "some"}, "'some' parts cannot be ablated"),
    ],
)
def test_senseless_options_are_refused(options, told):
    with pytest.raises(LevelheadError, match=told):
        locate(*made_for(), inference=INFERENCE, **options)


def test_the_room_is_callable():
    lm, ruler = made_for()
    own = levelhead.locate(lm, ruler, bias_direction="+", ablate_top="none", inference=INFERENCE)
    assert (
        own.to_json()
        == locate(lm, ruler, bias_direction="+", ablate_top="none", inference=INFERENCE).to_json()
    )


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_a_model_in_half_precision_is_located(ablation):
    lm = model("seat", dtype="bfloat16")
    own = locate(
        lm, made("seat"), ablate_top=2, ablation=ablation, bias_direction="+", inference=INFERENCE
    )
    assert sum(one.effect is not None for one in own.heads) == 2
