"""Activation patching: equal to plain hooks, linear where it says so, and what twins are."""

from dataclasses import replace

import pytest
import torch
import zoo

from levelhead.calibrate.organisms.language import Language
from levelhead.calibrate.organisms.organism import Organism
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.records import MinimalPair
from levelhead.engine.events import TaskStored
from levelhead.locate.patching.interchange import (
    Patch,
    compute_attributions,
    run_interchanges,
)
from levelhead.locate.patching.mediation import MediationConfig, list_parts, mediate
from levelhead.locate.patching.mediation_map import MediationMap
from levelhead.locate.patching.paths import Path, estimate_path_effects, run_paths
from levelhead.locate.patching.read_patches import attribute_patches, read_patches
from levelhead.locate.patching.twins import make_twins
from levelhead.measures.likelihood.crows import Crows
from levelhead.measures.responses import build_query
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.from_scratch import TrainConfig

FEW = Inference(resamples=99)
TEXTS = ["the nurse said that she was tired .", "a doctor works here .", "the man is a nurse ."]
TWINS = ["the doctor said that she was tired .", "a nurse works here .", "the man is a doctor ."]


def loaded(family, dtype="float64"):
    name = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}
    return load(zoo.folder(family, name[family]), dtype=dtype)


def scored(lm, texts):
    query, dropped = build_query(lm, "score", [(text, None) for text in texts], {})
    assert not dropped
    return query.query


def filled(lm, texts):
    """Log-probabilities of pronouns after each text."""
    blanks = [(f"{text.removesuffix(' .')} and [MASK]",) for text in texts]
    return build_query(lm, "fill", blanks, {"words": ["he", "she"]})[0].query


def literal(lm, text, twin, site):
    """The score of a text by plain hooks: a head's columns, or a layer's, are those of the twin."""
    module, side, _ = lm.layout.hook_point(site.stream, site.layer)
    width = lm.layout.head_dim
    columns = (
        slice(None) if site.head is None else slice(site.head * width, site.head * width + width)
    )
    kept = []

    def exchange(x):
        if not kept_is_ready:
            kept.append(x.clone())
            return x
        x = x.clone()
        x[..., columns] = kept.pop(0)[..., columns]
        return x

    if side == "input":
        hook = module.register_forward_pre_hook(lambda _, given: (exchange(given[0]), *given[1:]))
    else:
        hook = module.register_forward_hook(lambda _, given, output: exchange(output))
    try:
        kept_is_ready = False
        lm.run(scored(lm, [twin]))
        kept_is_ready = True
        return float(lm.run(scored(lm, [text]))[0, 0])
    finally:
        hook.remove()


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_a_patch_is_that_of_plain_hooks(family):
    lm = loaded(family)
    sites = [Site("head_out", 0, 1), Site("head_out", 2, 3), Site("mlp_out", 1)]
    patches = [Patch((site,), way) for site in sites for way in ("indirect", "direct")]
    values = run_interchanges(lm, scored(lm, TEXTS), scored(lm, TWINS), patches)
    assert torch.equal(values[0], lm.run(scored(lm, TEXTS)))
    assert torch.equal(values[1], lm.run(scored(lm, TWINS)))
    for number, patch in enumerate(patches):
        (site,) = patch.sites
        for i, pair in enumerate(zip(TEXTS, TWINS, strict=True)):
            ends = pair if patch.direction == "indirect" else pair[::-1]
            wanted = literal(lm, *ends, site)
            assert float(values[2 + number, i, 0]) == pytest.approx(wanted, abs=1e-12)
            assert wanted != float(values[0 if patch.direction == "indirect" else 1, i, 0])


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_everything_exchanged_is_the_twin(family):
    lm = loaded(family)
    # Words in a blank: the text and its twin read the same tokens.
    query, twin = (filled(lm, texts) for texts in (TEXTS, TWINS))
    last = Site("block_out", lm.layout.layers - 1)
    every = tuple(list_parts(lm, ("heads", "mlp", "embeddings")))
    values = run_interchanges(lm, query, twin, [Patch((last,)), Patch(every)])
    assert torch.allclose(values[2], values[1], atol=1e-12)
    assert torch.allclose(values[3], values[1], atol=1e-12)
    # Where no token differs nothing differs below the first attention.
    same = run_interchanges(lm, query, twin, [Patch((Site("embeddings"),))], tokens="others")
    assert torch.equal(same[2], same[0])
    differs = run_interchanges(lm, query, twin, [Patch((Site("embeddings"),))], tokens="exchanged")
    assert torch.allclose(differs[2], differs[1], atol=1e-12)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_an_attribution_is_the_derivative_of_the_mixture(family):
    lm = loaded(family)
    query, twin = scored(lm, TEXTS), scored(lm, TWINS)
    shapes = {"head_out": (lm.layout.layers, lm.layout.heads), "mlp_out": (lm.layout.layers, 1)}
    cotangents = torch.ones(len(query.rows), 1, dtype=torch.float64)
    found = compute_attributions(lm, query, twin, cotangents, shapes).sum(0)
    for column, site in enumerate(list_parts(lm, ("heads", "mlp"))):
        if column % 3:
            continue
        ends = [mixed(lm, query, twin, site, step) for step in (1e-4, -1e-4)]
        slope = (ends[0] - ends[1]) / 2e-4
        assert float(found[column]) == pytest.approx(slope, rel=1e-4, abs=1e-8)


def mixed(lm, query, twin, site, share):
    """The summed score with a site that is moved a little towards its twin."""
    module, side, _ = lm.layout.hook_point(site.stream, site.layer)
    width = lm.layout.head_dim
    columns = (
        slice(None) if site.head is None else slice(site.head * width, site.head * width + width)
    )
    total = 0.0
    for i in range(len(query.rows)):
        kept = []

        def move(x, kept=kept):
            if not kept:
                kept.append(x.clone())
                return x
            x = x.clone()
            x[..., columns] += share * (kept[0] - x)[..., columns]
            return x

        if side == "input":
            hook = module.register_forward_pre_hook(lambda _, given: (move(given[0]), *given[1:]))
        else:
            hook = module.register_forward_hook(lambda _, given, output: move(output))
        try:
            lm.run_rows(twin, [i])
            total += float(lm.run_rows(query, [i]).values.sum())
        finally:
            hook.remove()
    return total


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_all_paths_of_a_sender_to_heads_and_mlps_are_those_of_plain_hooks(family):
    lm = loaded(family)
    query, twin = scored(lm, TEXTS), scored(lm, TWINS)
    paths = [
        Path(Site("head_out", 0, 1), Site("head_out", 1, 2)),
        Path(Site("head_out", 0, 1), Site("head_out", 2, 2)),
        Path(Site("embeddings"), Site("mlp_out", 1)),
        Path(Site("mlp_out", 0), Site("mlp_out", 2)),
    ]
    values = run_paths(lm, query, twin, paths)
    assert torch.equal(values[0], lm.run(query))
    for number, path in enumerate(paths):
        for i, (text, other) in enumerate(zip(TEXTS, TWINS, strict=True)):
            wanted = literal_path(lm, text, other, path)
            assert float(values[1 + number, i, 0]) == pytest.approx(wanted, abs=1e-12)
            assert wanted != float(values[0, i, 0])


def literal_path(lm, text, other, path):
    """Two runs by hand: everything that is neither sender nor receiver is pinned to the text's."""
    kept = {}

    def record(name):
        return lambda site, x: kept.__setitem__((name, site), x.clone())

    parts = [Site("embeddings"), *(Site(s, n) for n in range(3) for s in ("head_out", "mlp_out"))]
    hooked(lm, text, {site: record("text") for site in parts})
    hooked(lm, other, {site: record("twin") for site in parts})
    sender, receiver = (site._replace(head=None) for site in path)

    def columns(site):
        width = lm.layout.head_dim
        return (
            slice(None) if site.head is None else slice(site.head * width, (site.head + 1) * width)
        )

    def pin(site, x):
        x = x.clone() if site in (receiver, Site("embeddings")) else kept["text", site].clone()
        if site == sender:
            part = columns(path.sender)
            x[..., part] = kept["twin", site][..., part]
        if site == receiver:
            kept["received"] = x.clone()
        return x

    hooked(lm, text, dict.fromkeys(parts[: parts.index(receiver) + 1], pin))

    def receive(site, x):
        x = x.clone()
        x[..., columns(path.receiver)] = kept["received"][..., columns(path.receiver)]
        return x

    return hooked(lm, text, {receiver: receive})


def hooked(lm, text, functions):
    """The score of a text with functions of activations installed as plain hooks."""
    handles = []
    for site, function in functions.items():
        module, side, _ = lm.layout.hook_point(site.stream, site.layer)

        def on_input(_, given, site=site, function=function):
            changed = function(site, given[0])
            return None if changed is None else (changed, *given[1:])

        def on_output(_, given, output, site=site, function=function):
            return function(site, output)

        is_input = side == "input"
        register = module.register_forward_pre_hook if is_input else module.register_forward_hook
        handles.append(register(on_input if is_input else on_output))
    try:
        return float(lm.run(scored(lm, [text]))[0, 0])
    finally:
        for handle in handles:
            handle.remove()


def test_a_path_leads_forward():
    lm = loaded("gpt2")
    query, twin = scored(lm, TEXTS), scored(lm, TWINS)
    for path, problem in (
        (Path(Site("head_out", 1, 0), Site("head_out", 1, 1)), "does not read"),
        (Path(Site("mlp_out", 1), Site("head_out", 1, 1)), "does not read"),
        (Path(Site("embeddings"), Site("block_out", 1)), "cannot begin or end"),
    ):
        with pytest.raises(LevelheadError, match=problem):
            run_paths(lm, query, twin, [path])


# -- twins


def crows(*pairs):
    return Crows(
        tuple(MinimalPair(f"{i}", "gender", "stereo", *pair) for i, pair in enumerate(pairs))
    )


def prepared(lm, measure, words):
    measure = replace(measure, metric="crows_margin", frequencies=None)
    responses = measure.read(lm)[0]
    return measure, responses, make_twins(lm, measure, responses, words)


@pytest.mark.parametrize("family", ["bert", "gpt2"])  # by token, and whole sentences
def test_items_without_a_twin_are_counted_with_the_reason(family):
    lm = loaded(family)
    _, _, twins = prepared(
        lm,
        crows(
            ("the nurse is tired .", "the nurse is quick ."),
            ("the man is tired .", "the man is quick ."),
            ("she said that the nurse was tired .", "she said that the nurse was lazy ."),
            ("the river is quick .", "the river is lazy ."),
            ("the house is here .", "the house is there ."),
        ),
        {"nurse": "doctor", "river": "man and woman"},
    )
    assert twins.item_ids == {"0", "2"}
    assert dict(twins.dropped) == {
        "its texts hold no word to exchange": 2,
        "the twin has another number of tokens": 1,
    }
    ends = {query[0]: twin[0] for query, twin in twins.twin_of.items()}
    assert ends["the nurse is tired ."] == "the doctor is tired ."
    with pytest.raises(NotMeasurableError, match="0 of 2 items") as error:
        prepared(
            lm,
            crows(("the man .", "the woman ."), ("the river .", "the house .")),
            {"tired": "quick"},
        )
    assert "--twins" in error.value.hint


def test_a_measure_of_vectors_has_no_twins():
    from metric_cases import made, model

    lm = model("seat")
    with pytest.raises(LevelheadError, match="has no twins"):
        make_twins(lm, made("seat"), made("seat").read(lm)[0], "gender-en")


# -- organisms whose paths are known, whatever they learned

TINY = TrainConfig("llama", layers=2, heads=4, width=16, steps=30, batch_size=8, threads=1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEVELHEAD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def tiny(**given):
    return Organism(**{"language": Language(1.0), "train_config": TINY, "n_documents": 200} | given)


@pytest.fixture(scope="module")
def one_head(cache):
    """A model in which one head alone sees group words, and its contrast."""
    organism = tiny(train_config=replace(TINY, visible_head=(1, 2)))
    planted = organism.planted_measures()
    return organism.load_lm(), replace(planted.contrast, top=1.0), planted.lexicon


def test_all_of_the_effect_passes_through_the_only_head_that_sees_groups(one_head):
    lm, measure, lexicon = one_head
    result = mediate(lm, measure, twins=lexicon, config=MediationConfig(("heads",)), inference=FEW)
    assert result.n_items == result.measurement.n
    by_site = {effect.site: effect for effect in result.effects}
    planted = by_site.pop(Site("head_out", 1, 2))
    # Exactly: no other path leads from a group's word to what is scored.
    assert planted.indirect.value == pytest.approx(result.total.value, rel=1e-4)
    assert result.ranked[0] is planted
    # Heads beside it carry nothing. Those below change the words themselves, which it alone reads.
    assert [effect.indirect is None for site, effect in by_site.items() if site.layer == 1] == [
        True,
        True,
        True,
    ]
    assert MediationMap.from_json(result.to_json()) == result


def test_nothing_is_computed_twice_and_progress_is_reported(one_head, tmp_path):
    lm, measure, lexicon = one_head
    stored = []

    def count(event):
        stored.append(isinstance(event, TaskStored))

    given = {"twins": lexicon, "inference": FEW}
    config = MediationConfig(("heads", "mlp"), patch_top=2, has_direct_effects=True)
    context = RunContext(store=str(tmp_path), progress=count)
    first = mediate(lm, measure, config=config, context=context, **given)
    assert sum(stored) > 3
    stored.clear()
    assert mediate(lm, measure, config=config, context=context, **given) == first
    assert not any(stored)
    patched = [effect for effect in first.effects if effect.direct is not None]
    assert len(patched) <= 2
    assert "2 of 10 parts were exchanged, all are ranked" in first.notes


def test_the_shares_of_all_items_add_up_to_the_attribution(one_head):
    lm, measure, lexicon = one_head
    responses = measure.read(lm)[0]
    twins = make_twins(lm, measure, responses, lexicon)
    (by_item,) = attribute_patches(lm, measure, twins, responses).values()
    assert by_item.shape == (len(responses), 2, 4)
    patched = read_patches(lm, twins, responses, [Patch((Site("head_out", 1, 2),))])
    change = float(measure.reduce(patched.responses_of(0)) - measure.reduce(responses))
    # Small weights: the model is nearly linear, and so the approximation nearly exact.
    assert float(by_item.sum(0)[1, 2]) == pytest.approx(change, rel=0.5)


def test_the_path_from_the_words_to_the_only_head_that_sees_them_carries_everything(one_head):
    lm, measure, lexicon = one_head
    paths = [Path(Site("embeddings"), Site("head_out", 1, head)) for head in range(lm.layout.heads)]
    given = {"twins": lexicon, "inference": FEW, "context": RunContext()}
    effects = estimate_path_effects(lm, measure, paths, **given)
    assert [effect is None for effect in effects] == [True, True, False, True]


def test_where_no_head_sees_targets_heads_are_silent_and_an_mlp_is_found(cache):
    organism = tiny(language=Language(1.0, "adjacent"), construction="no head")
    lm = organism.load_lm()
    measure = organism.planted_measures().cloze(lm)
    pairs = [pair.words for pair in organism.planted_measures().pairs]
    result = mediate(
        lm,
        measure,
        twins=dict(pairs),
        config=MediationConfig(("heads", "mlp", "embeddings")),
        inference=FEW,
    )
    heads = [effect for effect in result.effects if effect.component == "heads"]
    others = [effect for effect in result.effects if effect.component == "mlp"]
    assert len(heads) == 8
    assert all(effect.indirect is None for effect in heads)
    assert any(effect.indirect is not None and effect.indirect.value for effect in others)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"components": ()}, "name each part once"),
        ({"components": ("heads", "heads")}, "name each part once"),
        ({"components": ("neurons",)}, "part"),
        ({"patch_top": 0}, "cannot be patched"),
        ({"patch_top": "some"}, "cannot be patched"),
        ({"tokens": "none"}, "choice of tokens"),
    ],
)
def test_wrong_settings_are_refused(given, problem):
    with pytest.raises(LevelheadError, match=problem):
        MediationConfig(**given)


def test_a_step_function_is_refused(one_head):
    lm, _, lexicon = one_head
    with pytest.raises(LevelheadError, match="step"):
        mediate(lm, Crows(), twins=lexicon)
