"""Notice weights that a caller changes in memory: they have another hash than the files.

The hash of a model is that of its files and edits. Responses of weights that were changed in place
would be stored under it, and stored responses of the files would be taken for those of the changed
weights: the change would look as if it had no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from torch import distributed

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    import torch

_VERSIONS: WeakKeyDictionary[torch.nn.Module, tuple[int, int]] = WeakKeyDictionary()


def record_versions(model: torch.nn.Module) -> None:
    """Record the weights of a model as those that its hash stands for."""
    _VERSIONS[model] = _fingerprint(model)


def check_versions(model: torch.nn.Module) -> None:
    """Raise an error if a weight was changed in place since `record_versions`."""
    if _VERSIONS.setdefault(model, fingerprint := _fingerprint(model)) != fingerprint:
        raise LevelheadError(
            "the weights were changed in memory after the model was loaded",
            hint="use lm.edited(...), or save the changed model and load it from there",
        )


def _fingerprint(model: torch.nn.Module) -> tuple[int, int]:
    """Number of changes in place, as torch counts them for its gradients, and where weights lie.

    An assignment to `weight.data` counts as no change, but moves the weight. Changes in place of
    `weight.data` are not noticed, nor are those of weights that accelerate moves to and fro.
    """
    weights = [*model.parameters()]
    if any(weight.is_meta or weight.is_inference() for weight in weights):
        return 0, 0
    # Processes that share a model gather its weights for every forward pass: they move.
    is_shared = distributed.is_available() and distributed.is_initialized()
    places = () if is_shared else tuple(weight.data_ptr() for weight in weights)
    return sum(weight._version for weight in weights), hash(places)
