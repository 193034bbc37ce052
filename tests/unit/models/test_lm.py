"""The verbs, against a slow literal calculation with plain transformers."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers
import zoo
from torch.utils._python_dispatch import TorchDispatchMode

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.forward.forward_pass import EditHadNoEffectError
from levelhead.models.inputs.tokenizer import TextTooLongError
from levelhead.models.loading.load import load
from levelhead.models.queries import build as queries
from levelhead.models.queries import cloze, vocabulary
from levelhead.models.queries.query import Query
from levelhead.models.sites import Site

TEXTS = ["The nurse works as a doctor .", "a man", "she said that he was tired and there"]


@pytest.fixture(scope="module")
def bert():
    return load(zoo.folder("bert", "BertForPreTraining"))


@pytest.fixture(scope="module")
def llama():
    return load(zoo.folder("llama", "LlamaForCausalLM"))


@pytest.fixture(scope="module")
def unedited():
    path = zoo.folder("bert", "BertForPreTraining")
    return transformers.BertForPreTraining.from_pretrained(path), zoo.tokenizer()


@pytest.fixture(scope="module")
def plain_llama():
    path = zoo.folder("llama", "LlamaForCausalLM")
    return transformers.LlamaForCausalLM.from_pretrained(path), zoo.tokenizer(decoder=True)


close = torch.testing.assert_close


@torch.no_grad()
def test_embed_is_the_last_hidden_state(bert, unedited):
    model, tokenizer = unedited
    for text, span, words in zip(
        TEXTS, [(4, 15), (2, 5), (0, 3)], [(2, 3), (2,), (1,)], strict=True
    ):
        hidden = model.bert(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        close(bert.embed([text], [span])[0], hidden[list(words)].mean(0))
        close(bert.embed([text])[0], hidden[0])
        close(bert.embed([text], pooling="last")[0], hidden[-1])
        close(bert.embed([text], pooling="mean")[0], hidden[1:-1].mean(0))


def test_a_decoder_is_embedded_by_its_last_token(llama):
    close(llama.embed(TEXTS), llama.embed(TEXTS, pooling="last"))


@torch.no_grad()
def test_next_sentence_is_the_models_own(bert, unedited):
    model, tokenizer = unedited
    pairs = [("he was tired", "she said that"), ("a man", "the river is lazy and quick .")]
    for pair, ours in zip(pairs, bert.next_sentence(pairs), strict=True):
        logits = model(
            **tokenizer(*pair, return_tensors="pt", return_token_type_ids=True)
        ).seq_relationship_logits
        close(ours, logits[0].log_softmax(-1))


@torch.no_grad()
def test_pseudo_log_likelihood_masks_each_token_in_turn(bert, unedited):
    model, tokenizer = unedited
    scores = bert.log_prob(TEXTS)
    for text, value, count in zip(TEXTS, *scores, strict=True):
        ids = tokenizer(text, return_tensors="pt").input_ids
        total = 0.0
        for i in range(1, ids.shape[1] - 1):
            masked = ids.clone()
            masked[0, i] = tokenizer.mask_token_id
            total += model(masked).prediction_logits[0, i].log_softmax(-1)[ids[0, i]]
        close(value, total)
        assert count == ids.shape[1] - 2


@torch.no_grad()
def test_log_prob_is_the_sum_over_tokens(llama, plain_llama):
    model, tokenizer = plain_llama
    scores = llama.log_prob(TEXTS)
    for text, value, count in zip(TEXTS, *scores, strict=True):
        ids = tokenizer(text, return_tensors="pt").input_ids
        assert ids[0, 0] == tokenizer.bos_token_id
        responses = model(ids).logits[0].log_softmax(-1)
        close(value, responses[:-1].gather(1, ids[0, 1:, None]).sum())
        assert count == ids.shape[1] - 1


def test_spans_are_scored_given_the_rest(bert, llama):
    for lm in (bert, llama):
        words = [[(4, 9)], [(2, 5)], [(0, 3), (4, 8)]]
        scores = lm.log_prob(TEXTS, words)
        assert scores.token_counts.tolist() == [1, 1, 2]
        parts = [lm.log_prob([TEXTS[2]], [[span]]).value[0] for span in words[2]]
        close(scores.value[2], sum(parts))


@torch.no_grad()
def test_fill_reads_the_blank(bert, unedited):
    model, tokenizer = unedited
    words = ["nurse", "doctor", "man"]
    texts = ["the [MASK] works", "she said that the [MASK] is tired"]
    ours = bert.fill(texts, words)
    top = bert.fill_top(texts, 3)
    for i, text in enumerate(texts):
        ids = tokenizer(text, return_tensors="pt").input_ids
        place = ids[0].tolist().index(tokenizer.mask_token_id)
        responses = model(ids).prediction_logits[0, place].log_softmax(-1)
        close(ours[i], responses[tokenizer.convert_tokens_to_ids(words)])
        best = responses.topk(3)
        assert [word for word, _ in top[i]] == tokenizer.convert_ids_to_tokens(best.indices)
        close(torch.tensor([value for _, value in top[i]]), best.values)


@torch.no_grad()
def test_words_of_several_tokens_are_scored_within_the_word(bert, unedited):
    model, tokenizer = unedited
    ours = bert.fill(["the [MASK] works"], ["nurse", "quick lazy nurse"])
    ids = tokenizer("the quick lazy nurse works", return_tensors="pt").input_ids
    total = 0.0
    for known in range(3):
        masked = ids.clone()
        masked[0, 2 + known : 5] = tokenizer.mask_token_id
        responses = model(masked).prediction_logits[0, 2 + known].log_softmax(-1)
        total += responses[ids[0, 2 + known]]
    close(ours[0, 1], total)
    close(ours[:, 0], bert.fill(["the [MASK] works"], ["nurse"])[:, 0])


def test_a_causal_model_fills_the_end(llama):
    ours = llama.fill(["the nurse said that [MASK]"], ["she", "he was tired"])
    for column, words in enumerate(["she", "he was tired"]):
        text = f"the nurse said that {words}"
        expected = llama.log_prob([text], [[(20, len(text))]]).value[0]
        close(ours[0, column], expected)
    best = llama.fill_top(["the nurse said that [MASK]"], 2)[0]
    close(torch.tensor(best[0][1]), llama.fill(["the nurse said that [MASK]"], [best[0][0]])[0, 0])
    with pytest.raises(LevelheadError, match="cannot fill a blank inside a text"):
        llama.fill(["the [MASK] works"], ["nurse"])


def test_classify_is_the_models_own():
    path = zoo.folder("gpt2", "GPT2ForSequenceClassification")
    lm = load(path)
    model = transformers.GPT2ForSequenceClassification.from_pretrained(path)
    tokenizer = zoo.tokenizer(decoder=True)
    assert lm.labels == ("LABEL_0", "LABEL_1")
    for text, ours in zip(TEXTS, lm.classify(TEXTS), strict=True):
        with torch.no_grad():
            close(ours, model(**tokenizer(text, return_tensors="pt")).logits[0].log_softmax(-1))


class Shapes(TorchDispatchMode):
    """Every shape that a calculation makes."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.seen.add(tuple(result.shape))
        return result


LONG = "the nurse said that he was tired and the doctor said that she was here and there ."
LENGTH = len(LONG.split())


def test_one_row_of_attention_makes_no_square(bert):
    length = LENGTH + 2
    with Shapes() as shapes:
        (row,) = bert.attention_row([LONG], [(4, 9)])
    assert row.shape == (3, 4, length)
    assert any(length in shape for shape in shapes.seen)
    assert not [shape for shape in shapes.seen if shape.count(length) > 1]


def test_the_vocabulary_is_never_scored_at_every_token(bert, llama, monkeypatch):
    with Shapes() as shapes:
        bert.fill([LONG.replace("tired", "[MASK]")], ["lazy"])
    size = zoo.VOCABULARY
    assert {shape for shape in shapes.seen if size in shape[1:]} <= {(1, size), (24, size)}
    monkeypatch.setattr(vocabulary, "MAX_SCORES", 4 * size)
    full = llama.log_prob([LONG] * 2).value
    with Shapes() as shapes:
        pieces = llama.log_prob([LONG] * 2).value
    close(pieces, full)
    scored = {shape for shape in shapes.seen if len(shape) == 2 and shape[1] == size}
    assert max(rows for rows, _ in scored) == 24  # the weight itself; scores come four at a time
    assert (4, size) in scored


def test_pieces_have_the_same_gradient(llama, monkeypatch):
    reading = queries.build_lm_causal_log_prob_query(llama, TEXTS, None)[0]

    def gradient():
        gates = torch.ones(3, 4, requires_grad=True)
        values = llama.run_rows(reading, [0, 2], gates={"head_out": gates}).values
        return torch.autograd.grad(values.sum(), gates)[0]

    full = gradient()
    monkeypatch.setattr(vocabulary, "MAX_SCORES", 4 * zoo.VOCABULARY)
    close(gradient(), full)


def test_an_edited_model_is_still_a_model(bert):
    mask = HeadScale([Site("head_out", 1, 1)], 0)
    again = Projection(Site("block_out", 2), torch.eye(24, dtype=torch.float64)[:2])
    edited = bert.edited(mask).edited(again)
    assert edited.edits == (mask, again)
    assert bert.edits == ()
    close(edited.embed(TEXTS), bert.edited(mask, again).embed(TEXTS))
    assert edited.embed(TEXTS)[:, :2].abs().max() < 1e-6


def test_edits_act_in_their_order(bert):
    first = Projection(Site("block_out", 2), torch.eye(24, dtype=torch.float64)[:1])
    slanted = torch.zeros(1, 24, dtype=torch.float64)
    slanted[0, :2] = 0.5**0.5
    second = Projection(Site("block_out", 2), slanted)
    single, other = bert.edited(first, second), bert.edited(second, first)
    assert other.embed(TEXTS)[:, 0].abs().max() < 1e-6
    assert single.embed(TEXTS)[:, 0].abs().max() > 1e-3


def test_an_edit_no_forward_passes_is_an_error(bert):
    pooled = Projection(Site("pooled"), torch.eye(24, dtype=torch.float64)[:1])
    with pytest.raises(
        EditHadNoEffectError, match="pooled acts after everything that is read"
    ) as error:
        bert.edited(pooled).embed(TEXTS)
    assert "next_sentence" in error.value.hint
    bert.edited(pooled).next_sentence([("he", "she")])
    with pytest.raises(EditHadNoEffectError):
        bert.edited(pooled).fill(["the [MASK] works"], ["nurse"])


@pytest.mark.parametrize(
    ("site", "responses"),
    [
        (Site("head_out", 3, 0), "the model has 3 layers"),
        (Site("head_out", 0, 4), "head_out has 4 heads"),
    ],
)
def test_places_the_model_does_not_have_are_refused(bert, site, responses):
    with pytest.raises(LevelheadError, match=responses) as error:
        bert.edited(HeadScale([site], 0))
    assert "counted from 0" in error.value.hint


def test_kv_heads_are_counted_for_themselves(llama):
    eye = torch.eye(6, dtype=torch.float64)[:1]
    llama.edited(Projection(Site("query", 0, 3), eye))
    with pytest.raises(LevelheadError, match="key has 2 heads"):
        llama.edited(Projection(Site("key", 0, 3), eye))


def test_no_pooled_vector_is_said(llama):
    with pytest.raises(LevelheadError, match="has no pooled vector"):
        llama.read(TEXTS, [Site("pooled")])


@pytest.mark.parametrize(
    ("call", "responses"),
    [
        (lambda lm: lm.embed([]), "the list of texts is empty"),
        (lambda lm: lm.embed([""]), "text 0 has no tokens"),
        (
            lambda lm: lm.embed(["the nurse"], [(9, 12)]),
            r"\(9, 12\) is not a span of the 9 characters",
        ),
        (lambda lm: lm.embed(["the nurse"], [(0, 3), (4, 9)]), "1 texts and 2 spans"),
        (lambda lm: lm.embed(["the"], pooling="max"), "no pooling named 'max'"),
        (lambda lm: lm.fill(["the nurse"], ["a"]), "has 0 blanks"),
        (lambda lm: lm.fill(["[MASK] the [MASK]"], ["a"]), "has 2 blanks"),
        (lambda lm: lm.fill(["the [MASK]"], []), "words must be a non-empty list"),
        (lambda lm: lm.fill(["the [MASK]"], [""]), "words must be a non-empty list"),
        (lambda lm: lm.fill(["the [MASK]"], "he"), "words must be a non-empty list"),
        (lambda lm: lm.fill([], ["he"]), "the list of texts is empty"),
        (lambda lm: lm.fill_top(["the [MASK]"], 1000), "the vocabulary has 29 tokens, not 1000"),
        (lambda lm: lm.fill_top(["the [MASK]"], 0), "29 tokens, not 0"),
        (lambda lm: lm.embed("the nurse"), "a single text is given instead of a list"),
        (lambda lm: lm.embed([3]), "neither a text nor a pair"),
        (lambda lm: lm.embed(["the nurse"], [None]), "None is not a span"),
        (lambda lm: lm.embed(["the nurse"], [(-5, 2)]), "is not a span"),
        (lambda lm: lm.embed(["the nurse"], [(4, 900)]), "is not a span"),
        (lambda lm: lm.embed(["the nurse"], [(5, 8)]), "split a token .* contains 'nurse'"),
        (lambda lm: lm.log_prob(["the nurse"], [(4, 9)]), "4 is not a span"),
        (lambda lm: lm.next_sentence(["he", "she"]), "a single text is given instead of a pair"),
        (lambda lm: lm.next_sentence([("he", "")]), "text 0 has no tokens"),
        (lambda lm: lm.read(["the"], []), "the list of sites is empty"),
        (lambda lm: lm.log_prob(["the [MASK] works"]), "1 mask tokens written out"),
        (lambda lm: lm.embed(["the emperor"], [(4, 11)]), "vocabulary lacks 'emperor'"),
        (lambda lm: lm.fill(["the [MASK]"], ["emperor"]), "vocabulary lacks 'emperor'"),
        (lambda lm: lm.log_prob(["the emperor"]), "vocabulary lacks 'emperor'"),
        (lambda lm: lm.fill(["the nur[MASK]"], ["se"]), "split a token"),
        (lambda lm: lm.log_prob(["the nurse"], [[]]), "no token of text 0 can be scored"),
    ],
)
def test_questions_without_an_answer_are_errors(bert, call, responses):
    with pytest.raises(LevelheadError, match=responses) as error:
        call(bert)
    assert error.value.hint


def test_nothing_is_cut_off(bert):
    with pytest.raises(
        TextTooLongError, match="text 1 has 72 tokens, but the model accepts at most 64"
    ) as error:
        bert.embed(["the nurse", "the " * 70])
    assert "dropped" in error.value.hint


def test_nan_is_an_error_not_a_number(tmp_path):
    model = zoo.built("bert", "BertForPreTraining")
    model.save_pretrained(tmp_path)
    zoo.tokenizer().save_pretrained(tmp_path)
    lm = load(tmp_path)
    with torch.no_grad():
        lm.layout.model.bert.encoder.layer[1].output.dense.bias[0] = float("nan")
    for call in (
        lambda: lm.embed(TEXTS),
        lambda: lm.fill(["the [MASK]"], ["nurse"]),
        lambda: lm.next_sentence([("he", "she")]),
        lambda: lm.attention_row(TEXTS[:1], [(0, 3)]),
    ):
        with pytest.raises(LevelheadError, match="NaN or infinity"):
            call()


def test_progress_is_told(bert):
    output = []
    bert.with_batch_size(2).with_progress(lambda done, total: output.append((done, total))).embed(
        TEXTS
    )
    assert output == [(2, 3), (3, 3)]


def test_a_shrunk_batch_is_in_the_settings(bert, monkeypatch):
    real = type(bert).run_rows

    def small(self, reading, indices, **options):
        if len(indices) > 1:
            raise torch.OutOfMemoryError
        return real(self, reading, indices, **options)

    expected = bert.embed(TEXTS)
    lm = bert.with_batch_size(3)
    assert lm.settings["batch_shrunk_to"] is None
    monkeypatch.setattr(type(bert), "run_rows", small)
    close(lm.embed(TEXTS), expected)
    assert lm.settings["batch_shrunk_to"] == 1


def test_a_baked_model_does_not_pass_for_its_base(bert):
    edit = HeadScale([Site("head_out", 1, 1)], 0)
    baked = bert.edited(edit).merged()
    assert baked.settings["merged_edits"] == (edit.content_hash,)
    assert bert.settings["merged_edits"] == ()
    assert baked.edits == ()


def test_an_unknown_word_may_stand_around_what_is_read(bert):
    assert bert.embed(["the nurse emperor"], [(4, 9)]).isfinite().all()


def test_a_separator_written_out_is_a_separator(bert):
    (encoded,) = bert.tokens.encode(["he was [SEP] she is"])
    assert encoded.word_positions() == (1, 2, 4, 5)
    assert bert.log_prob(["he was [SEP] she is"]).token_counts.tolist() == [4]


@pytest.mark.parametrize(
    "changes", [{"num_labels": 1}, {"problem_type": "multi_label_classification"}]
)
def test_outputs_that_are_no_classes_are_refused(changes):
    lm = load(zoo.folder("bert", "BertForSequenceClassification", **changes))
    for call in (lambda: lm.classify(["the nurse"]), lambda: lm.labels):
        with pytest.raises(LevelheadError, match="no mutually exclusive classes"):
            call()


def test_decoders_are_classified_by_their_last_token_whatever_pads():
    """A text may end with the id that pads; the model's own forward would look before it."""
    for changes in ({}, {"pad_token_id": None}, {"pad_token_id": 28}):
        lm = load(zoo.folder("gpt2", "GPT2ForSequenceClassification", **changes))
        ending = ["the nurse works .", "he"]  # "." is id 28
        together = lm.classify(ending)
        close(together[0], lm.classify(ending[:1])[0])
        assert not torch.allclose(together[0], lm.classify(["the nurse works"])[0])


def test_pooled_is_one_vector_for_decoders_too():
    lm = load(zoo.folder("gpt2", "GPT2ForSequenceClassification"), dtype="float64")
    eye = torch.eye(24, dtype=torch.float64)[:3]
    for tokens in ("all", "first"):
        edited = lm.edited(Projection(Site("pooled"), eye, tokens=tokens))
        assert (edited.classify(TEXTS) - lm.classify(TEXTS)).abs().max() > 1e-6
        close(edited.merged().classify(TEXTS), edited.classify(TEXTS))


def test_a_fold_into_the_pooler_is_not_read_past(bert):
    edit = Projection(Site("block_out", 2), torch.eye(24, dtype=torch.float64)[:1], tokens="first")
    baked = bert.edited(edit).merged()
    close(baked.next_sentence([("he", "she")]), bert.edited(edit).next_sentence([("he", "she")]))
    with pytest.raises(LevelheadError, match="its hidden state is still the base's"):
        baked.embed(TEXTS)
    baked.embed(TEXTS, pooling="mean")
    baked.embed(TEXTS[:1], [(4, 9)])


@pytest.fixture
def reading(bert):
    return queries.build_lm_embedding_query(
        bert, ["he was tired", "she was here", "the nurse said"], None, None
    )


@pytest.mark.parametrize(
    ("gates", "responses"),
    [
        ({"head_out": torch.ones(1, 4)}, r"gates of shape \(1, 4\)"),
        ({"head_out": torch.ones(3, 1)}, r"gates of shape \(3, 1\)"),
        ({"head_out": torch.ones(5, 4)}, "gates of shape"),
        ({"head_out": torch.ones(1, 3, 4)}, "gates of shape"),
        ({"mlp_out": torch.ones(3, 4)}, r"give \[3, 1\]"),
        ({"heads": torch.ones(3, 4)}, "no stream named 'heads'"),
    ],
)
def test_gates_of_another_shape_are_refused(bert, reading, gates, responses):
    with pytest.raises(LevelheadError, match=responses):
        bert.run_rows(reading, [0, 1], gates=gates)


def test_a_prefix_fits_its_own_forward_only(bert, reading):
    prefix = bert.run_rows(reading, [0], cache_layers=[2]).layer_inputs[2]
    bert.run_rows(reading, [0], resume_from=prefix)
    other = load(zoo.folder("bert", "BertForPreTraining"))
    masked = bert.edited(HeadScale([Site("head_out", 1, 0)], 0))
    for lm, rows in ((bert, [1]), (other, [0]), (masked, [0]), (bert, [0, 1])):
        with pytest.raises(
            LevelheadError, match="another model, of other rows or with other edits"
        ):
            lm.run_rows(reading, rows, resume_from=prefix)


def test_a_baked_first_token_is_not_read_after_saving_either(bert, tmp_path):
    """Plain weights leave the base's own state there: it would read as no effect."""
    width, last = bert.layout.width, bert.layout.layers - 1
    edit = Projection(Site("block_out", last), torch.eye(width)[:1], tokens="first")
    bert.edited(edit).save_pretrained(tmp_path / "out")
    again = load(tmp_path / "out")
    with pytest.raises(LevelheadError, match="was merged into the pooler"):
        again.embed(["he was tired"])
    assert again.embed(["he was tired"], [(0, 2)]).shape == (1, width)


def test_what_reads_a_baked_place_gives_the_bases_vector_and_is_refused(bert, tmp_path):
    edits = [
        Projection(Site("pooled"), torch.eye(bert.layout.width)[:1]),
        HeadScale([Site("head_out", 1, 0)], 0),
        Projection(Site("value", 0, 1), torch.eye(bert.layout.head_dim)[:1]),
    ]
    baked = bert.edited(*edits).merged()
    baked.save_pretrained(tmp_path / "out")
    texts = ["he was tired"]
    for lm in (baked, load(tmp_path / "out")):
        assert lm.merged_sites == (Site("pooled"), Site("head_out", 1, 0))
        for site in (Site("pooled"), Site("head_out", 1), Site("head_out", 1, 0)):
            with pytest.raises(LevelheadError, match=f"merged into the weights that read {site}"):
                lm.read(texts, [site])
        lm.read(texts, [Site("head_out", 1, 1), Site("head_out", 0), Site("value", 0, 1)])
        assert lm.embed(texts).shape == (1, bert.layout.width)


def test_a_stored_layer_is_of_the_same_types(bert):
    pairs = [("he was tired", "she was here")]
    single = queries.build_lm_next_sentence_query(bert, pairs)
    types = tuple(row._replace(token_types=(0,) * len(row.ids)) for row in single.rows)
    other = Query(types, single.readout)
    prefix = bert.run_rows(single, [0], cache_layers=[2]).layer_inputs[2]
    with pytest.raises(LevelheadError, match="of other rows"):
        bert.run_rows(other, [0], resume_from=prefix)


def test_a_model_in_training_is_not_asked(reading):
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    lm.layout.model.train()
    with pytest.raises(LevelheadError, match="the model is in training mode"):
        lm.run(reading)


def test_what_lies_below_a_resumed_forward_is_not_asked_for(bert, reading):
    prefix = bert.run_rows(reading, [0], cache_layers=[2]).layer_inputs[2]
    gates = {"head_out": torch.ones(3, 4)}
    with pytest.raises(LevelheadError, match="a gate there would have a gradient of 0"):
        bert.run_rows(reading, [0], resume_from=prefix, gates=gates)
    below = queries.build_lm_hidden_states_query(
        bert, ["he was tired"], [Site("mlp_out", 0)], None, None
    )
    with pytest.raises(LevelheadError, match="mlp_out 0 comes before layer 2"):
        bert.run_rows(below, [0], resume_from=prefix)
    with pytest.raises(LevelheadError, match="cannot be cached in a forward pass with gates"):
        bert.run_rows(reading, [0], cache_layers=[1], gates=gates)
    highest = bert.layout.layers + 1  # before the next-sentence head
    for layer in (0, highest + 1, 99):
        with pytest.raises(LevelheadError, match=f"the input of layer {layer} cannot be cached"):
            bert.run_rows(reading, [0], cache_layers=[layer])


def test_two_threads_wait_for_each_other(bert):
    edited = bert.edited(HeadScale([Site("head_out", layer, 0) for layer in range(3)], 3))
    spans = [(4, 9), (2, 5), (0, 3)]
    expected = [bert.embed(TEXTS), edited.embed(TEXTS), *bert.attention_row(TEXTS, spans)]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(10):
            outcome = [
                pool.submit(bert.embed, TEXTS),
                pool.submit(edited.embed, TEXTS),
                pool.submit(bert.attention_row, TEXTS, spans),
            ]
            for value, wanted in zip(outcome[:2], expected, strict=False):
                close(value.result(), wanted)
            for row, wanted in zip(outcome[2].result(), expected[2:], strict=True):
                close(row, wanted)
    assert bert.settings["attention"] == "sdpa"


def test_a_forward_inside_a_forward_is_refused(bert):
    hook = bert.layout.blocks[1].register_forward_hook(lambda *a: bert.embed(TEXTS) and None)
    try:
        with pytest.raises(LevelheadError, match="was started inside another one"):
            bert.embed(TEXTS)
    finally:
        hook.remove()
    bert.embed(TEXTS)


def test_a_feed_forward_in_chunks_is_made_whole_or_refused(bert):
    chunked = load(zoo.folder("bert", "BertForPreTraining", chunk_size_feed_forward=1))
    edit = Projection(Site("mlp_out", 1), torch.eye(24, dtype=torch.float64)[:2])
    close(chunked.edited(edit).embed(TEXTS), bert.edited(edit).embed(TEXTS))
    block = chunked.layout.blocks[1]
    block.chunk_size_feed_forward = 1  # a release that brings it back
    with pytest.raises(EditHadNoEffectError, match="called more often than the model has layers"):
        chunked.edited(edit).embed(TEXTS[:1])


def test_mobilebert_answers_rows_of_one_length(bert):
    lm = load(zoo.folder("mobilebert", "MobileBertForPreTraining"))
    mixed = queries.build_lm_embedding_query(lm, ["he was", "she was here"], None, None)
    with pytest.raises(LevelheadError, match="rows of different lengths"):
        lm.run_rows(mixed, [0, 1])
    lm.run(mixed)


def test_the_same_question_has_the_same_hash(bert):
    def ask(text, words):
        return cloze.build_lm_fill_words_query(bert, [text], words).content_hash

    assert ask("the [MASK] works", ["nurse", "man"]) == ask("the [MASK] works", ["nurse", "man"])
    assert ask("the [MASK] works", ["nurse", "man"]) != ask("the [MASK] works", ["man", "nurse"])
    assert ask("the [MASK] works", ["nurse"]) != ask("a [MASK] works", ["nurse"])
    assert queries.build_lm_embedding_query(bert, ["he"], None, None).content_hash != (
        queries.build_lm_embedding_query(bert, ["he"], None, "mean").content_hash
    )


def test_the_hash_of_a_model_is_that_of_its_answers(bert):
    edit = HeadScale([Site("head_out", 1, 1)], 0)
    hashes = {
        bert.content_hash,
        bert.edited(edit).content_hash,
        bert.edited(edit).merged().content_hash,
        load(zoo.folder("bert", "BertForPreTraining"), dtype="float64").content_hash,
        load(zoo.folder("bert", "BertForPreTraining", hidden_act="relu")).content_hash,
    }
    assert len(hashes) == 5
    assert bert.with_batch_size(3).content_hash == bert.content_hash


def test_a_model_prints_in_one_line(bert):
    assert str(bert).endswith("BertForPreTraining, 3 layers x 4 heads; masked, next_sentence")
    assert repr(bert.edited(HeadScale([Site("head_out", 1, 1)], 0))).endswith("; 1 edits")


def test_only_edits_are_edits(bert):
    with pytest.raises(LevelheadError, match="is not an edit") as error:
        bert.edited([HeadScale([Site("head_out", 1, 1)], 0)])
    assert "lm.edited(first, second)" in error.value.hint
