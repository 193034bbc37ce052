import dataclasses
import functools
import json

import pytest
import torch
import zoo
from command import levelhead
from metric_cases import CASES, INFERENCE, made, model

from levelhead.core.errors import NotMeasurableError
from levelhead.measures.robustness.multiverse import REFERENCE, Multiverse, multiverse

FEW = dataclasses.replace(INFERENCE, resamples=99, permutations=99)
"""Enough where results are compared with each other, and no verdict is asked for."""


@functools.cache
def multiverse_of(name):
    """A row's multiverse, computed once."""
    return multiverse(model(name), made(name), inference=FEW)


@pytest.mark.parametrize("name", CASES)
def test_every_row_has_a_multiverse(name):
    """The reference is the measure itself; the summary is that of its specifications."""
    lm, measure = model(name), made(name)
    result = multiverse_of(name)
    base = measure.compute_measurement(lm, measure.read(lm), inference=FEW)
    assert result.reference.name == REFERENCE
    if not (measure.parity_from_control or measure.test_on_unflagged_only):
        assert result.reference.value == base.value
        assert result.reference.interval == base.interval
        assert (result.reference.p and result.reference.p.value) == (base.p and base.p.value)
    values = sorted(specification.value for specification in result.specifications)
    assert result.low == values[0]
    assert result.high == values[-1]
    assert result.low <= result.median <= result.high
    assert result.n >= 1
    assert result.halves == sum(
        "half of" in specification.name for specification in result.specifications
    )
    assert Multiverse.from_json(result.to_json()) == result


def test_templates_layers_and_poolings_are_varied():
    seat = {specification.name for specification in multiverse_of("seat").specifications}
    assert any(name == "layer=1, contexts=own, contexts_per_word=10" for name in seat)
    assert any(name.endswith(" | first half of words") for name in seat)
    lpbs = [specification.name for specification in multiverse_of("lpbs").specifications]
    assert any("templates=GGG is the XXX., pool=rows" in name for name in lpbs)
    nli = multiverse_of("nli_gap")
    assert {specification.name for specification in nli.specifications} == {
        REFERENCE,
        f"{REFERENCE} | first half of occupations",
        f"{REFERENCE} | second half of occupations",
    }


def test_a_default_under_another_name_is_no_second_witness():
    result = multiverse_of("stereotype_score")
    assert [specification.name for specification in result.specifications] == [
        REFERENCE
    ]  # there are no ties


def test_halves_are_cut_within_groups():
    result = multiverse_of("seat")
    halves = [
        specification
        for specification in result.specifications
        if "half of words" in specification.name
    ]
    assert {halve.n for halve in halves} <= {4, 6}  # five words a side: three and two
    assert len(halves) >= 4


def test_a_unit_of_several_groups_is_in_one_half_only():
    """SNLI: a premise has pairs of all three labels."""
    result = multiverse_of("snli")
    halves = [specification.n for specification in result.specifications if specification.half]
    assert sum(halves) == result.reference.n == 80
    assert max(halves) - min(halves) <= 12  # four pairs a premise, three labels


def test_no_evidence_is_not_called_a_conclusion_that_holds():
    result = multiverse(model("crows"), made("crows_margin"), inference=INFERENCE)
    none = result.model_copy(update={
        "reference": result.reference.model_copy(update={"conclusion": "none"}), "share": 0.5
    })  # fmt: skip
    assert "nothing is concluded in 50%" in str(none)
    held = result.model_copy(update={
        "reference": result.reference.model_copy(update={"conclusion": "above parity"}),
        "share": 0.5,
    })  # fmt: skip
    assert "'above parity' holds in 50%" in str(held)


def test_a_layer_is_that_layer():
    lm = model("seat")
    (last,), (middle,) = (made("seat", layer=layer).read(lm) for layer in (2, 1))
    (base,) = made("seat").read(lm)
    assert torch.equal(base.values, last.values)  # BERT has no norm behind its last layer
    assert not torch.equal(base.values, middle.values)


def test_a_conclusion_is_the_sign_where_it_is_significant():
    lm, measure = model("crows"), made("crows_margin")
    full = multiverse(lm, measure, inference=INFERENCE)
    for specification in full.specifications:
        if specification.p.value <= 0.05:
            assert specification.conclusion == (
                "above parity" if specification.value > 0 else "below parity"
            )
        else:
            assert specification.conclusion == "none"
    lax = multiverse(lm, measure, inference=dataclasses.replace(INFERENCE, level=0.05))
    assert {specification.conclusion for specification in lax.specifications} <= {
        "above parity",
        "below parity",
    }


def test_specifications_without_a_number_do_not_hold():
    """Another beginning of the sentence holds words that the tiny model does not know."""
    result = multiverse(model("continuation"), made("continuation"), inference=INFERENCE)
    names = [name for name, _ in result.failed]
    assert "template=The {occupation} went home because, temperature=0.7" in names
    # Four ways of the whole sample: two beginnings, two temperatures; two have no number.
    assert result.n == 4
    full = [specification for specification in result.specifications if not specification.half]
    holding = sum(item.conclusion == result.reference.conclusion for item in full)
    assert len(full) == 2
    assert holding
    assert len(result.specifications) != 4
    assert result.share == holding / 4
    with pytest.raises(NotMeasurableError):
        multiverse(model("crows"), made("crows", empty=True), inference=INFERENCE)


def test_the_command_prints_it(tmp_path):
    folder = zoo.folder("llama", "LlamaForCausalLM")
    texts = tmp_path / "corpus.txt"
    texts.write_text("\n".join(f"the {a} is {b}." for a in ("nurse", "man", "woman", "doctor")
                               for b in ("here", "there", "tired", "quick", "lazy")))  # fmt: skip
    output = tmp_path / "out.json"
    completed = levelhead(
        *("measure", str(folder), "-m", f"ppl:texts={texts}", "--multiverse", "-o", str(output)),
        *("--resamples", "99", "--permutations", "99", "--store", str(tmp_path / "store")),
    )
    assert completed.returncode == 0, completed.stderr
    assert "multiverse of ppl: median" in completed.stdout
    assert json.loads(output.read_text())["multiverses"][0]["measure"] == "ppl"
