"""A model and its edits in a folder: its README alone says how to apply them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import zoo
from shifts import conditional_shift, shift

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.erasure import Erasure
from levelhead.models.export.torch_module import to_torch_module
from levelhead.models.lm import LM
from levelhead.models.loading.load import load
from levelhead.models.queries.query import ClassLogProbs, LogProbs, Query, ScoredPosition
from levelhead.models.sites import Site

BERT = ("bert", "BertForPreTraining")
TEXT = "the nurse works as a doctor ."
PAIR = ("the nurse works", "she was tired .")

# What the lines of some READMEs make of texts, where levelhead cannot be imported.
ASKED = """
import json, os, sys
try:
    import levelhead
    sys.exit("levelhead was imported")
except ImportError:
    pass
told = []
for folder, ids, kinds in json.loads(sys.stdin.read()):
    os.chdir(folder)
    names = {}
    exec(open("block.py").read(), names)
    torch, model = names["torch"], names["model"]
    more = {"token_type_ids": torch.tensor([kinds])} if kinds else {}
    with torch.no_grad():
        first, output = (model(torch.tensor([ids]), **more) for _ in range(2))
    own = {
        name: output[name][0].tolist()
        for name in ("logits", "prediction_logits", "seq_relationship_logits")
        if name in output
    }
    assert all(torch.equal(first[name], output[name]) for name in own)
    told.append(own)
print(json.dumps(told))
"""


def draw_sample(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def projection(lm, site, k=2, **options):
    basis = torch.linalg.qr(draw_sample(lm.layout.site_width(site), k)).Q.T
    return Projection(site, basis, **options)


def erasure(lm, site, **options):
    right = projection(lm, site, k=1).basis
    left = right + 0.1 * draw_sample(*right.shape, seed=1)
    left = left / (right * left).sum()
    return Erasure(
        site, left=left, right=right, mean=draw_sample(right.shape[1], seed=2), **options
    )


def readme_block(folder):
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    return code


def applied(cases, tmp_path):
    """What models say after the lines of their READMEs, by the name of the output."""
    poison = tmp_path / "poison" / "levelhead"
    poison.mkdir(parents=True)
    (poison / "__init__.py").write_text("raise ImportError('levelhead is not to be had here')")
    for folder, _, _ in cases:
        (folder / "block.py").write_text(readme_block(folder))
    given = [
        (str(folder), list(row.ids), list(row.token_types) if kinds else None)
        for folder, row, kinds in cases
    ]
    result = subprocess.run(
        [sys.executable, "-c", ASKED],
        env=os.environ | {"PYTHONPATH": str(poison.parent), "OMP_NUM_THREADS": "1"},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [
        {name: torch.tensor(values).log_softmax(-1) for name, values in load.items()}
        for load in json.loads(result.stdout)
    ]


def hooked(lm, row):
    """Log-probabilities of every word at every token."""
    size = lm.layout.model.config.vocab_size
    every = tuple(range(size))
    targets = tuple(ScoredPosition(i, every, every) for i in range(len(row.ids)))
    return torch.cat(
        [lm.run(Query((row,), LogProbs(((target,),), columns=size))) for target in targets]
    )


def saved(lm, tmp_path, name="out"):
    lm.save_pretrained(tmp_path / name, with_edit_file=True)
    return tmp_path / name


def close(first, second):
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)


LEVELS = {
    "penultimate": lambda lm: [projection(lm, Site("block_out", 1))],
    "last": lambda lm: [
        projection(lm, Site("block_out", 1), weights=torch.tensor([0.5, 0.2])),
        projection(lm, Site("block_out", 2), tokens="first"),
        projection(lm, Site("pooled")),
    ],
    "steering": lambda lm: [
        shift(lm, Site("block_out", 0), strength=0.5),
        conditional_shift(lm, Site("block_out", 1)),
        conditional_shift(lm, Site("pooled"), strength=-0.5),
    ],
    "heads": lambda lm: [
        HeadScale([Site("head_out", 0, 1), Site("head_out", 2, 3)], 0),
        projection(lm, Site("block_out", 0)),
    ],
    "all": lambda lm: [
        projection(lm, Site("embeddings"), k=1),
        erasure(lm, Site("block_out", 1)),
        projection(lm, Site("block_out", 1)),
        HeadScale([Site("head_out", 1, 1)], 1.5),
        erasure(lm, Site("head_out", 1), tokens="first"),
        *(projection(lm, Site("query", 1, i)) for i in range(4)),
        projection(lm, Site("mlp_out", 1)),
        erasure(lm, Site("block_out", 2), tokens="first"),
    ],
}


def everything(lm):
    """An edit of every stream of the second layer that the models here have."""
    first = "all" if lm.is_causal else "first"
    return [
        HeadScale([Site("head_out", 1, 2)], 0.3),
        projection(lm, Site("query", 1, 1)),
        projection(lm, Site("key", 1, 1), tokens=first),
        projection(lm, Site("value", 1), k=3),
        erasure(lm, Site("query", 1)),
        projection(lm, Site("mlp_out", 1)),
        projection(lm, Site("block_out", 1), weights=torch.tensor([1, 0.4])),
        erasure(lm, Site("block_out", 0)),
        shift(lm, Site("key", 0), strength=0.5),
        conditional_shift(lm, Site("block_out", 0), strength=0.5),
        conditional_shift(lm, Site("value", 1, 1), tokens=first),
        projection(lm, Site("embeddings"), tokens=first),
    ]


FAMILIES = {
    "gpt2": "GPT2LMHeadModel",  # queries, keys and values in one Conv1D
    "llama": "LlamaForCausalLM",  # fewer heads of keys than of queries
    "gpt_neox": "GPTNeoXForCausalLM",  # the three of a head side by side
    "bloom": "BloomForCausalLM",  # layers return tuples
    "albert": "AlbertForMaskedLM",  # one layer called three times
    "deberta-v2": "DebertaV2ForMaskedLM",  # projections called for positions as well
}


class TakenAway(NamedTuple):
    """Edited models, and what their folders' READMEs made of them."""

    berts: dict[str, LM]
    families: dict[str, LM]
    pooled: LM
    folder: Path
    outputs: dict[str, dict[str, torch.Tensor]]


def pair_row():
    (encoded,) = load(zoo.folder(*BERT)).tokens.encode([PAIR])
    return encoded.row


def text_row(lm):
    return lm.tokens.encode([TEXT])[0].row


@pytest.fixture(scope="module")
def taken_away(tmp_path_factory):
    """All models in one process, which takes more than 5 s to import torch and transformers."""
    folder = tmp_path_factory.mktemp("saved")
    base = load(zoo.folder(*BERT))
    berts = {name: base.edited(*edits(base)) for name, edits in LEVELS.items()}
    families = {}
    for family, name in FAMILIES.items():
        lm = load(zoo.folder(family, name))
        families[family] = lm.edited(*everything(lm))
    # A decoder's own forward pools after the classifier: every token is its input.
    pooled = load(zoo.folder("llama", "LlamaForSequenceClassification"))
    pooled = pooled.edited(
        projection(pooled, Site("pooled"), tokens="first"), projection(pooled, Site("block_out", 0))
    )
    cases = {name: (saved(lm, folder, name), pair_row(), True) for name, lm in berts.items()}
    for name, lm in (families | {"pooled": pooled}).items():
        cases[name] = saved(lm, folder, name), text_row(lm), False
    output = dict(zip(cases, applied(list(cases.values()), folder), strict=True))
    return TakenAway(berts, families, pooled, folder, output)


def test_the_readme_gives_a_bert_with_its_edits(taken_away):
    row = pair_row()
    ask = Query((row,), ClassLogProbs("next_sentence"))
    unedited = load(zoo.folder(*BERT)).run(ask)
    for name, lm in taken_away.berts.items():
        output = taken_away.outputs[name]
        assert (lm.run(ask) - unedited).abs().max() > 1e-4, name
        close(output["seq_relationship_logits"][None], lm.run(ask))
        close(output["prediction_logits"], hooked(lm, row))


def test_the_readme_gives_any_family_with_its_edits(taken_away):
    for family, lm in taken_away.families.items():
        row = text_row(lm)
        unedited = load(zoo.folder(family, FAMILIES[family]))
        close(taken_away.outputs[family]["logits"], hooked(lm, row))
        assert (hooked(lm, row) - hooked(unedited, row)).abs().max() > 1e-3
        counts = "turns" in readme_block(taken_away.folder / family)
        assert counts == (family in ("albert", "deberta-v2"))
    pooled = taken_away.pooled
    close(taken_away.outputs["pooled"]["logits"][None], pooled.classify([TEXT]))
    with torch.no_grad():
        responses = to_torch_module(pooled)(torch.tensor([text_row(pooled).ids])).logits
    close(responses.log_softmax(-1), pooled.classify([TEXT]))


@pytest.mark.parametrize("family", FAMILIES)
def test_other_tools_get_a_plain_module_with_the_edits(family):
    base = load(zoo.folder(family, FAMILIES[family]))
    row = base.tokens.encode([TEXT])[0].row
    head = HeadScale([Site("head_out", 1, 2)], 0.3)
    for edits in ([], [head], everything(base)):
        lm = base.edited(*edits)
        with torch.no_grad():
            responses = to_torch_module(lm)(input_ids=torch.tensor([row.ids])).logits[0]
        close(responses.log_softmax(-1), hooked(lm, row))
    assert to_torch_module(base) is base.layout.model


def test_the_readme_holds_only_the_kinds_that_are_there(tmp_path):
    base = load(zoo.folder(*BERT))
    code = readme_block(saved(base.edited(projection(base, Site("block_out", 1))), tmp_path))
    assert "import levelhead" not in code
    for absent in ("head_scale", "erasure", "first", "turns"):
        assert absent not in code
    assert "transformers.BertForPreTraining.from_pretrained(folder)" in code


def test_places_are_written_out(tmp_path):
    base = load(zoo.folder("gpt_neox", "GPTNeoXForCausalLM"))
    lm = base.edited(projection(base, Site("key", 1, 2)), projection(base, Site("value", 0)))
    hooks = json.loads((saved(lm, tmp_path) / "hooks.json").read_text())
    assert hooks["format"] == "levelhead-hooks-1"
    assert hooks["model_class"] == "GPTNeoXForCausalLM"
    assert hooks["steps"] == [
        {
            "edit": 0,
            "kind": "projection",
            "at": "key 1.2",
            "module": "gpt_neox.layers.1.attention.query_key_value",
            "side": "output",
            "call": None,
            "columns": [[42, 48]],  # [q|k|v] of 6 each, head after head
            "tokens": "all",
        },
        {
            "edit": 1,
            "kind": "projection",
            "at": "value 0",
            "module": "gpt_neox.layers.0.attention.query_key_value",
            "side": "output",
            "call": None,
            "columns": [[12, 18], [30, 36], [48, 54], [66, 72]],
            "tokens": "all",
        },
    ]


def test_the_weights_are_the_base_s_and_levelhead_reads_the_folder(tmp_path):
    base = load(zoo.folder(*BERT))
    lm = base.edited(projection(base, Site("block_out", 1)))
    folder = saved(lm, tmp_path)
    assert torch.equal(load(folder, edit=()).embed([TEXT]), base.embed([TEXT]))
    assert torch.equal(load(folder, edit=folder).embed([TEXT]), lm.embed([TEXT]))
    assert load(folder, edit=folder).edits == lm.edits
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_base_beside_its_edits_is_not_loaded_for_the_edited_one(tmp_path):
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    edit = HeadScale([Site("head_out", 1, 1)], 0)
    lm.edited(edit).save_pretrained(tmp_path / "out", with_edit_file=True)
    with pytest.raises(
        LevelheadError, match="the weights of a base and, in a separate file, the edits"
    ) as refused:
        load(tmp_path / "out")
    assert "edit=" in refused.value.hint
    assert load(tmp_path / "out", edit=tmp_path / "out").edits == (edit,)


def test_the_first_token_of_a_decoder_is_refused(tmp_path):
    base = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    site = Site("block_out", 1)
    edit = Projection(site, torch.eye(base.layout.width)[:1], tokens="first")
    with pytest.raises(LevelheadError, match="cannot identify while text is generated"):
        base.edited(edit).save_pretrained(tmp_path / "out", with_edit_file=True)
    assert not (tmp_path / "out").exists()


def test_nothing_is_not_taken_away(tmp_path):
    base = load(zoo.folder(*BERT))
    with pytest.raises(LevelheadError, match="the model has no edit to write") as error:
        base.save_pretrained(tmp_path / "out", with_edit_file=True)
    assert "lm.edited(edit)" in error.value.hint
    assert not (tmp_path / "out").exists()


def test_the_first_token_of_a_feed_forward_is_refused(tmp_path):
    base = load(zoo.folder(*BERT))
    lm = base.edited(projection(base, Site("mlp_out", 1), tokens="first"))
    with pytest.raises(LevelheadError, match="which a plain hook cannot identify there") as error:
        saved(lm, tmp_path)
    assert "let it act on all tokens" in error.value.hint
    assert not (tmp_path / "out").exists()
