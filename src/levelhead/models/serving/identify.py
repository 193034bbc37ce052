"""The interface of a server: llama.cpp's, vLLM's, or OpenAI's protocol only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

from levelhead.core.errors import LevelheadError
from levelhead.models.serving.client import ServerStatusError
from levelhead.models.serving.llama_cpp import LlamaCppServer
from levelhead.models.serving.served_model import NoLogProbsError
from levelhead.models.serving.server import (
    MISSING_STATUS,
    Server,
    no_template_path,
)
from levelhead.models.serving.vllm_server import VllmServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.serving.client import ServerClient
    from levelhead.models.serving.served_model import RowScores, ScoredRow, TokenIds
    from levelhead.models.serving.server import Progress


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
        raise NoLogProbsError(
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
        # Without a list of models, /tokenize below decides.
        entries = None
    rows = [row for row in entries if isinstance(row, dict)] if isinstance(entries, list) else []
    matching = [row for row in rows if row.get("id") == model] if model else rows
    entry = matching[0] if len(matching) == 1 else {}
    # By its name first: vLLM has a /tokenize as well, with other fields.
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
