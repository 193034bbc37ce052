"""All kinds of steps, in the order in which they are run and people read them.

To add one: a file beside this one with a config class, the steps it makes, and the rows of its
results (a `StepDefinition`), and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from levelhead.core.results import Record
    from levelhead.study.row import RowCells
    from levelhead.study.session import Step, Work
    from levelhead.study.steps.config import Strict

ToRows = Callable[[Any], Iterator["RowCells"]]


@final
@dataclass(frozen=True)
class StepDefinition:
    """What a kind of step is: its rows in a study file, its steps, and its rows in the table."""

    config: type[Strict]
    """A row of its table in a study file; says which names it refers to."""
    steps: Callable[[Work], Iterator[Step]]
    """All steps of this kind, each with those it needs."""
    rows: Mapping[type[Record], ToRows]
    """The numbers of each kind of result, for the table of the study."""


@final
@dataclass(frozen=True)
class StepKind:
    """A row of STEP_KINDS."""

    table: str
    """Its table in a study file."""
    home: str
    """Where its `StepDefinition` is. Imported when it is needed: a gate that reads measurements
    needs no torch."""
    results: Mapping[str, str]
    """The class of its results, by the first word of the step's name."""

    @cached_property
    def definition(self) -> StepDefinition:
        """Its definition, imported now."""
        found: StepDefinition = resolve_name(f"levelhead.study.steps.{self.home}")
        return found


STEP_KINDS = (
    StepKind(
        "children", "made_models:CHILDREN", {"child": "mitigate.training.cda_and_dropout:Child"}
    ),
    StepKind("tuned", "made_models:TUNED", {"tuned": "study.steps.made_models:Trained"}),
    StepKind("cells", "measurements:CELLS", {"cell": "core.results:Measurement"}),
    StepKind("against", "measurements:COMPARISONS", {"against": "measures.compare:Comparison"}),
    StepKind("removed", "probing:PROBING", {"removed": "mitigate.probing.concept_removal:Removed"}),
    StepKind(
        "maps",
        "head_maps:HEAD_MAPS",
        {
            "map": "locate.head_map:HeadMap",
            "describe": "locate.describe:Description",
            "control": "locate.validation.random_heads:Control",
            "splits": "locate.validation.repeated_splits:Repeated",
            "greedy": "locate.validation.greedy:Greedy",
        },
    ),
    StepKind("masking", "masking:MASKING", {"masking": "mitigate.heads.mask_top_heads:Targeted"}),
    StepKind("lines", "masking:CURVES", {"lines": "mitigate.heads.mask_top_heads:Lines"}),
    StepKind("amplify", "masking:AMPLIFY", {"amplify": "mitigate.heads.amplify:Amplified"}),
    StepKind(
        "explain",
        "counterstereotype:COUNTERSTEREOTYPE",
        {
            "explain": "explain.attention.counterstereotype:CounterStereotype",
            "example": "explain.attention.example:Example",
        },
    ),
    StepKind(
        "knowledge", "prompting:PROMPTING", {"knowledge": "explain.prompting.knowledge:Knowledge"}
    ),
    StepKind(
        "compare", "compare_maps:COMPARE_MAPS", {"compare": "locate.compare_maps:MapComparison"}
    ),
    StepKind(
        "sweeps",
        "projection_sweep:PROJECTION_SWEEP",
        {
            "stability": "study.steps.projection_sweep:Stable",
            "sweep": "mitigate.evaluation.sweep:Swept",
            "findings": "replication.dawkins2024.claims:Findings",
            "choice": "mitigate.selection.select_on_dev:Choice",
            "pairs": "study.steps.projection_sweep:Handful",
            "placebo": "mitigate.controls.placebo_report:Placeboed",
        },
    ),
    StepKind(
        "downstream",
        "downstream:DOWNSTREAM",
        {
            "outside": "mitigate.evaluation.sweep:Swept",
            "downstream": "replication.dawkins2024.downstream:Downstream",
        },
    ),
    StepKind("glue", "glue:GLUE", {"glue": "study.steps.glue:MaskedTask"}),
)


def make_steps(work: Work) -> Iterator[Step]:
    """Every step of a study, in an order in which each finds what it needs."""
    for kind in STEP_KINDS:
        yield from kind.definition.steps(work)
