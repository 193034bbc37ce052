"""The rulers on real weights: against slow loops, under relabelling, interrupted and resumed."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from difflib import SequenceMatcher

import numpy as np
import pytest
import torch
from assets import asset
from command import levelhead

from levelhead.data.datasets import dataset
from levelhead.measure.aspects import Judge
from levelhead.measure.crows import Crows
from levelhead.measure.fluency import Perplexity, PseudoPerplexity
from levelhead.measure.strength import Contrast, Strength
from levelhead.measure.table import MEASURES, parsed
from levelhead.models.load import load

QUICK = Judge(draws=199, permutations=199)


@pytest.fixture(autouse=True)
def _data(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", os.fspath(asset("data")))


@pytest.fixture(scope="module")
def minibert():
    return load(asset("models", "minibert-en"))


@pytest.fixture(scope="module")
def stories():
    return load(asset("models", "stories15m"))


# -- against slow, literal loops


def masked_scores(lm, ids, places):
    """log p of each of some tokens, masked one at a time, one forward each."""
    found = []
    for place in places:
        row = torch.tensor([ids])
        row[0, place] = lm.tokens.mask
        with torch.no_grad():
            logits = lm.anatomy.model(row).prediction_logits[0, place]
        found.append(float(logits.double().log_softmax(-1)[ids[place]]))
    return found


def test_pppl_is_that_of_a_literal_loop(minibert):
    ruler = PseudoPerplexity(limit=4)
    (found,) = ruler.read(minibert)
    scores = []
    for item in found.items:
        ids = minibert.tokens.encode([item.asks[0][0]])[0].row.ids
        scores += masked_scores(minibert, ids, range(1, len(ids) - 1))
    assert float(ruler.reduce(found)) == pytest.approx(
        math.exp(-sum(scores) / len(scores)), rel=1e-5
    )


@pytest.mark.parametrize("protocol", ["nangia", "meade"])
def test_crows_is_that_of_a_literal_loop(minibert, protocol):
    rows = list(dataset("crows-pairs").items("all"))
    own = tuple(rows[i] for i in range(0, 1508, 300))
    ruler = Crows(own, protocol=protocol)
    (found,) = ruler.read(minibert)
    margins = dict(zip([item.id for item in found.items], ruler.margins(found), strict=True))
    assert len(margins) >= 4
    for pair in own:
        if pair.id not in margins:
            continue
        ids = [one.row.ids for one in minibert.tokens.encode([pair.more, pair.less])]
        places = [[], []]
        for kind, a, b, c, d in SequenceMatcher(None, *ids, autojunk=False).get_opcodes():
            if (kind == "equal") == (protocol == "nangia"):
                places[0] += [i for i in range(a, b) if 0 < i < len(ids[0]) - 1]
                places[1] += [i for i in range(c, d) if 0 < i < len(ids[1]) - 1]
        scores = [masked_scores(minibert, *both) for both in zip(ids, places, strict=True)]
        slow = [sum(one) / (len(one) if protocol == "meade" else 1) for one in scores]
        assert float(margins[pair.id]) == pytest.approx(slow[0] - slow[1], abs=1e-5 * len(ids[0]))


def test_ppl_and_the_contrast_are_those_of_literal_loops(stories):
    def scores(text):
        ids = torch.tensor([stories.tokens.encode([text])[0].row.ids])
        with torch.no_grad():
            logits = stories.anatomy.model(ids).logits[0].double().log_softmax(-1)
        return [float(logits[i - 1, ids[0, i]]) for i in range(1, ids.shape[1])]

    ruler = Perplexity(limit=8)
    (found,) = ruler.read(stories)
    every = [one for item in found.items for one in scores(item.asks[0][0])]
    assert float(ruler.reduce(found)) == pytest.approx(math.exp(-sum(every) / len(every)), rel=1e-5)
    own = tuple(list(dataset("stereoset-swapped").items("dev"))[:4])
    contrast = Contrast(own, top=1.0)
    (read,) = contrast.read(stories)
    for one, s in zip(own, contrast.bias_of(read), strict=True):
        four = []
        for first, second in (
            (one.context, one.stereotype),
            (one.context, one.anti_stereotype),
            (one.twin_context, one.twin_stereotype),
            (one.twin_context, one.twin_anti_stereotype),
        ):
            before = len(scores(first))
            four.append(sum(scores(f"{first} {second}")[before:]))
        assert float(s) == pytest.approx(four[0] - four[1] - four[2] + four[3], abs=1e-3)


def test_strength_and_distance_are_those_its_makers_measured(minibert):
    """TRAINING.md of the assets: rounded, one thread, float32."""
    found = parsed("strength:part=dev")(minibert, judge=QUICK)
    assert round(found.value, 3) == 0.139
    assert round(found.aside("signed mean").value, 3) == -0.008
    assert round(parsed("distance:part=dev")(minibert, judge=QUICK).value, 3) == 0.188


# -- null behaviour

RULERS = (
    "seat:lexicon=kaneko,targets=stereotypes,quota=5",
    "strength:part=dev",
    "distance",
    "contrast:part=dev",
    "crows:bias=gender",
    "crows_margin:bias=gender",
    "cloze:backgrounds=1",
    "cloze_probability:backgrounds=1",
    "cloze_relative:backgrounds=1",
    "cloze_top:backgrounds=1",
)


def test_every_ruler_with_a_parity_is_relabelled():
    assert {name.partition(":")[0] for name in RULERS} == set(MEASURES) - {"pppl", "ppl"}


def relabelled(tested, rng):
    """What was read, as it would be if the labels meant nothing: units exchanged, or dealt anew."""
    aspect, values, design = tested
    factor = design.factors[0]
    if aspect.null == "deal":
        assert factor.units == len(values)
        return values[torch.from_numpy(rng.permutation(len(values)))]
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=factor.units)[factor.unit])
    if aspect.null == "flip":
        return aspect.flip(values, signs)
    turned = values.clone()  # a log ratio, and the number of its kind
    turned[:, 0] *= signs
    return turned


def alarms(lm, name, relabellings):
    ruler = parsed(name)
    tested = ruler.tested(ruler.read(lm))
    rng = np.random.default_rng(11)
    found = 0
    for i in range(relabellings):
        values = relabelled(tested, rng)
        judge = Judge(seed=i, draws=199, permutations=199)
        aspect, _, design = tested
        if aspect.null is None:
            p = judge.estimate(aspect, values, design).p
        else:
            p = judge.null(aspect, values, design, name=name).p
        found += p.value <= 0.05
    return found


@pytest.mark.parametrize("name", RULERS)
def test_relabelled_data_raise_few_alarms(minibert, name):
    assert alarms(minibert, name, 200) <= 18  # 9%: five expected, and three deviations of that


# -- the same command, interrupted or not


def command(store, output, *more):
    return (
        *("measure", str(asset("models", "minibert-en")), "-m", "strength:part=dev"),
        *("-m", "crows_margin:bias=gender", "--store", str(store), "--output", str(output)),
        *("--draws", "199", "--permutations", "999", *more),
    )


def test_the_same_bytes_twice_and_after_a_kill(tmp_path):
    first, second, third = (tmp_path / f"{i}.json" for i in range(3))
    assert levelhead(*command(tmp_path / "a", first)).returncode == 0
    assert levelhead(*command(tmp_path / "a", second)).returncode == 0
    assert first.read_bytes() == second.read_bytes()
    process = subprocess.Popen([sys.executable, "-m", "levelhead", *command(tmp_path / "b", third)])
    units = tmp_path / "b" / "units"
    for _ in range(600):
        if sum(path.is_file() for path in units.rglob("*")) >= 2:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stored = sum(path.is_file() for path in units.rglob("*"))
    whole = sum(path.is_file() for path in (tmp_path / "a" / "units").rglob("*"))
    assert 0 < stored < whole
    assert not third.exists()
    assert levelhead(*command(tmp_path / "b", third)).returncode == 0
    assert third.read_bytes() == first.read_bytes()
    # Another seed and level: nothing is read anew.
    units = tmp_path / "a" / "units"
    kept = {path: path.stat().st_mtime_ns for path in units.rglob("*")}
    again = command(tmp_path / "a", third, "--seed", "3", "--level", "0.9")
    assert levelhead(*again).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in units.rglob("*")} == kept
    told = json.loads(third.read_text())["measurements"]
    assert [one["interval"]["level"] for one in told] == [0.9, 0.9]


def test_batch_size_changes_nothing_on_real_weights(minibert):
    own = tuple(list(dataset("stereoset-swapped").items("dev"))[:20])
    values = [
        Strength(own, top=0.5).read(minibert.batched(size), store=f"memory://size{size}")[0].values
        for size in (1, 7, 64)
    ]
    for other in values[1:]:
        torch.testing.assert_close(other, values[0], rtol=1e-5, atol=1e-6)
