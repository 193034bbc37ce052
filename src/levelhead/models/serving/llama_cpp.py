"""llama.cpp's server: log-probabilities of the next token after given tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, final

from levelhead.models.serving.budget import TokenCounts
from levelhead.models.serving.client import ServerStatusError
from levelhead.models.serving.served_model import (
    LogProbsMissingError,
    RowScores,
    TopTokens,
    make_top_tokens,
    require_log_prob,
)
from levelhead.models.serving.server import MISSING_STATUS, Server, no_template_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from levelhead.models.serving.served_model import ScoredRow, TokenIds
    from levelhead.models.serving.server import Progress

FEW_TOKENS, ALL_TOKENS = (4000, 4), (1 << 20, 1)
"""Number of likeliest tokens to request, and of texts in one request. The first try requests few
tokens, because a complete vocabulary is megabytes; 2**20 is more than any vocabulary."""
ZERO_LOG_PROB = -1e30
"""Bound below which llama.cpp's log-probability stands for a probability that underflowed to 0."""


class _Targets(NamedTuple):
    """What is wanted of the next tokens of one context."""

    tokens: AbstractSet[int]
    top_k: int


class _Reported(NamedTuple):
    """What a server reports of the next tokens of one context."""

    log_probs: dict[int, float]
    top: TopTokens
    n_reported: int


@final
class LlamaCppServer(Server):
    """llama.cpp's server: probabilities of the next token after given tokens."""

    kind = "llama.cpp"

    def generation_fields(self) -> dict[str, Any]:
        """Fields that turn off llama.cpp's defaults: 40 likeliest tokens, min_p 0.05."""
        return {"top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0}

    def tokenize(self, text: str, *, add_special: bool) -> TokenIds:
        """Tokens of a text."""
        body = {"content": text, "add_special": add_special}
        return self.read_tokens(self.client.post("/tokenize", body))

    def apply_template(self, messages: list[dict[str, str]], thinking: bool | None) -> str | None:
        """Messages as a text, by /apply-template."""
        body: dict[str, Any] = {"messages": messages}
        if thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": thinking}
        try:
            text = self.client.post("/apply-template", body).get("prompt")
        except ServerStatusError as error:
            if error.status in MISSING_STATUS:
                raise no_template_path(self.client.root) from None
            raise
        if not isinstance(text, str) or not text:
            raise no_template_path(self.client.root)
        return text

    def report(self) -> dict[str, str]:
        """Name and size of the model, and build of the server."""
        # The server states its build in answers only, so it has to generate a token.
        ids = self.tokenize("The", add_special=True)
        counts = TokenCounts(len(ids), 1)
        body = self.body(prompt=[list(ids)], max_tokens=1, temperature=0, logprobs=1)
        answer = self.client.post("/v1/completions", body, counts=counts)
        report = {name: str(answer.get(name, "")) for name in ("model", "system_fingerprint")}
        return report | {"meta": json.dumps(self.entry.get("meta"), sort_keys=True)}

    def score_rows(
        self,
        rows: Sequence[ScoredRow],
        contexts: Sequence[TokenIds],
        top_k: int,
        progress: Progress = None,
    ) -> RowScores:
        """Log-probabilities of continuations: one context for each of their tokens."""
        wanted: dict[TokenIds, set[int]] = {context: set() for context in contexts}
        for context, ids in rows:
            for i, token in enumerate(ids):
                wanted.setdefault((*context, *ids[:i]), set()).add(token)
        with_top = frozenset(contexts)
        targets = {
            context: _Targets(tokens, top_k if context in with_top else 0)
            for context, tokens in wanted.items()
        }
        reported = self._next_tokens(targets, progress)
        values = [
            sum(reported[(*context, *ids[:i])].log_probs[token] for i, token in enumerate(ids))
            for context, ids in rows
        ]
        return RowScores(values, [reported[context].top for context in contexts])

    def _next_tokens(
        self, targets: Mapping[TokenIds, _Targets], progress: Progress
    ) -> dict[TokenIds, _Reported]:
        """Request log-probabilities of next tokens; raises if a needed token is missing."""
        reported: dict[TokenIds, _Reported] = {}
        # The second request covers only contexts whose tokens were not among the likeliest few.
        for count, batch_size in (FEW_TOKENS, ALL_TOKENS):
            contexts = [
                context
                for context, wanted in targets.items()
                if context not in reported
                or not wanted.tokens <= reported[context].log_probs.keys()
            ]
            batches = [
                contexts[begin : begin + batch_size]
                for begin in range(0, len(contexts), batch_size)
            ]

            def request(batch: list[TokenIds], count: int = count) -> list[_Reported]:
                choices = self.request_choices(batch, logprobs=count)
                return [
                    self._read_next(choice, targets[context])
                    for context, choice in zip(batch, choices, strict=True)
                ]

            for batch, answers in zip(
                batches, self.client.map(request, batches, progress), strict=True
            ):
                reported |= dict(zip(batch, answers, strict=True))
        for context, wanted in targets.items():
            if not wanted.tokens <= reported[context].log_probs.keys():
                raise LogProbsMissingError(
                    f"the server reports {reported[context].n_reported} next tokens, but not the "
                    "one that is needed",
                    hint="use a server that reports all tokens (llama.cpp does)",
                )
        return reported

    def _read_next(self, choice: Mapping[str, Any], wanted: _Targets) -> _Reported:
        try:
            # One token was requested, so exactly one position is reported.
            (first,) = choice["logprobs"]["content"]
            log_probs = {
                int(entry["id"]): float(entry["logprob"]) for entry in first["top_logprobs"]
            }
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self.unreadable_error() from None
        # llama.cpp writes a huge negative number for a probability that underflowed to 0.
        log_probs = {
            token: require_log_prob(value)
            for token, value in log_probs.items()
            # `not <=` keeps NaN, which `require_log_prob` then refuses.
            if not value <= ZERO_LOG_PROB
        }
        top = sorted(log_probs.items(), key=lambda item: -item[1])[: wanted.top_k]
        needed = {token: log_probs[token] for token in wanted.tokens if token in log_probs}
        # Only what is needed is kept: thousands of tokens for each context would fill the memory.
        return _Reported(needed, make_top_tokens(top), len(log_probs))
