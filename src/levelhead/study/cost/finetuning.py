"""Estimate the cost of training a classifier from a few discarded steps of several sizes."""

from __future__ import annotations

import time
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from levelhead.core.run_context import Inference, RunContext
from levelhead.data.tasks import example_text, get_task_spec
from levelhead.measures.utility.glue_task import GlueTask
from levelhead.models.loading.load import load
from levelhead.models.loading.quiet import quiet
from levelhead.models.training.classifier_trainer import (
    BatchDataset,
    compute_classification_loss,
    make_classifier,
)
from levelhead.models.training.finetune import encode_rows, find_classifier_class
from levelhead.models.training.from_scratch import preserve_rng_state
from levelhead.study.cost.cost import PROBES, estimate_cost
from levelhead.study.cost.estimate import MB, CostEstimate, peak_mb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.lm import LM
    from levelhead.models.training.configs import FinetuneConfig


def estimate_finetuning_cost(
    lm: LM,
    name: str,
    tuning: FinetuneConfig,
    *,
    train: str | None = None,
    dev: str | None = None,
) -> CostEstimate:
    """Estimate the cost of `finetune` on a task, with its report on dev, without loading the base.

    Args:
        lm: the base model.
        name: name of a task in TASKS.
        tuning: training options.
        train: user's file instead of the task's training part.
        dev: user's file instead of the part for evaluation.
    """
    started_at = time.perf_counter()
    row = get_task_spec(name)
    rows: Any = [(example_text(example), example.label) for example in row.examples("train", train)]
    if row.is_regression:
        rows = [(text, float(label)) for text, label in rows]
    encoded_examples = encode_rows(lm.tokens, rows, row.labels, tuning.max_tokens)
    for encoded in encoded_examples:
        del encoded["cut"]
    lengths = [len(encoded["input_ids"]) for encoded in encoded_examples]
    batches = BatchDataset(encoded_examples, lm.tokens.tokenizer, tuning)
    order = batches.order
    prepared = time.perf_counter() - started_at
    sizes = [max(lengths[i] for i in batch) * len(batch) for batch in order]
    with quiet(), preserve_rng_state(), threadpool_limits(tuning.threads):
        torch.manual_seed(tuning.seed)
        model = make_classifier(lm, find_classifier_class(lm), row.labels)
        slope, start = _time_steps(model, batches, sizes, tuning)
        judging = _estimate_evaluation(lm, model, GlueTask(task=name, file=dev), tuning.threads)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    # The weights once, and every few steps a checkpoint with weights and the two moments of Adam.
    saves = -(-len(order) // tuning.save_steps)
    saving = saves * 3 * weights / (400 * MB)
    parts = {
        "preparing": prepared,
        "steps": float(sum(start + slope * size for size in sizes)),
        "checkpoints": saving,
    }
    return judging + CostEstimate(
        forwards=len(order),
        tokens=sum(lengths[i] for batch in order for i in batch),
        seconds=sum(parts.values()),
        seconds_by_part=parts,
        peak_mb=peak_mb(),
        # The model, and two retained checkpoints of weights and Adam's two moments.
        disk_mb=(1 + 2 * 3) * weights / MB,
        notes=("checkpoints are assumed to be written at 400 MB per second",),
    )


def _estimate_evaluation(lm: LM, model: Any, measure: GlueTask, threads: int) -> CostEstimate:
    """Estimate the cost of the evaluation with the untrained classifier, which costs the same."""
    with TemporaryDirectory() as folder:
        model.eval().save_pretrained(folder)
        lm.tokens.tokenizer.save_pretrained(folder)
        started_at = time.perf_counter()
        classifier = load(folder)
        loading = time.perf_counter() - started_at
        cost = estimate_cost(
            classifier, [measure], inference=Inference(), context=RunContext(threads=threads)
        )
    parts = {
        "loading it": loading,
        **{f"its {name}": seconds for name, seconds in cost.seconds_by_part.items()},
    }
    return cost.model_copy(update={"seconds": cost.seconds + loading, "seconds_by_part": parts})


def _time_steps(
    model: Any, batches: BatchDataset, sizes: Sequence[int], tuning: FinetuneConfig
) -> tuple[float, float]:
    """Seconds per padded token and per step."""
    # A rate of 0, so that no timed step changes a weight.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
    positions = np.argsort(sizes)[::-1][np.linspace(0, len(sizes) - 1, PROBES).round().astype(int)]
    timed_sizes, timings = [], []
    for position in [positions[0], *positions]:  # the first step warms up and is not counted
        started_at = time.perf_counter()
        compute_classification_loss(
            model, batches.collate([position]), dropout=tuning.dropout
        ).backward()
        # The Trainer clips by default, so this is part of the time of a step.
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        timings.append(time.perf_counter() - started_at)
        timed_sizes.append(sizes[position])
    slope, start = (
        np.polyfit(timed_sizes[1:], timings[1:], 1)
        if len(set(timed_sizes)) > 1
        else (0.0, timings[-1])
    )
    if slope < 0 or start < 0:
        return sum(timings[1:]) / sum(timed_sizes[1:]), 0.0
    return float(slope), float(start)
