"""Special tokens are a stated policy; words are found by their characters."""

import json
import shutil

import pytest
import tokenizers
import zoo
from transformers import AutoTokenizer

from levelhead.core.errors import LevelheadError
from levelhead.models.loading.load import load


@pytest.fixture
def forgetful(tmp_path):
    """A Llama whose tokenizer adds no beginning token, as stories15m's."""
    folder = shutil.copytree(zoo.folder("llama", "LlamaForCausalLM"), tmp_path / "model")
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.post_processor = tokenizers.processors.Sequence([])
    inner.save(str(folder / "tokenizer.json"))
    return folder


def first_id(lm):
    return lm.tokens.encode(["the nurse"])[0].row.ids[0]


def test_a_tokenizer_that_adds_its_own_is_believed():
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    assert lm.tokens.bos is None
    assert first_id(lm) == 1
    assert load(zoo.folder("llama", "LlamaForCausalLM"), bos="always").tokens.bos is None


def test_other_tokenizers_without_one_are_believed(forgetful):
    lm = load(forgetful)
    assert lm.tokens.bos is None
    assert lm.settings["bos"] is None
    assert first_id(lm) != 1


def test_a_beginning_token_is_put_when_asked_for(forgetful):
    lm = load(forgetful, bos="always")
    assert lm.settings["bos"] == 1
    encoded = lm.tokens.encode(["the nurse"])[0]
    assert encoded.row.ids[0] == 1
    assert encoded.text_indices[:2] == (None, 0)
    assert encoded.positions_in_span((4, 9)) == (2,)
    assert lm.log_prob(["the nurse"]).token_counts.tolist() == [2]
    assert load(forgetful).log_prob(["the nurse"]).token_counts.tolist() == [1]


def test_a_sentencepiece_model_gets_the_one_it_lost(forgetful):
    """<s> is how Llama's tokenizers begin; which class reads the file does not matter."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = forgetful / name
        path.write_text(path.read_text().replace("[CLS]", "<s>"))
    assert load(forgetful).settings["bos"] == 1
    (forgetful / "tokenizer_config.json").unlink()
    assert load(forgetful).settings["bos"] == 1
    assert load(forgetful, bos="tokenizer").settings["bos"] is None


def test_what_the_tokenizer_files_say_is_done(forgetful):
    path = forgetful / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"add_bos_token": True}))
    assert load(forgetful).settings["bos"] == 1


@pytest.mark.parametrize("bos", ["sometimes", "Always", True])
def test_other_policies_are_refused(bos):
    with pytest.raises(LevelheadError, match="no policy for the beginning token"):
        load(zoo.folder("llama", "LlamaForCausalLM"), bos=bos)


def test_no_beginning_token_to_put_is_an_error(forgetful):
    for name in ("config.json", "tokenizer_config.json"):
        settings = json.loads((forgetful / name).read_text())
        settings = {k: v for k, v in settings.items() if not k.startswith("bos_token")}
        (forgetful / name).write_text(json.dumps(settings | {"bos_token_id": None}))
    with pytest.raises(LevelheadError, match="no beginning-of-sequence token"):
        load(forgetful, bos="always")


def test_pairs_are_told_apart():
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    (encoded,) = lm.tokens.encode([("he was", "she is here")])
    assert encoded.row.token_types == (0, 0, 0, 0, 1, 1, 1, 1)
    assert encoded.text_indices == (None, 0, 0, None, 1, 1, 1, None)
    assert encoded.positions_in_span((0, 3), text=1) == (4,)


def test_the_tokenizer_file_is_what_counts():
    """transformers reads some families' tokenizer.json with rules of its own, and says nothing."""
    folder = zoo.folder("qwen2", "Qwen2ForCausalLM")
    text = "the nurse works"
    output = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    assert AutoTokenizer.from_pretrained(folder)(text).input_ids != output
    assert list(load(folder).tokens.encode([text])[0].row.ids) == output
