"""LM: a pretrained model, its tokenizer and its edits. An edited LM is an LM like any other."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, final

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import Frozen
from levelhead.models.edits.base import Edit
from levelhead.models.edits.merge import baked, into_readers
from levelhead.models.export.standalone import save_edited
from levelhead.models.forward.attention_rows import attention_rows
from levelhead.models.forward.forward_pass import Passage, Prefix, instrumented
from levelhead.models.inputs.batching import Batching, padded
from levelhead.models.inputs.tokenizer import NotReadable
from levelhead.models.loading.checkpoints import NoHead
from levelhead.models.queries import build as asks
from levelhead.models.queries import cloze as blanks
from levelhead.models.queries.edit_scope import acting, behind
from levelhead.models.queries.query import Reading, Result

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from levelhead.core.files import Url
    from levelhead.models.architectures.model_layout import Anatomy
    from levelhead.models.export.model_card import Change
    from levelhead.models.forward.last_layer_cache import Memory
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.inputs.tokenizer import Span, Tokens
    from levelhead.models.loading.checkpoints import Checkpoint
    from levelhead.models.queries.query import Part
    from levelhead.models.sites import Site, Stream

Pooling = Literal["mean", "first", "last"]


class Identity(NamedTuple):
    """Which model this is."""

    name: str
    revision: str | None
    checkpoint: Checkpoint
    folded: tuple[str, ...] = ()
    """Hashes of edits that were folded into the weights after they were read."""

    @property
    def shown(self) -> str:
        """Its name in files that are handed on; of a folder the last part, nobody's home."""
        place = Path(self.name).expanduser()
        return place.resolve().name if place.exists() else self.name


class Scores(NamedTuple):
    """Log-probabilities of texts and how many tokens each is the sum of."""

    value: torch.Tensor
    tokens: torch.Tensor


class Answer(NamedTuple):
    """What a batch of a reading gave, and the layer inputs that were kept."""

    values: torch.Tensor
    prefixes: dict[int, Prefix]


def batching_for(anatomy: Anatomy, size: int) -> Batching:
    """Batches for a model: without padding where it sees padding.

    In float64, families that take their softmax in float32 (gemma2) turn padding into NaN: the
    least float64 is minus infinity there. Float64 is for checks, so nothing is padded.
    """
    return Batching(size, anatomy.family.sees_padding or anatomy.model.dtype == torch.float64)


@final
@dataclass(frozen=True, eq=False)
class LM:
    """A model that can be read and edited. `levelhead.load` makes it."""

    anatomy: Anatomy = field(repr=False)
    tokens: Tokens = field(repr=False)
    identity: Identity
    edits: tuple[Edit, ...] = ()
    batching: Batching = field(repr=False, kw_only=True)
    """How large batches are, and how they have gone; shared with edited copies."""
    progress: Callable[[int, int], None] | None = field(default=None, repr=False)
    recompute: bool = field(default=False, repr=False)
    """Whether layers are computed again for a gradient instead of being held in memory."""
    as_base: tuple[Site, ...] = field(default=(), repr=False)
    """Where edits were baked into the map that reads them: what stands there is the base's."""

    # -- the model itself

    @property
    def heads(self) -> frozenset[str]:
        """What this checkpoint can answer: masked, causal, next_sentence, classifier."""
        row = self.anatomy.cls
        return frozenset(
            name
            for name, held in {
                "masked": bool(row.vocabulary) and not row.causal,
                "causal": row.causal,
                "next_sentence": bool(row.next_sentence),
                "classifier": bool(row.classifier),
            }.items()
            if held
        )

    @property
    def is_causal(self) -> bool:
        """Whether its tokens see only what stands before them."""
        return self.anatomy.family.is_causal

    @property
    def memory(self) -> str:
        """Where readouts of it are kept if no folder is named: until the process ends."""
        return "memory://levelhead-readouts"

    def keeps(self, store: Url | None) -> Url:
        """Where readouts go: where the caller says, else into memory.

        Processes that share the model must read the same things at the same time; one that found
        an answer of another in a folder would not, and all would wait for ever.
        """
        if store is not None and self.anatomy.ranks.size > 1:
            raise LevelheadError(
                "processes that share a model cannot share a folder of readouts",
                mend="name no store: every process keeps its own in memory",
            )
        return self.memory if store is None else store

    def pieces(self, word: str) -> tuple[int, ...]:
        """The tokens of a word inside a sentence; none if the model does not know it."""
        text = f"The {word}"
        try:
            (encoded,) = self.tokens.encode([text])
            places = self.tokens.at(encoded, (4, len(text)), text)
        except NotReadable:
            return ()
        return tuple(encoded.row.ids[i] for i in places)

    @property
    def device(self) -> torch.device:
        """Where inputs go; accelerate takes them on from there to where a layer runs."""
        device = self.anatomy.model.device
        return torch.device("cpu") if device.type == "meta" else device  # meta: offloaded

    @property
    def labels(self) -> tuple[str, ...]:
        """The classifier's classes, in the order of `classify`'s columns."""
        self._need_classes("labels")
        names = cast("dict[int, str]", self.anatomy.model.config.id2label)
        return tuple(names[i] for i in sorted(names))

    @property
    def settings(self) -> Frozen:
        """Everything that can move a number read from it, for provenance."""
        model = self.anatomy.model
        return Frozen(
            {
                "dtype": str(model.dtype).removeprefix("torch."),
                "device": self.device.type,
                "class": type(model).__name__,
                "type": str(model.config.model_type),
                "causal": self.is_causal,
                "attention": str(model.config._attn_implementation),
                "bos": self.tokens.bos,
                "folded": self.identity.folded,
                "batch_size": self.batching.size,
                "batch_shrunk_to": self.batching.smallest or None,
            }
        )

    @property
    def content_hash(self) -> str:
        """SHA-256 of what decides its answers: checkpoint, edits, precision, special tokens."""
        return content_hash(
            {
                "checkpoint": self.identity.checkpoint.hash,
                "folded": self.identity.folded,
                "edits": [edit.content_hash for edit in self.edits],
                "class": type(self.anatomy.model).__name__,
                "dtype": str(self.anatomy.model.dtype),
                "bos": self.tokens.bos,
            }
        )

    def __str__(self) -> str:
        anatomy = self.anatomy
        heads = ", ".join(sorted(self.heads)) or "embeddings only"
        edits = f"; {len(self.edits)} edits" if self.edits else ""
        return (
            f"{self.identity.name}: {type(anatomy.model).__name__}, {anatomy.layers} layers x "
            f"{anatomy.heads} heads; {heads}{edits}"
        )

    __repr__ = __str__

    def edited(self, *edits: Edit) -> LM:
        """This model with more edits, after those it has. The base stays as it is."""
        for edit in edits:
            if not isinstance(edit, Edit):
                raise LevelheadError(
                    f"{edit!r:.60} is no edit", mend="write lm.edited(first, second)"
                )
            for site in edit.at:
                self.anatomy.find(site)
                width, size = edit.width(site), self.anatomy.size(site)
                if width is not None and width != size:
                    raise LevelheadError(
                        f"the {edit.kind} for {site} is {width} wide, the model is {size} there",
                        mend="fit the edit on this model",
                    )
        return replace(self, edits=(*self.edits, *edits))

    def baked(self) -> LM:
        """This model with its edits folded into plain weights, in a copy; NotBakeable if not."""
        folded = (*self.identity.folded, *(edit.content_hash for edit in self.edits))
        return replace(
            self,
            anatomy=baked(self.anatomy, self.edits),
            identity=self.identity._replace(folded=folded),
            edits=(),
            as_base=tuple(dict.fromkeys((*self.as_base, *into_readers(self.anatomy, self.edits)))),
        )

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        with_edit_file: bool = False,
        gained: Sequence[Change] = (),
        paid: Sequence[Change] = (),
    ) -> None:
        """Write plain weights, edits folded in, and the tokenizer; AutoModel loads the folder.

        `levelhead.json` in it says what was folded into which checkpoint, and `README.md` what was
        edited, gained, paid, and not shown.

        Args:
            folder: a new folder.
            with_edit_file: leave the weights as they are and write the edits beside them, for edits
                that plain weights cannot carry. `README.md` then holds the lines of PyTorch that
                apply them: AutoModel alone gives the model without its edits.
            gained: measurements of bias, (of the base, of this model), for `README.md`.
            paid: the same of what the edit costs.
        """
        save_edited(self, Path(folder), with_edit_file=with_edit_file, gained=gained, paid=paid)

    def batched(self, size: int) -> LM:
        """This model reading `size` rows at a time."""
        return replace(self, batching=Batching(size, self.batching.level))

    def telling(self, progress: Callable[[int, int], None] | None) -> LM:
        """This model calling `progress(done, total)` as rows are read."""
        return replace(self, progress=progress)

    # -- verbs

    def embed(
        self,
        texts: Sequence[str],
        spans: Sequence[Span] | None = None,
        *,
        pooling: Pooling | None = None,
    ) -> torch.Tensor:
        """`[n, width]` last hidden states: of a word at its characters, or of the sentence.

        A word's vector is the mean over all its subwords. A sentence's is that of its first token
        for encoders and of its last for decoders, unless `pooling` says otherwise; "mean" is over
        all tokens that are not special.
        """
        return self.run(asks.embedding(self, texts, spans, pooling))

    def read(
        self,
        texts: Sequence[str],
        sites: Sequence[Site],
        *,
        spans: Sequence[Span] | None = None,
        pooling: Pooling | None = None,
    ) -> dict[Site, torch.Tensor]:
        """`[n, width]` activations at sites, as edits have left them; tokens as in `embed`."""
        if not sites:
            raise LevelheadError("there is no site to read", mend="give at least one Site")
        for site in sites:
            self.anatomy.find(site)
        values = self.run(asks.states(self, texts, sites, spans, pooling))
        sizes = [self.anatomy.size(site) for site in sites]
        return dict(zip(sites, values.split(sizes, dim=1), strict=True))

    def next_sentence(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """`[n, 2]` log-probabilities that the second text follows the first, and that not."""
        self._need("next_sentence", "next_sentence")
        return self.run(asks.follows(self, pairs))

    def classify(self, texts: Sequence[str | tuple[str, str]]) -> torch.Tensor:
        """`[n, classes]` log-probabilities; the classes are `labels`."""
        self._need_classes("classify")
        return self.run(asks.classes(self, texts))

    def fill(self, texts: Sequence[str], words: Sequence[str]) -> torch.Tensor:
        """`[n, words]` log-probabilities of each word in the one [MASK] of each text.

        A word of several tokens is scored from left to right within the word, the rest of it
        masked. A causal model fills a [MASK] that ends the text.
        """
        self._need("vocabulary", "fill")
        return self.run(blanks.filling(self, texts, words))[:, : len(words)]

    def fill_top(self, texts: Sequence[str], k: int = 10) -> list[list[tuple[str, float]]]:
        """The k likeliest tokens for the one [MASK] of each text, with log-probabilities."""
        self._need("vocabulary", "fill_top")
        found = self.run(blanks.likeliest(self, texts, k))
        decode = self.tokens.tokenizer.decode
        return [
            [
                (str(decode([int(token)])).strip(), float(value))
                for token, value in zip(*row, strict=True)
            ]
            for row in found
        ]

    def log_prob(
        self, texts: Sequence[str], spans: Sequence[Sequence[Span]] | None = None
    ) -> Scores:
        """Log-probability of each text, or of some spans of it given the rest.

        Causal models: the sum over tokens given all before. Masked models: the pseudo
        log-likelihood, each token masked in turn (Salazar et al. 2020). Special tokens are not
        scored; a causal model without a beginning token cannot score the first, and does not count
        it.
        """
        self._need("vocabulary", "log_prob")
        ask = asks.continuing if self.anatomy.cls.causal else asks.masking
        reading, counts = ask(self, texts, spans)
        return Scores(self.run(reading)[:, 0], torch.tensor(counts))

    def attention_row(
        self, texts: Sequence[str], spans: Sequence[Span], *, weighted: bool = False
    ) -> list[torch.Tensor]:
        """`[layers, heads, tokens]` attention of a word on every token, for each text.

        The mean over the word's subwords. Which token is where: `tokens.encode(texts)`. Weighted:
        `[2, layers, heads, tokens]`, the attention and the same times the norm of what it moves
        (`readings.WeightedRows`).
        """
        reading = asks.attention(self, texts, spans, weighted=weighted)
        rows: list[torch.Tensor] = [torch.empty(0)] * len(texts)
        for indices, values in self.batches(reading):
            for i, value in zip(indices, values, strict=True):
                rows[i] = value[..., : len(reading.rows[i].ids)].clone()
        return rows

    # -- running readings

    def run(self, reading: Reading) -> torch.Tensor:
        """`[items, ...]` what a reading gives, without gradient, on the CPU."""
        order: list[int] = []
        parts = []
        for indices, values in self.batches(reading):
            order.extend(indices)
            parts.append(values)
        rows = torch.cat(parts)[torch.tensor(order).argsort()]
        if reading.items is None:
            return rows
        total = torch.zeros(max(reading.items) + 1, *rows.shape[1:], dtype=rows.dtype)
        return total.index_add(0, torch.tensor(reading.items), rows)

    def batches(self, reading: Reading) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
        """Row numbers and values, batch by batch, longest rows first."""
        if self.edits and not acting(self, reading, self.edits):
            raise behind(self.edits)
        done, total = 0, len(reading.rows)

        def once(indices: Sequence[int]) -> torch.Tensor:
            with torch.no_grad():
                return self.answer(reading, indices).values.cpu()

        def shared(indices: Sequence[int]) -> torch.Tensor:
            return self.anatomy.ranks.over(indices, once, dim=0)

        for indices, values in self.batching.over(reading.rows, shared):
            done += len(indices)
            if self.progress is not None:
                self.progress(done, total)
            yield indices, values

    def answer(
        self,
        reading: Reading,
        indices: Sequence[int],
        *,
        gates: Mapping[Stream, torch.Tensor] | None = None,
        keep: Collection[int] = (),
        start: Prefix | None = None,
        memory: Memory | None = None,
        batch: Batch | None = None,
    ) -> Answer:
        """Some rows of a reading in one forward, with a gradient if one is wanted.

        Args:
            reading: what is asked.
            indices: which of its rows.
            gates: factors by stream, `[layers, heads]` or `[rows, layers, heads]`; their gradient
                is that of Yang et al. 2025, Eq. 4, the second form for each row by itself.
            keep: layers whose input is kept, to resume from.
            start: such an input of the same rows: the layers below are not run again.
            memory: run the last layer for the tokens alone that are read (`sweep` knows where).
            batch: these rows, if they have been put together before.
        """
        batch = batch or self.padded(reading, indices)
        if self.batching.level and len(set(batch.lengths)) > 1:
            raise LevelheadError(
                "rows of several lengths in one forward of a model that sees padding",
                mend="take rows of one length, as `batches` does",
            )
        passage = Passage(
            self.anatomy,
            rows=tuple(reading.rows[i].ids for i in indices),
            types=tuple(reading.rows[i].types for i in indices),
            after=tuple(reading.rows[i].after for i in indices),
            edits=self.edits,
            gates=gates or {},
            watch=reading.readout.watch,
            keep=frozenset(keep),
            start=start,
            memory=memory,
            # What reads attention replaces it for the forward alone, and could not be run again.
            recompute=self.recompute
            and bool(gates)
            and torch.is_grad_enabled()
            and reading.readout.attends(batch) is None,
        )
        with instrumented(passage):
            hidden, logits, attention = self._forward(batch, reading, start)
        result = Result(self.anatomy, batch, hidden, logits, passage.seen, attention)
        values = reading.readout(result)
        if not values.isfinite().all():
            raise LevelheadError(
                "the model returned NaN or infinity",
                mend="load it with dtype='float32'; if it stays, the weights are damaged",
            )
        return Answer(values, passage.prefixes)

    def padded(self, reading: Reading, indices: Sequence[int]) -> Batch:
        """Some rows of a reading as one batch."""
        return padded(reading.rows, indices, pad=self.tokens.pad, device=self.device)

    def _forward(
        self, batch: Batch, reading: Reading, start: Prefix | None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, list[torch.Tensor]]:
        if start and start.layer > self.anatomy.layers:
            return None, self.anatomy.place("pooled", 0).module(start.output), []
        readout, inputs = reading.readout, dict(batch.inputs)
        if start and start.layer == self.anatomy.layers and start.origin.alone:
            # No layer is run, and a first token is pooled whatever the others are.
            inputs.pop("attention_mask", None)
        weights = readout.attends(batch)
        if weights is None:
            return (*self._through(inputs, batch, readout.part), [])
        if self.anatomy.family.eager_row and self._says_attention():
            inputs["output_attentions"] = True  # type: ignore[assignment]
        with attention_rows(self.anatomy, weights) as found:
            hidden, logits = self._through(inputs, batch, readout.part)
        return hidden, logits, found

    def _through(
        self, inputs: dict[str, Any], batch: Batch, part: Part
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        anatomy = self.anatomy
        if part == "classifier" and not self.is_causal:
            return None, anatomy.model(**inputs).logits
        if "use_cache" in _accepted(type(anatomy.backbone).forward):
            inputs["use_cache"] = False
        output = anatomy.backbone(**inputs)
        if part == "next_sentence":
            head = anatomy.model.get_submodule(anatomy.cls.next_sentence)
            return None, head(output.pooler_output)
        if part == "classifier":
            # A decoder is classified by its last token. The model's own forward looks for the last
            # token that is not padding by its id, which a text may end with; we know the lengths.
            last = torch.tensor(batch.lengths, device=output.last_hidden_state.device) - 1
            rows = torch.arange(len(last), device=last.device)
            head = anatomy.model.get_submodule(anatomy.cls.classifier)
            return None, head(output.last_hidden_state[rows, last])
        return output.last_hidden_state, None

    def _says_attention(self) -> bool:
        """DeBERTa and its like return their attention only if told to."""
        module = self.anatomy.blocks[0].get_submodule(self.anatomy.family.eager_row)
        return "output_attentions" in inspect.signature(module.forward).parameters

    def _need(self, head: str, verb: str) -> None:
        held = self.heads
        if head in held or (head == "vocabulary" and held & {"masked", "causal"}):
            return
        has = ", ".join(sorted(held)) or "none: it gives embeddings only"
        raise NoHead(
            f"{verb} needs a head that {self.identity.name} does not hold; its heads: {has}",
            mend="use a checkpoint trained with that head (a new one would be random, and its "
            "scores would be chance)",
        )

    def _need_classes(self, verb: str) -> None:
        self._need("classifier", verb)
        config = self.anatomy.model.config
        kind = getattr(config, "problem_type", None)
        if int(config.num_labels or 0) < 2 or kind in ("regression", "multi_label_classification"):
            raise NoHead(
                f"{self.identity.name} has no exclusive classes: {config.num_labels} outputs"
                + (f", {kind}" if kind else ""),
                mend="use a classifier of two or more classes that exclude each other",
            )


@cache
def _accepted(forward: Callable[..., object]) -> frozenset[str]:
    """The names of a function's parameters."""
    return frozenset(inspect.signature(forward).parameters)
