"""A classifier whose weights lean on the group by construction: what an edit does to it is known.

A tiny random encoder, and a classifier fitted to its pooled vectors by least squares: half of it
tells which thing a text is about, which is the label, and a part of it tells the group.
"""

import csv
import dataclasses
import functools
import itertools
import tempfile
from pathlib import Path

import numpy as np
import torch
import zoo
from metric_cases import WORDS

from levelhead.data.lexicons.lexicon import Term
from levelhead.data.records import LabelledExample
from levelhead.models.loading.load import load

WHO = {"woman": 1, "nurse": 1, "man": -1, "doctor": -1}
THINGS = ("house", "river", "quick", "lazy", "tired", "here")
MORE = ("in", "there", "that", "said", "was", "as", "works", "and")
LABELS = ("no", "yes")
LEXICON = dataclasses.replace(
    WORDS, terms=(Term("person", (("female", "woman"), ("male", "man"))),)
)
TOML = """
name = "own"
language = "en"
groups = ["female", "male"]
source = "the tests"
licence = "CC0-1.0"
limits = "says nothing of anybody"
[[terms]]
kind = "person"
rows = [{ female = "woman", male = "man" }]
[[placebo]]
group = "female"
rows = [["woman", "nurse"]]
[[placebo]]
group = "male"
rows = [["man", "doctor"]]
"""
ROWS = tuple(itertools.product(WHO, THINGS, MORE, MORE))


def text_of(who, thing, *more):
    return f"the {who} is {thing} {' '.join(more)}."


def side(thing):
    return 1 if THINGS.index(thing) % 2 else -1


@functools.cache
def checkpoint(lean):
    """The folder of a classifier that leans on the group so much."""
    keep = tempfile.TemporaryDirectory(prefix="leaning-")
    zoo._kept.append(keep)
    model = zoo.built("bert", "BertForSequenceClassification", num_labels=2, seed=5)
    model.config.id2label = dict(enumerate(LABELS))
    model.config.label2id = {name: i for i, name in enumerate(LABELS)}
    tokenizer = zoo.tokenizer()
    encoded = tokenizer([text_of(*row) for row in ROWS], return_tensors="pt", padding=True)
    with torch.no_grad():
        pooled = model.bert(**encoded).pooler_output.double().numpy()
    seen = np.hstack([pooled, np.ones((len(pooled), 1))])
    wanted = np.array([[side(thing), WHO[who]] for who, thing, *_ in ROWS], dtype=float)
    fitted = np.linalg.lstsq(seen, wanted, rcond=None)[0] @ np.array([1.0, lean])
    with torch.no_grad():
        model.classifier.weight.copy_(torch.from_numpy(np.stack([-fitted[:-1], fitted[:-1]])))
        model.classifier.bias.copy_(torch.from_numpy(np.array([-fitted[-1], fitted[-1]])))
    model.save_pretrained(keep.name)
    tokenizer.save_pretrained(keep.name)
    return Path(keep.name)


def classifier(lean):
    return load(checkpoint(lean))


def texts(tag, count=150, seed=0):
    """Half of the texts for dev, the others for test: no text, and no twin of one, is in both."""
    rows = sorted(itertools.product(THINGS, MORE, MORE))
    order = np.random.default_rng(seed).permutation(len(rows))
    half = order[: len(rows) // 2] if tag == "dev" else order[len(rows) // 2 :]
    return tuple(
        LabelledExample(
            f"{tag}{i}",
            text_of(("woman", "man")[i % 2], *rows[i]),
            LABELS[side(rows[i][0]) > 0],
        )
        for i in half[:count].tolist()
    )


def write(path, rows):
    """Texts as a CSV file."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "label"])
        table.writerows([row.text, row.label] for row in rows)
    return str(path)
