"""Chat format: how a request becomes the text that a model continues with its answer.

System prompt, thinking and examples are explicit settings, because each of them changes what a chat
model decides; they are part of the hash of every query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self, final, get_args

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.frozen import FrozenDict
from levelhead.models.inputs.chat_template import render_chat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.models.inputs.tokenizer import Tokens

ChatStyle = Literal["auto", "chat", "plain"]


@final
@dataclass(frozen=True)
class ChatFormat:
    """Settings of the text around a request."""

    style: ChatStyle = "auto"
    """"chat" uses the template of the model's tokenizer, "plain" the bare text; "auto" is chat for
    a model with a template."""
    system: str = ""
    """System prompt; empty: the template's own, if it has one."""
    thinking: bool | None = None
    """Whether a template with such a switch lets the model think first; None: its default."""
    examples: tuple[tuple[str, str], ...] = ()
    """Requests with their answers that precede the request (few-shot)."""

    def __post_init__(self) -> None:
        require_option("style", self.style, get_args(ChatStyle))

    @property
    def settings(self) -> FrozenDict:
        """All settings as plain JSON, for the hash of a query."""
        return FrozenDict(
            {
                "style": self.style,
                "system": self.system,
                "thinking": self.thinking,
                "examples": [list(example) for example in self.examples],
            }
        )

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The format with some settings, such as those of a stored query."""
        examples = tuple((str(asked), str(answer)) for asked, answer in settings["examples"])
        return cls(settings["style"], settings["system"], settings["thinking"], examples)

    def after_system(self, system: str) -> ChatFormat:
        """This format with a model's own system prompt, before that of the format if it has one.

        Args:
            system: System prompt of a model; empty: none.
        """
        if not system:
            return self
        return replace(self, system="\n\n".join(filter(None, (system, self.system))))

    def messages(self, request: str) -> list[dict[str, str]]:
        """The request as messages with roles, after the system prompt and the examples."""
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for example_request, answer in self.examples:
            messages += [
                {"role": "user", "content": example_request},
                {"role": "assistant", "content": answer},
            ]
        return [*messages, {"role": "user", "content": request}]

    def style_for(self, tokens: Tokens) -> ChatStyle:
        """The style for a tokenizer: "chat" or "plain".

        Raises:
            NotMeasurableError: a chat is wanted, and the tokenizer has no template.
        """
        has_template = bool(tokens.tokenizer.chat_template)
        if self.style == "chat" and not has_template:
            raise NotMeasurableError(
                "the tokenizer has no chat template",
                hint="give style='plain', or use a chat model",
            )
        if self.style != "auto":
            return self.style
        return "chat" if has_template else "plain"

    def format_plain(self, request: str, answer_start: str = "") -> str:
        """Format a request without a template: system prompt, examples and request as paragraphs.

        Args:
            request: What the user writes.
            answer_start: Beginning of the answer; the model continues it.
        """
        turns = [" ".join(example) for example in self.examples]
        text = "\n\n".join([*([self.system] if self.system else []), *turns, request])
        return f"{text}\n{answer_start}" if answer_start else text

    def format_request(self, tokens: Tokens, request: str, answer_start: str = "") -> str:
        """Format a request as the text that the model continues.

        Args:
            tokens: Tokenizer, with its template.
            request: What the user writes.
            answer_start: Beginning of the answer, such as "Answer:"; the model continues it.
        """
        if self.style_for(tokens) == "plain":
            return self.format_plain(request, answer_start)
        # Templates that know no such switch ignore the argument.
        switch: dict[str, Any] = {} if self.thinking is None else {"enable_thinking": self.thinking}
        formatted = render_chat(tokens.tokenizer, self.messages(request), **switch)
        self._require_system_prompt(tokens, request, formatted, switch)
        return f"{remove_double_begin(tokens, formatted)}{answer_start}"

    def _require_system_prompt(
        self, tokens: Tokens, request: str, formatted: str, switch: Mapping[str, Any]
    ) -> None:
        """Raise an error if the template drops the system prompt: nothing would show it."""
        if not self.system or self.system.strip() in formatted:
            return
        messages = replace(self, system="").messages(request)
        if render_chat(tokens.tokenizer, messages, **switch) == formatted:
            raise LevelheadError(
                "the model's chat template drops the system prompt",
                hint="leave the system prompt out, or write it into the request",
            )


def remove_double_begin(tokens: Tokens, text: str) -> str:
    """Remove the template's begin token if the tokenizer adds one to every text."""
    begin = str(tokens.tokenizer.bos_token or "")
    (sample,) = tokens.encode(["a"])
    adds_begin = sample.row.ids[0] == tokens.tokenizer.bos_token_id
    return text.removeprefix(begin) if adds_begin and begin else text
