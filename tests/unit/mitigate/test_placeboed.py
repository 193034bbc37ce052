import contrasts
import pytest
import torch
from rulers import JUDGE, made, model

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.mitigate.levels import project
from levelhead.mitigate.placeboed import Placeboed, activations_of, placeboed
from levelhead.models.sites import Site

PAIRS = contrasts.texts()
OTHERS = (PAIRS[4:], PAIRS[:12])


def test_an_edit_is_judged_by_its_placebos():
    lm, ruler = model("strength"), made("strength")
    edits = project(lm, "last", PAIRS)
    asked = {"setting": "last", "others": OTHERS, "judge": JUDGE}
    found = placeboed(lm, ruler, edits, PAIRS, n=20, least=20, **asked)
    assert Placeboed.from_json(found.to_json()) == found
    assert found.setting == "last"
    assert len(found.judged.placebos) == found.matched.placebos == 20
    assert 0 < found.matched.variance < 1  # told of texts that they were not matched on
    assert found.collapse is not None  # two classes: lost confidence can be told apart
    again = placeboed(lm, ruler, edits, PAIRS, n=20, least=20, **asked)
    assert again == found
    with pytest.raises(LevelheadError, match="20 placebos say little"):
        placeboed(lm, ruler, edits, PAIRS, n=20, **asked)


def test_what_cannot_act_is_not_judged():
    lm, ruler = model("strength"), made("seat")
    edits = project(lm, "sent", PAIRS)
    with pytest.raises(NotMeasurable, match="sent acts behind all that seat reads"):
        placeboed(lm, ruler, edits, PAIRS, setting="sent", others=OTHERS, n=4, least=4, judge=JUDGE)


def test_activations_are_those_of_the_tokens_that_are_edited():
    lm, ruler = model("strength"), made("strength")
    last = lm.anatomy.layers - 1
    inner, outer = Site("block_out", last - 1), Site("block_out", last)
    found = activations_of(lm, ruler, [inner, outer, Site("pooled")], 0)
    texts = {part for item in ruler.asked(lm)[0].items for ask in item.asks for part in ask}
    asks = {ask for item in ruler.asked(lm)[0].items for ask in item.asks}
    assert [len(rows) for rows in found.values()] == [len(texts), len(asks), len(asks)]
    # The first token's state at the end, of pairs as they are asked; a single word's before it.
    own = lm.read(sorted(asks), [outer], pooling="first")[outer].double()
    order = torch.cdist(found[outer], own).argmin(1)
    assert sorted(order.tolist()) == list(range(len(asks)))
    mean = lm.read(sorted(texts), [inner], pooling="mean")[inner].double()
    assert float(torch.cdist(found[inner], mean).min(1).values.max()) > 1e-3
