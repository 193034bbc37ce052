"""How a ruler did, by the family of the model at hand."""

import pytest
from calibrations import calibrated as row
from maps import measurement

from levelhead.core import calibration


class Two:
    """A ruler that fails on BERT and on GPT-2, and another that is known of LLaMA alone."""

    def of(self, *args, **given):
        rows = (
            row("seat", "bert", verdict="misses"),
            row("seat", "llama"),
            row("seat", "gpt2", verdict="misses"),
            row("crows", "bert"),
            row("icat", "bert", verdict="misses"),
        )
        made = calibration.Calibration.model_construct(rulers=rows)
        return calibration.Calibration.of(made, *args, **given)


def said(name="seat", **model):
    one = measurement(1.0, name=name)
    told = one.provenance.model_copy(update={"settings": {"model": model}})
    return one.model_copy(update={"provenance": told})


@pytest.fixture(autouse=True)
def _two(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.kept", Two)


@pytest.mark.parametrize(
    ("model", "verdict"),
    [
        ({"type": "bert", "causal": False}, "misses (bert)"),
        ({"type": "distilbert", "causal": False}, "misses (bert)"),
        ({"type": "gpt2", "causal": True}, "misses (gpt2)"),
        ({"type": "mistral", "causal": True}, "passes (llama)"),
        ({"causal": True}, "passes (llama)"),  # a server does not tell what it is
        ({"class": "LlamaForCausalLM"}, "not tried"),  # what is not known is not guessed
    ],
)
def test_a_models_own_family_comes_first_then_the_one_that_it_is_like(model, verdict):
    assert calibration.verdict_of(said(**model)) == verdict
    assert calibration.mark_of(said(**model)) == "†" * verdict.startswith("misses")


def test_a_number_beside_a_ruler_has_its_own_mark():
    one = said("crows", type="bert", causal=False)
    assert calibration.marked("crows", one) == "crows"
    assert calibration.marked("icat", one, "icat") == "icat †"
    assert calibration.marked("unflagged", one, "unflagged") == "unflagged"
