"""Every data set, whole: each file's items counted against the table."""

import csv
import hashlib

import pytest
from assets import ASSETS, asset, unpacked_data
from command import levelhead
from serving import serving

from levelhead.data.catalog.datasets import dataset, datasets
from levelhead.data.prompts.counteracts import make_counteracts_prompts
from levelhead.data.prompts.nli_occupations import (
    load_dev2020_lists,
    make_nli_pairs,
    make_nli_subset,
)


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(unpacked_data()))


@pytest.mark.parametrize("name", [name for name in datasets() if name != "theredpill"])
def test_every_row_is_read(name):
    row = dataset(name)
    for part in row.parts:
        ids = [item.id for item in row.items(part)]
        assert len(set(ids)) == len(ids) == row.file(part).items


def test_the_table_agrees_with_the_manifest():
    with asset("data", "MANIFEST.csv").open(newline="") as file:
        known = {(row["dataset"], row["file"]): row for row in csv.DictReader(file)}
    for row in datasets().values():
        for file in row.files:
            if not file.sha256:
                continue
            if (row.folder, file.path) in known:
                output = known[row.folder, file.path]
                assert (output["sha256"], int(output["bytes"])) == (file.sha256, file.bytes)
            else:  # packed: the manifest has the packed file, the table the published one
                assert (row.folder, f"{file.path}.gz") in known
                content = (unpacked_data() / row.folder / file.path).read_bytes()
                assert (hashlib.sha256(content).hexdigest(), len(content)) == (
                    file.sha256,
                    file.bytes,
                )


def test_the_counts_the_papers_name():
    def count(name, *parts):
        return sum(1 for part in parts for _ in dataset(name).items(part))

    assert count("stereoset", "dev") == 4229
    assert count("stereoset-swapped", "dev") == 234
    assert count("stereoset-swapped", "test") == 749
    assert count("crows-pairs", "all") == 1508


def test_get_from_a_server(tmp_path, monkeypatch):
    monkeypatch.delenv("LEVELHEAD_DATA")
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path))
    with serving(ASSETS / "data") as (address, queries):
        monkeypatch.setenv("LEVELHEAD_MIRROR", address)
        first = levelhead("data", "get", "stereoset-swapped")
        assert first.returncode == 0, first.stderr
        again = levelhead("data", "get", "stereoset-swapped")
        assert again.returncode == 0
    assert queries == ["gender-swapped-stereoset/dev.csv", "gender-swapped-stereoset/test.csv"]
    assert levelhead("data", "path", "stereoset-swapped", "--part", "dev").returncode == 0


@pytest.mark.parametrize(
    ("which", "name"),
    [("winobias40", "prompts_winobias40_2680.csv"), ("table1", "prompts_table1_58_5452.csv")],
)
def test_prompts_line_by_line(which, name):
    with asset("data", "counteracts", name).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ours = list(make_counteracts_prompts(which))
    assert len(ours) == len(rows)
    for row, prompt in zip(rows, ours, strict=True):
        assert (row["occupation"], row["dominated"], row["knowledge_type"]) == (
            prompt.occupation,
            prompt.majority_group,
            prompt.kind,
        )
        assert row["background_occupation"] == prompt.background
        assert row["knowledge"] == prompt.knowledge
        assert row["base"].replace("[target]", "[MASK]") == prompt.base
        assert row["prompt"].replace("[target]", "[MASK]") == prompt.text()


@pytest.mark.parametrize(
    ("every", "count"),  # of 8 occupations each makes as many pairs as any other
    [(8, 247_968), pytest.param(1, 1_936_512, marks=pytest.mark.full)],
)
def test_the_whole_cross_of_inference_pairs(every, count):
    occupations, templates, gendered = load_dev2020_lists()
    assert (len(occupations), len(templates), len(gendered)) == (164, 1968, 6)
    assert sum(1 for _ in make_nli_pairs(occupations[::every], templates, gendered)) == count
    assert sum(1 for _ in make_nli_subset(*load_dev2020_lists())) == 10_824
