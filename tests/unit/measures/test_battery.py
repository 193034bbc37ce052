"""Exact probabilities and the likeliest tokens, beside a slow literal loop."""

import math

import pytest
import zoo
from metric_cases import made, prompts

from levelhead.core.errors import NotMeasurableError
from levelhead.measures.cloze.battery import MAX_TOP_K, Battery, BatteryResponses, countable_words
from levelhead.models.loading.load import load

MODELS = [("bert", "BertForMaskedLM"), ("albert", "AlbertForMaskedLM")]
"""Causal ones are asked in words that these do not know: see tests/real/test_knowledge.py."""


def battery(**options):
    return Battery(made("cloze", prompts=prompts("The"), **options))


@pytest.mark.parametrize(("family", "cls"), MODELS)
def test_words_and_likeliest_tokens_are_those_of_a_literal_loop(family, cls):
    lm = load(zoo.folder(family, cls), dtype="float64")
    # "quick lazy" has several tokens; the others have one.
    subset = battery(words=(("she", "quick lazy"), ("he", "man")))
    result = subset.read(lm)
    (query_set,) = [subset.build_queries(lm)]
    words = query_set.settings["words"]
    for i, item in enumerate(result.items):
        text = item.queries[0][0]
        for j, word in enumerate(words):
            single = float(lm.fill([text], [word])[0, 0])
            assert float(result.responses.values[i, 0, j]) == pytest.approx(single, abs=1e-6)
        every = lm.fill_top([text], zoo.VOCABULARY)[0]
        ranked = sorted((value for _, value in every), reverse=True)[:MAX_TOP_K]
        assert result._best[1][i].tolist() == pytest.approx(ranked, abs=1e-6)
        masses = [0.0, 0.0]
        for word, value in every[:5]:
            for side, group in enumerate((("she",), ("he", "man"))):
                masses[side] += math.exp(value) * (word in group)
        assert result.top_masses(5)[i].tolist() == pytest.approx(masses, abs=1e-6)


def test_a_blank_whose_words_all_have_several_tokens_is_read_as_it_is():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    result = battery(words=(("quick lazy",), ("lazy river",))).read(lm)
    text = result.items[0].queries[0][0]
    ranked = [value for _, value in lm.fill_top([text], MAX_TOP_K)[0]]
    assert result._best[1][0].tolist() == pytest.approx(ranked, abs=1e-6)
    assert float(result.top_masses(10).sum()) == 0  # no single token stands for a group


def test_changes_are_against_the_same_occupation_s_base():
    result = battery().read(load(zoo.folder("bert", "BertForMaskedLM")))
    for i, item in enumerate(result.items):
        base = next(
            j
            for j, subset in enumerate(result.items)
            if subset.kind == "base" and subset.units[0] == item.units[0]
        )
        assert float(result.change[i]) == float(result.margin[i] - result.margin[base])
    assert not result.change[result.rows_of_kind("base")].any()


def test_equation_1_is_of_words_that_are_among_the_likeliest_twice():
    lm = load(zoo.folder("bert", "BertForMaskedLM"), dtype="float64")
    result = battery().read(lm)
    shared = result.shared_words(10, "unrelated")
    for name, subset in shared.items():
        texts = {
            item.kind: item.queries[0][0]
            for item in result.items
            if item.units[0] == name and item.kind in ("base", "unrelated")
        }
        before, after = (dict(lm.fill_top([texts[k]], 10)[0]) for k in ("base", "unrelated"))
        wanted = [
            after[word] - before[word]
            for word in after
            if word in before and word in ("he", "she", "man", "woman")
        ]
        assert sorted(item.log_ratio for item in subset) == pytest.approx(sorted(wanted), abs=1e-6)
    assert sum(map(len, shared.values())) > 0


def test_without_its_base_prompt_knowledge_is_not_compared():
    result = battery().read(load(zoo.folder("bert", "BertForMaskedLM")))
    gone = result.items[0].units[0]
    with pytest.raises(NotMeasurableError, match=f"the base prompt of '{gone}' could not be read"):
        BatteryResponses(
            result.responses.select(lambda item: item.units[0] != gone or item.kind != "base")
        )


def test_several_base_prompts_of_an_occupation_are_refused():
    subset = prompts("The")
    again = subset[0]._replace(id="again", base=subset[0].base.replace("works", "is here"))
    with pytest.raises(NotMeasurableError, match="an occupation has several base prompts"):
        Battery(made("cloze", prompts=(*subset, again))).read(
            load(zoo.folder("bert", "BertForMaskedLM"))
        )


def test_the_mass_counts_nothing_twice():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    result = battery(words=(("she", "quick lazy"), ("he",))).read(lm)
    # Two tokens: another blank, another distribution.
    assert result.mass.tolist() == result.responses.values[:, 0, [0, 2]].exp().sum(1).tolist()
    causal = load(zoo.folder("llama", "LlamaForCausalLM"))
    assert countable_words(causal, [(1,), (1, 2), (3,), (4, 5)]) == [0, 2, 3]  # 1 2 begins with 1


def test_one_background_an_occupation_is_not_crossed():
    subset = list(prompts("The"))
    seen, stored = set(), []
    for item in subset:
        if item.kind != "background" or item.occupation not in seen:
            stored.append(item)
        if item.kind == "background":
            seen.add(item.occupation)
    result = Battery(made("cloze", prompts=tuple(stored))).read(
        load(zoo.folder("bert", "BertForMaskedLM"))
    )
    assert [factor.name for factor in result.design("background").factors] == ["occupations"]


def test_backgrounds_are_crossed_with_occupations():
    result = battery().read(load(zoo.folder("bert", "BertForMaskedLM")))
    assert [factor.name for factor in result.design("background").factors] == [
        "occupations",
        "backgrounds",
    ]
    assert [factor.name for factor in result.design("unrelated").factors] == ["occupations"]
