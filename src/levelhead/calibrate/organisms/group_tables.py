"""Organisms with several groups, or with a bias that exists only where two attributes meet.

A causal model is trained on the sentences of `association_spread` with a known log-odds of two
lists of adjectives for every sentence and group. The counts of the adjectives are those expected,
not sampled: sampled counts would plant a small difference in every model.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, final, get_args

import numpy as np

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
from levelhead.models.training import from_scratch
from levelhead.models.training.from_scratch import TrainConfig, train_from_scratch
from levelhead.stats.group_table import make_effects

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from levelhead.models.lm import LM

Effect = Literal["groups", "first attribute", "interaction"]
ORIGINS = "origin-en"
GENDER = "gender-en"
GENDERS = ("female", "male")
FAMILY = "threat"
REPEATS = 160
"""Sentences of every template and group: their counts give log-odds to about 1/40 nat."""
ITEM_NOISE = 0.4
"""Standard deviation, in nats, of what a sentence does to a group: intervals are about it."""
TRAIN_CONFIG = TrainConfig("gpt2", steps=500, batch_size=64, threads=1)


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
            "interaction": effects.interaction,
        }[self.effect]
        direction = projection @ rng.standard_normal(len(self.descriptions))
        planted = self.dose * direction / direction.std()
        n_templates = len(language("en").persons.templates)
        noise = rng.standard_normal((n_templates, len(planted))) * ITEM_NOISE
        return np.asarray(planted + noise)

    @cached_property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """Training texts: documents of one sentence."""
        person = language("en").persons
        sides = [side.words for side in person.family(FAMILY).sides]
        texts = []
        for template, row in zip(person.templates, self.planted_log_odds, strict=True):
            for phrase, odds in zip(self.descriptions, row.tolist(), strict=True):
                n_first = round(REPEATS / (1 + math.exp(-odds)))
                for words, count in zip(sides, (n_first, REPEATS - n_first), strict=True):
                    texts += [
                        template.replace(SLOT, phrase).replace(MASK, words[i % len(words)])
                        for i in range(count)
                    ]
        random.Random(self.seed).shuffle(texts)  # noqa: S311  # no secret
        return tuple((text,) for text in texts)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word type of its texts."""
        words = {
            word for (text,) in self.texts for word in re.findall(r"\w+|[^\w\s]", text.lower())
        }
        return tuple(sorted(words))

    def grow(self) -> Path:
        """Return the folder with the checkpoint; train it if it is not in the cache."""
        inputs = {
            "organism": asdict(self) | {"dose": float(self.dose)},
            "texts_sha256": content_hash(self.texts),
            "recipe": asdict(TRAIN_CONFIG),
            "training_sha256": file_hash(from_scratch.__file__),
            "versions": dict(installed_versions()),
        }
        folder = model_cache_folder() / "organisms" / content_hash(inputs)[:32]
        return build_once(folder, self._write_checkpoint)

    def _write_checkpoint(self, folder: Path) -> None:
        train_from_scratch(TRAIN_CONFIG, self.texts, self.vocabulary, folder)

    def load_lm(self) -> LM:
        """Load the model, for measuring and editing."""
        return load(self.grow())
