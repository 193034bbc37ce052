"""The interfaces of servers: llama.cpp, vLLM, and those that speak OpenAI's protocol only."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, final

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.models.serving.budget import TokenCounts, estimate_prompt_tokens
from levelhead.models.serving.client import ServerStatusError
from levelhead.models.serving.generation import read_filtered, read_generated, sample_seed
from levelhead.models.serving.served_model import LogProbsMissingError, RowScores, TopTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from levelhead.models.generation.config import GeneratedText, GenerationConfig
    from levelhead.models.serving.client import ServerClient
    from levelhead.models.serving.generation import GenerationPrompt
    from levelhead.models.serving.served_model import ScoredRow, TokenIds

    Progress = Callable[[int, int], None] | None

FEW_TOKENS, ALL_TOKENS = (4000, 4), (1 << 20, 1)
"""Number of likeliest tokens to request, and of texts in one request. The first try requests few
tokens, because a complete vocabulary is megabytes; 2**20 is more than any vocabulary."""
ZERO_LOG_PROB = -1e30
"""Bound below which llama.cpp's log-probability stands for a probability that underflowed to 0."""
VLLM_ZERO_LOG_PROB = -9999.0
"""Log-probability that vLLM writes instead of minus infinity, which JSON cannot express."""
ROWS_PER_REQUEST = 16
MISSING_STATUS = (404, 405, 501)
"""HTTP errors of a server that has no such path."""
ROUNDING = 1e-3
"""A log-probability may be above 0 by rounding, not by more."""


class Server(ABC):
    """Requests in the form that one kind of server understands. Abstract."""

    kind: ClassVar[str]
    can_score = True
    """Whether the server reports tokens and their log-probabilities."""

    def __init__(self, client: ServerClient, model: str, entry: Mapping[str, Any]) -> None:
        self.client = client
        self.model = model
        """Name of the model in requests; empty for a server with one model."""
        self.entry = entry
        """The server's entry of the model in /v1/models."""
        self._answered_model = ""

    @abstractmethod
    def tokenize(self, text: str, *, add_special: bool) -> TokenIds:
        """Tokens of a text."""

    @abstractmethod
    def score_rows(
        self,
        rows: Sequence[ScoredRow],
        contexts: Sequence[TokenIds],
        top_k: int,
        progress: Progress = None,
    ) -> RowScores:
        """Log-probabilities of continuations, and the likeliest tokens after contexts."""

    @abstractmethod
    def apply_template(self, messages: list[dict[str, str]], thinking: bool | None) -> str | None:
        """Messages as a text; None without a template."""

    @abstractmethod
    def report(self) -> dict[str, str]:
        """What the server says of itself and of its model: a part of the model's hash."""

    def require_log_probs(self) -> None:
        """Raise an error if the server reports no log-probabilities of given texts."""
        return

    def generate(
        self, prompt: GenerationPrompt, sample_number: int, config: GenerationConfig
    ) -> GeneratedText:
        """One generated text."""
        path = "/v1/chat/completions" if prompt.messages else "/v1/completions"
        body = self.body(
            **self.generation_fields(),
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            seed=sample_seed(config.seed, prompt, sample_number),
        )
        if config.stop:
            body["stop"] = list(config.stop)
        if prompt.messages:
            body["messages"] = [dict(message) for message in prompt.messages]
        else:
            body["prompt"] = list(prompt.ids) or prompt.text
        n_prompt = len(prompt.ids) or estimate_prompt_tokens(prompt.texts)
        try:
            answer = self.client.post(path, body, counts=TokenCounts(n_prompt, config.max_tokens))
        except ServerStatusError as error:
            # A prompt that a filter refuses is an outcome of this prompt, not a failed run.
            filtered = read_filtered(error.problem, prompt) if error.status == 400 else None
            if filtered is None:
                raise
            return filtered
        self._check_model(str(answer.get("model", "")))
        return read_generated(answer, prompt, self.client.root)

    def generation_fields(self) -> dict[str, Any]:
        """Fields that turn off the server's own defaults of sampling."""
        return {}

    def _check_model(self, name: str) -> None:
        # One run must not mix texts of two models, such as after an update behind an alias.
        self._answered_model = self._answered_model or name
        if name != self._answered_model:
            raise LevelheadError(
                f"the server answered as {self._answered_model!r} and now as {name!r}",
                hint="name a version of the model instead of an alias",
            )

    def body(self, **fields: Any) -> dict[str, Any]:
        """Body of a request, with the name of the model where one is needed."""
        return fields | ({"model": self.model} if self.model else {})

    def _read_tokens(self, answer: Mapping[str, Any]) -> TokenIds:
        tokens = answer.get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise LevelheadError(
                f"{self.client.root} does not report how it splits texts into tokens",
                hint="use a server with /tokenize, such as llama.cpp's or vLLM's",
            )
        return tuple(tokens)

    def _request_choices(
        self, prompts: Sequence[TokenIds], **fields: Any
    ) -> list[Mapping[str, Any]]:
        """Completions of one token after each prompt, in the order of the prompts."""
        body = self.body(
            prompt=[list(ids) for ids in prompts],
            # Only probabilities are used, never the sampled token.
            max_tokens=1,
            temperature=0,
            **fields,
        )
        counts = TokenCounts(sum(map(len, prompts)), len(prompts))
        answer = self.client.post("/v1/completions", body, counts=counts)
        try:
            choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
            # A missing or repeated answer would assign log-probabilities to the wrong context.
            if [int(choice["index"]) for choice in choices] != list(range(len(prompts))):
                raise ValueError("the answers do not match the requests")
        except (KeyError, TypeError, ValueError):
            raise self._unreadable() from None
        return choices

    def _unreadable(self) -> LevelheadError:
        return LevelheadError(
            f"{self.client.root} does not report log-probabilities by token",
            hint="use a server that answers `logprobs` with ids, such as llama.cpp's or vLLM's",
        )


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
        return self._read_tokens(self.client.post("/tokenize", body))

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
                choices = self._request_choices(batch, logprobs=count)
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
        except (KeyError, TypeError, ValueError):
            raise self._unreadable() from None
        # llama.cpp writes a huge negative number for a probability that underflowed to 0.
        log_probs = {
            token: require_log_prob(value)
            for token, value in log_probs.items()
            if not value <= ZERO_LOG_PROB
        }
        top = sorted(log_probs.items(), key=lambda item: -item[1])[: wanted.top_k]
        needed = {token: log_probs[token] for token in wanted.tokens if token in log_probs}
        # Only what is needed is kept: thousands of tokens for each context would fill the memory.
        return _Reported(needed, _top_tokens(top), len(log_probs))


@final
class VllmServer(Server):
    """vLLM's server: log-probabilities of a prompt's tokens."""

    kind = "vLLM"

    def generation_fields(self) -> dict[str, Any]:
        """Fields that turn off the checkpoint's generation_config.json, and request tokens."""
        return {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "return_token_ids": True}

    def tokenize(self, text: str, *, add_special: bool) -> TokenIds:
        """Tokens of a text."""
        body = self.body(prompt=text, add_special_tokens=add_special)
        return self._read_tokens(self.client.post("/tokenize", body))

    def apply_template(self, messages: list[dict[str, str]], thinking: bool | None) -> str | None:
        """Messages as a text: vLLM tokenizes them with the template."""
        body = self.body(messages=messages, add_generation_prompt=True)
        if thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": thinking}
        try:
            ids = self._read_tokens(self.client.post("/tokenize", body))
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
        batches = _split(unique, ROWS_PER_REQUEST)
        scores = self.client.map(self._score, batches, progress)
        values = dict(zip(unique, (value for part in scores for value in part), strict=True))
        top_batches = _split(list(dict.fromkeys(contexts)), ROWS_PER_REQUEST)
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

    def _score(self, rows: Sequence[ScoredRow]) -> list[float]:
        prompts = [(*row.context, *row.continuation) for row in rows]
        # 0: the prompt's tokens themselves, without likelier ones.
        choices = self._request_choices(prompts, prompt_logprobs=0)
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
        except (KeyError, TypeError, ValueError):
            raise self._unreadable() from None
        if any(value <= VLLM_ZERO_LOG_PROB for value in values):
            raise LogProbsMissingError(
                "the server reports that a token has the probability 0",
                hint="run the server in float32: the probability underflowed",
            )
        return [0.0, *map(require_log_prob, values)]

    def _top(self, contexts: Sequence[TokenIds], top_k: int) -> list[TopTokens]:
        choices = self._request_choices(contexts, logprobs=top_k, return_tokens_as_token_ids=True)
        top = []
        for choice in choices:
            try:
                (first,) = choice["logprobs"]["top_logprobs"]
                log_probs = {
                    int(name.removeprefix("token_id:")): require_log_prob(float(value))
                    for name, value in first.items()
                }
            except (KeyError, TypeError, ValueError, AttributeError):
                raise self._unreadable() from None
            best = sorted(log_probs.items(), key=lambda item: -item[1])[:top_k]
            top.append(_top_tokens(best))
        return top


@final
class ChatServer(Server):
    """A server that speaks only OpenAI's protocol: it generates, and scores nothing."""

    kind = "OpenAI"
    can_score = False

    def tokenize(self, text: str, *, add_special: bool) -> TokenIds:
        """Raise an error: the protocol has no tokens."""
        self.require_log_probs()

    def apply_template(self, messages: list[dict[str, str]], thinking: bool | None) -> str | None:
        """Raise an error: the protocol has no templates."""
        raise no_template_path(self.client.root)

    def score_rows(
        self,
        rows: Sequence[ScoredRow],
        contexts: Sequence[TokenIds],
        top_k: int,
        progress: Progress = None,
    ) -> RowScores:
        """Raise an error: the protocol has no log-probabilities of given texts."""
        self.require_log_probs()

    def report(self) -> dict[str, str]:
        """Name and owner of the model; not its time, which some servers set to now."""
        return {"model": self.model, "owned_by": str(self.entry.get("owned_by", ""))}

    def require_log_probs(self) -> NoReturn:
        """Raise an error: everything that needs log-probabilities cannot be measured."""
        raise NotMeasurableError(
            f"{self.client.root} has no /tokenize: it cannot report the log-probability of a given "
            "text, which fill, log_prob and choose need",
            hint="measure generated texts, or serve the model with llama.cpp or vLLM",
        )


def identify_server(client: ServerClient, model: str) -> Server:
    """Find out which interface a server has, from its list of models and its /tokenize.

    Args:
        client: Connection to the server.
        model: Name of the model; empty for the only one.
    """
    try:
        entries = client.get("/v1/models").get("data")
    except ServerStatusError as error:
        if error.status not in MISSING_STATUS:
            raise
        entries = None
    rows = [row for row in entries if isinstance(row, dict)] if isinstance(entries, list) else []
    matching = [row for row in rows if row.get("id") == model] if model else rows
    entry = matching[0] if len(matching) == 1 else {}
    if any(row.get("owned_by") == "vllm" for row in rows):
        name = model or str(rows[0].get("id", ""))
        return VllmServer(client, name, entry or rows[0])
    llama_cpp = LlamaCppServer(client, model, entry or (rows[0] if rows and not model else {}))
    try:
        answer = client.post("/tokenize", {"content": "The", "add_special": True})
    except ServerStatusError as error:
        if error.status not in MISSING_STATUS:
            raise
        answer = {}
    if isinstance(answer.get("tokens"), list):
        return llama_cpp
    name = model or str(entry.get("id", ""))
    if not name:
        names = ", ".join(str(row.get("id")) for row in rows[:5]) or "none listed"
        raise LevelheadError(
            f"{client.root} has several models or lists none: {names}",
            hint="name the model: HttpModel(url, model=...), or ADDRESS#MODEL in a command",
        )
    return ChatServer(client, name, entry)


def require_log_prob(value: float) -> float:
    """Return a log-probability; raises if it is none."""
    if not math.isfinite(value) or value > ROUNDING:
        raise LevelheadError(
            f"the server reports {value} as a log-probability",
            hint="check the server: a broken number is not used",
        )
    return value


def no_template_path(where: str) -> NotMeasurableError:
    """Error of a chat whose template nobody applies."""
    return NotMeasurableError(
        f"{where} does not apply the model's chat template to a text",
        hint="give style='plain', or a server with /apply-template (llama.cpp) or /tokenize of "
        "messages (vLLM)",
    )


def _split(items: Sequence[Any], size: int) -> list[Any]:
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def _top_tokens(items: Sequence[tuple[int, float]]) -> TopTokens:
    return TopTokens(tuple(token for token, _ in items), tuple(value for _, value in items))
