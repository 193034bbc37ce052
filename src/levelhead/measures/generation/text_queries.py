"""Queries whose answer is text that a model generates.

A generated text is no single forward pass: each token depends on the ones before it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from levelhead.data.tokenize import fold_case, strip_clitic, tokenize_words
from levelhead.models.generation import in_process
from levelhead.models.generation.config import FINISH_REASONS, GenerationConfig
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.inputs.tokenizer import UnknownWordError
from levelhead.models.serving.served_model import ServedModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.measures.items import QueryArgs
    from levelhead.models.generation.config import GeneratedText
    from levelhead.models.inputs.tokenizer import TokenRow
    from levelhead.models.lm import LM
    from levelhead.models.serving.generation import GenerationPrompt

    Settings = Mapping[str, Any]


class Answers(NamedTuple):
    """Answers to the queries of a shard."""

    values: torch.Tensor
    """`[n, r]` numbers."""
    texts: tuple[str, ...] | None = None
    """The generated texts, for queries that are answered by texts."""


class GenerationQuery(NamedTuple):
    """Generated texts, which are the answers: see `make_generation_query`."""

    prompts: tuple[str, ...]
    sample_numbers: tuple[int, ...]
    config: GenerationConfig

    def run(self, lm: LM) -> torch.Tensor:
        """`[n, 3]` numbers of tokens, and the reason why the text ends."""
        return self.run_with_texts(lm).values

    def run_with_texts(self, lm: LM) -> Answers:
        """The same with the texts."""
        texts = in_process.generate_texts(lm, self.prompts, self.sample_numbers, self.config)
        return make_text_answers(texts)


class ServedGenerationQuery(NamedTuple):
    """The same of a model that another program runs, which may apply the chat template itself."""

    prompts: tuple[GenerationPrompt, ...]
    sample_numbers: tuple[int, ...]
    config: GenerationConfig

    def run(self, lm: LM) -> torch.Tensor:
        """`[n, 3]` numbers of tokens, and the reason why the text ends."""
        return self.run_with_texts(lm).values

    def run_with_texts(self, lm: LM) -> Answers:
        """The same with the texts."""
        served = cast("ServedModel", lm)
        return make_text_answers(
            served.generate_texts(self.prompts, self.sample_numbers, self.config)
        )


def make_text_answers(texts: Sequence[GeneratedText]) -> Answers:
    """Answers of generated texts: numbers of tokens, and the reason why each ends."""
    numbers = [
        # A number, because stored values are numbers; FINISH_REASONS keeps its order for them.
        [text.n_tokens, FINISH_REASONS.index(text.finish_reason), text.prompt_tokens]
        for text in texts
    ]
    return Answers(torch.tensor(numbers, dtype=torch.float64), tuple(text.text for text in texts))


class SampledText(NamedTuple):
    """Generated continuations, in which words are counted: see `make_sampling_query`."""

    prompts: tuple[str, ...]
    sample_numbers: tuple[int, ...]
    config: GenerationConfig
    words: tuple[tuple[str, ...], ...]
    phrases: tuple[str, ...]

    def run(self, lm: LM) -> torch.Tensor:
        """`[n, r]` description of the generated texts: see `make_sampling_query`."""
        rows = []
        continuations = in_process.generate_texts(
            lm, self.prompts, self.sample_numbers, self.config
        )
        for prompt, continuation in zip(self.prompts, continuations, strict=True):
            text = drop_rest_of_word(prompt, continuation.text)
            generated = [
                fold_case(token.text)
                # Models write typographic apostrophes; word lists have plain ones.
                for token in tokenize_words(text.replace("\u2019", "'"))
            ]
            # "she's" counts as "she"; refusals keep their clitics, because phrases contain them.
            stripped = [strip_clitic(word)[0] for word in generated]
            positions = [first_position(stripped, words) for words in self.words]
            # Only as the first words: later in a story, people say them too.
            is_refusal = first_position(generated, self.phrases) == 0
            # Rows of a tensor need one length; -1 is no token id.
            padding = [-1] * (self.config.max_tokens - len(continuation.ids))
            rows.append(
                [
                    *positions,
                    is_refusal,
                    len(continuation.ids),
                    continuation.has_ended,
                    *continuation.ids,
                    *padding,
                ]
            )
        return torch.tensor(rows, dtype=torch.float64)


def make_generation_query(
    lm: LM | ServedModel, rows: Sequence[QueryArgs], settings: Settings
) -> GenerationQuery | ServedGenerationQuery:
    """Query of (request, number): the `number`th text that the model answers to the request.

    The answer is the text, with its number of tokens, the reason why it ends (its position in
    `FINISH_REASONS`: 0 maximum length, 1 the model ended it), and the number of tokens of the
    prompt.
    """
    config = GenerationConfig.from_settings(settings)
    chat_format = ChatFormat.from_settings(settings["chat"])
    answer_start = str(settings.get("answer_start", ""))
    requests = [str(row[0]) for row in rows]
    numbers = tuple(cast("int", row[1]) for row in rows)
    if isinstance(lm, ServedModel):
        served_prompts = lm.generation_prompts(requests, chat_format, answer_start)
        return ServedGenerationQuery(tuple(served_prompts), numbers, config)
    chat_format = chat_format.after_system(lm.system_prompt)
    prompts = tuple(
        chat_format.format_request(lm.tokens, request, answer_start) for request in requests
    )
    forbid_unknown_words(lm, in_process.encode_prompts(lm, prompts, config))
    return GenerationQuery(prompts, numbers, config)


def make_sampling_query(lm: LM, rows: Sequence[QueryArgs], settings: Settings) -> SampledText:
    """Query of (text, number): the `number`th continuation of the text.

    The answer has, for every list of the settings' words, the position of the first of them in the
    continuation (-1: none); whether it begins with a refusal; its number of tokens; whether it
    ended by itself; and its tokens, padded with -1.
    """
    config = GenerationConfig(
        settings["tokens"], settings["temperature"], settings["top_p"], settings["seed"]
    )
    prompts, numbers = [str(row[0]) for row in rows], [cast("int", row[1]) for row in rows]
    forbid_unknown_words(lm, in_process.encode_prompts(lm, prompts, config))
    words = tuple(tuple(word_list) for word_list in settings["words"])
    return SampledText(tuple(prompts), tuple(numbers), config, words, tuple(settings["phrases"]))


def forbid_unknown_words(lm: LM, rows: Sequence[TokenRow]) -> None:
    """Raise an error for texts with an unknown word.

    Two texts that differ in an unknown word are identical for the model: they would look like
    parity.
    """
    unknown = lm.tokens.unknown
    if unknown is not None and any(unknown in row.ids for row in rows):
        raise UnknownWordError(
            "the model's vocabulary lacks a word of the text",
            hint="leave the text out and count it as dropped: all unknown words look alike",
        )


def drop_rest_of_word(prompt: str, text: str) -> str:
    """Drop letters directly after a prompt: they complete its last word and are no word alone.

    >>> drop_rest_of_word("the work", "er she met.")
    ' she met.'
    """
    return re.sub(r"^\w+", "", text) if prompt[-1:].isalnum() else text


def first_position(generated: Sequence[str], words: Sequence[str]) -> int:
    """Position of the first of some words (or phrases); -1 if none occurs."""
    # Spaces at both ends, so that only whole words match, also the first and the last.
    text = f" {' '.join(generated)} "
    positions = [position for word in words if (position := text.find(f" {word} ")) >= 0]
    return text.count(" ", 0, min(positions)) if positions else -1
