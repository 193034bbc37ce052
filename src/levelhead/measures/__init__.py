"""Measures of bias and of utility: items, a readout and a reduction, one sub-package a family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead._lazy import attach

if TYPE_CHECKING:
    from levelhead.measures.classification.controlled_difference import (
        ControlledDifference as ControlledDifference,
    )
    from levelhead.measures.classification.counterfactual import Counterfactual as Counterfactual
    from levelhead.measures.classification.nli_coal import NliCoal as NliCoal
    from levelhead.measures.classification.nli_occupations import Nli as Nli
    from levelhead.measures.cloze.cloze import Cloze as Cloze
    from levelhead.measures.cloze.group_preference import GroupPreference as GroupPreference
    from levelhead.measures.cloze.top_k import ClozeTopK as ClozeTopK
    from levelhead.measures.decisions.bbq import Bbq as Bbq
    from levelhead.measures.decisions.callback import Callback as Callback
    from levelhead.measures.decisions.decision import Decision as Decision
    from levelhead.measures.decisions.implicit_association import (
        ImplicitAssociation as ImplicitAssociation,
    )
    from levelhead.measures.decisions.relative_decision import (
        RelativeDecision as RelativeDecision,
    )
    from levelhead.measures.decisions.unqover import Unqover as Unqover
    from levelhead.measures.decisions.winobias import Winobias as Winobias
    from levelhead.measures.embedding.seat import Seat as Seat
    from levelhead.measures.generation.bold import Bold as Bold
    from levelhead.measures.generation.continuation import Continuation as Continuation
    from levelhead.measures.generation.counterfactual_generation import (
        CounterfactualGeneration as CounterfactualGeneration,
    )
    from levelhead.measures.generation.honest import Honest as Honest
    from levelhead.measures.generation.persona import Persona as Persona
    from levelhead.measures.generation.scoring.model_scorers import (
        ClassifierScorer as ClassifierScorer,
    )
    from levelhead.measures.generation.scoring.model_scorers import JudgeScorer as JudgeScorer
    from levelhead.measures.generation.scoring.model_scorers import fit_threshold as fit_threshold
    from levelhead.measures.generation.scoring.scorer_calibration import (
        ScorerCalibration as ScorerCalibration,
    )
    from levelhead.measures.generation.scoring.scorer_calibration import (
        calibrate_by_group as calibrate_by_group,
    )
    from levelhead.measures.generation.scoring.scorer_calibration import (
        calibrate_scorer as calibrate_scorer,
    )
    from levelhead.measures.generation.scoring.scorers import TextScorer as TextScorer
    from levelhead.measures.generation.scoring.scorers import WordList as WordList
    from levelhead.measures.group_tables.association_spread import (
        AssociationSpread as AssociationSpread,
    )
    from levelhead.measures.group_tables.decision_spread import DecisionSpread as DecisionSpread
    from levelhead.measures.likelihood.crows import Crows as Crows
    from levelhead.measures.likelihood.lpbs import Lpbs as Lpbs
    from levelhead.measures.likelihood.stereoset import StereoSet as StereoSet
    from levelhead.measures.next_sentence.distance import Distance as Distance
    from levelhead.measures.next_sentence.strength import Contrast as Contrast
    from levelhead.measures.next_sentence.strength import Strength as Strength
    from levelhead.measures.robustness.all_group_pairs import all_group_pairs as all_group_pairs
    from levelhead.measures.robustness.measure_agreement import MeasureAgreement as MeasureAgreement
    from levelhead.measures.robustness.measure_agreement import (
        measure_agreement as measure_agreement,
    )
    from levelhead.measures.robustness.multiverse import Multiverse as Multiverse
    from levelhead.measures.robustness.multiverse import multiverse as multiverse
    from levelhead.measures.utility.accuracy import Accuracy as Accuracy
    from levelhead.measures.utility.definitional_gender import (
        DefinitionalGender as DefinitionalGender,
    )
    from levelhead.measures.utility.facts import Facts as Facts
    from levelhead.measures.utility.glue_task import GlueTask as GlueTask
    from levelhead.measures.utility.glue_task import finetune_on_task as finetune_on_task
    from levelhead.measures.utility.instructions import Instructions as Instructions
    from levelhead.measures.utility.perplexity import Perplexity as Perplexity
    from levelhead.measures.utility.perplexity import PseudoPerplexity as PseudoPerplexity
    from levelhead.measures.utility.pronoun_agreement import PronounAgreement as PronounAgreement
    from levelhead.measures.utility.snli import SnliAccuracy as SnliAccuracy

# Imports are lazy: a measure loads torch, and the command line must start without it.
__getattr__, __dir__, __all__ = attach(__name__, __file__)
