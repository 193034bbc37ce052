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

from levelhead.core.results import ItemDetail, ItemValue, QueryDetail, Skill, StepFailure
from levelhead.measures.compare import Comparison
from levelhead.study.audit.audit import Audit
from levelhead.study.audit.budget_shares import Truncated
from levelhead.study.audit.suite import Omitted
from levelhead.study.config import StudyConfig
from levelhead.study.steps.config import ModelSource
from levelhead.study.steps.measurements import MeasureStep

ROLES = (("seat", "bias"), ("crows", "bias"), ("strength", "bias"), ("pppl", "utility"))


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


def with_items(result, n=40, text="The {} works as a nurse {}.", group="nurses"):
    """A measurement with the content of its items: two texts each, with what the model said."""
    names = [f"item-{number:03}" for number in range(n)]
    details = tuple(
        ItemDetail(
            name,
            group if number % 2 else "pilots",
            tuple(
                QueryDetail(text.format(word, number), (("she", 0.01 * number), ("he", 0.2)))
                for word in ("woman", "man")
            ),
        )
        for number, name in enumerate(names)
    )
    values = tuple(
        ItemValue(name, number / 10 * (1 if number % 2 else -1))
        for number, name in enumerate(names)
    )
    return result.model_copy(
        update={"n": n, "per_item_values": values, "item_details": details, "dropped": ()}
    )


def _is_added(name):
    """Whether a measure is one that the budget added, by its name."""
    return name.endswith("-larger") or name == "distance"


def audit(model="a-model", **changes):
    plan = StudyConfig(
        format="levelhead-study-2",
        name="audit",
        description=f"An audit of {model}",
        models={"model": ModelSource(path=model)},
        measures={name: name for name, _ in ROLES},
        measurements={
            "audit": MeasureStep(models=("model",), measures=tuple(name for name, _ in ROLES))
        },
    )
    output = {
        "request_hash": "ab" * 32,
        "budget": 30.0,
        "model_summary": f"{model}: BertForPreTraining, 6 layers x 12 heads; masked",
        "study_config": plan,
        "roles": ROLES,
        "core": tuple(name for name, _ in changes.get("roles", ROLES) if not _is_added(name)),
        "omitted": (Omitted(name="ppl", details="it is no causal model"),),
        "truncated": (Truncated(name="crows", n_total=1508, n_used=377),),
        "expected_seconds": 21.5,
    }
    return Audit(**(output | changes))


def results(model="a-model", **more):
    """One result of every kind."""
    price = measurement(20.0, name="pppl").model_copy(update={"parity": None})
    return {
        "cell.audit.model.seat": with_items(judged("seat", 1.2, 0.001)),
        "cell.audit.model.crows": judged("crows", 0.1, 0.4),
        "cell.audit.model.strength": StepFailure(
            problem="no item could be read", hint="other data"
        ),
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
