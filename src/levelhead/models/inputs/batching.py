"""Batches of rows of similar length. Which rows share a batch depends only on the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.inputs.token_tree import tree_attention_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.inputs.tokenizer import TokenRow

Result = TypeVar("Result")


class Batch(NamedTuple):
    """Rows padded to one length, on the model's device."""

    indices: tuple[int, ...]
    """Numbers of the rows."""
    inputs: dict[str, torch.Tensor]
    lengths: tuple[int, ...]

    @property
    def width(self) -> int:
        """Number of tokens in a row, with padding."""
        return int(self.inputs["input_ids"].shape[1])


@dataclass
class Batching:
    """Batch size, and how far it had to shrink when memory ran out."""

    size: int
    equal_length_only: bool = False
    """Whether only rows of one length may share a batch, so that there is no padding."""
    has_fixed_size: bool = False
    """Whether batches are never halved: processes that share a model must use the same batches."""
    smallest_size: int = field(default=0)
    """The smallest size that memory forced so far; 0 if it never shrank."""

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 1:
            raise LevelheadError(
                f"{self.size!r} is not a batch size", hint="give an integer of at least 1"
            )

    def run_batches(
        self, rows: Sequence[TokenRow], run: Callable[[Sequence[int]], Result]
    ) -> Iterator[tuple[tuple[int, ...], Result]]:
        """Run a function over all rows in batches, which are halved when memory runs out.

        Every run starts with the full size, so that batches do not depend on earlier runs.

        Args:
            rows: All rows.
            run: Function of the numbers of the rows of one batch.

        Yields:
            Numbers of the rows, and the result of `run`.
        """
        pending, size = sorted_by_length(rows), self.size
        while pending:
            indices = pending[:size]
            if self.equal_length_only:
                length = len(rows[indices[0]].ids)
                indices = [i for i in indices if len(rows[i].ids) == length]
            # Other processes cannot halve their batch in the middle of a common forward pass.
            result = run(indices) if self.has_fixed_size else _run_if_memory_suffices(indices, run)
            if result is None:
                size = max(1, len(indices) // 2)
                self.smallest_size = min(self.smallest_size or size, size)
                continue
            yield tuple(indices), result
            pending = pending[len(indices) :]


def make_batching(layout: ModelLayout, size: int) -> Batching:
    """Create the batching of a model; rows are not padded if padding changes its results.

    In float64, families that compute their softmax in float32 (gemma2) turn padding into NaN,
    because the smallest float64 becomes minus infinity there. Float64 serves for checks, where
    speed matters little, so float64 batches hold only rows of one length.
    """
    return Batching(size, layout.family.padding_sensitive or layout.model.dtype == torch.float64)


def _run_if_memory_suffices(
    indices: Sequence[int], run: Callable[[Sequence[int]], Result]
) -> Result | None:
    """Return the result, or None if memory ran out."""
    try:
        return run(indices)
    except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        if len(indices) == 1:
            raise LevelheadError(
                "there is not enough memory for a single text",
                hint="use a smaller dtype, split the model with device_map, or shorten texts",
            ) from error
    # Outside the handler: the exception holds references to the failed forward pass's tensors.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def sorted_by_length(rows: Sequence[TokenRow]) -> list[int]:
    """Return row numbers, longest rows first; rows of equal length are sorted by content.

    The order of the input therefore does not matter, and a row that does not fit in memory fails
    at once.
    """
    return sorted(range(len(rows)), key=lambda i: (-len(rows[i].ids), rows[i], i))


def make_batch(
    rows: Sequence[TokenRow], indices: Sequence[int], *, pad: int, device: torch.device
) -> Batch:
    """Put some of the rows into one batch, padded on the right.

    Args:
        rows: All rows.
        indices: Numbers of the rows of the batch.
        pad: Id of the padding token.
        device: Device of the tensors.
    """
    lengths = tuple(len(rows[i].ids) for i in indices)
    longest = max(lengths)

    def pad_rows(values: list[tuple[int, ...]], fill_value: int) -> torch.Tensor:
        return torch.tensor(
            [(*value, *(fill_value,) * (longest - len(value))) for value in values], device=device
        )

    inputs = {"input_ids": pad_rows([rows[i].ids for i in indices], pad)}
    inputs["attention_mask"] = pad_rows([(1,) * length for length in lengths], 0)
    if any(rows[i].parents for i in indices):
        mask, position_ids = tree_attention_mask([rows[i] for i in indices], longest)
        inputs |= {"attention_mask": mask.to(device), "position_ids": position_ids.to(device)}
    token_types = [rows[i].token_types for i in indices]
    if token_types[0] is not None:
        inputs["token_type_ids"] = pad_rows([row_types or () for row_types in token_types], 0)
    return Batch(tuple(indices), inputs, lengths)


def _is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    # The CPU allocator raises a plain RuntimeError, which only its message identifies.
    return (
        isinstance(error, torch.OutOfMemoryError | MemoryError)
        or "DefaultCPUAllocator" in text
        or "out of memory" in text
    )
