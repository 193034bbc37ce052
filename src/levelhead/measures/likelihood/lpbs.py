"""LPBS: does a target word change the group that a masked model predicts in a sentence?

The log-probability bias score of Kurita et al. 2019, section 2, compares the probability of a
group's words in "[MASK] likes maths" with their probability if the target is masked as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, cast, final, get_args

import torch

from levelhead.core.errors import (
    LevelheadError,
    NotMeasurableError,
    UnknownNameError,
    require_option,
)
from levelhead.core.frozen import FrozenDict
from levelhead.data.catalog.datasets import dataset
from levelhead.data.lexicons.lexicon import TargetFamily
from levelhead.data.lexicons.published import GroupTemplate, load_kurita
from levelhead.measures.base import Measure, RequiredHead
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.metric import Metric, short_list_interval
from levelhead.measures.options import hash_items
from levelhead.measures.reductions import (
    association_effect_size,
    require_spread,
    split_groups,
    take_resample,
)
from levelhead.models.inputs.tokenizer import MASK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Interval
    from levelhead.measures.items import QueryArgs
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Resample

Pool = Literal["rows", "words"]
GROUP, TARGET = "GGG", "XXX"
PAPER = "Kurita et al. 2019, section 2"
COMPAT = "with the published code's prior, read at the token before the hidden target"


@final
@dataclass(frozen=True)
class Lpbs(Measure):
    """The effect size of log-probability bias scores between two lists of target words.

    A word's score in a template is log p(first group's words) - log p(second group's words), less
    the same with the target masked. A target of several tokens is replaced by as many masks.
    """

    test: str = "career_family"
    """Name of a test of Kurita et al.: career_family, math_arts or science_arts."""
    targets: TargetFamily | None = None
    """User's two lists of target words, instead of a published test."""
    templates: tuple[GroupTemplate, ...] | None = None
    """User's sentences with GGG and XXX, each with its groups' words."""
    groups: tuple[str, str] | None = None
    """Names of the two groups; by default those of the first template, in its order."""
    pool: Pool = "rows"
    """Values of the spread: words in all templates ("rows"), or means of words ("words")."""
    kurita_compat: bool = False
    """Whether to repeat the error in the published code, which its published values contain."""

    metrics: ClassVar[dict[str, str]] = {
        "lpbs": "what a word does to the group that a masked model puts before it",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("masked",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_option("pool", self.pool, get_args(Pool))

    def specification_options(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """Alternatives: each template alone, and the spread of rows or of words."""
        single_templates = tuple((template,) for template in self.resolved_templates)
        return {"templates": (self.templates, *single_templates), "pool": get_args(Pool)}

    # -- items

    @cached_property
    def resolved_templates(self) -> tuple[GroupTemplate, ...]:
        """The templates."""
        templates = load_kurita()[0] if self.templates is None else self.templates
        if not templates:
            raise NotMeasurableError(
                "there is nothing to query: no template", hint="give at least one"
            )
        for template in templates:
            if template.text.count(GROUP) != 1 or template.text.count(TARGET) != 1:
                raise LevelheadError(
                    f"{template.text!r} does not hold {GROUP} and {TARGET} once each",
                    hint=f"write for example '{GROUP} likes {TARGET}.'",
                )
            # The published code reads its prior at the token before the masked target, which is
            # meaningful only if the group comes first.
            if self.kurita_compat and template.text.index(GROUP) > template.text.index(TARGET):
                raise LevelheadError(
                    f"{template.text!r} has its target first",
                    hint="kurita_compat is defined for templates with the group first",
                )
        return templates

    @cached_property
    def resolved_targets(self) -> TargetFamily:
        """The two lists of words."""
        targets = self.targets
        if targets is None:
            targets_by_name = {family.name: family for family in load_kurita()[1]}
            if self.test not in targets_by_name:
                raise UnknownNameError("test of Kurita et al.", self.test, targets_by_name)
            targets = targets_by_name[self.test]
        if len(targets.sides) != 2:
            raise LevelheadError(
                f"{targets.name} has {len(targets.sides)} lists", hint="LPBS compares two"
            )
        return targets

    @property
    def compared_groups(self) -> tuple[str, str]:
        """The two compared groups; scores are the first less the second."""
        names = tuple(name for name, _ in self.resolved_templates[0].groups)
        groups = self.groups or names
        for name in groups:
            if name not in names:
                raise UnknownNameError("group", name, names)
        if len(groups) != 2 or groups[0] == groups[1]:
            raise LevelheadError(f"{len(groups)} groups where two are compared", hint="name two")
        return groups[0], groups[1]

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the published file, and of the user's targets and templates."""
        published = dataset("kurita-words").hashes()
        user_hashes: dict[str, str] = {}
        if self.targets is not None:
            user_hashes["targets"] = hash_items(
                [(side.name, side.words) for side in self.targets.sides]
            )
        if self.templates is not None:
            user_hashes["templates"] = hash_items(self.templates)
        return user_hashes if len(user_hashes) == 2 else published | user_hashes

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Queries of each template with each target, visible and masked."""
        words, columns, unknown = self._verbalizer(lm)
        items = []
        for side in self.resolved_targets.sides:
            for word in dict.fromkeys(side.words):
                name = f"{side.name}: {word}"
                queries = self._skip_reason(lm, word) or tuple(self._build_queries(word))
                items.append(MeasureItem.from_queries(name, queries, (name,), side.name))
        settings: dict[str, object] = {"words": words}
        if self.kurita_compat:
            # The published code reads the prior one token too early, since its index omits [CLS].
            # Its values (1.1255, .8495 and .9572) contain this.
            settings["prior"] = "before hidden"
        lists = [side.name for side in self.resolved_targets.sides]
        notes = [f"{lists[0]} against {lists[1]}; {' less '.join(self.compared_groups)}"]
        notes += [f"{', '.join(unknown)}: unknown to the model, left out"] if unknown else []
        return (
            QuerySet(
                "fill",
                FrozenDict(settings),
                ("words",),
                tuple(items),
                metadata=FrozenDict({"columns": columns}),
                notes=tuple(notes),
            ),
        )

    def blank_words(self, lm: LM) -> Sequence[str]:
        """The words of both groups that the model knows."""
        return self._verbalizer(lm)[0]

    def _verbalizer(self, lm: LM) -> tuple[tuple[str, ...], tuple[object, ...], tuple[str, ...]]:
        """The group words, the columns of both groups in every template, and the unknown words."""
        number: dict[str, int] = {}
        columns, unknown = [], []
        for template in self.resolved_templates:
            words_of_group = dict(template.groups)
            group_columns = []
            for group in self.compared_groups:
                known_words = [
                    word for word in words_of_group.get(group, ()) if lm.token_ids_of_word(word)
                ]
                unknown += [
                    word for word in words_of_group.get(group, ()) if word not in known_words
                ]
                if not known_words:
                    raise NotMeasurableError(
                        f"the model knows no word of {group!r} in {template.text!r}",
                        hint="give words that are in its vocabulary",
                    )
                group_columns.append(
                    # Templates share words: each word is scored once and indexed from every
                    # template.
                    tuple(number.setdefault(word, len(number)) for word in known_words)
                )
            columns.append(tuple(group_columns))
        return tuple(number), tuple(columns), tuple(dict.fromkeys(unknown))

    def _skip_reason(self, lm: LM, word: str) -> str:
        pieces = len(lm.token_ids_of_word(word))
        if not pieces:
            return "the model does not know it"
        # The published code masks one token: such words have no score in the published values.
        if self.kurita_compat and pieces > 1:
            return "of several tokens, which the published code leaves out"
        return ""

    def _build_queries(self, word: str) -> Sequence[QueryArgs]:
        visible: list[QueryArgs] = []
        prior: list[QueryArgs] = []
        for template in self.resolved_templates:
            text = template.text.replace(GROUP, MASK)
            start = text.index(TARGET)
            text = text.replace(TARGET, word)
            visible.append((text, None))
            prior.append((text, (start, start + len(word))))
        # `lpbs_scores` finds a template's prior at this template's index plus their number.
        return [*visible, *prior]

    def describe_direction(self) -> tuple[str, str]:
        """The direction in words, with the names of lists and groups."""
        first, second = (f"words of {side.name}" for side in self.resolved_targets.sides)
        group, other = self.compared_groups
        template = "{} rather pull words of {} than of {}, compared with {}"
        return template.format(first, group, other, second), template.format(
            second, group, other, first
        )

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The effect size, and what it is computed from: difference of means, level and spread."""
        effect = Metric(
            name="lpbs",
            equation=f"{PAPER}, {COMPAT}" if self.kurita_compat else PAPER,
            per_item_values=lpbs_scores,
            aggregate=self._effect,
            unit="standard deviations",
            low=-float("inf"),
            high=float("inf"),
            direction="above 0: the first list's words rather pull the first group's words than "
            "the second list's do",
            above="the first list's words rather pull the first group's words than the second "
            "list's do",
            below="the second list's words rather pull the first group's words than the first "
            "list's do",
            comparability_key="lpbs, same words and templates",
            null="permute_units",
            # An effect size is scale-free: it can fall while the difference of the means grows.
            must_agree_with="difference of means",
            closed_form_interval=self._word_short_list_interval,
        )
        difference = replace(
            effect,
            name="difference of means",
            aggregate=_difference,
            unit="nats",
            comparability_key="lpbs difference, same words and templates",
            must_agree_with=None,
            closed_form_interval=None,
        )
        level = replace(
            difference,
            name="mean score",
            aggregate=lambda values, resample: take_resample(values, resample)[:, 0].mean(),
            direction="above 0: targets of both lists rather pull the first group's words",
            above="targets of both lists rather pull the first group's words",
            below="targets of both lists rather pull the second group's words",
            comparability_key="lpbs mean, same words and templates",
            null=None,
        )
        spread = replace(
            level,
            name="spread",
            aggregate=self._spread,
            low=0.0,
            direction="larger: scores differ more from each other",
            comparability_key="lpbs spread, same words and templates",
            parity=None,
        )
        return effect, difference, level, spread

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Words are sampled within each list: one word's templates are not independent."""
        return responses.design(grouped=True)

    def _rows(self, values: torch.Tensor) -> torch.Tensor:
        return values[:, 1:].flatten() if self.pool == "rows" else values[:, 0]

    def _effect(self, values: torch.Tensor, resample: Resample) -> torch.Tensor:
        x, y = split_groups(values, resample)
        return association_effect_size(self._rows(x), self._rows(y))

    def _spread(self, values: torch.Tensor, resample: Resample) -> torch.Tensor:
        rows = self._rows(take_resample(values, resample))
        require_spread(rows)
        return rows.std(correction=1)

    def _word_short_list_interval(
        self, values: torch.Tensor, design: Design, level: float
    ) -> Interval | None:
        """Closed-form interval for fewer than 30 words a side."""
        x, y = split_groups(values, design.full_sample)
        return short_list_interval(x[:, 0], y[:, 0], self._rows(torch.cat([x, y])), level)


def lpbs_scores(responses: Responses) -> torch.Tensor:
    """`[words, 1 + templates]`: a word's mean score, then its score in each template."""
    columns = cast("tuple[tuple[tuple[int, ...], ...], ...]", responses.metadata["columns"])
    count = len(columns)
    template_scores = []
    for template, (first, second) in enumerate(columns):
        visible, prior = (
            # Sums of probabilities in log space: rare words underflow otherwise.
            responses.values[:, index, list(first)].logsumexp(1)
            - responses.values[:, index, list(second)].logsumexp(1)
            for index in (template, count + template)
        )
        template_scores.append(visible - prior)
    stacked = torch.stack(template_scores, dim=1)
    return torch.cat([stacked.mean(1, keepdim=True), stacked], dim=1)


def _difference(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    x, y = split_groups(values, resample)
    # Without spread all scores are equal, and a difference of 0 would read as parity.
    require_spread(torch.cat([x, y])[:, 0])
    return x[:, 0].mean() - y[:, 0].mean()
