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
    lm, measure = model(name), made(name)
    query_set = measure.queries(lm)[0]
    sets = edit_sets(lm)
    for edits, variant in zip(sets, read_all_variants(lm, query_set, sets), strict=True):
        (alone,) = [measure.read(lm.edited(*edits))[0]]
        assert [item.id for item in variant.items] == [item.id for item in alone.items]
        assert variant.dropped == alone.dropped
        torch.testing.assert_close(variant.values, alone.values, rtol=0, atol=1e-5)


def test_what_cannot_act_is_told_apart_from_what_changes_nothing():
    lm, measure = model("seat"), made("seat")
    behind = Projection(
        Site("block_out", lm.layout.layers - 1), direction(lm.layout.width, 0), tokens="first"
    )
    result = read_all_variants(lm, measure.queries(lm)[0], [(), (behind,)])
    assert result[0] is not None
    assert result[1] is None


def test_what_is_stored_is_not_asked_again(tmp_path):
    lm, measure = model("strength"), made("strength")
    query_set, sets, output = measure.queries(lm)[0], edit_sets(lm), []
    first = read_all_variants(
        lm, query_set, sets[:3], context=RunContext(store=str(tmp_path), progress=output.append)
    )
    again = read_all_variants(
        lm, query_set, sets, context=RunContext(store=str(tmp_path), progress=output.append)
    )
    plans = [event for event in output if isinstance(event, TasksPlanned)]
    assert plans[0].n_stored == 0
    assert plans[1].n_stored == plans[0].n_tasks
    done = [event for event in output if isinstance(event, RunFinished)]
    assert done[1].n_computed == plans[1].n_tasks - plans[0].n_tasks
    for single, other in zip(first, again, strict=False):
        assert torch.equal(single.values, other.values)


def test_interrupted_anywhere_it_ends_with_the_same_bits(tmp_path):
    lm, measure = model("strength"), made("strength")
    query_set, sets = measure.queries(lm)[0], edit_sets(lm)
    full = read_all_variants(lm, query_set, sets, context=RunContext(store=str(tmp_path / "whole")))
    for stop in (1, 3):
        cancel, seen = threading.Event(), []

        def output(event, cancel=cancel, seen=seen, stop=stop):
            seen.append(event)
            if len(seen) == stop:
                raise KeyboardInterrupt

        folder = str(tmp_path / str(stop))
        with pytest.raises(KeyboardInterrupt):
            read_all_variants(
                lm, query_set, sets, context=RunContext(store=folder, progress=output)
            )
        again = read_all_variants(lm, query_set, sets, context=RunContext(store=folder))
        assert all(torch.equal(a.values, b.values) for a, b in zip(full, again, strict=True))
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(RunCancelledError):
        read_all_variants(
            lm, query_set, sets, context=RunContext(store=str(tmp_path / "new"), cancel=cancel)
        )


def test_a_failure_is_no_answer(monkeypatch, tmp_path):
    lm, measure = model("strength"), made("strength")
    query_set, sets = measure.queries(lm)[0], edit_sets(lm)
    for error, output in (
        (LevelheadError("not now", hint="wait"), "not now"),
        (ValueError("x"), "x"),
    ):

        def fails(*args, error=error, **kwargs):
            raise error

        monkeypatch.setattr(sweep, "run_edit_sets", fails)
        with pytest.raises(TasksFailedError, match=output):
            read_all_variants(lm, query_set, sets, context=RunContext(store=str(tmp_path)))
