import tomllib
from importlib.resources import files

import pytest
import zoo
from command import levelhead

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.languages.language import language, languages
from levelhead.data.lexicons.lexicon import lexicon, list_shipped_lexicons
from levelhead.measures.generation.honest import Honest
from levelhead.measures.group_tables.association_spread import AssociationSpread
from levelhead.models.inputs.tokenizer import MASK
from levelhead.models.loading.load import load

SHIPPED = sorted(languages())


@pytest.mark.parametrize("code", SHIPPED)
def test_a_language_has_sentences_adjectives_and_a_lexicon(code):
    row = language(code)
    assert row.cannot
    assert row.grammatical_gender
    persons = row.persons
    assert len(persons.templates) >= 12
    assert len(set(persons.templates)) == len(persons.templates)
    for family in persons.families:
        words = [word for side in family.sides for word in side.words]
        assert len(family.sides) == 2
        assert len({len(side.words) for side in family.sides}) == 1
        assert len(set(words)) == len(words), f"{family.name} has a word twice"
    words = lexicon(row.default_lexicon)
    assert words.language == code
    assert len(words.groups) == 5
    measure = AssociationSpread(language=code)
    assert measure.compared_groups == words.groups
    assert len(set(measure.resolved_descriptions)) == 5
    # What stands after the blank is a sign at most, so that causal models can fill it.
    for text in measure.resolved_templates:
        assert not any(map(str.isalnum, text.partition(MASK)[2]))


def test_every_folder_has_a_row():
    root = files("levelhead.data").joinpath("languages")
    folders = {entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != "_"}
    rows = tomllib.loads(root.joinpath("languages.toml").read_text("utf-8"))["language"]
    assert folders == {row["code"] for row in rows} == set(SHIPPED)


def test_a_made_up_language_is_a_folder(tmp_path):
    (tmp_path / "language.toml").write_text(
        'code = "xx"\nname = "Made up"\ngrammatical_gender = "none"\ncannot = "Nobody speaks it."\n'
        "[data]\n"
    )
    (tmp_path / "persons.toml").write_text(
        'description = "{adjective} woman"\n'
        'templates = ["the {person} is [MASK].", "a {person} was [MASK].", '
        '"that {person} was [MASK].", "here a {person} is [MASK]."]\n'
        '[targets.pace]\nabout = "adjectives of pace"\n'
        '[targets.pace.sides.a]\nwords = ["quick"]\n[targets.pace.sides.b]\nwords = ["lazy"]\n'
    )
    (tmp_path / "religion-xx.toml").write_text(
        'name = "religion-xx"\nlanguage = "xx"\ngroups = ["a", "b", "c"]\nsource = "tests"\n'
        'licence = "CC0-1.0"\nlimits = "none"\n'
        '[[terms]]\nkind = "adjective"\nrows = [{ a = "tired", b = "quick", c = "lazy" }]\n'
    )
    measure = AssociationSpread(language=str(tmp_path), family="pace")
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    result = measure(lm)
    assert result.groups == ("a", "b", "c")
    assert result.n == 4
    assert "language" in measure.settings
    with pytest.raises(LevelheadError, match="no data in Made up"):
        language(str(tmp_path)).source("crows")


def test_a_missing_language_is_an_error_with_those_there_are():
    with pytest.raises(UnknownNameError, match="fr"):
        language("klingon")
    with pytest.raises(LevelheadError, match="no data in German"):
        language("de").source("crows")


def test_english_stays_out_of_settings():
    # Results of earlier versions keep their hashes.
    assert "language" not in AssociationSpread().settings
    assert AssociationSpread(language="fr").settings["language"] == "fr"


def test_hurtful_words_are_those_of_the_language():
    assert Honest(language="fr").resolved_scorer.name == "hurtlex-fr"
    assert Honest().resolved_scorer.name == "hurtlex"


def test_lexicons_of_languages_are_listed():
    assert {"gender-en", "origin-en", "religion-fr", "religion-zh"} <= set(list_shipped_lexicons())


def test_the_list_of_data_can_be_of_a_language_and_a_kind_of_group():
    listed = levelhead("data", "list", "--language", "fr")
    assert listed.returncode == 0
    assert listed.stdout.startswith("French: grammatical gender of nouns")
    assert "crows-pairs-multilingual" in listed.stdout
    assert "winobias" not in listed.stdout
    few = levelhead("data", "list", "--language", "fr", "--groups", "religion").stdout
    assert "religion-fr  [lexicon]" in few
    assert "religion-en" not in few
    assert levelhead("data", "list", "--language", "xx").returncode == 3


def test_data_sets_that_no_measure_reads_are_listed_by_language():
    listed = levelhead("data", "list", "--language", "fr", "--groups", "origin").stdout
    assert "seegull-multilingual" in listed
    assert "CC BY 4.0" in listed
    listed = levelhead("data", "list", "--language", "fr", "--groups", "religion").stdout
    assert "crows-pairs-multilingual" in listed
    assert "seegull" not in listed
    assert "Get it: the data frames" in listed  # not redistributable: where it is
