"""Classifiers that are trained here, once, and kept in the cache: none can be had ready."""

import os

from assets import asset

from levelhead.core.canonical import content_hash
from levelhead.core.files import file_hash
from levelhead.core.versions import installed_versions
from levelhead.data.datasets import dataset
from levelhead.data.readers import NLI
from levelhead.models import finetune as module
from levelhead.models.finetune import Tuning, finetune
from levelhead.models.load import cache_folder
from levelhead.models.save import made_once


def snli_classifier(rows=None, *, tuning=None, progress=None):
    """minibert-en made an inference classifier on SNLI's training subset, or on its first rows."""
    base = asset("models", "minibert-en")
    os.environ.setdefault("LEVELHEAD_DATA", os.fspath(asset("data")))
    pairs = list(dataset("snli").items("train"))[:rows]
    tuning = tuning or Tuning(epochs=2)
    facts = {
        "base": file_hash(base / "model.safetensors"),
        "pairs": [list(pair) for pair in pairs],
        "tuning": vars(tuning),
        "training": file_hash(module.__file__),
        "versions": dict(installed_versions()),
    }
    shown = [((pair.first, pair.second), pair.label) for pair in pairs]
    return made_once(
        cache_folder() / "tests" / f"snli-{content_hash(facts)[:16]}",
        lambda folder: finetune(base, shown, NLI, folder, tuning=tuning, progress=progress),
    )
