"""Baselines are edits with theorems, and say when there is nothing to take out."""

import sys

import numpy as np
import pytest
import torch
import zoo
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression

from levelhead.core.errors import MissingExtraError, NotMeasurableError
from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.mitigate.projection.baselines import (
    inlp,
    inlp_directions,
    leace,
    leace_factors,
    sentence_debias,
)
from levelhead.models.edits.files import load_edits, save_edits
from levelhead.models.edits.merge import NotMergeableError
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

FRAMES = [
    "{} is here",
    "the nurse said that {} was tired",
    "{} works as a doctor .",
    "there is the house and {}",
    "in the river {} was quick",
    "{} was lazy",
]
WORDS = [("he", "she"), ("the man", "the woman"), ("a man", "a woman"), ("man", "woman")]
PAIRS = [("the nurse works", "she was tired"), ("a man", "he said that he was here .")]
INNER, LAST, POOLED = Site("block_out", 1), Site("block_out", 2), Site("pooled")


def texts():
    return tuple(
        ContrastPair(
            f"{frame}/{word}",
            frame.format(word),
            frame.format(other),
            tuple((frame.index("{}"), frame.index("{}") + len(item)) for item in (word, other)),
            f"{word}/{other}",
        )
        for frame in FRAMES
        for word, other in WORDS
    )


@pytest.fixture(scope="module")
def bert():
    return load(zoo.folder("bert", "BertForPreTraining"))


def sides(lm, site, **options):
    first, second = (
        lm.read([pair[i] for pair in texts()], [site], **options)[site].double() for i in (1, 2)
    )
    return first, second


def covariance(first, second):
    """Of an activation and the label, 1 for the first of a pair and 0 for the second."""
    rows = torch.cat([first, second])
    labels = torch.cat([torch.ones(len(first)), torch.zeros(len(second))]).double()
    return ((labels - 0.5)[:, None] * (rows - rows.mean(0))).mean(0)


# -- SentenceDebias


def test_sentence_debias_is_the_first_direction_of_unit_vectors(bert):
    (edit,) = sentence_debias(bert, texts())
    first, second = (side / side.norm(dim=1, keepdim=True) for side in sides(bert, POOLED))
    middle = (first + second) / 2
    stacked = np.concatenate([(first - middle).numpy(), (second - middle).numpy()])
    _, vectors = np.linalg.eigh(np.cov(stacked.T))  # PCA as their code does it
    assert abs(vectors[:, -1] @ edit.basis[0].numpy()) == pytest.approx(1, abs=1e-6)
    assert edit.weights.tolist() == [1]
    assert edit.sites == (POOLED,)
    assert edit.tokens == "all"
    raw = torch.cat(sides(bert, POOLED))
    full = np.linalg.svd((raw[: len(first)] - raw[len(first) :]).numpy())[2][0]
    assert abs(full @ edit.basis[0].numpy()) < 1 - 1e-6  # length 1 matters


def test_sentence_debias_takes_dimensions_and_another_site(bert):
    (edit,) = sentence_debias(bert, texts(), LAST, n_components=2, pooling="mean")
    assert edit.basis.shape == (2, 24)
    assert edit.tokens == "all"
    (first,) = sentence_debias(bert, texts(), LAST)
    assert first.tokens == "first"


def test_a_vector_of_length_0_has_no_direction(bert):
    gone = bert.edited(mask_heads([Site("head_out", 1, i) for i in range(4)]))
    with pytest.raises(NotMeasurableError, match="length 0 at head_out 1"):
        sentence_debias(gone, texts(), Site("head_out", 1))


# -- LEACE


@pytest.mark.parametrize("shrinkage", [True, False])
@pytest.mark.parametrize("n", [8, 400])
def test_leace_leaves_no_covariance_with_the_label(n, shrinkage):
    rng = torch.Generator().manual_seed(n)
    labels = torch.arange(n) % 2
    rows = torch.randn(n, 20, generator=rng, dtype=torch.float64)
    rows = rows @ torch.randn(20, 20, generator=rng, dtype=torch.float64) + 5
    rows[labels == 1, :3] += 0.7
    left, right = leace_factors(rows, labels, shrinkage=shrinkage)
    edited = rows - ((rows - rows.mean(0)) @ right.T) @ left
    assert covariance(rows[labels == 1], rows[labels == 0]).abs().max() > 0.05
    assert covariance(edited[labels == 1], edited[labels == 0]).abs().max() <= 1e-5
    torch.testing.assert_close(edited.mean(0), rows.mean(0))


def test_leace_changes_less_than_taking_the_mean_difference_out():
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(2000) % 2
    scales = torch.logspace(-1, 1, 10, dtype=torch.float64)
    rows = torch.randn(2000, 10, generator=rng, dtype=torch.float64) * scales
    rows[labels == 1] += 0.5
    left, right = leace_factors(rows, labels, shrinkage=False)
    gap = rows[labels == 1].mean(0) - rows[labels == 0].mean(0)
    gap = gap / gap.norm()
    centred = rows - rows.mean(0)
    leaced = ((centred @ right.T) @ left).square().sum()
    assert leaced < 0.5 * (centred @ gap).square().sum()


@pytest.mark.parametrize("site", [POOLED, LAST, INNER, Site("query", 1, 2)])
def test_a_model_s_own_activations_keep_no_covariance(bert, site):
    at = "first" if site in (POOLED, LAST) else "mean"
    edits = leace(bert, texts(), site)
    assert covariance(*sides(bert, site, pooling=at)).abs().max() > 1e-3
    assert covariance(*sides(bert.edited(*edits), site, pooling=at)).abs().max() <= 1e-5


def test_leace_is_folded_and_filed_like_any_edit(bert, tmp_path):
    for site in (POOLED, LAST, Site("value", 1, 0), Site("mlp_out", 0)):
        edited = bert.edited(*leace(bert, texts(), site))
        hooked = edited.next_sentence(PAIRS)
        torch.testing.assert_close(
            edited.merged().next_sentence(PAIRS), hooked, rtol=1e-5, atol=1e-5
        )
    inner = leace(bert, texts(), INNER)
    with pytest.raises(NotMergeableError, match="the erasure at block_out 1"):
        bert.edited(*inner).merged()
    save_edits(inner, tmp_path)
    assert load_edits(tmp_path) == inner


def test_leace_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "concept_erasure", None)
    with pytest.raises(MissingExtraError) as error:
        leace_factors(torch.eye(4, dtype=torch.float64), torch.tensor([0, 1, 0, 1]))
    assert str(error.value) == (
        "LEACE needs packages that are not installed\n  hint: pip install 'levelhead[leace]', "
        "or pip install '.[leace]' in a clone"
    )


def test_sides_with_one_mean_have_nothing_to_erase():
    rows = torch.eye(4, dtype=torch.float64).repeat_interleave(2, dim=0)
    with pytest.raises(
        NotMeasurableError, match="the same mean at the site: there is nothing to erase"
    ):
        leace_factors(rows, torch.arange(8) % 2)


# -- INLP


def planted(gap, *, n=60, width=12, seed=0):
    """Pairs of 20 units with a gap along two directions."""
    rng = np.random.default_rng(seed)
    labels = np.arange(2 * n) % 2
    units = [f"unit {i // 2 % 20}" for i in range(2 * n)]
    rows = rng.normal(size=(2 * n, width))
    rows[labels == 1, 0] += gap
    rows[labels == 1, 1] += gap / 2
    return torch.from_numpy(rows), torch.from_numpy(labels), units


def test_inlp_leaves_no_probe_above_chance_on_held_out_units():
    rows, labels, units = planted(3.0)
    basis = inlp_directions(rows, labels, units, seed=1)
    torch.testing.assert_close(basis @ basis.T, torch.eye(len(basis), dtype=torch.float64))
    names = sorted(set(units))
    train = np.isin(units, np.random.default_rng(1).permutation(names)[:10])
    x, y = rows.numpy(), labels.numpy()

    def p(x):
        """That chance is right as often as a probe of half of the units, on the other half."""
        right = (LogisticRegression().fit(x[train], y[train]).predict(x) == y)[~train]
        return binomtest(int(right.sum()), len(right), alternative="greater").pvalue

    assert p(x) < 1e-6
    assert p(x - (x @ basis.numpy().T) @ basis.numpy()) > 0.05
    assert 1 <= len(basis) <= 6
    assert basis[0, :2].norm() > 0.8  # where the gap was planted


def test_inlp_is_the_same_for_the_same_seed():
    same = [inlp_directions(*planted(3.0), seed=2) for _ in range(2)]
    assert torch.equal(*same)


def test_inlp_refuses_what_it_cannot_do():
    with pytest.raises(
        NotMeasurableError, match=r"no probe reads the label: .* is what chance gives"
    ):
        inlp_directions(*planted(0.0))
    with pytest.raises(NotMeasurableError, match="after 0 rounds at the site a probe still reads"):
        inlp_directions(*planted(3.0), max_rounds=0)
    rows, labels, _ = planted(3.0, n=4)
    with pytest.raises(NotMeasurableError, match="3 units cannot be parted into halves"):
        inlp_directions(rows, labels, ["a", "a", "b", "b", "c", "c", "c", "c"])


def test_inlp_gives_an_edit_of_a_model(bert):
    (edit,) = inlp(bert, texts(), INNER, pooling="word")
    assert edit.sites == (INNER,)
    assert edit.tokens == "all"
    assert edit.weights.unique().tolist() == [1]
    edited = bert.edited(edit)
    spans = [pair.spans[0] for pair in texts()]
    left = edited.read([pair.first for pair in texts()], [INNER], spans=spans)[INNER]
    assert (left.double() @ edit.basis.T).abs().max() < 1e-5


# -- all of them


@pytest.mark.parametrize("baseline", [sentence_debias, leace, inlp])
def test_nothing_and_the_unreadable_are_refused(baseline, bert):
    with pytest.raises(NotMeasurableError, match="there is no pair of texts"):
        baseline(bert, ())
    strange = ContrastPair("x", "gloop is here", "he is here", ((0, 5), (0, 2)), "x")
    with pytest.raises(UnreadableTextError, match="1 of 25 pairs cannot be read") as error:
        baseline(bert, (*texts(), strange))
    assert "drop_unreadable_pairs(lm, pairs)" in error.value.hint
