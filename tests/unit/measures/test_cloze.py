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
    found = {"female": [], "male": []}
    for one in prompts():
        if one.kind == "base":
            found[one.majority_group].append(masses(lm, one.text(" [SEP] ")))
    return found


def test_the_margin_is_half_the_difference_between_occupations():
    lm = model("cloze")
    found = of_base(lm)
    odds = {
        group: sum(math.log(f / m) for f, m in rows) / len(rows) for group, rows in found.items()
    }
    result = made("cloze")(lm, inference=INFERENCE)
    assert result.value == pytest.approx((odds["female"] - odds["male"]) / 2, rel=1e-4)
    own = sum(
        math.log(f / m) if group == "female" else math.log(m / f)
        for group, rows in found.items()
        for f, m in rows
    ) / len(THINGS)
    assert result.value == pytest.approx(own, rel=1e-4)  # the dominating group's mean margin


def test_probabilities_and_the_mass_covered():
    lm = model("cloze")
    found = of_base(lm)
    gap = {group: sum(f - m for f, m in rows) / len(rows) for group, rows in found.items()}
    result = made("cloze_probability")(lm, inference=INFERENCE)
    assert result.value == pytest.approx((gap["female"] - gap["male"]) / 2, rel=1e-4)
    every = [f + m for rows in found.values() for f, m in rows]
    mass = result.extra("mass covered")
    assert mass.value == pytest.approx(sum(every) / len(every), rel=1e-4)


def test_relative_probability_is_of_the_own_group_given_knowledge():
    lm, ruler = model("cloze"), made("cloze_relative")
    (found,) = ruler.read(lm)
    result = ruler(lm, inference=INFERENCE)
    values = dict(result.per_item_values)
    one = next(one for one in prompts() if one.kind == "unrelated" and one.majority_group == "male")
    base = next(o for o in prompts() if o.kind == "base" and o.occupation == one.occupation)
    ratio = masses(lm, one.text(" [SEP] "))[1] / masses(lm, base.text())[1]
    assert values[one.id] == pytest.approx(math.log(ratio), rel=1e-4)
    assert len(values) == len(found) - len(THINGS)
    kinds = {}
    for item in found.items:
        if item.kind != "base":
            kinds.setdefault(item.kind, []).append(values[item.id])
    means = {kind: sum(own) / len(own) for kind, own in kinds.items()}
    assert result.value == pytest.approx(sum(means.values()) / len(means))
    for kind, own in means.items():
        assert result.extra(f"kind: {kind}").value == pytest.approx(own)


def test_the_paper_counts_group_words_among_the_top_k():
    lm, ruler = model("cloze_top"), made("cloze_top", k=5)
    (found,) = ruler.read(lm)
    for one, item in zip(found.values, found.items, strict=True):
        text = item.queries[0][0]
        best = dict(lm.fill_top([text], 5)[0])
        hers = sum(math.exp(best[word]) for word in FEMALE if word in best)
        his = sum(math.exp(best[word]) for word in MALE if word in best)
        (values,) = ruler_difference(ruler, found, item)
        assert values == pytest.approx(hers - his, abs=1e-6), one


def ruler_difference(ruler, found, item):
    from levelhead.measures.cloze.top_k import _top_difference

    return _top_difference(found.select(lambda one: one.id == item.id), ruler.k).tolist()


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
    kinds = [one for one in result.extras if one.name.startswith("kind: ")]
    assert [one.name for one in kinds] == ["kind: unrelated", "kind: background"]
    assert all(one.p.family == 2 for one in kinds)


def test_prompts_without_knowledge_have_no_relative_probability():
    base = tuple(one for one in prompts() if one.kind == "base")
    result = made("cloze", prompts=base)(model("cloze"), inference=INFERENCE)
    assert "cloze_relative: no prompt has knowledge before it" in result.notes
    assert result.value == pytest.approx(made("cloze")(model("cloze"), inference=INFERENCE).value)
    with pytest.raises(LevelheadError, match="no prompt has knowledge"):
        made("cloze_relative", prompts=base)(model("cloze"), inference=INFERENCE)


def test_kinds_of_knowledge_are_not_redrawn():
    """They are what is asked about: however they differ, the interval is of the occupations."""
    (found,) = made("cloze_relative").read(model("cloze"))
    ruler = made("cloze_relative")
    rows = [item for item in found.items if item.kind != "base"]
    alone = [item.units[1] for item in rows if item.kind == "unrelated"]
    assert len(set(alone)) == len({item.units[0] for item in rows if item.kind == "unrelated"})
    values = ruler.primary_metric.per_item_values(found)
    apart = values.clone()
    apart[:, 0] += 100 * apart[:, 1]  # the second kind is another one altogether
    design = ruler.design(found, ruler.primary_metric)
    told = [
        estimate(INFERENCE, ruler.primary_metric, own, design).interval for own in (values, apart)
    ]
    widths = [one.high - one.low for one in told]
    assert widths[1] == pytest.approx(widths[0], rel=0.05)


def test_two_bases_of_one_occupation_are_refused():
    first = next(one for one in prompts() if one.kind == "base")
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
    own = tuple(one._replace(base=one.base.replace("the [", "The [")) for one in prompts())
    (asked,) = made("cloze", form=form, prompts=own).queries(lm)
    assert text in {ask[0] for item in asked.items for ask in item.queries}


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
