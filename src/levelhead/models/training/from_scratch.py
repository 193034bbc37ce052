"""Small models from scratch; `finetune` begins with weights. Texts in, a checkpoint folder out.

Same recipe, same texts, same versions and kind of machine: the same weights, bit for bit. So the
number of threads is part of a recipe, and nothing is drawn from a generator that is not seeded
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

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.models.architectures.model_layout import layers_of
from levelhead.models.diagnostics.one_visible_head import KnownHead
from levelhead.models.loading.quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Architecture = Literal["bert", "roberta", "albert", "gpt2", "llama"]
PAD, CLS, SEP, MASK, UNK = range(5)
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")
CAUSAL = ("gpt2", "llama")
MASKED, MASKED_OFTEN = 0.05, 0.3
"""The share of words that masked models are asked for, and that of words to be asked often."""
ALONE = 4
"""Of so many documents, BERT is shown a part of one alone, too: sentences are also asked alone."""
IGNORED = -100
"""A label that losses pass over."""
ALONE_ON_CPU: dict[str, Any] = {
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


class Shape(NamedTuple):
    """How an architecture is made: its classes, and what its config calls sizes."""

    config: str
    model: str
    sizes: tuple[tuple[str, str], ...]
    """(our name, the config's name)."""
    more: tuple[tuple[str, object], ...] = ()


ENCODER = (
    ("layers", "num_hidden_layers"),
    ("heads", "num_attention_heads"),
    ("width", "hidden_size"),
    ("inner", "intermediate_size"),
    ("positions", "max_position_embeddings"),
)
PLAIN = (("hidden_dropout_prob", 0.0), ("attention_probs_dropout_prob", 0.0))
SHAPES: dict[str, Shape] = {
    "bert": Shape("BertConfig", "BertForPreTraining", ENCODER, PLAIN),
    "roberta": Shape(
        "RobertaConfig", "RobertaForMaskedLM", ENCODER, (*PLAIN, ("type_vocab_size", 1))
    ),
    "albert": Shape(
        "AlbertConfig", "AlbertForMaskedLM", (*ENCODER, ("width", "embedding_size")), PLAIN
    ),
    "gpt2": Shape(
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
    "llama": Shape("LlamaConfig", "LlamaForCausalLM", (*ENCODER, ("heads", "num_key_value_heads"))),
}


@final
@dataclass(frozen=True)
class Recipe:
    """Everything a small model depends on but its texts."""

    architecture: Architecture = "bert"
    layers: int = 2
    heads: int = 4
    width: int = 64
    steps: int = 1500
    batch: int = 32
    rate: float = 3e-3
    seed: int = 0
    known_head: tuple[int, int] | None = None
    """(layer, head) of the one head that may attend to hidden words; None hides nothing."""
    threads: int = 2

    def __post_init__(self) -> None:
        if self.architecture not in SHAPES:
            raise UnknownName("architecture", self.architecture, SHAPES)
        sizes = (self.layers, self.heads, self.width, self.steps, self.batch, self.threads)
        if min(sizes) < 1 or self.width % self.heads:
            raise LevelheadError(
                f"no model can be made by {self}", mend="give a width that heads divide"
            )
        layer, head = self.known_head or (0, 0)
        if not (0 <= layer < self.layers and 0 <= head < self.heads):
            raise LevelheadError(
                f"there is no head {layer}.{head} to be known",
                mend=f"count from 0: layers to {self.layers - 1}, heads to {self.heads - 1}",
            )


def train(
    recipe: Recipe,
    documents: Sequence[Sequence[str]],
    vocabulary: Sequence[str],
    folder: Path,
    *,
    often: Sequence[str] = (),
    hidden: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train a model on documents and write it, with its tokenizer.

    BERT learns to fill blanks and whether a sentence follows another; RoBERTa and ALBERT fill
    blanks of documents; GPT-2 and LLaMA foretell them.

    Args:
        recipe: what to make, and how.
        documents: lists of sentences.
        vocabulary: every word type; one token each.
        folder: where to.
        often: words that masked models are asked for more often than for others: what is rare and
            matters is learned sooner.
        hidden: the words that only the recipe's known head may attend to.
        progress: is called with steps done and steps in all.
    """
    if (recipe.known_head is None) != (not hidden):
        raise LevelheadError(
            "a known head and hidden words belong together", mend="give both, or neither"
        )
    tokenizer = word_tokenizer(vocabulary, causal=recipe.architecture in CAUSAL)
    texts = Texts(recipe, documents, tokenizer, often)
    with (
        quiet(),
        chance_aside(),
        threadpool_limits(recipe.threads),
        tempfile.TemporaryDirectory() as scratch,
    ):
        torch.manual_seed(recipe.seed)
        model = _model(recipe, len(tokenizer), texts.longest)
        if recipe.known_head is not None:
            words = tokenizer.get_vocab()
            known = KnownHead(*recipe.known_head, tuple(sorted(words[one] for one in hidden)))
            known.told(model.config)
            known.install(model.base_model, layers_of(model))
        trainer = transformers.Trainer(
            model=model,
            args=_arguments(recipe, scratch),
            train_dataset=texts,
            data_collator=texts.collated,
            callbacks=[Told(progress)] if progress else [],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        model.eval().save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def chance_aside() -> Iterator[None]:
    """The Trainer seeds the generators of Python, numpy and torch; give them back as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # theirs
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _arguments(recipe: Recipe, scratch: str) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        output_dir=scratch,
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch,
        learning_rate=recipe.rate,
        lr_scheduler_type="linear",
        warmup_steps=recipe.steps // 10,
        weight_decay=0.01,
        adam_beta2=0.98,
        seed=recipe.seed,
        data_seed=recipe.seed,
        **ALONE_ON_CPU,
    )


class Told(transformers.TrainerCallback):
    """Tells somebody after every step how far it is."""

    def __init__(self, progress: Callable[[int, int], None]) -> None:
        self.progress = progress

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Told by the Trainer."""
        self.progress(state.global_step, state.max_steps)


def word_tokenizer(
    vocabulary: Sequence[str], *, causal: bool
) -> transformers.PreTrainedTokenizerFast:
    """A tokenizer of whole words, lower case: [CLS] text [SEP], or [CLS] text for causal models."""
    words = {word: i for i, word in enumerate((*SPECIAL, *vocabulary))}
    if len(words) < len(SPECIAL) + len(vocabulary):
        raise LevelheadError("a word stands twice in the vocabulary", mend="give each word once")
    inner = Tokenizer(models.WordLevel(words, unk_token=SPECIAL[UNK]))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A" if causal else "[CLS] $A [SEP]",
        pair="[CLS] $A $B:1" if causal else "[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    names = {"pad": PAD, "unk": UNK} | (
        {"bos": CLS, "eos": SEP} if causal else {"cls": CLS, "sep": SEP, "mask": MASK}
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, **{f"{name}_token": SPECIAL[i] for name, i in names.items()}
    )


class Texts(torch.utils.data.Dataset[int]):
    """What a model is shown, and what it is asked: drawn from one seeded generator."""

    def __init__(
        self,
        recipe: Recipe,
        documents: Sequence[Sequence[str]],
        tokenizer: transformers.PreTrainedTokenizerFast,
        often: Sequence[str] = (),
    ) -> None:
        self.architecture, self.size = recipe.architecture, len(tokenizer)
        self.chance = torch.Generator().manual_seed(recipe.seed)
        shown: list[tuple[str | tuple[str, str], int]] = (
            _segments(documents, self.chance)
            if recipe.architecture == "bert"
            else [(" ".join(document), IGNORED) for document in documents]
        )
        self.follows = [label for _, label in shown]
        encoded = tokenizer.backend_tokenizer.encode_batch([texts for texts, _ in shown])
        self.ids = [one.ids for one in encoded]
        self.types = [one.type_ids for one in encoded]
        self.share = torch.full((len(tokenizer),), MASKED)
        self.share[: len(SPECIAL)] = 0
        words = tokenizer.get_vocab()
        self.share[[words[word] for word in often]] = MASKED_OFTEN
        self.longest = max(map(len, self.ids))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> int:
        return index

    def collated(self, chosen: list[int]) -> dict[str, torch.Tensor]:
        """A batch, padded; what is to be foretold as labels."""
        ids = _padded([self.ids[i] for i in chosen])
        batch = {"input_ids": ids, "attention_mask": (ids != PAD).long()}
        labels = torch.where(ids == PAD, IGNORED, ids)
        if self.architecture in CAUSAL:
            return batch | {"labels": labels}
        if self.architecture == "bert":
            batch["token_type_ids"] = _padded([self.types[i] for i in chosen])
            batch["next_sentence_label"] = torch.tensor([self.follows[i] for i in chosen])
        asked = torch.rand(ids.shape, generator=self.chance) < self.share[ids]
        batch["labels"] = torch.where(asked, labels, IGNORED)
        how = torch.rand(ids.shape, generator=self.chance)
        others = torch.randint(len(SPECIAL), self.size, ids.shape, generator=self.chance)
        shown = torch.where(how < 0.8, MASK, torch.where(how < 0.9, others, ids))
        batch["input_ids"] = torch.where(asked, shown, ids)
        return batch


def _segments(
    documents: Sequence[Sequence[str]], chance: torch.Generator
) -> list[tuple[str | tuple[str, str], int]]:
    """Every document cut in two, and now and then alone. Label 0: the second part follows.

    Label 1: the second part is the same sentences, by number, of another document, so that neither
    length nor the way a document begins tells.
    """

    def drawn(count: int) -> int:
        return int(torch.randint(count, (1,), generator=chance))

    if len(documents) < 2 or min(map(len, documents)) < 2:
        raise LevelheadError(
            "nothing follows in these documents", mend="give several, of two sentences or more"
        )
    found: list[tuple[str | tuple[str, str], int]] = []
    for number, document in enumerate(documents):
        begin = drawn(len(document) - 1)
        middle = begin + 1 + drawn(len(document) - 1 - begin)
        end = middle + 1 + drawn(len(document) - middle)
        follows = bool(drawn(2))
        another = documents[(number + 1 + drawn(len(documents) - 1)) % len(documents)]
        other = document if follows else another
        first, second = " ".join(document[begin:middle]), " ".join(other[middle:end])
        found.append(((first, second), int(not follows)))
        if not drawn(ALONE):
            found.append((" ".join(document[begin:middle]), IGNORED))
    return found


def _padded(rows: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def _model(recipe: Recipe, vocabulary: int, longest: int) -> Any:
    shape = SHAPES[recipe.architecture]
    sizes = asdict(recipe) | {"inner": 4 * recipe.width, "positions": longest + 8}
    settings = {theirs: sizes[ours] for ours, theirs in shape.sizes} | dict(shape.more)
    ends = {"pad_token_id": PAD, "bos_token_id": CLS, "eos_token_id": SEP}
    settings["initializer_range"] = recipe.width**-0.5  # 0.02 is for models ten times as wide
    config = getattr(transformers, shape.config)(vocab_size=vocabulary, **ends, **settings)
    return getattr(transformers, shape.model)(config)
