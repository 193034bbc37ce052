"""Classifiers that are trained here, once, and kept in the cache: none can be had ready."""

import os

from assets import asset

from levelhead.core.canonical_json import content_hash
from levelhead.core.files import file_hash
from levelhead.core.versions import installed_versions
from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import NLI_LABELS
from levelhead.models.export.save import build_once
from levelhead.models.loading.load import model_cache_folder
from levelhead.models.training import classifier_trainer as classifier
from levelhead.models.training import finetune as module
from levelhead.models.training.finetune import FinetuneConfig, finetune


def snli_classifier(rows=None, *, tuning=None, progress=None):
    """minibert-en made an inference classifier on SNLI's training subset, or on its first rows."""
    pairs = labelled_items("snli", "train")[:rows]
    shown = [((pair.first, pair.second), pair.label) for pair in pairs]
    return _trained("snli", shown, NLI_LABELS, tuning or FinetuneConfig(epochs=2), progress)


def cola_classifier(rows=None, *, tuning=None, progress=None):
    """minibert-en made a judge of grammar on CoLA's training set, or on its first rows."""
    shown = [(item.text, item.label) for item in labelled_items("glue-cola", "train")[:rows]]
    return _trained("glue-cola", shown, ("0", "1"), tuning or FinetuneConfig(epochs=3), progress)


def labelled_items(name, part):
    os.environ.setdefault("LEVELHEAD_DATA", os.fspath(asset("data")))
    return list(dataset(name).items(part))


def _trained(name, shown, labels, tuning, progress):
    base = asset("models", "minibert-en")
    facts = {
        "base": file_hash(base / "model.safetensors"),
        "rows": [[text, label] for text, label in shown],
        "tuning": vars(tuning),
        "training": [file_hash(item.__file__) for item in (classifier, module)],
        "versions": dict(installed_versions()),
    }
    return build_once(
        model_cache_folder() / "tests" / f"{name}-{content_hash(facts)[:16]}",
        lambda folder: finetune(base, shown, labels, folder, config=tuning, progress=progress),
    )


def sst2_classifier(shown):
    """minibert-en made a classifier of sentiment on some of SST-2's labelled sentences."""
    rows = [(item.text, item.label) for item in shown]
    return _trained("glue-sst2", rows, ("0", "1"), FinetuneConfig(epochs=3), None)
