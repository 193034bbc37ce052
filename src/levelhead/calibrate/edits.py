"""Calibrate edits on models of known bias: their effect on a planted bias, and on none.

At the full dose an edit should lower the bias and keep fluency. Where nothing was planted there is
nothing to lower, so a measured reduction there is an artefact.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from levelhead.calibrate.locators import (
    VISIBLE_HEAD,
    compute_organism_weights_hash,
    make_full_contrast,
    mean_over_models,
)
from levelhead.calibrate.organisms.language_pairs import (
    make_planted_pairs,
    make_planted_placebo_pairs,
)
from levelhead.calibrate.organisms.organism import HELD_OUT_SEED_OFFSET, THREADS, make_organism
from levelhead.calibrate.suite import UTILITY_SENTENCES
from levelhead.core.calibration import EditCalibration, RemovalVerdicts
from levelhead.core.files import write_atomic
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Estimate, Record
from levelhead.core.run_context import Inference
from levelhead.engine.tasks import Task
from levelhead.locate.score_heads import locate
from levelhead.locate.validation.split import split_items
from levelhead.measures.run import run_measures
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity
from levelhead.mitigate.heads.mask import mask_heads, scale_heads
from levelhead.mitigate.probing.concept_removal import (
    BiasReductionEvidence,
    ProbeConfig,
    concept_removal,
)
from levelhead.mitigate.projection.baselines import inlp, leace, sentence_debias
from levelhead.mitigate.projection.edit_points import project
from levelhead.mitigate.training.cda_and_dropout import cda, dropout
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.continued_pretraining import (
    continue_pretraining,
)
from levelhead.stats.means import t_test

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.calibrate.organisms.organism import Organism
    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.measures.next_sentence.strength import Contrast
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM

    FitEdit = Callable[[LM, Sequence[ContrastPair]], tuple[Edit, ...]]

EDIT_TASK_FUNCTION, REMOVAL_TASK_FUNCTION = (
    "levelhead.calibrate.edits:run_edits",
    "levelhead.calibrate.edits:run_removal",
)
# Part of the keys of stored results: a new number computes all edits again.
REVISION = 3
FAMILIES = ("bert", "llama")
REMOVAL_FAMILIES = ("bert", "gpt2")
SEEDS = range(3)
EDIT_POINT = "penultimate"
UNRELATED_KIND = "elsewhere"
"""Kind of the sentences about nobody."""
SENTENCE_STEP = 4
"""Every fourth sentence of a word is probed: a bound depends on the number of words."""
N_HEADS = 3
"""Number of heads that are masked or scaled: those with the largest scores."""
HEAD_FACTORS = {"mask": 0.0, "scale 0.5": 0.5}
PARTIAL_FACTOR = 0.25
"""Factor of the known head where the bias should be smaller but not gone."""
PRETRAINING_CONFIG = ContinuedPretrainingConfig(steps=200, learning_rate=5e-4, threads=THREADS)
INFERENCE = Inference(resamples=499, permutations=499)
INLP = "inlp"
"""Has no placebo: it removes what a probe reads, and no probe distinguishes other words."""
FITTED_EDITS: dict[str, FitEdit] = {
    "project": lambda lm, pairs: project(lm, EDIT_POINT, pairs, weighted=False),
    "project, weighted": lambda lm, pairs: project(lm, EDIT_POINT, pairs),
    "sentence debias": lambda lm, pairs: sentence_debias(
        lm, pairs, _get_last_block(lm), pooling="mean"
    ),
    "leace": lambda lm, pairs: leace(lm, pairs, _get_last_block(lm), pooling="mean"),
    INLP: lambda lm, pairs: inlp(lm, pairs, _get_last_block(lm), pooling="mean"),
}
"""Edits that are fitted on pairs of texts; their placebos are fitted on other words."""
PLACEBO = ", placebo"
TRAINING_PLACEBO = f"training{PLACEBO}"
PLACEBOS = dict.fromkeys(("counterfactual training", "dropout"), TRAINING_PLACEBO)
"""Placebos that do not have the name of their edit."""


class OrganismModel(NamedTuple):
    """An organism to which every edit is applied."""

    architecture: str
    rho: float
    seed: int

    @property
    def task(self) -> Task:
        """The work to be done for it."""
        spec = FrozenDict({"architecture": self.architecture, "rho": self.rho, "seed": self.seed})
        return Task(EDIT_TASK_FUNCTION, spec, revision=REVISION)


def list_edit_models(*, quick: bool = False) -> tuple[OrganismModel, ...]:
    """List the organisms to edit.

    Args:
        quick: only one, with a bias.
    """
    if quick:
        return (OrganismModel(FAMILIES[0], 1.0, 0),)
    return tuple(
        OrganismModel(name, rho, seed) for name in FAMILIES for rho in (0.0, 1.0) for seed in SEEDS
    )


class EditEffect(Record):
    """Effect of one edit on one model."""

    architecture: str
    rho: float
    seed: int
    weights: str
    edit: str
    before: float
    """Contrast of the unedited model."""
    change: Estimate
    """Change of the contrast: below 0, the edit lowers the bias."""
    utility_cost: Estimate
    """Change of (pseudo-)perplexity of text about nobody: above 0, it is predicted worse."""
    fluency: float
    """(Pseudo-)perplexity of the unedited model."""


class EditEffects(Record):
    """Effects of every edit on one model."""

    effects: tuple[EditEffect, ...]


def run_edits(spec: Mapping[str, object]) -> bytes:
    """Apply every edit to one organism (a unit of work).

    Args:
        spec: architecture, dose and seed.

    Returns:
        JSON of the `EditEffects`.
    """
    architecture, rho = str(spec["architecture"]), float(str(spec["rho"]))
    organism_model = make_organism(architecture, rho, seed=int(str(spec["seed"])))
    lm, measure = organism_model.load_lm(), make_full_contrast(organism_model)
    # Only the ranking of heads is used.
    head_map = locate(lm, measure, ablate_top="none", inference=INFERENCE)
    split = split_items(
        measure, measure.read(lm)[0], split_by=head_map.split.split_by, seed=head_map.split.seed
    )
    confirmation_ids = split.confirmation.items or frozenset()
    # Heads are chosen on the discovery half. On the same items their masking would look better
    # than it is, so effects are measured on the confirmation half.
    held_out_measure = replace(
        measure, triples=tuple(item for item in measure.items if item.id in confirmation_ids)
    )
    effects = [
        _measure_edit(organism_model, name, lm, lm.edited(*edits), held_out_measure)
        for name, edits in _make_edits(
            organism_model, lm, [component.site for component in head_map.ranked_heads]
        ).items()
    ]
    for name, train_variant in _list_training_edits(architecture).items():
        # Trained variants are measured once: only the effects are stored, not the weights.
        with TemporaryDirectory() as folder:
            train_variant(
                lm,
                _write_texts(organism_model, folder),
                f"{folder}/child",
                config=PRETRAINING_CONFIG,
            )
            effects.append(
                _measure_edit(organism_model, name, lm, load(f"{folder}/child"), held_out_measure)
            )
    return EditEffects(effects=tuple(effects)).to_json().encode()


def _list_training_edits(architecture: str) -> dict[str, Callable[..., object]]:
    """List the edits by training and their placebo; LLaMA has no dropout of hidden states."""
    train_dropout = partial(dropout, hidden=0.0) if architecture == "llama" else dropout
    return {
        "counterfactual training": cda,
        "dropout": train_dropout,
        TRAINING_PLACEBO: _train_placebo,
    }


def _train_placebo(lm: LM, texts: str, folder: str, *, config: ContinuedPretrainingConfig) -> None:
    """Train a variant for as many steps, with nothing exchanged and nothing dropped."""
    # Continued training changes a bias by itself: only the difference from this is the edit's.
    lines = Path(texts).read_text("utf-8").splitlines()
    random.Random(config.seed).shuffle(lines)  # noqa: S311  # no secret
    continue_pretraining(lm, lines, folder, config=config)


def _make_edits(
    organism_model: Organism, lm: LM, ranked: Sequence[Site]
) -> dict[str, tuple[Edit, ...]]:
    """Make every edit and its placebo: other heads, sampled by seed, or other words."""
    first, rest = ranked[:N_HEADS], ranked[N_HEADS:]
    # From the other heads: a placebo that shares a head with its edit would share its effect.
    random_heads = random.Random(organism_model.train_config.seed).sample(rest, N_HEADS)  # noqa: S311  # no secret
    pairs, placebos = (
        make_planted_pairs(organism_model.language),
        make_planted_placebo_pairs(organism_model.language)[0],
    )
    edits: dict[str, tuple[Edit, ...]] = {}
    for name, factor in HEAD_FACTORS.items():
        edits |= {
            name: (scale_heads(first, factor),),
            name + PLACEBO: (scale_heads(random_heads, factor),),
        }
    for name, fit_edit in FITTED_EDITS.items():
        edits[name] = fit_edit(lm, pairs)
        if name != INLP:
            edits[name + PLACEBO] = fit_edit(lm, placebos)
    return edits


def _get_last_block(lm: LM) -> Site:
    return Site("block_out", lm.layout.layers - 1)


class KnownTruthCase(NamedTuple):
    """An organism for which it is known whether an edit removes an attribute."""

    architecture: str
    seed: int

    @property
    def task(self) -> Task:
        """The work to be done for it."""
        return Task(REMOVAL_TASK_FUNCTION, FrozenDict(self._asdict()), revision=REVISION)


def list_known_truth_cases(*, quick: bool = False) -> tuple[KnownTruthCase, ...]:
    """List the organisms with a known answer.

    Args:
        quick: none.
    """
    return (
        ()
        if quick
        else tuple(KnownTruthCase(name, seed) for name in REMOVAL_FAMILIES for seed in SEEDS)
    )


def run_removal(spec: Mapping[str, object]) -> bytes:
    """Test removal on an organism in which one head alone sees group words (a unit of work).

    With this head masked, no group information is left at the last token of a text: the attribute
    is known to be removed there. With this head scaled down, the bias is smaller and the group can
    still be read: hidden. With another head masked, the attribute is not removed.

    Args:
        spec: architecture and seed.

    Returns:
        JSON of the `RemovalVerdicts`.
    """
    architecture, seed = str(spec["architecture"]), int(str(spec["seed"]))
    organism_model = make_organism(
        architecture, 1.0, seed=seed, visible_head=VISIBLE_HEAD, words="many"
    )
    # Many words (162 pairs): with 12 no bound of a probe on held-out words could be narrow.
    lm, pairs, measure = (
        organism_model.load_lm(),
        make_planted_pairs(organism_model.language)[::SENTENCE_STEP],
        make_full_contrast(organism_model),
    )
    layer, head = VISIBLE_HEAD
    visible_site, other_site = (
        Site("head_out", layer, head_index) for head_index in (head, head - 1)
    )

    def biases(model: LM) -> NDArray[np.float64]:
        return measure.per_item_strength(measure.read(model)[0]).numpy().astype(np.float64)

    def removal_verdict(edit: Edit) -> str:
        # "Hidden" needs evidence that the bias fell: the interval of the paired t-test excludes 0.
        is_bias_lower = t_test(biases(lm) - biases(lm.edited(edit))).interval.low > 0
        return concept_removal(
            lm,
            [edit],
            pairs,
            fitted_on=(),
            bias_reduction=BiasReductionEvidence(is_bias_lower),
            probes=ProbeConfig([_get_last_block(lm)], "last"),
        ).verdict

    verdicts = RemovalVerdicts(
        architecture=architecture,
        seed=seed,
        weights=compute_organism_weights_hash(organism_model),
        gone=removal_verdict(mask_heads([visible_site])),
        less=removal_verdict(scale_heads([visible_site], PARTIAL_FACTOR)),
        there=removal_verdict(mask_heads([other_site])),
    )
    return verdicts.to_json().encode()


def _measure_edit(
    organism_model: Organism, name: str, lm: LM, edited_lm: LM, measure: Contrast
) -> EditEffect:
    utility = (Perplexity if lm.is_causal else PseudoPerplexity)(
        texts=draw_neutral_sentences(organism_model)
    )
    bias, cost = run_measures(
        edited_lm, [measure, utility], against=lm, inference=INFERENCE
    ).comparisons
    return EditEffect(
        architecture=organism_model.train_config.architecture,
        rho=organism_model.language.rho,
        seed=organism_model.train_config.seed,
        weights=compute_organism_weights_hash(organism_model),
        edit=name,
        before=bias.first.value,
        change=bias.difference,
        utility_cost=cost.difference,
        fluency=cost.first.value,
    )


def draw_neutral_sentences(organism_model: Organism) -> tuple[str, ...]:
    """Sample new sentences that no bias helps to predict."""
    # A fifth of the documents is about nobody and sentences repeat: 20 times as many suffice.
    documents = organism_model.language.documents(
        20 * UTILITY_SENTENCES, seed=organism_model.train_config.seed + HELD_OUT_SEED_OFFSET
    )
    sentences = (sentence for document in documents for sentence in document.sentences)
    return tuple(
        dict.fromkeys(sentence.text for sentence in sentences if sentence.kind == UNRELATED_KIND)
    )[:UTILITY_SENTENCES]


def _write_texts(organism_model: Organism, folder: str) -> str:
    """Write the organism's training texts to a file."""
    path = f"{folder}/texts.txt"
    lines = dict.fromkeys(text for document in organism_model.texts for text in document)
    write_atomic(path, "\n".join(lines).encode())
    return path


def compute_edit_calibrations(effects: Sequence[EditEffect]) -> tuple[EditCalibration, ...]:
    """Summarise every edit on every family.

    Args:
        effects: the effects of all models.
    """
    names = dict.fromkeys((effect.architecture, effect.edit) for effect in effects)
    return tuple(
        _calibrate_edit([effect for effect in effects if effect.architecture == architecture], edit)
        for architecture, edit in names
    )


def _calibrate_edit(effects: Sequence[EditEffect], edit: str) -> EditCalibration:
    """Summarise one edit, from all effects of a family."""
    full, none = (
        [effect for effect in effects if (effect.edit, effect.rho) == (edit, rho)] for rho in (1, 0)
    )
    # The unit of all effects is the planted bias: models without a dose have none to divide by.
    bias = float(np.mean([effect.before for effect in full]))
    share_removed = mean_over_models(
        [_compute_share_removed(effect) for effect in full], "share of the bias gone", maximum=1.0
    )
    utility_cost = mean_over_models(
        [effect.utility_cost.value / effect.fluency for effect in full], "change of fluency"
    )
    # Paired by seed: an edit and its placebo act on the same model.
    placebo = PLACEBOS.get(edit, edit + PLACEBO)
    edit_shares, placebo_shares = (
        {
            effect.seed: _compute_share_removed(effect)
            for effect in effects
            if (effect.edit, effect.rho) == (name, 1)
        }
        for name in (edit, placebo)
    )
    return EditCalibration(
        edit=edit,
        architecture=full[0].architecture,
        models=len(full),
        gone=share_removed,
        nulls=len(none),
        at_none=mean_over_models(
            [abs(effect.change.value) / bias for effect in none], "change without a bias"
        ),
        price=utility_cost,
        significant=sum(0 not in effect.change.interval for effect in none),
        has_placebo=bool(placebo_shares),
        beyond=sum(edit_shares[seed] > placebo_shares[seed] for seed in edit_shares)
        if placebo_shares
        else None,
    )


def _compute_share_removed(effect: EditEffect) -> float:
    """Compute the share of a bias that is gone; a reversed bias counts as a bias, too."""
    return 1 - abs(effect.before + effect.change.value) / abs(effect.before)
