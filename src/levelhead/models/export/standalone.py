"""Standalone export: an edited model that runs without levelhead if the edit cannot be merged.

The folder holds the base's weights, the edits as `save_edits` writes them, and `hooks.json`: for
every site of every edit, the module, whether its input or output is edited, and the columns. A few
lines of PyTorch apply them. The README contains these lines, for the kinds of edits in the folder.
"""

from __future__ import annotations

import json
from textwrap import indent
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.files import TENSORS_FILE, save_edits
from levelhead.models.edits.kinds import EDIT_KINDS, require_registered
from levelhead.models.edits.merge import find_module_path, forbid_offloaded
from levelhead.models.export.model_card import (
    README_FILE,
    check_measurement_pairs,
    render_model_card,
)
from levelhead.models.export.save import save_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from levelhead.core.canonical_json import Json
    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.editable_model import EditableModel
    from levelhead.models.edits.base import Edit
    from levelhead.models.export.model_card import MeasurementPair
    from levelhead.models.sites import Site

HOOKS_FILE = "hooks.json"
"""File that lists where the edits act, by module names and columns."""

_STEP_KEYS = frozenset({"edit", "kind", "at", "module", "side", "call", "columns"})
"""Keys of a step, in addition to the settings of its edit."""
_FIRST_POSITION_CODE = """\
    if step["tokens"] == "first":
        return torch.cat([edited[:, :1], x[:, 1:]], dim=1)
"""
_CALL_COUNT_CODE = """\
    turns[id(step)] += 1
    if step["call"] is not None and turns[id(step)] != step["call"] + 1:
        return x
"""
_COUNTER_CODE = """
turns = Counter()  # some modules are called several times, and edited in one of the calls
model.base_model.register_forward_pre_hook(lambda *_: turns.clear())
"""
_MODULE_CODE = """\
import json
{counter_import}
import torch
import transformers
from safetensors.torch import load_file

folder = "."  # where this README is
model = transformers.{model_class}.from_pretrained(folder).eval()
tensors = load_file(f"{{folder}}/{tensors}")
with open(f"{{folder}}/{hooks}") as file:
    steps = json.load(file)["steps"]
{counter}

def act(x, step):
{counted}\
    columns = torch.cat([torch.arange(*some, device=x.device) for some in step["columns"]])
    part = x[..., columns]
{acts}\
    edited = x.index_copy(-1, columns, part)
{first}\
    return edited


def hook(step):
    def before(module, args, kwargs):
        if args:
            return (act(args[0], step), *args[1:]), kwargs
        return args, kwargs | {{"hidden_states": act(kwargs["hidden_states"], step)}}

    def after(module, args, output):
        if isinstance(output, tuple):
            return (act(output[0], step), *output[1:])
        return act(output, step)

    module = model.get_submodule(step["module"])
    if step["side"] == "input":
        module.register_forward_pre_hook(before, with_kwargs=True)
    else:
        module.register_forward_hook(after)


for step in steps:  # in this order
    hook(step)
"""


def save_edited_model(
    lm: EditableModel,
    folder: Path,
    *,
    with_edit_file: bool,
    bias_changes: Sequence[MeasurementPair] = (),
    utility_changes: Sequence[MeasurementPair] = (),
) -> None:
    """Write a model and its README, with merged edits or with edits in separate files.

    Args:
        lm: Model with its edits.
        folder: New folder.
        with_edit_file: Write the edits into separate files instead of merging them.
        bias_changes: Measurements of bias, before and after the edit.
        utility_changes: Measurements of utility, before and after the edit.
    """
    if with_edit_file:
        check_standalone(lm)
    saved = lm if with_edit_file or not lm.edits else lm.merged()
    check_measurement_pairs(lm, saved, (*bias_changes, *utility_changes))
    code = make_standalone_code(lm) if with_edit_file else None
    card_text = (
        render_model_card(lm, code=code, bias_changes=bias_changes, utility_changes=utility_changes)
        if lm.edits
        else None
    )

    def write_extras(model_folder: Path) -> None:
        if with_edit_file:
            write_edits_and_hooks(lm, model_folder)
        if card_text is not None:
            (model_folder / README_FILE).write_text(card_text, encoding="utf-8")

    save_model(saved, folder, write_extras=write_extras)


def check_standalone(lm: EditableModel) -> None:
    """Raise unless plain hooks can apply the edits of a model, before anything is written."""
    if not lm.edits:
        raise LevelheadError(
            "the model has no edit to write into a file",
            hint="write lm.edited(edit).save_pretrained(folder, with_edit_file=True)",
        )
    forbid_offloaded(lm.layout)
    for edit in lm.edits:
        require_registered(edit)
        _check_settings(edit)
        for site in edit.sites:
            if lm.is_causal and _get_token_selection(edit, site) == "first":
                # While a decoder generates, its new tokens come one by one: each is the first of
                # its call.
                raise LevelheadError(
                    f"the {edit.kind} at {site} acts on the first token, which a plain hook cannot "
                    "identify while text is generated",
                    hint="let it act on all tokens, or save it with save_edits(edits, folder)",
                )
            if site.stream == "mlp_out" and _get_token_selection(edit, site) == "first":
                # OPT flattens all tokens of all texts into one dimension for its feed-forward: from
                # the activation alone, a hook cannot know where a text begins.
                raise LevelheadError(
                    f"the {edit.kind} at {site} acts on the first token, which a plain hook cannot "
                    "identify there",
                    hint="let it act on all tokens, or save it with save_edits(edits, folder)",
                )


def write_edits_and_hooks(lm: EditableModel, folder: Path) -> None:
    """Write the edits of a model, and the places where they act, into the base's folder."""
    save_edits(lm.edits, folder)
    contents = {
        "format": "levelhead-hooks-1",
        "model_class": _get_class_name(lm),
        "steps": make_hook_steps(lm),
    }
    (folder / HOOKS_FILE).write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")


def make_hook_steps(lm: EditableModel) -> list[dict[str, Json]]:
    """Return the steps that apply the edits, in order: one for every site of every edit."""
    return [
        _make_hook_step(lm.layout, edit_index, edit, site)
        for edit_index, edit in enumerate(lm.edits)
        for site in edit.sites
    ]


def make_standalone_code(lm: EditableModel) -> str:
    """Return Python code that loads the folder and applies the edits without levelhead."""
    # Only the parts that these edits need: readers check the code before they run it.
    all_steps = make_hook_steps(lm)
    needs_counter = any(step["call"] is not None for step in all_steps)
    kinds = {edit.kind for edit in lm.edits}
    return _MODULE_CODE.format(
        model_class=_get_class_name(lm),
        tensors=TENSORS_FILE,
        hooks=HOOKS_FILE,
        counter_import="from collections import Counter\n" if needs_counter else "",
        counter=_COUNTER_CODE if needs_counter else "",
        counted=_CALL_COUNT_CODE if needs_counter else "",
        acts="".join(
            _make_kind_branch(name, kind) for name, kind in EDIT_KINDS.items() if name in kinds
        ),
        first=_FIRST_POSITION_CODE if any(step["tokens"] == "first" for step in all_steps) else "",
    )


def _make_kind_branch(name: str, kind: type[Edit]) -> str:
    """Return the code of a kind, as a branch of `act`."""
    return f'    if step["kind"] == "{name}":\n' + indent(kind.standalone_code(), " " * 8)


def _make_hook_step(
    layout: ModelLayout, edit_index: int, edit: Edit, site: Site
) -> dict[str, Json]:
    module, side, call = layout.hook_point(site.stream, site.layer)
    # These projections are called for position embeddings, too: the number of the call says which.
    is_also_positional = site.stream in layout.family.position_shared_streams
    is_shared = site.stream != "pooled" and layout.is_shared(site.layer)
    step: dict[str, Json] = {
        "edit": edit_index,
        "kind": edit.kind,
        "at": str(site),
        "module": find_module_path(layout, module),
        "side": side,
        "call": call if is_also_positional or is_shared else None,
        "columns": _find_column_ranges(layout, site),
        "tokens": _get_token_selection(edit, site),
    }
    # `tokens` is set already, by what it means at this site.
    return step | {name: value for name, value in edit.settings.items() if name not in step}


def _check_settings(edit: Edit) -> None:
    """Raise if a setting of an edit has the same name as another key of a step."""
    if clashes := sorted(_STEP_KEYS & set(edit.settings)):
        raise LevelheadError(
            f"a setting of the {edit.kind} is called {clashes[0]!r}, which is a key of steps in "
            f"{HOOKS_FILE}",
            hint=f"rename it; these names are taken: {', '.join(sorted(_STEP_KEYS))}",
        )


def _get_token_selection(edit: Edit, site: Site) -> str:
    """Return the token selection of an edit at a site; a text has only one pooled vector.

    Decoders compute class scores of all tokens and choose the last afterwards: all are edited.
    """
    return "all" if site.stream == "pooled" else str(edit.settings.get("tokens", "all"))


def _find_column_ranges(layout: ModelLayout, site: Site) -> Json:
    """Return the columns of the module's activation as few ranges [begin, end)."""
    by_head = layout.head_columns(site.stream, site.layer)
    if by_head is None:
        return ((0, layout.site_width(site)),)
    columns = by_head.flatten() if site.head is None else by_head[site.head]
    ranges: list[list[int]] = []
    for column in columns.tolist():
        if ranges and ranges[-1][1] == column:
            ranges[-1][1] += 1
        else:
            ranges.append([column, column + 1])
    return tuple(tuple(bounds) for bounds in ranges)


def _get_class_name(lm: EditableModel) -> str:
    return type(lm.layout.model).__name__
