"""A shift adds one vector; a conditional shift adds it only where a detector fires."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.conditional_shift import ConditionalShift
from levelhead.models.edits.files import load_edits, save_edits
from levelhead.models.edits.shift import Shift
from levelhead.models.sites import Site

WIDTH = 6
HERE, POOLED = Site("block_out", 0), Site("pooled")


def draw_sample(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shift(seed=0, site=HERE, **options):
    return Shift(site, draw_sample(WIDTH, seed=seed), **options)


def conditional(k=2, seed=0, site=HERE, **options):
    tensors = {
        "weights": draw_sample(k, WIDTH, seed=seed),
        "biases": draw_sample(k, seed=seed + 1),
        "vectors": draw_sample(k, WIDTH, seed=seed + 2),
    }
    return ConditionalShift(site, **tensors, **options)


def shift_in_loops(edit, x):
    """The definition, token by token and detector by detector."""
    result = x.clone()
    for row in range(x.shape[0]):
        for token in range(x.shape[1]):
            if edit.tokens == "first" and token > 0:
                continue
            for weight, bias, vector in zip(edit.weights, edit.biases, edit.vectors, strict=True):
                if float(weight @ x[row, token]) + float(bias) > 0:
                    result[row, token] += edit.strength * vector
    return result


@pytest.mark.parametrize("strength", [1, -0.5, 0])
def test_a_shift_by_hand(strength):
    edit = Shift(HERE, torch.tensor([1.0, -2.0]), strength=strength)
    assert edit(torch.tensor([10.0, 5.0]), HERE).tolist() == [10 + strength, 5 - 2 * strength]


@given(st.floats(-3, 3), st.integers(0, 2**16))
def test_matrix_and_offset_of_a_shift_are_the_edit(strength, seed):
    edit, x = shift(seed, strength=strength), draw_sample(2, 3, WIDTH, seed=7)
    affine = x @ edit.matrix(HERE, WIDTH).T + edit.offset(HERE, WIDTH)
    torch.testing.assert_close(affine, edit(x, HERE))


def test_a_shift_of_the_first_token_leaves_the_others():
    edit, x = shift(tokens="first"), draw_sample(2, 3, WIDTH)
    edited = edit(x, HERE)
    assert torch.equal(edited[:, 1:], x[:, 1:])
    torch.testing.assert_close(edited[:, 0], shift()(x, HERE)[:, 0])
    assert edit.matrix(HERE, WIDTH) is None
    assert edit.offset(HERE, WIDTH) is None
    assert torch.equal(edit.offset(POOLED, WIDTH), shift().vector)


@given(st.integers(1, 4), st.floats(-3, 3), st.sampled_from(["all", "first"]), st.integers(0, 999))
def test_vectors_are_added_only_where_their_detectors_fire(k, strength, tokens, seed):
    edit = conditional(k, seed, strength=strength, tokens=tokens)
    x = draw_sample(3, 5, WIDTH, seed=seed + 7)
    torch.testing.assert_close(edit(x, HERE), shift_in_loops(edit, x))
    untouched = ~edit.fires(x).any(-1)
    assert torch.equal(edit(x, HERE)[untouched], x[untouched])


def test_some_tokens_fire_and_some_do_not():
    """Otherwise the test above would compare nothing."""
    fires = conditional().fires(draw_sample(3, 5, WIDTH, seed=7))
    assert fires.shape == (3, 5, 2)
    assert 0 < fires.sum() < fires.numel()


def test_detectors_of_two_groups_match_their_means():
    rows = {1: draw_sample(40, WIDTH, seed=1) + 4, -1: draw_sample(40, WIDTH, seed=2) - 4}
    means = torch.stack([side.mean(0) for side in rows.values()])
    axis = means[0] - means[1]
    edit = ConditionalShift(
        HERE,
        weights=torch.stack([axis, -axis]),
        biases=torch.zeros(2),
        vectors=means.mean(0) - means,
    )
    after = [edit(side, HERE).mean(0) for side in rows.values()]
    torch.testing.assert_close(after[0], after[1])
    torch.testing.assert_close(after[0], means.mean(0))


def test_a_detector_is_not_decided_by_the_rounding_of_bfloat16():
    """<w, h> is 256.5, which bfloat16 rounds to 256: the detector would not fire."""
    edit = ConditionalShift(
        HERE,
        weights=torch.tensor([[1.0, 1.0]]),
        biases=torch.tensor([-256.25]),
        vectors=torch.tensor([[1.0, 0.0]]),
    )
    x = torch.tensor([256, 0.5], dtype=torch.bfloat16)
    assert edit.fires(x).tolist() == [True]
    assert edit(x, HERE).dtype == torch.bfloat16


@pytest.mark.parametrize("make", [shift, conditional])
def test_they_are_frozen_keep_their_own_tensors_and_come_back_from_a_file(make, tmp_path):
    edit = make(strength=0.5)
    for tensor in edit.tensors.values():
        tensor.zero_()
    assert edit == make(strength=0.5)
    others = {make(), make(seed=3), make(tokens="first"), make(site=POOLED)}
    assert len({edit, make(strength=0.5), *others}) == 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        edit.tokens = "first"
    save_edits([edit, *others], tmp_path / "edits")
    assert load_edits(tmp_path / "edits") == (edit, *others)
    assert edit.width(HERE) == WIDTH


def test_neither_changes_its_argument():
    for edit in (shift(), conditional()):
        x = draw_sample(2, 3, WIDTH)
        edit(x, HERE)
        assert torch.equal(x, draw_sample(2, 3, WIDTH))


DETECTOR = {
    "weights": torch.tensor([[1.0, 3.0]]),
    "biases": torch.zeros(1),
    "vectors": torch.tensor([[1.0, 0.0]]),
}


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Shift(HERE, torch.ones(2, 3)), r"a vector of shape \(2, 3\)"),
        (lambda: Shift(HERE, torch.ones(0)), r"a vector of shape \(0,\)"),
        (lambda: Shift(HERE, torch.tensor([float("nan")])), "or not finite"),
        (lambda: Shift(HERE, torch.ones(2), strength=float("inf")), "with strength inf"),
        (lambda: Shift(HERE, torch.ones(2), tokens="cls"), "no choice of tokens named 'cls'"),
        (lambda: detectors(weights=torch.ones(2)), r"detectors of shapes \(2,\) and \(1,\)"),
        (lambda: detectors(biases=torch.ones(2)), r"detectors of shapes \(1, 2\) and \(2,\)"),
        (lambda: detectors(vectors=torch.ones(1, 3)), r"vectors of shape \(1, 3\)"),
        (lambda: detectors(biases=torch.tensor([float("inf")])), "hold NaN or infinity"),
        (lambda: detectors(weights=torch.zeros(1, 2)), "weights of a detector are all 0"),
        (lambda: detectors(strength=float("nan")), "with strength nan"),
        (lambda: detectors(tokens="cls"), "no choice of tokens named 'cls'"),
    ],
)
def test_impossible_ones_are_refused(make, problem):
    with pytest.raises(LevelheadError, match=problem) as error:
        make()
    assert error.value.hint


def detectors(**changes):
    return ConditionalShift(HERE, **(DETECTOR | changes))
