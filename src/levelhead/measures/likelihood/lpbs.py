"""LPBS: does a word change which group a masked model puts into a sentence?

The log-probability bias score of Kurita et al. 2019, section 2: the probability of a group's words
in "[MASK] likes maths", set against their probability where the target is hidden, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, cast, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.frozen import Frozen
from levelhead.data.catalog.datasets import dataset
from levelhead.data.lexicons.lexicon import Targets
from levelhead.data.lexicons.published import GroupTemplate, kurita
from levelhead.measures.base import Measure, Need, chosen, items_hash
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect, short_lists
from levelhead.measures.reductions import drawn, effect_size, refuse_no_spread, sides
from levelhead.models.inputs.tokenizer import MASK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Interval
    from levelhead.measures.items import Ask
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Draw

Pool = Literal["rows", "words"]
GROUP, TARGET = "GGG", "XXX"
PAPER = "Kurita et al. 2019, section 2"
COMPAT = "with the published code's prior, read at the token before the hidden target"


@final
@dataclass(frozen=True)
class Lpbs(Measure):
    """The effect size of log-probability bias scores between two lists of target words.

    A word's score in a template is log p(first group's words) - log p(second group's words), less
    the same with the target hidden. A target of several tokens is hidden by as many masks.
    """

    test: str = "career_family"
    """A test of Kurita et al.: career_family, math_arts, science_arts."""
    targets: Targets | None = None
    """Your own two lists of target words."""
    templates: tuple[GroupTemplate, ...] | None = None
    """Your own sentences with GGG and XXX, each with its groups' words."""
    groups: tuple[str, str] | None = None
    """By default those of the first template, in its order."""
    pool: Pool = "rows"
    """The spread is of all words in all templates ("rows"), or of words' means ("words")."""
    kurita_compat: bool = False
    """Repeat the published code's mistake: its numbers were computed so."""

    metrics: ClassVar[dict[str, str]] = {
        "lpbs": "what a word does to the group that a masked model puts before it",
    }
    needs: ClassVar[tuple[Need, ...]] = ("masked",)

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen(self.pool, get_args(Pool), "pool")

    def varied(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """Each template alone; the spread of rows or of words."""
        alone = tuple((template,) for template in self.own_templates)
        return {"templates": (self.templates, *alone), "pool": get_args(Pool)}

    # -- items

    @cached_property
    def own_templates(self) -> tuple[GroupTemplate, ...]:
        """The sentences."""
        found = kurita()[0] if self.templates is None else self.templates
        if not found:
            raise NotMeasurable("there is nothing to ask: no template", mend="give at least one")
        for template in found:
            if template.text.count(GROUP) != 1 or template.text.count(TARGET) != 1:
                raise LevelheadError(
                    f"{template.text!r} does not hold {GROUP} and {TARGET} once each",
                    mend=f"write for example '{GROUP} likes {TARGET}.'",
                )
            if self.kurita_compat and template.text.index(GROUP) > template.text.index(TARGET):
                raise LevelheadError(
                    f"{template.text!r} has its target first",
                    mend="kurita_compat is defined for templates with the group first",
                )
        return found

    @cached_property
    def own_targets(self) -> Targets:
        """The two lists of words."""
        found = self.targets
        if found is None:
            every = {targets.name: targets for targets in kurita()[1]}
            if self.test not in every:
                raise UnknownName("test of Kurita et al.", self.test, every)
            found = every[self.test]
        if len(found.sides) != 2:
            raise LevelheadError(
                f"{found.name} has {len(found.sides)} lists", mend="LPBS compares two"
            )
        return found

    @property
    def compared(self) -> tuple[str, str]:
        """The two groups, the first less the second."""
        names = tuple(name for name, _ in self.own_templates[0].groups)
        found = self.groups or names
        for name in found:
            if name not in names:
                raise UnknownName("group", name, names)
        if len(found) != 2 or found[0] == found[1]:
            raise LevelheadError(f"{len(found)} groups where two are compared", mend="name two")
        return found[0], found[1]

    @property
    def data(self) -> Mapping[str, str]:
        """The published file, or what was given."""
        (file,) = dataset("kurita-words").files
        published = {f"kurita-words/{file.path}": file.sha256}
        own: dict[str, str] = {}
        if self.targets is not None:
            own["targets"] = items_hash([(side.name, side.words) for side in self.targets.sides])
        if self.templates is not None:
            own["templates"] = items_hash(self.templates)
        return own if len(own) == 2 else published | own

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """Every template with every target, and with every target hidden."""
        words, columns, lost = self._words(lm)
        items = []
        for side in self.own_targets.sides:
            for word in dict.fromkeys(side.words):
                cannot = self._cannot(lm, word)
                asks = () if cannot else tuple(self._asks(word))
                name = f"{side.name}: {word}"
                items.append(Item(name, asks, (name,), side.name, cannot=cannot))
        settings: dict[str, object] = {"words": words}
        if self.kurita_compat:
            settings["prior"] = "before hidden"
        lists = [side.name for side in self.own_targets.sides]
        notes = [f"{lists[0]} against {lists[1]}; {' less '.join(self.compared)}"]
        notes += [f"{', '.join(lost)}: unknown to the model, left out"] if lost else []
        return (
            Asked(
                "fill",
                Frozen(settings),
                ("words",),
                tuple(items),
                facts=Frozen({"columns": columns}),
                notes=tuple(notes),
            ),
        )

    def blank_words(self, lm: LM) -> Sequence[str]:
        """The words of both groups that the model knows."""
        return self._words(lm)[0]

    def _words(self, lm: LM) -> tuple[tuple[str, ...], tuple[object, ...], tuple[str, ...]]:
        """All groups' words, the columns of either group in every template, and words unknown."""
        number: dict[str, int] = {}
        columns, lost = [], []
        for template in self.own_templates:
            of = dict(template.groups)
            own = []
            for group in self.compared:
                known = [word for word in of.get(group, ()) if lm.pieces(word)]
                lost += [word for word in of.get(group, ()) if word not in known]
                if not known:
                    raise NotMeasurable(
                        f"the model knows no word of {group!r} in {template.text!r}",
                        mend="give words that are in its vocabulary",
                    )
                own.append(tuple(number.setdefault(word, len(number)) for word in known))
            columns.append(tuple(own))
        return tuple(number), tuple(columns), tuple(dict.fromkeys(lost))

    def _cannot(self, lm: LM, word: str) -> str:
        pieces = len(lm.pieces(word))
        if not pieces:
            return "the model does not know it"
        if self.kurita_compat and pieces > 1:
            return "of several tokens, which the published code leaves out"
        return ""

    def _asks(self, word: str) -> Sequence[Ask]:
        shown: list[Ask] = []
        prior: list[Ask] = []
        for template in self.own_templates:
            text = template.text.replace(GROUP, MASK)
            start = text.index(TARGET)
            text = text.replace(TARGET, word)
            shown.append((text, None))
            prior.append((text, (start, start + len(word))))
        return [*shown, *prior]

    def worded(self) -> tuple[str, str]:
        """With the names of lists and groups."""
        first, second = (f"words of {side.name}" for side in self.own_targets.sides)
        group, other = self.compared
        said = "{} rather pull words of {} than of {}, compared with {}"
        return said.format(first, group, other, second), said.format(second, group, other, first)

    # -- formulas

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The effect size; what it hides: the difference of means, the level, the spread."""
        effect = Aspect(
            name="lpbs",
            equation=f"{PAPER}, {COMPAT}" if self.kurita_compat else PAPER,
            per_item=scores,
            over=self._effect,
            unit="standard deviations",
            low=-float("inf"),
            high=float("inf"),
            direction="above 0: the first list's words rather pull the first group's words than "
            "the second list's do",
            above="the first list's words rather pull the first group's words than the second "
            "list's do",
            below="the second list's words rather pull the first group's words than the first "
            "list's do",
            comparable="lpbs, same words and templates",
            null="deal",
            confirmed_by="difference of means",
            closed=self._short_lists,
        )
        difference = replace(
            effect,
            name="difference of means",
            over=_difference,
            unit="nats",
            comparable="lpbs difference, same words and templates",
            confirmed_by=None,
            closed=None,
        )
        level = replace(
            difference,
            name="mean score",
            over=lambda values, draw: drawn(values, draw)[:, 0].mean(),
            direction="above 0: targets of both lists rather pull the first group's words",
            above="targets of both lists rather pull the first group's words",
            below="targets of both lists rather pull the second group's words",
            comparable="lpbs mean, same words and templates",
            null=None,
        )
        spread = replace(
            level,
            name="spread",
            over=self._spread,
            low=0.0,
            direction="larger: scores differ more from each other",
            comparable="lpbs spread, same words and templates",
            parity=None,
        )
        return effect, difference, level, spread

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """The words of either list: templates of one word are not independent of each other."""
        return readouts.design(grouped=True)

    def _rows(self, values: torch.Tensor) -> torch.Tensor:
        return values[:, 1:].flatten() if self.pool == "rows" else values[:, 0]

    def _effect(self, values: torch.Tensor, draw: Draw) -> torch.Tensor:
        x, y = sides(values, draw)
        return effect_size(self._rows(x), self._rows(y))

    def _spread(self, values: torch.Tensor, draw: Draw) -> torch.Tensor:
        rows = self._rows(drawn(values, draw))
        refuse_no_spread(rows)
        return rows.std(correction=1)

    def _short_lists(self, values: torch.Tensor, design: Design, level: float) -> Interval | None:
        """By formula for fewer than 30 words a side."""
        x, y = sides(values, design.whole)
        return short_lists(x[:, 0], y[:, 0], self._rows(torch.cat([x, y])), level)


def scores(readouts: Readouts) -> torch.Tensor:
    """`[words, 1 + templates]`: a word's mean score, then its score in each template."""
    columns = cast("tuple[tuple[tuple[int, ...], ...], ...]", readouts.facts["columns"])
    count = len(columns)
    found = []
    for template, (first, second) in enumerate(columns):
        shown, prior = (
            readouts.values[:, place, list(first)].logsumexp(1)
            - readouts.values[:, place, list(second)].logsumexp(1)
            for place in (template, count + template)
        )
        found.append(shown - prior)
    every = torch.stack(found, dim=1)
    return torch.cat([every.mean(1, keepdim=True), every], dim=1)


def _difference(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    x, y = sides(values, draw)
    refuse_no_spread(torch.cat([x, y])[:, 0])
    return x[:, 0].mean() - y[:, 0].mean()
