"""Documents stay true: their code runs, their links lead somewhere, their lists are complete."""

import ast
import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from assets import asset, smollm2
from classifiers import cola_classifier
from command import script
from markdown_it import MarkdownIt
from shell import bash, commands

import levelhead
from levelhead.models.loading.gguf import convert_gguf
from levelhead.models.loading.load import model_cache_folder
from levelhead.models.training.finetune import FinetuneConfig

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMESPACES = ("data", "edits", "explain", "measures", "mitigation", "organisms")
RUN = {"python", "bash"}
RECIPES = ROOT / "docs" / "development" / "extend.md"
"""Its blocks are files and changed files: `test_extend.py` writes them and tests the result."""
STANDS_FOR = {  # in documents; no download in tests, another real model instead
    "bert-base-uncased": lambda: asset("models", "minibert-en"),
    # The same model from its 4-bit file.
    "HuggingFaceTB/SmolLM2-135M-Instruct": lambda: convert_gguf(smollm2(), model_cache_folder()),
    "my-classifier": lambda: cola_classifier(320, tuning=FinetuneConfig(threads=1)),
}
SHOWN = {
    "console",
    "text",
    "toml",
    "json",
    "yaml",
}  # console: what cannot run in a test, as installing
FASTER = re.compile(r"`([^`]+)` is `([^`]+)`")


def faster(comment):
    """What a comment above a block says the fast tests put in the place of what.

    `<!-- In the fast tests `--budget 2m` is `--budget 1m`. -->`: the rest of the block stays and is
    run; the block as it is written is run by `make full`.
    """
    if not comment.startswith("<!-- In the fast tests "):
        return ()
    return tuple(FASTER.findall(comment))


def blocks(page):
    """The blocks of a page, each with what replaces parts of it in the fast tests."""
    tokens = MarkdownIt().parse(page.read_text())
    before = [None, *tokens]
    return [
        (token, faster(above.content) if above and above.type == "html_block" else ())
        for above, token in zip(before, tokens, strict=False)
        if token.type == "fence"
    ]


FOUND = {
    (token.info.strip(), token.content): (f"{page.relative_to(ROOT)}:{token.map[0] + 1}", less)
    for page in reversed(PAGES)
    if page != RECIPES
    for token, less in reversed(blocks(page))
}
"""What stands on several pages is run once, under its first name."""
CODE = [pytest.param(*block, less, id=name) for block, (name, less) in reversed(FOUND.items())] + [
    pytest.param(*block, (), id=f"{name} as written", marks=pytest.mark.full)
    for block, (name, less) in reversed(FOUND.items())
    if less
]


@pytest.fixture(scope="module")
def server():
    with commands() as path:
        yield path


@pytest.mark.timeout(1800)  # the demo trains three models where there are none in the cache
@pytest.mark.parametrize(("language", "code", "less"), CODE)
def test_every_code_block_runs(language, code, less, tmp_path, monkeypatch, request):
    assert language in RUN | SHOWN, f"a block in {language!r}: say python, bash or console"
    if language in SHOWN:
        return
    if shown := re.fullmatch(r'--8<-- "(.+)"\n', code):
        if shown[1].endswith(".py"):
            return  # a notebook: `test_notebooks.py` runs it
        code = (ROOT / shown[1]).read_text()
    for written, instead in less:
        assert code.count(written) == 1, f"{written!r} stands {code.count(written)} times: say once"
        code = code.replace(written, instead)
    for name, outcome in STANDS_FOR.items():
        if name in code:
            # A folder of that name in the working directory is what load() finds first.
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).symlink_to(outcome())
    if "levelhead audit" in code:  # without its data an audit is inconclusive, and says so: exit 2
        monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))
    if language == "python":
        block = tmp_path / "block"
        block.write_text(code)
        result = script(block, tmp_path)
    else:
        # `make full` starts a new interpreter for every command, as a user does.
        is_full = request.node.get_closest_marker("full") is not None
        result = bash(code, tmp_path, None if is_full else request.getfixturevalue("server"))
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_faster_form_names_what_it_replaces():
    text = "<!-- In the fast tests `--n 60` is `--n 6` and `--hard` is `--soft`. -->\n"
    assert faster(text) == (("--n 60", "--n 6"), ("--hard", "--soft"))
    assert faster("<!-- `a` is `b` -->\n") == ()
    # Every such comment stands right above a block, and every pair of it was understood.
    pages = "".join(page.read_text() for page in PAGES)
    output = re.findall(r"<!-- In the fast tests .*?-->", pages, flags=re.DOTALL)
    assert sorted(map(faster, output)) == sorted(less for _, less in FOUND.values() if less)
    assert all(comment.count("`") == 4 * len(faster(comment)) > 0 for comment in output)


def test_commands_of_a_script_are_those_of_the_command_line(server, tmp_path):
    """Arguments, folder, environment, input, outputs and exit code pass through the server."""
    code = """echo 'import os, sys; print(os.getcwd(), os.environ["KEY"]); sys.exit(7)' > told.py
    export KEY=value
    KEY=other python - < told.py > out || echo "exit $?"
    cat out
    python - < told.py | tr a-z A-Z || true
    levelhead gate nothing --policy none 2> err || echo "exit $?"
    """
    warm = bash(code, tmp_path, server)
    assert warm.returncode == 0, warm.stderr
    folder = str(tmp_path.resolve())
    assert warm.stdout.splitlines() == [
        "exit 7",
        f"{folder} other",
        f"{folder} value".upper(),
        "exit 3",
    ]
    assert (tmp_path / "err").read_text().startswith("levelhead: ")
    assert bash("levelhead --nonsense", tmp_path, server).returncode == 3
    assert bash("false", tmp_path, server).returncode == 1


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
    assert sorted(shown) == sorted(f"tutorials/{item.name}" for item in ROOT.glob("tutorials/*"))


def test_every_public_name_has_its_place_in_the_reference():
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    shown = re.findall(r"^::: (levelhead\.\S+)\.(\w+)$", pages, flags=re.MULTILINE)
    public = {}
    for package in (levelhead, *map(levelhead.__getattr__, NAMESPACES)):
        public |= {name: getattr(package, name) for name in package.__all__}
    expected = sorted(public.keys() - {*NAMESPACES, "__version__"})
    assert sorted(name for _, name in shown) == expected
    for module, name in shown:
        assert getattr(import_module(module), name) is public[name]


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
            result = pattern.search((ROOT / path).read_text(errors="ignore"))
            assert not result, f"{path}: {result}"


def test_the_page_on_models_lists_every_architecture():
    from levelhead.models.architectures.families import FAMILIES

    page = (ROOT / "docs" / "guide" / "models.md").read_text()
    listed = re.findall(r"^\| ([\w-]+) \| (O\(T\)|eager) \|", page, flags=re.MULTILINE)
    rows = {
        name: "eager" if row.eager_attention_module else "O(T)" for name, row in FAMILIES.items()
    }
    assert dict(listed) == rows
