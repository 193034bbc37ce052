"""Swaps in other languages, compared with published sentences about women and about men.

HONEST (Nozza et al. 2021) has each template for words of both; BEC-Pro (Bartl et al. 2020) each
German sentence. Labels are as published, faults included ("l'épouses", "Dachedecker"), so that the
shares of right swaps are lower bounds. docs/how-to/lexicon.md has the figures.
"""

import csv
import gzip
import re
from collections import Counter, defaultdict

import pytest
from assets import asset

from levelhead.data.catalog.datasets import dataset
from levelhead.data.lexicons.lexicon import lexicon

PERSONS = {
    "es": "mujer hombre chica chico madre padre madres padres hija hijo hijas hijos hermana "
    "hermano hermanas hermanos tía tío tías tíos esposa marido esposas maridos novia novio novias "
    "novios prometida prometido prometidas prometidos ella él dama caballero damas caballeros "
    "señora señor niña niño hembra varón",
    "fr": "femme homme fille garçon filles garçons mère père mères pères sœur frère sœurs frères "
    "tante oncle tantes oncles épouse mari épouses maris copine copain copines copains compagne "
    "compagnon mariée marié mariées mariés gamine gamin gamines gamins elle il madame monsieur",
    "it": "donna uomo donne uomini ragazza ragazzo ragazze ragazzi bambina bambino bambine bambini "
    "madre padre madri padri figlia figlio figlie figli sorella fratello sorelle fratelli zia zio "
    "zie zii moglie marito mogli mariti sposa sposo spose sposi fidanzata fidanzato fidanzate "
    "fidanzati lei lui femmina maschio femmine maschi signora signore",
}
LAST_ARTICLE = re.compile(
    r"\s*(?:\b(?:le|la|el|il|lo|l'|une?|una|uno|los|las|les|des|i|gli|dei|delle|degli|unos|unas)"
    r"\s*)?\[M\]\.?$"
)
"""The blank and its article, which belongs to a word that is not there."""


def plain(text):
    text = re.sub(r"\s+", " ", text.replace("\u2019", "'")).replace("' ", "'")
    # Both are right for "my husband".
    text = text.replace("Ehemann", "Mann").replace("Ehefrau", "Frau")
    return LAST_ARTICLE.sub("", text).strip()


def honest_pairs(code):
    sentences = defaultdict(list)
    with dataset("honest-more").path(code).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            sentences[row["identity"], row["category"]].append(row["template_masked"])
    words = PERSONS[code].split()
    for female, male in zip(words[::2], words[1::2], strict=True):
        both = sentences[female, "female"], sentences[male, "male"]
        if len(both[0]) == len(both[1]):
            yield from zip(*both, strict=True)


def bec_pairs():
    sentences = defaultdict(list)
    with gzip.open(asset("data", "bec-pro-de", "BEC-Pro_DE.tsv.gz"), "rt") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            key = row["Template"], row["Profession_EN"], row["Gender"]
            sentences[key].append(row["Sentence"])
    for template, job, gender in list(sentences):
        if gender == "female":
            both = sentences[template, job, "female"], sentences[template, job, "male"]
            if len(both[0]) == len(both[1]):
                yield from zip(*both, strict=True)


def compare(code, pairs):
    """Counts of right, wrong, refused and unchanged texts, and of those that come back."""
    words, counts = lexicon(f"gender-{code}"), Counter()
    for female, male in pairs:
        for text, label in ((plain(female), plain(male)), (plain(male), plain(female))):
            there = words.swap(text)
            if there.counterfactual is None or not there.changes:
                counts["refused" if there.refusals else "no word"] += 1
                continue
            counts["right" if plain(there.counterfactual) == label else "wrong"] += 1
            back = words.swap(there.counterfactual)
            counts["came back"] += back.counterfactual == text
            counts["back"] += back.counterfactual is not None
    return counts


@pytest.mark.parametrize(
    ("code", "sentences", "decided", "right"),
    [("es", 630, 0.90, 0.90), ("fr", 600, 0.90, 0.89), ("it", 720, 0.99, 0.98)],
)
def test_swaps_of_honest_sentences(code, sentences, decided, right):
    counts = compare(code, honest_pairs(code))
    total = sum(counts[key] for key in ("right", "wrong", "refused", "no word"))
    assert total >= sentences
    n_decided = counts["right"] + counts["wrong"]
    assert n_decided / total >= decided
    assert counts["right"] / n_decided >= right
    assert counts["came back"] / counts["back"] >= 0.98


def test_swaps_of_german_sentences_about_jobs():
    counts = compare("de", bec_pairs())
    total = sum(counts[key] for key in ("right", "wrong", "refused", "no word"))
    assert total >= 4000
    n_decided = counts["right"] + counts["wrong"]
    assert n_decided / total >= 0.70
    assert counts["right"] / n_decided >= 0.94
    assert counts["came back"] / counts["back"] >= 0.98
