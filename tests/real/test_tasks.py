"""Every task's parts, as its table says they are."""

import pytest
from assets import asset

from levelhead.data.tasks import TASKS, count_train_overlap


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))


SIZES = {
    "nli": (46_279, 9_842, 9_824),
    "mnli": (18_636, 6_238, 1_000),
    "rte": (2_490, 277, 0),
    "mrpc": (3_668, 408, 1_725),
    "cola": (8_551, 1_043, 0),
    "stsb": (5_749, 1_500, 0),
    "wnli": (635, 71, 0),
    "sst2": (0, 872, 0),
    "qnli": (0, 5_463, 0),
    "qqp": (0, 1_000, 0),
}
SHARED = {"cola": 18, "stsb": 6}
"""Dev examples that stand in the training part, too, as GLUE published them."""


@pytest.mark.parametrize("name", TASKS)
def test_every_part_is_read(name):
    row = TASKS[name]
    result = {
        part: row.examples(part) if getattr(row, part) else () for part in ("train", "dev", "test")
    }
    assert tuple(map(len, result.values())) == SIZES[name]
    assert len({item.id for part in result.values() for item in part}) == sum(SIZES[name])
    if not row.is_regression:
        assert {item.label for item in result["dev"]} == set(row.labels)
    if result["train"]:
        assert count_train_overlap(result["train"], result["dev"]) == SHARED.get(name, 0)


@pytest.mark.parametrize("name", ["rte", "mrpc", "qqp"])
def test_quotes_of_the_file_are_not_of_the_text(name):
    row = TASKS[name]
    texts = [text for part in ("train", "dev") if getattr(row, part) for text in row.examples(part)]
    assert not any('""' in text.first or '""' in text.second for text in texts)
    assert any('"' in text.first for text in texts)
