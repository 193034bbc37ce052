"""A pretrained encoder made a classifier: a new head, all weights trained on labelled texts.

Same base, texts, recipe, versions and kind of machine: the same weights, bit for bit.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, final

import torch
import transformers
from threadpoolctl import threadpool_limits

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.models.quiet import quiet
from levelhead.models.train import ALONE_ON_CPU, Told, chance_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Text = str | tuple[str, str]


@final
@dataclass(frozen=True)
class Tuning:
    """Everything a classifier depends on but its base and its texts."""

    epochs: float = 1.0
    batch: int = 32
    rate: float = 1e-4
    longest: int = 128
    """Tokens of a text; what is longer is cut."""
    seed: int = 0
    threads: int = 2


def finetune(
    base: Path,
    rows: Sequence[tuple[Text, str]],
    labels: Sequence[str],
    folder: Path,
    *,
    tuning: Tuning | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train a classifier on a base's weights and write it, with the base's tokenizer.

    Args:
        base: a folder with a pretrained encoder, as safetensors.
        rows: texts, or pairs of them, each with its label.
        labels: the classes, in the order of the classifier's columns.
        folder: where to.
        tuning: how.
        progress: is called with steps done and steps in all.
    """
    tuning = tuning or Tuning()
    for _, label in rows:
        if label not in labels:
            raise UnknownName("label", label, labels)
    if len(set(labels)) < 2 or len({label for _, label in rows}) < 2:
        raise LevelheadError("one class only", mend="give texts of two classes at least")
    with (
        quiet(),
        chance_aside(),
        threadpool_limits(tuning.threads),
        tempfile.TemporaryDirectory() as scratch,
    ):
        torch.manual_seed(tuning.seed)
        tokenizer = transformers.AutoTokenizer.from_pretrained(base)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            base,
            dtype=torch.float32,
            use_safetensors=True,
            id2label=dict(enumerate(labels)),
            label2id={label: i for i, label in enumerate(labels)},
        )
        trainer = transformers.Trainer(
            model=model,
            args=_arguments(tuning, scratch),
            train_dataset=cast("Any", _encoded(tokenizer, rows, labels, tuning.longest)),
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            callbacks=[Told(progress)] if progress else [],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        model.eval().save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _encoded(
    tokenizer: Any, rows: Sequence[tuple[Text, str]], labels: Sequence[str], longest: int
) -> list[dict[str, Any]]:
    found = []
    for text, label in rows:
        both = (text,) if isinstance(text, str) else text
        encoded = tokenizer(*both, truncation=True, max_length=longest)
        found.append(dict(encoded) | {"labels": list(labels).index(label)})
    return found


def _arguments(tuning: Tuning, scratch: str) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        output_dir=scratch,
        num_train_epochs=tuning.epochs,
        per_device_train_batch_size=tuning.batch,
        learning_rate=tuning.rate,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        weight_decay=0.01,
        seed=tuning.seed,
        data_seed=tuning.seed,
        # Texts of like length stand in one batch: less padding, half the time.
        train_sampling_strategy="group_by_length",
        **ALONE_ON_CPU,
    )
