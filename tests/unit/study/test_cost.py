"""A dry run counts what the run then does: forward passes and tokens exactly."""

import json
import re
import shutil
from pathlib import Path

import metric_cases
import pytest
import studies
import zoo
from command import levelhead

from levelhead.core.run_context import Inference, RunContext
from levelhead.data.corpus.mine import PIECES_PER_TASK, estimate_mining_cost, mine_corpus
from levelhead.engine.store import open_existing_store
from levelhead.measures.registry import parse_measure
from levelhead.models.lm import LM
from levelhead.models.loading.load import load
from levelhead.models.training.classifier_trainer import BatchDataset
from levelhead.models.training.finetune import FinetuneConfig, finetune
from levelhead.study.config import read_study_config
from levelhead.study.cost import (
    estimate_cost,
    estimate_finetuning_cost,
    estimate_study_cost,
    gpu_hours,
)
from levelhead.study.run import run_study

INFERENCE = Inference(resamples=199, permutations=299)


@pytest.fixture(scope="module")
def bias_measure(tmp_path_factory):
    lexicon = studies.lexicon(tmp_path_factory.mktemp("words"))
    return f"seat:lexicon={lexicon},targets=things,corpus={metric_cases.corpus()}"


@pytest.fixture
def seen(monkeypatch):
    """Rows that a model is shown, and in how many forwards."""
    result = []
    usual = LM.run_rows

    def answer(self, reading, indices, **options):
        result.append([len(reading.rows[i].ids) for i in indices])
        return usual(self, reading, indices, **options)

    monkeypatch.setattr(LM, "run_rows", answer)
    return result


def test_forwards_and_tokens_are_those_of_the_run(bias_measure, seen, tmp_path):
    lm = load(zoo.folder("bert", "BertForPreTraining"), batch_size=7)
    measures = [parse_measure(bias_measure), parse_measure(f"{bias_measure},layer=1")]
    context = RunContext(store=tmp_path / "responses")
    cost = estimate_cost(lm, measures, context=context)
    assert not (tmp_path / "responses").exists()  # a dry run writes nothing
    seen.clear()
    for measure in measures:
        measure(lm, inference=INFERENCE, context=context)
    assert (cost.forwards, cost.tokens) == (len(seen), sum(map(sum, seen)))
    assert cost.forwards > 10
    assert cost.seconds > 0
    assert [note.partition(":")[0] for note in cost.notes] == ["not counted"]
    assert "skill" in cost.notes[0]
    again = estimate_cost(lm, measures, context=context)
    assert (again.forwards, again.tokens, again.seconds) == (0, 0, 0)


def test_only_the_largest_batch_is_run_and_twice(bias_measure, seen, tmp_path):
    lm = load(zoo.folder("bert", "BertForPreTraining"), batch_size=7)
    measure = parse_measure(bias_measure)
    # A store of its own: in memory, another test of this process may have stored the responses.
    context = RunContext(store=tmp_path / "responses")
    estimate_cost(lm, [measure], context=context)
    timed = list(seen)
    seen.clear()
    measure(lm, inference=INFERENCE, context=context)
    padded = [max(lengths) * len(lengths) for lengths in seen]
    assert len(timed) == 2
    assert timed[0] == timed[1]
    assert max(timed[0]) * len(timed[0]) == max(padded)


def test_queries_that_cannot_be_answered_are_dropped_as_in_the_run(seen, tmp_path):
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    (tmp_path / "texts.txt").write_text("he is a nurse\nxyzzy \u738b\nshe was there\n")
    measure = parse_measure(f"pppl:texts={tmp_path}/texts.txt")
    cost = estimate_cost(lm, [measure])
    seen.clear()
    assert len(measure(lm, inference=INFERENCE).dropped) == 1
    assert (cost.forwards, cost.tokens) == (len(seen), sum(map(sum, seen)))
    assert cost.forwards > 0
    assert cost.notes == ()  # a measure of utility checks no skill


def test_what_is_not_counted_is_named(bias_measure, monkeypatch):
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    monkeypatch.setattr("levelhead.study.cost.build_query", lambda *_: ("a text to write", {}))
    cost = estimate_cost(lm, [parse_measure(f"{bias_measure},layer=0")])
    assert cost.forwards == 0
    assert cost.notes[0].endswith("tasks that generate text or query a server")


def test_a_study_costs_what_its_measurements_cost(seen, tmp_path):
    full = studies.study(tmp_path)
    text = full.read_text()
    (tmp_path / "few.toml").write_text(text[: text.index("[head_maps.gender]")])
    few = read_study_config(tmp_path / "few.toml")
    cost = estimate_study_cost(few, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    seen.clear()
    run_study(few, tmp_path / "out")
    assert (cost.forwards, cost.tokens) == (len(seen), sum(map(sum, seen)))
    assert cost.forwards > 0
    assert estimate_study_cost(few, tmp_path / "out").forwards == 0
    more = estimate_study_cost(read_study_config(full), tmp_path / "other")
    assert (more.forwards, more.tokens) == (cost.forwards, cost.tokens)
    assert "other steps: map.gender, " in more.notes[-1]
    counts = re.search(r"at most (\S+) further forward passes, \S+ hours: (.*)", more.notes[-2])
    steps = {
        step: int(number.replace(",", ""))
        for step, number in re.findall(r"(\S+) ([\d,]+)(?:, |$)", counts[2])
    }
    assert {"map.gender", "map.again", "control.gender.3", "splits.gender"} <= set(steps)
    # One pass per map and half: score, gradient, and every one of the heads ablated.
    heads = load(zoo.folder("bert", "BertForPreTraining")).layout
    passes = 2 + heads.layers * heads.heads / 4
    assert steps["map.gender"] == round(passes * cost.forwards)
    assert abs(sum(steps.values()) - int(counts[1].replace(",", ""))) <= len(steps)


def test_the_steps_of_a_training_are_counted(monkeypatch, tmp_path):
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
    cost = estimate_finetuning_cost(lm, "rte", tuning, train=str(file), dev=str(file))
    assert cost.forwards == 2 * -(-len(lines) // 5) + 1  # two epochs, and once on dev
    rows = [(tuple(line.split(",")[:2]), line.split(",")[2]) for line in lines]
    encoded = lm.tokens.tokenizer([a for (a, _), _ in rows], [b for (_, b), _ in rows])
    # On dev, two texts that differ and whose words are all known.
    assert cost.tokens == 2 * sum(map(len, encoded["input_ids"])) + 2 * 9
    seen_tokens = []
    usual = BatchDataset.collate

    def collate(self, numbers):
        batch = usual(self, numbers)
        seen_tokens.append(int(batch["attention_mask"].sum()))
        return batch

    monkeypatch.setattr(BatchDataset, "collate", collate)
    finetune(lm, rows, ["entailment", "not_entailment"], tmp_path / "made", config=tuning)
    assert len(seen_tokens) == cost.forwards - 1
    assert sum(seen_tokens) == cost.tokens - 2 * 9


def test_a_corpus_is_counted_by_its_pieces(tmp_path):
    text = "\n".join(f"The nurse {i} saw her. He is a pilot." for i in range(200))
    for number in range(PIECES_PER_TASK + 1):
        (tmp_path / f"{number}.txt").write_text(text)
    cost = estimate_mining_cost([f"{tmp_path}/*.txt"])
    assert cost.seconds > 0
    mine_corpus([f"{tmp_path}/*.txt"], tmp_path / "out")
    store = open_existing_store(tmp_path / "out" / "store")
    assert (cost.pieces, cost.tasks) == (PIECES_PER_TASK + 1, len(list(store)))


def test_a_large_model_is_arithmetic():
    # 6 operations x 70e9 x 1.44e6 tokens on 8 x 990e12 x 0.3 a second: 255 s.
    assert gpu_hours(70e9, 1.44e6) / 8 * 3600 == pytest.approx(254.5, rel=1e-3)
    assert gpu_hours(1e9, 1e6, heads=6) == 2 * gpu_hours(1e9, 1e6)
    assert gpu_hours(1e9, 1e6, utilization=0.6) == gpu_hours(1e9, 1e6) / 2


def test_the_table_of_large_models_is_of_the_formula():
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "cluster.md").read_text()
    row = r"\| (\d+)B \| ([\d.]+)M \| (\d+) \| ([\d.]+) \|"
    rows = [tuple(map(float, cells)) for cells in re.findall(row, page)]
    assert len(rows) == 4
    for billions, millions, heads, hours in rows:
        expected = gpu_hours(billions * 1e9, millions * 1e6, heads=int(heads))
        assert hours == pytest.approx(expected, rel=0.005)


def test_the_command_line(bias_measure, tmp_path):
    model = str(zoo.folder("bert", "BertForPreTraining"))
    store = ("--store", str(tmp_path / "store"))
    text = levelhead("measure", model, "-m", bias_measure, "--dry-run", *store)
    assert text.returncode == 0, text.stderr
    assert "forward passes of" in text.stdout
    single = json.loads(
        levelhead("measure", model, "-m", bias_measure, "--dry-run", "--json", *store).stdout
    )
    other = str(shutil.copytree(model, tmp_path / "copy"))
    out = tmp_path / "out"
    board = levelhead("leaderboard", model, other, "-m", bias_measure, "-o", str(out), "--dry-run")
    assert board.stdout.startswith(
        f"{2 * single['forwards']:,} forward passes of {2 * single['tokens']:,} tokens\n"
    ), board.stderr
    (tmp_path / "c.txt").write_text("She is a nurse.\n")
    mined = levelhead("data", "mine", str(tmp_path / "c.txt"), "-o", str(out), "--dry-run")
    assert mined.stdout.startswith("1 pieces in 1 tasks\n"), mined.stderr
    plan = str(studies.study(tmp_path))
    study = levelhead("study", "run", plan, "-o", str(out), "--dry-run")
    assert "not counted: " in study.stdout, study.stderr
    rows = "he is a nurse,she is,entailment\nshe is,he was,not_entailment\n" * 2
    (tmp_path / "t.csv").write_text(f"sentence1,sentence2,label\n{rows}")
    texts = ("--train", str(tmp_path / "t.csv"), "--dev", str(tmp_path / "t.csv"))
    tuned = levelhead("finetune", model, "--task", "rte", *texts, "-o", str(out), "--dry-run")
    assert "forward passes of" in tuned.stdout, tuned.stderr
    assert not out.exists()
    refused = levelhead("measure", model, "-m", bias_measure, "--dry-run", "--multiverse", *store)
    assert refused.returncode == 3
