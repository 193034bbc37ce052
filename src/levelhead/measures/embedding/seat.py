"""SEAT: association of target words with the words of two groups in a model's embedding space.

May et al. 2019; Yang et al. 2025, Eq. 3, with words in corpus contexts. The effect size is
scale-free: it can stay at 1 while all associations shrink to zero. So it is always reported with
the difference of the means and the spread, and no comparison uses the effect size alone.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, final, get_args

import numpy as np
import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference
from levelhead.data.catalog.datasets import dataset
from levelhead.data.corpus.contexts import WordContexts, find_contexts
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.published import (
    SEAT_ROLES,
    WEAT_TESTS,
    load_seat_sentences,
    load_seat_test,
    make_weat_sentences,
)
from levelhead.measures.base import Extras, RequiredHead
from levelhead.measures.embedding.name_targets import NameTargets
from levelhead.measures.embedding.word_contexts import (
    N_BLOCKS,
    average_contexts,
    block_number,
    context_order,
    is_at_text_start,
    match_contexts,
    missing_reason,
)
from levelhead.measures.inference import estimate
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.metric import Metric, jackknife_variance, short_list_interval
from levelhead.measures.options import check_positive, forbid_unused_options
from levelhead.measures.reductions import (
    absolute_value,
    association_effect_size,
    group_effect_size,
    require_spread,
    split_groups,
    take_resample,
)
from levelhead.measures.skills.checks import SkillCheck, make_group_separation_check
from levelhead.models.queries.build import Pooling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.canonical_json import Json
    from levelhead.core.results import Estimate, Interval
    from levelhead.measures.embedding.word_contexts import ContextMask
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Resample

X, Y, A, B = "X", "Y", "A", "B"
"""Two lists of target words (X, Y) and two of attribute words (A, B), as in the papers."""
ContextSource = Literal["own", "matched"]
FIRST_WORDS = "first words of a text, which a causal model reads without context"
# Evenly spaced on a log scale: the curve shows whether the value has converged.
CONTEXT_COUNTS = (1, 3, 10, 30, 100)


def associations(targets: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """s(w, A, B) = mean cos(w, a) - mean cos(w, b) for each target word (Caliskan et al. 2017)."""
    unit = torch.nn.functional.normalize
    for words in (targets, a, b):
        if not bool((words.norm(dim=1) > 0).all()):
            raise NotMeasurableError(
                "a word's vector is zero: it has no direction",
                hint="check the model and its edits; drop such words by name",
            )
    # The mean of cosines is the product with the mean unit vector: one product for all words.
    pull = unit(a, dim=1).mean(0) - unit(b, dim=1).mean(0)
    return unit(targets, dim=1) @ pull


def seat_effect_size(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    """The SEAT effect size of given vectors, float64, ddof 1.

    (mean_X s - mean_Y s) / std over X and Y of s; Yang et al. 2025 take its absolute value. Two
    dimensions, X along A and Y along B: s = 1, 1, -1, -1, so 2 / std = 2 / (2 / sqrt 3).

    >>> east, north = torch.tensor([[1.0, 0.0]] * 2), torch.tensor([[0.0, 1.0]] * 2)
    >>> round(seat_effect_size(east, north, east, north), 5)
    1.73205
    """
    s = associations(torch.cat([x, y]).double(), a.double(), b.double())
    return float(association_effect_size(s[: len(x)], s[len(x) :]))


class Words(NamedTuple):
    """The words of the four lists, and the groups of the attributes."""

    by_side: dict[str, tuple[str, ...]]
    groups: tuple[str, str]


@final
@dataclass(frozen=True)
class Seat(LexiconMeasure):
    """The SEAT effect size (Yang et al. 2025, Eq. 3, signed; May et al. 2019).

    Embeds words in contexts from a corpus (default), the sentences of a published test
    (`sentence_test`), or WEAT's words in short sentences of this project (`weat_test`).
    """

    lexicon: str | Lexicon = "gender-en"
    """Lexicon; attributes A and B are the words of its first two groups."""
    targets: str = "occupations"
    """Name of the lexicon's family of targets; X is its first side, Y its second."""
    groups: tuple[str, str] | None = None
    corpus: str | tuple[str, ...] = ("news-commentary", "wikinews", "leipzig-news")
    """Corpora: data sets, files, or folders written by `levelhead data mine`."""
    contexts: ContextSource = "own"
    """"matched": each context of an attribute is also used with the counterpart of the other group.

    With "own" contexts, SEAT also measures what the corpus says around the words.
    """
    contexts_per_word: int = 100
    """Maximum number of contexts for each word."""
    sentence_test: str | None = None
    """A published test of May et al. 2019, such as sent-weat6: sentences, no corpus."""
    weat_test: str | None = None
    """weat1 to weat10: words of Caliskan et al. 2017 in this project's sentences, no corpus."""
    names: str | None = None
    """Names instead of X and Y of a WEAT test: bloomberg-names, or a file of names and counts."""
    pooling: Pooling | None = None
    """Pooling of a test's sentence into a vector; by default as in `LM.embed`."""
    layer: int | None = None
    """Layer whose output is read, from 0; by default the last one, after the final norm."""

    metrics: ClassVar[dict[str, str]] = {
        "seat": "association of words with groups in the model's space",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("embeddings",)
    file_options: ClassVar[tuple[str, ...]] = ("names",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_option("contexts", self.contexts, get_args(ContextSource))
        check_positive(self.contexts_per_word, "contexts_per_word")
        if self.pooling is not None:
            require_option("pooling", self.pooling, get_args(Pooling))
        if self.weat_test is not None:
            require_option("WEAT test", self.weat_test, tuple(WEAT_TESTS))
        if not self.uses_sentences and self.pooling is not None:
            raise LevelheadError(
                "pooling is of sentences", hint="give sentence_test or weat_test, too"
            )
        if self.sentence_test is not None and self.weat_test is not None:
            raise LevelheadError("two tests at once", hint="give sentence_test or weat_test")
        if self.uses_sentences:
            idle = ("lexicon", "targets", "corpus", "contexts", "contexts_per_word")
            groups = () if self.names is not None else ("groups",)
            forbid_unused_options(self, (*idle, *groups), "a published test")
        if self.names is not None and (self.weat_test is None or self.groups is None):
            raise LevelheadError(
                "names are compared with the attributes of a WEAT test, for two groups",
                hint="give weat_test=weat3 and, for example, groups=black+white",
            )

    @property
    def uses_sentences(self) -> bool:
        """Whether full sentences are compared, not words in contexts of a corpus."""
        return self.sentence_test is not None or self.weat_test is not None

    @property
    def compared_groups(self) -> tuple[str, ...]:
        """The groups of the attributes, or of the names; empty for a published test."""
        if self.names is not None:
            return self.groups or ()
        return () if self.uses_sentences else super().compared_groups

    @cached_property
    def name_targets(self) -> NameTargets | None:
        """The names with their probabilities, if names are the targets."""
        return None if self.names is None else NameTargets.read(self.names, self.groups or ())

    # -- items

    @cached_property
    def words(self) -> Words:
        """The four lists."""
        lexicon = self.resolved_lexicon
        first, second = self.compared_groups
        family = lexicon.targets(self.targets)
        if len(family.sides) != 2:
            raise LevelheadError(
                f"{self.targets} of {lexicon.name} has {len(family.sides)} sides",
                hint="SEAT compares two: choose another family of targets",
            )
        x, y = (dict.fromkeys(side.words) for side in family.sides)
        a, b = lexicon.words(first), lexicon.words(second)
        return Words({X: tuple(x), Y: tuple(y), A: a, B: b}, (first, second))

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the lexicon and of the corpus, or of the published test."""
        if self.sentence_test is not None:
            return dataset("seat").hashes(self.sentence_test)
        if self.weat_test is not None:
            frames = content_hash(make_weat_sentences(self.weat_test))
            names = {} if self.name_targets is None else {"names": self.name_targets.names.sha256}
            return dataset("weat").hashes() | {f"{self.weat_test} in sentences": frames} | names
        return {
            **self.lexicon_hash,
            **{
                f"corpus {i}: {name}": digest
                for i, (name, digest) in enumerate(self._contexts.sources, 1)
            },
        }

    @cached_property
    def _contexts(self) -> WordContexts:
        lists, (first, second) = self.words
        marks = {word: group for side, group in ((A, first), (B, second)) for word in lists[side]}
        # A target has the empty mark: its contexts must name no group at all.
        unmarked = {word: "" for side in (X, Y) for word in lists[side] if word not in marks}
        return find_contexts(unmarked | marks, self.corpus, quota=self.contexts_per_word)

    def specification_options(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """Alternative layers, choices and numbers of contexts, and poolings."""
        # Middle layers often carry more of a word's type than the last one, which predicts tokens.
        layers = {"layer": (None, lm.layout.layers // 2)}
        if self.uses_sentences:
            return layers | {"pooling": ("mean", "first", "last")}
        fewer = tuple(dict.fromkeys((self.contexts_per_word, max(1, self.contexts_per_word // 10))))
        return layers | {"contexts": get_args(ContextSource), "contexts_per_word": fewer}

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One embedding query for each context of each word, or for each sentence of a test."""
        if self.uses_sentences:
            return (self._sentence_queries(),)
        notes: Counter[str] = Counter()
        contexts_of_word = (
            match_contexts(
                self._contexts.by_word,
                (*self.words.by_side[A], *self.words.by_side[B]),
                self.resolved_lexicon,
                self.words.groups,
                quota=self.contexts_per_word,
                notes=notes,
            )
            if self.contexts == "matched"
            else dict(self._contexts.by_word)
        )
        items = []
        for side, words in self.words.by_side.items():
            for word in words:
                contexts = contexts_of_word.get(word, ())
                # A causal model sees no context before a text's first word: its vector would be
                # static.
                usable = tuple(
                    context
                    for context in contexts
                    if not (lm.is_causal and is_at_text_start(context))
                )
                notes[FIRST_WORDS] += len(contexts) - len(usable)
                name, queries = f"{side}: {word}", usable or missing_reason(word, contexts)
                items.append(MeasureItem.from_queries(name, queries, (name,), side))
        skip_notes = tuple(f"contexts left out: {n} ({reason})" for reason, n in notes.items() if n)
        n_contexts = sum(len(item.queries) for item in items)
        note = f"{n_contexts} contexts of {sum(bool(item.queries) for item in items)} words"
        return (
            QuerySet(
                "embed",
                FrozenDict({"pooling": None, **self._layer_setting}),
                ("words",),
                tuple(items),
                # A word is the mean over its contexts: Yang et al. 2025, footnote 3 ("static
                # embedding").
                average_answers=True,
                notes=(note, *skip_notes),
            ),
        )

    def _sentence_queries(self) -> QuerySet:
        """One item for each sentence; the word is the unit, because its sentences are dependent."""
        sentences = (
            load_seat_sentences(str(self.sentence_test))
            if self.weat_test is None
            else make_weat_sentences(self.weat_test)
        )
        items = tuple(
            MeasureItem(f"{side}: {text}", ((text,),), (f"{side}: {word}",), side)
            for side, role in zip((X, Y, A, B), SEAT_ROLES, strict=True)
            for text, word in dict(sentences[role]).items()
        )
        if self.name_targets is not None:
            items = self.name_targets.replace_targets(items)
        settings = FrozenDict({"pooling": self.pooling, **self._layer_setting})
        return QuerySet("embed", settings, ("words",), items, average_answers=True)

    @property
    def _layer_setting(self) -> dict[str, Json]:
        return {} if self.layer is None else {"layer": self.layer}

    def describe_direction(self) -> tuple[str, str]:
        """The direction in words, with the names of the lists and groups."""
        if self.sentence_test is not None:
            lists = load_seat_test(self.sentence_test)
            x, y, a, b = (f'"{lists[role][0]}"' for role in SEAT_ROLES)
        elif self.weat_test is not None:
            x, y, a, b = (f'"{name}"' for name, _ in WEAT_TESTS[self.weat_test])
            if self.names is not None:
                x, y = (f"names of {group}" for group in self.compared_groups)
        else:
            family = self.resolved_lexicon.targets(self.targets)
            x, y = (
                f"{family.name} {side.name}"
                if side.stereotyped_group is None
                else f"{family.name} stereotyped as {side.stereotyped_group}"
                for side in family.sides
            )
            a, b = (f"{group} words" for group in self.compared_groups)
        template = "{} sit closer to {} than to {}, compared with {}"
        return template.format(x, a, b, y), template.format(y, a, b, x)

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The effect size, the difference of means, the spread and the absolute value (Yang)."""
        seat = Metric(
            name="seat",
            equation="May et al. 2019, section 2; Yang et al. 2025, Eq. 3, signed",
            per_item_values=_associations,
            aggregate=group_effect_size,
            unit="standard deviations",
            # Within 2 for lists of equal length only.
            low=-math.inf,
            high=math.inf,
            direction="above 0: X is nearer to A than Y is, in units of the spread",
            above="X sits closer to A than Y does",
            below="Y sits closer to A than X does",
            comparability_key="seat, same words",
            # The permutation test of Caliskan et al. 2017: target words permuted between X and Y.
            null="permute_units",
            # An effect size is scale-free: it can fall while the association grows.
            must_agree_with="difference of means",
            closed_form_interval=_word_short_list_interval,
        )
        difference = replace(
            seat,
            must_agree_with=None,
            name="difference of means",
            aggregate=_difference,
            unit="cosine",
            direction="above 0: X is nearer to A than Y is",
            comparability_key="seat difference, same words",
            closed_form_interval=None,
        )
        spread = replace(
            seat,
            name="spread",
            aggregate=_spread,
            unit="cosine",
            low=0.0,
            direction="larger: the words' associations differ more from each other",
            comparability_key="seat spread, same words",
            parity=None,
            null=None,
            closed_form_interval=None,
        )
        unsigned = replace(
            seat,
            name="|seat|",
            equation="Yang et al. 2025, Eq. 3",
            aggregate=absolute_value(group_effect_size),
            low=0.0,
            direction="larger: X and Y are joined with different attributes, whichever way",
            comparability_key="|seat|, same words",
            parity=None,
            # The absolute value loses the direction: only large values contradict the null.
            alternative="greater",
            method="expanded",
            closed_form_interval=None,
        )
        metrics = (seat, difference, spread, unsigned)
        return metrics if self.name_targets is None else self.name_targets.adapt_metrics(metrics)

    def is_sampled(self, item: MeasureItem) -> bool:
        """Target words are sampled; attributes define the measure and are fixed."""
        return item.group in (X, Y)

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Target words are sampled, within X and within Y."""
        return self.select_sampled(responses).design(grouped=True)

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck:
        """Check that the embeddings of the two groups' attributes are separated."""
        return make_group_separation_check((A, B))

    def leave_block_out_values(self, responses: Responses, metric: Metric) -> list[float]:
        """Values of a metric without each of the twenty blocks of contexts.

        Their full variance is added to the variance between words, which already includes the part
        of the target words: the interval is too wide rather than too narrow.
        """
        if self.name_targets is not None:
            return self.name_targets.drawn_values(responses, metric)
        if self.uses_sentences:
            return []
        return self._values_without_blocks(
            responses, metric, np.ones(len(responses.owner), dtype=np.bool_)
        )

    def _values_without_blocks(
        self, responses: Responses, metric: Metric, mask: ContextMask
    ) -> list[float]:
        block = np.array([block_number(query) for query in responses.queries])
        full_design = self.design(responses, metric)
        return [
            float(
                metric.value(
                    average_contexts(responses, mask & (block != left_out_block)), full_design
                )
            )
            for left_out_block in range(N_BLOCKS)
        ]

    def attribute_pairs(self, responses: Responses) -> Sequence[tuple[str, str]]:
        """Pairs of attribute words from the lexicon; a published test has lists without pairs."""
        if self.uses_sentences:
            return ()
        first, second = self.words.groups
        words = [(term.word(first), term.word(second)) for term in self.resolved_lexicon.terms]
        return [(f"{A}: {a}", f"{B}: {b}") for a, b in words if a is not None and b is not None]

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """The value as a function of the number of contexts for each word."""
        responses = response_sets[0]
        if self.name_targets is not None:
            return Extras(notes=(self.name_targets.note,))
        if self.uses_sentences:
            return Extras()
        order = context_order(responses.owner)
        curve: list[Estimate] = []
        for count in CONTEXT_COUNTS:
            # Beyond the longest list, more contexts would repeat the same value.
            if count <= order.max() + 1:
                # The first contexts of every word, so that each point of the curve adds to the one
                # before.
                fewer = average_contexts(responses, order < count)
                curve.append(
                    estimate(
                        inference,
                        self.primary_metric,
                        self.primary_metric.per_item_values(fewer),
                        self.design(fewer, self.primary_metric),
                        name=f"seat at {count} context{'s' * (count > 1)} a word",
                        extra_variance=jackknife_variance(
                            self._values_without_blocks(
                                responses, self.primary_metric, order < count
                            )
                        ),
                        test=False,
                    )
                )
        n_single = sum(n < 2 for n in Counter(responses.owner).values())
        note = f"{n_single} words have one context: what its choice does is not in the interval"
        return Extras(tuple(curve), (note,) if n_single else ())


def _associations(responses: Responses) -> torch.Tensor:
    targets = torch.tensor([item.group in (X, Y) for item in responses.items])
    return associations(
        responses.values[targets], responses.group_values(A), responses.group_values(B)
    )


def _difference(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    x, y = split_groups(values, resample)
    require_spread(torch.cat([x, y]))
    return x.mean() - y.mean()


def _spread(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    require_spread(take_resample(values, resample))
    return take_resample(values, resample).std(correction=1)


def _word_short_list_interval(
    values: torch.Tensor, design: Design, level: float
) -> Interval | None:
    """Closed-form interval for fewer than 30 words a side, of the words' means."""
    (words,) = design.factors
    unit = torch.from_numpy(words.unit_of_item)
    means = torch.zeros(words.n_units, dtype=values.dtype).index_add(0, unit, values)
    means /= unit.bincount()
    x, y = (means[torch.from_numpy(stratum)] for stratum in words.strata)
    return short_list_interval(x, y, values, level)
