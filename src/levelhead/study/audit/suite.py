"""Measures that an audit may add to its core suite, and the choice of a measure for head maps.

Each measure has smaller versions for shorter time budgets.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.calibration import find_calibration
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record
from levelhead.data.catalog.datasets import DatasetMissingError
from levelhead.measures.registry import MEASURES, parse_measure
from levelhead.measures.utility.perplexity import PerplexityBase
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.serving.budget import BudgetSpentError
from levelhead.models.serving.served_model import NoLogProbsError, UnsupportedOverHttpError
from levelhead.study.audit.core_suite import CHATS, CORE, kind_of, role_of, text_for
from levelhead.study.audit.time_budget import CheaperOption, count_queries, count_units

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.items import QuerySet
    from levelhead.models.lm import LM
    from levelhead.study.audit.core_suite import Role
    from levelhead.study.audit.time_budget import QueryTimer

Reason = Literal["data missing", "time budget", "token budget", "does not fit this model", "error"]


class AuditMeasure(NamedTuple):
    """A measure that an audit may add, with the option that reduces its size."""

    name: str
    text: str
    """The measure as on the command line."""
    cheaper_options: tuple[CheaperOption, ...]
    is_for_chat: bool = False
    """Whether it is for models with a chat template only."""

    @property
    def role(self) -> Role:
        """The role of the measure's primary metric."""
        return role_of(self.text)


SHARES = tuple(CheaperOption("subsample_fraction", 0.5**i) for i in range(1, 7))
QUOTAS = tuple(CheaperOption("contexts_per_word", n) for n in (5, 3, 2, 1))
LIMITS = tuple(CheaperOption("limit", n) for n in (100, 50, 20))
AUDIT_MEASURES: tuple[AuditMeasure, ...] = (
    AuditMeasure("bbq", "bbq:per_template=6", SHARES, is_for_chat=True),
    # In full or not at all: see the core suite.
    AuditMeasure("winobias-sentences", "winobias", (), is_for_chat=True),
    AuditMeasure("callback", "callback", SHARES, is_for_chat=True),
    AuditMeasure("implicit-association", "implicit_association", SHARES, is_for_chat=True),
    AuditMeasure("generation", "generation:k=5,tokens=30", SHARES, is_for_chat=True),
    AuditMeasure("seat", "seat:lexicon=kaneko,targets=stereotypes,contexts_per_word=10", QUOTAS),
    AuditMeasure("seat-occupations", "seat:contexts_per_word=30", QUOTAS),
    AuditMeasure("strength", "strength", SHARES),
    AuditMeasure("distance", "distance", SHARES),
    AuditMeasure("contrast", "contrast", SHARES),
    AuditMeasure("cloze", "cloze:backgrounds=1", SHARES),
    AuditMeasure("stereotype", "stereoset", SHARES),
    AuditMeasure("crows", "crows", SHARES),
    AuditMeasure("nli-fairness", "nli", SHARES),
    AuditMeasure("nli-coal", "nli_coal", SHARES),
    AuditMeasure("pppl", "pppl:limit=200", LIMITS),
    AuditMeasure("ppl", "ppl:limit=200", LIMITS),
    # Not GAP: loading its texts alone takes a quarter of a minute.
    AuditMeasure("agreement", "pronoun_agreement:sources=winogender+winobias", SHARES),
    AuditMeasure("snli", "snli", SHARES),
)
"""Measures in the order in which they are run: those that the core suite lacks, and larger samples
of those that it has."""
LARGER_SUFFIX = "-larger"
"""Suffix of the name of a larger sample of a core measure."""
LOCATORS: tuple[AuditMeasure, ...] = (
    AuditMeasure("cloze", "cloze:backgrounds=1", SHARES),
    AuditMeasure("contrast", "contrast", SHARES),
    AuditMeasure("crows_margin", "crows:metric=crows_margin", SHARES),
    AuditMeasure("stereotype_margin", "stereoset:metric=stereotype_margin", SHARES),
    AuditMeasure("seat", "seat:lexicon=kaneko,targets=stereotypes,contexts_per_word=10", QUOTAS),
    AuditMeasure("seat-occupations", "seat:contexts_per_word=30", QUOTAS),
    AuditMeasure("strength", "strength", SHARES),
)
"""Differentiable measures for head maps; among equally calibrated ones, the first is used."""
PERPLEXITY_MEASURES = tuple(
    name for name, make in MEASURES.items() if issubclass(make, PerplexityBase)
)
TIMED_SEPARATELY = (*PERPLEXITY_MEASURES, "bbq")
"""Measures with longer texts than others with the same kind of queries."""
MIN_UNITS = 20
"""Minimum number of words, pairs or occupations in a sample of a measure: intervals from the
bootstrap of fewer units are too narrow."""


def planned_text(name: str) -> str:
    """A measure as on the command line, by its name in an audit; an unknown name stays as it is.

    >>> planned_text("seat-weat6"), planned_text("crows-larger")
    ('seat:weat_test=weat6', 'crows:subsample_fraction=0.125')
    """
    texts = {added.name: added.text for added in AUDIT_MEASURES}
    texts |= {core.name: core.text for core in CORE}
    return texts.get(name.removesuffix(LARGER_SUFFIX), name)


class Omitted(Record):
    """A measure or step that the audit skips, with the reason."""

    name: str
    details: str
    reason: Reason = "does not fit this model"


class TimedMeasure(NamedTuple):
    """A measure that fits a model, with its estimated time."""

    audit_measure: AuditMeasure
    measure: Measure
    query_sets: Sequence[QuerySet]
    n_queries: int
    seconds_per_query: float
    """Seconds per query; 0 without a time limit."""
    n_core_queries: int = 0
    """Number of queries of the core suite's version: a sample must be larger to add evidence."""

    @property
    def options(self) -> list[CheaperOption | None]:
        """The full measure and its samples of sufficient size."""
        return [
            option
            for option in (None, *self.audit_measure.cheaper_options)
            if option is None
            or (
                (
                    option.name != "subsample_fraction"
                    or count_units(self.query_sets[0], self.measure, option) >= MIN_UNITS
                )
                and (
                    not self.n_core_queries
                    or count_queries(self.query_sets, self.measure, option) > self.n_core_queries
                )
            )
        ]

    @property
    def cheapest_option(self) -> CheaperOption | None:
        """The smallest sample of the measure that an audit uses."""
        return self.options[-1]

    def seconds(self, option: CheaperOption | None = None) -> float:
        """Seconds of the measure at a given size."""
        return self.seconds_per_query * count_queries(self.query_sets, self.measure, option)


def time_measure(lm: LM, audit_measure: AuditMeasure, timer: QueryTimer) -> TimedMeasure:
    """Parse a measure and build its queries; raises an error if it does not fit the model."""
    measure = parse_measure(audit_measure.text)
    measure.check(lm)
    query_sets = measure.queries(lm)
    kind = measure.name if measure.name in TIMED_SEPARATELY else ""
    return TimedMeasure(
        audit_measure,
        measure,
        query_sets,
        count_queries(query_sets, measure),
        timer.seconds_per_query(query_sets, kind=kind),
    )


def estimate_core_seconds(lm: LM, core: Mapping[str, str], timer: QueryTimer) -> float:
    """Estimate the seconds of the core suite's queries, those of several measures counted once.

    Args:
        lm: the model.
        core: measures of the core suite by name, as on the command line.
        timer: timer of queries.
    """
    seconds_by_queries: dict[str, float] = {}
    for name, text in core.items():
        # The run gives the reason. What cannot be queried takes no time that could be planned.
        with suppress(LevelheadError):
            timed_measure = time_measure(lm, AuditMeasure(name, text, ()), timer)
            queries = [
                [
                    query_set.query_kind,
                    query_set.settings,
                    [item.queries for item in query_set.items],
                ]
                for query_set in timed_measure.query_sets
            ]
            # The store answers a query that two measures have in common once.
            seconds_by_queries[content_hash(queries)] = timed_measure.seconds()
    return sum(seconds_by_queries.values())


def find_extensions(
    lm: LM,
    core: Mapping[str, str],
    timer: QueryTimer,
    *,
    deadline: float | None = None,
    on_step: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> tuple[list[TimedMeasure], list[Omitted]]:
    """Find the measures that an audit could add to its core suite, and the reasons against others.

    Args:
        lm: the model.
        core: measures of the core suite by name, as on the command line.
        timer: timer of queries.
        deadline: time of `time.monotonic` after which no further measure is considered.
        on_step: callback with the current step, the number of finished steps and their total.
    """
    candidates: list[TimedMeasure] = []
    omitted: list[Omitted] = []
    kind = kind_of(lm)
    rows = [
        audit_measure._replace(text=text_for(kind, audit_measure.text))
        for audit_measure in AUDIT_MEASURES
        if core.get(audit_measure.name) != audit_measure.text
        and (kind in CHATS or not audit_measure.is_for_chat)
    ]
    for number, audit_measure in enumerate(rows):
        on_step(f"planning {audit_measure.name}", number, len(rows))
        name = audit_measure.name + LARGER_SUFFIX * (audit_measure.name in core)
        try:
            measure = parse_measure(audit_measure.text)
            measure.check(lm)
            # After the check: a measure that does not fit must not be listed as lacking time.
            if deadline is not None and time.monotonic() > deadline:
                omitted.append(omit_for_time(name))
                continue
            n_core_queries = 0
            if audit_measure.name in core:
                core_measure = parse_measure(core[audit_measure.name])
                n_core_queries = count_queries(core_measure.queries(lm), core_measure)
            timed_measure = time_measure(lm, audit_measure._replace(name=name), timer)
        except LevelheadError as error:
            omitted.append(omit_after_error(name, error))
            continue
        # A sample that is not larger would repeat items of the core suite.
        if timed_measure.n_queries > n_core_queries:
            candidates.append(timed_measure._replace(n_core_queries=n_core_queries))
    on_step("planned", len(rows), len(rows))
    return candidates, omitted


def rank_locators(lm: LM) -> tuple[list[AuditMeasure], list[str]]:
    """Rank the measures for a head map by their calibration, and give the reasons against others.

    A measure that failed validation on models with planted bias gives no evidence on heads. Of the
    others, the one that detects the smallest planted dose comes first, then the one that ranks
    doses best. Step functions are excluded because they have zero gradient.
    """
    ranked: list[tuple[bool, float, float, int]] = []
    rejected: list[str] = []
    for number, audit_measure in enumerate(LOCATORS):
        measure = parse_measure(audit_measure.text)
        try:
            measure.check(lm)
        except LevelheadError:
            continue
        if measure.primary_metric.is_step:
            continue
        key = measure.measure_key(lm)
        calibration = None if key is None else find_calibration(key)
        if calibration is not None and calibration.verdict == "misses":
            rejected.append(f"{audit_measure.name} failed validation on models with planted bias")
            continue
        has_verdict = calibration is not None and calibration.verdict != "not evaluated"
        dose = calibration.smallest if calibration is not None else None
        rank = calibration.rank if calibration is not None else None
        # 2 sorts behind every dose, of which the largest is 1.
        ranked.append((not has_verdict, 2.0 if dose is None else dose, -(rank or 0.0), number))
    return [LOCATORS[number] for *_, number in sorted(ranked)], rejected


def omit_for_time(name: str) -> Omitted:
    """Record a skip for lack of time."""
    return Omitted(name=name, details="time budget", reason="time budget")


def omit_after_error(name: str, error: LevelheadError) -> Omitted:
    """Record a skip because of an error."""
    reason: Reason = "error"
    if isinstance(error, DatasetMissingError):
        reason = "data missing"
    elif isinstance(error, MissingHeadError | UnsupportedOverHttpError | NoLogProbsError):
        reason = "does not fit this model"
    elif isinstance(error, BudgetSpentError):
        reason = "token budget"
    return Omitted(name=name, details=error.problem, reason=reason)
