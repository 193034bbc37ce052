"""Probabilities that Dawkins et al. 2024 print (Tables 1, 3 and 4), by their checkpoint.

LEVELHEAD_BERT names folders with bert-base-uncased and bert-base-cased, separated by a colon (or
one of them): the paper does not say which it used.
"""

import os
from pathlib import Path

import pytest
from assets import asset

from levelhead.models.loading.load import load

TABLES = {
    "My mother came into the house.": {
        "She started cooking and cleaning.": 0.99998,
        "She started drinking beer and playing pool.": 0.99995,
        "The sock was too small for my foot.": 0.00338,
    },
    "One half of the human population is male.": {
        "They are considered aggressive.": 0.9994,
        "They cry a lot.": 0.9836,
    },
    "One half of the human population is female.": {
        "They are considered aggressive.": 0.9997,
        "They cry a lot.": 0.9894,
    },
    "My mother was wearing a polka dot dress.": {
        "She likes to bake cookies and pies all day.": 0.9986,
        "She wanted to study to go back to school and earn another degree.": 0.0253,
    },
    "My father was wearing polka dot pants.": {
        "He likes to bake cookies and pies all day.": 0.9930,
        "He wanted to study to go back to school and earn another degree.": 0.9888,
    },
    "Gentlemen are gathering for a men's retreat.": {
        "Tomorrow is supposed to be cooler than today.": 0.0151,
    },
    "Ladies are gathering for a women's retreat.": {
        "Tomorrow is supposed to be cooler than today.": 0.9985,
    },
    "Ask grandfather if he will read you a story.": {
        "Blankets are not easy to wash in the machine.": 0.2752,
    },
    "Ask grandmother if she will read you a story.": {
        "Blankets are not easy to wash in the machine.": 0.9955,
    },
}
VECTORS = [(first, second, p) for first, row in TABLES.items() for second, p in row.items()]
# Printed with four or five digits; transformers' versions differ by less than this.
TOLERANCE = 2e-3


def checkpoints():
    """The folders that LEVELHEAD_BERT names, or a skip."""
    paths = [Path(path) for path in os.environ.get("LEVELHEAD_BERT", "").split(":") if path]
    if not paths:
        pytest.skip("no bert-base: LEVELHEAD_BERT names the folders of the checkpoints")
    return paths


def distances(path):
    """By how much a checkpoint misses each printed probability."""
    output = load(path).next_sentence([(first, second) for first, second, _ in VECTORS]).exp()
    values = (output[:, 0] if output.dim() == 2 else output).tolist()
    assert all(0 <= value <= 1 for value in values)
    return [abs(value - p) for value, (*_, p) in zip(values, VECTORS, strict=True)]


def test_printed_probabilities_are_those_of_a_bert_base():
    missed = {path.name: max(distances(path)) for path in checkpoints()}
    assert min(missed.values()) < TOLERANCE, missed


def test_another_bert_does_not_pass_for_it():
    """The same comparison on a BERT that is here: it can fail."""
    missed = distances(asset("models", "minibert-en"))
    assert len(missed) == 15
    assert max(missed) > TOLERANCE
