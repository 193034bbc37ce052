"""The README of an edited model says what was edited, gained, paid, and what is not shown."""

import shutil

import pytest
import torch
import zoo
from huggingface_hub import ModelCard

from levelhead.core.errors import LevelheadError
from levelhead.core.results import DroppedItem, Interval, Measurement, Provenance
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.conditional_shift import ConditionalShift
from levelhead.models.edits.erasure import Erasure
from levelhead.models.edits.shift import Shift
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

BERT = ("bert", "BertForPreTraining")
MASK = HeadScale([Site("head_out", 1, 1), Site("head_out", 2, 0)], 0)


def axis(i, k=1):
    return torch.eye(24, dtype=torch.float64)[i : i + k]


def measured(lm, value, measure="strength", parity=0.0, **changes):
    given = {
        "measure": measure,
        "value": value,
        "interval": Interval(low=value - 0.1, high=value + 0.1, level=0.95, method="bootstrap"),
        "parity": parity,
        "n": 9,
        "dropped": (DroppedItem("ten", "too long"),),
        "provenance": Provenance.of(
            lm.identity.name,
            lm.content_hash,
            data={},
            equation="none",
            settings={},
            edits=tuple(edit.content_hash for edit in lm.edits),
        ),
    }
    return Measurement(**(given | changes))


def readme(lm, folder, **options):
    lm.save_pretrained(folder, **options)
    return (folder / "README.md").read_text()


def test_what_was_edited_is_told_in_words(tmp_path):
    base = load(zoo.folder(*BERT))
    wide = {"left": axis(3), "right": axis(3), "mean": torch.ones(24)}
    lm = base.edited(
        MASK,
        Projection(Site("block_out", 1), axis(0, 2), weights=torch.tensor([0.5, 0.25])),
        Projection(Site("block_out", 0), axis(1)),
        Projection(Site("mlp_out", 0), axis(2)),
        Erasure(Site("block_out", 2), **wide, tokens="first"),
        Shift(Site("block_out", 0), 3 * axis(1)[0], strength=-0.5),
        ConditionalShift(
            Site("mlp_out", 1), weights=axis(0, 2), biases=torch.zeros(2), vectors=axis(1, 2)
        ),
    )
    text = readme(lm, tmp_path / "out", with_edit_file=True)
    for line in (
        "- the outputs of heads are multiplied by 0: head_out 1.1, head_out 2.0\n",
        "- 2 direction(s) removed partially (weights 0.5, 0.25): block_out 1\n",
        "- 1 direction(s) removed fully: block_out 0, mlp_out 0\n",
        "- an erasure of rank 1 about a mean of the first token: block_out 2\n",
        "- a vector of length 3 is added with strength -0.5: block_out 0\n",
        "- 2 vector(s) are added where their linear detectors fire, with strength 1: mlp_out 1\n",
    ):
        assert line in text
    assert "**without the edit**" in text
    assert base.identity.checkpoint.hash in text
    assert str(zoo.folder(*BERT).parent) not in text
    assert zoo.folder(*BERT).name in text


def test_without_measurements_nothing_is_claimed(tmp_path):
    text = readme(load(zoo.folder(*BERT)).edited(MASK), tmp_path / "out")
    assert text.startswith("<!-- levelhead: begin -->\n# zoo-bert-")  # no empty metadata
    assert "merged into the weights: `BertForPreTraining.from_pretrained` loads it.\n" in text
    assert "```python" not in text
    assert text.count("No measurement was given for this card") == 2
    assert "whether the edit reduces any bias is not shown" in text
    assert "the cost of the edit in fluency or accuracy is not shown" in text
    assert "Equal treatment of groups." in text


def test_what_plain_weights_leave_is_told(tmp_path):
    base = load(zoo.folder(*BERT))
    first = Projection(Site("block_out", 2), axis(0), tokens="first")
    text = readme(base.edited(first, Projection(Site("pooled"), axis(0))), tmp_path / "out")
    assert "(`pooler_output`, and what `AutoModel` returns without that layer) is **the" in text
    assert "the token's last hidden state is **the base's**" in text


def test_gains_and_prices_are_told_with_their_intervals(tmp_path):
    base = load(zoo.folder(*BERT))
    lm = base.edited(MASK)
    text = readme(
        lm,
        tmp_path / "out",
        bias_changes=[(measured(base, 0.75), measured(lm.merged(), 0.5))],
        utility_changes=[
            (
                measured(base, 3, "pppl", None, unit="per token"),
                measured(lm, 4, "pppl", None, unit="per token"),
            ),
        ],
    )
    assert "| strength | 0.75 [0.65, 0.85] | 0.5 [0.4, 0.6] | 0 | 9 of 10 |\n" in text
    assert "| pppl (per token) | 3 [2.9, 3.1] | 4 [3.9, 4.1] |  | 9 of 10 |\n" in text
    assert "In brackets: intervals at 95%." in text
    assert "No measurement" not in text


def test_numbers_of_other_models_are_refused(tmp_path):
    base = load(zoo.folder(*BERT))
    lm, other = base.edited(MASK), base.edited(HeadScale([Site("head_out", 0, 0)], 0))
    for change, responses in [
        ((measured(base, 1), measured(other, 1)), "second strength was not measured on this"),
        ((measured(base, 1), measured(base, 1)), "second strength was not measured on this"),
        ((measured(lm, 1), measured(base, 1)), "first strength was not measured on the base"),
        ((measured(base, 1), measured(lm, 1, "seat")), "strength before and seat after are diff"),
        ((measured(base, 1), measured(lm, 1, comparability_key="x")), "are different measures"),
    ]:
        with pytest.raises(LevelheadError, match=responses) as error:
            lm.save_pretrained(tmp_path / "out", bias_changes=[change])
        assert error.value.hint
        with pytest.raises(LevelheadError, match=responses):
            lm.save_pretrained(tmp_path / "out", utility_changes=[change], with_edit_file=True)
    with pytest.raises(LevelheadError, match="for a model without edits"):
        base.save_pretrained(
            tmp_path / "out", bias_changes=[(measured(base, 1), measured(base, 1))]
        )
    assert not (tmp_path / "out").exists()


def base_with(card, tmp_path):
    folder = shutil.copytree(zoo.folder(*BERT), tmp_path / "base")
    (folder / "README.md").write_text(card)
    return folder


CARD = """---
license: mit
model-index:
- name: small
  results:
  - task: {type: fill-mask}
    dataset: {name: own, type: own}
    metrics: [{type: accuracy, value: 0.9}]
---
# The base

Its own words.
"""


def test_the_base_s_card_is_kept_but_not_its_numbers(tmp_path):
    lm = load(base_with(CARD, tmp_path)).edited(MASK)
    text = readme(lm, tmp_path / "out")
    card = ModelCard(text)
    assert card.data.license == "mit"
    assert card.data.base_model is None  # a folder is no name on the Hub
    assert "model-index" not in text
    assert "0.9" not in text
    assert text.index("## What was edited") < text.index("Its own words.")


def test_an_edit_of_an_edited_model_says_both_once(tmp_path):
    first = load(base_with(CARD, tmp_path)).edited(MASK)
    first.save_pretrained(tmp_path / "once")
    again = load(tmp_path / "once").edited(HeadScale([Site("head_out", 0, 3)], 2))
    text = readme(again, tmp_path / "twice")
    assert text.count("## What was edited") == text.count("Its own words.") == 1
    assert f"- an edit merged earlier, `{MASK.content_hash[:12]}`\n" in text
    assert "- the outputs of heads are multiplied by 2: head_out 0.3\n" in text


def test_a_base_from_the_hub_is_named(tmp_path):
    lm = load(zoo.folder(*BERT)).edited(MASK)
    object.__setattr__(lm, "identity", lm.identity._replace(name="someone/small", revision="abc"))
    text = readme(lm, tmp_path / "out")
    assert ModelCard(text).data.base_model == "someone/small"
    assert "The base is `someone/small`, revision `abc`" in text


def test_a_card_that_is_none_is_refused(tmp_path):
    lm = load(base_with("---\n- a\n- b\n---\n", tmp_path)).edited(MASK)
    with pytest.raises(LevelheadError, match=r"the base's README\.md is not a model card") as error:
        lm.save_pretrained(tmp_path / "out")
    assert error.value.hint == "correct or remove README.md in the base's folder"


def test_an_unedited_model_has_no_card_of_ours(tmp_path):
    load(zoo.folder(*BERT)).save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out" / "README.md").exists()
