"""What servers of all kinds share: their completions, and the checks of what they answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.models.serving.budget import TokenCounts, estimate_prompt_tokens
from levelhead.models.serving.client import ServerStatusError
from levelhead.models.serving.generation import read_filtered, read_generated, sample_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.models.generation.config import GeneratedText, GenerationConfig
    from levelhead.models.serving.client import ServerClient
    from levelhead.models.serving.generation import GenerationPrompt
    from levelhead.models.serving.served_model import RowScores, ScoredRow, TokenIds

    Progress = Callable[[int, int], None] | None

MISSING_STATUS = (404, 405, 501)
"""HTTP errors of a server that has no such path."""


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
            # Tokens where they are known: the server would put its begin token before a text.
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

    def read_tokens(self, answer: Mapping[str, Any]) -> TokenIds:
        """Tokens of an answer of /tokenize."""
        tokens = answer.get("tokens")
        # `type`, not `isinstance`: for Python, a JSON `true` is an integer too.
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise LevelheadError(
                f"{self.client.root} does not report how it splits texts into tokens",
                hint="use a server with /tokenize, such as llama.cpp's or vLLM's",
            )
        return tuple(tokens)

    def request_choices(
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
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self.unreadable_error() from None
        return choices

    def unreadable_error(self) -> LevelheadError:
        """Error of an answer without the log-probabilities that were requested."""
        return LevelheadError(
            f"{self.client.root} does not report log-probabilities by token",
            hint="use a server that answers `logprobs` with ids, such as llama.cpp's or vLLM's",
        )


def no_template_path(where: str) -> NotMeasurableError:
    """Error of a chat whose template nobody applies."""
    return NotMeasurableError(
        f"{where} does not apply the model's chat template to a text",
        hint="give style='plain', or a server with /apply-template (llama.cpp) or /tokenize of "
        "messages (vLLM)",
    )
