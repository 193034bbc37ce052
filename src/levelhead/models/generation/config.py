"""Settings of generated texts, and the texts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, final, get_args

from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict

if TYPE_CHECKING:
    from collections.abc import Mapping

FinishReason = Literal["length", "stop", "content_filter", "refusal", "no_text", "other"]
"""Why a text ends: maximum length; its end; a server's filter; a server's refusal; an answer
without a text; anything else that a server reports. The order is that of stored answers."""
FINISH_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)


@final
@dataclass(frozen=True)
class GenerationConfig:
    """Settings of generated texts. Those of the checkpoint (generation_config.json) are ignored.

    Only the tokens that end a text are the checkpoint's: a chat model ends a turn with them.
    """

    max_tokens: int = 64
    """Maximum number of generated tokens; fewer if the model ends the text."""
    temperature: float = 1.0
    """1 samples from the model's own probabilities; 0 takes the likeliest token (greedy)."""
    top_p: float = 1.0
    """Sample only from the likeliest tokens that together have this probability."""
    seed: int = 0
    stop: tuple[str, ...] = ()
    """Texts that end the generated text, and are no part of it."""

    def __post_init__(self) -> None:
        if (
            self.max_tokens < 1
            or not self.temperature >= 0
            or not 0 < self.top_p <= 1
            or self.seed < 0
            # A bare string is a sequence too: each of its letters would end a text.
            or type(self.stop) is not tuple
            or not all(self.stop)
        ):
            raise LevelheadError(
                f"no text can be generated with {self}",
                hint="give at least 1 token, a temperature of at least 0, a top_p above 0 and at "
                "most 1, and a tuple of texts to stop at",
            )

    @property
    def settings(self) -> FrozenDict:
        """All settings as plain JSON, for the hash of a query."""
        return FrozenDict(asdict(self) | {"stop": list(self.stop)})

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The config with some settings, such as those of a stored query; others are ignored."""
        names = ("max_tokens", "temperature", "top_p", "seed")
        return cls(**{name: settings[name] for name in names}, stop=tuple(settings["stop"]))


class GeneratedText(NamedTuple):
    """One generated text."""

    text: str
    """Text after the prompt, without special tokens."""
    ids: tuple[int, ...]
    """Generated tokens, with the one that ends the text."""
    finish_reason: FinishReason
    """Why it ends: the model, or a text to stop at, ended it; or it has the maximum length."""
    prompt_tokens: int
    """Number of tokens of the prompt; -1 if a server does not report it."""
    reported_tokens: int | None = None
    """Number of generated tokens, as a server reports it that gives no `ids`; -1 if it does not."""

    @property
    def n_tokens(self) -> int:
        """Number of generated tokens; -1 if it is unknown."""
        return len(self.ids) if self.reported_tokens is None else self.reported_tokens

    @property
    def has_ended(self) -> bool:
        """Whether the text ended before its maximum length."""
        return self.finish_reason == "stop"


def check_sample_count(n: int, config: GenerationConfig) -> None:
    """Raise an error for a number of texts that a prompt cannot have."""
    # Equal texts would count as independent samples.
    if n < 1 or (n > 1 and not config.temperature):
        raise LevelheadError(
            f"{n} texts of each prompt at temperature {config.temperature:g}",
            hint="give n of at least 1; at temperature 0 all texts would be equal",
        )
