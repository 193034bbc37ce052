"""One contrast for every kind of knowledge (Zhang 2023, Table 2), and what is said of it.

A change is called one if its corrected p says so; "unchanged" is no lack of evidence but a test of
its own (two one-sided tests at a fifth of the base margin, each kind by itself); what neither
shows is undecided. Verdicts are of the model's own preference, whichever group that is for.
"""

from __future__ import annotations

from dataclasses import replace
from math import copysign
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Estimate, Record
from levelhead.explain.prompting.factorial import cells
from levelhead.measures.cloze.margins import MARGIN, changed, margin_of, mean_of
from levelhead.measures.cloze.prompts_base import BASE
from levelhead.measures.inference import corrected, estimate
from levelhead.measures.reductions import mean
from levelhead.stats.designs import clusters
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.cloze.battery import Answers, Shared

Verdict = Literal[
    "enhanced", "mitigated", "overturned", "unchanged", "undecided", "no base preference"
]
Answer = Literal["yes", "no", "undecided"]
LEVEL = 0.05
SAME = 0.2
"""The share of the base margin within which a change counts as none."""
TOPS = (3, 5, 10)

EXPECTED: dict[str, tuple[Verdict, ...]] = {
    "target_syntactic_similar": ("enhanced",),
    "target_semantic_similar": ("enhanced",),
    "target_neutral": ("mitigated", "overturned"),
    "target_counter_syntactic_similar": ("mitigated", "overturned"),
    "target_counter_semantic_similar": ("mitigated", "overturned"),
    "background_counter_syntactic_similar": ("mitigated", "overturned"),
    "background_counter_semantic_similar": ("mitigated", "overturned"),
    "target_neutral_background_counter": ("mitigated", "overturned"),
    "unrelated": ("unchanged",),
}
"""What the paper expects of each kind (Knowledge Construction)."""


class Top(Record):
    """The paper's own numbers at one k (Figures 2-4, Eq. 1)."""

    k: Annotated[int, Field(ge=1)]
    first: Estimate
    """Probability of the first group's words among the k likeliest, mean over prompts."""
    second: Estimate
    margin: Estimate | None = None
    """Half the difference of first - second between occupations that either group dominates."""
    words: Annotated[int, Field(ge=0)] | None = None
    """Words that are among the k likeliest with knowledge and without; None for the base."""
    ratio: Estimate | None = None
    """The mean of log p(w | knowledge) / p(w | base) over those of the dominating group."""
    other_ratio: Estimate | None = None
    """And over those of the other one."""


class Contrast(Record):
    """What one kind of knowledge does."""

    kind: str
    expected: tuple[Verdict, ...]
    margin: Estimate
    """With the knowledge."""
    change: Estimate
    """Of the margin against base, occupation by occupation; p corrected over the kinds."""
    shift: Estimate
    """Of the mean margin: towards the first group everywhere."""
    flipped: Estimate
    """The share of occupations whose preferred group is another one than without knowledge."""
    tops: tuple[Top, ...]
    verdict: Verdict
    as_expected: Answer


def contrasts(
    answers: Answers, inference: Inference, *, tops: Sequence[int] = TOPS
) -> tuple[Contrast, ...]:
    """All kinds of knowledge that were asked, but the factorial's; the paper's first.

    Args:
        answers: what a model said.
        inference: seed, resamples and level.
        tops: the k of the paper's own numbers.
    """
    asked = dict.fromkeys(item.kind for item in answers.items)
    kinds = [kind for kind in EXPECTED if kind in asked]
    kinds += [kind for kind in asked if kind not in (BASE, *EXPECTED, *cells())]
    changes = [changed(answers, kind, inference) for kind in kinds]
    base = margin_of(answers, BASE, at_95(inference))
    return tuple(
        _contrast(answers, kind, change, base, inference, tops)
        for kind, change in zip(kinds, corrected(changes), strict=True)
    )


def between(answers: Answers, first: str, second: str, inference: Inference) -> Estimate | None:
    """The change by one kind less that by another, occupation by occupation.

    None where one of them was not asked.
    """
    one, other = (_by_occupation(answers, kind) for kind in (first, second))
    names = [name for name in one if name in other]
    if not names:
        return None
    means = [[float(answers.change[own[name]].mean()) for name in names] for own in (one, other)]
    sides = [answers.items[one[name][0]].group for name in names]
    aspect = replace(MARGIN, name=f"change: {first} - {second}")
    design = clusters(names, name="occupations", within=sides)
    both = torch.tensor(means, dtype=torch.float64)
    return estimate(inference, aspect, both[0] - both[1], design)


def tops_of(
    answers: Answers, kind: str, inference: Inference, tops: Sequence[int] = TOPS
) -> tuple[Top, ...]:
    """The paper's numbers at its three k."""
    return tuple(_top(answers, kind, k, inference) for k in tops)


def said(base: Estimate, margin: Estimate, change: Estimate, *, same: bool) -> Verdict:
    """What a contrast shows.

    Args:
        base: the margin without knowledge.
        margin: the margin with it.
        change: between the two, p corrected.
        same: whether the change is shown to be less than a fifth of the base margin.
    """
    if 0 in base.interval:
        return "no base preference"
    if same:
        return "unchanged"
    assert change.p is not None  # noqa: S101
    p = change.p.value if change.p.adjusted is None else change.p.adjusted
    if p > LEVEL:
        return "undecided"
    side = copysign(1, base.value)
    if change.value * side > 0:
        return "enhanced"
    over = 0 not in margin.interval and margin.value * side < 0
    return "overturned" if over else "mitigated"


def is_expected(verdict: Verdict, expected: tuple[Verdict, ...], base: Estimate) -> Answer:
    """Whether a verdict is one of those expected.

    The paper expects something of a stereotype: where the model prefers the other group than the
    one that dominates an occupation, there is none to enhance or to mitigate.
    """
    if verdict in ("undecided", "no base preference") or not expected or base.value < 0:
        return "undecided"
    return "yes" if verdict in expected else "no"


def _contrast(
    answers: Answers,
    kind: str,
    change: Estimate,
    base: Estimate,
    inference: Inference,
    tops: Sequence[int],
) -> Contrast:
    margin = margin_of(answers, kind, inference)
    sure = margin_of(answers, kind, at_95(inference))
    verdict = said(base, sure, change, same=_same(answers, kind, base, inference))
    expected = EXPECTED.get(kind, ())
    return Contrast(
        kind=kind,
        expected=expected,
        margin=margin,
        change=change,
        shift=mean_of(answers, "shift", kind, answers.change, inference, "log-odds"),
        flipped=_flipped(answers, kind, inference),
        tops=tops_of(answers, kind, inference, tops),
        verdict=verdict,
        as_expected=is_expected(verdict, expected, base),
    )


def _same(answers: Answers, kind: str, base: Estimate, inference: Inference) -> bool:
    """Two one-sided tests: is the change above -SAME and below +SAME of the base margin?

    The base margin is redrawn with the change: its own uncertainty counts.
    """
    where, design = answers.where(kind), answers.design(kind)
    change, before = answers.change[where], answers.before[where] * copysign(1, base.value)
    one_sided = replace(inference, level=1 - 2 * LEVEL)

    def interval(values: torch.Tensor, name: str) -> tuple[float, float]:
        aspect = replace(MARGIN, name=f"{name}: {kind}")
        found = estimate(one_sided, aspect, values, design, tested=False).interval
        return found.low, found.high

    above, _ = interval(change + SAME * before, "not less")
    _, below = interval(change - SAME * before, "not more")
    return above > 0 > below


def at_95(inference: Inference) -> Inference:
    """Verdicts are at one level, whatever level intervals are shown at."""
    return replace(inference, level=1 - LEVEL)


def _by_occupation(answers: Answers, kind: str) -> dict[str, list[int]]:
    """The prompts of a kind by occupation."""
    own: dict[str, list[int]] = {}
    for i in answers.where(kind).tolist():
        own.setdefault(answers.items[i].units[0], []).append(i)
    return own


def _flipped(answers: Answers, kind: str, inference: Inference) -> Estimate:
    turned = [
        bool(answers.margin[rows].mean() * answers.margin[answers.base[name]] < 0)
        for name, rows in _by_occupation(answers, kind).items()
    ]
    return Estimate(
        name=f"flipped: {kind}",
        value=sum(turned) / len(turned),
        interval=proportion_interval(sum(turned), len(turned), level=inference.level),
        n=len(turned),
        unit="share of occupations",
    )


def _top(answers: Answers, kind: str, k: int, inference: Inference) -> Top:
    both = answers.top(k)
    first, second = (
        _mass(answers, f"top {k}, {group}", kind, both[:, i], inference)
        for i, group in enumerate(answers.groups)
    )
    where = answers.where(kind)
    aspect = replace(MARGIN, name=f"top {k}: {kind}", unit="difference of probabilities")
    try:
        margin = estimate(
            inference, aspect, (both[:, 0] - both[:, 1])[where], answers.design(kind), tested=False
        )
    except NotMeasurable:
        margin = None
    if kind == BASE:
        return Top(k=k, first=first, second=second, margin=margin)
    found = answers.shared(k, kind)
    return Top(
        k=k,
        first=first,
        second=second,
        margin=margin,
        words=sum(map(len, found.values())),
        ratio=_ratio(found, kind, k, inference, dominating=True),
        other_ratio=_ratio(found, kind, k, inference, dominating=False),
    )


def _mass(
    answers: Answers, name: str, kind: str, values: torch.Tensor, inference: Inference
) -> Estimate:
    """The mean probability of a group's words among the likeliest.

    Where there are none at all, no resample differs: then it lies below the largest share of
    prompts that could have had one.
    """
    own = values[answers.where(kind)]
    if own.any():
        return mean_of(answers, name, kind, values, inference, "probability")
    return Estimate(
        name=f"{name}: {kind}",
        value=0.0,
        interval=proportion_interval(0, len(_by_occupation(answers, kind)), level=inference.level),
        n=len(own),
        unit="probability",
    )


def _ratio(
    found: Mapping[str, Sequence[Shared]],
    kind: str,
    k: int,
    inference: Inference,
    *,
    dominating: bool,
) -> Estimate | None:
    """Eq. 1: the mean log ratio of one group's words that are among the k likeliest twice."""
    own = {
        name: [one.log_ratio for one in shared if one.dominating == dominating]
        for name, shared in found.items()
    }
    names = [name for name, ratios in own.items() for _ in ratios]
    ratios = torch.tensor([ratio for each in own.values() for ratio in each]).double()
    whose = "dominating" if dominating else "other"
    name = f"Eq. 1, top {k}, {whose} group: {kind}"
    try:
        return estimate(
            inference,
            replace(MARGIN, name=name, over=mean, unit="log ratio"),
            ratios,
            clusters(names, name="occupations"),
        )
    except NotMeasurable:
        return None
