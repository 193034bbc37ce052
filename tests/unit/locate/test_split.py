from collections import Counter
from dataclasses import replace

import pytest
import torch
from rulers import THINGS, WORDS, made, model

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.data.lexicons.lexicon import Side, Targets
from levelhead.locate.attribution.ablation import Variant
from levelhead.locate.attribution.variants import vary
from levelhead.locate.validation import split as room
from levelhead.locate.validation.split import BLOCKS, Half, Split, halves
from levelhead.models.sites import Site

SEAT = made("seat")
FOUND = SEAT.read(model("seat"))[0]


def names(readouts, groups):
    return {item.id for item in readouts.items if item.group in groups}


def test_words_are_dealt_alternately_within_their_side():
    cut = halves(SEAT, FOUND, by="words", seed=4)
    find, confirm = cut.find.of(FOUND), cut.confirm.of(FOUND)
    assert not names(find, "XY") & names(confirm, "XY")
    assert names(find, "XY") | names(confirm, "XY") == names(FOUND, "XY")
    for side in "XY":
        sizes = len(names(find, side)), len(names(confirm, side))
        assert sizes == (3, 2)  # of 5
    for side in "AB":  # what is not sampled defines the question, and is asked in both
        assert names(find, side) == names(confirm, side) == names(FOUND, side)
    assert cut.claim == "found on one half of the words, confirmed on the other"


def test_a_half_keeps_its_words_as_they_were_read():
    half = halves(SEAT, FOUND, by="words").find.of(FOUND)
    place = {item.id: i for i, item in enumerate(FOUND.items)}
    for item, value in zip(half.items, half.values, strict=True):
        assert torch.equal(value, FOUND.values[place[item.id]])
    assert {half.items[own].id for own in half.owner} == {item.id for item in half.items}


def test_the_seed_decides():
    def found(seed):
        return halves(SEAT, FOUND, by="words", seed=seed).find.items

    assert found(1) == found(1)
    assert len({found(seed) for seed in range(8)}) > 4


def test_an_order_of_items_does_not_matter():
    turned = list(reversed(range(len(FOUND))))
    other = replace(
        FOUND,
        items=tuple(FOUND.items[i] for i in turned),
        values=FOUND.values[turned],
        owner=tuple(len(FOUND) - 1 - own for own in FOUND.owner),
    )
    for by in ("words", "contexts"):
        ours, theirs = (halves(SEAT, one, by=by, seed=2).find for one in (FOUND, other))
        assert (ours.items, ours.blocks) == (theirs.items, theirs.blocks)


def test_few_words_are_kept_whole_and_their_contexts_halved():
    cut = halves(SEAT, FOUND, seed=3)
    assert cut.by == "contexts"
    assert cut.claim.startswith("for these words")
    blocks = cut.find.blocks, cut.confirm.blocks
    assert [len(one) for one in blocks] == [BLOCKS // 2] * 2
    assert blocks[0] | blocks[1] == set(range(BLOCKS))
    find, confirm = (half.of(FOUND) for half in (cut.find, cut.confirm))
    asked = [set(zip(one.owner, one.asks, strict=True)) for one in (find, confirm)]
    assert len(find.items) == len(confirm.items) == len(FOUND)
    assert not asked[0] & asked[1]
    assert asked[0] | asked[1] == set(zip(FOUND.owner, FOUND.asks, strict=True))


def test_a_half_of_contexts_is_averaged_over_its_own():
    cut = halves(SEAT, FOUND, by="contexts")
    half = cut.find.of(FOUND)
    for i, item in enumerate(half.items):
        rows = [
            answer.double()
            for answer, own, ask in zip(FOUND.answers, FOUND.owner, FOUND.asks, strict=True)
            if FOUND.items[own].id == item.id and cut.block(ask) in cut.find.blocks
        ]
        assert torch.allclose(half.values[i], torch.stack(rows).mean(0), atol=1e-12)


def test_a_word_without_a_context_in_a_half_is_not_in_it():
    cut = halves(SEAT, FOUND, by="contexts")
    ours = [i for i, ask in enumerate(FOUND.asks) if cut.block(ask) in cut.find.blocks]
    kept = [i for i in range(len(FOUND.asks)) if FOUND.owner[i] != 0 or i not in ours]
    fewer = replace(
        FOUND,
        answers=FOUND.answers[kept],
        owner=tuple(FOUND.owner[i] for i in kept),
        asks=tuple(FOUND.asks[i] for i in kept),
    )
    half = cut.find.of(fewer)
    assert FOUND.items[0].id not in {item.id for item in half.items}
    assert len(half) == len(FOUND) - 1
    assert max(half.owner) == len(half) - 1
    none = replace(FOUND, answers=FOUND.answers[:0], owner=(), asks=())
    with pytest.raises(NotMeasurable, match="a half has no contexts"):
        cut.find.of(none)


@pytest.mark.parametrize("by", ["words", "contexts", "none"])
def test_a_half_of_variants_is_of_the_same_items(by):
    lm = model("seat")
    cut = halves(SEAT, FOUND, by=by)
    varied = vary(lm, SEAT, FOUND, [Variant((Site("head_out", 1, 2),))], blocks=cut.block)
    for half in (cut.find, cut.confirm):
        plain, ours = half.of(FOUND), half.varied(varied, None)
        assert [item.id for item in plain.items] == [item.id for item in ours.items]
        assert torch.allclose(ours.values, plain.values, atol=1e-5)
        assert not torch.allclose(half.varied(varied, 0).values, plain.values, atol=1e-3)


def test_one_text_is_in_one_half_whatever_word_of_it_is_read():
    cut = halves(SEAT, FOUND, by="contexts")
    of = {}
    for text, start, end in FOUND.asks:
        of.setdefault(text, set()).add(cut.block((text, start, end)))
    assert max(map(len, of.values())) == 1
    assert set.union(*of.values()) == set(range(BLOCKS))


def test_matched_contexts_stay_with_their_counterparts():
    ruler = made("seat", contexts="matched")
    found = ruler.read(model("seat"))[0]
    cut = halves(ruler, found, by="contexts")
    she, he = ("she said that nurse was there.", 0, 3), ("he said that nurse was there.", 0, 2)
    assert cut.block(she) == cut.block(he)
    assert halves(ruler, found, by="words").block(she) == 0


@pytest.mark.parametrize("name", ["nli_gap", "stereotype_margin", "cloze_relative"])
def test_items_that_are_compared_are_not_torn_apart(name):
    ruler = made(name)
    found = ruler.read(model(name))[0]
    assert halves(ruler, found).by == "none"
    with pytest.raises(LevelheadError, match="no contexts that could be halved"):
        halves(ruler, found, by="contexts")


def test_enough_words_are_split_by_themselves(monkeypatch):
    monkeypatch.setattr(room, "FEWEST", 5)
    assert halves(SEAT, FOUND).by == "words"
    monkeypatch.setattr(room, "FEWEST", 6)
    assert halves(SEAT, FOUND).by == "contexts"


def test_the_shorter_side_decides(monkeypatch):
    sides = Side("a", "female", THINGS[:3]), Side("b", "male", THINGS[3:])
    ruler = made("seat", lexicon=replace(WORDS, families=(Targets("things", "", sides),)))
    found = ruler.read(model("seat"))[0]
    monkeypatch.setattr(room, "FEWEST", 4)
    assert halves(ruler, found).by == "contexts"


def test_without_contexts_to_spare_nothing_is_split():
    ruler = made("crows_margin")
    found = ruler.read(model("crows_margin"))[0]
    cut = halves(ruler, found)
    assert cut.by == "none"
    assert "exploratory" in cut.claim
    assert cut.find.of(found) is found
    with pytest.raises(
        LevelheadError, match="the 12 pairs have no contexts that could be halved"
    ) as error:
        halves(ruler, found, by="contexts")
    assert "split='none'" in error.value.mend
    by_hand = halves(ruler, found, by="words")
    sizes = [len(half.of(found)) for half in (by_hand.find, by_hand.confirm)]
    assert sizes == [6, 6]


def test_items_of_one_unit_stay_together():
    ruler = made("stereotype_margin")
    found = ruler.read(model("stereotype_margin"))[0]
    cut = halves(ruler, found, by="words")
    at = [
        Counter(item.units[0] for item in half.of(found).items) for half in (cut.find, cut.confirm)
    ]
    assert not set(at[0]) & set(at[1])
    assert at[0] + at[1] == Counter(item.units[0] for item in found.items)


def test_an_unknown_way_is_named():
    with pytest.raises(UnknownName, match="split"):
        halves(SEAT, FOUND, by="wrods")


def test_one_half_confirms_nothing():
    with pytest.raises(NotMeasurable, match="there are no two halves"):
        Split("none", 0, Half(), Half()).refuse_one()
    Split("words", 0, Half(), Half()).refuse_one()
