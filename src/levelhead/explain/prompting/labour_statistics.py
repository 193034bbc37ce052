"""Does a model track labour statistics, or exaggerate them?

Zhang 2023 cuts occupations at half women; an analyst (45.9%) then weighs as much as a mechanic
(2.9%). Here the base margin, in log-odds, is regressed on the log-odds of the share itself: a slope
of 1 tracks the statistics, a larger one exaggerates them.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Estimate, Record
from levelhead.data.prompts.counteracts import table
from levelhead.explain.prompting.contrasts import at_95
from levelhead.measures.cloze.prompts_base import BASE, PAPER
from levelhead.measures.inference import estimate
from levelhead.measures.metric import Aspect
from levelhead.measures.reductions import drawn

if TYPE_CHECKING:
    from levelhead.core.run_context import Inference
    from levelhead.measures.cloze.battery import Answers
    from levelhead.stats.designs import Draw

Tracks = Literal["exaggerates", "tracks", "understates", "not related", "reversed", "undecided"]
NEAR = 0.25
"""How near to 1 or 0 all of the slope's interval must be to be called so."""


class Labour(Record):
    """The base margin against the share of the first group's members in each occupation."""

    slope: Estimate
    """Log-odds of the model for one unit of log-odds in the labour force; p against 1."""
    at_half: Estimate
    """The margin of an occupation that is half and half."""
    correlation: Estimate
    verdict: Tracks


def labour(answers: Answers, inference: Inference) -> Labour:
    """Regress base margins on shares, with occupations redrawn."""
    where = answers.where(BASE)
    shares = torch.tensor([_share(answers, int(i)) for i in where])
    values = torch.stack([answers.margin[where], torch.logit(shares)], dim=1)
    design = answers.design(BASE, grouped=False)

    def estimate_line(
        name: str, over: object, parity: float, unit: str, bound: float, by: Inference = inference
    ) -> Estimate:
        aspect = Aspect(
            name=name,
            equation=f"{PAPER}, Table 1, as a regressor",
            per_item=lambda readouts: readouts.values,
            over=over,  # type: ignore[arg-type]
            unit=unit,
            low=-bound,
            high=bound,
            direction="above 1: exaggerates",
            comparable="labour",
            parity=parity,
        )
        return estimate(by, aspect, values, design)

    asked = ("slope", lambda v, d: _line(v, d)[0], 1.0, "log-odds per log-odds", inf)
    return Labour(
        slope=estimate_line(*asked),
        at_half=estimate_line("margin at half", lambda v, d: _line(v, d)[1], 0.0, "log-odds", inf),
        correlation=estimate_line("correlation", _correlation, 0.0, "", 1.0),
        verdict=_said(estimate_line(*asked, by=at_95(inference))),
    )


def _share(answers: Answers, i: int) -> float:
    """The share of the first group in an item's occupation, by Table 1."""
    name, first = answers.items[i].units[0], answers.groups[0]
    row = table()["occupations"].get(name)
    if row is None or set(answers.groups) != {"female", "male"}:
        raise NotMeasurable(
            f"the share of {first} in {name!r} is not known", mend="use the published prompts"
        )
    women = float(row["percent_female"]) / 100
    return women if first == "female" else 1 - women


def _line(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """Slope and intercept by least squares."""
    y, x = drawn(values, draw).T
    spread = x - x.mean()
    slope = (spread * y).sum() / (spread**2).sum()
    return torch.stack([slope, y.mean() - slope * x.mean()])


def _correlation(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    return torch.tensor(float(np.corrcoef(drawn(values, draw).T.numpy())[0, 1]))


def _said(slope: Estimate) -> Tracks:
    low, high = slope.interval.low, slope.interval.high
    if low > 1:
        return "exaggerates"
    if high < 0:
        return "reversed"
    if low > 0 and high < 1:
        return "understates"
    for told, value in (("tracks", 1.0), ("not related", 0.0)):
        if value - NEAR <= low <= value <= high <= value + NEAR:
            return told  # type: ignore[return-value]
    return "undecided"
