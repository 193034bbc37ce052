"""Context-Debias: states of stereotyped words are trained to be orthogonal to those of group words.

Kaneko and Bollegala (2021), "Debiasing pre-trained contextualised embeddings". With attribute words
a (which name a group), target words t (stereotyped ones), their states E_i(w; x) in layer i of a
sentence x, and v_i(a), the mean state of a over its sentences (equation 2):

    L_i = sum over t, x and a of (v_i(a) . E_i(t; x))^2                             (1)
    L_reg = sum over words w of the sentences of a, and layers, of
            ||E_i(w; x) - E_i(w; x; original model)||^2                             (3)
    L = alpha L_i + (1 - alpha) L_reg                                               (4)

Here all layers are used and the target's tokens only (the variant "all, token"), and sums are
means, so that alpha does not depend on the numbers of words and layers. v is that of the original
model, as in the first epoch of the authors' code; (3) holds it in place.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch

from levelhead.core.errors import LevelheadError
from levelhead.data.corpus.contexts import find_contexts
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon
from levelhead.data.tokenize import fold_case
from levelhead.mitigate.training.placebo_words import (
    count_words,
    draw_placebo_words,
    stereotype_words,
)
from levelhead.mitigate.training.variants import (
    TrainingData,
    describe_variant,
    load_base,
    make_metadata,
    read_corpus,
)
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.objectives import CyclicRows, pad_token_rows, run_layers
from levelhead.models.training.training_run import make_record, reload_base, train_and_save

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from levelhead.data.corpus.contexts import WordContext
    from levelhead.mitigate.training.variants import Base, Corpus, Progress, TrainedVariant
    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.inputs.tokenizer import TokenRow, Tokens
    from levelhead.models.lm import LM
    from levelhead.models.training.objectives import Batch


@final
@dataclass(frozen=True)
class ContextDebiasSettings:
    """What Context-Debias makes orthogonal, and how much."""

    lexicon: str = "gender-en"
    groups: tuple[str, str] | None = None
    """Two groups of the lexicon; by default the first two."""
    alpha: float = 0.2
    """Weight of orthogonality; the rest is that of the original states. Default of the paper."""
    contexts_per_word: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1 or self.contexts_per_word < 1:
            raise LevelheadError(
                f"Context-Debias cannot train with {self}",
                hint="give an alpha from 0 to 1 and at least one context a word",
            )


class WordState(NamedTuple):
    """A sentence, and the tokens of a word in it."""

    word: str
    text: str
    row: TokenRow
    positions: tuple[int, ...]
    word_positions: tuple[int, ...]
    """Positions of all tokens that are not special."""


class Orthogonality:
    """The loss of Context-Debias. A row is a sentence of a target and one of an attribute."""

    has_dropout = False

    def __init__(
        self,
        base: ModelLayout,
        tokens: Tokens,
        targets: Sequence[WordState],
        attributes: Sequence[WordState],
        *,
        alpha: float,
        config: ContinuedPretrainingConfig,
    ) -> None:
        self.base, self.tokens = base, tokens
        self.targets, self.attributes, self.alpha = targets, attributes, alpha
        n_rows = config.steps * config.batch_size
        self.rows = CyclicRows(n_rows, n_rows)
        self.vectors = self._mean_states(config.batch_size)

    def _mean_states(self, batch_size: int) -> torch.Tensor:
        """Compute v, `[layers, words, width]` (equation 2)."""
        names = list(dict.fromkeys(state.word for state in self.attributes))
        owners = torch.tensor([names.index(state.word) for state in self.attributes])
        parts = []
        for start in range(0, len(self.attributes), batch_size):
            states = self.attributes[start : start + batch_size]
            batch = pad_token_rows([state.row for state in states], self.tokens.pad)
            weights = _position_weights([state.positions for state in states], batch)
            with torch.no_grad():
                parts.append(_average_tokens(run_layers(self.base, batch), weights))
        states_by_layer = torch.cat(parts, dim=1)
        totals = torch.zeros(len(states_by_layer), len(names), states_by_layer.shape[-1])
        totals.index_add_(1, owners, states_by_layer)
        return totals / torch.bincount(owners)[None, :, None]

    def collate(self, row_numbers: list[int]) -> Batch:
        """Build a batch: sentences of targets, then as many of attributes."""
        targets = [self.targets[number % len(self.targets)] for number in row_numbers]
        attributes = [self.attributes[number % len(self.attributes)] for number in row_numbers]
        batch = pad_token_rows([state.row for state in (*targets, *attributes)], self.tokens.pad)
        positions = [
            *(state.positions for state in targets),
            *(state.word_positions for state in attributes),
        ]
        return batch | {"weights": _position_weights(positions, batch)}

    def compute_loss(self, trainee: ModelLayout, batch: Batch) -> torch.Tensor:
        """Compute equation 4, with means in the place of sums."""
        half = len(batch["input_ids"]) // 2
        states, weights = run_layers(trainee, batch), batch["weights"]
        targets = _average_tokens(states[:, :half], weights[:half])
        # Shape [layers, targets, attribute words].
        products = torch.einsum("ltw,law->lta", targets, self.vectors)
        with torch.no_grad():
            inputs = {name: tensor[half:] for name, tensor in batch.items()}
            original = run_layers(self.base, inputs)
        is_word = weights[half:] > 0
        distances = (states[:, half:] - original).square().sum(-1)[:, is_word]
        return self.alpha * products.square().mean() + (1 - self.alpha) * distances.mean()


def context_debias(
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    settings: ContextDebiasSettings | None = None,
    config: ContinuedPretrainingConfig | None = None,
    placebo: bool = False,
    progress: Progress | None = None,
) -> TrainedVariant:
    """Train states of stereotyped words to be orthogonal to those of group words.

    Args:
        base: A model without edits, or its name.
        corpus: A data set's name, files, globs or URLs; several in a list.
        folder: A new folder, or one with an interrupted run of the same training.
        settings: Words and weight of the loss.
        config: Settings of the training; a row is a sentence of a target and one of an attribute.
        placebo: Use words that name no group, as frequent in the corpus, as attributes.
        progress: Callback for the number of finished steps and the total.
    """
    settings = settings or ContextDebiasSettings()
    config = config or ContinuedPretrainingConfig()
    words = read_lexicon(settings.lexicon)
    groups = words.resolve_group_pair(settings.groups)
    lm = reload_base(load_base(base))
    texts, sources = read_corpus(corpus)
    targets = stereotype_words(words, groups)
    # As written: a title matches only with its capital letter.
    groups_by_attribute = {word: group for group in groups for word in words.words(group)}
    quota = settings.contexts_per_word
    contexts = find_contexts(
        groups_by_attribute | dict.fromkeys(targets, ""), corpus, quota=quota
    ).by_word
    attribute_contexts = {word: contexts[word] for word in groups_by_attribute}
    if placebo:
        counts = count_words(texts)
        named = [word for word, rows in attribute_contexts.items() if rows]
        excluded = {*map(fold_case, groups_by_attribute), *targets}
        drawn = draw_placebo_words(named, counts, excluded, seed=config.seed)
        attribute_contexts = dict(
            find_contexts(
                {drawn[word]: groups_by_attribute[word] for word in named},
                corpus,
                quota=quota,
            ).by_word
        )
    left_out: Counter[str] = Counter()
    rng = np.random.default_rng(config.seed)
    target_states, attribute_states = (
        _read_states(lm, by_word, config, rng, left_out)
        for by_word in ({word: contexts[word] for word in targets}, attribute_contexts)
    )
    if not target_states or not attribute_states:
        missing = "stereotyped words" if attribute_states else "words that name a group"
        raise LevelheadError(
            f"no sentence of {len(texts)} can be used for {missing}",
            hint="give a larger corpus in the model's language, or another lexicon",
        )
    details: dict[str, object] = {
        "lexicon": words.name,
        "lexicon_sha256": words.sha256,
        "groups": groups,
        "alpha": settings.alpha,
        "contexts_per_word": quota,
        "attributes": sorted({state.word for state in attribute_states}),
        "targets": sorted({state.word for state in target_states}),
    }
    used = [f"{state.word}: {state.text}" for state in (*target_states, *attribute_states)]
    record = make_record(
        lm,
        config,
        used,
        asked="orthogonal states",
        skipped=left_out,
        metadata=make_metadata("context-debias", sources, details, placebo=placebo),
    )
    objective = Orthogonality(
        lm.layout, lm.tokens, target_states, attribute_states, alpha=settings.alpha, config=config
    )
    path = train_and_save(lm, objective, folder, config=config, record=record, progress=progress)
    data = TrainingData(sources, len(texts), len(texts), len(used), 0, left_out)
    return describe_variant("context-debias", lm, path, data, config, details, placebo=placebo)


def _read_states(
    lm: LM,
    by_word: Mapping[str, Sequence[WordContext]],
    config: ContinuedPretrainingConfig,
    rng: np.random.Generator,
    left_out: Counter[str],
) -> list[WordState]:
    """Tokens of the contexts that the model can read, in seeded order."""
    states = []
    for word, contexts in by_word.items():
        if not contexts:
            left_out["a word without a sentence"] += 1
        for context in contexts:
            try:
                encoded = lm.tokens.encode([context.text])[0]
                span = (context.start, context.end)
                positions = lm.tokens.positions_of_word(encoded, span, context.text)
            except UnreadableTextError:
                left_out["a word the model cannot read"] += 1
                continue
            if len(encoded.row.ids) > config.max_tokens:
                left_out[f"more than {config.max_tokens} tokens"] += 1
                continue
            words = encoded.word_positions()
            states.append(WordState(word, context.text, encoded.row, positions, words))
    return [states[i] for i in rng.permutation(len(states))]


def _position_weights(positions: Sequence[Sequence[int]], batch: Batch) -> torch.Tensor:
    """Weights of tokens, `[rows, tokens]`: the mean over the given positions of each row."""
    weights = torch.zeros(batch["input_ids"].shape)
    for i, row_positions in enumerate(positions):
        weights[i, list(row_positions)] = 1 / len(row_positions)
    return weights


def _average_tokens(states: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Average states `[layers, rows, tokens, width]` over tokens."""
    return torch.einsum("lrtw,rt->lrw", states, weights)
