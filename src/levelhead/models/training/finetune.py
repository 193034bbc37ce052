"""A pretrained encoder made a classifier, or a judge of a score: a new head, all weights trained.

Same base, texts, recipe, versions and kind of machine: the same weights, bit for bit, and also if
training was killed and called again: the order of the texts follows from the seed alone, the chance
of dropout lies in the checkpoints. Masked heads (`edits`) stay masked while all else is trained.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.versions import installed_versions
from levelhead.models.edits.base import HeadScale
from levelhead.models.export.save import RECORD
from levelhead.models.lm import LM
from levelhead.models.loading.checkpoints import NoHead
from levelhead.models.loading.load import load
from levelhead.models.loading.quiet import quiet
from levelhead.models.training.classifier_trainer import trained
from levelhead.models.training.resumable import begun, finished, is_finished

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.models.architectures.families import ModelClass
    from levelhead.models.edits.base import Edit
    from levelhead.models.inputs.tokenizer import Tokens

Text = str | tuple[str, str]
Row = tuple[Text, str | float]


@final
@dataclass(frozen=True)
class Tuning:
    """Everything a classifier depends on but its base and its texts."""

    epochs: float = 1.0
    batch: int = 32
    rate: float = 1e-4
    longest: int = 128
    """Tokens of a text; what is longer is cut."""
    dropout: bool = True
    """Whether the base's own dropout acts while it is trained. Without, a step takes a quarter less
    time."""
    seed: int = 0
    threads: int = 2
    every: int = 200
    """Steps between checkpoints. It moves no weight."""

    def __post_init__(self) -> None:
        counts = (self.batch, self.threads, self.every)
        if min(counts) < 1 or self.longest < 4 or self.seed < 0:
            raise LevelheadError(
                f"nothing can be trained by {self}",
                mend="give counts of at least 1, at least 4 tokens and a seed of 0 or more",
            )
        if not all(math.isfinite(one) and one > 0 for one in (self.rate, self.epochs)):
            raise LevelheadError(
                f"a rate of {self.rate} and {self.epochs} epochs",
                mend="give both above 0, as a rate of 1e-4 and 2 epochs",
            )


def finetune(
    base: LM | str | os.PathLike[str],
    rows: Sequence[Row],
    labels: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    tuning: Tuning | None = None,
    edits: Sequence[Edit] = (),
    told: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Train a classifier on a base's weights and write it as plain transformers would.

    Cross-entropy, or the mean squared error of a score; AdamW, linear schedule, a tenth of the
    steps to warm up. Until all is done the work lies in `folder`.unfinished; called again with the
    same base, texts and tuning it goes on there, or returns the folder if it is done.

    Args:
        base: a pretrained encoder, or its name; weights are read from its checkpoint in float32.
        rows: texts, or pairs of them, each with its label, or with a number.
        labels: the classes, in the order of the classifier's columns; none: a score is learned.
        folder: a new folder.
        tuning: how.
        edits: masks of heads, folded into the weights and kept there while all else is trained;
            those of an edited base come first.
        told: what else the record in the folder (levelhead.json) should say.
        progress: is called with steps done and steps in all.

    Returns:
        The folder: weights, config, tokenizer, levelhead.json.
    """
    tuning = tuning or Tuning()
    _check_rows(rows, labels)
    lm = base if isinstance(base, LM) else load(base)
    edits = (*lm.edits, *edits)
    row = classifier_of(lm)
    _check_edits(lm, edits)
    shown = encoded_rows(lm.tokens, rows, labels, tuning.longest)
    plan = {
        **_plan(lm, rows, labels, tuning, edits),
        "class": row.name,
        "cut": sum(one.pop("cut") for one in shown),
        "told": dict(told or {}),
    }
    target = Path(folder)
    if is_finished(target, plan):
        return target
    with begun(target, plan) as unfinished:
        model = trained(lm, row, shown, labels, edits, tuning, unfinished, progress)
        if not all(bool(own.isfinite().all()) for own in model.parameters()):
            shutil.rmtree(unfinished)  # going on would end the same way
            raise LevelheadError("training ended in NaN or infinity", mend="give a lower rate")
        made = unfinished / "made"
        shutil.rmtree(made, ignore_errors=True)
        with quiet():
            model.eval().save_pretrained(made)
            lm.tokens.tokenizer.save_pretrained(made)
        finished(made, target.resolve(), plan)
    return target


def finetuned(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What `finetune` says in the folder that it wrote: base, texts, tuning, edits, versions."""
    try:
        found = json.loads((Path(folder) / RECORD).read_bytes())
        if isinstance(found, dict) and {"tuning", "weights"} <= found.keys():
            return found
    except (OSError, ValueError):
        pass
    raise LevelheadError(f"{folder} holds no fine-tuned model", mend="fine-tune it again")


# -- what is refused


def _check_rows(rows: Sequence[Row], labels: Sequence[str]) -> None:
    told = {label for _, label in rows}
    if not labels:
        if not all(isinstance(one, int | float) and math.isfinite(one) for one in told):
            raise LevelheadError(
                "a score that is no number", mend="give numbers, or name the classes"
            )
        if len(told) < 2:
            raise LevelheadError("one score only", mend="give texts of two scores at least")
        return
    for label in told:
        if label not in labels:
            raise UnknownName("label", str(label), labels)
    if len(set(labels)) < 2 or len(told) < 2:
        raise LevelheadError("one class only", mend="give texts of two classes at least")


def classifier_of(lm: LM) -> ModelClass:
    """The class of the base's family that has a classifier; an error if none can be made."""
    name = lm.identity.name
    if "classifier" in lm.heads:
        raise LevelheadError(
            f"{name} is a classifier already: its head would be trained on, not a new one",
            mend="give the pretrained model it was made of",
        )
    row = next((row for row in lm.anatomy.family.classes if row.classifier), None)
    if row is None or lm.is_causal:
        raise NoHead(
            f"no classifier can be made of {name}: it is no encoder that has one here",
            mend="use a masked model such as bert-base-uncased",
        )
    return row


def _check_edits(lm: LM, edits: Sequence[Edit]) -> None:
    for edit in edits:
        if not (isinstance(edit, HeadScale) and edit.factor == 0):
            raise LevelheadError(
                f"a {edit.kind} would be trained away: masked heads alone can be kept",
                mend="edit the trained model instead",
            )
        for site in edit.at:
            lm.anatomy.find(site)
    source, folded = lm.identity.checkpoint, lm.identity.folded
    if folded and folded != load(source.folder, allow_pickle=source.pickled).identity.folded:
        raise LevelheadError(
            f"{lm.identity.name} was baked, and its checkpoint is not",
            mend="give the model that is not baked, and the masks as edits",
        )


def _plan(
    lm: LM, rows: Sequence[Row], labels: Sequence[str], tuning: Tuning, edits: Sequence[Edit]
) -> dict[str, object]:
    """Everything the weights depend on, as it stands in levelhead.json."""
    settings = asdict(tuning)
    del settings["every"]
    name = lm.identity.name
    return {
        "base": Path(name).name if Path(name).exists() else name,  # the same on every machine
        "base_sha256": lm.identity.checkpoint.hash,
        "base_folded": lm.identity.folded,
        "labels": list(labels),
        "tuning": settings,
        "rows": len(rows),
        "rows_sha256": content_hash([[text, label] for text, label in rows]),
        "folded": [edit.content_hash for edit in edits],
        "as_base": [list(site) for edit in edits for site in edit.at],
        "masked": sorted(str(site) for edit in edits for site in edit.at),
        "versions": installed_versions(),
    }


def encoded_rows(
    tokens: Tokens, rows: Sequence[Row], labels: Sequence[str], longest: int
) -> list[dict[str, Any]]:
    """Tokens and label of every text, and whether it was cut."""
    number = {label: i for i, label in enumerate(labels)}
    # As the model is read later: some tokenizers say only if asked which text a token is of.
    encode = partial(cast("Any", tokens.tokenizer), return_token_type_ids=tokens.typed)
    found = []
    for text, label in rows:
        both = (text,) if isinstance(text, str) else text
        whole = encode(*both)
        cut = len(whole["input_ids"]) > longest
        encoded = encode(*both, truncation=True, max_length=longest) if cut else whole
        wanted = number[cast("str", label)] if labels else float(label)
        found.append(dict(encoded) | {"labels": wanted, "cut": cut})
    return found
