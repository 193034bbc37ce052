"""A fault in model, data or store gives an error or an inconclusive verdict, in every command.

The sound model shows its skill and treats groups alike: without a fault each command says so.
"""

import json
import shutil

import pytest
import zoo
from biased_classifier import checkpoint, texts, write
from faults import (
    MODEL_FAULTS,
    QUICK,
    broken,
    change_weights,
    invoke,
    measure_words,
    outcome,
    statuses,
    user_data,
)

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Measurement
from levelhead.locate.head_map import HeadMap
from levelhead.models.loading.load import load
from levelhead.study.audit import core_suite
from levelhead.study.audit import suite as audit_suite
from levelhead.study.audit.core_suite import CLASSIFIER, CoreMeasure

SAFE = ({"error"}, {"inconclusive"})
FEW = ("NaN in a layer", "overflow in a layer", "constant logits", "all heads zeroed")
"""Faults for commands that take long: of each kind, one."""
SLOW = [
    fault if fault in FEW[::2] else pytest.param(fault, marks=pytest.mark.full) for fault in FEW
]
"""The same for the slowest commands, half of them before a release only."""


@pytest.fixture(autouse=True)
def uncalibrated(monkeypatch):
    """Verdicts of the models themselves, whatever calibration says of a measure."""
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return user_data(tmp_path_factory.mktemp("data"))


def study(model, data, folder):
    """A study of one measure, run; its outcome."""
    measure = f"counterfactual:texts={data / 'texts.csv'},label=label,lexicon={data / 'own.toml'}"
    (folder / "study.toml").write_text(
        f'format = "levelhead-study-2"\nname = "x"\nresamples = 99\npermutations = 99\n'
        f'[models.m]\npath = "{model}"\n[measures]\nown = "{measure}"\n'
        '[measurements.all]\nmodels = ["m"]\nmeasures = ["own"]\n'
    )
    words = ("study", "run", folder / "study.toml", "-o", folder / "run")
    return outcome(invoke(*words, "--no-charts", "--quiet"))


def gate(model, data, folder):
    """The verdict of a gate on a study of a model: pass, if its distance from parity is small."""
    word = study(model, data, folder)
    (folder / "policy.toml").write_text(
        'format = "levelhead-gate-2"\n[[rule]]\nmeasure = "own"\nquantity = "distance"\n'
        "at_most = 100.0\n"
    )
    result = outcome(invoke("gate", folder / "run", "--policy", folder / "policy.toml"))
    return "pass" if result == "done" else word if word == "error" else result


def audit(model, data, folder, monkeypatch):
    """The verdict of an audit whose core suite is one measure of the user's texts."""
    text = f"counterfactual:texts={data / 'texts.csv'},label=label,lexicon={data / 'own.toml'}"
    monkeypatch.setattr(core_suite, "CORE", (CoreMeasure("own", text, (CLASSIFIER,)),))
    monkeypatch.setattr(audit_suite, "AUDIT_MEASURES", ())
    result = invoke(
        *("audit", model, "-o", folder / "audit", "--budget", "none", "--json", "--quiet"),
        *("--threads", "1", *QUICK),
    )
    if outcome(result) != "done":
        return outcome(result)
    rows = json.loads(result.stdout)["measures"]
    return "/".join(row["status"] for row in rows if row["name"] == "own")


def test_measure_of_the_sound_model_shows_no_bias(data, tmp_path):
    assert statuses(invoke(*measure_words(checkpoint(0.0), data, tmp_path))) == {"not shown"}


@pytest.mark.parametrize("fault", MODEL_FAULTS)
def test_measure(fault, data, tmp_path):
    model = broken(tmp_path / "model", fault)
    assert statuses(invoke(*measure_words(model, data, tmp_path / "s"))) in SAFE


def test_gate_passes_the_sound_model(data, tmp_path):
    assert gate(checkpoint(0.0), data, tmp_path) == "pass"


@pytest.mark.parametrize("fault", SLOW)
def test_gate(fault, data, tmp_path):
    assert gate(broken(tmp_path / "model", fault), data, tmp_path) in ("error", "inconclusive")


def test_audit_of_the_sound_model_shows_no_bias(data, tmp_path, monkeypatch):
    assert audit(checkpoint(0.0), data, tmp_path, monkeypatch) == "not shown"


@pytest.mark.parametrize("fault", SLOW)
def test_audit(fault, data, tmp_path, monkeypatch):
    model = broken(tmp_path / "model", fault)
    assert audit(model, data, tmp_path, monkeypatch) in ("error", "inconclusive")


def compare(model, other, data, folder):
    """What a comparison of two models says: its outcome, and its claims."""
    result = invoke(*measure_words(model, data, folder / "s", "--against", other))
    if outcome(result) != "done":
        return outcome(result), None
    document = json.loads(result.stdout)
    (row,) = document["comparisons"]
    (verdict,) = statuses(result)
    return verdict, row


def test_compare_of_sound_models_claims_the_difference(data, tmp_path):
    verdict, row = compare(checkpoint(0.0), checkpoint(1.0), data, tmp_path)
    assert verdict == "not shown"
    assert "no skill" not in str(row)


@pytest.mark.parametrize("fault", FEW)
def test_compare(fault, data, tmp_path):
    """A broken model beside a leaning one: less bias, by nothing that counts."""
    model = broken(tmp_path / "model", fault)
    verdict, _ = compare(model, checkpoint(1.0), data, tmp_path)
    assert verdict in ("error", "inconclusive")


@pytest.mark.parametrize("fault", SLOW)
def test_mitigate_select(fault, tmp_path):
    """Of a leaning model with a fault no edit is recommended."""
    model = broken(tmp_path / "model", fault, lean=0.5)
    (tmp_path / "own.toml").write_text((user_data(tmp_path) / "own.toml").read_text())
    files = [
        word
        for tag in ("dev", "test")
        for word in (f"--{tag}", write(tmp_path / f"{tag}.csv", texts(tag, 40)))
    ]
    result = invoke(
        *("mitigate", "select", model, "--lexicon", tmp_path / "own.toml", "--pair-source", "dev"),
        *("--resamples", "99", "--store", tmp_path / "s", "-o", tmp_path / "edit", *files),
    )
    assert outcome(result) in ("error", "inconclusive")
    assert not (tmp_path / "edit").exists()


@pytest.mark.parametrize("fault", SLOW)
def test_locate(fault, data, tmp_path):
    """No head of a broken model is said to carry a bias."""
    model = broken(tmp_path / "model", fault, lean=0.5)
    text = (
        f"counterfactual:metric=counterfactual_shift,texts={data / 'texts.csv'},"
        f"label=label,lexicon={data / 'own.toml'}"
    )
    result = invoke(
        *("locate", model, "-m", text, "--top", "2", "-o", tmp_path / "heads.json", "--json"),
        *("--store", tmp_path / "s", "--quiet", *QUICK),
    )
    if outcome(result) == "done":
        head_map = HeadMap.from_json((tmp_path / "heads.json").read_bytes())
        assert head_map.verdict == "0 confirmed"
    else:
        assert outcome(result) in ("error", "inconclusive")


# -- data


def rows_of(path):
    return path.read_text().splitlines()


DATA_FAULTS = {
    "empty": lambda rows: rows[:1],
    "one row": lambda rows: rows[:2],
    "truncated in a row": lambda rows: [*rows[:40], rows[40].partition(",")[0]],
    "truncated to three": lambda rows: rows[:4],
    "labels exchanged": lambda rows: [
        rows[0],
        *(row[:-2] + "no" if row.endswith("yes") else row[:-2] + "yes" for row in rows[1:]),
    ],
    "one label": lambda rows: [rows[0], *(row.rpartition(",")[0] + ",no" for row in rows[1:])],
    "no words of groups": lambda rows: [
        row.replace("woman", "nurse").replace("man", "doctor") for row in rows
    ],
    "texts of noise": lambda rows: [rows[0], *("zzz qqq,no" for _ in rows[1:])],
}


@pytest.mark.parametrize("fault", DATA_FAULTS)
def test_measure_of_data(fault, data, tmp_path):
    broken_data = shutil.copytree(data, tmp_path / "data")
    path = broken_data / "texts.csv"
    path.write_text("\n".join(DATA_FAULTS[fault](rows_of(path))) + "\n")
    result = invoke(*measure_words(checkpoint(0.0), broken_data, tmp_path / "s"))
    assert statuses(result) in (*SAFE, {"no test"})
    # A number without a test says why it has none.
    if statuses(result) == {"no test"}:
        assert "no placebo twins" in result.stdout


def interval_of(result):
    (row,) = json.loads(result.stdout)["measurements"]
    return Measurement.from_json(json.dumps(row)).interval


def test_duplicated_rows_add_no_evidence(data, tmp_path):
    """Ten copies of each text: as wide an interval as of one."""
    leaning, more = checkpoint(0.5), shutil.copytree(data, tmp_path / "data")
    header, *rows = rows_of(more / "texts.csv")
    (more / "texts.csv").write_text("\n".join([header, *rows * 10]) + "\n")
    single = interval_of(invoke(*measure_words(leaning, data, tmp_path / "s")))
    copies = interval_of(invoke(*measure_words(leaning, more, tmp_path / "s")))
    assert copies.high - copies.low >= 0.7 * (single.high - single.low)


def test_lines_that_end_as_on_windows_are_the_same_texts(data, tmp_path):
    other = shutil.copytree(data, tmp_path / "data")
    for name in ("texts.csv", "own.toml"):
        content = (other / name).read_bytes().replace(b"\r\n", b"\n")
        (data / name).write_bytes(content)
        (other / name).write_bytes(content.replace(b"\n", b"\r\n"))
    values = [
        json.loads(invoke(*measure_words(checkpoint(0.5), place, tmp_path / "s")).stdout)[
            "measurements"
        ][0]
        for place in (data, other)
    ]
    assert [row["per_item_values"] for row in values[:1]] == [
        row["per_item_values"] for row in values[1:]
    ]
    assert values[0]["interval"] == values[1]["interval"]


# -- precision


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_keeps_the_verdict(dtype, data, tmp_path):
    words = measure_words(checkpoint(0.0), data, tmp_path, "--dtype", dtype)
    result = invoke(*words)
    assert statuses(result) == {"not shown"}
    assert (
        json.loads(result.stdout)["measurements"][0]["provenance"]["settings"]["model"]["dtype"]
        == dtype
    )


def test_weights_that_half_precision_cannot_hold_are_refused(data, tmp_path):
    model = shutil.copytree(checkpoint(0.0), tmp_path / "model")
    change_weights(model, lambda name, value: value * 1e6 if "output.dense" in name else value)
    words = measure_words(model, data, tmp_path / "s", "--dtype", "float16")
    assert statuses(invoke(*words)) == {"error"}


# -- what changes between two runs


def test_other_weights_under_the_same_name_are_not_answered_by_the_store(data, tmp_path):
    model = shutil.copytree(checkpoint(0.0), tmp_path / "model")
    first = invoke(*measure_words(model, data, tmp_path / "s"))
    shutil.copy(checkpoint(9.0) / "model.safetensors", model / "model.safetensors")
    second = invoke(*measure_words(model, data, tmp_path / "s"))
    values = [json.loads(result.stdout)["measurements"][0]["value"] for result in (first, second)]
    assert values[0] < 50 < values[1] == 100


def test_weights_that_are_replaced_while_the_model_is_open_are_an_error(tmp_path):
    model = shutil.copytree(checkpoint(0.0), tmp_path / "model")
    lm = load(model)
    shutil.copy(checkpoint(1.0) / "model.safetensors", model / "model.safetensors")
    with pytest.raises(LevelheadError, match="changed after the model was loaded"):
        _ = lm.content_hash


@pytest.mark.parametrize("way", ["in place", "assigned"])
def test_weights_that_are_changed_in_memory_are_an_error(way):
    lm = load(checkpoint(0.0))
    before = lm.content_hash
    weight = lm.layout.model.classifier.weight
    if way == "in place":
        weight.zero_()
    else:
        weight.data = weight.data * 0
    with pytest.raises(
        LevelheadError, match="changed after the model was loaded, in memory"
    ) as error:
        _ = lm.content_hash
    assert "lm.edited" in error.value.hint
    assert load(checkpoint(0.0)).content_hash == before


def test_an_edited_model_is_no_model_that_was_changed(tmp_path):
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    assert lm.merged().content_hash == lm.content_hash
