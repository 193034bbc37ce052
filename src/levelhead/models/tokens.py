"""From text to token rows, and from a word's characters to its tokens.

Which special tokens surround a text is a policy, stated once and recorded: a model that was trained
behind a beginning-of-sequence token scores badly without it, and nothing else would say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Bos = Literal["auto", "always", "tokenizer"]
Span = tuple[int, int]
"""First character of a word and the one after its last."""
MASK = "[MASK]"
"""How a blank is written in a text, whatever the model's own mask token is."""


class TooLong(LevelheadError):
    """A text has more tokens than the model has positions; nothing is cut off silently."""


class Row(NamedTuple):
    """One sequence of tokens as the model sees it."""

    ids: tuple[int, ...]
    types: tuple[int, ...] | None
    """Which of two sentences a token belongs to, for models that are told."""


class Encoded(NamedTuple):
    """A text, or a pair of texts, as tokens."""

    row: Row
    offsets: tuple[Span, ...]
    """The characters of each token, in its own text."""
    texts: tuple[int | None, ...]
    """Which text each token comes from (0 or 1); None for special tokens."""

    def words(self) -> tuple[int, ...]:
        """Positions of all tokens that are not special."""
        return tuple(i for i, text in enumerate(self.texts) if text is not None)

    def within(self, span: Span, text: int = 0) -> tuple[int, ...]:
        """Positions of the tokens that hold a character of a span."""
        begin, end = span
        return tuple(
            i
            for i, (low, high) in enumerate(self.offsets)
            if self.texts[i] == text and low < end and high > begin
        )


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenizer with its special-token policy."""

    tokenizer: PreTrainedTokenizerBase
    bos: int | None
    """Put before every text, because the tokenizer does not; None if nothing is put."""
    limit: int
    """The most tokens a row may have."""
    pad: int
    typed: bool
    """Whether the model is told which of two sentences a token belongs to."""

    @classmethod
    def of(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        config: PretrainedConfig,
        *,
        bos: Bos,
        offset: int,
    ) -> Self:
        """The policy for a model: `auto` adds a BOS where Llama's tokenizer lost its own.

        A Llama tokenizer is made to put <s> first, and models trained with it need it, but saved
        copies exist that do not. Other tokenizers are believed.
        """
        if not tokenizer.is_fast:
            raise LevelheadError(
                f"{type(tokenizer).__name__} cannot say which characters a token holds",
                mend="save the tokenizer as tokenizer.json (a fast tokenizer) in the model folder",
            )
        adds = _adds_special(tokenizer)
        known = _first(tokenizer.bos_token_id, getattr(config, "bos_token_id", None))
        llama = "Llama" in type(tokenizer).__name__
        wanted = not adds and (bos == "always" or (bos == "auto" and llama))
        if bos == "always" and not adds and known is None:
            raise LevelheadError(
                "the model has no beginning-of-sequence token", mend="load it with bos='auto'"
            )
        positions = int(getattr(config, "max_position_embeddings", None) or 10**9) - offset
        return cls(
            tokenizer=tokenizer,
            bos=known if wanted else None,
            limit=min(positions, int(tokenizer.model_max_length)),
            pad=int(_first(tokenizer.pad_token_id, getattr(config, "pad_token_id", None), 0)),
            typed=int(getattr(config, "type_vocab_size", 0) or 0) > 1,
        )

    def encode(self, texts: Sequence[str | tuple[str, str]]) -> list[Encoded]:
        """Texts, or pairs of texts, as tokens with special tokens."""
        if not texts:
            raise LevelheadError("there is no text to read", mend="give at least one text")
        found = self.tokenizer(
            [list(text) if isinstance(text, tuple) else text for text in texts],
            add_special_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
            return_attention_mask=False,
            truncation=False,
            verbose=False,
        )
        encodings = found.encodings
        if encodings is None:
            raise LevelheadError(
                "the tokenizer returned no offsets", mend="use a fast tokenizer (tokenizer.json)"
            )
        rows = [self._encoded(encoding) for encoding in encodings]
        for i, encoded in enumerate(rows):
            self._check(i, encoded, texts[i])
        return rows

    def _encoded(self, encoding: object) -> Encoded:
        front = () if self.bos is None else (self.bos,)
        types = (*(0 for _ in front), *encoding.type_ids)  # type: ignore[attr-defined]
        return Encoded(
            row=Row((*front, *encoding.ids), types if self.typed else None),  # type: ignore[attr-defined]
            offsets=(*((0, 0) for _ in front), *encoding.offsets),  # type: ignore[attr-defined]
            texts=(*(None for _ in front), *encoding.sequence_ids),  # type: ignore[attr-defined]
        )

    def _check(self, index: int, encoded: Encoded, text: object) -> None:
        if not any(part is not None for part in encoded.texts):
            raise LevelheadError(f"text {index} has no tokens: {text!r}", mend="leave it out")
        if self.typed and 1 in encoded.texts and 1 not in (encoded.row.types or ()):
            raise LevelheadError(
                "the tokenizer does not tell the model which of two texts a token belongs to",
                mend="save the tokenizer with a template for pairs ([SEP] $B:1 [SEP]:1)",
            )
        if len(encoded.row.ids) > self.limit:
            raise TooLong(
                f"text {index} has {len(encoded.row.ids)} tokens, the model reads {self.limit}",
                mend="shorten or split it, or leave it out and count it as dropped",
            )

    def at(self, encoded: Encoded, span: Span, text: str) -> tuple[int, ...]:
        """Positions of a word's tokens, all of them; an error if the span holds none."""
        positions = encoded.within(span)
        if not positions:
            raise LevelheadError(
                f"no token lies at characters {span[0]} to {span[1]} of {text!r:.80}",
                mend="give (start, end) of a word in the text, in characters",
            )
        return positions

    @property
    def mask(self) -> int:
        """The id of the mask token."""
        mask = self.tokenizer.mask_token_id
        if mask is None:
            raise LevelheadError(
                "the tokenizer has no mask token", mend="use a masked language model for this"
            )
        return int(mask)


def _first(*values: Any) -> Any:
    """The first that is not None."""
    return next((value for value in values if value is not None), None)


def _adds_special(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a plain text comes back with a special token before it."""
    ids = tokenizer("a", add_special_tokens=True, verbose=False).input_ids
    return bool(ids) and ids[0] in tokenizer.all_special_ids
