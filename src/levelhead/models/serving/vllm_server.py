"""vLLM's server: log-probabilities of the tokens of a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from levelhead.core.errors import NotMeasurableError
from levelhead.models.serving.client import ServerStatusError
from levelhead.models.serving.served_model import (
    LogProbsMissingError,
    RowScores,
    ScoredRow,
    TopTokens,
    make_top_tokens,
    require_log_prob,
    split_into,
)
from levelhead.models.serving.server import Server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.models.serving.served_model import TokenIds
    from levelhead.models.serving.server import Progress

VLLM_ZERO_LOG_PROB = -9999.0
"""Log-probability that vLLM writes instead of minus infinity, which JSON cannot express."""
ROWS_PER_REQUEST = 16
MAX_CHOSEN_TOKENS = 100
"""Number of chosen next tokens in one request; vLLM accepts 128."""


@final
class VllmServer(Server):
    """vLLM's server: log-probabilities of a prompt's tokens."""

    kind = "vLLM"
    _reports_chosen_tokens = True
    """Whether this version reports the log-probabilities of chosen next tokens."""

    def generation_fields(self) -> dict[str, Any]:
        """Fields that turn off the checkpoint's generation_config.json, and request tokens."""
        return {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "return_token_ids": True}

    def tokenize(self, text: str, *, add_special: bool) -> TokenIds:
        """Tokens of a text."""
        body = self.body(prompt=text, add_special_tokens=add_special)
        return self.read_tokens(self.client.post("/tokenize", body))

    def apply_template(self, messages: list[dict[str, str]], thinking: bool | None) -> str | None:
        """Messages as a text: vLLM tokenizes them with the template."""
        body = self.body(messages=messages, add_generation_prompt=True)
        if thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": thinking}
        try:
            ids = self.read_tokens(self.client.post("/tokenize", body))
        except ServerStatusError as error:
            # vLLM has no default template: a base model is refused by this message.
            if error.status in (400, 422) and "chat template" in error.problem.lower():
                return None
            raise
        answer = self.client.post("/detokenize", self.body(tokens=list(ids)))
        text = answer.get("prompt")
        # A text that the tokenizer splits differently would be another prompt.
        if not isinstance(text, str) or self.tokenize(text, add_special=False) != ids:
            raise NotMeasurableError(
                f"{self.client.root} cannot give the text of its chat template",
                hint="give style='plain'",
            )
        return text

    def report(self) -> dict[str, str]:
        """Name of the model and of its files, longest text, version of vLLM."""
        version = str(self.client.get("/version").get("version", ""))
        names = ("id", "root", "parent", "max_model_len")
        report = {name: str(self.entry.get(name, "")) for name in names}
        return {"model": report.pop("id"), "engine": self.kind, "version": version, **report}

    def score_rows(
        self,
        rows: Sequence[ScoredRow],
        contexts: Sequence[TokenIds],
        top_k: int,
        progress: Progress = None,
    ) -> RowScores:
        """Log-probabilities of continuations, each row as one prompt."""
        # Equal rows are requested once, such as words that occur in two lists.
        unique = list(dict.fromkeys(rows))
        values = self._score_single_tokens(unique, progress)
        others = [row for row in unique if row not in values]
        batches = split_into(others, ROWS_PER_REQUEST)
        scores = self.client.map(self._score, batches, progress)
        values |= dict(zip(others, (value for part in scores for value in part), strict=True))
        top_batches = split_into(list(dict.fromkeys(contexts)), ROWS_PER_REQUEST)
        top = {
            context: tokens
            for batch, answers in zip(
                top_batches,
                self.client.map(lambda batch: self._top(batch, top_k), top_batches),
                strict=True,
            )
            for context, tokens in zip(batch, answers, strict=True)
        }
        return RowScores([values[row] for row in rows], [top[context] for context in contexts])

    def _score_single_tokens(
        self, rows: Sequence[ScoredRow], progress: Progress
    ) -> dict[ScoredRow, float]:
        """Log-probabilities of rows of one token that share their context with others.

        One prompt then serves them all. Rows of other kinds are left out, and all rows for a
        version of vLLM that cannot report chosen tokens.
        """
        if not self._reports_chosen_tokens:
            return {}
        tokens_after: dict[TokenIds, set[int]] = {}
        for row in rows:
            if len(row.continuation) == 1:
                tokens_after.setdefault(row.context, set()).add(row.continuation[0])
        # One request has one list of tokens: contexts with the same words go together.
        contexts_of: dict[TokenIds, list[TokenIds]] = {}
        for context, tokens in tokens_after.items():
            # A token alone in its context is one prompt either way.
            if len(tokens) > 1:
                contexts_of.setdefault(tuple(sorted(tokens)), []).append(context)
        requests = [
            (chosen, batch)
            for tokens, contexts in contexts_of.items()
            for chosen in split_into(tokens, MAX_CHOSEN_TOKENS)
            for batch in split_into(contexts, ROWS_PER_REQUEST)
        ]
        values: dict[ScoredRow, float] = {}
        for part in self.client.map(self._score_chosen, requests, progress):
            values |= part
        return values

    def _score_chosen(self, request: tuple[TokenIds, Sequence[TokenIds]]) -> dict[ScoredRow, float]:
        chosen, contexts = request
        choices = self.request_choices(
            contexts,
            logprobs=1,
            logprob_token_ids=list(chosen),
            return_tokens_as_token_ids=True,
        )
        values = {}
        for context, choice in zip(contexts, choices, strict=True):
            log_probs = self._next_log_probs(choice)
            if not log_probs.keys() >= set(chosen):
                # An earlier version ignores the field: its rows are scored as prompts.
                self._reports_chosen_tokens = False
                return {}
            for token in chosen:
                row = ScoredRow(context, (token,))
                values[row] = require_positive_probability(log_probs[token])
        return values

    def _score(self, rows: Sequence[ScoredRow]) -> list[float]:
        prompts = [(*row.context, *row.continuation) for row in rows]
        # 0: the prompt's tokens themselves, without likelier ones.
        choices = self.request_choices(prompts, prompt_logprobs=0)
        return [
            sum(self._prompt_log_probs(choice, prompt)[len(row.context) :])
            for row, prompt, choice in zip(rows, prompts, choices, strict=True)
        ]

    def _prompt_log_probs(self, choice: Mapping[str, Any], prompt: TokenIds) -> list[float]:
        """Log-probability of each token of a prompt; 0 for the first, which has none."""
        try:
            positions = choice["prompt_logprobs"]
            if len(positions) != len(prompt):
                raise ValueError("another prompt")
            values = [
                float(position[str(token)]["logprob"])
                for position, token in zip(positions[1:], prompt[1:], strict=True)
            ]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self.unreadable_error() from None
        return [0.0, *map(require_positive_probability, values)]

    def _top(self, contexts: Sequence[TokenIds], top_k: int) -> list[TopTokens]:
        choices = self.request_choices(contexts, logprobs=top_k, return_tokens_as_token_ids=True)
        return [
            make_top_tokens(
                sorted(self._next_log_probs(choice).items(), key=lambda item: -item[1])[:top_k]
            )
            for choice in choices
        ]

    def _next_log_probs(self, choice: Mapping[str, Any]) -> dict[int, float]:
        """The reported log-probabilities of the next token, by token."""
        try:
            (first,) = choice["logprobs"]["top_logprobs"]
            return {
                int(name.removeprefix("token_id:")): require_log_prob(float(value))
                for name, value in first.items()
            }
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            raise self.unreadable_error() from None


def require_positive_probability(value: float) -> float:
    """Return a log-probability; raises if vLLM reports a probability of 0."""
    if value <= VLLM_ZERO_LOG_PROB:
        raise LogProbsMissingError(
            "the server reports that a token has the probability 0",
            hint="run the server in float32: the probability underflowed",
        )
    return require_log_prob(value)
