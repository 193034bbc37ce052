import pytest
import torch
from metric_cases import made, model

from levelhead.core.errors import LevelheadError
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.measures.responses import build_query


def asked_of(name, **options):
    ruler, lm = made(name, **options), model(name, dtype="float64")
    found = ruler.read(lm)[0]
    return lm, found, index_answers(lm, ruler, found)


@pytest.mark.parametrize("name", ["seat", "contrast", "nli_gap", "lpbs", "pppl"])
def test_answers_of_all_uses_give_the_readouts_again(name):
    lm, found, own = asked_of(name)
    question, dropped = build_query(
        lm, own.query_set.query_kind, own.queries, own.query_set.settings
    )
    assert not dropped
    values = own.values(question.run(lm), found.values)
    assert values.dtype == torch.float64
    assert torch.allclose(values, found.values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["seat", "contrast"])
def test_cotangents_are_the_transpose_of_values(name):
    """<cotangents(c), answers> = <c, values(answers)> for whatever c."""
    _, found, own = asked_of(name)
    seeded = torch.Generator().manual_seed(0)
    answers = torch.randn(len(own.queries), found.values.shape[-1], generator=seeded).double()
    c = torch.randn(found.values.shape, generator=seeded).double()
    left = (own.answer_cotangents(c) * answers).sum()
    assert left == pytest.approx(float((c * own.values(answers, found.values)).sum()))
    stacked = own.answer_cotangents(torch.stack([c, 2 * c]))
    assert torch.equal(stacked[1], 2 * own.answer_cotangents(c))


def test_a_word_is_the_mean_over_its_contexts():
    _, found, own = asked_of("seat", contexts_per_word=3)
    assert own.queries == found.queries
    for item in range(len(found)):
        weights = own.weight[own.item == item]
        assert weights.tolist() == pytest.approx([1 / len(weights)] * len(weights))
        assert not own.slot[own.item == item].any()


def test_other_items_have_their_answers_side_by_side():
    _, found, own = asked_of("contrast")
    places = [(i, j) for i, item in enumerate(found.items) for j in range(len(item.queries))]
    assert list(zip(own.item.tolist(), own.slot.tolist(), strict=True)) == places
    assert [found.items[i].queries[j] for i, j in places] == list(own.queries)
    assert own.weight.eq(1).all()


def test_a_half_asks_what_it_holds():
    ruler, lm = made("seat"), model("seat")
    half = ruler.read(lm)[0].select(lambda item: item.group != "X")
    own = index_answers(lm, ruler, half)
    assert own.queries == half.queries
    assert own.weight.sum() == pytest.approx(len(half))


def test_sampled_text_is_refused():
    ruler, lm = made("continuation"), model("continuation")
    with pytest.raises(LevelheadError, match="sampled text") as error:
        index_answers(lm, ruler, ruler.read(lm)[0])
    assert "cloze" in error.value.hint
