"""Measure how much of a process's CPU time is spent in the model's forward and backward passes."""

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
class CpuTime:
    """CPU seconds of all threads: inside the model, and in total."""

    in_model: float = 0.0
    total: float = 0.0

    @property
    def share(self) -> float:
        """Share of the model in the total."""
        return self.in_model / self.total if self.total else 0.0

    def __str__(self) -> str:
        seconds = f"{self.in_model:.1f} of {self.total:.1f} CPU seconds"
        return f"{seconds} inside the model ({self.share:.0%})"


@contextmanager
def measure_cpu_time() -> Iterator[CpuTime]:
    """Measure CPU time inside this context; nested calls of modules are counted once."""
    # process_time counts all threads of the process, those of backward passes included.
    cpu_time, start = CpuTime(), time.process_time()
    depth, entered = 0, 0.0

    # Modules call modules: only the outermost call starts and stops the clock.
    def enter(*_: object) -> None:
        nonlocal depth, entered
        if not depth:
            entered = time.process_time()
        depth += 1

    def leave(*_: object) -> None:
        nonlocal depth
        depth -= 1
        if not depth:
            cpu_time.in_model += time.process_time() - entered

    # A backward pass calls no module's hooks: the function that starts it is wrapped.
    original_grad = torch.autograd.grad

    def timed_grad(*args: Any, **options: Any) -> Any:
        enter()
        try:
            return original_grad(*args, **options)
        finally:
            leave()

    hooks = (
        module.register_module_forward_pre_hook(enter),
        # Also after an exception, or the depth would never return to 0.
        module.register_module_forward_hook(leave, always_call=True),
    )
    torch.autograd.grad = timed_grad
    try:
        yield cpu_time
    finally:
        torch.autograd.grad = original_grad
        for hook in hooks:
            hook.remove()
        cpu_time.total = time.process_time() - start
