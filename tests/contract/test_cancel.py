"""Whatever asks a model stops when its context says so, and computes nothing more."""

import threading

import pytest
from metric_cases import INFERENCE, made, model

from levelhead.core.run_context import RunContext
from levelhead.engine.executors.base import RunCancelledError
from levelhead.explain.prompting.knowledge import knowledge
from levelhead.locate.score_heads import locate
from levelhead.measures.robustness.multiverse import multiverse
from levelhead.measures.run import compare, run_measures
from levelhead.measures.skills import checks
from levelhead.measures.skills.checks import SkillCheck, check_skill
from levelhead.mitigate.evaluation.bias_reduction import estimate_bias_reduction
from levelhead.mitigate.evaluation.sweep import read_variant_responses
from levelhead.mitigate.selection.candidates import mask_candidates
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.http_model import HttpModel
from levelhead.models.sites import Site

EDIT = HeadScale([Site("head_out", 0, 1)], 0)
CALLS = {
    "read": lambda lm, single, context: single.read(lm, context=context),
    "measure": lambda lm, single, context: single(lm, inference=INFERENCE, context=context),
    "skill": lambda lm, single, context: single.assess_skill(lm, context=context),
    "run": lambda lm, single, context: run_measures(
        lm, [single], inference=INFERENCE, context=context
    ),
    "compare": lambda lm, single, context: compare(single, lm, lm.edited(EDIT), context=context),
    "multiverse": lambda lm, single, context: multiverse(lm, single, context=context),
    "locate": lambda lm, single, context: locate(lm, single, inference=INFERENCE, context=context),
    "masks": lambda lm, single, context: mask_candidates(lm, single, context=context),
    "gain_by": lambda lm, single, context: estimate_bias_reduction(
        single, lm, [EDIT], context=context
    ),
    "said": lambda lm, single, context: read_variant_responses(
        lm, single, {"edit": (EDIT,)}, context=context
    ),
    "knowledge": lambda lm, single, context: knowledge(
        lm, made("cloze"), with_factorial=False, context=context
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_cancelled_context_stops_every_call(name, monkeypatch):
    measure = "cloze" if name == "knowledge" else "crows_margin"
    lm, stop, events = model(measure), threading.Event(), []
    stop.set()
    monkeypatch.setattr(type(lm), "run_rows", None)  # asking the model would fail otherwise
    with pytest.raises(RunCancelledError):
        CALLS[name](lm, made(measure), RunContext(progress=events.append, cancel=stop))
    assert events == []


def test_a_skill_check_that_is_cancelled_is_no_missing_skill(monkeypatch):
    """What a server cannot answer counts as unchecked; being stopped does not."""

    def stopped(*args, **options):
        raise RunCancelledError

    monkeypatch.setattr(checks, "read_responses", stopped)
    check = SkillCheck("any", lambda readouts: readouts, query_set="something")
    with pytest.raises(RunCancelledError):
        check_skill(HttpModel("http://127.0.0.1:1"), check, None)
