import numpy as np
import pytest
import torch
from metric_cases import made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.locate.attribution import integrated_gradients as room
from levelhead.locate.attribution.ablation import AblationEdit
from levelhead.locate.attribution.gradient import compute_gradient
from levelhead.locate.attribution.integrated_gradients import integrate_masks
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site

HEADS = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]
MLPS = [Site("mlp_out", layer) for layer in range(3)]


def made_for(name):
    options = {"contexts_per_word": 1} if name == "seat" else {}
    lm, measure = model(name, dtype="float64"), made(name, **options)
    return lm, measure, measure.read(lm)[0]


def valued(lm, measure):
    return float(measure.reduce(measure.read(lm)[0]))


@pytest.mark.parametrize("name", ["seat", "crows_margin"])
@pytest.mark.parametrize("parts", [("heads",), ("heads", "mlp")])
def test_contributions_add_up_to_what_the_parts_do_together(name, parts):
    lm, measure, result = made_for(name)
    subset = integrate_masks(lm, measure, result, components=parts)
    sites = (*HEADS, *(MLPS if "mlp" in parts else ()))
    full, without = valued(lm, measure), valued(lm.edited(AblationEdit(sites)), measure)
    assert (subset.full_value, subset.masked_value) == pytest.approx((full, without), abs=1e-9)
    total = sum(float(score.sum()) for score in subset.scores.values())
    assert total == pytest.approx(full - without, abs=1e-3)
    assert subset.gap == pytest.approx(total - (full - without), abs=1e-9)
    assert {part: tuple(score.shape) for part, score in subset.scores.items()} == {
        part: (3, 4) if part == "heads" else (3, 1) for part in parts
    }


def test_a_contribution_is_the_integral_of_differences():
    """One head, with all others at t: central differences at Gauss and Legendre's nodes."""
    lm, measure, result = made_for("crows_margin")
    site, others, step = HEADS[5], [*HEADS[:5], *HEADS[6:]], 1e-4
    nodes, weights = np.polynomial.legendre.leggauss(16)
    expected = 0.0
    for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        rest = lm.edited(HeadScale(others, t))
        up, down = (valued(rest.edited(HeadScale([site], t + e)), measure) for e in (step, -step))
        expected += weight * (up - down) / (2 * step)
    subset = integrate_masks(lm, measure, result)
    assert subset.scores["heads"][1, 1] == pytest.approx(expected, abs=1e-4)


def test_its_end_is_the_gradient():
    lm, measure, result = made_for("seat")
    requested = room.index_answers(lm, measure, result)
    question, _ = room.build_query(
        lm, requested.query_set.query_kind, requested.queries, requested.query_set.settings
    )
    _, back = room._evaluate_at(lm, measure, result, requested, question, ("heads",), 1.0)
    assert torch.allclose(back["heads"], compute_gradient(lm, measure, result).total(), atol=1e-9)


def test_nodes_are_added_until_the_sum_is_met(monkeypatch):
    lm, measure, result = made_for("seat")
    monkeypatch.setattr(room, "NODE_COUNTS", (1, 2, 16))
    monkeypatch.setattr(room, "TOLERANCE", 1e-4)
    assert integrate_masks(lm, measure, result).n_nodes == 16
    monkeypatch.setattr(room, "NODE_COUNTS", (1,))
    with pytest.raises(NotMeasurableError, match=r"with 1 nodes contributions still miss") as error:
        integrate_masks(lm, measure, result)
    assert "float64" in error.value.hint


def test_without_embeddings_there_is_no_path():
    lm, measure, result = made_for("seat")
    with pytest.raises(LevelheadError, match="without embeddings all words are one vector"):
        integrate_masks(lm, measure, result, components=("heads", "embeddings"))


def test_a_step_function_is_refused():
    lm, measure, result = made_for("crows")
    with pytest.raises(LevelheadError, match="step function"):
        integrate_masks(lm, measure, result)
