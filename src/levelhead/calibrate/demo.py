"""The demo: train a small model without and with a planted bias, and measure both."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from levelhead.calibrate.organisms.language_pairs import make_planted_pairs
from levelhead.calibrate.organisms.organism import HELD_OUT_SEED_OFFSET, make_organism
from levelhead.calibrate.skills import SkillEstimate, measure_skills
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.locate.score_heads import locate
from levelhead.measures.run import run_measures
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity
from levelhead.mitigate.projection.edit_points import project
from levelhead.models.sites import Site
from levelhead.study.audit.audit import Audit
from levelhead.study.config import StudyConfig
from levelhead.study.steps.config import ModelSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.calibrate.organisms.organism import Organism
    from levelhead.core.results import Measurement, Record
    from levelhead.locate.head_map import HeadMap
    from levelhead.measures.compare import Comparison

RHOS = (0.0, 1.0)
VISIBLE_HEAD = (1, 2)
"""(layer, head) of the third model's only head that sees group words, counted from 0."""
UTILITY_SENTENCES = 60
"""Number of sentences on which the utility cost of an edit is measured."""
# Stricter than .05: the demo shows one seed only, so one false alarm would mislead.
DETECTION_P = 0.01
"""Largest p-value, corrected for the measures of a run, at which a measure detects the bias."""


class DemoModel(NamedTuple):
    """One of the two models: its organism, folder, skills and measurements."""

    organism: Organism
    folder: str
    skills: tuple[SkillEstimate, ...]
    measurements: tuple[Measurement, ...]

    @property
    def detecting_measures(self) -> tuple[str, ...]:
        """Names of the measures that detect a bias to the side that was planted."""
        return tuple(
            measurement.measure
            for measurement in self.measurements
            if measurement.parity is not None
            and measurement.value > measurement.parity
            and _get_corrected_p(measurement) <= DETECTION_P
            and measurement.measure not in dict(self.inconclusive_measures)
        )

    @property
    def inconclusive_measures(self) -> tuple[tuple[str, str], ...]:
        """Names of the measures that allow no conclusion about the model, with reasons."""
        verdicts = {
            measurement.measure: decide_measure_verdict(measurement)
            for measurement in self.measurements
        }
        return tuple(
            (name, verdict.reason)
            for name, verdict in verdicts.items()
            if verdict.status == "inconclusive"
        )


def run_demo(
    architecture: str = "bert",
    *,
    seed: int = 0,
    quick: bool = False,
    inference: Inference = Inference(),
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> tuple[DemoModel, ...]:
    """Train an organism at rho 0 and at rho 1, and measure the skills and the bias of both.

    Args:
        architecture: bert, roberta, albert, gpt2 or llama.
        seed: random seed of text and training.
        quick: whether to train for a third of the steps.
        inference: seed, resamples and level of the statistics.
        progress: called with the name of a step, parts done and all parts.

    Returns:
        The two models, without and with a planted bias.
    """
    demo_models = []
    for rho in RHOS:
        organism_model = make_organism(architecture, rho, seed=seed, quick=quick)
        label = f"training rho {rho:g}"
        lm = organism_model.load_lm(partial(progress, label))
        skills = measure_skills(lm, organism_model.language, seed=seed + HELD_OUT_SEED_OFFSET)
        measures = organism_model.planted_measures().for_model(lm)
        progress(f"measuring rho {rho:g}", 0, len(measures))
        measurements = run_measures(lm, list(measures.values()), inference=inference).measurements
        progress(f"measuring rho {rho:g}", len(measures), len(measures))
        demo_models.append(
            DemoModel(organism_model, str(organism_model.grow()), skills, measurements)
        )
    return tuple(demo_models)


def locate_visible_head(
    *,
    seed: int = 0,
    quick: bool = False,
    inference: Inference = Inference(),
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> tuple[HeadMap, Site]:
    """Train a model in which one head alone sees group words, and locate its heads.

    Args:
        seed: random seed of text and training.
        quick: whether to train for a third of the steps.
        inference: seed, resamples and level of the statistics.
        progress: called with the name of a step, parts done and all parts.

    Returns:
        The head map, and the site of the known head.
    """
    organism_model = make_organism("gpt2", 1.0, seed=seed, quick=quick, visible_head=VISIBLE_HEAD)
    lm = organism_model.load_lm(lambda done, total: progress("training a known head", done, total))
    # On all items: a top tenth of 52 would be five.
    measure = replace(organism_model.planted_measures().contrast, top=1.0)
    progress("locating", 0, 1)
    head_map = locate(lm, measure, ablate_top="all", inference=inference)
    progress("locating", 1, 1)
    return head_map, Site("head_out", *VISIBLE_HEAD)


def mitigate_demo(
    demo_model: DemoModel,
    *,
    inference: Inference = Inference(),
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> tuple[Comparison, ...]:
    """Project the groups' direction out of a model; measure bias reduction and utility cost.

    The projection acts from the penultimate layer on (Dawkins et al. 2024), and is fitted on
    sentences that differ in the group's word.

    Args:
        demo_model: one of the demo's models.
        inference: seed, resamples and level of the statistics.
        progress: called with the name of a step, parts done and all parts.

    Returns:
        Comparisons of the edited with the unedited model, by bias and by fluency.
    """
    organism_model = demo_model.organism
    lm, planted = organism_model.load_lm(), organism_model.planted_measures()
    edited = lm.edited(
        *project(lm, "penultimate", make_planted_pairs(organism_model.language), weighted=False)
    )
    utility = (Perplexity if lm.is_causal else PseudoPerplexity)(
        texts=planted.corpus, limit=UTILITY_SENTENCES
    )
    bias = planted.strength if "next_sentence" in lm.heads else planted.contrast
    measures = (bias, planted.seat, utility)
    progress("mitigating", 0, len(measures))
    comparisons = run_measures(edited, list(measures), against=lm, inference=inference).comparisons
    progress("mitigating", len(measures), len(measures))
    return comparisons


def make_demo_audit(
    demo_model: DemoModel, comparisons: Sequence[Comparison], head_map: HeadMap
) -> tuple[Audit, dict[str, Record]]:
    """Convert the demo's results on its biased model to an audit, for the report page.

    Args:
        demo_model: the model.
        comparisons: comparisons of the edited model with it.
        head_map: head map of the third model.
    """
    names = [measurement.measure for measurement in demo_model.measurements]
    rho = demo_model.organism.language.rho
    config = StudyConfig(
        format="levelhead-study-2",
        name="demo",
        description=f"The demo: a small model with a planted bias (rho {rho:g})",
        models={"model": ModelSource(path=demo_model.folder)},
        measures={name: name for name in names},
    )
    audit = Audit(
        request_hash=content_hash(
            [measurement.content_hash for measurement in demo_model.measurements]
        ),
        budget=None,
        model_summary=f"{demo_model.organism.train_config.architecture}, trained on text in which "
        "groups and occupations always agree; its heads are those of another model, in which one "
        "head alone sees group words",
        study_config=config,
        roles=tuple((name, "bias") for name in names),
        omitted=(),
        truncated=(),
        expected_seconds=None,
    )
    results: dict[str, Record] = {
        f"cell.demo.model.{measurement.measure}": measurement
        for measurement in demo_model.measurements
    }
    results |= {f"against.edited.{comparison.measure}": comparison for comparison in comparisons}
    return audit, results | {"map.heads": head_map}


def _get_corrected_p(measurement: Measurement) -> float:
    if measurement.p is None:
        raise NotMeasurableError(f"{measurement.measure} could not be tested", hint="report this")
    return measurement.p.value if measurement.p.adjusted is None else measurement.p.adjusted
