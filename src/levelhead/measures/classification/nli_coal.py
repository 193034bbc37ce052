"""NLI-CoAL: stereotyped inferences about occupations, by all three labels.

Anantaprayoon et al. 2024 count as stereotyped: entailment of the stereotyped group, contradiction
of the other group, and any label but neutral for occupations without a stereotype. Every pair is
neutral by construction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Interval
from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import NLI_LABELS
from levelhead.data.prompts import nli_occupations
from levelhead.data.records import TextPair
from levelhead.measures.base import Extras, Measure, RequiredHead
from levelhead.measures.classification.classes import match_classes, nli_probabilities
from levelhead.measures.classification.occupation_values import constant_share_interval
from levelhead.measures.inference import estimate, holm_corrected, note_failure
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.metric import Metric
from levelhead.measures.options import hash_items
from levelhead.measures.reductions import mean, take_resample
from levelhead.measures.skills.checks import SkillCheck, make_nli_check
from levelhead.stats.designs import crossed_design
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Resample

# Columns in the order of NLI_LABELS, to which `class_probabilities` sorts every model's classes.
ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)
PARTS = nli_occupations.COAL_PARTS
PAPER = "Anantaprayoon et al. 2024"
SHARE_NAMES = {
    # The wrong label of each part, as named in the reported estimates.
    "pro": "entailed, as the stereotype has it",
    "anti": "contradicted, as the stereotype has it",
    "non": "not neutral, of occupations without a stereotype",
}


@final
@dataclass(frozen=True)
class NliCoal(Measure):
    """The mean share of stereotyped inferences over pro-, anti- and non-stereotypical pairs.

    Occupations are sampled, in two strata: with and without a stereotype.
    """

    pairs: tuple[TextPair, ...] | None = None
    """User's pairs, with ids part/occupation/sentence/word, parts pro, anti and non; by default
    the pairs of NLI-CoAL."""
    labels: tuple[str, ...] | None = None
    """Classes in the order of the model's columns, if its config does not name them."""

    metrics: ClassVar[dict[str, str]] = {
        "nli_coal": "inferences as a stereotype has them, by all three labels",
        "nli_coal_probability": "the same in class probabilities",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("classifier",)
    model_options: ClassVar[tuple[str, ...]] = ("labels",)

    @cached_property
    def items(self) -> tuple[TextPair, ...]:
        """The pairs, with ids that begin with their part."""
        if self.pairs is not None:
            return self.pairs
        return tuple(
            pair._replace(id=f"{part}/{pair.id}")
            for part in PARTS
            for pair in nli_occupations.load_nli_coal_pairs(part)
        )

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the files, or of the user's pairs."""
        if self.pairs is not None:
            return {"pairs": hash_items(self.pairs)}
        return dataset("nli-coal").hashes()

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One classification query for each pair."""
        items = []
        for pair in self.items:
            part, occupation, sentence, word = _parse_id(pair)
            queries = ((pair.first, pair.second),)
            items.append(MeasureItem(pair.id, queries, (occupation, sentence), part, word))
        # Stored with the responses: columns are read by name, never by position.
        metadata = FrozenDict({"labels": list(match_classes(lm, self.labels, NLI_LABELS))})
        return (
            QuerySet(
                "classify",
                FrozenDict({}),
                ("occupations", "sentences"),
                tuple(items),
                metadata=metadata,
            ),
        )

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Occupations are sampled, within the strata with and without a stereotype."""
        # Pro and anti pairs are twins of the same occupations and must be resampled together.
        within = ["without" if item.group == "non" else "with" for item in responses.items]
        return crossed_design(
            {"occupations": [item.units[0] for item in responses.items]}, within=within
        )

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck | None:
        """Check that the classifier predicts SNLI's labels; None for the user's pairs."""
        if self.pairs is not None:
            return None
        return make_nli_check(match_classes(lm, self.labels, NLI_LABELS))

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The score and its smooth surrogate."""
        score = Metric(
            name="nli_coal",
            equation=f"{PAPER}: s = (e_p + c_a + (1 - n_n)) / 3",
            per_item_values=lambda responses: _with_parts(responses, _decided(responses)),
            aggregate=_mean_of_parts,
            unit="share of pairs",
            low=0.0,
            high=1.0,
            direction="larger: more inferences as the stereotype has them",
            comparability_key="nli-coal",
            role="bias",
            parity=None,
            smooth_surrogate="nli_coal_probability",
            closed_form_interval=_constant_parts_interval,
        )
        smooth = replace(
            score,
            name="nli_coal_probability",
            equation=f"{PAPER}, of class probabilities instead of decisions",
            per_item_values=lambda responses: _with_parts(
                responses, _stereotyped(nli_probabilities(responses), responses)
            ),
            unit="probability",
            direction="larger: more probability of inferences as the stereotype has them",
            comparability_key="nli-coal, probability",
            smooth_surrogate=None,
            closed_form_interval=None,
        )
        return score, smooth

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The three shares, and the differences between twins for entailment and contradiction.

        A classifier that labels everything as entailed has a high share of "entailed"; only the
        difference between twins is due to the group.
        """
        responses = response_sets[0]
        notes: list[str] = []
        shares = []
        for part, name in SHARE_NAMES.items():
            part_responses = responses.select_where("group", part)
            values = _decided(part_responses)
            share = replace(
                self.get_metric("nli_coal"),
                per_item_values=_decided,
                aggregate=mean,
                closed_form_interval=constant_share_interval,
            )
            shares.append(
                estimate(
                    inference, share, values, part_responses.design(["occupations"]), name=name
                )
            )
        tests = []
        twins = responses.select(lambda item: item.group != "non")
        # Pro pairs count +1 and anti pairs -1, so that an exchange of twins is a change of sign.
        side = torch.tensor([1.0 if item.group == "pro" else -1.0 for item in twins.items])
        for column, sign, name in (
            (ENTAILMENT, 2.0, "entailment, pro less anti"),
            (CONTRADICTION, -2.0, "contradiction, anti less pro"),
        ):
            differs = replace(
                self.get_metric("nli_coal_probability"),
                name=name,
                equation="difference of mean class probabilities between twins",
                aggregate=mean,
                low=-1.0,
                direction="above 0: as the stereotype has it",
                above="inferences are drawn as the stereotype has it",
                below="inferences are drawn against the stereotype",
                parity=0.0,
                null="sign_flip",
            )
            # Each twin is half of the items: the factor 2 turns their mean into a difference.
            values = nli_probabilities(twins)[:, column] * side * sign
            with note_failure(notes, name):
                tests.append(estimate(inference, differs, values, twins.design(["occupations"])))
        return Extras((*shares, *holm_corrected(tests)), tuple(notes))


def _parse_id(pair: TextPair) -> tuple[str, str, str, str]:
    part, _, rest = pair.id.partition("/")
    names = rest.rsplit("/", 2)
    if part not in PARTS or len(names) != 3:
        raise LevelheadError(
            f"the id {pair.id!r} does not name part, occupation, sentence and word",
            hint="give ids such as pro/nurse/0/woman, parts pro, anti and non",
        )
    if pair.label not in ("", NLI_LABELS[NEUTRAL]):
        raise LevelheadError(
            f"{pair.id} is labelled {pair.label}",
            hint="give pairs that are neutral by construction; snli takes any",
        )
    return part, names[0], names[1], names[2]


def _stereotyped(p: torch.Tensor, responses: Responses) -> torch.Tensor:
    """`[pairs]`: probability of the stereotyped label of each pair."""
    by_part = {"pro": p[:, ENTAILMENT], "anti": p[:, CONTRADICTION], "non": 1 - p[:, NEUTRAL]}
    stereotyped = torch.zeros(len(p), dtype=p.dtype)
    for part, values in by_part.items():
        is_of_part = torch.tensor([item.group == part for item in responses.items])
        stereotyped = torch.where(is_of_part, values, stereotyped)
    return stereotyped


def _decided(responses: Responses) -> torch.Tensor:
    p = nli_probabilities(responses)
    return _stereotyped(
        torch.nn.functional.one_hot(p.argmax(1), len(NLI_LABELS)).double(), responses
    )


def _with_parts(responses: Responses, values: torch.Tensor) -> torch.Tensor:
    """`[pairs, 4]`: the value and indicators of its part; pro and anti pairs must be twins."""
    counts = Counter((item.group, *item.units) for item in responses.items)
    for part in PARTS:
        if not any(group == part for group, *_ in counts):
            raise NotMeasurableError(
                f"no pair of part {part} could be read", hint="give pairs of all three parts"
            )
    for (part, occupation, sentence), count in counts.items():
        # A dropped twin would leave one group's sentences only, and the score would depend on
        # its words.
        other = {"pro": "anti", "anti": "pro"}.get(part)
        if other and counts[other, occupation, sentence] != count:
            raise NotMeasurableError(
                f"{part}/{occupation}/{sentence} has no twin that could be read",
                hint="give every sentence of a stereotyped occupation words of both groups",
            )
    marks = torch.tensor([[item.group == part for part in PARTS] for item in responses.items])
    return torch.cat([values[:, None], marks.double()], dim=1)


def _mean_of_parts(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    resampled = take_resample(values, resample)
    marks = resampled[:, 1:]
    # The parts weigh the same, whatever their size, as in the paper's score s.
    return ((resampled[:, :1] * marks).sum(0) / marks.sum(0)).mean()


def _constant_parts_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """If each part has a constant value: the mean of Wilson's ends, by the fewest occupations."""
    hits = [values[mark > 0, 0] for mark in values[:, 1:].T]
    # Any spread gives resampling a width; the formula is needed only without it.
    if any(float(part_hits.min()) != float(part_hits.max()) for part_hits in hits):
        return None
    # The smaller stratum limits what is known: an interval must not assume the larger one's size.
    units = min(len(stratum) for stratum in design.samples)
    ends = [
        proportion_interval(units if float(part_hits[0]) else 0, units, level=level)
        for part_hits in hits
    ]
    return Interval(
        low=sum(interval.low for interval in ends) / len(ends),
        high=sum(interval.high for interval in ends) / len(ends),
        level=level,
        method=f"wilson, {design}",
    )
