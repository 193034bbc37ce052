"""Changes between sentences and their counterfactuals, by group of heads and between groups.

Sentences with the same target are not independent of each other, so intervals and p-values resample
targets. The paper's t-test, which treats every sentence as independent, is reported with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Estimate, Precision, PValue, Record
from levelhead.explain.attention.head_groups import Group
from levelhead.explain.attention.per_head import HeadAttentionChange, compute_head_changes
from levelhead.explain.attention.relabel_heads import HeadPermutationTest, permute_head_groups
from levelhead.stats.bootstrap import bootstrap
from levelhead.stats.designs import clustered_design
from levelhead.stats.means import t_test
from levelhead.stats.power import holm_detectable_effect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.models.sites import Site
    from levelhead.stats.designs import Design

    Values = NDArray[np.float64]

Weighting = Literal["attention", "value-weighted"]
UNIT = "of the row's range"


class PaperTTest(Record):
    """One-sample t-test of the mean change, as in the paper."""

    t: float
    p: PValue
    n: Annotated[int, Field(ge=2)]


class GroupChange(Record):
    """A group of heads: the mean of their attention, before and after (the paper's Figure 4)."""

    group: Group
    heads: Annotated[int, Field(ge=1)]
    original: Estimate
    counter: Estimate
    change: Estimate
    """Attention in the original less that in the counterfactual, the mean over the heads of the
    group in each sentence."""
    paper_t_test: PaperTTest
    """One-sided, over sentences (Yang et al. 2025, section 5.2, step 3)."""


class AttentionChange(Record):
    """The whole experiment for one weighting of attention."""

    weighting: Weighting
    groups: tuple[GroupChange, GroupChange]
    difference: Estimate
    """Change in biased heads less that in regular heads, paired by sentence: the claim."""
    head_permutation_test: HeadPermutationTest | None = None
    """Comparison with random groups of heads, as many in every layer."""
    same_length: Estimate | None = None
    """The difference in sentences whose attribute and counterpart have equally many tokens: a
    word of several tokens is the sum of their columns, and rare words have more tokens."""
    placebo: Estimate | None = None
    """The difference if the attribute is replaced by another word of the same group."""
    net: Estimate | None = None
    """The difference less that of the placebo, on the sentences that have a placebo."""
    heads: tuple[HeadAttentionChange, ...]
    notes: tuple[str, ...] = ()


class PairedAttention(NamedTuple):
    """Attention with one weighting, `[sentences, heads]` each, and properties of the sentences."""

    original: Values
    counter: Values
    placebo: Values
    """Attention in the sentences that have a placebo."""
    placebo_indices: NDArray[np.intp]
    """Indices of these sentences."""
    same_length: NDArray[np.bool_]
    """Whether a sentence's attribute has as many tokens as its counterpart."""
    targets: Sequence[str]
    """Target of every sentence."""


def compute_attention_change(
    weighting: Weighting,
    attention: PairedAttention,
    groups: Mapping[Group, Sequence[int]],
    sites: Sequence[Site],
    *,
    inference: Inference,
) -> AttentionChange:
    """Compute all results of one weighting of attention.

    Args:
        weighting: The weighting.
        attention: Attention of the heads in `sites`.
        groups: Columns of the biased and of the regular heads.
        sites: The heads, by column.
        inference: Seed, resamples and level.
    """
    design = clustered_design(attention.targets, name="targets")
    changes = attention.original - attention.counter
    # One group significant and the other not is no evidence that they differ, so the difference
    # itself is tested.
    difference = _group_difference(changes, groups)
    heads, head_notes = compute_head_changes(
        weighting, changes, groups, sites, attention.targets, inference
    )
    permutation_test, permutation_notes = _try_permute_head_groups(
        weighting, changes, groups, sites, inference
    )
    same_length, same_length_notes = _estimate_subset(
        f"{weighting}: biased - regular, as many tokens",
        difference,
        np.flatnonzero(attention.same_length),
        attention.targets,
        inference,
    )
    placebo, net, placebo_notes = _placebo_effects(
        weighting, attention, difference, groups, inference
    )
    return AttentionChange(
        weighting=weighting,
        groups=(
            _compute_group_change(
                "biased", weighting, attention, groups["biased"], design, inference
            ),
            _compute_group_change(
                "regular", weighting, attention, groups["regular"], design, inference
            ),
        ),
        difference=estimate_mean(
            f"{weighting}: biased - regular", difference, design, inference, parity=0.0
        ),
        head_permutation_test=permutation_test,
        same_length=same_length,
        placebo=placebo,
        net=net,
        heads=heads,
        notes=(*head_notes, *permutation_notes, *same_length_notes, *placebo_notes),
    )


def estimate_mean(
    name: str, values: Values, design: Design, inference: Inference, *, parity: float | None
) -> Estimate:
    """Mean over sentences, with interval over resampled targets, and p and power if tested."""
    result = bootstrap(
        lambda resample: float(values[resample.items].mean()),
        design,
        rng=inference.rng(name, "interval"),
        n_resamples=inference.resamples,
        level=inference.level,
        method="expanded",
    )
    precision = Precision(standard_error=result.standard_error, df=result.df)
    return Estimate(
        name=name,
        value=result.value,
        interval=result.interval,
        parity=parity,
        p=None if parity is None else result.p(parity),
        n=len(values),
        unit=UNIT,
        detectable=None if parity is None else holm_detectable_effect(precision),
        precision=None if parity is None else precision,
    )


def _group_difference(values: Values, groups: Mapping[Group, Sequence[int]]) -> Values:
    """`[sentences]` mean over biased heads less the mean over regular heads."""
    # Heads are averaged first: they read the same sentences and are no independent observations.
    biased, regular = (values[:, list(groups[name])].mean(1) for name in ("biased", "regular"))
    return np.asarray(biased - regular)


def _compute_group_change(
    group: Group,
    weighting: Weighting,
    attention: PairedAttention,
    columns: Sequence[int],
    design: Design,
    inference: Inference,
) -> GroupChange:
    before, after = (
        part[:, list(columns)].mean(1) for part in (attention.original, attention.counter)
    )
    name = f"{weighting}: {group}"
    # One-sided, as all p-values in the paper are: its t = 3.182 has p = .0007 and t = -1.478 has
    # .93.
    test = t_test(before - after, alternative="greater")
    return GroupChange(
        group=group,
        heads=len(columns),
        original=estimate_mean(f"{name}, original", before, design, inference, parity=None),
        counter=estimate_mean(f"{name}, counter", after, design, inference, parity=None),
        change=estimate_mean(f"{name}, change", before - after, design, inference, parity=0.0),
        paper_t_test=PaperTTest(t=test.t, p=test.p, n=len(before)),
    )


def _try_permute_head_groups(
    weighting: Weighting,
    changes: Values,
    groups: Mapping[Group, Sequence[int]],
    sites: Sequence[Site],
    inference: Inference,
) -> tuple[HeadPermutationTest | None, tuple[str, ...]]:
    try:
        return permute_head_groups(changes, groups, sites, inference=inference, name=weighting), ()
    except NotMeasurableError as error:
        return None, (f"{weighting}, random heads: {error.problem}",)


def _placebo_effects(
    weighting: Weighting,
    attention: PairedAttention,
    difference: Values,
    groups: Mapping[Group, Sequence[int]],
    inference: Inference,
) -> tuple[Estimate | None, Estimate | None, tuple[str, ...]]:
    """Differences between groups with the placebo, and with the counterfactual less the placebo."""
    if not len(attention.placebo_indices):
        return None, None, ()
    # NaN, not 0: a sentence without a placebo must not count as one without change.
    placebo_difference = np.full_like(difference, np.nan)
    placebo_difference[attention.placebo_indices] = _group_difference(
        attention.original[attention.placebo_indices] - attention.placebo, groups
    )
    placebo, notes = _estimate_subset(
        f"{weighting}: placebo",
        placebo_difference,
        attention.placebo_indices,
        attention.targets,
        inference,
    )
    net, _ = _estimate_subset(
        f"{weighting}: net",
        # Paired by sentence: what any change of the word does to attention cancels.
        difference - placebo_difference,
        attention.placebo_indices,
        attention.targets,
        inference,
    )
    return placebo, net, notes


def _estimate_subset(
    name: str, values: Values, subset: NDArray[np.intp], words: Sequence[str], inference: Inference
) -> tuple[Estimate | None, tuple[str, ...]]:
    """Mean over some of the sentences; or None, and why there is none."""
    try:
        design = clustered_design([words[i] for i in subset], name="targets")
        return estimate_mean(name, values[subset], design, inference, parity=0.0), ()
    except NotMeasurableError as error:
        return None, (f"{name}: {error.problem}",)
