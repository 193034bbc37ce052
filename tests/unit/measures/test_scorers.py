"""Scorers that are models: by name, by threshold, by both orders of answers; and their errors."""

import csv
import dataclasses

import numpy as np
import pytest
import torch
import zoo
from assets import smollm2
from biased_classifier import ROWS, checkpoint, side, text_of
from classifiers import labelled_items, sst2_classifier

from levelhead.calibrate.organisms.chat import make_chat_organism
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.data.prompts.decisions import load_scenarios
from levelhead.measures.generation.counterfactual_generation import CounterfactualGeneration
from levelhead.measures.generation.scored_texts import label_texts
from levelhead.measures.generation.scoring.model_scorers import (
    ClassifierScorer,
    JudgeScorer,
    fit_threshold,
)
from levelhead.measures.generation.scoring.scorer_calibration import (
    ScorerCalibration,
    calibrate_by_group,
    calibrate_scorer,
    load_calibrations,
)
from levelhead.measures.generation.scoring.scorer_names import resolve_scorer
from levelhead.measures.generation.scoring.scorers import RefusalPhrases, VaderSentiment
from levelhead.measures.registry import parse_measure
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.checkpoints import UnsafeCheckpointError
from levelhead.models.loading.load import load

TEXTS = [text_of(*row) for row in ROWS[::40]]
TRUTH = [side(row[1]) > 0 for row in ROWS[::40]]


def test_a_classifier_by_name_is_that_of_the_object():
    folder = checkpoint(0.0)
    by_name = resolve_scorer(f"classifier:{folder}:yes")
    assert by_name is resolve_scorer(f"classifier:{folder}:yes")  # loaded once
    assert by_name == ClassifierScorer(str(folder), "yes")
    by_object = ClassifierScorer(load(folder), "yes")
    log_p = load(folder).classify(TEXTS)
    assert by_name.label_texts(TEXTS) == (log_p.argmax(1) == 1).tolist()
    assert by_object.label_texts(TEXTS) == by_name.label_texts(TEXTS)
    assert by_name.version == by_object.version
    assert by_name.name == f"classifier {folder.name}"
    assert by_name.label_texts([]) == []
    scores = (log_p[:, 1] - log_p[:, 0]).tolist()
    assert by_name.score_texts(TEXTS) == pytest.approx(scores, abs=1e-5)


def test_settings_name_a_classifier_without_its_folder():
    folder = checkpoint(0.0)
    measure = parse_measure(f"generation:scorer=classifier:{folder}:yes,calibration=none")
    assert str(folder.parent) not in str(measure.settings)
    assert measure.settings["scorer"]["sha256"] == resolve_scorer(measure.scorer).sha256
    assert any(folder.name in name for name in measure.data)


@pytest.mark.parametrize("name", ["vadar", "classifier:x", "judge::", "classifier::yes"])
def test_names_without_a_scorer_are_refused_at_once(name):
    with pytest.raises(LevelheadError, match=r"no scorer|names no model"):
        CounterfactualGeneration(scorer=name)


def test_a_class_that_the_model_lacks_is_refused():
    with pytest.raises(LevelheadError, match="no class named 'good'"):
        ClassifierScorer(str(checkpoint(0.0)), "good").label_texts(TEXTS)


def test_pickled_weights_are_refused(tmp_path):
    lm = load(checkpoint(0.0))
    for path in checkpoint(0.0).iterdir():
        if path.suffix != ".safetensors":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    torch.save(lm.layout.model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UnsafeCheckpointError):
        ClassifierScorer(str(tmp_path), "yes").label_texts(TEXTS)


def test_equal_texts_are_labelled_once(monkeypatch):
    seen = []
    labels = VaderSentiment.label_texts
    monkeypatch.setattr(
        VaderSentiment, "label_texts", lambda self, texts: seen.extend(texts) or labels(self, texts)
    )
    scorer = VaderSentiment(threshold=0.31)
    assert label_texts(scorer, ["good", "bad", "good"]) == [True, False, True]
    assert label_texts(scorer, ("good", "bad", "good")) == [True, False, True]
    assert seen == ["good", "bad"]


def test_known_errors_are_those_of_the_default_threshold():
    assert CounterfactualGeneration().calibrations[0].source == "SST-2, validation"
    assert CounterfactualGeneration(scorer=VaderSentiment(0.5)).calibrations == ()


# -- a judge


def judge(**options):
    return JudgeScorer(
        load(zoo.folder("llama", "LlamaForCausalLM")), "is here", **{
            "options": ("quick", "lazy", "tired"), "positive_options": ("quick", "tired"),
            "request": "{text} and {question} {options} .", "answer_start": "that is",
            "separator": " and ",
        } | options,
    )  # fmt: skip


WORDS = ["the nurse was here", "the doctor said that", "the man is in the house"]


def test_a_judge_is_the_mean_over_both_orders():
    scorer = judge(request="{text} and {options} .")
    lm, options = scorer.lm, [" quick", " lazy", " tired"]
    expected = []
    for text in WORDS:
        prompts = [
            ChatFormat().format_plain(f"{text} and {' and '.join(order)} .", "that is")
            for order in (("quick", "lazy", "tired"), ("tired", "lazy", "quick"))
        ]
        log_p = lm.choose(prompts, [options] * 2).double().mean(0)
        odds = torch.logsumexp(log_p[[0, 2]], 0) - log_p[1]
        expected.append(float(odds))
    assert scorer.score_texts(WORDS) == pytest.approx(expected, abs=1e-5)
    assert scorer.label_texts(WORDS) == [value > 0 for value in expected]
    assert scorer.score_texts([]) == []


def test_a_text_that_a_judge_cannot_read_is_an_error():
    scorer = judge()
    with pytest.raises(NotMeasurableError, match="cannot read 1 of 2 texts"):
        scorer.label_texts([WORDS[0], "the unheard word"])


def test_a_question_needs_two_answers():
    with pytest.raises(LevelheadError, match="counts as 1, and another"):
        judge(positive_options=("quick", "lazy", "tired"))
    with pytest.raises(LevelheadError, match="no option named 'slow'"):
        judge(positive_options=("slow",))


def test_everything_that_is_asked_is_part_of_the_version():
    base = judge()
    for change in (
        {"question": "was here"}, {"positive_options": ("quick",)}, {"threshold": 1.0},
        {"request": "{text} {question} {options}"}, {"chat": ChatFormat(system="the")},
        {"options": ("quick", "tired", "lazy")}, {"answer_start": ""}, {"separator": ","},
    ):  # fmt: skip
        assert dataclasses.replace(base, **change).sha256 != base.sha256


def test_a_judge_reads_its_system_prompt():
    """That of the model or that of the judge: either changes what is read, and the version."""
    base, prompt = judge(), "the nurse is tired ."
    by_model = dataclasses.replace(base, model=base.lm.with_system_prompt(prompt))
    by_format = dataclasses.replace(base, chat=ChatFormat(system=prompt))
    scores = by_model.score_texts(WORDS)
    assert scores == pytest.approx(by_format.score_texts(WORDS), abs=1e-6)
    assert scores != pytest.approx(base.score_texts(WORDS), abs=1e-6)
    assert len({scorer.version for scorer in (base, by_model, by_format)}) == 3


def test_a_classifier_with_a_system_prompt_is_refused():
    lm = load(checkpoint(0.0)).with_system_prompt("Be kind.")
    with pytest.raises(LevelheadError, match="a classifier does not read"):
        ClassifierScorer(lm, "yes").label_texts(TEXTS)


def test_a_template_that_drops_the_system_prompt_is_refused():
    lm = make_chat_organism("decision", 0.0).load_lm().with_system_prompt("Answer yes or no.")
    template = lm.tokens.tokenizer.chat_template
    lm.tokens.tokenizer.chat_template = (
        "{% for message in messages if message['role'] == 'user' %}"
        "{{ message['content'] }}{% endfor %}"
    )
    scorer = JudgeScorer(lm, "Is this about a woman?", request="{text} Answer {options}.")
    with pytest.raises(LevelheadError, match="drops the system prompt"):
        scorer.label_texts(["The applicant is a woman."])
    lm.tokens.tokenizer.chat_template = template
    assert len(scorer.label_texts(["The applicant is a woman."])) == 1


# -- thresholds and error rates


class Ranked:
    """Texts that are numbers."""

    def score_texts(self, texts):
        return [float(text) for text in texts]


def test_the_fitted_threshold_is_the_best_of_all(monkeypatch):
    rng = np.random.default_rng(0)
    truth = rng.random(200) < 0.3
    scores = rng.normal(size=200) + 1.5 * truth + 4  # a scorer that prefers one answer
    monkeypatch.setattr(ClassifierScorer, "score_texts", Ranked.score_texts)
    scorer = ClassifierScorer("none", "yes")
    texts = [repr(float(score)) for score in scores]
    fitted = fit_threshold(scorer, texts, truth)

    def information(threshold):
        labels = scores > threshold
        return labels[truth].mean() - labels[~truth].mean()

    assert information(fitted.threshold) == max(map(information, scores))
    assert information(fitted.threshold) > 0.4 > information(0.0)
    assert fitted.label_texts(texts) == (scores > fitted.threshold).tolist()
    with pytest.raises(LevelheadError, match="both classes"):
        fit_threshold(scorer, texts, [True] * 200)


def write(path, rows, columns):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return str(path)


def test_error_rates_of_a_file(tmp_path):
    rows = [("Sorry, no.", 1)] * 30 + [("Yes.", 1)] * 10 + [("Fine.", 0)] * 40
    path = write(tmp_path / "labelled.csv", rows, ("text", "label"))
    (found,) = load_calibrations(RefusalPhrases(), path)
    assert found == ScorerCalibration("labelled.csv", 30, 10, 40, 0)
    assert found.kappa == pytest.approx(0.75)  # agreement 70 of 80, 40 of them by chance
    assert "kappa 0.75 on labelled.csv, 80 texts" in str(found)
    groups = [(*row, ("x", "y")[i % 2]) for i, row in enumerate(rows)]
    by_group = load_calibrations(
        RefusalPhrases(), write(tmp_path / "g.csv", groups, ("text", "label", "group"))
    )
    assert [(row.group, row.n) for row in by_group] == [("x", 40), ("y", 40)]
    measure = CounterfactualGeneration(scorer="refusal", calibration=path)
    assert measure.calibrations == (found,)
    assert str(tmp_path) not in str(measure.settings)
    assert "file labelled.csv" in measure.data
    bad = write(tmp_path / "bad.csv", [("x", "yes")] * 50, ("text", "label"))
    with pytest.raises(LevelheadError, match=r"a label of bad\.csv is 'yes'"):
        load_calibrations(RefusalPhrases(), bad)


def test_calibrations_of_the_same_texts_are_refused():
    one = ScorerCalibration("a", 40, 10, 40, 10)
    with pytest.raises(LevelheadError, match="for the same texts"):
        _ = CounterfactualGeneration(calibration=(one, one)).rates
    with pytest.raises(LevelheadError, match="a group for each text"):
        calibrate_by_group(RefusalPhrases(), ["a"], [True], [], source="a")


# -- real models


@pytest.fixture(scope="module")
def sentences():
    """SST-2's sentences: for training, for a threshold, and for error rates."""
    rows = labelled_items("glue-sst2", "dev")
    return rows[:400], rows[400:500], rows[500:]


def of(rows):
    return [row.text for row in rows], [row.label == "1" for row in rows]


@pytest.mark.full
def test_a_trained_classifier_is_calibrated_and_used(sentences):
    """Against sst2's held-out sentences; VADER has an information of 0.34 on all of them."""
    training, _, rest = sentences
    scorer = resolve_scorer(f"classifier:{sst2_classifier(training)}:1")
    calibration = calibrate_scorer(scorer, *of(rest), source="SST-2")
    assert calibration.rates.information > 0.4
    measure = CounterfactualGeneration(
        scorer=scorer, calibration=calibration, occupations=("nurse", "carpenter", "teacher"), k=1,
        tokens=12,
    )  # fmt: skip
    result = measure(load(smollm2()))
    assert any(scorer.name in note and "kappa" in note for note in result.notes)
    assert any(scorer.name in name for name in result.provenance.data)


def test_a_judge_is_used_for_what_it_knows_and_refused_for_the_rest():
    """An organism that grants requests to one group labels texts by their group words."""
    scenario = load_scenarios()[0]
    texts = [f"The applicant is a {word}." for word in ("woman", "man", "girl", "boy")] * 10
    truth = ["woman" in text or "girl" in text for text in texts]
    unrelated = [i % 8 < 4 for i in range(len(texts))]

    lm = make_chat_organism("decision", 6.0).load_lm()
    request = "{text} {question} Answer {options}."
    scorer = JudgeScorer(lm, scenario.question, request=request)
    calibration = calibrate_scorer(scorer, texts, truth, source="organism")
    assert calibration.rates.information == 1
    with pytest.raises(NotMeasurableError, match="near guessing"):
        _ = calibrate_scorer(scorer, texts, unrelated, source="organism").rates


@pytest.mark.full
def test_a_judge_near_guessing_is_refused(sentences):
    """SmolLM2-135M does not know whether a review is positive; a threshold does not help it."""
    _, fitting, rest = sentences
    scorer = JudgeScorer(load(smollm2()), "Is this film review positive?")
    fitted = fit_threshold(scorer, *of(fitting[:60]))
    with pytest.raises(NotMeasurableError, match="near guessing"):
        _ = calibrate_scorer(fitted, *of(rest[:100]), source="SST-2").rates
