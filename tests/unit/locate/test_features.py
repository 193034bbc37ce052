"""Features of a dictionary: attribution is the derivative, and a planted feature is found."""

from dataclasses import replace

import pytest
import torch
import zoo
from dictionaries import dictionary, planted_dictionary

from levelhead.calibrate.locators import VISIBLE_HEAD, make_full_contrast
from levelhead.calibrate.organisms.language_pairs import make_planted_pairs
from levelhead.calibrate.organisms.organism import make_organism
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference
from levelhead.data.records import MinimalPair
from levelhead.locate.patching.dictionary_loss import compute_recovered_loss
from levelhead.locate.patching.feature_attribution import (
    FeatureConfig,
    attribute_features,
    locate_features,
)
from levelhead.locate.patching.feature_map import FeatureMap
from levelhead.locate.patching.interchange import RecordingReadout, Recordings
from levelhead.locate.patching.twins import make_twins
from levelhead.measures.likelihood.crows import Crows
from levelhead.measures.responses import build_query
from levelhead.mitigate.controls.feature_placebos import make_feature_placebos
from levelhead.mitigate.controls.placebo_report import (
    ChosenSetting,
    PlaceboConfig,
    evaluate_with_placebos,
)
from levelhead.mitigate.steering.fit import SteeringConfig, fit_steering
from levelhead.models.edits.base import Edit
from levelhead.models.edits.dictionary import Encoder, SparseDictionary
from levelhead.models.edits.feature_ablation import FeatureAblation
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.dictionary import read_token_activations

SITE = Site("block_out", 1)
CROWS = Crows(
    tuple(
        MinimalPair(f"pair {i}", "gender", "stereo", *texts)
        for i, texts in enumerate(
            [
                ("the nurse is a woman .", "the nurse is a man ."),
                ("the doctor said that he was tired .", "the doctor said that she was tired ."),
            ]
        )
    ),
    metric="crows_margin",
)


def tiny(family):
    head = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel"}[family]
    return load(zoo.folder(family, head), dtype="float64")


class FeatureExchange(Edit):
    """A share of the exchange of one feature with that of the twin, for one text."""

    kind = "exchange"
    settings, tensors = {}, {}

    def __init__(self, given, feature, twin, share):
        self.given, self.feature, self.twin, self.share = given, feature, twin, share
        self.sites = (given.site,)

    def __call__(self, activation, site):
        change = (self.given.encode(self.twin) - self.given.encode(activation))[..., self.feature]
        return activation + self.share * change[..., None] * self.given.decoder[self.feature]

    def matrix(self, site, width):
        return None

    def width(self, site):
        return None


@pytest.mark.parametrize("activation", ["relu", "topk"])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_an_attribution_is_the_derivative_of_the_ablation(family, activation):
    lm = tiny(family)
    given = dictionary(activation, site=SITE, n=20, width=lm.layout.site_width(SITE), k=5)
    (responses,) = CROWS.read(lm)
    attributions = attribute_features(lm, CROWS, given, responses)
    assert attributions.abs().max() > 1e-4
    for feature in attributions.abs().topk(3).indices.tolist():
        values = [
            float(CROWS.reduce(CROWS.read(lm.edited(edit))[0]))
            for edit in (FeatureAblation.of(given, [feature], strength=s) for s in (1e-5, -1e-5))
        ]
        slope = (values[0] - values[1]) / 2e-5
        assert -slope == pytest.approx(float(attributions[feature]), rel=1e-3, abs=1e-7)


def test_an_attribution_of_twins_is_the_derivative_of_the_exchange():
    lm = tiny("gpt2")
    given = dictionary(site=SITE, n=20, width=lm.layout.site_width(SITE))
    (responses,) = CROWS.read(lm)
    twins = make_twins(lm, CROWS, responses, {"nurse": "doctor"})
    attributions = attribute_features(lm, CROWS, given, responses, twins=twins)
    query_set = CROWS.queries(lm)[0]
    slopes = dict.fromkeys(attributions.abs().topk(3).indices.tolist(), 0.0)
    for item in responses.items:
        for number, asked in enumerate(item.queries):
            twin = build_query(lm, "score", [twins.twin_of[asked]], query_set.settings)[0].query
            kept = Recordings()
            place = frozenset({(SITE.stream, SITE.layer)})
            lm.run(replace(twin, readout=RecordingReadout(twin.readout, place, kept)))
            text = build_query(lm, "score", [asked], query_set.settings)[0].query
            # The margin is the mean over pairs of the first text less the second.
            sign = (1 if number == 0 else -1) / len(responses.items)
            for feature in slopes:
                edits = [FeatureExchange(given, feature, kept.at(SITE), s) for s in (1e-5, -1e-5)]
                up, down = (float(lm.edited(edit).run(text)[0, 0]) for edit in edits)
                slopes[feature] += sign * (up - down) / 2e-5
    for feature, slope in slopes.items():
        assert slope == pytest.approx(float(attributions[feature]), rel=1e-3, abs=1e-7)


@pytest.fixture(scope="module")
def organism():
    return make_organism("gpt2", 1.0, visible_head=VISIBLE_HEAD, quick=True)


def prepare(organism):
    """The model, and a dictionary that holds the direction between its groups."""
    lm, pairs = organism.load_lm().with_batch_size(256), make_planted_pairs(organism.language)
    site = Site("block_out", lm.layout.layers - 2)
    fit = fit_steering(lm, pairs, [site], config=SteeringConfig(pooling="mean"))[site]
    texts = [text for pair in pairs for text in (pair.first, pair.second)]
    activations = read_token_activations(lm, texts, site)
    return lm, pairs, *planted_dictionary(fit.vector("first").float(), activations, site)


def make_contrasts(organism, label_seed=None):
    """The same targets in two draws of the words around them."""
    measures, full = organism.planted_measures(label_seed=label_seed), make_full_contrast(organism)
    return [replace(full, triples=measures.make_triples(draw)) for draw in ("dev ", "")]


def test_the_planted_feature_is_found_and_its_ablation_removes_the_bias(organism):
    """7 s: one model with a planted bias, and a null by random labels on the same responses.

    One head alone reads groups there, so that placebos are nearly one edit: p is compared, and
    the outcome is that of the ordinary models in the full tier.
    """
    lm, pairs, given, planted = prepare(organism)
    dev, test = make_contrasts(organism)
    result = locate_features(
        lm, dev, given, config=FeatureConfig(ablate_top=8), inference=Inference(resamples=199)
    )
    assert result.split_by == "words"
    first = result.confirmed[0]
    assert first.feature in planted
    assert first.ablation.value > 0.5 * result.base.value
    assert result.agreement.value > 0
    assert FeatureMap.from_json(result.to_json()) == result
    report = evaluate_with_placebos(
        lm,
        test,
        ChosenSetting("planted", (FeatureAblation.of(given, planted),)),
        pairs,
        placebos=PlaceboConfig(60, 60, dictionary=given),
        inference=Inference(resamples=99, permutations=99),
    )
    gains = report.placebo_test
    assert gains.gain.interval.low > 0.5 * abs(gains.base.value)
    assert gains.p.value < 0.05
    assert gains.quantile < 0.5 * gains.gain.value
    null = locate_features(
        lm,
        make_contrasts(organism, label_seed=0)[0],
        given,
        config=FeatureConfig(ablate_top=8),
        inference=Inference(resamples=199),
    )
    assert null.confirmed == ()


@pytest.mark.full
def test_on_ordinary_models_it_is_a_mitigation_and_without_a_bias_nothing_is_found():
    """The fast counterpart is above; three models of each kind, 200 placebos."""
    outcomes = []
    for seed in range(3):
        for rho in (1.0, 0.0):
            organism = make_organism("gpt2", rho, seed=seed, quick=True)
            lm, pairs, given, planted = prepare(organism)
            dev, test = make_contrasts(organism)
            result = locate_features(lm, dev, given, inference=Inference(resamples=999))
            if not rho:
                assert result.confirmed == ()
                continue
            assert result.confirmed[0].feature in planted
            outcomes.append(
                evaluate_with_placebos(
                    lm,
                    test,
                    ChosenSetting("planted", (FeatureAblation.of(given, planted),)),
                    pairs,
                    placebos=PlaceboConfig(200, 200, dictionary=given),
                    inference=Inference(resamples=99, permutations=99),
                ).outcome
            )
    assert outcomes == ["mitigates"] * 3


def test_placebos_are_other_features_of_the_same_activity():
    given = dictionary(n=100)
    activity = torch.rand(100, generator=torch.Generator().manual_seed(0)).double()
    activity[90:] = 0
    single = make_feature_placebos(
        FeatureAblation.of(given, [4], strength=0.5), given, activity, n_placebos=20
    )
    chosen = [placebo.features[0] for (placebo,) in single]
    distance = (activity.log() - activity[4].log()).abs()
    assert sorted(chosen) == sorted(distance[:90].argsort()[1:21].tolist())
    assert all(placebo.strength == 0.5 for (placebo,) in single)
    edit = FeatureAblation.of(given, [4, 7])
    several = make_feature_placebos(edit, given, activity, n_placebos=30, seed=1)
    assert several[:10] == make_feature_placebos(edit, given, activity, n_placebos=10, seed=1)
    assert len({placebo.features for (placebo,) in several}) > 25
    for (placebo,) in several:
        assert len(set(placebo.features)) == 2
        assert not {4, 7} & set(placebo.features)
        assert max(placebo.features) < 90
    for features, n_placebos, problem in (([95], 5, "not active"), ([4], 90, "90 are needed")):
        with pytest.raises(LevelheadError, match=problem):
            make_feature_placebos(
                FeatureAblation.of(given, features), given, activity, n_placebos=n_placebos
            )


def test_recovered_loss_is_1_for_a_perfect_dictionary_and_0_for_none(organism):
    lm = organism.load_lm()
    site, width = Site("block_out", 0), lm.layout.width
    both_signs = torch.cat([torch.eye(width), -torch.eye(width)])
    encoder = Encoder(both_signs, torch.zeros(2 * width))
    perfect = SparseDictionary(site, encoder, both_signs, torch.zeros(width))
    texts = [" ".join(organism.texts[i]) for i in range(5)]
    loss = compute_recovered_loss(lm, perfect, texts)
    assert loss.share == pytest.approx(1, abs=1e-5)
    assert loss.zero > loss.model > 0
    nothing = replace(perfect, decoder=torch.zeros(2 * width, width))
    assert compute_recovered_loss(lm, nothing, texts).share == pytest.approx(0, abs=1e-9)


def test_wrong_inputs_are_refused():
    lm = tiny("gpt2")
    with pytest.raises(LevelheadError, match="is 6 wide"):
        locate_features(lm, CROWS, dictionary(site=SITE))
    with pytest.raises(LevelheadError, match="no baseline named"):
        FeatureConfig(baseline="mean")
    with pytest.raises(LevelheadError, match="0 features cannot"):
        FeatureConfig(ablate_top=0)
    edits = (FeatureAblation.of(dictionary(site=SITE), [1]),)
    with pytest.raises(LevelheadError, match="need their dictionary"):
        evaluate_with_placebos(
            lm, CROWS, ChosenSetting("x", edits), (), inference=Inference(resamples=99)
        )
