"""How a measure did, by the family of the model at hand."""

import json

import pytest
from calibrations import calibrated as row
from maps import measurement

from levelhead.core import calibration


class Two:
    """A measure that fails on BERT and on GPT-2, and another that is known of LLaMA alone."""

    def find_measure(self, *args, **given):
        rows = (
            row("seat", "bert", verdict="misses"),
            row("seat", "llama"),
            row("seat", "gpt2", verdict="misses"),
            row("crows", "bert"),
            row("icat", "bert", verdict="misses"),
        )
        made = calibration.Calibration.model_construct(measures=rows)
        return calibration.Calibration.find_measure(made, *args, **given)


def responses_of(name="seat", **model):
    single = measurement(1.0, name=name)
    output = single.provenance.model_copy(update={"settings": {"model": model}})
    return single.model_copy(update={"provenance": output})


@pytest.fixture(autouse=True)
def _two(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", Two)


@pytest.mark.parametrize(
    ("model", "verdict"),
    [
        ({"type": "bert", "causal": False}, "misses (bert, n = 3)"),
        ({"type": "distilbert", "causal": False}, "misses (bert, n = 3)"),
        ({"type": "gpt2", "causal": True}, "misses (gpt2, n = 3)"),
        ({"type": "mistral", "causal": True}, "not refuted (llama, n = 3)"),
        ({"causal": True}, "not refuted (llama, n = 3)"),  # a server does not tell what it is
        ({"class": "LlamaForCausalLM"}, "not tried"),  # what is not known is not guessed
    ],
)
def test_a_models_own_family_comes_first_then_the_one_that_it_is_like(model, verdict):
    assert calibration.calibration_verdict(responses_of(**model)) == verdict
    assert calibration.failed_calibration_mark(responses_of(**model)) == "†" * verdict.startswith(
        "misses"
    )


def test_a_number_beside_a_measure_has_its_own_mark():
    single = responses_of("crows", type="bert", causal=False)
    assert calibration.with_mark("crows", single) == "crows"
    assert calibration.with_mark("icat", single, "icat") == "icat †"
    assert calibration.with_mark("unflagged", single, "unflagged") == "unflagged"


def test_the_verdict_cites_the_least_dose_that_was_found(monkeypatch):
    power = tuple(calibration.DoseDetection(rho=rho, hits=5, models=5) for rho in (0.5, 1.0))
    made = row("seat").model_copy(update={"power": power, "smallest": 0.5})
    monkeypatch.setattr("levelhead.core.calibration.find_calibration", lambda single: made)
    output = calibration.calibration_verdict(responses_of(type="bert", causal=False))
    assert output == "not refuted (bert, n = 3; least dose found 0.5)"


def nulls(count, alarms, high, null_alarms=0):
    interval = calibration.Interval(low=0.0, high=high, level=0.95, method="given")
    figures = {"nulls": count, "alarms": alarms, "alarms_interval": interval}
    return row("seat").model_copy(update=figures | {"null_alarms": null_alarms})


@pytest.mark.parametrize("count", [3, 19])
def test_fewer_than_twenty_null_models_claim_nothing_of_false_alarms(count):
    few = nulls(count, 0.0, 0.01)
    assert few.verdict == "not refuted"
    assert f"false alarms not known (n = {count} null models)" in few.full_verdict
    assert "0%" not in few.full_verdict
    loud = nulls(count, 0.2, 0.4)
    assert loud.verdict == "not refuted"  # a rate that is not known refutes nothing, either


def test_twenty_null_models_bound_the_rate_of_false_alarms():
    assert (
        "false alarms 4.0% [0.0%, 8.0%] (n = 20 null models)" in nulls(20, 0.04, 0.08).full_verdict
    )
    loud = nulls(20, 0.2, 0.4)
    assert loud.verdict == "misses"
    assert loud.reasons == ("false alarms may be as many as 40%",)


def test_more_alarms_than_chance_gives_refute_with_few_models():
    distance = nulls(10, None, 0.1, null_alarms=5)  # what Distance did
    assert distance.verdict == "misses"
    assert distance.reasons == ("alarms in 5 of 10 models without a bias",)
    assert nulls(10, None, 0.1, null_alarms=2).verdict == "not refuted"  # p .086


def edit(gone=0.9, *, beyond=3, price=(0.0, 0.02), **given):
    def estimate(name, value, low, high):
        interval = calibration.Interval(low=low, high=high, level=0.95, method="t")
        return calibration.Estimate(name=name, value=value, interval=interval, n=3)

    return calibration.EditCalibration(
        edit="mask", architecture="bert", models=3, nulls=3, at_none=None, significant=0,
        gone=estimate("gone", gone, gone - 0.1, gone + 0.1), has_placebo=True, beyond=beyond,
        price=estimate("price", sum(price) / 2, *price), **given,
    )  # fmt: skip


def test_three_of_three_models_do_not_show_more_than_a_placebo():
    assert edit().verdict == (
        "lowers it (n = 3); more than its placebo in 3 of 3 models, p 0.125 (not shown)"
    )
    five = edit().model_copy(update={"models": 5, "beyond": 5})
    assert five.verdict.endswith("more than its placebo in 5 of 5 models, p 0.0312")


@pytest.mark.parametrize(
    ("price", "words"),
    [
        ((-2.24, 4.35), "utility cost unknown"),
        ((0.11, 1.78), "text about nobody is predicted worse; utility cost unknown"),
        ((0.51, 0.67), "text about nobody is predicted worse"),
    ],
)
def test_a_wide_interval_of_the_price_is_a_price_unknown(price, words):
    assert edit(price=price).verdict.endswith(words)
    assert ("utility cost unknown" in edit(price=price).verdict) == words.endswith("unknown")


def test_the_packages_own_file_is_read_whatever_words_it_was_written_with(monkeypatch):
    monkeypatch.undo()
    calibration.load_calibration.cache_clear()
    result = calibration.load_calibration()
    assert result.find_measure("seat", "llama", causal=True).verdict == "misses"
    assert result.find_measure("distance", "bert", causal=False).verdict == "misses"
    assert result.find_measure("cloze", "bert", causal=False).verdict == "not refuted"
    text = result.to_json()
    assert "passes" not in text
    assert calibration.Calibration.from_json(text) == result


def test_words_of_an_older_file_give_way_to_its_figures():
    new = {
        "command": "", "versions": {}, "machine": "", "models": [], "skills": [], "locators": [],
        "removed": [], "measures": [row("seat").model_dump() | {"verdict": "passes", "why": []}],
        "edits": [edit().model_dump(exclude={"has_placebo", "beyond"})],
    }  # fmt: skip
    for words, beyond in (
        ("lowers it, more than its placebo", 3),
        ("lowers it, no more than its placebo", None),
    ):
        new["edits"][0]["verdict"] = words
        result = calibration.Calibration.from_json(json.dumps(new))
        assert (result.edits[0].has_placebo, result.edits[0].beyond) == (True, beyond)
        assert result.measures[0].verdict == "not refuted"
    assert "in fewer than 3 models" in result.edits[0].verdict


@pytest.mark.parametrize(
    ("answers", "right", "wrong"),
    [
        (("removed", "hidden", "hidden"), 3, 0),
        (("removed", "hidden", "unclear"), 2, 0),  # no answer is not a right one
        (("unclear", "unclear", "unclear"), 0, 0),
        (("hidden", "removed", "removed"), 0, 3),
    ],
)
def test_unclear_is_never_right(answers, right, wrong):
    gone, less, there = answers
    removal_verdicts = calibration.RemovalVerdicts(
        architecture="bert", seed=0, weights="", gone=gone, less=less, there=there
    )
    assert (sum(removal_verdicts.are_correct), sum(removal_verdicts.are_wrong)) == (right, wrong)
