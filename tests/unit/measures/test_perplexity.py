import math

import pytest
import torch
from metric_cases import INFERENCE, made, model, sentences

from levelhead.core.errors import LevelheadError
from levelhead.measures.utility.perplexity import PseudoPerplexity


def test_pppl_is_that_of_the_literal_loop():
    lm = model("pppl")
    total, count = 0.0, 0
    for encoded in lm.tokens.encode(sentences()):
        ids = encoded.row.ids
        for place in range(1, len(ids) - 1):
            masked = torch.tensor([ids])
            masked[0, place] = lm.tokens.mask
            with torch.no_grad():
                logits = lm.layout.model(masked).prediction_logits[0, place]
            total += float(logits.log_softmax(-1)[ids[place]])
            count += 1
    result = made("pppl")(lm, inference=INFERENCE)
    assert result.value == pytest.approx(math.exp(-total / count), rel=1e-5)


def test_ppl_is_that_of_the_literal_loop():
    lm = model("ppl")
    total, count = 0.0, 0
    for encoded in lm.tokens.encode(sentences()):
        ids = torch.tensor([encoded.row.ids])
        with torch.no_grad():
            logits = lm.layout.model(ids).logits[0].log_softmax(-1)
        for place in range(1, ids.shape[1]):
            if encoded.text_indices[place] is not None:
                total += float(logits[place - 1, ids[0, place]])
                count += 1
    result = made("ppl")(lm, inference=INFERENCE)
    assert result.value == pytest.approx(math.exp(-total / count), rel=1e-5)


def test_a_price_has_no_parity_and_no_test():
    result = made("pppl")(model("pppl"), inference=INFERENCE)
    assert result.parity is None
    assert result.p is None


def test_sentences_are_chosen_by_hash(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(sentences()))
    full = PseudoPerplexity(str(path), limit=None).items
    assert PseudoPerplexity(str(path), limit=4).items == full[:4]
    texts = [item.text for item in full]
    turned = PseudoPerplexity(tuple(reversed(sentences())), limit=None).items
    assert [item.text for item in turned] == texts


def test_what_is_refused(tmp_path):
    with pytest.raises(LevelheadError, match="cannot read"):
        PseudoPerplexity(str(tmp_path / "none")).items  # noqa: B018
    with pytest.raises(LevelheadError, match="a limit of 0"):
        PseudoPerplexity(limit=0).items  # noqa: B018
