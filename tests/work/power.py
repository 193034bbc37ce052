"""Simulated power at the printed minimum detectable effect, and coverage of effects' intervals.

Every world has a known truth. Power is counted at a fixed effect: the mean of what is printed in
pilot data sets, for the printed number is itself estimated.
"""

import numpy as np
import torch

from levelhead.core.results import Estimate, Precision
from levelhead.core.run_context import Inference
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.inference import estimate, estimate_signed_part, holm_corrected
from levelhead.measures.metric import Metric
from levelhead.measures.next_sentence.distance import Distance
from levelhead.measures.next_sentence.strength import Strength
from levelhead.measures.reductions import mean
from levelhead.stats.designs import clustered_design, grouped_design
from levelhead.stats.means import t_test
from levelhead.stats.paired_effects import PairedEffects
from levelhead.stats.power import holm_detectable_effect

# -- power


def _heads(rng, heads, effect, *, words=84, draws=499):
    """Ablation effects of correlated heads on a mean over words; the first alone has one."""
    shared = rng.normal(size=(words, 1))
    values = np.sqrt(0.2) * shared + np.sqrt(0.8) * rng.normal(size=(words, heads))
    values[:, 0] += effect
    times = rng.multinomial(words, np.full(words, 1 / words), size=draws)
    sample = times @ values / words
    made = PairedEffects(values.mean(0), sample, sample[:, 0], grouped_design(words), 0.95)
    first = made.to_estimates([f"head {i}" for i in range(heads)])[0]
    return first.p.adjusted <= 0.05, first.detectable


def _measures(rng, count, effect, *, items=60):
    """Holm's family of t-tests on skewed items; the first alone departs from parity."""
    rows = []
    for i in range(count):
        values = rng.gamma(4.0, size=items) / 2 - 2 + (effect if i == 0 else 0.0)
        test = t_test(values)
        precision = Precision(standard_error=float(values.std(ddof=1)) / items**0.5, df=items - 1)
        rows.append(
            Estimate(
                name=f"m{i}",
                value=test.mean,
                interval=test.interval,
                parity=0.0,
                p=test.p,
                n=items,
                detectable=holm_detectable_effect(precision),
                precision=precision,
            )
        )
    first = holm_corrected(rows)[0]
    p = first.p.value if first.p.adjusted is None else first.p.adjusted
    return p <= 0.05, first.detectable


FLIP = Metric(
    name="mean of pairs",
    equation="the mean",
    per_item_values=lambda readouts: readouts.values,
    aggregate=mean,
    unit="points",
    low=-float("inf"),
    high=float("inf"),
    direction="larger: more",
    comparability_key="mean of pairs",
    null="sign_flip",
    method="expanded",
)


def _flips(rng, effect, *, items=60, aspect=FLIP):
    """One sign-flip test, as of twins."""
    values = torch.as_tensor(rng.normal(size=items) + effect)
    inference = Inference(seed=int(rng.integers(2**31)), resamples=199, permutations=499)
    result = estimate(inference, aspect, values, grouped_design(items))
    return result.p.value <= 0.05, result.detectable


def _lean(rng, effect, *, items=234):
    """Strength's test: a sign flip of the lean of the top tenth."""
    return _flips(rng, effect, items=items, aspect=Strength(scale="logit").primary_metric)


def _deals(rng, effect, *, words=16):
    """SEAT's test: words dealt to two lists anew; the effect in deviations of both together."""
    # In within-list deviations: delta = d / sqrt(1 - d^2 / 4).
    delta = effect / np.sqrt(max(1 - effect**2 / 4, 1e-6))
    values = torch.as_tensor(rng.normal(size=2 * words))
    values[:words] += delta
    inference = Inference(seed=int(rng.integers(2**31)), resamples=99, permutations=299)
    seat = _seat()
    result = estimate(inference, seat, values, grouped_design(words, words))
    return result.p.value <= 0.05, result.detectable


def _seat():
    from dataclasses import replace

    from levelhead.measures.embedding.seat import Seat

    head = Seat(weat_test="weat6").primary_metric
    return replace(head, closed_form_interval=_by_lists)


def _by_lists(values, design, level):
    from levelhead.measures.metric import short_list_interval

    first, second = design.full_sample.groups
    return short_list_interval(values[first], values[second], values, level)


POWER = {
    "single t-test": lambda rng, effect: _measures(rng, 1, effect),
    "single sign flip, 60 pairs": _flips,
    "lean of the top tenth, 234 pairs": _lean,
    "SEAT, 16 + 16 words dealt anew": _deals,
    "nine measures, Holm": lambda rng, effect: _measures(rng, 9, effect),
    "25 heads, Romano-Wolf": lambda rng, effect: _heads(rng, 25, effect),
    "72 heads, Romano-Wolf": lambda rng, effect: _heads(rng, 72, effect),
    "144 heads, Romano-Wolf": lambda rng, effect: _heads(rng, 144, effect),
}


def power(name, times, *, pilots=60, seed=0):
    """How often the effect is found that is printed as detectable, and that effect."""
    rng = np.random.default_rng([seed, *name.encode()])
    world = POWER[name]
    printed = float(np.mean([world(rng, 0.0)[1] for _ in range(pilots)]))
    return float(np.mean([world(rng, printed)[0] for _ in range(times)])), printed


# -- coverage

_sizes = np.random.default_rng(5).multinomial(194, np.random.default_rng(6).dirichlet(np.ones(40)))
TERMS = np.repeat(np.arange(40), _sizes + 1)
"""234 items on 40 terms of unequal size, as of the gender-swapped StereoSet."""
DESIGN = clustered_design(TERMS.tolist(), name="terms")


def _of_terms(rng, rows, scale):
    """`[rows, items]`: what the items of one term share."""
    return scale * rng.normal(size=(rows, 40))[:, TERMS]


def _rare(rng, rows, rate):
    """`[rows, items]`: the few items that are very large, more of some terms than of others."""
    subset = rng.beta(0.5, 0.5 * (1 / rate - 1), size=(rows, 40))[:, TERMS]
    return rng.random((rows, TERMS.size)) < subset


def _s_normal(rng, rows):
    noise = _of_terms(rng, rows, np.sqrt(0.2)) + np.sqrt(0.8) * rng.normal(size=(rows, TERMS.size))
    return 0.3 + noise


def _s_skewed(rng, rows):
    """Most s near zero; a few very large, most of them to the anti-stereotype's side."""
    shape = (rows, TERMS.size)
    way = np.where(rng.random(shape) < 0.85, -1, 1)
    small = 0.01 * rng.standard_t(3, size=shape)
    return np.where(_rare(rng, rows, 0.06), way * rng.uniform(0.3, 1.9, size=shape), small)


def _saturated(rng, rows, shifts):
    """`[rows, items, k]` probabilities near 0 and 1."""
    p = rng.beta(0.15 + np.array(shifts), 0.15, size=(rows, TERMS.size, len(shifts)))
    p = np.clip(p, 1e-9, 1 - 1e-9)
    odds = np.log(p / (1 - p)) + _of_terms(rng, rows, 0.5)[..., None] * np.resize(
        [1, -1, -1, 1], p.shape[2]
    )
    return 1 / (1 + np.exp(-odds))


def _s_saturated(rng, rows):
    p = _saturated(rng, rows, (0.1, 0, 0, 0))
    return p[..., 0] - p[..., 1] - p[..., 2] + p[..., 3]


def _d_normal(rng, rows):
    """Distances of contexts and of their placebo twins."""
    shape = (rows, TERMS.size)
    both = [
        scale * np.abs(_of_terms(rng, rows, 0.5) + rng.normal(size=shape)) for scale in (0.15, 0.1)
    ]
    return np.minimum(np.stack(both, -1), 1)


def _d_skewed(rng, rows):
    shape = (rows, TERMS.size)
    both = []
    for rate in (0.06, 0.03):
        small = np.abs(0.005 * rng.standard_t(3, size=shape))
        both.append(np.where(_rare(rng, rows, rate), rng.uniform(0.2, 1, size=shape), small))
    return np.minimum(np.stack(both, -1), 1)


def _d_saturated(rng, rows):
    p = _saturated(rng, rows, (0, 0.1, 0))
    return np.stack([np.abs(p[..., 0] - p[..., 1]), np.abs(p[..., 0] - p[..., 2])], -1)


def _flipped(shape):
    """Decisions that flip with the group, and with the placebo: whether |dp| is more than half."""
    return lambda rng, rows: (shape(rng, rows) > 0.5).astype(float)


def _lean_of(values):
    top = round(0.1 * values.shape[-1])
    subset = np.sort(values, -1)
    return (subset[..., -top:].mean(-1) + subset[..., :top].mean(-1)) / 2


def _excess_of(values):
    top = round(0.1 * values.shape[-2])
    subset = np.sort(values, -2)[..., -top:, :].mean(-2)
    return subset[..., 0] - subset[..., 1]


def _gap_of(values):
    return (values[..., 0] - values[..., 1]).mean(-1)


def _aspect_of_distance():
    from simulated import follows

    pair = [follows(np.random.default_rng(0).normal(size=(60, 2))) for _ in range(2)]
    return Distance(()).test_inputs(pair).metric


def _aspect_of_flips(headline):
    from simulated import read

    p = torch.rand(30, 2, 2, generator=torch.manual_seed(0), dtype=torch.float64)
    pair = [read((p / p.sum(-1, keepdim=True)).log()) for _ in range(2)]
    counterfactual = Counterfactual(metric=headline)
    return counterfactual.test_inputs(pair).metric


def _by_lean(inference, values):
    return estimate_signed_part(
        inference, Strength(scale="logit").primary_metric, torch.as_tensor(values), DESIGN
    ).interval


def _by_aspect(aspect):
    made = []

    def interval(inference, values):
        made or made.append(aspect())
        return estimate(inference, made[0], torch.as_tensor(values), DESIGN, test=False).interval

    return interval


_SHAPES = {"normal": _d_normal, "skewed": _d_skewed, "saturated": _d_saturated}
COVERAGE = {
    **{
        f"strength, {name}": (world, _lean_of, _by_lean)
        for name, world in (
            ("normal", _s_normal),
            ("skewed", _s_skewed),
            ("saturated", _s_saturated),
        )
    },
    **{
        f"distance, {name}": (world, _excess_of, _by_aspect(_aspect_of_distance))
        for name, world in _SHAPES.items()
    },
    **{
        f"counterfactual_shift, {name}": (
            world,
            _gap_of,
            _by_aspect(lambda: _aspect_of_flips("counterfactual_shift")),
        )
        for name, world in _SHAPES.items()
    },
    **{
        f"counterfactual, {name}": (
            lambda rng, rows, world=world: _flipped(world)(rng, rows),
            lambda values: 100 * _gap_of(values),
            _by_aspect(lambda: _aspect_of_flips("counterfactual")),
        )
        for name, world in _SHAPES.items()
        if name != "normal"  # a normal |dp| is hardly ever more than half
    },
}
"""World, truth of very many items, and the interval that the library makes."""


def coverage(name, times, *, draws=299, seed=0):
    """How often the interval of the effect holds the truth."""
    world, statistic, interval = COVERAGE[name]
    rng = np.random.default_rng([seed, *name.encode()])
    # The population's: one very large sample, for the mean of small top shares is biased.
    many = world(rng, 4000)
    truth = float(statistic(many.reshape(1, -1, *many.shape[2:]))[0])
    inside = 0
    for values in world(rng, times):
        inference = Inference(seed=int(rng.integers(2**31)), resamples=draws, permutations=99)
        low, high = (lambda subset: (subset.low, subset.high))(interval(inference, values))
        inside += low <= truth <= high
    return inside / times, truth
