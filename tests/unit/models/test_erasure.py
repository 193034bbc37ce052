"""An erasure is affine: it leaves the mean, and nothing along what it reads."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import Projection
from levelhead.models.edits.erasure import Erasure
from levelhead.models.sites import Site

WIDTH = 6
HERE = Site("block_out", 0)


def draw_sample(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def erasure(k=2, seed=0, site=HERE, width=WIDTH, **options):
    right = torch.linalg.qr(draw_sample(width, k, seed=seed)).Q.T
    left = right + 0.1 * draw_sample(k, width, seed=seed + 1)
    left = torch.linalg.solve((right @ left.T).T, left)
    return Erasure(site, left=left, right=right, mean=draw_sample(width, seed=seed + 2), **options)


def test_the_formula_by_hand():
    edit = Erasure(
        HERE,
        left=torch.tensor([[1.0, 3.0]]),
        right=torch.tensor([[1.0, 0.0]]),
        mean=torch.tensor([10.0, 20.0]),
    )
    # <h - mean, r> = 12 - 10 = 2; h - 2 l = (12 - 2, 5 - 6)
    assert edit(torch.tensor([12.0, 5.0]), HERE).tolist() == [10.0, -1.0]


@given(st.integers(1, WIDTH), st.integers(0, 2**16))
def test_nothing_is_left_along_what_it_reads_and_the_mean_stays(k, seed):
    edit = erasure(k, seed)
    x = draw_sample(2, 3, WIDTH, seed=7)
    once = edit(x, HERE)
    assert ((once - edit.mean) @ edit.right.T).abs().max() < 1e-6
    torch.testing.assert_close(edit(once, HERE), once, rtol=1e-6, atol=1e-6)
    assert torch.equal(edit(edit.mean, HERE), edit.mean)


@given(st.integers(1, WIDTH), st.integers(0, 2**16))
def test_the_matrix_and_the_offset_are_the_edit(k, seed):
    edit, x = erasure(k, seed), draw_sample(2, 3, WIDTH, seed=7)
    affine = x @ edit.matrix(HERE, WIDTH).T + edit.offset(HERE, WIDTH)
    torch.testing.assert_close(affine, edit(x, HERE))


def test_about_zero_with_equal_factors_it_is_a_hard_projection():
    basis = torch.linalg.qr(draw_sample(WIDTH, 2)).Q.T
    zero = torch.zeros(WIDTH)
    edit, x = Erasure(HERE, left=basis, right=basis, mean=zero), draw_sample(2, 3, WIDTH)
    torch.testing.assert_close(edit(x, HERE), Projection(HERE, basis)(x, HERE))
    assert not edit.offset(HERE, WIDTH).any()


def test_the_first_token_alone_is_edited_but_a_pooled_vector_always():
    edit, x = erasure(tokens="first"), draw_sample(2, 3, WIDTH)
    edited = edit(x, HERE)
    assert torch.equal(edited[:, 1:], x[:, 1:])
    torch.testing.assert_close(edited[:, 0], erasure()(x, HERE)[:, 0])
    assert edit.matrix(HERE, WIDTH) is None
    assert edit.offset(HERE, WIDTH) is None
    assert edit.offset(Site("pooled"), WIDTH) is not None


def test_it_is_frozen_and_keeps_its_own_tensors():
    edit = erasure()
    for tensor in (edit.left, edit.right, edit.mean):
        tensor.zero_()
    assert edit == erasure()
    assert len({edit, erasure(), erasure(seed=3), erasure(tokens="first")}) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        edit.tokens = "first"


@pytest.mark.parametrize(
    ("changes", "responses"),
    [
        ({"left": torch.ones(1, 3)}, r"factors of shapes \(1, 3\) and \(1, 2\) do not fit a mean"),
        ({"left": torch.ones(2), "right": torch.ones(2)}, r"factors of shapes \(2,\) and \(2,\)"),
        ({"left": torch.ones(0, 2), "right": torch.ones(0, 2)}, "factors of shapes"),
        ({"mean": torch.ones(3)}, r"a mean of shape \(3,\)"),
        ({"mean": torch.tensor([0.0, float("nan")])}, "the factors or the mean hold NaN"),
        ({"right": torch.tensor([[2.0, 0.0]])}, "left and right do not form a projection"),
        ({"tokens": "cls"}, "no choice of tokens named 'cls'"),
    ],
)
def test_impossible_ones_are_refused(changes, responses):
    fine = {
        "left": torch.tensor([[1.0, 3.0]]),
        "right": torch.tensor([[1.0, 0.0]]),
        "mean": torch.zeros(2),
    }
    with pytest.raises(LevelheadError, match=responses) as error:
        Erasure(HERE, **(fine | changes))
    assert error.value.hint
