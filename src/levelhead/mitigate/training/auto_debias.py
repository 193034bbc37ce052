"""Auto-Debias: a masked model is trained to fill blanks after biased prompts alike for both groups.

Guo et al. (2022), "Auto-Debias: Debiasing masked language models with automated biased prompts":
search prompts (`prompt_search`), then minimise equation 4 over them. The loss holds nothing else in
place, so the cost in fluency is to be measured together with the gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon
from levelhead.data.tokenize import fold_case
from levelhead.mitigate.training.placebo_words import (
    count_words,
    draw_placebo_words,
    stereotype_words,
)
from levelhead.mitigate.training.prompt_search import (
    BeamSearch,
    compute_divergence,
    encode_prompt,
    is_single_token,
    read_blanks,
    search_prompts,
    token_id,
)
from levelhead.mitigate.training.variants import (
    TrainingData,
    describe_variant,
    load_base,
    make_metadata,
    read_corpus,
)
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.objectives import CyclicRows, pad_token_rows
from levelhead.models.training.training_run import make_record, reload_base, train_and_save

if TYPE_CHECKING:
    import os
    from collections import Counter
    from collections.abc import Sequence

    from levelhead.data.lexicons.lexicon import Lexicon
    from levelhead.mitigate.training.variants import Base, Corpus, Progress, TrainedVariant
    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.inputs.tokenizer import Tokens
    from levelhead.models.training.objectives import Batch


@final
@dataclass(frozen=True)
class AutoDebiasSettings:
    """Words and size of the search; the paper searches with 5,000 candidates and a beam of 100."""

    lexicon: str = "gender-en"
    groups: tuple[str, str] | None = None
    """Two groups of the lexicon; by default the first two."""
    pairs: int = 5
    """Number of pairs of group words, the most frequent of the corpus."""
    candidates: int = 100
    beam: int = 10
    length: int = 5

    def __post_init__(self) -> None:
        if min(self.pairs, self.candidates, self.beam, self.length) < 1:
            raise LevelheadError(
                f"Auto-Debias cannot search with {self}", hint="give counts of at least 1"
            )


class EqualBlanks:
    """The loss of Auto-Debias. A row is a prompt after each word of a pair."""

    has_dropout = False

    def __init__(
        self,
        tokens: Tokens,
        prompts: Sequence[tuple[str, tuple[str, str]]],
        stereotype_ids: torch.Tensor,
        config: ContinuedPretrainingConfig,
    ) -> None:
        self.tokens, self.prompts, self.stereotype_ids = tokens, prompts, stereotype_ids
        self.rows = CyclicRows(len(prompts), config.steps * config.batch_size)

    def collate(self, row_numbers: list[int]) -> Batch:
        """Build a batch: the texts of the first group, then those of the second."""
        rows = [
            encode_prompt(self.tokens, pair[side], prompt)
            for side in (0, 1)
            for prompt, pair in (self.prompts[number] for number in row_numbers)
        ]
        return pad_token_rows(rows, self.tokens.pad)

    def compute_loss(self, trainee: ModelLayout, batch: Batch) -> torch.Tensor:
        """Compute the mean divergence (equation 4)."""
        log_probs = read_blanks(trainee, batch, self.tokens.mask, self.stereotype_ids)
        return compute_divergence(*log_probs.chunk(2)).mean()


def auto_debias(
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    settings: AutoDebiasSettings | None = None,
    config: ContinuedPretrainingConfig | None = None,
    placebo: bool = False,
    progress: Progress | None = None,
) -> TrainedVariant:
    """Train a masked model to fill blanks after biased prompts alike for both groups.

    The search is repeated when an interrupted run resumes.

    Args:
        base: A masked model without edits, or its name.
        corpus: A data set's name, files, globs or URLs; several in a list. Prompts are made of its
            most frequent words.
        folder: A new folder, or one with an interrupted run of the same training.
        settings: Words and size of the search.
        config: Settings of the training; a row is a prompt after each word of a pair.
        placebo: Use words that name no group, as frequent in the corpus, as pairs.
        progress: Callback for the number of finished steps and the total.
    """
    settings = settings or AutoDebiasSettings()
    config = config or ContinuedPretrainingConfig()
    words = read_lexicon(settings.lexicon)
    groups = words.resolve_group_pair(settings.groups)
    lm = reload_base(load_base(base))
    if "masked" not in lm.heads:
        raise MissingHeadError(
            f"{lm.identity.name} cannot be trained by Auto-Debias, which fills blanks of masked "
            "models",
            hint="use a masked language model, or train a causal one by dpo or cda",
        )
    texts, sources = read_corpus(corpus)
    counts = count_words(texts)
    stereotyped = [
        word for word in sorted(stereotype_words(words, groups)) if is_single_token(lm.tokens, word)
    ]
    named = {fold_case(word) for group in groups for word in words.words(group)}
    pairs = _select_pairs(words, groups, counts, lm.tokens, settings.pairs)
    candidates = [word for word, _ in counts.most_common() if word not in named]
    candidates = candidates[: settings.candidates]
    if len(stereotyped) < 2 or not pairs or not candidates:
        raise LevelheadError(
            f"the model knows {len(stereotyped)} stereotyped words and {len(pairs)} pairs of group "
            f"words of the corpus as single tokens; the corpus has {len(candidates)} other words",
            hint="give a larger corpus in the model's language, or another lexicon",
        )
    if placebo:
        drawn = draw_placebo_words(
            [word for pair in pairs for word in pair],
            counts,
            {*named, *stereotyped},
            seed=config.seed,
            is_usable=lambda word: is_single_token(lm.tokens, word),
        )
        pairs = [(drawn[first], drawn[second]) for first, second in pairs]
    stereotype_ids = torch.tensor([token_id(lm.tokens, word) for word in stereotyped])
    search = BeamSearch(settings.candidates, settings.beam, settings.length)
    prompts = search_prompts(lm, pairs, candidates, stereotype_ids, search)
    rows = [(prompt, pair) for prompt, _ in prompts for pair in pairs]
    order = np.random.default_rng(config.seed).permutation(len(rows))
    rows = [rows[i] for i in order]
    details: dict[str, object] = {
        "lexicon": words.name,
        "lexicon_sha256": words.sha256,
        "groups": groups,
        "pairs": tuple(f"{first}/{second}" for first, second in pairs),
        **search._asdict(),
        "stereotyped_words": len(stereotyped),
        "prompts": tuple(prompt for prompt, _ in prompts),
    }
    record = make_record(
        lm,
        config,
        [f"{word} {prompt}" for prompt, pair in rows for word in pair],
        asked="equal blanks",
        skipped={},
        metadata=make_metadata("auto-debias", sources, details, placebo=placebo),
    )
    objective = EqualBlanks(lm.tokens, rows, stereotype_ids, config)
    path = train_and_save(lm, objective, folder, config=config, record=record, progress=progress)
    data = TrainingData(sources, len(texts), len(texts), len(prompts), 0, {})
    return describe_variant("auto-debias", lm, path, data, config, details, placebo=placebo)


def _select_pairs(
    words: Lexicon, groups: tuple[str, str], counts: Counter[str], tokens: Tokens, limit: int
) -> list[tuple[str, str]]:
    """The most frequent pairs of group words that are single tokens; no word is in two pairs."""

    def frequency(pair: tuple[str, str]) -> int:
        return min(counts[fold_case(word)] for word in pair)

    selected: list[tuple[str, str]] = []
    for first, second in sorted(words.pairs(*groups), key=lambda pair: (-frequency(pair), pair)):
        used = {word for pair in selected for word in pair}
        if (
            len(selected) < limit
            and frequency((first, second))
            and not used & {first, second}
            and all(is_single_token(tokens, word) for word in (first, second))
        ):
            selected.append((first, second))
    return selected
