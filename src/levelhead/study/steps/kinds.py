"""All kinds of steps, in the order of runs and reports.

To add one, write a file in this folder with a config class, its steps and the table rows of its
results (a `StepDefinition`), and add a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from levelhead.core.results import Record
    from levelhead.study.session import StudySession, StudyStep
    from levelhead.study.steps.config import StrictConfig
    from levelhead.study.table_row import RowCells

ToRows = Callable[[Any], Iterator["RowCells"]]


@final
@dataclass(frozen=True)
class StepDefinition:
    """A kind of step: its rows in a study file, its steps, and its rows in `table.csv`."""

    config: type[StrictConfig]
    """Class of a row of its table in a study file, which lists the names that it uses."""
    steps: Callable[[StudySession], Iterator[StudyStep]]
    """Generator of all steps of this kind, each with the steps that it needs."""
    table_rows: Mapping[type[Record], ToRows]
    """Functions that make rows of `table.csv`, by class of result."""


@final
@dataclass(frozen=True)
class StepKind:
    """A row of STEP_KINDS."""

    config_table: str
    """Name of its table in a study file."""
    definition_path: str
    """`module:NAME` of its `StepDefinition`, below `levelhead.study.steps`. Imported lazily: a gate
    that reads measurements needs no torch."""
    results: Mapping[str, str]
    """`module:Class` of its results, below `levelhead`, by the first part of the step's name."""

    @cached_property
    def definition(self) -> StepDefinition:
        """Import and return the definition."""
        definition: StepDefinition = resolve_name(f"levelhead.study.steps.{self.definition_path}")
        return definition


STEP_KINDS = (
    StepKind(
        "continued_pretraining",
        "trained_models:CONTINUED_PRETRAINING",
        {"child": "mitigate.training.variants:TrainedVariant"},
    ),
    StepKind(
        "classifiers",
        "trained_models:FINETUNING",
        {"tuned": "study.steps.trained_models:TrainedClassifier"},
    ),
    StepKind("measurements", "measurements:MEASUREMENTS", {"cell": "core.results:Measurement"}),
    StepKind("comparisons", "measurements:COMPARISONS", {"against": "measures.compare:Comparison"}),
    StepKind(
        "probing",
        "probing:PROBING",
        {"removed": "mitigate.probing.concept_removal:RemovalReport"},
    ),
    StepKind(
        "head_maps",
        "head_maps:HEAD_MAPS",
        {
            "map": "locate.head_map:HeadMap",
            "describe": "locate.describe:MapDescription",
            "control": "locate.validation.random_heads:RandomHeadControl",
            "splits": "locate.validation.repeated_splits:SplitStability",
            "greedy": "locate.validation.greedy:GreedySelection",
        },
    ),
    StepKind(
        "masking", "masking:MASKING", {"masking": "mitigate.heads.mask_top_heads:MaskingReport"}
    ),
    StepKind(
        "mitigations",
        "measurements:MITIGATIONS",
        {"mitigation": "mitigate.evaluation.price:MitigationReport"},
    ),
    StepKind(
        "methods",
        "measurements:METHODS",
        {"methods": "mitigate.selection.method_table:MethodTable"},
    ),
    StepKind(
        "masking_curves",
        "masking:MASKING_CURVES",
        {"lines": "replication.yang2025.masking_curves:MaskingCurves"},
    ),
    StepKind("amplify", "masking:AMPLIFY", {"amplify": "mitigate.heads.amplify:AmplifyReport"}),
    StepKind(
        "counterstereotypes",
        "counterstereotype:COUNTERSTEREOTYPE",
        {
            "explain": "explain.attention.counterstereotype:CounterStereotypeResult",
            "example": "explain.attention.example:AttentionExample",
        },
    ),
    StepKind(
        "knowledge",
        "prompting:PROMPTING",
        {"knowledge": "explain.prompting.knowledge:KnowledgeResult"},
    ),
    StepKind(
        "map_comparisons",
        "compare_maps:COMPARE_MAPS",
        {"compare": "locate.compare_maps:MapComparison"},
    ),
    StepKind(
        "projection_sweeps",
        "projection_sweep:PROJECTION_SWEEP",
        {
            "stability": "replication.dawkins2024.pair_budget:SubspaceStabilityReport",
            "sweep": "mitigate.evaluation.sweep:SweepReport",
            "findings": "replication.dawkins2024.claims:ClaimTests",
            "choice": "mitigate.selection.select_on_dev:DevSelection",
            "pairs": "replication.dawkins2024.pair_budget:PairBudgetCurve",
            "placebo": "mitigate.controls.placebo_report:PlaceboReport",
        },
    ),
    StepKind(
        "downstream",
        "downstream:DOWNSTREAM",
        {
            "outside": "mitigate.evaluation.sweep:SweepReport",
            "downstream": "replication.dawkins2024.downstream:DownstreamReport",
        },
    ),
    StepKind("glue", "glue:GLUE", {"glue": "replication.yang2025.glue_masking:GlueMaskingResult"}),
)


def make_steps(session: StudySession) -> Iterator[StudyStep]:
    """All steps of a study, in an order in which each comes after the steps that it needs."""
    for kind in STEP_KINDS:
        yield from kind.definition.steps(session)
