import contrasts
import numpy as np
import pytest
import torch
from metric_cases import INFERENCE, made, model
from sweeps import placebo_judged

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.mitigate.controls.placebo_report import (
    ChosenSetting,
    PlaceboConfig,
    PlaceboReport,
    collect_running_texts,
    evaluate_with_placebos,
    read_measure_activations,
)
from levelhead.mitigate.controls.placebo_test import PlaceboTest
from levelhead.mitigate.projection.edit_points import project
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site
from levelhead.study.table import result_to_rows

PAIRS = contrasts.texts()
OTHERS = (PAIRS[4:], PAIRS[:12])


def test_an_edit_is_judged_by_its_placebos():
    lm, measure = model("strength"), made("strength")
    edits = project(lm, "last", PAIRS)
    setting, placebos = ChosenSetting("last", edits), PlaceboConfig(20, 20, OTHERS)
    queries = {"placebos": placebos, "inference": INFERENCE}
    result = evaluate_with_placebos(lm, measure, setting, PAIRS, **queries)
    assert PlaceboReport.from_json(result.to_json()) == result
    assert result.variant == "last"
    assert len(result.placebo_test.placebo_gains) == result.variance_match.n_placebos == 20
    assert (
        0 < result.variance_match.variance_error < 1
    )  # told of texts that they were not matched on
    assert result.confidence_control is not None  # two classes: lost confidence can be told apart
    again = evaluate_with_placebos(lm, measure, setting, PAIRS, **queries)
    assert again == result
    many = evaluate_with_placebos(lm, measure, setting._replace(n_candidates=3), PAIRS, **queries)
    assert many.placebo_test.p.value == result.placebo_test.p.value
    assert many.placebo_test.p.adjusted == pytest.approx(min(1, 3 * many.placebo_test.p.value))
    assert (many.placebo_test.p.family, many.placebo_test_by_value.p.family, many.n_candidates) == (
        3,
        3,
        3,
    )
    few = PlaceboConfig(20, other_contrasts=OTHERS)
    with pytest.raises(LevelheadError, match="20 placebos are too few"):
        evaluate_with_placebos(lm, measure, setting, PAIRS, placebos=few, inference=INFERENCE)


def test_what_a_verdict_leaves_open_is_told():
    result = placebo_judged()
    assert result.mitigates
    assert result.notes == ()
    lost = result.confidence_control.model_copy(update={"exceeds_confidence_loss": False})
    assert not result.model_copy(update={"confidence_control": lost}).mitigates
    many, apart = result.model_copy(update={"n_candidates": 32, "confidence_control": None}).notes[
        ::-1
    ]
    assert many.startswith("the setting is the best of 32 on other items")
    assert "p is multiplied by 32, an upper bound" in many
    assert apart == "lost confidence is not controlled for: the measure is not of two classes"


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({}, "mitigates"),
        ({"base_p": 0.4}, "untestable: base shows no effect"),
        ({"effective": 1.02}, "untestable: placebos not independent"),
        ({"effective": 18.9}, "untestable: placebos not independent"),
        ({"gain": 0.01}, "not shown to mitigate"),
        ({"gain": 0.01, "effective": 1.02}, "untestable: placebos not independent"),
        ({"gain": 0.01, "base_p": 0.4, "effective": 1.02}, "untestable: base shows no effect"),
    ],
)
def test_what_cannot_be_tested_is_neither_shown_nor_not_shown(how, outcome):
    result = placebo_judged(**how)
    assert result.outcome == result.placebo_test.outcome == outcome
    assert result.verdict.startswith(outcome)
    output = {row.what: row for row in result_to_rows("placebo.nsp.last", result)}
    untestable = outcome.startswith("untestable")
    assert ("mitigates" in output) == (not untestable)
    assert [what for what in output if what.startswith("untestable")] == [outcome] * untestable
    amount = output["independent placebos that they amount to"]
    assert (amount.value, amount.p) == (
        result.placebo_test.effective_placebos,
        result.placebo_test.p.value,
    )


def test_a_gain_that_is_lost_confidence_is_an_outcome_too():
    result = placebo_judged()
    lost = result.model_copy(
        update={
            "confidence_control": result.confidence_control.model_copy(
                update={"exceeds_confidence_loss": False}
            )
        }
    )
    assert lost.placebo_test.outcome == "mitigates"
    assert lost.outcome == "not shown to mitigate"


def test_results_of_earlier_versions_are_read():
    old = placebo_judged().placebo_test.model_dump()
    for name in ("base", "effective_placebos", "is_bias_reversed"):
        del old[name]
    assert PlaceboTest(**old).outcome == "mitigates"


def test_masks_have_no_placebos():
    lm, measure = model("strength"), made("strength")
    mask = (HeadScale([Site("head_out", 1, 0)], 0),)
    with pytest.raises(LevelheadError, match="erasures of other labels, not HeadScale"):
        evaluate_with_placebos(
            lm,
            measure,
            ChosenSetting("mask", mask),
            PAIRS,
            placebos=PlaceboConfig(other_contrasts=OTHERS),
            inference=INFERENCE,
        )


def test_texts_are_as_asked_with_a_word_in_every_blank():
    rng = np.random.default_rng(0)
    blank = (("The [MASK] works.",), ("The [MASK] sings.",))
    items = (MeasureItem("i", blank, ("u",)),)
    filled = QuerySet("fill", FrozenDict({"words": ("man", "woman")}), ("units",), items)
    texts = [text for (text,) in collect_running_texts(filled, rng)]
    assert len(texts) == 2
    assert all(text.split()[1] in ("man", "woman") for text in texts)
    put = (MeasureItem("i", (("The [MASK] works.", "nurse"), ("No blank.", "nurse")), ("u",)),)
    result = collect_running_texts(QuerySet("put", FrozenDict({}), ("units",), put), rng)
    assert result == [("No blank.",), ("The nurse works.",)]
    pair = (MeasureItem("i", (("first", "second"),), ("u",)),)
    assert collect_running_texts(QuerySet("follows", FrozenDict({}), ("units",), pair), rng) == [
        ("first", "second")
    ]
    assert (
        collect_running_texts(QuerySet("top", FrozenDict({"k": 10}), ("units",), items), rng) == []
    )


@pytest.mark.parametrize("name", ["cloze", "stereotype_margin"])
def test_words_in_blanks_are_judged_by_placebos_too(name):
    lm, measure = model(name), made(name)
    edits = project(lm, "penultimate", PAIRS)
    result = evaluate_with_placebos(
        lm,
        measure,
        ChosenSetting("penultimate", edits),
        PAIRS,
        placebos=PlaceboConfig(4, 4, OTHERS),
        inference=INFERENCE,
    )
    assert len(result.placebo_test.placebo_gains) == 4
    assert result.confidence_control is None
    held = read_measure_activations(lm, measure, [edit.site for edit in edits], 0)
    assert all(len(rows) > 2 for rows in held.values())


def test_what_asks_no_running_text_is_not_judged():
    lm = model("cloze_top")
    with pytest.raises(NotMeasurableError, match="cloze_top asks 0 running texts"):
        read_measure_activations(lm, made("cloze_top"), [Site("block_out", 0)], 0)


def test_what_cannot_act_is_not_judged():
    lm, measure = model("strength"), made("seat")
    edits = project(lm, "sent", PAIRS)
    with pytest.raises(NotMeasurableError, match="sent acts behind all that seat reads"):
        evaluate_with_placebos(
            lm,
            measure,
            ChosenSetting("sent", edits),
            PAIRS,
            placebos=PlaceboConfig(4, 4, OTHERS),
            inference=INFERENCE,
        )


def test_activations_are_those_of_the_tokens_that_are_edited():
    lm, measure = model("strength"), made("strength")
    last = lm.layout.layers - 1
    inner, outer = Site("block_out", last - 1), Site("block_out", last)
    result = read_measure_activations(lm, measure, [inner, outer, Site("pooled")], 0)
    texts = {part for item in measure.queries(lm)[0].items for ask in item.queries for part in ask}
    asks = {ask for item in measure.queries(lm)[0].items for ask in item.queries}
    assert [len(rows) for rows in result.values()] == [len(texts), len(asks), len(asks)]
    # The first token's state at the end, of pairs as they are asked; a single word's before it.
    subset = lm.read(sorted(asks), [outer], pooling="first")[outer].double()
    order = torch.cdist(result[outer], subset).argmin(1)
    assert sorted(order.tolist()) == list(range(len(asks)))
    mean = lm.read(sorted(texts), [inner], pooling="mean")[inner].double()
    assert float(torch.cdist(result[inner], mean).min(1).values.max()) > 1e-3
