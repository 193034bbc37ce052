"""Model parallelism: several processes, started by `torchrun`, share one model.

"tensor": every process has some heads of every layer (transformers' tensor parallelism), and all
processes run the same rows. "rows": every process has a part of all weights (FSDP2) and runs some
of the rows. In both modes, every process ends with the numbers of a single process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import torch
from torch import distributed

from levelhead.core.errors import LevelheadError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ParallelMode = Literal["tensor", "rows"]


@final
@dataclass(frozen=True)
class ModelParallel:
    """Rank of this process, number of processes, and how they share the model."""

    mode: ParallelMode
    rank: int
    size: int

    @classmethod
    def from_torchrun(cls, mode: ParallelMode) -> ModelParallel:
        """Join the process group that `torchrun` has started."""
        if mode not in get_args(ParallelMode):
            raise UnknownNameError("way to share a model", str(mode), get_args(ParallelMode))
        if not distributed.is_initialized():
            if "RANK" not in os.environ:
                raise LevelheadError(
                    "a single process cannot share a model",
                    hint="start it with torchrun --nproc-per-node N",
                )
            # One GPU for each process of a machine; otherwise all would use the first.
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
            # Results are summed on the CPU (gloo); weights are gathered on the GPU (nccl).
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            )
        return cls(mode, distributed.get_rank(), distributed.get_world_size())

    def loading_options(self) -> dict[str, Any]:
        """Return the keyword arguments for `from_pretrained`."""
        # transformers' FSDP requires calls of the complete model, but we call parts of it.
        if self.mode != "tensor":
            return {}
        from transformers.distributed.configuration_utils import DistributedConfig

        return {"distributed_config": DistributedConfig(tp_size=self.size, tp_plan="auto")}

    def shard_weights(self, backbone: torch.nn.Module, blocks: Sequence[torch.nn.Module]) -> None:
        """Split the weights of every layer over the processes, in mode "rows"."""
        if self.mode != "rows" or self.size == 1:
            return
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        device = "cuda" if torch.cuda.is_available() else "cpu"
        mesh = init_device_mesh(device, (self.size,))
        backbone.to(device)
        # Each layer once: ALBERT's shared layer occurs several times.
        for block in dict.fromkeys(blocks):
            fully_shard(block, mesh=mesh)
        # Last, as FSDP2 requires: it takes the weights that no layer has taken.
        fully_shard(backbone, mesh=mesh)

    def check_divisible(self, heads: int, kv_heads: int, *, fused: bool) -> None:
        """Raise unless the heads can be split evenly over the processes."""
        if self.mode != "tensor":
            return
        if fused:
            raise LevelheadError(
                "queries, keys and values of this model are one map: its heads cannot be split",
                hint="use parallel='rows'",
            )
        if heads % self.size or kv_heads % self.size:
            valid_sizes = [
                str(n) for n in range(1, kv_heads + 1) if not (heads % n or kv_heads % n)
            ]
            raise LevelheadError(
                f"{heads} heads ({kv_heads} for keys) cannot be split over {self.size} processes",
                hint=f"start {' or '.join(valid_sizes)} processes, or use parallel='rows'",
            )

    def forbid_split_heads(self, operation: str) -> None:
        """Raise if heads are split over processes, where only gates reach all heads.

        Args:
            operation: What was requested, for the message.
        """
        if self.mode == "tensor" and self.size > 1:
            raise LevelheadError(
                f"heads are split over several processes: {operation} cannot be computed",
                hint="merge the edit into the weights first, or use parallel='rows'",
            )

    def local_heads(self, count: int) -> slice:
        """Return which of `count` heads this process has."""
        if self.mode != "tensor":
            return slice(0, count)
        heads_per_process = count // self.size
        return slice(self.rank * heads_per_process, (self.rank + 1) * heads_per_process)

    def run_across_processes(
        self, indices: Sequence[int], run: Callable[[Sequence[int]], torch.Tensor], *, dim: int
    ) -> torch.Tensor:
        """Run each row in one process only, and return the results of all rows everywhere.

        Args:
            indices: Numbers of the rows.
            run: Computes the result of some rows.
            dim: Dimension of the result that counts the rows.
        """
        if self.mode != "rows" or self.size == 1:
            return run(indices)
        local_rows = list(range(len(indices)))[self.rank :: self.size]
        # Weights are gathered from all processes in every forward pass: a process without rows
        # runs row 0 and discards the result.
        values = run([indices[i] for i in local_rows or [0]])
        shape = list(values.shape)
        shape[dim] = len(indices)
        total = torch.zeros(shape, dtype=values.dtype)
        if local_rows:
            total.index_copy_(dim, torch.tensor(local_rows), values)
        # Each row is 0 in all processes but one: the sum only collects, without rounding.
        distributed.all_reduce(total)
        return total

    def sum_gates(self, gates: torch.Tensor) -> torch.Tensor:
        """Sum the derivatives by head masks over processes; each has those of its heads."""
        if self.mode == "tensor" and self.size > 1:
            # all_reduce accepts only contiguous tensors.
            gates = gates.contiguous()
            distributed.all_reduce(gates)
        return gates


# In mode "rows" a process has all heads, and a single one has all rows.
SINGLE_PROCESS = ModelParallel("rows", 0, 1)
