"""Heads that are edited without having been confirmed: nobody is left to guess."""

import warnings

import pytest
from maps import head_map, interval, p_value

from levelhead.mitigate.heads.mask import (
    UnconfirmedHeadsWarning,
    confirm_heads,
    mask_heads,
    scale_heads,
)


def judged(adjusted, *, by="words", tested=None, way=1):
    """A map whose first heads, positive and negative, have these corrected p-values."""
    heads = head_map(2, 6)
    ranked = heads.ranked_heads
    chosen = [*ranked[: len(adjusted)], *ranked[::-1][: len(adjusted)]]
    p = {
        single.label: subset for single, subset in zip(chosen, [*adjusted, *adjusted], strict=True)
    }
    scores = [
        item.model_copy(
            update={
                "effect": way * item.score if tested is None or item.label in tested else None,
                "interval": interval(item.score),
                "p": p_value(p.get(item.label, 1.0), p.get(item.label, 1.0), 12),
            }
        )
        for item in heads.scores
    ]
    halves = heads.split.model_copy(update={"split_by": by})
    return heads.model_copy(update={"scores": tuple(scores), "split": halves})


@pytest.mark.parametrize(
    ("adjusted", "confirmed"), [((0.5, 0.5, 0.5), 0), ((0.01, 0.5, 0.5), 1), ((0.01,) * 3, 3)]
)
def test_as_many_as_the_map_confirms(adjusted, confirmed):
    heads = judged(adjusted)
    assert len(heads.confirmed_heads()) == confirmed
    for sites in (heads.top(3), heads.bottom(3)):
        output = confirm_heads(heads, sites)
        assert len(output.confirmed) == confirmed
        start = f"{confirmed} of 3 chosen heads are confirmed by ablation on held-out items"
        assert str(output).startswith(start)
        assert output.is_complete == (confirmed == 3)


def test_an_effect_to_the_other_side_confirms_nothing():
    heads = judged((0.01,) * 3, way=-1)
    assert not confirm_heads(heads, heads.top(3)).confirmed


def test_the_same_items_and_heads_that_were_not_ablated_confirm_nothing():
    same = judged((0.01,) * 3, by="none")
    output = str(confirm_heads(same, same.top(3)))
    assert output == (
        "0 of 3 chosen heads are confirmed by ablation on held-out items: they were found and "
        "tested on the same items"
    )
    some = judged((0.01,) * 3, tested=())
    assert str(confirm_heads(some, some.top(3))).endswith("; 3 were not ablated")


def test_python_warns_as_the_command_does():
    heads = judged((0.01, 0.5, 0.5))
    output = "1 of 3 chosen heads are confirmed by ablation on held-out items"
    with pytest.warns(UnconfirmedHeadsWarning, match=output):
        edit = mask_heads(heads.top(3), head_map=heads)
    assert edit == mask_heads(heads.top(3))
    with pytest.warns(UnconfirmedHeadsWarning, match="1 of 3"):
        scale_heads(heads.bottom(3), 2.0, head_map=heads)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mask_heads(heads.top(1), head_map=heads)
        mask_heads(iter(heads.top(3)))  # of no map: nothing is known of them
