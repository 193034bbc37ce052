"""Models trained further from a base: on swapped texts (CDA), or with more dropout.

These are published mitigations by training, for comparison with edits (Yang et al. 2025, Appendix
C). CDA uses every text that names a group, and its twin with the groups' words exchanged (Zmigrod
et al. 2019; two-sided, as Webster et al. 2020). Dropout is the same training on any text, with more
dropout than in the base (Webster et al. 2020: 0.20 hidden, 0.15 attention for BERT). The loss of
fluency is to be measured together with the gain.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from levelhead.data.counterfactuals.swap import swap
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon
from levelhead.mitigate.training.variants import (
    TrainingData,
    describe_variant,
    load_base,
    make_metadata,
    read_corpus,
    sample_rows,
    select_usable,
)
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.continued_pretraining import continue_pretraining

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from levelhead.mitigate.training.variants import (
        Base,
        Corpus,
        MethodName,
        Progress,
        ToRows,
        TrainedVariant,
    )
    from levelhead.models.lm import LM

QUOTED = re.compile(r"^'[^']*'")
"""The word in a reason; reasons are counted without it."""


def cda(
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    lexicon: str | os.PathLike[str] = "gender-en",
    groups: tuple[str, str] | None = None,
    config: ContinuedPretrainingConfig | None = None,
    placebo: bool = False,
    progress: Progress | None = None,
) -> TrainedVariant:
    """Train a model further on texts that name a group and on as many counterfactuals.

    A text whose swap is undecided is left out and counted. So is a pair with a text that is too
    long, or that has nothing the model could be trained to predict.

    Args:
        base: A model without edits, or its name.
        corpus: A data set's name, files, globs or URLs; several in a list.
        folder: A new folder, or one with an interrupted run of the same training.
        lexicon: Lexicon of the exchanged words.
        groups: Two of its groups; by default the first two.
        config: Settings of the training; by default with the dropout of the base.
        placebo: Repeat each text instead of adding its counterfactual.
        progress: Callback for the number of finished steps and the total.
    """
    config, words = config or ContinuedPretrainingConfig(), read_lexicon(lexicon)
    first, second = words.resolve_group_pair(groups)
    lm = load_base(base)

    def text_and_twin(text: str) -> tuple[str, ...] | str:
        swapped = swap(text, words, groups=(first, second))
        if swapped.counterfactual is None:
            return QUOTED.sub("a word", swapped.refusals[0].reason)
        if not swapped.changes:
            return f"no word of {first} or {second}"
        # Both or neither: a text without its twin would leave the corpus unbalanced. A placebo is
        # trained on the same texts, so it leaves out the same.
        usable = select_usable(lm, (text, swapped.counterfactual), config)
        return (text, text) if placebo and not isinstance(usable, str) else usable

    settings = {
        "lexicon": words.name,
        "lexicon_sha256": words.sha256,
        "groups": (first, second),
    }
    training = _Training("cda", settings, placebo, twins=not placebo)
    return _train_on_texts(training, lm, corpus, folder, text_and_twin, config, progress)


def dropout(
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    hidden: float = 0.20,
    attention: float = 0.15,
    config: ContinuedPretrainingConfig | None = None,
    placebo: bool = False,
    progress: Progress | None = None,
) -> TrainedVariant:
    """Train a model further with more dropout; afterwards the model has the dropout of the base.

    Args:
        base: A model without edits, or its name.
        corpus: A data set's name, files, globs or URLs; several in a list.
        folder: A new folder, or one with an interrupted run of the same training.
        hidden: Dropout of hidden states.
        attention: Dropout of attention.
        config: Other settings of the training.
        placebo: Train with the dropout of the base.
        progress: Callback for the number of finished steps and the total.
    """
    # Dropout rates of the training only; the child's config keeps those of the base.
    rates = None if placebo else (hidden, attention)
    dropout_config = replace(config or ContinuedPretrainingConfig(), dropout=rates)
    lm = load_base(base)

    def single_text(text: str) -> tuple[str, ...] | str:
        return select_usable(lm, (text,), dropout_config)

    training = _Training("dropout", {}, placebo, twins=False)
    return _train_on_texts(training, lm, corpus, folder, single_text, dropout_config, progress)


class _Training(NamedTuple):
    method: MethodName
    settings: Mapping[str, object]
    placebo: bool
    twins: bool
    """Whether every other row is a counterfactual."""


def _train_on_texts(
    training: _Training,
    lm: LM,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    to_rows: ToRows,
    config: ContinuedPretrainingConfig,
    progress: Progress | None,
) -> TrainedVariant:
    """Train a model on the rows of the accepted texts of the corpus."""
    corpus_texts, sources = read_corpus(corpus)
    sample = sample_rows(corpus_texts, to_rows, config.steps * config.batch_size, config.seed)
    method, settings, placebo, has_twins = training
    path = continue_pretraining(
        lm,
        sample.rows,
        folder,
        config=config,
        metadata=make_metadata(method, sources, settings, placebo=placebo),
        progress=progress,
    )
    data = TrainingData(
        corpus=sources,
        sentences=len(corpus_texts),
        sentences_scanned=sample.sentences_scanned,
        texts=sample.texts,
        twins=sample.texts if has_twins else 0,
        left_out=sample.left_out,
    )
    return describe_variant(method, lm, path, data, config, settings, placebo=placebo)
