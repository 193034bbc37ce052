"""Tasks with heads masked: means over seeds, by hand, and the p-value against random heads."""

import numpy as np
import pytest

from levelhead.core.errors import LevelheadError
from levelhead.measures.utility.glue_task import GlueTask
from levelhead.mitigate.evaluation.gain import PairedResamples
from levelhead.models.sites import Site
from levelhead.replication.yang2025.glue_masking import compute_glue_masking
from levelhead.stats.designs import grouped_design

SETS = {"top 1": (Site("head_out", 0, 1),), "all positive": (Site("head_out", 1, 0),)}


def seed(values, n=60, spread=0.5):
    """The whole classifier, then each masked one, of n items."""
    full = np.array(values, dtype=float)
    noise = spread * np.random.default_rng(0).standard_normal((99, len(values)))
    return PairedResamples(full, full + noise, full[:0], grouped_design(n), 0.95, ("a",))


def masked(*seeds, n_random=2):
    resampled = dict(enumerate(map(seed, seeds)))
    return compute_glue_masking(
        GlueTask(task="rte"), resampled, SETS, mask="after", n_random=n_random
    )


def test_values_are_means_over_seeds_and_random_heads_are_no_sets():
    result = masked((60, 58, 59, 57, 60, 61, 59), (62, 60, 63, 61, 62, 61, 61))
    assert (result.task, result.metric, result.mask, result.seeds) == (
        "rte",
        "accuracy",
        "after",
        (0, 1),
    )
    assert result.heads == {"top 1": ("1-2",), "all positive": ("2-1",)}
    assert result.full == 61
    assert [(row.name, row.value) for row in result.sets] == [("top 1", 59), ("all positive", 61)]
    assert result.sets[0].change.value == pytest.approx(-2)
    assert result.per_seed[1] == {"full": 62, "top 1": 60, "all positive": 63}
    assert result.random == {"top 1": (59, 61), "all positive": (61, 60)}
    # One of two random sets leaves as little as the top head; both leave no more than the other.
    assert result.p("top 1") == pytest.approx(2 / 3)
    assert result.p("all positive") == 1
    # Random heads are a control: with or without them, changes are corrected over the sets alone.
    alone = masked((60, 58, 59), (62, 60, 63), n_random=0)
    assert alone.random == {}
    assert {row.change.p.family for row in alone.sets} == {
        row.change.p.family for row in result.sets
    }


def test_seeds_of_other_items_are_refused():
    with pytest.raises(LevelheadError, match="did not respond to the same items"):
        masked((60, 58, 59), (62, 60, 63, 61, 62, 61, 61), n_random=0)
