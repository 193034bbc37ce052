"""Steps of two models, steps that fail alone, and time that is spent."""

import time

import pytest
import studies
import zoo

from levelhead.core.errors import LevelheadError
from levelhead.core.results import StepFailure
from levelhead.data.prompts.definitional_gender import DefinitionTemplate
from levelhead.measures.compare import Comparison
from levelhead.measures.registry import parse_measure
from levelhead.measures.run import compare
from levelhead.mitigate.evaluation.price import MitigationReport
from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import save_edits
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.study.config import read_study_config
from levelhead.study.distributed import OUT_OF_TIME, RESUME_HINT, Deadline
from levelhead.study.results_dir import load_results
from levelhead.study.run import run_study
from levelhead.study.table import result_to_rows

PAIRED = """
format = "levelhead-study-2"
name = "paired"
resamples = 99
permutations = 99

[models.tiny]
path = "{model}"

[models.edited]
path = "{model}"
edit = "{edit}"

[measures]
seat = "seat:lexicon={lexicon},targets=things,corpus={corpus}"

[measurements.both]
models = ["tiny", "edited"]
measures = ["seat"]

[comparisons.base]
first = "tiny"
second = "edited"
measures = ["seat"]
"""
PROBED = '\n[probing.edit]\nmodel = "{name}"\nlexicon = "{lexicon}"\n'


@pytest.fixture
def edit(tmp_path):
    folder = tmp_path / "edit"
    save_edits([HeadScale([Site("head_out", 1, 1)], 0)], folder)
    return folder


def paired(folder, edit, more=""):
    return read_study_config(studies.study(folder, (PAIRED + more).replace("{edit}", str(edit))))


def test_an_edited_model_stands_beside_its_base(every_step):
    plan, results = read_study_config(every_step.plan), every_step.results
    result = results["against.base.seat"]
    assert isinstance(result, Comparison)
    base = load(zoo.folder("bert", "BertForPreTraining"))
    other = base.edited(HeadScale([Site("head_out", 1, 1)], 0))
    measure = parse_measure(plan.measures["seat"])
    assert result.difference.value == pytest.approx(
        compare(measure, base, other).difference.value, abs=1e-9
    )
    assert result.second.value == results["cell.both.edited.seat"].value
    output = result_to_rows("against.base.seat", result)
    assert [row.name for row in output][:3] == ["first", "second", "second less first"]
    assert load_results(every_step.folder) == results


def test_one_step_that_fails_need_not_end_the_others(tmp_path, edit):
    lexicon = studies.lexicon(tmp_path)
    more = PROBED.replace("{name}", "edited").replace("{lexicon}", str(lexicon))
    plan = paired(tmp_path, edit, more)
    with pytest.raises(LevelheadError, match="does not record the words"):
        run_study(plan, tmp_path / "out")
    results = run_study(plan, tmp_path / "out", keep_going=True)
    assert isinstance(results["removed.edit"], StepFailure)
    assert isinstance(results["against.base.seat"], Comparison)
    unedited = PROBED.replace("{name}", "tiny").replace("{lexicon}", str(lexicon))
    with pytest.raises(LevelheadError, match="has no edit"):
        run_study(paired(tmp_path, edit, unedited), tmp_path / "other")


def test_spent_time_leaves_steps_for_the_next_call(tmp_path, edit):
    plan = paired(tmp_path, edit)
    results = run_study(plan, tmp_path / "out", deadline=Deadline(time.monotonic() - 1))
    first, *others = results.values()
    assert not isinstance(first, StepFailure)  # no time at all would be no run
    assert set(others) == {StepFailure(problem=OUT_OF_TIME, hint=RESUME_HINT)}
    assert all(
        not isinstance(item, StepFailure) for item in run_study(plan, tmp_path / "out").values()
    )


def test_results_that_are_none_are_refused(tmp_path, every_step):
    with pytest.raises(LevelheadError, match="no results"):
        load_results(tmp_path)
    out = every_step.copied(tmp_path / "out")
    path = out / "results" / "against.base.seat.json"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(LevelheadError, match="cannot be read"):
        load_results(out)


MITIGATED = """
[mitigations.edit]
model = "tiny"
mitigated = "edited"
measures = ["seat"]
utility_measures = ["pppl"]
"""


def test_a_mitigation_stands_in_the_table_with_its_price(tmp_path, edit):
    texts = 'pppl = "pppl:texts={corpus},limit=12"\n\n[measurements.both]'
    study = PAIRED.replace("[measurements.both]", texts) + MITIGATED
    plan = read_study_config(studies.study(tmp_path, study.replace("{edit}", str(edit))))
    results = run_study(plan, tmp_path / "out")
    report = results["mitigation.edit"]
    assert isinstance(report, MitigationReport)
    difference = results["against.base.seat"].difference
    assert report.bias[0].difference.value == difference.value
    rows = result_to_rows("mitigation.edit", report)
    assert {row.what for row in rows} >= {"seat", "pppl", "difference of pppl"}
    assert {row.name for row in rows} == {"base", "mitigated", "mitigated less base"}
    # An edited model keeps its edit, and the base is the model as it is given.
    assert report.price[0].first.provenance.edits == ()
    assert len(report.price[0].second.provenance.edits) == 1
    assert load_results(tmp_path / "out") == results


def test_a_mitigation_that_changes_nothing_is_refused(tmp_path, edit):
    without = MITIGATED.replace('mitigated = "edited"\n', "").replace("pppl", "seat")
    with pytest.raises(LevelheadError, match="a mitigation changes nothing"):
        paired(tmp_path, edit, without).check()


def test_a_mitigation_has_its_panel_of_knowledge(tmp_path, edit, monkeypatch):
    """With a template in the words of the tiny model."""
    template = DefinitionTemplate("pronoun", "the {word} said that [MASK] was here.", "subject")
    monkeypatch.setattr("levelhead.measures.utility.definitional_gender.TEMPLATES", (template,))
    measures = 'defined = "definitional_gender:words=woman"\n\n[measurements.both]'
    row = MITIGATED.replace('utility_measures = ["pppl"]', 'knowledge_measures = ["defined"]')
    study = PAIRED.replace("[measurements.both]", measures) + row
    utilities = 'utility_measures = ["defined"]\nknowledge_margin = 7.5\nknowledge_measures'
    study = study.replace("knowledge_measures", utilities)
    plan = read_study_config(studies.study(tmp_path, study.replace("{edit}", str(edit))))
    report = run_study(plan, tmp_path / "out")["mitigation.edit"]
    assert report.knowledge.margin == 7.5
    (change,) = report.knowledge.changes
    assert change.outcome == "inconclusive"  # two words, and a model that knows neither
    rows = {(row.name, row.what) for row in result_to_rows("mitigation.edit", report)}
    assert ("knowledge inconclusive", "change of definitional_gender") in rows
