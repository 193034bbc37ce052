import json

import pytest

from levelhead.core.errors import LevelheadError
from levelhead.data.corpus.contexts import WordContext, find_contexts
from levelhead.data.corpus.mine import mine_corpus

WORDS = {"she": "female", "Miss": "female", "he": "male", "nurse": "", "unheard": ""}
LINES = [
    "Then she left the house.",
    "Then she and he left.",
    "The nurse came in.",
    "The nurse saw that he came in.",
    "I miss the nurse.",
    "Then Miss Marple came.",
    "Here is another nurse.",
    "Here is another nurse.",
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "news.txt"
    path.write_text("\n".join(LINES))
    return path


def test_a_sentence_serves_a_group_only_if_it_names_no_other(corpus):
    result = find_contexts(WORDS, corpus).by_word
    assert result["she"] == (WordContext("Then she left the house.", 5, 8),)
    assert result["he"] == (WordContext("The nurse saw that he came in.", 19, 21),)


def test_a_target_has_sentences_without_a_group_and_each_once(corpus):
    texts = {item.text for item in find_contexts(WORDS, corpus).by_word["nurse"]}
    assert texts == {"The nurse came in.", "I miss the nurse.", "Here is another nurse."}


def test_titles_are_found_as_they_are_written(corpus):
    assert [item.text for item in find_contexts(WORDS, corpus).by_word["Miss"]] == [
        "Then Miss Marple came."
    ]


def test_a_word_without_a_context_is_there_and_empty(corpus):
    assert find_contexts(WORDS, corpus).by_word["unheard"] == ()


def test_order_does_not_matter_and_fewer_are_the_first_of_more(corpus, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("\n".join(reversed(LINES)))
    for quota in (1, 2, 3):
        stored = find_contexts(WORDS, corpus, quota=quota).by_word["nurse"]
        assert stored == find_contexts(WORDS, other, quota=quota).by_word["nurse"]
        assert stored == find_contexts(WORDS, corpus).by_word["nurse"][:quota]


def test_a_mined_folder_serves_too(corpus, tmp_path):
    mine_corpus([corpus], tmp_path / "mined")
    rows = (tmp_path / "mined" / "contexts.jsonl").read_text().splitlines()
    assert json.loads(rows[0])["text"]
    result = find_contexts(WORDS, tmp_path / "mined")
    assert {item.text for item in result.by_word["nurse"]} == {
        "The nurse came in.", "I miss the nurse.", "Here is another nurse.",
    }  # fmt: skip
    assert [name for name, _ in result.sources] == ["mined"]


def test_several_sources_are_named(corpus, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("She was here.")
    result = find_contexts(WORDS, [str(corpus), str(other)])
    assert [name for name, _ in result.sources] == ["news.txt", "other.txt"]
    assert len(result.by_word["she"]) == 2


@pytest.mark.parametrize(
    ("words", "source", "quota", "output"),
    [
        (WORDS, "nowhere", 9, "'nowhere' is neither a data set, nor a file"),
        (WORDS, "nowhere", 0, "a quota of 0"),
        ({}, "nowhere", 9, "no words to find"),
    ],
)
def test_what_is_refused(words, source, quota, output):
    with pytest.raises(LevelheadError, match=output):
        find_contexts(words, source, quota=quota)
