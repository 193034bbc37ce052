"""Dose and response of the measures of decisions and of generated texts, on chat organisms.

A unit of work is one organism, whose weights are constructed. The group changes one thing in it:
its decisions, or one property of its texts; only the measures of that are computed. Of models that
give one answer to everything, all measures to which it answers are computed: none may read them as
parity.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.calibrate.dose_response import ModelResponses, read_measure_response
from levelhead.calibrate.measure_calibrations import PLANTED, compute_measure_calibrations
from levelhead.calibrate.organisms.chat import CONSTANT_RULES, ChatRule, make_chat_organism
from levelhead.calibrate.organisms.chat_items import list_decision_measures
from levelhead.calibrate.organisms.organism import describe_machine
from levelhead.calibrate.tables import TextTable
from levelhead.core.calibration import (
    CHAT_ARCHITECTURE,
    Calibration,
    CalibrationUpdate,
    OrganismHash,
)
from levelhead.core.errors import UnknownNameError
from levelhead.core.files import file_hash
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.core.versions import installed_versions
from levelhead.engine.scheduler import Job, run_job
from levelhead.engine.tasks import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.core.files import Url
    from levelhead.engine.executors.base import Executor

TASK_FUNCTION = "levelhead.calibrate.chat_doses:run_chat_model"
REVISION = 2
DOSES = (0.0, 0.25, 0.5, 1.0, 2.0)
"""Effects of the group, in nats."""
SEEDS, NULL_SEEDS, CONSTANT_SEEDS = range(5), range(5, 20), range(1)
"""Seeds of every dose; of further models without one; and of models with one answer."""
TEXT_METRICS: dict[ChatRule, tuple[str, ...]] = {
    "late": ("generation", "persona", "persona_marked"),
    "refusals": ("generation_refusals",),
    "failures": ("generation_failures",),
    "late length": ("generation_length",),
}
"""The measures of what the group changes, of texts."""
ONE_TEXT_RULES: tuple[ChatRule, ...] = ("always refuses", "always A")
"""Models whose texts are all equal. That of "order" is constant only where options are listed."""
CHAT_PART = "chat measures"
"""The part of a calibration that is computed here; also the beginning of its parts."""


class ChatModel(NamedTuple):
    """A chat organism by what was planted."""

    rule: ChatRule
    dose: float
    seed: int
    measures: tuple[str, ...] = ()
    """Measures that are computed; empty: all of the rule."""

    @property
    def task(self) -> Task:
        """The work to be done for it."""
        return Task(TASK_FUNCTION, FrozenDict(self._asdict()), revision=REVISION)


def list_chat_models(*, quick: bool = False, only: Sequence[str] = ()) -> tuple[ChatModel, ...]:
    """List the chat organisms with and without a dose.

    Args:
        quick: only one for each of three doses of decisions.
        only: names of measures; by default all.
    """
    if quick:
        return tuple(ChatModel("decision", dose, 0) for dose in DOSES[::2])
    measures: dict[ChatRule, tuple[str, ...]] = {
        "decision": tuple(list_decision_measures()),
        **TEXT_METRICS,
    }
    if unknown := set(only) - set(chain(*measures.values())):
        raise UnknownNameError("measure of chat organisms", min(unknown), chain(*measures.values()))
    wanted = {
        rule: tuple(name for name in names if name in only) for rule, names in measures.items()
    }
    return tuple(
        ChatModel(rule, dose, seed, wanted[rule])
        for rule in measures
        if wanted[rule] or not only
        for dose in DOSES
        for seed in (*SEEDS, *NULL_SEEDS)
        if dose == 0 or seed in SEEDS
    )


def list_constant_models(*, quick: bool = False) -> tuple[ChatModel, ...]:
    """List the organisms that give one answer to everything, without and with a hidden dose.

    Args:
        quick: only one.
    """
    models = tuple(
        ChatModel(rule, dose, seed)
        for rule in CONSTANT_RULES
        for dose in (0.0, DOSES[-1])
        for seed in CONSTANT_SEEDS
    )
    return models[:1] if quick else models


def run_chat_model(spec: Mapping[str, object]) -> bytes:
    """Construct and measure one chat organism (a unit of work).

    Args:
        spec: the fields of `ChatModel`.

    Returns:
        JSON of the `ModelResponses`.
    """
    model = ChatModel(**spec)  # type: ignore[arg-type]
    organism = make_chat_organism(model.rule, model.dose, seed=model.seed)
    lm = organism.load_lm()
    measures = organism.measures()
    if model.measures:
        names = list(model.measures)
    elif model.rule in TEXT_METRICS:
        names = list(TEXT_METRICS[model.rule])
    else:
        names = list(measures if model.rule in ONE_TEXT_RULES else list_decision_measures())
    return (
        ModelResponses(
            architecture=CHAT_ARCHITECTURE,
            rho=model.dose,
            variant=model.rule if model.rule in CONSTANT_RULES else PLANTED,
            seed=model.seed,
            texts="",
            weights=file_hash(organism.grow() / "model.safetensors"),
            skills=(),
            responses=tuple(read_measure_response(name, measures[name], lm) for name in names),
        )
        .to_json()
        .encode()
    )


def run_chat_models(
    models: tuple[ChatModel, ...],
    folder: Url,
    *,
    executor: Executor | None = None,
    context: RunContext = RunContext(),
) -> tuple[ModelResponses, ...]:
    """Measure the models that are not stored yet, and return the responses of all.

    Args:
        models: the models.
        folder: path or URL that stores the results of every model.
        executor: computes the units; this process by default.
        context: progress and cancellation; the folder is the store.
    """
    tasks = tuple(model.task for model in models)
    store = run_job(Job("chat", tasks), folder, executor=executor, context=context, extend=True)
    return tuple(ModelResponses.from_json(store.get(task.key)) for task in tasks)


def refresh_chat_calibration(
    folder: Url,
    past: Calibration,
    *,
    executor: Executor | None = None,
    quick: bool = False,
    only: Sequence[str] = (),
) -> Calibration:
    """Compute the rows of the chat organisms in a calibration; all other rows are unchanged.

    Args:
        folder: path or URL that stores the results of every model.
        past: the calibration with the other rows.
        executor: computes the units; this process by default.
        quick: whether to use three models only, to check the machinery; the results are no
            evidence.
        only: measures whose rows are computed; by default all. Other rows of chat organisms stay,
            with what computed them.
    """
    models = list_chat_models(quick=quick, only=only)
    responses = run_chat_models(models, folder, executor=executor)
    update = CalibrationUpdate(
        parts=(f"{CHAT_PART}: {', '.join(only)}" if only else CHAT_PART,),
        command="python tools/calibration.py --chat"
        + (" --quick" if quick else "")
        + (f" --only {' '.join(only)}" if only else ""),
        versions=installed_versions(),
        machine=describe_machine(),
        models=tuple(
            OrganismHash(
                what=f"{CHAT_ARCHITECTURE}, {model.rule}, dose {model.dose:g}, seed {model.seed}",
                weights=response.weights,
            )
            for model, response in zip(models, responses, strict=True)
        ),
    )
    rows = compute_measure_calibrations(responses)
    kept = [row for row in past.measures if only and row.measure not in only]
    updates = [part for part in past.refreshed if only and part.parts != update.parts]
    result = past.model_copy(update={"measures": (*kept, *rows), "refreshed": (*updates, update)})
    return with_chat_rows(past, result)


def with_chat_rows(result: Calibration, source: Calibration) -> Calibration:
    """Replace the rows of the chat organisms in a calibration, and what computed them.

    Args:
        result: the calibration with all other rows.
        source: the calibration with these rows.
    """

    def merge(name: str, is_chat: Callable[[Any], bool]) -> tuple[object, ...]:
        others = (row for row in getattr(result, name) if not is_chat(row))
        return (*others, *(row for row in getattr(source, name) if is_chat(row)))

    return result.model_copy(
        update={
            "measures": merge("measures", lambda row: row.architecture == CHAT_ARCHITECTURE),
            "refreshed": merge("refreshed", lambda part: part.parts[0].startswith(CHAT_PART)),
        }
    )


def make_constant_table(models: Sequence[ModelResponses]) -> tuple[TextTable, int]:
    """Make a table of the verdicts on models with one answer, and count those that read as parity.

    Args:
        models: the responses of these models.
    """
    rows = [
        (model.variant, f"{model.rho:g}", str(model.seed), response.measure, response.status,
         response.failure or response.reason.partition(":")[2].strip() or response.reason)
        for model in models
        for response in model.responses
    ]  # fmt: skip
    columns = ("model", "hidden dose", "seed", "measure", "verdict", "reason")
    n_parity = sum(row[4] not in ("inconclusive", "not measured") for row in rows)
    return TextTable("One answer to everything", columns, tuple(rows)), n_parity
