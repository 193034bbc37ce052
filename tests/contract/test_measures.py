"""One battery over every measure: what each promises, and that none fails silently.

A class of measures asks, its metrics are formulas over the answers: what a model is asked is tried
once per class, by the class's first metric, and formulas are tried for every metric.
"""

import dataclasses
import functools
import math
import secrets

import numpy as np
import pytest
import torch
from metric_cases import CASES, FEMALE, INFERENCE, MALE, THINGS, headless, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Measurement
from levelhead.core.run_context import Inference, RunContext
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.engine.store import open_existing_store
from levelhead.measures import responses as reading
from levelhead.measures.registry import (
    MEASURES,
    make_measure,
    metric_texts,
    parse_measure,
    utility_measures,
)
from levelhead.measures.run import compare, run_measures
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.loading.weight_checksums import record_checksum
from levelhead.models.sites import Site

CLASSES = {make: list(make.metrics) for make in MEASURES.values()}
"""The metrics of every class of measures."""
every = pytest.mark.parametrize("name", list(metric_texts()))
every_class = pytest.mark.parametrize("name", [names[0] for names in CLASSES.values()])
FEW = dataclasses.replace(INFERENCE, resamples=99, permutations=99)
"""Where no digit of an interval or a p-value is compared."""

shared_model = functools.cache(model)
"""A model that no test changes."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """What the tiny models have said: metrics of a class find it here."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def measured(store):
    """Each row's measurement on its tiny case, computed once."""
    stored = {}

    def of(name):
        if name not in stored:
            measure, lm = made(name), shared_model(name)
            result = measure.read(lm, context=RunContext(store=store))
            stored[name] = (
                measure,
                lm,
                result,
                measure.compute_measurement(lm, result, inference=INFERENCE),
            )
        return stored[name]

    return of


def test_every_metric_has_a_case_and_a_name_of_its_own():
    assert sorted(CASES) == sorted(name for names in CLASSES.values() for name in names)


@pytest.mark.parametrize("names", [names for names in CLASSES.values() if len(names) > 1])
def test_metrics_of_a_class_are_read_once(names, measured, store, monkeypatch):
    _, lm, result, _ = measured(names[0])
    monkeypatch.setattr(type(lm), "run_rows", None)
    for name in names[1:]:
        for single, other in zip(
            result, made(name).read(lm, context=RunContext(store=store)), strict=True
        ):
            assert torch.equal(other.values, single.values)


# -- what a measure promises


@every
def test_it_says_what_its_number_means(name, measured):
    bias_measure, _, _, result = measured(name)
    head = bias_measure.primary_metric
    assert result.measure == name == head.name
    assert head.equation
    assert head.unit == result.unit != ""
    assert head.direction == result.direction != ""
    assert result.comparability_key.startswith(head.comparability_key)
    assert head.low <= result.value <= head.high
    assert bias_measure.needs
    assert head.smooth_surrogate is None or head.smooth_surrogate in metric_texts()
    if result.parity is not None:
        assert result.p is not None
        if result.precision.min_p > 0.05:  # four terms: no rearrangement of them is rare enough
            assert result.detectable is None
            assert decide_measure_verdict(result).status == "inconclusive"
        else:
            assert result.detectable > 0


@every
def test_either_side_of_parity_is_told_in_words(name, measured):
    measure, _, _, result = measured(name)
    for aspect in measure.ordered_metrics:
        tested = aspect.parity is not None or aspect.signed_part is not None
        if tested or (aspect is measure.primary_metric and measure.parity_from_control):
            assert aspect.above
            assert aspect.below or aspect.low >= (aspect.parity or 0.0)
            assert aspect.above != aspect.below
    if result.parity is None:
        assert result.above == result.below == ""
    else:
        assert result.above
        assert result.below or measure.primary_metric.low >= result.parity
        assert result.above != result.below


@every_class
def test_it_shows_its_items_unless_they_are_confidential(name, measured):
    measure, lm, read, result = measured(name)
    values = {row.item: row.value for row in result.per_item_values}
    details = {detail.item: detail for detail in result.item_details}
    assert details.keys() == values.keys()
    given = {item.id: item for item in read[0].items}
    for item, detail in details.items():
        assert detail.group == given[item].group
        assert 1 <= len(detail.queries) <= len(given[item].queries)
        for query in detail.queries:
            assert query.text.strip()
            assert bool(query.responses) == (read[0].query_kind != "embed")
    confidential = measure.compute_measurement(
        lm, read, inference=INFERENCE, context=RunContext(record_items=False)
    )
    assert confidential == result.without_items()
    assert confidential.item_details == ()
    assert Measurement.from_json(result.to_json()) == result


def test_sides_are_named_by_the_lexicon(measured):
    measure, _, _, result = measured("seat")
    a, b = (side.stereotyped_group for side in measure.resolved_lexicon.targets("things").sides)
    assert result.above.startswith(f"things stereotyped as {a} sit closer to {a} words than to {b}")
    assert result.below.startswith(f"things stereotyped as {b} sit closer to {a} words than to {b}")
    turned = dataclasses.replace(measure, groups=tuple(reversed(measure.compared_groups)))
    assert turned.describe_direction() != measure.describe_direction()
    assert (
        make_measure("seat", weat_test="weat6")
        .describe_direction()[0]
        .startswith('"male_names" sit closer to "career" than to "family"')
    )


@every
def test_no_number_without_interval_n_and_provenance(name, measured):
    measure, lm, _, result = measured(name)
    for entry in (result, *result.extras):
        assert entry.interval.low <= entry.interval.high
        assert math.isfinite(entry.interval.low)
        assert entry.n >= 1
    query_set = [item for item in measure.queries(lm)[0].items if measure.is_sampled(item)]
    assert result.n_items == len(query_set)
    assert result.provenance.model_hash == lm.content_hash
    assert result.provenance.data
    assert result.provenance.settings["measure"]


@every
def test_per_item_values_reduce_to_the_value(name, measured):
    measure, _, outcome, result = measured(name)
    values = measure.primary_metric.per_item_values(outcome[0])
    design = measure.design(outcome[0], measure.primary_metric)
    assert float(measure.primary_metric.aggregate(values, design.full_sample)) == result.value
    shown = values if values.dim() == 1 else values[:, 0]
    subset = dict(result.per_item_values)
    stored = measure.select_sampled(outcome[0]).items
    assert [subset[item.id] for item in stored] == shown.tolist()


@every
def test_a_share_asks_a_part_of_the_same(name, measured, store):
    measure, lm, _, result = measured(name)
    part = dataclasses.replace(measure, subsample_fraction=0.6)
    subset = [item.id for item in part.queries(lm)[0].items]
    assert set(subset) < {item.id for item in measure.queries(lm)[0].items}
    try:
        some = part.compute_measurement(
            lm, part.read(lm, context=RunContext(store=store)), inference=FEW
        )
    except NotMeasurableError:
        return  # too few are left, and nothing stands in for a number
    assert 0 < some.n < result.n
    assert some.population == result.population == result.n_items
    assert some.sampled_fraction < result.sampled_fraction
    assert some.comparability_key != result.comparability_key
    if not measure.parity_from_control:
        full = dict(result.per_item_values)
        assert all(
            value == pytest.approx(full[item], abs=1e-5) for item, value in some.per_item_values
        )


@every
def test_json_reads_back(name, measured):
    result = measured(name)[3]
    assert Measurement.from_json(result.to_json()) == result


@every
def test_the_seed_decides_and_nothing_else_does(name, measured):
    measure, lm, outcome, result = measured(name)
    assert (
        measure.compute_measurement(lm, outcome, inference=INFERENCE).to_json() == result.to_json()
    )
    other = measure.compute_measurement(
        lm, outcome, inference=dataclasses.replace(INFERENCE, seed=2)
    )
    assert other.value == result.value
    assert other.provenance.seed == 2
    output = [(item.interval, item.p) for item in (other, *other.extras)]
    assert output != [(item.interval, item.p) for item in (result, *result.extras)]


@every
def test_another_seed_runs_no_forward(name, measured, store, monkeypatch):
    measure, lm, result, _ = measured(name)
    measure.assess_skill(lm, result[0], context=RunContext(store=store))
    monkeypatch.setattr(type(lm), "run_rows", None)
    again = measure(
        lm, inference=dataclasses.replace(FEW, seed=5, level=0.9), context=RunContext(store=store)
    )
    assert again.interval.level == 0.9


@every_class
def test_batch_size_and_order_change_nothing(name, measured):
    measure, _, result, _ = measured(name)
    for size in (1, 7, 64):
        lm = model(name, batch_size=size)
        again = measure.read(lm)
        for single, other in zip(result, again, strict=True):
            torch.testing.assert_close(other.values, single.values, rtol=1e-5, atol=1e-6)
        for metric in CLASSES[type(measure)]:
            value = float(made(metric).reduce(again[0]))
            assert value == pytest.approx(measured(metric)[3].value, rel=1e-5), metric
    query_set = measure.queries(lm)
    rng = np.random.default_rng(3)
    shuffled = [
        item._replace(items=tuple(item.items[i] for i in rng.permutation(len(item.items))))
        for item in query_set
    ]
    for single, other in zip(
        again,
        reading.read_responses(lm, shuffled, context=RunContext(store="memory://other")),
        strict=True,
    ):
        order = {item.id: i for i, item in enumerate(other.items)}
        places = [order[item.id] for item in single.items]
        assert torch.equal(other.values[places], single.values)


@every
def test_the_gradient_is_there_or_refused(name, measured):
    measure, _, result, _ = measured(name)
    head = measure.primary_metric
    if head.is_step:
        assert not parse_measure(metric_texts()[head.smooth_surrogate]).primary_metric.is_step
        wanted = dataclasses.replace(result[0], values=result[0].values.clone().requires_grad_())
        with pytest.raises(LevelheadError, match=f"take the gradient of {head.smooth_surrogate}"):
            measure.reduce(wanted)
        return
    leaf = result[0].values.clone().requires_grad_()
    value = measure.reduce(dataclasses.replace(result[0], values=leaf))
    assert value.dtype == torch.float64
    (gradient,) = torch.autograd.grad(value, leaf)
    assert gradient.isfinite().all()
    way = torch.randn(leaf.shape, dtype=torch.float64, generator=torch.manual_seed(0))
    steps = [
        float(measure.reduce(dataclasses.replace(result[0], values=result[0].values + h * way)))
        for h in (1e-6, -1e-6)
    ]
    numeric = (steps[0] - steps[1]) / 2e-6
    assert numeric != 0
    assert float((gradient * way).sum()) == pytest.approx(numeric, rel=1e-4)


def test_the_batch_size_of_a_model_is_part_of_what_is_stored(tmp_path):
    measure = made("strength")
    measure.read(model("strength"), context=RunContext(store=tmp_path))
    before = len(list(open_existing_store(tmp_path)))
    measure.read(model("strength", batch_size=3), context=RunContext(store=tmp_path))
    assert len(list(open_existing_store(tmp_path))) == 2 * before


# -- faults: each is an error that says the mend, never a number


def fresh():
    """A store of its own: these models are broken behind their hashes."""
    return f"memory://{secrets.token_hex(8)}"


def nan_logits(name, measured):
    lm = model(name)
    with torch.no_grad():
        # Not the queries: sdpa on the CPU makes finite numbers of queries that are none.
        for parameter in lm.layout.blocks[-1].parameters():
            parameter.fill_(math.nan)
    record_checksum(lm.layout.model)  # the check of changed weights would come first
    return lambda: made(name)(lm, inference=FEW, context=RunContext(store=fresh()))


def empty_data(name, measured):
    return lambda: made(name, empty=True)(shared_model(name), inference=FEW)


def all_items_dropped(name, measured):
    long = "the " * 70 + "nurse"
    return lambda: made(name, word=long)(shared_model(name), inference=FEW)


def out_of_vocabulary_words(name, measured):
    unknown = (*THINGS, *FEMALE, *MALE)
    lm = model(name)
    object.__setattr__(lm, "tokens", _forgetful(lm.tokens, unknown))
    return lambda: made(name)(lm, inference=FEW, context=RunContext(store=fresh()))


def _forgetful(tokens, words):
    """The same tokens with some words unknown."""
    import tokenizers

    state = tokens.tokenizer.backend_tokenizer.to_str()
    for i, word in enumerate(words):
        state = state.replace(f'"{word}":', f'"gone{i}":')
    fast = type(tokens.tokenizer)(
        tokenizer_object=tokenizers.Tokenizer.from_str(state),
        **{
            key: getattr(tokens.tokenizer, key)
            for key in ("pad_token", "cls_token", "sep_token", "mask_token", "unk_token")
            if getattr(tokens.tokenizer, key)
        },
    )
    return dataclasses.replace(tokens, tokenizer=fast)


def missing_head(name, measured):
    lm = headless(name)
    if lm is None:  # it needs none; then the head that is missing is one of attention
        return lambda: shared_model(name).edited(HeadScale([Site("head_out", 0, 99)], 0))
    return lambda: made(name)(lm, inference=FEW)


def ignored_edit(name, measured):
    lm = shared_model(name)
    same = HeadScale([Site("head_out", 0, 0)], 1.0)
    return lambda: compare(made(name), lm, lm.edited(same), inference=FEW)


def tied_groups(name, measured):
    measure, lm, result, _ = measured(name)
    level = [
        dataclasses.replace(item, values=torch.full_like(item.values, -2.0), texts=same_text(item))
        for item in result
    ]
    return lambda: measure.compute_measurement(lm, level, inference=FEW)


def one_answer_to_all(name, measured):
    """A model that does not read what it is asked."""
    measure, lm, result, _ = measured(name)
    same = [
        dataclasses.replace(item, values=item.values[:1, :1].expand_as(item.values).clone())
        if item.values.dim() == 3
        else dataclasses.replace(item, values=item.values[:1].expand_as(item.values).clone())
        for item in result
    ]
    same = [dataclasses.replace(item, texts=same_text(item)) for item in same]
    return lambda: measure.compute_measurement(lm, same, inference=FEW)


def same_text(responses):
    """Of responses that are texts: the first one, everywhere."""
    return tuple(tuple(responses.texts[0][0] for _ in texts) for texts in responses.texts)


FAULTS = {
    "NaN logits": (nan_logits, "NaN or infinity"),
    "empty data": (empty_data, "nothing to query|no words|no item|speak|no context"),
    "all items dropped": (all_items_dropped, "could be read|nothing to query"),
    "out-of-vocabulary words": (out_of_vocabulary_words, "could be read|knows no word|lacks"),
    "a missing head": (missing_head, "does not hold|head_out 0.99 does not exist|no head"),
    "an ignored edit": (ignored_edit, "same answer to every query"),
}
"""Of what is asked and answered."""
SAME = {"tied groups": tied_groups, "one answer to all": one_answer_to_all}
"""Answers of which a formula can make nothing."""


def check_refused(broken, output):
    with pytest.raises(LevelheadError, match=output) as error:
        broken()
    assert error.value.hint


@every_class
@pytest.mark.parametrize("fault", list(FAULTS))
def test_it_fails_closed(name, fault, measured):
    broken, output = FAULTS[fault]
    check_refused(broken(name, measured), output)


@every
@pytest.mark.parametrize("fault", list(SAME))
def test_formulas_fail_closed(name, fault, measured):
    check_refused(SAME[fault](name, measured), "same value|equal|two groups|no direction|spread")


@every_class
def test_a_damaged_or_interrupted_store_gives_the_same_bytes(name, tmp_path):
    measure, lm = made(name), shared_model(name)
    first = measure(lm, inference=FEW, context=RunContext(store=tmp_path)).to_json()
    files = [path for path in (tmp_path / "units").rglob("*") if path.is_file()]
    assert files
    files[0].write_bytes(files[0].read_bytes()[:-9])
    (tmp_path / "tmp").mkdir(exist_ok=True)
    (tmp_path / "tmp" / "half").write_bytes(b"half a file")
    for path in files[1:]:
        path.unlink()
    assert (
        measure(model(name), inference=FEW, context=RunContext(store=tmp_path)).to_json() == first
    )


def test_a_missing_head_is_named_before_anything_is_read():
    with pytest.raises(MissingHeadError, match="next_sentence"):
        made("strength")(headless("strength"))


def test_a_failure_in_one_measure_fails_the_run():
    with pytest.raises(LevelheadError):
        run_measures(
            model("crows"), [made("crows"), made("strength", empty=True)], inference=INFERENCE
        )


def test_no_readouts_are_no_measurement():
    measure = made("crows")
    result = measure.read(model("crows"))
    with pytest.raises(NotMeasurableError, match="no item is left"):
        result[0].select(lambda item: False)


def test_measures_that_ask_the_same_are_asked_once(tmp_path, monkeypatch):
    lm = model("cloze")
    seen = []
    answer = type(lm).run_rows
    monkeypatch.setattr(
        type(lm), "run_rows", lambda *a, **k: (seen.append(len(a[2])), answer(*a, **k))[1]
    )
    three = [made(name) for name in ("cloze", "cloze_probability", "cloze_relative")]
    for item in (three[0], three[2]):  # the second asks what the first does, of skills too
        item.assess_skill(lm, context=RunContext(store=tmp_path / "one"))
    alone = sum(seen)
    seen.clear()
    result = run_measures(
        lm, three, inference=INFERENCE, context=RunContext(store=tmp_path / "three")
    )
    assert sum(seen) == alone
    assert [measurement.p.family for measurement in result.measurements] == [3, 3, 3]
    assert all(measurement.p.adjusted >= measurement.p.value for measurement in result.measurements)


@pytest.mark.parametrize(
    "options", [{"seed": -1}, {"resamples": 9}, {"permutations": 0}, {"level": 1.5}, {"level": 1}]
)
def test_chance_that_cannot_be_judged_is_refused_before_anything_is_read(options):
    with pytest.raises(LevelheadError, match="no interval or p-value can be computed"):
        Inference(**options)


@pytest.mark.parametrize("name", sorted(utility_measures()))
def test_nothing_is_tested_of_a_utility(name):
    """Verdicts rest on it: what has no test needs no skill beside it."""
    result = made(name)(model(name), inference=INFERENCE)
    assert (result.p, result.parity, result.skill) == (None, None, None)
    assert decide_measure_verdict(result).status == "no test"
