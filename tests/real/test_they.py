"""She and he become they, compared with sentences that were published with each pronoun."""

import csv
from collections import defaultdict

import pytest
from assets import asset

from levelhead.data.lexicons.lexicon import lexicon


@pytest.mark.parametrize(("pronoun", "group"), [("she", "female"), ("he", "male")])
def test_verbs_agree_as_in_sentences_of_tango(pronoun, group):
    # Ovalle et al. 2023: sentences with he, she and they that differ in nothing else.
    sentences = defaultdict(dict)
    with asset("data", "tango", "misgendering_prompts.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            key = row["template_idx"], row["ante"]
            sentences[key][row["pronoun_family"]] = row["template"]
    words = lexicon("gender-en")
    pairs = [(row[pronoun], row["they"]) for row in sentences.values()]
    swapped = [words.swap(text, groups=(group, "nonbinary")).counterfactual for text, _ in pairs]
    assert len(pairs) == 480
    assert swapped == [expected for _, expected in pairs]
