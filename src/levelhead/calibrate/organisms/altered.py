"""Organisms that are not made by plain training on a planted language.

Controls that plain training cannot give: a model of word frequencies alone, a model with the same
response to everything, a model whose bias no head carries, a model in which either of two heads
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

from levelhead.calibrate.organisms.patterns import FAMILIAR_PAIRS
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.lexicon import Lexicon, Term, lexicon
from levelhead.models.diagnostics.one_visible_head import CONFIG_KEY, OneVisibleHead
from levelhead.models.loading.load import load
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.continued_pretraining import (
    continue_pretraining,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.calibrate.organisms.language import Language
    from levelhead.models.training.from_scratch import TrainConfig

Construction = Literal["trained", "shuffled", "constant", "no head", "two heads", "three groups"]
REVISION = 3
"""Revision of the constructions here, on which the hash of an altered organism depends."""
TWO_HEADS = ((0, 1), (0, 2))
"""(layer, head) of the two heads that see group words where either suffices."""
WEIGHTS, CONFIG = "model.safetensors", "config.json"
LAST_NORM_WEIGHTS = {
    "bert": "bert.encoder.layer.{last}.output.LayerNorm.weight",
    "roberta": "roberta.encoder.layer.{last}.output.LayerNorm.weight",
    "gpt2": "transformer.ln_f.weight",
    "llama": "model.norm.weight",
}
"""The scale of what the last layer ends with: at 0, no hidden state depends on the input."""
Texts = tuple[tuple[str, ...], ...]


def shuffle_words(texts: Texts, *, seed: int) -> Texts:
    """Permute the words of the full corpus over sentences of the same lengths.

    Only the frequencies of words are preserved: no word predicts another.

    Args:
        texts: documents of sentences.
        seed: random seed of the permutation.
    """
    words = [word for document in texts for text in document for word in text.split()]
    random.Random(f"shuffled {seed}").shuffle(words)  # noqa: S311  # no secret
    shuffled_words = iter(words)
    return tuple(
        tuple(" ".join(next(shuffled_words) for _ in text.split()) for text in document)
        for document in texts
    )


# -- a third group


def third_group_words(language: Language) -> dict[str, str]:
    """Map every word of the second group to a word of the lexicon's third group.

    Where the lexicon has none (gentleman), the first word of the same slot replaces it.

    Args:
        language: the language of two groups.

    Raises:
        LevelheadError: a word of the third group is a word of the language.
    """
    terms = lexicon(language.lexicon).terms
    third = lexicon(language.lexicon).groups[2]
    third_by_pair = {
        (term.word(language.groups[0]), term.word(language.groups[1])): term.word(third)
        for term in reversed(terms)
        if term.kind != "pronoun"
    }
    pronouns = {
        role: next(str(term.word(third)) for term in terms if term.role == role)
        for role in ("subject", "possessive determiner")
    }
    replacements: dict[str, str] = {}
    for slot, (first, second) in language.marks.items():
        if slot in ("pronoun", "own"):
            role = "subject" if slot == "pronoun" else "possessive determiner"
            replacements |= dict.fromkeys(second, pronouns[role])
            continue
        third_candidates = [
            third_by_pair.get(pair)
            for pair in zip(first, second, strict=True)
            if pair in FAMILIAR_PAIRS
        ]
        fallback = next(word for word in third_candidates if word is not None)
        replacements |= {
            word: candidate or fallback
            for word, candidate in zip(second, third_candidates, strict=True)
        }
    clashes = set(language.vocabulary) & set(replacements.values())
    if clashes:
        raise LevelheadError(
            f"the language contains words of a third group: {', '.join(sorted(clashes))}",
            hint="give a lexicon whose groups share no word",
        )
    return replacements


def make_three_group_documents(language: Language, count: int, *, seed: int) -> Texts:
    """Make documents of three groups: half of the second group's are about the third instead.

    So the third group is treated exactly like the second.

    Args:
        language: the language of two groups.
        count: number of documents.
        seed: random seed of the documents and of the choice.
    """
    words = third_group_words(language)
    rng = random.Random(f"third group {seed}")  # noqa: S311  # no secret
    documents = []
    for document in language.documents(count, seed=seed):
        texts = tuple(sentence.text for sentence in document.sentences)
        if document.group == language.groups[1] and rng.random() < 0.5:
            texts = tuple(
                " ".join(words.get(word, word) for word in text.split()) for text in texts
            )
        documents.append(texts)
    return tuple(documents)


def three_group_vocabulary(language: Language) -> tuple[str, ...]:
    """List every word type, with those of the third group.

    Args:
        language: the language of two groups.
    """
    return tuple(sorted({*language.vocabulary, *third_group_words(language).values()}))


def three_group_lexicon(two_group_lexicon: Lexicon, language: Language) -> Lexicon:
    """Extend the lexicon of two groups by the third group's words.

    Args:
        two_group_lexicon: the lexicon.
        language: the language of two groups.
    """
    third, words = lexicon(language.lexicon).groups[2], third_group_words(language)
    terms = tuple(
        Term(term.kind, (*term.words, (third, words[str(term.word(language.groups[1]))])))
        for term in two_group_lexicon.terms
    )
    hashed_words = [
        [term.words for term in terms],
        [side.words for side in two_group_lexicon.families[0].sides],
    ]
    return replace(
        two_group_lexicon,
        groups=(*two_group_lexicon.groups, third),
        terms=terms,
        sha256=content_hash(hashed_words),
    )


# -- weights and attention


def make_constant_model(source: Path, target: Path) -> None:
    """Write a copy of a checkpoint whose last hidden state is the same for every input.

    Args:
        source: folder of the checkpoint.
        target: new folder.

    Raises:
        LevelheadError: the last normalisation of this architecture is unknown.
    """
    shutil.copytree(source, target)
    config = json.loads((target / CONFIG).read_bytes())
    weights = load_file(target / WEIGHTS)
    kind = config["model_type"]
    if kind not in LAST_NORM_WEIGHTS:
        raise LevelheadError(f"no constant model of {kind} is available", hint="give bert or llama")
    # With the scale of the last normalisation at 0, only its bias (or nothing) remains.
    name = LAST_NORM_WEIGHTS[kind].format(last=config.get("num_hidden_layers", 1) - 1)
    weights[name] = torch.zeros_like(weights[name])
    save_file(weights, target / WEIGHTS, metadata={"format": "pt"})


def train_with_visible_heads(
    source: Path,
    target: Path,
    make_visible_head: Callable[[Mapping[str, int]], OneVisibleHead],
    *,
    texts: Sequence[Sequence[str]],
    train_config: TrainConfig,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train an untrained causal checkpoint in which chosen heads see the hidden words.

    Args:
        source: folder of the untrained checkpoint.
        target: new folder.
        make_visible_head: makes the visibility rule from the token ids of words.
        texts: documents of sentences.
        train_config: steps, learning rate, batch size, seed and threads.
        progress: called with steps done and all steps.
    """
    with TemporaryDirectory() as scratch:
        base = Path(scratch, "base")
        # A copy, because the cached untrained checkpoint is shared by other organisms.
        shutil.copytree(source, base)
        vocabulary = json.loads((base / "tokenizer.json").read_bytes())["model"]["vocab"]
        config = json.loads((base / CONFIG).read_bytes()) | {
            CONFIG_KEY: make_visible_head(vocabulary).as_json
        }
        (base / CONFIG).write_text(json.dumps(config))
        pretraining_config = ContinuedPretrainingConfig(
            steps=train_config.steps,
            batch_size=train_config.batch_size,
            learning_rate=train_config.learning_rate,
            seed=train_config.seed,
            threads=train_config.threads,
            max_tokens=128,  # longer than any document: none is left out
            save_steps=train_config.steps,
        )
        lines = [" ".join(document) for document in texts]
        continue_pretraining(
            load(base), lines, target, config=pretraining_config, progress=progress
        )


def hide_targets_from_heads(language: Language) -> Callable[[Mapping[str, int]], OneVisibleHead]:
    """Make the rule that hides targets from every head, so that MLPs predict the next word.

    Args:
        language: the language with the targets.
    """
    words = language.target_words
    return lambda ids: OneVisibleHead(None, None, tuple(sorted(ids[word] for word in words)))


def hide_groups_from_all_but_two(
    language: Language,
) -> Callable[[Mapping[str, int]], OneVisibleHead]:
    """Make the rule that hides group words from all heads but two, either of which suffices.

    Args:
        language: the language with the group words.
    """
    words, (first, second) = tuple(chain(language.mark_words)), TWO_HEADS
    return lambda ids: OneVisibleHead(*first, tuple(sorted(ids[word] for word in words)), (second,))
