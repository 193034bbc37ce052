"""Model organisms: small models grown on a planted language, so that their bias is known.

Grown once and kept in the cache; if a file is not what was grown, all are grown again. Seeds and
hashes of the standard ones are in organisms.toml, weights are not.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch

from levelhead.calibrate.measures import Rulers
from levelhead.calibrate.organisms import altered
from levelhead.calibrate.organisms.language import Language, Variant, Words
from levelhead.core.canonical_json import canonical, content_hash
from levelhead.core.errors import UnknownName
from levelhead.core.files import file_hash, write_atomic
from levelhead.core.versions import installed_versions
from levelhead.models.export.save import made_once
from levelhead.models.loading.load import cache_folder, load
from levelhead.models.training import from_scratch as train_module
from levelhead.models.training.from_scratch import Recipe, train

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.calibrate.organisms.altered import Making
    from levelhead.models.lm import LM

RECORD = "organism.json"
THREADS = 1
"""Threads of every training here: with another number other bytes grow, so calibration, demo, tests
and documents use this one and share what is in the cache. It costs the least CPU time."""
RECIPES: dict[str, Recipe] = {
    "bert": Recipe("bert", steps=1800, threads=THREADS),
    "roberta": Recipe("roberta", steps=1500, threads=THREADS),
    "albert": Recipe("albert", steps=1500, threads=THREADS),
    "gpt2": Recipe("gpt2", steps=1000, threads=THREADS),
    "llama": Recipe("llama", steps=1000, threads=THREADS),
}
"""As many steps as it takes to come near the generator, in about a minute of one core."""
HELD_OUT = 10**6
"""Added to a seed for text that was drawn for other ends than training."""
CONTEXT_DOCUMENTS = 4000
"""Documents of the sentences that measures take as contexts of words."""


@final
@dataclass(frozen=True)
class Organism:
    """A model by its language and recipe; `grown` makes it, `lm` loads it."""

    language: Language = field(default_factory=Language)
    recipe: Recipe = field(default_factory=Recipe)
    documents: int = 12_000
    made: Making = "trained"
    """How it is made of its language and recipe; see `calibrate.altered`."""

    @cached_property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """What it is trained on: documents of sentences."""
        seed = self.recipe.seed
        if self.made == "three groups":
            return altered.with_third_group(self.language, self.documents, seed=seed)
        found = self.language.documents(self.documents, seed=seed)
        texts = tuple(tuple(one.text for one in document.sentences) for document in found)
        return altered.shuffled(texts, seed=seed) if self.made == "shuffled" else texts

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word type of its texts."""
        if self.made == "three groups":
            return altered.three_group_vocabulary(self.language)
        return self.language.vocabulary

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Everything its weights depend on."""
        made = {} if self.made == "trained" else {"made": [self.made, altered.REVISION]}
        return made | {
            # Few words are what a language had before there was a choice: its organisms stay.
            "language": {
                name: value for name, value in asdict(self.language).items() if value != "few"
            }
            | {"rho": float(self.language.rho)},  # rho=1 and rho=1.0 are the same organism
            "recipe": asdict(self.recipe) | {"known_head": list(self.recipe.known_head or ())},
            "texts_sha256": content_hash(self.texts),
            "training_sha256": file_hash(train_module.__file__),
            "versions": dict(installed_versions()) | {"accelerate": version("accelerate")},
            "machine": machine(),
        }

    def grown(self, progress: Callable[[int, int], None] | None = None) -> Path:
        """The folder with its checkpoint; trained now if it is not in the cache."""
        folder = cache_folder() / "organisms" / content_hash(self.facts)[:32]

        def grow(target: Path) -> None:
            self._make(target, progress)
            files = {path.name: file_hash(path) for path in sorted(target.iterdir())}
            (target / RECORD).write_bytes(canonical(self.facts | {"files": files}))

        return made_once(folder, grow, is_whole=_is_as_grown)

    def _make(self, target: Path, progress: Callable[[int, int], None] | None) -> None:
        """Write the checkpoint into a new folder."""
        if self.made == "constant":
            altered.constant(replace(self, made="trained").grown(progress), target)
        elif self.made in ("no head", "two heads"):
            # The rule of who sees what is put into an untrained model, which is then trained.
            blank = replace(self, made="trained", recipe=untrained(self.recipe)).grown()
            rule = altered.no_head if self.made == "no head" else altered.two_heads
            altered.looked_at(
                blank,
                target,
                rule(self.language),
                texts=self.texts,
                recipe=self.recipe,
                progress=progress,
            )
        else:
            marks = self.language.mark_words
            train(
                self.recipe,
                self.texts,
                self.vocabulary,
                target,
                often=(*marks, *self.language.target_words),
                hidden=marks if self.recipe.known_head is not None else (),
                progress=progress,
            )

    def lm(self, progress: Callable[[int, int], None] | None = None) -> LM:
        """The model, ready to be read, edited and measured."""
        return load(self.grown(progress))

    def rulers(self, *, labels: int | None = None) -> Rulers:
        """The measures in its language."""
        return Rulers(self.language, self._contexts(), labels)

    def _contexts(self) -> str:
        """A file of newly drawn sentences."""
        path = cache_folder() / "organisms" / f"{sha256(self._sentences).hexdigest()[:32]}.txt"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(str(path), self._sentences)
        return str(path)

    @cached_property
    def _sentences(self) -> bytes:
        """Without a bias: in contexts with one, a model that learned nothing would seem biased."""
        even, seed = replace(self.language, rho=0.0), self.recipe.seed + HELD_OUT
        return _contexts_in(
            even, CONTEXT_DOCUMENTS, seed, has_third_group=self.made == "three groups"
        )


@lru_cache(maxsize=4)  # the doses of one seed differ in rho alone, and so have the same contexts
def _contexts_in(even: Language, documents: int, seed: int, *, has_third_group: bool) -> bytes:
    """Newly drawn sentences of a language, each once, one in a line."""
    if has_third_group:
        texts = altered.with_third_group(even, documents, seed=seed)
    else:
        texts = tuple(
            tuple(sentence.text for sentence in document.sentences)
            for document in even.documents(documents, seed=seed)
        )
    return "\n".join(dict.fromkeys(text for document in texts for text in document)).encode()


def organism(
    architecture: str = "bert",
    rho: float = 1.0,
    *,
    variant: Variant = "stereotype",
    seed: int = 0,
    known_head: tuple[int, int] | None = None,
    words: Words = "few",
    threads: int = THREADS,
) -> Organism:
    """An organism of the standard recipe of its architecture.

    Args:
        architecture: bert, roberta, albert, gpt2 or llama.
        rho: how strongly targets are joined with groups, 0 to 1.
        variant: what else may be planted; see `Language`.
        seed: of text and training.
        known_head: (layer, head), counted from 0: the one head that sees group words.
        words: how many pairs of words mark the groups, few (12) or many (162).
        threads: that it is trained with; with another number other bytes grow, and nothing that
            calibration, demo and documents have grown is used again.
    """
    if architecture not in RECIPES:
        raise UnknownName("architecture", architecture, RECIPES)
    recipe = replace(RECIPES[architecture], seed=seed, known_head=known_head, threads=threads)
    return Organism(Language(rho, variant, words=words), recipe)


def untrained(recipe: Recipe) -> Recipe:
    """The recipe of the same model with its weights as they are initialised.

    A rate of 0 moves no weight, weight decay included, which AdamW multiplies by the rate.
    """
    return replace(recipe, steps=1, rate=0.0)


def machine() -> str:
    """The kind of machine: another may round differently, and so grow other weights."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(line for line in told.splitlines() if line.startswith("model name"))
        name = model.partition(":")[2].strip()
    except (OSError, StopIteration):
        name = platform.processor()
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.system()} {platform.machine()}, {name}, {capability}"


def _is_as_grown(folder: Path) -> bool:
    try:
        told = json.loads((folder / RECORD).read_bytes())["files"]
        return bool(told) and all(told[name] == file_hash(folder / name) for name in told)
    except (OSError, ValueError, KeyError, TypeError):
        return False
