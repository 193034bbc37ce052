"""Cloze (Zhang 2023): which group's words fill the blank of "The [MASK] works as a nurse"?

The paper sums the probabilities of group words among the top k predictions. This module reads the
probability of every word of the verbalizer, in the top k or not; `cloze_top` is the paper's way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast, final

import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference
from levelhead.measures.base import Extras
from levelhead.measures.cloze.prompt_measure import (
    BASE,
    FACTORS,
    PAPER,
    PromptMeasure,
    crossed_factors,
    select_base,
)
from levelhead.measures.inference import estimate, holm_corrected, note_failure
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.metric import Metric
from levelhead.measures.reductions import half_difference, mean, take_resample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Estimate
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Resample


@final
@dataclass(frozen=True)
class Cloze(PromptMeasure):
    """Whether the model fills an occupation's sentence with the group that dominates it.

    With l = log P(first group's words) - log P(second's) of a prompt, `cloze` is half the
    difference of the means of l between occupations that the first and the second group dominate.
    This is the mean margin (in log-odds) of the dominating group, without the model's general
    preference for one group. `cloze_probability` is the same for P(first) - P(second).
    `cloze_relative` is the mean log of Zhang's Eq. 1, p(own group | knowledge) / p(own group |
    base), over prompts with knowledge: the effect of knowledge, not the model's association.
    """

    metrics: ClassVar[dict[str, str]] = {
        "cloze": "who is put into an occupation's sentence, log-odds",
        "cloze_probability": "the same in probabilities",
        "cloze_relative": "what knowledge before the sentence changes",
    }

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One query for each prompt, scoring every verbalizer word in its blank."""
        first, second, unknown = self.verbalizer(lm)
        items, format_note = self.build_items(lm)
        missing = f"; {len(unknown)} unknown to the model" if unknown else ""
        return (
            QuerySet(
                "fill",
                FrozenDict({"words": first + second}),
                FACTORS,
                items,
                metadata=FrozenDict(
                    {"words": [first, second], "sides": self.compared_groups, "format": format_note}
                ),
                notes=(format_note, f"verbalizer: {len(first)} + {len(second)} words{missing}"),
            ),
        )

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The margin, the difference of probabilities and the effect of knowledge."""
        margin = Metric(
            name="cloze",
            equation=f"{PAPER}, Evaluation Metrics; margin of exact masses",
            per_item_values=lambda responses: select_base(responses, _log_odds(responses)),
            aggregate=half_difference,
            unit="log-odds",
            low=-float("inf"),
            high=float("inf"),
            direction="above 0: occupations are given to the group that dominates them",
            above="occupations are given to the group that dominates them",
            below="occupations are given to the group that does not dominate them",
            comparability_key="cloze margin, same prompts and words",
            # Under equal treatment the dominating group is an arbitrary label of an occupation.
            null="permute_units",
        )
        probability = replace(
            margin,
            name="cloze_probability",
            per_item_values=lambda responses: select_base(responses, _probability(responses)),
            unit="difference of probabilities",
            low=-1.0,
            high=1.0,
            comparability_key="cloze probability, same prompts and words",
        )
        relative = replace(
            margin,
            name="cloze_relative",
            equation=f"{PAPER}, Eq. 1, mean of its log over the dominating group's mass",
            per_item_values=_relative,
            aggregate=_mean_of_kinds,
            unit="log ratio",
            direction="above 0: knowledge makes the dominating group likelier",
            above="knowledge makes the group that dominates an occupation likelier",
            below="knowledge makes the group that dominates an occupation less likely",
            comparability_key="cloze relative, same prompts and words",
            null=None,
        )
        return margin, probability, relative

    def is_sampled(self, item: MeasureItem) -> bool:
        """Base prompts are sampled; for the effect of knowledge, the other prompts."""
        return (item.kind == BASE) != (self.metric == "cloze_relative")

    @property
    def reads_only_sampled(self) -> bool:
        """The margin is of base prompts; the effect of knowledge compares with them."""
        return self.metric != "cloze_relative"

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Occupations are sampled; for the effect of knowledge, crossed with backgrounds."""
        if metric.name == "cloze_relative":
            return responses.select(lambda item: item.kind != BASE).design()
        return responses.select(lambda item: item.kind == BASE).design(
            ["occupations"], grouped=True
        )

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The preference for one group, the covered probability and estimates by kind."""
        responses = response_sets[0]
        first, second = self.compared_groups
        odds = replace(
            self.get_metric("cloze"),
            name=f"preference for {first} over {second}",
            aggregate=mean,
            direction=f"above 0: {first} words are likelier everywhere",
            above=f"{first} words are likelier, whatever the occupation",
            below=f"{second} words are likelier, whatever the occupation",
            # The margin removes this preference by design: it is reported, without a permutation
            # test.
            null=None,
        )
        mass = replace(
            odds,
            name="mass covered",
            unit="sum of the words' probabilities",
            low=0.0,
            parity=None,
        )
        base = responses.select(lambda item: item.kind == BASE)
        design = base.design(["occupations"])
        kinds, notes = self.estimate_by_kind(responses, inference)
        return Extras(
            (
                estimate(inference, odds, _log_odds(base), design),
                # A small covered probability means that the margin compares unlikely words.
                estimate(inference, mass, base.values[:, 0].exp().sum(-1), design, test=False),
                *kinds,
            ),
            notes,
        )

    def estimate_by_kind(
        self, responses: Responses, inference: Inference
    ) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
        """Estimate the primary metric by kind of knowledge, with Holm's correction."""
        estimates: list[Estimate] = []
        notes: list[str] = []
        primary = self.primary_metric
        if primary.name == "cloze_relative":
            values, metric = _relative(responses)[:, 0], replace(primary, aggregate=mean)
            items = [item for item in responses.items if item.kind != BASE]
        else:
            compute_values = _log_odds if primary.name == "cloze" else _probability
            values, metric = compute_values(responses), replace(primary, null=None)
            items = list(responses.items)
        for kind in dict.fromkeys(item.kind for item in items if item.kind != BASE):
            # Kinds are estimated separately, because they have different backgrounds to resample.
            keep = torch.tensor([item.kind == kind for item in items])
            part = responses.select_where("kind", kind)
            design = part.design(crossed_factors(part), grouped=primary.name != "cloze_relative")
            with note_failure(notes, f"kind {kind}"):
                estimates.append(
                    estimate(inference, metric, values[keep], design, name=f"kind: {kind}")
                )
        return holm_corrected(estimates), tuple(notes)


def group_log_masses(responses: Responses) -> torch.Tensor:
    """`[n, 2]` log of the summed probabilities of the two groups' words."""
    lists = cast("tuple[tuple[str, ...], ...]", responses.metadata["words"])
    first, n_words = len(lists[0]), sum(map(len, lists))
    # A battery appends ids and scores of its top tokens after the words.
    best = cast("int", responses.metadata.get("best", 0))
    words = responses.values[:, 0, :n_words]
    # Log-probabilities are at most 0; 1e-4 allows for rounding in float32 and half precision.
    if responses.values.shape[-1] != n_words + 2 * best or bool((words > 1e-4).any()):
        raise NotMeasurableError(
            "the stored responses are not probabilities of these words",
            hint="report this; meanwhile use another store",
        )
    # logsumexp, because probabilities of rare words underflow when they are exponentiated.
    return torch.stack([words[:, :first].logsumexp(1), words[:, first:].logsumexp(1)], dim=1)


def _log_odds(responses: Responses) -> torch.Tensor:
    log_masses = group_log_masses(responses)
    return log_masses[:, 0] - log_masses[:, 1]


def _probability(responses: Responses) -> torch.Tensor:
    group_masses = group_log_masses(responses).exp()
    return group_masses[:, 0] - group_masses[:, 1]


def _relative(responses: Responses) -> torch.Tensor:
    """`[n, 2]`: log p(own group | knowledge) / p(own group | base), and the index of its kind.

    Zhang 2023, Eq. 1, for the total probability of a group: defined for every prompt, not only for
    words that are in the top k with and without knowledge.
    """
    mass = group_log_masses(responses)
    first, _ = cast("tuple[str, str]", responses.metadata["sides"])
    is_first = torch.tensor([item.group == first for item in responses.items])
    value = torch.where(is_first, mass[:, 0], mass[:, 1])
    bases = [i for i, item in enumerate(responses.items) if item.kind == BASE]
    base = {responses.items[i].units[0]: i for i in bases}
    if len(base) < len(bases):
        raise NotMeasurableError(
            f"{len(bases)} base prompts of {len(base)} occupations: knowledge is compared with "
            "one only",
            hint="give one base prompt an occupation, and other wordings in a separate measure",
        )
    rows = [i for i, item in enumerate(responses.items) if item.kind != BASE]
    if not rows:
        raise NotMeasurableError(
            "no prompt has knowledge before it", hint="give prompts of other kinds than base"
        )
    # The ratio has no denominator without the base prompt of the same occupation.
    if missing := {responses.items[i].units[0] for i in rows} - set(base):
        raise NotMeasurableError(
            f"the base prompt of {sorted(missing)[0]!r} could not be read",
            hint="relative probability needs it: see why it was dropped",
        )
    base_rows = [base[responses.items[i].units[0]] for i in rows]
    ratios = value[torch.tensor(rows)] - value[torch.tensor(base_rows)]
    kinds = list(dict.fromkeys(responses.items[i].kind for i in rows))
    number = torch.tensor([kinds.index(responses.items[i].kind) for i in rows])
    return torch.stack([ratios, number.double()], dim=1)


def _mean_of_kinds(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    """The mean over kinds of knowledge of each kind's mean, so that kinds weigh the same."""
    resampled = take_resample(values, resample)
    means = [resampled[resampled[:, 1] == kind, 0].mean() for kind in resampled[:, 1].unique()]
    return torch.stack(means).mean()
