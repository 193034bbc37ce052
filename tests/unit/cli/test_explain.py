"""`levelhead explain counterstereotype` and `levelhead data lexicon test` on a tiny model."""

import inspect
import json
from dataclasses import fields
from types import SimpleNamespace

import pytest
import typer
from metric_cases import INFERENCE, THINGS, checkpoint, made, model
from typer.testing import CliRunner

from levelhead.cli.explain.explain import _corrected, app
from levelhead.cli.explain.lexicon_test import lexicon_test_command
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate
from levelhead.explain.attention.counterstereotype import CounterStereotypeResult, counterstereotype
from levelhead.explain.lexicon_effects import FrameOptions, LexiconEffects
from levelhead.explain.lexicon_effects import lexicon_effects as tried
from levelhead.locate.head_map import BiasSign, ComponentScore, HeadMap, SplitReport

LIST = """
name = "own"
language = "en"
groups = ["female", "male"]
source = "the tests"
licence = "CC0-1.0"
limits = "says nothing of anybody"
[[terms]]
kind = "person"
rows = [{ female = "woman", male = "man" }, { female = "nurse", male = "doctor" }]
[targets.traits]
about = ""
[targets.traits.sides.a]
leans = "female"
words = ["quick", "tired"]
[targets.traits.sides.b]
leans = "male"
words = ["lazy", "here"]
"""

QUICK = ("--resamples", "99", "--permutations", "99", "--seed", "1")


def write_map(path, sign=1):
    """A head map of the tiny model: five negative heads, seven positive."""
    result = made("crows_margin")(model("crows_margin"), inference=INFERENCE)
    estimate = Estimate(name="x", value=result.value, interval=result.interval, n=result.n)
    scores = [
        ComponentScore(component="heads", layer=i // 4, head=i % 4, score=0.1 * (i - 4.5))
        for i in range(12)
    ]
    head_map = HeadMap(
        method="gradient",
        ablation="zero",
        layers=3,
        heads_per_layer=4,
        measure="crows_margin",
        bias_sign=BiasSign(sign=sign, reason="the tests"),
        split=SplitReport(split_by="none", seed=0, claim="", discovery=estimate),
        scores=tuple(scores),
        measurement=result,
        provenance=result.provenance,
    )
    path.write_text(head_map.to_json())
    return str(path)


@pytest.fixture
def pairs(tmp_path):
    rows = [
        {
            "text": f"the woman said that {word} was {other}.",
            "twin": f"the man said that {word} was {other}.",
            "attribute": "woman",
            "target": word,
            "group": "female",
        }
        for i, word in enumerate(THINGS[:8])
        for other in (THINGS[i - 1], THINGS[i - 2])
    ]
    path = tmp_path / "pairs.own.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def invoke(*args):
    return CliRunner().invoke(app, ["counterstereotype", *map(str, args), *QUICK])


def test_a_table_for_people(tmp_path, pairs):
    result = invoke(write_map(tmp_path / "heads.json"), "--pair-source", pairs, "--details")
    assert result.exit_code == 0, result.output
    assert "attention: biased - regular" in result.stdout
    assert "value-weighted: regular, counter" in result.stdout
    assert "attention, 7 biased heads, as the paper tests: t = " in result.stdout
    assert "of heads called biased at random, as many in every layer: [" in result.stdout
    assert "heads change (max-T, 0.05)" in result.stdout
    assert "16 of 16 sampled pairs, 8 targets" in result.stdout
    assert "3-4" in result.stdout


def test_json_for_machines(tmp_path, pairs):
    out = tmp_path / "out.json"
    given = (write_map(tmp_path / "heads.json"), "--pair-source", pairs, "--json", "-o", out)
    result = invoke(*given, "--placebo", "none", "--control-categories", "none", "--pairs", "12")
    assert result.exit_code == 0, result.output
    outcome = CounterStereotypeResult.from_json(result.stdout)
    assert outcome == CounterStereotypeResult.from_json(out.read_text())
    assert outcome.n == 12
    assert outcome.attention.net is None
    assert outcome.provenance.settings["control_categories"] == ()
    assert len(outcome.provenance.settings["heads"]["biased"]) == 7


def test_frames_of_a_lexicon(tmp_path):
    subset = tmp_path / "own.toml"
    subset.write_text(LIST)
    sample = tmp_path / "figure.svg"
    heads = write_map(tmp_path / "heads.json")
    result = invoke(heads, "--lexicon", subset, "--json", "--chart", sample)
    assert result.exit_code == 0, result.output
    outcome = CounterStereotypeResult.from_json(result.stdout)
    assert outcome.n == 2 * 4 * 4
    assert dict(outcome.groups) == {"female": 16, "male": 16}
    assert sample.read_text().startswith("<svg")


def test_an_undetermined_sign_exits_2(tmp_path, pairs):
    result = invoke(write_map(tmp_path / "heads.json", sign=0), "--pair-source", pairs)
    assert isinstance(result.exception, ExitWithCode)
    assert result.exception.code == INCONCLUSIVE
    assert "hint" in result.stderr


def test_another_model_is_refused(tmp_path, pairs):
    other = checkpoint("ppl")
    result = invoke(write_map(tmp_path / "heads.json"), "--pair-source", pairs, "--model", other)
    assert isinstance(result.exception, LevelheadError)
    assert "the map was made of another model" in str(result.exception)
    assert "precision" in result.exception.hint


def test_what_is_no_map_is_refused(tmp_path, pairs):
    path = tmp_path / "no.json"
    path.write_text("{}")
    result = invoke(path, "--pair-source", pairs)
    assert "is not a head map: method: Field required" in str(result.exception)
    result = invoke(tmp_path / "nowhere.json", "--pair-source", pairs)
    assert "cannot read" in str(result.exception)


def try_list(tmp_path, *args):
    subset = tmp_path / "own.toml"
    subset.write_text(LIST)
    single = typer.Typer()
    single.command()(lexicon_test_command)
    given = [str(subset), str(checkpoint("crows")), "--target-kind", "adjective", *map(str, args)]
    return CliRunner().invoke(single, given)


def test_a_word_list_is_tried(tmp_path):
    result = try_list(tmp_path)
    assert result.exit_code == 0, result.output
    assert "woman/man" in result.stdout
    assert "no significant effect of" in result.stdout
    heads = write_map(tmp_path / "heads.json")
    result = try_list(tmp_path, "--heads", heads, "--groups", "male,female", "--json")
    outcome = LexiconEffects.from_json(result.stdout)
    assert outcome.groups == ("male", "female")
    assert [pair.word for pair in outcome.pairs] == ["man/woman", "doctor/nurse"]
    assert len(outcome.provenance.settings["heads"]) == 7


def test_options_are_named_as_in_python():
    shared = {"output", "chart", "json", "details", "quiet", "batch_size", "device", "dtype"}
    shared |= {"allow_pickle", "help"}
    judged = {"seed", "resamples", "permutations", "level"}
    load = {"model", "edit", "revision"}
    command = typer.main.get_command(app).commands["counterstereotype"]
    keywords = set(inspect.signature(counterstereotype).parameters)
    # `pair_source` and `lexicon` are what pairs are made of.
    subset = {option.name for option in command.params} - shared - judged - load
    assert subset <= keywords | {"lexicon", "pair_source"}
    single = typer.Typer()
    single.command()(lexicon_test_command)
    names = {option.name for option in typer.main.get_command(single).params}
    names -= shared | judged | load | {"file", "install_completion", "show_completion"}
    keywords = set(inspect.signature(tried).parameters) - {"frames"}
    assert names <= keywords | {field.name for field in fields(FrameOptions)}


def test_the_p_value_of_a_single_head_is_not_taken_for_0():
    alone, in_family = (
        SimpleNamespace(value=0.4, adjusted=None),
        SimpleNamespace(value=0.01, adjusted=0.2),
    )
    assert (_corrected(alone), _corrected(in_family)) == (0.4, 0.2)
