"""Turned directions, against the angle by hand; and what no turn can match."""

import numpy as np
import pytest
import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.mitigate.controls.match_variance import VarianceMatcher
from levelhead.models.edits.base import Projection
from levelhead.models.sites import Site

KEY = Site("key", 2, 1)


def test_directions_are_turned_no_further_than_needed():
    variance = torch.tensor([25.0, 0.5, 1.0, 4.0], dtype=torch.float64)
    x = torch.diag((3.5 * variance).sqrt())
    x = torch.cat([x, -x])  # 8 rows, mean 0, uncorrelated
    edit = Projection(KEY, torch.eye(4)[2:3])

    def placebo(*contrast):
        result = VarianceMatcher.fit(edit, x).make_placebo(
            torch.tensor([contrast] * 5), np.random.default_rng(0)
        )
        assert float((x @ result.basis[0]).var()) == pytest.approx(1.0)
        return result.basis[0].abs().tolist()

    # Away from what varies most: a^2 25 + (1 - a^2) / 2 = 1.
    a = (0.5 / 24.5) ** 0.5
    assert placebo(0.7, 1.0, 0.0, 0.0) == pytest.approx([a, (1 - a * a) ** 0.5, 0, 0])
    # A contrast that is the edit's own direction stays so: then the edit is not the groups'.
    assert placebo(0.0, 0.0, 1.0, 0.0) == pytest.approx([0, 0, 1, 0])
    # Towards one that varies more, the first or the last.
    b = (0.5 / 3.5) ** 0.5
    output = [round(item, 6) for item in placebo(0.0, 1.0, 0.0, 0.0)]
    ways = [[a, (1 - a * a) ** 0.5, 0, 0], [0, (1 - b * b) ** 0.5, 0, b]]
    assert output in [[round(item, 6) for item in way] for way in ways]
    # All of it varies too much: towards one that varies less.
    output = [round(item, 6) for item in placebo(1.0, 0.0, 0.0, 0.0)]
    ways = [[a, (1 - a * a) ** 0.5, 0, 0], [0, 0, 1, 0]]
    assert output in [[round(item, 6) for item in way] for way in ways]


def test_what_cannot_be_matched_is_refused():
    rng = np.random.default_rng(0)
    x = torch.diag(torch.tensor([9.0] + [1.0] * 15)).double()
    x = torch.cat([x, -x])
    top = Projection(KEY, torch.eye(16)[:1])
    differences = torch.from_numpy(rng.normal(size=(5, 16)))
    too_much = VarianceMatcher.fit(top, x)._replace(target_variances=torch.tensor([99.0]))
    with pytest.raises(
        NotMeasurableError, match=r"no other direction at key 2.1 has a variance of 99"
    ):
        too_much.make_placebo(differences, rng)
    with pytest.raises(
        NotMeasurableError, match=r"differences of rank 0 at key 2.1.*: 1 directions"
    ):
        VarianceMatcher.fit(top, x).make_placebo(torch.zeros(5, 16), rng)
    two = Projection(KEY, torch.eye(16)[:2])
    with pytest.raises(NotMeasurableError, match=r"differences of rank 1 at key 2.1: 2 directions"):
        VarianceMatcher.fit(two, x).make_placebo(torch.eye(16)[:1], rng)
    x[:, 0] = 1.0
    with pytest.raises(
        NotMeasurableError, match=r"nothing varies along a direction of the edit at key"
    ):
        VarianceMatcher.fit(top, x)
    with pytest.raises(NotMeasurableError, match="1 activations at key"):
        VarianceMatcher.fit(top, x[:1])
