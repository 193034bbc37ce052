"""A causal model that vLLM runs in this process, unedited or with merged edits.

vLLM pins versions of torch and transformers: install it in an environment of its own. Where that is
not possible, its server is a model behind HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import MissingExtraError
from levelhead.core.frozen import FrozenDict
from levelhead.models.generation.config import FINISH_REASONS, GeneratedText
from levelhead.models.inputs.chat_template import render_chat
from levelhead.models.loading.checkpoints import Checkpoint
from levelhead.models.serving.generation import sample_seed
from levelhead.models.serving.served_model import (
    LogProbsMissingError,
    RowScores,
    ServedIdentity,
    ServedModel,
    UnsupportedOverHttpError,
    make_top_tokens,
    require_log_prob,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.files import Url
    from levelhead.models.edits.base import Edit
    from levelhead.models.generation.config import FinishReason, GenerationConfig
    from levelhead.models.serving.generation import GenerationPrompt
    from levelhead.models.serving.served_model import ScoredRow, TokenIds

NO_OPTIONS = FrozenDict({})


@final
@dataclass(frozen=True)
class VllmModel(ServedModel):
    """A model whose weights vLLM loads from a folder."""

    folder: str
    """Folder written by save_pretrained, with safetensors."""
    dtype: str = "float32"
    max_length: int | None = None
    """Maximum number of tokens of a prompt and its text; None: that of the model."""
    engine_options: FrozenDict = NO_OPTIONS
    """Further arguments of `vllm.LLM`, such as tensor_parallel_size."""
    edits: tuple[Edit, ...] = ()
    system_prompt: str = ""
    """Put before every chat request that the model answers; empty: none."""

    place = "in vLLM"

    def __post_init__(self) -> None:
        if self.edits:
            raise UnsupportedOverHttpError(
                "vLLM runs no hooks: a model in it cannot be edited",
                hint="merge the edits into weights: `levelhead export`, or save_pretrained",
            )

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The files of the model; pickled weights are refused."""
        return Checkpoint.inspect(Path(self.folder))

    @cached_property
    def engine(self) -> Any:
        """The engine, which loads the weights when it is first used."""
        try:
            import vllm
        except ImportError:
            raise MissingExtraError("a model in vLLM", "vllm") from None
        # For its check: pickled weights are refused before vLLM could load them.
        _ = self.checkpoint
        return vllm.LLM(
            model=self.folder,
            dtype=self.dtype,
            max_model_len=self.max_length,
            seed=0,
            # Not the checkpoint's sampling settings: they would change every result silently.
            generation_config="vllm",
            # Explicit, because it decides whether code that comes with weights is run.
            trust_remote_code=False,
            **dict(self.engine_options),
        )

    @cached_property
    def engine_version(self) -> str:
        """Version of vLLM."""
        try:
            import vllm
        except ImportError:
            raise MissingExtraError("a model in vLLM", "vllm") from None
        return str(vllm.__version__)

    @property
    def settings(self) -> FrozenDict:
        """Settings for provenance, and for the keys of stored responses."""
        return FrozenDict(
            {
                "engine": "vLLM",
                "version": self.engine_version,
                "dtype": self.dtype,
                "max_length": self.max_length,
                "engine_options": dict(self.engine_options),
                "type": self.checkpoint.model_type,
                "causal": True,
                **self.prompt_setting,
            }
        )

    @property
    def content_hash(self) -> str:
        """SHA-256 of weights, config, tokenizer, engine and version."""
        # Another version may round differently: stored responses of both must not be mixed.
        engine = {"name": "vLLM", "version": self.engine_version}
        return content_hash(
            {"checkpoint": self.checkpoint.hash, "engine": engine, **self.prompt_setting}
        )

    @property
    def identity(self) -> ServedIdentity:
        """The folder."""
        return ServedIdentity(self.folder)

    @property
    def in_memory_store(self) -> str:
        """URL of the store in memory for responses."""
        return "memory://levelhead-readouts"

    def response_store(self, store: Url | None) -> Url:
        """Return the URL of the store for responses: the caller's, or one in memory."""
        return self.in_memory_store if store is None else store

    # -- the engine

    @cached_property
    def _tokenizer(self) -> Any:
        return self.engine.get_tokenizer()

    def tokenize(self, text: str, *, add_special: bool = True) -> TokenIds:
        """Return a text's tokens, with those that the tokenizer puts before every text."""
        return tuple(self._tokenizer(text, add_special_tokens=add_special).input_ids)

    def tokenize_all(self, texts: Sequence[str], *, add_special: bool = True) -> None:
        """Do nothing: this process has the tokenizer."""

    def apply_templates(
        self, chats: Sequence[list[dict[str, str]]], thinking: bool | None
    ) -> list[str | None]:
        """Return chats as the texts that the model continues; None without a template."""
        if not self._tokenizer.chat_template:
            return [None] * len(chats)
        # Templates that know no such switch ignore the argument.
        switch: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        return [render_chat(self._tokenizer, messages, **switch) for messages in chats]

    def score_rows(
        self, rows: Sequence[ScoredRow], contexts: Sequence[TokenIds] = (), top_k: int = 0
    ) -> RowScores:
        """Compute the log-probability of each row's continuation, and likeliest next tokens."""
        unique = list(dict.fromkeys(rows))
        prompts = [(*row.context, *row.continuation) for row in unique]
        # 0: the prompt's tokens themselves, without likelier ones.
        outputs = self._run(prompts, max_tokens=1, temperature=0.0, prompt_logprobs=0)
        values = {}
        for row, prompt, output in zip(unique, prompts, outputs, strict=True):
            positions = range(len(row.context), len(prompt))
            values[row] = sum(_log_prob(output.prompt_logprobs[i], prompt[i]) for i in positions)
        top = []
        tops = self._run(contexts, max_tokens=1, temperature=0.0, logprobs=top_k) if top_k else []
        for output in tops:
            (first,) = output.outputs[0].logprobs
            # vLLM adds the sampled token to the likeliest ones, so there may be one too many.
            log_probs = {token: entry.logprob for token, entry in first.items()}
            top.append(
                make_top_tokens(sorted(log_probs.items(), key=lambda item: -item[1])[:top_k])
            )
        return RowScores([values[row] for row in rows], top)

    def generate_texts(
        self,
        prompts: Sequence[GenerationPrompt],
        sample_numbers: Sequence[int],
        config: GenerationConfig,
    ) -> list[GeneratedText]:
        """Generate one text after each prompt; a seed for each, so that batches change nothing."""
        seeds = [
            sample_seed(config.seed, prompt, number)
            for prompt, number in zip(prompts, sample_numbers, strict=True)
        ]
        outputs = self._run(
            [prompt.ids for prompt in prompts],
            seeds,
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            stop=list(config.stop),
        )
        texts = []
        for prompt, output in zip(prompts, outputs, strict=True):
            (sample,) = output.outputs
            reported: FinishReason = "other"
            if sample.finish_reason in FINISH_REASONS:
                reported = sample.finish_reason
            texts.append(
                GeneratedText(sample.text, tuple(sample.token_ids), reported, len(prompt.ids))
            )
        return texts

    def _run(
        self, prompts: Sequence[TokenIds], seeds: Sequence[int] | None = None, **sampling: Any
    ) -> list[Any]:
        """Outputs of the engine, one for each prompt."""
        import vllm

        parameters = [
            vllm.SamplingParams(**sampling, seed=seed) for seed in (seeds or [0] * len(prompts))
        ]
        inputs = [{"prompt_token_ids": list(ids)} for ids in prompts]
        return list(self.engine.generate(inputs, parameters, use_tqdm=False)) if inputs else []


def _log_prob(position: Any, token: int) -> float:
    """Log-probability of a prompt's token."""
    value = float(position[token].logprob)
    if value == -float("inf"):
        raise LogProbsMissingError(
            "vLLM reports that a token has the probability 0",
            hint="give dtype='float32': the probability underflowed",
        )
    return require_log_prob(value)
