"""An edit chosen on dev and reported on test: of classifiers whose lean on the group is known."""

import functools

import pytest
from biased_classifier import LEXICON, TOML, classifier, texts, write
from simulated import INFERENCE as QUICK

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.core.run_context import Inference
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs
from levelhead.measures.classification.controlled_difference import ControlledDifference
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.utility.accuracy import Accuracy
from levelhead.mitigate.evaluation.sweep import read_variant_responses
from levelhead.mitigate.selection import candidate_evaluation
from levelhead.mitigate.selection import select_edit as selection
from levelhead.mitigate.selection.candidate_evaluation import UtilityLimit
from levelhead.mitigate.selection.candidates import CandidateGrid
from levelhead.mitigate.selection.select_edit import (
    forbid_dev_test_overlap,
    select_edit,
    select_edit_for_task,
)
from levelhead.mitigate.selection.selection_report import NOT_SHOWN_BY_SELECTION, SelectionReport
from levelhead.mitigate.selection.user_task import BiasUtilityTask, TaskFiles, pairs_from_task

INFERENCE = Inference(resamples=199, permutations=199)
LEANING = 0.5


def task(dev=None, test=None):
    parts = (texts("dev") if dev is None else dev, texts("test") if test is None else test)
    gains = (ControlledDifference(Counterfactual(part, lexicon=LEXICON)) for part in parts)
    return BiasUtilityTask(*gains, *(Accuracy(part) for part in parts))


@functools.cache
def tuned(lean, keep=0.9, most=None, **options):
    lm, subset = classifier(lean), task()
    pairs = pairs_from_task(lm, subset.bias, lexicon=LEXICON).pairs
    given = {"limit": UtilityLimit(keep, most, "lower"), "inference": INFERENCE} | options
    return select_edit_for_task(lm, subset, pairs, **given)


def flips(lm, rows):
    """The share of texts that flip with their twin, less that with their placebo twin."""
    other, inside = {"woman": "man", "man": "woman"}, {"woman": "nurse", "man": "doctor"}
    result = []
    for row in rows:
        who = "woman" if "woman" in row.text else "man"
        three = [row.text, *(row.text.replace(who, to[who]) for to in (other, inside))]
        responses = lm.classify(three).argmax(1).tolist()
        result.append((responses[0] != responses[1]) - (responses[0] != responses[2]))
    return sum(result) / len(result)


def right(lm, rows):
    responses = lm.classify([row.text for row in rows]).argmax(1).tolist()
    return sum(("no", "yes")[i] == row.label for i, row in zip(responses, rows, strict=True)) / len(
        rows
    )


# -- the three ends


def test_a_lean_is_found_taken_out_and_confirmed():
    output, edits = tuned(LEANING)
    lm = classifier(LEANING)
    assert output.is_recommended
    assert output.chosen == "sent 1"
    edited = lm.edited(*edits)
    test = texts("test")
    gain = 100 * (abs(flips(lm, test)) - abs(flips(edited, test)))
    assert output.on_test.gain.value == pytest.approx(gain)
    assert output.on_test.gain.interval.low > 0
    loss = 100 * (right(lm, test) - right(edited, test))
    assert output.on_test.loss.value == pytest.approx(loss)
    assert output.on_test.loss.interval.high <= output.on_test.max_utility_loss
    assert output.on_test.max_utility_loss == pytest.approx(10 * right(lm, test))
    assert output.max_utility_loss == pytest.approx(0.1 * output.base_utility.value)
    assert output.base.value == pytest.approx(100 * flips(lm, texts("dev")))
    assert output.reason.endswith("gain and price are confirmed on test")
    assert output.not_shown == NOT_SHOWN_BY_SELECTION
    assert SelectionReport.from_json(output.to_json()) == output


def test_the_choice_is_by_the_bound_among_those_within_the_price():
    output = tuned(LEANING)[0]
    eligible = {item.name for item in output.eligible}
    assert eligible == {
        candidate.name
        for candidate in output.candidates
        if candidate.lower_bound is not None
        and candidate.lower_bound > 0
        and (candidate.loss is None or candidate.loss.interval.high <= output.max_utility_loss)
    }
    assert output.chosen == max(output.eligible, key=lambda subset: subset.lower_bound).name
    # Others gain more, and cost too much.
    best = max(
        (candidate for candidate in output.candidates if candidate.lower_bound is not None),
        key=lambda subset: subset.lower_bound,
    )
    assert best.name not in eligible
    assert "may cost" in best.exclusion_reason
    assert any(
        "no gain shown: the lower bound is" in candidate.exclusion_reason
        for candidate in output.candidates
    )
    for candidate in output.candidates:
        if candidate.gain is not None:
            assert candidate.lower_bound <= candidate.gain.interval.low + 1e-9
    assert len(output.excluded) == 52


def test_without_a_lean_nothing_is_recommended_and_test_is_not_asked(monkeypatch):
    queries = []

    def listening(lm, measure, *args, **options):
        queries.append(measure)
        return read_variant_responses(lm, measure, *args, **options)

    monkeypatch.setattr(candidate_evaluation, "read_variant_responses", listening)
    output, edits = tuned.__wrapped__(0.0)
    assert queries == [task().bias, task().utility]
    assert not output.is_recommended
    assert output.chosen is output.on_test is None
    assert edits == ()
    assert output.reason == (
        f"nothing is recommended: none of {len(output.candidates)} candidates is shown to gain "
        "on dev"
    )
    assert [what for what, _ in output.dropped] == ["dev", "price on dev", "pairs of texts"]


def test_test_is_asked_of_the_chosen_one_alone_and_the_same_seed_gives_the_same_bytes(monkeypatch):
    queries = []

    def listening(lm, measure, edits, **options):
        queries.append((measure, list(edits)))
        return read_variant_responses(lm, measure, edits, **options)

    monkeypatch.setattr(candidate_evaluation, "read_variant_responses", listening)
    again = tuned.__wrapped__(LEANING)[0]
    assert queries[2:] == [(task().bias_test, ["sent 1"]), (task().utility_test, ["sent 1"])]
    assert again.to_json() == tuned(LEANING)[0].to_json()


def test_what_test_does_not_confirm_is_not_recommended():
    output, edits = tuned(1.0, keep=0.95)
    assert output.chosen == "sent 1"
    assert output.on_test.is_gain_confirmed
    assert not output.on_test.is_utility_kept
    assert not output.is_recommended
    assert edits == ()
    assert output.reason.startswith("nothing is recommended: sent 1 has the largest lower bound")
    assert output.reason.endswith("the price is not confirmed on test")


def test_a_loss_may_be_limited_in_points():
    output = tuned(LEANING, most=5.0)[0]
    assert output.min_utility_kept is None
    assert output.max_utility_loss == 5
    assert output.on_test.max_utility_loss == 5


# -- files


def test_files_give_what_measures_give(tmp_path):
    dev, test = (write(tmp_path / f"{tag}.csv", texts(tag)) for tag in ("dev", "test"))
    words = tmp_path / "own.toml"
    words.write_text(TOML)
    output, edits = select_edit(
        classifier(LEANING),
        TaskFiles(dev, test, lexicon=str(words)),
        limit=UtilityLimit(0.9),
        pair_source="dev",
        inference=INFERENCE,
    )
    same, others = tuned(LEANING)
    assert edits == others
    # Other names of the items, other chance; the same values.
    assert [candidate.gain.value for candidate in output.candidates] == [
        candidate.gain.value for candidate in same.candidates
    ]
    assert output.on_test.gain.value == same.on_test.gain.value
    assert output.on_test.loss == same.on_test.loss
    assert (
        output.provenance.data["bias: file dev.csv"]
        == output.provenance.data["utility: file dev.csv"]
    )
    assert output.provenance.data["bias_test: file test.csv"]
    with pytest.raises(UnknownNameError, match="there is no kind of pairs named 'test'"):
        select_edit(classifier(LEANING), TaskFiles(dev, test), pair_source="test")


# -- what is refused


def test_items_that_were_seen_are_refused_whichever_twin_stands_there():
    lm = classifier(0.0)
    first = texts("dev")[0]
    who, other = ("woman", "man") if "woman" in first.text else ("man", "woman")
    twin = first._replace(id="x", text=first.text.replace(who, other))
    with pytest.raises(
        LevelheadError, match=r"1 items of test are in dev \(x\), by counterfactual"
    ):
        forbid_dev_test_overlap(lm, task(test=(*texts("test"), twin)))
    assert forbid_dev_test_overlap(lm, task()) == ()
    crossed = task()._replace(bias_test=Accuracy(texts("test")))
    with pytest.raises(
        LevelheadError, match=r"chosen by counterfactual, .* and reported by accuracy"
    ):
        forbid_dev_test_overlap(lm, crossed)


def test_units_that_are_in_both_are_told():
    from metric_cases import NLI, WORDS, model, neutral

    from levelhead.measures.classification.nli_occupations import Nli

    rows = neutral()
    halves = [tuple(row for row in rows if f"/{i}/" in row.id) for i in (0, 1)]
    subset = task()._replace(
        bias=Nli(halves[0], labels=NLI, lexicon=WORDS),
        bias_test=Nli(halves[1], labels=NLI, lexicon=WORDS),
        utility=Accuracy(halves[0], labels=NLI),
        utility_test=Accuracy(halves[1], labels=NLI),
    )
    output = forbid_dev_test_overlap(model("nli_fairness"), subset)
    assert output == (
        "nli_fairness: 10 of 10 occupations of test are in dev, too: the results on test hold "
        "for these",
    )


@pytest.mark.parametrize(
    ("options", "responses"),
    [
        ({"min_utility_kept": 0}, "0 of the utility is to be kept"),
        ({"min_utility_kept": 1.2}, "1.2 of the utility is to be kept"),
        ({"max_utility_loss": -1.0}, "a loss of at most -1.0"),
    ],
)
def test_limits_that_are_none_are_refused(options, responses):
    with pytest.raises(LevelheadError, match=responses):
        UtilityLimit(**options)


def test_a_level_that_shows_little_is_refused():
    with pytest.raises(LevelheadError, match=r"bounds of level 0\.5 show little"):
        select_edit_for_task(
            classifier(0.0), task(), contrast_pairs(LEXICON), inference=Inference(level=0.5)
        )


def test_a_price_is_no_gain():
    subset = task()._replace(bias=Accuracy(texts("dev")), bias_test=Accuracy(texts("test")))
    with pytest.raises(LevelheadError, match="accuracy_likelihood is a utility"):
        select_edit_for_task(
            classifier(0.0),
            subset,
            contrast_pairs(LEXICON),
            inference=QUICK,
            limit=UtilityLimit(worse="lower"),
        )


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in (2, 3))]
)
def test_other_texts_without_a_lean_recommend_nothing_either(seed):
    lm, parts = classifier(0.0), [texts(tag, 90, seed) for tag in ("dev", "test")]
    subset = task(*parts)
    pairs = pairs_from_task(lm, subset.bias, lexicon=LEXICON).pairs
    output = select_edit_for_task(
        lm,
        subset,
        pairs,
        limit=UtilityLimit(worse="lower"),
        grid=CandidateGrid(sizes=(1, 3)),
        inference=INFERENCE,
    ).report
    assert not output.is_recommended


def test_steering_is_tried_if_it_is_named():
    output = tuned(1.0, grid=CandidateGrid(kinds=("steering",))).report
    assert {candidate.kind for candidate in output.candidates} == {"steering"}
    assert len(output.candidates) == 15  # 3 strengths of 2 + 2 + 1 directions at one site
    assert list(output.provenance.settings["kinds"]) == ["steering"]
    assert sum(note.startswith("held-out accuracy of the detector") for note in output.notes) == 2
    assert "kinds" not in tuned(1.0).report.provenance.settings
    for kinds, problem in (((), "no kind of edit"), (("luck",), "no kind of edit named 'luck'")):
        with pytest.raises(LevelheadError, match=problem):
            CandidateGrid(kinds=kinds)


def test_without_a_detector_the_other_kinds_are_tried(monkeypatch):
    def nothing_read(lm, pairs):
        raise NotMeasurableError("no linear detector reads first", hint="give more pairs")

    monkeypatch.setattr(selection, "steering_candidates", nothing_read)
    with pytest.raises(NotMeasurableError, match="no edit to try: no steering edit: no linear"):
        tuned.__wrapped__(1.0, grid=CandidateGrid(kinds=("steering",)))
    grid = CandidateGrid(kinds=("mask", "steering"), sizes=(1,))
    output = tuned.__wrapped__(1.0, grid=grid).report
    assert "no steering edit: no linear detector reads first" in output.notes
    assert {candidate.kind for candidate in output.candidates} == {"mask"}
