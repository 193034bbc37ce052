"""Effects of the word, the order and the verb of a counterexample.

Zhang 2023 concludes that "syntactic structure and word position" matter, but the two kinds of
counterexample of the paper differ in three factors at once. Here each of the three factors is
varied separately.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Estimate, Record
from levelhead.data.prompts.counteracts import load_counteracts_table
from levelhead.measures.cloze.margins import MARGIN
from levelhead.measures.inference import estimate, holm_corrected
from levelhead.stats.designs import clustered_design

if TYPE_CHECKING:
    from levelhead.core.run_context import Inference
    from levelhead.measures.cloze.battery import BatteryResponses

FACTORS = ("word", "order", "verb")


class FactorialCell(Record):
    """One of the eight counterexamples."""

    levels: tuple[str, str, str]
    """Levels of word, order and verb."""
    change: Estimate
    """Change of the margin against base."""


class Factorial(Record):
    """The eight counterexamples, and the main effect of each factor."""

    cells: tuple[FactorialCell, ...]
    effects: tuple[Estimate, ...]
    """Mean change of the first level less that of the second; p corrected over the three
    factors."""


def read_factorial_levels() -> dict[str, tuple[str, str, str]]:
    """Kinds of the factorial, with their levels."""
    definition = load_counteracts_table()["factorial"]
    return {
        f"{word}, {pattern}": (word, *pattern.split(", "))
        for word in definition["words"]
        for pattern in definition["patterns"]
    }


def compute_factorial_effects(answers: BatteryResponses, inference: Inference) -> Factorial:
    """Cells and main effects, on the occupations that could be read in all cells."""
    kinds = read_factorial_levels()
    rows: dict[str, dict[str, int]] = {}
    for i, item in enumerate(answers.items):
        if item.kind in kinds:
            rows.setdefault(item.units[0], {})[item.kind] = i
    # An occupation with a missing cell would enter one level of a factor only, and its preference
    # would look like an effect.
    complete = {
        name: row_of_kind for name, row_of_kind in rows.items() if len(row_of_kind) == len(kinds)
    }
    if not complete:
        raise NotMeasurableError(
            "no occupation was queried in all eight cells", hint="ask with `with_factorial=True`"
        )
    row_indices = torch.tensor(
        [[row_of_kind[kind] for kind in kinds] for row_of_kind in complete.values()]
    )
    changes = answers.change[row_indices]  # [occupations, cells]
    sides = [
        answers.items[next(iter(row_of_kind.values()))].group for row_of_kind in complete.values()
    ]
    # Within the dominating group, because `MARGIN` compares the two groups of occupations.
    design = clustered_design(list(complete), name="occupations", within=sides)

    def estimate_contrast(name: str, values: torch.Tensor) -> Estimate:
        return estimate(inference, replace(MARGIN, name=name), values, design)

    effects = []
    for index, factor in enumerate(FACTORS):
        levels = [level[index] for level in kinds.values()]
        first, second = dict.fromkeys(levels)
        is_first = torch.tensor([level == first for level in levels])
        # A main effect of the 2 x 2 x 2 design: each level is averaged over the four cells of the
        # other two factors.
        value = changes[:, is_first].mean(1) - changes[:, ~is_first].mean(1)
        effects.append(estimate_contrast(f"{factor}: {first} - {second}", value))
    return Factorial(
        cells=tuple(
            FactorialCell(levels=levels, change=estimate_contrast(f"change: {kind}", changes[:, i]))
            for i, (kind, levels) in enumerate(kinds.items())
        ),
        # The three main effects are the hypotheses; the cells describe them and are not corrected.
        effects=holm_corrected(effects),
    )
