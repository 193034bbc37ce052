"""Vectors of words in two groups, with what tells the groups planted by plan: before and after.

A word and its twin share a part of their vector; each has a part of its own. An edit is made up as
what it leaves: nothing of the group, all of it elsewhere, or all of it where it was.
"""

from typing import NamedTuple

import numpy as np

from levelhead.mitigate.probing.probes import label_vectors
from levelhead.stats.means import t_test

RIGHT = {
    "erased": "removed",
    "rotated": "hidden",
    "product": "hidden",
    "radius": "hidden",
    "untouched": "unclear",
}
"""What the verdict is to be."""


class Case(NamedTuple):
    kind: str
    words: int
    width: int
    strength: float
    """Distance of the groups, in deviations of single words."""
    twins: float
    """Share of a word's variance that its twin has, too."""
    turn: float
    """By how many degrees the direction is turned, at the least 60."""
    seed: int
    frames: int = 1


class Planted(NamedTuple):
    before: object
    after: object
    is_bias_reduced: bool
    """Whether the gap along the direction of before is shown to have fallen."""


def draw_case(seed, count):
    """Cases whose parameters nobody chose: every kind of edit in turn."""
    rng = np.random.default_rng(seed)
    kinds = list(RIGHT)
    return [
        Case(
            kind=kinds[i % len(kinds)],
            words=int(rng.integers(800, 1201)),
            width=int(rng.integers(6, 41)),
            strength=float(rng.uniform(1.5, 3)),
            twins=float(rng.uniform(0, 0.8)),
            turn=float(rng.uniform(60, 120)),
            seed=int(rng.integers(2**31)),
        )
        for i in range(count)
    ]


def planted(case):
    rng = np.random.default_rng(case.seed)
    shape = (case.words, 2, case.frames, case.width)
    shared = rng.standard_normal((case.words, 1, 1, case.width)) * case.twins**0.5
    subset = rng.standard_normal((case.words, 2, 1, case.width)) * (1 - case.twins) ** 0.5
    rest = np.broadcast_to(shared + subset, shape) + 0.3 * rng.standard_normal(shape)
    turned = np.linalg.qr(rng.standard_normal((case.width, 3)))[0].T
    side = np.array([1.0, -1.0]).reshape(1, 2, 1, 1)
    before = rest + side * case.strength / 2 * turned[0]
    after = _after(case, rest, before, side, turned, rng)
    gaps = [(item[:, 0] - item[:, 1]).mean(1) @ turned[0] for item in (before, after)]
    fell = case.kind != "untouched" and t_test(gaps[0] - np.abs(gaps[1])).interval.low > 0
    labels = np.broadcast_to(side[..., 0] > 0, shape[:3]).ravel().tolist()
    units = np.repeat(np.arange(case.words), 2 * case.frames).tolist()
    contexts = np.tile(np.arange(case.frames), 2 * case.words).tolist()
    result = [
        label_vectors(item.reshape(-1, case.width), labels, units, contexts=contexts)
        for item in (before, after)
    ]
    return Planted(*result, bool(fell))


def _after(case, rest, before, side, turned, rng):
    if case.kind == "untouched":
        return before
    if case.kind == "erased":
        return rest
    if case.kind == "rotated":
        angle = np.radians(case.turn)
        to = np.cos(angle) * turned[0] + np.sin(angle) * turned[1]
        return rest + side * case.strength / 2 * to
    if case.kind == "radius":
        # Nothing in the mean: the first group's words lie farther out along two directions.
        wide = case.strength * rng.standard_normal((case.words, 2, 1, 2)) * (side > 0)
        return rest + wide @ turned[1:]
    # The sign of a product: neither of two coordinates tells anything alone.
    coin = rng.choice([-1.0, 1.0], (case.words, 2, 1, 1))
    return rest + case.strength * coin * (turned[1] + side * turned[2])
