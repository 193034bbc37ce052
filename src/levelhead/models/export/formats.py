"""Formats of exported models: a checkpoint of transformers, a LoRA adapter, or one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from levelhead.core.errors import LevelheadError, require_option
from levelhead.models.export.adapter import describe_adapter, write_adapter
from levelhead.models.export.model_card import (
    README_FILE,
    check_measurement_pairs,
    render_model_card,
)
from levelhead.models.export.save import write_folder
from levelhead.models.export.standalone import save_edited_model
from levelhead.models.export.traced import describe_graph, write_onnx, write_program
from levelhead.models.loading.quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from levelhead.models.editable_model import EditableModel
    from levelhead.models.export.model_card import MeasurementPair

ExportFormat = Literal["transformers", "peft", "torch", "onnx"]
"""Format of an exported model: merged weights, a LoRA adapter, torch.export, ONNX."""
_WRITERS: dict[ExportFormat, Callable[[EditableModel, Path], None]] = {
    "peft": write_adapter,
    "torch": write_program,
    "onnx": write_onnx,
}


def save_in_format(
    lm: EditableModel,
    folder: Path,
    file_format: str,
    *,
    with_edit_file: bool = False,
    bias_changes: Sequence[MeasurementPair] = (),
    utility_changes: Sequence[MeasurementPair] = (),
) -> None:
    """Write an edited model in one of the formats, with its tokenizer and its README.

    Args:
        lm: Model with its edits.
        folder: New folder.
        file_format: Name of the format.
        with_edit_file: Write the edits into separate files, in the format `transformers`.
        bias_changes: Measurements of bias, before and after the edit.
        utility_changes: Measurements of utility, before and after the edit.
    """
    checked_format = validate_format(file_format, with_edit_file=with_edit_file)
    if checked_format == "transformers":
        save_edited_model(
            lm,
            folder,
            with_edit_file=with_edit_file,
            bias_changes=bias_changes,
            utility_changes=utility_changes,
        )
        return
    if not lm.edits:
        raise LevelheadError(
            f"the model has no edit to write as {checked_format}", hint="write lm.edited(edit)"
        )
    check_measurement_pairs(lm, lm, (*bias_changes, *utility_changes))
    describe = describe_adapter if checked_format == "peft" else describe_graph
    card_text = render_model_card(
        lm,
        usage=describe(lm, checked_format),
        bias_changes=bias_changes,
        utility_changes=utility_changes,
    )

    def write(model_folder: Path) -> None:
        _WRITERS[checked_format](lm, model_folder)
        with quiet():
            lm.tokens.tokenizer.save_pretrained(model_folder)
        (model_folder / README_FILE).write_text(card_text, encoding="utf-8")

    write_folder(folder, write)


def validate_format(name: str, *, with_edit_file: bool) -> ExportFormat:
    """Return a format by its name; raise if it is unknown or holds no separate edit."""
    file_format: ExportFormat = require_option("format of a model", name, get_args(ExportFormat))
    if with_edit_file and file_format != "transformers":
        raise LevelheadError(
            f"the format {file_format} has the edit inside, not in a separate file",
            hint="leave out --with-edit-file, or choose the format transformers",
        )
    return file_format
