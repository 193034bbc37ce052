"""Stability: resampled words against a literal resample, and more pairs are surer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from contrasts import MORE, WORDS, lm, texts

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.mitigate.projection.subspace import activation_differences, fit_subspace
from levelhead.mitigate.projection.subspace_stability import (
    StabilityReport,
    _SubspaceResampler,
    subspace_stability,
)
from levelhead.models.sites import Site

FEW = Inference(resamples=99)

HERE, SENT = Site("block_out", 1), Site("pooled")


def judged(noise, n=60, seed=0, **changes):
    sample = torch.Generator().manual_seed(seed)
    g = torch.nn.functional.normalize(torch.randn(12, generator=sample, dtype=torch.float64), dim=0)
    word = noise * torch.randn(n // 3, 12, generator=sample, dtype=torch.float64)
    rows = g + word.repeat_interleave(3, 0)
    rows = rows + 0.05 * torch.randn(n, 12, generator=sample, dtype=torch.float64)
    units = [f"word {i // 3}" for i in range(n)]
    inference = Inference(seed=1, resamples=99, level=0.9)
    given = {"n_components": 1, "centered": False, "inference": inference} | changes
    return g, _SubspaceResampler(rows, units, **given)


def test_the_range_is_that_of_resampled_words():
    _, single = judged(0.4, n_components=2)
    result = single.at_full_size()
    full = fit_subspace(HERE, single.rows)
    rng = np.random.default_rng(5)
    cosines, angles, shares = [], [], []
    for _ in range(400):
        words = rng.integers(20, size=20)
        items = torch.tensor([3 * word + k for word in words for k in range(3)])
        other = fit_subspace(HERE, single.rows[items])
        cosines.append(float((other.basis[0] @ full.basis[0]).abs()))
        inner = np.linalg.svd((other.basis @ full.basis.T).numpy(), compute_uv=False)
        angles.append(np.degrees(np.arccos(min(inner.min(), 1))))
        shares.append(float(other.explained_variance_ratio[0]))
    assert result["share"].value == pytest.approx(float(full.explained_variance_ratio[0]))
    assert result["cosine"].value == pytest.approx(np.median(cosines), abs=0.01)
    assert result["cosine"].interval.low == pytest.approx(np.quantile(cosines, 0.05), abs=0.03)
    assert result["angle"].value == pytest.approx(np.median(angles), abs=4)
    spread = result["share"].interval.high - result["share"].interval.low
    assert spread == pytest.approx(np.ptp(np.quantile(shares, [0.05, 0.95])), rel=0.4)
    assert "20 words" in result["cosine"].interval.method


def test_more_pairs_are_surer_and_clearer_ones_too():
    _, single = judged(0.4)
    sizes = [single.at_size(size).cosine for size in (5, 20, 100)]
    assert sizes[0].value < sizes[1].value < sizes[2].value
    assert sizes[0].interval.low < sizes[2].interval.low
    clear = judged(0.1)[1].at_full_size()["cosine"]
    assert clear.value > single.at_full_size()["cosine"].value
    assert clear.interval.low > 0.99


def test_the_range_holds_the_planted_direction():
    inside = 0
    for seed in range(20):
        g, single = judged(0.4, seed=seed)
        truth = float((fit_subspace(HERE, single.rows, n_components=1).basis[0] @ g).abs())
        inside += truth >= single.at_full_size()["cosine"].interval.low
    assert inside >= 15  # of 20, at 95% one-sided


def test_a_model_is_judged_at_every_site():
    pairs = texts((*WORDS, *MORE))
    strange = pairs[0]._replace(id="strange", first="zebra was here .", spans=((0, 5), (0, 2)))
    result = subspace_stability(
        lm("bert"), (*pairs, strange), [HERE, SENT], sizes=(5, 10), inference=FEW
    )
    assert [item.site for item in result] == [("block_out", 1, None), ("pooled", 0, None)]
    assert [item.pooling for item in result] == ["mean", "first"]
    single = result[0]
    rows = activation_differences(lm("bert"), pairs, [HERE])[HERE]
    assert single.share.value == pytest.approx(
        float(fit_subspace(HERE, rows).explained_variance_ratio[0]), rel=1e-4
    )
    assert (single.n, single.words, [row.item for row in single.dropped]) == (28, 7, ["strange"])
    assert [size.n_pairs for size in single.by_size] == [5, 10]
    assert StabilityReport.from_json(single.to_json()) == single
    assert (
        subspace_stability(lm("bert"), pairs, [HERE], sizes=(), inference=FEW)[0].cosine
        == single.cosine
    )
    assert single.provenance.settings["sizes"] == (5, 10)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("words", [6, 7])
def test_from_six_words_on_there_is_always_a_value(words, centered):
    """One pair a word: some resamples span one dimension of two, and others do not."""
    for seed in range(8):
        sample = torch.Generator().manual_seed(seed)
        rows = torch.randn(words, 12, generator=sample, dtype=torch.float64) + 1
        units = [f"word {i}" for i in range(words)]
        single = _SubspaceResampler(rows, units, 2, centered, replace(FEW, seed=seed))
        result = single.at_full_size()
        for estimate in (*result.values(), single.at_size(5).cosine, single.at_size(5).share):
            assert np.isfinite(
                [estimate.value, estimate.interval.low, estimate.interval.high]
            ).all()
        assert result["angle"].interval.high <= 90


def test_a_resample_that_lacks_a_dimension_is_at_a_right_angle():
    rows = torch.eye(6, 12, dtype=torch.float64) + 0.1
    single = _SubspaceResampler(rows, [f"word {i}" for i in range(6)], 2, False, FEW)
    basis = single._fit(np.arange(6))[0]
    same = single._compare(np.zeros(6, dtype=np.intp), basis)
    assert (same.angle, same.share) == (90.0, 1.0)
    centred = single._replace(centered=True)
    assert centred._compare(np.zeros(6, dtype=np.intp), basis) == (1.0, 0.0, 90.0)


def test_fewer_than_six_words_are_refused_whatever_the_seed():
    for seed in range(3):
        with pytest.raises(NotMeasurableError, match="4 words cannot be resampled: at least 6"):
            subspace_stability(
                lm("bert"), texts(), [HERE], sizes=(), inference=replace(FEW, seed=seed)
            )


def test_too_few_pairs_are_refused():
    with pytest.raises(LevelheadError, match="1 pairs cannot span 2 dimensions"):
        subspace_stability(lm("bert"), texts(), [HERE], sizes=(1, 5))
