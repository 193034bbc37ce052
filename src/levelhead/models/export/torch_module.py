"""An edited model as the plain PyTorch module that other tools take."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import processors

from levelhead.models.edits.merge import NotBakeable
from levelhead.models.export.standalone import check_can_be_taken, steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

    from levelhead.core.canonical_json import Json
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site


def plain(lm: LM) -> PreTrainedModel:
    """The model itself if it has no edit; else a copy with its edits in weights, or by hooks."""
    if not lm.edits:
        return lm.anatomy.model
    try:
        return lm.baked().anatomy.model
    except NotBakeable:
        return hooked(lm)


def plain_tokenizer(lm: LM) -> Any:
    """The model's tokenizer; a copy that puts first the beginning token if its own forgets it."""
    own = lm.tokens.tokenizer
    if lm.tokens.bos is None:
        return own
    made = copy.deepcopy(own)
    begin = str(made.convert_ids_to_tokens(lm.tokens.bos))
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A",
        pair=f"{begin} $A $B:1",
        special_tokens=[(begin, lm.tokens.bos)],
    )
    made.bos_token = begin
    return made


def hooked(lm: LM) -> PreTrainedModel:
    """A copy that applies the edits wherever it is called, as `hooks.json` would tell."""
    check_can_be_taken(lm)
    model = copy.deepcopy(lm.anatomy.model)
    turns: Counter[int] = Counter()  # some modules are called several times, and edited in one
    model.base_model.register_forward_pre_hook(lambda *_: turns.clear())
    sites = [(edit, site) for edit in lm.edits for site in edit.at]
    for number, ((edit, site), step) in enumerate(zip(sites, steps(lm), strict=True)):
        module = model.get_submodule(str(step["module"]))
        act = _act(edit, site, step, number, turns)
        if step["side"] == "input":
            module.register_forward_pre_hook(_before(act), with_kwargs=True)
        else:
            module.register_forward_hook(_after(act))
    return model


def _act(
    edit: Edit, site: Site, step: dict[str, Json], number: int, turns: Counter[int]
) -> Callable[[torch.Tensor], torch.Tensor]:
    call = step["call"]
    ranges: Any = step["columns"]
    columns = torch.cat([torch.arange(*some) for some in ranges])

    def act(x: torch.Tensor) -> torch.Tensor:
        turns[number] += 1
        if call is not None and turns[number] != int(str(call)) + 1:
            return x
        own = columns.to(x.device)
        rows = x[..., own]
        if site.stream == "pooled":  # a decoder's classifier is shown whole texts, not one vector
            return x.index_copy(-1, own, edit(rows.flatten(0, -2), site).view_as(rows))
        return x.index_copy(-1, own, edit(rows, site))

    return act


def _before(act: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (act(args[0]), *args[1:]), kwargs
        return args, kwargs | {"hidden_states": act(kwargs["hidden_states"])}

    return hook


def _after(act: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def hook(module: Any, args: tuple[Any, ...], output: Any) -> Any:
        return (act(output[0]), *output[1:]) if isinstance(output, tuple) else act(output)

    return hook
