"""Held-out words, frames and sentences: nothing that an edit was fitted on."""

import pytest

from levelhead.core.errors import NotMeasurableError
from levelhead.data.counterfactuals import neutral_frames as frames
from levelhead.data.counterfactuals.contrast_pairs import ContrastPair, contrast_pairs
from levelhead.data.counterfactuals.held_out import (
    HELD_OUT_FRAMES,
    SEVERAL_MEANINGS,
    WORD_WAS_USED,
    assign_word_units,
    differing_words,
    fitted_words,
    held_out_pairs,
    held_out_pairs_from_texts,
)


def pair(first, second):
    spans = ((0, len(first.split()[0])), (0, len(second.split()[0])))
    return ContrastPair(f"{first}: x", first, second, spans, first)


def test_no_word_and_no_frame_was_used():
    fitted = contrast_pairs("gender-en", n=60)
    result = held_out_pairs("gender-en", fitted_on=fitted)
    used = {pair.first[slice(*pair.spans[0])].lower() for pair in fitted}
    used |= {pair.second[slice(*pair.spans[1])].lower() for pair in fitted}
    for item in result.pairs:
        assert item.first[slice(*item.spans[0])].lower() not in used
        assert item.second[slice(*item.spans[1])].lower() not in used
    ((reason, count),) = result.left_out
    assert reason == WORD_WAS_USED
    units = {pair.unit for pair in held_out_pairs("gender-en", fitted_on=()).pairs}
    assert len({pair.unit for pair in result.pairs}) + count >= len(units)
    assert not {item for frame in HELD_OUT_FRAMES.values() for item in frame} & {
        item for frame in frames.FRAMES.values() for item in frame
    }


def test_every_word_stands_in_three_frames_at_its_place():
    result = held_out_pairs("gender-en", fitted_on=()).pairs
    assert len(result) == 540
    for item in result:
        first, second = item.unit.split("/")
        assert item.first[slice(*item.spans[0])].lower() == first.lower()
        assert item.second[slice(*item.spans[1])].lower() == second.lower()
        assert item.first[0].isupper()
    texts = {item.first for item in result}
    assert "The letter was addressed to the mother." in texts
    assert "Ms Morgan had waited for an hour." in texts
    assert "Good evening, madam." in texts
    assert "The bag on the chair was hers." in texts
    other = held_out_pairs("gender-en", fitted_on=(), groups=["male", "female"]).pairs[0]
    assert (other.first, other.second) == (result[0].second, result[0].first)


def test_pairs_that_share_a_word_are_one_unit():
    pairs = [pair("Ms came", "Mr came"), pair("She came", "He came"), pair("Mrs went", "Mr went")]
    single, two, three = assign_word_units(pairs)
    assert single == three != two
    assert differing_words(pair("Ms. came", "Mr. came")) == {"ms", "ms.", "mr", "mr."}
    assert fitted_words(["Her", pair("She came", "He came")]) == {"her", "she", "he"}


def test_running_text_changes_one_meaning_that_was_not_used():
    texts = [
        "The king came late.",
        "He saw the king.",
        "My uncle came.",
        "The old uncle came again.",
        "It rained.",
    ]
    fitted = [pair("My aunt came.", "My uncle came.")._replace(spans=((3, 7), (3, 8)))]
    result = held_out_pairs_from_texts(texts, fitted_on=())
    assert [pair.second for pair in result.pairs] == [texts[0], texts[2], texts[3]]
    assert dict(result.left_out)[SEVERAL_MEANINGS] == 1
    assert dict(result.left_out)["it names neither group"] == 1
    result = held_out_pairs_from_texts(texts, fitted_on=["queen"])
    assert [pair.second for pair in result.pairs] == [texts[2], texts[3]]
    result = held_out_pairs_from_texts(texts, fitted_on=fitted)
    assert [pair.second for pair in result.pairs] == [texts[0]]
    assert dict(result.left_out)["the edit was fitted on it"] == 1
    assert dict(result.left_out)[WORD_WAS_USED] == 1
    with pytest.raises(
        NotMeasurableError, match=r"no text is left to measure on; left out: 2 \(a word"
    ):
        held_out_pairs_from_texts(texts[2:], fitted_on=["uncle"])


def test_a_lexicon_used_up_is_refused():
    with pytest.raises(
        NotMeasurableError, match="gender-en has no unused pair of words for female and male"
    ):
        held_out_pairs("gender-en", fitted_on=contrast_pairs("gender-en"))
