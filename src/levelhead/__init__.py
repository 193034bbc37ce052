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
    from levelhead.calibrate.organisms import Organism as Organism
    from levelhead.calibrate.organisms import organism as organism
    from levelhead.core.errors import LevelheadError as LevelheadError
    from levelhead.core.results import Interval as Interval
    from levelhead.core.results import Measurement as Measurement
    from levelhead.core.results import Provenance as Provenance
    from levelhead.core.results import PValue as PValue
    from levelhead.core.run_context import Inference as Inference
    from levelhead.core.run_context import RunContext as RunContext
    from levelhead.data.datasets import dataset as dataset
    from levelhead.data.held_out import held_out as held_out
    from levelhead.data.held_out import held_out_texts as held_out_texts
    from levelhead.data.lexicon import lexicon as lexicon
    from levelhead.data.paired import paired as paired
    from levelhead.data.paired import placebo_pairs as placebo_pairs
    from levelhead.data.paired import swapped_pairs as swapped_pairs
    from levelhead.explain.counterstereotype import CounterStereotype as CounterStereotype
    from levelhead.explain.counterstereotype import counterstereotype as counterstereotype
    from levelhead.explain.knowledge import Knowledge as Knowledge
    from levelhead.explain.knowledge import knowledge as knowledge
    from levelhead.explain.sources import pairs_from as pairs_from
    from levelhead.locate import locate as locate
    from levelhead.locate.headmap import HeadMap as HeadMap
    from levelhead.measure.accuracy import Accuracy as Accuracy
    from levelhead.measure.agreement import Agreement as Agreement
    from levelhead.measure.agreement import agreement as agreement
    from levelhead.measure.cloze import Cloze as Cloze
    from levelhead.measure.cloze_top import ClozeTop as ClozeTop
    from levelhead.measure.coal import Coal as Coal
    from levelhead.measure.compare import Comparison as Comparison
    from levelhead.measure.continuation import Continuation as Continuation
    from levelhead.measure.counterfactual import Counterfactual as Counterfactual
    from levelhead.measure.crows import Crows as Crows
    from levelhead.measure.distance import Distance as Distance
    from levelhead.measure.excess import Excess as Excess
    from levelhead.measure.fluency import Perplexity as Perplexity
    from levelhead.measure.fluency import PseudoPerplexity as PseudoPerplexity
    from levelhead.measure.group_preference import GroupPreference as GroupPreference
    from levelhead.measure.lpbs import Lpbs as Lpbs
    from levelhead.measure.multiverse import Multiverse as Multiverse
    from levelhead.measure.multiverse import multiverse as multiverse
    from levelhead.measure.nli import Nli as Nli
    from levelhead.measure.pairs import every_pair as every_pair
    from levelhead.measure.pronouns_agree import PronounAgreement as PronounAgreement
    from levelhead.measure.run import compare as compare
    from levelhead.measure.seat import Seat as Seat
    from levelhead.measure.snli import Snli as Snli
    from levelhead.measure.stereoset import StereoSet as StereoSet
    from levelhead.measure.strength import Contrast as Contrast
    from levelhead.measure.strength import Strength as Strength
    from levelhead.measure.task import Tasked as Tasked
    from levelhead.measure.task import finetune_on as finetune_on
    from levelhead.mitigate.baselines import inlp as inlp
    from levelhead.mitigate.baselines import leace as leace
    from levelhead.mitigate.baselines import sentence_debias as sentence_debias
    from levelhead.mitigate.heads import mask as mask
    from levelhead.mitigate.heads import scale as scale
    from levelhead.mitigate.levels import project as project
    from levelhead.mitigate.levels import subspaces as subspaces
    from levelhead.mitigate.own_task import own_task as own_task
    from levelhead.mitigate.prompt import PromptChoice as PromptChoice
    from levelhead.mitigate.prompt import prompt as prompt
    from levelhead.mitigate.removed import removed as removed
    from levelhead.mitigate.ruler import gain_by as gain_by
    from levelhead.mitigate.settings import Setting as Setting
    from levelhead.mitigate.settings import grid as grid
    from levelhead.mitigate.stability import stability as stability
    from levelhead.mitigate.subspace import Subspace as Subspace
    from levelhead.mitigate.tune import tune as tune
    from levelhead.mitigate.tune import tune_task as tune_task
    from levelhead.models.bake import NotBakeable as NotBakeable
    from levelhead.models.checkpoints import NoHead as NoHead
    from levelhead.models.edit_files import load_edits as load_edits
    from levelhead.models.edit_files import save_edits as save_edits
    from levelhead.models.edits import HeadScale as HeadScale
    from levelhead.models.edits import Projection as Projection
    from levelhead.models.erasure import Erasure as Erasure
    from levelhead.models.finetune import Tuning as Tuning
    from levelhead.models.finetune import finetune as finetune
    from levelhead.models.lm import LM as LM
    from levelhead.models.load import load as load
    from levelhead.models.remote import Remote as Remote
    from levelhead.models.sites import Site as Site
    from levelhead.models.tokens import TooLong as TooLong
    from levelhead.models.tokens import UnknownWord as UnknownWord
    from levelhead.report.charts import chart as chart

_HOME = {
    "paired": "levelhead.data.paired",
    "placebo_pairs": "levelhead.data.paired",
    "swapped_pairs": "levelhead.data.paired",
    "project": "levelhead.mitigate.levels",
    "Setting": "levelhead.mitigate.settings",
    "grid": "levelhead.mitigate.settings",
    "stability": "levelhead.mitigate.stability",
    "Subspace": "levelhead.mitigate.subspace",
    "subspaces": "levelhead.mitigate.levels",
    "Erasure": "levelhead.models.erasure",
    "sentence_debias": "levelhead.mitigate.baselines",
    "leace": "levelhead.mitigate.baselines",
    "inlp": "levelhead.mitigate.baselines",
    "chart": "levelhead.report.charts",
    "pairs_from": "levelhead.explain.sources",
    "scale": "levelhead.mitigate.heads",
    "mask": "levelhead.mitigate.heads",
    "locate": "levelhead.locate",
    "HeadMap": "levelhead.locate.headmap",
    "counterstereotype": "levelhead.explain.counterstereotype",
    "CounterStereotype": "levelhead.explain.counterstereotype",
    "knowledge": "levelhead.explain.knowledge",
    "Knowledge": "levelhead.explain.knowledge",
    "prompt": "levelhead.mitigate.prompt",
    "PromptChoice": "levelhead.mitigate.prompt",
    "Remote": "levelhead.models.remote",
    "Agreement": "levelhead.measure.agreement",
    "agreement": "levelhead.measure.agreement",
    "Coal": "levelhead.measure.coal",
    "Continuation": "levelhead.measure.continuation",
    "Counterfactual": "levelhead.measure.counterfactual",
    "Lpbs": "levelhead.measure.lpbs",
    "Multiverse": "levelhead.measure.multiverse",
    "multiverse": "levelhead.measure.multiverse",
    "Nli": "levelhead.measure.nli",
    "Snli": "levelhead.measure.snli",
    "StereoSet": "levelhead.measure.stereoset",
    "every_pair": "levelhead.measure.pairs",
    "LevelheadError": "levelhead.core.errors",
    "Organism": "levelhead.calibrate.organisms",
    "organism": "levelhead.calibrate.organisms",
    "Interval": "levelhead.core.results",
    "Measurement": "levelhead.core.results",
    "PValue": "levelhead.core.results",
    "Provenance": "levelhead.core.results",
    "Cloze": "levelhead.measure.cloze",
    "ClozeTop": "levelhead.measure.cloze_top",
    "Comparison": "levelhead.measure.compare",
    "Contrast": "levelhead.measure.strength",
    "Crows": "levelhead.measure.crows",
    "Distance": "levelhead.measure.distance",
    "GroupPreference": "levelhead.measure.group_preference",
    "HeadScale": "levelhead.models.edits",
    "Inference": "levelhead.core.run_context",
    "RunContext": "levelhead.core.run_context",
    "Perplexity": "levelhead.measure.fluency",
    "PseudoPerplexity": "levelhead.measure.fluency",
    "Seat": "levelhead.measure.seat",
    "Strength": "levelhead.measure.strength",
    "compare": "levelhead.measure.run",
    "dataset": "levelhead.data.datasets",
    "lexicon": "levelhead.data.lexicon",
    "LM": "levelhead.models.lm",
    "NoHead": "levelhead.models.checkpoints",
    "NotBakeable": "levelhead.models.bake",
    "Projection": "levelhead.models.edits",
    "Site": "levelhead.models.sites",
    "TooLong": "levelhead.models.tokens",
    "UnknownWord": "levelhead.models.tokens",
    "load": "levelhead.models.load",
    "PronounAgreement": "levelhead.measure.pronouns_agree",
    "removed": "levelhead.mitigate.removed",
    "held_out": "levelhead.data.held_out",
    "held_out_texts": "levelhead.data.held_out",
    "gain_by": "levelhead.mitigate.ruler",
    "Accuracy": "levelhead.measure.accuracy",
    "Excess": "levelhead.measure.excess",
    "Tasked": "levelhead.measure.task",
    "finetune_on": "levelhead.measure.task",
    "tune": "levelhead.mitigate.tune",
    "tune_task": "levelhead.mitigate.tune",
    "own_task": "levelhead.mitigate.own_task",
    "finetune": "levelhead.models.finetune",
    "Tuning": "levelhead.models.finetune",
    "load_edits": "levelhead.models.edit_files",
    "save_edits": "levelhead.models.edit_files",
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
