"""The table of a study: which results say what they are measured by."""

import pytest
from maps import comparison, interval, targeted
from sweeps import masked_task

from levelhead.core.results import Measurement
from levelhead.explain.attention.counterstereotype import CounterStereotypeResult
from levelhead.explain.attention.example import AttentionExample
from levelhead.explain.prompting.knowledge import KnowledgeResult
from levelhead.locate.compare_maps import MapComparison
from levelhead.measures.compare import Comparison
from levelhead.mitigate.evaluation.price import MitigationReport
from levelhead.mitigate.heads.mask_top_heads import MaskingReport
from levelhead.mitigate.probing.concept_removal import RemovalReport
from levelhead.mitigate.training.variants import TrainedVariant
from levelhead.replication.dawkins2024.downstream import DownstreamReport
from levelhead.replication.dawkins2024.pair_budget import SubspaceStabilityReport
from levelhead.replication.yang2025.glue_masking import GlueMaskingResult
from levelhead.replication.yang2025.masking_curves import MaskingCurves
from levelhead.study.steps.kinds import STEP_KINDS
from levelhead.study.steps.trained_models import TrainedClassifier
from levelhead.study.table import group_by_interval, result_to_rows, to_csv
from levelhead.study.table_row import RowCells, TableRow, interval_over

OF_NO_RULER = {
    *(
        AttentionExample,
        CounterStereotypeResult,
        KnowledgeResult,
        RemovalReport,
        TrainedVariant,
        TrainedClassifier,
        GlueMaskingResult,
    ),
    SubspaceStabilityReport,
}
PARTS_SAY = {
    *(Measurement, Comparison, MapComparison, MaskingReport, MaskingCurves, DownstreamReport),
    MitigationReport,
}


def test_every_other_result_says_what_it_is_measured_by():
    every = {result for kind in STEP_KINDS for result in kind.definition.table_rows}
    silent = {kind for kind in every if not hasattr(kind, "measured_by")}
    silent -= {kind for kind in silent if "measured_by" in kind.model_fields}
    assert silent == OF_NO_RULER | PARTS_SAY


def test_cells_are_the_fields_of_a_row():
    assert list(RowCells.__annotations__) == list(TableRow.model_fields)


def test_maps_of_models_with_other_heads_have_no_count_of_the_same_heads():
    output = result_to_rows("compare.all", comparison())
    counted = {row.name for row in output if row.what == "anti-bias heads turned positive"}
    assert counted == {item.name for item in comparison().compared_maps} - {"deeper model"}


@pytest.mark.parametrize(
    ("method", "over"),
    [
        ("bootstrap t, 20+20 words; contexts held", "words; contexts held"),
        ("bca, 40 words x 3 contexts", "words x contexts"),
        ("out of bag, t, 234 triples", "triples"),
        ("range of resamples, 5 of 20 words", "words"),
        ("spearman, fisher z, effects resampled: 60 words", "words"),
        ("student, 3 random head sets", "3 random head sets"),
        ("wilson", "items"),
        ("noncentral t, 5+5", "items"),
        ("heads relabelled within layers", "random groups of heads"),
    ],
)
def test_every_method_says_what_its_interval_is_over(method, over):
    assert interval_over(interval(0.0, method=method)) == over


def test_intervals_over_random_sets_stand_in_a_block_of_their_own():
    output = result_to_rows("masking.table1", targeted())
    assert all(row.over for row in output if row.low is not None)
    (first, items), (second, sets) = group_by_interval(output)
    assert (first, second) == ("", "5 random head sets")
    assert {row.name for row in sets} == {"random 3", "random 44"}
    assert {row.n for row in sets} == {5}
    assert not any(row.name.startswith("random") for row in items)
    assert "5 random head sets" in to_csv(output)
    assert [over for over, _ in group_by_interval(result_to_rows("glue", masked_task()))] == [
        "",
        "3 random head sets",
    ]
