"""Strength and likelihood contrast: preference for stereotypes, relative to counterfactuals.

Dawkins et al. 2024, Eq. 2, on twin triples.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

from levelhead.core.errors import require_option
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference
from levelhead.data.records import TwinTriple
from levelhead.measures.base import Extras, RequiredHead
from levelhead.measures.items import QuerySet
from levelhead.measures.metric import Metric
from levelhead.measures.next_sentence.twin_triples import FACTORS, PAPER, SWAPPED, TwinTripleMeasure
from levelhead.measures.reductions import Reduction, make_signed_part, mean
from levelhead.measures.skills.checks import SkillCheck, make_next_sentence_check

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

Scale = Literal["probability", "logit"]


def strength_scores(p: torch.Tensor) -> torch.Tensor:
    """The score s of every triple pair, Eq. 2: p(S) - p(A) - [p(swap of S) - p(swap of A)].

    `p` is `[n, 4]`: stereotype, anti-stereotype, and the twins of both, whose labels flip.
    Dawkins et al. 2024, Table 3:

    >>> import torch
    >>> a, b = [0.9994, 0.9836, 0.9997, 0.9894], [0.9986, 0.0253, 0.9930, 0.9888]
    >>> [round(float(s), 4) for s in strength_scores(torch.tensor([a, b], dtype=torch.float64))]
    [0.0055, 0.9691]
    """
    # The label is of the original; the twin of the stereotype is an anti-stereotype, hence the
    # signs.
    return p[:, 0] - p[:, 1] - p[:, 2] + p[:, 3]


@dataclass(frozen=True)
class PreferenceMeasure(TwinTripleMeasure):
    """Abstract base class of Strength and of its substitute without a next-sentence head."""

    # A flagged twin is no exact exchange of genders, so its sign is not exchangeable.
    test_on_unflagged_only: ClassVar[bool] = True
    metric_name: ClassVar[str]

    @property
    @abstractmethod
    def unit(self) -> str:
        """Unit of s."""

    @property
    @abstractmethod
    def max_abs_value(self) -> float:
        """Largest possible |s|."""

    @property
    @abstractmethod
    def comparability_key(self) -> str:
        """Part of the comparability key that identifies s."""

    @abstractmethod
    def per_item_strength(self, responses: Responses) -> torch.Tensor:
        """Compute s for every item."""

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The mean of the top share, its signed part, and the signed mean of all items."""
        top = Metric(
            name=self.metric_name,
            equation=f"{PAPER}, Eq. 2" + ("" if self.metric_name == "strength" else ", after it"),
            per_item_values=self.per_item_strength,
            aggregate=self.top_mean,
            unit=self.unit,
            low=-self.max_abs_value,
            high=self.max_abs_value,
            direction="larger: the stereotype is preferred more, on the most biased items",
            above="the stereotype is preferred to the anti-stereotype",
            below="the anti-stereotype is preferred to the stereotype",
            comparability_key=f"{self.comparability_key}, top {self.top:g}",
            # A mean of the largest values is positive under equal treatment, too: parity is
            # estimated.
            parity=None,
            null="sign_flip",
            signed_part=self.signed_part,
            method="expanded",
        )
        signed = replace(
            top,
            name="signed mean",
            aggregate=mean,
            signed_part=None,
            direction="above 0: the stereotype is preferred; below 0: the anti-stereotype",
            comparability_key=f"{self.comparability_key}, signed mean",
            parity=0.0,
            method=None,
        )
        signed_part = replace(
            top,
            name="lean",
            # Reported on its own, because this part is tested, not the mean of the top share.
            aggregate=self.signed_part,
            signed_part=None,
            direction="above 0: more of the top share prefers the stereotype than its twin does",
            comparability_key=f"{self.comparability_key}, lean of the top {self.top:g}",
            parity=0.0,
        )
        return top, signed_part, signed

    @property
    def signed_part(self) -> Reduction:
        """Half the difference between the top mean and the top mean with all twins exchanged."""
        return make_signed_part(self.top_mean)

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Estimates by origin: the gender of the original text."""
        origins, conclusion = self.estimate_by_origin(
            response_sets[0], self.get_metric("signed mean"), inference
        )
        return Extras(origins, (conclusion,))


@final
@dataclass(frozen=True)
class Strength(PreferenceMeasure):
    """Strength S of a model with a next-sentence head (Dawkins et al. 2024, Eq. 2).

    The mean of s over the top tenth of triple pairs. It is positive even without bias: its parity
    is the mean of its values before and after an exchange of all twins, and the test is of their
    difference.
    """

    scale: Scale = "probability"
    """Scale of s. "logit": log-odds, which do not saturate; not comparable with probabilities."""

    metrics: ClassVar[dict[str, str]] = {
        "strength": "stereotypes in next-sentence judgements, top tenth",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("next_sentence",)
    metric_name: ClassVar[str] = "strength"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_option("scale", self.scale, get_args(Scale))

    @property
    def unit(self) -> str:
        """Unit of s."""
        return "difference of probabilities" if self.scale == "probability" else "log-odds"

    @property
    def max_abs_value(self) -> float:
        """Largest possible |s|."""
        return 2.0 if self.scale == "probability" else float("inf")

    @property
    def comparability_key(self) -> str:
        """Part of the comparability key that identifies s: scale and data."""
        return f"strength, {self.scale}, {SWAPPED if self.triples is None else 'own triples'}"

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Queries whether each of four sentences follows its context."""
        items = tuple(self.build_item(triple, *_four_texts(triple)) for triple in self.items)
        return (QuerySet("follows", FrozenDict({}), FACTORS, items),)

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck:
        """Check that the model prefers related to unrelated sentences."""
        return make_next_sentence_check(self.items, responses)

    def per_item_strength(self, responses: Responses) -> torch.Tensor:
        """Compute s from probabilities or from log-odds."""
        next_log_prob, not_next_log_prob = responses.values[..., 0], responses.values[..., 1]
        # Column 0 is log p(next), column 1 is log p(not next): their difference is the logit.
        return strength_scores(
            next_log_prob.exp()
            if self.scale == "probability"
            else next_log_prob - not_next_log_prob
        )


@final
@dataclass(frozen=True)
class Contrast(PreferenceMeasure):
    """Strength computed from likelihoods, for models without a next-sentence head.

    s = log p(S|c) - log p(A|c) - [log p(swap of S|twin) - log p(swap of A|twin)], in nats: of the
    second sentence's tokens given the first (causal models), or its pseudo log-likelihood (masked
    models). It replaces Strength (Dawkins et al. 2024, Eq. 2), but it is another measure: a
    likelihood is not a prediction that a sentence follows.
    """

    metrics: ClassVar[dict[str, str]] = {
        "contrast": "Strength computed from likelihoods; not comparable with it",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("causal", "masked")
    metric_name: ClassVar[str] = "contrast"
    unit = "nats"
    max_abs_value = float("inf")
    comparability_key = "contrast, one vocabulary"

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Queries of the likelihood of each of four sentences after its context."""
        items = tuple(
            self.build_item(triple)._replace(
                queries=tuple(
                    # Only the second sentence is scored: the context differs between twins.
                    (f"{first} {second}", ((len(first) + 1, len(first) + 1 + len(second)),))
                    for first, second in _four_texts(triple)
                )
            )
            for triple in self.items
        )
        return (QuerySet("score", FrozenDict({}), FACTORS, items),)

    def per_item_strength(self, responses: Responses) -> torch.Tensor:
        """Compute s from log-likelihoods."""
        return strength_scores(responses.values[..., 0])


def _four_texts(triple: TwinTriple) -> tuple[tuple[str, str], ...]:
    """Contexts with stereotype and anti-stereotype, and the twins of both."""
    return (
        (triple.context, triple.stereotype),
        (triple.context, triple.anti_stereotype),
        (triple.twin_context, triple.twin_stereotype),
        (triple.twin_context, triple.twin_anti_stereotype),
    )
