"""Edits and trainings that reduce a measured bias, each with its utility cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead._lazy import attach

if TYPE_CHECKING:
    from levelhead.mitigate.evaluation.bias_reduction import (
        estimate_bias_reduction as estimate_bias_reduction,
    )
    from levelhead.mitigate.evaluation.knowledge import KnowledgePanel as KnowledgePanel
    from levelhead.mitigate.evaluation.knowledge import evaluate_knowledge as evaluate_knowledge
    from levelhead.mitigate.evaluation.knowledge import (
        list_knowledge_measures as list_knowledge_measures,
    )
    from levelhead.mitigate.evaluation.knowledge_front import KnowledgeFront as KnowledgeFront
    from levelhead.mitigate.evaluation.knowledge_front import compare_edits as compare_edits
    from levelhead.mitigate.evaluation.price import MitigationReport as MitigationReport
    from levelhead.mitigate.evaluation.price import evaluate_mitigation as evaluate_mitigation
    from levelhead.mitigate.evaluation.price import list_price_measures as list_price_measures
    from levelhead.mitigate.heads.mask import mask_heads as mask_heads
    from levelhead.mitigate.heads.mask import scale_heads as scale_heads
    from levelhead.mitigate.probing.concept_removal import (
        BiasReductionEvidence as BiasReductionEvidence,
    )
    from levelhead.mitigate.probing.concept_removal import ProbeConfig as ProbeConfig
    from levelhead.mitigate.probing.concept_removal import concept_removal as concept_removal
    from levelhead.mitigate.projection.baselines import inlp as inlp
    from levelhead.mitigate.projection.baselines import leace as leace
    from levelhead.mitigate.projection.baselines import sentence_debias as sentence_debias
    from levelhead.mitigate.projection.config_grid import ProjectionConfig as ProjectionConfig
    from levelhead.mitigate.projection.config_grid import projection_grid as projection_grid
    from levelhead.mitigate.projection.edit_points import fit_subspaces as fit_subspaces
    from levelhead.mitigate.projection.edit_points import project as project
    from levelhead.mitigate.projection.subspace import Subspace as Subspace
    from levelhead.mitigate.projection.subspace_stability import (
        subspace_stability as subspace_stability,
    )
    from levelhead.mitigate.prompting.choose_prefix import PrefixSelection as PrefixSelection
    from levelhead.mitigate.prompting.choose_prefix import (
        select_prompt_prefix as select_prompt_prefix,
    )
    from levelhead.mitigate.prompting.prefixes import PrefixGrid as PrefixGrid
    from levelhead.mitigate.selection.candidate_evaluation import UtilityLimit as UtilityLimit
    from levelhead.mitigate.selection.candidates import CandidateGrid as CandidateGrid
    from levelhead.mitigate.selection.compare_methods import MethodComparison as MethodComparison
    from levelhead.mitigate.selection.compare_methods import compare_methods as compare_methods
    from levelhead.mitigate.selection.method_table import MethodTable as MethodTable
    from levelhead.mitigate.selection.select_edit import select_edit as select_edit
    from levelhead.mitigate.selection.select_edit import (
        select_edit_for_task as select_edit_for_task,
    )
    from levelhead.mitigate.selection.user_task import TaskFiles as TaskFiles
    from levelhead.mitigate.selection.user_task import load_user_task as load_user_task
    from levelhead.mitigate.steering.candidates import steering_candidates as steering_candidates
    from levelhead.mitigate.steering.fit import SteeringConfig as SteeringConfig
    from levelhead.mitigate.steering.fit import SteeringFit as SteeringFit
    from levelhead.mitigate.steering.fit import fit_steering as fit_steering
    from levelhead.mitigate.steering.fit import steer as steer

__getattr__, __dir__, __all__ = attach(__name__, __file__)
