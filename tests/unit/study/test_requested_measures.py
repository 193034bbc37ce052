import pytest
import zoo

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.run_context import Inference
from levelhead.measures.registry import parse_measure
from levelhead.models.loading.load import load
from levelhead.study.audit.audit import AuditSources, compute_request_hash, plan_core
from levelhead.study.audit.core_suite import CHAT, CORE
from levelhead.study.audit.requested_measures import request_measures
from levelhead.study.steps.config import ModelSource


def test_groups_and_languages_become_measures():
    rows = request_measures(["religion-en", "origin-en*gender-en:female+male"], ["fr"])
    measures = {row.name: parse_measure(row.text) for row in rows}
    assert list(measures) == [
        *("religion-en-threat", "religion-en-competence", "religion-en-decisions"),
        *("origin-en-x-gender-en-threat", "origin-en-x-gender-en-competence"),
        *("origin-en-x-gender-en-decisions", "french-threat", "french-competence"),
        *("french-crows", "french-stereoset"),
    ]
    assert len(measures["origin-en-x-gender-en-threat"].compared_groups) == 16
    assert measures["french-crows"].language == "fr"
    assert rows[2].kinds.count(CHAT) == 1


@pytest.mark.parametrize(
    ("groups", "languages", "error"),
    [
        (["nobody-en"], [], UnknownNameError),
        (["origin-en:martian"], [], UnknownNameError),
        ([], ["xx"], UnknownNameError),
        (["origin-en", "origin-en"], [], LevelheadError),
        # Three genders have no noun for each: the user must describe them.
        (["origin-en*gender-en"], [], LevelheadError),
    ],
)
def test_unknown_names_fail_before_a_model_is_loaded(groups, languages, error):
    with pytest.raises(error):
        request_measures(groups, languages)


def test_what_is_asked_for_belongs_to_the_suite():
    folder = str(zoo.folder("bert", "BertForMaskedLM"))
    lm, source = load(folder), ModelSource(path=folder)
    asked = AuditSources(source, None, request_measures(["religion-en"]))
    plain = AuditSources(source)
    audit = plan_core(lm, asked, budget=None)
    known = {row.name for row in CORE}
    # The tiny model knows none of the adjectives: both are listed as not run.
    added = {name for name, _ in audit.roles} - known
    assert added == {"religion-en-threat", "religion-en-competence"}
    assert added <= set(audit.core_names)
    assert {row.name for row in audit.omitted} & added == added
    first, second = (
        compute_request_hash(lm, sources, Inference(), 1) for sources in (asked, plain)
    )
    assert first != second
