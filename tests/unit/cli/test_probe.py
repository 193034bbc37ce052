"""`levelhead probe` on a tiny model: the numbers of Python, and a code for each verdict."""

import inspect
import json
from dataclasses import fields

import pytest
import torch
import typer
import zoo
from sweeps import removed_or_hidden
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.cli import probe as removed
from levelhead.cli.shared.exit_codes import FAIL, INCONCLUSIVE, ExitWithCode
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.results import Estimate, Interval
from levelhead.core.run_context import Inference
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs
from levelhead.data.counterfactuals.held_out import held_out_pairs
from levelhead.mitigate.evaluation import bias_reduction
from levelhead.mitigate.probing import concept_removal
from levelhead.models.edits.base import Projection
from levelhead.models.edits.files import load_edits, save_edits
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

WORDS = (
    ("she", "he"), ("woman", "man"), ("nurse", "doctor"), ("river", "house"), ("quick", "lazy"),
    ("here", "there"), ("the", "a"), ("works", "said"), ("is", "was"), ("as", "and"),
    ("zebra", "tired"), ("that", "in"),
)  # fmt: skip


def written(words):
    rows = ",\n".join(f'{{ female = "{single}", male = "{two}" }}' for single, two in words)
    return f"""
name = "own"
language = "en"
groups = ["female", "male"]
source = "the tests"
licence = "CC0-1.0"
limits = "says nothing of anybody"
[[terms]]
kind = "person"
rows = [
{rows}
]
"""


ENDS = ("tired", "in that")
QUICK = ("--label-permutations", "9", "--resamples", "99", "--site", "pooled")


@pytest.fixture
def given(tmp_path):
    subset, edit = tmp_path / "own.toml", tmp_path / "edit"
    subset.write_text(written(WORDS))
    (tmp_path / "used.txt").write_text("that\n\n In \n")
    basis = torch.zeros(1, 24)
    basis[0, 3] = 1.0
    save_edits([Projection(Site("pooled"), basis)], edit)
    return tmp_path


def invoke(given, *args):
    folder = zoo.folder("bert", "BertForPreTraining")
    fixed = ["probe", str(folder), "--edit", str(given / "edit")]
    return CliRunner().invoke(app, [*fixed, "--lexicon", str(given / "own.toml"), *args])


def test_the_numbers_are_those_of_python(given):
    """Takes 10 s: probes are trained on the line and in Python. Others are given a result."""
    out = given / "found.json"
    result = invoke(given, "--exclude-words", str(given / "used.txt"), *QUICK, "-o", str(out))
    assert isinstance(result.exception, ExitWithCode), result.output
    assert result.exception.code == INCONCLUSIVE
    assert result.stdout.startswith("unclear: pooled: the groups were not separable before")
    assert "33 pairs of texts" not in result.stdout
    assert "30 pairs of texts, 10 words with their counterfactuals" in result.stdout
    assert "left out: 1 (a word of it was used for the edit)" in result.stdout
    assert "3 pairs dropped: the model cannot read them" in result.stdout
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    edit = load(zoo.folder("bert", "BertForPreTraining"), edit=str(given / "edit")).edits
    pairs = held_out_pairs(str(given / "own.toml"), fitted_on=["that", "in"]).pairs
    again = concept_removal.concept_removal(
        lm,
        edit,
        pairs,
        fitted_on=["that", "in"],
        probes=concept_removal.ProbeConfig([Site("pooled")], label_permutations=9),
        inference=Inference(resamples=99, level=concept_removal.LEVEL),
    )
    assert concept_removal.RemovalReport.from_json(out.read_text()) == again


def test_every_verdict_has_its_code(given, monkeypatch):
    once = removed_or_hidden()
    for verdict, code in (("removed", 0), ("hidden", FAIL), ("unclear", INCONCLUSIVE)):
        subset = once.model_copy(update={"verdict": verdict})
        monkeypatch.setattr(
            concept_removal, "concept_removal", lambda *args, subset=subset, **options: subset
        )
        result = invoke(given, "--exclude-words", "none", *QUICK, "--json")
        assert json.loads(result.stdout)["verdict"] == verdict
        assert getattr(result.exception, "code", 0) == code


def test_a_measure_is_measured_and_sentences_can_be_asked(given, monkeypatch):
    """Takes 6 s: probes are trained on sentences."""
    (given / "own.toml").write_text(written(WORDS[:10]))
    texts = given / "texts.txt"
    texts.write_text(
        "\n".join(f"tired {single} {end} ." for single, _ in WORDS[:10] for end in ENDS)
    )
    interval = Interval(low=0.1, high=0.3, level=0.95, method="made up")
    gain = Estimate(name="gain of crows", value=0.2, interval=interval, n=7)
    queries = []
    monkeypatch.setattr(
        bias_reduction,
        "estimate_bias_reduction",
        lambda *args, **options: queries.append(args) or gain,
    )
    out = given / "found.json"
    result = invoke(
        given,
        "--exclude-words",
        "none",
        "--texts",
        str(texts),
        "-m",
        "crows",
        *QUICK,
        "-o",
        str(out),
    )
    assert isinstance(result.exception, ExitWithCode), result.output
    outcome = concept_removal.RemovalReport.from_json(out.read_text())
    assert outcome.bias_reduction == gain
    assert (outcome.n, outcome.words) == (20, 10)
    assert queries[0][0].name == "crows"
    assert "measure: gain of crows 0.2 [0.1, 0.3] (n 7)" in result.stdout


def test_what_was_used_is_read_from_a_lexicons_options_a_file_or_none(given):
    assert removed.read_excluded_texts("none", None) == ()
    assert removed.read_excluded_texts(str(given / "used.txt"), None) == ("that", "In")
    result = removed.read_excluded_texts("gender-en:n=12,seed=3", ["male", "female"])
    assert result == contrast_pairs("gender-en", groups=["male", "female"], n=12, seed=3)
    assert removed.read_excluded_texts("gender-en", None) == contrast_pairs("gender-en")
    with pytest.raises(LevelheadError, match="'top=3' are no options of mitigate project"):
        removed.read_excluded_texts("gender-en:top=3", None)
    with pytest.raises(LevelheadError, match=r"cannot read .*nowhere\.txt"):
        removed.read_excluded_texts(str(given / "nowhere.txt"), None)


def test_sites_are_written_as_they_are_printed():
    for site in (Site("pooled"), Site("block_out", 11), Site("head_out", 8, 11)):
        assert removed.parse_site(str(site)) == site
    with pytest.raises(LevelheadError, match="'block_out x' is not a site"):
        removed.parse_site("block_out x")
    with pytest.raises(UnknownNameError, match="no stream named 'poled'"):
        removed.parse_site("poled")


def test_what_was_used_must_be_said(given):
    result = invoke(given, "--exclude-words", str(given / "own.toml"), *QUICK)
    assert "own has no unused pair of words for female and male" in str(result.exception)


def test_options_are_named_as_in_python():
    command = typer.main.get_command(app).commands["probe"]
    shared = {"model", "output", "json", "quiet", "batch_size", "device", "dtype", "allow_pickle"}
    names = {option.name for option in command.params} - shared - {"revision"}
    python = set(inspect.signature(concept_removal.concept_removal).parameters) - {"probes"}
    python |= {field.name for field in fields(concept_removal.ProbeConfig)}
    # What `pairs` are made of, with the options of `held_out`; and the folder of `edits`.
    inference = {"resamples", "level", "seed"}
    assert names <= python | {"lexicon", "groups", "texts", "edit", "measure_name"} | inference
    # Whose gain it is, and the gain, follow from the measure's name.
    measured = {"bias_reduction"}
    assert python - {"lm", "edits", "pairs", "on_step", "inference"} - measured <= names


def test_what_the_folder_says_of_itself_always_counts(given, monkeypatch):
    result = invoke(given, *QUICK)
    assert "does not record the words it was fitted on" in str(result.exception)
    save_edits(load_edits(given / "edit"), given / "edit", fitted_words=["that", "in"])
    queries = []

    def output(lm, edits, pairs, *, fitted_on, **options):
        queries.append((len(pairs), {*fitted_on}))
        return removed_or_hidden()

    monkeypatch.setattr(concept_removal, "concept_removal", output)
    for seen in ([], ["--exclude-words", "none"]):
        result = invoke(given, *seen, *QUICK)
        assert "left out: 1 (a word of it was used for the edit)" in result.stdout
    # Three sentences of each of eleven pairs of words: those of the twelfth were used.
    assert queries == [(33, {"that", "in"})] * 2
