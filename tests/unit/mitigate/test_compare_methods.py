"""The table of methods: chosen on one half, tested on the other; what each verdict rests on."""

from dataclasses import replace

import pytest

from levelhead.calibrate.edits import draw_neutral_sentences
from levelhead.calibrate.locators import VISIBLE_HEAD, make_full_contrast
from levelhead.calibrate.organisms.language_pairs import (
    make_planted_pairs,
    make_planted_placebo_pairs,
)
from levelhead.calibrate.organisms.organism import make_organism
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference
from levelhead.measures.edit_sweep import read_needed
from levelhead.measures.utility.perplexity import Perplexity
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.mitigate.selection.compare_methods import (
    NO_TRAINING_PLACEBOS,
    MethodComparison,
    compare_methods,
    make_head_placebos,
)
from levelhead.mitigate.selection.method_settings import EDIT_METHODS
from levelhead.mitigate.selection.method_table import MethodResult, MethodTable
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site

FEW = Inference(resamples=99, permutations=99)


@pytest.fixture(scope="module")
def organism():
    return make_organism("gpt2", 1.0, visible_head=VISIBLE_HEAD, quick=True)


def make_comparison(organism, label_seed=None, **options):
    measures = organism.planted_measures(label_seed=label_seed)
    contrast = replace(make_full_contrast(organism), triples=measures.make_triples())
    return MethodComparison(
        contrast,
        make_planted_pairs(organism.language),
        other_contrasts=make_planted_placebo_pairs(organism.language),
        n_placebos=19,
        **options,
    )


@pytest.fixture(scope="module")
def table(organism):
    """About 8 s of one model: every method but those that need more pairs or a dictionary."""
    lm = organism.load_lm().with_batch_size(256)
    comparison = make_comparison(
        organism,
        utility_measures=(Perplexity(texts=draw_neutral_sentences(organism)),),
        knowledge_measures=organism.planted_knowledge()[:1],
        methods=("mask heads", "projection", "LEACE", "feature ablation"),
    )
    masked = lm.edited(mask_heads([Site("head_out", *VISIBLE_HEAD)]))
    return compare_methods(lm, comparison, variants={"trained": masked}, inference=FEW)


def test_every_method_is_tested_once_on_the_other_half(table):
    assert [row.method for row in table.methods] == [
        *("mask heads", "projection", "LEACE", "feature ablation", "trained")
    ]
    assert "found on one half of the words" in table.claim
    for row in table.methods[1:3]:
        assert row.gain.value > 0.5 * abs(table.base.value)
        assert row.gain.interval.low > 0
        assert len(row.placebo.placebo_gains) == 19
        assert row.placebo.gain.value == pytest.approx(row.gain.value)
        assert row.setting == "block_out 0"
    # The only head that sees the groups: there are fewer others than placebos.
    masked, trained = table.methods[0], table.methods[4]
    assert masked.gain.value == pytest.approx(trained.gain.value)
    assert masked.placebo.outcome == "untestable: too few placebos"
    assert trained.missing == (("placebo", NO_TRAINING_PLACEBOS),)
    assert trained.knowledge.lost == ("definitional_gender",)
    assert trained.verdict == masked.verdict == "reduces bias, knowledge lost"
    # An empty cell has its reason.
    features = table.methods[3]
    assert features.missing == (("all", "no dictionary of this model"),)
    assert (features.gain, features.verdict) == (None, "not shown")


def test_the_table_comes_back_and_has_a_row_for_each_method(table):
    assert MethodTable.from_json(table.to_json()) == table
    rows = table.to_rows()
    assert [row["method"] for row in rows] == [row.method for row in table.methods]
    assert all(row["cost"] is not None for row in rows if row["gain"] is not None)


def test_with_labels_at_random_nothing_is_shown(organism):
    lm = organism.load_lm().with_batch_size(256)
    comparison = make_comparison(organism, label_seed=0, methods=("LEACE", "mean matching"))
    result = compare_methods(lm, comparison, inference=FEW)
    assert [row.verdict for row in result.methods] == ["not shown", "not shown"]


def draft(gain=(1.0, 0.5), outcome="mitigates", cost=(0.0, 0.05), lost=(), table=None):
    """A row with numbers that decide the verdict, from those of a real one."""
    real = next(row for row in table.methods if row.method == "LEACE")
    interval = real.gain.interval.model_copy(update={"low": gain[1]})
    placebo = real.placebo.model_copy(
        update={
            "mitigates": outcome == "mitigates",
            "effective_placebos": 1.0 if outcome == "dependent" else 19.0,
        }
    )
    price = real.price[0]
    base = price.first.value
    change = price.difference.model_copy(
        update={
            "value": cost[0] * base,
            "interval": price.difference.interval.model_copy(
                update={"low": cost[0] * base, "high": cost[1] * base}
            ),
        }
    )
    knowledge = real.knowledge
    return real.model_copy(
        update={
            "gain": real.gain.model_copy(update={"value": gain[0], "interval": interval}),
            "placebo": None if outcome is None else placebo,
            "price": (price.model_copy(update={"difference": change}),),
            "knowledge": knowledge if lost else None,
        }
    )


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "works"),
        ({"gain": (1.0, -0.1)}, "not shown"),
        ({"outcome": "not shown"}, "not shown"),
        ({"outcome": "dependent"}, "reduces bias, placebos not compared"),
        ({"outcome": None}, "reduces bias, placebos not compared"),
        ({"cost": (0.2, 0.4)}, "costs too much"),
        ({"cost": (0.05, 0.4)}, "reduces bias, price not shown to be small"),
        ({"lost": True}, "reduces bias, knowledge lost"),
        ({"lost": True, "cost": (0.2, 0.4)}, "costs too much"),
    ],
)
def test_a_verdict_names_what_is_missing(changes, verdict, table):
    assert draft(**changes, table=table).verdict == verdict


def test_placebos_of_heads_are_other_heads_each_once(organism):
    lm = organism.load_lm()
    heads = [Site("head_out", 0, 0), Site("head_out", 1, 1)]
    single = make_head_placebos(lm, HeadScale(heads[:1], 0.5), 99, seed=0)
    n_heads = lm.layout.layers * lm.layout.heads
    assert len(single) == len({edit.sites for (edit,) in single}) == n_heads - 1
    several = make_head_placebos(lm, HeadScale(heads, 0.5), 30, seed=0)
    assert several[:5] == make_head_placebos(lm, HeadScale(heads, 0.5), 5, seed=0)
    for (edit,) in (*single, *several):
        assert heads[0] not in edit.sites
        assert edit.factor == 0.5
        assert len(set(edit.sites)) == len(edit.sites)


def test_items_that_the_metric_does_not_need_are_not_read(organism):
    lm = organism.load_lm()
    measure = make_comparison(organism).measure
    everything = measure.read(lm)[0]
    kept = frozenset(item.id for item in everything.items[::2])
    (part,) = read_needed(lm, measure, [()], items=kept)
    assert {item.id for item in part.items} == kept


def test_wrong_names_and_too_few_placebos_are_refused(organism):
    with pytest.raises(LevelheadError, match="no method named 'prayer'"):
        make_comparison(organism, methods=("prayer",))
    with pytest.raises(LevelheadError, match="5 placebos"):
        replace(make_comparison(organism), n_placebos=5)
    assert len(EDIT_METHODS) == 10
    assert MethodResult(method="x").verdict == "not shown"
