"""What changed between sentences and their twins: by group of heads, and between groups.

Sentences of one target are not independent of each other: intervals and p-values redraw targets.
The paper's own t-test, which takes every sentence for independent, stands beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Estimate, Precision, PValue, Record
from levelhead.explain.attention.head_groups import Group
from levelhead.explain.attention.per_head import HeadChange, head_changes
from levelhead.explain.attention.relabel_heads import Relabelled, relabelled
from levelhead.stats.bootstrap import bootstrap
from levelhead.stats.designs import clusters
from levelhead.stats.means import t_test
from levelhead.stats.power import detectable_effect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.models.sites import Site
    from levelhead.stats.designs import Design

    Values = NDArray[np.float64]

Weighting = Literal["attention", "value-weighted"]
UNIT = "of the row's range"


class StudentT(Record):
    """A one-sample t-test of the mean change, as the paper makes it."""

    t: float
    p: PValue
    n: Annotated[int, Field(ge=2)]


class GroupChange(Record):
    """One group of heads: the mean of their attention, before and after (the paper's Figure 4)."""

    group: Group
    heads: Annotated[int, Field(ge=1)]
    original: Estimate
    counter: Estimate
    change: Estimate
    """Original less counter, of the mean over the group's heads in each sentence."""
    paper: StudentT
    """One-sided, over sentences (Yang et al. 2025, section 5.2, step 3)."""


class AttentionChange(Record):
    """The whole experiment for one reading of attention."""

    weighting: Weighting
    groups: tuple[GroupChange, GroupChange]
    difference: Estimate
    """The change in biased heads less that in regular heads, sentence by sentence: the claim."""
    relabelled: Relabelled | None = None
    """Whether random groups of heads, as many in every layer, differ as much."""
    same_length: Estimate | None = None
    """The difference where attribute and counterpart have as many tokens: a word of several pieces
    is the sum of their columns, and rare words have more pieces."""
    placebo: Estimate | None = None
    """The same when the attribute is replaced by another word of its own group."""
    net: Estimate | None = None
    """The difference less the placebo's, on the sentences that have one."""
    heads: tuple[HeadChange, ...]
    notes: tuple[str, ...] = ()


class Read(NamedTuple):
    """What was read for one weighting, `[sentences, heads]` each, and what the sentences share."""

    original: Values
    counter: Values
    placebo: Values
    """Of the sentences that have one."""
    placed: NDArray[np.intp]
    """Which those are."""
    same_length: NDArray[np.bool_]
    """Whether a sentence's attribute has as many tokens as its counterpart."""
    words: Sequence[str]
    """The target of every sentence."""


def attention_change(
    weighting: Weighting,
    read: Read,
    groups: Mapping[Group, Sequence[int]],
    sites: Sequence[Site],
    *,
    inference: Inference,
) -> AttentionChange:
    """All numbers of one reading of attention.

    Args:
        weighting: which reading it is.
        read: of the heads in `sites`.
        groups: the columns of the biased and of the regular heads.
        sites: the heads, by column.
        inference: seed, resamples and level.
    """
    design = clusters(read.words, name="targets")
    changes = read.original - read.counter
    between = _between(changes, groups)
    heads, notes = head_changes(weighting, changes, groups, sites, read.words, inference)
    random, unsplit = _relabelled(weighting, changes, groups, sites, inference)
    same, why = _some(
        f"{weighting}: biased - regular, as many tokens",
        between,
        np.flatnonzero(read.same_length),
        read.words,
        inference,
    )
    placebo, net, told = _controlled(weighting, read, between, groups, inference)
    return AttentionChange(
        weighting=weighting,
        groups=(
            _group("biased", weighting, read, groups["biased"], design, inference),
            _group("regular", weighting, read, groups["regular"], design, inference),
        ),
        difference=estimated(
            f"{weighting}: biased - regular", between, design, inference, parity=0.0
        ),
        relabelled=random,
        same_length=same,
        placebo=placebo,
        net=net,
        heads=heads,
        notes=(*notes, *unsplit, *why, *told),
    )


def estimated(
    name: str, values: Values, design: Design, inference: Inference, *, parity: float | None
) -> Estimate:
    """The mean over sentences, its interval over redrawn targets, and p and power where tested."""
    found = bootstrap(
        lambda draw: float(values[draw.items].mean()),
        design,
        rng=inference.rng(name, "interval"),
        draws=inference.resamples,
        level=inference.level,
        method="expanded",
    )
    precision = Precision(standard_error=found.standard_error, df=found.df)
    return Estimate(
        name=name,
        value=found.value,
        interval=found.interval,
        parity=parity,
        p=None if parity is None else found.p(parity),
        n=len(values),
        unit=UNIT,
        detectable=None if parity is None else detectable_effect(precision),
        precision=None if parity is None else precision,
    )


def _between(values: Values, groups: Mapping[Group, Sequence[int]]) -> Values:
    """`[sentences]`: the mean over biased heads less the mean over regular ones."""
    biased, regular = (values[:, list(groups[name])].mean(1) for name in ("biased", "regular"))
    return np.asarray(biased - regular)


def _group(
    group: Group,
    weighting: Weighting,
    read: Read,
    columns: Sequence[int],
    design: Design,
    inference: Inference,
) -> GroupChange:
    before, after = (part[:, list(columns)].mean(1) for part in (read.original, read.counter))
    name = f"{weighting}: {group}"
    test = t_test(before - after, alternative="greater")
    return GroupChange(
        group=group,
        heads=len(columns),
        original=estimated(f"{name}, original", before, design, inference, parity=None),
        counter=estimated(f"{name}, counter", after, design, inference, parity=None),
        change=estimated(f"{name}, change", before - after, design, inference, parity=0.0),
        paper=StudentT(t=test.t, p=test.p, n=len(before)),
    )


def _relabelled(
    weighting: Weighting,
    changes: Values,
    groups: Mapping[Group, Sequence[int]],
    sites: Sequence[Site],
    inference: Inference,
) -> tuple[Relabelled | None, tuple[str, ...]]:
    try:
        return relabelled(changes, groups, sites, inference=inference, name=weighting), ()
    except NotMeasurable as error:
        return None, (f"{weighting}, random heads: {error.what}",)


def _controlled(
    weighting: Weighting,
    read: Read,
    between: Values,
    groups: Mapping[Group, Sequence[int]],
    inference: Inference,
) -> tuple[Estimate | None, Estimate | None, tuple[str, ...]]:
    """The placebo's difference between groups, and the twin's net of it."""
    if not len(read.placed):
        return None, None, ()
    own = np.full_like(between, np.nan)
    own[read.placed] = _between(read.original[read.placed] - read.placebo, groups)
    swapped, why = _some(f"{weighting}: placebo", own, read.placed, read.words, inference)
    net, _ = _some(f"{weighting}: net", between - own, read.placed, read.words, inference)
    return swapped, net, why


def _some(
    name: str, values: Values, which: NDArray[np.intp], words: Sequence[str], inference: Inference
) -> tuple[Estimate | None, tuple[str, ...]]:
    """The mean over some of the sentences; or None, and why they have none."""
    try:
        design = clusters([words[i] for i in which], name="targets")
        return estimated(name, values[which], design, inference, parity=0.0), ()
    except NotMeasurable as error:
        return None, (f"{name}: {error.what}",)
