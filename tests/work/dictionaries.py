"""Sparse dictionaries for tests: random ones, and one that holds a planted direction."""

import torch

from levelhead.models.edits.dictionary import Encoder, SparseDictionary
from levelhead.models.sites import Site


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def dictionary(activation="relu", normalization="none", *, site=None, n=12, width=6, k=3):
    encoder = Encoder(
        draw(n, width, seed=1),
        draw(n, seed=2) / 2,
        activation,
        k if activation == "topk" else 0,
        draw(n, seed=3).abs() if activation == "jumprelu" else None,
        normalization,
    )
    return SparseDictionary(
        site or Site("block_out", 0), encoder, draw(n, width, seed=4), draw(width, seed=5)
    )


def planted_dictionary(direction, activations, site, *, n_random=120, seed=0):
    """Both signs of a direction among those of random differences; and their two numbers."""
    generator = torch.Generator().manual_seed(seed)
    unit, mean = direction / direction.norm(), activations.mean(0)
    rest = activations - mean
    rest = rest - (rest @ unit)[:, None] * unit
    first, second = (
        rest[torch.randint(len(rest), (n_random,), generator=generator)] for _ in range(2)
    )
    others = (first - second)[(first - second).norm(dim=1) > 1e-3]
    others = others / others.norm(dim=1, keepdim=True)
    directions = torch.cat([torch.stack([unit, -unit]), others, -others])
    order = torch.randperm(len(directions), generator=generator)
    directions = directions[order]
    planted = [int((order == number).nonzero()) for number in (0, 1)]
    return (
        SparseDictionary(site, Encoder(directions, -directions @ mean), directions, mean),
        planted,
    )
