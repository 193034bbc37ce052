"""Organisms that are made in another way than by training on a planted language as it is.

Controls that plain training cannot give: a model of word frequencies alone, a model that answers
the same to everything, a model whose bias no head carries, a model in which either of two heads
suffices, and a language of three groups of which one is stereotyped.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import torch
from safetensors.torch import load_file, save_file

from levelhead.calibrate.organisms.patterns import KNOWN
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.lexicon import Lexicon, Term, lexicon
from levelhead.models.diagnostics.one_visible_head import KEY, KnownHead
from levelhead.models.loading.load import load
from levelhead.models.training.continued_pretraining import Schooling, continued

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.calibrate.organisms.language import Language
    from levelhead.models.training.from_scratch import Recipe

Making = Literal["trained", "shuffled", "constant", "no head", "two heads", "three groups"]
REVISION = 3
"""Of the constructions here: part of what an altered organism depends on."""
TWO_HEADS = ((0, 1), (0, 2))
"""(layer, head) of the two heads that see group words where either suffices."""
WEIGHTS, CONFIG = "model.safetensors", "config.json"
LAST_NORMS = {
    "bert": "bert.encoder.layer.{last}.output.LayerNorm.weight",
    "roberta": "roberta.encoder.layer.{last}.output.LayerNorm.weight",
    "gpt2": "transformer.ln_f.weight",
    "llama": "model.norm.weight",
}
"""The scale of what the last layer ends with: at 0, no hidden state depends on the input."""
Texts = tuple[tuple[str, ...], ...]


def shuffled(texts: Texts, *, seed: int) -> Texts:
    """The same sentences by length, with the words of the whole corpus dealt over them.

    How often a word occurs is kept, and nothing else: no word tells anything about another.
    """
    words = [word for document in texts for text in document for word in text.split()]
    random.Random(f"shuffled {seed}").shuffle(words)  # noqa: S311  # no secret
    dealt = iter(words)
    return tuple(
        tuple(" ".join(next(dealt) for _ in text.split()) for text in document)
        for document in texts
    )


# -- a third group


def third_words(language: Language) -> dict[str, str]:
    """For every word of the second group, the lexicon's word of its third group.

    Where the lexicon has none (gentleman), the first of the same slot stands for it.
    """
    terms = lexicon(language.lexicon).terms
    third = lexicon(language.lexicon).groups[2]
    named = {
        (term.word(language.groups[0]), term.word(language.groups[1])): term.word(third)
        for term in reversed(terms)
        if term.kind != "pronoun"
    }
    pronouns = {
        role: next(str(term.word(third)) for term in terms if term.role == role)
        for role in ("subject", "possessive determiner")
    }
    found: dict[str, str] = {}
    for slot, (first, second) in language.marks.items():
        if slot in ("pronoun", "own"):
            role = "subject" if slot == "pronoun" else "possessive determiner"
            found |= dict.fromkeys(second, pronouns[role])
            continue
        given = [named.get(pair) for pair in zip(first, second, strict=True) if pair in KNOWN]
        spare = next(word for word in given if word is not None)
        found |= {word: own or spare for word, own in zip(second, given, strict=True)}
    taken = set(language.vocabulary) & set(found.values())
    if taken:
        raise LevelheadError(
            f"words of a third group stand in the language: {', '.join(sorted(taken))}",
            mend="give a lexicon whose groups share no word",
        )
    return found


def with_third_group(language: Language, count: int, *, seed: int) -> Texts:
    """Documents of three groups; of the second group's, half are told of the third instead.

    So the third group is treated exactly as the second is.
    """
    words = third_words(language)
    chance = random.Random(f"third group {seed}")  # noqa: S311  # no secret
    found = []
    for document in language.documents(count, seed=seed):
        texts = tuple(one.text for one in document.sentences)
        if document.group == language.groups[1] and chance.random() < 0.5:
            texts = tuple(
                " ".join(words.get(word, word) for word in text.split()) for text in texts
            )
        found.append(texts)
    return tuple(found)


def three_group_vocabulary(language: Language) -> tuple[str, ...]:
    """Every word type, with those of the third group."""
    return tuple(sorted({*language.vocabulary, *third_words(language).values()}))


def three_group_lexicon(two: Lexicon, language: Language) -> Lexicon:
    """The lexicon of the two groups, with the third group's words."""
    third, words = lexicon(language.lexicon).groups[2], third_words(language)
    terms = tuple(
        Term(term.kind, (*term.words, (third, words[str(term.word(language.groups[1]))])))
        for term in two.terms
    )
    told = [[term.words for term in terms], [side.words for side in two.families[0].sides]]
    return replace(two, groups=(*two.groups, third), terms=terms, sha256=content_hash(told))


# -- weights and attention


def constant(source: Path, target: Path) -> None:
    """A copy of a checkpoint in which the last hidden state is the same whatever is read."""
    shutil.copytree(source, target)
    config = json.loads((target / CONFIG).read_bytes())
    weights = load_file(target / WEIGHTS)
    kind = config["model_type"]
    if kind not in LAST_NORMS:
        raise LevelheadError(f"no constant model is made of {kind}", mend="give bert or llama")
    name = LAST_NORMS[kind].format(last=config.get("num_hidden_layers", 1) - 1)
    weights[name] = torch.zeros_like(weights[name])
    save_file(weights, target / WEIGHTS, metadata={"format": "pt"})


def looked_at(
    source: Path,
    target: Path,
    known: Callable[[Mapping[str, int]], KnownHead],
    *,
    texts: Sequence[Sequence[str]],
    recipe: Recipe,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train an untrained causal checkpoint in which chosen heads see the hidden words.

    Args:
        source: the untrained checkpoint.
        target: a new folder.
        known: makes the rule of who sees what, from the token ids of words.
        texts: documents of sentences.
        recipe: steps, rate, batch, seed and threads.
        progress: is called with steps done and steps in all.
    """
    with TemporaryDirectory() as scratch:
        base = Path(scratch, "base")
        shutil.copytree(source, base)
        vocabulary = json.loads((base / "tokenizer.json").read_bytes())["model"]["vocab"]
        config = json.loads((base / CONFIG).read_bytes()) | {KEY: known(vocabulary).plain}
        (base / CONFIG).write_text(json.dumps(config))
        schooling = Schooling(
            steps=recipe.steps,
            batch=recipe.batch,
            rate=recipe.rate,
            seed=recipe.seed,
            threads=recipe.threads,
            max_tokens=128,  # longer than any document: none is left out
            every=recipe.steps,
        )
        lines = [" ".join(document) for document in texts]
        continued(load(base), lines, target, schooling=schooling, progress=progress)


def no_head(language: Language) -> Callable[[Mapping[str, int]], KnownHead]:
    """Targets are hidden from every head: what is predicted right behind one, MLPs predict."""
    words = language.target_words
    return lambda ids: KnownHead(None, None, tuple(sorted(ids[word] for word in words)))


def two_heads(language: Language) -> Callable[[Mapping[str, int]], KnownHead]:
    """Group words are hidden from all heads but two, either of which suffices."""
    words, (first, second) = tuple(chain(language.mark_words)), TWO_HEADS
    return lambda ids: KnownHead(*first, tuple(sorted(ids[word] for word in words)), (second,))
