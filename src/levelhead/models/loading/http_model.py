"""A model behind HTTP: an OpenAI-compatible completions endpoint that tells log-probabilities.

Two verbs can be had of it, `fill` and `log_prob`; nothing inside it can be read or edited, and
whatever else is asked is refused. Nothing is guessed: a token that the server does not report has
no probability, not a small one.

The server must also tell how it cuts texts into tokens (`/tokenize`), as llama.cpp's does.
"""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, final
from urllib.parse import urlsplit

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import Frozen
from levelhead.models.inputs.batching import Batching
from levelhead.models.inputs.tokenizer import MASK, NotReadable
from levelhead.models.lm import Scores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from levelhead.core.files import Url
    from levelhead.models.edits.base import Edit

FEW, ALL = (4000, 16), (1 << 20, 1)
"""How many of the likeliest tokens are asked for, and of how many texts in one request: few at
first, since all of a vocabulary are megabytes."""
NOTHING = -1e30
Ids = tuple[int, ...]
LOCAL = ("127.0.0.1", "localhost", "::1")
KEPT = 10_000
"""Texts whose tokens are remembered."""


class _Stays(urllib.request.HTTPRedirectHandler):
    """Follows nobody elsewhere: the key would go along."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        """No."""


OPENER = urllib.request.build_opener(_Stays)


class NotOverHttp(LevelheadError):
    """A verb that needs the model itself."""


class NotReported(LevelheadError):
    """A probability that the server does not tell.

    No reason to drop a text: which tokens a server leaves out depends on how likely they are.
    """


class Named(NamedTuple):
    """Which model a server runs, by its own word."""

    name: str
    revision: str | None = None


@final
@dataclass(frozen=True)
class Remote:
    """A causal model that a server runs."""

    url: str
    """Of the server, such as http://127.0.0.1:8080: completions lie at /v1/completions."""
    model: str = ""
    """Which model, where a server has several."""
    key: str | None = None
    """Sent as a bearer token, never stored or shown."""
    timeout: float = 120.0

    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LevelheadError(
                f"{self.url!r} is no address of a server",
                mend="give one such as http://127.0.0.1:8080",
            )
        if self.key and parts.scheme == "http" and parts.hostname not in LOCAL:
            raise LevelheadError(
                "a key would be sent unencrypted", mend="use https, or a server on this machine"
            )
        if self.edits:
            raise NotOverHttp(
                "a model behind HTTP cannot be edited", mend="load its weights with `load`"
            )

    def __repr__(self) -> str:
        return f"Remote({self.url!r}, {self.model!r})"

    @property
    def heads(self) -> frozenset[str]:
        """What it can answer."""
        return frozenset({"causal"})

    @property
    def is_causal(self) -> bool:
        """It goes on from what stands before."""
        return True

    @cached_property
    def told(self) -> Frozen:
        """What the server says of itself: its model's name and size, its build, its specials."""
        answer = self._completed([self._cut("The")], 1)
        names = ("model", "system_fingerprint")
        try:
            (meta,) = (one.get("meta") for one in self._asked("/v1/models")["data"][:1])
        except (LevelheadError, KeyError, TypeError, ValueError, AttributeError):
            meta = None  # not every server tells
        return Frozen(
            {name: str(answer.get(name, "")) for name in names}
            | {"meta": json.dumps(meta, sort_keys=True), "begins": self._begins}
        )

    @cached_property
    def memory(self) -> str:
        """Where what was said is kept until the process ends, of this server by this object."""
        return f"memory://levelhead-{secrets.token_hex(8)}"

    def keeps(self, store: Url | None) -> Url:
        """Where readouts go: where the caller says, else into memory."""
        return self.memory if store is None else store

    @cached_property
    def _begins(self) -> tuple[int, ...]:
        """What the server puts before every text; an error if it puts something behind it."""
        around, text = self._cut(""), self._cut("The")
        if text[: len(around)] != around:
            raise LevelheadError(
                f"{self.url} puts tokens behind every text, which would be scored",
                mend="start the server without an end token (add_eos_token)",
            )
        return tuple(around)

    @property
    def settings(self) -> Frozen:
        """For provenance: the server's own word is all there is."""
        return Frozen({"server": self.url, "causal": self.is_causal, **self.told})

    @property
    def content_hash(self) -> str:
        """Of what the server says of itself; it may change its weights without a word."""
        return content_hash({"server": self.url, "model": self.model, "told": dict(self.told)})

    @property
    def identity(self) -> Named:
        """What it is called."""
        return Named(self.model or str(self.told["model"]) or self.url)

    @cached_property
    def batching(self) -> Batching:
        """A text at a time: what a server does with several is its own business."""
        return Batching(1)

    def pieces(self, word: str) -> tuple[int, ...]:
        """The tokens of a word inside a sentence; none if they are not cut off from it."""
        try:
            return self._of_word("The ", word, tuple(self._cut("The")))
        except NotReadable:
            return ()

    def fill(self, texts: Sequence[str], words: Sequence[str], *, best: int = 0) -> torch.Tensor:
        """`[texts, words + 2 best]` log-probabilities of words at the [MASK] that ends each text.

        Args:
            texts: each ends with its blank.
            words: what may stand there.
            best: of how many of the likeliest tokens the ids and log-probabilities follow.
        """
        if isinstance(texts, str) or isinstance(words, str) or not words:
            raise LevelheadError("no list of texts and words", mend="give both in lists")
        cut = [self.cut(str(text), words) for text in texts]
        # Ids need more digits than float32 has for large vocabularies.
        return torch.tensor([self._filled(*one, best) for one in cut], dtype=torch.float64)

    def log_prob(self, texts: Sequence[str]) -> Scores:
        """Log-probability of each text, all tokens but the first, and of how many it is the sum."""
        values, counts = [], []
        for text in texts:
            ids = self.whole(str(text))
            asked = {tuple(ids[:i]): {ids[i]} for i in range(1, len(ids))}
            found = self._next(asked)
            values.append(sum(found[before][token] for before, (token,) in asked.items()))
            counts.append(len(asked))
        return Scores(torch.tensor(values, dtype=torch.float64), torch.tensor(counts))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotOverHttp(
            f"{name} cannot be had of a model behind HTTP, only fill and log_prob",
            mend="load its weights with `load` to read inside it or to edit it",
        )

    # -- words

    def whole(self, text: str) -> Ids:
        """The tokens of a text that can be scored."""
        ids = tuple(self._cut(text))
        if len(ids) < 2 or len(ids) == len(self._begins):
            raise NotReadable(
                f"{text!r:.40} has one token, which nothing stands before", mend="give longer texts"
            )
        return ids

    def cut(self, text: str, words: Sequence[str]) -> tuple[Ids, list[Ids]]:
        """The tokens before a text's blank, and those of every word in it."""
        before, mark, after = text.partition(MASK)
        if not mark or after.strip(" .") or not before.strip():
            raise NotReadable(
                f"{text!r:.60} does not end in its one {MASK}",
                mend="a causal model goes on from what stands before: put the blank at the end",
            )
        stem = tuple(self._cut(before.rstrip()))
        return stem, [self._of_word(before, word, stem) for word in words]

    def _filled(self, stem: Ids, pieces: Sequence[Ids], best: int) -> list[float]:
        wanted: dict[Ids, set[int]] = {stem: set()}
        for own in pieces:
            for i, token in enumerate(own):
                wanted.setdefault((*stem, *own[:i]), set()).add(token)
        found = self._next(wanted)
        likeliest = sorted(found[stem].items(), key=lambda one: -one[1])[:best]
        if len(likeliest) < best:
            raise NotReported(
                f"the server reports {len(likeliest)} likeliest tokens, not {best}",
                mend="use a server that tells more of them (llama.cpp does)",
            )
        return [
            *(
                sum(found[(*stem, *own[:i])][token] for i, token in enumerate(own))
                for own in pieces
            ),
            *(token for token, _ in likeliest),
            *(value for _, value in likeliest),
        ]

    def _of_word(self, before: str, word: str, stem: tuple[int, ...]) -> tuple[int, ...]:
        ids = tuple(self._cut(before + word))
        if ids[: len(stem)] != stem or len(ids) == len(stem):
            raise NotReadable(
                f"{word!r} is not cut off from {before!r:.40} by the server's tokenizer",
                mend="leave the text out and count it as dropped",
            )
        return ids[len(stem) :]

    # -- the server

    def _next(self, wanted: Mapping[Ids, AbstractSet[int]]) -> dict[Ids, dict[int, float]]:
        """Log-probabilities of next tokens as the server reports them, the wanted ones among them.

        Args:
            wanted: after which tokens, which.
        """
        found: dict[Ids, dict[int, float]] = {}
        for count, at_once in (FEW, ALL):
            rows = [
                row
                for row, tokens in wanted.items()
                if row not in found or not tokens <= found[row].keys()
            ]
            for begin in range(0, len(rows), at_once):
                part = rows[begin : begin + at_once]
                found |= dict(zip(part, self._best(part, count), strict=True))
        for row, tokens in wanted.items():
            if not tokens <= found[row].keys():
                raise NotReported(
                    f"the server reports {len(found[row])} next tokens, and not the one that is "
                    "asked about",
                    mend="use a server that tells all of them (llama.cpp does)",
                )
        return found

    def _best(self, rows: Sequence[Ids], count: int) -> Iterator[dict[int, float]]:
        answer = self._completed(rows, count)
        try:
            choices = sorted(answer["choices"], key=lambda one: int(one["index"]))
            if [int(one["index"]) for one in choices] != list(range(len(rows))):
                raise ValueError("which answer is whose?")
            for choice in choices:
                (first,) = choice["logprobs"]["content"]
                found = {int(one["id"]): float(one["logprob"]) for one in first["top_logprobs"]}
                # What llama.cpp writes for a probability that has become 0.
                yield {token: value for token, value in found.items() if value > NOTHING}
        except (KeyError, TypeError, ValueError):
            raise LevelheadError(
                f"{self.url} tells no log-probabilities by token",
                mend="use a server that answers `logprobs` with ids, such as llama.cpp's",
            ) from None

    def _completed(self, prompts: Sequence[Sequence[int]], count: int) -> dict[str, Any]:
        body = {
            "prompt": [list(own) for own in prompts],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": count,
        }
        return self._asked("/v1/completions", body | ({"model": self.model} if self.model else {}))

    def _cut(self, text: str) -> list[int]:
        """A text's tokens, with what the server puts before every text."""
        if text in self._known:
            return self._known[text]
        answer = self._asked("/tokenize", {"content": text, "add_special": True})
        tokens = answer.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(one, int) for one in tokens):
            raise LevelheadError(
                f"{self.url} does not tell how it cuts texts into tokens",
                mend="use a server with /tokenize, such as llama.cpp's",
            )
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[text] = tokens
        return tokens

    @cached_property
    def _known(self) -> dict[str, list[int]]:
        """Texts that were cut before."""
        return {}

    def _asked(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        head = {"Content-Type": "application/json"}
        if self.key:
            head["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(  # noqa: S310  # http or https: checked above
            self.url.rstrip("/").removesuffix("/v1") + path,
            None if body is None else json.dumps(body).encode(),
            head,
        )
        try:
            with OPENER.open(request, timeout=self.timeout) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(300).decode(errors="replace")
            told = told.replace(self.key, "...") if self.key else told
            raise LevelheadError(
                f"{self.url}{path} answers {error.code}: {told}", mend="look at the server's log"
            ) from None
        except (OSError, ValueError) as error:
            raise LevelheadError(
                f"{self.url} cannot be asked: {error}", mend="check that the server runs there"
            ) from None
        if not isinstance(found, dict):
            raise LevelheadError(f"{self.url}{path} answers no object", mend="check the address")
        return found
