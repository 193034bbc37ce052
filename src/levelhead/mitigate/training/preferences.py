"""Training of causal models on preferences between texts and their counterfactuals.

A pair is a text that names a group next to a word that stereotypes associate with that group, and
its counterfactual, in which they do not go together. The stereotyped text is dispreferred. With the
probability pi(y) of a text under the model, and pi_ref(y) under the base:

    DPO: -log sigmoid(beta (log pi(y_w) / pi_ref(y_w) - log pi(y_l) / pi_ref(y_l)))
    NPO: -2 / beta log sigmoid(-beta log pi(y_l) / pi_ref(y_l)), and retained texts: -log pi(y_w)

(Rafailov et al. 2023, equation 7; Zhang et al. 2024, equation 3 and section 3.3.) y_w is the
preferred text, y_l the other. Log-probabilities are sums over tokens; what retains texts is a mean
over tokens. Only a low-rank adapter is trained (Hu et al. 2022), and merged at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Literal, final

import numpy as np
import torch

from levelhead.core.errors import LevelheadError
from levelhead.data.corpus.matcher import SentenceMatcher
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon
from levelhead.mitigate.training.placebo_words import stereotype_words
from levelhead.mitigate.training.variants import (
    TrainingData,
    describe_variant,
    load_base,
    make_metadata,
    read_corpus,
    sample_rows,
    select_usable,
)
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.queries.vocabulary import compute_token_log_probs
from levelhead.models.training.configs import ContinuedPretrainingConfig, LowRankConfig
from levelhead.models.training.from_scratch import IGNORED_LABEL
from levelhead.models.training.low_rank import require_peft
from levelhead.models.training.objectives import CyclicRows, pad_token_rows, run_backbone
from levelhead.models.training.training_examples import TrainingExample, make_training_example
from levelhead.models.training.training_run import make_record, reload_base, train_and_save

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from levelhead.mitigate.training.variants import Base, Corpus, Progress, TrainedVariant
    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.inputs.tokenizer import Tokens
    from levelhead.models.training.objectives import Batch

PreferenceMethod = Literal["dpo", "npo"]


@final
@dataclass(frozen=True)
class PreferenceSettings:
    """Words of the pairs, and settings of the loss."""

    lexicon: str = "gender-en"
    groups: tuple[str, str] | None = None
    """Two groups of the lexicon; by default the first two."""
    beta: float = 0.1
    """How far the model may go from the base: a smaller beta goes further."""
    retain: float = 1.0
    """Weight of the preferred texts' likelihood in NPO; DPO has none."""
    adapter: LowRankConfig = field(default_factory=LowRankConfig)

    def __post_init__(self) -> None:
        if not (0 < self.beta < float("inf") and 0 <= self.retain < float("inf")):
            raise LevelheadError(
                f"no preference can be trained with a beta of {self.beta} and a retain weight of "
                f"{self.retain}",
                hint="give a beta above 0, such as 0.1, and a weight of at least 0",
            )


class PreferenceObjective:
    """The losses of DPO and NPO. A row is a preferred text and one that is not."""

    has_dropout = False

    def __init__(
        self,
        method: PreferenceMethod,
        base: ModelLayout,
        tokens: Tokens,
        pairs: Sequence[tuple[TrainingExample, TrainingExample]],
        settings: PreferenceSettings,
        config: ContinuedPretrainingConfig,
    ) -> None:
        self.method, self.base, self.tokens = method, base, tokens
        self.pairs, self.settings = pairs, settings
        self.rows = CyclicRows(len(pairs), config.steps * config.batch_size)

    def collate(self, row_numbers: list[int]) -> Batch:
        """Build a batch: the preferred texts, then the others."""
        examples = [self.pairs[number][side] for side in (0, 1) for number in row_numbers]
        batch = pad_token_rows([example.row for example in examples], self.tokens.pad)
        labels = torch.full_like(batch["input_ids"], IGNORED_LABEL)
        for i, example in enumerate(examples):
            positions = torch.tensor(example.target_positions)
            labels[i, positions] = batch["input_ids"][i, positions]
        return batch | {"labels": labels}

    def compute_loss(self, trainee: ModelLayout, batch: Batch) -> torch.Tensor:
        """Compute the mean loss of the pairs."""
        log_probs = compute_text_log_probs(trainee, batch)
        with torch.no_grad():
            reference = compute_text_log_probs(self.base, batch)
        ratio_preferred, ratio_other = (log_probs - reference).chunk(2)
        beta = self.settings.beta
        log_sigmoid = torch.nn.functional.logsigmoid
        if self.method == "dpo":
            return -log_sigmoid(beta * (ratio_preferred - ratio_other)).mean()
        loss = -2 / beta * log_sigmoid(-beta * ratio_other).mean()
        n_tokens = (batch["labels"].chunk(2)[0] != IGNORED_LABEL).sum()
        return loss - self.settings.retain * log_probs.chunk(2)[0].sum() / n_tokens


def compute_text_log_probs(layout: ModelLayout, batch: Batch) -> torch.Tensor:
    """Compute the log-probability of each text: a sum over its tokens."""
    hidden, labels = run_backbone(layout, batch)[:, :-1], batch["labels"][:, 1:]
    is_target = labels != IGNORED_LABEL
    token_log_probs = compute_token_log_probs(
        layout, hidden[is_target], labels[is_target][:, None]
    )[:, 0]
    owners = is_target.nonzero()[:, 0]
    return token_log_probs.new_zeros(len(labels)).index_add(0, owners, token_log_probs)


def dpo(
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    settings: PreferenceSettings | None = None,
    config: ContinuedPretrainingConfig | None = None,
    placebo: bool = False,
    progress: Progress | None = None,
) -> TrainedVariant:
    """Train a causal model to prefer counterfactuals to stereotyped texts (DPO).

    Args:
        base: A causal model without edits, or its name.
        corpus: A data set's name, files, globs or URLs; several in a list.
        folder: A new folder, or one with an interrupted run of the same training.
        settings: Words of the pairs, and settings of the loss.
        config: Settings of the training; a row is a pair of texts.
        placebo: Prefer the stereotyped text of half of the pairs, drawn at random.
        progress: Callback for the number of finished steps and the total.
    """
    return _train_on_preferences(
        "dpo", base, corpus, folder, settings, config, placebo=placebo, progress=progress
    )


def npo(
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    settings: PreferenceSettings | None = None,
    config: ContinuedPretrainingConfig | None = None,
    placebo: bool = False,
    progress: Progress | None = None,
) -> TrainedVariant:
    """Train a causal model to forget stereotyped texts and retain their counterfactuals (NPO).

    Args:
        base: A causal model without edits, or its name.
        corpus: A data set's name, files, globs or URLs; several in a list.
        folder: A new folder, or one with an interrupted run of the same training.
        settings: Words of the pairs, and settings of the loss.
        config: Settings of the training; a row is a pair of texts.
        placebo: Retain the stereotyped text of half of the pairs, drawn at random.
        progress: Callback for the number of finished steps and the total.
    """
    return _train_on_preferences(
        "npo", base, corpus, folder, settings, config, placebo=placebo, progress=progress
    )


def make_preference_pair(
    text: str, matcher: SentenceMatcher, stereotypes: dict[str, str]
) -> tuple[str, str] | str:
    """Return the preferred text and the stereotyped one, or why a text has no counterfactual.

    Args:
        text: A text, stereotyped or not.
        matcher: Words of the groups.
        stereotypes: Stereotyped words with their group.
    """
    words = [word for word, _, _ in matcher.find_matches(text)]
    named = {matcher.attributes[word] for word in words if word in matcher.attributes}
    stereotyped = {stereotypes[word] for word in words if word in stereotypes}
    if len(named) != 1:
        return "words of both groups" if named else "no group word"
    if len(stereotyped) != 1:
        return "stereotyped words of both groups" if stereotyped else "no stereotyped word"
    swapped = swap(text, matcher.lexicon, groups=matcher.groups)
    if swapped.counterfactual is None or not swapped.changes:
        return "its words cannot be swapped"
    is_stereotyped = named == stereotyped
    return (swapped.counterfactual, text) if is_stereotyped else (text, swapped.counterfactual)


def _train_on_preferences(
    method: PreferenceMethod,
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    settings: PreferenceSettings | None,
    config: ContinuedPretrainingConfig | None,
    *,
    placebo: bool,
    progress: Progress | None,
) -> TrainedVariant:
    settings = settings or PreferenceSettings()
    config = config or ContinuedPretrainingConfig()
    words = read_lexicon(settings.lexicon)
    groups = words.resolve_group_pair(settings.groups)
    peft_version = require_peft()
    lm = reload_base(load_base(base))
    if "causal" not in lm.heads:
        raise MissingHeadError(
            f"{lm.identity.name} cannot be trained by {method}, which compares probabilities of "
            "whole texts",
            hint="use a causal language model, or train a masked one by cda or context-debias",
        )
    matcher, stereotypes = SentenceMatcher(words, groups), stereotype_words(words, groups)
    texts, sources = read_corpus(corpus)

    def to_pair(text: str) -> tuple[str, ...] | str:
        pair = make_preference_pair(text, matcher, stereotypes)
        return pair if isinstance(pair, str) else select_usable(lm, pair, config)

    # Two texts a row.
    sample = sample_rows(texts, to_pair, 2 * config.steps * config.batch_size, config.seed)
    rows = list(zip(sample.rows[::2], sample.rows[1::2], strict=True))
    if placebo:
        # Half of the preferences: with all of them exchanged, stereotypes would be preferred.
        order = np.random.default_rng((config.seed, 1)).permutation(len(rows))
        rows = [
            row[::-1] if i < len(rows) // 2 else row for i, row in zip(order, rows, strict=True)
        ]
    examples = [
        example
        for text in chain.from_iterable(rows)
        if isinstance(
            example := make_training_example(lm, text, max_tokens=config.max_tokens),
            TrainingExample,
        )
    ]
    details: dict[str, object] = {
        "lexicon": words.name,
        "lexicon_sha256": words.sha256,
        "groups": groups,
        "beta": settings.beta,
        "rank": settings.adapter.rank,
        "lora_alpha": settings.adapter.alpha,
        "peft": peft_version,
    }
    if method == "npo":
        details["retain"] = settings.retain
    record = make_record(
        lm,
        config,
        list(chain.from_iterable(rows)),
        asked="preferences",
        skipped={},
        metadata=make_metadata(method, sources, details, placebo=placebo),
    )
    objective = PreferenceObjective(
        method,
        lm.layout,
        lm.tokens,
        list(zip(examples[::2], examples[1::2], strict=True)),
        settings,
        config,
    )
    path = train_and_save(
        lm,
        objective,
        folder,
        config=config,
        record=record,
        adapter=settings.adapter,
        progress=progress,
    )
    data = TrainingData(
        sources,
        len(texts),
        sample.sentences_scanned,
        sample.texts,
        sample.texts,
        sample.left_out,
    )
    return describe_variant(method, lm, path, data, config, details, placebo=placebo)
