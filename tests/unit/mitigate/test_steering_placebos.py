"""Placebos of shifts and erasures: as large, fitted alike, and about nothing."""

import contrasts
import numpy as np
import pytest
import torch
from metric_cases import INFERENCE, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.mitigate.controls.placebo_report import (
    ChosenSetting,
    PlaceboConfig,
    evaluate_with_placebos,
)
from levelhead.mitigate.controls.steering_placebos import (
    make_erasure_placebos,
    make_shift_placebos,
    measure_vector_match,
)
from levelhead.mitigate.projection.baselines import leace, leace_factors
from levelhead.mitigate.projection.edit_points import project
from levelhead.models.edits.conditional_shift import ConditionalShift
from levelhead.models.edits.erasure import Erasure
from levelhead.models.edits.shift import Shift
from levelhead.models.sites import Site

POOLED, INNER = Site("pooled"), Site("block_out", 1)
WIDTH = 16


def draw_sample(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shifts():
    difference = draw_sample(WIDTH, seed=2)
    return (
        Shift(INNER, 3 * draw_sample(WIDTH), strength=-0.5, tokens="first"),
        ConditionalShift(  # mean matching of two groups: opposites, of rank 1
            POOLED,
            weights=draw_sample(2, WIDTH, seed=1),
            biases=draw_sample(2, seed=1),
            vectors=torch.stack([difference, -difference]),
            strength=2,
        ),
        ConditionalShift(
            INNER,
            weights=draw_sample(3, WIDTH, seed=3),
            biases=draw_sample(3, seed=3),
            vectors=draw_sample(3, WIDTH, seed=4),
        ),
    )


def vectors(edit):
    return edit.vector[None] if isinstance(edit, Shift) else edit.vectors


def test_only_the_directions_differ():
    placebo_sets = make_shift_placebos(shifts(), n_placebos=20)
    assert len(placebo_sets) == 20
    for placebos in placebo_sets:
        for edit, placebo in zip(shifts(), placebos, strict=True):
            assert type(placebo) is type(edit)
            assert placebo.site == edit.site
            assert placebo.settings == edit.settings
            real, turned = vectors(edit), vectors(placebo)
            torch.testing.assert_close(turned @ turned.T, real @ real.T)
            if isinstance(edit, ConditionalShift):
                assert torch.equal(placebo.weights, edit.weights)
                assert torch.equal(placebo.biases, edit.biases)
    match = measure_vector_match(shifts(), placebo_sets)
    assert match.n_placebos == 20
    assert match.variance_error < 1e-9
    assert match.max_cosine < 0.95
    assert 8 < match.effective_placebos <= 16
    assert measure_vector_match(shifts(), placebo_sets[:1] * 9).effective_placebos == pytest.approx(
        1
    )


def test_directions_are_uniform():
    """The mean of cos^2 with any direction is 1 / width, and the mean direction is 0."""
    (edit,) = shifts()[:1]
    turned = torch.cat([vectors(item) for (item,) in make_shift_placebos([edit], n_placebos=2000)])
    unit = turned / turned.norm(dim=1, keepdim=True)
    real = edit.vector / edit.vector.norm()
    cosines = unit @ real
    # Of 2000, the standard errors are 1 / sqrt(2000 width) and about 1.4 / (width sqrt(2000)).
    assert abs(float(cosines.mean())) < 4 / (2000 * WIDTH) ** 0.5
    assert abs(float(cosines.square().mean()) - 1 / WIDTH) < 4 * 1.4 / (WIDTH * 2000**0.5)
    assert unit.mean(0).norm() < 2 / 2000**0.5


def test_the_first_placebos_do_not_depend_on_their_number():
    assert (
        make_shift_placebos(shifts(), n_placebos=3)
        == make_shift_placebos(shifts(), n_placebos=5)[:3]
    )
    other = make_shift_placebos(shifts(), n_placebos=3, seed=1)
    assert not set(other) & set(make_shift_placebos(shifts(), n_placebos=3))


def sides(n=40, gap=5.0, seed=0):
    common = draw_sample(n, WIDTH, seed=seed)
    shift = torch.zeros(WIDTH, dtype=torch.float64)
    shift[0] = gap / 2
    noise = [0.1 * draw_sample(n, WIDTH, seed=seed + i) for i in (1, 2)]
    return common + noise[0] + shift, common + noise[1] - shift


def test_an_erasure_of_a_random_label_leaves_the_groups_apart():
    first, second = sides()
    rows = torch.cat([first, second])
    labels = torch.arange(2).repeat_interleave(len(first))
    left, right = leace_factors(rows, labels)
    edit = Erasure(INNER, left=left, right=right, mean=rows.mean(0))

    def gap(erasure):
        after = erasure(first, INNER).mean(0) - erasure(second, INNER).mean(0)
        return float(after.norm() / (first.mean(0) - second.mean(0)).norm())

    assert gap(edit) < 1e-6
    placebo_sets = make_erasure_placebos([edit], {INNER: (first, second)}, n_placebos=20)
    assert np.mean([gap(placebo) for (placebo,) in placebo_sets]) > 0.8
    assert len({placebo for (placebo,) in placebo_sets}) == 20
    for (placebo,) in placebo_sets:
        assert (placebo.site, placebo.tokens, placebo.mean.tolist()) == (
            edit.site,
            edit.tokens,
            edit.mean.tolist(),
        )
    # It removes what it was fitted to: literally, the label of the first placebo.
    order = np.random.default_rng([0, 0]).permutation(len(first))
    label = torch.from_numpy(np.tile(order < len(first) // 2, 2))
    erased = placebo_sets[0][0](rows, INNER)
    assert (erased[label].mean(0) - erased[~label].mean(0)).norm() < 1e-6
    match = measure_vector_match([edit], placebo_sets)
    assert match.variance_error == 0
    assert match.max_cosine < 0.95


@pytest.mark.parametrize("kind", ["shift", "mean matching", "leace", "two layers"])
def test_steering_and_erasures_are_tested_against_their_placebos(kind):
    lm, measure = model("strength"), made("strength")
    pairs = contrasts.texts()
    inner = Site("block_out", lm.layout.layers - 2)
    difference = draw_sample(lm.layout.width)
    match = ConditionalShift(
        inner,
        weights=torch.stack([difference, -difference]),
        biases=torch.zeros(2),
        vectors=torch.stack([-difference, difference]),
    )
    edits = {
        "shift": (Shift(inner, difference),),
        "mean matching": (match,),
        "leace": leace(lm, pairs, inner),
        "two layers": (match, Shift(POOLED, difference)),
    }[kind]
    report = evaluate_with_placebos(
        lm,
        measure,
        ChosenSetting(kind, edits),
        pairs,
        placebos=PlaceboConfig(20, 20),
        inference=INFERENCE,
    )
    assert len(report.placebo_test.placebo_gains) == report.variance_match.n_placebos == 20
    assert len(set(report.placebo_test.placebo_gains)) == 20
    assert report.variance_match.variance_error < 1e-9


def test_what_has_no_placebo_is_refused():
    first, second = sides(3)
    basis = torch.linalg.qr(draw_sample(WIDTH, 2)).Q.T
    one, two = (
        Erasure(INNER, left=basis[:k], right=basis[:k], mean=torch.zeros(WIDTH)) for k in (1, 2)
    )
    with pytest.raises(LevelheadError, match="0 placebos of 3 edits"):
        make_shift_placebos(shifts(), n_placebos=0)
    with pytest.raises(LevelheadError, match="200 placebos of 0 edits"):
        make_shift_placebos([])
    with pytest.raises(NotMeasurableError, match="the vectors at block_out 1 have length 0"):
        make_shift_placebos([Shift(INNER, torch.zeros(WIDTH))])
    with pytest.raises(LevelheadError, match="rank 1"):
        make_erasure_placebos([two], {INNER: (first, second)})
    with pytest.raises(LevelheadError, match="no activations at block_out 1"):
        make_erasure_placebos([one], {POOLED: (first, second)})
    with pytest.raises(NotMeasurableError, match="3 pairs cannot be labelled at random"):
        make_erasure_placebos([one], {INNER: (first, second)})
    lm, measure = model("strength"), made("strength")
    mixed = (*project(lm, "last", contrasts.texts()), Shift(POOLED, draw_sample(lm.layout.width)))
    with pytest.raises(LevelheadError, match="not Projection, Shift"):
        evaluate_with_placebos(
            lm,
            measure,
            ChosenSetting("mixed", mixed),
            contrasts.texts(),
            placebos=PlaceboConfig(20, 20),
            inference=INFERENCE,
        )
