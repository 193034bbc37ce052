"""A causal model that another program runs: tokens go in, log-probabilities come out.

Its methods are `fill`, `log_prob` and `choose`. Nothing is guessed: a probability that the program
does not report is an error, not a small number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, cast

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.models.generation.config import GenerationConfig, check_sample_count
from levelhead.models.inputs.batching import Batching
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.inputs.tokenizer import MASK, UnreadableTextError
from levelhead.models.lm import Scores
from levelhead.models.queries.choices import check_options
from levelhead.models.serving.generation import GenerationPrompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.generation.config import GeneratedText

TokenIds = tuple[int, ...]
ROUNDING = 1e-3
"""A log-probability may be above 0 by rounding, not by more."""


class UnsupportedOverHttpError(LevelheadError, AttributeError):
    """A method that needs the weights of the model."""


class NoLogProbsError(NotMeasurableError):
    """A server that only generates: it reports no log-probability of any given text."""


class LogProbsMissingError(LevelheadError):
    """The server does not report a probability that is needed.

    The text must not be dropped for this reason: which tokens a server leaves out depends on how
    likely they are.
    """


class ScoredRow(NamedTuple):
    """Tokens whose log-probability is wanted, after the tokens before them."""

    context: TokenIds
    continuation: TokenIds


class TopTokens(NamedTuple):
    """The likeliest next tokens, the likeliest first."""

    ids: TokenIds
    log_probs: tuple[float, ...]


class RowScores(NamedTuple):
    """Log-probabilities of rows, and the likeliest tokens of contexts."""

    values: list[float]
    top: list[TopTokens]


class ChoiceRows(NamedTuple):
    """Rows of the options of some prompts, option by option."""

    rows: tuple[ScoredRow, ...]
    n_options: int

    @property
    def token_counts(self) -> torch.Tensor:
        """`[prompts, options]` numbers of scored tokens."""
        counts = torch.tensor([len(row.continuation) for row in self.rows])
        return counts.reshape(-1, self.n_options)


class ServedIdentity(NamedTuple):
    """Name and revision of the model, as the program reports them."""

    name: str
    revision: str | None = None


class ServedModel(ABC):
    """Base of the models that another program runs. Abstract."""

    place = "behind HTTP"
    """Where the model runs, for messages."""
    system_prompt: str = ""
    """Put before every chat request that the model answers; empty: none."""

    # -- what a subclass defines

    @abstractmethod
    def tokenize(self, text: str, *, add_special: bool = True) -> TokenIds:
        """Return a text's tokens, with those that the tokenizer puts before every text."""

    @abstractmethod
    def tokenize_all(self, texts: Sequence[str], *, add_special: bool = True) -> None:
        """Tokenize texts ahead of `tokenize`, several at a time."""

    @abstractmethod
    def score_rows(
        self, rows: Sequence[ScoredRow], contexts: Sequence[TokenIds] = (), top_k: int = 0
    ) -> RowScores:
        """Compute the log-probability of each row's continuation.

        Args:
            rows: Rows to score.
            contexts: Contexts whose `top_k` likeliest next tokens are wanted as well.
            top_k: Number of these tokens.
        """

    @abstractmethod
    def apply_templates(
        self, chats: Sequence[list[dict[str, str]]], thinking: bool | None
    ) -> list[str | None]:
        """Return chats as the texts that the model continues; None without a template.

        Raises:
            NotMeasurableError: the program does not apply templates.
        """

    @abstractmethod
    def generate_texts(
        self,
        prompts: Sequence[GenerationPrompt],
        sample_numbers: Sequence[int],
        config: GenerationConfig,
    ) -> list[GeneratedText]:
        """Generate one text after each prompt.

        Args:
            prompts: What the texts continue.
            sample_numbers: For each prompt, the number of the sample.
            config: Settings; those of the checkpoint are ignored where the program allows it.
        """

    @property
    @abstractmethod
    def identity(self) -> ServedIdentity:
        """Name and revision of the model."""

    @property
    def heads(self) -> frozenset[str]:
        """The heads of the model."""
        return frozenset({"causal"})

    @property
    def is_causal(self) -> bool:
        """Whether a token attends only to earlier tokens: always, for completions."""
        return True

    @property
    def can_score(self) -> bool:
        """Whether the program reports log-probabilities of given texts, or only generates."""
        return True

    def require_log_probs(self) -> None:
        """Raise an error if the program reports no log-probabilities of given texts."""
        return

    @cached_property
    def batching(self) -> Batching:
        """Batches of one text: the program decides how to batch."""
        return Batching(1)

    def __getattr__(self, name: str) -> NoReturn:
        # Private names are probed by Python itself (copy, pickle), which expects AttributeError.
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnsupportedOverHttpError(
            f"a model {self.place} has no {name}, only fill, log_prob, choose and generate",
            hint="load its weights with `load` to read its activations or to edit it",
        )

    @property
    def prompt_setting(self) -> dict[str, str]:
        """The system prompt as a setting and a part of hashes; none without a prompt."""
        return {"system_prompt": self.system_prompt} if self.system_prompt else {}

    def with_system_prompt(self, text: str) -> Self:
        """Return this model with a system prompt: see `LM.with_system_prompt`."""
        if text == self.system_prompt:
            return self
        other: Self = replace(cast("Any", self), system_prompt=text)
        # The connection, the engine and cached tokens do not depend on the prompt.
        vars(other).update({name: vars(self)[name] for name in vars(self).keys() - vars(other)})
        return other

    # -- verbs

    def fill(self, texts: Sequence[str], words: Sequence[str], *, top_k: int = 0) -> torch.Tensor:
        """Compute log-probabilities of words at the [MASK] that ends each text.

        Args:
            texts: Texts, each with its blank at the end.
            words: Words to score in the blank.
            top_k: Number of likeliest tokens whose ids and log-probabilities are appended.

        Returns:
            `[texts, words + 2 * top_k]`: the words, then ids, then their log-probabilities.
        """
        if isinstance(texts, str) or isinstance(words, str) or not words:
            raise LevelheadError("texts and words must be lists", hint="give both as lists")
        splits = self.split_at_blanks([str(text) for text in texts], words)
        rows = [ScoredRow(prefix, ids) for prefix, word_ids in splits for ids in word_ids]
        contexts = [prefix for prefix, _ in splits] if top_k else []
        scores = self.score_rows(rows, contexts, top_k)
        # float32 has too few digits for the ids of large vocabularies.
        values = torch.tensor(scores.values, dtype=torch.float64).reshape(-1, len(words))
        if not top_k:
            return values
        for tokens in scores.top:
            if len(tokens.ids) < top_k:
                raise LogProbsMissingError(
                    f"the server reports {len(tokens.ids)} likeliest tokens instead of {top_k}",
                    hint="use a server that reports more tokens (llama.cpp does)",
                )
        best = [[*tokens.ids[:top_k], *tokens.log_probs[:top_k]] for tokens in scores.top]
        return torch.cat([values, torch.tensor(best, dtype=torch.float64)], dim=1)

    def log_prob(self, texts: Sequence[str]) -> Scores:
        """Compute the log-probability of each text without its first token, and token counts."""
        # `begin_tokens` is read from the first two.
        self.tokenize_all(["", "The", *map(str, texts)])
        rows = []
        for text in texts:
            ids = self.scorable_tokens(str(text))
            rows.append(ScoredRow(ids[:1], ids[1:]))
        values = torch.tensor(self.score_rows(rows).values, dtype=torch.float64)
        return Scores(values, torch.tensor([len(row.continuation) for row in rows]))

    def choose(self, prompts: Sequence[str], options: Sequence[Sequence[str]]) -> torch.Tensor:
        """Compute `[n, options]` log-probabilities of texts that may follow each prompt.

        Args:
            prompts: Texts; `format_requests` makes them from requests to a chat model.
            options: For each prompt, equally many texts, each beginning with a space unless it
                follows the prompt directly.
        """
        return self.score_choices(self.place_options(prompts, options))

    def score_choices(self, choices: ChoiceRows) -> torch.Tensor:
        """Compute `[n, options]` log-probabilities of rows of `place_options`."""
        values = torch.tensor(self.score_rows(choices.rows).values, dtype=torch.float64)
        return values.reshape(-1, choices.n_options)

    def generate(
        self,
        prompts: Sequence[str],
        config: GenerationConfig = GenerationConfig(),
        *,
        n: int = 1,
        chat: ChatFormat | None = None,
    ) -> list[tuple[GeneratedText, ...]]:
        """Generate n texts after each prompt, as `LM.generate` does.

        Args:
            prompts: Texts, without a space at their end.
            config: Settings.
            n: Number of texts for each prompt.
            chat: The prompts are requests, which this format turns into prompts, after the model's
                system prompt. None: they are continued as they are.
        """
        check_sample_count(n, config)
        prepared = (
            self.with_system_prompt("").generation_prompts(prompts, ChatFormat("plain"))
            if chat is None
            else self.generation_prompts(prompts, chat)
        )
        generated = self.generate_texts(
            [prompt for prompt in prepared for _ in range(n)],
            [number for _ in prepared for number in range(n)],
            config,
        )
        return [tuple(generated[i : i + n]) for i in range(0, len(generated), n)]

    def generation_prompts(
        self, requests: Sequence[str], chat_format: ChatFormat, answer_start: str = ""
    ) -> list[GenerationPrompt]:
        """What the answers to some requests continue: tokens."""
        texts = self.format_requests(requests, chat_format, answer_start)
        self.tokenize_all(["", "The", *texts])
        return [
            GenerationPrompt(self.tokenize(text, add_special=not self._begins_itself(text)), text)
            for text in texts
        ]

    # -- texts

    def token_ids_of_word(self, word: str) -> TokenIds:
        """Return a word's tokens inside a sentence; empty if the word has no tokens of its own."""
        try:
            # Inside a sentence, because most tokenizers split a word at the start of a text
            # differently.
            return self._tokenize_after("The ", word, self.tokenize("The"))
        except UnreadableTextError:
            return ()

    def scorable_tokens(self, text: str) -> TokenIds:
        """Return the tokens of a text; raises if none of them can be scored."""
        ids = self.tokenize(text)
        if len(ids) < 2 or len(ids) == len(self.begin_tokens):
            raise UnreadableTextError(
                f"{text!r:.40} has only one token, and no token before it",
                hint="give longer texts",
            )
        return ids

    def split_at_blanks(
        self, texts: Sequence[str], words: Sequence[str]
    ) -> list[tuple[TokenIds, list[TokenIds]]]:
        """Return the tokens before each text's blank, and those of every word in the blank."""
        for text in texts:
            before, mark, after = text.partition(MASK)
            if not mark or after.strip(" .") or not before.strip():
                raise UnreadableTextError(
                    f"{text!r:.60} does not end in its one {MASK}",
                    hint="put the blank at the end: a causal model continues the text before it",
                )
        starts = [text.partition(MASK)[0] for text in texts]
        # Without the space before the blank: most tokenizers make it a part of the word's token.
        self.tokenize_all(
            [start.rstrip() for start in starts]
            + [start + word for start in starts for word in words]
        )
        return [
            (prefix, [self._tokenize_after(start, word, prefix) for word in words])
            for start in starts
            for prefix in (self.tokenize(start.rstrip()),)
        ]

    def format_requests(
        self, requests: Sequence[str], chat_format: ChatFormat, answer_start: str = ""
    ) -> list[str]:
        """Format requests as the texts that the model continues; the program applies its template.

        Args:
            requests: What the user writes.
            chat_format: Settings of the text around a request.
            answer_start: Beginning of the answer; the model continues it.
        """
        chat_format = chat_format.after_system(self.system_prompt)
        if chat_format.style == "plain":
            return [chat_format.format_plain(request, answer_start) for request in requests]
        chats = [chat_format.messages(request) for request in requests]
        texts = self.apply_templates(chats, chat_format.thinking)
        if None in texts and chat_format.style == "chat":
            raise NotMeasurableError(
                f"{self.identity.name} has no chat template",
                hint="give style='plain', or use a chat model",
            )
        return [
            chat_format.format_plain(request, answer_start) if text is None else text + answer_start
            for request, text in zip(requests, texts, strict=True)
        ]

    def place_options(self, prompts: Sequence[str], options: Sequence[Sequence[str]]) -> ChoiceRows:
        """Tokenize prompts with each option; the option's tokens begin where the prompt ends.

        A prompt that begins with the begin token gets no second one.
        """
        n_options = check_options(prompts, options)
        self.tokenize_all(["", "The"])
        plain = [prompt for prompt in prompts if not self._begins_itself(prompt)]
        for add_special in (True, False):
            batch = [
                text
                for prompt, prompt_options in zip(prompts, options, strict=True)
                if (prompt in plain) == add_special
                for text in (prompt, *(prompt + option for option in prompt_options))
            ]
            self.tokenize_all(batch, add_special=add_special)
        rows: list[ScoredRow] = []
        for prompt, prompt_options in zip(prompts, options, strict=True):
            add_special = prompt in plain
            context = self.tokenize(prompt, add_special=add_special)
            for option in prompt_options:
                ids = self.tokenize(prompt + option, add_special=add_special)
                if ids[: len(context)] != context or len(ids) == len(context):
                    raise UnreadableTextError(
                        f"the tokenizer does not separate {option!r:.40} from {prompt[-40:]!r}",
                        hint="begin the option with a space, or leave it out and count it as "
                        "dropped",
                    )
                rows.append(ScoredRow(context, ids[len(context) :]))
        return ChoiceRows(tuple(rows), n_options)

    @cached_property
    def begin_tokens(self) -> TokenIds:
        """Tokens that are put before every text; raises if tokens are appended."""
        empty, text = self.tokenize(""), self.tokenize("The")
        # Tokens of an empty text that no other text begins with are appended to texts.
        if text[: len(empty)] != empty:
            raise LevelheadError(
                f"{self!r} appends tokens to every text, which would be scored",
                hint="start the server without an end token (add_eos_token)",
            )
        return empty

    def _begins_itself(self, prompt: str) -> bool:
        """Whether a prompt already begins with the begin tokens, such as one from a template."""
        begin = self.begin_tokens
        if not begin:
            return False
        # This call adds the begin tokens: a prompt that has its own now begins with them twice.
        ids = self.tokenize(prompt)
        return ids[len(begin) : 2 * len(begin)] == begin

    def _tokenize_after(self, before: str, word: str, prefix: TokenIds) -> TokenIds:
        ids = self.tokenize(before + word)
        if ids[: len(prefix)] != prefix or len(ids) == len(prefix):
            raise UnreadableTextError(
                f"the server's tokenizer does not separate {word!r} from {before!r:.40}",
                hint="leave the text out and count it as dropped",
            )
        return ids[len(prefix) :]


def require_log_prob(value: float) -> float:
    """Return a log-probability; raises if it is none."""
    if not math.isfinite(value) or value > ROUNDING:
        raise LevelheadError(
            f"the server reports {value} as a log-probability",
            hint="check the server: a broken number is not used",
        )
    return value


def split_into(items: Sequence[Any], size: int) -> list[Any]:
    """Split a list into parts of a size."""
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def make_top_tokens(items: Sequence[tuple[int, float]]) -> TopTokens:
    """Tokens with their log-probabilities, the likeliest first."""
    return TopTokens(tuple(token for token, _ in items), tuple(value for _, value in items))
