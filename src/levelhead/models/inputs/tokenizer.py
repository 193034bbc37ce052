"""From text to token rows, and from a word's characters to its tokens.

Which special tokens surround a text is a policy, stated once and recorded: a model that was trained
behind a beginning-of-sequence token scores differently without it, and nothing else would say so.
A word the tokenizer does not know is never read: all unknown words look the same, which would read
as parity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

from levelhead.core.errors import LevelheadError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Bos = Literal["auto", "always", "tokenizer"]
Span = tuple[int, int]
"""First character of a word and the one after its last."""
Text = str | tuple[str, str]
MASK = "[MASK]"
"""How a blank is written in a text, whatever the model's own mask token is."""
SENTENCEPIECE_BEGIN = ("<s>", "<bos>")


class NotReadable(LevelheadError):
    """A text that this model cannot be asked about; the other texts can."""


class TooLong(NotReadable):
    """A text has more tokens than the model has positions; nothing is cut off silently."""


class UnknownWord(NotReadable):
    """A word that is to be read has no token of its own in this model's vocabulary."""


class Row(NamedTuple):
    """One sequence of tokens as the model sees it."""

    ids: tuple[int, ...]
    types: tuple[int, ...] | None
    """Which of two sentences a token belongs to, for models that are told."""
    after: tuple[int, ...] = ()
    """Of every token the one it goes on from, -1: none; empty: its neighbour (`branches`)."""


class Encoded(NamedTuple):
    """A text, or a pair of texts, as tokens."""

    row: Row
    offsets: tuple[Span, ...]
    """The characters of each token, in its own text."""
    texts: tuple[int | None, ...]
    """Which text each token comes from (0 or 1); None for special tokens, written out or not."""

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
        says: bool | None,
        causal: bool,
        offset: int,
    ) -> Self:
        """The policy for a model; see `_beginning`. `says`: what its files say (add_bos_token)."""
        if bos not in get_args(Bos):
            raise UnknownName("policy for the beginning token (bos)", str(bos), get_args(Bos))
        if not tokenizer.is_fast:
            raise LevelheadError(
                f"{type(tokenizer).__name__} cannot say which characters a token holds",
                mend="save the tokenizer as tokenizer.json (a fast tokenizer) in the model folder",
            )
        positions = int(getattr(config, "max_position_embeddings", None) or 10**9) - offset
        return cls(
            tokenizer=tokenizer,
            bos=_beginning(tokenizer, config, bos, says) if causal else None,
            limit=min(positions, int(tokenizer.model_max_length)),
            pad=int(_first(tokenizer.pad_token_id, getattr(config, "pad_token_id", None), 0)),
            typed=int(getattr(config, "type_vocab_size", 0) or 0) > 1,
        )

    def encode(self, texts: Sequence[Text], *, blanks: int = 0) -> list[Encoded]:
        """Texts, or pairs of texts, as tokens with special tokens.

        Args:
            texts: a list of them.
            blanks: how many mask tokens each of them holds.
        """
        checked = listed(texts)
        found = self.tokenizer(
            [list(text) if isinstance(text, tuple) else text for text in checked],
            add_special_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
            return_attention_mask=False,
            truncation=False,
            padding=False,
            verbose=False,
        )
        rows = [self._encoded(encoding) for encoding in found.encodings or ()]
        for i, encoded in enumerate(rows):
            self._check(i, encoded, checked[i], blanks)
        return rows

    def _encoded(self, encoding: Any) -> Encoded:
        front = () if self.bos is None else (self.bos,)
        types = (*(0 for _ in front), *encoding.type_ids)
        # A separator written out in a text is a separator, not a word of it.
        special = set(self.tokenizer.all_special_ids) - {self.unknown}
        texts = (
            None if token in special else text
            for token, text in zip(encoding.ids, encoding.sequence_ids, strict=True)
        )
        return Encoded(
            row=Row((*front, *encoding.ids), types if self.typed else None),
            offsets=(*((0, 0) for _ in front), *encoding.offsets),
            texts=(*(None for _ in front), *texts),
        )

    def _check(self, index: int, encoded: Encoded, text: Text, blanks: int) -> None:
        parts = range(2 if isinstance(text, tuple) else 1)
        if any(part not in encoded.texts for part in parts) and not blanks:
            raise NotReadable(f"text {index} has no tokens: {text!r:.80}", mend="leave it out")
        masks = encoded.row.ids.count(_first(self.tokenizer.mask_token_id, -1))
        if masks != blanks:
            raise LevelheadError(
                f"text {index} holds {masks - blanks} mask tokens written out: {text!r:.80}",
                mend=f"only fill and fill_top read blanks; write {MASK} there, once",
            )
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
        """Positions of a word's tokens: all of them, known, and holding nothing but the word."""
        begin, end = _checked_span(span, text)
        return self.of_word(encoded, (begin, end), text)

    def of_word(self, encoded: Encoded, span: Span, text: str) -> tuple[int, ...]:
        """As `at`, for a span whose ends may be blank."""
        begin, end = span
        positions = encoded.within(span)
        if not positions:
            raise NotReadable(
                f"no token lies at characters {begin} to {end} of {text!r:.80}",
                mend="give (start, end) of a word in the text, in characters",
            )
        first, last = encoded.offsets[positions[0]][0], encoded.offsets[positions[-1]][1]
        if text[first:begin].strip() or text[end:last].strip():
            raise NotReadable(
                f"characters {begin} to {end} cut a token of {text!r:.80}: it holds "
                f"{text[first:last]!r}",
                mend="give the span of the whole word",
            )
        self.known(encoded, positions, text)
        return positions

    def known(self, encoded: Encoded, positions: Iterable[int], text: str) -> None:
        """Refuse to read tokens that stand for any word the vocabulary lacks."""
        for i in positions:
            if encoded.row.ids[i] == self.unknown:
                low, high = encoded.offsets[i]
                raise UnknownWord(
                    f"the model's vocabulary lacks {text[low:high]!r} in {text!r:.80}",
                    mend="leave the word out and count it as dropped: all unknown words look alike",
                )

    @cached_property
    def unknown(self) -> int | None:
        """The id that stands for unknown words.

        None if there is none: byte-level tokenizers know all words, and name some other special
        token where one is asked for.
        """
        tokenizer = self.tokenizer
        others = {
            getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "sep", "cls", "pad")
        }
        unknown = tokenizer.unk_token_id
        return None if unknown is None or unknown in others else int(unknown)

    @property
    def mask(self) -> int:
        """The id of the mask token."""
        mask = self.tokenizer.mask_token_id
        if mask is None:
            raise LevelheadError(
                "the tokenizer has no mask token", mend="use a masked language model for this"
            )
        return int(mask)


def listed(texts: Sequence[Text]) -> list[Text]:
    """A list of texts, or of pairs of texts, and nothing else: a text is a sequence too."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise LevelheadError(
            f"one text where a list of texts is wanted: {texts!r:.60}", mend="write [text]"
        )
    if not texts:
        raise LevelheadError("there is no text to read", mend="give at least one text")
    for text in texts:
        pair = isinstance(text, list | tuple) and len(text) == 2
        if not (isinstance(text, str) or (pair and all(isinstance(part, str) for part in text))):
            raise LevelheadError(
                f"{text!r:.60} is neither a text nor a pair of texts", mend="give strings"
            )
    return [text if isinstance(text, str) else (text[0], text[1]) for text in texts]


def _checked_span(span: Span, text: str) -> Span:
    try:
        begin, end = span
        fits = 0 <= begin < end <= len(text)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise LevelheadError(
            f"{span!r} is no span of the {len(text)} characters of {text!r:.60}",
            mend="give (start, end) of a word, in characters; log_prob takes a list of them a text",
        )
    return begin, end


def _beginning(
    tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig, bos: Bos, says: bool | None
) -> int | None:
    """The token to put first, or None.

    A tokenizer that puts one itself is left alone. Otherwise `auto` puts one where the tokenizer's
    files say so (add_bos_token), or where it is SentencePiece's <s> or <bos>: these models are
    trained behind it, and saved tokenizers exist that lost it. Other models (Qwen, SmolLM) name a
    beginning token they were not trained with.
    """
    known = _first(tokenizer.bos_token_id, getattr(config, "bos_token_id", None))
    probe = tokenizer("a", add_special_tokens=True, verbose=False).encodings
    puts = bool(probe and probe[0].special_tokens_mask[:1] == [1])
    if puts or bos == "tokenizer":
        return None
    if known is None:
        if bos == "always":
            raise LevelheadError(
                "the model has no beginning-of-sequence token", mend="load it with bos='auto'"
            )
        return None
    lost = tokenizer.convert_ids_to_tokens(int(known)) in SENTENCEPIECE_BEGIN
    wanted = bos == "always" or says is True or (says is None and lost)
    return int(known) if wanted else None


def _first(*values: Any) -> Any:
    """The first that is not None."""
    return next((value for value in values if value is not None), None)
