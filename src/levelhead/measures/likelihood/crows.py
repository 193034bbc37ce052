"""CrowS-Pairs: which of two sentences that differ in a group is more likely for the model?

Nangia et al. 2020 score the words that both sentences share, Meade et al. 2022 those that differ,
and causal models are scored by the full sentence. The data are known to be unreliable (Blodgett et
al. 2021, and a warning of the authors); every value is reported with the estimate on unflagged
items.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Estimate
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.languages.language import ENGLISH, language
from levelhead.data.lint import lint
from levelhead.data.records import MinimalPair
from levelhead.measures.base import Extras, Measure, RequiredHead
from levelhead.measures.inference import holm_corrected
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.likelihood.frequency_control import (
    AUTO,
    EXCESS,
    Frequencies,
    describe_frequency_confound,
    estimate_frequency_excess,
    fit_unigram,
    intersection_union_test,
    prefers_first,
    resolve_sources,
    source_hashes,
    unigram_scores,
)
from levelhead.measures.metric import Metric, wilson_percent_interval
from levelhead.measures.options import hash_items
from levelhead.measures.reductions import mean, share_above_zero
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.serving.served_model import ServedModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Interval, Measurement
    from levelhead.measures.items import QueryArgs
    from levelhead.measures.likelihood.frequency_control import Unigram
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

Protocol = Literal["auto", "nangia", "meade", "sentence", "token_mean"]
MASKED = ("nangia", "meade")
# Sentences differ in their number of tokens: a sum of log p would favour the shorter one.
AVERAGED = ("meade", "token_mean")
EQUATIONS = {
    "auto": "Nangia et al. 2020, section 3 (masked models); sum of log p (causal models)",
    "nangia": "Nangia et al. 2020, section 3",
    "meade": "Meade et al. 2022, appendix on CrowS-Pairs: the modified tokens",
    "sentence": "sum of log p over the sentence",
    "token_mean": "mean of log p over the sentence",
}
TYPE_PREFIX = "type: "
MISSING = "a sentence is missing in the data"
UNSCORED_START = "they differ in the first token, which has no score without a token before it"
# Float32 sums of log p over a sentence differ by about this between batch shapes.
NEAR_TIE = 1e-4
"""Margins below this threshold may change sign with the batch size."""


@final
@dataclass(frozen=True)
class Crows(Measure):
    """Percentage of pairs whose more stereotypical sentence is more likely (50: parity).

    Nangia et al. 2020, section 3: the sum of log p of the unmodified tokens, each masked in turn.
    This is a step function; `crows_margin`, the mean difference of scores, is its smooth surrogate.
    """

    pairs: tuple[MinimalPair, ...] | None = None
    """User's pairs; None: CrowS-Pairs."""
    bias: str | None = None
    """Bias type to select, such as gender; None: all."""
    protocol: Protocol = "auto"
    """Scoring protocol. Masked models: "nangia", or "meade" (the modified tokens, averaged). Any
    model: "sentence" (all tokens), or "token_mean" (all, averaged, as Meade does for GPT-2).
    "auto": nangia for masked models, sentence for causal ones."""
    decimals: int | None = 3
    """Decimals that Nangia's and Meade's scores are rounded to, as in their code; None: none."""
    frequencies: Frequencies = AUTO
    """Text whose word frequencies are the control: data sets of the catalog, or files. "auto":
    WikiText-2 for CrowS-Pairs in English, else none; None: no control."""
    language: str = ENGLISH
    """Language of the pairs: en, fr or nl."""

    metrics: ClassVar[dict[str, str]] = {
        "crows": "share of pairs whose more stereotypical sentence is likelier",
        "crows_margin": "by how much it is likelier",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("masked", "causal")
    has_lint_rules: ClassVar[bool] = True
    model_options: ClassVar[tuple[str, ...]] = ("frequencies",)
    """The control is reported with the value and does not change it: values compare without it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_option("protocol", self.protocol, get_args(Protocol))

    @cached_property
    def items(self) -> tuple[MinimalPair, ...]:
        """The pairs."""
        pairs = self.pairs
        if pairs is None:
            source, part = language(self.language).source("crows")
            pairs = source.records(part, MinimalPair)
        if self.bias is not None:
            require_option("bias type", self.bias, {item.bias for item in pairs})
        return tuple(item for item in pairs if self.bias in (None, item.bias))

    @property
    def data(self) -> Mapping[str, str]:
        """Hash of the file, or of the user's pairs."""
        if self.pairs is not None:
            return {"pairs": hash_items(self.pairs)}
        source, part = language(self.language).source("crows")
        return source.hashes(part)

    @property
    def can_lint(self) -> bool:
        """Whether the pairs are English, as the linter's rules are."""
        return self.language == ENGLISH

    @cached_property
    def flags(self) -> frozenset[str]:
        """The pairs that the linter flags."""
        if not self.can_lint:
            return frozenset()
        return frozenset(flag.item for flag in lint(self.items))

    def specification_options(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """Alternative protocols for the model; none for margins, whose unit depends on it."""
        if self.metric == "crows_margin":
            return {}
        causal = "causal" in lm.heads
        return {"protocol": ("sentence", "token_mean") if causal else (*MASKED, "sentence")}

    def all_queries(self, lm: LM | ServedModel) -> tuple[QuerySet, ...]:
        """Scores of both sentences of a pair, over all tokens or over shared or modified ones."""
        causal, protocol = "causal" in lm.heads, self.protocol
        if protocol == "auto":
            protocol = "sentence" if causal else "nangia"
        if causal and protocol in MASKED:
            raise LevelheadError(
                f"the protocol {protocol!r} masks tokens, which a causal model cannot",
                hint="give protocol='sentence' or 'token_mean'",
            )
        items = []
        if isinstance(lm, ServedModel):
            lm.tokenize_all([text for pair in self.items for text in (pair.more, pair.less)])
        for pair in self.items:
            # One of the French sentences was never translated.
            is_complete = pair.more and pair.less
            queries = _build_queries(lm, pair, protocol) if is_complete else MISSING
            item = MeasureItem.from_queries(pair.id, queries, (pair.id,), pair.bias)
            items.append(item._replace(is_flagged=pair.id in self.flags))
        return (
            QuerySet(
                "score",
                FrozenDict({"by": "token"} if protocol in MASKED else {}),
                ("pairs",),
                tuple(items),
                metadata=FrozenDict({"protocol": protocol}),
                notes=(f"protocol: {protocol}",),
            ),
        )

    def margins(self, responses: Responses) -> torch.Tensor:
        """Score of the more stereotypical sentence less that of the other sentence."""
        scores = _scores(responses)
        return scores[:, 0] - scores[:, 1]

    def _rounded_margins(self, responses: Responses) -> torch.Tensor:
        scores = _scores(responses)
        if self.decimals is not None and responses.metadata["protocol"] in MASKED:
            # Rounding creates ties that the published numbers contain; full precision would break
            # them.
            scores = scores.round(decimals=self.decimals)
        return scores[:, 0] - scores[:, 1]

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The share of pairs and the mean margin."""
        share = Metric(
            name="crows",
            equation=EQUATIONS[self.protocol],
            per_item_values=self._rounded_margins,
            aggregate=share_above_zero,
            unit="% of pairs",
            low=0.0,
            high=100.0,
            direction="above 50: the more stereotypical sentence is likelier more often",
            above="the more stereotypical sentence is likelier more often",
            below="the less stereotypical sentence is likelier more often",
            comparability_key="crows",
            parity=50.0,
            # Under equal treatment, either sentence of a pair is as likely to have the higher
            # score.
            null="sign_flip",
            smooth_surrogate="crows_margin",
            closed_form_interval=_wilson_interval,
        )
        margin = replace(
            share,
            name="crows_margin",
            per_item_values=self.margins,
            aggregate=mean,
            unit="nats",
            low=-float("inf"),
            high=float("inf"),
            direction="above 0: the more stereotypical sentences are likelier",
            above="the more stereotypical sentences are likelier",
            below="the less stereotypical sentences are likelier",
            comparability_key="crows margin, one vocabulary",
            parity=0.0,
            smooth_surrogate=None,
            closed_form_interval=None,
        )
        return share, margin

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Estimates by bias type, with Holm's correction, and counts of ties and near ties."""
        responses, notes = response_sets[0], []
        margins = self.margins(responses)
        near = [
            item.id
            for item, margin in zip(responses.items, margins, strict=True)
            if abs(float(margin)) < NEAR_TIE
        ]
        ties = int((self._rounded_margins(responses) == 0).sum())
        names_text = f": {', '.join(near)}" if near else ""
        notes.append(f"{ties} ties, {len(near)} margins below {NEAR_TIE:g}{names_text}")
        estimates, failure_notes = self.estimate_per_group(responses, inference, "type")
        return Extras(estimates, (*notes, *failure_notes))

    # -- the frequency control

    def compute_measurement(
        self,
        lm: LM,
        response_sets: Sequence[Responses],
        *,
        inference: Inference,
        context: RunContext = RunContext(),
    ) -> Measurement:
        """Compute the measurement, and its excess over the share by word frequency alone."""
        measurement = super().compute_measurement(
            lm, response_sets, inference=inference, context=context
        )
        responses = response_sets[0]
        if responses.metadata["protocol"] == "nangia":
            # Nangia's score leaves out the modified words, the only ones whose frequency differs.
            note = "word frequency: both sentences are scored on the same words, so it cancels"
            return measurement.model_copy(update={"notes": (*measurement.notes, note)})
        sources = resolve_sources(
            self.frequencies, fits=self.pairs is None and self.language == ENGLISH
        )
        if not isinstance(sources, str) and not hasattr(lm, "tokens"):
            sources = "the model's tokens are not known here"
        if isinstance(sources, str):
            note = f"{EXCESS}: not available: {sources}; p of each type is not controlled for it"
            return measurement.model_copy(
                update={
                    "extras": _test_types(measurement.extras, {}),
                    "notes": (*measurement.notes, note),
                }
            )
        unigram = fit_unigram(lm.tokens, sources)
        overall, types, notes = self._estimate_excesses(lm, responses, unigram, inference)
        caveats = [
            describe_frequency_confound(estimate, types[estimate.name])
            for estimate in measurement.extras
            if estimate.name in types
        ]
        if overall is not None:
            caveats.append(describe_frequency_confound(_as_estimate(measurement), overall))
        names = "; ".join(f"{source.name} ({source.licence})" for source in sources)
        frequency_note = f"word frequency: a unigram model of {unigram.n} tokens of {names}, add-1"
        data = dict(measurement.provenance.data) | dict(source_hashes(sources))
        return measurement.model_copy(
            update={
                "extras": (
                    *_test_types(measurement.extras, types),
                    *(() if overall is None else (overall,)),
                    *types.values(),
                ),
                "notes": (*measurement.notes, frequency_note, *notes, *filter(None, caveats)),
                "provenance": measurement.provenance.model_copy(update={"data": FrozenDict(data)}),
            }
        )

    def _estimate_excesses(
        self, lm: LM, responses: Responses, unigram: Unigram, inference: Inference
    ) -> tuple[Estimate | None, dict[str, Estimate], list[str]]:
        """The excess of all pairs and of each type (Holm), and notes on types without one."""
        averaged = responses.metadata["protocol"] in AVERAGED
        scores = unigram_scores(lm, unigram, responses.items, averaged)
        margins = self._rounded_margins(responses).detach()
        # A tie counts half for the model as it does for the unigram model, or ties would be excess.
        by_model = ((margins > 0).double() + (margins >= 0).double()) / 2
        by_frequency = prefers_first(scores)
        overall, types, notes = None, [], []
        parts: dict[str | None, list[int]] = {None: list(range(len(responses)))}
        if len(responses.groups) > 1:
            parts |= {name: indices.tolist() for name, indices in responses.groups.items()}
        for name, indices in parts.items():
            rows = torch.tensor(indices)
            label = EXCESS if name is None else f"{TYPE_PREFIX}{name}, {EXCESS}"
            items = [responses.items[i] for i in indices]
            try:
                excess = estimate_frequency_excess(
                    by_model[rows], by_frequency[rows], items, inference, label
                )
            except NotMeasurableError as error:
                notes.append(f"{label}: not available: {error.problem}")
                continue
            if name is None:
                overall = excess
            else:
                types.append(excess)
        by_type = {
            estimate.name.removesuffix(f", {EXCESS}"): estimate
            for estimate in holm_corrected(types)
        }
        return overall, by_type, notes


def _test_types(
    extras: Sequence[Estimate], excesses: Mapping[str, Estimate]
) -> tuple[Estimate, ...]:
    """Extras with each type tested against both parity and word frequency (Holm)."""
    types = [estimate for estimate in extras if estimate.name.startswith(TYPE_PREFIX)]
    # The family is the bias types only: other extras test other hypotheses.
    family = holm_corrected(
        [intersection_union_test(estimate, excesses.get(estimate.name)) for estimate in types]
    )
    tested_by_name = {estimate.name: estimate for estimate in family}
    return tuple(tested_by_name.get(estimate.name, estimate) for estimate in extras)


def _as_estimate(measurement: Measurement) -> Estimate:
    return Estimate(
        name="all pairs",
        value=measurement.value,
        interval=measurement.interval,
        parity=measurement.parity,
        p=measurement.p,
        n=measurement.n,
    )


def _wilson_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    if bool((values == 0).all()):
        raise NotMeasurableError(
            "the two sentences of every pair are equally likely: all pairs are ties",
            hint="check that the sentences differ and that the model reads them",
        )
    return wilson_percent_interval(values, design, level)


def _scores(responses: Responses) -> torch.Tensor:
    """`[pairs, 2]` scores: sums of log-probabilities, or means over tokens (Meade et al. 2022)."""
    scores, tokens = responses.values[..., 0], responses.values[..., 1]
    return scores / tokens if responses.metadata["protocol"] in AVERAGED else scores


def _build_queries(
    lm: LM | ServedModel, pair: MinimalPair, protocol: str
) -> tuple[QueryArgs, QueryArgs] | str:
    """The two queries of a pair, or the reason why the pair is skipped."""
    if isinstance(lm, ServedModel):
        ids = [lm.tokenize(text) for text in (pair.more, pair.less)]
        if not lm.begin_tokens and ids[0][:1] != ids[1][:1]:
            return UNSCORED_START
        return (pair.more, None), (pair.less, None)
    try:
        more, less = lm.tokens.encode([pair.more, pair.less])
    except UnreadableTextError as error:
        return error.problem
    if protocol not in MASKED:
        first = lm.layout.model_class.causal and (more.row.ids[0], less.row.ids[0])
        # Without a begin token, the first token has no score: the difference would be left out.
        if first and more.text_indices[0] == less.text_indices[0] == 0 and first[0] != first[1]:
            return UNSCORED_START
        return (pair.more, None), (pair.less, None)
    # As in the published code of Nangia et al.; autojunk would drop frequent tokens.
    opcodes = SequenceMatcher(None, more.row.ids, less.row.ids, autojunk=False).get_opcodes()
    spans: tuple[list[int], list[int]] = ([], [])
    for kind, a, b, c, d in opcodes:
        if (kind == "equal") == (protocol == "nangia"):
            # Special tokens are equal in both sentences and are never scored.
            for side, encoded, positions in ((0, more, range(a, b)), (1, less, range(c, d))):
                words = set(encoded.word_positions())
                spans[side].extend(i for i in positions if i in words)
    if not all(spans):
        relation = "share no word" if protocol == "nangia" else "differ by words left out only"
        return f"the two sentences {relation}"
    return (pair.more, tuple(spans[0])), (pair.less, tuple(spans[1]))
