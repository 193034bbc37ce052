import pytest
import torch
from metric_cases import made, model

from levelhead.core.errors import LevelheadError
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.measures.responses import build_query


def asked_of(name, **options):
    measure, lm = made(name, **options), model(name, dtype="float64")
    result = measure.read(lm)[0]
    return lm, result, index_answers(lm, measure, result)


@pytest.mark.parametrize("name", ["seat", "contrast", "nli_gap", "lpbs", "pppl"])
def test_answers_of_all_uses_give_the_readouts_again(name):
    lm, result, subset = asked_of(name)
    question, dropped = build_query(
        lm, subset.query_set.query_kind, subset.queries, subset.query_set.settings
    )
    assert not dropped
    values = subset.values(question.run(lm), result.values)
    assert values.dtype == torch.float64
    assert torch.allclose(values, result.values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["seat", "contrast"])
def test_cotangents_are_the_transpose_of_values(name):
    """<cotangents(c), answers> = <c, values(answers)> for whatever c."""
    _, result, subset = asked_of(name)
    seeded = torch.Generator().manual_seed(0)
    answers = torch.randn(len(subset.queries), result.values.shape[-1], generator=seeded).double()
    c = torch.randn(result.values.shape, generator=seeded).double()
    left = (subset.answer_cotangents(c) * answers).sum()
    assert left == pytest.approx(float((c * subset.values(answers, result.values)).sum()))
    stacked = subset.answer_cotangents(torch.stack([c, 2 * c]))
    assert torch.equal(stacked[1], 2 * subset.answer_cotangents(c))


def test_a_word_is_the_mean_over_its_contexts():
    _, result, subset = asked_of("seat", contexts_per_word=3)
    assert subset.queries == result.queries
    for item in range(len(result)):
        weights = subset.weight[subset.item == item]
        assert weights.tolist() == pytest.approx([1 / len(weights)] * len(weights))
        assert not subset.slot[subset.item == item].any()


def test_other_items_have_their_answers_side_by_side():
    _, result, subset = asked_of("contrast")
    places = [(i, j) for i, item in enumerate(result.items) for j in range(len(item.queries))]
    assert list(zip(subset.item.tolist(), subset.slot.tolist(), strict=True)) == places
    assert [result.items[i].queries[j] for i, j in places] == list(subset.queries)
    assert subset.weight.eq(1).all()


def test_a_half_asks_what_it_holds():
    measure, lm = made("seat"), model("seat")
    half = measure.read(lm)[0].select(lambda item: item.group != "X")
    subset = index_answers(lm, measure, half)
    assert subset.queries == half.queries
    assert subset.weight.sum() == pytest.approx(len(half))


def test_sampled_text_is_refused():
    measure, lm = made("continuation"), model("continuation")
    with pytest.raises(LevelheadError, match="sampled text") as error:
        index_answers(lm, measure, measure.read(lm)[0])
    assert "cloze" in error.value.hint
