"""The classifier that `finetune` trains: a new head, batches whose order is known, the Trainer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import transformers
from threadpoolctl import threadpool_limits

from levelhead.models.architectures.model_layout import Anatomy, is_transposed, layers_of
from levelhead.models.diagnostics.one_visible_head import KnownHead
from levelhead.models.edits.merge import baked
from levelhead.models.loading.quiet import quiet
from levelhead.models.training.from_scratch import ALONE_ON_CPU, Told, chance_aside
from levelhead.models.training.resumable import Marked, last_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from levelhead.models.architectures.families import ModelClass
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM
    from levelhead.models.training.finetune import Tuning

WINDOW = 50
"""Batches whose texts are dealt among them by length: less padding, half the time."""
SCORE = "score"
"""The name of the one column of a model that foretells a number."""


def trained(
    lm: LM,
    row: ModelClass,
    shown: Sequence[dict[str, Any]],
    labels: Sequence[str],
    edits: Sequence[Edit],
    tuning: Tuning,
    unfinished: Path,
    progress: Callable[[int, int], None] | None,
) -> Any:
    """A new classifier on a base, trained; goes on from the last whole checkpoint in the folder."""
    with quiet(), chance_aside(), threadpool_limits(tuning.threads):
        torch.manual_seed(tuning.seed)
        model = new_classifier(lm, row, labels)
        if edits:
            anatomy = baked(Anatomy.of(model, row), tuple(edits))
            model = anatomy.model
            _hold(anatomy, edits)
        batches = Batches(shown, lm.tokens.tokenizer, tuning)
        trainer = _Trainer(
            model=model,
            args=_arguments(tuning, len(batches), unfinished),
            train_dataset=batches,
            data_collator=batches.collated,
            callbacks=[Marked(), *([Told(progress)] if progress else [])],
        )
        trainer.dropout = tuning.dropout
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train(resume_from_checkpoint=last_whole(unfinished))
    return model


def new_classifier(lm: LM, row: ModelClass, labels: Sequence[str]) -> Any:
    """The base's weights under a new head, in float32."""
    source, names = lm.identity.checkpoint, list(labels) or [SCORE]
    model = getattr(transformers, row.name).from_pretrained(
        source.folder,
        dtype=torch.float32,
        use_safetensors=not source.pickled,
        weights_only=True,
        trust_remote_code=False,
        local_files_only=True,
        problem_type="single_label_classification" if labels else "regression",
        id2label=dict(enumerate(names)),
        label2id={name: i for i, name in enumerate(names)},
    )
    if known := KnownHead.of(model.config):
        known.install(model.base_model, layers_of(model))
    return model


def _hold(anatomy: Anatomy, edits: Sequence[Edit]) -> None:
    """Keep masked heads masked: the columns of W_O that read them get no gradient.

    They are 0, and so are their moments in Adam and what weight decay takes of them: they stay 0.
    """
    for site in (site for edit in edits for site in edit.at):
        linear = anatomy.place("head_out", site.layer).module
        weight = cast("torch.nn.Parameter", linear.weight)
        columns = cast("torch.Tensor", anatomy.columns("head_out", site.layer))[site.head]
        kept = torch.ones_like(weight)
        (kept.T if is_transposed(linear) else kept)[:, columns] = 0
        weight.register_hook(lambda gradient, kept=kept: gradient * kept)


class _Trainer(transformers.Trainer):
    """Takes the loss over one batch as it stands, whatever kind of head it is."""

    dropout: bool

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The loss of a batch."""
        return loss_of(model, inputs, dropout=self.dropout)


def loss_of(model: Any, inputs: dict[str, Any], *, dropout: bool) -> torch.Tensor:
    """The mean negative log-probability (natural) of the labels, or squared error of scores."""
    labels = inputs.pop("labels")
    model.train(dropout)  # in all families, dropout is all that training mode is
    said = model(**inputs).logits.float()
    if labels.is_floating_point():
        return torch.nn.functional.mse_loss(said[:, 0], labels)
    return torch.nn.functional.cross_entropy(said, labels)


class Batches(torch.utils.data.Dataset[int]):
    """What is shown in each step: an item is a whole batch."""

    def __init__(self, shown: Sequence[dict[str, Any]], tokenizer: Any, tuning: Tuning) -> None:
        self.shown = shown
        self.order = order_of([len(one["input_ids"]) for one in shown], tuning)
        self.padded = transformers.DataCollatorWithPadding(tokenizer)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> int:
        return index

    def collated(self, numbers: list[int]) -> dict[str, Any]:
        """One batch, padded."""
        (number,) = numbers
        return dict(self.padded([self.shown[i] for i in self.order[number]]))


def order_of(lengths: Sequence[int], tuning: Tuning) -> list[list[int]]:
    """The texts of every step: each once an epoch, batches of like length, mixed."""
    rng, size = np.random.default_rng(tuning.seed), tuning.batch
    steps = math.ceil(tuning.epochs * math.ceil(len(lengths) / size))
    found: list[list[int]] = []
    while len(found) < steps:
        drawn = rng.permutation(len(lengths)).tolist()
        cut = []
        for begin in range(0, len(drawn), WINDOW * size):
            window = sorted(drawn[begin : begin + WINDOW * size], key=lengths.__getitem__)
            cut += [window[i : i + size] for i in range(0, len(window), size)]
        found += [cut[i] for i in rng.permutation(len(cut))]
    return found[:steps]


def _arguments(tuning: Tuning, steps: int, unfinished: Path) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        output_dir=str(unfinished),
        max_steps=steps,
        per_device_train_batch_size=1,  # of our own batches
        learning_rate=tuning.rate,
        lr_scheduler_type="linear",
        warmup_steps=steps // 10,
        weight_decay=0.01,
        seed=tuning.seed,
        data_seed=tuning.seed,
        train_sampling_strategy="sequential",  # `Batches` holds the order
        **ALONE_ON_CPU
        | {
            "save_strategy": "steps",
            "save_steps": tuning.every,
            "save_total_limit": 2,  # the one before, too: the last may not be whole
        },
    )
