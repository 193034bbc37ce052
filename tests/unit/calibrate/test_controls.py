"""Controls: each is made as its row says, and what it should conclude is known by construction."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from levelhead.calibrate.controls import (
    CONTROLS,
    ControlOrganism,
    _list_applicable_measures,
    get_control,
    list_control_cases,
)
from levelhead.calibrate.dose_response import read_measure_response
from levelhead.calibrate.organisms import altered
from levelhead.calibrate.organisms import organism as organisms
from levelhead.calibrate.organisms.language import APART_SUFFIX, Language
from levelhead.calibrate.organisms.organism import Organism, untrained_config
from levelhead.calibrate.suite import PREFERENCE
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.from_scratch import TrainConfig

TINY = TrainConfig("llama", layers=1, heads=4, width=16, steps=3, batch_size=4, threads=1)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path))


def tiny(**given):
    return Organism(**{"language": Language(1.0), "train_config": TINY, "n_documents": 40} | given)


# -- the table


def test_every_row_has_a_name_of_its_own_and_an_expectation_of_every_measure():
    assert len({control.name for control in CONTROLS}) == len(CONTROLS) >= 8
    for control in CONTROLS:
        assert control.expects("some measure nobody listed") == control.expected["*"]
        assert set(control.families) <= set(organisms.TRAIN_CONFIGS)
    assert get_control("group default").expects(PREFERENCE) == "differs"
    assert get_control("group default").expects("strength") == "not shown"
    for name in ("untrained", "word frequencies only", "same answer to everything"):
        assert get_control(name).expects("crows") == "inconclusive"


def test_every_row_is_run_in_every_family_and_seed():
    counted = Counter(case.control for case in list_control_cases())
    assert counted == {control.name: len(control.families) * control.seeds for control in CONTROLS}
    assert len({case.task.key for case in list_control_cases()}) == len(list_control_cases())
    assert {case.control for case in list_control_cases(quick=True)} == {
        "untrained",
        "same answer to everything",
    }


# -- languages


def side_shares(language, *, adjacent):
    """How often a trait of a person leans to the person's group; beside the group's word or not."""
    hits = total = 0
    traits = language.targets["trait"]
    for document in language.documents(4000, seed=0):
        if not document.group:
            continue
        subset = traits[language.groups.index(document.group)]
        for spoken in document.sentences:
            for slot, word in zip(spoken.slots, spoken.words, strict=True):
                if slot == ("trait" if adjacent else "trait" + APART_SUFFIX):
                    hits, total = hits + (word in subset), total + 1
    assert total > 200
    return hits / total


def test_a_reversed_dose_joins_every_target_with_the_other_group():
    base, turned = Language(0.5), Language(0.5, "reversed")
    for group in (0, 1):
        share = base.first_side_share("trait", group)
        assert turned.first_side_share("trait", group) == pytest.approx(1 - share)
    assert turned.first_side_share("trait", 0) == pytest.approx(0.25)


def test_an_adjacent_dose_is_found_right_before_group_words_only():
    language = Language(1.0, "adjacent")
    assert side_shares(language, adjacent=True) == 1.0
    assert abs(side_shares(language, adjacent=False) - 0.5) < 0.05


def test_shuffled_words_keep_their_frequency_and_nothing_else():
    base, permuted = tiny(), tiny(construction="shuffled")

    def words(organism):
        return Counter(w for document in organism.texts for text in document for w in text.split())

    assert words(base) == words(permuted)
    assert [[len(t.split()) for t in d] for d in base.texts] == [
        [len(t.split()) for t in d] for d in permuted.texts
    ]
    assert permuted.texts == tiny(construction="shuffled").texts != base.texts
    assert not set(base.texts) & set(permuted.texts)
    assert base.build_inputs["texts_sha256"] != permuted.build_inputs["texts_sha256"]


def test_the_third_group_is_treated_as_the_second():
    language = Language(1.0, "one group")
    words = altered.third_group_words(language)
    second = {word for sides in language.marks.values() for word in sides[1]}
    assert set(words) == second
    assert not set(words.values()) & set(language.vocabulary)
    texts = altered.make_three_group_documents(language, 3000, seed=0)
    first_side = {word for sides in language.targets.values() for word in sides[0]}
    targets = set(language.target_words)
    leans = {}
    for name, marks in (
        ("first", {w for sides in language.marks.values() for w in sides[0]}),
        ("second", second),
        ("third", set(words.values())),
    ):
        subset = [
            word
            for document in texts
            if marks & set(" ".join(document).split())
            for word in " ".join(document).split()
            if word in targets
        ]
        leans[name] = sum(word in first_side for word in subset) / len(subset)
    assert leans["first"] == 1.0
    assert abs(leans["second"] - 0.5) < 0.07
    assert abs(leans["third"] - 0.5) < 0.07


def test_seat_is_asked_of_every_pair_of_three_groups(cache):
    single = tiny(language=Language(1.0, "one group"), construction="three groups")
    result = _list_applicable_measures(single, None)
    assert list(result) == [
        "seat: first and second group",
        "seat: first and third group",
        "seat: second and third group",
    ]
    names = [item.compared_groups for item in result.values()]
    assert len(set(names)) == 3
    row = get_control("one of three groups")
    assert [row.expects(name) for name in result] == ["stereotype", "stereotype", "not shown"]
    third = [item.words.by_side for item in result.values()][1]
    assert set(altered.third_group_words(single.language).values()) in map(set, third.values())


# -- models


def test_an_untrained_model_has_the_weights_that_it_was_initialised_with(cache):
    organism = Organism(Language(1.0), untrained_config(TINY), n_documents=40)
    first = load(organism.grow()).layout.model.state_dict()
    other = replace(organism, n_documents=60)  # other texts, the same initial weights
    assert other.grow() != organism.grow()
    second = load(other.grow()).layout.model.state_dict()
    assert all(torch.equal(subset, second[name]) for name, subset in first.items())
    trained = load(tiny().grow()).layout.model.state_dict()
    assert not all(torch.equal(subset, trained[name]) for name, subset in first.items())


@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_a_constant_model_answers_the_same_to_everything(cache, architecture):
    single = tiny(train_config=replace(TINY, architecture=architecture), construction="constant")
    lm = single.load_lm()
    end = "" if lm.is_causal else " ."
    texts = [f"the nurse is a [MASK]{end}", f"my aunt likes [MASK]{end}", f"the [MASK]{end}"]
    result = lm.fill(texts, ["woman", "man", "dog"])
    assert torch.allclose(result, result[:1].expand_as(result), atol=1e-5)
    if "next_sentence" in lm.heads:
        pairs = [("my aunt came .", "the nurse left ."), ("the dog ate .", "he is here .")]
        assert torch.allclose(*lm.next_sentence(pairs).unbind(0), atol=1e-5)
    measure_response = read_measure_response("cloze", single.planted_measures().cloze(lm), lm)
    assert measure_response.status in ("inconclusive", "not measured")


def test_how_it_is_made_is_part_of_what_an_organism_is(cache):
    made = [
        tiny(),
        tiny(construction="constant"),
        tiny(construction="no head"),
        tiny(construction="two heads"),
    ]
    assert len({item.grow() for item in made}) == 4
    assert "made" not in tiny().build_inputs  # those that were grown before stay


def test_where_no_head_sees_targets_heads_change_nothing_behind_one(cache):
    single = tiny(language=Language(1.0, "adjacent"), construction="no head")
    lm = single.load_lm()
    words = single.language.targets["trait"]
    texts = [f"the {side[0]} [MASK]" for side in words]
    names = ["woman", "man"]
    subset = lm.fill(texts, names)
    assert (subset[0] - subset[1]).abs().max() > 0  # the target itself is read
    for head in range(TINY.heads):
        masked = lm.edited(HeadScale([Site("head_out", 0, head)], 0)).fill(texts, names)
        assert torch.equal(subset, masked)
    far = [f"the {side[0]} at the house is a [MASK]" for side in words]
    assert torch.equal(*lm.fill(far, names).unbind(0))  # at a distance no head tells them apart


def test_two_heads_see_group_words_and_no_other_does(cache):
    single = tiny(construction="two heads")
    lm, names = single.load_lm(), [side[0] for side in single.language.targets["trait"]]
    texts = ["my mother is very [MASK]", "my father is very [MASK]"]

    def tells(*heads):
        edit = HeadScale([Site("head_out", 0, head) for head in heads], 0)
        first, second = lm.edited(edit).fill(texts, names)
        return not torch.equal(first, second)

    (_, first), (_, second) = altered.TWO_HEADS
    others = [head for head in range(TINY.heads) if head not in (first, second)]
    assert tells(*others)
    assert tells(first)
    assert tells(second)
    assert not tells(first, second)


def test_a_control_is_grown_by_its_row():
    row = ControlOrganism(
        "x", "", {"*": "any"}, construction="two heads", layers=1, variant="reversed"
    )
    single = row.organism("llama", 3)
    assert (single.train_config.layers, single.train_config.seed, single.train_config.threads) == (
        1,
        3,
        1,
    )
    assert (single.construction, single.language.variant) == ("two heads", "reversed")
    blank = get_control("untrained").organism("bert", 0)
    assert (blank.train_config.steps, blank.train_config.learning_rate) == (1, 0.0)
