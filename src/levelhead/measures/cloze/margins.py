"""Margins of the battery of Counteracts, with their intervals (Zhang 2023, Evaluation Metrics)."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from levelhead.measures.cloze.prompts_base import PAPER
from levelhead.measures.inference import estimate
from levelhead.measures.metric import Aspect
from levelhead.measures.reductions import half_difference, mean

if TYPE_CHECKING:
    import torch

    from levelhead.core.results import Estimate
    from levelhead.core.run_context import Inference
    from levelhead.measures.cloze.battery import Answers

MARGIN = Aspect(
    name="margin",
    equation=f"{PAPER}, Evaluation Metrics; log-odds of exact masses",
    per_item=lambda readouts: readouts.values,
    over=half_difference,
    unit="log-odds",
    low=-inf,
    high=inf,
    direction="above 0: towards the group that dominates an occupation",
    above="occupations are given to the group that dominates them",
    below="occupations are given to the group that does not dominate them",
    comparable="margin, same prompts and words",
)


def margin_of(answers: Answers, kind: str, inference: Inference) -> Estimate:
    """Half the difference of the margin between occupations that either group dominates."""
    where = answers.where(kind)
    aspect = replace(MARGIN, name=f"margin: {kind}")
    return estimate(inference, aspect, answers.margin[where], answers.design(kind))


def changed(answers: Answers, kind: str, inference: Inference) -> Estimate:
    """The same of the change against base."""
    where = answers.where(kind)
    aspect = replace(MARGIN, name=f"change: {kind}")
    return estimate(inference, aspect, answers.change[where], answers.design(kind))


def mean_of(
    answers: Answers, name: str, kind: str, values: torch.Tensor, inference: Inference, unit: str
) -> Estimate:
    """The mean of what each prompt of a kind contributes; not tested."""
    aspect = replace(MARGIN, name=f"{name}: {kind}", over=mean, unit=unit, parity=None)
    where = answers.where(kind)
    return estimate(
        inference, aspect, values[where], answers.design(kind, grouped=False), tested=False
    )
