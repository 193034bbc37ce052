"""Twin triples: a context, its possible next sentences, and their gender-swapped counterfactuals.

Dawkins et al. 2024, section 2, on the enhanced StereoSet. A twin exchanges the genders, so its
label flips: the twin of a stereotype is an anti-stereotype.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.run_context import Inference
from levelhead.data.catalog.datasets import dataset
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.lint import lint
from levelhead.data.records import TwinTriple
from levelhead.data.tokenize import fold_case, tokenize_words
from levelhead.measures.base import Measure
from levelhead.measures.items import MeasureItem
from levelhead.measures.metric import Metric
from levelhead.measures.options import hash_items
from levelhead.measures.reductions import Reduction, Rounding, make_top_mean, tail_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Estimate
    from levelhead.measures.responses import Responses

Part = Literal["all", "dev", "test"]
Units = Literal["auto", "terms", "items"]
PAPER = "Dawkins et al. 2024"
SWAPPED = "stereoset-swapped"
FACTORS = ("units",)


@dataclass(frozen=True)
class TwinTripleMeasure(Measure):
    """Abstract base class of the measures on twin triples."""

    triples: tuple[TwinTriple, ...] | None = None
    """User's triples; None: the enhanced StereoSet."""
    part: Part = "all"
    """Part of the enhanced StereoSet: dev (234 pairs), test (749) or all."""
    # Dawkins et al. 2024, section 2: the top 10%, without the long tail of pairs whose s is near 0.
    top: float = 0.1
    """Share of the largest items that the primary metric averages."""
    rounding: Rounding = "round"
    units: Units = "auto"
    """Sampled units: "terms" (items on one target term are resampled together) or "items". "auto":
    terms, if there are at least eight."""

    has_lint_rules: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_option("part", self.part, get_args(Part))
        require_option("rounding", self.rounding, get_args(Rounding))
        require_option("units", self.units, get_args(Units))
        # Called only for its check of the share and the rounding.
        tail_size(10**6, self.top, self.rounding)
        if self.triples is not None and self.part != "all":
            raise LevelheadError(
                f"part {self.part!r} does not apply to triples of your own",
                hint="leave out part, and select the triples beforehand",
            )

    @cached_property
    def items(self) -> tuple[TwinTriple, ...]:
        """The triples."""
        if self.triples is not None:
            return tuple(self.triples)
        row = dataset(SWAPPED)
        parts = row.parts if self.part == "all" else (self.part,)
        return tuple(triple for part in parts for triple in row.records(part, TwinTriple))

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the data set's files, or of the user's triples."""
        if self.triples is not None:
            return {"triples": hash_items(self.triples)}
        return dataset(SWAPPED).hashes(*(() if self.part == "all" else (self.part,)))

    @cached_property
    def flags(self) -> frozenset[str]:
        """The items that the linter flags."""
        return frozenset(flag.item for flag in lint(self.items))

    @cached_property
    def compared_groups(self) -> tuple[str, str]:
        """The two groups of the original texts, as named in the data."""
        names = sorted({triple.group for triple in self.items})
        if len(names) != 2:
            raise NotMeasurableError(
                f"originals of {len(names)} groups ({', '.join(names) or 'none'})",
                hint="twins compare two groups: name the one of every original, two in all",
            )
        return names[0], names[1]

    def build_item(self, triple: TwinTriple, *queries: tuple[str, str]) -> MeasureItem:
        """Build the item of a triple from pairs of texts."""
        unit = _target_term(triple) if self.uses_terms else triple.id
        return MeasureItem(
            triple.id, queries, (unit,), triple.group, is_flagged=triple.id in self.flags
        )

    @cached_property
    def uses_terms(self) -> bool:
        """Whether items on one target term are resampled together."""
        if self.units != "auto":
            return self.units == "terms"
        # Fewer than eight clusters give too few distinct resamples for an interval.
        return len({_target_term(triple) for triple in self.items}) >= 8

    @property
    def top_mean(self) -> Reduction:
        """The mean over the top share of the resampled items, selected anew in every resample."""
        return make_top_mean(self.top, self.rounding)

    def estimate_by_origin(
        self, responses: Responses, metric: Metric, inference: Inference
    ) -> tuple[tuple[Estimate, ...], str]:
        """Estimate the signed mean by the gender of the original, on unflagged items.

        Also returns the conclusion as text. Swaps are one-sided: people wrote all originals and a
        program all twins. If that changed s, it would change s in opposite directions for
        originals of the two genders, and only one of them would look like a stereotype.
        """
        estimates: list[Estimate] = []
        try:
            unflagged = responses.select(lambda item: not item.is_flagged)
        except NotMeasurableError:
            return (), "swap artefact not excluded: every item is flagged"
        names = tuple(unflagged.groups)
        for group in names:
            try:
                part = unflagged.select_where("group", group)
                name = f"{metric.name}, {group} originals"
                estimates.append(self.estimate_metric(part, metric, inference, name))
            except NotMeasurableError as error:
                return tuple(
                    estimates
                ), f"swap artefact not excluded: {group} originals: {error.problem}"
        if len(estimates) < 2:
            return tuple(estimates), "swap artefact not excluded: originals of one group only"
        if len({estimate.value > 0 for estimate in estimates}) > 1:
            return tuple(estimates), "swap artefact not excluded: the two origins differ in sign"
        if estimates[0].value <= 0:
            return tuple(estimates), "both origins lean against the stereotype"
        # Both tests must reject at .05, so the joint test needs no correction (intersection-union).
        is_significant = all(
            estimate.p is not None and estimate.p.value <= 0.05 for estimate in estimates
        )
        return tuple(estimates), (
            "stereotype: both origins lean to it, each with p <= .05"
            if is_significant
            else "both origins lean to the stereotype, not both with p <= .05"
        )


@cache
def _gendered_words() -> frozenset[str]:
    """The gendered words of the lexicon."""
    words = lexicon("gender-en")
    return frozenset(fold_case(word) for group in words.groups for word in words.words(group))


def _target_term(triple: TwinTriple) -> str:
    """The target term of a triple: the first gendered word of its context.

    StereoSet has many contexts on each of a few dozen terms; items on one term are not
    independent. The enhanced data do not name the term.
    """
    words = (fold_case(token.text) for token in tokenize_words(triple.context))
    return next((word for word in words if word in _gendered_words()), triple.id)
