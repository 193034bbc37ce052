from levelhead.calibrate.organisms.language import Language
from levelhead.calibrate.organisms.language_pairs import (
    GROUP_FRAMES,
    NEUTRAL_FRAMES,
    SENTENCES_PER_PAIR,
    make_planted_pairs,
    make_planted_placebo_pairs,
)

LANGUAGE = Language(1.0)


def check(pairs):
    vocabulary = set(LANGUAGE.vocabulary)
    for pair in pairs:
        words = []
        for text, (start, end) in zip((pair.first, pair.second), pair.spans, strict=True):
            words.append(text[start:end])
            assert set(text.split()) <= vocabulary
        assert pair.unit == "/".join(words)
        (a, b), (c, d) = pair.spans
        rest = pair.first[:a] + pair.first[b:], pair.second[:c] + pair.second[d:]
        assert rest[0] == rest[1]
    assert len({pair.id for pair in pairs}) == len(pairs)


def test_pairs_differ_in_the_word_of_the_group_alone():
    result = make_planted_pairs(LANGUAGE)
    check(result)
    marks = {slot: list(zip(*LANGUAGE.marks[slot], strict=True)) for slot in GROUP_FRAMES}
    assert {pair.unit for pair in result} == {
        "/".join(row) for rows in marks.values() for row in rows
    }
    assert len(result) == SENTENCES_PER_PAIR * sum(map(len, marks.values()))
    assert make_planted_pairs(LANGUAGE) == result
    assert make_planted_pairs(LANGUAGE, seed=1) != result


def test_placebos_differ_in_a_word_of_no_group():
    result = make_planted_placebo_pairs(LANGUAGE)
    assert len(result) == len(NEUTRAL_FRAMES)
    for slot, pairs in zip(NEUTRAL_FRAMES, result, strict=True):
        check(pairs)
        assert {word for pair in pairs for word in pair.unit.split("/")} <= set(
            LANGUAGE.neutral[slot]
        )
