"""LM: a model that can be run: its verbs, and the forward passes of queries."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

import torch

from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.models.editable_model import EditableModel
from levelhead.models.export.formats import save_in_format
from levelhead.models.forward.forward_pass import CachedLayerInput, ForwardPass
from levelhead.models.forward.run_forward import run_forward
from levelhead.models.generation.config import GenerationConfig, check_sample_count
from levelhead.models.generation.in_process import generate_texts
from levelhead.models.inputs.batching import Batching, make_batch
from levelhead.models.inputs.tokenizer import validate_texts
from levelhead.models.queries import build, choices, cloze
from levelhead.models.queries.edit_scope import edits_that_reach, no_effect_error

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from levelhead.core.files import Url
    from levelhead.models.export.formats import ExportFormat
    from levelhead.models.export.model_card import MeasurementPair
    from levelhead.models.forward.last_layer_cache import LastLayerCache
    from levelhead.models.generation.config import GeneratedText
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.inputs.chat import ChatFormat
    from levelhead.models.inputs.tokenizer import Span
    from levelhead.models.queries.build import Pooling
    from levelhead.models.queries.query import Query
    from levelhead.models.sites import Site, Stream


class Scores(NamedTuple):
    """Log-probabilities of texts, and the number of tokens that each one sums over."""

    value: torch.Tensor
    token_counts: torch.Tensor


class QueryOutput(NamedTuple):
    """Values of one batch of a query, and the layer inputs that were cached."""

    values: torch.Tensor
    layer_inputs: dict[int, CachedLayerInput]


@final
@dataclass(frozen=True, eq=False, repr=False)
class LM(EditableModel):
    """A model that can be read and edited. `levelhead.load` creates it."""

    batching: Batching = field(kw_only=True)
    """Batch size, and how far it had to shrink; shared with edited copies."""
    progress: Callable[[int, int], None] | None = None
    recompute: bool = False
    """Whether layers are recomputed for a gradient instead of being held in memory."""

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

    @property
    def device(self) -> torch.device:
        """The device of the inputs; accelerate moves them to the device of each layer."""
        device = self.layout.model.device
        return torch.device("cpu") if device.type == "meta" else device  # meta: offloaded

    @property
    def settings(self) -> FrozenDict:
        """All settings that can change a result of this model, for provenance."""
        model = self.layout.model
        return FrozenDict(
            self.prompt_setting
            | {
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

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        file_format: ExportFormat = "transformers",
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
            file_format: `transformers` for a checkpoint with merged edits; `peft` for a LoRA
                adapter of the base; `torch` or `onnx` for one graph with the edit inside.
            with_edit_file: Leave the weights unchanged and write the edits into separate files,
                for edits that plain weights cannot express. `README.md` then holds the lines of
                PyTorch that apply them; AutoModel alone loads the model without its edits.
            bias_changes: Measurements of bias, as pairs (base, this model), for `README.md`.
            utility_changes: Measurements of utility, such as fluency or accuracy, as pairs
                (base, this model).
        """
        # Weights hold no prompt: the folder would be another model than the one that was measured.
        if self.system_prompt:
            raise LevelheadError(
                "a system prompt cannot be saved in weights",
                hint="save lm.with_system_prompt(''), and give the prompt to the application",
            )
        save_in_format(
            self,
            Path(folder),
            file_format,
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

    def choose(self, prompts: Sequence[str], options: Sequence[Sequence[str]]) -> torch.Tensor:
        """Compute `[n, options]` log-probabilities of texts that may follow each prompt.

        Args:
            prompts: Texts; `ChatFormat.format_request` makes them from requests to a chat model.
            options: For each prompt, equally many texts, each beginning with a space unless it
                follows the prompt directly.
        """
        self._require_head("causal", "choose")
        query, _ = choices.build_lm_choose_query(self, prompts, options)
        return self.run(query)[:, :-1]

    def generate(
        self,
        prompts: Sequence[str],
        config: GenerationConfig = GenerationConfig(),
        *,
        n: int = 1,
        chat: ChatFormat | None = None,
    ) -> list[tuple[GeneratedText, ...]]:
        """Generate n texts after each prompt; the edits act at every token.

        A sampled text depends only on seed, prompt and its number, never on the other prompts.

        Args:
            prompts: Texts, without a space at their end.
            config: Settings; those of the checkpoint are ignored.
            n: Number of texts for each prompt.
            chat: The prompts are requests, which this format turns into prompts, after the model's
                system prompt. None: they are continued as they are.
        """
        self._require_head("causal", "generate")
        check_sample_count(n, config)
        texts = validate_texts(prompts)
        if chat is not None:
            chat = chat.after_system(self.system_prompt)
            texts = [chat.format_request(self.tokens, str(text)) for text in texts]
        generated = generate_texts(
            self,
            [str(text) for text in texts for _ in range(n)],
            [number for _ in texts for number in range(n)],
            config,
        )
        return [tuple(generated[i : i + n]) for i in range(0, len(generated), n)]

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
        if self.edits and not edits_that_reach(self.layout, query, self.edits):
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
        values = query.readout(run_forward(forward_pass, batch, query.readout))
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
