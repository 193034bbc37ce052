"""Documents stay true: their code runs, their links lead somewhere, their lists are complete."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from assets import asset
from classifiers import cola_classifier
from command import script
from markdown_it import MarkdownIt

import levelhead
from levelhead.models.finetune import Tuning

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RUN = {"python", "bash"}
STANDS_FOR = {  # in documents; no download in tests, another real model instead
    "bert-base-uncased": lambda: asset("models", "minibert-en"),
    "my-classifier": lambda: cola_classifier(320, tuning=Tuning(threads=1)),
}
SHOWN = {
    "console",
    "text",
    "toml",
    "json",
    "yaml",
}  # console: what cannot run in a test, as installing


def blocks(page):
    return [t for t in MarkdownIt().parse(page.read_text()) if t.type == "fence"]


FOUND = {
    (token.info.strip(), token.content): f"{page.relative_to(ROOT)}:{token.map[0] + 1}"
    for page in reversed(PAGES)
    for token in reversed(blocks(page))
}
"""What stands on several pages is run once, under its first name."""
CODE = [pytest.param(*block, id=name) for block, name in reversed(FOUND.items())]


@pytest.mark.timeout(1800)  # the demo grows three models
@pytest.mark.parametrize(("language", "code"), CODE)
def test_every_code_block_runs(language, code, tmp_path, monkeypatch):
    assert language in RUN | SHOWN, f"a block in {language!r}: say python, bash or console"
    if language in SHOWN:
        return
    if shown := re.fullmatch(r'--8<-- "(.+)"\n', code):
        code = (ROOT / shown[1]).read_text()
    if language == "bash":
        code = f"levelhead() {{ '{sys.executable}' -m levelhead \"$@\"; }}\n{code}"
    for name, found in STANDS_FOR.items():
        if name in code:
            # A folder of that name in the working directory is what load() finds first.
            (tmp_path / name).symlink_to(found())
    if "levelhead audit" in code:  # without its data an audit is inconclusive, and says so: exit 2
        monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))
    block = tmp_path / "block"
    block.write_text(code)
    if language == "python":
        result = script(block, tmp_path)
    else:
        result = subprocess.run(
            ["bash", "-euo", "pipefail", str(block)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 0, result.stdout + result.stderr


def test_there_are_blocks_of_both_kinds():
    assert {param.values[0] for param in CODE} >= RUN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_tutorial_is_shown():
    page = (ROOT / "docs" / "tutorials.md").read_text()
    shown = re.findall(r'^--8<-- "(.+)"$', page, flags=re.MULTILINE)
    assert sorted(shown) == sorted(f"tutorials/{one.name}" for one in ROOT.glob("tutorials/*"))


def test_every_public_name_has_its_place_in_the_reference():
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    shown = re.findall(r"^::: (levelhead\.\S+)\.(\w+)$", pages, flags=re.MULTILINE)
    assert sorted(name for _, name in shown) == sorted(levelhead.__all__)
    for module, name in shown:
        assert getattr(import_module(module), name) is getattr(levelhead, name)


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == levelhead.__version__
    assert citation["license"] == "Apache-2.0"


def test_changelog_lines_are_short():
    for line in (ROOT / "CHANGELOG.md").read_text().splitlines():
        if line.startswith("- "):
            assert len(line.split()) - 1 <= 25, line


def skipped_tests():
    """Names of functions in tests that may skip or may fail, by their marks."""
    marks = {"skip", "skipif", "xfail", "importorskip"}
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                names = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                names |= {
                    n.attr
                    for decorator in node.decorator_list
                    for n in ast.walk(decorator)
                    if isinstance(n, ast.Attribute)
                }
                if names & marks:
                    yield node.name


def test_every_skip_is_listed_with_its_reason():
    listed = (ROOT / "tests" / "QUARANTINES.md").read_text()
    missing = [name for name in skipped_tests() if f"`{name}`" not in listed]
    assert missing == []


def test_no_machine_paths():
    pattern = re.compile(r"(?<![\w.])/(?:root|home|work|opt|farm)/\w")
    for path in subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines():
        if (ROOT / path).suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".cff", ""}:
            found = pattern.search((ROOT / path).read_text(errors="ignore"))
            assert not found, f"{path}: {found}"


def test_the_page_on_models_lists_every_architecture():
    from levelhead.models.families import FAMILIES

    page = (ROOT / "docs" / "models.md").read_text()
    listed = re.findall(r"^\| ([\w-]+) \| (O\(T\)|eager) \|", page, flags=re.MULTILINE)
    rows = {name: "eager" if row.eager_row else "O(T)" for name, row in FAMILIES.items()}
    assert dict(listed) == rows
