"""Convert texts to token rows, and the characters of a word to its tokens.

The special tokens around a text follow one policy, which is recorded: a model that was trained with
a beginning-of-sequence token gives other scores without it, with no other sign of the error. A word
that the tokenizer does not know is never read: all unknown words give the same result, which would
look like parity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

from levelhead.core.errors import LevelheadError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Bos = Literal["auto", "always", "tokenizer"]
Span = tuple[int, int]
"""Index of a word's first character, and of the character after its last."""
Text = str | tuple[str, str]
MASK = "[MASK]"
"""How a blank is written in a text, independent of the model's mask token."""
# Models with these beginning tokens are trained with one at the start of every text.
SENTENCEPIECE_BEGIN = ("<s>", "<bos>")


class UnreadableTextError(LevelheadError):
    """A text that this model cannot process; other texts are not affected."""


class TextTooLongError(UnreadableTextError):
    """A text has more tokens than the model has positions; texts are never truncated silently."""


class UnknownWordError(UnreadableTextError):
    """A word that is to be read is not in this model's vocabulary."""


class TokenRow(NamedTuple):
    """One sequence of tokens as the model sees it."""

    ids: tuple[int, ...]
    token_types: tuple[int, ...] | None
    """Which of two sentences each token belongs to, for models with such an input."""
    parents: tuple[int, ...] = ()
    """Predecessor of each token, -1 for none; empty: each token follows the one before it
    (`ModelFamily.supports_token_tree`)."""


class EncodedText(NamedTuple):
    """Tokens of a text, or of a pair of texts."""

    row: TokenRow
    offsets: tuple[Span, ...]
    """The characters of each token, in the text that it belongs to."""
    text_indices: tuple[int | None, ...]
    """Which text each token belongs to (0 or 1); None for special tokens, written out or not."""

    def word_positions(self) -> tuple[int, ...]:
        """Return the positions of all tokens that are not special."""
        return tuple(i for i, text in enumerate(self.text_indices) if text is not None)

    def positions_in_span(self, span: Span, text: int = 0) -> tuple[int, ...]:
        """Return the positions of the tokens that contain a character of a span."""
        begin, end = span
        return tuple(
            i
            for i, (low, high) in enumerate(self.offsets)
            if self.text_indices[i] == text and low < end and high > begin
        )


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenizer and the policy for special tokens."""

    tokenizer: PreTrainedTokenizerBase
    bos: int | None
    """Token added before every text, because the tokenizer does not add it; None: no token."""
    max_length: int
    """Maximum number of tokens of a row."""
    pad: int
    has_token_types: bool
    """Whether the model has an input for which of two sentences a token belongs to."""

    @classmethod
    def from_config(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        config: PretrainedConfig,
        *,
        bos: Bos,
        add_bos_token: bool | None,
        causal: bool,
        offset: int,
    ) -> Self:
        """Create the policy for a model.

        Args:
            tokenizer: The model's tokenizer.
            config: The model's config.
            bos: Whether to add a beginning token; see `_choose_bos`.
            add_bos_token: Setting of that name in the tokenizer's files.
            causal: Whether the model is causal; others get no beginning token from levelhead.
            offset: Number of position embeddings that no token uses.
        """
        if bos not in get_args(Bos):
            raise UnknownNameError("policy for the beginning token (bos)", str(bos), get_args(Bos))
        if not tokenizer.is_fast:
            raise LevelheadError(
                f"{type(tokenizer).__name__} cannot report which characters a token contains",
                hint="save the tokenizer as tokenizer.json (a fast tokenizer) in the model folder",
            )
        # Models with relative positions have no limit in their config.
        positions = int(getattr(config, "max_position_embeddings", None) or 10**9) - offset
        return cls(
            tokenizer=tokenizer,
            bos=_choose_bos(tokenizer, config, bos, add_bos_token) if causal else None,
            # Tokenizers without a limit report a huge number, so the minimum is the model's.
            max_length=min(positions, int(tokenizer.model_max_length)),
            # Padding is masked: if no pad token is known, any id will do.
            pad=int(
                _first_not_none(tokenizer.pad_token_id, getattr(config, "pad_token_id", None), 0)
            ),
            has_token_types=int(getattr(config, "type_vocab_size", 0) or 0) > 1,
        )

    def encode(self, texts: Sequence[Text], *, blanks: int = 0) -> list[EncodedText]:
        """Convert texts, or pairs of texts, to tokens with special tokens.

        Args:
            texts: Texts, or pairs of texts.
            blanks: Number of mask tokens that each text must contain.
        """
        valid_texts = validate_texts(texts)
        encodings = self.tokenizer(
            [list(text) if isinstance(text, tuple) else text for text in valid_texts],
            add_special_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
            return_attention_mask=False,
            # A truncated text would silently be another text; its length is checked below.
            truncation=False,
            padding=False,
            # The warning about long texts is an error below.
            verbose=False,
        )
        rows = [self._make_encoded_text(encoding) for encoding in encodings.encodings or ()]
        for i, encoded in enumerate(rows):
            self._check_encoded_text(i, encoded, valid_texts[i], blanks)
        return rows

    def _make_encoded_text(self, encoding: Any) -> EncodedText:
        front = () if self.bos is None else (self.bos,)
        types = (*(0 for _ in front), *encoding.type_ids)
        # A separator that is written out in a text is a special token, not a word. Unknown words
        # are words: `require_known` must see them.
        special = set(self.tokenizer.all_special_ids) - {self.unknown}
        text_indices = (
            None if token in special else text
            for token, text in zip(encoding.ids, encoding.sequence_ids, strict=True)
        )
        return EncodedText(
            row=TokenRow((*front, *encoding.ids), types if self.has_token_types else None),
            offsets=(*((0, 0) for _ in front), *encoding.offsets),
            text_indices=(*(None for _ in front), *text_indices),
        )

    def _check_encoded_text(
        self, index: int, encoded: EncodedText, text: Text, blanks: int
    ) -> None:
        text_range = range(2 if isinstance(text, tuple) else 1)
        if (
            any(index_in_pair not in encoded.text_indices for index_in_pair in text_range)
            and not blanks
        ):
            raise UnreadableTextError(
                f"text {index} has no tokens: {text!r:.80}", hint="leave it out"
            )
        # No token has the id -1: without a mask token none can be written out.
        masks = encoded.row.ids.count(_first_not_none(self.tokenizer.mask_token_id, -1))
        # A mask token inside a text would be read as a word by everything but fill.
        if masks != blanks:
            raise LevelheadError(
                f"text {index} contains {masks - blanks} mask tokens written out: {text!r:.80}",
                hint=f"use fill or fill_top to read a blank, and write it once, as {MASK}",
            )
        if (
            self.has_token_types
            and 1 in encoded.text_indices
            and 1 not in (encoded.row.token_types or ())
        ):
            raise LevelheadError(
                "the tokenizer does not mark which of two texts a token belongs to",
                hint="save the tokenizer with a template for pairs ([SEP] $B:1 [SEP]:1)",
            )
        if len(encoded.row.ids) > self.max_length:
            raise TextTooLongError(
                f"text {index} has {len(encoded.row.ids)} tokens, but the model accepts at most "
                f"{self.max_length}",
                hint="shorten or split it, or leave it out and count it as dropped",
            )

    def positions_of_word(self, encoded: EncodedText, span: Span, text: str) -> tuple[int, ...]:
        """Return the positions of a word's tokens.

        Raises if a token is unknown, or contains more than the word.

        Args:
            encoded: Tokens of the text.
            span: First character of the word and the one after its last.
            text: The text.
        """
        begin, end = _validate_span(span, text)
        return self.positions_of_span(encoded, (begin, end), text)

    def positions_of_span(self, encoded: EncodedText, span: Span, text: str) -> tuple[int, ...]:
        """Return the positions of a span's tokens; the span may start or end with spaces."""
        begin, end = span
        positions = encoded.positions_in_span(span)
        if not positions:
            raise UnreadableTextError(
                f"there is no token at characters {begin} to {end} of {text!r:.80}",
                hint="give (start, end) of a word in the text, in characters",
            )
        # Spaces at the ends are allowed: many tokenizers make them a part of the word's token.
        first, last = encoded.offsets[positions[0]][0], encoded.offsets[positions[-1]][1]
        if text[first:begin].strip() or text[end:last].strip():
            raise UnreadableTextError(
                f"characters {begin} to {end} split a token of {text!r:.80}: it contains "
                f"{text[first:last]!r}",
                hint="give the span of the complete word",
            )
        self.require_known(encoded, positions, text)
        return positions

    def require_known(self, encoded: EncodedText, positions: Iterable[int], text: str) -> None:
        """Raise if a token at one of the positions is the unknown token."""
        for i in positions:
            if encoded.row.ids[i] == self.unknown:
                low, high = encoded.offsets[i]
                raise UnknownWordError(
                    f"the model's vocabulary lacks {text[low:high]!r} in {text!r:.80}",
                    hint="leave the word out and count it as dropped: all unknown words give the "
                    "same result",
                )

    @cached_property
    def unknown(self) -> int | None:
        """Id of the unknown token; None if there is none.

        Byte-level tokenizers know all words, and may return another special token as the unknown
        token.
        """
        tokenizer = self.tokenizer
        other_special_ids = {
            getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "sep", "cls", "pad")
        }
        unknown = tokenizer.unk_token_id
        return None if unknown is None or unknown in other_special_ids else int(unknown)

    @property
    def mask(self) -> int:
        """Id of the mask token."""
        mask = self.tokenizer.mask_token_id
        if mask is None:
            raise LevelheadError(
                "the tokenizer has no mask token", hint="use a masked language model for this"
            )
        return int(mask)


def validate_texts(texts: Sequence[Text]) -> list[Text]:
    """Return texts, or pairs of texts, as a list; raise if it is anything else."""
    # A string is a sequence too: each of its characters would pass as a text.
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise LevelheadError(
            f"a single text is given instead of a list: {texts!r:.60}", hint="write [text]"
        )
    if not texts:
        raise LevelheadError("the list of texts is empty", hint="give at least one text")
    for text in texts:
        pair = isinstance(text, list | tuple) and len(text) == 2
        if not (isinstance(text, str) or (pair and all(isinstance(part, str) for part in text))):
            raise LevelheadError(
                f"{text!r:.60} is neither a text nor a pair of texts", hint="give strings"
            )
    return [text if isinstance(text, str) else (text[0], text[1]) for text in texts]


def _validate_span(span: Span, text: str) -> Span:
    try:
        begin, end = span
        fits = 0 <= begin < end <= len(text)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise LevelheadError(
            f"{span!r} is not a span of the {len(text)} characters of {text!r:.60}",
            hint="give (start, end) of a word, in characters; log_prob takes a list for each text",
        )
    return begin, end


def _choose_bos(
    tokenizer: PreTrainedTokenizerBase,
    config: PretrainedConfig,
    bos: Bos,
    add_bos_token: bool | None,
) -> int | None:
    """Choose the token to add before every text, or None.

    If the tokenizer adds one itself, none is added. Otherwise `auto` adds one if the tokenizer's
    files request it (add_bos_token), or if it is SentencePiece's <s> or <bos>: these models were
    trained with it, and some saved tokenizers lost it. Other models (Qwen, SmolLM) name a beginning
    token that they were not trained with.
    """
    bos_id = _first_not_none(tokenizer.bos_token_id, getattr(config, "bos_token_id", None))
    # Tested on a text: settings do not show what a tokenizer's template really adds.
    probe = tokenizer("a", add_special_tokens=True, verbose=False).encodings
    adds_bos = bool(probe and probe[0].special_tokens_mask[:1] == [1])
    if adds_bos or bos == "tokenizer":
        return None
    if bos_id is None:
        if bos == "always":
            raise LevelheadError(
                "the model has no beginning-of-sequence token", hint="load it with bos='auto'"
            )
        return None
    is_sentencepiece = tokenizer.convert_ids_to_tokens(int(bos_id)) in SENTENCEPIECE_BEGIN
    should_add = (
        bos == "always" or add_bos_token is True or (add_bos_token is None and is_sentencepiece)
    )
    return int(bos_id) if should_add else None


def _first_not_none(*values: Any) -> Any:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)
