import threading

import pytest

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference, RunContext


def test_a_context_has_nothing_to_say_unless_it_is_given():
    context = RunContext()
    assert (context.store, context.threads) == (None, 1)
    assert context.progress("anything") is None
    assert not context.cancel.is_set()
    assert context == RunContext()


def test_an_event_cancels():
    stop = threading.Event()
    context = RunContext(cancel=stop)
    assert not context.cancel.is_set()
    stop.set()
    assert context.cancel.is_set()


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_are_at_least_one(threads):
    with pytest.raises(LevelheadError, match=f"{threads} threads"):
        RunContext(threads=threads)


def test_what_cannot_be_inferred_with_is_refused():
    for options in ({"seed": -1}, {"resamples": 98}, {"permutations": 98}, {"level": 1.0}):
        with pytest.raises(LevelheadError, match="at least 99 resamples and permutations"):
            Inference(**options)


def test_every_number_has_chance_of_its_own():
    draws = [
        Inference(seed=seed).rng(*names).integers(1 << 30)
        for seed, names in ((0, ("a", "b")), (0, ("a", "c")), (1, ("a", "b")))
    ]
    assert len(set(draws)) == 3
    assert Inference().rng("a", "b").integers(1 << 30) == draws[0]
