"""A pretrained language model trained further: on texts of one's own, or with more dropout.

Masked models fill blanks, causal ones foretell the next token; nothing else is asked, so that a
next-sentence head keeps its weights. Same base, texts, schooling, versions and kind of machine: the
same weights, bit for bit, and also if training was killed and called again. What is asked in a step
follows from the seed and the step's number alone; the chance of dropout lies in the checkpoints.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch

from levelhead.core.canonical_json import canonical, content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash, write_atomic
from levelhead.core.versions import installed_versions
from levelhead.engine.locks import claimed
from levelhead.models.export.save import RECORD, new_folder, save_whole
from levelhead.models.lm import LM
from levelhead.models.loading.checkpoints import Checkpoint, NoHead
from levelhead.models.loading.load import load
from levelhead.models.training.trainee import dropouts, trained
from levelhead.models.training.training_examples import Lesson, lesson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.models.architectures.model_layout import Anatomy


@final
@dataclass(frozen=True)
class Schooling:
    """Everything a further trained model depends on but its base and its texts."""

    steps: int = 200
    batch: int = 32
    rate: float = 5e-5
    masked: float = 0.15
    """The share of a text's tokens that a masked model is asked for; one at least."""
    dropout: tuple[float, float] | None = None
    """Of hidden states and of attention, while training; None: the base's own."""
    max_tokens: int = 64
    """Texts with more are left out."""
    seed: int = 0
    threads: int = 2
    every: int = 50
    """Steps between checkpoints. It moves no weight."""

    def __post_init__(self) -> None:
        counts = (self.steps, self.batch, self.threads, self.every)
        if min(counts) < 1 or self.max_tokens < 4 or self.seed < 0:
            raise LevelheadError(
                f"nothing can be trained by {self}",
                mend="give counts of at least 1, at least 4 tokens and a seed of 0 or more",
            )
        if not (math.isfinite(self.rate) and self.rate > 0 and 0 < self.masked < 1):
            raise LevelheadError(
                f"a rate of {self.rate} and a share of {self.masked}",
                mend="give a rate above 0, as 5e-5, and a share between 0 and 1, as 0.15",
            )
        if not all(0 <= part < 1 for part in self.dropout or ()):
            raise LevelheadError(f"a dropout of {self.dropout}", mend="give shares below 1")


def continued(
    base: LM | str | os.PathLike[str],
    texts: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    schooling: Schooling | None = None,
    told: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Train a language model further and write it as plain transformers would.

    Devlin et al. (2019) for masked models: a share of the tokens is asked for, 80% of them shown as
    the mask, 10% as another token, 10% as they are; whole words get no special treatment, and
    unknown words are not asked for. AdamW, linear schedule, a tenth of the steps to warm up.

    Until all is done the work lies in `folder`.unfinished; called again with the same base, texts
    and schooling it goes on there, or returns the folder if it is done.

    Args:
        base: a model, or its name; weights are read from its checkpoint in float32.
        texts: in the order they are shown in, from the first again when they end.
        folder: a new folder.
        schooling: how.
        told: what else the record in the folder (levelhead.json) should say.
        progress: is called with steps done and steps in all.

    Returns:
        The folder: weights, config with the base's own dropout, tokenizer, levelhead.json.
    """
    schooling = schooling or Schooling()
    lm = _fresh(base)
    dropouts(lm.anatomy.model.config, schooling.dropout)  # refused before anything is made
    found = [lesson(lm, text, max_tokens=schooling.max_tokens) for text in texts]
    usable = [one for one in found if isinstance(one, Lesson)]
    left_out = Counter(one for one in found if isinstance(one, str))
    if not usable:
        raise LevelheadError(
            f"no text of {len(texts)} can be used: {', '.join(left_out) or 'there is none'}",
            mend="give texts in the model's language, of a few words to max_tokens tokens",
        )
    plan = _plan(lm, schooling, texts, left_out) | {"told": dict(told or {})}
    if _is_done(Path(folder), plan):
        return Path(folder)
    target = new_folder(Path(folder))
    unfinished = target.with_name(f"{target.name}.unfinished")
    unfinished.mkdir(exist_ok=True)
    with claimed(str(unfinished)):
        _begin(unfinished, plan)
        pupil = trained(lm, usable, unfinished, schooling, progress)
        try:
            _check(lm.anatomy, pupil)
        except LevelheadError:
            shutil.rmtree(unfinished)  # going on would end the same way
            raise
        lm.anatomy.model.load_state_dict(pupil.model.state_dict())
        made = unfinished / "made"
        shutil.rmtree(made, ignore_errors=True)
        save_whole(lm, made)
        write_atomic(made / RECORD, canonical(plan | {"weights": weights_of(made)}))
        os.replace(made, target)
    shutil.rmtree(unfinished, ignore_errors=True)
    return Path(folder)


def record_of(folder: Path) -> dict[str, Any]:
    """What `continued` says in the folder that it wrote."""
    try:
        found = json.loads((folder / RECORD).read_bytes())
        if isinstance(found, dict) and {"schooling", "weights"} <= found.keys():
            return found
    except (OSError, ValueError):
        pass
    raise LevelheadError(f"{folder} holds no further trained model", mend="train it again")


def weights_of(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of weights, by name."""
    return {path.name: file_hash(path) for path in Checkpoint.inspect(folder).weights}


def _fresh(base: LM | str | os.PathLike[str]) -> LM:
    """The base read once more in float32: nobody else's model is trained."""
    if not isinstance(base, LM):
        lm = load(base)
    else:
        source = base.identity.checkpoint
        lm = load(source.folder, allow_pickle=source.pickled)
        if base.edits or base.identity.folded != lm.identity.folded:
            raise LevelheadError(
                f"{base.identity.name} is edited, and its checkpoint is not",
                mend="save it first (levelhead bake, or save_pretrained), and train that folder",
            )
        lm = replace(lm, tokens=base.tokens, identity=base.identity)
    if not lm.heads & {"masked", "causal"}:
        raise NoHead(
            f"{lm.identity.name} cannot be trained on texts: it holds no vocabulary head",
            mend="use a checkpoint trained as a masked or causal language model",
        )
    return lm


def _plan(
    lm: LM, schooling: Schooling, texts: Sequence[str], left_out: Mapping[str, int]
) -> dict[str, object]:
    """Everything the weights depend on, as it stands in levelhead.json."""
    settings = asdict(schooling)
    del settings["every"]
    name = lm.identity.name
    return {
        "base": Path(name).name if Path(name).exists() else name,  # the same on every machine
        "base_sha256": lm.identity.checkpoint.hash,
        "folded": lm.identity.folded,
        "class": lm.anatomy.cls.name,
        "asked": "next token" if lm.anatomy.cls.causal else "masked tokens",
        "schooling": settings,
        "texts": len(texts),
        "texts_sha256": content_hash(list(texts)),
        "left_out": dict(sorted(left_out.items())),
        "shown": schooling.steps * schooling.batch,
        "versions": installed_versions(),
    }


def _is_done(folder: Path, plan: Mapping[str, object]) -> bool:
    """Whether the folder holds what this plan ends with, unharmed."""
    try:
        told = record_of(folder)
        weights = told.pop("weights")
        return canonical(told) == canonical(plan) and weights == weights_of(folder)
    except LevelheadError:
        return False


def _begin(unfinished: Path, plan: Mapping[str, object]) -> None:
    path, own = unfinished / RECORD, canonical(plan)
    if path.exists() and path.read_bytes() != own:
        raise LevelheadError(
            f"{unfinished} holds a training with another base, other texts or settings",
            mend="finish that one with what it began with, or remove it, or give another folder",
        )
    write_atomic(path, own)


def _check(base: Anatomy, pupil: Anatomy) -> None:
    """Refuse weights that are the base's own, or no numbers: a child that was never trained."""
    before = dict(base.model.named_parameters())
    after = dict(pupil.model.named_parameters())
    if not all(bool(own.isfinite().all()) for own in after.values()):
        raise LevelheadError("training ended in NaN or infinity", mend="give a lower rate")
    if all(torch.equal(own, before[name]) for name, own in after.items()):
        raise LevelheadError(
            "all weights are the base's own: training changed nothing",
            mend="give a higher rate or more steps",
        )
