"""Pronoun agreement: does an edited model still use the right pronouns?

An edit that removes a group from a model may also remove grammar, such as that a man is `he`. The
measure uses sentences in which all people are of one group, so that stereotypes cannot help
(`data.prompts.pronoun_agreement`). It is a utility, not a bias: an edit should not change it. The
gap between the groups, on sentences with versions for both, is a bias: the model writes worse about
the people of one group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.prompts.pronoun_agreement import (
    OVER_LIMIT,
    PERSON_WORDS,
    AgreementSentence,
    AgreementSentenceSet,
    AgreementSource,
    agreement_source_hashes,
    load_agreement_sentences,
)
from levelhead.measures.base import Extras
from levelhead.measures.inference import estimate, note_failure
from levelhead.measures.metric import scale_interval
from levelhead.measures.options import hash_items
from levelhead.measures.reductions import mean, scale_aggregate
from levelhead.measures.utility.right_word import RightWordMeasure, RightWordTexts
from levelhead.stats.degenerate import is_constant
from levelhead.stats.designs import grouped_design
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Responses
    from levelhead.stats.designs import Design

SOURCES: tuple[str, ...] = get_args(AgreementSource)
GAP_PREFIX = "gap: "
"""Prefix of the name of the difference between the groups, the first less the second."""


@final
@dataclass(frozen=True)
class PronounAgreement(RightWordMeasure):
    """Percentage of sentences whose agreeing pronoun is more likely than the other group's.

    A masked model scores the pronoun in its place, a causal model the full sentence with each
    pronoun. Every sentence has a version for both groups, and GAP has equally many passages of
    each, so a constant pronoun is right in 50%. A tie counts half.
    """

    texts: tuple[AgreementSentence, ...] | None = None
    """User's sentences; by default those of the sources."""
    sources: tuple[AgreementSource, ...] = ("winogender", "winobias", "gap")
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    people: tuple[str, ...] = PERSON_WORDS
    """Words of the first group that denote people."""
    limit: int | None = 400
    """Maximum number of GAP's passages, which are long; None: all."""

    metrics: ClassVar[dict[str, str]] = {
        "pronoun_agreement": "knowledge people need: pronouns that are beyond doubt",
        "pronoun_agreement_margin": "by how much they are likelier",
    }
    wording: ClassVar[RightWordTexts] = RightWordTexts(
        name="pronoun_agreement",
        key="pronoun agreement",
        units="sentences",
        equations=(
            "share of sentences whose agreeing pronoun is likelier; ties count half",
            "mean log-probability of the agreeing pronoun less that of the other",
        ),
        directions=("larger: more pronouns agree", "larger: pronouns that agree are likelier"),
        note="always the same pronoun: 50%",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for source in self.sources:
            require_option("source", source, SOURCES)
        if self.texts is None and not self.sources:
            raise LevelheadError("there is no source", hint=f"name some of {', '.join(SOURCES)}")

    # -- items

    @cached_property
    def _sentences_by_source(self) -> Mapping[str, AgreementSentenceSet]:
        return {
            source: load_agreement_sentences(
                source,
                self.resolved_lexicon,
                groups=self.groups,
                people=self.people,
                limit=self.limit,
            )
            for source in self.sources
        }

    @property
    def items(self) -> tuple[AgreementSentence, ...]:
        """The sentences."""
        if self.texts is not None:
            return self.texts
        return tuple(
            sentence
            for agreement in self._sentences_by_source.values()
            for sentence in agreement.sentences
        )

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the sources' files and of the lexicon, or of the user's sentences."""
        if self.texts is not None:
            return {"texts": hash_items(self.texts)}
        return agreement_source_hashes(self.sources) | self.lexicon_hash

    @property
    def _n_left_out(self) -> int:
        """Number of eligible sentences that the limit leaves out."""
        if self.texts is not None:
            return 0
        return sum(
            dict(agreement.left_out).get(OVER_LIMIT, 0)
            for agreement in self._sentences_by_source.values()
        )

    @property
    def _left_out_notes(self) -> tuple[str, ...]:
        if self.texts is not None:
            return ()
        return tuple(
            f"{source}: left out {count} ({reason})"
            for source, agreement in self._sentences_by_source.items()
            for reason, count in agreement.left_out
            if count
        )

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The primary metric by group and by source, and the gap between the groups."""
        extras = super().compute_extras(response_sets, inference)
        estimates, notes = list(extras.estimates), list(extras.notes)
        with note_failure(notes, "gap between the groups"):
            estimates.append(self._gap(response_sets[0], inference))
        return Extras(tuple(estimates), tuple(notes))

    def _gap(self, responses: Responses, inference: Inference) -> Estimate:
        """Difference of agreement between the groups, on sentences with versions for both."""
        first, second = self.compared_groups
        values = self.primary_metric.per_item_values(responses).detach()
        by_sentence: dict[str, dict[str, float]] = {}
        for item, value in zip(responses.items, values.tolist(), strict=True):
            by_sentence.setdefault(item.units[0], {})[item.group] = value
        # Only sentences with both versions: other sentences differ in more than the group.
        both = [pair for pair in by_sentence.values() if {first, second} <= set(pair)]
        if not both:
            raise NotMeasurableError(
                "no sentence was read for both groups",
                hint="use sources whose people are exchanged",
            )
        differences = torch.tensor([pair[first] - pair[second] for pair in both]).double()
        is_share = self.primary_metric.unit == "% of sentences"
        gap = replace(
            self.primary_metric,
            name=f"{GAP_PREFIX}{first} - {second}",
            aggregate=scale_aggregate(100, mean) if is_share else mean,
            unit="percentage points" if is_share else self.primary_metric.unit,
            low=-100.0 if is_share else -float("inf"),
            high=100.0 if is_share else float("inf"),
            parity=0.0,
            # Under equal treatment the two versions are exchangeable, so a sentence's difference
            # may change its sign. If all differences are 0, there is no such distribution, and
            # the interval's p-value is 1.
            null="sign_flip" if bool(differences.any()) else None,
            smooth_surrogate=None,
            closed_form_interval=_no_spread_interval if is_share else None,
        )
        return estimate(inference, gap, differences, grouped_design(len(both), name="sentences"))


def _no_spread_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval if all differences are equal, where resampling has no width.

    If all are 0, no sentence favours a group, as far as that many sentences can show.
    """
    if not is_constant(values.numpy()):
        return None
    value = float(values[0])
    trials = len(values)
    interval = proportion_interval(round(abs(value) * trials), trials, level=level)
    # Wilson's interval of a share near 0 is one-sided; a difference may lie on either side.
    half_width = max(interval.high - abs(value), abs(value) - interval.low)
    ends = {"low": max(value - half_width, -1.0), "high": min(value + half_width, 1.0)}
    return scale_interval(interval.model_copy(update=ends), 100)
