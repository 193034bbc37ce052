"""Swaps over real text, where the right answer is known for free or was given by people."""

import csv
import hashlib
import re

from assets import asset

from levelhead.data.datasets import dataset
from levelhead.data.lexicon import lexicon
from levelhead.data.lint import lint
from levelhead.data.pronouns import is_object, stands_alone
from levelhead.data.swap import swap
from levelhead.data.words import tokens

GENDER = lexicon("gender-en")
SEEN = (
    # A fifth of these, by document, was left out by tools/train_pronouns.py; the biographies whole.
    "amalgum_wikinews_news.tsv",
    "amalgum_wikinews_interview.tsv",
    "leipzig_eng_news_2016_10K-sentences.txt",
    "amalgum_gutenberg_fiction.tsv",
)
BIOGRAPHIES = "amalgum_wikipedia_bio.tsv"


def sentences(*names, unseen=True):
    for name in names:
        path = asset("data", "news-corpus-standin", name)
        for line in path.read_text(encoding="utf-8").splitlines():
            document, _, text = line.partition("\t")
            left_out = int(hashlib.sha256(document.encode()).hexdigest(), 16) % 5 == 0
            if name == BIOGRAPHIES or left_out or not unseen:
                yield [token.text for token in tokens(text)]


def test_his_and_him_come_back_from_her():
    """Written as her and read again: the form that stood there is the answer."""
    told = {"his": [], "him": []}
    count = 0
    for words in sentences(*SEEN, BIOGRAPHIES):
        count += any(word.lower() in told for word in words)
        for i, word in enumerate(words):
            if word.lower() in told:
                told[word.lower()].append(is_object(words, i))
    assert count >= 5_000
    both = [(guess, form == "him") for form, guesses in told.items() for guess in guesses]
    decided = [(guess, truth) for guess, truth in both if guess is not None]
    assert len(decided) / len(both) >= 0.95
    assert sum(guess == truth for guess, truth in decided) / len(decided) >= 0.98
    for form, least in (("his", 0.985), ("him", 0.93)):  # each by itself, as measured
        sure = [guess for guess in told[form] if guess is not None]
        assert sum(guess == (form == "him") for guess in sure) / len(sure) >= least


def test_her_and_hers_come_back_from_his():
    right = wrong = 0
    for words in sentences(BIOGRAPHIES, *SEEN, unseen=False):
        for i, word in enumerate(words):
            if word.lower() == "hers" or (word.lower() == "her" and is_object(words, i) is False):
                if stands_alone(words, i) == (word.lower() == "hers"):
                    right += 1
                else:
                    wrong += 1
    assert right + wrong > 2_000
    assert right / (right + wrong) >= 0.98


def plain(text):
    for old, new in (("\u2019", "'"), ("\u201c", '"'), ("\u201d", '"')):
        text = text.replace(old, new)
    return re.sub(r"\s+", " ", text).strip(' ".')


def test_people_swap_contexts_as_we_do(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))
    contexts = {}
    for name in ("dev.csv", "test.csv"):
        path = asset("data", "gender-swapped-stereoset", name)
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                twin = row.get("gender_swapped_context") or row.get("gender_swapped_conext")
                contexts[name, row["context_id"]] = (row["context"], twin)
    assert len(contexts) == 983
    items = [t for part in ("dev", "test") for t in dataset("stereoset-swapped").items(part)]
    flagged = {flag.item for flag in lint(items) if flag.field == "context"}
    clean = {
        key: pair
        for key, pair in contexts.items()
        if f"{key[0].removesuffix('.csv')}-{key[1]}" not in flagged
    }
    assert len(clean) > 750
    for chosen, bar in ((contexts, 0.92), (clean, 0.92)):
        same = 0
        for context, twin in chosen.values():
            ours = swap(context, GENDER).twin
            same += ours is not None and plain(ours) == plain(twin)
        assert same / len(chosen) >= bar
