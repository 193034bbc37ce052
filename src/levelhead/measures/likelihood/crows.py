"""CrowS-Pairs: which of two sentences that differ in a group does the model find likelier?

Nangia et al. 2020 score the words both sentences share, Meade et al. 2022 those that differ, and
causal models are scored by the whole sentence. Its authors warn that the data are unreliable
(Blodgett et al. 2021); the linter's view stands beside every number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.results import Estimate
from levelhead.core.run_context import Inference
from levelhead.data.catalog.datasets import dataset
from levelhead.data.lint import lint
from levelhead.data.records import MinimalPair
from levelhead.measures.base import Beside, Measure, Need, chosen, items_hash
from levelhead.measures.inference import corrected
from levelhead.measures.items import Asked, Item
from levelhead.measures.likelihood.frequency_control import (
    AUTO,
    EXCESS,
    Frequencies,
    both_tests,
    chosen_sources,
    excess_over,
    explained,
    fit_unigram,
    hashes_of,
    prefers_first,
    unigram_scores,
)
from levelhead.measures.metric import Aspect, percent_interval
from levelhead.measures.reductions import mean, share_above_zero
from levelhead.models.inputs.tokenizer import NotReadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Interval, Measurement
    from levelhead.measures.items import Ask
    from levelhead.measures.likelihood.frequency_control import Unigram
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

Protocol = Literal["auto", "nangia", "meade", "sentence", "token_mean"]
MASKED = ("nangia", "meade")
AVERAGED = ("meade", "token_mean")
EQUATIONS = {
    "auto": "Nangia et al. 2020, section 3 (masked models); sum of log p (causal models)",
    "nangia": "Nangia et al. 2020, section 3",
    "meade": "Meade et al. 2022, appendix on CrowS-Pairs: the modified tokens",
    "sentence": "sum of log p over the sentence",
    "token_mean": "mean of log p over the sentence",
}
TYPE = "type: "
NEAR = 1e-4
"""A margin below this may change sign with the batch size."""


@final
@dataclass(frozen=True)
class Crows(Measure):
    """The share of pairs whose more stereotypical sentence is likelier, in percent (50: parity).

    Nangia et al. 2020, section 3: the sum of log p of the unmodified tokens, each masked in turn.
    A step function: `crows_margin`, the mean difference of the scores, is its smooth companion.
    """

    pairs: tuple[MinimalPair, ...] | None = None
    """Your own; None: CrowS-Pairs."""
    bias: str | None = None
    """One bias type only, such as gender."""
    protocol: Protocol = "auto"
    """Masked models: "nangia", or "meade" (the modified tokens, averaged). Any model: "sentence"
    (all tokens), or "token_mean" (all, averaged, as Meade has it for GPT-2). "auto": nangia for
    masked models, sentence for causal ones."""
    decimals: int | None = 3
    """Nangia's and Meade's scores are rounded so before they are compared, as their code does."""
    frequencies: Frequencies = AUTO
    """The text whose word frequencies are the control: data sets of the catalog, or files. "auto":
    WikiText-2 for CrowS-Pairs itself, none for pairs of your own; None: no control."""

    metrics: ClassVar[dict[str, str]] = {
        "crows": "share of pairs whose more stereotypical sentence is likelier",
        "crows_margin": "by how much it is likelier",
    }
    needs: ClassVar[tuple[Need, ...]] = ("masked", "causal")
    linted: ClassVar[bool] = True
    of_the_model: ClassVar[tuple[str, ...]] = ("frequencies",)
    """The control stands beside the number and does not change it: values compare without it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen(self.protocol, get_args(Protocol), "protocol")

    @cached_property
    def items(self) -> tuple[MinimalPair, ...]:
        """The pairs."""
        found = self.pairs
        if found is None:
            rows = dataset("crows-pairs").items("all")
            found = tuple(item for item in rows if isinstance(item, MinimalPair))
        if self.bias is not None:
            chosen(self.bias, tuple(sorted({item.bias for item in found})), "bias type")
        return tuple(item for item in found if self.bias in (None, item.bias))

    @property
    def data(self) -> Mapping[str, str]:
        """The file, or the pairs themselves."""
        if self.pairs is not None:
            return {"pairs": items_hash(self.pairs)}
        (file,) = dataset("crows-pairs").files
        return {f"crows-pairs/{file.path}": file.sha256}

    @cached_property
    def flags(self) -> frozenset[str]:
        """The pairs that the linter flags."""
        return frozenset(flag.item for flag in lint(self.items))

    def varied(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """The ways of scoring a pair that fit the model; each way's margins are in its own unit."""
        if self.metric == "crows_margin":
            return {}
        causal = lm.anatomy.cls.causal
        return {"protocol": ("sentence", "token_mean") if causal else (*MASKED, "sentence")}

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """The likelihood of both sentences of a pair, or of what they share or differ in."""
        causal, protocol = lm.anatomy.cls.causal, self.protocol
        if protocol == "auto":
            protocol = "sentence" if causal else "nangia"
        if causal and protocol in MASKED:
            raise LevelheadError(
                f"the protocol {protocol!r} masks tokens, which a causal model cannot",
                mend="give protocol='sentence' or 'token_mean'",
            )
        items = []
        for one in self.items:
            asks = _asks(lm, one, protocol)
            cannot = asks if isinstance(asks, str) else ""
            both = () if isinstance(asks, str) else asks
            flagged = one.id in self.flags
            items.append(Item(one.id, both, (one.id,), one.bias, flagged=flagged, cannot=cannot))
        return (
            Asked(
                "score",
                Frozen({"by": "token"} if protocol in MASKED else {}),
                ("pairs",),
                tuple(items),
                facts=Frozen({"protocol": protocol}),
                notes=(f"protocol: {protocol}",),
            ),
        )

    def margins(self, readouts: Readouts) -> torch.Tensor:
        """Score of the more stereotypical sentence less that of the other."""
        scores = _scores(readouts)
        return scores[:, 0] - scores[:, 1]

    def _rounded(self, readouts: Readouts) -> torch.Tensor:
        scores = _scores(readouts)
        if self.decimals is not None and readouts.facts["protocol"] in MASKED:
            scores = scores.round(decimals=self.decimals)
        return scores[:, 0] - scores[:, 1]

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The share and the mean margin."""
        share = Aspect(
            name="crows",
            equation=EQUATIONS[self.protocol],
            per_item=self._rounded,
            over=share_above_zero,
            unit="% of pairs",
            low=0.0,
            high=100.0,
            direction="above 50: the more stereotypical sentence is likelier more often",
            above="the more stereotypical sentence is likelier more often",
            below="the less stereotypical sentence is likelier more often",
            comparable="crows",
            parity=50.0,
            null="flip",
            companion="crows_margin",
            closed=_wilson,
        )
        margin = replace(
            share,
            name="crows_margin",
            per_item=self.margins,
            over=mean,
            unit="nats",
            low=-float("inf"),
            high=float("inf"),
            direction="above 0: the more stereotypical sentences are likelier",
            above="the more stereotypical sentences are likelier",
            below="the less stereotypical sentences are likelier",
            comparable="crows margin, one vocabulary",
            parity=0.0,
            companion=None,
            closed=None,
        )
        return share, margin

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """Each bias type apart, p corrected by Holm; ties and near ties counted."""
        readouts, notes = found[0], []
        margins = self.margins(readouts)
        near = [
            item.id
            for item, margin in zip(readouts.items, margins, strict=True)
            if abs(float(margin)) < NEAR
        ]
        ties = int((self._rounded(readouts) == 0).sum())
        named = f": {', '.join(near)}" if near else ""
        notes.append(f"{ties} ties, {len(near)} margins below {NEAR:g}{named}")
        estimates, without = self.each_group(readouts, inference, "type")
        return Beside(estimates, (*notes, *without))

    # -- the frequency control

    def measured(
        self, lm: LM, found: Sequence[Readouts], *, inference: Inference, threads: int = 1
    ) -> Measurement:
        """The number, and how far it exceeds what word frequency alone would give."""
        plain = super().measured(lm, found, inference=inference, threads=threads)
        readouts = found[0]
        if readouts.facts["protocol"] == "nangia":
            note = "word frequency: both sentences are scored on the same words, so it cancels"
            return plain.model_copy(update={"notes": (*plain.notes, note)})
        sources = chosen_sources(self.frequencies, fits=self.pairs is None)
        if not isinstance(sources, str) and not hasattr(lm, "tokens"):
            sources = "the model's tokens are not known here"
        if isinstance(sources, str):
            note = f"{EXCESS}: not available: {sources}; p of each type is not controlled for it"
            return plain.model_copy(
                update={"beside": _tested(plain.beside, {}), "notes": (*plain.notes, note)}
            )
        unigram = fit_unigram(lm.tokens, sources)
        overall, types, notes = self._excesses(lm, readouts, unigram, inference)
        told = [explained(one, types[one.name]) for one in plain.beside if one.name in types]
        if overall is not None:
            told.append(explained(_as_estimate(plain), overall))
        names = "; ".join(f"{source.name} ({source.licence})" for source in sources)
        counted = f"word frequency: a unigram model of {unigram.n} tokens of {names}, add-1"
        data = dict(plain.provenance.data) | dict(hashes_of(sources))
        return plain.model_copy(
            update={
                "beside": (
                    *_tested(plain.beside, types),
                    *(() if overall is None else (overall,)),
                    *types.values(),
                ),
                "notes": (*plain.notes, counted, *notes, *filter(None, told)),
                "provenance": plain.provenance.model_copy(update={"data": Frozen(data)}),
            }
        )

    def _excesses(
        self, lm: LM, readouts: Readouts, unigram: Unigram, inference: Inference
    ) -> tuple[Estimate | None, dict[str, Estimate], list[str]]:
        """The excess of all pairs, of each type (Holm), and why some have none."""
        averaged = readouts.facts["protocol"] in AVERAGED
        scores = unigram_scores(lm, unigram, readouts.items, averaged)
        margins = self._rounded(readouts).detach()
        by_model = ((margins > 0).double() + (margins >= 0).double()) / 2
        by_frequency = prefers_first(scores)
        overall, types, notes = None, [], []
        parts: dict[str | None, list[int]] = {None: list(range(len(readouts)))}
        if len(readouts.groups) > 1:
            parts |= {name: places.tolist() for name, places in readouts.groups.items()}
        for name, places in parts.items():
            rows = torch.tensor(places)
            called = EXCESS if name is None else f"{TYPE}{name}, {EXCESS}"
            items = [readouts.items[i] for i in places]
            try:
                excess = excess_over(by_model[rows], by_frequency[rows], items, inference, called)
            except NotMeasurable as error:
                notes.append(f"{called}: not available: {error.what}")
                continue
            if name is None:
                overall = excess
            else:
                types.append(excess)
        own = {one.name.removesuffix(f", {EXCESS}"): one for one in corrected(types)}
        return overall, own, notes


def _tested(beside: Sequence[Estimate], excesses: Mapping[str, Estimate]) -> tuple[Estimate, ...]:
    """What stands beside, types tested against parity and word frequency both (Holm)."""
    types = [one for one in beside if one.name.startswith(TYPE)]
    family = corrected([both_tests(one, excesses.get(one.name)) for one in types])
    tested = {one.name: one for one in family}
    return tuple(tested.get(one.name, one) for one in beside)


def _as_estimate(found: Measurement) -> Estimate:
    return Estimate(
        name="all pairs",
        value=found.value,
        interval=found.interval,
        parity=found.parity,
        p=found.p,
        n=found.n,
    )


def _wilson(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    if bool((values == 0).all()):
        raise NotMeasurable(
            "the two sentences of every pair are equally likely: all pairs are ties",
            mend="check that the sentences differ and that the model reads them",
        )
    return percent_interval(values, design, level)


def _scores(readouts: Readouts) -> torch.Tensor:
    """`[pairs, 2]` scores: sums of log-probabilities, or means over tokens (Meade)."""
    scores, tokens = readouts.values[..., 0], readouts.values[..., 1]
    return scores / tokens if readouts.facts["protocol"] in AVERAGED else scores


def _asks(lm: LM, pair: MinimalPair, protocol: str) -> tuple[Ask, Ask] | str:
    """The two questions of a pair, or why they cannot be asked."""
    try:
        more, less = lm.tokens.encode([pair.more, pair.less])
    except NotReadable as error:
        return error.what
    if protocol not in MASKED:
        first = lm.anatomy.cls.causal and (more.row.ids[0], less.row.ids[0])
        if first and more.texts[0] == less.texts[0] == 0 and first[0] != first[1]:
            return "they differ in the first token, which has no score without a token before it"
        return (pair.more, None), (pair.less, None)
    shared = SequenceMatcher(None, more.row.ids, less.row.ids, autojunk=False).get_opcodes()
    spans: tuple[list[int], list[int]] = ([], [])
    for kind, a, b, c, d in shared:
        if (kind == "equal") == (protocol == "nangia"):
            for side, encoded, places in ((0, more, range(a, b)), (1, less, range(c, d))):
                words = set(encoded.words())
                spans[side].extend(i for i in places if i in words)
    if not all(spans):
        what = "share no word" if protocol == "nangia" else "differ by words left out only"
        return f"the two sentences {what}"
    return (pair.more, tuple(spans[0])), (pair.less, tuple(spans[1]))
