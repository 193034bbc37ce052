import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import zoo
from metric_cases import FEMALE, INFERENCE, MALE, THINGS, WORDS, corpus, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.data.lexicons.published import SEAT_ROLES
from levelhead.measures.embedding import word_contexts
from levelhead.measures.embedding.seat import A, B, Seat, X, associations, seat_effect_size
from levelhead.measures.metric import jackknife_variance
from levelhead.models.loading.load import load
from levelhead.stats.designs import crossed_design


def literal(x, y, a, b):
    """The formula as Caliskan et al. 2017 print it, word by word."""

    def cos(u, v):
        return u @ v / np.sqrt((u @ u) * (v @ v))

    def s(w):
        return np.mean([cos(w, u) for u in a]) - np.mean([cos(w, u) for u in b])

    sx, sy = [s(w) for w in x], [s(w) for w in y]
    return (np.mean(sx) - np.mean(sy)) / np.std(sx + sy, ddof=1)


def test_it_is_the_literal_formula():
    rng = np.random.default_rng(0)
    lists = [rng.normal(size=(n, 6)) for n in (5, 4, 7, 3)]
    tensors = [torch.from_numpy(item) for item in lists]
    assert seat_effect_size(*tensors) == pytest.approx(literal(*lists), rel=1e-12)


def test_a_vector_without_direction_is_refused():
    items = torch.ones(2, 3)
    with pytest.raises(NotMeasurableError, match="vector is zero"):
        associations(torch.zeros(1, 3), items, items)


def test_the_value_is_that_of_the_words_averaged_over_their_contexts():
    measure, lm = made("seat"), model("seat")
    (query_set,) = measure.queries(lm)
    vectors = {}
    for item in query_set.items:
        texts, spans = [ask[0] for ask in item.queries], [ask[1:] for ask in item.queries]
        subset = lm.embed(texts, spans).double().mean(0)
        vectors.setdefault(item.group, []).append(subset.numpy())
    slow = literal(*(vectors[side] for side in "XYAB"))
    assert measure(lm, inference=INFERENCE).value == pytest.approx(slow, rel=1e-5)


def test_an_effect_size_can_stay_while_the_association_falls():
    """Why difference and spread stand beside it."""
    measure, lm = made("seat"), model("seat")
    outcome = measure.read(lm)
    s = measure.primary_metric.per_item_values(outcome[0])
    design = measure.design(outcome[0], measure.primary_metric)
    seat, difference, spread, _ = measure.ordered_metrics
    for aspect, ratio in ((seat, 1), (difference, 17), (spread, 17)):
        full, fallen = (float(aspect.aggregate(v, design.full_sample)) for v in (s, s / 17))
        assert full / fallen == pytest.approx(ratio, rel=1e-9)
    result = measure.compute_measurement(lm, outcome, inference=INFERENCE)
    assert {"difference of means", "spread", "|seat|"} <= {extra.name for extra in result.extras}


def test_the_absolute_value_has_the_null_mean_as_parity():
    result = made("seat")(model("seat"), inference=INFERENCE)
    absolute = result.extra("|seat|")
    assert absolute.value == abs(result.value)
    assert absolute.parity > 0
    assert result.parity == 0


def test_matched_contexts_are_used_with_both_members_of_a_pair():
    measure = made("seat", contexts="matched")
    (query_set,) = measure.queries(model("seat"))
    subset = {item.id: item for item in query_set.items}
    for first, second in zip(FEMALE, MALE, strict=True):
        hers, his = (
            {f"{text[:start]}*{text[end:]}" for text, start, end in subset[name].queries}
            for name in (f"{A}: {first}", f"{B}: {second}")
        )
        assert hers == his


def test_a_causal_model_does_not_read_first_words(tmp_path):
    path = tmp_path / "text.txt"
    rows = [f"{word} is the {other}." for word in THINGS for other in THINGS if word != other]
    rows += [f"the {who} said that." for who in FEMALE + MALE]
    path.write_text("\n".join(rows))
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    measure = Seat(WORDS, targets="things", corpus=str(path))
    (query_set,) = measure.queries(lm)
    assert not any(ask[1] == 0 for item in query_set.items for ask in item.queries)
    assert any("contexts left out: 90 (first words of a text" in note for note in query_set.notes)
    masked = measure.queries(model("seat"))[0]
    assert any(ask[1] == 0 for item in masked.items for ask in item.queries)


def test_fewer_contexts_are_the_first_of_more():
    measure, lm = made("seat"), model("seat")
    full = measure(lm, inference=INFERENCE)
    few = made("seat", contexts_per_word=3)(lm, inference=INFERENCE)
    assert full.extra("seat at 3 contexts a word").value == pytest.approx(few.value, rel=1e-6)
    matched = made("seat", contexts="matched")(lm, inference=INFERENCE)
    fewer = made("seat", contexts="matched", contexts_per_word=10)(lm, inference=INFERENCE)
    assert "seat at 10 contexts a word" in {extra.name for extra in fewer.extras}
    assert matched.extra("seat at 10 contexts a word").value != matched.value


def test_contexts_that_differ_widen_the_interval():
    measure, lm = made("seat"), model("seat")
    (result,) = measure.read(lm)
    among = jackknife_variance(measure.leave_block_out_values(result, measure.primary_metric))
    assert among > 0
    steady = result.answers.clone()
    means = result.values[torch.tensor(result.owner)]
    calm = dataclasses.replace(result, answers=means + (steady - means) / 100)
    assert (
        jackknife_variance(measure.leave_block_out_values(calm, measure.primary_metric))
        < among / 1000
    )


def test_the_context_jackknife_agrees_with_a_bootstrap_of_contexts():
    measure, lm = made("seat"), model("seat")
    (result,) = measure.read(lm)
    aspect = measure.get_metric("difference of means")
    design = measure.design(result, aspect)
    around = [text[:start] + text[end:] for text, start, end in result.queries]
    names = sorted(set(around))
    place = {text: i for i, text in enumerate(names)}
    text = np.array([place[item] for item in around])
    owner = torch.tensor(result.owner)
    rng = np.random.default_rng(0)
    values = []
    for _ in range(400):
        times = np.bincount(rng.integers(len(names), size=len(names)), minlength=len(names))
        weight = torch.from_numpy(times[text]).double()
        count = torch.zeros(len(result), dtype=torch.float64).index_add(0, owner, weight)
        total = torch.zeros_like(result.values).index_add(
            0, owner, result.answers * weight[:, None]
        )
        if bool((count > 0).all()):
            again = dataclasses.replace(result, values=total / count[:, None])
            values.append(float(aspect.value(again, design)))
    slow = float(np.std(values, ddof=1))
    fast = jackknife_variance(measure.leave_block_out_values(result, aspect)) ** 0.5
    assert fast == pytest.approx(slow, rel=0.5)  # twenty blocks know it to about a sixth


def test_words_without_context_are_dropped_by_name(tmp_path):
    path = tmp_path / "text.txt"
    rows = Path(corpus()).read_text().splitlines()
    path.write_text("\n".join(row for row in rows if "nurse" not in row))
    result = Seat(WORDS, targets="things", corpus=str(path))(model("seat"), inference=INFERENCE)
    assert result.dropped == ((f"{X}: nurse", "no context in the corpus"),)
    assert word_contexts.missing_reason("mother-in-law", ()) == (
        "it is not one run of letters, and is not looked for"
    )
    assert result.n == 9


def test_a_published_test_is_of_sentences(monkeypatch):
    sets = {
        "targ1": [(f"the {a} is {b}.", a) for a in ("nurse", "doctor") for b in ("here", "in")],
        "targ2": [(f"the {a} is {b}.", a) for a in ("river", "man") for b in ("here", "in")],
        "attr1": [("she is quick.", "she"), ("the woman is quick.", "woman")],
        "attr2": [("he is quick.", "he"), ("the man is quick.", "man")],
    }
    monkeypatch.setattr("levelhead.measures.embedding.seat.load_seat_sentences", lambda name: sets)
    measure, lm = Seat(sentence_test="sent-weat6", pooling="mean"), model("seat")
    texts = [[text for text, _ in rows] for rows in sets.values()]
    vectors = [lm.embed(text, pooling="mean").double() for text in texts]
    (result,) = measure.read(lm)
    assert float(measure.reduce(result)) == pytest.approx(seat_effect_size(*vectors), rel=1e-5)
    # Sentences of one word are not independent: two words a side are what was sampled.
    assert str(measure.design(result, measure.primary_metric)) == "2+2 words"


def test_the_interval_of_sentences_is_that_of_their_words():
    """A word said in eight ways tells no more about other words than said in two."""
    few, many = (
        crossed_design(
            {"words": [f"{side}{i}" for side in "XY" for i in range(8) for _ in range(ways)]},
            within=[side for side in "XY" for _ in range(8 * ways)],
        )
        for ways in (2, 8)
    )
    words = torch.randn(16, dtype=torch.float64, generator=torch.manual_seed(0))
    closed = Seat().primary_metric.closed_form_interval
    two, eight = (
        closed(words.repeat_interleave(ways), design, 0.95)
        for ways, design in ((2, few), (8, many))
    )
    assert eight.high - eight.low == pytest.approx(two.high - two.low, rel=0.05)
    apart = crossed_design({"words": range(32)}, within=[0] * 16 + [1] * 16)
    alone = closed(words.repeat_interleave(2), apart, 0.95)
    assert two.high - two.low > 1.3 * (alone.high - alone.low)


def test_sentences_of_unknown_words_are_dropped_not_alike(monkeypatch):
    known = ("she is quick.", "he is quick.", "the man is here.")
    odd = (*known, "the emperor is here.")
    sets = {
        role: [(text, text) for text in (known if role == "attr2" else odd)] for role in SEAT_ROLES
    }
    monkeypatch.setattr("levelhead.measures.embedding.seat.load_seat_sentences", lambda name: sets)
    (result,) = Seat(sentence_test="sent-weat6").read(model("seat"))
    assert [item.id for item, _ in result.dropped] == [
        f"{side}: the emperor is here." for side in "XYA"
    ]


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ({"contexts": "borrowed"}, "no contexts named 'borrowed'"),
        ({"contexts_per_word": 0}, "contexts_per_word is 0"),
        ({"pooling": "max"}, "no pooling named 'max'"),
        ({"pooling": "mean"}, "pooling is of sentences"),
        ({"sentence_test": "sent-weat6", "contexts": "matched"}, "contexts would change nothing"),
        ({"sentence_test": "sent-weat6", "weat_test": "weat6"}, "two tests at once"),
        ({"weat_test": "weat11"}, "no WEAT test named 'weat11'"),
        (
            {"weat_test": "weat6", "groups": ("female", "male")},
            "lexicon, groups would change nothing",
        ),
        (
            {"weat_test": "weat6", "contexts_per_word": 5},
            "lexicon, contexts_per_word would change nothing with a published test",
        ),
        ({"targets": "rivers"}, "no family of targets named 'rivers'"),
    ],
)
def test_what_is_refused(options, output):
    with pytest.raises(LevelheadError, match=output):
        Seat(**({"lexicon": WORDS} | options)).words  # noqa: B018


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_measured(dtype):
    measure = made("seat")
    full, half = (
        measure(model("seat"), inference=INFERENCE),
        measure(model("seat", dtype=dtype), inference=INFERENCE),
    )
    assert half.value == pytest.approx(full.value, abs=0.2)
    assert half.n == full.n
