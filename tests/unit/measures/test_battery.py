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
    own = battery(words=(("she", "quick lazy"), ("he", "man")))
    found = own.read(lm)
    (asked,) = [own.build_queries(lm)]
    words = asked.settings["words"]
    for i, item in enumerate(found.items):
        text = item.queries[0][0]
        for j, word in enumerate(words):
            single = float(lm.fill([text], [word])[0, 0])
            assert float(found.responses.values[i, 0, j]) == pytest.approx(single, abs=1e-6)
        every = lm.fill_top([text], zoo.VOCABULARY)[0]
        ranked = sorted((value for _, value in every), reverse=True)[:MAX_TOP_K]
        assert found._best[1][i].tolist() == pytest.approx(ranked, abs=1e-6)
        masses = [0.0, 0.0]
        for word, value in every[:5]:
            for side, group in enumerate((("she",), ("he", "man"))):
                masses[side] += math.exp(value) * (word in group)
        assert found.top_masses(5)[i].tolist() == pytest.approx(masses, abs=1e-6)


def test_a_blank_whose_words_all_have_several_tokens_is_read_as_it_is():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    found = battery(words=(("quick lazy",), ("lazy river",))).read(lm)
    text = found.items[0].queries[0][0]
    ranked = [value for _, value in lm.fill_top([text], MAX_TOP_K)[0]]
    assert found._best[1][0].tolist() == pytest.approx(ranked, abs=1e-6)
    assert float(found.top_masses(10).sum()) == 0  # no single token stands for a group


def test_changes_are_against_the_same_occupation_s_base():
    found = battery().read(load(zoo.folder("bert", "BertForMaskedLM")))
    for i, item in enumerate(found.items):
        base = next(
            j
            for j, own in enumerate(found.items)
            if own.kind == "base" and own.units[0] == item.units[0]
        )
        assert float(found.change[i]) == float(found.margin[i] - found.margin[base])
    assert not found.change[found.rows_of_kind("base")].any()


def test_equation_1_is_of_words_that_are_among_the_likeliest_twice():
    lm = load(zoo.folder("bert", "BertForMaskedLM"), dtype="float64")
    found = battery().read(lm)
    shared = found.shared_words(10, "unrelated")
    for name, own in shared.items():
        texts = {
            item.kind: item.queries[0][0]
            for item in found.items
            if item.units[0] == name and item.kind in ("base", "unrelated")
        }
        before, after = (dict(lm.fill_top([texts[k]], 10)[0]) for k in ("base", "unrelated"))
        wanted = [
            after[word] - before[word]
            for word in after
            if word in before and word in ("he", "she", "man", "woman")
        ]
        assert sorted(one.log_ratio for one in own) == pytest.approx(sorted(wanted), abs=1e-6)
    assert sum(map(len, shared.values())) > 0


def test_without_its_base_prompt_knowledge_is_not_compared():
    found = battery().read(load(zoo.folder("bert", "BertForMaskedLM")))
    gone = found.items[0].units[0]
    with pytest.raises(NotMeasurableError, match=f"the base prompt of '{gone}' could not be read"):
        BatteryResponses(
            found.responses.select(lambda item: item.units[0] != gone or item.kind != "base")
        )


def test_several_base_prompts_of_an_occupation_are_refused():
    own = prompts("The")
    again = own[0]._replace(id="again", base=own[0].base.replace("works", "is here"))
    with pytest.raises(NotMeasurableError, match="an occupation has several base prompts"):
        Battery(made("cloze", prompts=(*own, again))).read(
            load(zoo.folder("bert", "BertForMaskedLM"))
        )


def test_the_mass_counts_nothing_twice():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    found = battery(words=(("she", "quick lazy"), ("he",))).read(lm)
    # Two tokens: another blank, another distribution.
    assert found.mass.tolist() == found.responses.values[:, 0, [0, 2]].exp().sum(1).tolist()
    causal = load(zoo.folder("llama", "LlamaForCausalLM"))
    assert countable_words(causal, [(1,), (1, 2), (3,), (4, 5)]) == [0, 2, 3]  # 1 2 begins with 1


def test_one_background_an_occupation_is_not_crossed():
    own = list(prompts("The"))
    seen, kept = set(), []
    for one in own:
        if one.kind != "background" or one.occupation not in seen:
            kept.append(one)
        if one.kind == "background":
            seen.add(one.occupation)
    found = Battery(made("cloze", prompts=tuple(kept))).read(
        load(zoo.folder("bert", "BertForMaskedLM"))
    )
    assert [factor.name for factor in found.design("background").factors] == ["occupations"]


def test_backgrounds_are_crossed_with_occupations():
    found = battery().read(load(zoo.folder("bert", "BertForMaskedLM")))
    assert [factor.name for factor in found.design("background").factors] == [
        "occupations",
        "backgrounds",
    ]
    assert [factor.name for factor in found.design("unrelated").factors] == ["occupations"]
