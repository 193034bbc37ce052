"""Low-rank adapters (LoRA; Hu et al. 2022): trained instead of the weights, then merged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelhead.core.errors import MissingExtraError
from levelhead.core.versions import package_version
from levelhead.models.architectures.model_layout import is_transposed

if TYPE_CHECKING:
    from levelhead.models.training.configs import LowRankConfig

ADAPTER_FOLDER = "adapter"
"""Folder of the adapter, in the format of peft, inside that of the merged model."""


def require_peft() -> str:
    """Return the installed version of peft; raise if there is none."""
    version = package_version("peft")
    if version is None:
        raise MissingExtraError("a training with low-rank adapters", "lora")
    return version


def add_adapter(model: Any, config: LowRankConfig) -> Any:
    """Put a new adapter on every linear map of the layers, in place; only it is trained.

    Args:
        model: Model without adapters.
        config: Size of the adapter.
    """
    require_peft()
    # Imported here: it takes seconds, and nothing else needs it.
    import peft

    # The output layer is no linear map of a layer: peft leaves it out.
    adapted = peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,
            lora_dropout=0.0,
            target_modules="all-linear",
            fan_in_fan_out=any(is_transposed(module) for module in model.modules()),
            task_type="CAUSAL_LM",
        ),
    )
    # At every checkpoint peft would look for the base's config on the hub.
    adapted.peft_config["default"].base_model_name_or_path = None
    return adapted


def merge_adapter(adapted: Any, folder: Path, base_name: str) -> None:
    """Write the adapter, then add it to the weights of the model that it was put on, in place.

    Args:
        adapted: Model with an adapter.
        folder: Folder in which the adapter's is made.
        base_name: Name of the base, for the adapter's file.
    """
    target = folder / ADAPTER_FOLDER
    # A kill while it was written leaves a part of it here.
    shutil.rmtree(target, ignore_errors=True)
    # Without the path, so that the file is the same on every machine.
    adapted.peft_config["default"].base_model_name_or_path = Path(base_name).name
    adapted.save_pretrained(target, save_embedding_layers=False)
    # A card with placeholders; levelhead.json says how the adapter was made.
    (target / "README.md").unlink(missing_ok=True)
    adapted.merge_and_unload()
