import hashlib

import pytest

from levelhead.core.errors import LevelheadError
from levelhead.data.counterfactuals.templates import TEMPLATES, framed
from levelhead.data.lexicons.overlays import Patch, patched, read_patches
from levelhead.data.records import Sentence

TEXT = "The father walked into him kitchen."
SHA = hashlib.sha256(TEXT.encode()).hexdigest()
ITEM = Sentence("s", "d", TEXT)


def test_one_word_is_corrected():
    (mended,) = patched([ITEM], [Patch("s", "text", SHA, 4, "his")])
    assert mended.text == "The father walked into his kitchen."
    assert ITEM.text == TEXT
    both = [Patch("s", "text", SHA, 1, "tall father"), Patch("s", "text", SHA, 4, "his")]
    (mended,) = patched([ITEM], both)
    assert mended.text == "The tall father walked into his kitchen."


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (Patch("s", "text", "0" * 64, 4, "his"), "is for another text"),
        (Patch("s", "title", SHA, 4, "his"), "is no text"),
        (Patch("s", "id", SHA, 0, "t"), "is no text"),
        (Patch("s", "text", SHA, 4, ""), "has no token 4"),
        (Patch("s", "text", SHA, 40, "his"), "has no token 40"),
        (Patch("t", "text", SHA, 4, "his"), "is for t, which is not in the data"),
    ],
)
def test_patches_that_do_not_fit_are_errors(patch, said):
    with pytest.raises(LevelheadError, match=said):
        list(patched([ITEM], [patch]))


def test_patches_are_read_strictly():
    text = f"item,field,sha256,token,word\ns,text,{SHA},4,his\n"
    assert read_patches(text) == [Patch("s", "text", SHA, 4, "his")]
    with pytest.raises(LevelheadError, match="is not as it should be"):
        read_patches(text.replace(",4,", ",four,"))
    with pytest.raises(LevelheadError, match="is not as it should be"):
        read_patches("item\ns\n")


def test_words_stand_where_they_are_said_to():
    for sort in TEMPLATES:
        found = list(framed(["nurse", "engineer"], sort))
        assert len(found) == 2 * len(TEMPLATES[sort])
        for one in found:
            assert one.text[one.start : one.end] == one.word
    with pytest.raises(LevelheadError, match="no sort of word named 'verb'"):
        list(framed(["x"], "verb"))
