"""Counterfactual evaluation: does a classifier's decision change with the group in a text?

Each text of the user is compared with its counterfactual, in which the words of two groups are
exchanged, and with a placebo, in which as many words are exchanged within one group. A change on
placebos is due to the change of words, not to the group.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import PValue
from levelhead.data.counterfactuals.swap import swap, swap_within_groups
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.name_lists import read_name_list
from levelhead.data.prompts.counteracts import indefinite_article
from levelhead.data.records import LabelledExample
from levelhead.data.tokenize import fold_case
from levelhead.data.user_files import read_user_texts
from levelhead.measures.base import Extras, RequiredHead, TestInputs
from levelhead.measures.classification.classes import rename_classes
from levelhead.measures.classification.group_rates import (
    PairedPredictions,
    estimate_by_class,
    paired_percent_interval,
)
from levelhead.measures.classification.name_pairs import describe_names, make_name_items
from levelhead.measures.inference import estimate
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.metric import Metric, all_or_none_interval, scale_interval
from levelhead.measures.next_sentence.distance import swap_columns
from levelhead.measures.options import forbid_unused_options, hash_texts
from levelhead.measures.reductions import (
    column_difference,
    mean,
    require_decisions,
    scale_aggregate,
)
from levelhead.measures.responses import select_common_items
from levelhead.measures.skills.checks import SkillCheck, make_label_check
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.run_context import Inference
    from levelhead.data.counterfactuals.replacement import SwapResult, WordSwap
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

BOTH = "both groups"
# Below 20 texts, one flip moves the control by more than 5 points: no basis for a parity.
MIN_PLACEBOS = 20
"""Minimum number of texts with a placebo; fewer are no control."""


@final
@dataclass(frozen=True)
class Counterfactual(LexiconMeasure):
    """How often a classifier's decision changes with the group in a text.

    The metric is the share of texts whose predicted class flips in their counterfactual. Its smooth
    surrogate `counterfactual_shift` is the change of the class probabilities (total variation, |dp|
    for two classes). Texts without a group word, and texts whose counterfactual is ambiguous, are
    dropped and counted.
    """

    texts: str | tuple[LabelledExample, ...] = ()
    """Path of a file (.csv, .tsv, .jsonl), or the texts."""
    text: str = "text"
    """Column of the file that holds the texts."""
    label: str | None = None
    """Column of the file that holds the labels, if there is one."""
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    names: str | None = None
    """Names for {name} in the texts: bloomberg-names, or a file of names and counts."""
    labels: tuple[str, ...] | None = None
    """Names of the classes in the data, in the order of the model's columns."""
    positive: str | None = None
    """Class whose rates are compared; by default each class in turn."""

    metrics: ClassVar[dict[str, str]] = {
        "counterfactual": "your classifier, your texts: decisions that flip",
        "counterfactual_shift": "by how much they move",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("classifier",)
    parity_from_control: ClassVar[bool] = True
    always_show_extras: ClassVar[bool] = True
    model_options: ClassVar[tuple[str, ...]] = ("labels", "classes")
    file_options: ClassVar[tuple[str, ...]] = ("texts", "names")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.names is not None:
            forbid_unused_options(self, ("lexicon",), "names")
            if self.groups is None:
                raise LevelheadError(
                    "names without groups", hint="give, for example, groups=black+white"
                )

    @property
    def compared_groups(self) -> tuple[str, ...]:
        """The two groups of the lexicon, or of the names."""
        if self.names is not None:
            return self.groups or ()
        return super().compared_groups

    # -- items

    @cached_property
    def items(self) -> tuple[LabelledExample, ...]:
        """The texts."""
        if isinstance(self.texts, str):
            return read_user_texts(self.texts, self.text, self.label)
        return self.texts

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the file or of the texts, and of the lexicon."""
        if self.names is not None:
            return {"names": read_name_list(self.names).sha256} | hash_texts(self.texts)
        return self.lexicon_hash | hash_texts(self.texts)

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Pairs of text and counterfactual, and pairs of text and placebo where one exists."""
        if self.names is not None and self.groups is not None:
            pairs = make_name_items(self.items, self.names, self.groups)
            return self._query_sets(lm, *pairs)
        groups = self.resolved_lexicon.resolve_group_pair(self.groups)
        real, control = [], []
        for text in self.items:
            twin = swap(text.text, self.resolved_lexicon, groups=groups)
            skip_reason = _skip_reason(text.text, twin)
            units = (_pair_hash(text.text, twin),)
            group = self._group(twin)
            queries = () if skip_reason else ((text.text,), (twin.text,))
            real.append(
                MeasureItem(text.id, queries, units, group, text.label, skip_reason=skip_reason)
            )
            placebo_twin = swap_within_groups(text.text, self.resolved_lexicon)
            # An unmatched placebo changes other words, so its flips are no baseline for this text.
            if not skip_reason and self._is_matched_placebo(twin, placebo_twin):
                pair = ((text.text,), (placebo_twin.text,))
                control.append(MeasureItem(text.id, pair, units, group, text.label))
        return self._query_sets(lm, real, control)

    def _query_sets(
        self, lm: LM, real: Sequence[MeasureItem], control: Sequence[MeasureItem]
    ) -> tuple[QuerySet, ...]:
        metadata = FrozenDict({"classes": self._classes(lm)})
        query_sets = [
            QuerySet("classify", FrozenDict({}), ("texts",), tuple(real), metadata=metadata)
        ]
        if control:
            controls = QuerySet(
                "classify", FrozenDict({}), ("texts",), tuple(control), may_be_empty=True
            )
            query_sets.append(controls._replace(metadata=metadata))
        return tuple(query_sets)

    def _classes(self, lm: LM) -> tuple[str, ...]:
        names = rename_classes(lm.labels, self.labels or None)
        for label in filter(None, (*(text.label for text in self.items), self.positive)):
            if label not in names:
                raise UnknownNameError(
                    "class of the model (labels=... names them in its order)", label, names
                )
        return names

    def _is_matched_placebo(self, twin: SwapResult, placebo_twin: SwapResult) -> bool:
        """Whether a placebo changes the same words, within the compared groups."""
        if placebo_twin.counterfactual is None or len(placebo_twin.changes) != len(twin.changes):
            return False
        return all(
            placebo_change.start == twin_change.start
            and set(self.compared_groups) & set(self.resolved_lexicon.groups_of(placebo_change.old))
            and _keeps_article(placebo_twin.original, placebo_change)
            for placebo_change, twin_change in zip(placebo_twin.changes, twin.changes, strict=True)
        )

    def _group(self, twin: SwapResult) -> str:
        # A text with words of both groups belongs to neither: it enters no rate by group.
        text_groups = {
            group
            for change in twin.changes
            for group in self.compared_groups
            if group in self.resolved_lexicon.groups_of(change.old)
        }
        return text_groups.pop() if len(text_groups) == 1 else BOTH

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Texts are sampled; duplicates, and a text with its counterfactual, are one unit."""
        return responses.design()

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck | None:
        """Check that the classifier predicts the user's labels, if there are any."""
        truth = [item.kind for item in responses.items if item.kind]
        classes = cast("tuple[str, ...]", responses.metadata["classes"])
        return make_label_check(None, lambda item: item.kind, classes, truth)

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The share of flips and the mean shift."""
        flips = Metric(
            name="counterfactual",
            equation="share of texts whose likeliest class is not that of their twin",
            per_item_values=lambda responses: _flips(_probabilities(responses)),
            aggregate=scale_aggregate(100, mean),
            unit="% of texts",
            low=0.0,
            high=100.0,
            direction="larger: more decisions change with the group",
            above="more decisions change with the group than with other words of the same group",
            below="fewer decisions change with the group than with other words of the same group",
            comparability_key="counterfactual flips",
            # Any change of words flips some decisions: only placebos give the value under parity.
            parity=None,
            smooth_surrogate="counterfactual_shift",
            closed_form_interval=_share_interval,
        )
        shift = replace(
            flips,
            name="counterfactual_shift",
            equation="mean total variation of class probabilities between texts and their twins",
            per_item_values=lambda responses: _shift(_probabilities(responses)),
            aggregate=mean,
            unit="probability",
            high=1.0,
            direction="larger: probabilities move more with the group",
            above="probabilities move more with the group than with other words of the same group",
            below="probabilities move less with the group than with other words of the same group",
            comparability_key="counterfactual shift",
            smooth_surrogate=None,
            closed_form_interval=None,
        )
        return flips, shift

    def test_inputs(self, response_sets: Sequence[Responses]) -> TestInputs:
        """The primary metric on texts less that on their placebos, paired by text."""
        return self._excess(response_sets, self.primary_metric)

    def _excess(self, response_sets: Sequence[Responses], metric: Metric) -> TestInputs:
        if len(response_sets) < 2 or len(response_sets[1]) < MIN_PLACEBOS:
            n_placebos = 0 if len(response_sets) < 2 else len(response_sets[1])
            raise NotMeasurableError(
                f"{n_placebos} texts have a placebo twin, {MIN_PLACEBOS} are needed",
                hint="give more texts, or a lexicon with placebos",
            )
        # A model may fail on one text of a pair: only texts with both values are paired.
        pair = select_common_items(response_sets)
        both = torch.stack([metric.per_item_values(responses) for responses in pair], dim=1)
        excess = replace(
            metric,
            name=f"{metric.name}, excess over placebo twins",
            aggregate=column_difference(metric.aggregate, 0, 1),
            parity=0.0,
            null="sign_flip",
            flip=swap_columns,
            low=-metric.high,
            # A few texts may change a lot and most hardly: the outermost of three methods covers.
            method="outer",
            closed_form_interval=paired_percent_interval if metric.is_step else None,
        )
        return TestInputs(excess, both, pair[1].design())

    def _compare_with_placebos(
        self, response_sets: Sequence[Responses], metric: Metric, inference: Inference
    ) -> tuple[Estimate, Estimate, Estimate]:
        """Estimates of a metric on texts with a placebo, on the placebos, and of the excess."""
        excess, both, design = self._excess(response_sets, metric)
        same = replace(metric, name=f"{metric.name}, texts with a placebo twin")
        control = replace(metric, name=f"{metric.name}, placebo twins")
        is_unchanged = bool((both[:, 0] == both[:, 1]).all())
        excess_estimate = estimate(inference, excess, both, design, test=not is_unchanged)
        # Every exchange gives the same value, the observed one included: p is exactly 1.
        if is_unchanged:
            p = PValue(value=1.0, method="sign flip", alternative=excess.alternative)
            excess_estimate = excess_estimate.model_copy(update={"p": p})
        # Reported on the same texts as the control: all texts would differ from it in more than the
        # words.
        twin_estimate = estimate(inference, same, both[:, 0], design, test=False)
        return (
            twin_estimate,
            estimate(inference, control, both[:, 1], design, test=False),
            excess_estimate,
        )

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Placebo control, signed changes by class, rates by group, and counts of dropped texts."""
        notes = _coverage(response_sets[0])
        if self.names is not None and self.groups is not None:
            notes.append(describe_names(self.names, self.groups))
        estimates: list[Estimate] = []
        parity = p = excess = None
        try:
            pairs = [
                self._compare_with_placebos(response_sets, metric, inference)
                for metric in self.ordered_metrics
            ]
            estimates += [estimate for triple in pairs for estimate in triple]
            _, placebos, excess_estimate = pairs[0]
            # The control's value is the parity of the primary metric only if both use the same
            # texts.
            if excess_estimate.n == len(response_sets[0]):
                parity, p, excess = placebos.value, excess_estimate.p, excess_estimate
            else:
                notes.append(
                    f"{excess_estimate.n} of {len(response_sets[0])} texts have a placebo twin: "
                    "they are compared with it next to the number, which has no parity of its own"
                )
        except NotMeasurableError as error:
            notes.append(f"no placebo twins to compare with: {error.problem}")
        mixed = sum(item.group == BOTH for item in response_sets[0].items)
        if mixed:
            notes.append(f"{mixed} texts speak of both groups: in no number by group")
        classes = cast("tuple[str, ...]", response_sets[0].metadata["classes"])
        for predictions in (
            self._by_group(response_sets[0]),
            *(_placebo_predictions(responses) for responses in response_sets[1:] if len(responses)),
        ):
            if len(predictions.units) < MIN_PLACEBOS:
                notes.append(
                    f"{predictions.name}: {len(predictions.units)} texts, {MIN_PLACEBOS} are needed"
                )
                continue
            class_estimates, class_notes = estimate_by_class(
                predictions, classes, self.positive, inference
            )
            estimates += class_estimates
            notes += class_notes
        return Extras(tuple(estimates), tuple(notes), parity, p, excess)

    def _by_group(self, responses: Responses) -> PairedPredictions:
        """Predictions for texts about one group, in the first group's and the second's version."""
        first, second = self.compared_groups
        is_of_one_group = torch.tensor([item.group != BOTH for item in responses.items])
        as_is = torch.tensor([item.group == first for item in responses.items])
        p = _probabilities(responses)
        # Versions change places where the text is of the second group: column 0 is always the first
        # group's.
        p = torch.where(as_is[:, None, None], p, p.flip(1))[is_of_one_group]
        items = [item for item in responses.items if item.group != BOTH]
        return _make_paired_predictions(p, items, f"{first} less {second}")


def _placebo_predictions(responses: Responses) -> PairedPredictions:
    return _make_paired_predictions(
        _probabilities(responses), responses.items, "text less placebo twin"
    )


def _make_paired_predictions(
    p: torch.Tensor, items: Sequence[MeasureItem], name: str
) -> PairedPredictions:
    labels = tuple(item.kind for item in items)
    return PairedPredictions(p, labels, tuple(item.units[0] for item in items), name)


def _probabilities(responses: Responses) -> torch.Tensor:
    p = responses.values.exp()
    require_decisions(p)
    return p


def _flips(p: torch.Tensor) -> torch.Tensor:
    # A step function: its gradient is zero, so edits are fitted to the shift instead.
    predicted = p.argmax(2)
    return (predicted[:, 0] != predicted[:, 1]).double()


def _shift(p: torch.Tensor) -> torch.Tensor:
    return (p[:, 0] - p[:, 1]).abs().sum(1) / 2


def _pair_hash(text: str, twin: SwapResult) -> str:
    """Hash of a text and its counterfactual, which are one observation in either order."""
    both = sorted({fold_case(text), fold_case(twin.counterfactual or text)})
    return hashlib.sha256("\n".join(both).encode()).hexdigest()[:16]


def _keeps_article(text: str, change: WordSwap) -> bool:
    """Whether an article "a" or "an" before a word still fits the replacement."""
    end = change.start
    while end and text[end - 1].isspace():
        end -= 1
    # Three characters show whether the word before is an article; splitting all of the text before
    # each change would cost the square of its length.
    before = text[max(0, end - 3) : end].split()[-1:]
    return before not in (["a"], ["an"], ["A"], ["An"]) or indefinite_article(
        change.old
    ) == indefinite_article(change.new)


def _skip_reason(text: str, twin: SwapResult) -> str:
    if twin.refusals:
        return f"undecidable: {twin.refusals[0].reason}"
    if not twin.changes:
        return "no word of either group"
    fits = all(_keeps_article(text, change) for change in twin.changes)
    return "" if fits else "a or an before the word would no longer fit"


def _coverage(responses: Responses) -> list[str]:
    reasons = Counter(reason for _, reason in responses.dropped)
    return [f"dropped: {count} x {reason}" for reason, count in reasons.most_common(3)]


def _share_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval if every text is its own unit, or if all values are equal."""
    # Wilson assumes independent trials; with duplicates the clustered bootstrap is used instead.
    if design.limiting_factor.n_units == len(values):
        return scale_interval(
            proportion_interval(round(float(values.sum())), len(values), level=level), 100
        )
    same = float(values.min()) == float(values.max())
    return all_or_none_interval(values, design, level) if same else None
