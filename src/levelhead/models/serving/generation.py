"""Texts that a server generates: requests, and answers with the reason why they end."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.models.generation.config import GeneratedText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.models.generation.config import FinishReason

NOT_REPORTED = -1
"""Number of tokens that a server does not report."""
_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
}


class GenerationPrompt(NamedTuple):
    """What a text continues: tokens, a text, or the messages of a chat."""

    ids: tuple[int, ...] = ()
    text: str = ""
    messages: tuple[Mapping[str, str], ...] = ()

    @property
    def texts(self) -> list[str]:
        """All texts of the prompt."""
        return [message["content"] for message in self.messages] or [self.text]


def sample_seed(seed: int, prompt: GenerationPrompt, sample_number: int) -> int:
    """Seed of one text: it depends on the prompt and its number, not on other prompts."""
    content = json.dumps([seed, prompt.ids, prompt.text, prompt.messages, sample_number])
    # 31 bits: some servers take no larger seed.
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:4], "big") >> 1


def read_generated(
    answer: Mapping[str, Any], prompt: GenerationPrompt, where: str
) -> GeneratedText:
    """Read the text of an answer with one choice; a text that is missing is data, too."""
    try:
        (choice,) = answer["choices"]
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        content, refusal = message.get("content"), message.get("refusal")
        finish = str(choice.get("finish_reason"))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise LevelheadError(
            f"{where} answers without a generated text", hint="check the address and the server"
        ) from None
    reason: FinishReason = _REASONS.get(finish, "other")
    if isinstance(refusal, str) and refusal and not content:
        content, reason = refusal, "refusal"
    elif not isinstance(content, str):
        # A thinking model that reaches its maximum length has no answer yet: still "length".
        content, reason = "", "no_text" if reason == "stop" else reason
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    ids = choice.get("token_ids")
    # `type`, not `isinstance`: for Python, a JSON `true` is an integer too.
    ids = tuple(ids) if isinstance(ids, list) and all(type(i) is int for i in ids) else ()
    return GeneratedText(
        content,
        ids,
        reason,
        len(prompt.ids) or _count(usage, "prompt_tokens"),
        None if ids else _count(usage, "completion_tokens"),
    )


def read_filtered(problem: str, prompt: GenerationPrompt) -> GeneratedText | None:
    """The text of a prompt that the server's content filter refuses with an error; None if not."""
    # An error with another reason must end the run, not become an empty text.
    if "content_filter" not in problem:
        return None
    return GeneratedText("", (), "content_filter", len(prompt.ids) or NOT_REPORTED, 0)


def _count(usage: Mapping[str, Any], name: str) -> int:
    number = usage.get(name)
    return number if type(number) is int and number >= 0 else NOT_REPORTED
