"""A model that can do nothing treats all groups alike: that is no evidence, and passes no gate."""

from itertools import product

import pytest
import torch
import transformers
import zoo
from metric_cases import INFERENCE

from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import StepFailure
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.data.records import LabelledExample, MinimalPair, TwinTriple
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.likelihood.crows import Crows
from levelhead.measures.next_sentence.strength import Strength
from levelhead.measures.registry import make_measure, utility_measures
from levelhead.measures.responses import Responses
from levelhead.measures.run import add_skills, run_measures
from levelhead.measures.skills import word_order
from levelhead.measures.skills.checks import (
    check_skill,
    make_group_separation_check,
    make_label_check,
)
from levelhead.models.loading.load import load
from levelhead.report.gate.gate import run_gate
from levelhead.report.gate.policy import read_policy

SENTENCES = [
    f"the {look} {{}} was {how} in the {place} ."
    for look, how, place in product(
        ("quick", "lazy", "tired", "nurse"),
        ("here", "there", "quick", "lazy"),
        ("house", "river", "a"),
    )
]
PAIRS = tuple(
    MinimalPair(str(i), "gender", "stereo", *(text.format(who) for who in both))
    for i, text in enumerate(SENTENCES)
    for both in ((("man", "woman"), ("woman", "man"))[i % 2],)
)
TRIPLES = tuple(
    TwinTriple(
        str(i),
        ("man", "woman")[i % 2],
        *(
            part
            for who in (("man", "woman"), ("woman", "man"))[i % 2]
            for part in (
                text.format(who),
                "the nurse was here .",
                "the doctor was here .",
                "a river is in there .",
            )
        ),
    )
    for i, text in enumerate(SENTENCES)
)


def saved(folder, model, *, decoder=False):
    model.eval().save_pretrained(folder)
    zoo.tokenizer(decoder=decoder).save_pretrained(folder)
    return load(folder)


def untrained(folder, family, kind, seed=0):
    """As a model is before its training: what transformers itself would begin with."""
    name, settings = zoo.CONFIGS[family]
    torch.manual_seed(seed)
    model = getattr(transformers, kind)(getattr(transformers, name)(**settings))
    return saved(folder, model, decoder=family == "llama")


def unigram(folder, frequencies):
    """A BERT whose every prediction is the same list of frequencies, whatever it reads."""
    model = zoo.built("bert", "BertForPreTraining")
    with torch.no_grad():
        head = model.cls.predictions
        for part in (head.transform.LayerNorm.weight, head.transform.LayerNorm.bias):
            part.zero_()
        head.bias.copy_(frequencies)
        head.decoder.bias.copy_(frequencies)
        model.cls.seq_relationship.weight.zero_()
    return saved(folder, model)


def gated(folder, measure, lm, rule):
    """The verdict on a model, from measuring to the gate."""
    try:
        result = measure(lm, inference=INFERENCE)
    except NotMeasurableError as error:
        result = StepFailure(problem=error.problem, hint=error.hint)
    place = folder / "run" / "results"
    place.mkdir(parents=True)
    (place / f"cell.all.model.{measure.name}.json").write_text(result.to_json())
    policy = folder / "policy.toml"
    policy.write_text(f'format = "levelhead-gate-2"\n[[rule]]\nmeasure = "{measure.name}"\n{rule}')
    (ruling,) = run_gate(folder / "run", read_policy(policy)).results
    return ruling, result


WIDE = 'quantity = "distance"\nat_most = 60.0'  # whatever crows says is within


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "BertForPreTraining"), ("llama", "LlamaForCausalLM")]
)
def test_an_untrained_model_does_not_pass(tmp_path, family, kind):
    lm = untrained(tmp_path / "model", family, kind)
    ruling, result = gated(tmp_path, Crows(PAIRS), lm, WIDE)
    assert ruling.verdict == "inconclusive"
    assert "model lacks the skill this measure needs: prefers texts" in ruling.explanation
    assert result.skill.value == 50
    assert result.skill.n == 48
    assert decide_measure_verdict(result).status == "inconclusive"


def test_an_untrained_judge_of_next_sentences_does_not_pass(tmp_path):
    """All its next sentences are of one kind, and so are the unrelated: it may like either."""
    for seed in range(2):
        lm = untrained(tmp_path / f"model{seed}", "bert", "BertForPreTraining", seed)
        ruling, result = gated(tmp_path / str(seed), Strength(TRIPLES), lm, "at_most = 1.0")
        assert ruling.verdict == "inconclusive"
        assert result.skill.value == 50


def test_a_unigram_model_does_not_pass(tmp_path):
    """It prefers the word that is frequent, in every sentence, so that half are stereotypes."""
    lm = unigram(tmp_path / "model", torch.linspace(-3, 3, zoo.VOCABULARY))
    ruling, result = gated(tmp_path, Crows(PAIRS, protocol="sentence"), lm, WIDE)
    assert result.value == 50
    assert ruling.verdict == "inconclusive"
    assert "lacks the skill" in ruling.explanation
    assert result.skill.value == 50  # the same words, whichever their order: all are ties


def test_a_constant_model_does_not_pass(tmp_path):
    lm = unigram(tmp_path / "model", torch.zeros(zoo.VOCABULARY))
    for name, measure in (("crows", Crows(PAIRS)), ("strength", Strength(TRIPLES))):
        ruling, _ = gated(tmp_path / name, measure, lm, "at_most = 100.0")
        assert ruling.verdict == "inconclusive"
        skill = measure.assess_skill(lm)  # its silence is not hidden behind an error
        assert skill.value == 50
        assert not skill.is_shown


@pytest.mark.parametrize("labelled", [True, False])
def test_a_classifier_that_says_the_same_of_everything_does_not_pass(tmp_path, labelled):
    model = zoo.built("bert", "BertForSequenceClassification")
    with torch.no_grad():
        model.classifier.weight.mul_(1e-3)  # were it 0, nothing would be measured
        model.classifier.bias.copy_(torch.tensor([1.0, 0.0]))
    lm = saved(tmp_path / "model", model)
    texts = tuple(
        LabelledExample(pair.id, pair.more, lm.labels[i % 3 == 0] if labelled else "")
        for i, pair in enumerate(PAIRS)
    )
    ruling, result = gated(tmp_path, Counterfactual(texts), lm, "at_most = 20.0")
    assert result.value == 0  # no decision changes with the group, and none with anything
    assert ruling.verdict == "inconclusive"
    if labelled:
        assert result.skill.value == pytest.approx(result.skill.chance)
        assert result.skill.chance == pytest.approx(200 / 3)
    else:
        assert result.skill is None
        assert "not checked" in ruling.explanation


def responses_of(items, values):
    return Responses(
        items=tuple(items),
        values=torch.as_tensor(values, dtype=torch.float64),
        factors=("units",),
        dropped=(),
        answers=torch.zeros(0, 0),
        owner=(),
        queries=(),
    )


def test_a_model_that_knows_the_order_of_words_has_the_skill(tmp_path):
    """Both texts hold the same tokens, and begin and end alike; margins are of a moved word."""
    lm = untrained(tmp_path / "model", "bert", "BertForPreTraining")
    (subset,) = Crows(PAIRS).queries(lm)
    check = word_order.make_word_order_check(lm, subset.items)
    for item in check.query_set.items:
        first, second = (ask[0].split() for ask in item.queries)
        assert sorted(first) == sorted(second)
        assert first != second
        assert (first[0], first[-1]) == (second[0], second[-1])
    count = len(check.query_set.items)
    moved = [
        sum(a != b for a, b in zip(*(ask[0].split() for ask in item.queries), strict=True))
        for item in check.query_set.items
    ]
    for per_word, right in ((0.6, 1.0), (0.4, 0.5), (-0.6, 0.0)):
        values = [[[per_word * n, 10], [0.0, 10]] for n in moved]
        assert (
            check.score_items(responses_of(check.query_set.items, values)).tolist()
            == [right] * count
        )
    # Asked again, it asks the same.
    again = word_order.make_word_order_check(lm, subset.items[::-1])
    assert again.query_set.items == check.query_set.items


def test_words_that_are_not_written_apart_are_moved_by_character(tmp_path):
    class Characters:
        class tokens:  # noqa: N801
            @staticmethod
            def encode(texts):
                return [
                    type("E", (), {"row": type("R", (), {"ids": list(map(ord, text))})})
                    for text in texts
                ]

    item = MeasureItem("1", (("护士说她今天很累。", None),), ("1",))
    (requested,) = word_order.make_word_order_check(Characters(), [item]).query_set.items
    first, second = (ask[0] for ask in requested.queries)
    assert first != second
    assert sorted(first) == sorted(second)
    assert (first[0], first[-1]) == (second[0], second[-1]) == ("护", "。")


def test_groups_that_lie_apart_show_a_space_that_knows_them():
    """All sentences of a word are left out together: they would find each other."""
    torch.manual_seed(0)
    items = [
        MeasureItem(f"{side} {i} {j}", (("x",),), (f"{side} {i}",), side)
        for side in "AB"
        for i in range(20)
        for j in range(3)
    ]
    words = torch.randn(40, 16).repeat_interleave(3, dim=0) + 0.01 * torch.randn(120, 16)
    result = check_skill(None, make_group_separation_check(("A", "B")), responses_of(items, words))
    assert result.n == 40
    assert not result.is_shown
    apart = torch.zeros(16)
    apart[0] = 3.0
    sign = torch.tensor([1.0 if item.group == "A" else -1.0 for item in items])
    result = check_skill(
        None,
        make_group_separation_check(("A", "B")),
        responses_of(items, words + sign[:, None] * apart),
    )
    assert result.value > 95
    assert result.is_shown


def test_labels_are_judged_against_the_commonest():
    items = [MeasureItem(str(i), (("x",),), (str(i),), "yes" if i % 4 else "no") for i in range(80)]
    truth = [item.group for item in items]
    check = make_label_check(None, lambda item: item.group, ("no", "yes"), truth)
    assert (check.chance, check.threshold) == (75.0, 82.5)
    right = [[[0.0, 1.0] if item.group == "yes" else [1.0, 0.0]] for item in items]
    assert check_skill(None, check, responses_of(items, right)).is_shown
    always = check_skill(None, check, responses_of(items, [[[0.0, 1.0]]] * 80))
    assert always.value == 75
    assert not always.is_shown
    undecided = check_skill(None, check, responses_of(items, [[[0.5, 0.5]]] * 80))
    assert undecided.value == 50
    assert make_label_check(None, lambda item: item.group, ("no", "yes"), ["yes"] * 9) is None


def test_a_check_that_cannot_be_run_shows_nothing(tmp_path):
    lm = untrained(tmp_path / "model", "bert", "BertForPreTraining")
    unknown = MeasureItem("1", (("some words that it knows nothing of", None),), ("1",))
    check = word_order.make_word_order_check(lm, [unknown] * 9)
    nothing = responses_of([], torch.zeros(0, 2, 2))
    assert check_skill(lm, check, nothing) is None
    queries = QuerySet(
        "score", FrozenDict({}), ("texts",), (MeasureItem("1", (), ("1",), skip_reason="no"),)
    )
    assert check_skill(lm, check._replace(query_set=queries), nothing) is None


def test_every_measure_of_bias_names_a_check(tmp_path):
    """Measures of utility are skills themselves."""
    utility = utility_measures()
    assert {"ppl", "pppl", "lms", "snli", "task", "accuracy", "pronoun_agreement"} <= utility
    assert not utility & {"seat", "strength", "distance", "crows", "icat", "nli_coal", "cloze"}
    lm = untrained(tmp_path / "model", "bert", "BertForPreTraining")
    assert make_measure("pppl", texts=tuple(SENTENCES)).assess_skill(lm) is None


def test_run_checks_a_model_by_itself_and_not_beside_another(tmp_path):
    first, second = (
        untrained(tmp_path / str(seed), "bert", "BertForPreTraining", seed) for seed in (0, 1)
    )
    (alone,) = run_measures(first, [Crows(PAIRS)], inference=INFERENCE).measurements
    assert alone.skill is not None
    extra = run_measures(first, [Crows(PAIRS)], against=second, inference=INFERENCE).measurements
    assert extra[0].skill is None
    assert add_skills(first, [Crows(PAIRS)], extra)[0].skill == alone.skill
