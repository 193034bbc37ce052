import threading

import pytest
import torch
from metric_cases import made, model

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import RunContext
from levelhead.engine.events import RunFinished, TasksPlanned
from levelhead.engine.executors.base import RunCancelledError
from levelhead.engine.scheduler import TasksFailedError
from levelhead.measures import edit_sweep as sweep
from levelhead.measures.edit_sweep import read_all_variants
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.sites import Site


def direction(width, seed):
    generator = torch.Generator().manual_seed(seed)
    given = torch.randn(width, 1, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(given).Q.T.contiguous()


def edit_sets(lm):
    width, last = lm.layout.width, lm.layout.layers - 1
    masks = [(HeadScale([Site("head_out", layer, 0)], 0),) for layer in range(last + 1)]
    inner = Projection(Site("block_out", last - 1), direction(width, 0))
    return [(), *masks, (inner,), (*masks[0], inner)]


@pytest.mark.parametrize("name", ["strength", "seat", "crows_margin", "pppl", "continuation"])
def test_each_model_says_what_it_says_by_itself(name):
    lm, ruler = model(name), made(name)
    asked = ruler.queries(lm)[0]
    sets = edit_sets(lm)
    for edits, found in zip(sets, read_all_variants(lm, asked, sets), strict=True):
        (alone,) = [ruler.read(lm.edited(*edits))[0]]
        assert [item.id for item in found.items] == [item.id for item in alone.items]
        assert found.dropped == alone.dropped
        torch.testing.assert_close(found.values, alone.values, rtol=0, atol=1e-5)


def test_what_cannot_act_is_told_apart_from_what_changes_nothing():
    lm, ruler = model("seat"), made("seat")
    behind = Projection(
        Site("block_out", lm.layout.layers - 1), direction(lm.layout.width, 0), tokens="first"
    )
    found = read_all_variants(lm, ruler.queries(lm)[0], [(), (behind,)])
    assert found[0] is not None
    assert found[1] is None


def test_what_is_stored_is_not_asked_again(tmp_path):
    lm, ruler = model("strength"), made("strength")
    asked, sets, told = ruler.queries(lm)[0], edit_sets(lm), []
    first = read_all_variants(
        lm, asked, sets[:3], context=RunContext(store=str(tmp_path), progress=told.append)
    )
    again = read_all_variants(
        lm, asked, sets, context=RunContext(store=str(tmp_path), progress=told.append)
    )
    plans = [event for event in told if isinstance(event, TasksPlanned)]
    assert plans[0].n_stored == 0
    assert plans[1].n_stored == plans[0].n_tasks
    done = [event for event in told if isinstance(event, RunFinished)]
    assert done[1].n_computed == plans[1].n_tasks - plans[0].n_tasks
    for one, other in zip(first, again, strict=False):
        assert torch.equal(one.values, other.values)


def test_interrupted_anywhere_it_ends_with_the_same_bits(tmp_path):
    lm, ruler = model("strength"), made("strength")
    asked, sets = ruler.queries(lm)[0], edit_sets(lm)
    whole = read_all_variants(lm, asked, sets, context=RunContext(store=str(tmp_path / "whole")))
    for stop in (1, 3):
        cancel, seen = threading.Event(), []

        def told(event, cancel=cancel, seen=seen, stop=stop):
            seen.append(event)
            if len(seen) == stop:
                raise KeyboardInterrupt

        folder = str(tmp_path / str(stop))
        with pytest.raises(KeyboardInterrupt):
            read_all_variants(lm, asked, sets, context=RunContext(store=folder, progress=told))
        again = read_all_variants(lm, asked, sets, context=RunContext(store=folder))
        assert all(torch.equal(a.values, b.values) for a, b in zip(whole, again, strict=True))
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(RunCancelledError):
        read_all_variants(
            lm, asked, sets, context=RunContext(store=str(tmp_path / "new"), cancel=cancel)
        )


def test_a_failure_is_no_answer(monkeypatch, tmp_path):
    lm, ruler = model("strength"), made("strength")
    asked, sets = ruler.queries(lm)[0], edit_sets(lm)
    for error, told in (
        (LevelheadError("not now", hint="wait"), "not now"),
        (ValueError("x"), "x"),
    ):

        def fails(*args, error=error, **kwargs):
            raise error

        monkeypatch.setattr(sweep, "run_edit_sets", fails)
        with pytest.raises(TasksFailedError, match=told):
            read_all_variants(lm, asked, sets, context=RunContext(store=str(tmp_path)))
