"""The recipes of docs/development/extend.md: their files, and checks of what they add.

Run as a script with a package to which all recipes were applied, in an empty folder: it uses what
each recipe adds through its public door and writes a JSON object, one value per recipe. It imports
the package in the functions, so that the test that reads the page does not need it.
"""

import contextlib
import io
import json
import re
import runpy
import sys
import traceback
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

NAMED = re.compile(r"(?:# |<!-- |\+\+\+ )((?:src|docs|tests)/[\w./]+)(?: -->)?\n")
"""The first line of a block that is applied."""


class Block(NamedTuple):
    """A block of a recipe."""

    recipe: str
    language: str
    text: str

    @property
    def file(self):
        """The file that it writes, from the root; empty: it is to be read."""
        named = NAMED.match(self.text)
        return named[1] if named else ""


def blocks(page):
    """The blocks of the page, each with the heading that it is under."""
    heading, result = "", []
    tokens = MarkdownIt().parse(page.read_text())
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "inline" and before.type == "heading_open":
            heading = token.content
        elif token.type == "fence":
            result.append(Block(heading, token.info.strip(), token.content))
    return result


def apply(block, root):
    """Write a block: a new file, lines for the end of a file, or the added lines of a diff."""
    path, body = root / block.file, block.text.split("\n", 1)[1]
    if block.language == "diff":
        path.write_text(insert(path.read_text(), body, block.file))
    elif path.exists():
        path.write_text(path.read_text().rstrip("\n") + "\n" + body)
    else:
        path.write_text(body)


def insert(text, diff, name):
    """A text with the lines of a diff added below the line before them, or above the first.

    >>> insert("a\\nb\\n", "+c\\n a\\n+d\\n", "file")
    'c\\na\\nd\\nb\\n'
    """
    lines, above, place = text.split("\n"), [], None
    for line in diff.removesuffix("\n").split("\n"):
        sign, content = line[:1], line[1:]
        if sign == "+" and place is None:
            above.append(content)
        elif sign == "+":
            place += 1
            lines.insert(place, content)
        else:
            count = lines.count(content)
            assert (sign, count) == (" ", 1), f"{name} has {count} lines {content!r}, not one"
            place = lines.index(content)
            lines[place:place] = above
            place, above = place + len(above), []
    return "\n".join(lines)


# -- checks: what each recipe adds, used as a user would


def measure():
    from levelhead.calibrate.suite import EXCLUDED
    from levelhead.core.run_context import Inference
    from levelhead.measures.registry import parse_measure

    lm, made = _bert(), parse_measure("pair_margin")
    result = made(lm, inference=Inference(resamples=99, permutations=99))
    first, second = (lm.log_prob(texts)[0] for texts in zip(*made.pairs, strict=True))
    pages = runpy.run_path(str(_root() / "tests" / "contract" / "test_measure_pages.py"))
    pages["test_every_measure_has_one_page"]()
    pages["test_pages_state_the_limits_of_a_measure_and_name_real_options"]()
    return {
        "name": result.measure,
        "n": result.n == len(made.pairs),
        "value": abs(result.value - float((first - second).double().mean())) < 1e-5,
        "p": result.p is not None,
        "calibration": made.name in EXCLUDED,
    }


def family():
    import torch
    import zoo

    from levelhead.models.diagnostics.doctor import run_checks
    from levelhead.models.edits.base import HeadScale, Projection
    from levelhead.models.loading.load import load
    from levelhead.models.sites import Site

    lm, text = load(zoo.folder("starcoder2", "Starcoder2ForCausalLM")), ["the nurse is here ."]
    fails = [result.check for result in run_checks(lm) if result.holds is False]
    outputs = Projection(Site("mlp_out", 1), torch.eye(zoo.SMALL["hidden_size"]))  # all of them
    base, changed, masked = (
        item.log_prob(text)[0]
        for item in (lm, lm.edited(outputs), lm.edited(HeadScale([Site("head_out", 1, 2)], 0)))
    )
    weights = dict(lm.layout.model.named_parameters())["model.layers.1.self_attn.o_proj.weight"]
    weights.data[:, 12:18] = 0  # the third of four heads
    return {
        "heads": sorted(lm.heads),
        "fails": fails,
        "mlp": bool((changed - base).abs() > 1e-3),
        "mask": bool((masked - base).abs() > 1e-3)
        and torch.allclose(masked, lm.log_prob(text)[0], atol=1e-5),
    }


def data_set():
    from levelhead.data.catalog.datasets import dataset

    row = dataset("hotel-reviews")
    path = Path("data") / row.folder / row.file("all").path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"text\tlabel\nA good bed.\tgood\nNo bed.\tbad\n")
    return {
        "items": [[item.text, item.label] for item in row.items("all")],
        "listed": "hotel-reviews" in _run("data", "list"),
    }


def edit():
    import torch

    from levelhead.models.edits.files import load_edits, save_edits
    from levelhead.models.edits.kinds import EDIT_KINDS
    from levelhead.models.sites import Site

    lm, made = _bert(), EDIT_KINDS["clip"]((Site("mlp_out", 1),), 0.1)
    save_edits([made], "edit")
    (again,) = load_edits("edit")
    text = ["the nurse is here ."]
    clipped = lm.edited(again).embed(text)
    names = {"part": torch.tensor([-1.0, 0.05, 1.0]), "step": {"bound": 0.1}}
    exec(made.standalone_code(), names)  # noqa: S102  # the lines that an exported edit runs
    return {
        "equal": again == made,
        "acts": bool((clipped - lm.embed(text)).abs().max() > 1e-3),
        "standalone": torch.equal(names["part"], made(torch.tensor([-1.0, 0.05, 1.0]), None)),
    }


def study_step():
    from levelhead.study.config import read_study_config
    from levelhead.study.results_dir import load_results
    from levelhead.study.run import run_study

    Path("study.toml").write_text(
        f"""format = "levelhead-study-2"
name = "sizes"
models.tiny.path = "{_folder()}"
measures = {{}}
model_sizes.all.model = "tiny"
"""
    )
    run_study(read_study_config("study.toml"), "study")
    kinds = runpy.run_path(str(_root() / "tests" / "contract" / "test_step_kinds.py"))
    kinds["test_every_kind_has_a_table_of_its_rows"]()
    kinds["test_every_result_of_a_kind_has_rows"]()
    kinds["test_names_that_the_study_does_not_have_are_refused"]("model_sizes")
    result = load_results("study")["size.all"]
    return {
        "result": result.weights == _bert().layout.model.num_parameters(),
        "row": f"size.all,,weights,{float(result.weights)}" in Path("study/table.csv").read_text(),
    }


def chart():
    from levelhead.core.run_context import Inference
    from levelhead.data.records import MinimalPair
    from levelhead.measures.registry import make_measure
    from levelhead.measures.robustness.multiverse import multiverse
    from levelhead.report.charts.registry import chart, save

    words = ("tired", "here", "quick", "lazy")
    pairs = tuple(MinimalPair(w, "gender", "", f"he is {w}.", f"she is {w}.") for w in words)
    result = multiverse(
        _bert(),
        make_measure("crows", pairs=pairs),
        inference=Inference(resamples=99, permutations=99),
    )
    save(chart(result), "chart.json")
    spec = json.loads(Path("chart.json").read_text())
    (rows,) = spec["datasets"].values()
    lows = [item.interval.low for item in result.specifications]
    return {
        "schema": "vega-lite" in spec["$schema"],
        "low": len(lows) > 1 and [row["low"] for row in rows] == lows,
    }


def command():
    weights = _bert().layout.model.num_parameters()
    return {
        "help": "Usage: levelhead size [OPTIONS]" in _run("size", "--help"),
        "listed": "\n  size " in _run("--help"),
        "weights": _run("size", str(_folder())) == f"{weights} weights\n",
    }


CHECKS = {
    "A measure": measure,
    "A model family": family,
    "A data set": data_set,
    "An edit": edit,
    "A study step": study_step,
    "A chart": chart,
    "A command": command,
}


def _root():
    """Of the copy."""
    import levelhead

    return Path(levelhead.__file__).parents[2]


def _folder():
    import zoo

    return zoo.folder("bert", "BertForPreTraining")


def _bert():
    from levelhead.models.loading.load import load

    return load(_folder())


def _run(*args):
    """What the command line prints."""
    from levelhead.cli import main

    sys.argv = ["levelhead", *args]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main()
    return out.getvalue()


def _outcome(check):
    try:
        return check()
    except Exception:
        return traceback.format_exc()


if __name__ == "__main__":
    outcomes = {name: _outcome(check) for name, check in CHECKS.items()}
    Path("outcomes.json").write_text(json.dumps({"package": str(_root())} | outcomes))
