"""A model behind HTTP: a server of llama.cpp or vLLM, or one that speaks OpenAI's protocol.

Such a model offers `fill`, `log_prob`, `choose` and `generate`. Its activations can be neither read
nor edited, and every other method raises an error. Nothing is guessed: if the server does not
report a token, its probability is missing; it is not replaced by a small number.

A server that does not report how it splits texts into tokens (`/tokenize`) can only generate.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, MissingExtraError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.models.serving.addresses import check_address
from levelhead.models.serving.generation import GenerationPrompt
from levelhead.models.serving.served_model import (
    ServedIdentity,
    ServedModel,
    UnsupportedOverHttpError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.core.files import Url
    from levelhead.models.edits.base import Edit
    from levelhead.models.generation.config import GeneratedText, GenerationConfig
    from levelhead.models.inputs.chat import ChatFormat
    from levelhead.models.serving.budget import TokenBudget
    from levelhead.models.serving.client import ServerClient
    from levelhead.models.serving.served_model import RowScores, ScoredRow, TokenIds
    from levelhead.models.serving.server import Server

MAX_CACHED_TEXTS = 10_000
"""Number of texts whose tokens are cached."""


@final
@dataclass(frozen=True)
class HttpModel(ServedModel):
    """A causal model that a server runs."""

    url: str
    """URL of the server, such as http://127.0.0.1:8080; completions are at /v1/completions."""
    model: str = ""
    """Name of the model, for a server that has several."""
    key: str | None = None
    """API key: sent as a bearer token, never stored or shown."""
    timeout: float = 120.0
    """Seconds to wait for one response."""
    edits: tuple[Edit, ...] = ()
    max_retries: int = 4
    """Number of times that a request is repeated after 429, 5xx or a timeout, with growing waits
    or as `Retry-After` says."""
    concurrency: int = 8
    """Number of requests at a time."""
    budget: TokenBudget | None = None
    """Limit of tokens or of money; None: no limit."""
    progress: Callable[[int, int], None] | None = None
    """Called with the numbers of answered and of all requests of a method."""
    system_prompt: str = ""
    """Put before every chat request that the model answers; empty: none."""

    def __post_init__(self) -> None:
        check_address(self.url, self.key)
        if self.timeout <= 0 or self.max_retries < 0 or self.concurrency < 1:
            raise LevelheadError(
                f"no request can be sent within {self.timeout:g} s, {self.max_retries} retries and "
                f"{self.concurrency} at a time",
                hint="give a positive timeout, 0 or more retries, and at least 1 at a time",
            )
        if self.edits:
            raise UnsupportedOverHttpError(
                "a model behind HTTP cannot be edited", hint="load its weights with `load`"
            )

    def __repr__(self) -> str:
        # Without the key: the text appears in logs and tracebacks.
        return f"HttpModel({self.url!r}, {self.model!r})"

    @cached_property
    def server_info(self) -> FrozenDict:
        """The server's report: name and size of the model, build, special tokens."""
        begins = self.begin_tokens if self.server.can_score else ()
        return FrozenDict(self.server.report() | {"begins": begins})

    @cached_property
    def in_memory_store(self) -> str:
        """URL of the store in memory for the responses of this object."""
        # Random, not from the URL: a server may change its weights between two objects.
        return f"memory://levelhead-{secrets.token_hex(8)}"

    def response_store(self, store: Url | None) -> Url:
        """Return the URL of the store for responses: the caller's, or one in memory."""
        return self.in_memory_store if store is None else store

    @property
    def settings(self) -> FrozenDict:
        """Settings for provenance; only the server's report is available."""
        return FrozenDict(
            {
                "server": self.url,
                "causal": self.is_causal,
                **self.server_info,
                **self.prompt_setting,
            }
        )

    @property
    def content_hash(self) -> str:
        """SHA-256 of the server's report; a server may change its weights without notice."""
        server_info = dict(self.server_info)
        return content_hash(
            {"server": self.url, "model": self.model, "server_info": server_info}
            | self.prompt_setting
        )

    @property
    def identity(self) -> ServedIdentity:
        """The name that is given, or that the server reports, or the URL."""
        return ServedIdentity(self.model or str(self.server_info["model"]) or self.url)

    @property
    def can_score(self) -> bool:
        """Whether the server reports log-probabilities of given texts, or only generates."""
        return self.server.can_score

    def require_log_probs(self) -> None:
        """Raise an error if the server reports no log-probabilities of given texts."""
        self.server.require_log_probs()

    # -- the server

    @cached_property
    def client(self) -> ServerClient:
        """The connection to the server."""
        try:
            from levelhead.models.serving.client import ServerClient
        except ModuleNotFoundError:
            raise MissingExtraError("a model behind HTTP", "openai") from None
        return ServerClient(
            self.url,
            key=self.key,
            timeout=self.timeout,
            max_retries=self.max_retries,
            concurrency=self.concurrency,
            budget=self.budget,
        )

    @cached_property
    def server(self) -> Server:
        """The interface of the server, which its first answers show."""
        client = self.client
        from levelhead.models.serving.identify import identify_server

        return identify_server(client, self.model)

    def tokenize(self, text: str, *, add_special: bool = True) -> TokenIds:
        """Return a text's tokens, with those that the server puts before every text."""
        key = (text, add_special)
        if key in self._token_cache:
            return self._token_cache[key]
        tokens = self.server.tokenize(text, add_special=add_special)
        # Emptied completely: tracking the order of use would cost more than tokenizing again.
        if len(self._token_cache) >= MAX_CACHED_TEXTS:
            self._token_cache.clear()
        self._token_cache[key] = tokens
        return tokens

    def tokenize_all(self, texts: Sequence[str], *, add_special: bool = True) -> None:
        """Tokenize texts ahead of `tokenize`, several at a time."""
        missing = [
            text for text in dict.fromkeys(texts) if (text, add_special) not in self._token_cache
        ]
        if missing:
            # Identified before the threads begin, which would each do it.
            _ = self.server
            self.client.map(lambda text: self.tokenize(text, add_special=add_special), missing)

    @cached_property
    def _token_cache(self) -> dict[tuple[str, bool], TokenIds]:
        """Tokens by text, with and without those that are put before every text."""
        return {}

    def score_rows(
        self, rows: Sequence[ScoredRow], contexts: Sequence[TokenIds] = (), top_k: int = 0
    ) -> RowScores:
        """Compute the log-probability of each row's continuation, and likeliest next tokens."""
        return self.server.score_rows(rows, contexts, top_k, self.progress)

    def generation_prompts(
        self, requests: Sequence[str], chat_format: ChatFormat, answer_start: str = ""
    ) -> list[GenerationPrompt]:
        """What the answers to some requests continue: tokens, or messages without `/tokenize`."""
        if self.can_score:
            return super().generation_prompts(requests, chat_format, answer_start)
        chat_format = chat_format.after_system(self.system_prompt)
        if chat_format.style == "plain":
            texts = [chat_format.format_plain(request, answer_start) for request in requests]
            return [GenerationPrompt(text=text) for text in texts]
        if answer_start or chat_format.thinking is not None:
            raise NotMeasurableError(
                f"{self.url} continues no answer that is begun, and has no switch for thinking",
                hint="leave out answer_start and thinking, or serve the model with llama.cpp or "
                "vLLM",
            )
        return [
            GenerationPrompt(messages=tuple(chat_format.messages(request))) for request in requests
        ]

    def generate_texts(
        self,
        prompts: Sequence[GenerationPrompt],
        sample_numbers: Sequence[int],
        config: GenerationConfig,
    ) -> list[GeneratedText]:
        """Generate one text after each prompt, several requests at a time."""
        server = self.server
        samples = list(zip(prompts, sample_numbers, strict=True))
        return self.client.map(
            lambda sample: server.generate(sample[0], sample[1], config), samples, self.progress
        )

    def apply_templates(
        self, chats: Sequence[list[dict[str, str]]], thinking: bool | None
    ) -> list[str | None]:
        """Return chats as the texts that the model continues; None without a template."""
        server = self.server
        return self.client.map(
            lambda messages: server.apply_template(messages, thinking), list(chats)
        )
