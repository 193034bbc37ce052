"""Behaviour of heads and answers, and their causes, when the group in a text is exchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead._lazy import attach

if TYPE_CHECKING:
    from levelhead.explain.attention.counterstereotype import (
        CounterStereotypeResult as CounterStereotypeResult,
    )
    from levelhead.explain.attention.counterstereotype import counterstereotype as counterstereotype
    from levelhead.explain.attention.head_groups import HeadGroups as HeadGroups
    from levelhead.explain.attention.pair_sources import (
        counterstereotype_pairs as counterstereotype_pairs,
    )
    from levelhead.explain.prompting.knowledge import KnowledgeResult as KnowledgeResult
    from levelhead.explain.prompting.knowledge import knowledge as knowledge
    from levelhead.locate.patching.feature_attribution import FeatureConfig as FeatureConfig
    from levelhead.locate.patching.feature_attribution import locate_features as locate_features
    from levelhead.locate.patching.feature_map import FeatureMap as FeatureMap
    from levelhead.locate.patching.mediation import MediationConfig as MediationConfig
    from levelhead.locate.patching.mediation import mediate as mediate
    from levelhead.locate.patching.mediation_map import MediationMap as MediationMap

__getattr__, __dir__, __all__ = attach(__name__, __file__)
