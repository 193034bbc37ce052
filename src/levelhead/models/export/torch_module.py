"""Convert an edited model to a plain PyTorch module for other tools."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import processors

from levelhead.models.edits.merge import NotMergeableError
from levelhead.models.export.standalone import check_standalone, make_hook_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

    from levelhead.core.canonical_json import Json
    from levelhead.models.editable_model import EditableModel
    from levelhead.models.edits.base import Edit
    from levelhead.models.sites import Site


def to_torch_module(lm: EditableModel) -> PreTrainedModel:
    """Return the model if it has no edit; otherwise a copy with its edits merged or as hooks."""
    if not lm.edits:
        return lm.layout.model
    try:
        return lm.merged().layout.model
    except NotMergeableError:
        return copy_with_hooks(lm)


def to_torch_tokenizer(lm: EditableModel) -> Any:
    """Return the model's tokenizer, or a copy that adds the beginning token if it is missing."""
    tokenizer = lm.tokens.tokenizer
    if lm.tokens.bos is None:
        return tokenizer
    copied = copy.deepcopy(tokenizer)
    bos_token = str(copied.convert_ids_to_tokens(lm.tokens.bos))
    # In the backend's template: fast tokenizers may ignore add_bos_token after loading.
    copied.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos_token} $A",
        pair=f"{bos_token} $A $B:1",
        special_tokens=[(bos_token, lm.tokens.bos)],
    )
    copied.bos_token = bos_token
    return copied


def copy_with_hooks(lm: EditableModel) -> PreTrainedModel:
    """Return a copy with hooks that apply the edits in every call, as in `hooks.json`."""
    check_standalone(lm)
    # A copy, because these hooks stay: the user's model must not be edited by a conversion.
    model = copy.deepcopy(lm.layout.model)
    # Some modules are called several times in a forward pass, and are edited in one of the calls.
    call_counts: Counter[int] = Counter()
    model.base_model.register_forward_pre_hook(lambda *_: call_counts.clear())
    sites = [(edit, site) for edit in lm.edits for site in edit.sites]
    for step_index, ((edit, site), step) in enumerate(zip(sites, make_hook_steps(lm), strict=True)):
        module = model.get_submodule(str(step["module"]))
        act = _make_hook_function(edit, site, step, step_index, call_counts)
        if step["side"] == "input":
            module.register_forward_pre_hook(_make_input_hook(act), with_kwargs=True)
        else:
            module.register_forward_hook(_make_output_hook(act))
    return model


def _make_hook_function(
    edit: Edit, site: Site, step: dict[str, Json], step_index: int, call_counts: Counter[int]
) -> Callable[[torch.Tensor], torch.Tensor]:
    call = step["call"]
    ranges: Any = step["columns"]
    columns = torch.cat([torch.arange(*bounds) for bounds in ranges])

    def act(x: torch.Tensor) -> torch.Tensor:
        call_counts[step_index] += 1
        if call is not None and call_counts[step_index] != int(str(call)) + 1:
            return x
        device_columns = columns.to(x.device)
        selected = x[..., device_columns]
        # A decoder's classifier reads all tokens: each of them is edited as a pooled vector.
        if site.stream == "pooled":
            return x.index_copy(
                -1, device_columns, edit(selected.flatten(0, -2), site).view_as(selected)
            )
        return x.index_copy(-1, device_columns, edit(selected, site))

    return act


def _make_input_hook(act: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (act(args[0]), *args[1:]), kwargs
        return args, kwargs | {"hidden_states": act(kwargs["hidden_states"])}

    return hook


def _make_output_hook(act: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def hook(module: Any, args: tuple[Any, ...], output: Any) -> Any:
        return (act(output[0]), *output[1:]) if isinstance(output, tuple) else act(output)

    return hook
