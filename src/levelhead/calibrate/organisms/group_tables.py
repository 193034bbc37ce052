"""Organisms with several groups, or with a bias that exists only where two attributes meet.

The weights are constructed, as those of chat organisms, so that the log-odds of two lists of
adjectives are known for every sentence and group. The model looks up which sentence it reads and
which group the person has, and one neuron for each pair of both holds the log-odds.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import numpy as np
import torch

from levelhead.calibrate.organisms import construction
from levelhead.calibrate.organisms.construction import HEAD_WIDTH, GptConstruction
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, require_option
from levelhead.core.files import file_hash
from levelhead.core.versions import installed_versions
from levelhead.data.languages.language import language
from levelhead.data.lexicons.group_descriptions import describe_persons
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.measures.group_tables.association_spread import SLOT, AssociationSpread
from levelhead.models.export.save import build_once
from levelhead.models.inputs.tokenizer import MASK
from levelhead.models.loading.load import load, model_cache_folder
from levelhead.models.loading.quiet import quiet
from levelhead.models.training.from_scratch import make_word_tokenizer
from levelhead.models.training.untrained import make_untrained_gpt2
from levelhead.stats.group_table import make_effects

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from levelhead.models.lm import LM

Effect = Literal["groups", "first attribute", "interaction"]
ORIGINS = "origin-en"
GENDER = "gender-en"
GENDERS = ("female", "male")
FAMILY = "threat"
ITEM_NOISE = 0.4
"""Standard deviation, in nats, of what a sentence does to a group: intervals are about it."""
HEADS, POSITIONS = 14, 64
FOLLOWING = 8.0
"""Logit of a word that follows another in one of the sentences: the model knows word order."""


@final
@dataclass(frozen=True)
class GroupOrganism:
    """A causal model by its number of groups and what was planted."""

    n_groups: int = 3
    """Number of origins, 2 to 8."""
    is_crossed: bool = False
    """Whether each origin is crossed with women and men."""
    effect: Effect = "groups"
    """Which effect has the dose: of groups, of origins alone, or the interaction alone."""
    dose: float = 0.5
    """Standard deviation in nats of the planted effect; 0: none."""
    seed: int = 0

    def __post_init__(self) -> None:
        require_option("effect", self.effect, get_args(Effect))
        if self.effect != "groups" and not self.is_crossed:
            raise LevelheadError(
                f"the effect {self.effect!r} needs two attributes", hint="give is_crossed=True"
            )

    @property
    def measure(self) -> AssociationSpread:
        """The measure on what was planted."""
        return AssociationSpread(
            ORIGINS,
            self._origins,
            crossed_with=GENDER if self.is_crossed else None,
            crossed_groups=GENDERS if self.is_crossed else None,
            family=FAMILY,
        )

    @property
    def _origins(self) -> tuple[str, ...]:
        return lexicon(ORIGINS).groups[: self.n_groups]

    @cached_property
    def descriptions(self) -> tuple[str, ...]:
        """Noun phrase for every group."""
        lexicons = [lexicon(ORIGINS), lexicon(GENDER)]
        groups = [self._origins, GENDERS]
        n_attributes = 2 if self.is_crossed else 1
        return describe_persons(lexicons[:n_attributes], groups[:n_attributes])

    @cached_property
    def planted_log_odds(self) -> NDArray[np.float64]:
        """`[sentences, groups]` log-odds of the first list of adjectives."""
        rng = np.random.default_rng(self.seed)
        sizes = (self.n_groups, 2) if self.is_crossed else (self.n_groups,)
        effects = make_effects(sizes)
        projection = {
            "groups": effects.overall,
            "first attribute": effects.margins[0] if effects.margins else effects.overall,
            "interaction": effects.overall if effects.interaction is None else effects.interaction,
        }[self.effect]
        direction = projection @ rng.standard_normal(len(self.descriptions))
        planted = self.dose * direction / direction.std()
        n_templates = len(language("en").persons.templates)
        noise = rng.standard_normal((n_templates, len(planted))) * ITEM_NOISE
        return np.asarray(planted + noise)

    @cached_property
    def _templates(self) -> tuple[list[str], ...]:
        """The words of each sentence, without the person and the adjective."""
        templates = language("en").persons.templates
        return tuple(_split(text.replace(SLOT, "").replace(MASK, "")) for text in templates)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word type of the sentences, phrases and adjectives."""
        sides = language("en").persons.family(FAMILY).sides
        words = {word for row in self._templates for word in row}
        words |= {word for phrase in self.descriptions for word in _split(phrase)}
        return tuple(sorted(words | {word for side in sides for word in side.words}))

    def grow(self) -> Path:
        """Return the folder with the checkpoint; construct it if it is not in the cache."""
        inputs = {
            "organism": asdict(self) | {"dose": float(self.dose)},
            "sources": [file_hash(__file__), file_hash(str(construction.__file__))],
            "vocabulary": content_hash(self.vocabulary),
            "versions": dict(installed_versions()),
        }
        folder = model_cache_folder() / "organisms" / content_hash(inputs)[:32]
        return build_once(folder, self._write_checkpoint)

    def load_lm(self) -> LM:
        """Load the model, for measuring and editing."""
        return load(self.grow())

    def _write_checkpoint(self, folder: Path) -> None:
        tokenizer = make_word_tokenizer(self.vocabulary, causal=True)
        ids = tokenizer.get_vocab()
        with quiet(), torch.no_grad():
            model = make_untrained_gpt2(
                len(ids),
                width=HEADS * HEAD_WIDTH,
                heads=HEADS,
                inner=self.planted_log_odds.size,
                positions=POSITIONS,
            )
            self._write_weights(GptConstruction(ids, model))
            model.eval().save_pretrained(folder)
            tokenizer.save_pretrained(folder)

    def _write_weights(self, weights: GptConstruction) -> None:
        weights.clear()
        others = [
            {word for i, words in enumerate(self._templates) if i != number for word in words}
            for number in range(len(self._templates))
        ]
        sentences = _look_up_kinds(
            weights,
            [set(words) - rest for words, rest in zip(self._templates, others, strict=True)],
        )
        phrases = [_split(phrase) for phrase in self.descriptions]
        # Words of a phrase that name an attribute: those that not all phrases have.
        attributes: dict[int, list[str]] = {}
        for place in range(len(phrases[0])):
            names = list(dict.fromkeys(phrase[place] for phrase in phrases))
            if len(names) > 1:
                attributes[place] = names
        levels = {
            place: _look_up_kinds(weights, [{name} for name in names])
            for place, names in attributes.items()
        }
        (odds,) = weights.new_dims(1)
        for row, sentence in zip(self.planted_log_odds, sentences, strict=True):
            for value, phrase in zip(row.tolist(), phrases, strict=True):
                dims = [
                    levels[place][names.index(phrase[place])] for place, names in attributes.items()
                ]
                weights.write_where_all([sentence, *dims], value, odds)
        sides = language("en").persons.family(FAMILY).sides
        for side, sign in zip(sides, (0.5, -0.5), strict=True):
            for word in side.words:
                weights.score(word, {odds: sign})
        self._write_word_order(weights, [word for side in sides for word in side.words])

    def _write_word_order(self, weights: GptConstruction, adjectives: list[str]) -> None:
        """Words follow each other as in the sentences."""
        pairs = {
            pair
            for template in language("en").persons.templates
            for phrase in self.descriptions
            for adjective in adjectives
            for pair in itertools.pairwise(
                _split(template.replace(SLOT, phrase).replace(MASK, adjective))
            )
        }
        following: dict[str, set[str]] = {}
        for word, follower in pairs:
            following.setdefault(word, set()).add(follower)
        # Words with the same followers share a dimension: adjectives, and adjectives of origins.
        groups: dict[frozenset[str], list[str]] = {}
        for word, followers in sorted(following.items()):
            groups.setdefault(frozenset(followers), []).append(word)
        for shared, words in groups.items():
            (state,) = weights.new_dims(1)
            for word in words:
                weights.embeddings[weights.ids[word], state] = 1.0
            for word in sorted(shared):
                weights.score(word, {state: FOLLOWING})


def _look_up_kinds(weights: GptConstruction, kinds: list[set[str]]) -> list[int]:
    """Dimensions that are 1 where the text has words of a kind, and 0 where it has none."""
    dims: list[int] = []
    # A head copies as many dimensions as it is wide.
    for begin in range(0, len(kinds), HEAD_WIDTH):
        part = kinds[begin : begin + HEAD_WIDTH]
        values: Mapping[str, Any] = {
            word: [float(i == number) for i in range(len(part))]
            for number, words in enumerate(part)
            for word in sorted(words)
        }
        dims += weights.look_up(values, len(part))
    return dims


def _split(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.lower())
