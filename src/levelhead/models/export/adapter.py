"""A LoRA adapter of an edit: PEFT and servers such as vLLM switch it on and off.

An edit M y + c after y = W x + b changes the weights by (M - I) W; an edit M x + c before it, by
W (M - I). A projection onto k directions, an erasure of rank k and a scaled head of width k have
M - I of rank k, so the change is exactly B A with k columns and rows: the form of Hu et al. 2022,
section 4.1, with scaling 1. A change of the bias is the bias of B (`lora_bias` in PEFT).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from safetensors.torch import save_file

from levelhead.core.errors import LevelheadError
from levelhead.models.architectures.model_layout import is_transposed
from levelhead.models.edits.merge import plan_updates, read_weight

if TYPE_CHECKING:
    from pathlib import Path

    from levelhead.core.canonical_json import Json
    from levelhead.models.editable_model import EditableModel
    from levelhead.models.edits.merge import WeightUpdate

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
USAGE = """\
This folder is an adapter: the base's weights are not in it. PEFT applies it to the base, and
switches it off again:

```python
import transformers
from peft import PeftModel

base = transformers.{model_class}.from_pretrained({base!r})
model = PeftModel.from_pretrained(base, ".").eval()
with model.disable_adapter():
    pass  # here the model is the base
```"""
BIAS_NOTE = """

The edit also changes biases (`lora_bias`), which PEFT applies. vLLM refuses adapters with biases:
serve the merged weights there."""


class LowRankUpdate(NamedTuple):
    """The change of a linear map, B A and a constant, in float64."""

    down: torch.Tensor
    """A, `[rank, in]`."""
    up: torch.Tensor
    """B, `[out, rank]`."""
    bias: torch.Tensor
    """Change of the bias, `[out]`."""


def write_adapter(lm: EditableModel, folder: Path) -> None:
    """Write the edits of a model as a LoRA adapter in PEFT's layout."""
    updates = find_low_rank_updates(lm)
    # One rank for all modules, which every reader of adapters knows: smaller ones are padded with
    # zeros. A rank of 0, of an edit that only shifts, is not allowed.
    rank = max(1, *(len(update.down) for update in updates.values()))
    has_bias = any(bool(update.bias.any()) for update in updates.values())
    tensors = {}
    for path, update in updates.items():
        for name, tensor in _pad(update, rank).items():
            if has_bias or name != "lora_B.bias":
                tensors[f"base_model.model.{path}.{name}"] = tensor.float().contiguous()
    config: dict[str, Json] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if "causal" in lm.heads else None,
        "base_model_name_or_path": lm.identity.display_name,
        "revision": lm.identity.revision,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": rank,  # scaling is alpha / r: 1
        "lora_dropout": 0.0,
        "bias": "none",
        "lora_bias": has_bias,
        "fan_in_fan_out": any(
            is_transposed(lm.layout.model.get_submodule(path)) for path in updates
        ),
        "target_modules": tuple(updates),
    }
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def describe_adapter(lm: EditableModel, file_format: str) -> str:
    """Return the section of the README that says how to apply the adapter."""
    has_bias = any(bool(update.bias.any()) for update in find_low_rank_updates(lm).values())
    model_class = type(lm.layout.model).__name__
    text = USAGE.format(model_class=model_class, base=lm.identity.display_name)
    return text + BIAS_NOTE * has_bias


def find_low_rank_updates(lm: EditableModel) -> dict[str, LowRankUpdate]:
    """Return the change of every linear map that the edits reach, by the map's name.

    Raises:
        NotMergeableError: An edit is not an affine map before or after a linear map.
        LevelheadError: An edit changes every direction of an activation: it has no low rank.
    """
    updates: dict[str, LowRankUpdate] = {}
    weights: dict[str, torch.Tensor] = {}
    # PEFT adds a constant to a map without a bias, too.
    for affine_update in plan_updates(lm.layout, lm.edits, requires_bias=False):
        linear = lm.layout.model.get_submodule(affine_update.path)
        weight = weights.setdefault(affine_update.path, read_weight(linear))
        bias = cast("torch.Tensor | None", linear.bias)
        base_bias = weight.new_zeros(len(weight)) if bias is None else bias.detach().double()
        previous = updates.get(affine_update.path)
        update = _factor(
            affine_update, weight, base_bias + (0 if previous is None else previous.bias)
        )
        # A second edit of the same map acts on the weights that the first one has changed.
        weights[affine_update.path] = weight + update.up @ update.down
        updates[affine_update.path] = update if previous is None else _join(previous, update)
    return updates


def _factor(affine_update: WeightUpdate, weight: torch.Tensor, bias: torch.Tensor) -> LowRankUpdate:
    """Factor the change that an affine map before or after W x + b makes."""
    columns = affine_update.columns.to(weight.device)
    matrix, offset = (tensor.to(weight.device) for tensor in affine_update.affine_map)
    left, values, right = torch.linalg.svd(matrix - torch.eye(len(matrix)).to(matrix))
    # M - I is 0 in all but a few directions. 1e-10 is far above the rounding of a float64 product
    # and far below any change that float32 weights could show.
    rank = int((values > 1e-10 * max(1.0, float(values[0]))).sum())
    if rank == len(matrix):
        raise LevelheadError(
            f"the edit of {affine_update.path} changes all {rank} directions of the activation: an "
            "adapter of this rank is larger than the weights",
            hint="merge it instead: save_pretrained(folder), or `levelhead export` without "
            "--format",
        )
    left, right = left[:, :rank] * values[:rank], right[:rank]
    bias_change = torch.zeros_like(bias)
    if affine_update.side == "output":
        up = weight.new_zeros(len(weight), rank)
        up[columns] = left
        bias_change[columns] = left @ (right @ bias[columns]) + offset
        return LowRankUpdate(right @ weight[columns], up, bias_change)
    down = weight.new_zeros(rank, weight.shape[1])
    down[:, columns] = right
    return LowRankUpdate(down, weight[:, columns] @ left, weight[:, columns] @ offset)


def _join(first: LowRankUpdate, second: LowRankUpdate) -> LowRankUpdate:
    return LowRankUpdate(
        torch.cat([first.down, second.down]),
        torch.cat([first.up, second.up], dim=1),
        first.bias + second.bias,
    )


def _pad(update: LowRankUpdate, rank: int) -> dict[str, torch.Tensor]:
    """Return the tensors of a module, as PEFT names them, with rows and columns of zeros."""
    padding = rank - len(update.down)
    return {
        "lora_A.weight": torch.nn.functional.pad(update.down, (0, 0, 0, padding)),
        "lora_B.weight": torch.nn.functional.pad(update.up, (0, padding)),
        "lora_B.bias": update.bias,
    }
