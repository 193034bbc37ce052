"""Audits that were made up: a plan, and results of every kind that a report shows."""

from maps import (
    counter_stereotype,
    estimate,
    example_of,
    head_map,
    interval,
    measurement,
    p_value,
    targeted,
)

from levelhead.core.results import Inconclusive, Skill
from levelhead.measures.compare import Comparison
from levelhead.study.audit.audit import Audit
from levelhead.study.audit.budget_shares import Cut
from levelhead.study.audit.suite import LeftOut
from levelhead.study.config import Plan
from levelhead.study.steps.config import Source
from levelhead.study.steps.measurements import Cells

ROLES = (("seat", "bias"), ("crows", "bias"), ("strength", "bias"), ("pppl", "price"))


SKILL = Skill(
    name="prefers sentences to their words shuffled",
    value=90.0,
    interval=interval(90.0, 5.0),
    chance=50.0,
    threshold=65.0,
    n=100,
    unit="%",
)
"""Of a model that can do what measures need: without it, silence is inconclusive."""


def judged(name, value, p, parity=0.0, **changes):
    """A measurement with a test, of a model that has the skill."""
    tested = {"p": p_value(p), "parity": parity, "detectable": 0.3, "unit": "points"}
    return measurement(value, name=name).model_copy(update={**tested, "skill": SKILL, **changes})


def _is_added(name):
    """Whether a measure is one that the budget added, by its name."""
    return name.endswith("-larger") or name == "distance"


def audit(model="a-model", **changes):
    plan = Plan(
        format="levelhead-study-1",
        name="audit",
        about=f"An audit of {model}",
        models={"model": Source(path=model)},
        measures={name: name for name, _ in ROLES},
        cells={"audit": Cells(models=("model",), measures=tuple(name for name, _ in ROLES))},
    )
    told = {
        "request": "ab" * 32,
        "budget": 30.0,
        "about": f"{model}: BertForPreTraining, 6 layers x 12 heads; masked",
        "plan": plan,
        "roles": ROLES,
        "core": tuple(name for name, _ in changes.get("roles", ROLES) if not _is_added(name)),
        "left_out": (LeftOut(what="ppl", why="it is no causal model"),),
        "cut": (Cut(what="crows", whole=1508, asked=377),),
        "expected": 21.5,
    }
    return Audit(**(told | changes))


def results(model="a-model", **more):
    """One result of every kind."""
    price = measurement(20.0, name="pppl").model_copy(update={"parity": None})
    return {
        "cell.audit.model.seat": judged("seat", 1.2, 0.001),
        "cell.audit.model.crows": judged("crows", 0.1, 0.4),
        "cell.audit.model.strength": Inconclusive(what="no item could be read", mend="other data"),
        "cell.audit.model.pppl": price,
        "map.heads": head_map(model=model),
        "masking.heads": targeted(),
        "explain.heads": counter_stereotype(),
        "example.heads": example_of(),
        **more,
    }


def comparison(name="seat", difference=-0.4, p=0.01):
    first, second = judged(name, 1.2, 0.001), judged(name, 1.2 + difference, 0.01)
    return Comparison(
        measure=name,
        first=first,
        second=second,
        difference=estimate(f"difference of {name}", difference, p=p),
        verdict="lower",
    )
