"""The contract of a measure: its queries, the heads it needs and the meaning of its numbers.

A measure defines its items (`queries`) and its metrics (`formulas`). This module derives the rest
from these two, for every measure: reading, storage, intervals, null distributions, coverage and
provenance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

from levelhead.core.calibration import MeasureKey
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import NotMeasurableError, UnknownNameError, require_option
from levelhead.core.results import DroppedItem, Estimate, ItemValue, Measurement, Provenance
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.languages.language import ENGLISH
from levelhead.measures import item_details
from levelhead.measures.inference import (
    estimate,
    estimate_signed_part,
    holm_corrected,
    note_failure,
)
from levelhead.measures.item_details import neutral_value
from levelhead.measures.items import subsample_queries
from levelhead.measures.metric import jackknife_variance, require_differentiable, require_values
from levelhead.measures.options import is_lexicon_file, option_as_json
from levelhead.measures.query_kinds import check_answerable
from levelhead.measures.responses import describe_losses, read_responses
from levelhead.measures.skills.checks import check_skill
from levelhead.measures.skills.word_order import make_word_order_check
from levelhead.models.loading.checkpoints import MissingHeadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.core.results import ItemDetail, PValue, Skill
    from levelhead.measures.items import MeasureItem, QuerySet
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.measures.skills.checks import SkillCheck
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

RequiredHead = Literal["masked", "causal", "next_sentence", "classifier", "embeddings"]
UNFLAGGED = "unflagged"
"""Name of the estimate on the items that the linter does not flag."""


class Extras(NamedTuple):
    """What a measure reports in addition to its primary metric."""

    estimates: tuple[Estimate, ...] = ()
    notes: tuple[str, ...] = ()
    parity: float | None = None
    """Parity, if the measure estimates it with its own control."""
    p: PValue | None = None
    """p-value of the test against that control."""
    excess: Estimate | None = None
    """Excess over that control: the number that p tests."""


class TestInputs(NamedTuple):
    """A metric, the values of its items and the sampling design."""

    metric: Metric
    values: torch.Tensor
    design: Design


@dataclass(frozen=True)
class Measure(ABC):
    """Abstract base class of all measures; `MEASURES` lists the final classes.

    Bases in between: `LexiconMeasure` (two groups of a lexicon), `PromptMeasure` (the prompts of
    Counteracts), `TwinTripleMeasure` (a context, its next sentences and their counterfactuals), its
    subclass `PreferenceMeasure`, `LabelAccuracy` (predicted labels) and `PerplexityBase`.
    """

    subsample_fraction: float = field(default=1.0, kw_only=True)
    """Fraction of the sampled units (words, pairs, occupations) that is queried; deterministic."""
    metric: str = field(default="", kw_only=True)
    """Name of the primary metric, one of `metrics`; by default the first of them."""

    metrics: ClassVar[dict[str, str]] = {}
    """Metrics that can be the primary metric, with a one-line description; the default first. Each
    is the name of a metric in `formulas`, which may hold further metrics. Without `metrics`, the
    first formula is the primary metric."""
    needs: ClassVar[tuple[RequiredHead, ...]]
    """Heads; a model must hold at least one of them."""
    has_lint_rules: ClassVar[bool] = False
    """Whether the linter has rules for the items."""
    always_show_extras: ClassVar[bool] = False
    """Whether reports show the additional estimates by default."""
    parity_from_control: ClassVar[bool] = False
    """Whether a control estimates parity; then the excess over the control is tested."""
    model_options: ClassVar[tuple[str, ...]] = ()
    """Options and metadata that describe the model, not the queries, such as its class order."""
    file_options: ClassVar[tuple[str, ...]] = ()
    """Options that may be the path of a file; settings give its name, without its folder."""
    test_on_unflagged_only: ClassVar[bool] = False
    """Whether the null hypothesis holds for unflagged items only; then p uses only these."""

    def __post_init__(self) -> None:
        if self.metric:
            require_option("metric", self.metric, tuple(self.metrics))
        else:
            # The dataclass is frozen: its hash must not change after this default is filled in.
            object.__setattr__(self, "metric", next(iter(self.metrics), ""))

    def with_options(self, **options: object) -> Self:
        """The measure with other values of options that its class has."""
        return replace(self, **options)  # type: ignore[arg-type]  # those of the subclass

    # -- what a subclass defines

    @property
    @abstractmethod
    def formulas(self) -> tuple[Metric, ...]:
        """The metrics, in an order that does not depend on the choice of the primary metric."""

    @abstractmethod
    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """All queries, before subsampling; metrics are computed from the first set."""

    @property
    @abstractmethod
    def data(self) -> Mapping[str, str]:
        """SHA-256 of all data that the measure uses, by name."""

    @property
    def can_lint(self) -> bool:
        """Whether the linter's rules are for these items."""
        return self.has_lint_rules

    @property
    def compared_groups(self) -> tuple[str, ...]:
        """The two compared groups, if the user may choose them."""
        return ()

    def excluded_groups_note(self) -> tuple[str, ...]:
        """A note if the comparison leaves out groups of the lexicon."""
        return ()

    def specification_options(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """Alternative values of options, for a multiverse analysis."""
        return {}

    def is_sampled(self, item: MeasureItem) -> bool:
        """Whether the primary metric samples this item; other items are fixed or additional."""
        return True

    @property
    def reads_only_sampled(self) -> bool:
        """Whether the primary metric needs no other items than those that are sampled."""
        return False

    def select_sampled(self, responses: Responses) -> Responses:
        """The items that the primary metric samples."""
        return responses.select(self.is_sampled)

    def design(self, responses: Responses, metric: Metric) -> Design:
        """The sampling design of a metric."""
        # A permutation of units between groups needs the group of each unit in the design.
        return self.select_sampled(responses).design(grouped=metric.null == "permute_units")

    def describe_direction(self) -> tuple[str, str]:
        """What a value above parity and a value below parity mean, in words."""
        return self.primary_metric.above, self.primary_metric.below

    def leave_block_out_values(self, responses: Responses, metric: Metric) -> list[float]:
        """Values of a metric with each block left out in turn, for variance outside its design."""
        return []

    def attribute_pairs(self, responses: Responses) -> Sequence[tuple[str, str]]:
        """Pairs of ids of fixed items that are counterparts, such as attribute words."""
        return ()

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Additional estimates and notes of this measure."""
        return Extras()

    def test_inputs(self, response_sets: Sequence[Responses]) -> TestInputs:
        """Input of the primary metric's test, for callers that permute labels themselves."""
        responses, primary = response_sets[0], self.primary_metric
        if self.test_on_unflagged_only:
            # A flagged pair may differ in more than the group, so exchanging its texts is no null.
            responses = responses.select(lambda item: not item.is_flagged)
        return TestInputs(
            primary, primary.per_item_values(responses), self.design(responses, primary)
        )

    def guessing_value(self, responses: Responses) -> float | None:
        """Value of the primary metric that guessing reaches; None if it is not known.

        Args:
            responses: Responses to the items.
        """
        return None

    def blank_words(self, lm: LM) -> Sequence[str]:
        """Group words that fill the blanks of the texts; empty if the texts have no blank.

        Override it if a text has a blank: otherwise the default skill check scores a literal
        [MASK] as one of the words of the text.
        """
        return ()

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck | None:
        """The check that a model has the skill that the measure needs; None if no check is known.

        By default, for models that give likelihoods: the model prefers texts to the same words in
        shuffled order.
        """
        if not {"masked", "causal"} & set(self.needs) & lm.heads:
            return None
        return make_word_order_check(lm, self.select_sampled(responses).items, self.blank_words(lm))

    # -- what every measure inherits

    @property
    def is_utility(self) -> bool:
        """Whether the primary metric is a utility, not a bias; a utility needs no skill check."""
        return self.primary_metric.role == "utility"

    def assess_skill(
        self, lm: LM, responses: Responses | None = None, *, context: RunContext = RunContext()
    ) -> Skill | None:
        """Test whether a model, edited or not, has the skill that the measure needs.

        Returns None for a measure of utility, which is a skill itself, and if the skill could not
        be checked.

        Args:
            lm: The model.
            responses: Responses to the measure's items; by default they are read.
            context: Store, threads, progress and cancellation.
        """
        if self.is_utility:
            return None
        if responses is None:
            responses = self.read(lm, context=context)[0]
        check = self.make_skill_check(lm, responses)
        return check_skill(lm, check, responses, context=context)

    def queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """The queries for a model, after subsampling, with the size of the population."""
        query_sets = self.all_queries(lm)
        check_answerable(lm, query_sets)
        return tuple(
            subsample_queries(
                self._with_population(query_set), self.subsample_fraction, self.is_sampled
            )
            for query_set in query_sets
        )

    def _with_population(self, query_set: QuerySet) -> QuerySet:
        """Add the size of the data set, counted before subsampling."""
        if query_set.population is not None:
            return query_set
        return query_set._replace(population=sum(map(self.is_sampled, query_set.items)) or None)

    @property
    def ordered_metrics(self) -> tuple[Metric, ...]:
        """The metrics, the primary metric first."""
        formulas = self.formulas
        primary = _find_metric(formulas, self.metric) if self.metric else formulas[0]
        # Only the primary metric moves, so the order of columns stays comparable.
        return (primary, *(metric for metric in formulas if metric is not primary))

    @property
    def primary_metric(self) -> Metric:
        """The metric whose value the measure reports first; an error if no formula has its name."""
        return self.ordered_metrics[0]

    @property
    def name(self) -> str:
        """Name of the primary metric, not of the class in `MEASURES`.

        It names the measure in results: `crows:metric=crows_margin` has the name `crows_margin`.
        """
        return self.primary_metric.name

    def measure_key(self, lm: LM) -> MeasureKey | None:
        """Key of this measure with this type of model, to look up its calibration."""
        return MeasureKey.from_settings(self.name, lm.settings)

    @property
    def settings(self) -> dict[str, object]:
        """All options as plain JSON; a default fraction and a single metric are left out."""
        settings = {
            option.name: option_as_json(getattr(self, option.name)) for option in fields(self)
        }
        for name in self.file_options:
            if isinstance(path := getattr(self, name), str):
                settings[name] = Path(path).name
        # Defaults stay out: they would change the hash of results that older versions stored.
        if self.subsample_fraction == 1:
            del settings["subsample_fraction"]
        if len(self.metrics) < 2:
            del settings["metric"]
        if settings.get("language") == ENGLISH:
            del settings["language"]
        return settings

    def check(self, lm: LM) -> None:
        """Raise an error if the model lacks the head that this measure reads."""
        # Every model has hidden states, whichever heads its checkpoint holds.
        if "embeddings" in self.needs or set(self.needs) & lm.heads:
            return
        heads_text = ", ".join(sorted(lm.heads)) or "none: it gives embeddings only"
        raise MissingHeadError(
            f"{self.name} reads a head that {lm.identity.name} does not hold "
            f"({' or '.join(self.needs)}); its heads: {heads_text}",
            hint="use a checkpoint trained with that head, or a measure that fits: "
            "`levelhead measure --list`",
        )

    def read(self, lm: LM, *, context: RunContext = RunContext()) -> list[Responses]:
        """Query the model, or load its stored responses."""
        self.check(lm)
        return read_responses(lm, self.queries(lm), context=context)

    def reduce(self, responses: Responses) -> torch.Tensor:
        """Compute the primary metric of some responses, in float64, differentiably.

        Raises an error if a gradient of a step function is requested, because it is zero.
        """
        if responses.values.requires_grad:
            require_differentiable(self.primary_metric)
        return self.primary_metric.value(responses, self.design(responses, self.primary_metric))

    def __call__(
        self, lm: LM, *, inference: Inference = Inference(), context: RunContext = RunContext()
    ) -> Measurement:
        """Measure a model, and check that it has the skill that the measure needs.

        Args:
            lm: The model, edited or not.
            inference: Seed, resamples and level.
            context: Store, threads, progress and cancellation.
        """
        response_sets = self.read(lm, context=context)
        measurement = self.compute_measurement(
            lm, response_sets, inference=inference, context=context
        )
        skill = self.assess_skill(lm, response_sets[0], context=context)
        return measurement.model_copy(update={"skill": skill})

    def compute_measurement(
        self,
        lm: LM,
        response_sets: Sequence[Responses],
        *,
        inference: Inference,
        context: RunContext = RunContext(),
    ) -> Measurement:
        """Compute the measurement from stored responses, without a forward pass.

        Args:
            lm: The model.
            response_sets: Responses to each query set of the measure.
            inference: Seed, resamples and level.
            context: Threads, and whether the texts of the items are recorded.
        """
        responses, primary = response_sets[0], self.primary_metric
        values = primary.per_item_values(responses)
        require_values(values)
        main = self.estimate_metric(responses, primary, inference)
        extra_estimates: list[Estimate] = []
        failure_notes: list[str] = []
        # Only the primary metric must exist: a secondary one without a value becomes a note.
        for metric in self.ordered_metrics[1:]:
            with note_failure(failure_notes, metric.name):
                extra_estimates.append(self.estimate_metric(responses, metric, inference))
        unflagged, notes = self._estimate_unflagged(responses, inference)
        extras = self.compute_extras(response_sets, inference)
        # The detectable effect must belong to the number that p tests, not to the number printed.
        tested_estimate = (
            unflagged[0] if self.test_on_unflagged_only and unflagged else extras.excess or main
        )
        p = self._unflagged_p(unflagged) if self.test_on_unflagged_only else extras.p or main.p
        sampled_responses = self.select_sampled(responses)
        # Metrics with several columns per item keep the value in the first and weights in the rest.
        item_values = (values if values.dim() == 1 else values[:, 0]).detach().double().tolist()
        parity = main.parity if extras.parity is None else extras.parity
        above, below = ("", "") if parity is None else self.describe_direction()
        return Measurement(
            measure=self.name,
            value=main.value,
            interval=main.interval,
            parity=parity,
            p=p,
            unit=primary.unit,
            direction=primary.direction,
            above=above,
            below=below,
            comparability_key=self.build_comparability_key(primary, responses),
            groups=self.compared_groups,
            detectable=tested_estimate.detectable,
            precision=tested_estimate.precision,
            n=len(sampled_responses),
            population=responses.population,
            excess=extras.excess
            or self._estimate_signed_part(responses, inference, has_unflagged=bool(unflagged)),
            dropped=tuple(
                DroppedItem(item.id, reason)
                for item, reason in responses.dropped
                if self.is_sampled(item)
            ),
            per_item_values=tuple(
                ItemValue(item.id, value)
                for item, value in zip(sampled_responses.items, item_values, strict=True)
            ),
            item_details=self.describe_items(
                lm,
                sampled_responses,
                item_values,
                neutral_value(primary, item_values, main.value, parity),
            )
            if context.record_items
            else (),
            extras=(*unflagged, *extra_estimates, *extras.estimates),
            notes=(
                *self.excluded_groups_note(),
                *notes,
                *failure_notes,
                *describe_losses(response_sets),
                *extras.notes,
            ),
            provenance=self._provenance(lm, response_sets, inference, context.threads),
        )

    def describe_items(
        self, lm: LM, responses: Responses, values: Sequence[float], center: float
    ) -> tuple[ItemDetail, ...]:
        """Content of the items whose values are farthest from a center, for readers.

        Args:
            lm: The model that gave the responses.
            responses: Responses to the items that the metric samples.
            values: Value of each of these items.
            center: Value of an item that contributes nothing.
        """
        return item_details.describe_items(lm, responses, values, center, self.compared_groups)

    def estimate_metric(
        self, responses: Responses, metric: Metric, inference: Inference, name: str | None = None
    ) -> Estimate:
        """Estimate one metric of some responses."""
        return estimate(
            inference,
            metric,
            metric.per_item_values(responses),
            self.design(responses, metric),
            name=name,
            extra_variance=jackknife_variance(self.leave_block_out_values(responses, metric)),
        )

    def _estimate_signed_part(
        self, responses: Responses, inference: Inference, *, has_unflagged: bool
    ) -> Estimate | None:
        """The primary metric less its parity, on the items that p tests (all if there is no p)."""
        primary, name = self.primary_metric, None
        if self.test_on_unflagged_only and has_unflagged:
            responses, name = responses.select(lambda item: not item.is_flagged), UNFLAGGED
        return estimate_signed_part(
            inference,
            primary,
            primary.per_item_values(responses),
            self.design(responses, primary),
            name=name,
        )

    def estimate_per_group(
        self, responses: Responses, inference: Inference, label: str
    ) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
        """Estimate the primary metric for each group of items, with Holm-corrected p-values.

        Also returns notes on groups without an estimate. Both are empty if there is only one group.
        """
        estimates: list[Estimate] = []
        notes: list[str] = []
        for name in responses.groups if len(responses.groups) > 1 else ():
            with note_failure(notes, f"{label} {name}"):
                estimates.append(
                    self.estimate_metric(
                        responses.select_where("group", name),
                        self.primary_metric,
                        inference,
                        f"{label}: {name}",
                    )
                )
        return holm_corrected(estimates), tuple(notes)

    def build_comparability_key(self, metric: Metric, responses: Responses) -> str:
        """Build the key that two values must share to be compared: metric, data and options."""
        # Options of the model are left out: two models may order the same classes differently. So
        # are names of files: the data are in the key by their content.
        omitted = (*self.model_options, *self.file_options)
        options, metadata = (
            {
                name: value
                for name, value in mapping.items()
                if name not in omitted and not (name == "lexicon" and is_lexicon_file(value))
            }
            for mapping in (self.settings, responses.metadata)
        )
        content = {"data": self.data, "options": options, "facts": metadata}
        return f"{metric.comparability_key} ({content_hash(content)[:12]})"

    def get_metric(self, name: str) -> Metric:
        """Return a metric by name."""
        return _find_metric(self.formulas, name)

    def _estimate_unflagged(
        self, responses: Responses, inference: Inference
    ) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
        n_flagged = sum(item.is_flagged for item in responses.items)
        if not self.can_lint:
            return (), ("the linter knows no rule for these items",)
        try:
            unflagged = responses.select(lambda item: not item.is_flagged)
            unflagged_estimate = self.estimate_metric(
                unflagged, self.primary_metric, inference, UNFLAGGED
            )
        except NotMeasurableError as error:
            return (), (
                f"{n_flagged} of {len(responses)} items are flagged; without them: {error.problem}",
            )
        note = (
            f"p and the excess are of the {unflagged_estimate.n} of {len(responses)} items "
            "without a flag"
        )
        return (unflagged_estimate,), ((note,) if self.test_on_unflagged_only and n_flagged else ())

    def _unflagged_p(self, unflagged: Sequence[Estimate]) -> PValue | None:
        if not unflagged or (p := unflagged[0].p) is None:
            return None
        return p.model_copy(update={"method": f"{p.method}, {unflagged[0].n} unflagged items"})

    def _provenance(
        self, lm: LM, response_sets: Sequence[Responses], inference: Inference, threads: int
    ) -> Provenance:
        # Batch shrinking is recorded per reading below: the model's setting may be of an earlier
        # run.
        model = {name: value for name, value in lm.settings.items() if name != "batch_shrunk_to"}
        shrunk_batches = [responses.shrunk_to for responses in response_sets if responses.shrunk_to]
        return Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in lm.edits),
            data=self.data,
            equation=self.primary_metric.equation,
            seed=inference.seed,
            settings={
                "measure": self.settings,
                "asked": [responses.metadata for responses in response_sets],
                "model": model | {"batch_shrunk_to": min(shrunk_batches, default=None)},
                "threads": threads,
                "resamples": inference.resamples,
                "permutations": inference.permutations,
                "level": inference.level,
            },
        )


def _find_metric(metrics: Sequence[Metric], name: str) -> Metric:
    for metric in metrics:
        if metric.name == name:
            return metric
    raise UnknownNameError("metric", name, [metric.name for metric in metrics])
