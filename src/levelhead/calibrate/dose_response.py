"""Dose and response: the value of every measure on models with a planted bias.

A unit of work is one organism: it is trained, its language skills are tested, and every applicable
measure is computed. Where nothing was planted, labels are permuted, each permutation as valid as
the original, and every measure is tested again: a detected bias is then a false alarm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.calibrate.organisms.organism import HELD_OUT_SEED_OFFSET, make_organism
from levelhead.calibrate.skills import measure_skills
from levelhead.calibrate.suite import get_expected_response, list_applicable_measures
from levelhead.core.calibration import ALARM_P, REFERENCE_ARCHITECTURE, ExpectedResponse
from levelhead.core.errors import NotMeasurableError
from levelhead.core.files import file_hash
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Interval, Record, Skill
from levelhead.core.run_context import Inference
from levelhead.core.verdicts import Status, decide_measure_verdict
from levelhead.engine.tasks import Task
from levelhead.measures.inference import null_distribution

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.calibrate.organisms.language import Variant
    from levelhead.calibrate.organisms.organism import Organism
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

TASK_FUNCTION = "levelhead.calibrate.dose_response:run_dose_model"
REVISION = 3
RHOS = (0.0, 0.25, 0.5, 0.75, 1.0)
DOSED_FAMILIES = tuple(REFERENCE_ARCHITECTURE.values())
"""Families with every dose."""
OTHER_FAMILIES = ("roberta", "albert", "gpt2")
"""Families with no dose and the full one only."""
SEEDS, FEW_SEEDS, NULL_SEEDS = range(5), range(3), range(5, 20)
"""Seeds of every dose; of the other families and of confounders; of further models without a dose,
twenty in all: with fewer no rate of false alarms is reported
(`core.calibration.MIN_NULLS_FOR_RATE`)."""
CONFOUNDERS: tuple[Variant, ...] = ("skew", "frequency", "one group")
LABEL_PERMUTATIONS = 40
"""Permutations of each of twenty models, 800 in all: a test of the correct size then has alarms of
5% [3.7%, 6.7%] (Wilson), and is hardly ever taken for one with more than 10%."""
# Fewer permutations for permuted labels: 40 tests per model and measure, each at .05 only.
INFERENCE, PERMUTED_INFERENCE = (
    Inference(resamples=199, permutations=499),
    Inference(permutations=199),
)
"""Settings for original and for permuted labels."""


class DoseModel(NamedTuple):
    """An organism by what was planted, and the number of permutations of its labels."""

    architecture: str
    rho: float
    variant: Variant
    seed: int
    permutations: int = 0

    @property
    def task(self) -> Task:
        """The work to be done for it."""
        return Task(TASK_FUNCTION, FrozenDict(self._asdict()), revision=REVISION)


def list_dose_models(*, quick: bool = False) -> tuple[DoseModel, ...]:
    """List the organisms with a dose and with confounders.

    Args:
        quick: only one for each of three doses.
    """
    if quick:
        doses = ((0.0, 5), (0.5, 0), (1.0, 0))
        return tuple(
            DoseModel("bert", rho, "stereotype", 0, permutations) for rho, permutations in doses
        )
    dosed = [
        DoseModel(name, rho, "stereotype", seed, LABEL_PERMUTATIONS * (rho == 0))
        for name in DOSED_FAMILIES
        for rho in RHOS
        for seed in SEEDS
    ]
    nulls = [
        DoseModel(name, 0.0, "stereotype", seed, LABEL_PERMUTATIONS)
        for name in DOSED_FAMILIES
        for seed in NULL_SEEDS
    ]
    other_models = [
        DoseModel(name, rho, "stereotype", seed)
        for name in OTHER_FAMILIES
        for rho in (0.0, 1.0)
        for seed in FEW_SEEDS
    ]
    confounded = [
        DoseModel(DOSED_FAMILIES[0], 1.0, variant, seed)
        for variant in CONFOUNDERS
        for seed in FEW_SEEDS
    ]
    return (*dosed, *nulls, *other_models, *confounded)


class MeasureResponse(Record):
    """Result of one measure on one model."""

    measure: str
    expected: ExpectedResponse
    value: float | None
    """None: the measure could not be computed."""
    interval: Interval | None
    parity: float | None
    p: float | None
    n: int
    dropped: int
    permutation_p_values: tuple[float, ...] = ()
    """p-values under the permutations of the labels."""
    failure: str = ""
    """Why the measure could not be computed; empty if it could."""
    status: Status = "not measured"
    """The verdict (`core.verdicts`), independent of an earlier calibration of the measure."""
    effect: float | None = None
    """Value less parity."""
    reason: str = ""
    """Reason of the verdict."""
    skill: Skill | None = None

    @property
    def is_alarm(self) -> bool:
        """Whether the test finds the model biased, to either side."""
        return self.p is not None and self.p <= ALARM_P

    @property
    def is_detected(self) -> bool:
        """Whether the test finds the model biased to the side that was planted."""
        if not self.is_alarm or self.value is None or self.parity is None:
            return False
        return (self.value > self.parity) == (self.expected != "falls")


class ModelResponses(Record):
    """Results of all measures on one model, with the skills in its language."""

    architecture: str
    rho: float
    variant: str
    seed: int
    texts: str
    """SHA-256 of the training texts."""
    weights: str
    """SHA-256 of the weights."""
    skills: tuple[tuple[str, float, float], ...]
    """(skill, its value, the best possible value)."""
    responses: tuple[MeasureResponse, ...]


def run_dose_model(spec: Mapping[str, object]) -> bytes:
    """Train and measure one organism (a unit of work).

    Args:
        spec: the fields of `DoseModel`.

    Returns:
        JSON of the `ModelResponses`.
    """
    model = DoseModel(**spec)  # type: ignore[arg-type]
    organism_model = make_organism(
        model.architecture, model.rho, variant=model.variant, seed=model.seed
    )
    folder = organism_model.grow()
    lm = organism_model.load_lm()
    measures = list_applicable_measures(organism_model.planted_measures(), lm)
    p_values = _compute_permutation_p_values(organism_model, lm, model)
    return (
        ModelResponses(
            architecture=model.architecture,
            rho=model.rho,
            variant=model.variant,
            seed=model.seed,
            texts=organism_model.build_inputs["texts_sha256"],
            weights=file_hash(folder / "model.safetensors"),
            skills=tuple(
                (skill.estimate.name, skill.estimate.value, skill.best)
                for skill in measure_skills(
                    lm, organism_model.language, seed=model.seed + HELD_OUT_SEED_OFFSET
                )
            ),
            responses=tuple(
                read_measure_response(name, measure, lm, p_values.get(name, ()))
                for name, measure in measures.items()
            ),
        )
        .to_json()
        .encode()
    )


def read_measure_response(
    name: str, measure: Measure, lm: LM, p_values: tuple[float, ...] = ()
) -> MeasureResponse:
    """Compute one measure on one model.

    Args:
        name: name of the measure.
        measure: the measure.
        lm: the model.
        p_values: p-values under permuted labels.

    Returns:
        The response; without a value, but with the reason, if the measure cannot be computed.
    """
    try:
        measurement = measure(lm, inference=INFERENCE)
    except NotMeasurableError as error:
        return MeasureResponse(
            measure=name,
            expected=get_expected_response(measure),
            value=None,
            interval=None,
            parity=None,
            p=None,
            n=0,
            dropped=0,
            permutation_p_values=p_values,
            failure=error.problem,
        )
    # An earlier calibration of a measure must not decide its verdict here.
    verdict = decide_measure_verdict(measurement, allow_uncalibrated=True)
    return MeasureResponse(
        measure=name,
        expected=get_expected_response(measure),
        value=measurement.value,
        interval=measurement.interval,
        parity=measurement.parity,
        p=None if measurement.p is None else measurement.p.value,
        n=measurement.n,
        dropped=len(measurement.dropped),
        permutation_p_values=p_values,
        status=verdict.status,
        effect=None if measurement.effect is None else measurement.effect[0],
        reason=verdict.reason,
        skill=measurement.skill,
    )


def _compute_permutation_p_values(
    organism_model: Organism, lm: LM, model: DoseModel
) -> dict[str, tuple[float, ...]]:
    """Compute the p-values under permuted labels, of every measure whose null is about labels."""
    p_values: dict[str, list[float]] = {}
    for permutation in range(model.permutations):
        # No two models share a permutation: fewer than 1000 are made of each.
        labels = 1000 * model.seed + permutation
        for name, measure in list_applicable_measures(
            organism_model.planted_measures(label_seed=labels), lm
        ).items():
            # A parity that comes from a control does not depend on the labels.
            if measure.primary_metric.null is None or measure.parity_from_control:
                continue
            # Permuted labels change no text, so the model's responses are already stored.
            metric, values, design = measure.test_inputs(measure.read(lm))
            null = null_distribution(
                PERMUTED_INFERENCE, metric, values, design, name=f"{name} {labels}"
            )
            if null is not None:
                p_values.setdefault(name, []).append(null.p.value)
    return {name: tuple(values) for name, values in p_values.items()}
