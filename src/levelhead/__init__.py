"""levelhead: measure, locate, explain and mitigate stereotype bias in language models.

Names are imported when they are first used (PEP 562), so `import levelhead` and `levelhead --help`
load neither torch nor scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

# What a type checker sees, and, name by name, what __getattr__ imports. A test compares the two.
if TYPE_CHECKING:
    from levelhead.calibrate.organisms.organism import Organism as Organism
    from levelhead.calibrate.organisms.organism import organism as organism
    from levelhead.core.errors import LevelheadError as LevelheadError
    from levelhead.core.results import Interval as Interval
    from levelhead.core.results import Measurement as Measurement
    from levelhead.core.results import Provenance as Provenance
    from levelhead.core.results import PValue as PValue
    from levelhead.core.run_context import Inference as Inference
    from levelhead.core.run_context import RunContext as RunContext
    from levelhead.data.catalog.datasets import dataset as dataset
    from levelhead.data.counterfactuals.contrast_pairs import paired as paired
    from levelhead.data.counterfactuals.contrast_pairs import placebo_pairs as placebo_pairs
    from levelhead.data.counterfactuals.contrast_pairs import swapped_pairs as swapped_pairs
    from levelhead.data.counterfactuals.held_out import held_out as held_out
    from levelhead.data.counterfactuals.held_out import held_out_texts as held_out_texts
    from levelhead.data.lexicons.lexicon import lexicon as lexicon
    from levelhead.explain.attention.counterstereotype import CounterStereotype as CounterStereotype
    from levelhead.explain.attention.counterstereotype import counterstereotype as counterstereotype
    from levelhead.explain.attention.pair_sources import pairs_from as pairs_from
    from levelhead.explain.prompting.knowledge import Knowledge as Knowledge
    from levelhead.explain.prompting.knowledge import knowledge as knowledge
    from levelhead.locate import locate as locate
    from levelhead.locate.head_map import HeadMap as HeadMap
    from levelhead.measures.classification.controlled_difference import Excess as Excess
    from levelhead.measures.classification.counterfactual import Counterfactual as Counterfactual
    from levelhead.measures.classification.nli_coal import Coal as Coal
    from levelhead.measures.classification.nli_occupations import Nli as Nli
    from levelhead.measures.cloze.cloze import Cloze as Cloze
    from levelhead.measures.cloze.group_preference import GroupPreference as GroupPreference
    from levelhead.measures.cloze.top_k import ClozeTop as ClozeTop
    from levelhead.measures.compare import Comparison as Comparison
    from levelhead.measures.embedding.seat import Seat as Seat
    from levelhead.measures.generation.continuation import Continuation as Continuation
    from levelhead.measures.likelihood.crows import Crows as Crows
    from levelhead.measures.likelihood.lpbs import Lpbs as Lpbs
    from levelhead.measures.likelihood.stereoset import StereoSet as StereoSet
    from levelhead.measures.next_sentence.distance import Distance as Distance
    from levelhead.measures.next_sentence.strength import Contrast as Contrast
    from levelhead.measures.next_sentence.strength import Strength as Strength
    from levelhead.measures.robustness.all_group_pairs import every_pair as every_pair
    from levelhead.measures.robustness.measure_agreement import Agreement as Agreement
    from levelhead.measures.robustness.measure_agreement import agreement as agreement
    from levelhead.measures.robustness.multiverse import Multiverse as Multiverse
    from levelhead.measures.robustness.multiverse import multiverse as multiverse
    from levelhead.measures.run import compare as compare
    from levelhead.measures.utility.accuracy import Accuracy as Accuracy
    from levelhead.measures.utility.glue_task import Tasked as Tasked
    from levelhead.measures.utility.glue_task import finetune_on as finetune_on
    from levelhead.measures.utility.perplexity import Perplexity as Perplexity
    from levelhead.measures.utility.perplexity import PseudoPerplexity as PseudoPerplexity
    from levelhead.measures.utility.pronoun_agreement import PronounAgreement as PronounAgreement
    from levelhead.measures.utility.snli import Snli as Snli
    from levelhead.mitigate.evaluation.single_edit_gain import gain_by as gain_by
    from levelhead.mitigate.heads.mask import mask as mask
    from levelhead.mitigate.heads.mask import scale as scale
    from levelhead.mitigate.probing.concept_removal import removed as removed
    from levelhead.mitigate.projection.baselines import inlp as inlp
    from levelhead.mitigate.projection.baselines import leace as leace
    from levelhead.mitigate.projection.baselines import sentence_debias as sentence_debias
    from levelhead.mitigate.projection.config_grid import Setting as Setting
    from levelhead.mitigate.projection.config_grid import grid as grid
    from levelhead.mitigate.projection.edit_points import project as project
    from levelhead.mitigate.projection.edit_points import subspaces as subspaces
    from levelhead.mitigate.projection.subspace import Subspace as Subspace
    from levelhead.mitigate.projection.subspace_stability import stability as stability
    from levelhead.mitigate.prompting.choose_prefix import PromptChoice as PromptChoice
    from levelhead.mitigate.prompting.choose_prefix import prompt as prompt
    from levelhead.mitigate.selection.select_edit import tune as tune
    from levelhead.mitigate.selection.select_edit import tune_task as tune_task
    from levelhead.mitigate.selection.user_task import own_task as own_task
    from levelhead.models.edits.base import HeadScale as HeadScale
    from levelhead.models.edits.base import Projection as Projection
    from levelhead.models.edits.erasure import Erasure as Erasure
    from levelhead.models.edits.files import load_edits as load_edits
    from levelhead.models.edits.files import save_edits as save_edits
    from levelhead.models.edits.merge import NotBakeable as NotBakeable
    from levelhead.models.inputs.tokenizer import TooLong as TooLong
    from levelhead.models.inputs.tokenizer import UnknownWord as UnknownWord
    from levelhead.models.lm import LM as LM
    from levelhead.models.loading.checkpoints import NoHead as NoHead
    from levelhead.models.loading.http_model import Remote as Remote
    from levelhead.models.loading.load import load as load
    from levelhead.models.sites import Site as Site
    from levelhead.models.training.finetune import Tuning as Tuning
    from levelhead.models.training.finetune import finetune as finetune
    from levelhead.report.charts.registry import chart as chart

_HOME = {
    "paired": "levelhead.data.counterfactuals.contrast_pairs",
    "placebo_pairs": "levelhead.data.counterfactuals.contrast_pairs",
    "swapped_pairs": "levelhead.data.counterfactuals.contrast_pairs",
    "project": "levelhead.mitigate.projection.edit_points",
    "Setting": "levelhead.mitigate.projection.config_grid",
    "grid": "levelhead.mitigate.projection.config_grid",
    "stability": "levelhead.mitigate.projection.subspace_stability",
    "Subspace": "levelhead.mitigate.projection.subspace",
    "subspaces": "levelhead.mitigate.projection.edit_points",
    "Erasure": "levelhead.models.edits.erasure",
    "sentence_debias": "levelhead.mitigate.projection.baselines",
    "leace": "levelhead.mitigate.projection.baselines",
    "inlp": "levelhead.mitigate.projection.baselines",
    "chart": "levelhead.report.charts.registry",
    "pairs_from": "levelhead.explain.attention.pair_sources",
    "scale": "levelhead.mitigate.heads.mask",
    "mask": "levelhead.mitigate.heads.mask",
    "locate": "levelhead.locate",
    "HeadMap": "levelhead.locate.head_map",
    "counterstereotype": "levelhead.explain.attention.counterstereotype",
    "CounterStereotype": "levelhead.explain.attention.counterstereotype",
    "knowledge": "levelhead.explain.prompting.knowledge",
    "Knowledge": "levelhead.explain.prompting.knowledge",
    "prompt": "levelhead.mitigate.prompting.choose_prefix",
    "PromptChoice": "levelhead.mitigate.prompting.choose_prefix",
    "Remote": "levelhead.models.loading.http_model",
    "Agreement": "levelhead.measures.robustness.measure_agreement",
    "agreement": "levelhead.measures.robustness.measure_agreement",
    "Coal": "levelhead.measures.classification.nli_coal",
    "Continuation": "levelhead.measures.generation.continuation",
    "Counterfactual": "levelhead.measures.classification.counterfactual",
    "Lpbs": "levelhead.measures.likelihood.lpbs",
    "Multiverse": "levelhead.measures.robustness.multiverse",
    "multiverse": "levelhead.measures.robustness.multiverse",
    "Nli": "levelhead.measures.classification.nli_occupations",
    "Snli": "levelhead.measures.utility.snli",
    "StereoSet": "levelhead.measures.likelihood.stereoset",
    "every_pair": "levelhead.measures.robustness.all_group_pairs",
    "LevelheadError": "levelhead.core.errors",
    "Organism": "levelhead.calibrate.organisms.organism",
    "organism": "levelhead.calibrate.organisms.organism",
    "Interval": "levelhead.core.results",
    "Measurement": "levelhead.core.results",
    "PValue": "levelhead.core.results",
    "Provenance": "levelhead.core.results",
    "Cloze": "levelhead.measures.cloze.cloze",
    "ClozeTop": "levelhead.measures.cloze.top_k",
    "Comparison": "levelhead.measures.compare",
    "Contrast": "levelhead.measures.next_sentence.strength",
    "Crows": "levelhead.measures.likelihood.crows",
    "Distance": "levelhead.measures.next_sentence.distance",
    "GroupPreference": "levelhead.measures.cloze.group_preference",
    "HeadScale": "levelhead.models.edits.base",
    "Inference": "levelhead.core.run_context",
    "RunContext": "levelhead.core.run_context",
    "Perplexity": "levelhead.measures.utility.perplexity",
    "PseudoPerplexity": "levelhead.measures.utility.perplexity",
    "Seat": "levelhead.measures.embedding.seat",
    "Strength": "levelhead.measures.next_sentence.strength",
    "compare": "levelhead.measures.run",
    "dataset": "levelhead.data.catalog.datasets",
    "lexicon": "levelhead.data.lexicons.lexicon",
    "LM": "levelhead.models.lm",
    "NoHead": "levelhead.models.loading.checkpoints",
    "NotBakeable": "levelhead.models.edits.merge",
    "Projection": "levelhead.models.edits.base",
    "Site": "levelhead.models.sites",
    "TooLong": "levelhead.models.inputs.tokenizer",
    "UnknownWord": "levelhead.models.inputs.tokenizer",
    "load": "levelhead.models.loading.load",
    "PronounAgreement": "levelhead.measures.utility.pronoun_agreement",
    "removed": "levelhead.mitigate.probing.concept_removal",
    "held_out": "levelhead.data.counterfactuals.held_out",
    "held_out_texts": "levelhead.data.counterfactuals.held_out",
    "gain_by": "levelhead.mitigate.evaluation.single_edit_gain",
    "Accuracy": "levelhead.measures.utility.accuracy",
    "Excess": "levelhead.measures.classification.controlled_difference",
    "Tasked": "levelhead.measures.utility.glue_task",
    "finetune_on": "levelhead.measures.utility.glue_task",
    "tune": "levelhead.mitigate.selection.select_edit",
    "tune_task": "levelhead.mitigate.selection.select_edit",
    "own_task": "levelhead.mitigate.selection.user_task",
    "finetune": "levelhead.models.training.finetune",
    "Tuning": "levelhead.models.training.finetune",
    "load_edits": "levelhead.models.edits.files",
    "save_edits": "levelhead.models.edits.files",
}

__all__ = [
    "LM",
    "Accuracy",
    "Agreement",
    "Cloze",
    "ClozeTop",
    "Coal",
    "Comparison",
    "Continuation",
    "Contrast",
    "CounterStereotype",
    "Counterfactual",
    "Crows",
    "Distance",
    "Erasure",
    "Excess",
    "GroupPreference",
    "HeadMap",
    "HeadScale",
    "Inference",
    "Interval",
    "Knowledge",
    "LevelheadError",
    "Lpbs",
    "Measurement",
    "Multiverse",
    "Nli",
    "NoHead",
    "NotBakeable",
    "Organism",
    "PValue",
    "Perplexity",
    "Projection",
    "PromptChoice",
    "PronounAgreement",
    "Provenance",
    "PseudoPerplexity",
    "Remote",
    "RunContext",
    "Seat",
    "Setting",
    "Site",
    "Snli",
    "StereoSet",
    "Strength",
    "Subspace",
    "Tasked",
    "TooLong",
    "Tuning",
    "UnknownWord",
    "agreement",
    "chart",
    "compare",
    "counterstereotype",
    "dataset",
    "every_pair",
    "finetune",
    "finetune_on",
    "gain_by",
    "grid",
    "held_out",
    "held_out_texts",
    "inlp",
    "knowledge",
    "leace",
    "lexicon",
    "load",
    "load_edits",
    "locate",
    "mask",
    "multiverse",
    "organism",
    "own_task",
    "paired",
    "pairs_from",
    "placebo_pairs",
    "project",
    "prompt",
    "removed",
    "save_edits",
    "scale",
    "sentence_debias",
    "stability",
    "subspaces",
    "swapped_pairs",
    "tune",
    "tune_task",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'levelhead' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_HOME))
