"""Placebo edits: matched to the real one in all but what they take out."""

import numpy as np
import pytest
import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.mitigate.controls.placebo_edits import (
    make_placebos,
    measure_variance_match,
    within_side_differences,
)
from levelhead.models.edits.base import Projection
from levelhead.models.sites import Site

POOLED, KEY = Site("pooled"), Site("key", 2, 1)
WIDTH = {POOLED: 48, KEY: 16}


def orthonormal(rng, k, width):
    return torch.from_numpy(np.linalg.qr(rng.normal(size=(width, k)))[0].T)


def case(seed=0, dims=(2, 1)):
    """Edits at two sites, three contrasts of 40, 40 and 30 pairs, and uneven activations."""
    rng = np.random.default_rng(seed)
    edits, pools, activations = [], {}, {}
    for (site, width), k in zip(WIDTH.items(), dims, strict=True):
        scale = np.geomspace(5, 0.05, width)
        turn = orthonormal(rng, width, width).numpy()
        activations[site] = torch.from_numpy((rng.normal(size=(400, width)) * scale) @ turn + 1)
        pools[site] = [
            torch.from_numpy((rng.normal(size=(m, width)) * scale) @ turn + rng.normal(size=width))
            for m in (40, 40, 30)
        ]
        weights = None if site == KEY else torch.tensor([0.7, 0.2][:k])
        tokens = "all" if site == KEY else "first"
        basis = orthonormal(rng, k, width)
        edits.append(Projection(site, basis, weights=weights, tokens=tokens))
    return edits, pools, activations


def test_placebos_are_matched_in_site_rank_weights_and_variance():
    edits, pools, activations = case()
    result = make_placebos(edits, pools, activations, n_placebos=30)
    assert len(result) == 30
    for item in result:
        for edit, placebo in zip(edits, item, strict=True):
            assert placebo.site == edit.site
            assert placebo.tokens == edit.tokens
            assert torch.equal(placebo.weights, edit.weights)
            basis = placebo.basis
            assert basis.shape == edit.basis.shape
            gram = torch.eye(len(basis), dtype=torch.float64)
            torch.testing.assert_close(basis @ basis.T, gram, atol=1e-9, rtol=0)
            # What an edit takes out: the variance of x - edit(x), summed over the width.
            x = activations[edit.site]
            out = [(x - item(x, edit.site)).var(dim=0).sum() for item in (edit, placebo)]
            assert float(out[1] / out[0]) == pytest.approx(1, rel=1e-3)
            along = [(x @ item.basis.T).var(dim=0) for item in (edit, placebo)]
            torch.testing.assert_close(along[0], along[1], rtol=1e-3, atol=0)
    variance_match = measure_variance_match(edits, result, activations)
    assert variance_match.n_placebos == 30
    assert variance_match.variance_error <= 1e-3
    assert variance_match.max_cosine < 0.95  # drawn at random, in 16 dimensions
    assert (
        3 < variance_match.effective_placebos <= 16
    )  # there are no more dimensions at one of the sites
    assert measure_variance_match(
        edits, result[:1] * 9, activations
    ).effective_placebos == pytest.approx(1)


def test_placebos_follow_their_pairs_and_their_seed():
    edits, pools, activations = case()
    once, again = (make_placebos(edits, pools, activations, n_placebos=6, seed=3) for _ in range(2))
    assert once == again
    assert once[:2] == make_placebos(edits, pools, activations, n_placebos=2, seed=3)
    other = make_placebos(edits, pools, activations, n_placebos=6, seed=4)
    assert not any(single == two for single, two in zip(once, other, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_shuffled_pairs_have_nothing_of_the_groups(seed):
    rng = np.random.default_rng(seed)
    n, width = 60, 24
    planted = torch.zeros(width, dtype=torch.float64)
    planted[0] = 1.0
    content = torch.from_numpy(rng.normal(size=(n, width)))
    noise = torch.from_numpy(rng.normal(size=(2, n, width)))
    first, second = (
        content + 0.1 * subset + way * 3 * planted
        for subset, way in zip(noise, (1, -1), strict=True)
    )

    def share(differences):
        """How much of the first direction of a subspace is the planted one."""
        return float(torch.linalg.svd(differences).Vh[0] @ planted) ** 2

    assert share(first - second) > 0.99
    # Naive shuffles keep it: of one side against the other, and of all texts whatever their side.
    order = torch.from_numpy(rng.permutation(n))
    assert share(first - second[order]) > 0.9
    both = torch.cat([first, second])[torch.from_numpy(rng.permutation(2 * n))]
    assert share(both[:n] - both[n:]) > 0.9
    # Within a side it cancels, whatever its size.
    result = within_side_differences(first, second, seed=seed)
    assert result.shape == (2 * n, width)
    along = float((result @ planted).var() / result.var(dim=0).mean())
    assert along < 2
    assert share(result) < 0.5
    larger = within_side_differences(first + 50 * planted, second - 50 * planted, seed=seed)
    torch.testing.assert_close(larger, result)
    assert not (result.norm(dim=1) == 0).any()  # no text is paired with itself
    assert torch.equal(result, within_side_differences(first, second, seed=seed))
    assert not torch.equal(result, within_side_differences(first, second, seed=seed + 1))


def test_what_cannot_be_paired_is_refused():
    edits, pools, activations = case()
    single = {site: [pool[:1] for pool in subset[:1]] for site, subset in pools.items()}
    with pytest.raises(
        NotMeasurableError, match=r"differences of rank 1 at pooled.*: 2 directions"
    ):
        make_placebos(edits, single, activations, n_placebos=1)
    none = {site: [torch.zeros_like(pool) for pool in subset] for site, subset in pools.items()}
    with pytest.raises(NotMeasurableError, match="the pairs of a contrast do not differ at all"):
        make_placebos(edits, none, activations, n_placebos=1)
    with pytest.raises(NotMeasurableError, match="1 texts of a side cannot be paired"):
        within_side_differences(activations[KEY][:1], activations[KEY])


def test_what_does_not_fit_is_refused():
    edits, pools, activations = case()
    with pytest.raises(LevelheadError, match="0 placebos of 2 edits"):
        make_placebos(edits, pools, activations, n_placebos=0)
    with pytest.raises(LevelheadError, match=r"no differences at key 2.1"):
        make_placebos(edits, {POOLED: pools[POOLED]}, activations)
    with pytest.raises(LevelheadError, match="no activations at pooled"):
        make_placebos(edits, pools, {KEY: activations[KEY]})
    for wrong in (pools[KEY][:2], [pool[:20] for pool in pools[KEY]], [pools[KEY][0][:0]] * 3, []):
        with pytest.raises(LevelheadError, match="do not hold the same contrasts and pairs"):
            make_placebos(edits, pools | {KEY: wrong}, activations)
    narrow = {site: [item[:, :7] for item in pool] for site, pool in pools.items()}
    with pytest.raises(LevelheadError, match="the edit at pooled is 48 wide"):
        make_placebos(edits, narrow, activations)
    broken = [pool.clone() for pool in pools[KEY]]
    broken[1][3, 3] = float("nan")
    with pytest.raises(NotMeasurableError, match=r"some differences at key 2.1 are not finite"):
        make_placebos(edits, pools | {KEY: broken}, activations)
