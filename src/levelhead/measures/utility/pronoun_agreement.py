"""Pronoun agreement: does an edited model still use the right pronouns?

An edit that removes a group from a model may also remove grammar, such as that a man is `he`. The
measure uses sentences in which all people are of one group, so that stereotypes cannot help
(`data.prompts.pronoun_agreement`). It is a utility, not a bias: an edit should not change it. The
gap between the groups, on sentences with versions for both, is a bias: the model writes worse about
the people of one group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, cast, final, get_args

import numpy as np
import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.frozen import FrozenDict
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
from levelhead.measures.base import Extras, RequiredHead
from levelhead.measures.inference import estimate, note_failure
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.metric import Metric, scale_interval
from levelhead.measures.options import hash_items
from levelhead.measures.reductions import mean, scale_aggregate
from levelhead.models.inputs.tokenizer import MASK
from levelhead.stats.degenerate import is_constant
from levelhead.stats.designs import grouped_design
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.run_context import Inference
    from levelhead.measures.items import ItemField, QueryArgs
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

SOURCES: tuple[str, ...] = get_args(AgreementSource)
GAP_PREFIX = "gap: "
"""Prefix of the name of the difference between the groups, the first less the second."""


@final
@dataclass(frozen=True)
class PronounAgreement(LexiconMeasure):
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
    needs: ClassVar[tuple[RequiredHead, ...]] = ("masked", "causal")

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

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Queries of both pronouns in every sentence: in the blank, or in the full text."""
        causal = "causal" in lm.heads
        items = tuple(
            MeasureItem(
                sentence.id,
                _build_queries(sentence, is_causal=causal),
                (sentence.unit,),
                sentence.group,
                kind=sentence.source,
            )
            for sentence in self.items
        )
        notes = ["always the same pronoun: 50%"]
        if self.texts is None:
            notes += [
                f"{source}: left out {count} ({reason})"
                for source, agreement in self._sentences_by_source.items()
                for reason, count in agreement.left_out
                if count
            ]
        make_query_set = partial(
            QuerySet,
            factors=("sentences",),
            items=items,
            notes=tuple(notes),
            population=len(items) + self._n_left_out or None,
        )
        if causal:
            return (make_query_set("score", FrozenDict({})),)
        # One query scores all pronouns of all sentences; each sentence's two columns are looked up.
        words = sorted(
            {
                word
                for sentence in self.items
                for word in (sentence.correct_pronoun, sentence.wrong_pronoun)
            }
        )
        columns = {
            sentence.id: [
                words.index(sentence.correct_pronoun),
                words.index(sentence.wrong_pronoun),
            ]
            for sentence in self.items
        }
        metadata = FrozenDict({"columns": columns})
        return (make_query_set("fill", FrozenDict({"words": words}), metadata=metadata),)

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Sentences are sampled, with their versions for both groups."""
        return responses.design()

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The share of agreement and its smooth surrogate."""
        share = Metric(
            name="pronoun_agreement",
            equation="share of sentences whose agreeing pronoun is likelier; ties count half",
            per_item_values=_is_agreeing,
            aggregate=scale_aggregate(100, mean),
            unit="% of sentences",
            low=0.0,
            high=100.0,
            direction="larger: more pronouns agree",
            comparability_key="pronoun agreement, same sentences",
            role="utility",
            worse="lower",
            parity=None,
            smooth_surrogate="pronoun_agreement_margin",
            closed_form_interval=_constant_interval,
        )
        margin = replace(
            share,
            name="pronoun_agreement_margin",
            equation="mean log-probability of the agreeing pronoun less that of the other",
            per_item_values=_margins,
            aggregate=mean,
            unit="nats",
            low=-float("inf"),
            high=float("inf"),
            direction="larger: pronouns that agree are likelier",
            comparability_key="pronoun agreement margin, same sentences",
            smooth_surrogate=None,
            closed_form_interval=None,
        )
        return share, margin

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The primary metric by group and by source, and the gap between the groups."""
        responses = response_sets[0]
        estimates: list[Estimate] = []
        notes: list[str] = []
        parts: list[tuple[str, ItemField, str]]
        parts = [(f"group: {name}", "group", name) for name in responses.groups]
        kinds = dict.fromkeys(item.kind for item in responses.items)
        parts += [(f"source: {name}", "kind", name) for name in kinds] if len(kinds) > 1 else []
        for label, field, name in parts:
            part_responses = responses.select_where(field, name)
            primary = self.primary_metric
            with note_failure(notes, label):
                values = primary.per_item_values(part_responses)
                design = self.design(part_responses, primary)
                estimates.append(
                    estimate(inference, primary, values, design, name=label, test=False)
                )
        with note_failure(notes, "gap between the groups"):
            estimates.append(self._gap(responses, inference))
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


def _build_queries(sentence: AgreementSentence, *, is_causal: bool) -> tuple[QueryArgs, ...]:
    start, end = sentence.span
    before, after = sentence.text[:start], sentence.text[end:]
    if is_causal:
        return (sentence.text, None), (f"{before}{sentence.wrong_pronoun}{after}", None)
    return ((f"{before}{MASK}{after}",),)


def _margins(responses: Responses) -> torch.Tensor:
    """`[sentences]` log-probability with the agreeing pronoun less that with the other pronoun."""
    if "columns" in responses.metadata:
        columns = cast("Mapping[str, tuple[int, int]]", responses.metadata["columns"])
        column_indices = torch.tensor([list(columns[item.id]) for item in responses.items])
        log_probs = responses.values[:, 0].gather(1, column_indices)
    else:
        log_probs = responses.values[:, :, 0]
    detached = responses.values.detach()
    # A model that ignores its input would score exactly 50%, which looks like a real value.
    if len(detached) > 1 and bool((detached == detached[:1]).all()):
        raise NotMeasurableError(
            "the model gives the same answer to every sentence: all answers are equal",
            hint="check that it was trained, and that it reads the texts",
        )
    margins = log_probs[:, 0] - log_probs[:, 1]
    if not bool(margins.detach().abs().max() > 0):
        raise NotMeasurableError(
            "both pronouns are equally likely in every sentence",
            hint="check that the model was trained, and that it reads the texts",
        )
    return margins


def _is_agreeing(responses: Responses) -> torch.Tensor:
    margins = _margins(responses)
    # A tie is half right, so that a model without any preference scores 50%.
    return (margins > 0).double() + 0.5 * (margins == 0).double()


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


def _constant_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval if every sentence has the same value, where resampling has no width.

    All sentences agree, or none, or one pronoun is always preferred: half of every sentence.
    """
    (factor,) = design.factors
    means = np.bincount(factor.unit_of_item, weights=values.numpy()) / np.bincount(
        factor.unit_of_item
    )
    if not is_constant(means):
        return None
    # By sentence, not by version: the two versions of a sentence are not independent.
    hits = round(float(means.mean()) * factor.n_units)
    return scale_interval(proportion_interval(hits, factor.n_units, level=level), 100)
