"""Small models from scratch; `finetune` begins with weights. Texts in, a checkpoint folder out.

Same config, same texts, same versions and kind of machine: the same weights, bit for bit. So the
number of threads is part of the config, and nothing is sampled from a generator that is not seeded
here.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

import numpy as np
import torch
import transformers
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.models.architectures.model_layout import find_layers
from levelhead.models.diagnostics.one_visible_head import OneVisibleHead
from levelhead.models.loading.quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Architecture = Literal["bert", "roberta", "albert", "gpt2", "llama"]
PAD, CLS, SEP, MASK, UNK = range(5)
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")
CAUSAL = ("gpt2", "llama")
MASK_FRACTION, MASK_FRACTION_OFTEN = 0.05, 0.3
"""Share of words that masked models have to predict, and that of words to be masked often."""
SINGLE_SEGMENT_ONE_IN = 4
"""For one in so many documents, BERT also gets a part alone: sentences are also queried alone."""
IGNORED_LABEL = -100
"""A label that losses pass over."""
CPU_TRAINING_ARGUMENTS: dict[str, Any] = {
    "use_cpu": True,
    "report_to": [],
    "disable_tqdm": True,
    "logging_strategy": "no",
    "save_strategy": "no",
    "remove_unused_columns": False,
    "dataloader_pin_memory": False,
    "bf16": False,
    "fp16": False,
}
"""The Trainer's arguments for a run that talks to nobody and leaves nothing behind."""


class ModelShape(NamedTuple):
    """How an architecture is made: its classes, and what its config calls sizes."""

    config_class: str
    model_class: str
    sizes: tuple[tuple[str, str], ...]
    """(our name, the config's name)."""
    extra: tuple[tuple[str, object], ...] = ()


ENCODER_SIZES = (
    ("layers", "num_hidden_layers"),
    ("heads", "num_attention_heads"),
    ("width", "hidden_size"),
    ("inner", "intermediate_size"),
    ("positions", "max_position_embeddings"),
)
NO_DROPOUT = (("hidden_dropout_prob", 0.0), ("attention_probs_dropout_prob", 0.0))
SHAPES: dict[str, ModelShape] = {
    "bert": ModelShape("BertConfig", "BertForPreTraining", ENCODER_SIZES, NO_DROPOUT),
    "roberta": ModelShape(
        "RobertaConfig", "RobertaForMaskedLM", ENCODER_SIZES, (*NO_DROPOUT, ("type_vocab_size", 1))
    ),
    "albert": ModelShape(
        "AlbertConfig",
        "AlbertForMaskedLM",
        (*ENCODER_SIZES, ("width", "embedding_size")),
        NO_DROPOUT,
    ),
    "gpt2": ModelShape(
        "GPT2Config",
        "GPT2LMHeadModel",
        (
            ("layers", "n_layer"),
            ("heads", "n_head"),
            ("width", "n_embd"),
            ("inner", "n_inner"),
            ("positions", "n_positions"),
        ),
        (("resid_pdrop", 0.0), ("embd_pdrop", 0.0), ("attn_pdrop", 0.0)),
    ),
    "llama": ModelShape(
        "LlamaConfig", "LlamaForCausalLM", (*ENCODER_SIZES, ("heads", "num_key_value_heads"))
    ),
}


@final
@dataclass(frozen=True)
class TrainConfig:
    """Everything a small model depends on but its texts."""

    architecture: Architecture = "bert"
    layers: int = 2
    heads: int = 4
    width: int = 64
    steps: int = 1500
    batch_size: int = 32
    learning_rate: float = 3e-3
    seed: int = 0
    visible_head: tuple[int, int] | None = None
    """(layer, head) of the one head that may attend to hidden words; None hides nothing."""
    threads: int = 2

    def __post_init__(self) -> None:
        if self.architecture not in SHAPES:
            raise UnknownNameError("architecture", self.architecture, SHAPES)
        sizes = (self.layers, self.heads, self.width, self.steps, self.batch_size, self.threads)
        if min(sizes) < 1 or self.width % self.heads:
            raise LevelheadError(
                f"no model can be made by {self}", hint="give a width that heads divide"
            )
        layer, head = self.visible_head or (0, 0)
        if not (0 <= layer < self.layers and 0 <= head < self.heads):
            raise LevelheadError(
                f"there is no head {layer}.{head} to be visible",
                hint=f"count from 0: layers to {self.layers - 1}, heads to {self.heads - 1}",
            )


def train_from_scratch(
    config: TrainConfig,
    documents: Sequence[Sequence[str]],
    vocabulary: Sequence[str],
    folder: Path,
    *,
    often_masked: Sequence[str] = (),
    hidden_words: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train a model on documents and write it, with its tokenizer.

    BERT learns to fill blanks and whether a sentence follows another; RoBERTa and ALBERT fill
    blanks of documents; GPT-2 and LLaMA predict them.

    Args:
        config: what to make, and how.
        documents: lists of sentences.
        vocabulary: every word type; one token each.
        folder: where to.
        often_masked: words that masked models have to predict more often than others: rare words
            that matter are learned sooner.
        hidden_words: the words that only the config's visible head may attend to.
        progress: is called with steps done and steps in all.
    """
    if (config.visible_head is None) != (not hidden_words):
        raise LevelheadError(
            "a visible head and hidden words belong together", hint="give both, or neither"
        )
    tokenizer = make_word_tokenizer(vocabulary, causal=config.architecture in CAUSAL)
    texts = DocumentDataset(config, documents, tokenizer, often_masked)
    with (
        quiet(),
        preserve_rng_state(),
        threadpool_limits(config.threads),
        tempfile.TemporaryDirectory() as scratch,
    ):
        torch.manual_seed(config.seed)
        model = _build_model(config, len(tokenizer), texts.max_tokens)
        if config.visible_head is not None:
            token_ids = tokenizer.get_vocab()
            visible_head = OneVisibleHead(
                *config.visible_head, tuple(sorted(token_ids[word] for word in hidden_words))
            )
            visible_head.write_to(model.config)
            visible_head.install(model.base_model, find_layers(model))
        trainer = transformers.Trainer(
            model=model,
            args=_arguments(config, scratch),
            train_dataset=texts,
            data_collator=texts.collate,
            callbacks=[TrainProgressCallback(progress)] if progress else [],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        model.eval().save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def preserve_rng_state() -> Iterator[None]:
    """The Trainer seeds the generators of Python, numpy and torch; give them back as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # theirs
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _arguments(config: TrainConfig, scratch: str) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        output_dir=scratch,
        max_steps=config.steps,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=config.steps // 10,
        weight_decay=0.01,
        adam_beta2=0.98,
        seed=config.seed,
        data_seed=config.seed,
        **CPU_TRAINING_ARGUMENTS,
    )


class TrainProgressCallback(transformers.TrainerCallback):
    """Calls a function after every step with how far it is."""

    def __init__(self, progress: Callable[[int, int], None]) -> None:
        self.progress = progress

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the Trainer."""
        self.progress(state.global_step, state.max_steps)


def make_word_tokenizer(
    vocabulary: Sequence[str], *, causal: bool
) -> transformers.PreTrainedTokenizerFast:
    """A tokenizer of whole words, lower case: [CLS] text [SEP], or [CLS] text for causal models."""
    words = {word: i for i, word in enumerate((*SPECIAL, *vocabulary))}
    if len(words) < len(SPECIAL) + len(vocabulary):
        raise LevelheadError("a word stands twice in the vocabulary", hint="give each word once")
    backend = Tokenizer(models.WordLevel(words, unk_token=SPECIAL[UNK]))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A" if causal else "[CLS] $A [SEP]",
        pair="[CLS] $A $B:1" if causal else "[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    names = {"pad": PAD, "unk": UNK} | (
        {"bos": CLS, "eos": SEP} if causal else {"cls": CLS, "sep": SEP, "mask": MASK}
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, **{f"{name}_token": SPECIAL[i] for name, i in names.items()}
    )


class DocumentDataset(torch.utils.data.Dataset[int]):
    """Inputs and targets of a model, sampled with one seeded generator."""

    def __init__(
        self,
        config: TrainConfig,
        documents: Sequence[Sequence[str]],
        tokenizer: transformers.PreTrainedTokenizerFast,
        often_masked: Sequence[str] = (),
    ) -> None:
        self.architecture, self.vocabulary_size = config.architecture, len(tokenizer)
        self.generator = torch.Generator().manual_seed(config.seed)
        segments: list[tuple[str | tuple[str, str], int]] = (
            _make_segments(documents, self.generator)
            if config.architecture == "bert"
            else [(" ".join(document), IGNORED_LABEL) for document in documents]
        )
        self.next_sentence_labels = [label for _, label in segments]
        encoded = tokenizer.backend_tokenizer.encode_batch([texts for texts, _ in segments])
        self.ids = [encoding.ids for encoding in encoded]
        self.token_types = [encoding.type_ids for encoding in encoded]
        self.mask_fractions = torch.full((len(tokenizer),), MASK_FRACTION)
        self.mask_fractions[: len(SPECIAL)] = 0
        token_ids = tokenizer.get_vocab()
        self.mask_fractions[[token_ids[word] for word in often_masked]] = MASK_FRACTION_OFTEN
        self.max_tokens = max(map(len, self.ids))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> int:
        return index

    def collate(self, indices: list[int]) -> dict[str, torch.Tensor]:
        """A batch, padded; the targets are its labels."""
        ids = _pad([self.ids[i] for i in indices])
        batch = {"input_ids": ids, "attention_mask": (ids != PAD).long()}
        labels = torch.where(ids == PAD, IGNORED_LABEL, ids)
        if self.architecture in CAUSAL:
            return batch | {"labels": labels}
        if self.architecture == "bert":
            batch["token_type_ids"] = _pad([self.token_types[i] for i in indices])
            batch["next_sentence_label"] = torch.tensor(
                [self.next_sentence_labels[i] for i in indices]
            )
        is_target = torch.rand(ids.shape, generator=self.generator) < self.mask_fractions[ids]
        batch["labels"] = torch.where(is_target, labels, IGNORED_LABEL)
        roll = torch.rand(ids.shape, generator=self.generator)
        random_ids = torch.randint(
            len(SPECIAL), self.vocabulary_size, ids.shape, generator=self.generator
        )
        replacements = torch.where(roll < 0.8, MASK, torch.where(roll < 0.9, random_ids, ids))
        batch["input_ids"] = torch.where(is_target, replacements, ids)
        return batch


def _make_segments(
    documents: Sequence[Sequence[str]], generator: torch.Generator
) -> list[tuple[str | tuple[str, str], int]]:
    """Every document cut in two, and now and then alone. Label 0: the second part follows.

    Label 1: the second part is the same sentences, by number, of another document, so that neither
    length nor the way a document begins reveals the label.
    """

    def random_int(count: int) -> int:
        return int(torch.randint(count, (1,), generator=generator))

    if len(documents) < 2 or min(map(len, documents)) < 2:
        raise LevelheadError(
            "nothing follows in these documents", hint="give several, of two sentences or more"
        )
    segments: list[tuple[str | tuple[str, str], int]] = []
    for index, document in enumerate(documents):
        begin = random_int(len(document) - 1)
        middle = begin + 1 + random_int(len(document) - 1 - begin)
        end = middle + 1 + random_int(len(document) - middle)
        is_next = bool(random_int(2))
        other_document = documents[(index + 1 + random_int(len(documents) - 1)) % len(documents)]
        second_document = document if is_next else other_document
        first, second = " ".join(document[begin:middle]), " ".join(second_document[middle:end])
        segments.append(((first, second), int(not is_next)))
        if not random_int(SINGLE_SEGMENT_ONE_IN):
            segments.append((" ".join(document[begin:middle]), IGNORED_LABEL))
    return segments


def _pad(rows: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def _build_model(config: TrainConfig, vocabulary: int, longest: int) -> Any:
    shape = SHAPES[config.architecture]
    sizes = asdict(config) | {"inner": 4 * config.width, "positions": longest + 8}
    settings = {config_name: sizes[size_name] for size_name, config_name in shape.sizes} | dict(
        shape.extra
    )
    special_ids = {"pad_token_id": PAD, "bos_token_id": CLS, "eos_token_id": SEP}
    settings["initializer_range"] = config.width**-0.5  # 0.02 is for models ten times as wide
    model_config = getattr(transformers, shape.config_class)(
        vocab_size=vocabulary, **special_ids, **settings
    )
    return getattr(transformers, shape.model_class)(model_config)
