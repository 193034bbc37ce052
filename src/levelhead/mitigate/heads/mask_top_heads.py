"""Targeted-Debias: mask the heads of a map, and measure bias reduction and utility cost.

Yang et al. 2025, Appendix A (Table 1: top, bottom, all positive, random).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import stats

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Interval, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.head_map import head_label
from levelhead.locate.validation.split import split_items
from levelhead.mitigate.evaluation.change import MeasureChange, measure_change
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.head_map import HeadMap
    from levelhead.measures.base import Measure
    from levelhead.models.edits.base import HeadScale
    from levelhead.models.lm import LM

HeadSelection = Literal["top", "bottom", "positive", "random"]
# The paper's one set of each size does not show how much random sets differ.
RANDOM_SETS = 5
"""Number of random sets of each size; the paper has one."""
RANDOM_HEAD_SETS = "random head sets"
"""Units of intervals over random heads, with their number: all sets have the same items."""


class MaskedHeads(Record):
    """A choice of heads to mask."""

    name: str
    heads: tuple[str, ...]
    """Labels of the heads, <layer>-<head>, counted from 1."""
    interval_over: str = ""
    """Units of all its intervals, if they are not the items of each measure."""
    changes: tuple[MeasureChange, ...]
    """Changes by measure, in the order of the measures."""


class MaskingReport(Record):
    """Table 1: changes of the bias and of the language model for each choice of heads."""

    map: str
    """Hash of the head map."""
    base: tuple[MeasureChange, ...]
    rows: tuple[MaskedHeads, ...]
    notes: tuple[str, ...] = ()


def select_heads(
    head_map: HeadMap,
    which: HeadSelection,
    k: int | Literal["all"],
    *,
    rng: np.random.Generator | None = None,
) -> tuple[Site, ...]:
    """The heads of a choice: top 3, bottom 3, all positive, random.

    A random set has as many heads as the positive ones if k is "all"; from any layer, as in the
    paper.
    """
    positive = head_map.positive_heads()
    if which == "positive" or (which == "top" and k == "all"):
        return positive
    if which == "bottom":
        return head_map.negative_heads() if k == "all" else head_map.bottom(k)
    if which == "top":
        return head_map.top(k if isinstance(k, int) else len(positive))
    if rng is None:
        raise LevelheadError("random heads need chance", hint="give rng")
    count = len(positive) if k == "all" else k
    # Of all heads, as Random-Debias in the paper; `compare_with_random_heads` keeps the layers.
    indices = rng.choice(head_map.layers * head_map.heads_per_layer, count, replace=False)
    return tuple(
        Site("head_out", int(i) // head_map.heads_per_layer, int(i) % head_map.heads_per_layer)
        for i in sorted(indices)
    )


def compare_masked_heads(
    lm: LM,
    head_map: HeadMap,
    measures: Sequence[Measure],
    *,
    k: int = 3,
    n_random_sets: int = RANDOM_SETS,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> MaskingReport:
    """Mask top k, bottom k, all positive heads, and random heads of both numbers.

    Args:
        lm: The model of the map.
        head_map: The map.
        measures: The measure of the map first, then utility measures.
        k: Number of heads; the paper has 3.
        n_random_sets: Number of sets of random heads of each size, at least 2; their mean is
            reported, with an interval over the sets.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    head_map.require_same_model(lm)
    if n_random_sets < 2:
        # One set has no spread: its interval over items would stand among those over sets.
        raise LevelheadError(
            f"{n_random_sets} random sets have no spread",
            hint="give at least 2 sets of random heads",
        )
    reader = MaskingReader(lm, measures, inference, context, head_map)
    # One stream per map: the same map has the same random heads in every run.
    rng = inference.rng("random heads", head_map.content_hash)
    selections: list[tuple[str, Sequence[Site]]] = [
        (f"top {k}", select_heads(head_map, "top", k)),
        (f"bottom {k}", select_heads(head_map, "bottom", k)),
        (
            f"all positive ({len(head_map.positive_heads())})",
            select_heads(head_map, "positive", "all"),
        ),
    ]
    rows = [reader.mask(name, mask_heads(sites)) for name, sites in selections]
    for size in (k, "all"):
        # Random sets as large as both masks, because an effect grows with the number of heads.
        sets = [select_heads(head_map, "random", size, rng=rng) for _ in range(n_random_sets)]
        masked_sets = [
            reader.mask(f"random {len(random_sites)}", mask_heads(random_sites))
            for random_sites in sets
        ]
        rows.append(_mean_over_sets(masked_sets))
    return MaskingReport(
        map=head_map.content_hash,
        base=reader.base,
        rows=tuple(rows),
        notes=(
            f"random: mean of {n_random_sets} sets, interval over {n_random_sets} "
            f"{RANDOM_HEAD_SETS} with the items held fixed; all other intervals are over items: "
            "the two kinds are not comparable",
        ),
    )


class MaskingReader:
    """Computes the measures of the base once, and of each edit."""

    def __init__(
        self,
        lm: LM,
        measures: Sequence[Measure],
        inference: Inference,
        context: RunContext,
        head_map: HeadMap | None = None,
    ) -> None:
        self.lm, self.measures, self.inference, self.context = lm, measures, inference, context
        self.responses = [measure.read(lm, context=context)[0] for measure in measures]
        self.half = None
        if head_map is not None and head_map.split.split_by != "none":
            map_split = head_map.split
            if measures[0].name == head_map.measure:
                measure_split = split_items(
                    measures[0], self.responses[0], split_by=map_split.split_by, seed=map_split.seed
                )
                # The half that did not rank the heads; on the other one, a fall of the measure is
                # partly selection.
                self.half = measure_split.confirmation

    @property
    def base(self) -> tuple[MeasureChange, ...]:
        """Measures of the base."""
        return tuple(
            measure_change(
                measure,
                responses,
                None,
                inference=self.inference,
                measured_by=measure.measure_key(self.lm),
            )
            for measure, responses in zip(self.measures, self.responses, strict=True)
        )

    def mask(self, name: str, edit: HeadScale) -> MaskedHeads:
        """Measures of an edit."""
        edited = self.lm.edited(edit)
        changes = []
        for number, (measure, base_responses) in enumerate(
            zip(self.measures, self.responses, strict=True)
        ):
            edited_responses = measure.read(edited, context=self.context)[0]
            extras = [
                metric.name
                for metric in measure.ordered_metrics
                # SEAT's effect size can fall because its spread grows: the means must fall as well.
                if metric.name == "difference of means"
            ]
            changes.append(
                measure_change(
                    measure,
                    base_responses,
                    edited_responses,
                    inference=self.inference,
                    confirmation_half=self.half if number == 0 else None,
                    extras=tuple(extras),
                    measured_by=measure.measure_key(self.lm),
                )
            )
        return MaskedHeads(
            name=name, heads=tuple(map(head_label, edit.sites)), changes=tuple(changes)
        )


def _mean_over_sets(masked_sets: Sequence[MaskedHeads]) -> MaskedHeads:
    """Mean over random sets, with Student's interval over the sets."""
    changes = []
    for set_changes in zip(*(masked_set.changes for masked_set in masked_sets), strict=True):
        first: MeasureChange = set_changes[0]
        changes.append(
            MeasureChange(
                measure=first.measure,
                value=_estimate_over_sets(first.value, [change.value for change in set_changes])
                or first.value,
                change=_estimate_over_sets(first.change, [change.change for change in set_changes]),
                confirmed_change=_estimate_over_sets(
                    first.confirmed_change, [change.confirmed_change for change in set_changes]
                ),
                extra_changes=tuple(
                    mean_change
                    for number, extra in enumerate(first.extra_changes)
                    if (
                        mean_change := _estimate_over_sets(
                            extra, [change.extra_changes[number] for change in set_changes]
                        )
                    )
                ),
                measured_by=first.measured_by,
            )
        )
    interval_over = f"{len(masked_sets)} {RANDOM_HEAD_SETS}"
    return masked_sets[0].model_copy(
        update={"changes": tuple(changes), "heads": (), "interval_over": interval_over}
    )


def _estimate_over_sets(
    first: Estimate | None, estimates: Sequence[Estimate | None]
) -> Estimate | None:
    values = np.array([estimate.value for estimate in estimates if estimate is not None])
    if first is None or len(values) < 2:
        return first
    half_width_per_error = float(stats.t.ppf((1 + first.interval.level) / 2, len(values) - 1))
    error = float(values.std(ddof=1)) / float(np.sqrt(len(values)))
    mean = float(values.mean())
    return first.model_copy(
        update={
            "value": mean,
            "interval": Interval(
                low=mean - half_width_per_error * error,
                high=mean + half_width_per_error * error,
                level=first.interval.level,
                method=f"student, {len(values)} {RANDOM_HEAD_SETS}",
            ),
            # The number of sets, not of items: with it the interval becomes narrower.
            "n": len(values),
            "p": None,
            "detectable": None,
        }
    )
