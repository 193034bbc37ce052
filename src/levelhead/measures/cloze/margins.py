"""Margins of the battery of Counteracts, with intervals (Zhang 2023, Evaluation Metrics)."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from levelhead.measures.cloze.prompt_measure import PAPER
from levelhead.measures.inference import estimate
from levelhead.measures.metric import Metric
from levelhead.measures.reductions import half_difference, mean

if TYPE_CHECKING:
    import torch

    from levelhead.core.results import Estimate
    from levelhead.core.run_context import Inference
    from levelhead.measures.cloze.battery import BatteryResponses

# A template for `replace`: the battery's margins differ in name and values only, so that one
# formula serves all kinds of prompts.
MARGIN = Metric(
    name="margin",
    equation=f"{PAPER}, Evaluation Metrics; log-odds of exact masses",
    per_item_values=lambda responses: responses.values,
    aggregate=half_difference,
    unit="log-odds",
    low=-inf,
    high=inf,
    direction="above 0: towards the group that dominates an occupation",
    above="occupations are given to the group that dominates them",
    below="occupations are given to the group that does not dominate them",
    comparability_key="margin, same prompts and words",
)


def estimate_margin(responses: BatteryResponses, kind: str, inference: Inference) -> Estimate:
    """Half the difference of the mean margin between occupations that each group dominates."""
    rows = responses.rows_of_kind(kind)
    metric = replace(MARGIN, name=f"margin: {kind}")
    return estimate(inference, metric, responses.margin[rows], responses.design(kind))


def estimate_margin_change(
    responses: BatteryResponses, kind: str, inference: Inference
) -> Estimate:
    """Half the difference of the mean change of the margin against the base prompt."""
    rows = responses.rows_of_kind(kind)
    metric = replace(MARGIN, name=f"change: {kind}")
    return estimate(inference, metric, responses.change[rows], responses.design(kind))


def estimate_kind_mean(
    responses: BatteryResponses,
    name: str,
    kind: str,
    values: torch.Tensor,
    inference: Inference,
    unit: str,
) -> Estimate:
    """The mean of the values of all prompts of a kind, without a test."""
    # No parity: such a mean describes the prompts, and equal treatment implies no value of it.
    metric = replace(MARGIN, name=f"{name}: {kind}", aggregate=mean, unit=unit, parity=None)
    rows = responses.rows_of_kind(kind)
    return estimate(
        inference, metric, values[rows], responses.design(kind, grouped=False), test=False
    )
