"""Children of a model: CDA with balanced twins, dropout, and what they say of themselves."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import zoo
from typer.testing import CliRunner

from levelhead.cli.mitigate.mitigate import app
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.files import file_hash
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.mitigate.training import cda_and_dropout as children
from levelhead.mitigate.training.cda_and_dropout import cda, dropout
from levelhead.mitigate.training.variants import TrainedVariant
from levelhead.models.loading.checkpoints import Checkpoint
from levelhead.models.loading.load import load
from levelhead.models.training.continued_pretraining import ContinuedPretrainingConfig

SHORT = ContinuedPretrainingConfig(steps=3, batch_size=4, learning_rate=1e-3, threads=1)
NAMED = ("the man is tired.", "a woman works here.", "he was in the house.", "the lady said that.")
LINES = (
    *NAMED,
    *("the river is there.", "the house was quick.", "the doctor is in the house."),
    "the mother-of-two is here.",  # a word inside a compound is not swapped
    "the man was here and " + "the house was there and " * 12,
    NAMED[0],  # once is enough
)


@pytest.fixture(scope="module")
def base():
    return zoo.folder("bert", "BertForPreTraining")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES))
    return path


@pytest.fixture
def shown(monkeypatch):
    """What the training is given."""
    result = []
    real = children.continue_pretraining

    def continued(lm, texts, folder, **options):
        result.append(list(texts))
        return real(lm, texts, folder, **options)

    monkeypatch.setattr(children, "continue_pretraining", continued)
    return result


def test_texts_and_twins_side_by_side_and_what_was_left_out(base, corpus, tmp_path, shown):
    child = cda(base, corpus, tmp_path / "child", config=SHORT)
    texts = shown[0]
    assert {texts[i]: texts[i + 1] for i in range(0, len(texts), 2)} == {
        "the man is tired.": "the woman is tired.",
        "a woman works here.": "a man works here.",
        "he was in the house.": "she was in the house.",
        "the lady said that.": "the gentleman said that.",
    }
    counted = Counter(word for text in texts for word in text.rstrip(".").split())
    assert counted["man"] == counted["woman"] == 2  # balanced
    assert counted["he"] == counted["she"] == 1
    assert (child.sentences, child.sentences_scanned, child.texts, child.twins) == (9, 9, 4, 4)
    assert dict(child.left_out) == {
        "no word of female or male": 3,
        "a word is part of a compound": 1,
        "more than 64 tokens": 1,
    }
    assert child.texts + sum(child.left_out.values()) == child.sentences_scanned
    assert child.rows_seen == 12
    assert child.base_hash == Checkpoint.inspect(base).hash
    assert child.model_hash == Checkpoint.inspect(tmp_path / "child").hash != child.base_hash
    assert dict(child.weights) == {
        "model.safetensors": file_hash(tmp_path / "child/model.safetensors")
    }
    assert set(child.corpus) == {"lines.txt"}
    assert child.settings["lexicon_sha256"] == lexicon("gender-en").sha256
    assert child.settings["groups"] == ("female", "male")
    assert child.settings["steps"] == 3
    assert child.settings["dropout"] is None
    assert TrainedVariant.from_json(child.to_json()) == child
    assert load(tmp_path / "child").heads == {"masked", "next_sentence"}


def test_as_many_as_needed_are_looked_at_in_seeded_order(base, corpus, tmp_path, shown):
    few = replace(SHORT, steps=1)
    single = cda(base, corpus, tmp_path / "one", config=few)
    two = cda(base, str(corpus), tmp_path / "two", config=few)
    assert single == two
    assert single.texts == single.twins == 2  # a batch of four
    assert single.sentences_scanned < single.sentences
    cda(base, [str(corpus)], tmp_path / "three", config=replace(few, seed=3))
    assert shown[0] == shown[1] != shown[2]


def test_dropout_takes_any_text(base, corpus, tmp_path, shown):
    child = dropout(load(base), corpus, tmp_path / "child", config=SHORT)
    assert sorted(shown[0]) == sorted({*LINES[:8]})
    assert (child.texts, child.twins) == (8, 0)
    assert dict(child.left_out) == {"more than 64 tokens": 1}
    assert child.settings["dropout"] == (0.20, 0.15)
    assert "lexicon" not in child.settings
    config = json.loads((tmp_path / "child" / "config.json").read_text())
    assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0.1
    unedited = cda(base, corpus, tmp_path / "other", config=SHORT)
    assert unedited.weights != child.weights
    more = dropout(base, corpus, tmp_path / "more", hidden=0.4, config=SHORT)
    assert more.settings["dropout"] == (0.4, 0.15)
    assert more.weights != child.weights


def test_several_sources_of_one_name(base, corpus, tmp_path):
    (tmp_path / "more").mkdir()
    more = tmp_path / "more" / corpus.name
    more.write_text("the house is here.")
    child = dropout(base, [str(corpus), str(more)], tmp_path / "child", config=SHORT)
    assert child.sentences == 10
    assert set(child.corpus) == {"lines.txt", "lines.txt (2)"}


def test_a_causal_child(corpus, tmp_path):
    child = cda(zoo.folder("gpt2", "GPT2LMHeadModel"), corpus, tmp_path / "c", config=SHORT)
    assert child.method == "cda"
    assert load(tmp_path / "c").heads == {"causal"}


def test_what_is_refused(base, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("the river is there.\nthe mother-of-two is here.\n")
    with pytest.raises(LevelheadError, match="no text of 2 can be used: 1 ") as error:
        cda(base, path, tmp_path / "child")
    assert "1 no word of female or male" in error.value.problem
    assert "1 a word is part of a compound" in error.value.problem
    assert "one that names the groups" in error.value.hint
    path.write_text("")
    with pytest.raises(LevelheadError, match="the corpus is empty"):
        dropout(base, path, tmp_path / "child")
    with pytest.raises(LevelheadError, match="the corpus is empty"):
        dropout(base, [], tmp_path / "child")
    with pytest.raises(LevelheadError, match="'wikinew' is neither a data set nor a file") as error:
        dropout(base, "wikinew", tmp_path / "child")
    assert "levelhead data list" in error.value.hint
    with pytest.raises(LevelheadError, match="there is no file"):
        dropout(base, str(tmp_path / "*.tsv"), tmp_path / "child")
    with pytest.raises(UnknownNameError, match="group"):
        cda(base, path, tmp_path / "child", groups=("female", "young"))
    path.write_text("the river is there.")
    with pytest.raises(LevelheadError, match="not higher"):
        dropout(base, path, tmp_path / "child", hidden=0.1, attention=0.1)
    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize(
    ("verb", "responses"),
    [
        ("cda", "trained on 4 texts and 4 counterfactuals in 8 rows, from"),
        ("dropout", "trained on 8 texts in 8 rows, from"),
    ],
)
def test_the_verbs(verb, responses, base, corpus, tmp_path):
    queries = [verb, str(base), "--corpus", str(corpus), "-o", str(tmp_path / "child")]
    queries += [
        "--steps",
        "2",
        "--batch-size",
        "4",
        "--threads",
        "1",
        "--learning-rate",
        "1e-3",
        "--seed",
        "1",
    ]
    result = CliRunner().invoke(app, queries, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert responses in result.output
    assert f"a {verb} variant of {base.name}" in result.output
    assert "left out: " in result.output
    record = json.loads((tmp_path / "child" / "levelhead.json").read_text())
    assert record["metadata"]["how"] == verb
    assert record["config"]["seed"] == 1
