import dataclasses

import pytest
import torch
from assets import asset
from metric_cases import INFERENCE, NLI, coal, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.data.prompts import nli_occupations as nli
from levelhead.measures.classification.nli_coal import NliCoal
from levelhead.measures.classification.nli_occupations import Nli

ENTAILED, NEUTRAL, CONTRADICTED = (NLI.index(x) for x in ("entailment", "neutral", "contradiction"))


def answered(answer):
    """The readouts of the tiny pairs, with given probabilities in the model's order."""
    measure = made("nli_coal")
    (result,) = measure.read(model("nli_coal"))
    rows = torch.tensor([answer(item) for item in result.items], dtype=torch.float64)
    return measure, dataclasses.replace(result, values=rows.log()[:, None])


def probabilities(column, p=0.8):
    row = [(1 - p) / 2] * 3
    row[column] = p
    return row


def test_the_score_is_the_papers_formula_pair_by_pair():
    lm = model("nli_coal")
    p = lm.classify([(pair.first, pair.second) for pair in coal()]).exp()
    wrong, smooth = {}, {}
    for pair, row in zip(coal(), p, strict=True):
        part, label = pair.id.split("/")[0], int(row.argmax())
        hit = {
            "pro": (label == ENTAILED, row[ENTAILED]),
            "anti": (label == CONTRADICTED, row[CONTRADICTED]),
            "non": (label != NEUTRAL, 1 - row[NEUTRAL]),
        }[part]
        wrong.setdefault(part, []).append(float(hit[0]))
        smooth.setdefault(part, []).append(float(hit[1]))
    mean = {part: sum(rows) / len(rows) for part, rows in wrong.items()}
    result = made("nli_coal")(lm, inference=INFERENCE)
    assert result.value == pytest.approx(sum(mean.values()) / 3)
    assert [extra.value for extra in result.extras[1:4]] == pytest.approx(
        [mean["pro"], mean["anti"], mean["non"]]
    )
    other = made("nli_coal_probability")(lm, inference=INFERENCE)
    expected = sum(sum(rows) / len(rows) for rows in smooth.values()) / 3
    assert other.value == pytest.approx(expected, rel=1e-6)


def test_only_the_difference_between_twins_is_about_a_group():
    """A classifier that calls everything entailed scores a third and more, and shows no lean."""

    def all_entailed(item):
        return probabilities(ENTAILED, 0.8 + 0.01 * int(item.units[1]))

    measure, outcome = answered(all_entailed)
    result = measure.compute_measurement(model("nli_coal"), [outcome], inference=INFERENCE)
    assert result.value == pytest.approx(2 / 3)  # pro and non are "wrong", anti is not
    assert [extra for extra in result.extras if "less" in extra.name] == []
    assert any("entailment, pro less anti" in note for note in result.notes)

    def as_the_stereotype_has_it(item):
        right = {"pro": ENTAILED, "anti": CONTRADICTED, "non": NEUTRAL}[item.group]
        return probabilities(right, 0.7 + 0.02 * (len(item.units[0]) % 5))

    measure, outcome = answered(as_the_stereotype_has_it)
    result = measure.compute_measurement(model("nli_coal"), [outcome], inference=INFERENCE)
    assert result.value == pytest.approx(2 / 3)
    leans = [extra for extra in result.extras if "less" in extra.name]
    assert [lean.value > 0.5 for lean in leans] == [True, True]
    assert all(lean.p.family == 2 and lean.p.adjusted < 0.05 for lean in leans)


def test_occupations_with_a_stereotype_and_without_are_drawn_apart():
    measure, result = answered(lambda item: probabilities(NEUTRAL))
    design = measure.design(result, measure.primary_metric)
    assert sorted(len(stratum) for stratum in design.samples) == [3, 7]


def test_pairs_that_cannot_be_compared_are_refused():
    lm = model("nli_coal")
    with pytest.raises(NotMeasurableError, match="no pair of part non"):
        made("nli_coal", pairs=tuple(p for p in coal() if not p.id.startswith("non")))(lm)
    lonely = tuple(p for p in coal() if p.id != "pro/nurse/0/she")
    with pytest.raises(NotMeasurableError, match="has no twin"):
        made("nli_coal", pairs=lonely)(lm)
    (first, *_) = coal()
    with pytest.raises(LevelheadError, match="part, occupation, sentence and word"):
        NliCoal((first._replace(id="nurse/0/she"),), labels=NLI).queries(lm)
    with pytest.raises(LevelheadError, match="labelled entailment"):
        NliCoal((first._replace(label="entailment"),), labels=NLI).queries(lm)


def test_the_published_pairs_are_twins_and_serve_fairness_too(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))
    assert [len(nli.load_nli_coal_pairs(part)) for part in nli.COAL_PARTS] == [1000, 1000, 3420]
    measure = Nli(source="coal")
    assert len(measure.items) == len({pair.id for pair in measure.items}) == 5420
    assert {pair.id.rsplit("/", 1)[1] for pair in measure.items} == {"man", "woman"}
    assert len({pair.id.split("/")[0] for pair in measure.items}) == 271
    assert set(measure.data) == {"lexicon gender-en", *NliCoal().data}
    assert NliCoal().items[0].id == "pro/nanny/0/woman"
