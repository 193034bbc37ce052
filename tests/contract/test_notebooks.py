"""Every tutorial that is a notebook runs on real weights, and shows its results as tables."""

import ast
from pathlib import Path

import jupytext
import pytest
from assets import asset
from notebooks import executed, html_outputs, kernel
from shell import commands

import levelhead

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.py"))
FASTER = {
    "paper.py": ("words=words", "words=words, subsample_fraction=0.4"),
}
"""What the fast tier replaces."""
SHOWN = {
    "heads.py": ("seat by gradient:", "seat: "),
    "paper.py": ("cloze (above 0:", "cloze: "),
    "release.py": ("gate: ",),
}
"""Beginnings of the titles of results that each notebook shows."""


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A kernel for all notebooks: the imports, which take ten seconds, are those of the first."""
    folder, data = tmp_path_factory.mktemp("kernel"), asset("data")
    with commands() as server, kernel(folder, data, server) as manager:
        yield manager


def run(path, folder, manager, *, replaced=None):
    code = path.read_text()
    if replaced is not None:
        assert code.count(replaced[0]) == 1
        code = code.replace(*replaced)
    # A folder of that name in the working directory is what load() finds first.
    (folder / "bert-base-uncased").symlink_to(asset("models", "minibert-en"))
    return html_outputs(executed(code, folder, manager))


def assert_shows_its_results(path, shown):
    results = [html for html in shown if html.startswith('<div class="levelhead">')]
    assert all("<table>" in html for html in results)
    for title in SHOWN[path.name]:
        assert any(html.startswith(f'<div class="levelhead"><p><b>{title}') for html in results)
    # Data frames, as pandas shows them.
    assert any('class="dataframe"' in html for html in shown)


# The steps of release.py are those of release.sh, which `test_documents.py` runs.
QUICK = [path for path in NOTEBOOKS if not path.with_suffix(".sh").exists()]


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", QUICK, ids=lambda path: path.name)
def test_a_notebook_runs(path, tmp_path, warm):
    """Takes 10 s for the first of them, which imports torch and transformers."""
    shown = run(path, tmp_path, warm, replaced=FASTER.get(path.name))
    assert_shows_its_results(path, shown)


@pytest.mark.full
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_as_it_is_written(path, tmp_path):
    (tmp_path / "bin").mkdir()
    with kernel(tmp_path / "bin", asset("data")) as manager:
        assert_shows_its_results(path, run(path, tmp_path, manager))


def attribute_chains(code):
    """Names after `lh.`, such as ("measures", "Seat"), wherever a notebook uses them."""
    for node in ast.walk(ast.parse(code)):
        names = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if names and isinstance(node, ast.Name) and node.id == "lh":
            yield tuple(names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_name_of_a_notebook_exists(path):
    """The fast counterpart of running it: a renamed function fails here."""
    notebook = jupytext.read(path, fmt="py:percent")
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    python = [cell for cell in cells if not cell.lstrip().startswith(("!", "%"))]
    chains = {chain for cell in python for chain in attribute_chains(cell)}
    assert chains or path.with_suffix(".sh").exists()
    for chain in chains:
        value = levelhead
        for name in chain:
            value = getattr(value, name)


def test_every_notebook_has_its_titles():
    assert set(SHOWN) == {path.name for path in NOTEBOOKS}
    assert set(FASTER) <= {path.name for path in QUICK}
    assert len(QUICK) == 2
