"""Readouts of models that were never there, and a measure that reads them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from levelhead.core.run_context import Inference
from levelhead.measures.base import Measure
from levelhead.measures.items import MeasureItem
from levelhead.measures.metric import Metric
from levelhead.measures.reductions import mean
from levelhead.measures.responses import Responses

INFERENCE = Inference(seed=1, resamples=99, permutations=99)


def read(values, tag="i", *, units=None, dropped=()):
    """Readouts of these values, an item a row; some items lost on the way."""
    values = torch.as_tensor(values, dtype=torch.float64)
    names = [f"{tag}{i}" for i in range(len(values))]
    subset = names if units is None else [f"{tag}{unit}" for unit in units]
    items = [MeasureItem(name, (), (unit,)) for name, unit in zip(names, subset, strict=True)]
    stored = [i for i, name in enumerate(names) if name not in dropped]
    return Responses(
        tuple(items[i] for i in stored),
        values[stored],
        ("units",),
        tuple((item, "an unknown word") for item in items if item.id in dropped),
        torch.zeros(0, 0),
        (),
        (),
    )


def follows(odds, tag="i", **options):
    """Readouts of a next-sentence head that has these log-odds `[items, asks]`."""
    odds = torch.as_tensor(odds, dtype=torch.float64)
    return read(torch.nn.functional.logsigmoid(torch.stack([odds, -odds], dim=-1)), tag, **options)


def triples(rng, n, bias, spread=1.5):
    """Log-odds of n triples and their twins, stereotypes preferred by twice the bias."""
    odds = rng.normal(1, spread, size=(n, 4))
    return odds + bias * np.array([1, 0, 0, 1])


@dataclass(frozen=True)
class Plain(Measure):
    """The mean of what was read."""

    called: str = "plain"
    parity: float | None = 0.0
    role: str = "bias"
    worse: str | None = None
    needs: ClassVar = ("masked",)

    @property
    def formulas(self):
        return (
            Metric(
                name=self.called,
                equation="the mean",
                per_item_values=lambda readouts: readouts.values,
                aggregate=mean,
                unit="points",
                low=-float("inf"),
                high=float("inf"),
                direction="larger: more",
                comparability_key="plain",
                role=self.role,
                worse=self.worse,
                parity=self.parity,
            ),
        )

    def all_queries(self, lm):
        return ()

    @property
    def data(self):
        return {}
