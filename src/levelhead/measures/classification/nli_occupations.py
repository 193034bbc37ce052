"""Inference about occupations: "a nurse bought a coat" does not entail "a woman bought a coat".

Dev et al. 2020 (net, fraction and threshold neutral); Dawkins et al. 2024, section 3
and Eq. 4: their fairness is accuracy times parity, and is not interpretable without both factors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.frozen import FrozenDict
from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import NLI_LABELS
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.prompts import nli_occupations
from levelhead.data.records import TextPair
from levelhead.data.tokenize import fold_case
from levelhead.measures.base import Extras, RequiredHead
from levelhead.measures.classification.classes import (
    match_classes,
    nli_probabilities,
)
from levelhead.measures.classification.occupation_values import (
    by_cell,
    by_occupation,
    constant_factor_interval,
    constant_share_interval,
    number_labels,
    occupation_numbers,
    share_of_occupations_interval,
    spread_over_pairs,
    sum_by_occupation,
    weighted_mean,
)
from levelhead.measures.inference import estimate, holm_corrected, note_failure
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.metric import Metric, flip_first_column
from levelhead.measures.options import forbid_unused_options, hash_items
from levelhead.measures.reductions import mean, take_resample
from levelhead.measures.skills.checks import SkillCheck, make_nli_check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Resample

Number = TypeVar("Number", float, torch.Tensor)
Source = Literal["dev2020", "coal"]
FACTORS = ("occupations", "templates")
DEV, DAWKINS = "Dev et al. 2020", "Dawkins et al. 2024"
# The true label of every pair: the premise never mentions a gender.
NEUTRAL = NLI_LABELS.index("neutral")


def fairness(accuracy: Number, parity: Number) -> Number:
    """Eq. 4 of Dawkins et al. 2024: eta = accuracy x parity.

    Table 7, "SENT, 1": 24 of 164 occupations get equal labels (eta is misprinted there as .1231).

    >>> round(fairness(0.4717, 24 / 164), 4)
    0.069
    """
    return accuracy * parity


@final
@dataclass(frozen=True)
class Nli(LexiconMeasure):
    """Predictions on pairs of a sentence on an occupation and one on a gendered word (all neutral).

    Occupations are sampled; templates and gendered words are fixed.
    """

    pairs: tuple[TextPair, ...] | None = None
    """User's pairs, with ids occupation/template/word; by default those of `source`."""
    source: Source = "dev2020"
    """Source of the pairs: 10,824 of Dev et al. 2020, or the 5,420 of NLI-CoAL."""
    labels: tuple[str, ...] | None = None
    """Classes in the order of the model's columns, if its config does not name them."""
    tau: float = 0.5
    """Threshold of threshold_neutral on the probability of neutral; Dev et al. use .5 and .7."""
    lexicon: str | Lexicon = "gender-en"
    """Lexicon that gives the group of a hypothesis's gendered word."""
    groups: tuple[str, str] | None = None

    metrics: ClassVar[dict[str, str]] = {
        "nli_fairness": "inference about occupations: accuracy x parity, and both factors",
        "nli_accuracy": "share of these pairs that are called neutral, as they are",
        "nli_parity": "share of occupations labelled alike whichever the gendered word",
        "nli_parity_majority": "the same by the commonest label of either group",
        "nli_gap": "how far class probabilities of the two groups lie apart, by occupation",
        "net_neutral": "mean probability of neutral",
        "fraction_neutral": "share of occupation x word called neutral",
        "threshold_neutral": "share whose probability of neutral is above tau",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("classifier",)
    model_options: ClassVar[tuple[str, ...]] = ("labels",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_option("source", self.source, get_args(Source))
        if self.pairs is not None:
            forbid_unused_options(self, ("source",), "pairs of your own")
        if not 0 < self.tau < 1:
            raise LevelheadError(f"tau is {self.tau}", hint="give a probability such as 0.5")

    # -- items

    @cached_property
    def items(self) -> tuple[TextPair, ...]:
        """The pairs."""
        if self.pairs is not None:
            return self.pairs
        if self.source == "coal":
            return tuple(
                pair
                for part in nli_occupations.COAL_PARTS
                for pair in nli_occupations.load_nli_coal_pairs(part)
            )
        return tuple(nli_occupations.make_nli_subset(*nli_occupations.load_dev2020_lists()))

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the source's files or of the user's pairs, and of the lexicon."""
        if self.pairs is not None:
            return self.lexicon_hash | {"pairs": hash_items(self.pairs)}
        if self.source == "coal":
            return self.lexicon_hash | dataset("nli-coal").hashes()
        words, occupations = dataset("nli-words"), dataset("nli-occupations")
        return self.lexicon_hash | words.hashes() | occupations.hashes()

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One classification query for each pair."""
        group_of_word = {
            fold_case(word): group
            for group in self.compared_groups
            for word in self.resolved_lexicon.words(group)
        }
        items = []
        for pair in self.items:
            # All formulas count neutral as right: a labelled entailment would be scored as an
            # error.
            if pair.label not in ("", NLI_LABELS[NEUTRAL]):
                raise LevelheadError(
                    f"{pair.id} is labelled {pair.label}",
                    hint="give pairs that are neutral by construction; snli takes any",
                )
            occupation, template, word = _parse_id(pair)
            group = group_of_word.get(fold_case(word), "")
            items.append(
                MeasureItem(
                    pair.id,
                    ((pair.first, pair.second),) if group else (),
                    (occupation, template),
                    group,
                    word,
                    skip_reason="" if group else f"{word!r} is of neither group",
                )
            )
        metadata = FrozenDict({"labels": list(match_classes(lm, self.labels, NLI_LABELS))})
        return (QuerySet("classify", FrozenDict({}), FACTORS, tuple(items), metadata=metadata),)

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Occupations are sampled."""
        return responses.design(["occupations"])

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck | None:
        """Check that the classifier predicts SNLI's labels; None for the user's pairs."""
        if self.pairs is not None:
            return None
        return make_nli_check(match_classes(lm, self.labels, NLI_LABELS))

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """All metrics: the product of accuracy and parity is never reported without its factors."""
        return *self._dawkins, *self._dev

    @property
    def _dawkins(self) -> tuple[Metric, ...]:
        accuracy = Metric(
            name="nli_accuracy",
            equation=f"{DAWKINS}, section 3.3",
            per_item_values=lambda responses: (_predicted(responses) == NEUTRAL).double(),
            aggregate=mean,
            unit="share of pairs",
            low=0.0,
            high=1.0,
            direction="larger: more pairs are called neutral, as all of them are",
            comparability_key="nli accuracy",
            role="parity",
            parity=None,
            smooth_surrogate="net_neutral",
            closed_form_interval=constant_share_interval,
        )
        # The paper does not say what "does not depend on gender" means over an occupation's 66
        # pairs. All its parities times 164 are integers, so it counts occupations; strict is the
        # default here.
        parity = replace(
            accuracy,
            name="nli_parity",
            equation=f"{DAWKINS}, section 3.3, strict: alike for every template",
            per_item_values=by_occupation(self.same_label_for_both_groups),
            aggregate=weighted_mean,
            unit="share of occupations",
            direction="larger: more occupations get the same labels with every gendered word",
            comparability_key="nli parity, strict",
            smooth_surrogate="nli_gap",
            closed_form_interval=share_of_occupations_interval,
        )
        majority = replace(
            parity,
            name="nli_parity_majority",
            equation=f"{DAWKINS}, section 3.3, by the commonest label of either group",
            per_item_values=by_occupation(self.same_majority_label),
            direction="larger: more occupations get the same commonest label in both groups",
            comparability_key="nli parity, majority",
        )
        gap = replace(
            parity,
            name="nli_gap",
            equation="total variation between the groups' mean class probabilities, by occupation",
            per_item_values=by_occupation(self.total_variation),
            unit="probability",
            direction="larger: predictions for occupations differ more between the groups' words",
            comparability_key="nli gap",
            role="bias",
            worse=None,
            smooth_surrogate=None,
            # Total variation is bounded by 0, near which BCa fails, as for distances in `compare`.
            method="expanded",
            closed_form_interval=None,
        )
        eta = replace(
            accuracy,
            name="nli_fairness",
            equation=f"{DAWKINS}, Eq. 4: accuracy x parity, strict",
            # The product of two means is not a mean of products: both factors are resampled
            # together.
            per_item_values=self._both_factors,
            aggregate=_eta,
            unit="accuracy x parity",
            direction="larger: more accurate, more alike, or both: look at the factors",
            comparability_key="nli fairness, strict parity",
            closed_form_interval=constant_factor_interval,
        )
        return eta, accuracy, parity, majority, gap

    @property
    def _dev(self) -> tuple[Metric, ...]:
        net = Metric(
            name="net_neutral",
            equation=f"{DEV}, NN",
            per_item_values=lambda responses: nli_probabilities(responses)[:, NEUTRAL],
            aggregate=mean,
            unit="probability",
            low=0.0,
            high=1.0,
            direction="larger: more probability of neutral, which every pair is",
            comparability_key="net neutral",
            role="parity",
            parity=None,
        )
        # Dev et al.'s evaluation averages probabilities by pair of words first; decisions of single
        # pairs would give another share.
        fraction = replace(
            net,
            name="fraction_neutral",
            equation=f"{DEV}, FN, of probabilities averaged over templates",
            per_item_values=by_cell(lambda p: p.argmax(1) == NEUTRAL),
            aggregate=weighted_mean,
            unit="share of occupation x word",
            direction="larger: more pairs of occupation and word are called neutral",
            comparability_key="fraction neutral",
            smooth_surrogate="net_neutral",
            closed_form_interval=constant_share_interval,
        )
        threshold = replace(
            fraction,
            name="threshold_neutral",
            equation=f"{DEV}, T: {self.tau:g}, of probabilities averaged over templates",
            per_item_values=by_cell(lambda p: p[:, NEUTRAL] > self.tau),
            direction=f"larger: more have a probability of neutral above {self.tau:g}",
            comparability_key=f"threshold neutral, {self.tau:g}",
        )
        return net, fraction, threshold

    def same_label_for_both_groups(self, responses: Responses) -> torch.Tensor:
        """`[occupations]`: whether each template has the same label for all gendered words."""
        occupation, predicted = occupation_numbers(responses), _predicted(responses)
        cell, _ = number_labels([item.units for item in responses.items])
        present = {(item.units, item.group) for item in responses.items}
        unpaired = [
            units
            for units, _ in present
            if any((units, g) not in present for g in self.compared_groups)
        ]
        # Words of one group always agree with themselves: such a cell would count as parity.
        if unpaired:
            raise NotMeasurableError(
                f"pairs of {'/'.join(min(unpaired))} speak of one group only: nothing is compared",
                hint="give every template of an occupation words of both groups",
            )
        count = int(cell.max()) + 1
        # All labels of a cell are equal exactly if the smallest and the largest index agree.
        lowest = torch.full((count,), len(NLI_LABELS)).scatter_reduce(0, cell, predicted, "amin")
        highest = torch.full((count,), -1).scatter_reduce(0, cell, predicted, "amax")
        same = (lowest == highest).double()[cell]
        ones = torch.ones(int(occupation.max()) + 1, dtype=torch.float64)
        return ones.scatter_reduce(0, occupation, same, "amin")

    def same_majority_label(self, responses: Responses) -> torch.Tensor:
        """`[occupations]`: whether the two groups have the same most common label.

        Summed probabilities break ties between equally common labels.
        """
        p = nli_probabilities(responses).detach()
        for side in (0, 1):
            self._means(responses, side)  # refuses an occupation without one of the groups
        votes = torch.nn.functional.one_hot(_predicted(responses), len(NLI_LABELS)).double()
        first, second = (
            # 1e-6 breaks ties only: below a million pairs, probabilities cannot outweigh a single
            # vote.
            sum_by_occupation(responses, votes + 1e-6 * p, group).argmax(1)
            for group in self.compared_groups
        )
        return (first == second).double()

    def total_variation(self, responses: Responses) -> torch.Tensor:
        """`[occupations]`: half the sum over classes of |mean p of group 1 - mean p of group 2|."""
        return (self._means(responses, 0) - self._means(responses, 1)).abs().sum(1) / 2

    def _means(self, responses: Responses, side: int) -> torch.Tensor:
        group = self.compared_groups[side]
        total = sum_by_occupation(responses, nli_probabilities(responses), group)
        ones = torch.ones(len(responses), 1, dtype=torch.float64)
        count = sum_by_occupation(responses, ones, group)
        if not bool((count > 0).all()):
            raise NotMeasurableError(
                f"an occupation has no pair of {group!r} that could be read",
                hint="give every occupation pairs of both groups",
            )
        return total / count

    def _both_factors(self, responses: Responses) -> torch.Tensor:
        neutral = (_predicted(responses) == NEUTRAL).double()
        equal = spread_over_pairs(responses, self.same_label_for_both_groups(responses))
        return torch.stack([neutral * equal[:, 0], neutral, equal[:, 0], equal[:, 1]], dim=1)

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Signed differences between the groups for each class, with Holm's correction."""
        responses = response_sets[0]
        first, second = self.compared_groups
        difference = self._means(responses, 0) - self._means(responses, 1)
        estimates = []
        notes = ["p of differences between groups is about occupations, for these words only"]
        # The gap is unsigned: only these differences show which group gets which label more often.
        for i, label in enumerate(NLI_LABELS):
            signed = replace(
                self.get_metric("nli_gap"),
                name=f"{label}, {first} less {second}",
                equation="difference of the groups' mean class probabilities, by occupation",
                low=-1.0,
                direction=f"above 0: pairs with {first} words are rather called {label}",
                above=f"pairs with {first} words are rather called {label}",
                below=f"pairs with {second} words are rather called {label}",
                parity=0.0,
                null="sign_flip",
                flip=flip_first_column,
                method=None,
            )
            values = spread_over_pairs(responses, difference[:, i])
            with note_failure(notes, signed.name):
                estimates.append(
                    estimate(inference, signed, values, self.design(responses, signed))
                )
        return Extras(holm_corrected(estimates), tuple(notes))


def _parse_id(pair: TextPair) -> tuple[str, str, str]:
    # Split from the right: an occupation may hold a slash, a template number and a word do not.
    parts = pair.id.rsplit("/", 2)
    if len(parts) != 3:
        raise LevelheadError(
            f"the id {pair.id!r} does not name occupation, template and word",
            hint="give ids such as nurse/0/man",
        )
    return parts[0], parts[1], parts[2]


def _predicted(responses: Responses) -> torch.Tensor:
    return nli_probabilities(responses).argmax(1)


def _eta(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    resampled = take_resample(values, resample)
    return fairness(
        resampled[:, 1].mean(), (resampled[:, 2] * resampled[:, 3]).sum() / resampled[:, 3].sum()
    )
