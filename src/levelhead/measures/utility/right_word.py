"""Sentences in which one of two words is right: shared by the measures of knowledge of groups.

A masked model scores both words in their place, a causal model the full sentence with each of them.
Every sentence has a version for both groups, so that a constant answer is right in 50%. A tie
counts half.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

import numpy as np
import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.measures.base import Extras, RequiredHead
from levelhead.measures.inference import estimate, note_failure
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.metric import Metric, scale_interval
from levelhead.measures.reductions import mean, scale_aggregate
from levelhead.models.inputs.tokenizer import MASK
from levelhead.stats.degenerate import is_constant
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.run_context import Inference
    from levelhead.data.prompts.pronoun_agreement import AgreementSentence
    from levelhead.measures.items import ItemField, QueryArgs
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

CHANCE = 50.0
"""Share of right words of a constant answer, in %."""


class RightWordTexts(NamedTuple):
    """What a measure calls its units and its words."""

    name: str
    """Name of the share; that of its smooth surrogate ends in `_margin`."""
    key: str
    """Comparability key."""
    units: str
    """Sampled units, in the plural."""
    equations: tuple[str, str]
    """Equations of the share and of the smooth surrogate."""
    directions: tuple[str, str]
    """Meaning of larger values of both."""
    note: str
    """Note on a constant answer."""


class RightWordMeasure(LexiconMeasure):
    """Abstract base class: the share of sentences whose right word is likelier than the other."""

    wording: ClassVar[RightWordTexts]
    needs: ClassVar[tuple[RequiredHead, ...]] = ("masked", "causal")

    @property
    @abstractmethod
    def items(self) -> tuple[AgreementSentence, ...]:
        """The sentences, each with its right word and the wrong one."""

    @property
    def _n_left_out(self) -> int:
        """Number of eligible sentences that a limit leaves out."""
        return 0

    @property
    def _left_out_notes(self) -> tuple[str, ...]:
        """Numbers of sentences that were left out, with reasons."""
        return ()

    def guessing_value(self, responses: Responses) -> float:
        """A constant answer is right in half of the sentences."""
        return CHANCE

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Queries of both words in every sentence: in the blank, or in the full text."""
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
        make_query_set = partial(
            QuerySet,
            factors=(self.wording.units,),
            items=items,
            notes=(self.wording.note, *self._left_out_notes),
            population=len(items) + self._n_left_out or None,
        )
        if causal:
            return (make_query_set("score", FrozenDict({})),)
        # One query scores all words of all sentences; each sentence's two columns are looked up.
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
        """Units are sampled, with their versions for both groups."""
        return responses.design()

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The share of right words and its smooth surrogate."""
        name, key = self.wording.name, self.wording.key
        share = Metric(
            name=name,
            equation=self.wording.equations[0],
            per_item_values=_is_right,
            aggregate=scale_aggregate(100, mean),
            unit="% of sentences",
            low=0.0,
            high=100.0,
            direction=self.wording.directions[0],
            comparability_key=f"{key}, same sentences",
            role="utility",
            worse="lower",
            parity=None,
            smooth_surrogate=f"{name}_margin",
            closed_form_interval=_constant_interval,
        )
        margin = replace(
            share,
            name=f"{name}_margin",
            equation=self.wording.equations[1],
            per_item_values=_margins,
            aggregate=mean,
            unit="nats",
            low=-float("inf"),
            high=float("inf"),
            direction=self.wording.directions[1],
            comparability_key=f"{key} margin, same sentences",
            smooth_surrogate=None,
            closed_form_interval=None,
        )
        return share, margin

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The primary metric by group and by source."""
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
        return Extras(tuple(estimates), tuple(notes))


def _build_queries(sentence: AgreementSentence, *, is_causal: bool) -> tuple[QueryArgs, ...]:
    start, end = sentence.span
    before, after = sentence.text[:start], sentence.text[end:]
    if is_causal:
        return (sentence.text, None), (f"{before}{sentence.wrong_pronoun}{after}", None)
    return ((f"{before}{MASK}{after}",),)


def _margins(responses: Responses) -> torch.Tensor:
    """`[sentences]` log-probability with the right word less that with the other word."""
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
            "both words are equally likely in every sentence",
            hint="check that the model was trained, and that it reads the texts",
        )
    return margins


def _is_right(responses: Responses) -> torch.Tensor:
    margins = _margins(responses)
    # A tie is half right, so that a model without any preference scores 50%.
    return (margins > 0).double() + 0.5 * (margins == 0).double()


def _constant_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval if every unit has the same value, where resampling has no width.

    All sentences are right, or none, or one word is always preferred: half of every unit.
    """
    (factor,) = design.factors
    means = np.bincount(factor.unit_of_item, weights=values.numpy()) / np.bincount(
        factor.unit_of_item
    )
    if not is_constant(means):
        return None
    # By unit, not by version: the versions of a sentence are not independent.
    hits = round(float(means.mean()) * factor.n_units)
    return scale_interval(proportion_interval(hits, factor.n_units, level=level), 100)
