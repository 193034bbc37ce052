"""Context-Debias, Auto-Debias, DPO and NPO: their losses against the equations, term by term."""

import json
import math
from dataclasses import replace

import pytest
import torch
import zoo
from typer.testing import CliRunner

from levelhead.cli.mitigate.mitigate import app
from levelhead.core.errors import LevelheadError, MissingExtraError
from levelhead.core.files import file_hash
from levelhead.data.corpus.matcher import SentenceMatcher
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.mitigate.training.auto_debias import AutoDebiasSettings, EqualBlanks, auto_debias
from levelhead.mitigate.training.cda_and_dropout import cda, dropout
from levelhead.mitigate.training.context_debias import (
    ContextDebiasSettings,
    Orthogonality,
    WordState,
    context_debias,
)
from levelhead.mitigate.training.methods import TRAINING_METHODS
from levelhead.mitigate.training.placebo_words import count_words, draw_placebo_words
from levelhead.mitigate.training.preferences import (
    PreferenceObjective,
    PreferenceSettings,
    dpo,
    make_preference_pair,
    npo,
)
from levelhead.mitigate.training.prompt_search import BeamSearch, search_prompts, token_id
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.loading.load import load
from levelhead.models.training.configs import ContinuedPretrainingConfig, LowRankConfig
from levelhead.models.training.low_rank import ADAPTER_FOLDER
from levelhead.models.training.trainee import make_trainee
from levelhead.models.training.training_examples import make_training_example

LEXICON = """
name = "tiny"
language = "en"
groups = ["female", "male"]
source = "made for a test"
licence = "CC0-1.0"
limits = "a few words"

[[terms]]
kind = "pronoun"
rows = [{ female = "she", male = "he", role = "subject" }]
[[terms]]
kind = "person"
rows = [{ female = "woman", male = "man" }]

[targets.occupations]
about = "two"
[targets.occupations.sides.a]
leans = "female"
words = ["nurse"]
[targets.occupations.sides.b]
leans = "male"
words = ["doctor"]
"""
TEXTS = [
    f"{who} {what}."
    for who in ("he", "she", "the man", "the woman", "the nurse", "the doctor", "the house")
    for what in ("is here", "was tired", "works in a house", "said that", "works as a nurse")
]
SHORT = ContinuedPretrainingConfig(
    steps=4, batch_size=4, learning_rate=1e-3, save_steps=2, threads=1
)
SEARCH = {"pairs": 2, "candidates": 5, "beam": 2, "length": 2}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    path = tmp_path_factory.mktemp("lexicon") / "tiny.toml"
    path.write_text(LEXICON)
    return str(path)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "texts.txt"
    path.write_text("\n".join(TEXTS))
    return str(path)


@pytest.fixture(scope="module")
def bert():
    return zoo.folder("bert", "BertForPreTraining")


@pytest.fixture(scope="module")
def gpt2():
    return zoo.folder("gpt2", "GPT2LMHeadModel")


def moved(lm):
    """The base, and another model of the same class, so that no term of a loss is zero."""
    torch.manual_seed(0)
    trainee = make_trainee(lm, None, has_dropout=False)
    trainee.model.eval()
    with torch.no_grad():
        for parameter in trainee.model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return trainee


def word_state(lm, text, word):
    encoded = lm.tokens.encode([text])[0]
    start = text.index(word)
    positions = lm.tokens.positions_of_word(encoded, (start, start + len(word)), text)
    return WordState(word, text, encoded.row, positions, encoded.word_positions())


def states_of(layout, row):
    ids = torch.tensor([row.ids])
    return layout.backbone(ids, output_hidden_states=True).hidden_states[1:]


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_orthogonality_term_by_term(kind, request):
    """Equations 1 to 4 of Kaneko and Bollegala, sentence by sentence without padding."""
    lm = load(request.getfixturevalue(kind))
    targets = [
        word_state(lm, "the nurse was tired and here", "nurse"),
        word_state(lm, "a doctor said that", "doctor"),
    ]
    attributes = [
        word_state(lm, "he was here in the house", "he"),
        word_state(lm, "quick he was", "he"),
        word_state(lm, "she is quick", "she"),
    ]
    config = replace(SHORT, batch_size=6)
    objective = Orthogonality(lm.layout, lm.tokens, targets, attributes, alpha=0.3, config=config)
    trainee = moved(lm)
    with torch.no_grad():
        value = float(objective.compute_loss(trainee, objective.collate(list(range(6)))))
        products, distances = [], []
        for layer in range(lm.layout.layers):
            vectors = {}
            for state in attributes:
                states = states_of(lm.layout, state.row)[layer][0]
                vectors.setdefault(state.word, []).append(states[list(state.positions)].mean(0))
            for state in targets:
                states = states_of(trainee, state.row)[layer][0]
                vector = states[list(state.positions)].mean(0)
                products += [
                    float(torch.stack(rows).mean(0) @ vector) ** 2 for rows in vectors.values()
                ]
            for state in attributes:
                new, old = (states_of(m, state.row)[layer][0] for m in (trainee, lm.layout))
                distances += [float((new[i] - old[i]).square().sum()) for i in state.word_positions]
    expected = 0.3 * sum(products) / len(products) + 0.7 * sum(distances) / len(distances)
    assert value == pytest.approx(expected, rel=1e-5)
    # At the base nothing pulls on the attributes, and without orthogonality nothing does at all.
    still = Orthogonality(lm.layout, lm.tokens, targets, attributes, alpha=0.0, config=config)
    copy = make_trainee(lm, None, has_dropout=False)
    loss = still.compute_loss(copy, still.collate([0, 1, 2]))
    loss.backward()
    assert float(loss.detach()) < 1e-10
    assert all(p.grad is None or float(p.grad.abs().max()) < 1e-4 for p in copy.model.parameters())


def blanks_of(lm, layout, word, prompt, ids):
    """Equation 1 of Guo et al., by the model's own forward."""
    text = f"{word} {prompt} {lm.tokens.tokenizer.mask_token}"
    row = lm.tokens.encode([text], blanks=1)[0].row
    position = row.ids.index(lm.tokens.mask)
    logits = layout.model(torch.tensor([row.ids])).prediction_logits[0, position, ids].double()
    return logits.softmax(-1)


def divergence(p, q):
    """Equations 2 and 3, value by value."""
    mean = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return sum(
        sum(a * math.log(a / m) for a, m in zip(side, mean, strict=True)) / 2 for side in (p, q)
    )


def test_blanks_term_by_term_and_the_most_biased_prompts(bert):
    lm = load(bert)
    pairs, candidates = [("he", "she"), ("man", "woman")], ["is", "was", "works", "said"]
    ids = torch.tensor([token_id(lm.tokens, word) for word in ("nurse", "doctor", "tired")])
    layout = moved(lm)
    layout.model.double()

    def score(model, prompt):
        with torch.no_grad():
            return sum(
                divergence(*(blanks_of(lm, model, word, prompt, ids).tolist() for word in pair))
                for pair in pairs
            )

    rows = [(prompt, pair) for prompt in ("is a", "works as the") for pair in pairs]
    objective = EqualBlanks(lm.tokens, rows, ids, SHORT)
    with torch.no_grad():
        value = float(objective.compute_loss(layout, objective.collate([0, 1, 2, 3])))
    expected = (score(layout, "is a") + score(layout, "works as the")) / 4
    assert value == pytest.approx(expected, rel=1e-6)
    # All prompts of one and two words, without a beam that leaves any out.
    found = dict(search_prompts(lm, pairs, candidates, ids, BeamSearch(4, 16, 2)))
    texts = [*candidates, *(f"{a} {b}" for a in candidates for b in candidates)]
    assert found.keys() == set(texts)
    for prompt, value in found.items():
        assert value == pytest.approx(score(lm.layout, prompt), rel=1e-3, abs=1e-7)
    best = max(candidates, key=found.__getitem__)
    narrow = search_prompts(lm, pairs, candidates, ids, BeamSearch(4, 1, 2))
    assert narrow[0][0] == best
    assert narrow[1][0] == max((t for t in found if t.startswith(f"{best} ")), key=found.get)
    # Equal words cannot differ, and nothing is learned from them.
    same = EqualBlanks(lm.tokens, [("is a", ("he", "he"))], ids, SHORT)
    copy = make_trainee(lm, None, has_dropout=False)
    loss = same.compute_loss(copy, same.collate([0]))
    loss.backward()
    assert float(loss.detach()) < 1e-7
    assert all(p.grad is None or float(p.grad.abs().max()) < 1e-6 for p in copy.model.parameters())


def text_log_prob(layout, row):
    log_probs = layout.model(torch.tensor([row.ids])).logits[0].double().log_softmax(-1)
    return sum(float(log_probs[i - 1, row.ids[i]]) for i in range(1, len(row.ids)))


@pytest.mark.parametrize("method", ["dpo", "npo"])
def test_preferences_term_by_term(method, gpt2):
    """Rafailov et al., equation 7, and Zhang et al., equation 3, with math.log and math.exp."""
    lm, beta, retain = load(gpt2), 0.4, 0.7
    texts = [
        ("she is a doctor", "he is a doctor"),
        ("the man was a nurse here", "the woman was a nurse here"),
    ]
    pairs = [
        tuple(make_training_example(lm, text, max_tokens=32) for text in pair) for pair in texts
    ]
    settings = PreferenceSettings(beta=beta, retain=retain)
    objective = PreferenceObjective(method, lm.layout, lm.tokens, pairs, settings, SHORT)
    trainee = moved(lm)
    with torch.no_grad():
        value = float(objective.compute_loss(trainee, objective.collate([0, 1])))
        losses, retained, count = [], 0.0, 0
        for pair in pairs:
            new, old = (
                [text_log_prob(model, example.row) for example in pair]
                for model in (trainee, lm.layout)
            )
            if method == "dpo":
                margin = beta * ((new[0] - old[0]) - (new[1] - old[1]))
                losses.append(-math.log(1 / (1 + math.exp(-margin))))
            else:
                ratio = math.exp(new[1] - old[1])
                losses.append(2 / beta * math.log(1 + ratio**beta))
                retained -= new[0]
                count += len(pair[0].row.ids) - 1
    expected = sum(losses) / 2 + (retain * retained / count if method == "npo" else 0)
    assert value == pytest.approx(expected, rel=1e-5)
    # At the base: log 2, whatever the texts.
    if method == "dpo":
        start = objective.compute_loss(lm.layout, objective.collate([0, 1]))
        assert float(start) == pytest.approx(math.log(2), rel=1e-6)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("he is a doctor", ("she is a doctor", "he is a doctor")),
        ("he is a nurse", ("he is a nurse", "she is a nurse")),
        ("the woman was a nurse", ("the man was a nurse", "the woman was a nurse")),
        ("he is here", "no stereotyped word"),
        ("a doctor is here", "no group word"),
        ("he said that she is a doctor", "words of both groups"),
        ("he said that a nurse is a doctor", "stereotyped words of both groups"),
    ],
)
def test_the_stereotyped_text_is_dispreferred(text, result, words):
    matcher = SentenceMatcher(lexicon(words), ("female", "male"))
    assert make_preference_pair(text, matcher, {"nurse": "female", "doctor": "male"}) == result


def test_placebo_words_are_as_frequent_and_name_no_group():
    texts = ["he is here"] * 50 + ["she was there"] * 40 + ["a quick river"] * 3 + ["lazy 7"]
    counts = count_words(texts)
    assert "7" not in counts
    drawn = draw_placebo_words(["he", "she"], counts, {"he", "she"}, seed=0)
    assert set(drawn) == {"he", "she"}
    assert len(set(drawn.values())) == 2
    assert not set(drawn.values()) & {"he", "she"}
    many = {f"w{i}": i for i in range(1, 1000)} | {"he": 500}
    (word,) = draw_placebo_words(["he"], many, {"he"}, seed=1).values()
    assert 490 <= many[word] <= 510
    with pytest.raises(LevelheadError, match="a placebo needs 2 words"):
        draw_placebo_words(["he", "she"], {"he": 1, "a": 1}, {"he"}, seed=0)


def train(method, base, corpus, folder, words, **options):
    """A short training by each method."""
    config = options.pop("config", SHORT)
    settings = {
        "context-debias": (context_debias, ContextDebiasSettings(words)),
        "auto-debias": (auto_debias, AutoDebiasSettings(words, **SEARCH)),
        "dpo": (dpo, PreferenceSettings(words)),
        "npo": (npo, PreferenceSettings(words)),
    }
    run, values = settings[method]
    return run(base, corpus, folder, settings=values, config=config, **options)


class Stopped(Exception):
    """What a test stops a training with."""


def stop_at_3(done, total):
    if done == 3:
        raise Stopped


# NPO trains by the same code as DPO.
@pytest.mark.parametrize(
    "method", ["context-debias", "auto-debias", "dpo", pytest.param("npo", marks=pytest.mark.full)]
)
def test_the_same_after_an_interruption_and_other_weights_as_a_placebo(
    method, bert, gpt2, corpus, words, tmp_path
):
    base = bert if "masked" in TRAINING_METHODS[method].heads else gpt2
    whole = train(method, base, corpus, tmp_path / "whole", words)
    with pytest.raises(Stopped):
        train(method, base, corpus, tmp_path / "cut", words, progress=stop_at_3)
    assert not (tmp_path / "cut").exists()
    steps = []
    again = train(
        method, base, corpus, tmp_path / "cut", words, progress=lambda *row: steps.append(row)
    )
    assert steps == [(3, 4), (4, 4)]  # from the checkpoint of step 2
    assert again == whole
    assert not (tmp_path / "cut.unfinished").exists()
    placebo = train(method, base, corpus, tmp_path / "placebo", words, placebo=True)
    assert placebo.placebo
    assert not whole.placebo
    assert placebo.method == whole.method == method
    assert placebo.weights != whole.weights
    assert placebo.corpus == whole.corpus
    if method in ("dpo", "npo"):  # the same pairs, with the preference of half of them exchanged
        assert placebo.left_out == whole.left_out
        assert placebo.twins == placebo.texts == whole.texts > 1
    record = json.loads((tmp_path / "placebo" / "levelhead.json").read_text())
    assert record["metadata"]["placebo"] is True
    assert type(whole).from_json(whole.to_json()) == whole
    assert load(tmp_path / "whole").heads == load(base).heads


def test_the_merged_weights_are_those_of_the_adapter(gpt2, corpus, words, tmp_path):
    """The folder is a plain model; peft reads the adapter beside it and gives the same logits."""
    import peft

    dpo(gpt2, corpus, tmp_path / "m", settings=PreferenceSettings(words), config=SHORT)
    merged, base = load(tmp_path / "m").layout.model, load(gpt2).layout.model
    ids = torch.tensor([[1, 5, 7, 9, 12]])
    with torch.no_grad():
        plain, before = merged(ids).logits, base(ids).logits
        active = peft.PeftModel.from_pretrained(base, tmp_path / "m" / ADAPTER_FOLDER).eval()
        assert float((active(ids).logits - plain).abs().max()) < 1e-5
        assert float((before - plain).abs().max()) > 1e-4
    assert "README.md" not in {path.name for path in (tmp_path / "m").rglob("*")}
    settings = (tmp_path / "m" / ADAPTER_FOLDER / "adapter_config.json").read_text()
    assert str(gpt2) not in settings


def test_an_adapter_of_strength_0_changes_nothing(gpt2, corpus, words, tmp_path):
    before = file_hash(gpt2 / "model.safetensors")
    settings = PreferenceSettings(words, adapter=LowRankConfig(4, 0))
    with pytest.raises(LevelheadError, match="training changed nothing"):
        dpo(gpt2, corpus, tmp_path / "m", settings=settings, config=SHORT)
    assert not (tmp_path / "m").exists()
    assert file_hash(gpt2 / "model.safetensors") == before


def test_placebos_of_cda_and_dropout(bert, corpus, words, tmp_path):
    """Nothing is exchanged, and nothing more is dropped: each text twice, or just training."""
    plain = cda(bert, corpus, tmp_path / "a", lexicon=words, config=SHORT)
    placebo = cda(bert, corpus, tmp_path / "b", lexicon=words, config=SHORT, placebo=True)
    assert (plain.texts, plain.twins) == (placebo.texts, plain.texts)
    assert placebo.twins == 0
    assert placebo.left_out == plain.left_out
    assert placebo.weights != plain.weights
    dry = dropout(bert, corpus, tmp_path / "c", config=SHORT, placebo=True)
    assert dry.settings["dropout"] is None


def test_what_is_refused(bert, gpt2, corpus, words, tmp_path, monkeypatch):
    with pytest.raises(MissingHeadError, match="fills blanks of masked models") as error:
        train("auto-debias", gpt2, corpus, tmp_path / "x", words)
    assert "dpo or cda" in error.value.hint
    with pytest.raises(MissingHeadError, match="cannot be trained by npo") as error:
        train("npo", bert, corpus, tmp_path / "x", words)
    assert "cda or context-debias" in error.value.hint
    none = tmp_path / "none.toml"
    none.write_text(LEXICON[: LEXICON.index("[targets")])
    with pytest.raises(LevelheadError, match="no stereotyped words for female and male"):
        context_debias(bert, corpus, tmp_path / "x", settings=ContextDebiasSettings(str(none)))
    other = tmp_path / "other.txt"
    other.write_text("the river is there.\nthe house is quick.")
    for method, base in (("context-debias", bert), ("auto-debias", bert), ("dpo", gpt2)):
        with pytest.raises(LevelheadError, match=r"can be used|single tokens") as error:
            train(method, base, str(other), tmp_path / "x", words)
        assert error.value.hint
    for build in (
        lambda: ContextDebiasSettings(alpha=2.0),
        lambda: AutoDebiasSettings(beam=0),
        lambda: PreferenceSettings(beta=0.0),
        lambda: LowRankConfig(rank=0),
    ):
        with pytest.raises(LevelheadError) as error:
            build()
        assert error.value.hint
    monkeypatch.setattr("levelhead.models.training.low_rank.package_version", lambda name: None)
    with pytest.raises(MissingExtraError, match="low-rank adapters") as error:
        train("dpo", gpt2, corpus, tmp_path / "x", words)
    assert "levelhead[lora]" in error.value.hint
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("context-debias", ["--alpha", "0.5"]),
        ("auto-debias", ["--candidates", "4", "--beam", "2", "--length", "1"]),
        ("dpo", ["--beta", "0.2", "--rank", "2"]),
        ("npo", ["--retain", "0.5", "--placebo"]),
    ],
)
def test_the_commands(method, options, bert, gpt2, corpus, words, tmp_path):
    base = bert if "masked" in TRAINING_METHODS[method].heads else gpt2
    arguments = [method, base, "--corpus", corpus, "-o", tmp_path / "trained", "--lexicon", words]
    arguments += ["--steps", 2, "--batch-size", 4, "--threads", 1, "--learning-rate", 1e-3]
    result = CliRunner().invoke(app, [*map(str, arguments), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    kind = f"{method} placebo" if "--placebo" in options else method
    assert f"a {kind} variant of {base.name}" in result.output
    record = json.loads((tmp_path / "trained" / "levelhead.json").read_text())
    settings = record["metadata"]["settings"]
    for name, value in zip(options[::2], options[1::2], strict=False):
        assert settings[name.removeprefix("--")] == pytest.approx(float(value))
