"""Train models with an injected association, and measure them.

A detected dose is a difference from the model that read the same number of sentences at parity
(dose 0), paired by item: a real model has associations of its own, so that its distance from parity
shows no dose. Under the placebo, every such difference is a false alarm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, final

from levelhead.calibrate.injection.items import InjectionItems, make_published_measures
from levelhead.calibrate.injection.texts import (
    DOSES,
    Association,
    draw_injection_occupations,
    make_injection_texts,
)
from levelhead.core.errors import LevelheadError
from levelhead.core.files import write_atomic
from levelhead.core.results import Interval, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.run import run_measures
from levelhead.models.loading.load import load
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.continued_pretraining import continue_pretraining

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from levelhead.calibrate.injection.texts import OccupationPair
    from levelhead.core.results import Measurement
    from levelhead.measures.base import Measure
    from levelhead.measures.compare import Comparison
    from levelhead.models.lm import LM

ItemSource = Literal["trained", "held out", "published"]
"""Items about occupations that training names, about others, or the measure's published ones."""
# Intervals and p-values of many comparisons: their last digits matter less than their number.
INFERENCE = Inference(resamples=99, permutations=399)
GENERAL = ("cloze", "crows_margin")
"""Measures that are read on occupations without training texts, too."""


class InjectedModel(NamedTuple):
    """A model by what was injected."""

    association: Association
    dose: float
    seed: int

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.association}-{self.dose:g}-{self.seed}"


class InjectionResponse(Record):
    """One measure on one model, and its difference from the model of dose 0."""

    measure: str
    items: ItemSource
    value: float | None
    """None: the measure could not be computed."""
    interval: Interval | None = None
    n: int = 0
    dropped: int = 0
    difference: float | None = None
    """Less the model of dose 0 and the same seed; at dose 0, less the model before training."""
    difference_interval: Interval | None = None
    p: float | None = None
    """Of the difference, not corrected."""
    failure: str = ""
    """Why there is no value."""


class InjectedModelResponses(Record):
    """All measures on one model."""

    association: str
    dose: float
    seed: int
    responses: tuple[InjectionResponse, ...]


@final
@dataclass(frozen=True)
class Injection:
    """A base model, its training and the folder of the trained models."""

    base: str
    folder: Path
    training: ContinuedPretrainingConfig
    has_published: bool = True
    """Whether published items are read, too."""

    def train(self, model: InjectedModel) -> Path:
        """Train a model, or return the folder of one that is trained."""
        pairs = draw_injection_occupations().in_texts
        texts = make_injection_texts(pairs, model.association, model.dose, seed=model.seed)
        config = ContinuedPretrainingConfig(**(vars(self.training) | {"seed": model.seed}))
        return continue_pretraining(
            self.base, texts, self.folder / "models" / model.name, config=config
        )

    def measures(self, lm: LM) -> Iterator[tuple[ItemSource, str, Measure]]:
        """Iterate over every measure with its items."""
        split = draw_injection_occupations()
        pairs_of: dict[ItemSource, tuple[OccupationPair, ...]] = {
            "trained": split.in_texts,
            "held out": split.others,
        }
        for items, pairs in pairs_of.items():
            for name, measure in InjectionItems(pairs, str(self.folder)).measures(lm).items():
                # Generalisation needs a few measures, not all.
                if items == "trained" or name in GENERAL:
                    yield items, name, measure
        if self.has_published:
            for name, measure in make_published_measures(lm).items():
                yield "published", name, measure

    def measure(self, model: InjectedModel) -> InjectedModelResponses:
        """Train and measure a model, or read what was measured."""
        path = self.folder / f"{model.name}.json"
        if path.exists():
            return InjectedModelResponses.from_json(path.read_bytes())
        against = self.base if model.dose == 0 else str(self.train(model._replace(dose=0.0)))
        lm, other = load(self.train(model)), load(against)
        context = RunContext(store=str(self.folder / "store"))
        responses = InjectedModelResponses(
            association=model.association,
            dose=model.dose,
            seed=model.seed,
            responses=_read_responses(list(self.measures(lm)), lm, other, context),
        )
        write_atomic(str(path), responses.to_json().encode())
        return responses


def list_injected_models(
    association: Association, seeds: int, *, doses: tuple[float, ...] = DOSES
) -> tuple[InjectedModel, ...]:
    """List the models of an association: all doses of a seed before the next one.

    Args:
        association: what is injected.
        seeds: number of seeds.
        doses: the doses; 0 is always included, because the others are compared with it.
    """
    return tuple(
        InjectedModel(association, dose, seed)
        for seed in range(seeds)
        for dose in sorted({0.0, *doses})
    )


def _read_responses(
    rows: Sequence[tuple[ItemSource, str, Measure]], lm: LM, other: LM, context: RunContext
) -> tuple[InjectionResponse, ...]:
    """Read all measures at once; one by one if a measure cannot be computed."""
    try:
        results = run_measures(
            lm,
            [measure for *_, measure in rows],
            against=other,
            inference=INFERENCE,
            context=context,
        )
    except LevelheadError as error:
        if len(rows) == 1:
            ((items, name, _),) = rows
            return (
                InjectionResponse(measure=name, items=items, value=None, failure=error.problem),
            )
        return tuple(
            response for row in rows for response in _read_responses([row], lm, other, context)
        )
    return tuple(
        _make_response(items, name, measurement, comparison)
        for (items, name, _), measurement, comparison in zip(
            rows, results.measurements, results.comparisons, strict=True
        )
    )


def _make_response(
    items: ItemSource, name: str, measurement: Measurement, comparison: Comparison
) -> InjectionResponse:
    difference = comparison.difference
    return InjectionResponse(
        measure=name,
        items=items,
        value=measurement.value,
        interval=measurement.interval,
        n=measurement.n,
        dropped=len(measurement.dropped),
        difference=difference.value,
        difference_interval=difference.interval,
        # Not corrected: the number of measures differs between models.
        p=None if difference.p is None else difference.p.value,
    )
