"""Counterfactual generations: does a model write differently about a person of another group?

Every request is made twice, with the word of one group and of the other ("a woman", "a man"), and
each is answered several times. Answers are compared by their share of positive texts, refusals,
empty texts, and their length. Refusals and empty answers are counted, never left out silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np
import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.prompts.counteracts import make_counteracts_prompts
from levelhead.data.prompts.person_requests import (
    PersonRequest,
    default_request_templates,
    make_person_requests,
)
from levelhead.data.tokenize import fold_case, tokenize_words
from levelhead.measures.base import Extras, RequiredHead
from levelhead.measures.generation.scorer_calibration import (
    CALIBRATIONS,
    ScorerCalibration,
    correct_count,
)
from levelhead.measures.generation.scorers import (
    REFUSAL_PHRASES,
    RefusalPhrases,
    TextScorer,
    resolve_scorer,
)
from levelhead.measures.item_details import PAIR
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.metric import Metric
from levelhead.measures.options import check_positive, hash_items
from levelhead.measures.reductions import Reduction, take_resample
from levelhead.measures.skills.checks import SkillCheck, text_digest
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat, ChatStyle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.core.results import ItemDetail
    from levelhead.core.run_context import Inference
    from levelhead.measures.generation.scorer_calibration import ErrorRates
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.bootstrap import ItemCounts
    from levelhead.stats.designs import Resample

DIFFERENCE, FIRST, FIRST_COUNT, SECOND, SECOND_COUNT = range(5)
"""Columns of the values of an item: what reports show, then sums and counts of each group."""
ON_TOPIC = "answers are about the request"
MIN_CALIBRATED_NOTE = "the scorer is not calibrated: its errors are not part of the interval"


@final
@dataclass(frozen=True)
class CounterfactualGeneration(LexiconMeasure):
    """Difference between generations about two groups, on requests that differ in one word.

    Occupations are sampled; the templates of the requests are fixed. This is a step function of the
    model; for gradients use a measure of decisions.
    """

    requests: tuple[str, ...] | None = None
    """Templates with {a} {person} and {occupation}; by default those of levelhead."""
    occupations: tuple[str, ...] | None = None
    """Job titles; by default the 40 of WinoBias."""
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    persons: tuple[str, str] | None = None
    """Word of each group; by default the lexicon's first word for a person."""
    scorer: str | TextScorer = "vader"
    """Labels the texts whose share is compared: vader (positive sentiment), or an object."""
    calibration: ScorerCalibration | Literal["auto"] | None = "auto"
    """Error rates of the scorer on labelled texts, which correct the shares; "auto": those that
    levelhead knows for the scorer, if any."""
    refusal_phrases: tuple[str, ...] = REFUSAL_PHRASES
    """Beginnings of refusals, in lower case."""
    k: int = 5
    """Number of answers to each request."""
    tokens: int = 60
    temperature: float = 0.7
    top_p: float = 1.0
    seed: int = 0
    """Seed of text generation, not of the resampling."""
    style: ChatStyle = "auto"
    system: str = ""
    """System prompt."""

    metrics: ClassVar[dict[str, str]] = {
        "generation": "difference of the share of positive answers about two groups",
        "generation_refusals": "difference of the share of refusals",
        "generation_failures": "difference of the share of empty or unreadable answers",
        "generation_length": "difference of the length of answers",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("causal",)
    always_show_extras: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.k, "k")
        # Constructed only for their checks: a wrong option fails before a model is loaded.
        _ = self._generation_config
        ChatFormat(self.style, self.system)
        resolve_scorer(self.scorer)

    @property
    def _generation_config(self) -> GenerationConfig:
        return GenerationConfig(self.tokens, self.temperature, self.top_p, self.seed)

    @property
    def scorer_calibration(self) -> ScorerCalibration | None:
        """The calibration that corrects the shares."""
        if self.calibration != "auto":
            return self.calibration
        return CALIBRATIONS.get(resolve_scorer(self.scorer).name)

    # -- items

    @cached_property
    def person_words(self) -> tuple[str, str]:
        """The word of each group in the requests."""
        if self.persons is not None:
            return self.persons
        groups = self.resolved_lexicon.resolve_group_pair(self.groups)
        for term in self.resolved_lexicon.terms:
            words = [term.word(group) for group in groups if term.is_marker_of(group)]
            if term.kind == "person" and len(words) == 2 and None not in words:
                return str(words[0]), str(words[1])
        raise LevelheadError(
            f"the lexicon has no words for a person of {' and '.join(groups)}",
            hint="give them: persons=('woman', 'man')",
        )

    @cached_property
    def items(self) -> tuple[PersonRequest, ...]:
        """The requests for both groups."""
        occupations = (
            tuple(dict.fromkeys(p.occupation for p in make_counteracts_prompts("winobias40")))
            if self.occupations is None
            else self.occupations
        )
        templates = default_request_templates() if self.requests is None else self.requests
        return make_person_requests(templates, occupations, self.person_words)

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the requests, the lexicon and the scorer."""
        scorer = resolve_scorer(self.scorer)
        return {
            "requests": hash_items(self.items),
            **self.lexicon_hash,
            f"scorer {scorer.name} ({scorer.version})": scorer.sha256,
        }

    def specification_options(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """Alternative temperatures."""
        return {"temperature": tuple(dict.fromkeys((self.temperature, 1.0)))}

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Answers to the request of each group, k of them; the first group's answers first."""
        items = tuple(
            MeasureItem(
                item.id,
                tuple((text, i) for text in (item.first, item.second) for i in range(self.k)),
                # The few templates are fixed: a result is about these requests.
                (item.occupation,),
            )
            for item in self.items
        )
        settings = {
            "chat": ChatFormat(self.style, self.system).settings,
            "answer_start": "",
            **self._generation_config.settings,
        }
        note = f"{self.k} answers of at most {self.tokens} tokens to each request, seed {self.seed}"
        return (QuerySet("generate", FrozenDict(settings), ("occupations",), items, notes=(note,)),)

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """Differences of shares, first group less second, and of lengths."""
        first, second = self.compared_groups
        scorer = resolve_scorer(self.scorer)

        def share(name: str, what: str, per_item: Callable[[Responses], torch.Tensor]) -> Metric:
            return Metric(
                name=name,
                equation=f"share of answers that are {what}, first group less second",
                per_item_values=per_item,
                aggregate=difference_of_ratios,
                unit="percentage points",
                low=-100.0,
                high=100.0,
                direction=f"above 0: answers about {first} are more often {what}",
                above=f"answers about {first} are more often {what} than about {second}",
                below=f"answers about {second} are more often {what} than about {first}",
                comparability_key=f"{name}, same requests and scorer",
                # Under equal treatment, the answers to the two requests are exchangeable.
                null="sign_flip",
                flip=_exchange_groups,
                # A sampled text has no gradient; log-odds of a decision have.
                smooth_surrogate="bbq",
            )

        length = Metric(
            name="generation_length",
            equation="mean number of words, first group less second",
            per_item_values=self.count_words,
            aggregate=difference_of_ratios,
            unit="words",
            low=-float(self.tokens * 4),
            high=float(self.tokens * 4),
            direction=f"above 0: answers about {first} are longer",
            above=f"answers about {first} are longer than about {second}",
            below=f"answers about {second} are longer than about {first}",
            comparability_key="generation_length, same requests",
            null="sign_flip",
            flip=_exchange_groups,
            smooth_surrogate="bbq",
        )
        return (
            share("generation", scorer.label, self.count_labelled),
            share("generation_refusals", "refusals", self.count_refusals),
            share("generation_failures", "empty", self.count_failures),
            length,
        )

    def count_labelled(self, responses: Responses, rates: ErrorRates | None = None) -> torch.Tensor:
        """Answers that the scorer labels, corrected by its error rates; refusals are left out.

        They are counted by `count_refusals`: a refusal is no text about the person.
        """
        if rates is None and self.scorer_calibration is not None:
            rates = self.scorer_calibration.rates
        labels = self._label_answers(responses)
        is_answer = ~(self._refusals(responses) | self._failures(responses))
        if not bool(is_answer.any()):
            raise NotMeasurableError(
                "every answer is a refusal or empty",
                hint="look at the answers; another system prompt or more tokens may help",
            )
        counted = labels & is_answer
        values = _count_by_side(counted.double(), is_answer.double())
        if rates is not None:
            # By group and item: the correction is linear, so it commutes with the sums over items.
            for column, count in ((FIRST, FIRST_COUNT), (SECOND, SECOND_COUNT)):
                values[:, column] = correct_count(values[:, column], values[:, count], rates)
        return _with_difference(values, 100)

    def count_refusals(self, responses: Responses) -> torch.Tensor:
        """Refusals among all answers that have a text."""
        has_text = ~self._failures(responses)
        refusals = self._refusals(responses) & has_text
        return _with_difference(_count_by_side(refusals.double(), has_text.double()), 100)

    def count_failures(self, responses: Responses) -> torch.Tensor:
        """Empty answers among all answers."""
        failures = self._failures(responses)
        return _with_difference(
            _count_by_side(failures.double(), torch.ones_like(failures, dtype=torch.float64)), 100
        )

    def count_words(self, responses: Responses) -> torch.Tensor:
        """Words of all answers that have a text and are no refusal."""
        words = self._apply(responses, lambda texts: [len(tokenize_words(t)) for t in texts])
        is_answer = ~(self._refusals(responses) | self._failures(responses))
        return _with_difference(_count_by_side(words * is_answer.double(), is_answer.double()), 1)

    def _label_answers(self, responses: Responses) -> torch.Tensor:
        return self._apply(responses, resolve_scorer(self.scorer).label_texts).bool()

    def _refusals(self, responses: Responses) -> torch.Tensor:
        return self._apply(responses, RefusalPhrases(self.refusal_phrases).label_texts).bool()

    def _failures(self, responses: Responses) -> torch.Tensor:
        # A text without any letter or digit says nothing, such as "..." or an end token.
        return self._apply(
            responses, lambda texts: [not any(map(str.isalnum, text)) for text in texts]
        ).bool()

    def _apply(
        self, responses: Responses, function: Callable[[Sequence[str]], Sequence[float]]
    ) -> torch.Tensor:
        """`[items, 2, k]` values of the answers' texts."""
        flat = [text for texts in responses.texts for text in texts]
        values = torch.tensor([float(value) for value in function(flat)], dtype=torch.float64)
        return values.reshape(len(responses), 2, self.k)

    def leave_block_out_values(self, responses: Responses, metric: Metric) -> list[float]:
        """The corrected difference with each labelled text left out, for the scorer's errors."""
        calibration = self.scorer_calibration
        if calibration is None or metric.name != "generation":
            return []
        full_sample = self.design(responses, metric).full_sample
        values = []
        for rates, n_alike in calibration.leave_each_out():
            value = float(metric.aggregate(self.count_labelled(responses, rates), full_sample))
            # Labelled texts with the same outcome give the same rates: one computation stands for
            # all.
            values += [value] * n_alike
        return values

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Notes on the scorer's errors and on the share of answers."""
        responses = response_sets[0]
        refused, failed = self._refusals(responses), self._failures(responses)
        scorer = resolve_scorer(self.scorer)
        calibrated = (
            f"scorer {scorer.name}: {self.scorer_calibration}"
            if self.scorer_calibration is not None
            else f"scorer {scorer.name}: {MIN_CALIBRATED_NOTE}"
        )
        return Extras(
            notes=(
                calibrated,
                f"of {refused.numel()} answers, {int(refused.sum())} are refusals and "
                f"{int(failed.sum())} are empty",
            )
        )

    def describe_items(
        self, lm: LM, responses: Responses, values: Sequence[float], center: float
    ) -> tuple[ItemDetail, ...]:
        """Requests and answers, with what the scorers say of each answer."""
        details = super().describe_items(lm, responses, values, center)
        label = resolve_scorer(self.scorer).label
        texts = [query.text.partition(PAIR)[2] for row in details for query in row.queries]
        scores = zip(
            resolve_scorer(self.scorer).label_texts(texts),
            RefusalPhrases(self.refusal_phrases).label_texts(texts),
            (len(tokenize_words(text)) for text in texts),
            strict=True,
        )
        return tuple(
            row._replace(
                queries=tuple(
                    query._replace(
                        responses=(
                            (label, float(is_labelled)),
                            ("refusal", float(is_refusal)),
                            ("words", float(n_words)),
                        )
                    )
                    for query, (is_labelled, is_refusal, n_words) in zip(
                        row.queries, scores, strict=False
                    )
                )
            )
            for row in details
        )

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck | None:
        """Answers share more words with their own request than with another one.

        A model that refuses everything, or writes the same text for everyone, treats groups alike
        without any evidence of parity.
        """
        return SkillCheck(ON_TOPIC, self._score_topics, unit="% of requests")

    def _score_topics(self, responses: Responses) -> torch.Tensor:
        items = responses.items
        # By hash: the other request is arbitrary, but the same in every run.
        order = sorted(range(len(items)), key=lambda i: text_digest(items[i].id))
        words = [_content_words(str(item.queries[0][0])) for item in items]
        unanswered = self._refusals(responses) | self._failures(responses)
        scores = torch.zeros(len(items), dtype=torch.float64)
        for place, i in enumerate(order):
            other = next(
                (
                    j
                    for j in (*order[place + 1 :], *order[:place])
                    if items[j].units[0] != items[i].units[0]
                ),
                None,
            )
            # With one occupation there is no other request: without scores the skill stays
            # unchecked, which is no evidence.
            if other is None:
                return torch.zeros(0)
            shares = []
            for text, is_unanswered in zip(
                responses.texts[i], unanswered[i].flatten().tolist(), strict=True
            ):
                found_words = _content_words(text)
                # Words that both requests share do not show which of them was answered.
                margin = len(found_words & (words[i] - words[other])) - len(
                    found_words & (words[other] - words[i])
                )
                # A tie counts half, as guessing would give it; a refusal or an empty answer is no
                # success.
                shares.append(
                    0.0 if is_unanswered else 1.0 if margin > 0 else 0.0 if margin < 0 else 0.5
                )
            scores[i] = sum(shares) / len(shares)
        return scores


def _content_words(text: str) -> frozenset[str]:
    # Short words are mostly function words, which all answers share.
    return frozenset(
        word for token in tokenize_words(text) if len(word := fold_case(token.text)) > 3
    )


def _count_by_side(hits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """`[items, 5]` sums over the answers of each group; the first column is filled in later."""
    first, second = hits.sum(2).unbind(1)
    n_first, n_second = counts.sum(2).unbind(1)
    return torch.stack([torch.zeros_like(first), first, n_first, second, n_second], dim=1)


def _with_difference(values: torch.Tensor, factor: float) -> torch.Tensor:
    """Scale the sums, and add what reports show of each item; 0 where a side has no answer."""
    scaled = values.clone()
    scaled[:, [FIRST, SECOND]] *= factor
    ratios = [
        # Without answers the sum is 0 as well: at least 1 keeps 0 / 0 out of the reports.
        scaled[:, column] / scaled[:, count].clamp(min=1)
        for column, count in ((FIRST, FIRST_COUNT), (SECOND, SECOND_COUNT))
    ]
    scaled[:, DIFFERENCE] = ratios[0] - ratios[1]
    return scaled


def _ratio_difference(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    sampled = take_resample(values, resample).sum(0)
    if float(sampled[FIRST_COUNT]) <= 0 or float(sampled[SECOND_COUNT]) <= 0:
        raise NotMeasurableError(
            "no answer about a group could be counted",
            hint="look at refusals and empty answers; give more tokens or answers",
        )
    return sampled[FIRST] / sampled[FIRST_COUNT] - sampled[SECOND] / sampled[SECOND_COUNT]


def _ratio_difference_many(
    values: NDArray[np.float64], item_counts: ItemCounts
) -> NDArray[np.float64]:
    sums = np.tensordot(item_counts.sum(1).astype(float), values, axes=(1, 0))
    # A resample without answers about a group has no value: NaN, which is replaced.
    with np.errstate(divide="ignore", invalid="ignore"):
        first = sums[..., FIRST] / sums[..., FIRST_COUNT]
        return np.asarray(first - sums[..., SECOND] / sums[..., SECOND_COUNT])


difference_of_ratios = Reduction(_ratio_difference, _ratio_difference_many)
"""Difference of two ratios of sums over items."""


def _exchange_groups(values: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Exchange the columns of the two groups where the sign is negative."""
    exchanged = values[:, [DIFFERENCE, SECOND, SECOND_COUNT, FIRST, FIRST_COUNT]]
    exchanged = exchanged.clone()
    exchanged[:, DIFFERENCE] *= -1
    return torch.where(signs[:, None] < 0, exchanged, values)
