"""An audit in a README: the user's own text stays, and the Hub's classes read the rest."""

import audits
import pytest
from calibrations import AllFailed
from huggingface_hub import ModelCard

from levelhead.core.errors import LevelheadError
from levelhead.report.card import BEGIN, END, SOURCE, merged

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
    return merged(readme, audits.audit(), results or audits.results(), name="a-model")


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
    ours = [one for one in data.eval_results if one.dataset_type == SOURCE]
    assert [one.metric_name for one in ours] == ["seat", "crows", "pppl"]
    assert ours[0].metric_value == 1.2
    assert ours[0].metric_args["interval"] == [1.0, 1.4]


def test_results_of_others_are_kept():
    text = card(INDEXED)
    data = ModelCard(text).data
    assert data.model_name == "theirs"
    assert data.license == "mit"
    (other,) = [one for one in data.eval_results if one.dataset_type != SOURCE]
    assert (other.dataset_type, other.metric_value) == ("glue", 0.9)
    assert card(text) == text


def test_a_ruler_that_failed_where_the_truth_is_known_is_marked(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.kept", lambda: None)
    assert "†" not in card()
    monkeypatch.setattr("levelhead.core.calibration.kept", AllFailed)
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
        ("---\na: [1, 2\n---\n", "no model card"),
    ],
)
def test_a_readme_that_cannot_be_merged_is_refused(readme, why):
    with pytest.raises(LevelheadError, match=why):
        card(readme)
