"""LM: a pretrained model with its tokenizer and its edits."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, final

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.models.edits.base import Edit
from levelhead.models.edits.merge import find_sites_merged_into_readers, merge_edits
from levelhead.models.export.standalone import save_edited_model
from levelhead.models.forward.attention_rows import collect_attention_rows
from levelhead.models.forward.forward_pass import CachedLayerInput, ForwardPass, forward_hooks
from levelhead.models.inputs.batching import Batching, make_batch
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.queries import build, cloze
from levelhead.models.queries.edit_scope import edits_that_reach, no_effect_error
from levelhead.models.queries.query import ForwardOutput, Query

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from levelhead.core.files import Url
    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.export.model_card import MeasurementPair
    from levelhead.models.forward.last_layer_cache import LastLayerCache
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.inputs.tokenizer import Span, Tokens
    from levelhead.models.loading.checkpoints import Checkpoint
    from levelhead.models.queries.query import OutputStage
    from levelhead.models.sites import Site, Stream

Pooling = Literal["mean", "first", "last"]


class Identity(NamedTuple):
    """Name, revision and checkpoint of a model."""

    name: str
    revision: str | None
    checkpoint: Checkpoint
    merged_edits: tuple[str, ...] = ()
    """Hashes of edits that were merged into the weights after loading."""

    @property
    def display_name(self) -> str:
        """The name for files that are shared: of a local folder only its last part."""
        # A full path would publish the name of a home folder.
        path = Path(self.name).expanduser()
        return path.resolve().name if path.exists() else self.name


class Scores(NamedTuple):
    """Log-probabilities of texts, and the number of tokens that each one sums over."""

    value: torch.Tensor
    token_counts: torch.Tensor


class QueryOutput(NamedTuple):
    """Values of one batch of a query, and the layer inputs that were cached."""

    values: torch.Tensor
    layer_inputs: dict[int, CachedLayerInput]


def make_batching(layout: ModelLayout, size: int) -> Batching:
    """Create the batching of a model; rows are not padded if padding changes its results.

    In float64, families that compute their softmax in float32 (gemma2) turn padding into NaN,
    because the smallest float64 becomes minus infinity there. Float64 serves for checks, where
    speed matters little, so float64 batches hold only rows of one length.
    """
    return Batching(size, layout.family.padding_sensitive or layout.model.dtype == torch.float64)


@final
@dataclass(frozen=True, eq=False)
class LM:
    """A model that can be read and edited. `levelhead.load` creates it."""

    layout: ModelLayout = field(repr=False)
    tokens: Tokens = field(repr=False)
    identity: Identity
    edits: tuple[Edit, ...] = ()
    batching: Batching = field(repr=False, kw_only=True)
    """Batch size, and how far it had to shrink; shared with edited copies."""
    progress: Callable[[int, int], None] | None = field(default=None, repr=False)
    recompute: bool = field(default=False, repr=False)
    """Whether layers are recomputed for a gradient instead of being held in memory."""
    merged_sites: tuple[Site, ...] = field(default=(), repr=False)
    """Sites whose edits were merged into the map that reads them: the activation at these sites
    is still the base's."""

    # -- the model itself

    @property
    def heads(self) -> frozenset[str]:
        """The heads that this checkpoint holds: masked, causal, next_sentence, classifier."""
        model_class = self.layout.model_class
        return frozenset(
            name
            for name, is_present in {
                "masked": bool(model_class.vocabulary) and not model_class.causal,
                "causal": model_class.causal,
                "next_sentence": bool(model_class.next_sentence),
                "classifier": bool(model_class.classifier),
            }.items()
            if is_present
        )

    @property
    def is_causal(self) -> bool:
        """Whether a token attends only to itself and to the tokens before it."""
        return self.layout.family.is_causal

    @property
    def in_memory_store(self) -> str:
        """URL of the store for responses if no folder is given; it lasts as long as the process."""
        return "memory://levelhead-readouts"

    def response_store(self, store: Url | None) -> Url:
        """Return the URL of the store for responses: the caller's, or one in memory.

        Processes that share a model must run the same forward passes at the same time. A process
        that found a stored response of another would skip its forward pass, and all others would
        wait for ever.
        """
        if store is not None and self.layout.parallel.size > 1:
            raise LevelheadError(
                "processes that share a model cannot share a folder of responses",
                hint="give no store: every process then stores its responses in memory",
            )
        return self.in_memory_store if store is None else store

    def token_ids_of_word(self, word: str) -> tuple[int, ...]:
        """Return the tokens of a word inside a sentence; empty if the vocabulary lacks the word."""
        # Behind another word: many tokenizers cut a word differently at the start of a text.
        text = f"The {word}"
        try:
            (encoded,) = self.tokens.encode([text])
            positions = self.tokens.positions_of_word(encoded, (4, len(text)), text)
        except UnreadableTextError:
            return ()
        return tuple(encoded.row.ids[i] for i in positions)

    @property
    def device(self) -> torch.device:
        """The device of the inputs; accelerate moves them to the device of each layer."""
        device = self.layout.model.device
        return torch.device("cpu") if device.type == "meta" else device  # meta: offloaded

    @property
    def labels(self) -> tuple[str, ...]:
        """The classifier's classes, in the order of `classify`'s columns."""
        self._require_classes("labels")
        names = cast("dict[int, str]", self.layout.model.config.id2label)
        return tuple(names[i] for i in sorted(names))

    @property
    def settings(self) -> FrozenDict:
        """All settings that can change a result of this model, for provenance."""
        model = self.layout.model
        return FrozenDict(
            {
                "dtype": str(model.dtype).removeprefix("torch."),
                "device": self.device.type,
                "class": type(model).__name__,
                "type": str(model.config.model_type),
                "causal": self.is_causal,
                "attention": str(model.config._attn_implementation),
                "bos": self.tokens.bos,
                "merged_edits": self.identity.merged_edits,
                "batch_size": self.batching.size,
                "batch_shrunk_to": self.batching.smallest_size or None,
            }
        )

    @property
    def content_hash(self) -> str:
        """SHA-256 of what determines its outputs: checkpoint, edits, precision, special tokens."""
        return content_hash(
            {
                "checkpoint": self.identity.checkpoint.hash,
                "folded": self.identity.merged_edits,
                "edits": [edit.content_hash for edit in self.edits],
                "class": type(self.layout.model).__name__,
                "dtype": str(self.layout.model.dtype),
                "bos": self.tokens.bos,
            }
        )

    def __str__(self) -> str:
        layout = self.layout
        heads = ", ".join(sorted(self.heads)) or "embeddings only"
        edits = f"; {len(self.edits)} edits" if self.edits else ""
        return (
            f"{self.identity.name}: {type(layout.model).__name__}, {layout.layers} layers x "
            f"{layout.heads} heads; {heads}{edits}"
        )

    __repr__ = __str__

    def edited(self, *edits: Edit) -> LM:
        """Return this model with more edits, after the edits it has. The base does not change."""
        for edit in edits:
            if not isinstance(edit, Edit):
                raise LevelheadError(
                    f"{edit!r:.60} is not an edit", hint="write lm.edited(first, second)"
                )
            for site in edit.sites:
                self.layout.require_site(site)
                width, size = edit.width(site), self.layout.site_width(site)
                if width is not None and width != size:
                    raise LevelheadError(
                        f"the {edit.kind} for {site} has width {width}, but the model has width "
                        f"{size} there",
                        hint="fit the edit on this model",
                    )
        return replace(self, edits=(*self.edits, *edits))

    def merged(self) -> LM:
        """Return a copy of this model with its edits merged into plain weights.

        Raises NotMergeableError if plain weights cannot express an edit.
        """
        merged_edits = (*self.identity.merged_edits, *(edit.content_hash for edit in self.edits))
        return replace(
            self,
            layout=merge_edits(self.layout, self.edits),
            identity=self.identity._replace(merged_edits=merged_edits),
            edits=(),
            merged_sites=tuple(
                dict.fromkeys(
                    (*self.merged_sites, *find_sites_merged_into_readers(self.layout, self.edits))
                )
            ),
        )

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        with_edit_file: bool = False,
        bias_changes: Sequence[MeasurementPair] = (),
        utility_changes: Sequence[MeasurementPair] = (),
    ) -> None:
        """Write weights with merged edits, and the tokenizer; AutoModel can load the folder.

        `levelhead.json` in the folder records which edits were merged into which checkpoint.
        `README.md` reports what was edited, the effect on bias, the utility cost, and what is not
        shown.

        Args:
            folder: New folder.
            with_edit_file: Leave the weights unchanged and write the edits into separate files,
                for edits that plain weights cannot express. `README.md` then holds the lines of
                PyTorch that apply them; AutoModel alone loads the model without its edits.
            bias_changes: Measurements of bias, as pairs (base, this model), for `README.md`.
            utility_changes: Measurements of utility, such as fluency or accuracy, as pairs
                (base, this model).
        """
        save_edited_model(
            self,
            Path(folder),
            with_edit_file=with_edit_file,
            bias_changes=bias_changes,
            utility_changes=utility_changes,
        )

    def with_batch_size(self, size: int) -> LM:
        """Return this model with batches of `size` rows."""
        return replace(self, batching=Batching(size, self.batching.equal_length_only))

    def with_progress(self, progress: Callable[[int, int], None] | None) -> LM:
        """Return this model with a callback `progress(done, total)`, called after every batch."""
        return replace(self, progress=progress)

    # -- verbs

    def embed(
        self,
        texts: Sequence[str],
        spans: Sequence[Span] | None = None,
        *,
        pooling: Pooling | None = None,
    ) -> torch.Tensor:
        """Compute `[n, width]` last hidden states of words or of sentences.

        The vector of a word is the mean over all its subwords. The vector of a sentence is that of
        its first token for encoders and of its last token for decoders.

        Args:
            texts: Texts.
            spans: For each text, the first character of a word and the one after its last. None:
                the sentence is read.
            pooling: How a sentence becomes one vector, if not by default; "mean" averages over all
                tokens that are not special.
        """
        return self.run(build.build_lm_embedding_query(self, texts, spans, pooling))

    def read(
        self,
        texts: Sequence[str],
        sites: Sequence[Site],
        *,
        spans: Sequence[Span] | None = None,
        pooling: Pooling | None = None,
    ) -> dict[Site, torch.Tensor]:
        """Read `[n, width]` activations at sites, after all edits; tokens as in `embed`."""
        if not sites:
            raise LevelheadError("the list of sites is empty", hint="give at least one Site")
        for site in sites:
            self.layout.require_site(site)
        values = self.run(build.build_lm_hidden_states_query(self, texts, sites, spans, pooling))
        sizes = [self.layout.site_width(site) for site in sites]
        return dict(zip(sites, values.split(sizes, dim=1), strict=True))

    def next_sentence(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """Compute `[n, 2]` log-probabilities that the second text follows the first, or not."""
        self._require_head("next_sentence", "next_sentence")
        return self.run(build.build_lm_next_sentence_query(self, pairs))

    def classify(self, texts: Sequence[str | tuple[str, str]]) -> torch.Tensor:
        """Compute `[n, classes]` log-probabilities of the classes in `labels`."""
        self._require_classes("classify")
        return self.run(build.build_lm_classify_query(self, texts))

    def fill(self, texts: Sequence[str], words: Sequence[str]) -> torch.Tensor:
        """Compute `[n, words]` log-probabilities of each word in the one [MASK] of each text.

        A word of several tokens is scored from left to right; its later tokens are masked. A causal
        model can fill only a [MASK] that ends the text.
        """
        self._require_head("vocabulary", "fill")
        # The query has a spare last column, which serves for padding.
        return self.run(cloze.build_lm_fill_words_query(self, texts, words))[:, : len(words)]

    def fill_top(self, texts: Sequence[str], k: int = 10) -> list[list[tuple[str, float]]]:
        """Return the k likeliest tokens for the one [MASK] of each text, with log-probabilities."""
        self._require_head("vocabulary", "fill_top")
        top_tokens = self.run(cloze.build_lm_top_k_query(self, texts, k))
        decode = self.tokens.tokenizer.decode
        return [
            [
                (str(decode([int(token)])).strip(), float(value))
                for token, value in zip(*row, strict=True)
            ]
            for row in top_tokens
        ]

    def log_prob(
        self, texts: Sequence[str], spans: Sequence[Sequence[Span]] | None = None
    ) -> Scores:
        """Compute the log-probability of each text, or of some spans of it given the rest.

        For causal models, this is the sum over tokens, each given all tokens before it. For masked
        models, it is the pseudo-log-likelihood, each token masked in turn (Salazar et al. 2020).
        Special tokens are not scored; a causal model without a beginning token cannot score the
        first token and does not count it.
        """
        self._require_head("vocabulary", "log_prob")
        build_query = (
            build.build_lm_causal_log_prob_query
            if self.layout.model_class.causal
            else build.build_lm_pseudo_log_likelihood_query
        )
        query, counts = build_query(self, texts, spans)
        return Scores(self.run(query)[:, 0], torch.tensor(counts))

    def attention_row(
        self, texts: Sequence[str], spans: Sequence[Span], *, weighted: bool = False
    ) -> list[torch.Tensor]:
        """Return `[layers, heads, tokens]` attention from a word to every token, for each text.

        Attention is averaged over the word's subwords. `tokens.encode(texts)` lists the tokens.

        Args:
            texts: Texts.
            spans: For each text, the first character of a word and the one after its last.
            weighted: Return `[2, layers, heads, tokens]`: the attention, and the attention times
                the norm of the value vector that it moves (`query.NormWeightedAttention`).
        """
        query = build.build_lm_attention_query(self, texts, spans, weighted=weighted)
        # Not `run`: rows of different lengths do not fit into one tensor.
        rows: list[torch.Tensor] = [torch.empty(0)] * len(texts)
        for indices, values in self.iterate_batches(query):
            for i, value in zip(indices, values, strict=True):
                rows[i] = value[..., : len(query.rows[i].ids)].clone()
        return rows

    # -- running queries

    def run(self, query: Query) -> torch.Tensor:
        """Run a query without gradient; returns `[items, ...]` values on the CPU."""
        order: list[int] = []
        parts = []
        for indices, values in self.iterate_batches(query):
            order.extend(indices)
            parts.append(values)
        # Batches come longest rows first: restore the order of the query.
        rows = torch.cat(parts)[torch.tensor(order).argsort()]
        if query.items is None:
            return rows
        total = torch.zeros(max(query.items) + 1, *rows.shape[1:], dtype=rows.dtype)
        return total.index_add(0, torch.tensor(query.items), rows)

    def iterate_batches(self, query: Query) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
        """Yield row numbers and values, batch by batch, longest rows first."""
        # An edit that acts behind everything that is read would look like an edit without effect.
        if self.edits and not edits_that_reach(self, query, self.edits):
            raise no_effect_error(self.edits)
        done, total = 0, len(query.rows)

        def run_batch(indices: Sequence[int]) -> torch.Tensor:
            with torch.no_grad():
                return self.run_rows(query, indices).values.cpu()

        def run_batch_in_parallel(indices: Sequence[int]) -> torch.Tensor:
            return self.layout.parallel.run_across_processes(indices, run_batch, dim=0)

        for indices, values in self.batching.run_batches(query.rows, run_batch_in_parallel):
            done += len(indices)
            if self.progress is not None:
                self.progress(done, total)
            yield indices, values

    def run_rows(
        self,
        query: Query,
        indices: Sequence[int],
        *,
        gates: Mapping[Stream, torch.Tensor] | None = None,
        cache_layers: Collection[int] = (),
        resume_from: CachedLayerInput | None = None,
        last_layer_cache: LastLayerCache | None = None,
        batch: Batch | None = None,
    ) -> QueryOutput:
        """Run some rows of a query in one forward pass, with a gradient where autograd is on.

        Args:
            query: Rows and readout.
            indices: Numbers of the rows to run.
            gates: Factors by stream, `[layers, heads]` or `[rows, layers, heads]`. Their gradient
                is that of Yang et al. 2025, Eq. 4; the second form gives it for each row.
            cache_layers: Layers whose input is cached, so that a later pass can resume there.
            resume_from: Cached layer input of the same rows; the layers below are not run again.
            last_layer_cache: Run the last layer only for the tokens that are read
                (`run_edit_sets` decides when this is possible).
            batch: These rows as a batch, if one was made before.
        """
        batch = batch or self.make_batch(query, indices)
        if self.batching.equal_length_only and len(set(batch.lengths)) > 1:
            raise LevelheadError(
                "rows of different lengths in one batch of a model that padding would change",
                hint="give rows of one length, as `run_batches` does",
            )
        forward_pass = ForwardPass(
            self.layout,
            rows=tuple(query.rows[i].ids for i in indices),
            token_types=tuple(query.rows[i].token_types for i in indices),
            parents=tuple(query.rows[i].parents for i in indices),
            edits=self.edits,
            gates=gates or {},
            capture_sites=query.readout.capture_sites,
            cache_layers=frozenset(cache_layers),
            resume_from=resume_from,
            last_layer_cache=last_layer_cache,
            # Attention is collected by a function that is replaced for the forward pass only: the
            # recomputation in the backward pass would not find it.
            recompute=self.recompute
            and bool(gates)
            and torch.is_grad_enabled()
            and query.readout.attention_query_weights(batch) is None,
        )
        with forward_hooks(forward_pass):
            hidden, logits, attention = self._run_forward(batch, query, resume_from)
        output = ForwardOutput(self.layout, batch, hidden, logits, forward_pass.captured, attention)
        values = query.readout(output)
        # A NaN would drop out of comparisons silently; it is raised where it arises.
        if not values.isfinite().all():
            raise LevelheadError(
                "the model returned NaN or infinity",
                hint="load it with dtype='float32'; if this persists, the weights are damaged",
            )
        return QueryOutput(values, forward_pass.layer_inputs)

    def make_batch(self, query: Query, indices: Sequence[int]) -> Batch:
        """Put some rows of a query into one batch."""
        return make_batch(query.rows, indices, pad=self.tokens.pad, device=self.device)

    def _run_forward(
        self, batch: Batch, query: Query, resume_from: CachedLayerInput | None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, list[torch.Tensor]]:
        # A layer beyond the last one stands for the pooled vector: only the classifier is run.
        if resume_from and resume_from.layer > self.layout.layers:
            return None, self.layout.hook_point("pooled", 0).module(resume_from.output), []
        readout, inputs = query.readout, dict(batch.inputs)
        if (
            resume_from
            and resume_from.layer == self.layout.layers
            and resume_from.cache_key.is_token_restricted
        ):
            # No layer is run, and the pooler reads only the first token: the result does not depend
            # on the mask.
            inputs.pop("attention_mask", None)
        weights = readout.attention_query_weights(batch)
        if weights is None:
            return (*self._run_model(inputs, batch, readout.output_stage), [])
        if self.layout.family.eager_attention_module and self._can_output_attention():
            inputs["output_attentions"] = True  # type: ignore[assignment]
        with collect_attention_rows(self.layout, weights) as attention:
            hidden, logits = self._run_model(inputs, batch, readout.output_stage)
        return hidden, logits, attention

    def _run_model(
        self, inputs: dict[str, Any], batch: Batch, stage: OutputStage
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        layout = self.layout
        if stage == "classifier" and not self.is_causal:
            return None, layout.model(**inputs).logits
        # A cache of keys and values is of no use here and costs memory.
        if "use_cache" in _parameter_names(type(layout.backbone).forward):
            inputs["use_cache"] = False
        output = layout.backbone(**inputs)
        if stage == "next_sentence":
            head = layout.model.get_submodule(layout.model_class.next_sentence)
            return None, head(output.pooler_output)
        if stage == "classifier":
            # A decoder is classified by its last token. The model's own forward finds it as the
            # last id that is not the padding id, but a text may end with that id; we know the
            # lengths (docs/decisions/0005).
            last = torch.tensor(batch.lengths, device=output.last_hidden_state.device) - 1
            rows = torch.arange(len(last), device=last.device)
            head = layout.model.get_submodule(layout.model_class.classifier)
            return None, head(output.last_hidden_state[rows, last])
        return output.last_hidden_state, None

    def _can_output_attention(self) -> bool:
        """Whether the attention module needs a request to return its attention, as in DeBERTa."""
        module = self.layout.blocks[0].get_submodule(self.layout.family.eager_attention_module)
        return "output_attentions" in inspect.signature(module.forward).parameters

    def _require_head(self, head: str, verb: str) -> None:
        heads = self.heads
        if head in heads or (head == "vocabulary" and heads & {"masked", "causal"}):
            return
        available = ", ".join(sorted(heads)) or "none: it gives embeddings only"
        raise MissingHeadError(
            f"{verb} needs a head that {self.identity.name} does not hold; its heads: {available}",
            hint="use a checkpoint trained with that head (a new head would have random weights "
            "and return random scores)",
        )

    def _require_classes(self, verb: str) -> None:
        self._require_head("classifier", verb)
        config = self.layout.model.config
        kind = getattr(config, "problem_type", None)
        if int(config.num_labels or 0) < 2 or kind in ("regression", "multi_label_classification"):
            raise MissingHeadError(
                f"{self.identity.name} has no mutually exclusive classes: {config.num_labels} "
                "outputs" + (f", {kind}" if kind else ""),
                hint="use a classifier with two or more mutually exclusive classes",
            )


@cache
def _parameter_names(forward: Callable[..., object]) -> frozenset[str]:
    """Return the names of a function's parameters."""
    return frozenset(inspect.signature(forward).parameters)
