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
    lm, ruler = model(name, dtype="float64"), made(name, **options)
    return lm, ruler, ruler.read(lm)[0]


def valued(lm, ruler):
    return float(ruler.reduce(ruler.read(lm)[0]))


@pytest.mark.parametrize("name", ["seat", "crows_margin"])
@pytest.mark.parametrize("parts", [("heads",), ("heads", "mlp")])
def test_contributions_add_up_to_what_the_parts_do_together(name, parts):
    lm, ruler, found = made_for(name)
    own = integrate_masks(lm, ruler, found, components=parts)
    sites = (*HEADS, *(MLPS if "mlp" in parts else ()))
    whole, without = valued(lm, ruler), valued(lm.edited(AblationEdit(sites)), ruler)
    assert (own.full_value, own.masked_value) == pytest.approx((whole, without), abs=1e-9)
    total = sum(float(one.sum()) for one in own.scores.values())
    assert total == pytest.approx(whole - without, abs=1e-3)
    assert own.gap == pytest.approx(total - (whole - without), abs=1e-9)
    assert {part: tuple(one.shape) for part, one in own.scores.items()} == {
        part: (3, 4) if part == "heads" else (3, 1) for part in parts
    }


def test_a_contribution_is_the_integral_of_differences():
    """One head, with all others at t: central differences at Gauss and Legendre's nodes."""
    lm, ruler, found = made_for("crows_margin")
    site, others, step = HEADS[5], [*HEADS[:5], *HEADS[6:]], 1e-4
    nodes, weights = np.polynomial.legendre.leggauss(16)
    expected = 0.0
    for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        rest = lm.edited(HeadScale(others, t))
        up, down = (valued(rest.edited(HeadScale([site], t + e)), ruler) for e in (step, -step))
        expected += weight * (up - down) / (2 * step)
    own = integrate_masks(lm, ruler, found)
    assert own.scores["heads"][1, 1] == pytest.approx(expected, abs=1e-4)


def test_its_end_is_the_gradient():
    lm, ruler, found = made_for("seat")
    asked = room.index_answers(lm, ruler, found)
    question, _ = room.build_query(
        lm, asked.query_set.query_kind, asked.queries, asked.query_set.settings
    )
    _, back = room._evaluate_at(lm, ruler, found, asked, question, ("heads",), 1.0)
    assert torch.allclose(back["heads"], compute_gradient(lm, ruler, found).total(), atol=1e-9)


def test_nodes_are_added_until_the_sum_is_met(monkeypatch):
    lm, ruler, found = made_for("seat")
    monkeypatch.setattr(room, "NODE_COUNTS", (1, 2, 16))
    monkeypatch.setattr(room, "TOLERANCE", 1e-4)
    assert integrate_masks(lm, ruler, found).n_nodes == 16
    monkeypatch.setattr(room, "NODE_COUNTS", (1,))
    with pytest.raises(NotMeasurableError, match=r"with 1 nodes contributions still miss") as error:
        integrate_masks(lm, ruler, found)
    assert "float64" in error.value.hint


def test_without_embeddings_there_is_no_path():
    lm, ruler, found = made_for("seat")
    with pytest.raises(LevelheadError, match="without embeddings all words are one vector"):
        integrate_masks(lm, ruler, found, components=("heads", "embeddings"))


def test_a_step_function_is_refused():
    lm, ruler, found = made_for("crows")
    with pytest.raises(LevelheadError, match="step function"):
        integrate_masks(lm, ruler, found)
