"""The table of a study: which results say what they are measured by."""

from maps import comparison

from levelhead.core.results import Inconclusive, Measurement
from levelhead.explain.counterstereotype import CounterStereotype
from levelhead.explain.example import Example
from levelhead.explain.knowledge import Knowledge
from levelhead.locate.compare import MapComparison
from levelhead.measure.compare import Comparison
from levelhead.mitigate.children import Child
from levelhead.mitigate.downstream import Downstream
from levelhead.mitigate.removed import Removed
from levelhead.mitigate.targeted import Lines, Targeted
from levelhead.study.projecting import Stable
from levelhead.study.table import ROWS, rows
from levelhead.study.tuning import MaskedTask, Trained

OF_NO_RULER = {
    *(Inconclusive, Example, CounterStereotype, Knowledge, Removed, Child, Trained, MaskedTask),
    Stable,
}
PARTS_SAY = {Measurement, Comparison, MapComparison, Targeted, Lines, Downstream}


def test_every_other_result_says_what_it_is_measured_by():
    silent = {kind for kind in ROWS if not hasattr(kind, "measured_by")}
    silent -= {kind for kind in silent if "measured_by" in kind.model_fields}
    assert silent == OF_NO_RULER | PARTS_SAY


def test_maps_of_models_with_other_heads_have_no_count_of_the_same_heads():
    told = rows("compare.all", comparison())
    counted = {row.name for row in told if row.what == "anti-bias heads turned positive"}
    assert counted == {one.name for one in comparison().children} - {"deeper model"}
