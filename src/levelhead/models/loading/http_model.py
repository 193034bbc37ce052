"""A model behind HTTP: an OpenAI-compatible completions endpoint that reports log-probabilities.

Such a model offers two methods, `fill` and `log_prob`. Its activations can be neither read nor
edited, and every other method raises an error. Nothing is guessed: if the server does not report a
token, its probability is missing; it is not replaced by a small number.

The server must also report how it splits texts into tokens (`/tokenize`), as llama.cpp's does.
"""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, final
from urllib.parse import urlsplit

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.models.inputs.batching import Batching
from levelhead.models.inputs.tokenizer import MASK, UnreadableTextError
from levelhead.models.lm import Scores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from levelhead.core.files import Url
    from levelhead.models.edits.base import Edit

FEW_TOKENS, ALL_TOKENS = (4000, 16), (1 << 20, 1)
"""Number of likeliest tokens to request, and of texts in one request. The first try requests few
tokens, because a complete vocabulary is megabytes; 2**20 is more than any vocabulary."""
ZERO_LOG_PROB = -1e30
"""Bound below which a reported log-probability stands for a probability of 0."""
TokenIds = tuple[int, ...]
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
MAX_CACHED_TEXTS = 10_000
"""Number of texts whose tokens are cached."""


class _RefuseRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the request's key would be sent to the new address."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        """Return no request, so that the redirect becomes an HTTP error."""


OPENER = urllib.request.build_opener(_RefuseRedirects)


class UnsupportedOverHttpError(LevelheadError):
    """A method that needs the weights of the model."""


class LogProbsMissingError(LevelheadError):
    """The server does not report a probability that is needed.

    The text must not be dropped for this reason: which tokens a server leaves out depends on how
    likely they are.
    """


class HttpIdentity(NamedTuple):
    """Name and revision of the model, as the server reports them."""

    name: str
    revision: str | None = None


@final
@dataclass(frozen=True)
class HttpModel:
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

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LevelheadError(
                f"{self.url!r} is not the address of a server",
                hint="give an address such as http://127.0.0.1:8080",
            )
        # Unencrypted requests to this machine never leave it; a key may be sent to a local server.
        if self.key and parts.scheme == "http" and parts.hostname not in LOCAL_HOSTS:
            raise LevelheadError(
                "a key would be sent unencrypted", hint="use https, or a server on this machine"
            )
        if self.edits:
            raise UnsupportedOverHttpError(
                "a model behind HTTP cannot be edited", hint="load its weights with `load`"
            )

    def __repr__(self) -> str:
        # Without the key: the text appears in logs and tracebacks.
        return f"HttpModel({self.url!r}, {self.model!r})"

    @property
    def heads(self) -> frozenset[str]:
        """The heads of the model."""
        return frozenset({"causal"})

    @property
    def is_causal(self) -> bool:
        """Whether a token attends only to earlier tokens: always, for completions."""
        return True

    @cached_property
    def server_info(self) -> FrozenDict:
        """The server's report: name and size of the model, build, special tokens."""
        answer = self._request_completions([self._tokenize("The")], 1)
        names = ("model", "system_fingerprint")
        try:
            (meta,) = (model.get("meta") for model in self._request("/v1/models")["data"][:1])
        except (LevelheadError, KeyError, TypeError, ValueError, AttributeError):
            meta = None  # not every server reports it
        return FrozenDict(
            {name: str(answer.get(name, "")) for name in names}
            | {"meta": json.dumps(meta, sort_keys=True), "begins": self._begin_tokens}
        )

    @cached_property
    def in_memory_store(self) -> str:
        """URL of the store in memory for the responses of this object."""
        # Random, not from the URL: a server may change its weights between two objects.
        return f"memory://levelhead-{secrets.token_hex(8)}"

    def response_store(self, store: Url | None) -> Url:
        """Return the URL of the store for responses: the caller's, or one in memory."""
        return self.in_memory_store if store is None else store

    @cached_property
    def _begin_tokens(self) -> tuple[int, ...]:
        """Tokens that the server puts before every text; raises if it appends tokens."""
        empty, text = self._tokenize(""), self._tokenize("The")
        if text[: len(empty)] != empty:
            raise LevelheadError(
                f"{self.url} appends tokens to every text, which would be scored",
                hint="start the server without an end token (add_eos_token)",
            )
        return tuple(empty)

    @property
    def settings(self) -> FrozenDict:
        """Settings for provenance; only the server's report is available."""
        return FrozenDict({"server": self.url, "causal": self.is_causal, **self.server_info})

    @property
    def content_hash(self) -> str:
        """SHA-256 of the server's report; a server may change its weights without notice."""
        return content_hash(
            {"server": self.url, "model": self.model, "server_info": dict(self.server_info)}
        )

    @property
    def identity(self) -> HttpIdentity:
        """The name that is given, or that the server reports, or the URL."""
        return HttpIdentity(self.model or str(self.server_info["model"]) or self.url)

    @cached_property
    def batching(self) -> Batching:
        """Batches of one text: the server decides how to batch requests."""
        return Batching(1)

    def token_ids_of_word(self, word: str) -> tuple[int, ...]:
        """Return a word's tokens inside a sentence; empty if the word has no tokens of its own."""
        try:
            # Inside a sentence, because most tokenizers split a word at the start of a text
            # differently.
            return self._tokenize_word("The ", word, tuple(self._tokenize("The")))
        except UnreadableTextError:
            return ()

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
        splits = [self.split_at_blank(str(text), words) for text in texts]
        # float32 has too few digits for the ids of large vocabularies.
        return torch.tensor(
            [self._score_words(*split, top_k) for split in splits], dtype=torch.float64
        )

    def log_prob(self, texts: Sequence[str]) -> Scores:
        """Compute the log-probability of each text without its first token, and token counts."""
        values, counts = [], []
        for text in texts:
            ids = self.scorable_tokens(str(text))
            queries = {tuple(ids[:i]): {ids[i]} for i in range(1, len(ids))}
            log_probs = self._next_token_log_probs(queries)
            values.append(sum(log_probs[context][token] for context, (token,) in queries.items()))
            counts.append(len(queries))
        return Scores(torch.tensor(values, dtype=torch.float64), torch.tensor(counts))

    def __getattr__(self, name: str) -> NoReturn:
        # Private names are probed by Python itself (copy, pickle), which expects AttributeError.
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnsupportedOverHttpError(
            f"a model behind HTTP has no {name}, only fill and log_prob",
            hint="load its weights with `load` to read its activations or to edit it",
        )

    # -- words

    def scorable_tokens(self, text: str) -> TokenIds:
        """Return the tokens of a text; raises if none of them can be scored."""
        ids = tuple(self._tokenize(text))
        if len(ids) < 2 or len(ids) == len(self._begin_tokens):
            raise UnreadableTextError(
                f"{text!r:.40} has only one token, and no token before it",
                hint="give longer texts",
            )
        return ids

    def split_at_blank(self, text: str, words: Sequence[str]) -> tuple[TokenIds, list[TokenIds]]:
        """Return the tokens before a text's blank, and the tokens of every word in the blank."""
        before, mark, after = text.partition(MASK)
        if not mark or after.strip(" .") or not before.strip():
            raise UnreadableTextError(
                f"{text!r:.60} does not end in its one {MASK}",
                hint="put the blank at the end: a causal model continues the text before it",
            )
        # Without the space before the blank: most tokenizers make it a part of the word's token.
        prefix = tuple(self._tokenize(before.rstrip()))
        return prefix, [self._tokenize_word(before, word, prefix) for word in words]

    def _score_words(
        self, prefix: TokenIds, word_ids: Sequence[TokenIds], top_k: int
    ) -> list[float]:
        targets: dict[TokenIds, set[int]] = {prefix: set()}
        for ids in word_ids:
            for i, token in enumerate(ids):
                targets.setdefault((*prefix, *ids[:i]), set()).add(token)
        log_probs = self._next_token_log_probs(targets)
        top_tokens = sorted(log_probs[prefix].items(), key=lambda item: -item[1])[:top_k]
        if len(top_tokens) < top_k:
            raise LogProbsMissingError(
                f"the server reports {len(top_tokens)} likeliest tokens instead of {top_k}",
                hint="use a server that reports more tokens (llama.cpp does)",
            )
        return [
            *(
                sum(log_probs[(*prefix, *ids[:i])][token] for i, token in enumerate(ids))
                for ids in word_ids
            ),
            *(token for token, _ in top_tokens),
            *(value for _, value in top_tokens),
        ]

    def _tokenize_word(self, before: str, word: str, prefix: tuple[int, ...]) -> tuple[int, ...]:
        ids = tuple(self._tokenize(before + word))
        if ids[: len(prefix)] != prefix or len(ids) == len(prefix):
            raise UnreadableTextError(
                f"the server's tokenizer does not separate {word!r} from {before!r:.40}",
                hint="leave the text out and count it as dropped",
            )
        return ids[len(prefix) :]

    # -- the server

    def _next_token_log_probs(
        self, targets: Mapping[TokenIds, AbstractSet[int]]
    ) -> dict[TokenIds, dict[int, float]]:
        """Request log-probabilities of next tokens; raises if a needed token is missing.

        Args:
            targets: For each context (the tokens before), the next tokens that are needed.
        """
        log_probs: dict[TokenIds, dict[int, float]] = {}
        # The second request covers only contexts whose tokens were not among the likeliest few.
        for count, batch_size in (FEW_TOKENS, ALL_TOKENS):
            contexts = [
                context
                for context, tokens in targets.items()
                if context not in log_probs or not tokens <= log_probs[context].keys()
            ]
            for begin in range(0, len(contexts), batch_size):
                batch = contexts[begin : begin + batch_size]
                log_probs |= dict(
                    zip(batch, self._request_top_log_probs(batch, count), strict=True)
                )
        for context, tokens in targets.items():
            if not tokens <= log_probs[context].keys():
                raise LogProbsMissingError(
                    f"the server reports {len(log_probs[context])} next tokens, but not the "
                    "one that is needed",
                    hint="use a server that reports all tokens (llama.cpp does)",
                )
        return log_probs

    def _request_top_log_probs(
        self, contexts: Sequence[TokenIds], count: int
    ) -> Iterator[dict[int, float]]:
        answer = self._request_completions(contexts, count)
        try:
            choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
            # A missing or repeated answer would assign log-probabilities to the wrong context.
            if [int(choice["index"]) for choice in choices] != list(range(len(contexts))):
                raise ValueError("the answers do not match the requests")
            for choice in choices:
                # One token was requested, so exactly one position is reported.
                (first,) = choice["logprobs"]["content"]
                log_probs = {
                    int(entry["id"]): float(entry["logprob"]) for entry in first["top_logprobs"]
                }
                # llama.cpp writes a huge negative number for a probability that underflowed to 0.
                yield {token: value for token, value in log_probs.items() if value > ZERO_LOG_PROB}
        except (KeyError, TypeError, ValueError):
            raise LevelheadError(
                f"{self.url} does not report log-probabilities by token",
                hint="use a server that answers `logprobs` with ids, such as llama.cpp's",
            ) from None

    def _request_completions(self, prompts: Sequence[Sequence[int]], count: int) -> dict[str, Any]:
        body = {
            "prompt": [list(ids) for ids in prompts],
            # Only the distribution of the next token is used, never the sampled token.
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": count,
        }
        return self._request(
            "/v1/completions", body | ({"model": self.model} if self.model else {})
        )

    def _tokenize(self, text: str) -> list[int]:
        """Return a text's tokens, with those that the server puts before every text."""
        if text in self._token_cache:
            return self._token_cache[text]
        answer = self._request("/tokenize", {"content": text, "add_special": True})
        tokens = answer.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            raise LevelheadError(
                f"{self.url} does not report how it splits texts into tokens",
                hint="use a server with /tokenize, such as llama.cpp's",
            )
        # Emptied completely: tracking the order of use would cost more than tokenizing again.
        if len(self._token_cache) >= MAX_CACHED_TEXTS:
            self._token_cache.clear()
        self._token_cache[text] = tokens
        return tokens

    @cached_property
    def _token_cache(self) -> dict[str, list[int]]:
        """Tokens by text."""
        return {}

    def _request(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(  # noqa: S310  # http or https: checked above
            # Users give addresses with and without /v1, as for OpenAI's clients; /tokenize is not
            # under it.
            self.url.rstrip("/").removesuffix("/v1") + path,
            None if body is None else json.dumps(body).encode(),
            headers,
        )
        try:
            with OPENER.open(request, timeout=self.timeout) as response:
                content = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                # The body may be a web page of any size.
                message = error.read(300).decode(errors="replace")
            # Some servers repeat the key in their error message.
            message = message.replace(self.key, "...") if self.key else message
            raise LevelheadError(
                f"{self.url}{path} answers {error.code}: {message}", hint="read the server's log"
            ) from None
        except (OSError, ValueError) as error:
            raise LevelheadError(
                f"{self.url} cannot be reached: {error}", hint="check that the server runs there"
            ) from None
        if not isinstance(content, dict):
            raise LevelheadError(
                f"{self.url}{path} does not answer with a JSON object", hint="check the address"
            )
        return content
