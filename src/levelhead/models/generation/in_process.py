"""Generation in this process, by transformers' `generate` with a cache of keys and values.

Batches hold texts of similar length, padded on the left, or of one length where padding would
change results. A text depends on its prompt, its number and the settings, not on its batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, final

import torch
import transformers

from levelhead.core.errors import LevelheadError
from levelhead.models.generation.config import GeneratedText
from levelhead.models.generation.edited_decoding import acts_on_first_token, edited_decoding
from levelhead.models.generation.sampler import TokenSampler, draw_uniforms
from levelhead.models.inputs.tokenizer import TextTooLongError
from levelhead.models.queries.edit_scope import edits_that_reach, no_effect_error
from levelhead.models.queries.query import NextTokenLogProbs, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.edits.base import Edit
    from levelhead.models.generation.config import FinishReason, GenerationConfig
    from levelhead.models.inputs.batching import Batching
    from levelhead.models.inputs.tokenizer import EncodedText, TokenRow, Tokens


class GeneratingModel(Protocol):
    """What a generation needs of an `LM`."""

    @property
    def layout(self) -> ModelLayout:
        """Modules of the model."""

    @property
    def tokens(self) -> Tokens:
        """Tokenizer."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """Edits that act at every token."""

    @property
    def batching(self) -> Batching:
        """Batch size."""

    @property
    def progress(self) -> Callable[[int, int], None] | None:
        """Callback after every batch."""

    @property
    def device(self) -> torch.device:
        """Device of the inputs."""


class GeneratedTokens(NamedTuple):
    """Tokens of one generated text."""

    ids: tuple[int, ...]
    has_ended: bool


def generate_texts(
    lm: GeneratingModel,
    prompts: Sequence[str],
    sample_numbers: Sequence[int],
    config: GenerationConfig,
) -> list[GeneratedText]:
    """Generate one text after each prompt.

    Args:
        lm: Causal model.
        prompts: Texts without a space at their end.
        sample_numbers: For each prompt, the number of the sample.
        config: Settings.
    """
    rows = encode_prompts(lm, prompts, config)
    # An edit that acts behind everything that is read would look like an edit without effect.
    if lm.edits:
        last = NextTokenLogProbs(tuple(len(row.ids) - 1 for row in rows))
        if not edits_that_reach(lm.layout, Query(tuple(rows), last), lm.edits):
            raise no_effect_error(lm.edits)
    # Drawn before there are batches: no number can depend on them.
    uniforms = [
        draw_uniforms(config.seed, prompt, number, config.max_tokens) if config.temperature else []
        for prompt, number in zip(prompts, sample_numbers, strict=True)
    ]
    batch_settings = _BatchSettings(lm, config, end_token_ids(lm))

    def run_batch(indices: Sequence[int]) -> list[GeneratedTokens]:
        return _generate_batch(
            batch_settings, [rows[i] for i in indices], [uniforms[i] for i in indices]
        )

    texts: dict[int, GeneratedText] = {}
    for indices, batch in _iterate_batches(lm, rows, run_batch):
        for i, tokens in zip(indices, batch, strict=True):
            texts[i] = _make_text(lm.tokens, rows[i], tokens, config.stop)
        if lm.progress is not None:
            lm.progress(len(texts), len(rows))
    return [texts[i] for i in range(len(rows))]


def encode_prompts(
    lm: GeneratingModel, prompts: Sequence[str], config: GenerationConfig
) -> list[TokenRow]:
    """Convert prompts to tokens; raise if there is no room for the generated text."""
    if not lm.layout.model_class.causal:
        raise LevelheadError("only a causal model can continue a text", hint="use a causal model")
    rows = [_without_end_marks(encoded) for encoded in lm.tokens.encode(prompts)]
    for i, row in enumerate(rows):
        n_tokens = len(row.ids) + config.max_tokens
        if n_tokens > lm.tokens.max_length:
            raise TextTooLongError(
                f"text {i} with {config.max_tokens} more tokens has {n_tokens}, but the model "
                f"accepts at most {lm.tokens.max_length}",
                hint="shorten it, or generate fewer tokens",
            )
    return rows


def end_token_ids(lm: GeneratingModel) -> frozenset[int]:
    """Return the tokens that end a text, or a chat model's turn."""
    model = lm.layout.model
    candidates: list[object] = [lm.tokens.tokenizer.eos_token_id]
    # Some chat models name the end of a turn only in generation_config.json.
    for config in (model.config, model.generation_config):
        ids = getattr(config, "eos_token_id", None)
        candidates += ids if isinstance(ids, list | tuple) else [ids]
    return frozenset(token_id for token_id in candidates if isinstance(token_id, int))


def decode_continuation(tokens: Tokens, prompt: TokenRow, ids: Sequence[int]) -> str:
    """Decode the text after a prompt; prompt and continuation are decoded together.

    Tokens that are decoded alone may lose their leading space.
    """

    def decode(token_ids: Sequence[int]) -> str:
        return str(tokens.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    prompt_text, full_text = decode(prompt.ids), decode((*prompt.ids, *ids))
    # A tokenizer that rewrites the end of the prompt must not make the prompt a part of the answer.
    return full_text.removeprefix(prompt_text) if full_text.startswith(prompt_text) else decode(ids)


class _BatchSettings(NamedTuple):
    """What all batches of one generation share."""

    lm: GeneratingModel
    config: GenerationConfig
    end_ids: frozenset[int]


def _without_end_marks(encoded: EncodedText) -> TokenRow:
    """Remove the special tokens that a tokenizer adds at the end: the text is not over."""
    length = len(encoded.row.ids)
    # Tokens that are not in the text have no characters.
    while length > 1 and encoded.offsets[length - 1] == (0, 0):
        length -= 1
    types = encoded.row.token_types
    return encoded.row._replace(ids=encoded.row.ids[:length], token_types=types and types[:length])


def _iterate_batches(
    lm: GeneratingModel,
    rows: Sequence[TokenRow],
    run_batch: Callable[[Sequence[int]], list[GeneratedTokens]],
) -> Iterator[tuple[list[int], list[GeneratedTokens]]]:
    """Yield row numbers and tokens, batch by batch, longest rows first."""
    groups = [list(range(len(rows)))]
    # In a padded row, the first token is padding.
    if any(acts_on_first_token(edit) for edit in lm.edits):
        lengths = [len(row.ids) for row in rows]
        groups = [
            [i for i in groups[0] if lengths[i] == length] for length in sorted(set(lengths))[::-1]
        ]
    for group in groups:

        def run_group(
            indices: Sequence[int], group: Sequence[int] = group
        ) -> list[GeneratedTokens]:
            return run_batch([group[i] for i in indices])

        for indices, batch in lm.batching.run_batches([rows[i] for i in group], run_group):
            yield [group[i] for i in indices], batch


def _generate_batch(
    settings: _BatchSettings, rows: Sequence[TokenRow], uniforms: Sequence[Sequence[float]]
) -> list[GeneratedTokens]:
    """Generate the tokens of one batch."""
    lm, config, end_ids = settings
    width = max(len(row.ids) for row in rows)
    stop = _StopAtTexts(lm.tokens, rows, config.stop)
    with torch.no_grad(), edited_decoding(lm.layout, lm.edits) as step:
        model: Any = lm.layout.model  # transformers' types do not show `generate`
        sequences = model.generate(
            **_pad_left(lm, rows, width),
            generation_config=transformers.GenerationConfig(
                max_new_tokens=config.max_tokens,
                # Greedy at any temperature: only the token of `TokenSampler` has a finite score.
                do_sample=False,
                num_beams=1,
                use_cache=True,
                eos_token_id=sorted(end_ids) or None,
                pad_token_id=lm.tokens.pad,
            ),
            logits_processor=transformers.LogitsProcessorList(
                [TokenSampler(config, uniforms, step)] if config.temperature else []
            ),
            stopping_criteria=transformers.StoppingCriteriaList([stop] if config.stop else []),
        )
    generated = sequences[:, width:].tolist()
    return [
        _cut_at_end(ids[:length], end_ids, is_stopped=length is not None)
        for ids, length in zip(generated, stop.lengths, strict=True)
    ]


def _pad_left(lm: GeneratingModel, rows: Sequence[TokenRow], width: int) -> dict[str, torch.Tensor]:
    """Put rows into one batch; the last token of all rows is at the end."""

    def pad_rows(values: Sequence[Sequence[int]], fill_value: int) -> torch.Tensor:
        return torch.tensor(
            [(*(fill_value,) * (width - len(value)), *value) for value in values], device=lm.device
        )

    inputs = {
        "input_ids": pad_rows([row.ids for row in rows], lm.tokens.pad),
        "attention_mask": pad_rows([(1,) * len(row.ids) for row in rows], 0),
    }
    if rows[0].token_types is not None:
        inputs["token_type_ids"] = pad_rows([row.token_types or () for row in rows], 0)
    return inputs


def _cut_at_end(
    ids: Sequence[int], end_ids: frozenset[int], *, is_stopped: bool
) -> GeneratedTokens:
    """Remove what follows the end of a text: the batch goes on for others."""
    for position, token_id in enumerate(ids):
        if token_id in end_ids:
            return GeneratedTokens(tuple(ids[: position + 1]), has_ended=True)
    return GeneratedTokens(tuple(ids), has_ended=is_stopped)


def _make_text(
    tokens: Tokens, prompt: TokenRow, generated: GeneratedTokens, stop: Sequence[str]
) -> GeneratedText:
    text = decode_continuation(tokens, prompt, generated.ids)
    # The token that completes a stop text may hold further letters.
    text = text[: min((text.find(end) for end in stop if end in text), default=len(text))]
    reason: FinishReason = "stop" if generated.has_ended else "length"
    return GeneratedText(text, generated.ids, reason, len(prompt.ids))


@final
class _StopAtTexts(transformers.StoppingCriteria):
    """End a row as soon as its text contains one of some texts."""

    def __init__(self, tokens: Tokens, prompts: Sequence[TokenRow], stop: Sequence[str]) -> None:
        self.tokens, self.prompts, self.stop = tokens, prompts, stop
        self.lengths: list[int | None] = [None] * len(prompts)
        """Number of tokens of each row that has ended; None if it has not."""

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: Any
    ) -> torch.BoolTensor:
        """Return whether each row has ended."""
        width = max(len(prompt.ids) for prompt in self.prompts)
        for i, ids in enumerate(input_ids[:, width:].tolist()):
            if self.lengths[i] is None:
                text = decode_continuation(self.tokens, self.prompts[i], ids)
                if any(end in text for end in self.stop):
                    self.lengths[i] = len(ids)
        has_ended = [length is not None for length in self.lengths]
        return cast("torch.BoolTensor", torch.tensor(has_ended, device=input_ids.device))
