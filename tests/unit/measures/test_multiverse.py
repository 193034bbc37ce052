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
    lm, ruler = model(name), made(name)
    found = multiverse_of(name)
    plain = ruler.compute_measurement(lm, ruler.read(lm), inference=FEW)
    assert found.reference.name == REFERENCE
    if not (ruler.parity_from_control or ruler.test_on_unflagged_only):
        assert found.reference.value == plain.value
        assert found.reference.interval == plain.interval
        assert (found.reference.p and found.reference.p.value) == (plain.p and plain.p.value)
    values = sorted(one.value for one in found.specifications)
    assert found.low == values[0]
    assert found.high == values[-1]
    assert found.low <= found.median <= found.high
    assert found.n >= 1
    assert found.halves == sum("half of" in one.name for one in found.specifications)
    assert Multiverse.from_json(found.to_json()) == found


def test_templates_layers_and_poolings_are_varied():
    seat = {one.name for one in multiverse_of("seat").specifications}
    assert any(name == "layer=1, contexts=own, contexts_per_word=10" for name in seat)
    assert any(name.endswith(" | first half of words") for name in seat)
    lpbs = [one.name for one in multiverse_of("lpbs").specifications]
    assert any("templates=GGG is the XXX., pool=rows" in name for name in lpbs)
    nli = multiverse_of("nli_gap")
    assert {one.name for one in nli.specifications} == {
        REFERENCE,
        f"{REFERENCE} | first half of occupations",
        f"{REFERENCE} | second half of occupations",
    }


def test_a_default_under_another_name_is_no_second_witness():
    found = multiverse_of("stereotype_score")
    assert [one.name for one in found.specifications] == [REFERENCE]  # there are no ties


def test_halves_are_cut_within_groups():
    found = multiverse_of("seat")
    halves = [one for one in found.specifications if "half of words" in one.name]
    assert {one.n for one in halves} <= {4, 6}  # five words a side: three and two
    assert len(halves) >= 4


def test_a_unit_of_several_groups_is_in_one_half_only():
    """SNLI: a premise has pairs of all three labels."""
    found = multiverse_of("snli")
    halves = [one.n for one in found.specifications if one.half]
    assert sum(halves) == found.reference.n == 80
    assert max(halves) - min(halves) <= 12  # four pairs a premise, three labels


def test_no_evidence_is_not_called_a_conclusion_that_holds():
    found = multiverse(model("crows"), made("crows_margin"), inference=INFERENCE)
    none = found.model_copy(update={
        "reference": found.reference.model_copy(update={"conclusion": "none"}), "share": 0.5
    })  # fmt: skip
    assert "nothing is concluded in 50%" in str(none)
    held = found.model_copy(update={
        "reference": found.reference.model_copy(update={"conclusion": "above parity"}),
        "share": 0.5,
    })  # fmt: skip
    assert "'above parity' holds in 50%" in str(held)


def test_a_layer_is_that_layer():
    lm = model("seat")
    (last,), (middle,) = (made("seat", layer=layer).read(lm) for layer in (2, 1))
    (plain,) = made("seat").read(lm)
    assert torch.equal(plain.values, last.values)  # BERT has no norm behind its last layer
    assert not torch.equal(plain.values, middle.values)


def test_a_conclusion_is_the_sign_where_it_is_significant():
    lm, ruler = model("crows"), made("crows_margin")
    whole = multiverse(lm, ruler, inference=INFERENCE)
    for one in whole.specifications:
        if one.p.value <= 0.05:
            assert one.conclusion == ("above parity" if one.value > 0 else "below parity")
        else:
            assert one.conclusion == "none"
    lax = multiverse(lm, ruler, inference=dataclasses.replace(INFERENCE, level=0.05))
    assert {one.conclusion for one in lax.specifications} <= {"above parity", "below parity"}


def test_specifications_without_a_number_do_not_hold():
    """Another beginning of the sentence holds words that the tiny model does not know."""
    found = multiverse(model("continuation"), made("continuation"), inference=INFERENCE)
    names = [name for name, _ in found.failed]
    assert "template=The {occupation} went home because, temperature=0.7" in names
    # Four ways of the whole sample: two beginnings, two temperatures; two have no number.
    assert found.n == 4
    whole = [one for one in found.specifications if not one.half]
    holding = sum(one.conclusion == found.reference.conclusion for one in whole)
    assert len(whole) == 2
    assert holding
    assert len(found.specifications) != 4
    assert found.share == holding / 4
    with pytest.raises(NotMeasurableError):
        multiverse(model("crows"), made("crows", empty=True), inference=INFERENCE)


def test_the_command_prints_it(tmp_path):
    folder = zoo.folder("llama", "LlamaForCausalLM")
    texts = tmp_path / "corpus.txt"
    texts.write_text("\n".join(f"the {a} is {b}." for a in ("nurse", "man", "woman", "doctor")
                               for b in ("here", "there", "tired", "quick", "lazy")))  # fmt: skip
    output = tmp_path / "out.json"
    told = levelhead(
        *("measure", str(folder), "-m", f"ppl:texts={texts}", "--multiverse", "-o", str(output)),
        *("--resamples", "99", "--permutations", "99", "--store", str(tmp_path / "store")),
    )
    assert told.returncode == 0, told.stderr
    assert "multiverse of ppl: median" in told.stdout
    assert json.loads(output.read_text())["multiverses"][0]["measure"] == "ppl"
