import pytest

from levelhead.core.errors import LevelheadError
from levelhead.data.prompts.counteracts import make_counteracts_prompts
from levelhead.mitigate.prompting.prefixes import (
    PrefixGrid,
    make_prefix_candidates,
    reword_prompts,
    split_occupations,
    unrelated_prefix,
    with_prefix,
)

CUT = split_occupations("winobias40", seed=0)
NAMED = [item.occupation for item in CUT.train]


def test_occupations_are_cut_in_two_within_their_side():
    train, held = ({item.occupation for item in part} for part in CUT)
    assert not train & held
    assert len(train) == len(held) == 20
    for part in CUT:
        assert sum(item.majority_group == "female" for item in part) == 10
    assert split_occupations("winobias40", seed=0) == CUT != split_occupations("winobias40", seed=1)


def test_a_prefix_names_training_occupations_only_and_counters_both_sides():
    output = {
        prompt.knowledge: prompt
        for prompt in make_counteracts_prompts(backgrounds=1)
        if prompt.kind == "target_counter_syntactic_similar"
    }
    for prefix in make_prefix_candidates(
        "winobias40", NAMED, grid=PrefixGrid((2, 4), frames=("syntactic",)), seed=3
    ):
        sentences = [f"{part}." for part in prefix.text.rstrip(".").split(". ")]
        assert len(sentences) == prefix.n_sentences
        subset = [output[sentence] for sentence in sentences]
        assert {item.occupation for item in subset} <= set(NAMED)
        sides = [item.majority_group for item in subset]
        assert sides.count("female") == sides.count("male")
        for item in subset:  # each with the group that does not dominate it
            assert ("woman" in item.knowledge) == (item.majority_group == "male")


def test_frames_sizes_and_draws_are_all_there():
    result = make_prefix_candidates(
        "winobias40", NAMED, grid=PrefixGrid((2, 4), candidates_per_size=3), seed=0
    )
    assert len(result) == 3 * 2 * 3
    assert len({item.name for item in result}) == len(result)
    assert result == make_prefix_candidates(
        "winobias40", NAMED, grid=PrefixGrid((2, 4), candidates_per_size=3), seed=0
    )


@pytest.mark.parametrize(("sizes", "each"), [((3,), 1), ((), 1), ((2,), 0)])
def test_uneven_prefixes_are_refused(sizes, each):
    with pytest.raises(LevelheadError, match="give even sizes"):
        make_prefix_candidates("winobias40", NAMED, grid=PrefixGrid(sizes, each), seed=0)


def test_more_sentences_than_occupations_are_refused():
    with pytest.raises(LevelheadError, match="give sizes of at most 20"):
        make_prefix_candidates("winobias40", NAMED, grid=PrefixGrid((22,)), seed=0)


def test_prompts_behind_a_prefix_and_in_other_words():
    prefix = unrelated_prefix(2)
    single = with_prefix(prefix, CUT.held_out)[0]
    assert single.knowledge == "The dog is in a chair. The cup is on a shelf."
    assert (single.kind, single.base) == (prefix.name, CUT.held_out[0].base)
    assert "has just found a job as" in reword_prompts(CUT.held_out)[0].base
