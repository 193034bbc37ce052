"""Build queries of given answers after a prompt: exact log-probabilities, without sampling.

All answers of a prompt share its tokens in one row where the family's rows may branch, so three
answers cost little more than one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.queries.cloze import WordPlacement, build_causal_rows, pad_targets
from levelhead.models.queries.query import LogProbs, Query, ScoredPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.editable_model import EditableModel
    from levelhead.models.inputs.tokenizer import TokenRow


class ChoiceQuery(NamedTuple):
    """A query of the options of some prompts; the last of its columns is spare."""

    query: Query
    token_counts: torch.Tensor
    """`[prompts, options]` number of scored tokens."""


def build_lm_choose_query(
    lm: EditableModel, prompts: Sequence[str], options: Sequence[Sequence[str]]
) -> ChoiceQuery:
    """Build a query of the log-probability of each option after its prompt.

    An option follows its prompt without any space in between, unless it starts with one.

    Args:
        lm: Causal model.
        prompts: Texts.
        options: For each prompt, the texts that may follow it; equally many for all prompts.
    """
    if not lm.layout.model_class.causal:
        raise LevelheadError(
            "only a causal model can score answers after a prompt", hint="use a causal model"
        )
    n_options = check_options(prompts, options)
    rows: list[TokenRow] = []
    targets: list[tuple[ScoredPosition, ...]] = []
    items: list[int] = []
    counts = []
    for item, placements in enumerate(_place_options(lm, prompts, options)):
        # Options after different tokens of one prompt would not be answers to the same question.
        if len({row.ids[: positions[0]] for row, positions in placements}) > 1:
            raise UnreadableTextError(
                f"the tokenizer splits {prompts[item][-40:]!r} differently before its options",
                hint="begin the options with a space, or leave the item out",
            )
        counts.append([len(positions) for _, positions in placements])
        for row, row_targets in build_causal_rows(lm, placements):
            rows.append(row)
            targets.append(row_targets)
            items.append(item)
    # The spare column holds what fills up positions that score fewer options than others.
    readout = LogProbs(pad_targets(targets, n_options), columns=n_options + 1)
    return ChoiceQuery(Query(tuple(rows), readout, tuple(items)), torch.tensor(counts))


def check_options(prompts: Sequence[str], options: Sequence[Sequence[str]]) -> int:
    """Return the number of options of every prompt; raises if they cannot be compared."""
    counts = {len(texts) for texts in options}
    if len(prompts) != len(options) or len(counts) != 1 or 0 in counts:
        raise LevelheadError(
            f"{len(prompts)} prompts with {sorted(counts)} options",
            hint="give equally many options, at least one, for every prompt",
        )
    for texts in options:
        # Two equal options would share a score, which would look like indifference.
        if len(set(texts)) < len(texts) or not all(text.strip() for text in texts):
            raise LevelheadError(
                f"options {texts!r:.80} are empty or repeat each other",
                hint="give different texts",
            )
    return counts.pop()


def _place_options(
    lm: EditableModel, prompts: Sequence[str], options: Sequence[Sequence[str]]
) -> list[list[WordPlacement]]:
    """Tokenize prompts with each option; the option's tokens begin where the prompt ends."""
    pairs = [
        (str(prompt), str(option))
        for prompt, texts in zip(prompts, options, strict=True)
        for option in texts
    ]
    placements = []
    encoded_texts = lm.tokens.encode([prompt + option for prompt, option in pairs])
    for (prompt, option), encoded in zip(pairs, encoded_texts, strict=True):
        full_text = prompt + option
        positions = encoded.positions_in_span((len(prompt), len(full_text)))
        # A token across the border would belong to the prompt of one option, and not of another.
        if not positions or encoded.offsets[positions[0]][0] < len(prompt):
            raise UnreadableTextError(
                f"the tokenizer does not separate {option!r:.40} from {prompt[-40:]!r}",
                hint="begin the option with a space, or leave it out and count it as dropped",
            )
        lm.tokens.require_known(encoded, positions, full_text)
        # Without special tokens that a tokenizer adds at the end: they are not predicted.
        row = encoded.row._replace(
            ids=encoded.row.ids[: positions[-1] + 1],
            token_types=encoded.row.token_types and encoded.row.token_types[: positions[-1] + 1],
        )
        placements.append(WordPlacement(row, range(positions[0], positions[-1] + 1)))
    bounds = [0]
    for texts in options:
        bounds.append(bounds[-1] + len(texts))
    return [placements[begin:end] for begin, end in pairwise(bounds)]
