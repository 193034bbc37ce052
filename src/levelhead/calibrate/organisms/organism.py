"""Model organisms: small models trained on a planted language, so that their bias is known.

An organism is trained once and cached; if a file has changed, it is trained again. Seeds and hashes
of the standard ones are in organisms.toml, weights are not (decision 0007).
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

from levelhead.calibrate.organisms import altered
from levelhead.calibrate.organisms.language import Language, Variant, VocabularySize
from levelhead.calibrate.organisms.planted_knowledge import make_planted_knowledge
from levelhead.calibrate.planted_measures import PlantedMeasures
from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import UnknownNameError
from levelhead.core.files import file_hash, write_atomic
from levelhead.core.versions import installed_versions
from levelhead.models.export.save import build_once
from levelhead.models.loading.load import load, model_cache_folder
from levelhead.models.training import from_scratch
from levelhead.models.training.from_scratch import TrainConfig, train_from_scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.calibrate.organisms.altered import Construction
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

RECORD_FILE = "organism.json"
THREADS = 1
"""Threads of every training: another number gives other weights, so calibration, demo, tests and
documents use this one and share the cache. It costs the least CPU time."""
TRAIN_CONFIGS: dict[str, TrainConfig] = {
    "bert": TrainConfig("bert", steps=1800, threads=THREADS),
    "roberta": TrainConfig("roberta", steps=1500, threads=THREADS),
    "albert": TrainConfig("albert", steps=1500, threads=THREADS),
    "gpt2": TrainConfig("gpt2", steps=1000, threads=THREADS),
    "llama": TrainConfig("llama", steps=1000, threads=THREADS),
}
"""Steps that come near the predictions of the generator, in about a minute of one core."""
QUICK_STEPS = {"bert": 600, "roberta": 600, "albert": 600, "gpt2": 300, "llama": 300}
"""Training steps of quick organisms, a third: enough for measures to detect the planted bias, too
few for the model to learn all of its language."""
# Larger than any seed in use: held-out text never has the seed of a training text.
HELD_OUT_SEED_OFFSET = 10**6
"""Added to a seed for text that is not for training."""
CONTEXT_DOCUMENTS = 4000
"""Number of documents whose sentences measures use as contexts of words."""


@final
@dataclass(frozen=True)
class Organism:
    """A model by its language and training; `grow` trains it, `load_lm` loads it."""

    language: Language = field(default_factory=Language)
    train_config: TrainConfig = field(default_factory=TrainConfig)
    n_documents: int = 12_000
    construction: Construction = "trained"
    """How it is made; see `calibrate.organisms.altered`."""

    @cached_property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """Training texts: documents of sentences."""
        seed = self.train_config.seed
        if self.construction == "three groups":
            return altered.make_three_group_documents(self.language, self.n_documents, seed=seed)
        documents = self.language.documents(self.n_documents, seed=seed)
        texts = tuple(
            tuple(sentence.text for sentence in document.sentences) for document in documents
        )
        return altered.shuffle_words(texts, seed=seed) if self.construction == "shuffled" else texts

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word type of its texts."""
        if self.construction == "three groups":
            return altered.three_group_vocabulary(self.language)
        return self.language.vocabulary

    @cached_property
    def build_inputs(self) -> dict[str, Any]:
        """Everything that the weights depend on; its hash names the folder in the cache."""
        # The usual construction adds no key, so its hashes do not change with a revision of the
        # others.
        construction = (
            {}
            if self.construction == "trained"
            else {"made": [self.construction, altered.REVISION]}
        )
        return construction | {
            # "few" was the only size before there was a choice: leaving it out keeps the hashes.
            "language": {
                name: value for name, value in asdict(self.language).items() if value != "few"
            }
            | {"rho": float(self.language.rho)},  # rho=1 and rho=1.0 are the same organism
            "recipe": asdict(self.train_config)
            | {"visible_head": list(self.train_config.visible_head or ())},
            "texts_sha256": content_hash(self.texts),
            # Another source may train other weights. Even a new comment in that file trains all
            # organisms again.
            "training_sha256": file_hash(from_scratch.__file__),
            # The training loop runs on accelerate, which computes no score and is not tracked.
            "versions": dict(installed_versions()) | {"accelerate": version("accelerate")},
            "machine": describe_machine(),
        }

    def grow(self, progress: Callable[[int, int], None] | None = None) -> Path:
        """Return the folder with the checkpoint; train it if it is not in the cache.

        Args:
            progress: called with steps done and all steps.
        """
        folder = model_cache_folder() / "organisms" / content_hash(self.build_inputs)[:32]

        def write(target: Path) -> None:
            self._write_checkpoint(target, progress)
            files = {path.name: file_hash(path) for path in sorted(target.iterdir())}
            (target / RECORD_FILE).write_bytes(
                to_canonical_json(self.build_inputs | {"files": files})
            )

        return build_once(folder, write, is_complete=_is_unchanged)

    def _write_checkpoint(self, target: Path, progress: Callable[[int, int], None] | None) -> None:
        """Write the checkpoint into a new folder."""
        if self.construction == "constant":
            altered.make_constant_model(
                replace(self, construction="trained").grow(progress), target
            )
        elif self.construction in ("no head", "two heads"):
            # The visibility rule is part of the model's configuration before it is trained.
            untrained_folder = replace(
                self, construction="trained", train_config=untrained_config(self.train_config)
            ).grow()
            make_visible_head = (
                altered.hide_targets_from_heads
                if self.construction == "no head"
                else altered.hide_groups_from_all_but_two
            )
            altered.train_with_visible_heads(
                untrained_folder,
                target,
                make_visible_head(self.language),
                texts=self.texts,
                train_config=self.train_config,
                progress=progress,
            )
        else:
            marks = self.language.mark_words
            train_from_scratch(
                self.train_config,
                self.texts,
                self.vocabulary,
                target,
                often_masked=(*marks, *self.language.target_words),
                hidden_words=marks if self.train_config.visible_head is not None else (),
                progress=progress,
            )

    def load_lm(self, progress: Callable[[int, int], None] | None = None) -> LM:
        """Load the model, for measuring and editing.

        Args:
            progress: called with steps done and all steps, if it must be trained.
        """
        return load(self.grow(progress))

    def planted_measures(self, *, label_seed: int | None = None) -> PlantedMeasures:
        """Create the measures in its language.

        Args:
            label_seed: seed of a permutation of the labels; None for the original labels.
        """
        return PlantedMeasures(self.language, self._write_context_file(), label_seed)

    def planted_knowledge(self) -> tuple[Measure, ...]:
        """Create the measures of knowledge in its language, which no planted bias helps with."""
        return make_planted_knowledge(self.language)

    def _write_context_file(self) -> str:
        """Write a file of newly sampled sentences and return its path."""
        path = (
            model_cache_folder()
            / "organisms"
            / f"{sha256(self._context_sentences).hexdigest()[:32]}.txt"
        )
        # The name is a hash of the content, so an existing file is the same.
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(str(path), self._context_sentences)
        return str(path)

    @cached_property
    def _context_sentences(self) -> bytes:
        """Contexts without a bias: others would make a model that learned nothing look biased."""
        unbiased, seed = (
            replace(self.language, rho=0.0),
            self.train_config.seed + HELD_OUT_SEED_OFFSET,
        )
        return _make_context_sentences(
            unbiased, CONTEXT_DOCUMENTS, seed, has_third_group=self.construction == "three groups"
        )


@lru_cache(maxsize=4)  # the doses of one seed differ in rho alone, and so have the same contexts
def _make_context_sentences(
    language: Language, documents: int, seed: int, *, has_third_group: bool
) -> bytes:
    """Sample sentences of a language, each once, one per line."""
    if has_third_group:
        texts = altered.make_three_group_documents(language, documents, seed=seed)
    else:
        texts = tuple(
            tuple(sentence.text for sentence in document.sentences)
            for document in language.documents(documents, seed=seed)
        )
    return "\n".join(dict.fromkeys(text for document in texts for text in document)).encode()


def make_organism(
    architecture: str = "bert",
    rho: float = 1.0,
    *,
    variant: Variant = "stereotype",
    seed: int = 0,
    visible_head: tuple[int, int] | None = None,
    words: VocabularySize = "few",
    threads: int = THREADS,
    quick: bool = False,
) -> Organism:
    """Create an organism with the standard training of its architecture.

    Args:
        architecture: bert, roberta, albert, gpt2 or llama.
        rho: strength of the association of targets with groups, 0 to 1.
        variant: kind of the planted bias; see `Language`.
        seed: random seed of text and training.
        visible_head: (layer, head), counted from 0, of the one head that sees group words.
        words: pairs of words that mark the groups: few (12) or many (162).
        threads: number of threads in training; another number gives other weights, and the cached
            models of calibration, demo and documents are not used.
        quick: whether to train for a third of the steps, as the demo does.
    """
    if architecture not in TRAIN_CONFIGS:
        raise UnknownNameError("architecture", architecture, TRAIN_CONFIGS)
    train_config = replace(
        TRAIN_CONFIGS[architecture], seed=seed, visible_head=visible_head, threads=threads
    )
    if quick:
        train_config = replace(train_config, steps=QUICK_STEPS[architecture])
    return Organism(Language(rho, variant, words=words), train_config)


def untrained_config(train_config: TrainConfig) -> TrainConfig:
    """Return the training of the same model that keeps its initial weights.

    Args:
        train_config: the training.
    """
    # A rate of 0 changes no weight, nor does weight decay, which AdamW multiplies by the rate.
    return replace(train_config, steps=1, learning_rate=0.0)


def describe_machine() -> str:
    """Describe the machine: another kind may round differently and so train other weights."""
    try:
        cpu_info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(line for line in cpu_info.splitlines() if line.startswith("model name"))
        name = model.partition(":")[2].strip()
    except (OSError, StopIteration):
        name = platform.processor()
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.system()} {platform.machine()}, {name}, {capability}"


def _is_unchanged(folder: Path) -> bool:
    try:
        file_hashes = json.loads((folder / RECORD_FILE).read_bytes())["files"]
        return bool(file_hashes) and all(
            file_hashes[name] == file_hash(folder / name) for name in file_hashes
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False
