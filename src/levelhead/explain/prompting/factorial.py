"""What a counterexample owes to its word, its order and its verb.

Zhang 2023 concludes that "syntactic structure and word position" count; its two kinds of
counterexample differ in three things at once. Here each of the three changes by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Estimate, Record
from levelhead.data.prompts.counteracts import table
from levelhead.measures.cloze.margins import MARGIN
from levelhead.measures.inference import corrected, estimate
from levelhead.stats.designs import clusters

if TYPE_CHECKING:
    from levelhead.core.run_context import Inference
    from levelhead.measures.cloze.battery import Answers

FACTORS = ("word", "order", "verb")


class Cell(Record):
    """One of the eight counterexamples."""

    levels: tuple[str, str, str]
    """Of word, order and verb."""
    change: Estimate
    """Of the margin against base."""


class Factorial(Record):
    """The eight counterexamples, and the main effect of each thing that differs between them."""

    cells: tuple[Cell, ...]
    effects: tuple[Estimate, ...]
    """The mean change of the first level less that of the second; p corrected over the three."""


def cells() -> dict[str, tuple[str, str, str]]:
    """The kinds of the factorial, and their levels."""
    facts = table()["factorial"]
    return {
        f"{word}, {how}": (word, *how.split(", "))
        for word in facts["words"]
        for how in facts["patterns"]
    }


def factorial_effects(answers: Answers, inference: Inference) -> Factorial:
    """Cells and main effects, of the occupations that were read in all cells."""
    kinds = cells()
    rows: dict[str, dict[str, int]] = {}
    for i, item in enumerate(answers.items):
        if item.kind in kinds:
            rows.setdefault(item.units[0], {})[item.kind] = i
    whole = {name: own for name, own in rows.items() if len(own) == len(kinds)}
    if not whole:
        raise NotMeasurable(
            "no occupation was asked in all eight cells", mend="ask with `parts=True`"
        )
    where = torch.tensor([[own[kind] for kind in kinds] for own in whole.values()])
    changes = answers.change[where]  # [occupations, cells]
    sides = [answers.items[next(iter(own.values()))].group for own in whole.values()]
    design = clusters(list(whole), name="occupations", within=sides)

    def estimate_contrast(name: str, values: torch.Tensor) -> Estimate:
        return estimate(inference, replace(MARGIN, name=name), values, design)

    effects = []
    for place, factor in enumerate(FACTORS):
        levels = [level[place] for level in kinds.values()]
        first, second = dict.fromkeys(levels)
        one = torch.tensor([level == first for level in levels])
        value = changes[:, one].mean(1) - changes[:, ~one].mean(1)
        effects.append(estimate_contrast(f"{factor}: {first} - {second}", value))
    return Factorial(
        cells=tuple(
            Cell(levels=levels, change=estimate_contrast(f"change: {kind}", changes[:, i]))
            for i, (kind, levels) in enumerate(kinds.items())
        ),
        effects=corrected(effects),
    )
