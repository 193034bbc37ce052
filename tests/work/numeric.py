"""Like synthetic.py, for work that needs numpy and torch (which take seconds to import)."""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch


def floats(spec: Mapping[str, object]) -> bytes:
    """Sums and products whose last bits depend on the number of threads."""
    source = torch.Generator().manual_seed(0)
    total = torch.randn(3_000_001, generator=source).sum()
    rng = np.random.default_rng(0)
    product = rng.normal(size=(400, 300)) @ rng.normal(size=(300, 500))
    return total.numpy().tobytes() + hashlib.sha256(product.tobytes()).digest()
