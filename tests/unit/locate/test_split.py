from collections import Counter
from dataclasses import replace

import pytest
import torch
from metric_cases import THINGS, WORDS, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.data.lexicons.lexicon import Side, TargetFamily
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.variants import read_variants
from levelhead.locate.validation import split as room
from levelhead.locate.validation.split import CONTEXT_BLOCKS, ItemSplit, SplitHalf, split_items
from levelhead.models.sites import Site

SEAT = made("seat")
FOUND = SEAT.read(model("seat"))[0]


def names(readouts, groups):
    return {item.id for item in readouts.items if item.group in groups}


def test_words_are_dealt_alternately_within_their_side():
    cut = split_items(SEAT, FOUND, split_by="words", seed=4)
    find, confirm = cut.discovery.select(FOUND), cut.confirmation.select(FOUND)
    assert not names(find, "XY") & names(confirm, "XY")
    assert names(find, "XY") | names(confirm, "XY") == names(FOUND, "XY")
    for side in "XY":
        sizes = len(names(find, side)), len(names(confirm, side))
        assert sizes == (3, 2)  # of 5
    for side in "AB":  # what is not sampled defines the question, and is asked in both
        assert names(find, side) == names(confirm, side) == names(FOUND, side)
    assert cut.claim == "found on one half of the words, confirmed on the other"


def test_a_half_keeps_its_words_as_they_were_read():
    half = split_items(SEAT, FOUND, split_by="words").discovery.select(FOUND)
    place = {item.id: i for i, item in enumerate(FOUND.items)}
    for item, value in zip(half.items, half.values, strict=True):
        assert torch.equal(value, FOUND.values[place[item.id]])
    assert {half.items[item].id for item in half.owner} == {item.id for item in half.items}


def test_the_seed_decides():
    def result(seed):
        return split_items(SEAT, FOUND, split_by="words", seed=seed).discovery.items

    assert result(1) == result(1)
    assert len({result(seed) for seed in range(8)}) > 4


def test_an_order_of_items_does_not_matter():
    turned = list(reversed(range(len(FOUND))))
    other = replace(
        FOUND,
        items=tuple(FOUND.items[i] for i in turned),
        values=FOUND.values[turned],
        owner=tuple(len(FOUND) - 1 - item for item in FOUND.owner),
    )
    for by in ("words", "contexts"):
        ours, theirs = (
            split_items(SEAT, item, split_by=by, seed=2).discovery for item in (FOUND, other)
        )
        assert (ours.items, ours.blocks) == (theirs.items, theirs.blocks)


def test_few_words_are_kept_whole_and_their_contexts_halved():
    cut = split_items(SEAT, FOUND, seed=3)
    assert cut.split_by == "contexts"
    assert cut.claim.startswith("for these words")
    blocks = cut.discovery.blocks, cut.confirmation.blocks
    assert [len(block) for block in blocks] == [CONTEXT_BLOCKS // 2] * 2
    assert blocks[0] | blocks[1] == set(range(CONTEXT_BLOCKS))
    find, confirm = (half.select(FOUND) for half in (cut.discovery, cut.confirmation))
    query_set = [set(zip(item.owner, item.queries, strict=True)) for item in (find, confirm)]
    assert len(find.items) == len(confirm.items) == len(FOUND)
    assert not query_set[0] & query_set[1]
    assert query_set[0] | query_set[1] == set(zip(FOUND.owner, FOUND.queries, strict=True))


def test_a_half_of_contexts_is_averaged_over_its_own():
    cut = split_items(SEAT, FOUND, split_by="contexts")
    half = cut.discovery.select(FOUND)
    for i, item in enumerate(half.items):
        rows = [
            answer.double()
            for answer, subset, ask in zip(FOUND.answers, FOUND.owner, FOUND.queries, strict=True)
            if FOUND.items[subset].id == item.id and cut.block_of(ask) in cut.discovery.blocks
        ]
        assert torch.allclose(half.values[i], torch.stack(rows).mean(0), atol=1e-12)


def test_a_word_without_a_context_in_a_half_is_not_in_it():
    cut = split_items(SEAT, FOUND, split_by="contexts")
    ours = [i for i, ask in enumerate(FOUND.queries) if cut.block_of(ask) in cut.discovery.blocks]
    stored = [i for i in range(len(FOUND.queries)) if FOUND.owner[i] != 0 or i not in ours]
    fewer = replace(
        FOUND,
        answers=FOUND.answers[stored],
        owner=tuple(FOUND.owner[i] for i in stored),
        queries=tuple(FOUND.queries[i] for i in stored),
    )
    half = cut.discovery.select(fewer)
    assert FOUND.items[0].id not in {item.id for item in half.items}
    assert len(half) == len(FOUND) - 1
    assert max(half.owner) == len(half) - 1
    none = replace(FOUND, answers=FOUND.answers[:0], owner=(), queries=())
    with pytest.raises(NotMeasurableError, match="a half has no contexts"):
        cut.discovery.select(none)


@pytest.mark.parametrize("by", ["words", "contexts", "none"])
def test_a_half_of_variants_is_of_the_same_items(by):
    lm = model("seat")
    cut = split_items(SEAT, FOUND, split_by=by)
    varied = read_variants(
        lm, SEAT, FOUND, [AblationVariant((Site("head_out", 1, 2),))], block_of=cut.block_of
    )
    for half in (cut.discovery, cut.confirmation):
        base, ours = half.select(FOUND), half.select_variant(varied, None)
        assert [item.id for item in base.items] == [item.id for item in ours.items]
        assert torch.allclose(ours.values, base.values, atol=1e-5)
        assert not torch.allclose(half.select_variant(varied, 0).values, base.values, atol=1e-3)


def test_one_text_is_in_one_half_whatever_word_of_it_is_read():
    cut = split_items(SEAT, FOUND, split_by="contexts")
    of = {}
    for text, start, end in FOUND.queries:
        of.setdefault(text, set()).add(cut.block_of((text, start, end)))
    assert max(map(len, of.values())) == 1
    assert set.union(*of.values()) == set(range(CONTEXT_BLOCKS))


def test_matched_contexts_stay_with_their_counterparts():
    measure = made("seat", contexts="matched")
    result = measure.read(model("seat"))[0]
    cut = split_items(measure, result, split_by="contexts")
    she, he = ("she said that nurse was there.", 0, 3), ("he said that nurse was there.", 0, 2)
    assert cut.block_of(she) == cut.block_of(he)
    assert split_items(measure, result, split_by="words").block_of(she) == 0


@pytest.mark.parametrize("name", ["nli_gap", "stereotype_margin", "cloze_relative"])
def test_items_that_are_compared_are_not_torn_apart(name):
    measure = made(name)
    result = measure.read(model(name))[0]
    assert split_items(measure, result).split_by == "none"
    with pytest.raises(LevelheadError, match="no contexts that could be halved"):
        split_items(measure, result, split_by="contexts")


def test_enough_words_are_split_by_themselves(monkeypatch):
    monkeypatch.setattr(room, "MIN_WORDS_PER_SIDE", 5)
    assert split_items(SEAT, FOUND).split_by == "words"
    monkeypatch.setattr(room, "MIN_WORDS_PER_SIDE", 6)
    assert split_items(SEAT, FOUND).split_by == "contexts"


def test_the_shorter_side_decides(monkeypatch):
    sides = Side("a", "female", THINGS[:3]), Side("b", "male", THINGS[3:])
    measure = made("seat", lexicon=replace(WORDS, families=(TargetFamily("things", "", sides),)))
    result = measure.read(model("seat"))[0]
    monkeypatch.setattr(room, "MIN_WORDS_PER_SIDE", 4)
    assert split_items(measure, result).split_by == "contexts"


def test_without_contexts_to_spare_nothing_is_split():
    measure = made("crows_margin")
    result = measure.read(model("crows_margin"))[0]
    cut = split_items(measure, result)
    assert cut.split_by == "none"
    assert "exploratory" in cut.claim
    assert cut.discovery.select(result) is result
    with pytest.raises(
        LevelheadError, match="the 12 pairs have no contexts that could be halved"
    ) as error:
        split_items(measure, result, split_by="contexts")
    assert "split='none'" in error.value.hint
    by_hand = split_items(measure, result, split_by="words")
    sizes = [len(half.select(result)) for half in (by_hand.discovery, by_hand.confirmation)]
    assert sizes == [6, 6]


def test_items_of_one_unit_stay_together():
    measure = made("stereotype_margin")
    result = measure.read(model("stereotype_margin"))[0]
    cut = split_items(measure, result, split_by="words")
    at = [
        Counter(item.units[0] for item in half.select(result).items)
        for half in (cut.discovery, cut.confirmation)
    ]
    assert not set(at[0]) & set(at[1])
    assert at[0] + at[1] == Counter(item.units[0] for item in result.items)


def test_an_unknown_way_is_named():
    with pytest.raises(UnknownNameError, match="split"):
        split_items(SEAT, FOUND, split_by="wrods")


def test_one_half_confirms_nothing():
    with pytest.raises(NotMeasurableError, match="there are no two halves"):
        ItemSplit("none", 0, SplitHalf(), SplitHalf()).require_two_halves()
    ItemSplit("words", 0, SplitHalf(), SplitHalf()).require_two_halves()
