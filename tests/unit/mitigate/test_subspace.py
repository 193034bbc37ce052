"""Subspaces against a literal decomposition, a planted direction, and plain reads."""

import numpy as np
import pytest
import torch
from contrasts import lm, texts
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs_digest
from levelhead.mitigate.projection.subspace import (
    activation_differences,
    default_pooling,
    drop_unreadable_pairs,
    fit_site_subspaces,
    fit_subspace,
    principal_directions,
)
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.sites import Site

HERE = Site("block_out", 1)
WIDTH = 16


def planted(seed, n=100):
    """One-sided differences along g, with noise: women's text less men's, always."""
    sample = torch.Generator().manual_seed(seed)
    g = torch.randn(WIDTH, generator=sample, dtype=torch.float64)
    g = g / g.norm()
    return g, 2 * g + 0.6 * torch.randn(n, WIDTH, generator=sample, dtype=torch.float64)


def test_the_planted_direction_is_found_and_centring_loses_it():
    cosines = {False: [], True: []}
    for seed in range(20):
        g, rows = planted(seed)
        for centered, cosine in cosines.items():
            cosine.append(float((fit_subspace(HERE, rows, centered=centered).basis[0] @ g).abs()))
    assert min(cosines[False]) > 0.98
    assert np.mean(cosines[True]) < 0.35


def test_the_shares_are_those_of_both_signs_together():
    _, rows = planted(0)
    result = fit_subspace(HERE, rows, n_components=3)
    both = torch.cat([rows / 2, -rows / 2]).numpy()
    values, vectors = np.linalg.eigh(np.cov(both.T))
    order = np.argsort(values)[::-1]
    assert result.explained_variance_ratio.numpy() == pytest.approx(
        values[order][:3] / values.sum()
    )
    for i, direction in enumerate(result.basis.numpy()):
        assert abs(direction @ vectors[:, order[i]]) == pytest.approx(1)
        assert direction[np.abs(direction).argmax()] > 0
    centred = fit_subspace(HERE, rows, n_components=2, centered=True)
    values, vectors = np.linalg.eigh(np.cov(rows.numpy().T))
    assert centred.explained_variance_ratio.numpy() == pytest.approx(
        values[::-1][:2] / values.sum()
    )
    assert abs(centred.basis[0].numpy() @ vectors[:, -1]) == pytest.approx(1)


@given(st.integers(0, 2**16), st.integers(1, 4))
def test_projections_of_a_fit_keep_the_theorems(seed, dims):
    _, rows = planted(seed, 12)
    result = fit_subspace(HERE, rows, n_components=4)
    torch.testing.assert_close(result.basis @ result.basis.T, torch.eye(4, dtype=torch.float64))
    assert 0 < float(result.explained_variance_ratio.sum()) <= 1 + 1e-12
    x, y = planted(seed + 1, 5)[1], planted(seed + 2, 5)[1]
    hard = result.to_projection(weighted=False, n_components=dims)
    soft = result.to_projection(weighted=True, n_components=dims)
    once = hard(x, HERE)
    torch.testing.assert_close(hard(once, HERE), once)
    assert float((once @ result.basis[:dims].T).abs().max()) < 1e-12
    for edit in (hard, soft):
        torch.testing.assert_close((edit(x, HERE) * y).sum(), (x * edit(y, HERE)).sum())
    left = soft(x, HERE) @ result.basis[:dims].T
    torch.testing.assert_close(
        left, (1 - result.explained_variance_ratio[:dims]) * (x @ result.basis[:dims].T)
    )


def test_a_share_of_one_is_hard():
    rows = torch.outer(torch.tensor([1.0, 2, -3]), torch.tensor([0.6, 0, 0.8]))
    result = fit_subspace(HERE, rows, n_components=1)
    assert float(result.explained_variance_ratio[0]) == pytest.approx(1)
    x = planted(1)[1][:, :3]
    soft, hard = (
        result.to_projection(weighted=item, n_components=1)(x, HERE) for item in (True, False)
    )
    torch.testing.assert_close(soft, hard)


def test_the_sign_of_the_pairs_does_not_matter():
    _, rows = planted(3)
    signs = torch.tensor([1.0, -1.0]).repeat(50)[:, None]
    single, other = fit_subspace(HERE, rows), fit_subspace(HERE, rows * signs)
    torch.testing.assert_close(single.basis, other.basis)
    torch.testing.assert_close(single.explained_variance_ratio, other.explained_variance_ratio)


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(
        NotMeasurableError, match="1 differences at block_out 1 span 1 dimensions, 2"
    ):
        fit_subspace(HERE, torch.ones(1, 4))
    with pytest.raises(NotMeasurableError, match="span 0 dimensions, 1 are wanted"):
        fit_subspace(HERE, torch.zeros(5, 4), n_components=1)
    with pytest.raises(NotMeasurableError, match="span 0 dimensions"):
        fit_subspace(HERE, torch.zeros(0, 4), n_components=1)
    with pytest.raises(LevelheadError, match="or not finite"):
        fit_subspace(HERE, torch.full((3, 4), torch.nan))
    with pytest.raises(LevelheadError, match="0 dimensions"):
        principal_directions(torch.ones(3, 4), 0)
    result = fit_subspace(HERE, planted(0)[1])
    with pytest.raises(LevelheadError, match="3 dimensions of a subspace that was fitted with 2"):
        result.to_projection(weighted=True, n_components=3)


def test_differences_are_those_of_plain_reads():
    bert, pairs = lm("bert"), texts()
    sites = [HERE, Site("pooled"), Site("block_out", 2), Site("key", 1, 3)]
    first, second = ([pair[i] for pair in pairs] for i in (1, 2))
    spans = [[pair.spans[i] for pair in pairs] for i in (0, 1)]
    subset = activation_differences(bert, pairs, sites)
    assert list(subset) == sites
    for at in ("first", "mean", "last"):
        result = activation_differences(bert, pairs, sites, pooling=at)
        for site in sites:
            a, b = (bert.read(side, [site], pooling=at)[site] for side in (first, second))
            torch.testing.assert_close(result[site].float(), a - b, atol=1e-5, rtol=0)
            if default_pooling(bert, site) == at:
                torch.testing.assert_close(result[site], subset[site], atol=1e-5, rtol=0)
    result = activation_differences(bert, pairs, sites, pooling="word")
    a, b = (
        bert.read(side, [HERE], spans=span)[HERE]
        for side, span in zip((first, second), spans, strict=True)
    )
    torch.testing.assert_close(result[HERE].float(), a - b, atol=1e-5, rtol=0)
    defaults = [default_pooling(bert, site) for site in sites]
    assert defaults == ["mean", "first", "first", "mean"]
    assert default_pooling(lm("gpt2"), Site("block_out", 2)) == "mean"


def test_all_sites_are_read_in_one_pass():
    bert, pairs = lm("bert"), texts()
    done = []
    sites = [Site("pooled"), Site("block_out", 2), HERE, Site("key", 1, 0), Site("value", 1, 1)]
    fit_site_subspaces(bert.with_progress(lambda at, total: done.append((at, total))), pairs, sites)
    assert done[-1] == (2 * len(pairs), 2 * len(pairs))
    assert {total for _, total in done} == {2 * len(pairs)}
    assert [at for at, _ in done] == sorted({at for at, _ in done})  # the texts once, not twice


def test_a_fit_says_what_it_is_made_of():
    pairs = texts()
    strange = pairs[0]._replace(id="strange", first="zebra was here .", spans=((0, 5), (0, 2)))
    result = fit_site_subspaces(
        lm("bert"),
        (*pairs, strange),
        [HERE, Site("pooled")],
        n_components={HERE: 2, Site("pooled"): 1},
    )
    single = result[HERE]
    assert (single.n_pairs, single.pooling, single.centered, single.site) == (
        len(pairs),
        "mean",
        False,
        HERE,
    )
    assert single.source == contrast_pairs_digest(pairs)
    assert [row.item for row in single.dropped] == ["strange"]
    assert "vocabulary lacks 'zebra'" in single.dropped[0].reason
    assert [len(result[site].basis) for site in (HERE, Site("pooled"))] == [2, 1]
    assert drop_unreadable_pairs(lm("bert"), (strange,))[0] == ()
    with pytest.raises(UnreadableTextError, match=r"1 of 17 pairs cannot be read: .*zebra"):
        activation_differences(lm("bert"), (*pairs, strange), [HERE])
    with pytest.raises(NotMeasurableError, match=r"the model can read no pair: .*zebra"):
        fit_site_subspaces(lm("bert"), [strange], [HERE])
    with pytest.raises(NotMeasurableError, match="there is no pair of texts"):
        activation_differences(lm("bert"), [], [HERE])
    with pytest.raises(LevelheadError, match="there is no site to read"):
        activation_differences(lm("bert"), pairs, [])
    with pytest.raises(UnknownNameError, match="there is no place to read named 'begin'"):
        activation_differences(lm("bert"), pairs, [HERE], pooling="begin")


def test_a_causal_model_read_before_the_word_has_no_difference():
    with pytest.raises(NotMeasurableError, match="before the word, in a causal model"):
        fit_site_subspaces(lm("gpt2"), texts(), [HERE], pooling="first")
