"""Batches of rows of about one length. Which rows share a batch depends on the rows alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.inputs.token_tree import seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.models.inputs.tokenizer import Row

Result = TypeVar("Result")


class Batch(NamedTuple):
    """Rows padded to one length, on the model's device."""

    indices: tuple[int, ...]
    """Which rows these are, in the order they were given in."""
    inputs: dict[str, torch.Tensor]
    lengths: tuple[int, ...]

    @property
    def width(self) -> int:
        """Tokens in a row, padding included."""
        return int(self.inputs["input_ids"].shape[1])


@dataclass
class Batching:
    """How large batches are, and what became of that when memory ran out."""

    size: int
    level: bool = False
    """Only rows of one length share a batch, so that nothing is padded."""
    fixed: bool = False
    """Never halved: processes that share a model must all take the same batches."""
    smallest: int = field(default=0)
    """The least size it had to shrink to so far; 0 if it never did."""

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 1:
            raise LevelheadError(
                f"a batch of {self.size!r} rows", mend="give a whole number of at least 1"
            )

    def over(
        self, rows: Sequence[Row], run: Callable[[Sequence[int]], Result]
    ) -> Iterator[tuple[tuple[int, ...], Result]]:
        """Run something over all rows in batches, halving them where memory does not suffice.

        Every run starts with the full size, so that batches do not depend on earlier runs.
        """
        waiting, size = sorted_by_length(rows), self.size
        while waiting:
            indices = waiting[:size]
            if self.level:
                length = len(rows[indices[0]].ids)
                indices = [i for i in indices if len(rows[i].ids) == length]
            result = run(indices) if self.fixed else _tried(indices, run)
            if result is None:
                size = max(1, len(indices) // 2)
                self.smallest = min(self.smallest or size, size)
                continue
            yield tuple(indices), result
            waiting = waiting[len(indices) :]


def _tried(indices: Sequence[int], run: Callable[[Sequence[int]], Result]) -> Result | None:
    """The result, or None if memory did not suffice."""
    try:
        return run(indices)
    except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        if len(indices) == 1:
            raise LevelheadError(
                "memory does not suffice for a single text",
                mend="use a smaller dtype, split the model with device_map, or shorten texts",
            ) from error
    # Outside the handler, so that the failed forward's tensors are no longer held.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def sorted_by_length(rows: Sequence[Row]) -> list[int]:
    """Row numbers, longest first; equal lengths by content, so the order given does not matter.

    Longest first, so that what does not fit in memory shows at once.
    """
    return sorted(range(len(rows)), key=lambda i: (-len(rows[i].ids), rows[i], i))


def padded(rows: Sequence[Row], indices: Sequence[int], *, pad: int, device: torch.device) -> Batch:
    """Some of the rows as one batch, padded on the right."""
    lengths = tuple(len(rows[i].ids) for i in indices)
    longest = max(lengths)

    def filled(values: list[tuple[int, ...]], fill: int) -> torch.Tensor:
        return torch.tensor(
            [(*value, *(fill,) * (longest - len(value))) for value in values], device=device
        )

    inputs = {"input_ids": filled([rows[i].ids for i in indices], pad)}
    inputs["attention_mask"] = filled([(1,) * length for length in lengths], 0)
    if any(rows[i].after for i in indices):
        mask, places = seen([rows[i] for i in indices], longest)
        inputs |= {"attention_mask": mask.to(device), "position_ids": places.to(device)}
    types = [rows[i].types for i in indices]
    if types[0] is not None:
        inputs["token_type_ids"] = filled([own or () for own in types], 0)
    return Batch(tuple(indices), inputs, lengths)


def _is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return (
        isinstance(error, torch.OutOfMemoryError | MemoryError)
        or "DefaultCPUAllocator" in text
        or "out of memory" in text
    )
