"""Real weights, because random models hide errors."""

import json
import subprocess
import sys

import pytest
import torch
from assets import asset, smollm2
from command import levelhead

from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.files import save_edits
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

MODELS = {
    "minibert-en": lambda: asset("models", "minibert-en"),
    "stories15m": lambda: asset("models", "stories15m"),
    "SmolLM2-135M": smollm2,
}
SHAPES = {"minibert-en": (6, 12, 12), "stories15m": (6, 6, 6), "SmolLM2-135M": (30, 9, 3)}


SLOW = ("SmolLM2-135M",)
"""270 heads, masked one after the other."""


@pytest.mark.parametrize(
    "name", [pytest.param(model, marks=[pytest.mark.full] * (model in SLOW)) for model in MODELS]
)
def test_the_doctor_finds_nothing(name):
    result = levelhead("doctor", MODELS[name]())
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    layers, heads, kv = SHAPES[name]
    assert f"{layers} layers x {heads} heads" in lines[0]
    assert (f"{kv} heads for keys and values" in result.stdout) == (kv < heads)
    assert f"{layers * heads} of {layers * heads} heads change the output" in result.stdout
    assert result.stdout.count("\u2713") == 9
    assert "\u2717" not in result.stdout


def test_minibert_says_what_its_makers_measured():
    """The figures of its TRAINING.md, rounded there."""
    lm = load(asset("models", "minibert-en"))
    assert lm.heads == {"masked", "next_sentence"}
    filled = lm.fill(
        ["The [MASK] works as a nurse.", "The [MASK] works as a mechanic."], ["man", "woman"]
    ).exp()
    expected = torch.tensor([[0.286, 0.172], [0.471, 0.080]])
    torch.testing.assert_close(filled, expected, atol=6e-4, rtol=0)
    responses = lm.fill(
        ["The nurse said that [MASK] was tired.", "The engineer said that [MASK] was tired."],
        ["she", "he"],
    ).exp()
    expected = torch.tensor([[0.072, 0.075], [0.035, 0.115]])
    torch.testing.assert_close(responses, expected, atol=6e-4, rtol=0)


def test_stories15m_gets_the_beginning_token_it_needs():
    lm = load(asset("models", "stories15m"))
    assert lm.settings["bos"] == 1
    bare = load(asset("models", "stories15m"), bos="tokenizer")
    assert bare.settings["bos"] is None
    opening = ["Once upon a time", "One day, a"]
    output, less = lm.log_prob(opening), bare.log_prob(opening)
    assert (
        output.token_counts == less.token_counts + 1
    ).all()  # without it the first word cannot be scored
    # A story begins so: behind its beginning token the model expects nothing else.
    assert output.value[0] > -1


def test_smollm2_is_converted_once_and_speaks():
    path = smollm2()
    lm = load(path)
    assert lm.heads == {"causal"}
    assert lm.settings["bos"] is None  # its tokenizer is believed
    assert lm.identity.checkpoint.folder == load(path).identity.checkpoint.folder
    assert lm.fill_top(["The capital of France is [MASK]"], 1)[0][0][0] == "Paris"
    sense, nonsense = lm.log_prob(["The cat sat on the mat.", "The mat on sat cat the."]).value
    assert sense > nonsense + 10


PLAIN = """
import json, sys
sys.modules["levelhead"] = None  # whoever imports it now fails
import torch, transformers
try:
    import levelhead
    raise SystemExit("levelhead was imported")
except ImportError:
    pass
folder, texts = json.loads(sys.argv[1])
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
model = transformers.AutoModelForPreTraining.from_pretrained(folder).eval()
told = []
with torch.no_grad():
    for text in texts:
        output = model(**tokenizer(text, return_tensors="pt"))
        words, follows = output.prediction_logits[0], output.seq_relationship_logits[0]
        told.append([words.tolist(), follows.tolist()])
alone = transformers.AutoModel.from_pretrained(folder)
masked = transformers.AutoModelForMaskedLM.from_pretrained(folder)
print(json.dumps(told))
"""


def test_a_baked_minibert_needs_no_levelhead(tmp_path):
    """One command; then plain transformers, in a process where levelhead cannot be imported."""
    lm = load(asset("models", "minibert-en"))
    direction = torch.linalg.qr(torch.randn(32, 2, dtype=torch.float64)).Q.T
    pooled = torch.linalg.qr(torch.randn(384, 1, dtype=torch.float64)).Q.T
    edits = [
        HeadScale([Site("head_out", 2, 5), Site("head_out", 4, 0)], 0),
        HeadScale([Site("head_out", 3, 7)], 1.5),
        Projection(Site("query", 4, 1), direction),
        Projection(Site("value", 4, 1), direction, weights=torch.tensor([0.7, 0.2])),
        Projection(Site("block_out", 5), pooled, tokens="first"),
        Projection(Site("pooled"), pooled),
    ]
    save_edits(edits, tmp_path / "edit")
    result = levelhead(
        *("export", asset("models", "minibert-en"), "--edit", tmp_path / "edit"),
        *("-o", tmp_path / "baked"),
    )
    assert result.returncode == 0, result.stderr
    assert "6 edit(s) merged" in result.stdout
    texts = ["The nurse was tired.", "He said that the council met again on Monday."]
    completed = subprocess.run(
        [sys.executable, "-c", PLAIN, json.dumps([str(tmp_path / "baked"), texts])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    edited = lm.edited(*edits)
    for text, (words, follows) in zip(texts, json.loads(completed.stdout), strict=True):
        unedited = torch.tensor(words).log_softmax(-1)
        (encoded,) = edited.tokens.encode([text])
        from levelhead.models.queries.query import ClassLogProbs, LogProbs, Query, ScoredPosition

        every = tuple(range(unedited.shape[1]))
        # The first token alone is where a baked [CLS] edit and a hooked one may differ.
        targets = tuple(ScoredPosition(i, every, every) for i in range(1, len(encoded.row.ids)))
        for i, target in enumerate(targets, start=1):
            single = edited.run(Query((encoded.row,), LogProbs(((target,),), columns=len(every))))
            torch.testing.assert_close(single[0], unedited[i], rtol=1e-5, atol=1e-5)
        hooked = edited.run(Query((encoded.row,), ClassLogProbs("next_sentence")))
        torch.testing.assert_close(
            torch.tensor([follows]).log_softmax(-1), hooked, rtol=1e-5, atol=1e-5
        )
    base = lm.run(Query((encoded.row,), ClassLogProbs("next_sentence")))
    assert (base - hooked).abs().max() > 1e-3


def test_baking_what_no_weights_can_carry_exits_3_with_the_way_out(tmp_path):
    inner = Projection(Site("block_out", 2), torch.eye(384, dtype=torch.float64)[:1])
    save_edits([inner], tmp_path / "edit")
    result = levelhead(
        *("export", asset("models", "minibert-en"), "--edit", tmp_path / "edit"),
        *("-o", tmp_path / "baked"),
    )
    assert result.returncode == 3
    assert "the projection at block_out 2 cannot be merged into plain weights" in result.stderr
    assert "levelhead.load(model, edit=folder)" in result.stderr
    assert not (tmp_path / "baked").exists()


def test_float64_is_float32_but_for_rounding():
    texts = ["The nurse was tired.", "He said that the council met again on Monday."]
    spans = [(4, 9), (17, 24)]
    for name in ("minibert-en", "stories15m"):
        single, double = (
            load(asset("models", name), dtype=dtype).embed(texts, spans).double()
            for dtype in ("float32", "float64")
        )
        assert ((single - double).abs().max() / double.abs().max()) < 1e-5
