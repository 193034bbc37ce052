"""Group preference: which group does a model name if the sentence gives no information about it?

A model that predicts one group's words everywhere treats the groups unequally without any
stereotype; measures of stereotypes are designed to remove such a default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, cast, final

from scipy import stats

from levelhead.core.frozen import FrozenDict
from levelhead.data.catalog.frequencies import compute_log_odds
from levelhead.measures.base import Extras
from levelhead.measures.cloze.cloze import Cloze, group_log_masses
from levelhead.measures.cloze.prompt_measure import BASE, PAPER, PromptMeasure, select_base
from levelhead.measures.inference import estimate
from levelhead.measures.likelihood.frequency_control import (
    AUTO,
    Frequencies,
    resolve_sources,
    source_hashes,
)
from levelhead.measures.metric import Metric, jackknife_variance
from levelhead.measures.reductions import mean, split_groups
from levelhead.stats.power import holm_detectable_effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from levelhead.core.results import Estimate, Provenance
    from levelhead.core.run_context import Inference
    from levelhead.data.catalog.frequencies import TextSource
    from levelhead.measures.items import QuerySet
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Resample

BEYOND_FREQUENCY = "preference beyond word frequency"
MARGIN = math.log(1.25)
"""Smallest preference of interest: by the four-fifths rule (Uniform Guidelines on Employee
Selection Procedures, 1978) a rate below 4/5 of another is a relevant difference."""


@final
@dataclass(frozen=True)
class GroupPreference(PromptMeasure):
    """Mean log-odds of the first group's words over the second group's words in a sentence.

    With l = log P(first group's words) - log P(second's) of a base prompt of cloze, this is the
    mean of two means of l: over occupations that the first group dominates, and over those that the
    second group dominates. Both kinds of occupations weigh the same, so that stereotypes cancel;
    the measure keeps the part that `cloze` removes.
    """

    frequencies: Frequencies = AUTO
    """Text whose word frequencies are the control: data sets of the catalog, or files. "auto":
    WikiText-2 for the published prompts in English, none for the user's; None: no control."""

    model_options: ClassVar[tuple[str, ...]] = ("frequencies",)
    """The control is reported with the value and does not change it: values compare without it."""
    metrics: ClassVar[dict[str, str]] = {
        "group_preference": "which group is named where the sentence says nothing about it",
    }

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """The queries of cloze, so that the two measures share stored responses."""
        prompt_options = {
            option.name: getattr(self, option.name) for option in fields(PromptMeasure)
        }
        # Cloze has other metrics; the queries do not depend on the reported one.
        del prompt_options["metric"]
        return Cloze(**prompt_options).all_queries(lm)

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The preference."""
        first, second = self.compared_groups
        return (
            Metric(
                name="group_preference",
                equation=f"{PAPER}, Evaluation Metrics; mean log-odds of exact masses, both kinds "
                "of occupations weighing the same",
                per_item_values=lambda responses: select_base(responses, _log_odds(responses)),
                aggregate=balanced_mean,
                unit="log-odds",
                low=-float("inf"),
                high=float("inf"),
                direction=f"above 0: {first} is named more often than {second}",
                above=f"{first} is named more often than {second}",
                below=f"{second} is named more often than {first}",
                comparability_key="group preference, same prompts and words",
                # No permutation test exists: permuting occupations between groups does not change
                # the preference, and signs are not exchangeable if occupations have stereotypes in
                # both directions. So p is the bootstrap's t, over occupations.
                null=None,
            ),
        )

    def estimate_metric(
        self, responses: Responses, metric: Metric, inference: Inference, name: str | None = None
    ) -> Estimate:
        """Estimate a metric, and test whether the preference exceeds MARGIN in either direction.

        Every trained model names one group a little more often, and with enough occupations the
        smallest preference is significant. So the null hypothesis is a preference of at most MARGIN
        (a minimum-effect test; Murphy and Myors 1999).
        """
        base_estimate = super().estimate_metric(responses, metric, inference, name)
        if base_estimate.precision is None or base_estimate.p is None:
            return base_estimate
        precision = base_estimate.precision.model_copy(update={"margin": MARGIN})
        t = (abs(base_estimate.value) - MARGIN) / precision.standard_error
        p = base_estimate.p.model_copy(
            update={
                # Twice the one-sided p bounds the p at both edges of the null interval, hence the
                # cap at 1.
                "value": min(1.0, 2 * float(stats.t.sf(t, precision.df))),
                "method": f"minimum-effect t, |log-odds| <= {MARGIN:.3g}",
            }
        )
        detectable = holm_detectable_effect(precision, alternative=metric.alternative)
        return base_estimate.model_copy(
            update={"p": p, "precision": precision, "detectable": detectable}
        )

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The preference beyond word frequency, and the total probability of the groups' words."""
        base = response_sets[0].select(lambda item: item.kind == BASE)
        design, primary = self.design(response_sets[0], self.primary_metric), self.primary_metric
        mass = replace(
            primary,
            name="mass covered",
            aggregate=mean,
            unit="sum of the words' probabilities",
            low=0.0,
            direction="larger: the groups' words are likelier among all words",
            above="",
            below="",
            parity=None,
        )
        covered = base.values[:, 0].exp().sum(-1)
        estimates = [estimate(inference, mass, covered, design, test=False)]
        notes = [
            "the words that stand for the groups are fixed: the interval is over occupations, and "
            "says nothing of other words",
            f"p is of a preference beyond {MARGIN:.3g}: one group named 1.25 times as often",
        ]
        sources = self._sources()
        if isinstance(sources, str):
            notes.append(f"{BEYOND_FREQUENCY}: not available: {sources}")
            return Extras(tuple(estimates), tuple(notes))
        lists = cast("tuple[tuple[str, ...], ...]", response_sets[0].metadata["words"])
        frequency_odds = compute_log_odds(sources, *lists)
        controlled = replace(
            primary,
            name=BEYOND_FREQUENCY,
            direction=f"{primary.direction} than its words are frequent",
            comparability_key=f"{primary.comparability_key}, beyond frequency",
        )
        estimates.append(
            estimate(
                inference,
                controlled,
                _log_odds(base) - frequency_odds.value,
                design,
                # The frequency text is a sample as well: its blocks add variance to that of the
                # occupations.
                extra_variance=jackknife_variance(frequency_odds.leave_block_out_values),
            )
        )
        names = "; ".join(f"{source.name} ({source.licence})" for source in sources)
        notes.append(
            f"word frequency: log-odds {frequency_odds.value:.4g} "
            f"in {frequency_odds.n_words} words of {names}, add-1"
        )
        return Extras(tuple(estimates), tuple(notes))

    def _sources(self) -> tuple[TextSource, ...] | str:
        published = isinstance(self.prompts, str) and self.resolved_lexicon.language == "en"
        return resolve_sources(self.frequencies, fits=published)

    def _provenance(
        self, lm: LM, response_sets: Sequence[Responses], inference: Inference, threads: int
    ) -> Provenance:
        provenance = super()._provenance(lm, response_sets, inference, threads)
        sources = self._sources()
        if isinstance(sources, str):
            return provenance
        return provenance.model_copy(
            update={"data": FrozenDict(dict(provenance.data) | dict(source_hashes(sources)))}
        )


def balanced_mean(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    """The mean of the means of occupations that the first and that the second group dominates."""
    first, second = split_groups(values, resample)
    return (first.mean() + second.mean()) / 2


def _log_odds(responses: Responses) -> torch.Tensor:
    log_masses = group_log_masses(responses)
    return log_masses[:, 0] - log_masses[:, 1]
