"""An audit in a README: the user's own text stays, and the Hub's classes read the rest."""

import audits
import pytest
from calibrations import AllFailed
from huggingface_hub import ModelCard
from maps import interval

from levelhead.core.errors import LevelheadError
from levelhead.report.model_card_section import (
    BEGIN,
    END,
    SOURCE,
    describe_items_used,
    update_readme,
)

OWN = """---
license:   apache-2.0   # ours
tags: [a,  "b"]
language:
- en
---
# A model\r

Text with trailing spaces   \n\n\n| a | b |
"""
INDEXED = """---
model-index:
- name: theirs
  results:
  - task:
      type: fill-mask
    dataset:
      type: glue
      name: GLUE
    metrics:
    - type: accuracy
      value: 0.9
license: mit
---
text"""


def card(readme="", results=None):
    return update_readme(readme, audits.audit(), results or audits.results(), name="a-model")


def test_the_users_own_text_stays_byte_by_byte():
    text = card(OWN)
    front, body = OWN.split("---\n", 2)[1:]
    assert text.startswith(f"---\n{front}model-index:")
    before, _, rest = text.partition(BEGIN)
    assert before.endswith(f"---\n{body}\n")
    assert rest.partition(END)[2] == "\n"


def test_a_second_audit_takes_the_place_of_the_first():
    first = card(OWN)
    assert card(first) == first
    other = card(
        first, audits.results(**{"cell.audit.model.seat": audits.judged("seat", 0.7, 0.5)})
    )
    assert other.count(BEGIN) == 1
    assert "| seat | 0.7 |" in other
    assert card(other) == first


def test_text_behind_the_section_stays():
    first = card(OWN) + "\nmore of theirs\n"
    assert card(first) == first


@pytest.mark.parametrize("readme", ["", "no metadata at all", OWN, INDEXED, "---\n---\nx"])
def test_the_hubs_classes_read_it(readme):
    data = ModelCard(card(readme)).data
    ours = [result for result in data.eval_results if result.dataset_type == SOURCE]
    assert [our.metric_name for our in ours] == ["seat", "crows", "pppl"]
    assert ours[0].metric_value == 1.2
    assert ours[0].metric_args["interval"] == [1.0, 1.4]


def test_every_measure_is_under_its_own_data_set(tmp_path):
    """Read back as the Hub reads it: entries that share type and config are filed as one."""
    specs = {
        "seat": "seat:contexts_per_word=2",
        "crows": "crows:limit=46",
        "pppl": "pppl:limit=100",
    }
    plan = audits.audit().study_config
    plan = plan.model_copy(update={"measures": plan.measures | specs})
    text = update_readme("", audits.audit(study_config=plan), audits.results(), name="a-model")
    (tmp_path / "README.md").write_text(text)
    data = ModelCard.load(tmp_path / "README.md").data
    result = {result.metric_name: result for result in data.eval_results}
    assert {name: single.dataset_name for name, single in result.items()} == specs
    assert {name: single.dataset_config for name, single in result.items()} == {
        spec: spec for spec in specs
    }
    assert {item.metric_type for item in result.values()} == set(specs)
    # Abilities are not filed as bias.
    assert result["pppl"].task_name == "ability"
    assert result["seat"].task_name == result["crows"].task_name == "stereotype bias"
    (index,) = data.to_dict()["model-index"]
    assert [len(item["metrics"]) for item in index["results"]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("n", "population", "output"),
    [
        (46, 1508, "46 of 1,508 (3%)"),
        (3, 1508, "3 of 1,508 (<1%)"),
        (1508, 1508, "1,508 of 1,508 (100%)"),
        (46, None, "46 of 46"),
    ],
)
def test_items_are_counted_of_the_whole_data_set(n, population, output):
    single = audits.judged("crows", 0.1, 0.4, n=n, population=population, dropped=())
    assert describe_items_used(single) == output
    text = card(results=audits.results(**{"cell.audit.model.crows": single}))
    assert f"| {output} |" in text
    data = ModelCard(text).data
    (crows,) = [result for result in data.eval_results if result.metric_name == "crows"]
    assert crows.metric_args.get("population") == population


def test_the_verdict_is_that_of_every_command(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)
    seat = audits.judged("seat", -1.2, 0.001, above="to the one side", below="to the other side")
    text = card(results=audits.results(**{"cell.audit.model.seat": seat}))
    assert "| differs: to the other side |" in text
    assert "| not shown |" in text
    weak = audits.SKILL.model_copy(update={"value": 50.0, "interval": interval(50.0, 5.0)})
    crows = audits.judged("crows", 0.1, 0.4, skill=weak)
    text = card(results=audits.results(**{"cell.audit.model.crows": crows}))
    assert "| inconclusive: model lacks the skill this measure needs: prefers" in text


def test_results_of_others_are_kept():
    text = card(INDEXED)
    data = ModelCard(text).data
    assert data.model_name == "theirs"
    assert data.license == "mit"
    (other,) = [result for result in data.eval_results if result.dataset_type != SOURCE]
    assert (other.dataset_type, other.metric_value) == ("glue", 0.9)
    assert card(text) == text


def test_a_measure_that_failed_where_the_truth_is_known_is_marked(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)
    assert "†" not in card()
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    text = card()
    assert "| seat † |" in text
    assert "† failed where the truth is known" in text


def test_what_was_not_measured_is_said():
    assert "| strength | not measured: no item could be read |" in card()
    assert "What this does not show" in card()


@pytest.mark.parametrize(
    ("readme", "why"),
    [
        (f"{BEGIN}\nhalf", "marks"),
        (f"{BEGIN}{END}{BEGIN}{END}", "marks"),
        ("---\nmodel-index: [1, 2\n---\n", "cannot be read"),
        ("---\na: [1, 2\n---\n", "not be a valid model card"),
    ],
)
def test_a_readme_that_cannot_be_merged_is_refused(readme, why):
    with pytest.raises(LevelheadError, match=why):
        card(readme)
