"""An audit on real weights: interrupted, gone on with, and what is written where."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from assets import asset
from command import levelhead
from transformers import AutoConfig, AutoModelForCausalLM

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
"""The name of a model's folder is text, like any other."""


def stored(folder):
    """The files of the store, and when each was written."""
    units = folder.glob("store/units/**/*")
    return {path: path.stat().st_mtime_ns for path in units if path.is_file()}


def narrowed(source, folder):
    """A model of one narrow layer, of random weights, with the tokenizer of another."""
    narrow = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    config = AutoConfig.from_pretrained(
        source, num_hidden_layers=1, num_key_value_heads=2, head_dim=16, **narrow
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for path in source.glob("tokenizer*"):
        shutil.copy(path, folder)


# Interrupted audits of an organism: tests/unit/cli/test_interrupted_audits.py, in the fast tier.
@pytest.mark.full
def test_interrupted_it_goes_on_and_prints_data_alone(tmp_path, monkeypatch):
    """Ctrl-C is exit 130 without a traceback; what was answered is not asked again.

    Two seconds are not enough for the core suite: the report says that it is no verdict, exit 2.
    A new interpreter, and a whole measure, for at least one is always run. The
    tokenizer and the data are real; one narrow layer of weights makes that measure a quick one.
    """
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))  # time is lacking, and no data
    out, model = tmp_path / "audit", tmp_path / HOSTILE
    narrowed(asset("models", "stories15m"), model)
    given = ("audit", str(model), "-o", str(out), "--budget", "2s")
    with (tmp_path / "stderr").open("w") as text:
        process = subprocess.Popen([sys.executable, "-m", "levelhead", *given], stderr=text)
        until = time.monotonic() + 400  # a busy machine takes minutes to import torch
        while not stored(out) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    text = (tmp_path / "stderr").read_text()
    assert "levelhead: interrupted" in text
    assert "Traceback" not in text
    assert "\x1b" not in text  # plain lines where there is no terminal
    first = stored(out)
    plan = (out / "study.json").read_bytes()

    ended = levelhead(*given, "--json", "-")
    assert ended.returncode == 2, ended.stderr
    assert "INCONCLUSIVE: " in ended.stderr
    assert "Traceback" not in ended.stderr
    text = json.loads(ended.stdout)
    assert text["verdict"].startswith("INCONCLUSIVE: ")
    assert not text["complete"]
    assert 1 <= len(text["run"]) < len(text["planned"])
    late = [item for item in text["measures"] if item["reason"] == "time budget"]
    assert {item["status"] for item in late} == {"not measured"}
    reasons = {item["name"]: item["reason"] for item in text["measures"]}
    assert len(late) == len(text["planned"]) - len(text["run"]), reasons
    assert text["report"] == str(out / "report.html")
    assert all(item["calibration"] for item in text["measures"])
    assert (out / "study.json").read_bytes() == plan
    assert first
    assert first.items() <= stored(out).items()
    page = (out / "report.html").read_text()
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "<img src=x" not in page
