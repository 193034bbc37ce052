"""`levelhead explain knowledge` and `levelhead mitigate prompt`, by real weights."""

import inspect
import json
from dataclasses import fields

import pytest
import typer
from assets import asset
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.cli.explain import explain
from levelhead.cli.mitigate import mitigate
from levelhead.core.run_context import RunContext
from levelhead.explain.prompting.knowledge import KnowledgeResult, knowledge
from levelhead.measures.cloze.cloze import Cloze
from levelhead.mitigate.prompting.choose_prefix import select_prompt_prefix
from levelhead.mitigate.prompting.prefixes import PrefixGrid


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Takes 5 s: 40 occupations by real weights, once for the tests below."""
    folder = tmp_path_factory.mktemp("knowledge")
    output, picture = folder / "found.json", folder / "found.svg"
    result = run(
        *("explain", "knowledge", asset("models", "minibert-en"), "--backgrounds", "1"),
        *("--kinds", "pronoun", "--resamples", "99", "-o", output, "--chart", picture),
    )
    assert result.exit_code == 0, result.output
    return result.stdout, output, picture


def test_tables_file_and_picture(report):
    shown, output, picture = report
    for title in ("without knowledge", "change of the margin by a prefix", "claims of the paper"):
        assert title in shown
    assert "effect of each part of a counterexample" in shown
    result = KnowledgeResult.from_json(output.read_bytes())
    assert f"{result.n} prompts of 40 occupations, 0 dropped" in shown
    text = picture.read_text()
    assert text.startswith("<svg")
    assert "target counter syntactic similar" in text


def test_every_contrast_is_a_row_with_its_verdict(report):
    shown, output, _ = report
    for contrast in KnowledgeResult.from_json(output.read_bytes()).contrasts:
        assert f"{contrast.kind}: {contrast.verdict}" in shown


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--prompts", "table9"), "no set of prompts named 'table9'"),
        (("--form", "sung"), "no form named 'sung'"),
        (("--separator", "comma"), "no separator named 'comma'"),
        (("--verbalizer", "oracle"), "no verbalizer named 'oracle'"),
        (("--form", "chat"), "has no chat template"),
    ],
)
def test_what_is_refused(args, why):
    result = run("explain", "knowledge", asset("models", "minibert-en"), *args)
    assert result.exit_code != 0
    assert why in f"{result.output} {result.exception}"


def test_a_prefix_is_told_with_its_price_and_exits_2_if_it_is_not_recommended(tmp_path):
    """Takes 6 s: a prefix is searched for with real weights, at the smallest sizes."""
    output = tmp_path / "prompt.json"
    result = run(
        *(
            "mitigate",
            "prompt",
            asset("models", "stories15m"),
            "--candidates-per-size",
            "1",
            "--prefix-sizes",
            "2",
        ),
        *("--resamples", "99", "--samples", "0", "-o", output),
    )
    outcome = json.loads(output.read_text())
    code = 0 if result.exception is None else result.exception.code
    assert code == (0 if outcome["is_recommended"] else 2)
    assert outcome["prefix"] in result.stdout
    assert "loss on plain sentences, nats per token" in result.stdout
    assert outcome["reason"] in result.stdout


@pytest.mark.parametrize(
    ("room", "name", "verb"),
    [(explain, "knowledge", knowledge), (mitigate, "prompt", select_prompt_prefix)],
)
def test_options_are_named_as_in_python(room, name, verb):
    shared = {
        "output",
        "chart",
        "json",
        "quiet",
        "batch_size",
        "device",
        "dtype",
        "allow_pickle",
        "help",
    }
    load = {"model", "edit", "revision", "seed", "resamples", "level"}
    command = typer.main.get_command(room.app).commands[name]
    subset = {option.name for option in command.params} - shared - load
    keywords = set(inspect.signature(verb).parameters)
    keywords |= {field.name for field in fields(RunContext)}
    keywords |= {field.name for field in fields(PrefixGrid)}
    assert subset <= keywords | {field.name for field in fields(Cloze)}
