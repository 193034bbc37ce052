"""A contrast for every kind of knowledge (Zhang 2023, Table 2), and its verdict.

A change is a finding if its corrected p shows it. "Unchanged" is not a lack of evidence, but the
result of an equivalence test (two one-sided tests at a fifth of the base margin, for each kind
separately). If neither is shown, the verdict is undecided. Verdicts are about the model's own
preference, whichever group it is for.
"""

from __future__ import annotations

from dataclasses import replace
from math import copysign
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Estimate, Record
from levelhead.explain.prompting.factorial import read_factorial_levels
from levelhead.measures.cloze.margins import (
    MARGIN,
    estimate_kind_mean,
    estimate_margin,
    estimate_margin_change,
)
from levelhead.measures.cloze.prompt_measure import BASE
from levelhead.measures.inference import estimate, holm_corrected
from levelhead.measures.reductions import mean
from levelhead.stats.designs import clustered_design
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.cloze.battery import BatteryResponses, SharedWord

Verdict = Literal[
    "enhanced", "mitigated", "overturned", "unchanged", "undecided", "no base preference"
]
Decision = Literal["yes", "no", "undecided"]
SIGNIFICANCE_LEVEL = 0.05
EQUIVALENCE_SHARE = 0.2
"""Share of the base margin below which a change counts as no change."""
# Zhang 2023, Figures 2, 3 and 4.
TOP_KS = (3, 5, 10)

EXPECTED_VERDICTS: dict[str, tuple[Verdict, ...]] = {
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
"""Verdicts that the paper expects of each kind (Knowledge Construction)."""


class TopKResult(Record):
    """The paper's numbers at one k (Figures 2-4, Eq. 1)."""

    k: Annotated[int, Field(ge=1)]
    first: Estimate
    """Probability of the first group's words among the k likeliest, mean over prompts."""
    second: Estimate
    margin: Estimate | None = None
    """Half the difference of first - second between occupations that either group dominates."""
    words: Annotated[int, Field(ge=0)] | None = None
    """Number of words that are among the k likeliest with knowledge and without; None for the
    base."""
    ratio: Estimate | None = None
    """Mean of log p(w | knowledge) / p(w | base) over these words of the dominating group."""
    other_ratio: Estimate | None = None
    """The same mean over these words of the other group."""


class PromptContrast(Record):
    """Effect of one kind of knowledge."""

    kind: str
    expected: tuple[Verdict, ...]
    margin: Estimate
    """Margin with the knowledge."""
    change: Estimate
    """Change of the margin against base, paired by occupation; p corrected over the kinds."""
    shift: Estimate
    """Change of the mean margin: a shift towards the first group everywhere."""
    share_flipped: Estimate
    """Share of occupations whose preferred group differs from that without knowledge."""
    top_k: tuple[TopKResult, ...]
    verdict: Verdict
    matches_paper: Decision


def compute_contrasts(
    answers: BatteryResponses, inference: Inference, *, ks: Sequence[int] = TOP_KS
) -> tuple[PromptContrast, ...]:
    """Contrasts of all queried kinds of knowledge except the factorial's; the paper's kinds first.

    Args:
        answers: Answers of a model.
        inference: Seed, resamples and level.
        ks: The k of the paper's numbers.
    """
    queried_kinds = dict.fromkeys(item.kind for item in answers.items)
    # The factorial's cells are another family, which `compute_factorial_effects` corrects.
    kinds = [kind for kind in EXPECTED_VERDICTS if kind in queried_kinds]
    kinds += [
        kind
        for kind in queried_kinds
        if kind not in (BASE, *EXPECTED_VERDICTS, *read_factorial_levels())
    ]
    changes = [estimate_margin_change(answers, kind, inference) for kind in kinds]
    base = estimate_margin(answers, BASE, with_95_level(inference))
    return tuple(
        _compute_contrast(answers, kind, change, base, inference, ks)
        for kind, change in zip(kinds, holm_corrected(changes), strict=True)
    )


def compute_change_difference(
    answers: BatteryResponses, first: str, second: str, inference: Inference
) -> Estimate | None:
    """Change by one kind less that by another, paired by occupation.

    None if one of them was not queried.
    """
    first_rows, second_rows = (_rows_by_occupation(answers, kind) for kind in (first, second))
    names = [name for name in first_rows if name in second_rows]
    if not names:
        return None
    # Means by occupation first, because the two kinds may have different numbers of prompts.
    means = [
        [float(answers.change[rows[name]].mean()) for name in names]
        for rows in (first_rows, second_rows)
    ]
    sides = [answers.items[first_rows[name][0]].group for name in names]
    metric = replace(MARGIN, name=f"change: {first} - {second}")
    design = clustered_design(names, name="occupations", within=sides)
    mean_pair = torch.tensor(means, dtype=torch.float64)
    return estimate(inference, metric, mean_pair[0] - mean_pair[1], design)


def compute_top_k(
    answers: BatteryResponses, kind: str, inference: Inference, ks: Sequence[int] = TOP_KS
) -> tuple[TopKResult, ...]:
    """The paper's numbers at its three k."""
    return tuple(_compute_top_k_result(answers, kind, k, inference) for k in ks)


def decide_verdict(
    base: Estimate, margin: Estimate, change: Estimate, *, is_unchanged: bool
) -> Verdict:
    """Verdict of a contrast.

    Args:
        base: Margin without knowledge.
        margin: Margin with it.
        change: Change between the two, with corrected p.
        is_unchanged: Whether the change is shown to be smaller than a fifth of the base margin.
    """
    # Without a preference there is nothing to enhance or to mitigate.
    if 0 in base.interval:
        return "no base preference"
    # Before significance: with many occupations a change can be significant and still negligible.
    if is_unchanged:
        return "unchanged"
    assert change.p is not None  # noqa: S101
    # Kinds of knowledge are tested together, so the adjusted p decides where there is one.
    p = change.p.value if change.p.adjusted is None else change.p.adjusted
    if p > SIGNIFICANCE_LEVEL:
        return "undecided"
    # Relative to the base margin: a positive product strengthens the model's preference.
    side = copysign(1, base.value)
    if change.value * side > 0:
        return "enhanced"
    # Only a margin that is distinct from 0 on the other side counts as overturned.
    is_overturned = 0 not in margin.interval and margin.value * side < 0
    return "overturned" if is_overturned else "mitigated"


def matches_paper_direction(
    verdict: Verdict, expected: tuple[Verdict, ...], base: Estimate
) -> Decision:
    """Whether a verdict is one of the expected verdicts.

    The paper's expectations are about a stereotype. If the model does not prefer the group that
    dominates an occupation, there is no stereotype to enhance or to mitigate.
    """
    # Neither supports nor contradicts the paper: "no" would count a lack of evidence against it.
    if verdict in ("undecided", "no base preference") or not expected or base.value < 0:
        return "undecided"
    return "yes" if verdict in expected else "no"


def _compute_contrast(
    answers: BatteryResponses,
    kind: str,
    change: Estimate,
    base: Estimate,
    inference: Inference,
    ks: Sequence[int],
) -> PromptContrast:
    margin = estimate_margin(answers, kind, inference)
    margin_95 = estimate_margin(answers, kind, with_95_level(inference))
    verdict = decide_verdict(
        base, margin_95, change, is_unchanged=_is_unchanged(answers, kind, base, inference)
    )
    expected = EXPECTED_VERDICTS.get(kind, ())
    return PromptContrast(
        kind=kind,
        expected=expected,
        margin=margin,
        change=change,
        shift=estimate_kind_mean(answers, "shift", kind, answers.change, inference, "log-odds"),
        share_flipped=_share_flipped(answers, kind, inference),
        top_k=compute_top_k(answers, kind, inference, ks),
        verdict=verdict,
        matches_paper=matches_paper_direction(verdict, expected, base),
    )


def _is_unchanged(
    answers: BatteryResponses, kind: str, base: Estimate, inference: Inference
) -> bool:
    """Two one-sided tests: is the change above -SAME and below +SAME of the base margin?

    The base margin is resampled with the change, so that its uncertainty counts too.
    """
    rows, design = answers.rows_of_kind(kind), answers.design(kind)
    change, before = answers.change[rows], answers.base_margin[rows] * copysign(1, base.value)
    # Two one-sided tests at 5% use the bounds of 90% intervals (TOST, Schuirmann 1987).
    one_sided = replace(inference, level=1 - 2 * SIGNIFICANCE_LEVEL)

    def interval(values: torch.Tensor, name: str) -> tuple[float, float]:
        metric = replace(MARGIN, name=f"{name}: {kind}")
        bounds = estimate(one_sided, metric, values, design, test=False).interval
        return bounds.low, bounds.high

    # `before` is the base margin turned positive, so that its share is the half-width of
    # equivalence.
    above, _ = interval(change + EQUIVALENCE_SHARE * before, "not less")
    _, below = interval(change - EQUIVALENCE_SHARE * before, "not more")
    return above > 0 > below


def with_95_level(inference: Inference) -> Inference:
    """The inference with the level of verdicts, whatever the level of intervals."""
    return replace(inference, level=1 - SIGNIFICANCE_LEVEL)


def _rows_by_occupation(answers: BatteryResponses, kind: str) -> dict[str, list[int]]:
    """The prompts of a kind, by occupation."""
    rows_of: dict[str, list[int]] = {}
    for i in answers.rows_of_kind(kind).tolist():
        rows_of.setdefault(answers.items[i].units[0], []).append(i)
    return rows_of


def _share_flipped(answers: BatteryResponses, kind: str, inference: Inference) -> Estimate:
    # An occupation's prompts are averaged over backgrounds first, so that each occupation counts
    # once.
    is_flipped = [
        bool(answers.margin[rows].mean() * answers.margin[answers.base[name]] < 0)
        for name, rows in _rows_by_occupation(answers, kind).items()
    ]
    return Estimate(
        name=f"flipped: {kind}",
        value=sum(is_flipped) / len(is_flipped),
        interval=proportion_interval(sum(is_flipped), len(is_flipped), level=inference.level),
        n=len(is_flipped),
        unit="share of occupations",
    )


def _compute_top_k_result(
    answers: BatteryResponses, kind: str, k: int, inference: Inference
) -> TopKResult:
    group_mass = answers.top_masses(k)
    first, second = (
        _group_mass(answers, f"top {k}, {group}", kind, group_mass[:, i], inference)
        for i, group in enumerate(answers.groups)
    )
    rows = answers.rows_of_kind(kind)
    metric = replace(MARGIN, name=f"top {k}: {kind}", unit="difference of probabilities")
    try:
        margin = estimate(
            inference,
            metric,
            (group_mass[:, 0] - group_mass[:, 1])[rows],
            answers.design(kind),
            test=False,
        )
    except NotMeasurableError:
        margin = None
    if kind == BASE:
        return TopKResult(k=k, first=first, second=second, margin=margin)
    shared_words = answers.shared_words(k, kind)
    return TopKResult(
        k=k,
        first=first,
        second=second,
        margin=margin,
        words=sum(map(len, shared_words.values())),
        ratio=_mean_log_ratio(shared_words, kind, k, inference, dominating=True),
        other_ratio=_mean_log_ratio(shared_words, kind, k, inference, dominating=False),
    )


def _group_mass(
    answers: BatteryResponses, name: str, kind: str, values: torch.Tensor, inference: Inference
) -> Estimate:
    """Mean probability of a group's words among the likeliest.

    If no prompt has such a word, no resample differs: then the upper limit is that of the share of
    prompts that could have one.
    """
    kind_values = values[answers.rows_of_kind(kind)]
    if kind_values.any():
        return estimate_kind_mean(answers, name, kind, values, inference, "probability")
    return Estimate(
        name=f"{name}: {kind}",
        value=0.0,
        interval=proportion_interval(
            0, len(_rows_by_occupation(answers, kind)), level=inference.level
        ),
        n=len(kind_values),
        unit="probability",
    )


def _mean_log_ratio(
    shared_words: Mapping[str, Sequence[SharedWord]],
    kind: str,
    k: int,
    inference: Inference,
    *,
    dominating: bool,
) -> Estimate | None:
    """Eq. 1: mean log ratio of the words of a group that are among the k likeliest in both."""
    ratios_of = {
        name: [word.log_ratio for word in shared if word.is_dominating == dominating]
        for name, shared in shared_words.items()
    }
    # Words are the items and occupations the clusters: an occupation with many shared words is one
    # unit.
    names = [name for name, ratios in ratios_of.items() for _ in ratios]
    ratios = torch.tensor(
        [ratio for occupation_ratios in ratios_of.values() for ratio in occupation_ratios]
    ).double()
    group = "dominating" if dominating else "other"
    name = f"Eq. 1, top {k}, {group} group: {kind}"
    try:
        return estimate(
            inference,
            replace(MARGIN, name=name, aggregate=mean, unit="log ratio"),
            ratios,
            clustered_design(names, name="occupations"),
        )
    except NotMeasurableError:
        return None
