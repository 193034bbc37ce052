"""Shifts of the width of a site, large enough to show."""

import torch

from levelhead.models.edits.conditional_shift import ConditionalShift
from levelhead.models.edits.shift import Shift


def draw_sample(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shift(lm, site, *, seed=0, **options):
    return Shift(site, draw_sample(lm.layout.site_width(site), seed=seed), **options)


def conditional_shift(lm, site, *, k=3, seed=0, **options):
    """Detectors without a bias: about half of the tokens make each of them fire."""
    width = lm.layout.site_width(site)
    return ConditionalShift(
        site,
        weights=draw_sample(k, width, seed=seed),
        biases=torch.zeros(k),
        vectors=draw_sample(k, width, seed=seed + 1),
        **options,
    )
