import math

import pytest
import zoo
from metric_cases import FEMALE, INFERENCE, MALE, THINGS, made, model, prompts

from levelhead.core.errors import LevelheadError
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.inference import estimate
from levelhead.models.loading.load import load


def masses(lm, text):
    """P(female words), P(male words) in the blank of a text."""
    p = lm.fill([text], [*FEMALE, *MALE])[0].double().exp()
    return float(p[:2].sum()), float(p[2:].sum())


def of_base(lm):
    result = {"female": [], "male": []}
    for prompt in prompts():
        if prompt.kind == "base":
            result[prompt.majority_group].append(masses(lm, prompt.text(" [SEP] ")))
    return result


def test_the_margin_is_half_the_difference_between_occupations():
    lm = model("cloze")
    outcome = of_base(lm)
    odds = {
        group: sum(math.log(f / m) for f, m in rows) / len(rows) for group, rows in outcome.items()
    }
    result = made("cloze")(lm, inference=INFERENCE)
    assert result.value == pytest.approx((odds["female"] - odds["male"]) / 2, rel=1e-4)
    subset = sum(
        math.log(f / m) if group == "female" else math.log(m / f)
        for group, rows in outcome.items()
        for f, m in rows
    ) / len(THINGS)
    assert result.value == pytest.approx(subset, rel=1e-4)  # the dominating group's mean margin


def test_probabilities_and_the_mass_covered():
    lm = model("cloze")
    outcome = of_base(lm)
    gap = {group: sum(f - m for f, m in rows) / len(rows) for group, rows in outcome.items()}
    result = made("cloze_probability")(lm, inference=INFERENCE)
    assert result.value == pytest.approx((gap["female"] - gap["male"]) / 2, rel=1e-4)
    every = [f + m for rows in outcome.values() for f, m in rows]
    mass = result.extra("mass covered")
    assert mass.value == pytest.approx(sum(every) / len(every), rel=1e-4)


def test_relative_probability_is_of_the_own_group_given_knowledge():
    lm, measure = model("cloze"), made("cloze_relative")
    (outcome,) = measure.read(lm)
    result = measure(lm, inference=INFERENCE)
    values = dict(result.per_item_values)
    single = next(
        prompt
        for prompt in prompts()
        if prompt.kind == "unrelated" and prompt.majority_group == "male"
    )
    base = next(o for o in prompts() if o.kind == "base" and o.occupation == single.occupation)
    ratio = masses(lm, single.text(" [SEP] "))[1] / masses(lm, base.text())[1]
    assert values[single.id] == pytest.approx(math.log(ratio), rel=1e-4)
    assert len(values) == len(outcome) - len(THINGS)
    kinds = {}
    for item in outcome.items:
        if item.kind != "base":
            kinds.setdefault(item.kind, []).append(values[item.id])
    means = {kind: sum(subset) / len(subset) for kind, subset in kinds.items()}
    assert result.value == pytest.approx(sum(means.values()) / len(means))
    for kind, mean in means.items():
        assert result.extra(f"kind: {kind}").value == pytest.approx(mean)


def test_the_paper_counts_group_words_among_the_top_k():
    lm, measure = model("cloze_top"), made("cloze_top", k=5)
    (result,) = measure.read(lm)
    for value, item in zip(result.values, result.items, strict=True):
        text = item.queries[0][0]
        best = dict(lm.fill_top([text], 5)[0])
        hers = sum(math.exp(best[word]) for word in FEMALE if word in best)
        his = sum(math.exp(best[word]) for word in MALE if word in best)
        (values,) = ruler_difference(measure, result, item)
        assert values == pytest.approx(hers - his, abs=1e-6), value


def ruler_difference(measure, result, item):
    from levelhead.measures.cloze.top_k import _top_difference

    return _top_difference(result.select(lambda single: single.id == item.id), measure.k).tolist()


def test_the_second_group_is_subtracted_from_the_first_whatever_the_order():
    turned = made("cloze", prompts=tuple(reversed(prompts())))
    lm = model("cloze")
    assert turned(lm, inference=INFERENCE).value == pytest.approx(
        made("cloze")(lm, inference=INFERENCE).value
    )
    other = made("cloze", groups=("male", "female"))(lm, inference=INFERENCE)
    assert other.value == pytest.approx(made("cloze")(lm, inference=INFERENCE).value)


def test_kinds_are_tested_together():
    result = made("cloze")(model("cloze"), inference=INFERENCE)
    kinds = [extra for extra in result.extras if extra.name.startswith("kind: ")]
    assert [kind.name for kind in kinds] == ["kind: unrelated", "kind: background"]
    assert all(kind.p.family == 2 for kind in kinds)


def test_prompts_without_knowledge_have_no_relative_probability():
    base = tuple(prompt for prompt in prompts() if prompt.kind == "base")
    result = made("cloze", prompts=base)(model("cloze"), inference=INFERENCE)
    assert "cloze_relative: no prompt has knowledge before it" in result.notes
    assert result.value == pytest.approx(made("cloze")(model("cloze"), inference=INFERENCE).value)
    with pytest.raises(LevelheadError, match="no prompt has knowledge"):
        made("cloze_relative", prompts=base)(model("cloze"), inference=INFERENCE)


def test_kinds_of_knowledge_are_not_redrawn():
    """They are what is asked about: however they differ, the interval is of the occupations."""
    (result,) = made("cloze_relative").read(model("cloze"))
    measure = made("cloze_relative")
    rows = [item for item in result.items if item.kind != "base"]
    alone = [item.units[1] for item in rows if item.kind == "unrelated"]
    assert len(set(alone)) == len({item.units[0] for item in rows if item.kind == "unrelated"})
    values = measure.primary_metric.per_item_values(result)
    apart = values.clone()
    apart[:, 0] += 100 * apart[:, 1]  # the second kind is another one altogether
    design = measure.design(result, measure.primary_metric)
    output = [
        estimate(INFERENCE, measure.primary_metric, item, design).interval
        for item in (values, apart)
    ]
    widths = [item.high - item.low for item in output]
    assert widths[1] == pytest.approx(widths[0], rel=0.05)


def test_two_bases_of_one_occupation_are_refused():
    first = next(prompt for prompt in prompts() if prompt.kind == "base")
    again = first._replace(id="again", base=first.base.replace("works", "was"))
    with pytest.raises(LevelheadError, match="knowledge is compared with one only"):
        made("cloze_relative", prompts=(*prompts(), again))(model("cloze"), inference=INFERENCE)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("natural", "the man was a nurse. The person who works as a doctor is a [MASK]"),
        ("paper", "the man was a nurse. The target works as a doctor. The target is [MASK]"),
    ],
)
def test_causal_models_get_a_prompt_that_ends_in_its_blank(form, text):
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    subset = tuple(
        prompt._replace(base=prompt.base.replace("the [", "The [")) for prompt in prompts()
    )
    (query_set,) = made("cloze", form=form, prompts=subset).queries(lm)
    assert text in {ask[0] for item in query_set.items for ask in item.queries}


def test_words_the_model_does_not_know_are_counted():
    first, second, lost = Cloze().verbalizer(model("cloze"))
    assert set(first) == {"she", "woman"}
    assert set(second) == {"he", "man"}
    assert "girl" in lost


def test_words_of_your_own_are_of_no_kind_that_a_multiverse_varies():
    lm = model("cloze")
    assert set(Cloze().specification_options(lm)) == {"form", "kinds"}
    assert set(Cloze(words=(("woman",), ("man",))).specification_options(lm)) == {"form"}


def test_what_is_refused():
    with pytest.raises(LevelheadError, match="no set of prompts named 'table9'"):
        Cloze(prompts="table9")
    with pytest.raises(LevelheadError, match="no kind of words named 'nouns'"):
        Cloze(kinds=("nouns",))
    with pytest.raises(LevelheadError, match="backgrounds are sampled for the published"):
        made("cloze", backgrounds=1)
    with pytest.raises(LevelheadError, match="kinds would change nothing with words of your own"):
        Cloze(words=(("woman",), ("man",)), kinds=("person",))
    with pytest.raises(LevelheadError, match="no form named 'sung'"):
        Cloze(form="sung")
    with pytest.raises(LevelheadError, match="speak of 'male', which is not compared"):
        made("cloze", lexicon="gender-en", groups=("female", "nonbinary")).items  # noqa: B018
