"""Units that need others come after them, and fail with them."""

import threading
import time

import pytest

from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.engine.events import TaskFailed
from levelhead.engine.executors.base import InProcess, TaskResult
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.engine.tasks import Task

RUNNERS = [InProcess(), LocalProcesses(2)]


def unit(i, work="digest", **spec):
    return Task(f"synthetic:{work}", FrozenDict({"i": i, **spec}))


def after(pairs):
    return {single.key: [other.key for other in others] for single, others in pairs}


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_unit_comes_after_those_it_needs(runner):
    slow, free, last = unit(1, seconds=0.5), unit(2), unit(3)
    output = []
    for outcome in runner.run(
        [last, slow, free], cancel=threading.Event(), dependencies=after([(last, [slow, free])])
    ):
        assert isinstance(outcome, TaskResult)
        output.append(outcome.key)
        time.sleep(0.3)  # the listener is slow: what is needed is told before, all the same
    assert output[-1] == last.key
    assert len(output) == 3


@pytest.mark.parametrize("runner", RUNNERS)
def test_what_needs_a_unit_that_failed_fails_and_the_others_go_on(runner):
    bad, child, grandchild, free = unit(1, "refuse"), unit(2), unit(3), unit(4)
    needs = after([(child, [bad]), (grandchild, [child, free])])
    outcomes = list(
        runner.run([grandchild, child, bad, free], cancel=threading.Event(), dependencies=needs)
    )
    assert {outcome.key for outcome in outcomes if isinstance(outcome, TaskFailed)} == {
        item.key for item in (bad, child, grandchild)
    }
    assert TaskFailed(grandchild.key, "a task that it needs failed") in outcomes
    assert [outcome.key for outcome in outcomes if isinstance(outcome, TaskResult)] == [free.key]


@pytest.mark.parametrize("runner", RUNNERS)
def test_units_that_wait_for_each_other_are_an_error(runner):
    single, two = unit(1), unit(2)
    with pytest.raises(LevelheadError, match="2 tasks wait for each other"):
        list(
            runner.run(
                [single, two],
                cancel=threading.Event(),
                dependencies=after([(single, [two]), (two, [single])]),
            )
        )


def test_a_need_that_is_no_unit_of_the_run_is_met():
    outcomes = InProcess().run(
        [unit(1)], cancel=threading.Event(), dependencies={unit(1).key: ["else"]}
    )
    assert [outcome.key for outcome in outcomes] == [unit(1).key]
