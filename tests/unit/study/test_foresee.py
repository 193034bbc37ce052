"""What is foreseen is what happens: tokens exactly, the rest as far as a test can tell."""

import json
from dataclasses import replace

import pytest
import rulers
import studies
import zoo
from command import levelhead

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.corpus.mine import mine_corpus
from levelhead.measures.registry import parse_measure
from levelhead.models.lm import LM
from levelhead.models.loading.load import load
from levelhead.models.training.finetune import FinetuneConfig, finetune
from levelhead.study.cost.arithmetic import (
    estimate_distributed_mining,
    estimate_large_model,
    parse_number,
)
from levelhead.study.cost.cost import estimate_cost
from levelhead.study.cost.finetuning import estimate_finetuning_cost
from levelhead.study.cost.mining import estimate_mining_cost

INFERENCE = Inference(resamples=199, permutations=299)


@pytest.fixture(scope="module")
def ruler(tmp_path_factory):
    lexicon = studies.lexicon(tmp_path_factory.mktemp("words"))
    return f"seat:lexicon={lexicon},targets=things,corpus={rulers.corpus()}"


@pytest.fixture
def seen(monkeypatch):
    """Rows that a model is shown, and in how many forwards."""
    found = []
    usual = LM.run_rows

    def answer(self, reading, indices, **options):
        found.append([len(reading.rows[i].ids) for i in indices])
        return usual(self, reading, indices, **options)

    monkeypatch.setattr(LM, "run_rows", answer)
    return found


def test_forwards_and_tokens_are_those_of_the_run(ruler, seen, tmp_path):
    lm = load(zoo.folder("bert", "BertForPreTraining"), batch_size=7)
    measures = [parse_measure(ruler), parse_measure(f"{ruler},layer=1")]
    told = estimate_cost(
        lm, measures, inference=INFERENCE, context=RunContext(store=tmp_path / "kept")
    )
    seen.clear()
    for measure in measures:
        measure(lm, inference=INFERENCE, context=RunContext(store=tmp_path / "kept"))
    assert (told.forwards, told.tokens) == (len(seen), sum(map(sum, seen)))
    assert told.forwards > 10
    assert told.notes == ()
    assert set(told.seconds_by_part) == {"preparing", "forwards", "judging"}
    assert told.seconds == pytest.approx(sum(told.seconds_by_part.values()))
    kept = sum(path.stat().st_size for path in (tmp_path / "kept" / "units").rglob("*/*"))
    assert told.disk_mb == pytest.approx(kept / 2**20, rel=0.2)
    again = estimate_cost(
        lm, measures, inference=INFERENCE, context=RunContext(store=tmp_path / "kept")
    )
    assert (again.forwards, again.tokens, again.disk_mb) == (0, 0, 0)


def test_questions_that_cannot_be_asked_are_foreseen_as_dropped(tmp_path):
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    (tmp_path / "texts.txt").write_text("he is a nurse\nxyzzy \u738b\nshe was there\n")
    measure = parse_measure(f"pppl:texts={tmp_path}/texts.txt")
    assert len(measure(lm, inference=INFERENCE).dropped) == 1
    told = estimate_cost(
        replace(lm), [measure], inference=INFERENCE, context=RunContext(store=tmp_path / "new")
    )
    assert told.forwards > 0
    assert told.notes == ()


def test_what_cannot_be_foreseen_is_said(ruler, monkeypatch):
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    monkeypatch.setattr("levelhead.study.cost.cost.build_query", lambda *_: ("a text to write", {}))
    told = estimate_cost(lm, [parse_measure(f"{ruler},layer=0")], inference=INFERENCE)
    assert told.forwards == 0
    assert "the statistics of seat are not estimated" in told.notes[0]
    assert told.notes[1].endswith("their cost is not estimated")


def test_the_steps_of_a_training_are_counted(tmp_path):
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    texts = ["he is a nurse", "she is", "the pilot said that she was there", "he was"] * 8
    lines = [
        f"{text},{other},{label}"
        for text, other, label in zip(
            texts, texts[1:], ["entailment", "not_entailment"] * 16, strict=False
        )
    ]
    file = tmp_path / "train.csv"
    file.write_text("\n".join(["sentence1,sentence2,label", *lines]))
    tuning = FinetuneConfig(epochs=2, batch_size=5, threads=1)
    told = estimate_finetuning_cost(lm, "rte", tuning, train=str(file), dev=str(file))
    assert told.forwards == 2 * -(-len(lines) // 5) + 1  # two epochs, and once on dev
    rows = [(tuple(line.split(",")[:2]), line.split(",")[2]) for line in lines]
    encoded = lm.tokens.tokenizer([a for (a, _), _ in rows], [b for (_, b), _ in rows])
    # On dev, two texts that differ and whose words are all known.
    assert told.tokens == 2 * sum(map(len, encoded["input_ids"])) + 2 * 9
    made = finetune(lm, rows, ["entailment", "not_entailment"], tmp_path / "made", config=tuning)
    assert told.disk_mb * 2**20 > (made / "model.safetensors").stat().st_size


def test_a_corpus_is_foreseen_by_its_pieces(tmp_path):
    text = "\n".join(f"The nurse {i} saw her. He is a pilot." for i in range(2000))
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(text)
    told = estimate_mining_cost([f"{tmp_path}/*.txt"])
    assert told.notes[0].startswith("2 pieces in 1 units")
    assert told.seconds > 0
    assert told.disk_mb > 0
    mine_corpus([f"{tmp_path}/*.txt"], tmp_path / "out")


def test_what_cannot_be_tried_is_arithmetic():
    # 6 operations x 70e9 x 1.44e6 tokens on 8 x 990e12 x 0.3 a second: 255 s.
    found = estimate_large_model(parse_number("70B"), parse_number("1.44M"), devices=8)
    assert found.hours * 3600 == pytest.approx(254.5, rel=1e-3)
    assert found.device_hours == pytest.approx(8 * found.hours)
    assert found.memory_gb == pytest.approx(17.5)
    assert (
        estimate_large_model(1e9, 1e6, devices=1, heads=6).hours
        == 2 * estimate_large_model(1e9, 1e6, devices=1).hours
    )
    whole = estimate_distributed_mining(2.0, 0.1, 100 * 2**20, 44e12, workers=512)
    times = 44e12 / (100 * 2**20) / 3600
    assert whole.device_hours == pytest.approx(2.1 * times)
    assert whole.hours == pytest.approx((0.1 + 2 / 512) * times)  # a driver alone hashes, gathers
    with pytest.raises(LevelheadError, match="is not a number"):
        parse_number("many")


def test_the_command_line(ruler, tmp_path):
    model = str(zoo.folder("bert", "BertForPreTraining"))
    few = ("--resamples", "99", "--permutations", "99")
    told = levelhead("plan", "measure", model, "-m", ruler, "--per-hour", "3600", *few)
    assert told.returncode == 0, told.stderr
    for part in ("forward passes of", "about", "MB of memory", "at 3600 per hour"):
        assert part in told.stdout
    one = levelhead("plan", "measure", model, "-m", ruler, "--json", *few)
    two = levelhead("plan", "leaderboard", model, model, "-m", ruler, "--json", *few)
    (tmp_path / "c.txt").write_text("She is a nurse.\n")
    mined = levelhead("plan", "mine", str(tmp_path / "c.txt"), "--of", "44TB", "--workers", "512")
    big = levelhead("plan", "large", "--parameters", "70B", "--tokens", "1M", "--per-hour", "3")
    for told in (mined, big):
        assert "an estimate, not measured" in told.stdout, told.stderr
    assert json.loads(two.stdout)["tokens"] == 2 * json.loads(one.stdout)["tokens"]
