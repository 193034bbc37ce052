"""Fine-tune a pretrained encoder to a classifier or a regression: new head, all weights trained.

The same base, texts, config, versions and kind of machine give the same weights, bit for bit, also
if the training was killed and resumed: the order of the texts depends only on the seed, and the
checkpoints contain the state of the random generator that dropout uses. Masked heads (`edits`) stay
masked while everything else is trained.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.versions import installed_versions
from levelhead.models.edits.base import HeadScale
from levelhead.models.export.save import RECORD_FILE
from levelhead.models.lm import LM
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.loading.load import load
from levelhead.models.loading.quiet import quiet
from levelhead.models.training.classifier_trainer import train_classifier
from levelhead.models.training.configs import FinetuneConfig
from levelhead.models.training.resumable import is_finished, publish_model, start_or_resume

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.models.architectures.families import ModelClass
    from levelhead.models.edits.base import Edit
    from levelhead.models.inputs.tokenizer import Tokens

TextOrPair = str | tuple[str, str]
LabelledText = tuple[TextOrPair, str | float]


def finetune(
    base: LM | str | os.PathLike[str],
    rows: Sequence[LabelledText],
    labels: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    config: FinetuneConfig | None = None,
    edits: Sequence[Edit] = (),
    metadata: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Fine-tune a classifier or a regression and write a plain transformers checkpoint.

    The loss is cross-entropy, or the mean squared error of a score; the optimizer is AdamW with a
    linear schedule and a warm-up of a tenth of the steps. Until the training is complete, its files
    are in `folder`.unfinished. A second call with the same base, texts and config resumes there, or
    returns the folder if the training is complete.

    Args:
        base: Pretrained encoder, or its name; weights are read from its checkpoint in float32.
        rows: Texts, or pairs of texts, each with its label, or with a number.
        labels: Classes, in the order of the classifier's columns; empty for a regression.
        folder: New folder.
        config: Settings.
        edits: Masks of heads, which are merged into the weights and stay 0 while everything else
            is trained; those of an edited base come first.
        metadata: Further entries for the record in the folder (levelhead.json).
        progress: Function that is called with steps done and steps in total.

    Returns:
        The folder: weights, config, tokenizer, levelhead.json.
    """
    config = config or FinetuneConfig()
    _check_rows(rows, labels)
    lm = base if isinstance(base, LM) else load(base)
    edits = (*lm.edits, *edits)
    model_class = find_classifier_class(lm)
    _check_edits(lm, edits)
    examples = encode_rows(lm.tokens, rows, labels, config.max_tokens)
    record = {
        **_make_record(lm, rows, labels, config, edits),
        "class": model_class.name,
        "cut": sum(example.pop("cut") for example in examples),
        "metadata": dict(metadata or {}),
    }
    target = Path(folder)
    if is_finished(target, record):
        return target
    with start_or_resume(target, record) as work_folder:
        model = train_classifier(
            lm, model_class, examples, labels, edits, config, work_folder, progress
        )
        # A diverged training is an error, not a model; its checkpoints would diverge again.
        if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
            shutil.rmtree(work_folder)  # resuming would end in the same way
            raise LevelheadError("training ended in NaN or infinity", hint="give a lower rate")
        output_folder = work_folder / "made"
        shutil.rmtree(output_folder, ignore_errors=True)
        with quiet():
            model.eval().save_pretrained(output_folder)
            lm.tokens.tokenizer.save_pretrained(output_folder)
        publish_model(output_folder, target.resolve(), record)
    return target


def read_finetune_record(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the record that `finetune` wrote: base, texts, tuning, edits, versions."""
    try:
        record = json.loads((Path(folder) / RECORD_FILE).read_bytes())
        if isinstance(record, dict) and {"tuning", "weights"} <= record.keys():
            return record
    except (OSError, ValueError):
        pass
    raise LevelheadError(f"{folder} holds no fine-tuned model", hint="fine-tune it again")


# -- checks of the arguments


def _check_rows(rows: Sequence[LabelledText], labels: Sequence[str]) -> None:
    row_labels = {label for _, label in rows}
    if not labels:
        if not all(isinstance(score, int | float) and math.isfinite(score) for score in row_labels):
            raise LevelheadError(
                "a score is not a finite number", hint="give numbers, or name the classes"
            )
        if len(row_labels) < 2:
            raise LevelheadError(
                "all texts have the same score", hint="give texts with at least two scores"
            )
        return
    for label in row_labels:
        if label not in labels:
            raise UnknownNameError("label", str(label), labels)
    if len(set(labels)) < 2 or len(row_labels) < 2:
        raise LevelheadError("there is only one class", hint="give texts of at least two classes")


def find_classifier_class(lm: LM) -> ModelClass:
    """Return the class of the base's family that has a classifier; raise if there is none."""
    name = lm.identity.name
    # transformers would load the existing head, so "a new head" would not be true.
    if "classifier" in lm.heads:
        raise LevelheadError(
            f"{name} already has a classifier, which would be trained further",
            hint="give the pretrained model that it was fine-tuned from",
        )
    model_class = next(
        (model_class for model_class in lm.layout.family.classes if model_class.classifier), None
    )
    if model_class is None or lm.is_causal:
        raise MissingHeadError(
            f"{name} cannot become a classifier: only encoders with a classifier class can",
            hint="use a masked model such as bert-base-uncased",
        )
    return model_class


def _check_edits(lm: LM, edits: Sequence[Edit]) -> None:
    for edit in edits:
        if not (isinstance(edit, HeadScale) and edit.factor == 0):
            raise LevelheadError(
                f"training would undo a {edit.kind}: only masked heads can be preserved",
                hint="edit the trained model instead",
            )
        for site in edit.sites:
            lm.layout.require_site(site)
    source, folded = lm.identity.checkpoint, lm.identity.merged_edits
    # Training starts from the files: edits merged only in memory would be lost without a word.
    if (
        folded
        and folded != load(source.folder, allow_pickle=source.is_pickled).identity.merged_edits
    ):
        raise LevelheadError(
            f"edits were merged into {lm.identity.name}, but not into its checkpoint",
            hint="give the model before merging, and the masks as edits",
        )


def _make_record(
    lm: LM,
    rows: Sequence[LabelledText],
    labels: Sequence[str],
    config: FinetuneConfig,
    edits: Sequence[Edit],
) -> dict[str, object]:
    """Record everything that the weights depend on, for levelhead.json."""
    settings = asdict(config)
    # It changes no weight: a resumed training may save more or less often.
    del settings["save_steps"]
    name = lm.identity.name
    return {
        # Without the path, so that the record is the same on every machine.
        "base": Path(name).name if Path(name).exists() else name,
        "base_sha256": lm.identity.checkpoint.hash,
        "base_folded": lm.identity.merged_edits,
        "labels": list(labels),
        "tuning": settings,
        "rows": len(rows),
        "rows_sha256": content_hash([[text, label] for text, label in rows]),
        "folded": [edit.content_hash for edit in edits],
        "as_base": [list(site) for edit in edits for site in edit.sites],
        "masked": sorted(str(site) for edit in edits for site in edit.sites),
        "versions": installed_versions(),
    }


def encode_rows(
    tokens: Tokens, rows: Sequence[LabelledText], labels: Sequence[str], max_tokens: int
) -> list[dict[str, Any]]:
    """Return tokens and label of every text, and whether it was truncated."""
    label_ids = {label: i for i, label in enumerate(labels)}
    # As `Tokens.encode` does later: some tokenizers return token types only on request.
    encode = partial(cast("Any", tokens.tokenizer), return_token_type_ids=tokens.has_token_types)
    examples = []
    for text, label in rows:
        texts = (text,) if isinstance(text, str) else text
        untruncated = encode(*texts)
        is_truncated = len(untruncated["input_ids"]) > max_tokens
        encoded = (
            encode(*texts, truncation=True, max_length=max_tokens) if is_truncated else untruncated
        )
        target = label_ids[cast("str", label)] if labels else float(label)
        examples.append(dict(encoded) | {"labels": target, "cut": is_truncated})
    return examples
