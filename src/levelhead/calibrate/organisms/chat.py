"""Chat organisms: causal models with a chat template whose decisions follow a known rule.

The weights are constructed, not trained, so that the effect of a group is exact: every log-odds
measure of decisions has the dose as its expected value. The model has one layer of GPT-2. Each of
its heads looks up one kind of word, wherever it stands in the request: words of a group, facts,
words that turn a question into its opposite. What may follow depends on the last word alone: an
option after "Answer:", else the next word of a fixed answer.
"""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import torch

from levelhead.calibrate.organisms import chat_items as items
from levelhead.calibrate.organisms import construction
from levelhead.calibrate.organisms.construction import (
    CONSTANT,
    CONSTANT_SIZE,
    HEAD_WIDTH,
    LOOK_UP,
    PLACE,
    GptConstruction,
)
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import require_option
from levelhead.core.files import file_hash
from levelhead.core.versions import installed_versions
from levelhead.data.prompts.associations import CONTROL_PEOPLE, CONTROL_TESTS
from levelhead.data.prompts.decisions import load_scenarios
from levelhead.measures.decisions import (
    bbq,
    callback,
    implicit_association,
    relative_decision,
    scenario_measure,
    unqover,
    winobias,
)
from levelhead.models.export.save import build_once
from levelhead.models.loading.load import load, model_cache_folder
from levelhead.models.loading.quiet import quiet
from levelhead.models.training.from_scratch import SEP, SPECIAL, make_word_tokenizer
from levelhead.models.training.untrained import make_untrained_gpt2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

ChatRule = Literal[
    "decision", "late", "late length", "refusals", "failures", "always refuses", "always A", "order"
]
"""What depends on the group of a person: decisions; a word, or the length, late in a text; how
often a text is a refusal, or empty. The last three give one answer to every request: a refusal, "A"
or the option that is listed last. Below it they have the rule of "decision"."""
CONSTANT_RULES: tuple[ChatRule, ...] = ("always refuses", "always A", "order")
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant\n{% endif %}"
)
HEADS = 12
WIDTH = HEADS * HEAD_WIDTH
COPY_HEADS = 4
"""Heads that look up which words the request names how often, in the last places."""
INNER, POSITIONS = 16, 256
LAST, LAST_LOOK_UP = 15.0, 2e4
"""Where the last of these words is looked up: score of a place, and of such a word."""
ALLOWED, FORCED = 30.0, 60.0
"""Logit of words that may follow, and of the word that always follows."""
FACT, COPY, CONTROL, NAMED = 4.0, 8.0, 4.0, 12.0
"""Logits: of a fact; of a word if no other is named; of a group to which a word belongs; of a group
if no other is named. The last exceeds that of a word, which negated questions do not turn."""
NOISE, PREFERENCE = 0.4, 1.5
"""Standard deviations in nats: of an item's own effect, which a measure's interval is about; and of
the preference for one of two people, which cancels in measures of bias, but lets a model err."""
ARTICLE_BONUS, UNKNOWN_BONUS = 3.0, 0.2
"""Logits of "the", which begins the name of a person, and of "unknown": where the context does not
decide, either is about equally likely."""
RARE = -1.0
"""Logit of a refusal or an empty answer against an answer, where its rate depends on the group."""
OPENING, CLOSING = ("well", "my", "answer", "about"), ("is", "simply")
"""Words of an answer before its topic, and before the word that may depend on the group."""
TAIL = ("today", "also", "tomorrow")
REFUSAL = ("i", "cannot", "help", "with", "that")
LETTER = "a"
OPTION_MARK, TURN = ":", "assistant"
"""The word after which options are scored, and the one after which texts begin."""


def _last_words(texts: Sequence[str]) -> tuple[str, ...]:
    # Of a phrase, one word, so that every topic has the same weight.
    return tuple(text.split()[-1] for text in texts)


CONTROL_SIDES = tuple(
    (
        test.first_group[0],
        test.second_group[0],
        _last_words(test.first_words),
        _last_words(test.second_words),
    )
    for test in (*CONTROL_TESTS, *CONTROL_PEOPLE)
)
TOPIC_MENTIONS = 3
"""Topics named in a relative decision: the one in question twice, the other once. Their mean is a
third of the effect of the one in question."""
PUNCTUATION = (*".,?;'\"-/()", '".', '"?', OPTION_MARK)
"""Signs, and those that follow each other without a space: they are one token."""


@final
@dataclass(frozen=True)
class ChatOrganism:
    """A chat model by its rule and dose; `grow` constructs it, `load_lm` loads it."""

    rule: ChatRule = "decision"
    dose: float = 1.0
    """Effect of the group in nats: the expected value of every log-odds measure of decisions; of
    texts, the log-odds between the groups at temperature 1."""
    seed: int = 0
    """Seed of the items' own effects, and of the texts."""

    def __post_init__(self) -> None:
        require_option("rule", self.rule, get_args(ChatRule))

    @property
    def build_inputs(self) -> dict[str, Any]:
        """Everything that the weights depend on; its hash names the folder in the cache."""
        return {
            "organism": asdict(self),
            "sources": [file_hash(str(module.__file__)) for module in (items, construction)]
            + [file_hash(__file__)],
            "vocabulary": content_hash(_Words().vocabulary),
            "versions": dict(installed_versions()),
        }

    def grow(self) -> Path:
        """Return the folder with the checkpoint; construct it if it is not in the cache."""
        folder = model_cache_folder() / "organisms" / content_hash(self.build_inputs)[:32]
        return build_once(folder, self._write_checkpoint)

    def load_lm(self) -> LM:
        """Load the model, for measuring and editing."""
        return load(self.grow())

    def measures(self) -> dict[str, Measure]:
        """The measures of decisions and of generated texts, on items that the model knows."""
        return items.list_decision_measures() | items.list_generation_measures(self.seed)

    def _write_checkpoint(self, folder: Path) -> None:
        words = _Words()
        tokenizer = make_word_tokenizer(words.vocabulary, causal=True)
        tokenizer.chat_template = TEMPLATE
        ids = tokenizer.get_vocab()
        with quiet(), torch.no_grad():
            model = make_untrained_gpt2(
                len(ids), width=WIDTH, heads=HEADS, inner=INNER, positions=POSITIONS
            )
            _Construction(self, words, ids, model).write()
            model.eval().save_pretrained(folder)
            tokenizer.save_pretrained(folder)


def make_chat_organism(
    rule: ChatRule = "decision", dose: float = 1.0, *, seed: int = 0
) -> ChatOrganism:
    """Create a chat organism.

    Args:
        rule: what depends on the group of a person, or the answer that it always gives.
        dose: effect of the group in nats; 0: none.
        seed: random seed of the items' own effects and of the texts.
    """
    return ChatOrganism(rule, dose, seed)


@final
@dataclass(frozen=True)
class _Words:
    """The words of all requests, and what the model is to know about them."""

    scenarios: tuple[frozenset[str], ...] = field(
        default_factory=lambda: tuple(
            _split(row.text, row.person, row.question) for row in load_scenarios()
        )
    )

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word type."""
        rows = load_scenarios()
        sources = [
            *(text for row in rows for text in row),
            *(name.name for name in items.list_names()),
            *callback.JOBS,
            *(callback.REQUEST, callback.PRO, callback.CON, *callback.DECISIONS),
            *(
                scenario_measure.REQUEST,
                bbq.REQUEST,
                winobias.REQUEST,
                implicit_association.REQUEST,
            ),
            *(relative_decision.REQUEST, unqover.REQUEST),
            *(
                text
                for test in (*CONTROL_TESTS, *CONTROL_PEOPLE, *items.list_planted_tests())
                for part in test
                for text in part
            ),
            *(text for row in items.list_twins() for text in (*row.texts, *row.people)),
            *(
                text
                for row in items.list_bbq_questions()
                for text in (row.context, row.question, *row.answers)
            ),
            *(
                text
                for row in items.list_unqover_questions()
                for text in row
                if isinstance(text, str)
            ),
            *items.GENERATION_REQUESTS,
            *items.TOPICS,
            *("a an the A B C yes no this", "Answer:", "system user", TURN),
            *(*OPENING, *CLOSING, *items.LATE_WORDS, *TAIL, *REFUSAL),
        ]
        return tuple(sorted(_split(*sources) | set(PUNCTUATION)))

    @property
    def group_sides(self) -> dict[str, float]:
        """+1 or -1 for a word of the first or second group."""
        marks = {
            word: side
            for slot in ("pronoun", "person", "kin")
            for words, side in zip(items.LANGUAGE.marks[slot], (1.0, -1.0), strict=True)
            for word in words
        }
        names = {row.name: 1.0 - 2.0 * items.GROUPS.index(row.group) for row in items.list_names()}
        return marks | {name.lower(): side for name, side in names.items()}

    @property
    def facts(self) -> dict[str, float]:
        """+1 or -1 for words that only facts for or against somebody contain."""
        rows = load_scenarios()
        pro = _split(*(row.pro for row in rows), callback.PRO)
        con = _split(*(row.con for row in rows), callback.CON)
        shared = (pro & con) | _split(
            *(text for row in rows for text in (row.text, row.person, row.question, row.refusal)),
            *(callback.REQUEST, *callback.DECISIONS, *callback.JOBS, scenario_measure.REQUEST),
        )
        return dict.fromkeys(pro - shared, 1.0) | dict.fromkeys(con - shared, -1.0)

    @property
    def opposites(self) -> frozenset[str]:
        """Words that only opposite questions contain."""
        rows = load_scenarios()
        usual = _split(
            *(text for row in rows for text in (row.text, row.question, row.pro, row.con)),
            *(callback.REQUEST, callback.DECISIONS[0], callback.PRO, callback.CON),
        )
        return _split(*(row.refusal for row in rows), callback.DECISIONS[1]) - usual

    @property
    def own_words(self) -> tuple[frozenset[str], ...]:
        """Words of each scenario that no other text contains."""
        rest = _split(
            *(text for row in load_scenarios() for text in (row.refusal, row.pro, row.con)),
            *(callback.REQUEST, *callback.DECISIONS, *callback.JOBS, callback.PRO, callback.CON),
            scenario_measure.REQUEST,
            *(bbq.REQUEST, winobias.REQUEST, implicit_association.REQUEST),
            *items.GENERATION_REQUESTS,
        )
        return tuple(
            words - rest - frozenset().union(*self.scenarios[:i], *self.scenarios[i + 1 :])
            for i, words in enumerate(self.scenarios)
        )

    @property
    def people(self) -> dict[str, float]:
        """The sides of words that are answers of BBQ and of WinoBias."""
        pairs = (*items.list_people_pairs(), *zip(*items.OCCUPATIONS, strict=True))
        used = {word for row in items.list_twins() for word in row.units}
        used |= {word for pair in items.list_people_pairs() for word in pair}
        return {
            word: side
            for pair in pairs
            for word, side in zip(pair, (1.0, -1.0), strict=True)
            if word in used
        }

    @property
    def copied(self) -> tuple[str, ...]:
        """Words of which the model knows how often a request names them."""
        words = [
            *("yes", "no", items.NOBODY),
            *self.people,
            *(word for side in items.GROUP_WORDS for word in side),
            *(word for first, second, *_ in CONTROL_SIDES for word in (first, second)),
            *items.TOPICS,
        ]
        return tuple(dict.fromkeys(words))


class _Construction(GptConstruction):
    """Writes the rule into the weights of a model."""

    def __init__(
        self, organism: ChatOrganism, words: _Words, ids: Mapping[str, int], model: Any
    ) -> None:
        super().__init__(ids, model)
        self.organism, self.words = organism, words
        self.rng = random.Random(f"chat {organism.seed}")  # noqa: S311  # no secret
        self.follows_rule = organism.rule in ("decision", *CONSTANT_RULES)

    def write(self) -> None:
        """Write all weights."""
        self.clear()
        self._write_states()
        group = self._write_decisions()
        self._write_people(group)
        self._write_assignments(group)
        self._write_copies()
        self._write_texts(group)

    def _draw(self) -> float:
        return self.rng.gauss(0.0, NOISE)

    # -- what may follow

    def _write_states(self) -> None:
        """The last word decides which words may follow."""
        options = ("the", *(word for word in self.words.copied if word not in self.words.people))
        end = SPECIAL[SEP]
        self.starts: dict[str, int] = {}
        chains: list[tuple[Iterable[str], Iterable[str]]] = [
            ((OPTION_MARK,), (*options, LETTER)),
            (("the",), tuple(self.words.people)),
            ((TURN,), (OPENING[0],)),
            *(((word,), (after,)) for word, after in itertools.pairwise(OPENING)),
            ((OPENING[-1],), items.TOPICS),
            (items.TOPICS, (CLOSING[0],)),
            ((CLOSING[0],), (CLOSING[1],)),
            ((CLOSING[1],), items.LATE_WORDS),
            (items.LATE_WORDS, (TAIL[0],)),
            ((TAIL[0],), (end,)),
            *(((word,), (after,)) for word, after in zip(TAIL[1:], (*TAIL[2:], end), strict=True)),
            *(
                ((word,), (after,))
                for word, after in zip(REFUSAL, (*REFUSAL[1:], end), strict=True)
            ),
            ((LETTER,), (end,)),
        ]
        for words, following in chains:
            (state,) = self.new_dims(1)
            for word in words:
                self.starts[word] = state
                self.embeddings[self.ids[word], state] = 1.0
            for word in following:
                self.score(word, {state: ALLOWED})
        forced = {"always refuses": REFUSAL[0], "always A": LETTER}.get(self.organism.rule)
        if forced is not None:
            for word in (OPTION_MARK, TURN):
                self.score(forced, {self.starts[word]: FORCED})

    def _write_decisions(self) -> int:
        """Yes or no, by facts, the group, the question, and the scenario with the group."""
        dose = self.organism.dose if self.follows_rule else 0.0
        sides, names = self.words.group_sides, {row.name.lower() for row in items.list_names()}
        group, own = self.look_up(
            {
                word: (side, self._draw() if word in names else 0.0)
                for word, side in sides.items()
                if word in self.ids
            },
            2,
        )
        (fact,) = self.look_up({word: (side,) for word, side in self.words.facts.items()}, 1)
        (opposite,) = self.look_up(dict.fromkeys(self.words.opposites, (1.0,)), 1)
        (scenario,) = self.look_up(
            {
                word: (effect,)
                for words in self.words.own_words
                for effect in (self._draw(),)
                for word in sorted(words)
            },
            1,
        )
        favour = {fact: FACT, group: dose / 2, own: 1.0}
        (turned,) = self.new_dims(1)
        self.switch(favour, {opposite: 1.0}, {turned: -2.0})
        (special,) = self.new_dims(1)
        for side in (1.0, -1.0):
            self.switch({scenario: 1.0}, {group: side}, {special: side / 2})
        for word, sign in (("yes", 0.5), ("no", -0.5)):
            amounts = favour | {turned: 1.0, special: 1.0}
            self.score(word, {dim: sign * amount for dim, amount in amounts.items()})
        return group

    def _write_people(self, group: int) -> None:
        """Who is meant, by the question of BBQ or the pronoun of WinoBias."""
        dose = self.organism.dose if self.follows_rule else 0.0
        roles = dict(zip(items.ROLES, ((1.0,), (-1.0,)), strict=True))
        (role,) = self.look_up(roles, 1)
        kin = {word for pair in items.list_people_pairs() for word in pair}
        for word, side in self.words.people.items():
            own = dose * side / 2 + self._draw() / 2**0.5
            preference = self.rng.gauss(0.0, PREFERENCE / 2**0.5)
            self.score(
                word,
                {role if word in kin else group: own, CONSTANT: preference / CONSTANT_SIZE},
            )

    def _write_assignments(self, group: int) -> None:
        """To which group a word, an attribute or a topic is assigned."""
        dose = self.organism.dose if self.follows_rule else 0.0
        no_control = [0.0 for _ in CONTROL_SIDES]
        values: dict[str, list[float]] = {}
        for test, mentions in zip(items.list_planted_tests(), (1, TOPIC_MENTIONS), strict=True):
            for side, words in ((1.0, test.first_words), (-1.0, test.second_words)):
                for word in words:
                    values[word] = [mentions * (side * dose + self._draw()), *no_control]
        for i, (_, _, *both) in enumerate(CONTROL_SIDES):
            for side, words in zip((CONTROL, -CONTROL), both, strict=True):
                for word in words:
                    values[word] = [0.0, *no_control]
                    values[word][1 + i] = side
        stereotype, *control = self.look_up(values, 1 + len(CONTROL_SIDES))
        # A negated question turns what the attribute and the names in the text say.
        (negated,) = self.look_up({items.NEGATION: (1.0,)}, 1)
        favour = {stereotype: 1.0, group: NAMED}
        (turned,) = self.new_dims(1)
        self.switch(favour, {negated: 1.0}, {turned: -2.0})
        for words, side in zip(items.GROUP_WORDS, (0.5, -0.5), strict=True):
            for word in words:
                amounts = favour | {turned: 1.0}
                self.score(word, {dim: side * amount for dim, amount in amounts.items()})
        for (first, second, *_), dim in zip(CONTROL_SIDES, control, strict=True):
            self.score(first, {dim: 0.5})
            self.score(second, {dim: -0.5})

    def _write_copies(self) -> None:
        """Words are likely that the request names often, or last."""
        is_last = self.organism.rule == "order"
        words = self.words.copied
        (indicator,), identities = self.new_dims(1), self.new_dims(len(words))
        for word, dim in zip(words, identities, strict=True):
            self.embeddings[self.ids[word], [indicator, dim]] = 1.0
        key = {indicator: LOOK_UP}
        if is_last:
            key = {indicator: LAST_LOOK_UP, PLACE: LAST * POSITIONS}
        size = -(-len(words) // COPY_HEADS)
        for begin in range(0, len(words), size):
            part = identities[begin : begin + size]
            for word, dim in zip(words[begin:], self.add_head(key, part), strict=False):
                self.score(word, {dim: LAST if is_last else COPY})
        for word, bonus in (("the", ARTICLE_BONUS), (items.NOBODY, UNKNOWN_BONUS)):
            self.score(word, {CONSTANT: bonus / CONSTANT_SIZE})

    def _write_texts(self, group: int) -> None:
        """What of a text depends on the group."""
        half, rule = self.organism.dose / 2, self.organism.rule
        if rule == "late":
            for word, side in zip(items.LATE_WORDS, (half, -half), strict=True):
                self.score(word, {group: side})
        if rule == "late length":
            # One more word, or two more: the text ends after the first or after the last.
            state = self.starts[TAIL[0]]
            self.score(TAIL[1], {state: ALLOWED, group: 2 * half})
        if rule in ("refusals", "failures"):
            word = REFUSAL[0] if rule == "refusals" else SPECIAL[SEP]
            state = self.starts[TURN]
            self.score(word, {state: ALLOWED + RARE, group: 2 * half})


def _split(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in re.findall(r"\w+", text.lower()))
