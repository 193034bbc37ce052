"""How much of a process's CPU time lies inside the model: its forwards and backwards."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from torch.nn.modules import module

if TYPE_CHECKING:
    from collections.abc import Iterator


@final
@dataclass
class Meter:
    """CPU seconds, of all threads."""

    model: float = 0.0
    all: float = 0.0

    @property
    def share(self) -> float:
        """The model's part."""
        return self.model / self.all if self.all else 0.0

    def __str__(self) -> str:
        return f"{self.model:.1f} of {self.all:.1f} CPU seconds inside the model ({self.share:.0%})"


@contextmanager
def spent() -> Iterator[Meter]:
    """Count while this is open; modules that call others are counted once."""
    meter, began = Meter(), time.process_time()
    depth, since = 0, 0.0

    def enter(*_: object) -> None:
        nonlocal depth, since
        if not depth:
            since = time.process_time()
        depth += 1

    def leave(*_: object) -> None:
        nonlocal depth
        depth -= 1
        if not depth:
            meter.model += time.process_time() - since

    gradient = torch.autograd.grad

    def graded(*args: Any, **options: Any) -> Any:
        enter()
        try:
            return gradient(*args, **options)
        finally:
            leave()

    hooks = (
        module.register_module_forward_pre_hook(enter),
        module.register_module_forward_hook(leave, always_call=True),
    )
    torch.autograd.grad = graded
    try:
        yield meter
    finally:
        torch.autograd.grad = gradient
        for hook in hooks:
            hook.remove()
        meter.all = time.process_time() - began
