"""Frequency control: the preferences of a unigram model, which has no context.

A unigram model has the frequency of each token in public text, and no other information. Its
preferences are not stereotypes: "American" is more frequent than "Mexican". The excess over them
may be one.

Pairs that exchange the same words ("black" for "white") get one answer from such a model: they are
one observation, not 151. So the exchanged words are sampled, and the test rejects a unigram model
of another text no more often than its level.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError
from levelhead.core.results import PValue
from levelhead.core.verdicts import ALPHA, adjusted_p_value
from levelhead.data.catalog.frequencies import (
    DEFAULT_SOURCES,
    SMOOTHING,
    locate_sources,
    read_source_texts,
)
from levelhead.data.tokenize import fold_case, tokenize_words
from levelhead.measures.classification.group_rates import paired_share_interval
from levelhead.measures.inference import estimate
from levelhead.measures.metric import Metric, scale_interval
from levelhead.measures.reductions import mean
from levelhead.stats.designs import clustered_design

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.run_context import Inference
    from levelhead.data.catalog.frequencies import TextSource
    from levelhead.measures.items import MeasureItem
    from levelhead.models.inputs.tokenizer import Tokens
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

AUTO = "auto"
Frequencies = str | tuple[str, ...] | None
"""Data sets of the catalog, or files, to count words in; "auto": public text if it is suitable."""
EXCESS = "excess over word frequency"
UNCONTROLLED = "word frequency not controlled for"
TIE_MARGIN = 1e-9
"""Differences of unigram scores below this threshold are rounding of sums in another order."""


def resolve_sources(frequencies: Frequencies, *, fits: bool) -> tuple[TextSource, ...] | str:
    """Resolve the texts whose words are counted, or return the reason why there are none.

    Args:
        frequencies: Value of the option of this name.
        fits: Whether public English text is suitable for the items.
    """
    if frequencies is None:
        return "frequencies=none"
    if frequencies == AUTO and not fits:
        return "items of your own: name a text of their language with frequencies=..."
    names = DEFAULT_SOURCES if frequencies == AUTO else frequencies
    try:
        return locate_sources((names,) if isinstance(names, str) else names)
    except LevelheadError as error:
        return f"{error.problem} ({error.hint})"


def source_hashes(sources: Sequence[TextSource]) -> Mapping[str, str]:
    """SHA-256 of the texts, by name."""
    return {f"word frequency {source.name}": source.sha256 for source in sources}


class Unigram(NamedTuple):
    """A unigram model: log-probabilities of tokens without context."""

    log_p: torch.Tensor
    """`[vocabulary]`, float64."""
    n: int
    """Number of counted tokens."""


@lru_cache(maxsize=2)
def fit_unigram(model_tokens: Tokens, sources: tuple[TextSource, ...]) -> Unigram:
    """Fit a unigram model with a model's tokenizer, so that both score the same tokens."""
    tokenizer, counts = model_tokens.tokenizer, Counter[int]()
    texts = list(read_source_texts(sources))
    # Chunks of 1000 texts bound the memory of the tokenizer's output.
    for start in range(0, len(texts), 1000):
        rows = tokenizer(texts[start : start + 1000], add_special_tokens=False, verbose=False)
        for ids in cast("list[list[int]]", rows["input_ids"]):
            counts.update(ids)
    # Add-1 smoothing: an unseen token must keep a finite log-probability.
    smoothed = torch.full((len(tokenizer),), SMOOTHING, dtype=torch.float64)
    for token, count in counts.items():
        smoothed[token] += count
    return Unigram((smoothed / smoothed.sum()).log(), counts.total())


def unigram_scores(
    lm: LM, unigram: Unigram, items: Sequence[MeasureItem], average: bool
) -> torch.Tensor:
    """`[pairs, 2]` unigram scores of the same tokens that the model scores."""
    queries = [query for item in items for query in item.queries]
    rows = lm.tokens.encode([str(query[0]) for query in queries])
    scores = []
    for query, encoded in zip(queries, rows, strict=True):
        if query[1] is not None:
            positions = [int(position) for position in cast("Sequence[int]", query[1])]
        else:
            # A causal model gives no probability for the first token.
            positions = [
                i for i in encoded.word_positions() if i or not lm.layout.model_class.causal
            ]
        log_p = unigram.log_p[[encoded.row.ids[i] for i in positions]]
        scores.append(log_p.mean() if average else log_p.sum())
    # Two queries for each pair, in the order of the items.
    return torch.stack(scores).reshape(len(items), 2)


def prefers_first(scores: torch.Tensor) -> torch.Tensor:
    """1 if the first of two scores is larger, 0 if it is smaller, 0.5 for a tie."""
    margin = scores[:, 0] - scores[:, 1]
    return ((margin > TIE_MARGIN).double() + (margin >= -TIE_MARGIN).double()) / 2


def exchanged_words(item: MeasureItem) -> str:
    """The words that differ between the two sentences of a pair, independent of their order."""
    first, second = (
        Counter(fold_case(token.text) for token in tokenize_words(str(query[0])))
        for query in item.queries
    )
    # Sorted, so that a pair and its mirror image are one unit of the design.
    sides = sorted(" ".join(sorted(words.elements())) for words in (first - second, second - first))
    return " / ".join(sides) if any(sides) else item.id


ABOVE_FREQUENCY = Metric(
    name=EXCESS,
    equation="share of pairs under the model less that under a unigram model, paired by pair",
    per_item_values=lambda responses: responses.values,
    aggregate=mean,
    unit="% of pairs",
    low=-100.0,
    high=100.0,
    direction="above 0: the more stereotypical sentence is likelier more often than words are "
    "frequent",
    above="the more stereotypical sentence is likelier more often than word frequency gives",
    below="the less stereotypical sentence is likelier more often than word frequency gives",
    comparability_key="crows, excess over word frequency",
    null="sign_flip",
    closed_form_interval=lambda values, design, level: _uniform_change_interval(
        values, design, level
    ),
)


def _uniform_change_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Interval of Bonett and Price if all changes are equal, where resampling has no width."""
    return (
        None if bool((values != values[0]).any()) else _bonett_price_interval(values, design, level)
    )


def _bonett_price_interval(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Interval of paired shares by Bonett and Price, with one pair added in each direction."""
    sides = torch.stack([(values > 0).double(), (values < 0).double()], dim=1)
    return scale_interval(
        paired_share_interval(sides, design, level), float(values.abs().max()) or 100.0
    )


def _widen(result: Estimate, values: torch.Tensor, design: Design, level: float) -> Estimate:
    """Widen an interval to the outer ends of two: the bootstrap's, and Bonett and Price's.

    The bootstrap accounts for words that are exchanged in many pairs, but if the few pairs that
    change all change in one direction, so do they in every resample; Bonett and Price's interval
    handles the second problem, not the first.
    """
    resampled, formula = result.interval, _bonett_price_interval(values, design, level)
    low, high = min(resampled.low, formula.low), max(resampled.high, formula.high)
    method = f"{resampled.method}, at least {formula.method}"
    ends = {"low": max(low, -100.0), "high": min(high, 100.0), "method": method}
    return result.model_copy(update={"interval": resampled.model_copy(update=ends)})


def estimate_frequency_excess(
    preferred: torch.Tensor,
    frequent: torch.Tensor,
    items: Sequence[MeasureItem],
    inference: Inference,
    name: str,
) -> Estimate:
    """Estimate the percentage of stereotyped preferences in excess of those by word frequency.

    Args:
        preferred: 1, 0 or 0.5 for each pair, by the model.
        frequent: The same by the unigram model.
        items: The pairs.
        inference: Seed, resamples and level.
        name: Name of the estimate.
    """
    change = 100 * (preferred - frequent)
    changes = bool(change.any())
    design = clustered_design([exchanged_words(item) for item in items], name="words exchanged")
    result = estimate(inference, ABOVE_FREQUENCY, change, design, name=name, test=changes)
    result = _widen(result, change, design, inference.level)
    if changes:
        return result
    # Without changes, every exchange is as extreme as the observed value: p is 1.
    same = PValue(value=1.0, method="sign flip, exact", alternative="two-sided")
    return result.model_copy(update={"p": same})


def intersection_union_test(raw: Estimate, excess: Estimate | None) -> Estimate:
    """Test that a type's estimate differs from both parity and word frequency.

    An intersection-union test: p is the larger of the two, and 1 if the differences have opposite
    signs. So a difference from parity that word frequency explains is never significant.
    """
    if raw.p is None or raw.parity is None:
        return raw
    if excess is None or excess.p is None:
        return _with_p(raw, raw.p.value, f"{raw.p.method}; {UNCONTROLLED}")
    same_side = (raw.value - raw.parity) * excess.value > 0
    # The larger p is a level-alpha test without correction (Berger 1982).
    p = max(raw.p.value, excess.p.value) if same_side else 1.0
    return _with_p(raw, p, f"{raw.p.method} against parity and word frequency, the larger p")


def _with_p(raw: Estimate, value: float, method: str) -> Estimate:
    if raw.p is None:
        return raw
    update = {
        "value": value,
        "method": method,
        "adjusted": None,
        "correction": None,
        "family": None,
    }
    return raw.model_copy(update={"p": raw.p.model_copy(update=update)})


def describe_frequency_confound(raw: Estimate, excess: Estimate, level: float = ALPHA) -> str:
    """Caveat for an estimate that differs from parity no more than word frequency does."""
    p, excess_p = adjusted_p_value(raw), adjusted_p_value(excess)
    # Only a significant difference from parity could be mistaken for a finding.
    if p is None or raw.parity is None or p > level:
        return ""
    same_side = (raw.value - raw.parity) * excess.value > 0
    if same_side and excess_p is not None and excess_p <= level:
        return ""
    return (
        f"{raw.name}: {raw.value:.4g} differs from {raw.parity:g} (p {p:.2g}), but is not shown to "
        f"differ from it by more than word frequency gives (excess {excess.value:.4g} "
        f"{excess.interval}): not a finding"
    )
