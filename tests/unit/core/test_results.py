import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from levelhead.core.canonical_json import content_hash
from levelhead.core.results import (
    DroppedItem,
    Interval,
    ItemDetail,
    ItemValue,
    Measurement,
    Provenance,
    PValue,
    QueryDetail,
)
from levelhead.core.versions import installed_versions

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def provenance(**changes):
    given = {
        "data": {"words.txt": "ab" * 32},
        "equation": "Yang et al. 2025, Eq. 3",
        "seed": 7,
        "settings": {"layers": [1, {"deep": 0.1}], "pool": "mean"},
    }
    return Provenance.of("bert-base-uncased", "cd" * 32, **(given | changes))


def measurement(**changes):
    given = {
        "measure": "seat",
        "value": 0.42,
        "interval": Interval(low=0.1, high=0.7, level=0.95, method="bca"),
        "parity": 0.0,
        "n": 2,
        "dropped": (DroppedItem("c", "not in the vocabulary"),),
        "per_item_values": (ItemValue("b", 0.5), ItemValue("a", 0.25)),
        "provenance": provenance(),
    }
    return Measurement(**(given | changes))


@given(FLOATS, FLOATS, FLOATS, FLOATS, st.lists(st.tuples(WORDS, FLOATS), unique_by=lambda x: x[0]))
def test_json_reads_back_exactly(value, low, high, parity, rows):
    if low > high:
        low, high = high, low
    first = measurement(
        value=value,
        interval=Interval(low=low, high=high, level=0.95, method="bca"),
        parity=parity,
        p=PValue(value=0.013, method="sign flip", alternative="greater", n_resamples=999),
        n=max(len(rows), 1),
        dropped=(),
        per_item_values=tuple(ItemValue(*row) for row in rows),
    )
    again = Measurement.from_json(first.to_json())
    assert again == first
    assert again.to_json() == first.to_json()
    assert again.content_hash == first.content_hash
    assert repr(again) == repr(first)  # -0.0 is not 0.0


def test_the_order_of_arrival_does_not_show():
    rows = (ItemValue("a", 0.25), ItemValue("b", 0.5))
    assert (
        measurement(per_item_values=rows).to_json()
        == measurement(per_item_values=rows[::-1]).to_json()
    )


def test_content_of_items_is_stored_and_belongs_to_used_items():
    details = (
        ItemDetail("b", "", (QueryDetail("B \U0001f600 </script>", (("she", 0.25), ("he", 0.5))),)),
        ItemDetail("a", "female", ()),
    )
    result = measurement(item_details=details)
    assert [detail.item for detail in result.item_details] == ["a", "b"]
    assert Measurement.from_json(result.to_json()) == result
    assert result.without_items() == measurement()
    assert measurement().without_items().to_json() == measurement().to_json()
    for bad in (details[:1] * 2, (ItemDetail("c", "", ()),), (ItemDetail("unknown", "", ()),)):
        with pytest.raises(ValidationError, match="content of items without a value"):
            measurement(item_details=bad)
    nan = QueryDetail("text", (("she", float("nan")),))
    with pytest.raises(ValidationError, match="finite"):
        measurement(item_details=(ItemDetail("a", "", (nan,)),))


def test_results_of_earlier_versions_are_read():
    stored = json.loads(measurement().to_json())
    del stored["item_details"]
    assert Measurement.from_json(json.dumps(stored)) == measurement()


def test_provenance_holds_versions_and_no_clock():
    assert provenance() == provenance()
    assert provenance().versions == installed_versions()
    assert {"levelhead", "torch", "python", "numpy", "scipy"} <= set(provenance().versions)
    assert provenance(seed=8).content_hash != provenance().content_hash
    with pytest.raises(TypeError):
        provenance(versions={"torch": "1.0"})


def test_results_are_frozen_and_cross_processes():
    result = measurement()
    with pytest.raises(ValidationError, match="frozen"):
        result.value = 0.0
    with pytest.raises(TypeError):
        result.provenance.settings["pool"] = "max"
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301  # our own bytes


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"value": float("nan")}, "finite number"),
        ({"value": float("inf")}, "finite number"),
        ({"parity": float("nan")}, "finite number"),
        ({"n": 0, "per_item_values": ()}, "greater than or equal to 1"),
        ({"interval": None}, "Interval"),
        ({"per_item_values": (ItemValue("a", float("nan")), ItemValue("b", 1.0))}, "finite number"),
        ({"per_item_values": (ItemValue("a", 1.0),)}, "1 values for n = 2 items"),
        ({"per_item_values": (ItemValue("a", 1.0), ItemValue("c", 1.0))}, "items counted twice: c"),
        ({"n": 2.0}, "valid integer"),
        ({"surprise": 1}, "Extra inputs are not permitted"),
    ],
)
def test_a_measurement_of_nothing_does_not_exist(changes, what):
    with pytest.raises(ValidationError, match=what):
        measurement(**changes)


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("settings", [], "list is no mapping"),
        ("settings", 3, "int is no mapping"),
        ("data", {"words.txt": 3}, "'words.txt' has 3 instead of a SHA-256"),
        ("data", {"words.txt": "ab"}, "has 'ab' instead of a SHA-256"),
        ("model_hash", "xyz", "should match pattern"),
    ],
)
def test_a_provenance_file_is_read_strictly(field, value, what):
    import json

    changed = json.loads(provenance().to_json()) | {field: value}
    with pytest.raises(ValidationError, match=what):
        Provenance.from_json(json.dumps(changed))


def test_a_changed_copy_is_checked_too():
    assert measurement().model_copy(update={"value": 0.5}).value == 0.5
    with pytest.raises(ValidationError, match="finite number"):
        measurement().model_copy(update={"value": float("nan")})


def test_an_interval_has_an_order():
    with pytest.raises(ValidationError, match="is above its upper end"):
        Interval(low=1.0, high=0.0, level=0.95, method="bca")
    assert 0.5 in Interval(low=0.0, high=1.0, level=0.95, method="bca")
    assert 1.5 not in Interval(low=0.0, high=1.0, level=0.95, method="bca")


def test_a_correction_is_whole_or_absent():
    with pytest.raises(ValidationError, match="belong together"):
        PValue(value=0.1, method="t", alternative="less", adjusted=0.2)
    p = PValue(value=0.1, method="t", alternative="less", adjusted=0.2, correction="holm", family=2)
    assert PValue.from_json(p.to_json()) == p


def test_coverage_and_text():
    p = PValue(value=0.0004, method="t", alternative="two-sided")
    result = measurement(p=p)
    assert (result.n_items, result.coverage) == (3, 2 / 3)
    assert str(result) == "seat 0.42 [0.1, 0.7] (parity 0, p 0.0004, n 2 of 3)"
    assert str(measurement()) == "seat 0.42 [0.1, 0.7] (parity 0, n 2 of 3)"


def test_a_hash_can_be_checked_from_the_file_alone():
    import json

    assert content_hash(json.loads(measurement().to_json())) == measurement().content_hash
