"""How the source is built, in figures: sizes of folders, names used twice, wide functions, cycles.

    python tools/structure.py [--list KEY]     the last line is JSON; --list prints what KEY counts
    python tools/structure.py --check          ends with 1 at a retired word or an import cycle

Retired words are those of the project's first vocabulary: the glossary has the words that replace
them. They count in names and in prose of src, documents, tutorials and help, as whole words.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "levelhead"
WIDE = 8
"""Parameters: a function with more wants a value that holds some of them."""
RETIRED = tuple(
    """ruler rulers told retold untold telling tells mend mends mended mending deals dealt foresee
    foresees foreseen aspect aspects schooling schooled pupil pupils redraw redraws redrawn bake
    bakes baked bakeable temper tempered tempering judge judged judges judging anatomy companion
    paid prices unturned undominated placeboed thrift thrifts entrant entrants
    blinders""".split()
)
RETIRED_PHRASES = (
    *("asked of", "(is|are|was|were|be|been|being) asked", "what it asks", "stands? beside"),
    *("stood beside", "beside it", "tells? this model", "mend that", "of everything drawn"),
    *("least effect found", "would have found", "headline_is", "confirmed_by", "paid_by"),
    *("gain_by", "own_task", "own_texts", "along_path", r"refuse_\w+"),
)
PROSE = (
    *("README.md", "CONTRIBUTING.md", "docs/**/*.md", "tutorials/*", "papers/**/*.md"),
    "tests/golden/help.txt",
)
ALLOWED = {
    # The text seeds a stream of random numbers: another one would change every stored result.
    ("src/levelhead/mitigate/evaluation/gain.py", "redrawn"),
    # A judge model is the field's term for a model that labels texts.
    ("src/levelhead/measures/generation/scoring/model_scorers.py", "judge"),
    ("src/levelhead/measures/generation/scoring/scorer_names.py", "judge"),
    ("src/levelhead/measures/generation/scored_texts.py", "judge"),
    ("CHANGELOG.md", "judge"),
    ("docs/measures/generation.md", "judge"),
}
"""File and retired word, each with the reason why the word stays."""


class Module(NamedTuple):
    """A file of the package."""

    name: str
    path: Path
    text: str
    tree: ast.Module


def modules() -> list[Module]:
    """Every file of the package, by name."""
    result = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        result.append(Module(name, path, text, ast.parse(text)))
    return result


def files_per_folder(package: list[Module]) -> Counter[str]:
    """Source files of every folder, `__init__` apart: a newcomer does not choose it."""
    named = [module.path for module in package if module.path.name != "__init__.py"]
    return Counter(str(path.parent.relative_to(SOURCE.parent)) for path in named)


def names_defined_twice(package: list[Module]) -> dict[str, list[str]]:
    """Public classes and functions of one name in two modules or more."""
    places = defaultdict(list)
    for module in package:
        for node in module.tree.body:
            is_definition = isinstance(node, ast.ClassDef | ast.FunctionDef)
            if is_definition and not node.name.startswith("_"):
                places[node.name].append(module.name)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def wide_functions(package: list[Module]) -> list[str]:
    """Functions with too many parameters; those of the command line are its options."""
    wide = []
    for module in package:
        if module.name.startswith("levelhead.cli"):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(arg.arg not in ("self", "cls") for arg in given)
                if count > WIDE:
                    wide.append(f"{module.name}.{node.name}: {count}")
    return wide


def type_ignores(package: list[Module]) -> list[str]:
    """Lines on which the type checker is told to look away."""
    return [
        f"{module.name}:{number}"
        for module in package
        for number, line in enumerate(module.text.splitlines(), 1)
        if "# type: ignore" in line
    ]


def cycles(package: list[Module]) -> list[list[str]]:
    """Groups of modules that import each other, imports for types alone included."""
    known = {module.name for module in package}
    imports = {module.name: set(_imported(module, known)) for module in package}
    return [sorted(group) for group in _strong_components(imports) if len(group) > 1]


def comment_share(package: list[Module]) -> float:
    """Comment lines among lines of code and comments: no blank lines, no docstrings."""
    comments = code = 0
    for module in package:
        lines: dict[int, bool] = {}
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            if token.type == tokenize.COMMENT:
                # A comment for a tool says nothing to a reader.
                is_prose = not re.match(r"# (type: ignore|noqa)", token.string)
                comments += is_prose
                lines.setdefault(token.start[0], False)
            elif token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
                lines[token.start[0]] = True
        code += sum(lines.values()) + sum(not is_code for is_code in lines.values())
    return comments / code


def flat_names() -> list[str]:
    """What `levelhead` itself exports, by the reader that the package uses."""
    sys.path.insert(0, str(SOURCE.parent))  # of this checkout, installed or not
    from levelhead._lazy import public_names

    names = public_names((SOURCE / "__init__.py").read_text())
    return sorted(names.keys() - {"__version__"})


def retired_words(package: list[Module]) -> list[str]:
    """Where retired words are used: file, line, word."""
    uses = []
    texts = [(module.path, module.text) for module in package]
    texts += [(path, path.read_text()) for glob in PROSE for path in sorted(ROOT.glob(glob))]
    # Names are of words too: `told_of` and `toldOf` hold "told".
    words = re.compile(rf"(?<![a-zA-Z])({'|'.join(RETIRED)})(?![a-zA-Z])", re.IGNORECASE)
    phrases = re.compile(rf"\b({'|'.join(RETIRED_PHRASES)})\b", re.IGNORECASE)
    for path, text in texts:
        for number, line in enumerate(text.splitlines(), 1):
            hits = [match[0] for regex in (words, phrases) for match in regex.finditer(line)]
            name = str(path.relative_to(ROOT))
            uses += [f"{name}:{number}: {hit}" for hit in hits if (name, hit) not in ALLOWED]
    return uses


def _imported(module: Module, known: set[str]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            # A package that is imported for one of its modules is not used itself.
            yield from ([name for name in inner if name in known] or {node.module} & known)


def _strong_components(edges: dict[str, set[str]]) -> Iterator[set[str]]:
    """Tarjan's algorithm, without recursion: the graph may be deeper than Python's stack."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            target = next(rest, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = set()
                    while node not in group:
                        group.add(stack[-1])
                        on_stack.discard(stack.pop())
                    yield group
            elif target not in index:
                index[target] = low[target] = len(index)
                stack.append(target)
                on_stack.add(target)
                work.append((target, iter(edges[target])))
            elif target in on_stack:
                low[node] = min(low[node], index[target])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", metavar="KEY")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    package = modules()
    folders, flat = files_per_folder(package), flat_names()
    lists = {
        "max_files_per_folder": [f"{name}: {count}" for name, count in folders.most_common()],
        "names_defined_twice": [
            f"{k}: {', '.join(v)}" for k, v in names_defined_twice(package).items()
        ],
        "wide_functions": wide_functions(package),
        "type_ignores": type_ignores(package),
        "cycles": [" ".join(group) for group in cycles(package)],
        "flat_names": flat,
        "retired_words": retired_words(package),
    }
    if given.list:
        print("\n".join(lists[given.list]))
        return
    figures: dict[str, float] = {key: len(values) for key, values in lists.items()}
    figures["max_files_per_folder"] = max(folders.values())
    figures["comment_share"] = round(comment_share(package), 4)
    figures["src_lines"] = sum(len(module.text.splitlines()) for module in package)
    print(json.dumps(figures))
    if given.check:
        faults = {"retired words, see the glossary": "retired_words", "import cycles": "cycles"}
        lines = [
            line
            for title, key in faults.items()
            if lists[key]
            for line in (f"{title}:", *lists[key])
        ]
        if lines:
            raise SystemExit("\n".join(lines))


if __name__ == "__main__":
    main()
