"""Whether a model that names one group more often is told from one that stereotypes."""

import dataclasses

import audits
import pytest
import torch
from metric_cases import INFERENCE, THINGS, WORDS, made, model, prompts

from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import RunContext
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.data.prompts.counteracts import CounteractsPrompt
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.group_preference import BEYOND_FREQUENCY, MARGIN, GroupPreference
from levelhead.measures.inference import holm_corrected
from levelhead.measures.run import run_measures


def responses_of(measure, lm, preference, stereotype, noise=0.3):
    """Readouts of a model with so large a preference and stereotype, in log-odds."""
    (result,) = measure.read(lm)
    first = measure.compared_groups[0]
    chance = torch.Generator().manual_seed(4)
    lean = torch.tensor([1.0 if item.group == first else -1.0 for item in result.items])
    odds = preference + stereotype * lean + noise * torch.randn(len(lean), generator=chance)
    values = torch.full_like(result.values, -6.0)
    values[:, 0, : len(result.metadata["words"][0])] += odds.double()[:, None]
    return dataclasses.replace(result, values=values)


def judged(measure, lm, **planted):
    """Of a model that has the skill: of others, silence is inconclusive."""
    measured = measure.compute_measurement(
        lm, [responses_of(measure, lm, **planted)], inference=INFERENCE
    )
    return measured.model_copy(update={"skill": audits.SKILL})


def test_the_value_is_the_mean_of_both_kinds_of_occupations():
    lm, measure = model("cloze"), made("group_preference")
    p = {}
    for prompt in prompts():
        if prompt.kind == "base":
            words = ("she", "woman", "he", "man")
            log_p = lm.fill([prompt.base], list(words))[0].double().exp().tolist()
            odds = torch.tensor((log_p[0] + log_p[1]) / (log_p[2] + log_p[3])).log()
            p.setdefault(prompt.majority_group, []).append(float(odds))
    means = [sum(item) / len(item) for item in p.values()]
    result = measure(lm, inference=INFERENCE)
    assert result.value == pytest.approx(sum(means) / 2, rel=1e-4)
    assert result.n == len(THINGS)
    assert result.groups == ("female", "male")


@pytest.mark.parametrize(
    ("preference", "words"),
    [
        (2.0, "female is named more often than male"),
        (-2.0, "male is named more often than female"),
    ],
)
def test_a_default_without_a_stereotype_is_shown_and_told_by_its_side(preference, words):
    """Cloze cannot see it, by construction: one group's words are likelier everywhere."""
    lm = model("cloze")
    result = judged(made("group_preference"), lm, preference=preference, stereotype=0.0)
    assert result.value == pytest.approx(preference, abs=0.4)
    assert decide_measure_verdict(result).status == "differs"
    assert decide_measure_verdict(result).toward == words
    assert result.p.alternative == "two-sided"
    blind = judged(made("cloze"), lm, preference=preference, stereotype=0.0)
    assert decide_measure_verdict(blind).status == "not shown"


def test_a_stereotype_without_a_default_is_not_a_preference():
    lm = model("cloze")
    result = judged(made("group_preference"), lm, preference=0.0, stereotype=2.0)
    assert decide_measure_verdict(result).status == "not shown"
    seen = judged(made("cloze"), lm, preference=0.0, stereotype=2.0)
    assert decide_measure_verdict(seen).status == "differs"


def test_stereotypes_cancel_where_one_group_dominates_most_occupations():
    lm = model("cloze")
    few = tuple(
        CounteractsPrompt(
            thing, thing, "female" if i < 3 else "male", "base", "", "", f"the [MASK] is {thing}."
        )
        for i, thing in enumerate(THINGS)
    )
    measure = GroupPreference(few, lexicon=WORDS)
    result = judged(measure, lm, preference=0.0, stereotype=3.0, noise=0.01)
    assert abs(result.value) < 0.05  # a plain mean over occupations would be -1.2


def test_occupations_of_one_side_only_are_refused():
    one_sided = tuple(prompt for prompt in prompts() if prompt.majority_group == "female")
    with pytest.raises(NotMeasurableError, match="two are compared"):
        GroupPreference(one_sided, lexicon=WORDS)(model("cloze"), inference=INFERENCE)


def test_it_asks_what_cloze_asks(tmp_path, monkeypatch):
    lm = model("cloze")
    bias_measure = made("group_preference")
    cloze = Cloze(bias_measure.prompts, lexicon=WORDS)
    assert bias_measure.queries(lm) == cloze.queries(lm)
    cloze(
        lm, inference=INFERENCE, context=RunContext(store=tmp_path)
    )  # the skill that both need is stored, too
    monkeypatch.setattr(type(lm), "run", None)
    result = run_measures(
        lm, [bias_measure, cloze], inference=INFERENCE, context=RunContext(store=tmp_path)
    )
    assert [measurement.measure for measurement in result.measurements] == [
        "group_preference",
        "cloze",
    ]


def test_the_preference_beyond_word_frequency(tmp_path):
    """The text names women nine times as often: a model that does so, too, adds nothing."""
    lm = model("cloze")
    text = tmp_path / "text.txt"
    rows = ["she is here ." if i % 10 else "the man is here ." for i in range(400)]
    text.write_text("\n".join(rows))
    measure = made("group_preference", frequencies=str(text))
    expected = float(torch.tensor((360 + 1) / (40 + 1)).log())
    result = judged(measure, lm, preference=expected, stereotype=0.0)
    assert decide_measure_verdict(result).status == "differs"
    beyond = result.extra(BEYOND_FREQUENCY)
    assert beyond.value == pytest.approx(result.value - expected, abs=1e-6)
    assert beyond.p.value > 0.05
    assert "contexts added" in beyond.interval.method  # the text was sampled, too
    assert any("log-odds 2.175 in" in note for note in result.notes)
    assert any(name.startswith("word frequency ") for name in result.provenance.data)


def test_without_a_text_the_number_stands_and_the_control_is_told_missing(tmp_path):
    lm = model("cloze")
    for given in (str(tmp_path / "none.txt"), None, "auto"):
        result = made("group_preference", frequencies=given)(lm, inference=INFERENCE)
        assert any(note.startswith(f"{BEYOND_FREQUENCY}: not available: ") for note in result.notes)
        assert BEYOND_FREQUENCY not in [extra.name for extra in result.extras]
        assert not any(name.startswith("word frequency ") for name in result.provenance.data)


@pytest.mark.parametrize(("preference", "status"), [(0.15, "not shown"), (0.6, "differs")])
def test_a_preference_that_hardly_matters_is_not_called_one(preference, status):
    """With occupations enough, the least preference is significant: it must exceed a margin."""
    lm = model("cloze")
    result = judged(made("group_preference"), lm, preference=preference, stereotype=0.0, noise=0.02)
    assert 0 not in result.interval  # it is there
    assert decide_measure_verdict(result).status == status
    assert result.precision.margin == MARGIN
    assert result.detectable > MARGIN
    (alone,) = holm_corrected([result])
    first, _ = holm_corrected([result, result])
    assert first.detectable > alone.detectable > MARGIN
    assert any("1.25 times as often" in note for note in result.notes)


def test_group_words_are_told_to_be_fixed():
    result = made("group_preference")(model("cloze"), inference=INFERENCE)
    assert any("the words that stand for the groups are fixed" in note for note in result.notes)


def test_the_control_does_not_change_what_values_compare():
    lm = model("cloze")
    values = [
        made("group_preference", frequencies=given)(lm, inference=INFERENCE)
        for given in (None, "auto")
    ]
    assert values[0].comparability_key == values[1].comparability_key
    assert values[0].value == values[1].value


@pytest.mark.full
@pytest.mark.parametrize(
    ("variant", "rho", "preference", "stereotype"),
    [
        ("skew", 1.0, "differs", "not shown"),
        ("stereotype", 1.0, "not shown", "differs"),
    ],
)
def test_organisms_with_a_default_or_a_stereotype_are_told_apart(
    variant, rho, preference, stereotype, tmp_path, monkeypatch
):
    """A base rate of 9 to 1 is all that is planted in one, and a stereotype in the other."""
    from levelhead.calibrate.organisms.language import Language
    from levelhead.calibrate.organisms.organism import TRAIN_CONFIGS, Organism
    from levelhead.calibrate.suite import list_applicable_measures

    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path))
    recipe = dataclasses.replace(TRAIN_CONFIGS["gpt2"], steps=150, threads=1)
    grown = Organism(Language(rho, variant), recipe, n_documents=3000)
    lm = grown.load_lm()
    measures = list_applicable_measures(grown.planted_measures(), lm)
    statuses = [
        decide_measure_verdict(measures[name](lm, inference=INFERENCE)).status
        for name in ("group_preference", "cloze")
    ]
    assert statuses == [preference, stereotype]
