"""Swaps over real text, where the right answer is known for free or was given by people."""

import csv
import hashlib
import re
from collections import Counter

from assets import asset

from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import detokenize
from levelhead.data.counterfactuals.pronouns import is_standalone_possessive
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.lint import lint
from levelhead.data.tokenize import tokenize_words

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
    """Sentences as people write them; the unseen ones only, or all."""
    for name in names:
        path = asset("data", "news-corpus-standin", name)
        for line in path.read_text(encoding="utf-8").splitlines():
            document, _, text = line.partition("\t")
            left_out = int(hashlib.sha256(document.encode()).hexdigest(), 16) % 5 == 0
            if name == BIOGRAPHIES or left_out or not unseen:
                yield detokenize(text)


def test_his_and_him_come_back_from_her():
    """Swapped and swapped back: the form that stood there is the answer."""
    output = {form: Counter() for form in ("his", "him")}
    count = 0
    for text in sentences(*SEEN, BIOGRAPHIES):
        there = swap(text, GENDER)
        wanted = [change for change in there.changes if change.old.lower() in output]
        count += bool(wanted)
        if not wanted or there.counterfactual is None:
            continue  # another word of it was refused
        back = swap(there.counterfactual, GENDER)
        again = {change.start: change.new.lower() for change in back.changes}
        for change in wanted:
            form = change.old.lower()
            output[form][
                again.get(change.new_start) == form if change.new_start in again else None
            ] += 1
    assert count >= 5_000
    both = output["his"] + output["him"]
    decided = both[True] + both[False]
    assert decided / both.total() >= 0.95
    assert both[True] / decided >= 0.98
    for form, least in (("his", 0.99), ("him", 0.92)):  # each by itself, as measured
        assert output[form][True] / (output[form][True] + output[form][False]) >= least


def test_possessives_with_and_without_a_noun_are_told_apart():
    """his is her or hers; their and theirs, my and mine say by their form which it is."""
    result = {
        "alone": ({"hers", "theirs", "ours", "yours"}, Counter()),
        "before a noun": ({"their", "my", "our", "your"}, Counter()),
    }
    for text in sentences(BIOGRAPHIES, *SEEN, unseen=False):
        words = [token.text for token in tokenize_words(text)]
        for i, word in enumerate(words):
            for forms, output in result.values():
                if word.lower() in forms:
                    output[is_standalone_possessive(words, i)] += 1
    alone, noun = result["alone"][1], result["before a noun"][1]
    right, wrong = alone[True] + noun[False], alone[False] + noun[True]
    assert right / (right + wrong) >= 0.98
    assert (right + wrong) / (alone.total() + noun.total()) >= 0.95
    assert alone[True] / (alone[True] + alone[False]) >= 0.78  # rare, and harder


def plain_result(text):
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
            ours = swap(context, GENDER).counterfactual
            same += ours is not None and plain_result(ours) == plain_result(twin)
        assert same / len(chosen) >= bar
