"""An edited model that needs no levelhead, where plain weights cannot carry the edit.

The base's weights, the edits as `save_edits` writes them, and `hooks.json`: for every site of every
edit the module, the side of it and the columns, so that a few lines of PyTorch apply them. Those
lines stand in the README beside, for the kinds of edits that are there and no others.
"""

from __future__ import annotations

import json
from textwrap import indent
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.files import TENSORS, save_edits
from levelhead.models.edits.kinds import EDIT_KINDS, refuse_unregistered
from levelhead.models.edits.merge import path_of, refuse_offloaded
from levelhead.models.export.model_card import README, card, check_changes
from levelhead.models.export.save import save_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from levelhead.core.canonical_json import Json
    from levelhead.models.architectures.model_layout import Anatomy
    from levelhead.models.edits.base import Edit
    from levelhead.models.export.model_card import Change
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

HOOKS = "hooks.json"
"""In the folder of a model that was saved with its edits: where they act, in plain words."""

_STEP_KEYS = frozenset({"edit", "kind", "at", "module", "side", "call", "columns"})
"""What a step says beside the settings of its edit."""
_FIRST = """\
    if step["tokens"] == "first":
        return torch.cat([edited[:, :1], x[:, 1:]], dim=1)
"""
_COUNTED = """\
    turns[id(step)] += 1
    if step["call"] is not None and turns[id(step)] != step["call"] + 1:
        return x
"""
_COUNTER = """
turns = Counter()  # some modules are called several times, and edited in one of the calls
model.base_model.register_forward_pre_hook(lambda *_: turns.clear())
"""
_CODE = """\
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


def save_edited(
    lm: LM,
    folder: Path,
    *,
    with_edit_file: bool,
    gained: Sequence[Change] = (),
    paid: Sequence[Change] = (),
) -> None:
    """Write a model with its edits folded into the weights, or beside them; and its README."""
    if with_edit_file:
        check_can_be_taken(lm)
    saved = lm if with_edit_file or not lm.edits else lm.baked()
    check_changes(lm, saved, (*gained, *paid))
    code = how_to_apply(lm) if with_edit_file else None
    text = card(lm, code=code, gained=gained, paid=paid) if lm.edits else None

    def beside(written: Path) -> None:
        if with_edit_file:
            write_edits(lm, written)
        if text is not None:
            (written / README).write_text(text, encoding="utf-8")

    save_whole(saved, folder, beside=beside)


def check_can_be_taken(lm: LM) -> None:
    """Raise unless plain hooks can apply the edits of a model; said before anything is written."""
    if not lm.edits:
        raise LevelheadError(
            "there is no edit to write beside the model",
            mend="write lm.edited(edit).save_pretrained(folder, with_edit_file=True)",
        )
    refuse_offloaded(lm.anatomy)
    for edit in lm.edits:
        refuse_unregistered(edit)
        _check_settings(edit)
        for site in edit.at:
            if lm.is_causal and _tokens(edit, site) == "first":
                # A decoder that generates is shown its new tokens one by one, each of them first.
                raise LevelheadError(
                    f"the {edit.kind} at {site} acts on the first token, which a plain hook does "
                    "not know while text is generated",
                    mend="let it act on all tokens, or save it with save_edits(edits, folder)",
                )
            if site.stream == "mlp_out" and _tokens(edit, site) == "first":
                # OPT hands its feed-forward all tokens of all texts in one line: a hook that
                # knows no more than the activation cannot tell where a text begins.
                raise LevelheadError(
                    f"the {edit.kind} at {site} acts on the first token, which a plain hook does "
                    "not find there",
                    mend="let it act on all tokens, or save it with save_edits(edits, folder)",
                )


def write_edits(lm: LM, folder: Path) -> None:
    """Write the edits of a model and where they act into the folder of its base."""
    save_edits(lm.edits, folder)
    contents = {"format": "levelhead-hooks-1", "model_class": _class(lm), "steps": steps(lm)}
    (folder / HOOKS).write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")


def steps(lm: LM) -> list[dict[str, Json]]:
    """What is to be done, in order: one step for every site of every edit."""
    return [
        _step(lm.anatomy, number, edit, site)
        for number, edit in enumerate(lm.edits)
        for site in edit.at
    ]


def how_to_apply(lm: LM) -> str:
    """Lines of Python that load the folder and apply the edits, without levelhead."""
    done = steps(lm)
    counted = any(step["call"] is not None for step in done)
    kinds = {edit.kind for edit in lm.edits}
    return _CODE.format(
        model_class=_class(lm),
        tensors=TENSORS,
        hooks=HOOKS,
        counter_import="from collections import Counter\n" if counted else "",
        counter=_COUNTER if counted else "",
        counted=_COUNTED if counted else "",
        acts="".join(_acts(name, kind) for name, kind in EDIT_KINDS.items() if name in kinds),
        first=_FIRST if any(step["tokens"] == "first" for step in done) else "",
    )


def _acts(name: str, kind: type[Edit]) -> str:
    """The lines of a kind, as a branch of `act`."""
    return f'    if step["kind"] == "{name}":\n' + indent(kind.standalone_code(), " " * 8)


def _step(anatomy: Anatomy, number: int, edit: Edit, site: Site) -> dict[str, Json]:
    module, side, call = anatomy.place(site.stream, site.layer)
    again = site.stream in anatomy.family.positions_too  # called for position embeddings as well
    shared = site.stream != "pooled" and anatomy.is_shared(site.layer)
    step: dict[str, Json] = {
        "edit": number,
        "kind": edit.kind,
        "at": str(site),
        "module": path_of(anatomy, module),
        "side": side,
        "call": call if again or shared else None,
        "columns": _columns(anatomy, site),
        "tokens": _tokens(edit, site),
    }
    # `tokens` is said already, as it is at this site.
    return step | {name: value for name, value in edit.settings.items() if name not in step}


def _check_settings(edit: Edit) -> None:
    """Raise if a setting of an edit has the name of something else that a step says."""
    if taken := sorted(_STEP_KEYS & set(edit.settings)):
        raise LevelheadError(
            f"a setting of the {edit.kind} is called {taken[0]!r}, as what {HOOKS} says of a step",
            mend=f"call it something else than {', '.join(sorted(_STEP_KEYS))}",
        )


def _tokens(edit: Edit, site: Site) -> str:
    """A pooled vector is all there is of a text; decoders pool after the last map, not before."""
    return "all" if site.stream == "pooled" else str(edit.settings.get("tokens", "all"))


def _columns(anatomy: Anatomy, site: Site) -> Json:
    """The columns of the module's activation as [begin, end), as few as they can be."""
    found = anatomy.columns(site.stream, site.layer)
    if found is None:
        return ((0, anatomy.size(site)),)
    wanted = found.flatten() if site.head is None else found[site.head]
    ranges: list[list[int]] = []
    for column in wanted.tolist():
        if ranges and ranges[-1][1] == column:
            ranges[-1][1] += 1
        else:
            ranges.append([column, column + 1])
    return tuple(tuple(one) for one in ranges)


def _class(lm: LM) -> str:
    return type(lm.anatomy.model).__name__
