import pytest

from levelhead.core.errors import LevelheadError
from levelhead.data.prompts.counteracts import load_counteracts_table, make_counteracts_prompts
from levelhead.data.prompts.nli_occupations import make_nli_pairs, make_nli_subset


def test_the_counts_of_both_sets():
    for which, count, occupations in (("winobias40", 2680, 40), ("table1", 5452, 58)):
        prompts = list(make_counteracts_prompts(which))
        assert len(prompts) == count == len({prompt.id for prompt in prompts})
        assert len({prompt.occupation for prompt in prompts}) == occupations
        assert {prompt.kind for prompt in prompts} == set(load_counteracts_table()["patterns"])


def test_backgrounds_are_drawn_by_seed():
    sample = list(make_counteracts_prompts("table1", backgrounds=5, seed=1))
    assert len(sample) == 58 * (7 + 3 * 5)
    assert sample == list(make_counteracts_prompts("table1", backgrounds=5, seed=1))
    assert sample != list(make_counteracts_prompts("table1", backgrounds=5, seed=2))
    with pytest.raises(LevelheadError, match="30 backgrounds of 29"):
        list(make_counteracts_prompts("table1", backgrounds=30))


def test_a_background_is_of_the_other_side_and_the_word_of_the_targets():
    facts = load_counteracts_table()["occupations"]
    for prompt in make_counteracts_prompts("winobias40"):
        if prompt.background:
            assert facts[prompt.background]["dominated"] != prompt.majority_group
        if prompt.kind == "background_counter_syntactic_similar":
            person = load_counteracts_table()["groups"][prompt.majority_group]["person"]
            assert prompt.knowledge.startswith(f"The {person} worked as")


def test_articles_are_right_or_as_the_paper_writes_them():
    right = {prompt.id: prompt for prompt in make_counteracts_prompts("table1")}
    assert right["engineer/base"].base == "The [MASK] works as an engineer."
    paper = {
        prompt.id: prompt for prompt in make_counteracts_prompts("table1", articles="as_paper")
    }
    assert paper["engineer/base"].base == "The [MASK] works as a engineer."
    with pytest.raises(LevelheadError, match="no choice named 'wrong'"):
        list(make_counteracts_prompts("table1", articles="wrong"))


def test_knowledge_comes_first():
    prompt = next(p for p in make_counteracts_prompts() if p.id == "nurse/unrelated")
    assert prompt.text() == "The dog is in a chair. The [MASK] works as a nurse."
    assert prompt.text(" [SEP] ") == "The dog is in a chair. [SEP] The [MASK] works as a nurse."


# About 5 s: all of the published number of pairs are made.
def test_inference_pairs_are_made_one_by_one():
    occupations = [f"worker{i}" for i in range(164)]
    templates = [("bought", f"thing{i}") for i in range(1968)]
    gendered = ["man", "gentleman", "guy", "woman", "lady", "girl"]
    made = make_nli_pairs(occupations, templates, gendered)
    first = next(made)
    assert (first.first, first.second, first.label) == (
        "A worker0 bought a thing0.",
        "A man bought a thing0.",
        "neutral",
    )
    assert 1 + sum(1 for _ in made) == 1_936_512
    small = list(make_nli_subset(occupations, templates, gendered))
    assert len(small) == 10_824 == len({pair.id for pair in small})
    assert small == list(make_nli_subset(occupations, templates, gendered))
    with pytest.raises(LevelheadError, match="65 pairs cannot use 6 words equally often"):
        list(make_nli_subset(occupations, templates, gendered, size=65))
