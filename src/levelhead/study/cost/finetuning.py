"""What training a classifier will cost: a few steps of several sizes are taken, and thrown away."""

from __future__ import annotations

import time
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from levelhead.core.run_context import Inference, RunContext
from levelhead.data.tasks import task, text_of
from levelhead.measures.utility.glue_task import Tasked
from levelhead.models.loading.load import load
from levelhead.models.loading.quiet import quiet
from levelhead.models.training.classifier_trainer import Batches, loss_of, new_classifier
from levelhead.models.training.finetune import classifier_of, encoded_rows
from levelhead.models.training.from_scratch import chance_aside
from levelhead.study.cost.cost import PROBES, foresee
from levelhead.study.cost.estimate import MB, Foreseen, peak_mb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.lm import LM
    from levelhead.models.training.finetune import Tuning


def foresee_tuning(
    lm: LM,
    name: str,
    tuning: Tuning,
    *,
    train: str | None = None,
    dev: str | None = None,
) -> Foreseen:
    """What `finetune` will take on a task, its report on dev included, beyond loading the base.

    Args:
        lm: the base.
        name: a row of TASKS.
        tuning: how it is trained.
        train: a file of your own instead of the task's training part.
        dev: the same for the part that it is judged on.
    """
    began = time.perf_counter()
    row = task(name)
    rows: Any = [(text_of(one), one.label) for one in row.examples("train", train)]
    if row.is_score:
        rows = [(text, float(label)) for text, label in rows]
    shown = encoded_rows(lm.tokens, rows, row.labels, tuning.longest)
    for one in shown:
        del one["cut"]
    lengths = [len(one["input_ids"]) for one in shown]
    batches = Batches(shown, lm.tokens.tokenizer, tuning)
    order = batches.order
    prepared = time.perf_counter() - began
    sizes = [max(lengths[i] for i in batch) * len(batch) for batch in order]
    with quiet(), chance_aside(), threadpool_limits(tuning.threads):
        torch.manual_seed(tuning.seed)
        model = new_classifier(lm, classifier_of(lm), row.labels)
        slope, start = _steps(model, batches, sizes, tuning)
        judging = _judging(lm, model, Tasked(task=name, file=dev), tuning.threads)
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    # Weights once, and a checkpoint every few steps with weights and two moments each, on disk.
    saves = -(-len(order) // tuning.every)
    saving = saves * 3 * weights / (400 * MB)
    parts = {
        "preparing": prepared,
        "steps": float(sum(start + slope * size for size in sizes)),
        "checkpoints": saving,
    }
    return judging + Foreseen(
        forwards=len(order),
        tokens=sum(lengths[i] for batch in order for i in batch),
        seconds=sum(parts.values()),
        parts=parts,
        peak_mb=peak_mb(),
        disk_mb=(1 + 2 * 3) * weights / MB,
        notes=("checkpoints are taken to be written at 400 MB a second",),
    )


def _judging(lm: LM, model: Any, measure: Tasked, threads: int) -> Foreseen:
    """What judging takes: that of the classifier as it begins, which is read like any other."""
    with TemporaryDirectory() as folder:
        model.eval().save_pretrained(folder)
        lm.tokens.tokenizer.save_pretrained(folder)
        began = time.perf_counter()
        new = load(folder)
        loading = time.perf_counter() - began
        found = foresee(new, [measure], inference=Inference(), context=RunContext(threads=threads))
    parts = {"loading it": loading, **{f"its {name}": own for name, own in found.parts.items()}}
    return found.model_copy(update={"seconds": found.seconds + loading, "parts": parts})


def _steps(
    model: Any, batches: Batches, sizes: Sequence[int], tuning: Tuning
) -> tuple[float, float]:
    """Seconds a padded token, and a step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
    places = np.argsort(sizes)[::-1][np.linspace(0, len(sizes) - 1, PROBES).round().astype(int)]
    seen, took = [], []
    for place in [places[0], *places]:  # the first time is not counted
        began = time.perf_counter()
        loss_of(model, batches.collated([place]), dropout=tuning.dropout).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        took.append(time.perf_counter() - began)
        seen.append(sizes[place])
    slope, start = np.polyfit(seen[1:], took[1:], 1) if len(set(seen)) > 1 else (0.0, took[-1])
    if slope < 0 or start < 0:
        return sum(took[1:]) / sum(seen[1:]), 0.0
    return float(slope), float(start)
