"""An audit's plan: a core suite that no clock changes, and what there is time for beyond it."""

import shutil

import pytest
import tiny_audits
import zoo
from calibrations import Failed

from levelhead.core.calibration import MeasureKey as Calibrated
from levelhead.core.calibration import find_calibration
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference
from levelhead.data.catalog.datasets import DatasetMissingError
from levelhead.measures.registry import parse_measure
from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import save_edits
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.study.audit import budget_shares as dealing
from levelhead.study.audit import core_suite, time_budget
from levelhead.study.audit import suite as fitting
from levelhead.study.audit.audit import (
    AuditSources,
    NoBiasMeasureError,
    compute_request_hash,
    extend_audit,
    plan_core,
)
from levelhead.study.audit.budget_shares import OVERHEAD, with_option
from levelhead.study.audit.core_suite import (
    BERT,
    CAUSAL,
    CHAT,
    CLASSIFIER,
    CORE,
    EMBEDDINGS,
    MASKED,
    PAIRS,
    kind_of,
)
from levelhead.study.audit.saved_plan import (
    STUDY_FILE,
    load_matching_audit,
    read_audit,
    save_audit,
)
from levelhead.study.audit.suite import (
    AUDIT_MEASURES,
    LARGER_SUFFIX,
    LOCATORS,
    QUOTAS,
    AuditMeasure,
    rank_locators,
)
from levelhead.study.audit.time_budget import QueryTimer
from levelhead.study.config import read_study_config
from levelhead.study.steps.config import ModelSource

TINY = ("bert", "BertForPreTraining")
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


@pytest.fixture
def bert():
    return load(zoo.folder(*TINY))


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A core suite and more, in the words of the tiny models."""
    for change in tiny_audits.replacements(tmp_path):
        monkeypatch.setattr(*change)
    return fitting.AUDIT_MEASURES


def sources(**changes):
    return AuditSources(ModelSource(path=str(zoo.folder(*TINY)), **changes))


def paced(lm, each=0.1):
    """A machine that takes so many seconds a question."""
    paces = QueryTimer(lm, threads=1)
    paces.seconds_by_kind = dict.fromkeys(("embed", "score", "score pppl", "score ppl"), each)
    return paces


def planned(lm, *, left, each=0.1):
    core = plan_core(lm, sources(), budget=left)
    return extend_audit(
        core, lm, seconds_left=left, timer=None if left is None else paced(lm, each)
    )


def test_the_core_suite_is_the_same_whatever_the_budget_and_the_machine(bert, tiny):
    """A headline must not depend on machine load: nothing of the core suite may."""
    plans = [
        planned(bert, left=left, each=each)
        for left, each in ((None, 0.0), (1e6, 1e-4), (1200.0, 0.1), (60.0, 5.0), (0.001, 100.0))
    ]
    for plan in plans:
        assert plan.core == ("seat", "pppl")
        assert plan.study_config.measurements["audit"].measures == ("seat", "pppl")
        assert {name: plan.study_config.measures[name] for name in plan.core} == {
            row.name: row.text for row in core_suite.CORE
        }
        assert plan.request_hash == plans[0].request_hash
        assert plan.core_steps == {"cell.audit.model.seat", "cell.audit.model.pppl"}
    # The budget decides what is added: everything, or nothing at all.
    assert set(plans[0].study_config.measurements["more"].measures) == {
        f"seat{LARGER_SUFFIX}",
        "half",
        f"pppl{LARGER_SUFFIX}",
    }
    assert set(plans[-1].study_config.measurements) == {"audit"}
    late = {row.name for row in plans[-1].omitted if row.reason == "time budget"}
    assert late >= {f"seat{LARGER_SUFFIX}", "half", f"pppl{LARGER_SUFFIX}", "heads"}


def test_without_a_budget_everything_that_fits_is_added_whole(bert, tiny):
    result = planned(bert, left=None)
    assert dict(result.roles)[f"seat{LARGER_SUFFIX}"] == "bias"
    assert result.study_config.measures[f"seat{LARGER_SUFFIX}"] == tiny[0].text
    (ppl,) = result.omitted
    assert (ppl.name, ppl.reason) == ("ppl", "does not fit this model")
    assert not result.truncated
    assert result.expected_seconds is None
    assert result.study_config.head_maps["heads"].ablate_top == "all"


def test_less_time_adds_less_and_says_so(bert, tiny):
    full = planned(bert, left=1e6)
    assert not full.truncated
    few = 0.7 * full.expected_seconds
    result = planned(bert, left=few)
    assert result.expected_seconds <= few * OVERHEAD
    late = {row.name for row in result.omitted if row.reason == "time budget"}
    assert result.truncated or late
    for cut in result.truncated:
        assert 0 < cut.n_used < cut.n_total


def test_planning_times_each_kind_of_question_once(bert, tiny, monkeypatch):
    """Not each measure: trying all of them took longer than a small budget."""
    timed = []
    monkeypatch.setattr(
        "levelhead.study.audit.time_budget._time_query",
        lambda lm, queries, rows: timed.append(queries.query_kind) or 0.01,
    )
    core = plan_core(bert, sources(), budget=60.0)
    assert not timed
    extend_audit(core, bert, seconds_left=60.0)
    assert sorted(timed) == ["embed", "score"]


def test_the_core_suite_counts_with_its_estimated_time(bert, tiny):
    """What is planned depends on no time that a run has taken: an interruption would change it."""
    full = planned(bert, left=1e6)
    core = plan_core(bert, sources(), budget=60.0)
    seconds = fitting.estimate_core_seconds(bert, core.study_config.measures, paced(bert))
    assert seconds > 0
    little = extend_audit(core, bert, seconds_left=seconds / OVERHEAD, timer=paced(bert))
    assert little.study_config == core.study_config
    assert little.expected_seconds == pytest.approx(seconds)
    assert full.expected_seconds > 2 * seconds
    # Queries that two measures have in common are stored by the first and read by the second.
    same = core.study_config.measures
    twice = {**same, "again": same["seat"]}
    assert fitting.estimate_core_seconds(bert, twice, paced(bert)) == pytest.approx(seconds)


def test_queries_that_fail_while_they_are_timed_end_no_audit(bert, tiny, monkeypatch):
    """Planning comes before the core suite, which reports the failure."""

    def failed(lm, query_set, queries):
        if query_set.query_kind == "score":
            raise RuntimeError("no memory\nleft")
        return 0.001

    monkeypatch.setattr(time_budget, "_time_query", failed)
    core = plan_core(bert, sources(), budget=60.0)
    result = extend_audit(core, bert, seconds_left=60.0)
    reasons = {row.name: row for row in result.omitted}
    assert reasons[f"pppl{LARGER_SUFFIX}"].details == "RuntimeError: no memory"
    assert reasons[f"pppl{LARGER_SUFFIX}"].reason == "error"
    assert "half" in result.study_config.measures


def test_where_queries_cost_money_few_are_timed(bert, tiny, monkeypatch):
    counts = []
    monkeypatch.setattr(
        time_budget, "_time_query", lambda lm, query_set, queries: counts.append(len(queries)) or 1
    )
    core = plan_core(bert, sources(), budget=60.0)
    timer = QueryTimer(bert, threads=1, max_queries=2)
    extend_audit(core, bert, seconds_left=60.0, timer=timer)
    assert counts == [2, 2]


def test_heads_take_what_the_others_leave(bert, tiny, monkeypatch):
    """Their own part of the time is too little for them, but nobody else needs the rest."""
    full = planned(bert, left=1e6)
    monkeypatch.setattr(dealing, "BUDGET_SHARES", dealing.BUDGET_SHARES | {"heads": 1e-9})
    result = planned(bert, left=full.expected_seconds / OVERHEAD * 1.2)
    assert "heads" in result.study_config.head_maps
    assert "heads" not in {row.name for row in result.omitted}


def test_missing_data_stay_in_the_plan_as_not_run(bert, tiny, monkeypatch):
    def missing(text):
        if text.startswith("pppl"):
            raise DatasetMissingError("the texts are not here", hint="levelhead data get")
        return parse_measure(text)

    monkeypatch.setattr("levelhead.study.audit.audit.parse_measure", missing)
    result = plan_core(bert, sources(), budget=None)
    assert result.core == ("seat", "pppl")
    assert list(result.study_config.measures) == ["seat"]
    assert [(row.name, row.reason) for row in result.omitted] == [("pppl", "data missing")]


def test_a_model_that_no_measure_of_bias_can_be_asked_of_is_an_error(bert, tiny, monkeypatch):
    monkeypatch.setattr(core_suite, "CORE", core_suite.CORE[1:])
    with pytest.raises(NoBiasMeasureError, match="INCONCLUSIVE: no measure of bias"):
        plan_core(bert, sources(), budget=None)


def test_a_second_model_is_paired_and_an_edit_is_probed(bert, tiny):
    other = AuditSources(sources(edit="edit").model, sources().model)
    core = plan_core(bert, other, budget=None)
    pair = core.study_config.comparisons["other"]
    assert (pair.first, pair.second) == ("other", "model")
    assert pair.measures == ("seat", "pppl")
    assert core.study_config.probing["edit"].measure == "seat"
    full = extend_audit(core, bert, seconds_left=None)
    assert set(full.study_config.comparisons["other"].measures) >= {
        "seat",
        "pppl",
        "half",
        f"seat{LARGER_SUFFIX}",
    }


def test_confidential_texts_are_a_choice_of_the_plan(bert, tiny, tmp_path):
    core = plan_core(bert, sources(), budget=None, record_items=False)
    assert not core.study_config.record_items
    full = extend_audit(core, bert, seconds_left=None)
    assert not full.study_config.record_items
    assert planned(bert, left=None).study_config.record_items
    # An audit that records no texts is not resumed as one that does, nor the reverse.
    save_audit(core, tmp_path / "audit")
    default = compute_request_hash(bert, sources(), Inference(), 1)
    assert default != core.request_hash
    with pytest.raises(LevelheadError, match="another audit"):
        load_matching_audit(tmp_path / "audit", default)


def test_an_audit_against_other_weights_is_another_audit(bert, tmp_path):
    """By content: the same weights elsewhere are the same request."""

    def request(folder, edit=None):
        other = ModelSource(path=str(folder), edit=edit)
        return compute_request_hash(bert, AuditSources(sources().model, other), Inference(), 1)

    folders = [tmp_path / name for name in ("first", "moved")]
    for folder in folders:
        shutil.copytree(zoo.folder(*TINY, seed=1), folder)
    before = [request(folder) for folder in folders]
    assert before[0] == before[1]
    shutil.copy(zoo.folder(*TINY, seed=2) / "model.safetensors", folders[0])
    assert request(folders[0]) != before[0]
    edit = str(tmp_path / "edit")
    save_edits([HeadScale([Site("head_out", 0, 0)], 0)], edit)
    assert request(folders[1], edit) != before[1]


def test_a_plan_is_kept_and_found_again(bert, tiny, tmp_path):
    folder = tmp_path / "audit"
    result = planned(bert, left=60.0)
    assert load_matching_audit(folder, result.request_hash) is None
    save_audit(result, folder)
    assert load_matching_audit(folder, result.request_hash) == result == read_audit(folder)
    assert read_study_config(folder / STUDY_FILE) == result.study_config
    assert compute_request_hash(bert, sources(), Inference(), 1) == result.request_hash
    for change in ({"seed": 1}, {"resamples": 99}, {"permutations": 99}):
        with pytest.raises(LevelheadError, match="another audit"):
            load_matching_audit(
                folder, compute_request_hash(bert, sources(), Inference(**change), 1)
            )
    with pytest.raises(LevelheadError, match="another audit"):
        load_matching_audit(folder, compute_request_hash(bert, sources(), Inference(), 2))
    (folder / "audit.json").write_text("{}")
    with pytest.raises(LevelheadError, match="cannot be read"):
        load_matching_audit(folder, result.request_hash)
    with pytest.raises(LevelheadError, match="contains no audit"):
        read_audit(tmp_path / "nowhere")


# -- the tables


def test_every_measure_of_the_tables_is_one():
    names = [row.name for row in AUDIT_MEASURES]
    assert len(set(names)) == len(names)
    for row in AUDIT_MEASURES:
        for way in row.cheaper_options:
            parse_measure(with_option(row.text, way))
    for row in LOCATORS:
        assert not parse_measure(row.text).primary_metric.is_step


@pytest.mark.parametrize("kind", [BERT, MASKED, CAUSAL, CHAT, PAIRS, CLASSIFIER, EMBEDDINGS])
def test_every_kind_of_model_has_a_core_suite(kind):
    suite = core_suite.core_suite(kind)
    assert any(row.role == "bias" for row in suite)
    assert len({row.name for row in suite}) == len(suite)
    for row in suite:
        parse_measure(row.text)


@pytest.mark.parametrize(("kind", "family"), [(BERT, "bert"), (CAUSAL, "llama"), (CHAT, "llama")])
def test_the_core_suite_holds_no_measure_that_failed_validation(kind, family):
    for row in core_suite.core_suite(kind):
        key = Calibrated(measure=parse_measure(row.text).name, family=family, causal=kind != BERT)
        known = find_calibration(key)
        assert known is None or known.verdict != "misses", row.name


def test_kinds_follow_from_heads(bert):
    assert kind_of(bert) == BERT
    llama = load(zoo.folder("llama", "LlamaForCausalLM"))
    assert kind_of(llama) == CAUSAL
    llama.tokens.tokenizer.chat_template = TEMPLATE
    assert kind_of(llama) == CHAT
    assert len(CORE) > 8


def test_the_core_suite_of_chat_models_holds_decisions_and_generations():
    """Its core suite has every measure of decisions and generations, each in a fixed part."""
    core = {row.name: row.text for row in core_suite.core_suite(CHAT)}
    measures = {parse_measure(text).name for text in core.values()}
    assert measures >= {
        *("decision", "bbq", "winobias", "callback", "implicit_association", "generation"),
        *("cloze", "group_preference", "crows", "ppl"),
    }
    # The price: what a model of chats may lose without a loss of fluency.
    for kind in core_suite.CHATS:
        roles = {row.name: row.role for row in core_suite.core_suite(kind)}
        assert (roles["instructions"], roles["facts"]) == ("utility", "utility")
    for_chat = [row for row in AUDIT_MEASURES if row.is_for_chat]
    assert {parse_measure(row.text).name for row in for_chat} < measures
    # A base model is asked none of them: it has no turns to answer in.
    assert not {row.name for row in for_chat} & {row.name for row in core_suite.core_suite(CAUSAL)}


# -- by which measure heads are located


def test_heads_are_located_by_the_best_calibrated_smooth_measure(bert):
    """SEAT failed on decoders of LLaMA's kind: it located their heads all the same."""
    ordered, refused = rank_locators(load(zoo.folder("llama", "LlamaForCausalLM")))
    assert ordered[0].name in ("cloze", "contrast", "crows_margin")
    assert not any(row.name.startswith("seat") for row in ordered)
    assert any("seat failed validation" in reason for reason in refused)
    # On BERT it detects the smallest dose.
    assert rank_locators(bert)[0][0].name == "seat"


def test_a_measure_that_failed_validation_locates_no_heads(bert, tiny, monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: Failed("seat"))
    result = planned(bert, left=None)
    assert not result.study_config.head_maps
    (heads,) = (row for row in result.omitted if row.name == "heads")
    assert "seat failed validation on models with planted bias" in heads.details


def test_a_measure_whose_data_are_missing_gives_way_to_the_next(bert, tiny, monkeypatch):
    absent = AuditMeasure("absent", f"{tiny[0].text},contexts_per_word=1,groups=no+body", QUOTAS)
    monkeypatch.setattr(fitting, "LOCATORS", (absent, tiny[0]))
    result = planned(bert, left=None)
    assert result.study_config.measures["heads"] == tiny[0].text
