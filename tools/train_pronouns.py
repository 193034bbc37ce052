"""Writes src/levelhead/data/pronouns.json: weights that tell her (him) from her (his).

    python tools/train_pronouns.py [--write]

Trained on sentences with my/me, our/us, their/them and his/him, whose forms say what "her" does
not. Texts, all by way of the AMALGUM and Leipzig corpora: Wikinews (CC BY 2.5), Leipzig news 2016
(CC BY 4.0), Project Gutenberg fiction (public domain). A fifth of the documents, by hash of their
name, and all Wikipedia biographies are left for testing. Without --write it only prints the test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path

import numpy as np
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression

from levelhead.data.counterfactuals import pronouns
from levelhead.data.tokenize import tokenize_words

ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", Path(__file__).parents[2] / "shared"))
CORPORA = ASSETS / "data/news-corpus-standin"
TRAINED_ON = (
    "amalgum_wikinews_news.tsv",
    "amalgum_wikinews_interview.tsv",
    "leipzig_eng_news_2016_10K-sentences.txt",
    "amalgum_gutenberg_fiction.tsv",
)
TESTED_ON = (*TRAINED_ON[:3], "amalgum_wikipedia_bio.tsv")
POSSESSIVE = {"my", "our", "their", "his"}
OBJECT = {"me", "us", "them", "him"}
TABLE = Path(pronouns.__file__).with_name("pronouns.json")
KEPT = 11_000
"""The largest weights; the table stays below 200 kB."""


def held_out(document: str) -> bool:
    """A fifth of the documents, whatever their order."""
    return int(hashlib.sha256(document.encode()).hexdigest(), 16) % 5 == 0


def examples(name: str, *, test: bool):
    """Words of a sentence, a position, and whether the object stands there."""
    for line in (CORPORA / name).read_text(encoding="utf-8").splitlines():
        document, _, text = line.partition("\t")
        trained = name in TRAINED_ON and not held_out(document)
        if trained == test:
            continue
        words = [token.text for token in tokenize_words(text)]
        for i, word in enumerate(words):
            form = word.lower()
            if form in (POSSESSIVE | OBJECT if not test else {"his", "him"}):
                yield words, i, form in OBJECT


def main() -> None:
    """Train, test, and write the table if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    result = [example for name in TRAINED_ON for example in examples(name, test=False)]
    vectors = DictVectorizer()
    x = vectors.fit_transform(
        [dict(pronouns.extract_pronoun_features(words, i)) for words, i, _ in result]
    )
    y = np.array([label for *_, label in result])
    model = LogisticRegression(C=0.3, max_iter=2000).fit(x, y)
    weights = dict(zip(vectors.get_feature_names_out(), model.coef_[0], strict=True))
    largest = sorted(weights, key=lambda name: -abs(weights[name]))[:KEPT]
    rounded = {name: round(float(weights[name]), 2) for name in sorted(largest)}
    rounded = {name: value for name, value in rounded.items() if value}
    rounded["bias"] = round(float(model.intercept_[0]), 3)
    if given.write:
        about = {
            "recipe": "tools/train_pronouns.py",
            "texts": "Wikinews (CC BY 2.5), Leipzig Corpora news 2016 (CC BY 4.0), Project "
            "Gutenberg fiction (public domain), by way of AMALGUM (Gessler et al. 2020) and the "
            "Leipzig Corpora Collection (Goldhahn et al. 2012)",
            "examples": len(result),
            "weights": rounded,
        }
        TABLE.write_text(
            json.dumps(about, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8"
        )
        pronouns.load_pronoun_weights.cache_clear()
        print(f"{TABLE.name}: {len(rounded)} weights, {TABLE.stat().st_size} bytes")
    for name in TESTED_ON:
        output = [
            (pronouns.is_object(words, i), label) for words, i, label in examples(name, test=True)
        ]
        decided = [(guess, label) for guess, label in output if guess is not None]
        right = sum(guess == label for guess, label in decided)
        print(
            f"{name}: {len(output)} words, {len(decided) / len(output):.1%} decided, "
            f"{right / len(decided):.2%} of them right"
        )


if __name__ == "__main__":
    main()
