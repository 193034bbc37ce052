"""SEAT on the sentence embeddings of BERT-base that Liang et al. 2020 released (MIT)."""

import numpy as np
import pytest
import torch
from assets import asset

from levelhead.measures.embedding.seat import seat_effect_size

# Their Table 2's BERT row to five places, and the same after their projection; ddof 1.
EFFECTS = {
    "6": (0.47678, 0.55853),
    "6b": (0.10800, -0.28355),
    "7": (0.25251, 0.26643),
    "7b": (0.25381, 0.31057),
    "8": (0.39882, 0.42223),
    "8b": (0.63638, 0.65582),
}


@pytest.mark.parametrize("test", EFFECTS)
@pytest.mark.parametrize("debiased", [False, True])
def test_effect_sizes(test, debiased):
    path = asset("data", "seat-golden", f"{'debiased_' * debiased}sent_encs{test}.npz")
    with np.load(path) as result:
        vectors = [torch.from_numpy(result[key]) for key in ("targ1", "targ2", "attr1", "attr2")]
    assert seat_effect_size(*vectors) == pytest.approx(EFFECTS[test][debiased], abs=5e-6)
