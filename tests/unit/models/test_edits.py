"""Edits are frozen values with theorems."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.sites import Site

WIDTH = 8
HERE = Site("block_out", 0)


def basis(k, seed=0):
    sample = torch.randn(
        WIDTH, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return torch.linalg.qr(sample).Q.T


def activation(seed=1, shape=(2, 3, WIDTH)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


some_k = st.integers(1, WIDTH)
some_seed = st.integers(0, 2**16)


@given(some_k, some_seed)
def test_a_hard_projection_is_idempotent_and_leaves_nothing(k, seed):
    edit = Projection(HERE, basis(k, seed))
    once = edit(activation(), HERE)
    torch.testing.assert_close(edit(once, HERE), once)
    assert (once @ edit.basis.T).abs().max() < 1e-12


@given(some_k, some_seed, st.data())
def test_projections_are_self_adjoint(k, seed, data):
    weights = torch.tensor(data.draw(st.lists(st.floats(0, 1), min_size=k, max_size=k)))
    edit = Projection(HERE, basis(k, seed), weights=weights)
    x, y = activation(1), activation(2)
    torch.testing.assert_close((edit(x, HERE) * y).sum(), (x * edit(y, HERE)).sum())


@given(some_k, some_seed)
def test_weights_of_one_are_hard_and_of_zero_nothing(k, seed):
    x = activation()
    hard = Projection(HERE, basis(k, seed))
    assert torch.equal(
        Projection(HERE, basis(k, seed), weights=torch.ones(k))(x, HERE), hard(x, HERE)
    )
    assert torch.equal(Projection(HERE, basis(k, seed), weights=torch.zeros(k))(x, HERE), x)


def test_equation_5_by_hand():
    g = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    h = torch.tensor([1.0, 2.0], dtype=torch.float64)
    left = Projection(HERE, g, weights=torch.tensor([0.25]))(h, HERE)
    # <h, g> = 2.2; h - 0.25 * 2.2 * g = (1 - 0.33, 2 - 0.44)
    torch.testing.assert_close(left, torch.tensor([0.67, 1.56], dtype=torch.float64))


def test_the_first_token_alone_is_edited():
    x = activation()
    edited = Projection(HERE, basis(2), tokens="first")(x, HERE)
    assert torch.equal(edited[:, 1:], x[:, 1:])
    torch.testing.assert_close(edited[:, 0], Projection(HERE, basis(2))(x, HERE)[:, 0])


@given(some_k, some_seed)
def test_the_matrix_is_the_edit(k, seed):
    x = activation()
    for edit in (
        Projection(HERE, basis(k, seed), weights=torch.linspace(0, 1, k)),
        HeadScale([Site("head_out", 0, 0)], 0.3),
    ):
        torch.testing.assert_close(x @ edit.matrix(edit.sites[0], WIDTH).T, edit(x, edit.sites[0]))


def test_edits_are_frozen_and_keep_their_own_tensors():
    directions = basis(1)
    edit = Projection(HERE, directions)
    before = edit.content_hash
    directions.zero_()
    edit.basis.zero_()
    edit.weights.zero_()
    assert edit(activation(), HERE).allclose(Projection(HERE, basis(1))(activation(), HERE))
    assert Projection(HERE, basis(1)).content_hash == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        edit.tokens = "first"
    with pytest.raises(dataclasses.FrozenInstanceError):
        HeadScale([Site("head_out", 0, 0)], 0).factor = 1


def test_the_order_of_sites_in_one_edit_means_nothing():
    sites = [Site("head_out", 0, 1), Site("head_out", 2, 0)]
    assert HeadScale(sites, 0) == HeadScale(sites[::-1], 0)
    assert HeadScale(sites, 0).content_hash == HeadScale(sites[::-1], 0).content_hash


def test_different_edits_have_different_hashes():
    edits = [
        HeadScale([Site("head_out", 0, 0)], 0),
        HeadScale([Site("head_out", 0, 0)], 1),
        HeadScale([Site("head_out", 0, 1)], 0),
        Projection(HERE, basis(1)),
        Projection(HERE, basis(1), tokens="first"),
        Projection(HERE, basis(1), weights=torch.tensor([0.5])),
        Projection(HERE, basis(1, seed=3)),
        Projection(Site("block_out", 1), basis(1)),
    ]
    assert len({edit.content_hash for edit in edits}) == len(edits) == len(set(edits))


@pytest.mark.parametrize(
    ("make", "responses"),
    [
        (lambda: HeadScale([], 0), "has no site"),
        (lambda: HeadScale([Site("head_out", 0, 0)] * 2, 0), "occurs twice"),
        (lambda: HeadScale([Site("head_out", 0, 0)], float("nan")), "cannot be scaled by nan"),
        (lambda: HeadScale([Site("query", 0, 0)], 0), "acts on heads, not on query"),
        (lambda: HeadScale([Site("head_out", 0)], 0), "acts on heads, not on head_out 0"),
        (lambda: Projection(HERE, torch.ones(1, WIDTH)), "not orthonormal"),
        (lambda: Projection(HERE, basis(2)[[0, 0]]), "not orthonormal"),
        (lambda: Projection(HERE, basis(1)[0]), "a single direction is given instead of a list"),
        (lambda: HeadScale(Site("head_out", 0, 0), 0), "is not a list of sites"),
        (lambda: HeadScale(["1-1"], 0), "is not a list of sites"),
        (lambda: Projection(HERE, torch.empty(0, WIDTH)), "directions of shape"),
        (lambda: Projection(HERE, basis(1) * float("nan")), "NaN"),
        (lambda: Projection(HERE, basis(1), weights=torch.tensor([1.5])), "range from 1.5"),
        (lambda: Projection(HERE, basis(1), weights=torch.tensor([-0.5])), "range from -0.5"),
        (lambda: Projection(HERE, basis(1), tokens="cls"), "no choice of tokens named 'cls'"),
    ],
)
def test_impossible_edits_are_refused(make, responses):
    with pytest.raises(LevelheadError, match=responses) as error:
        make()
    assert error.value.hint
